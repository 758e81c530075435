//! Reliable delivery over `udp` and `mcast`: real sockets that lose, whole nodes.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::{Queue, Reliability};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use thalweg::carrier::fault::FaultSettings;
use thalweg::codec::Raw;

use thalweg::{Around, Node, Publisher, Redundancy, Settings, Subscriber};

const LONG: Duration = Duration::from_secs(30);

struct Ends {
    _nodes: Vec<Node>,
    publisher: Publisher<Raw>,
    subscribers: Vec<Subscriber<Raw>>,
    heard: Vec<Receiver<Vec<u8>>>,
}

/// A publisher and `count` subscribers, whose node applies the fault to all that it sends and receives.
fn ends(name: &str, carrier: &str, count: usize, fault: &str, queue: Queue) -> Ends {
    let realm = format!("reliable-{name}-{carrier}-{}", std::process::id());
    let plain = Settings { realm, name: "near".into(), ..Settings::default() };
    let near = Node::with_settings(plain.clone()).unwrap();
    let far = Node::with_settings(Settings { name: "far".into(), around: faults(fault), ..plain }).unwrap();
    let publisher = near.publisher::<Raw>("/t").queue(queue).reliability(Reliability::Reliable).open().unwrap();
    let (subscribers, heard) = (0..count)
        .map(|_| {
            let (tell, told) = mpsc::channel();
            let builder = far.subscriber::<Raw>("/t").reliability(Reliability::Reliable).carriers([carrier]);
            (builder.callback(move |sample| tell.send(sample.to_vec()).unwrap()).unwrap(), told)
        })
        .unzip();
    assert!(publisher.wait_connected(count, LONG), "{:?}", far.events().wait(Duration::ZERO));
    Ends { _nodes: vec![near, far], publisher, subscribers, heard }
}

fn faults(text: &str) -> Around {
    let fault = (!text.is_empty()).then(|| text.parse::<FaultSettings>().unwrap());
    Around { fault, ..Around::default() }
}

fn content(number: u64, size: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..size).map(|i| (i as u64 * 31 + number * 7) as u8).collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().unwrap())
}

const PATIENT: Queue = Queue::Block { limit: 64, up_to_us: 20_000_000 };

/// Every sample arrives once and in order, in spite of any losses of the subscriber's node.
fn all_arrive(carrier: &str, subscribers: usize, fault: &str, sizes: &[(usize, u64)]) {
    for (size, count) in sizes {
        let mut ends = ends(&format!("{size}-{}", fault.len()), carrier, subscribers, fault, PATIENT);
        for sample in 0..*count {
            let published = ends.publisher.publish(&content(sample, *size)).unwrap();
            assert_eq!(published.refused + published.dropped + published.not_connected, 0, "{published:?}");
        }
        for heard in &ends.heard {
            for sample in 0..*count {
                let got = heard.recv_timeout(LONG).unwrap_or_else(|_| {
                    panic!(
                        "{carrier}, {size} B, {fault}: sample {sample} is missing: {:?} {:?}",
                        ends.publisher.channels(),
                        ends.subscribers[0].channels()
                    )
                });
                assert!(got == content(sample, *size), "sample {sample} came as {}", number(&got));
            }
        }
        assert!(ends.publisher.close(LONG), "not all was acknowledged");
        assert!(ends.heard.iter().all(|heard| heard.try_recv().is_err()), "something came twice");
        let reports: Vec<_> = ends.subscribers.iter().flat_map(Subscriber::channels).collect();
        println!("{carrier}, {size} B, {fault}: {reports:?}");
    }
}

#[test]
fn all_samples_arrive_over_udp() {
    let sizes = [(8, 2000), (1000, 500), (100_000, 40), (1_000_000, 8)];
    for fault in ["", "loss=10%,seed=7", "loss=30%,duplicate=5%,reorder=5%,delay=2ms,jitter=1ms,seed=3"] {
        all_arrive("udp", 1, fault, &sizes);
    }
}

#[test]
fn both_ends_count_losses() {
    let mut ends = ends("told", "udp", 1, "loss=20%,seed=11", PATIENT);
    // Each sample leaves in a datagram of its own.
    for sample in 0..500 {
        ends.publisher.publish(&content(sample, 20_000)).unwrap();
    }
    (0..500).for_each(|_| drop(ends.heard[0].recv_timeout(LONG).unwrap()));
    let (publisher, subscriber) = (ends.publisher.channels()[0].clone(), ends.subscribers[0].channels()[0].clone());
    assert!(publisher.repaired >= 50 && subscriber.repaired >= 50, "{publisher:?} {subscriber:?}");
    assert!(publisher.acknowledgements > 0 && subscriber.acknowledgements < 500, "{publisher:?} {subscriber:?}");
    assert_eq!((subscriber.lost, subscriber.skipped, subscriber.samples), (0, 0, 500), "{subscriber:?}");
}

/// Samples too old to be retransmitted, or displaced by newer ones, are given up: both ends count the same ones.
#[test]
fn both_ends_count_the_same_samples_as_given_up() {
    const SAMPLES: u64 = 400;
    let realm = format!("reliable-given-up-{}", std::process::id());
    let plain = Settings { realm, name: "near".into(), ..Settings::default() };
    let near = Node::with_settings(plain.clone()).unwrap();
    let far = Settings { name: "far".into(), around: faults("loss=40%,seed=5"), ..plain };
    let far = Node::with_settings(far).unwrap();
    let publisher = near.publisher::<Raw>("/t").queue(Queue::KeepLast(8)).lifespan(Duration::from_millis(10));
    let mut publisher = publisher.open().unwrap();
    let subscriber = far.subscriber::<Raw>("/t").carriers(["udp"]).callback(|_| {}).unwrap();
    assert!(publisher.wait_connected(1, LONG));
    for sample in 0..SAMPLES {
        publisher.publish(&content(sample, 64)).unwrap();
        std::thread::sleep(Duration::from_micros(500));
    }
    let looks = || (publisher.channels()[0].clone(), subscriber.channels()[0].clone());
    let agree = || {
        let (out, into) = looks();
        out.skipped == into.skipped && into.samples + into.skipped + out.lost == SAMPLES
    };
    assert!(near.wait_until(LONG, agree), "{:?}", looks());
    assert!(looks().0.skipped > 0, "{:?}", looks());
}

/// In the steady state no message is acknowledged alone: one acknowledgement covers half a window. The fewer messages
/// wait at once, the more acknowledgements; here as many wait as a queue of 64 holds.
#[test]
fn messages_are_not_acknowledged_one_by_one() {
    const SAMPLES: u64 = 20_000;
    let mut ends = ends("acknowledged", "udp", 1, "", PATIENT);
    for sample in 0..SAMPLES {
        ends.publisher.publish(&content(sample, 64)).unwrap();
        assert_eq!(number(&ends.heard[0].recv_timeout(LONG).unwrap()), sample); // one round after the other
    }
    let (sent, heard) = (&ends.subscribers[0].channels()[0], &ends.publisher.channels()[0]);
    println!("{} acknowledgements of {SAMPLES} messages; {} heard", sent.acknowledgements, heard.acknowledgements);
    // 1 of 32, and some for pauses of a loaded machine, after which the publisher asks.
    assert!(sent.acknowledgements <= SAMPLES / 16, "{sent:?}");
    assert!(heard.acknowledgements > 0 && sent.skipped == 0 && sent.lost == 0, "{sent:?} {heard:?}");
}

/// No sample follows the last one that would reveal its loss.
#[test]
fn a_single_sample_arrives() {
    for seed in 0..5 {
        let mut ends = ends(&format!("single-{seed}"), "udp", 1, &format!("loss=60%,seed={seed}"), Queue::default());
        let started = Instant::now();
        ends.publisher.publish(&content(1, 64)).unwrap();
        ends.heard[0].recv_timeout(LONG).unwrap();
        println!("seed {seed}: after {:?}", started.elapsed());
    }
}

#[test]
fn all_samples_arrive_over_multicast() {
    let sizes = [(8, 1000), (1000, 300), (100_000, 20)];
    for fault in ["", "loss=10%,seed=7", "loss=20%,duplicate=5%,reorder=5%,delay=2ms,jitter=1ms,seed=3"] {
        all_arrive("mcast", 3, fault, &sizes);
    }
}

/// Best effort: no retransmit is requested. Without parity a message of 145 datagrams would arrive once in 1,700 times.
#[test]
fn parity_replaces_lost_datagrams() {
    const SAMPLES: u64 = 60;
    for carrier in ["udp", "mcast"] {
        let realm = format!("parity-{carrier}-{}", std::process::id());
        let settings = |name: &str, fault| Settings {
            realm: realm.clone(),
            name: name.into(),
            around: faults(fault),
            ..Settings::default()
        };
        let near = Node::with_settings(settings("near", "")).unwrap();
        let far = Node::with_settings(settings("far", "loss=5%,seed=9")).unwrap();
        let redundancy = Redundancy::percent(30).unwrap();
        let mut publisher = near.publisher::<Raw>("/t").queue(PATIENT).parity(redundancy).open().unwrap();
        let builder = far.subscriber::<Raw>("/t").reliability(Reliability::BestEffort).carriers([carrier]);
        let mut subscriber = builder.queue(Queue::KeepAll(64)).open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        let mut whole = 0;
        for sample in 0..SAMPLES {
            publisher.publish(&content(sample, 200_000)).unwrap();
            while let Some(came) = subscriber.wait(Duration::from_millis(200)) {
                assert!(*came == content(number(&came), 200_000));
                whole += 1;
                if number(&came) == sample {
                    break;
                }
            }
        }
        println!("{carrier}: {whole} of {SAMPLES} whole");
        assert!(whole >= SAMPLES - 3, "{whole} of {SAMPLES}: {:?}", subscriber.channels());
    }
}

/// A subscriber that does not take its samples gets a report of the lost ones; the others get theirs.
#[test]
fn a_stuck_member_stops_no_other() {
    const SAMPLES: u64 = 6000;
    let realm = format!("reliable-still-{}", std::process::id());
    let settings = |name: &str| Settings { realm: realm.clone(), name: name.into(), ..Settings::default() };
    let (near, far) = (Node::with_settings(settings("near")).unwrap(), Node::with_settings(settings("far")).unwrap());
    let mut publisher = near.publisher::<Raw>("/t").queue(PATIENT).open().unwrap();
    let (release, released) = mpsc::channel::<()>();
    let mut released = Some(released);
    let (mut subscribers, mut heard) = (Vec::new(), Vec::new());
    for member in 0..3 {
        let (tell, told) = mpsc::channel();
        let mut stands_still = released.take_if(|_| member == 0);
        let subscriber = far.subscriber::<Raw>("/t").carriers(["mcast"]).callback(move |sample| {
            if let Some(released) = stands_still.take() {
                released.recv().unwrap();
            }
            tell.send(number(&sample)).unwrap();
        });
        subscribers.push(subscriber.unwrap());
        heard.push(told);
    }
    assert!(publisher.wait_connected(3, LONG));
    for sample in 0..SAMPLES {
        publisher.publish(&content(sample, 1400)).unwrap();
    }
    for told in &heard[1..] {
        for sample in 0..SAMPLES {
            assert_eq!(told.recv_timeout(LONG), Ok(sample));
        }
    }
    release.send(()).unwrap();
    let mut last = None;
    while last != Some(SAMPLES - 1) {
        let next = heard[0].recv_timeout(LONG).unwrap();
        assert!(last.is_none_or(|last| next > last), "{next} after {last:?}");
        last = Some(next);
    }
    let still = subscribers[0].channels()[0].clone();
    println!("{still:?}");
    assert_eq!(still.samples + still.skipped, SAMPLES, "{still:?}");
    assert_eq!(still.lost, still.skipped, "{still:?}");
    assert!(still.skipped > 0, "its socket holds all of it: publish more ({still:?})");
}
