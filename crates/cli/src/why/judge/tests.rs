use super::*;
use crate::why::Answer;
use linux::probe::process::State;
use std::time::Duration;
use thalweg::ChannelReport;
use thalweg::Event;
use thalweg::admin::EndReport;
use thalweg::admin::explain::{Explanation, Stage, SubscriberState, Way};
use thalweg::codec::TypeDescription;
use thalweg::control::Direction::{Publisher, Subscriber};
use thalweg::control::{Direction, Document, Foreign, NodeId, PortInfo};

/// `/out` and `/in` of one topic on one host, with an open channel that works, changed by `fault`.
fn judged(fault: impl FnOnce(&mut Evidence)) -> Diagnosis {
    let end = |direction, name: &str| {
        let said = Said { looks: vec![look(), look()], channel: Some((report(name), report(name))), ..Said::default() };
        End { port: port(direction, name), node: document(), holders: 1, answer: Answer::Said(Box::new(said)) }
    };
    let mut evidence = Evidence {
        asked: ["/out".into(), "/in".into()],
        ports: vec![("/out".into(), Publisher), ("/in".into(), Subscriber)],
        realm: "default".into(),
        publisher: Some(end(Publisher, "/out")),
        subscriber: Some(end(Subscriber, "/in")),
        watched: Duration::from_millis(500),
        ..Evidence::default()
    };
    fault(&mut evidence);
    judge(&evidence)
}

/// The kinds of problems with this fault.
fn ids(fault: impl FnOnce(&mut Evidence)) -> Vec<&'static str> {
    let diagnosis = judged(fault);
    assert!(!diagnosis.verdict.is_empty());
    assert!(diagnosis.problems.iter().all(|p| !p.what.is_empty() && !p.remedy.is_empty()), "{diagnosis}");
    diagnosis.problems.iter().map(|problem| problem.kind.id).collect()
}

fn port(direction: Direction, name: &str) -> PortInfo {
    PortInfo {
        name: name.into(),
        direction,
        topic: "/a".into(),
        message: TypeDescription::opaque("test"),
        qos: qos::Qos::default(),
        carriers: vec!["tcp".into()],
        answers: None,
        pull: Default::default(),
        foreign: None,
    }
}

fn document() -> Document {
    Document {
        node: NodeId(1),
        name: "node".into(),
        realm: "default".into(),
        host: "host".into(),
        host_name: "host".into(),
        clock: "clock".into(),
        pid: 1,
        incarnation: 1,
        revision: 1,
        addresses: Vec::new(),
        socket: None,
        ports: Default::default(),
        relay: None,
    }
}

fn look() -> Explanation {
    let ways = vec![Way { carrier: "tcp".into(), to: "127.0.0.1:7".into() }];
    let subscriber = Some(SubscriberState { has_callback: true, ..SubscriberState::default() });
    Explanation { other: Some(document()), stage: Stage::Open, ways, subscriber, ..Explanation::default() }
}

fn report(name: &str) -> ChannelReport {
    let end = if name == "/out" { "publisher" } else { "subscriber" };
    let report = serde_json::json!({
        "topic": "/a", "publisher": "/out", "subscriber": "/in", "carrier": "tcp", "end": end,
        "samples": 1000, "bytes": 8000, "lost": 0, "waiting": 0,
    });
    serde_json::from_value(report).unwrap()
}

fn said(end: &mut Option<End>) -> &mut Said {
    match &mut end.as_mut().unwrap().answer {
        Answer::Said(said) => said,
        Answer::Silent(_) => panic!(),
    }
}

/// The channel's reports at one end, first and last.
fn reports(end: &mut Option<End>) -> (&mut ChannelReport, &mut ChannelReport) {
    let (first, last) = said(end).channel.as_mut().unwrap();
    (first, last)
}

/// Closes the channel, and changes the explanation of the subscriber's node.
fn not_open(evidence: &mut Evidence, change: impl FnOnce(&mut Explanation)) {
    said(&mut evidence.publisher).channel = None;
    said(&mut evidence.subscriber).channel = None;
    change(said(&mut evidence.subscriber).looks.last_mut().unwrap());
}

#[test]
fn a_channel_that_works_has_no_problem_and_says_how_fast_it_is() {
    let diagnosis = judged(|e| {
        reports(&mut e.publisher).1.samples = 1050;
        reports(&mut e.subscriber).1.samples = 1050;
    });
    assert_eq!(diagnosis.problems, []);
    assert_eq!(diagnosis.verdict, "/out → /in over tcp: healthy, 100 samples/s, 0 lost");
    // An old loss of one in a thousand is evidence, not a problem.
    assert_eq!(ids(|e| (reports(&mut e.subscriber).0.lost, reports(&mut e.subscriber).1.lost) = (1, 1)), [""; 0]);
    // Both ends of a ring see what was dropped in it.
    let ring = judged(|e| {
        for end in [&mut e.publisher, &mut e.subscriber] {
            let (first, last) = reports(end);
            (first.carrier, last.carrier) = ("shm".into(), "shm".into());
            (first.lost, last.lost) = (1, 1);
        }
    });
    assert!(ring.verdict.ends_with(", 1 lost"), "{}", ring.verdict);
}

#[test]
fn instances_that_miss_their_deadlines_are_named() {
    let diagnosis = judged(|e| {
        let late = r#"{"key":"name = left","state":"alive","publishers":1,"deadlines_missed":4}"#;
        let state = said(&mut e.subscriber).looks[1].subscriber.as_mut().unwrap();
        state.late = vec![serde_json::from_str(late).unwrap()];
        let missed =
            |key: &str| Event::DeadlineMissed { port: "/out".into(), instance: Some(key.into()), missed: 1, total: 7 };
        said(&mut e.publisher).looks[1].events = vec![missed("name = low"), missed("name = left")];
    });
    let shown = diagnosis.to_string();
    assert_eq!(diagnosis.problems, []);
    assert!(shown.contains("/in missed 4 deadlines of instance name = left"), "{shown}");
    assert!(shown.contains("/out missed 1 deadlines of instance name = left, 7 in all"), "{shown}");
}

#[test]
fn limits_in_bytes_that_bind_are_named_with_value_and_limit() {
    let over = |end: &mut Option<End>, bytes: u64, memory: u64| {
        let (first, last) = reports(end);
        (first.most_bytes, last.most_bytes, last.waiting_bytes) = (64 << 20, 64 << 20, 63 << 20);
        (last.lost, last.over_bytes, last.over_memory) = (bytes + memory, bytes, memory);
    };
    let at_publisher = judged(|e| over(&mut e.publisher, 40, 0));
    assert_eq!(at_publisher.problems.iter().map(|p| p.kind.id).collect::<Vec<_>>(), ["over-bytes"]);
    let shown = at_publisher.to_string();
    for part in ["/out drops samples for /in by their bytes", "40 in all", "66.1 MB wait, 67.1 MB may", "bytes=SIZE"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert_eq!(ids(|e| over(&mut e.subscriber, 40, 0))[0], "over-bytes");
    let shown = judged(|e| {
        over(&mut e.publisher, 0, 40);
        let peer = thalweg::admin::PeerMemory {
            peer: thalweg::admin::Peer::Node(NodeId(7)),
            used: 500_000_000,
            limit: 520_000_000,
            refused: 3,
        };
        let memory = thalweg::admin::MemoryReport {
            used: 900_000_000,
            limit: 1 << 30,
            refused: 9,
            peers: vec![peer],
            histories: Default::default(),
            documents: Default::default(),
        };
        said(&mut e.publisher).memory = Some(memory);
    });
    let shown = shown.to_string();
    for part in ["over-memory", "it holds 900.0 MB of 1.07 GB", "500.0 MB of 520.0 MB", "Settings::memory"] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn missing_ports_are_reported_with_similar_names() {
    let missing = |e: &mut Evidence| {
        e.publisher = None;
        e.asked[0] = "/uot".into();
    };
    let diagnosis = judged(missing);
    assert_eq!((diagnosis.problems[0].kind.id, &diagnosis.problems[0].remedy[..]), ("no-port", "is it /out?"));
    let elsewhere = |e: &mut Evidence| {
        missing(e);
        e.elsewhere = vec![("/uot".into(), "lab".into())];
    };
    assert_eq!(ids(elsewhere), ["other-realm"]);
    assert_eq!(ids(|e| std::mem::swap(&mut e.publisher, &mut e.subscriber)), ["direction"]);
    assert_eq!(ids(|e| e.subscriber.as_mut().unwrap().holders = 2), ["name-twice"]);
}

#[test]
fn a_silent_node_is_reported_with_the_state_of_its_process() {
    let silent = |state| ids(move |e: &mut Evidence| e.subscriber.as_mut().unwrap().answer = Answer::Silent(state));
    assert_eq!(silent(Some(State::Stopped)), ["node-stopped"]);
    assert_eq!(silent(Some(State::Gone)), ["node-dead"]);
    assert_eq!(silent(Some(State::Alive)), ["node-silent"]);
    assert_eq!(silent(None), ["node-silent"]);
}

#[test]
fn policies_that_do_not_fit_are_named() {
    let wanting = |change: fn(&mut End, &mut End)| {
        ids(move |e: &mut Evidence| {
            not_open(e, |look| look.stage = Stage::Unwanted);
            change(e.publisher.as_mut().unwrap(), e.subscriber.as_mut().unwrap());
        })
    };
    assert_eq!(wanting(|_, s| s.port.topic = "/b".into()), ["topic"]);
    let around = judged(|e| {
        not_open(e, |look| look.stage = Stage::Unwanted);
        for end in [&mut e.publisher, &mut e.subscriber] {
            end.as_mut().unwrap().port.foreign = Some(Foreign { engine: "dds".into(), ..Foreign::default() });
        }
    });
    assert!(around.problems[0].what.contains("do not go back"), "{around}");
    assert_eq!(wanting(|_, s| s.port.message = TypeDescription::opaque("other")), ["type"]);
    assert_eq!(wanting(|p, _| p.port.qos.reliability = qos::Reliability::BestEffort), ["reliability"]);
    assert_eq!(wanting(|_, s| s.port.carriers = vec!["shm".into()]), ["carrier"]);
    let all = wanting(|p, s| {
        p.port.qos.reliability = qos::Reliability::BestEffort;
        s.port.qos.deadline = Some(std::time::Duration::from_millis(20));
        s.port.carriers = vec!["shm".into()];
    });
    assert_eq!(all, ["reliability", "policy", "carrier"]);
    let apart = |e: &mut Evidence| not_open(e, |look| look.apart = true);
    assert_eq!(ids(apart), ["apart"]);
}

#[test]
fn a_channel_that_does_not_open_is_reported_with_the_attempts() {
    let at = |change: fn(&mut Explanation)| ids(move |e: &mut Evidence| not_open(e, change));
    let failed = || Event::CarrierFailed {
        publisher: "/out".into(),
        subscriber: "/in".into(),
        carrier: "tcp".into(),
        reason: "no answer in time".into(),
    };
    assert_eq!(at(|look| (look.stage, look.other) = (Stage::Unwanted, None)), ["one-sided"]);
    assert_eq!(at(|look| look.stage = Stage::Unwanted), ["unreachable"]);
    assert_eq!(at(|look| look.stage = Stage::Refused), ["refused"]);
    assert_eq!(at(|look| look.stage = Stage::Trying), ["not-open"]);
    let tried = |e: &mut Evidence| {
        not_open(e, |look| (look.stage, look.events) = (Stage::Waiting, vec![failed(), failed()]));
    };
    assert_eq!(ids(tried), ["carrier-failed"]);
    assert_eq!(judged(tried).verdict.matches("no answer in time").count(), 1);
    let far = |e: &mut Evidence| {
        not_open(e, |look| look.stage = Stage::Unwanted);
        e.publisher.as_mut().unwrap().node.host = "other".into();
    };
    assert!(judged(far).problems[0].remedy.contains("--listen"));
}

#[test]
fn a_better_carrier_that_failed_is_told_with_its_reason() {
    let names = || ("/out".to_owned(), "/in".to_owned());
    let fell_back = |e: &mut Evidence| {
        let look = said(&mut e.subscriber).looks.last_mut().unwrap();
        look.ways.insert(0, Way { carrier: "shm".into(), to: "/socket".into() });
        let ((publisher, subscriber), (carrier, reason)) = (names(), ("shm".into(), "no memory".to_owned()));
        look.events.push(Event::CarrierFailed { publisher, subscriber, carrier, reason });
        let (publisher, subscriber) = names();
        look.events.push(Event::Matched { publisher, subscriber, carrier: "tcp".into() });
    };
    assert_eq!(ids(fell_back), ["slower-carrier"]);
    assert!(judged(fell_back).verdict.contains("no memory"));
}

#[test]
fn two_processes_of_one_number_have_no_slower_carrier() {
    let passed_over = |e: &mut Evidence| {
        let look = said(&mut e.subscriber).looks.last_mut().unwrap();
        look.ways.insert(0, Way { carrier: "local".into(), to: "this process".into() });
    };
    assert_eq!(ids(passed_over), ids(|_| ()));
}

#[test]
fn missing_samples_are_found_where_they_were_lost() {
    assert_eq!(ids(|e| reports(&mut e.publisher).1.lost = 5), ["queue-full"]);
    let too_large = |e: &mut Evidence| {
        let last = reports(&mut e.publisher).1;
        (last.lost, last.too_large) = (5, 5);
    };
    assert_eq!(ids(too_large), ["too-large"]);
    let policed = |e: &mut Evidence| {
        let last = reports(&mut e.publisher).1;
        (last.lost, last.policed) = (5, 5);
    };
    assert_eq!(ids(policed), ["policed"]);
    let counted = |drops| linux::queueing::Counters { drops, ..Default::default() };
    let beyond =
        |from, to| move |e: &mut Evidence| said(&mut e.publisher).own_queue = Some((counted(from), counted(to)));
    assert_eq!((ids(beyond(3, 5)), ids(beyond(5, 5))), (vec!["own-queue"], vec![]));
    let control =
        |from, to| move |e: &mut Evidence| said(&mut e.subscriber).control_queue = Some((counted(from), counted(to)));
    assert_eq!((ids(control(3, 5)), ids(control(5, 5))), (vec!["control-queue"], vec![]));
    assert_eq!((ids(beyond(5, 0)), ids(control(5, 0))), (vec![], vec![]), "queues that were made anew");
    let shown = judged(control(5, 5)).evidence.into_iter().find(|line| line.about == "control").unwrap();
    assert!(shown.says.contains("5 dropped"), "{shown:?}");
    let busy = |e: &mut Evidence| {
        reports(&mut e.publisher).1.lost = 5;
        said(&mut e.subscriber).looks.iter_mut().for_each(|l| l.subscriber.as_mut().unwrap().in_callback = 7);
    };
    assert_eq!(ids(busy), ["slow-callback"]);
    let starved = |e: &mut Evidence| {
        reports(&mut e.publisher).1.waiting = 5;
        said(&mut e.subscriber).starved_ns = Some(200_000_000);
    };
    assert_eq!(ids(starved), ["starved"]);
    // Unless samples wait for the thread, its delay does no harm.
    assert_eq!(ids(|e| said(&mut e.subscriber).starved_ns = Some(200_000_000)), [""; 0]);
    let full = |e: &mut Evidence| said(&mut e.subscriber).looks[1].subscriber.as_mut().unwrap().dropped = 5;
    assert_eq!(ids(full), ["not-taken"]);
    let blocks = |waiting| {
        move |e: &mut Evidence| {
            e.subscriber.as_mut().unwrap().port.qos.queue = qos::Queue::Block { limit: 4, up_to_us: 1_000_000 };
            reports(&mut e.publisher).1.lost = 5;
            said(&mut e.subscriber).looks.iter_mut().for_each(|l| l.subscriber.as_mut().unwrap().waiting = waiting);
        }
    };
    assert_eq!((ids(blocks(4)), ids(blocks(3))), (vec!["not-taken"], vec!["queue-full"]));
    let other_type = |e: &mut Evidence| said(&mut e.subscriber).looks[1].subscriber.as_mut().unwrap().undecodable = 5;
    assert_eq!(ids(other_type), ["undecodable"]);
    assert_eq!(ids(|e| reports(&mut e.subscriber).1.malformed = 500), ["strange"]);
    let bombs = |e: &mut Evidence| {
        let last = reports(&mut e.publisher).1;
        (last.samples, last.unscalable) = (0, 5);
    };
    assert_eq!(ids(bombs), ["unscalable"]);
}

#[test]
fn losses_on_the_way_are_the_networks_only_where_there_are_datagrams() {
    let lossy = |carrier: &str| {
        ids(|e: &mut Evidence| {
            let both = [&mut e.publisher, &mut e.subscriber];
            both.into_iter().for_each(|end| reports(end).1.carrier = carrier.into());
            reports(&mut e.subscriber).1.lost = 50;
        })
    };
    assert_eq!((lossy("udp"), lossy("tcp")), (vec!["lost"], vec![]));
    let nothing = |e: &mut Evidence| {
        let both = [&mut e.publisher, &mut e.subscriber];
        both.into_iter().for_each(|end| (reports(end).0.samples, reports(end).1.samples) = (0, 0));
    };
    assert_eq!(ids(nothing), ["silent"]);
    let throttled = |e: &mut Evidence| {
        nothing(e);
        said(&mut e.publisher).looks[1].monitors = vec!["/out: type throttle".into()];
    };
    assert!(judged(throttled).verdict.ends_with("nothing passed the monitor of /out: type throttle"));
    let sent = |e: &mut Evidence| {
        nothing(e);
        reports(&mut e.publisher).1.samples = 100;
    };
    assert_eq!(ids(sent), ["not-arriving"]);
}

/// A flow that stopped at one end is not healthy because it worked before.
#[test]
fn a_channel_with_a_deaf_end_is_not_healthy() {
    let stopped = |carrier: &'static str, acknowledged| {
        move |e: &mut Evidence| {
            for end in [&mut e.publisher, &mut e.subscriber] {
                let (first, last) = reports(end);
                (first.carrier, last.carrier) = (carrier.into(), carrier.into());
            }
            let last = reports(&mut e.publisher).1;
            (last.samples, last.acknowledgements) = (1500, acknowledged);
        }
    };
    for carrier in ["udp", "mcast", "tcp", "shm"] {
        assert_eq!(ids(stopped(carrier, 0)), ["not-arriving"], "{carrier}");
    }
    let diagnosis = judged(stopped("udp", 0));
    assert!(diagnosis.verdict.starts_with("/out sends, and /in receives nothing any more: 500 samples"), "{diagnosis}");
    assert!(diagnosis.problems[0].remedy.starts_with("nothing comes through to /in"), "{diagnosis}");
    let remedy = &judged(stopped("udp", 9)).problems[0].remedy;
    assert!(remedy.starts_with("/in answers /out, so small datagrams come through"), "{remedy}");
    // A publisher with a full window does not send.
    let full = |e: &mut Evidence| {
        (reports(&mut e.publisher).0.waiting, reports(&mut e.publisher).1.waiting) = (7, 9);
    };
    assert_eq!(ids(full), ["not-arriving"]);
    assert!(judged(full).verdict.starts_with("9 samples wait at /out, and /in received nothing"));
    // One sample may fall between the two looks, and an idle publisher sends none.
    assert_eq!(ids(|e| reports(&mut e.publisher).1.samples += 1), [""; 0]);
    assert_eq!(ids(|_| {}), [""; 0]);
}

#[test]
fn settings_without_effect_are_told_and_unmarked_packets_are_none() {
    let with = |settings: &str, effective, policy: &str| {
        let mut asked = qos::priority::PrioritySettings::default();
        settings.parse::<qos::priority::Changes>().unwrap().apply(&mut asked);
        let because = "EF lands in band 1 = best effort".to_owned();
        let (tid, tos, policy) = (Some(7), Some(asked.mark.unwrap_or_default().tos()), policy.to_owned());
        let report = EndReport { asked, waits: true, effective, because, tid, tos, policy, ..EndReport::default() };
        ids(|e: &mut Evidence| said(&mut e.publisher).settings = Some(report))
    };
    assert_eq!(with("dscp=EF", false, "other"), ["ineffective"]);
    assert_eq!(with("dscp=EF", true, "other"), [""; 0]);
    assert_eq!(with("", false, "other"), [""; 0]);
    assert_eq!(with("sched=fifo:30", true, "other"), ["thread"]);
}

#[test]
fn the_document_lists_every_kind_of_problem() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/diagnosis.md");
    let (text, table) = (std::fs::read_to_string(path).unwrap(), crate::why::judge::table());
    assert!(text.contains(&table), "docs/diagnosis.md should have this table:\n{table}");
}

#[test]
fn a_node_with_a_channel_is_distinguished_from_one_that_never_existed() {
    let cut_off = judged(|e| {
        e.subscriber = None;
        reports(&mut e.publisher).1.waiting = 33;
    });
    let [problem] = &cut_off.problems[..] else { panic!("{cut_off}") };
    assert_eq!(problem.kind.id, "node-silent");
    assert!(problem.what.contains("33 samples wait") && problem.remedy.contains("ip link"), "{cut_off}");
    let never = |e: &mut Evidence| {
        e.subscriber = None;
        said(&mut e.publisher).channel = None;
    };
    assert_eq!(ids(never), ["no-port"]);
}

#[test]
fn a_node_without_reach_blames_no_other_host() {
    let silent = |here_only| {
        judged(|e| {
            e.here_only = here_only;
            e.subscriber.as_mut().unwrap().answer = Answer::Silent(None);
        })
    };
    assert!(silent(true).problems[0].remedy.contains("--peer"), "{}", silent(true));
    assert!(silent(false).verdict.contains("does not answer"), "{}", silent(false));
}

#[test]
fn a_reliable_subscriber_gets_no_advice_to_be_reliable() {
    let lost = |reliability| {
        judged(|e| {
            for end in [&mut e.publisher, &mut e.subscriber] {
                end.as_mut().unwrap().port.qos.reliability = reliability;
                reports(end).1.carrier = "udp".into();
                reports(end).0.carrier = "udp".into();
            }
            reports(&mut e.publisher).1.samples = 1050;
            let (first, last) = reports(&mut e.subscriber);
            (first.lost, last.lost, last.samples) = (500, 500, 1050);
        })
    };
    assert!(lost(qos::Reliability::BestEffort).problems[0].remedy.contains("ask for reliable"));
    let reliable = lost(qos::Reliability::Reliable);
    assert!(reliable.verdict.contains("given up") && !reliable.problems[0].remedy.contains("ask for"), "{reliable}");
}
