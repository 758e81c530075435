//! Policies at run time, on real channels: sending, delivery and reports. Their timing is tested in virtual time
//! (`port/policy`).
#![allow(clippy::unwrap_used)] // all of this is test

use qos::{Filter, Liveliness, LivelinessKind, Queue, Reliability, ResourceLimit, ResourceLimits};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use thalweg::admin::{Reply, Request};
use thalweg::codec::Raw;
use thalweg::proxy::{Proxy, ProxyChanges, Selection};
use thalweg::{Around, Event, EventReader, Node, Settings, Subscriber};
use thalweg::{Change, InstanceState, PublisherBuilder, SubscriberBuilder};

const LONG: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Arm {
    name: String,
    angle: f64,
}

fn node(name: &str, test: &str) -> Node {
    let realm = format!("policies-{test}-{}", std::process::id());
    Node::with_settings(Settings { name: name.into(), realm, ..Settings::default() }).unwrap()
}

/// A node that loses every third datagram.
fn lossy(name: &str, test: &str) -> Node {
    let realm = format!("policies-{test}-{}", std::process::id());
    let around = Around { fault: Some("loss=33%,seed=5".parse().unwrap()), ..Around::default() };
    Node::with_settings(Settings { name: name.into(), realm, around, ..Settings::default() }).unwrap()
}

/// Both ends of a channel over a carrier.
fn ends(carrier: &str, out: &Node, into: &Node) -> (PublisherBuilder<Arm>, SubscriberBuilder<Arm>) {
    let lossy = matches!(carrier, "udp" | "mcast");
    let reliability = if lossy { Reliability::BestEffort } else { Reliability::Reliable };
    let publisher = out.publisher::<Arm>("/arm").carriers([carrier]).reliability(reliability);
    (publisher, into.subscriber::<Arm>("/arm").carriers([carrier]).reliability(reliability))
}

fn arm(name: &str, angle: f64) -> Arm {
    Arm { name: name.into(), angle }
}

fn taken(subscriber: &mut Subscriber<Arm>, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    while names.len() < count {
        names.push(subscriber.wait(LONG).expect("a sample").name.clone());
    }
    names
}

fn told(events: &mut EventReader, fits: impl Fn(&Event) -> bool) -> Event {
    let until = Instant::now() + LONG;
    while let Some(event) = events.wait(until.saturating_duration_since(Instant::now())) {
        if fits(&event) {
            return event;
        }
    }
    panic!("nobody told")
}

#[test]
fn a_content_filter_is_applied_by_the_publisher_or_where_a_group_shares_its_samples() {
    for carrier in ["local", "shm", "tcp", "udp", "mcast"] {
        let (out, into) = (node("out", carrier), node("in", carrier));
        let (publisher, subscriber) = ends(carrier, &out, &into);
        let filter = Filter { expression: "angle > %0 AND name LIKE 'l%'".into(), parameters: vec!["1.5".into()] };
        let mut publisher = publisher.open().unwrap();
        let mut subscriber = subscriber.filter(filter).open().unwrap();
        assert!(publisher.wait_connected(1, LONG), "{carrier}");
        for (name, angle) in [("left", 1.0), ("right", 2.0), ("low", 2.0), ("left", 3.0)] {
            publisher.publish(&arm(name, angle)).unwrap();
        }
        assert_eq!(taken(&mut subscriber, 2), ["low", "left"], "{carrier}");
        let sent = publisher.channels()[0].samples;
        assert_eq!(sent, if carrier == "mcast" { 4 } else { 2 }, "{carrier}");
    }
}

#[test]
fn fields_of_a_filter_or_key_must_exist() {
    let node = node("alone", "fields");
    let filter = |text: &str| Filter { expression: text.into(), parameters: Vec::new() };
    let refused = |builder: SubscriberBuilder<Arm>| builder.open().err().unwrap().to_string();
    let wrong = refused(node.subscriber("/arm").filter(filter("speed > 1")));
    assert!(wrong.contains("Arm has no speed, it has name, angle"), "{wrong}");
    assert!(refused(node.subscriber("/arm").key(["id"])).contains("Arm has no id"));
    assert!(node.publisher::<thalweg::codec::Raw>("/raw").key(["id"]).open().is_err());
    // A subscriber that takes any type learns it when it meets a publisher.
    let mut events = node.events();
    let _publisher = node.publisher::<Arm>("/arm").open().unwrap();
    let _any = node.subscriber::<thalweg::codec::Untyped>("/arm").filter(filter("speed > 1")).open().unwrap();
    let event = told(&mut events, |e| matches!(e, Event::Incompatible { policy, .. } if policy == "filter"));
    assert!(event.to_string().contains("Arm has no speed"), "{event}");
}

/// A subscriber that stands still for 400 samples of 16 kB: the publisher whose queue drops is not heard, the one that waits loses none.
#[test]
fn a_strict_subscriber_hears_only_publishers_that_drop_nothing() {
    const SAMPLES: u32 = 400;
    let (out, into) = (node("out", "strict"), node("in", "strict"));
    let mut events = into.events();
    let builder = || out.publisher::<Raw>("/t").carriers(["tcp"]);
    let dropping = builder().named("/dropping").open().unwrap();
    let mut waiting =
        builder().named("/waiting").queue(Queue::Block { limit: 16, up_to_us: 20_000_000 }).open().unwrap();
    let subscriber =
        into.subscriber::<Raw>("/t").carriers(["tcp"]).strict().queue(Queue::Block { limit: 4, up_to_us: 20_000_000 });
    let mut subscriber = subscriber.open().unwrap();
    let told = told(&mut events, |event| matches!(event, Event::Incompatible { .. }));
    assert!(told.to_string().contains("strict offered queue keep-last 16"), "{told}");
    assert!(waiting.wait_connected(1, LONG));
    let publishing = std::thread::spawn(move || {
        let publish = |n: u32| waiting.publish(&n.to_le_bytes().repeat(4_000)).unwrap().refused;
        ((0..SAMPLES).map(publish).sum::<u32>(), waiting)
    });
    let next = |_| u32::from_le_bytes(subscriber.wait(LONG).unwrap()[..4].try_into().unwrap());
    assert_eq!((0..SAMPLES).map(next).collect::<Vec<_>>(), Vec::from_iter(0..SAMPLES));
    assert_eq!((publishing.join().unwrap().0, dropping.connected()), (0, 0));
}

#[test]
fn missed_deadlines_are_told_at_both_ends() {
    let (out, into) = (node("out", "deadline"), node("in", "deadline"));
    let (publisher, subscriber) = ends("tcp", &out, &into);
    let mut publisher = publisher.named("/out").deadline(Duration::from_millis(20)).open().unwrap();
    let mut subscriber = subscriber.named("/in").deadline(Duration::from_millis(30)).open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    publisher.publish(&arm("left", 1.0)).unwrap();
    taken(&mut subscriber, 1);
    for (node, name) in [(&out, "/out"), (&into, "/in")] {
        told(&mut node.events(), |e| matches!(e, Event::DeadlineMissed { port, missed: 1.., .. } if port == name));
    }
    assert!(subscriber.policy_counts().deadlines_missed > 0);
}

#[test]
fn missed_deadlines_of_a_keyed_topic_name_the_instance_at_both_ends() {
    let (out, into) = (node("out", "late-instance"), node("in", "late-instance"));
    let (publisher, subscriber) = ends("tcp", &out, &into);
    let (mut told_out, mut told_in) = (out.events(), into.events());
    let deadline = Duration::from_millis(500);
    let mut publisher = publisher.named("/out").key(["name"]).deadline(deadline).open().unwrap();
    let mut subscriber = subscriber.named("/in").deadline(deadline).open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    publisher.publish(&arm("left", 1.0)).unwrap();
    taken(&mut subscriber, 1);
    for (events, name) in [(&mut told_out, "/out"), (&mut told_in, "/in")] {
        let event = told(events, |e| matches!(e, Event::DeadlineMissed { port, .. } if port == name));
        assert!(matches!(&event, Event::DeadlineMissed { instance: Some(key), .. } if key == "name = left"), "{event}");
        assert!(event.to_string().contains("of instance name = left"), "{event}");
    }
    let missed = subscriber.instances()[0].deadlines_missed;
    assert!(missed > 0 && missed <= subscriber.policy_counts().deadlines_missed);
}

/// DDS RESOURCE_LIMITS at the subscriber: samples beyond a limit are rejected, and the limit is named. Other channels
/// continue.
#[test]
fn samples_beyond_a_limit_are_rejected_and_the_limit_is_named() {
    for carrier in ["local", "shm", "tcp", "udp", "mcast"] {
        let test = format!("limits-{carrier}");
        let (out, into) = (node("out", &test), node("in", &test));
        let (publisher, subscriber) = ends(carrier, &out, &into);
        let mut events = into.events();
        let mut publisher = publisher.key(["name"]).queue(Queue::KeepAll(100)).open().unwrap();
        let limits = ResourceLimits {
            samples: Some(5),
            instances: Some(3),
            samples_per_instance: Some(2),
            ..Default::default()
        };
        let subscriber = subscriber.named("/in").key(["name"]).queue(Queue::KeepAll(5)).limits(limits);
        let mut subscriber = subscriber.open().unwrap();
        assert!(publisher.wait_connected(1, LONG), "{carrier}");
        for name in ["a", "a", "a", "b", "b", "c", "c", "d"] {
            publisher.publish(&arm(name, 1.0)).unwrap();
        }
        let mut rejected = Vec::new();
        while rejected.len() < 3 {
            let event = told(&mut events, |e| matches!(e, Event::SampleRejected { .. }));
            if let Event::SampleRejected { subscriber, limit, most, rejected: 1, total: 1 } = event {
                assert_eq!(subscriber, "/in", "{carrier}");
                rejected.push((limit, most));
            }
        }
        rejected.sort_unstable();
        use ResourceLimit::{Instances, Samples, SamplesPerInstance};
        assert_eq!(rejected, [(Samples, 5), (Instances, 3), (SamplesPerInstance, 2)], "{carrier}");
        assert_eq!(subscriber.policy_counts().rejected, 3, "{carrier}");
        assert_eq!(taken(&mut subscriber, 5), ["a", "a", "b", "b", "c"], "{carrier}");
        publisher.publish(&arm("c", 2.0)).unwrap();
        assert_eq!(taken(&mut subscriber, 1), ["c"], "{carrier}: there is room again");
    }
}

/// A keep-last queue keeps the last samples of each instance if the subscriber states the key.
#[test]
fn the_last_sample_of_each_instance_waits() {
    let (out, into) = (node("out", "each"), node("in", "each"));
    let (publisher, subscriber) = ends("tcp", &out, &into);
    let mut publisher = publisher.key(["name"]).open().unwrap();
    let mut subscriber = subscriber.key(["name"]).queue(Queue::KeepLast(1)).open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    for (name, angle) in [("left", 1.0), ("right", 1.0), ("left", 2.0), ("left", 3.0), ("low", 1.0)] {
        publisher.publish(&arm(name, angle)).unwrap();
    }
    assert!(into.wait_until(LONG, || subscriber.instances().len() == 3));
    let got: Vec<(String, f64)> =
        std::iter::from_fn(|| subscriber.wait(LONG)).take(3).map(|s| (s.name.clone(), s.angle)).collect();
    assert_eq!(got, [("right".into(), 1.0), ("left".into(), 3.0), ("low".into(), 1.0)]);
    assert_eq!(subscriber.dropped(), 2);
}

/// The end of an instance is a sample like others: over every carrier, past a filter, and for late joiners.
#[test]
fn instances_are_disposed_of_unregistered_and_left() {
    for carrier in ["local", "shm", "tcp", "udp", "mcast"] {
        let test = format!("instances-{carrier}");
        let (out, into) = (node("out", &test), node("in", &test));
        let (publisher, subscriber) = ends(carrier, &out, &into);
        let mut publisher = publisher.key(["name"]).open().unwrap();
        let filter = Filter { expression: "angle > 1".into(), parameters: Vec::new() };
        let mut subscriber = subscriber.named("/in").key(["name"]).filter(filter).open().unwrap();
        assert!(publisher.wait_connected(1, LONG), "{carrier}");
        publisher.publish(&arm("left", 2.0)).unwrap();
        publisher.publish(&arm("right", 2.0)).unwrap();
        publisher.publish(&arm("low", 3.0)).unwrap();
        publisher.dispose(&arm("left", 0.0)).unwrap();
        publisher.unregister(&arm("right", 0.0)).unwrap();
        let changes: Vec<_> = std::iter::from_fn(|| subscriber.wait(LONG)).take(5).map(|s| s.info().change).collect();
        use Change::{Disposed, Unregistered, Written};
        assert_eq!(changes, [Written, Written, Written, Disposed, Unregistered], "{carrier}");
        let known = |subscriber: &Subscriber<Arm>| {
            subscriber.instances().into_iter().map(|i| (i.key, i.state)).collect::<Vec<_>>()
        };
        use InstanceState::{Alive, NoPublishers};
        let expected = [("left", InstanceState::Disposed), ("low", Alive), ("right", NoPublishers)];
        let expected = expected.map(|(name, state)| (format!("name = {name}"), state));
        assert_eq!(known(&subscriber), expected, "{carrier}");
        drop(publisher);
        let gone =
            |e: &Event| matches!(e, Event::InstanceChanged { key, state: NoPublishers, .. } if key == "name = low");
        let event = told(&mut into.events(), gone);
        assert_eq!(event.to_string(), "/in: instance name = low has no publishers any more");
    }
}

/// The proxy of a channel moves, from one channel to the next, while the publisher stays.
#[test]
fn instances_and_their_publisher_outlive_a_move() {
    let (out, into) = (node("out", "moved"), node("in", "moved"));
    let (publisher, subscriber) = ends("tcp", &out, &into);
    let mut publisher = publisher.named("/out").key(["name"]).open().unwrap();
    let subscriber = subscriber.named("/in").key(["name"]).every(2).open().unwrap();
    let mut events = into.events();
    assert!(publisher.wait_connected(1, LONG));
    let moved = || {
        let channels = subscriber.channels();
        channels.iter().any(|channel| channel.proxied.as_ref().is_some_and(|p| p.place == qos::Place::Subscriber))
    };
    publisher.publish(&arm("left", 1.0)).unwrap();
    publisher.publish(&arm("left", 2.0)).unwrap();
    assert!(into.wait_until(LONG, || subscriber.instances().len() == 1));
    let proxy = Proxy { selection: Selection::every(2).unwrap(), picture: None, place: qos::Place::Subscriber };
    let changes = ProxyChanges::to(&proxy);
    let request = Request::Scale { publisher: "/out".into(), subscriber: "/in".into(), changes };
    assert_eq!(into.ask(into.id(), &request, LONG).unwrap(), Reply::Done);
    let until = Instant::now() + LONG;
    while !moved() {
        assert!(Instant::now() < until, "{:?}", subscriber.channels());
        publisher.publish(&arm("left", 3.0)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..2 {
        publisher.dispose(&arm("left", 0.0)).unwrap(); // every second sample arrives
    }
    let first = told(&mut events, |e| matches!(e, Event::InstanceChanged { .. } | Event::LivelinessChanged { .. }));
    assert!(matches!(first, Event::InstanceChanged { state: InstanceState::Disposed, .. }), "{first}");
}

#[test]
fn late_joiners_learn_that_an_instance_has_ended() {
    for carrier in ["local", "tcp"] {
        let test = format!("late-{carrier}");
        let (out, into) = (node("out", &test), node("in", &test));
        let (publisher, subscriber) = ends(carrier, &out, &into);
        let mut publisher = publisher.key(["name"]).transient_local(4).open().unwrap();
        publisher.publish(&arm("left", 2.0)).unwrap();
        publisher.dispose(&arm("left", 0.0)).unwrap();
        let mut subscriber = subscriber.key(["name"]).transient_local(4).open().unwrap();
        let changes: Vec<_> = std::iter::from_fn(|| subscriber.wait(LONG)).take(2).map(|s| s.info().change).collect();
        assert_eq!(changes, [Change::Written, Change::Disposed], "{carrier}");
        assert_eq!(subscriber.instances()[0].state, InstanceState::Disposed);
    }
}

#[test]
fn losses_are_told_where_samples_are_missed() {
    let (out, into) = (node("out", "lost"), lossy("in", "lost"));
    let (publisher, subscriber) = ends("udp", &out, &into);
    let mut publisher = publisher.named("/out").open().unwrap();
    let _subscriber = subscriber.named("/in").open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    let mut events = into.events();
    let lost = |e: &Event| matches!(e, Event::SampleLost { publisher, subscriber, lost: 1.., .. } if publisher == "/out" && subscriber == "/in");
    let until = Instant::now() + LONG;
    while !std::iter::from_fn(|| events.wait(Duration::from_millis(1))).any(|event| lost(&event)) {
        publisher.publish(&arm("left", 1.0)).unwrap();
        assert!(Instant::now() < until, "nobody told");
    }
}

#[test]
fn the_stronger_publisher_is_heard_until_it_falls_silent() {
    for carrier in ["local", "tcp"] {
        let test = format!("ownership-{carrier}");
        let (out, into) = (node("out", &test), node("in", &test));
        let open = |name: &str, strength| {
            let liveliness = Liveliness { kind: LivelinessKind::ByPort, lease: Some(Duration::from_millis(200)) };
            ends(carrier, &out, &into).0.named(name).exclusive(strength).liveliness(liveliness).open().unwrap()
        };
        let (mut weak, mut strong) = (open("/weak", 1), open("/strong", 5));
        let mut subscriber = ends(carrier, &out, &into).1.named("/in").exclusive().key(["name"]).open().unwrap();
        assert!(weak.wait_connected(1, LONG) && strong.wait_connected(1, LONG));
        strong.publish(&arm("left", 5.0)).unwrap();
        assert_eq!(subscriber.wait(LONG).unwrap().angle, 5.0);
        // It owns this instance alone.
        weak.publish(&arm("left", 1.0)).unwrap();
        weak.publish(&arm("right", 1.0)).unwrap();
        assert_eq!(taken(&mut subscriber, 1), ["right"], "{carrier}");
        assert_eq!(subscriber.policy_counts().not_owned, 1);
        let silent = |e: &Event| matches!(e, Event::LivelinessChanged { publisher, alive: false, subscriber: Some(s) } if publisher == "/strong" && s == "/in");
        told(&mut into.events(), silent);
        weak.publish(&arm("left", 2.0)).unwrap();
        assert_eq!(subscriber.wait(LONG).unwrap().angle, 2.0, "{carrier}");
    }
}

#[test]
fn an_idle_publisher_is_alive_while_it_asserts_liveliness() {
    let (out, into) = (node("out", "alive"), node("in", "alive"));
    let liveliness = Liveliness { kind: LivelinessKind::ByNode, lease: Some(Duration::from_millis(300)) };
    let (publisher, subscriber) = ends("tcp", &out, &into);
    let publisher = publisher.named("/out").liveliness(liveliness).open().unwrap();
    let _subscriber = subscriber.liveliness(liveliness).open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    let mut events = into.events();
    told(&mut events, |e| matches!(e, Event::LivelinessChanged { alive: false, .. }));
    out.assert_liveliness();
    told(&mut events, |e| matches!(e, Event::LivelinessChanged { alive: true, .. }));
}

#[test]
fn samples_keep_the_requested_separation() {
    for carrier in ["local", "shm", "tcp", "mcast"] {
        let test = format!("separation-{carrier}");
        let (out, into) = (node("out", &test), node("in", &test));
        let (publisher, subscriber) = ends(carrier, &out, &into);
        let mut publisher = publisher.open().unwrap();
        let shortest = Duration::from_millis(2);
        let mut subscriber = subscriber.separation(shortest).open().unwrap();
        assert!(publisher.wait_connected(1, LONG), "{carrier}");
        let mut stamps = Vec::new();
        while stamps.len() < 5 {
            publisher.publish(&arm("left", 1.0)).unwrap();
            std::iter::from_fn(|| subscriber.take()).for_each(|sample| stamps.push(sample.info().source_ns));
        }
        let apart = stamps.windows(2).all(|pair| u128::from(pair[1] - pair[0]) >= shortest.as_nanos());
        assert!(apart, "{carrier}: {stamps:?}");
    }
}
