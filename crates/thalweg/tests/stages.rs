//! Stages of samples that wait in a mailbox, and within a process.
#![allow(clippy::unwrap_used)] // all of this is test

use std::time::{Duration, Instant};
use thalweg::admin::{Reply, Request};
use thalweg::codec::Raw;
use thalweg::stages::{Asked, End, Figures, LateAfter, StagesReport};
use thalweg::{Node, Publisher, Sample, Settings, Subscriber};

const LONG: Duration = Duration::from_secs(20);
/// Least time that each sample waits.
const WAITS: Duration = Duration::from_millis(2);
const COUNT: u64 = 20;

fn nodes(test: &str) -> (Node, Node) {
    let realm = format!("stages-{test}-{}", std::process::id());
    let node = || Node::with_settings(Settings { realm: realm.clone(), ..Settings::default() }).unwrap();
    (node(), node())
}

fn ask(node: &Node, request: &Request) -> Vec<StagesReport> {
    match node.ask(node.id(), request, LONG) {
        Ok(Reply::Stages(reports)) => reports,
        other => panic!("{other:?}"),
    }
}

fn measure(nodes: &[&Node]) {
    nodes.iter().for_each(|node| drop(ask(node, &Request::Measure { topic: "/a".into(), every: 1 })));
}

/// The stages that the ends of both nodes report.
fn measured(nodes: &[&Node]) -> Vec<StagesReport> {
    nodes.iter().flat_map(|node| ask(node, &Request::Stages { topic: "/a".into() })).collect()
}

fn figures(reports: &[StagesReport], stage: &str) -> Option<Figures> {
    let mut found = reports.iter().filter_map(|report| report.stages_us.get(stage));
    let figures = found.next().cloned();
    assert!(found.next().is_none(), "{stage} is reported twice: {reports:?}");
    figures
}

fn connect(publisher: &Publisher<Raw>, subscriber: &Subscriber<Raw>) {
    assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
}

#[test]
fn a_sample_that_waits_to_be_taken_shows_it() {
    for carrier in ["local", "shm", "tcp", "udp"] {
        let (there, here) = nodes(carrier);
        let builder = here.subscriber::<Raw>("/a").reliability(qos::Reliability::BestEffort);
        let mut subscriber = builder.carriers([carrier]).open().unwrap();
        let mut publisher = there.publisher::<Raw>("/a").open().unwrap();
        connect(&publisher, &subscriber);
        let both = [&there, &here];
        for _ in 0..3 {
            publisher.publish(b"before anybody measures").unwrap();
            subscriber.wait(LONG).unwrap();
        }
        measure(&both);
        for _ in 0..COUNT {
            publisher.publish(b"sample").unwrap();
            std::thread::sleep(WAITS);
            subscriber.wait(LONG).unwrap();
        }
        let reports = measured(&both);
        let mailbox = figures(&reports, "mailbox").unwrap_or_else(|| panic!("{carrier}: {reports:?}"));
        assert_eq!(mailbox.n, COUNT, "{carrier}");
        // A histogram has a precision of 1 %. Over a network a sample may still be on its way, which only one of the
        // ends counts.
        let least = if carrier == "local" { WAITS.as_secs_f64() * 0.98e6 } else { 0.0 };
        assert!(mailbox.min_us >= least && mailbox.max_us > 0.0, "{carrier}: {mailbox:?}");
        assert_eq!(figures(&reports, "publish").unwrap().n, COUNT, "{carrier}");
        measure(&both);
        assert_eq!(figures(&measured(&both), "mailbox"), None, "{carrier}: it begins from nothing");
    }
}

/// Lateness of samples within a process, as `verify` asks for it: reported once, at the subscriber's end, with all
/// stages.
#[test]
fn samples_within_a_process_have_their_lateness() {
    for how in ["taken", "callback", "publisher"] {
        let (there, here) = nodes(how);
        let (tell, told) = std::sync::mpsc::channel();
        let builder = here.subscriber::<Raw>("/a").named("/here").carriers(["local"]);
        let call = move |_: Sample<'_, Raw>| {
            std::thread::sleep(WAITS);
            tell.send(()).unwrap();
        };
        let (mut taker, _caller) = match how {
            "taken" => (Some(builder.open().unwrap()), None),
            "callback" => (None, Some(builder.callback(call).unwrap())),
            _ => (None, Some(builder.on_publisher_thread().callback(call).unwrap())),
        };
        let mut publisher = there.publisher::<Raw>("/a").named("/there").open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        let asked = |look| {
            let (topic, publisher, subscriber) = ("/a".into(), "/there".into(), "/here".into());
            let channels = vec![LateAfter { topic, publisher, subscriber, after_ns: WAITS.as_nanos() as i64 }];
            let request = Request::Lateness { channels, asked: Asked { asker: 1, look, received: look - 1 } };
            let reports = [&there, &here].map(|node| match node.ask(node.id(), &request, LONG) {
                Ok(Reply::Lateness(reports)) => reports,
                other => panic!("{other:?}"),
            });
            reports.concat()
        };
        asked(1);
        for _ in 0..COUNT {
            publisher.publish(b"sample").unwrap();
            match &mut taker {
                Some(taker) => drop(taker.wait(LONG).unwrap()),
                None => told.recv_timeout(LONG).unwrap(),
            }
        }
        // The callback of the last one may not have returned yet.
        let (until, mut seen, mut look) = (Instant::now() + LONG, 0, 1);
        while seen < COUNT {
            assert!(Instant::now() < until, "{how}: {seen}");
            look += 1;
            let reports = asked(look);
            assert!(reports.iter().all(|one| one.end == End::Subscriber), "{how}: {reports:?}");
            for report in reports.iter().filter(|one| one.samples > 0) {
                let latest = report.latest.as_ref().unwrap();
                let took = latest.done_ns - latest.published_ns;
                let callback = latest.stages_ns.get("callback").copied().unwrap_or(0);
                assert!(report.disordered == 0 && callback <= took, "{how}: {report:?}");
                // A sample that is taken has arrived when it can be taken.
                let late = if how == "taken" { 0 } else { report.samples };
                assert!(how == "taken" || u128::from(callback) >= WAITS.as_nanos(), "{how}: {report:?}");
                assert!(report.late >= late && report.longest_ns.contains_key("publish"), "{how}: {report:?}");
                seen += report.samples;
            }
        }
        assert_eq!(seen, COUNT, "{how}");
    }
}

#[test]
fn callbacks_within_a_process_have_stages() {
    for on_publisher_thread in [false, true] {
        let (there, here) = nodes(if on_publisher_thread { "same" } else { "own" });
        let (tell, told) = std::sync::mpsc::channel();
        let builder = here.subscriber::<Raw>("/a").carriers(["local"]);
        let builder = if on_publisher_thread { builder.on_publisher_thread() } else { builder };
        let subscriber = builder.callback(move |_| tell.send(()).unwrap()).unwrap();
        let mut publisher = there.publisher::<Raw>("/a").open().unwrap();
        connect(&publisher, &subscriber);
        let both = [&there, &here];
        measure(&both);
        for _ in 0..COUNT {
            publisher.publish(b"sample").unwrap();
            told.recv_timeout(LONG).unwrap();
        }
        let all = || {
            let reports = measured(&both);
            let n = |stage| figures(&reports, stage).map_or(0, |figures| figures.n);
            ["publish", "mailbox", "decode", "callback", "total"].map(n)
        };
        let waits = if on_publisher_thread { 0 } else { COUNT };
        // The callback of the last one may not have returned yet.
        let until = Instant::now() + LONG;
        while all() != [COUNT, waits, COUNT, COUNT, COUNT] {
            assert!(Instant::now() < until, "{:?}", all());
        }
        drop(subscriber);
    }
}
