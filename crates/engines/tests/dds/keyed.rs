//! Topics with a key: instances, their histories and their ends, between engines and with `cyclonedds` from PyPI.

use super::joined::join;
use super::peers::Peer;
use super::{domain, open, settings, until, written};
use crate::running::Running;
use crate::world::{LONG, node, realm};
use qos::{Durability, Ownership, Qos};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use thalweg::Change;
use thalweg::codec::{Idl, TypeDescription, from_cdr, to_cdr};
use thalweg_engines::bridge::Rules;
use thalweg_engines::dds::{Dds, Settings};
use thalweg_engines::{Deliver, Engine, Publisher, Sample, Subscriber, Topic};

/// The key is not in front, and of two members.
const IDL: &str = "@final struct Track { unsigned long value; @key unsigned long number; @key string name; };";

/// The type of `dds_peer.py`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Track {
    value: u32,
    number: u32,
    name: String,
}

fn track(value: u32, number: u32, name: &str) -> Track {
    Track { value, number, name: name.to_owned() }
}

fn with_definitions(domain: u32) -> Settings {
    let mut idl = Idl::new();
    idl.add("robot.idl", IDL).unwrap();
    let (idl, of) = (Arc::new(idl.clone()), idl);
    let keys = Arc::new(move |name: &str| of.keys(name).unwrap_or_default());
    Settings { describe: Arc::new(move |name| idl.describe(name).ok()), keys, ..settings(domain) }
}

fn knowing(domain: u32) -> Dds {
    Dds::open(with_definitions(domain), None).unwrap()
}

fn topic() -> Topic {
    Topic { name: "/robot/track".to_owned(), message: TypeDescription::of::<Track>() }
}

/// By fields in another order than that of the type.
fn keyed() -> Qos {
    Qos { key: vec!["name".to_owned(), "number".to_owned()], ..Qos::default() }
}

fn publish(publisher: &dyn Publisher, change: Change, track: &Track) {
    publisher.publish(&Sample { change, ..written(&to_cdr(track).unwrap()) }).unwrap();
}

/// Subscribes once the publisher is known, as a bridge does.
fn listen(engine: &Dds, request: &Qos) -> (Box<dyn Subscriber>, Receiver<(Change, Track)>) {
    until("the publisher is known", || !engine.endpoints().is_empty());
    let (tell, told) = channel();
    let deliver: Deliver =
        Box::new(move |sample| tell.send((sample.change, from_cdr(sample.message).unwrap())).unwrap());
    (engine.subscriber(&topic(), request, deliver).unwrap(), told)
}

#[test]
fn instances_end_one_by_one_and_begin_again() {
    let domain = domain();
    let (here, there) = (knowing(domain), knowing(domain));
    let publisher = here.publisher(&topic(), &keyed()).unwrap();
    let (_subscriber, told) = listen(&there, &Qos::default());
    assert_eq!(there.endpoints()[0].qos.key, ["number", "name"]);
    until("it is wanted", || publisher.is_wanted());
    let sent = [
        (Change::Written, track(1, 7, "arm")),
        (Change::Written, track(2, 8, "leg")),
        (Change::Disposed, track(0, 7, "arm")),
        (Change::Written, track(3, 7, "arm")),
        (Change::Unregistered, track(0, 8, "leg")),
        (Change::Disposed, track(0, 9, "never written")),
    ];
    sent.iter().for_each(|(change, track)| publish(&*publisher, *change, track));
    let came: Vec<_> = sent.iter().map(|_| told.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(came, sent);
}

#[test]
fn a_late_subscriber_gets_the_history_of_each_instance() {
    let domain = domain();
    let (here, there) = (knowing(domain), knowing(domain));
    let durable = Qos { durability: Durability::TransientLocal, history: 2, ..keyed() };
    let publisher = here.publisher(&topic(), &durable).unwrap();
    publish(&*publisher, Change::Written, &track(1, 8, "leg"));
    (1..=5).for_each(|value| publish(&*publisher, Change::Written, &track(value, 7, "arm")));
    let (_subscriber, told) = listen(&there, &durable);
    let mut came: Vec<_> = (0..3).map(|_| told.recv_timeout(LONG).unwrap().1).collect();
    came.sort();
    assert_eq!(came, [track(1, 8, "leg"), track(4, 7, "arm"), track(5, 7, "arm")]);
}

/// Without a definition a publisher states the key by itself, and what others write with one is refused by name.
#[test]
fn a_key_that_is_not_known_or_another_one_is_refused_with_the_reason() {
    let domain = domain();
    let (knows, other) = (knowing(domain), open(domain));
    let publisher = other.publisher(&topic(), &keyed()).unwrap();
    let (_subscriber, told) = listen(&knows, &Qos::default());
    until("it is wanted", || publisher.is_wanted());
    publish(&*publisher, Change::Written, &track(1, 7, "arm"));
    assert_eq!(told.recv_timeout(LONG).unwrap().1, track(1, 7, "arm"));
    let _publisher = knows.publisher(&topic(), &Qos::default()).unwrap();
    until("the writer is refused", || other.refused().last.contains("robot/track of type Track: it has a key"));
    let refused = |key: &[&str]| {
        let key = key.iter().map(ToString::to_string).collect();
        knows.publisher(&topic(), &Qos { key, ..Qos::default() }).err().unwrap().to_string()
    };
    assert!(refused(&["number"]).contains("its key is number, that of Track in its definition number, name"));
    let missing = Qos { key: vec!["colour".to_owned()], ..Qos::default() };
    let refused = open(super::domain()).publisher(&topic(), &missing).err().unwrap().to_string();
    assert!(refused.contains("colour is none of the type"), "{refused}");
}

#[test]
fn instances_with_an_owner_each_are_refused() {
    let domain = domain();
    let (here, there) = (knowing(domain), knowing(domain));
    let exclusive = Qos { ownership: Ownership::Exclusive, ..keyed() };
    let _publisher = here.publisher(&topic(), &exclusive).unwrap();
    until("it is refused", || there.refused().last.contains("ownership = exclusive"));
    assert_eq!(there.endpoints(), []);
}

#[test]
fn instances_and_their_ends_cross_from_one_network_to_another() {
    let (realm, [left, right]) = (realm("keyed-joined"), [domain(), domain()]);
    let (here, there) = (knowing(left), knowing(right));
    let _bridges =
        [("left", left), ("right", right)].map(|(name, domain)| join(&realm, name, with_definitions(domain)));
    let publisher = here.publisher(&topic(), &keyed()).unwrap();
    let (_subscriber, told) = listen(&there, &Qos::default());
    until("it is wanted", || publisher.is_wanted());
    let sent = [
        (Change::Written, track(1, 7, "arm")),
        (Change::Written, track(2, 8, "leg")),
        (Change::Disposed, track(0, 7, "arm")),
        (Change::Written, track(3, 8, "leg")),
    ];
    sent.iter().for_each(|(change, track)| publish(&*publisher, *change, track));
    let came: Vec<_> = sent.iter().map(|_| told.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(came, sent);
}

fn bridge(realm: &str, domain: u32) -> Running {
    let own = node("bridge", realm);
    let engine = Dds::open(with_definitions(domain), Some(Rules::default().identity(own.id()))).unwrap();
    Running::with(own, Box::new(engine), "")
}

#[test]
fn instances_of_a_program_of_dds_come_with_their_ends() {
    let (domain, realm) = (domain(), realm("dds-keyed-in"));
    let here = node("here", &realm);
    let (tell, told) = channel();
    let take = here.subscriber::<Track>("/robot/track");
    let _subscriber = take.callback(move |sample| tell.send((sample.info().change, sample.clone())).unwrap()).unwrap();
    let _bridge = bridge(&realm, domain);
    let Some(peer) = Peer::start("track-talk", domain, "robot/track") else { return };
    let came: Vec<(Change, Track)> = (0..6).map(|_| told.recv_timeout(LONG).unwrap()).collect();
    let expected = [
        (Change::Written, track(1, 7, "arm")),
        (Change::Written, track(2, 8, "leg")),
        (Change::Disposed, track(0, 7, "arm")),
        (Change::Written, track(3, 8, "leg")),
        (Change::Written, track(4, 7, "arm")),
        (Change::Disposed, track(0, 8, "leg")),
    ];
    assert_eq!(came, expected);
    peer.end();
}

#[test]
fn a_program_of_dds_gets_instances_and_their_ends() {
    let (domain, realm) = (domain(), realm("dds-keyed-out"));
    let here = node("here", &realm);
    let mut publisher = here.publisher::<Track>("/robot/track").qos(keyed()).open().unwrap();
    let bridge = bridge(&realm, domain);
    let Some(mut peer) = Peer::start("track-listen", domain, "robot/track") else { return };
    let mut lines = peer.lines();
    assert_eq!(lines.next().unwrap(), "ready");
    assert!(publisher.wait_connected(1, LONG), "{:?}", bridge.notices());
    // The program tells the end of an instance only if it has taken its samples.
    for (value, number, name) in [(1, 7, "arm"), (2, 8, "leg")] {
        publisher.publish(&track(value, number, name)).unwrap();
        assert_eq!(lines.next().unwrap(), format!("{value} {number} {name}"));
    }
    publisher.dispose(&track(9, 7, "arm")).unwrap();
    assert_eq!(lines.next().unwrap(), "disposed 7 arm");
    publisher.publish(&track(3, 8, "leg")).unwrap();
    assert_eq!(lines.next().unwrap(), "3 8 leg");
    peer.end();
}
