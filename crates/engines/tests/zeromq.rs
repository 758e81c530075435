//! ZeroMQ: the suite between two engines, programs made by hand, and pyzmq behind a bridge.

use super::program::{COUNT, Program, expected, port};
use super::running::{Running, until};
use super::world::{LONG, address, node, realm};
use super::zmtp::{Connection, accept};
use qos::{Class, Qos, Queue, Reliability};
use std::io::{BufRead, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use thalweg::Change;
use thalweg::codec::{Message, Raw};
use thalweg_engines::testing::Made;
use thalweg_engines::zeromq::{Settings, ZeroMq, class_endpoint};
use thalweg_engines::{Deliver, Engine, Error, Publisher, Sample, Subscriber, Topic};

fn open(bind: &[&str], connect: &[&str]) -> ZeroMq {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    ZeroMq::open(&Settings { bind: texts(bind), connect: texts(connect), ..Settings::default() }).unwrap()
}

fn two() -> Made {
    let (first, second) = (address(), address());
    (Box::new(open(&[&first], &[&second])), Box::new(open(&[&second], &[&first])))
}

thalweg_engines::engine_conformance!(of_zeromq, two());

fn topic(name: &str) -> Topic {
    Topic { name: name.to_owned(), message: Raw::description().as_ref().clone() }
}

fn publish(publisher: &dyn Publisher, message: &[u8]) -> thalweg_engines::Result<()> {
    let (topic, change) = ("", Change::Written);
    publisher.publish(&Sample { topic, message, publisher: 0, origin: None, change, age_ns: 0, historical: false })
}

/// Topics and messages, as texts.
fn listen(engine: &ZeroMq, name: &str) -> (Box<dyn Subscriber>, Receiver<(String, String)>) {
    let (tell, told) = channel();
    let deliver: Deliver = Box::new(move |sample| {
        let _ = tell.send((sample.topic.to_owned(), String::from_utf8_lossy(sample.message).into_owned()));
    });
    (engine.subscriber(&topic(name), &Qos::default(), deliver).unwrap(), told)
}

/// The address of an endpoint, such as `127.0.0.1:5556`.
fn bare(endpoint: &str) -> &str {
    endpoint.rsplit_once('/').map_or(endpoint, |(_, address)| address)
}

#[test]
fn a_topic_is_no_prefix_of_others() {
    let address = address();
    let (here, there) = (open(&[&address], &[]), open(&[], &[&address]));
    let [robot, robotics] = ["/robot", "/robotics"].map(|name| here.publisher(&topic(name), &Qos::default()).unwrap());
    let (_subscriber, told) = listen(&there, "/robot");
    until("ZeroMQ wants both", || robot.is_wanted() && robotics.is_wanted());
    publish(&*robotics, b"of another topic").unwrap();
    publish(&*robot, b"pose").unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), ("/robot".to_owned(), "pose".to_owned()));
    assert_eq!(there.refused().count, 0);
}

/// A class leaves at a port of its own, with its mark; who has not connected there gets it unmarked as long as nobody has.
#[test]
fn a_class_leaves_at_its_port_with_its_mark() {
    let address = address();
    let engine = open(&[&address], &[]);
    let [alarm, end] = [Class::Critical, Class::Normal].map(|class| {
        let name = if class == Class::Normal { "/end" } else { "/alarm" };
        engine.publisher(&topic(name), &Qos { class, ..Qos::default() }).unwrap()
    });
    let mut plain = Connection::open(bare(&address), "SUB");
    plain.send(&[b"\x01"]);
    until("somebody subscribes at the port of NORMAL", || alarm.is_wanted());
    publish(&*alarm, b"unmarked").unwrap();
    assert_eq!([plain.frame(), plain.frame()], [&b"alarm"[..], b"unmarked"]);
    let critical = class_endpoint(&address, Class::Critical).unwrap();
    let mut marked = Connection::open(bare(&critical), "SUB");
    marked.send(&[b"\x01alarm"]);
    // Wanted before and after: only samples tell.
    marked.0.set_nonblocking(true).unwrap();
    until("samples leave at the port of the class", || {
        publish(&*alarm, b"either").unwrap();
        marked.0.peek(&mut [0]).is_ok()
    });
    marked.0.set_nonblocking(false).unwrap();
    publish(&*alarm, b"marked").unwrap();
    let mut frames = std::iter::from_fn(|| Some([marked.frame(), marked.frame()]));
    assert!(frames.any(|frames| frames == [&b"alarm"[..], b"marked"]));
    publish(&*end, b"").unwrap();
    let mut frames = std::iter::from_fn(|| Some([plain.frame(), plain.frame()]));
    let last = frames.find(|frames| *frames != [&b"alarm"[..], b"either"]).unwrap();
    assert_eq!(last, [&b"end"[..], b""], "what leaves at the port of the class leaves there alone");
    let listed = Command::new("ss").args(["-tnH", "--tos", "src", bare(&critical)]).output();
    let Some(listed) = listed.ok().filter(|output| output.status.success()) else {
        return println!("skipped: because there is no ss (iproute2)");
    };
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mark = format!("tos:{:#x}", u32::from(Class::Critical.dscp()) << 2);
    assert!(listed.contains(&mark), "no {mark} in {listed}");
}

#[test]
fn what_cannot_be_read_is_named_and_the_connection_is_made_anew() {
    let address = address();
    let listener = TcpListener::bind(bare(&address)).unwrap();
    let engine = open(&[], &[&address]);
    let (_subscriber, told) = listen(&engine, "/a/**");
    let good = |connection: &mut Connection, number: &str| {
        connection.send(&[b"a", number.as_bytes()]);
        assert_eq!(told.recv_timeout(LONG).unwrap(), ("/a".to_owned(), number.to_owned()));
    };
    let mut publisher = Connection::accept(&listener, "PUB");
    assert_eq!(publisher.frame(), b"\x01a");
    for malformed in [&[&b"a"[..]][..], &[b"a", b"b", b"c"], &[b"a\xff", b""], &[b"a//b", b""], &[&[b'a'; 255], b""]] {
        publisher.send(malformed);
    }
    good(&mut publisher, "1");
    assert_eq!(engine.refused().count, 5, "{:?}", engine.refused());
    publisher.announce(1 << 40);
    let mut publisher = Connection::accept(&listener, "PUB");
    assert_eq!(publisher.frame(), b"\x01a");
    good(&mut publisher, "2");
    let refused = engine.refused();
    let says = format!("what came from tcp://{}: no ZeroMQ, or a frame of more than 16777216 bytes", bare(&address));
    assert!(refused.count == 6 && refused.last.starts_with(&says), "{refused:?}");
    // A publisher that starts anew, as something else at first.
    drop(publisher);
    accept(&listener).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    let mut publisher = Connection::accept(&listener, "PUB");
    good(&mut publisher, "3");
}

#[test]
fn a_reliable_publisher_waits_for_room_and_says_so_if_there_is_none() {
    let address = address();
    let settings = Settings { bind: vec![address.clone()], queue: 4, ..Settings::default() };
    let engine = ZeroMq::open(&settings).unwrap();
    let reliable = engine.publisher(&topic("/large"), &Qos::default()).unwrap();
    let lossy = Qos { reliability: Reliability::BestEffort, ..Qos::default() };
    let lossy = engine.publisher(&topic("/large"), &lossy).unwrap();
    let other = engine.publisher(&topic("/other"), &Qos::default()).unwrap();
    let mut stuck = Connection::open(bare(&address), "SUB");
    stuck.send(&[b"\x01large"]);
    let mut reader = Connection::open(bare(&address), "SUB");
    reader.send(&[b"\x01other"]);
    until("both subscribe", || reliable.is_wanted() && other.is_wanted());
    let message = vec![0; 4 << 20];
    let full = (0..64).find_map(|_| publish(&*reliable, &message).err());
    assert_eq!(full, Some(Error::Engine("/large: a subscriber has had no room for 1s".to_owned())));
    publish(&*lossy, &message).unwrap();
    publish(&*other, b"goes on").unwrap();
    assert_eq!([reader.frame(), reader.frame()], [&b"other"[..], b"goes on"]);
    drop(stuck);
    until("nobody wants it", || !reliable.is_wanted());
    publish(&*reliable, &message).unwrap();
}

#[test]
fn what_a_publisher_cannot_send_is_named() {
    let (first, address) = (address(), address());
    let engine = open(&[&address], &[]);
    assert!(matches!(engine.publisher(&topic("/a/*"), &Qos::default()), Err(Error::Topic(_))));
    let taken = ZeroMq::open(&Settings { bind: vec![address.clone()], ..Settings::default() }).err();
    assert!(taken.is_some_and(
        |error| matches!(&error, Error::Usage(why) if why.contains(bare(&address)) && why.contains("four free ports"))
    ));
    assert!(matches!(ZeroMq::open(&Settings::default()), Err(Error::Usage(_))));
    let small = ZeroMq::open(&Settings { bind: vec![first.clone()], max_message: 8, ..Settings::default() }).unwrap();
    let publisher = small.publisher(&topic("/a"), &Qos::default()).unwrap();
    let mut subscriber = Connection::open(bare(&first), "SUB");
    subscriber.send(&[b"\x01"]);
    until("it is wanted", || publisher.is_wanted());
    let Err(Error::Engine(why)) = publish(&*publisher, b"123456789") else { panic!("9 bytes were taken") };
    assert_eq!(why, "/a: a message of 9 bytes; at most 8 are taken");
    subscriber.send(&[b"to a publisher"]);
    until("it is counted", || small.refused().count == 1);
}

fn bridge(realm: &str, bind: &[&str], connect: &[&str]) -> Running {
    Running::with(node("bridge", realm), Box::new(open(bind, connect)), "")
}

#[test]
fn samples_of_a_pyzmq_program_come() {
    let Some(port) = port("zmq", "pyzmq") else { return };
    let realm = realm("peer-zeromq-in");
    let here = node("here", &realm);
    let (tell, told) = channel();
    let subscriber = here.subscriber::<Raw>("/robot/pose");
    let _subscriber =
        subscriber.callback(move |sample| tell.send(String::from_utf8_lossy(&sample).into_owned()).unwrap());
    let _bridge = bridge(&realm, &[], &[&format!("127.0.0.1:{port}")]);
    let peer = Program::start("zeromq_peer.py", "zeromq", "talk", port);
    let got: Vec<String> = (0..COUNT).map(|_| told.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(got, expected());
    peer.end();
}

#[test]
fn a_pyzmq_program_gets_samples() {
    let Some(port) = port("zmq", "pyzmq") else { return };
    let realm = realm("peer-zeromq-out");
    let here = node("here", &realm);
    let mut publisher = here.publisher::<Raw>("/robot/pose").queue(Queue::KeepAll(1024)).open().unwrap();
    let bridge = bridge(&realm, &[&format!("127.0.0.1:{port}")], &[]);
    let mut peer = Program::start("zeromq_peer.py", "zeromq", "listen", port);
    let mut lines = peer.lines().lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    assert!(publisher.wait_connected(1, LONG));
    for text in expected() {
        until("there is room", || publisher.publish(text.as_bytes()).unwrap().refused == 0);
    }
    assert_eq!(lines.collect::<Vec<_>>(), expected());
    peer.end();
    until("all are counted", || bridge.status().sent == u64::from(COUNT));
    assert_eq!(bridge.notices(), [""; 0]);
}
