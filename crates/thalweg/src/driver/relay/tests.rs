//! Hosted streams and buffers, refusals and events, in virtual time.

use super::*;
use crate::channel::PortRef;
use crate::channel::proxy::{Picture, Proxy, Selection};
use crate::control::directory::Directory;
use crate::control::{self, Direction, Document, NodeId, Origin, Peer, PortId, PullRole};
use crate::driver::buffers::make_room;
use crate::event::Event;
use crate::handshake::{Request, VERSION};
use crate::testing::discovery::{document, port};
use qos::Place;
use std::cell::Cell;
use std::rc::Rc;

/// A stream whose state the test sets.
#[derive(Default)]
struct Fake {
    source: Cell<bool>,
    takers: Cell<usize>,
    carried: Cell<(u64, u64)>,
}

impl Stream for Rc<Fake> {
    fn has_source(&self) -> bool {
        self.source.get()
    }
    fn takers(&self) -> usize {
        self.takers.get()
    }
    fn carried(&self) -> (u64, u64) {
        self.carried.get()
    }
}

type TestRelay = Relay<Rc<Fake>, u32, u32>;

const LIMITS: RelayLimits = RelayLimits {
    proxies: 8,
    per_peer: 3,
    samples_per_s: 1000,
    bytes_per_s: 1_000_000,
    kept_bytes: 1000,
    unwanted: Duration::from_secs(60),
};

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn relay() -> (TestRelay, Instant) {
    let now = Instant::now();
    (Relay::new(Some(LIMITS), now), now)
}

fn stream(number: u32) -> Hosting {
    (PortRef { node: NodeId(7), port: PortId(number) }, None)
}

/// A stream that has a source and one taker.
fn hosted(relay: &mut TestRelay, number: u32, now: Instant) -> Rc<Fake> {
    let fake = Rc::new(Fake { source: Cell::new(true), takers: Cell::new(1), ..Fake::default() });
    relay.streams.begin(stream(number), fake.clone(), Peer::Node(NodeId(1)), now);
    fake
}

/// Looks whenever it is time to, until `end`. Returns the actions, each with its time after `begun`.
fn look_until(relay: &mut TestRelay, begun: Instant, end: Duration) -> Vec<(Duration, Action<u32>)> {
    let mut done = Vec::new();
    while let Some(at) = relay.next_deadline().filter(|at| *at <= begun + end) {
        for action in relay.look(at).unwrap_or_default() {
            if let Action::EndStream(key) = &action {
                relay.streams.end(key);
            }
            done.push((at - begun, action));
        }
    }
    done
}

#[test]
fn a_relay_hosts_only_what_asks_for_a_relay() {
    let (relay, now) = relay();
    let other: TestRelay = Relay::new(None, now);
    let asks = |to: u64, place: Place, picture: Option<Picture>| {
        let subscriber = port(Direction::Subscriber, "/viewer", "/a");
        let proxy = Some(Proxy { place, picture, ..Proxy::default() }).filter(|proxy| !proxy.is_nothing());
        Request {
            version: VERSION,
            realm: "test".into(),
            node: NodeId(1),
            port: PortId(1),
            subscriber,
            to_node: NodeId(to),
            to_port: PortId(1),
            carrier: "tcp".into(),
            clock: "clock".into(),
            by_name: false,
            parameters: Default::default(),
            answers: None,
            proxy,
            moves: false,
            token: None,
        }
    };
    let hosted = |relay: &TestRelay, request: Request| relay.is_hosted(&request, NodeId(1));
    let (gate, picture) = (Place::Relay("gate".into()), Some(Picture { width: 10, height: 10 }));
    assert!(hosted(&relay, asks(2, gate.clone(), None)) && !hosted(&other, asks(2, gate.clone(), None)));
    assert!(!hosted(&relay, asks(1, gate, None)), "its own port");
    assert!(!hosted(&relay, asks(2, Place::Publisher, None)), "by an address that led here, perhaps its own request");
    assert!(hosted(&other, asks(2, Place::Subscriber, picture)), "any node scales its own pictures");
}

#[test]
fn a_stream_ends_when_it_had_no_source_or_no_takers_for_half_a_second() {
    for without_source in [true, false] {
        let (mut relay, begun) = relay();
        let fake = hosted(&mut relay, 1, begun);
        assert_eq!(look_until(&mut relay, begun, ms(2000)), []);
        let needed = |is: bool| {
            if without_source { fake.source.set(is) } else { fake.takers.set(usize::from(is)) }
        };
        needed(false);
        assert_eq!(look_until(&mut relay, begun, ms(2500)), []);
        needed(true);
        assert_eq!(look_until(&mut relay, begun, ms(3000)), [], "it was needed again in time");
        needed(false);
        // The stream is seen idle at 3.25 s, and at 4 s it has been idle for more than 0.5 s.
        assert_eq!(look_until(&mut relay, begun, ms(9000)), [(ms(4000), Action::EndStream(stream(1)))]);
    }
}

/// A request is refused after 0.4 s, and comes again half a second later.
#[test]
fn a_stream_whose_source_is_late_stays_while_it_is_asked_for() {
    let (mut relay, begun) = relay();
    let fake = Rc::new(Fake::default());
    relay.streams.begin(stream(1), fake, Peer::Node(NodeId(1)), begun);
    let ends = |done: Vec<(Duration, Action<u32>)>| {
        done.into_iter()
            .filter(|(_, action)| matches!(action, Action::EndStream(_)))
            .map(|(at, _)| at)
            .collect::<Vec<_>>()
    };
    for number in 0..4 {
        let at = ms(900 * u64::from(number));
        assert!(relay.streams.wait(stream(1), number, begun + at).is_ok());
        assert!(ends(look_until(&mut relay, begun, at + ms(900))).is_empty());
    }
    assert_eq!(
        ends(look_until(&mut relay, begun, ms(9000))),
        [ms(4250)],
        "the first look more than 1.5 s after the last request"
    );
}

#[test]
fn a_request_waits_for_the_source_and_is_refused_with_the_reason() {
    let (mut relay, begun) = relay();
    let fake = hosted(&mut relay, 1, begun);
    fake.source.set(false);
    assert!(relay.streams.wait(stream(1), 10, begun).is_ok() && relay.streams.wait(stream(2), 20, begun).is_ok());
    assert_eq!(relay.streams.waiting_requests().collect::<Vec<_>>(), [&10, &20]);
    let refused = look_until(&mut relay, begun, ms(500));
    let [(at, Action::Refuse(10, first)), (_, Action::Refuse(20, second))] = &refused[..] else {
        panic!("{refused:?}")
    };
    assert_eq!(*at, ms(500), "the first look after 400 ms");
    assert!(first.offered.contains("a source that it reaches"), "{first:?}");
    assert!(second.offered.contains("not port 2 of"), "{second:?}");
}

#[test]
fn no_more_than_256_requests_wait() {
    let (mut relay, begun) = relay();
    let mut wait = |number| relay.streams.wait(stream(1), number, begun);
    assert!((0..256).all(|number| wait(number).is_ok()));
    let Err((256, refused)) = wait(256) else { panic!("it waits") };
    assert!(refused.offered.contains("256"), "{refused:?}");
}

#[test]
fn a_relay_that_was_stopped_takes_all_its_streams_anew() {
    let (mut relay, begun) = relay();
    hosted(&mut relay, 1, begun);
    relay.streams.wait(stream(1), 10, begun).unwrap();
    let done = relay.look(begun + ms(1500)).unwrap();
    let [Action::Warn(text), Action::EndStream(key), Action::Refuse(10, refused)] = &done[..] else {
        panic!("{done:?}")
    };
    assert!(text.contains("1.5s") && *key == stream(1) && refused.offered.contains("not port 1"), "{done:?}");
    let mut other: TestRelay = Relay::new(None, begun);
    hosted(&mut other, 1, begun);
    assert_eq!(other.look(begun + ms(1500)), Some(Vec::new()), "pictures of its own publishers go on");
}

#[test]
fn a_node_that_is_no_relay_looks_only_at_its_hosted_streams() {
    let now = Instant::now();
    let mut relay: TestRelay = Relay::new(None, now);
    assert_eq!(relay.next_deadline(), None);
    assert!(relay.check_load().is_err() && !relay.is_measured(now + ms(5000)));
    hosted(&mut relay, 1, now);
    assert_eq!(relay.next_deadline(), Some(now + LOOK));
    assert_eq!(relay.look(now + LOOK / 2), None, "not yet");
}

#[test]
fn the_load_is_measured_once_a_second_and_told_when_it_changed() {
    let (mut relay, begun) = relay();
    let (fake, directory) = (hosted(&mut relay, 1, begun), Directory::new());
    fake.carried.set((100, 5000));
    let load = relay.measure(0, &directory, begun).unwrap();
    assert_eq!((load.proxies, load.samples_per_s, load.bytes_per_s), (1, 100, 5000));
    assert!(!relay.is_measured(begun + ms(999)) && relay.measure(0, &directory, begun + ms(999)).is_none());
    fake.carried.set((500, 15_000));
    let load = relay.measure(0, &directory, begun + ms(2000)).unwrap();
    assert_eq!((load.samples_per_s, load.bytes_per_s), (200, 5000), "400 samples in two seconds");
    fake.carried.set((700, 20_000));
    assert_eq!(relay.measure(0, &directory, begun + ms(3000)), None, "as before");
    assert!(relay.measure(2, &directory, begun + ms(4000)).is_some());
}

#[test]
fn a_relay_refuses_beyond_its_proxies_samples_and_bytes() {
    let offered = |relay: &TestRelay| relay.check_load().map_err(|refused| refused.offered).err().unwrap_or_default();
    for (carried, what) in [((1000, 1), "samples/s"), ((1, 1_000_000), "bytes/s")] {
        let (mut relay, begun) = relay();
        let fake = hosted(&mut relay, 1, begun);
        assert_eq!(offered(&relay), "");
        fake.carried.set(carried);
        relay.measure(0, &Directory::new(), begun);
        assert!(offered(&relay).contains(what), "{}", offered(&relay));
    }
    let (mut relay, begun) = relay();
    hosted(&mut relay, 1, begun).takers.set(7);
    assert_eq!(offered(&relay), "");
    relay.streams.wait(stream(2), 1, begun).unwrap();
    assert_eq!(offered(&relay), "at most 8 proxies and has 8");
}

#[test]
fn a_host_and_a_node_have_their_share_of_the_proxies() {
    let (relay, _) = relay();
    let peer = |address: u8, node| (Peer::at([10, 0, 0, address].into()), NodeId(node));
    let check = |had: &[Elsewhere]| relay.check_share(peer(1, 1), had.iter().copied());
    assert!(check(&[peer(1, 1), peer(1, 1), peer(2, 1), peer(2, 1)]).is_ok());
    assert!(check(&[peer(1, 1), peer(1, 2), peer(1, 3)]).is_err(), "a quarter of 8, but what a node may have");
}

#[test]
fn one_host_has_half_of_the_pictures_made() {
    let (mut relay, now) = relay();
    let asker = Peer::at([10, 0, 0, 1].into());
    let (source, picture) = (stream(1).0, |width| Some((Picture { width, height: 10 }, Selection::ALL)));
    for width in 1..=2 {
        assert!(relay.streams.check_pictures(source, "/camera", asker, 4).is_ok());
        relay.streams.begin((source, picture(width)), Rc::default(), asker, now);
    }
    let refused = relay.streams.check_pictures(source, "/camera", asker, 4).unwrap_err();
    assert!(refused.offered.contains("at most 2 different pictures of /camera for 10.0.0.1"), "{refused:?}");
    assert!(relay.streams.check_pictures(source, "/camera", Peer::Node(NodeId(1)), 4).is_ok());
    assert!(relay.streams.check_pictures(source, "/camera", Peer::Node(NodeId(1)), 2).is_err());
}

fn buffer(topic: &str) -> (Buffered, PullBuffer) {
    ((topic.to_owned(), Vec::new(), 64, 1000, None), PullBuffer::default())
}

#[test]
fn equal_requests_share_a_buffer_that_stays_a_minute_when_unwanted() {
    let (mut relay, begun) = relay();
    let (key, limits) = buffer("/a");
    let wanted = || vec![buffer("/a"), buffer("/a")];
    assert_eq!(relay.look_at_buffers(wanted(), begun), [Action::BeginBuffer(key.clone(), limits)]);
    relay.buffers.begin(key.clone(), 1);
    assert_eq!(relay.look_at_buffers(wanted(), begun), []);
    assert_eq!(relay.look_at_buffers(Vec::new(), begun + ms(1000)), []);
    assert_eq!(relay.look_at_buffers(wanted(), begun + ms(50_000)), [], "who was killed came back");
    assert_eq!(relay.look_at_buffers(Vec::new(), begun + ms(60_000)), []);
    assert_eq!(relay.look_at_buffers(Vec::new(), begun + ms(120_000)), []);
    assert_eq!(relay.look_at_buffers(Vec::new(), begun + ms(120_001)), [Action::EndBuffer(key.clone())]);
    assert_eq!(relay.buffers.end(&key), Some(1));
}

#[test]
fn beyond_64_buffers_the_owner_is_told_once() {
    let (mut relay, now) = relay();
    let wanted: Vec<_> = (0..66).map(|number| buffer(&format!("/topic{number}"))).collect();
    let actions = relay.look_at_buffers(wanted.clone(), now);
    let told = |actions: &[Action<u32>]| actions.iter().filter(|action| matches!(action, Action::Warn(_))).count();
    assert_eq!((actions.len(), told(&actions)), (66, 2));
    for action in actions {
        if let Action::BeginBuffer(key, _) = action {
            relay.buffers.begin(key, 0);
        }
    }
    assert_eq!(relay.look_at_buffers(wanted, now), []);
}

#[test]
fn publishers_that_are_gone_give_up_their_room_only_if_it_is_enough() {
    let gone = || [(300, 'a'), (300, 'b'), (300, 'c')].into_iter();
    assert_eq!(make_room((0, 1000, 1000), std::iter::once_with(|| panic!("asked"))), Ok(Vec::<()>::new()));
    assert_eq!(make_room((900, 500, 1000), gone()), Ok(vec!['a', 'b']));
    assert!(make_room((1000, 1000, 1000), gone()).unwrap_err().contains("1000 bytes are kept, 1000 more"));
    assert!(make_room((u64::MAX, 1, 1000), gone()).is_err());
}

/// A relay, and a node whose port wants `/a` kept there, which know each other.
fn pair(not_kept: Vec<control::NotKept>) -> (Document, Directory) {
    let (mut there, mut own) = (document(1), document(2));
    there.relay = Some(RelayLoad { not_kept, ..RelayLoad::default() });
    there.ports.insert(PortId(3), port(Direction::Publisher, "/camera", "/a"));
    let mut wants = port(Direction::Subscriber, "/viewer", "/a");
    wants.qos.pull = Some(PullBuffer { place: Place::Relay(there.name.clone()), ..PullBuffer::default() });
    own.ports.insert(PortId(5), wants);
    let mut directory = Directory::new();
    for (origin, of) in [(Origin::Host { user: 0 }, &there), (Origin::Own, &own)] {
        directory.apply(origin, control::Event::Document(Box::new(of.clone())));
    }
    (own, directory)
}

#[test]
fn a_relay_tells_a_refusal_once_and_forgets_those_that_no_port_wants() {
    let mut refusals = Refusals::default();
    let first = refusals.refuse("/a", Some("/camera"), "x".repeat(300)).unwrap();
    assert_eq!(first.because.len(), 200);
    assert_eq!(refusals.refuse("/a", Some("/camera"), "x".repeat(300)), None);
    let second = refusals.refuse("/a", Some("/camera"), "full".into()).unwrap();
    assert_eq!(refusals.of_publishers(), [("/a".to_owned(), "/camera".to_owned())]);
    let (_, directory) = pair(Vec::new());
    assert_eq!(refusals.standing(&directory), [second], "for the last reason only");
    refusals.refuse("/a", Some("/gone"), "full".into());
    refusals.refuse("/nobody", None, "full".into());
    assert_eq!(refusals.standing(&directory).len(), 1);
    refusals.keeps_now("/a", Some("/camera"));
    assert_eq!(refusals.standing(&directory), []);
    let (wants, keeps) = (port(Direction::Subscriber, "/k", "/b"), PullRole::Keeps);
    let mut keeper = document(3);
    keeper.ports.insert(PortId(1), control::PortInfo { pull: keeps, ..wants });
    let mut directory = Directory::new();
    directory.apply(Origin::Own, control::Event::Document(Box::new(keeper)));
    refusals.refuse("/b", None, "full".into());
    assert_eq!(refusals.standing(&directory).len(), 1, "it is wanted by a port that keeps");
}

#[test]
fn a_ports_owner_learns_once_of_a_refusal_and_of_its_end() {
    let mut refusals = Refusals::default();
    let not_kept = |publisher: Option<&str>| {
        let publisher = publisher.map(str::to_owned);
        control::NotKept { topic: "/a".into(), publisher, because: "full".into() }
    };
    let (own, directory) = pair(vec![not_kept(Some("/camera")), not_kept(Some("/gone"))]);
    let heard = refusals.heard(NodeId(1), &own, &directory);
    assert!(matches!(&heard[..], [Event::NotKept { port, relay, .. }, _] if port == "/viewer" && relay == "node-1"));
    assert_eq!(refusals.heard(NodeId(1), &own, &directory).len(), 0);
    assert_eq!(refusals.heard(own.node, &own, &directory).len(), 0, "of all relays");
    let (own, directory) = pair(Vec::new());
    let heard = refusals.heard(NodeId(1), &own, &directory);
    let [Event::KeptNow { port, publisher, .. }] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((port.as_str(), publisher.as_deref()), ("/viewer", Some("/camera")), "the other one is gone");
    let (own, directory) = pair(vec![not_kept(None)]);
    assert_eq!(refusals.heard(NodeId(1), &own, &directory).len(), 1);
    refusals.closed(PortId(5));
    assert_eq!(refusals.heard(NodeId(1), &own, &directory).len(), 1, "the port was opened anew");
}
