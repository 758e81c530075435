//! Priorities of live channels: what packets and threads really get, seen from outside the library (packet capture,
//! /proc), and that nothing is lost, overtaken or connected anew by a change.
#![allow(clippy::unwrap_used)] // all of this is test

mod world;

use qos::Reliability;
use qos::priority::{Changes, PrioritySettings};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::admin::{EndReport, Request};
use thalweg::codec::Raw;
use thalweg::{Event, Node, Publisher, Settings, Subscriber};
use world::agent::{Agent, number};
use world::capture::{Capture, Packet};
use world::net::{A, B, TwoHosts};
use world::{LONG, World, eventually, skipped};

const NORMAL: u8 = 0;
const LOW: u8 = 0x28;
const HIGH: u8 = 0x90;
const CRITICAL: u8 = 0xb0;

fn changes(words: &str) -> Changes {
    words.parse().unwrap()
}

fn asks(words: &str) -> PrioritySettings {
    let mut settings = PrioritySettings::default();
    changes(words).apply(&mut settings);
    settings
}

/// Two nodes, a publisher `/out` on one and a subscriber `/in` on the other.
struct Pair {
    a: Node,
    b: Node,
    publisher: Publisher<Raw>,
    subscriber: Subscriber<Raw>,
    seqs: Arc<Mutex<Vec<u64>>>,
    marker: &'static [u8],
}

/// Where the publisher's node listens first, so that channels come there.
enum Family {
    V4,
    V6,
}

fn nodes(test: &str, family: &Family) -> (Node, Node) {
    let realm = format!("{test}-{}", std::process::id());
    let listen = match family {
        Family::V4 => Vec::new(),
        Family::V6 => {
            let free = std::net::TcpListener::bind("[::1]:0").unwrap().local_addr().unwrap();
            vec![SocketAddr::new(free.ip(), free.port())]
        }
    };
    let open = |name: &str, listen| {
        Node::with_settings(Settings { name: name.into(), realm: realm.clone(), listen, ..Settings::default() })
            .unwrap()
    };
    (open("a", listen), open("b", Vec::new()))
}

fn reliability(carrier: &str) -> Reliability {
    if matches!(carrier, "udp" | "mcast") { Reliability::BestEffort } else { Reliability::Reliable }
}

impl Pair {
    fn new(test: &str, carrier: &str, family: Family, marker: &'static [u8]) -> Self {
        let (a, b) = nodes(test, &family);
        let seqs = Arc::<Mutex<Vec<u64>>>::default();
        let subscriber = subscribe(&b, "/in", carrier, seqs.clone());
        let publisher = a.publisher::<Raw>("/t").named("/out").queue(qos::Queue::KeepAll(10_000)).open().unwrap();
        assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
        Self { a, b, publisher, subscriber, seqs, marker }
    }

    fn publish(&mut self) -> u64 {
        let mut message = self.marker.to_vec();
        message.extend([7; 48]);
        self.publisher.publish(&message).unwrap().seq
    }

    fn arrived(&self, seq: u64) {
        let got = eventually(LONG, || (self.seqs.lock().unwrap().last() == Some(&seq)).then_some(()));
        assert!(got.is_some(), "sample {seq} did not arrive; the last was {:?}", self.seqs.lock().unwrap().last());
    }

    /// Publishes one, which arrives.
    fn exchange(&mut self) -> u64 {
        let seq = self.publish();
        self.arrived(seq);
        seq
    }

    fn set_out(&self, words: &str) -> EndReport {
        self.a.set_priority("/out", "/in", &changes(words)).unwrap()
    }

    fn set_in(&self, words: &str) -> EndReport {
        self.b.set_priority("/in", "/out", &changes(words)).unwrap()
    }

    /// Matched once, and never ended: no change connected it anew.
    fn never_reconnected(&self) {
        for node in [&self.a, &self.b] {
            let mut events = node.events();
            let told: Vec<Event> = std::iter::from_fn(|| events.wait(Duration::ZERO)).collect();
            let matched = told.iter().filter(|e| matches!(e, Event::Matched { .. })).count();
            assert!(matched == 1 && !told.iter().any(|e| matches!(e, Event::Unmatched { .. })), "{told:?}");
        }
    }
}

fn subscribe(node: &Node, name: &str, carrier: &str, seqs: Arc<Mutex<Vec<u64>>>) -> Subscriber<Raw> {
    let subscriber = node.subscriber::<Raw>("/t").named(name).reliability(reliability(carrier)).carriers([carrier]);
    subscriber.callback(move |sample| seqs.lock().unwrap().push(sample.info().seq)).unwrap()
}

#[test]
fn the_next_packet_has_the_new_mark() {
    let _alone = world::alone();
    for (carrier, family) in [("tcp", Family::V4), ("tcp", Family::V6), ("udp", Family::V4), ("udp", Family::V6)] {
        let v6 = matches!(family, Family::V6);
        let marker: &[u8] = b"thalweg mark";
        let capture = match Capture::start(marker) {
            Ok(capture) => capture,
            Err(why) => return skipped(why),
        };
        let mut pair = Pair::new(&format!("next-{carrier}-{v6}"), carrier, family, marker);
        let first = pair.exchange();
        assert_eq!(capture.mark_of(first), Some(NORMAL), "{carrier} v6 {v6}");
        for (words, octet, priority) in [
            ("class=high", HIGH, 6),
            ("dscp=EF", 0xb8, 4),
            ("dscp=EF priority=6", 0xb8, 6),
            ("tos=40 priority=default", 40, 2),
            ("class=low", LOW, 2),
            ("class=critical", CRITICAL, 6),
            ("class=default", NORMAL, 0),
        ] {
            let report = pair.set_out(words);
            let told = (report.tos, report.socket_priority, report.carrier.as_str());
            assert_eq!(told, (Some(octet), Some(priority), carrier), "{words}: {report:?}");
            let seq = pair.exchange();
            let packet = capture.packet_of(seq).unwrap();
            assert_eq!((packet.tos, packet.v6, packet.tcp), (octet, v6, carrier == "tcp"), "{carrier}: {words}");
        }
        pair.never_reconnected();
    }
}

#[test]
fn acknowledgements_and_the_stream_beside_udp_are_marked_too() {
    let _alone = world::alone();
    let marker: &[u8] = b"thalweg acks";
    for carrier in ["tcp", "udp"] {
        let capture = match Capture::start(marker) {
            Ok(capture) => capture,
            Err(why) => return skipped(why),
        };
        let mut pair = Pair::new(&format!("acks-{carrier}"), carrier, Family::V4, marker);
        assert_eq!(pair.set_in("class=high").tos, Some(HIGH));
        assert_eq!(pair.set_out("class=critical").tos, Some(CRITICAL));
        let begun = capture.packets().len();
        let seq = pair.exchange();
        let data = capture.packet_of(seq).unwrap();
        // TCP acknowledges within 40 ms; the stream beside udp says each second that it lives, and is answered.
        let streams: Vec<u16> = pair.a.addresses().iter().map(SocketAddr::port).collect();
        // What was on its way when the marks were set comes first.
        let marked = |octet: u8, is: &dyn Fn(&Packet) -> bool| {
            let found = |p: &Packet| p.tcp && p.sample.is_none() && p.tos == octet && is(p);
            eventually(LONG, || capture.packets().split_off(begun).into_iter().find(found)).is_some()
        };
        let back = (data.ports.1, data.ports.0);
        let from_subscriber =
            |p: &Packet| if carrier == "tcp" { p.ports == back } else { streams.contains(&p.ports.1) };
        assert!(marked(HIGH, &from_subscriber), "{carrier}: no acknowledgement is marked");
        if carrier == "udp" {
            assert!(marked(CRITICAL, &|p| streams.contains(&p.ports.0)), "the publisher's stream is not marked");
        }
    }
}

#[test]
fn two_subscribers_of_one_topic_have_different_marks_at_once() {
    let _alone = world::alone();
    let marker: &[u8] = b"thalweg both";
    let capture = match Capture::start(marker) {
        Ok(capture) => capture,
        Err(why) => return skipped(why),
    };
    for carrier in ["tcp", "udp"] {
        let mut pair = Pair::new(&format!("both-{carrier}"), carrier, Family::V4, marker);
        let second = subscribe(&pair.b, "/in2", carrier, Arc::default());
        assert!(pair.publisher.wait_connected(2, LONG) && second.wait_connected(1, LONG));
        pair.set_out("class=low");
        pair.a.set_priority("/out", "/in2", &changes("class=high")).unwrap();
        let begun = capture.packets().len();
        let seq = pair.exchange();
        // Each packet of the loopback interface is seen leaving and arriving.
        let octets = eventually(LONG, || {
            let late = capture.packets().split_off(begun);
            let mut found: Vec<u8> = late.iter().filter(|p| p.sample == Some(seq)).map(|p| p.tos).collect();
            found.sort_unstable();
            found.dedup();
            (found.len() == 2).then_some(found)
        });
        assert_eq!(octets, Some(vec![LOW, HIGH]), "{carrier}");
    }
}

/// Policy and real-time priority of a thread, as /proc says.
fn scheduling_of(tid: i32) -> (u32, u32) {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Counted from the state, field 3: rt_priority is field 40, policy 41.
    (fields[41 - 3].parse().unwrap(), fields[40 - 3].parse().unwrap())
}

/// Whether this process may use real-time scheduling; prints why not.
fn may_schedule() -> bool {
    let settings = linux::thread::Settings {
        scheduling: Some("fifo:1".parse().unwrap()),
        ..linux::thread::Settings::named("trial")
    };
    linux::thread::start(settings, || ()).map_err(skipped).is_ok()
}

#[test]
fn a_sending_thread_is_scheduled_as_proc_says_and_ends_when_unset() {
    let _alone = world::alone();
    if !may_schedule() {
        return;
    }
    let mut pair = Pair::new("scheduled", "tcp", Family::V4, b"");
    let ended = |tid: i32| {
        let gone = || (!std::path::Path::new(&format!("/proc/self/task/{tid}")).exists()).then_some(());
        eventually(LONG, gone).is_some()
    };
    let report = pair.set_out("sched=fifo:30 affinity=0");
    let tid = report.tid.unwrap();
    assert_eq!(scheduling_of(tid), (1, 30));
    assert_eq!((report.policy.as_str(), report.priority, report.affinity), ("fifo", 30, vec![0]));
    assert!(report.own_thread);
    pair.exchange();
    // At once by thread id: the same thread.
    let report = pair.set_out("sched=rr:7 affinity=default");
    assert_eq!((report.tid, scheduling_of(tid)), (Some(tid), (2, 7)));
    assert!(report.affinity.len() > 1 || std::thread::available_parallelism().unwrap().get() == 1);
    let report = pair.set_out("sched=deadline:1ms/10ms");
    assert_eq!((report.policy.as_str(), scheduling_of(tid).0), ("deadline", 6), "{report:?}");
    pair.exchange();
    let report = pair.set_out("sched=default");
    assert_eq!((report.tid, report.own_thread), (None, false));
    pair.exchange();
    assert!(ended(tid), "the thread did not end");
    // And it ends with the channel.
    let tid = pair.set_out("sched=fifo:5").tid.unwrap();
    drop(pair.subscriber);
    assert!(ended(tid), "it outlived its channel");
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn the_part() {
    world::roles::play();
}

/// Policy and priority of all threads of a process.
fn all_scheduling_of(pid: u32) -> Vec<(u32, u32)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).ok();
    let numbers = |stat: String| {
        let fields: Vec<String> = stat.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect();
        Some((fields.get(41 - 3)?.parse().ok()?, fields.get(40 - 3)?.parse().ok()?))
    };
    tasks.filter_map(stat).filter_map(numbers).collect()
}

#[test]
fn a_process_is_scheduled_with_all_its_threads() {
    let _alone = world::alone();
    if !may_schedule() {
        return;
    }
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a");
    let _subscriber = Agent::start(&world, "subscriber topic=/a");
    publisher.connected(1);
    let set = publisher.ask("set to=process+sched=rr:3");
    assert!(set["ok"] == true && set["ends"][0]["end"] == "process" && set["ends"][0]["policy"] == "rr", "{set}");
    assert!(all_scheduling_of(publisher.pid()).iter().all(|found| *found == (2, 3)));
    let refused = publisher.ask("set to=process+affinity=1023");
    assert!(refused["ok"] == false && refused["why"].as_str().unwrap().contains("1023"), "{refused}");
    publisher.ask("set to=process+sched=default");
    assert!(all_scheduling_of(publisher.pid()).iter().all(|found| *found == (0, 0)));
}

#[test]
fn memory_is_locked_where_that_is_asked_for() {
    let _alone = world::alone();
    let world = World::new();
    if let Err(refused) =
        Node::with_settings(Settings { lock_memory: true, name: "trial".into(), ..Settings::default() })
    {
        return skipped(refused);
    }
    for (part, locked) in [("publisher topic=/a lock=1", true), ("publisher topic=/b", false)] {
        let publisher = Agent::start(&world, part);
        let status = std::fs::read_to_string(format!("/proc/{}/status", publisher.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(kib > 0, locked, "{line}");
    }
}

/// Lets a process open no descriptor above this number.
fn limit_descriptors(pid: u32, number: u32) -> bool {
    let limit = std::process::Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--nofile={number}:")])
        .status();
    limit.is_ok_and(|status| status.success())
}

/// A channel whose samples cannot be taken over by any thread ends with its reason; it must not fall silent.
#[test]
fn without_a_thread_for_what_waits_the_channel_says_so() {
    let _alone = world::alone();
    for (carrier, size) in [("tcp", 60_000), ("udp", 1_000_000)] {
        let world = World::new();
        let mut publisher = Agent::start(&world, "publisher topic=/a");
        let mut subscriber = Agent::start(&world, &format!("subscriber topic=/a carriers={carrier}"));
        publisher.connected(1);
        if !limit_descriptors(publisher.pid(), 3) {
            return skipped("prlimit could not lower the number of descriptors");
        }
        subscriber.stop();
        publisher.ask(&format!("publish count=400 hz=100000 size={size}"));
        assert!(publisher.told("no thread for what waits", LONG), "{carrier}");
        assert!(limit_descriptors(publisher.pid(), 1000));
        subscriber.go_on();
        // With descriptors again it is connected anew, and goes on.
        subscriber.ask("reset");
        let heard = eventually(LONG, || {
            publisher.ask("publish count=1 size=64");
            (number(&subscriber.ask("report"), "received") > 0.0).then_some(())
        });
        assert!(heard.is_some(), "{carrier}: {}", publisher.ask("status"));
    }
}

/// What waits moves with its channel: from the class's thread to the channel's own and back, to another class's, while the
/// socket is full.
#[test]
fn what_waits_moves_to_the_new_thread_in_order() {
    let _alone = world::alone();
    let (a, b) = nodes("backlog", &Family::V4);
    let (seqs, gate) = (Arc::<Mutex<Vec<u64>>>::default(), Arc::new(Mutex::new(())));
    let (note, wait) = (seqs.clone(), gate.clone());
    let builder = b.subscriber::<Raw>("/t").named("/in").carriers(["tcp"]);
    let subscriber = builder.callback(move |sample| {
        drop(wait.lock().unwrap());
        note.lock().unwrap().push(sample.info().seq);
    });
    let subscriber = subscriber.unwrap();
    let builder = a.publisher::<Raw>("/t").named("/out").queue(qos::Queue::KeepAll(10_000));
    let mut publisher = builder.open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
    for round in ["class=high", "affinity=0", "class=low", "affinity=default class=default"] {
        let closed = gate.lock().unwrap();
        let waits = |publisher: &Publisher<Raw>| publisher.channels()[0].waiting > 0;
        while !waits(&publisher) {
            publisher.publish(&[5; 20_000]).unwrap();
        }
        a.set_priority("/out", "/in", &changes(round)).unwrap();
        publisher.publish(&[6; 20_000]).unwrap();
        drop(closed);
        let last = publisher.publish(&[7; 64]).unwrap().seq;
        let all = eventually(LONG, || (seqs.lock().unwrap().last() == Some(&last)).then_some(()));
        let seqs = seqs.lock().unwrap();
        assert!(all.is_some() && seqs.iter().copied().eq(1..=last), "{round}: {:?}", first_odd(&seqs));
    }
}

#[test]
fn both_ends_have_threads_of_their_own_and_say_where_packets_wait() {
    let _alone = world::alone();
    if !may_schedule() {
        return;
    }
    for carrier in ["tcp", "udp"] {
        let mut pair = Pair::new(&format!("ends-{carrier}"), carrier, Family::V4, b"");
        let (sends, receives) = (pair.set_out("class=high sched=fifo:21"), pair.set_in("sched=fifo:22"));
        let both = [sends.tid, receives.tid].map(|tid| scheduling_of(tid.unwrap()));
        assert_eq!(both, [(1, 21), (1, 22)], "{carrier}");
        assert!(sends.own_thread && receives.own_thread);
        // Nothing ever waits on the loopback interface.
        assert_eq!((sends.device.as_deref(), sends.effective), (Some("lo"), false), "{sends:?}");
        assert!(sends.because.contains("lo") || sends.because.contains("queue"), "{sends:?}");
        pair.exchange();
        let back = pair.set_in("sched=default");
        assert_eq!((back.policy.as_str(), back.priority), ("other", 0), "{back:?}");
        pair.exchange();
        pair.never_reconnected();
    }
}

/// Marking is not prioritising: what a mark does is up to the queue, and the answer says which band it is.
#[test]
fn a_report_says_in_which_band_packets_wait_and_whether_that_helps() {
    let _alone = world::alone();
    let hosts = match TwoHosts::new("p").and_then(|hosts| hosts.bands().map(|()| hosts)) {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    let file = world.dir().join("nodes.toml");
    let at = [format!("{A}:7400"), format!("{B}:7400")];
    std::fs::write(&file, at.each_ref().map(|a| format!("[[node]]\naddress = \"{a}\"\n")).concat()).unwrap();
    let file = file.display();
    let part = |role: &str, at: &str| format!("{role} topic=/a file={file} listen={at}");
    let mut publisher = Agent::start_by(&world, &part("publisher", &at[0]), &hosts.in_a());
    for carrier in ["tcp", "udp"] {
        let role = format!("subscriber carriers={carrier}");
        let mut subscriber = Agent::start_by(&world, &part(&role, &at[1]), &hosts.in_b());
        publisher.connected(1);
        for (words, effective, place) in [
            ("class=high", true, "band 0"),
            ("dscp=EF", false, "band 1"),
            ("dscp=EF+priority=6", true, "band 0"),
            ("class=low+priority=default", true, "band 2"),
        ] {
            let set = publisher.ask(&format!("set to={words}"));
            let ends = set["ends"].as_array().unwrap();
            let end = ends.iter().find(|end| end["carrier"] == carrier).unwrap(); // others are kept for ports that left
            assert_eq!((end["device"].as_str(), end["effective"].as_bool()), (Some("veth"), Some(effective)), "{set}");
            assert!(end["band"].as_str().unwrap().contains(place), "{words}: {set}");
            assert!(!end["because"].as_str().unwrap().is_empty());
        }
        // At the other end nothing waits.
        let set = subscriber.ask("set to=class=high");
        assert_eq!((set["ends"][0]["tos"].as_u64(), set["ends"][0]["effective"].as_bool()), (Some(0x90), Some(false)));
        subscriber.finish();
        let gone = eventually(LONG, || (publisher.ask("status")["connected"] == 0).then_some(()));
        assert!(gone.is_some(), "{}", publisher.ask("status"));
    }
}

/// Publishes at 1 kHz while `words` are set in turn at the publisher, each several times.
fn change_while_publishing(carrier: &str, words: &[&str], times: usize) {
    let mut pair = Pair::new(&format!("live-{carrier}-{}", words.len()), carrier, Family::V4, b"");
    pair.exchange();
    let (a, done) = (pair.a.clone(), AtomicBool::new(false));
    let published = std::thread::scope(|scope| {
        let administrator = scope.spawn(|| {
            for round in 0..times {
                for words in words {
                    let report = a.set_priority("/out", "/in", &changes(words));
                    assert!(report.is_ok(), "round {round}, {words}: {report:?}");
                    std::thread::sleep(Duration::from_millis(7)); // some samples under each setting
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let (start, mut index, mut seq) = (Instant::now(), 0, 0);
        while !done.load(Ordering::Relaxed) && !administrator.is_finished() {
            index += 1;
            if let Some(early) = (start + Duration::from_millis(index)).checked_duration_since(Instant::now()) {
                std::thread::sleep(early);
            }
            seq = pair.publish();
        }
        administrator.join().unwrap();
        seq
    });
    pair.arrived(published);
    let seqs = pair.seqs.lock().unwrap().clone();
    assert!(seqs.iter().copied().eq(1..=published), "lost or out of order: {:?}", first_odd(&seqs));
    assert_eq!(pair.subscriber.channels()[0].lost, 0);
    pair.never_reconnected();
}

fn first_odd(seqs: &[u64]) -> Option<(usize, &[u64])> {
    let at = seqs.windows(2).position(|w| w[1] != w[0] + 1)?;
    Some((at, &seqs[at.saturating_sub(2)..(at + 4).min(seqs.len())]))
}

#[test]
fn a_hundred_changes_of_marks_lose_nothing() {
    let _alone = world::alone();
    for carrier in ["tcp", "udp"] {
        change_while_publishing(carrier, &["class=high", "class=low", "class=critical", "class=default"], 25);
    }
}

#[test]
fn a_hundred_changes_of_threads_lose_nothing() {
    let _alone = world::alone();
    if !may_schedule() {
        return;
    }
    for carrier in ["tcp", "udp"] {
        change_while_publishing(carrier, &["sched=fifo:30", "sched=other", "sched=fifo:20", "sched=default"], 25);
    }
}

#[test]
fn a_batching_channel_gets_and_loses_its_thread_without_loss() {
    let _alone = world::alone();
    let (a, b) = nodes("batching", &Family::V4);
    let seqs = Arc::<Mutex<Vec<u64>>>::default();
    let subscriber = subscribe(&b, "/in", "tcp", seqs.clone());
    let builder = a.publisher::<Raw>("/t").named("/out").queue(qos::Queue::KeepAll(10_000));
    let mut publisher = builder.batching(thalweg::Batching::default()).open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
    let mut last = 0;
    for round in 0..40 {
        let words = if round % 2 == 0 { "affinity=0" } else { "affinity=default" };
        a.set_priority("/out", "/in", &changes(words)).unwrap();
        for _ in 0..100 {
            last = publisher.publish(&[1; 300]).unwrap().seq;
        }
    }
    let all = eventually(LONG, || (seqs.lock().unwrap().len() as u64 == last).then_some(()));
    let seqs = seqs.lock().unwrap();
    assert!(all.is_some() && seqs.iter().copied().eq(1..=last), "{} of {last}: {:?}", seqs.len(), first_odd(&seqs));
}

#[test]
fn what_was_set_holds_after_the_channel_was_opened_anew() {
    let _alone = world::alone();
    let marker: &[u8] = b"thalweg anew";
    let pair = Pair::new("anew", "tcp", Family::V4, marker);
    let Pair { a, b, mut publisher, subscriber, .. } = pair;
    let mut settings = "class=high".to_owned();
    if may_schedule() {
        settings.push_str(" sched=fifo:12");
    }
    a.set_priority("/out", "/in", &changes(&settings)).unwrap();
    b.set_priority("/in", "/out", &changes("class=low")).unwrap();
    drop(subscriber);
    let gone = a.priority_report("/out", Some("/in")).unwrap();
    assert!(eventually(LONG, || (publisher.connected() == 0).then_some(())).is_some());
    let gone = if gone[0].carrier.is_empty() { gone } else { a.priority_report("/out", Some("/in")).unwrap() };
    assert!(gone[0].note.contains("stored"), "{gone:?}");
    let seqs = Arc::<Mutex<Vec<u64>>>::default();
    let again = subscribe(&b, "/in", "tcp", seqs.clone());
    assert!(publisher.wait_connected(1, LONG) && again.wait_connected(1, LONG));
    let report = a.priority_report("/out", None).unwrap().remove(0);
    assert_eq!((report.tos, report.class, report.asked.clone()), (Some(HIGH), Some(qos::Class::High), asks(&settings)));
    assert_eq!(report.own_thread, settings.contains("sched"), "{report:?}");
    assert_eq!(b.priority_report("/in", Some("/out")).unwrap()[0].tos, Some(LOW));
    let seq = publisher.publish(b"x").unwrap().seq;
    assert!(eventually(LONG, || seqs.lock().unwrap().contains(&seq).then_some(())).is_some());
    // Connected anew while both ports stay.
    let request = Request::Connect { publisher: "/out".into(), subscriber: "/in".into(), carrier: Some("tcp".into()) };
    let own = |report: &EndReport| (report.tid, report.asked.clone());
    let before = own(&report);
    a.ask(b.id(), &request, LONG).unwrap();
    let report = eventually(LONG, || {
        let report = a.priority_report("/out", None).unwrap().remove(0);
        (report.tos == Some(HIGH) && (own(&report) != before || before.0.is_none())).then_some(report)
    });
    assert_eq!(report.unwrap().asked, asks(&settings));
}

#[test]
fn what_is_set_before_there_is_a_channel_is_stored() {
    let _alone = world::alone();
    let (a, b) = nodes("early", &Family::V4);
    let mut publisher =
        a.publisher::<Raw>("/t").named("/out").priority(asks("class=low pace=80Mbit/s")).open().unwrap();
    let report = a.set_priority("/out", "/in", &changes("class=critical")).unwrap();
    assert!(report.carrier.is_empty() && report.note.starts_with("stored"), "{report:?}");
    let (one, two) = (subscribe(&b, "/in", "tcp", Arc::default()), subscribe(&b, "/other", "tcp", Arc::default()));
    assert!(publisher.wait_connected(2, LONG) && one.wait_connected(1, LONG) && two.wait_connected(1, LONG));
    let marks = a.priority_report("/out", None).unwrap().into_iter().map(|r| (r.subscriber, r.tos, r.asked.pace));
    let expected = [("/in", CRITICAL), ("/other", LOW)].map(|(n, tos)| (n.to_owned(), Some(tos), Some(10_000_000)));
    assert_eq!(marks.collect::<Vec<_>>(), expected);
    publisher.publish(b"x").unwrap();
}

#[test]
fn what_is_refused_leaves_all_as_it_was() {
    let _alone = world::alone();
    let mut pair = Pair::new("refused", "tcp", Family::V4, b"");
    pair.set_out("class=high");
    let before = pair.a.priority_report("/out", Some("/in")).unwrap();
    // No machine of ours has processor 1023: the kernel refuses it after the marks were taken.
    let refused = pair.a.set_priority("/out", "/in", &changes("class=low affinity=1023")).unwrap_err().to_string();
    assert!(refused.contains("1023") && !refused.contains("Os {"), "{refused}");
    let unknown = [
        ("/nobody", "/in", "this node has no port /nobody: it has /out"),
        ("/out", "/out2", "both are publishers"),
        ("/out", "no name", "name"),
    ];
    let _second = pair.a.publisher::<Raw>("/u").named("/out2").open().unwrap();
    for (port, other, says) in unknown {
        let said = pair.a.set_priority(port, other, &changes("class=low")).unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    }
    let said = pair.a.priority_report("/out", Some("/else")).unwrap_err().to_string();
    assert!(said.contains("it has channels with /in"), "{said}");
    let said = pair.a.set_priority("/out", "/out", &changes("class=low")).unwrap_err().to_string();
    assert!(said.contains("has no packets"), "{said}");
    let out_of_range = Changes { socket_priority: qos::priority::Change::Set(16), ..Changes::default() };
    assert!(pair.a.set_priority("/out", "/in", &out_of_range).is_err());
    assert_eq!(pair.a.priority_report("/out", Some("/in")).unwrap(), before);
    pair.exchange();
    pair.never_reconnected();
}

#[test]
fn carriers_without_packets_take_it_and_say_so() {
    let _alone = world::alone();
    for carrier in ["shm", "local"] {
        let (a, b) = nodes(&format!("none-{carrier}"), &Family::V4);
        let _subscriber = subscribe(&b, "/in", carrier, Arc::default());
        let publisher = a.publisher::<Raw>("/t").named("/out").open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        let report = a.set_priority("/out", "/in", &changes("class=high")).unwrap();
        assert_eq!((report.carrier.as_str(), report.tos, report.effective), (carrier, None, false));
        assert!(report.because.contains("no packets on this carrier"), "{report:?}");
        assert!(report.without_effect.contains("the mark has no effect"), "{report:?}");
        let report = a.set_priority("/out", "/in", &changes("class=default pace=20Mbit/s affinity=0")).unwrap();
        for part in ["pace has no effect", "sched and affinity have no effect"] {
            assert!(report.note.contains(part) && !report.note.contains("the mark"), "{report:?}");
        }
    }
}

#[test]
fn the_pace_is_read_back_where_it_acts() {
    let _alone = world::alone();
    let pair = Pair::new("pace", "tcp", Family::V4, b"");
    let report = pair.set_out("pace=20Mbit/s");
    assert_eq!((report.pace, report.without_effect.as_str()), (Some(2_500_000), ""));
    assert_eq!(pair.set_out("pace=default").pace, None);
    let report = pair.set_in("pace=20Mbit/s");
    assert!(report.pace.is_none() && report.note.contains("pace has no effect here"), "{report:?}");
}

/// The processors that each thread of a process may use.
fn processors_of(pid: u32) -> std::collections::BTreeSet<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let line = |status: String| status.lines().find(|l| l.starts_with("Cpus_allowed_list:")).map(str::to_owned);
    status.filter_map(line).collect()
}

#[test]
fn a_process_gets_the_processors_back_that_it_had() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a");
    let before = processors_of(publisher.pid());
    assert!(publisher.ask("set to=process+affinity=0")["ok"] == true);
    assert_eq!(processors_of(publisher.pid()), ["Cpus_allowed_list:\t0".to_owned()].into());
    assert!(publisher.ask("set to=process+affinity=default")["ok"] == true);
    assert_eq!(processors_of(publisher.pid()), before);
}

#[test]
fn a_member_of_a_multicast_group_is_rehomed_to_unicast() {
    let _alone = world::alone();
    let marker: &[u8] = b"thalweg group";
    let capture = match Capture::start(marker) {
        Ok(capture) => capture,
        Err(why) => return skipped(why),
    };
    let mut pair = Pair::new("rehomed", "mcast", Family::V4, marker);
    let others = Arc::<Mutex<Vec<u64>>>::default();
    let second = subscribe(&pair.b, "/in2", "mcast", others.clone());
    assert!(pair.publisher.wait_connected(2, LONG) && second.wait_connected(1, LONG));
    let report = pair.set_out("class=high");
    assert!(report.note.contains("unicast udp"), "{report:?}");
    let moved = eventually(LONG, || {
        let report = pair.a.priority_report("/out", Some("/in")).ok()?.remove(0);
        (report.carrier == "udp").then_some(report)
    });
    assert_eq!(moved.unwrap().tos, Some(HIGH));
    assert!(pair.publisher.wait_connected(2, LONG));
    let seq = pair.exchange();
    assert!(eventually(LONG, || others.lock().unwrap().contains(&seq).then_some(())).is_some());
    let octets = eventually(LONG, || {
        let mut found: Vec<u8> = capture.packets().iter().filter(|p| p.sample == Some(seq)).map(|p| p.tos).collect();
        found.sort_unstable();
        found.dedup();
        (found.len() == 2).then_some(found)
    });
    assert_eq!(octets, Some(vec![NORMAL, HIGH]));
}

#[test]
fn bulk_that_nobody_marked_gets_a_lower_class_and_its_owner_is_told() {
    let _alone = world::alone();
    let mut pair = Pair::new("bulk", "tcp", Family::V4, b"");
    pair.exchange();
    let tos = |pair: &Pair| pair.a.priority_report("/out", Some("/in")).unwrap()[0].tos;
    assert_eq!(tos(&pair), Some(NORMAL));
    let large = vec![1; 100_000];
    let seq = pair.publisher.publish(&large).unwrap().seq;
    pair.arrived(seq);
    assert!(eventually(LONG, || (tos(&pair) == Some(LOW)).then_some(())).is_some());
    let mut events = pair.a.events();
    let told =
        std::iter::from_fn(|| events.wait(Duration::from_secs(5))).find(|e| matches!(e, Event::PriorityChanged { .. }));
    assert!(told.unwrap().to_string().contains("64 KiB"));
    assert_eq!(pair.set_out("class=normal").tos, Some(NORMAL));
    assert_eq!(pair.set_out("class=default").tos, Some(LOW));
    pair.exchange();
    pair.never_reconnected();
}

#[test]
fn a_pace_is_kept_to() {
    let _alone = world::alone();
    let mut pair = Pair::new("paced", "tcp", Family::V4, b"");
    assert_eq!(pair.set_out("pace=40Mbit/s").asked.pace, Some(5_000_000));
    // 2 MB at 5 MB/s take 400 ms. Only "not much faster" is asserted: that is what it is for.
    let (start, mut seq) = (Instant::now(), 0);
    for _ in 0..20 {
        seq = pair.publisher.publish(&[3; 100_000]).unwrap().seq;
    }
    pair.arrived(seq);
    assert!(start.elapsed() > Duration::from_millis(200), "{:?}", start.elapsed());
}
