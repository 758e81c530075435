//! Relays: streams that a third node hosts, over every carrier; refusals; and the death and return of a relay.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::{Place, Scale};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use thalweg::carrier::Parameters;
use thalweg::codec::{Message, Raw};
use thalweg::control::{CHANNEL_HANDSHAKE, Direction, HEARTBEAT, NodeId, PortId, PortInfo};
use thalweg::proxy::scaler::{Scaler, Scalers, Unscalable};
use thalweg::proxy::{Picture, Proxy};
use thalweg::testing::handshake::{ALIVE, Answer, Request, VERSION, Watching, pack, unpack};
use thalweg::{Node, Publisher, Query, RelayLimits, Sample, SampleInfo, Settings, Subscriber};

const LONG: Duration = Duration::from_secs(20);

fn settings(realm: &str, name: &str) -> Settings {
    Settings { name: name.to_owned(), realm: format!("{realm}-{}", std::process::id()), ..Settings::default() }
}

fn node(realm: &str, name: &str) -> Node {
    Node::with_settings(settings(realm, name)).unwrap()
}

fn relay(realm: &str, limits: RelayLimits) -> Node {
    Node::with_settings(Settings { relay: Some(limits), ..settings(realm, "gate") }).unwrap()
}

fn subscriber(
    node: &Node,
    name: &str,
    carrier: &str,
    every: u32,
    place: Place,
) -> (Subscriber<Raw>, Receiver<SampleInfo>) {
    let (tell, told) = channel();
    let reliability =
        if matches!(carrier, "udp" | "mcast") { qos::Reliability::BestEffort } else { qos::Reliability::Reliable };
    let qos = qos::Qos { scale: Scale::Every(every), place, reliability, ..qos::Qos::default() };
    let builder = node.subscriber::<Raw>("/numbers").named(name).qos(qos).carriers([carrier]);
    (
        builder
            .callback(move |sample| {
                let _ = tell.send(*sample.info());
            })
            .unwrap(),
        told,
    )
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < until, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The place of a subscriber's only channel.
fn place(port: &Subscriber<Raw>) -> Option<Place> {
    port.channels().first().and_then(|report| report.proxied.clone()).map(|proxied| proxied.place)
}

fn at_relay() -> Place {
    Place::Relay("gate".into())
}

/// Publishes a sample per millisecond until `done`; returns the number of the last one.
fn publish_until(publisher: &mut Publisher<Raw>, mut done: impl FnMut() -> bool) -> u64 {
    let until = Instant::now() + LONG;
    loop {
        let last = publisher.publish(&[7; 100]).unwrap().seq;
        if done() {
            return last;
        }
        assert!(Instant::now() < until, "nothing changes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Four subscribers of one relay, each with its own scale (P-72), one of which scales nothing (P-10), and one subscription of the
/// relay to the source.
fn is_transparent(carrier: &str) {
    let realm = format!("relay-{carrier}");
    let gate = relay(&realm, RelayLimits::default());
    let (a, b) = (node(&realm, "a"), node(&realm, "b"));
    let offered =
        if matches!(carrier, "udp" | "mcast") { qos::Reliability::BestEffort } else { qos::Reliability::Reliable };
    let mut publisher = a.publisher::<Raw>("/numbers").named("/out").reliability(offered).open().unwrap();
    let scales = [1, 3, 5, 10];
    let (ports, told): (Vec<_>, Vec<_>) =
        scales.iter().map(|n| subscriber(&b, &format!("/every{n}"), carrier, *n, at_relay())).unzip();
    eventually("all are served by the relay", || ports.iter().all(|port| place(port) == Some(at_relay())));
    assert_eq!(publisher.connected(), 1, "equal sources are merged");
    for _ in 0..60 {
        publisher.publish(&[7; 100]).unwrap();
        std::thread::sleep(Duration::from_micros(500));
    }
    for (told, n) in told.iter().zip(scales) {
        for seq in (1..=60 / n).map(|k| u64::from(k * n)) {
            let info = told.recv_timeout(LONG).unwrap_or_else(|_| panic!("{seq} of every {n} over {carrier}"));
            assert_eq!((info.seq, info.node, info.same_clock), (seq, a.id(), true));
            let scaled = info.scaled.unwrap();
            assert_eq!((scaled.selection.to_string(), scaled.node), (n.to_string(), gate.id()));
        }
    }
    let load = || a.nodes().into_iter().find(|node| node.node == gate.id()).and_then(|node| node.relay);
    eventually("the relay tells its load", || load().is_some_and(|load| load.proxies == 4 && load.samples_per_s > 0));
    drop(ports);
    eventually("the relay leaves a source that nobody takes", || publisher.connected() == 0);
}

#[test]
fn is_transparent_over_tcp() {
    is_transparent("tcp");
}
#[test]
fn is_transparent_over_shm() {
    is_transparent("shm");
}
#[test]
fn is_transparent_over_udp() {
    is_transparent("udp");
}
#[test]
fn is_transparent_over_mcast() {
    is_transparent("mcast");
}

/// Smaller pictures and whole ones go to groups of their own (Table 2): each subscriber gets its own, and equal ones
/// share one.
#[test]
fn smaller_messages_have_a_group_of_their_own() {
    let scalers = Scalers::default().with("/numbers", || Cut);
    let a = Node::with_settings(Settings { scalers, ..settings("groups", "a") }).unwrap();
    let b = node("groups", "b");
    let mut publisher = a.publisher::<Raw>("/numbers").reliability(qos::Reliability::BestEffort).open().unwrap();
    let open = |width: Option<u32>| {
        let (tell, told) = channel();
        let builder = b.subscriber::<Raw>("/numbers").reliability(qos::Reliability::BestEffort).carriers(["mcast"]);
        let builder = if let Some(width) = width { builder.picture(width, 1) } else { builder };
        let tell = move |sample: Sample<'_, Raw>| {
            let _ = tell.send(sample.len());
        };
        (builder.callback(tell).unwrap(), told)
    };
    let all = [open(None), open(Some(10)), open(Some(20)), open(Some(10))];
    assert!(all.iter().all(|(port, _)| port.wait_connected(1, LONG)));
    for _ in 0..3 {
        publisher.publish(&[7; 100]).unwrap();
    }
    for ((_, told), size) in all.iter().zip([100, 10, 20, 10]) {
        let got: Vec<usize> = (0..3).map(|_| told.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(got, [size; 3]);
    }
}

/// Ports that name udp alone: pictures are made and sent all the same, at the publisher and at the subscriber.
#[test]
fn pictures_go_by_the_carrier_that_the_ports_name() {
    let open = |name| {
        let scalers = Scalers::default().with("/numbers", || Cut);
        Node::with_settings(Settings { scalers, ..settings("named", name) }).unwrap()
    };
    let (a, b) = (open("a"), open("b"));
    let offered = a.publisher::<Raw>("/numbers").reliability(qos::Reliability::BestEffort).carriers(["udp"]);
    let mut publisher = offered.open().unwrap();
    for place in [Place::Publisher, Place::Subscriber] {
        let (tell, told) = channel();
        let builder = b.subscriber::<Raw>("/numbers").reliability(qos::Reliability::BestEffort).carriers(["udp"]);
        let tell = move |sample: Sample<'_, Raw>| {
            let _ = tell.send(sample.len());
        };
        let port = builder.picture(10, 1).proxy(place.clone()).callback(tell).unwrap();
        assert!(port.wait_connected(1, LONG), "at the {place}");
        publisher.publish(&[7; 100]).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(10), "at the {place}");
    }
}

/// Each size costs a thread and its work for every sample: 300 of them left 343 Hz of 1 kHz.
#[test]
fn pictures_of_one_publisher_are_bounded() {
    let scalers = Scalers::default().with("/numbers", || Cut);
    let limits = thalweg::PortLimits { pictures: 2, ..thalweg::PortLimits::default() };
    let a = Node::with_settings(Settings { scalers, limits, ..settings("pictures", "a") }).unwrap();
    let b = node("pictures", "b");
    let mut events = b.events();
    let _publisher = a.publisher::<Raw>("/numbers").named("/out").open().unwrap();
    let open = |width| b.subscriber::<Raw>("/numbers").picture(width, 1).open().unwrap();
    let mut ports: Vec<_> = [10, 20, 10].map(open).into();
    assert!(ports.iter().all(|port| port.wait_connected(1, LONG)));
    let third = open(30);
    let said = std::iter::from_fn(|| events.wait(LONG)).map(|event| event.to_string());
    let refused = said.into_iter().find(|event| event.contains("pictures")).unwrap();
    assert!(
        refused.contains("at most 2 different pictures of /out, and makes ") && refused.contains("20x1"),
        "{refused}"
    );
    assert_eq!(third.connected(), 0);
    ports.remove(1);
    assert!(third.wait_connected(1, LONG), "one that nobody takes any more makes room");
}

#[test]
fn a_full_relay_refuses_and_the_publisher_serves() {
    let _gate = relay("relay-full", RelayLimits { proxies: 1, ..RelayLimits::default() });
    let (a, b) = (node("relay-full", "a"), node("relay-full", "b"));
    let mut events = b.events();
    let _publisher = a.publisher::<Raw>("/numbers").open().unwrap();
    let (first, _told) = subscriber(&b, "/first", "tcp", 2, at_relay());
    eventually("the first is served by the relay", || place(&first) == Some(at_relay()));
    let (second, _told) = subscriber(&b, "/second", "tcp", 2, at_relay());
    eventually("the second is served by the publisher", || place(&second) == Some(Place::Publisher));
    let told: Vec<String> = std::iter::from_fn(|| events.wait(Duration::ZERO)).map(|event| event.to_string()).collect();
    assert!(told.iter().any(|text| text.contains("at most 1 proxies")), "{told:?}");
}

/// Keeps the first `width` bytes of a message. An empty message cannot be scaled.
struct Cut;

impl Scaler for Cut {
    fn scale(&mut self, message: &[u8], picture: Picture, out: &mut Vec<u8>) -> Result<(), Unscalable> {
        if message.is_empty() {
            return Err(Unscalable("it is empty".into()));
        }
        out.extend_from_slice(&message[..message.len().min(picture.width.into())]);
        Ok(())
    }
}

/// A user's scaler at the publisher, at the subscriber and at a relay; with every second sample left out besides.
#[test]
fn messages_are_made_smaller_at_each_place() {
    let scalers = || Scalers::default().with("/numbers", || Cut);
    let open = |name| Node::with_settings(Settings { scalers: scalers(), ..settings("scaler", name) }).unwrap();
    let with_relay = Settings { relay: Some(RelayLimits::default()), scalers: scalers(), ..settings("scaler", "gate") };
    let gate = Node::with_settings(with_relay).unwrap();
    let (a, b) = (open("a"), open("b"));
    let mut publisher = a.publisher::<Raw>("/numbers").named("/out").open().unwrap();
    let places = [Place::Publisher, Place::Subscriber, at_relay()];
    let ports: Vec<_> = places
        .iter()
        .map(|place| {
            let (tell, told) = channel();
            let builder = b.subscriber::<Raw>("/numbers").every(2).picture(10, 1).proxy(place.clone());
            let tell = move |sample: Sample<'_, Raw>| {
                let _ = tell.send((*sample.info(), sample.len()));
            };
            (builder.callback(tell).unwrap(), told)
        })
        .collect();
    for ((port, _), wanted) in ports.iter().zip(&places) {
        eventually("it is served", || place(port).as_ref() == Some(wanted));
    }
    for size in [0, 0, 5, 5, 100, 100, 10, 10] {
        publisher.publish(&vec![7; size]).unwrap();
    }
    for ((_, told), place) in ports.iter().zip(&places) {
        let got: Vec<_> = (0..3).map(|_| told.recv_timeout(LONG).unwrap_or_else(|_| panic!("at {place}"))).collect();
        let found: Vec<_> = got.iter().map(|(info, size)| (info.seq, *size)).collect();
        assert_eq!(found, [(4, 5), (6, 10), (8, 10)], "at {place}: the second was empty");
        let info = got[0].0;
        let scaled = info.scaled.unwrap();
        assert_eq!((info.node, scaled.picture.unwrap().width), (a.id(), 10));
        // At a relay two proxies stand in a row: every second sample before it leaves the publisher, smaller at the relay.
        let at = if *place == at_relay() {
            gate.id()
        } else if *place == Place::Subscriber {
            b.id()
        } else {
            a.id()
        };
        assert_eq!((scaled.selection.to_string().as_str(), scaled.from, scaled.node), ("2", 2, at), "at {place}");
    }
}

#[test]
fn a_type_that_nobody_can_scale_is_refused_with_its_name() {
    let (a, b) = (node("unscalable", "a"), node("unscalable", "b"));
    let mut events = b.events();
    let _publisher = a.publisher::<(u32, u32)>("/numbers").open().unwrap();
    let _port = b.subscriber::<(u32, u32)>("/numbers").picture(10, 1).open().unwrap();
    loop {
        let event = events.wait(LONG).expect("an event that names the type").to_string();
        if event.contains("types that it can scale, not array<u32,2>") {
            return;
        }
    }
}

/// The relay dies, and the publisher serves. The relay returns and serves again, without gap or duplicate.
#[test]
fn a_dead_relay_is_replaced_and_used_again_when_it_returns() {
    let gate = relay("relay-dies", RelayLimits::default());
    let (a, b) = (node("relay-dies", "a"), node("relay-dies", "b"));
    let mut publisher = a.publisher::<Raw>("/numbers").queue(qos::Queue::KeepAll(4096)).open().unwrap();
    let (port, told) = subscriber(&b, "/in", "tcp", 1, at_relay());
    eventually("the relay serves", || place(&port) == Some(at_relay()));
    publish_until(&mut publisher, || told.try_iter().any(|info| info.seq > 20));
    drop(gate);
    publish_until(&mut publisher, || place(&port).is_none() && port.connected() == 1);
    let first = publish_until(&mut publisher, || told.try_iter().count() > 0);
    let _gate = relay("relay-dies", RelayLimits::default());
    publish_until(&mut publisher, || place(&port) == Some(at_relay()));
    let last = publisher.publish(&[7; 100]).unwrap().seq;
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        seen.push(told.recv_timeout(LONG).unwrap_or_else(|_| panic!("{first} to {last}: {seen:?}")).seq);
    }
    let from = *seen.first().unwrap();
    assert_eq!(seen, (from..=last).collect::<Vec<_>>(), "no gap and no duplicate on the way back");
}

/// The publisher is silent while the relay goes and returns: the subscriber still returns to it.
#[test]
fn a_relay_is_returned_to_while_nothing_is_published() {
    let open = || relay("relay-quiet", RelayLimits::default());
    let (mut gate, a, b) = (open(), node("relay-quiet", "a"), node("relay-quiet", "b"));
    let mut events = b.events();
    let mut publisher = a.publisher::<Raw>("/numbers").queue(qos::Queue::KeepAll(4096)).open().unwrap();
    let (port, told) = subscriber(&b, "/in", "tcp", 1, at_relay());
    for round in 1..=3 {
        eventually("the relay serves", || place(&port) == Some(at_relay()));
        assert_eq!(publisher.publish(&[7; 100]).unwrap().seq, 2 * round - 1);
        assert_eq!(told.recv_timeout(LONG).unwrap().seq, 2 * round - 1, "by the relay");
        drop(gate);
        eventually("the publisher serves", || place(&port).is_none() && port.connected() == 1);
        assert_eq!(publisher.publish(&[7; 100]).unwrap().seq, 2 * round);
        assert_eq!(told.recv_timeout(LONG).unwrap().seq, 2 * round, "by the publisher");
        gate = open();
    }
    eventually("the relay serves again", || place(&port) == Some(at_relay()));
    let told: Vec<String> = std::iter::from_fn(|| events.wait(Duration::ZERO)).map(|event| event.to_string()).collect();
    let fell_back =
        told.iter().filter(|text| text.ends_with("comes from the publisher as long as relay:gate is not there"));
    assert_eq!(fell_back.count(), 3, "{told:?}");
}

/// A peer that asks this very node of this realm gets a heartbeat for each question. All others, and malformed
/// questions, see the stream end.
#[test]
fn heartbeats_answer_valid_requests_only() {
    let gate = relay("relay-signs", RelayLimits::default());
    let realm = settings("relay-signs", "").realm;
    let right = Watching { version: VERSION, realm, to_node: gate.id(), source: gate.id(), port: PortId(1) };
    let say = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(gate.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&[&[HEARTBEAT], bytes].concat()).unwrap();
        stream
    };
    let sign = |stream: &mut TcpStream| {
        let mut sign = [0];
        stream.read_exact(&mut sign).is_ok().then_some(sign[0])
    };
    let mut asked = say(&pack(&right).unwrap());
    assert_eq!(sign(&mut asked), Some(ALIVE));
    for _ in 0..3 {
        asked.write_all(b"?").unwrap();
        assert_eq!(sign(&mut asked), Some(ALIVE));
    }
    let wrong = [
        Watching { realm: "another".into(), ..right.clone() },
        Watching { to_node: NodeId(1), ..right.clone() },
        Watching { version: VERSION + 1, ..right },
    ];
    let wrong = wrong.iter().map(|watching| pack(watching).unwrap());
    for bytes in wrong.chain([vec![255; 9], b"\x02\0\0\0[]".to_vec()]) {
        assert_eq!(sign(&mut say(&bytes)), None, "{bytes:?}");
    }
    asked.write_all(b"?").unwrap();
    assert_eq!(sign(&mut asked), Some(ALIVE), "the others harm nobody");
}

/// A peer may know the publisher before the relay does: its question waits, like one for a source that is connecting.
#[test]
fn a_question_that_comes_before_its_publisher_waits() {
    let gate = relay("relay-early", RelayLimits::default());
    // The question waits for 400 ms, in which a stalled machine may not have opened the port.
    assert!((0..10).any(|_| matches!(answer_to_an_early_question(&gate), Answer::Accepted(_))));
}

/// Asks for a port, and then opens it.
fn answer_to_an_early_question(gate: &Node) -> Answer {
    let out = node("relay-early", "out");
    assert!(gate.wait_until(LONG, || gate.nodes().iter().any(|there| there.node == out.id())));
    let mut stream = TcpStream::connect(gate.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&[&[CHANNEL_HANDSHAKE], pack(&question(&out)).unwrap().as_slice()].concat()).unwrap();
    let _publisher = out.publisher::<Raw>("/numbers").open().unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    unpack(&[&length, answer.as_slice()].concat()).unwrap().unwrap().0
}

/// A request for the first port of a node by a relay, over carrier `tcp`.
fn question(publisher: &Node) -> Request {
    let subscriber = PortInfo {
        name: "/in".into(),
        direction: Direction::Subscriber,
        topic: "/numbers".into(),
        message: Raw::description().as_ref().clone(),
        qos: qos::Qos::default(),
        carriers: vec!["tcp".into()],
        answers: None,
        pull: Default::default(),
        foreign: None,
    };
    Request {
        version: VERSION,
        realm: settings("relay-early", "").realm,
        node: NodeId(1),
        port: PortId(1),
        subscriber,
        to_node: publisher.id(),
        to_port: PortId(1),
        carrier: "tcp".into(),
        clock: linux::clock::clock_id(),
        by_name: false,
        parameters: Parameters::default(),
        answers: None,
        proxy: Some(Proxy { place: Place::Relay("gate".into()), ..Proxy::default() }),
        moves: false,
        token: None,
    }
}

fn kept_at_relay(node: &Node, samples: u32) -> Subscriber<Raw> {
    let buffer = qos::PullBuffer { samples, place: at_relay(), ..qos::PullBuffer::default() };
    node.subscriber::<Raw>("/numbers").history(buffer).pull_only().open().unwrap()
}

fn pulled(port: &Subscriber<Raw>, query: Query) -> Vec<u64> {
    let Ok(pulled) = port.pull(query, LONG) else { return Vec::new() };
    pulled.filter_map(|sample| Some(sample.ok()?.info().seq)).collect()
}

/// A pull buffer at a relay, requested by the subscriber (P-09): the publisher keeps no samples, and its samples outlive
/// it.
#[test]
fn a_relay_keeps_samples_that_ports_want_kept_there() {
    let gate = relay("relay-keeps", RelayLimits::default());
    let (a, b) = (node("relay-keeps", "a"), node("relay-keeps", "b"));
    let mut publisher = a.publisher::<Raw>("/numbers").open().unwrap();
    let (port, equal) = (kept_at_relay(&b, 10), kept_at_relay(&b, 10));
    assert!(publisher.wait_connected(1, LONG));
    for _ in 0..30 {
        publisher.publish(&[7; 100]).unwrap();
    }
    eventually("the last sample is kept", || pulled(&port, Query::latest()) == [30]);
    assert_eq!(pulled(&equal, Query::Last(100)), (21..=30).collect::<Vec<_>>());
    assert_eq!((publisher.connected(), port.connected()), (1, 0), "equal requests share a buffer, and are no channels");
    let keeps = || b.nodes().into_iter().find(|node| node.node == gate.id()).and_then(|node| node.relay);
    eventually("the relay tells how many it keeps", || keeps().is_some_and(|load| load.keeps == 1));
    drop((publisher, a));
    assert_eq!(pulled(&port, Query::range(25..=27)), [25, 26, 27]);
    // Neither end was there at the same time as the other one (Y-50).
    let late = node("relay-keeps", "late");
    let latecomer = kept_at_relay(&late, 10);
    eventually("a latecomer gets them", || pulled(&latecomer, Query::Last(100)) == (21..=30).collect::<Vec<_>>());
}

#[test]
fn a_relay_keeps_no_more_than_its_limit() {
    let gate = relay("relay-kept", RelayLimits { kept_bytes: 20 << 20, ..RelayLimits::default() });
    let (a, b) = (node("relay-kept", "a"), node("relay-kept", "b"));
    const TOO_MUCH: &str = "16777216 bytes are kept, 16777216 more are asked for, and it keeps at most 20971520";
    let (mut events, mut asked) = (gate.events(), b.events());
    let asker = std::iter::from_fn(move || asked.wait(LONG)).map(|event| event.to_string());
    let open = |name| a.publisher::<Raw>("/numbers").named(name).open().unwrap();
    let (mut first, mut second) = (open("/first"), open("/second"));
    let port = kept_at_relay(&b, 10);
    // Samples that are not kept are not sent, either.
    eventually("one of them has a channel", || first.connected() + second.connected() == 1);
    for publisher in [&mut first, &mut second] {
        publisher.publish(&[7; 100]).unwrap();
    }
    eventually("one of them is kept", || pulled(&port, Query::latest()) == [1]);
    let refused = std::iter::from_fn(|| events.wait(LONG)).map(|event| event.to_string());
    let refused = refused.into_iter().find(|text| text.contains("not kept for others"));
    let says = refused.unwrap();
    assert!(says.contains(TOO_MUCH), "{says}");
    // Ports that wanted their samples kept there are told, also later ones, and so is a pull.
    let mut told = asker;
    assert!(told.any(|text| text.contains("wants samples kept at relay:gate") && text.contains(TOO_MUCH)));
    let later = node("relay-kept", "later");
    let mut events = later.events();
    let again = kept_at_relay(&later, 10);
    let mut told = std::iter::from_fn(|| events.wait(LONG)).map(|event| event.to_string());
    assert!(told.any(|text| text.contains(TOO_MUCH)));
    assert_eq!(first.connected() + second.connected(), 1);
    let why = |port: &Subscriber<Raw>| port.pull(Query::latest(), LONG).unwrap().find_map(|sample| sample.err());
    for port in [&port, &again] {
        let why = why(port).unwrap().to_string();
        assert!(why.contains("at relay:gate") && why.contains(TOO_MUCH), "{why}");
    }
}

/// A publisher that found no room is kept as soon as there is some, and the port that wanted it is told of both.
#[test]
fn a_refused_publisher_is_kept_when_there_is_room() {
    let limits = RelayLimits { kept_bytes: 20 << 20, unwanted: Duration::ZERO, ..RelayLimits::default() };
    let _gate = relay("relay-room", limits);
    let (a, b) = (node("relay-room", "a"), node("relay-room", "b"));
    let mut events = b.events();
    let mut told = std::iter::from_fn(move || events.wait(LONG)).map(|event| event.to_string());
    let first = a.publisher::<Raw>("/numbers").named("/first").open().unwrap();
    let mut second = a.publisher::<Raw>("/others").named("/second").open().unwrap();
    let numbers = kept_at_relay(&b, 10);
    assert!(first.wait_connected(1, LONG), "it has the room");
    let buffer = qos::PullBuffer { place: at_relay(), ..qos::PullBuffer::default() };
    let others = b.subscriber::<Raw>("/others").named("/in").history(buffer).pull_only().open().unwrap();
    assert!(told.any(|text| text.contains("samples of /second are not kept for others")));
    assert_eq!(second.connected(), 0);
    drop(numbers);
    assert!(told.any(|text| text == "/in has its samples of /second kept at relay:gate now"));
    assert!(second.wait_connected(1, LONG));
    second.publish(&[7; 100]).unwrap();
    eventually("it is kept", || pulled(&others, Query::latest()) == [1]);
}

/// Samples of a publisher that is gone are kept until a present one needs the room.
#[test]
fn samples_of_a_gone_publisher_give_way_to_a_present_one() {
    let gate = relay("relay-way", RelayLimits { kept_bytes: 20 << 20, ..RelayLimits::default() });
    let (a, b) = (node("relay-way", "a"), node("relay-way", "b"));
    let open = |name| a.publisher::<Raw>("/numbers").named(name).open().unwrap();
    let mut first = open("/first");
    let port = kept_at_relay(&b, 10);
    assert!(first.wait_connected(1, LONG));
    first.publish(&[7; 100]).unwrap();
    eventually("it is kept", || pulled(&port, Query::latest()) == [1]);
    let mut second = open("/second");
    let refused = || gate.nodes().iter().filter_map(|node| node.relay.as_ref()).any(|load| !load.not_kept.is_empty());
    eventually("there is no room for another one", refused);
    assert_eq!((pulled(&port, Query::latest()), second.connected()), (vec![1], 0));
    drop(first);
    assert!(second.wait_connected(1, LONG), "there is now");
    (0..3).for_each(|_| assert!(second.publish(&[8; 100]).is_ok()));
    eventually("it is kept instead", || pulled(&port, Query::Last(10)) == [1, 2, 3]);
}

/// Two relays: the second one serves while the first is away, and gives the stream back.
#[test]
fn another_relay_serves_while_the_first_is_away() {
    let open = |name: &str| {
        Node::with_settings(Settings { relay: Some(RelayLimits::default()), ..settings("relay-two", name) }).unwrap()
    };
    let (first, second) = (open("first"), open("second"));
    let (a, b) = (node("relay-two", "a"), node("relay-two", "b"));
    let mut publisher = a.publisher::<Raw>("/numbers").transient_local(4096).open().unwrap();
    let (tell, told) = channel();
    let port = b
        .subscriber::<Raw>("/numbers")
        .transient_local(4096)
        .carriers(["tcp"])
        .proxy("relay:first,second".parse().unwrap());
    let tell = move |sample: Sample<'_, Raw>| {
        let _ = tell.send(*sample.info());
    };
    let port = port.callback(tell).unwrap();
    let at = |name: &str| place(&port) == Some(Place::Relay(name.into()));
    publish_until(&mut publisher, || at("first"));
    drop(first);
    publish_until(&mut publisher, || at("second"));
    let _first = open("first");
    publish_until(&mut publisher, || at("first"));
    drop(second);
    let last = publisher.publish(&[7; 100]).unwrap().seq;
    let mut seen: Vec<u64> = Vec::new();
    while seen.last() != Some(&last) {
        seen.push(told.recv_timeout(LONG).unwrap_or_else(|_| panic!("up to {last}: {seen:?}")).seq);
    }
    assert_eq!(seen, (seen[0]..=last).collect::<Vec<_>>(), "no gap and no duplicate");
}
