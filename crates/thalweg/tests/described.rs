//! Ports whose type is known at run time.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::Reliability;
use serde::{Deserialize, Serialize};
use std::sync::mpsc;
use std::time::Duration;
use thalweg::codec::{Definitions, Raw, TypeDescription, Untyped, to_cdr};
use thalweg::control::Foreign;
use thalweg::{Change, Error, Node, Settings};

const LONG: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    x: f64,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Other {
    x: f32,
}

fn nodes<const N: usize>(realm: &str) -> [Node; N] {
    let realm = format!("described-{realm}-{}", std::process::id());
    std::array::from_fn(|_| Node::with_settings(Settings { realm: realm.clone(), ..Settings::default() }).unwrap())
}

fn point() -> Point {
    Point { x: 0.5, name: "left".to_owned() }
}

#[test]
fn an_encoded_message_is_the_value_at_a_typed_subscriber() {
    for carrier in ["local", "shm", "tcp", "udp"] {
        let [here, there] = nodes(carrier);
        let (tell, told) = mpsc::channel();
        let node = if carrier == "local" { &here } else { &there };
        let builder = node.subscriber::<Point>("/a").reliability(Reliability::BestEffort);
        // Values of another Rust type do not go from hand to hand within a process.
        let builder = if carrier == "local" { builder } else { builder.carriers([carrier]) };
        let subscriber = builder.callback(move |sample| tell.send(sample.clone()).unwrap()).unwrap();
        let mut publisher = here.publisher::<Untyped>("/a").described(TypeDescription::of::<Point>()).open().unwrap();
        assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG), "{carrier}");
        publisher.publish(&to_cdr(&point()).unwrap()).unwrap();
        // 0.5 and "up", big-endian, as a writer on such a machine sends them.
        publisher.publish(b"\x00\x00\x00\x00\x3f\xe0\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03up\x00").unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(point()), "{carrier}");
        assert_eq!(told.recv_timeout(LONG), Ok(Point { name: "up".to_owned(), ..point() }), "{carrier}");
    }
}

#[test]
fn a_loan_is_an_encoded_message_too() {
    let [here, there] = nodes("loan");
    let (tell, told) = mpsc::channel();
    let subscriber = there.subscriber::<Point>("/a").carriers(["shm"]);
    let _subscriber = subscriber.callback(move |sample| tell.send(sample.clone()).unwrap()).unwrap();
    let mut publisher = here.publisher::<Untyped>("/a").described(TypeDescription::of::<Point>()).open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    let message = to_cdr(&point()).unwrap();
    let mut loan = publisher.loan(message.len()).unwrap();
    loan.bytes_mut().copy_from_slice(&message);
    loan.publish().unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok(point()));
}

#[test]
fn a_loan_apart_leaves_its_publisher_free() {
    for carrier in ["shm", "tcp", "local"] {
        let [here, there] = nodes(&format!("apart-{carrier}"));
        let node = if carrier == "local" { &here } else { &there };
        let mut subscriber = node.subscriber::<Raw>("/a").carriers([carrier]).open().unwrap();
        let mut publisher = here.publisher::<Raw>("/a").carriers([carrier]).open().unwrap();
        assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG), "{carrier}");
        let mut loans: Vec<_> = (0..3).map(|_| publisher.loan_owned(5).unwrap()).collect();
        let places: Vec<_> = loans.iter_mut().map(|loan| loan.write(|bytes| bytes.as_ptr().addr())).collect();
        publisher.publish(b"between").unwrap();
        for (loan, byte) in loans.iter_mut().zip(1..) {
            loan.write(|bytes| bytes.fill(byte));
        }
        let again: Vec<_> = loans.iter_mut().map(|loan| loan.write(|bytes| bytes.as_ptr().addr())).collect();
        assert_eq!(places, again, "{carrier}: they stay where they are");
        let [first, dropped, last] = <[_; 3]>::try_from(loans).ok().unwrap();
        drop(dropped);
        assert_eq!(
            (last.publish().unwrap().seq, first.publish().unwrap().seq),
            (2, 3),
            "numbered as they are published"
        );
        let mut late = publisher.loan_owned(5).unwrap();
        let mut received = || subscriber.wait(LONG).unwrap().to_vec();
        assert_eq!([received(), received(), received()], [b"between".to_vec(), vec![3; 5], vec![1; 5]], "{carrier}");
        drop(publisher);
        late.write(|bytes| bytes.fill(9));
        assert!(matches!(late.publish(), Err(Error::Closed)), "{carrier}");
    }
}

#[test]
fn a_forwarded_sample_keeps_its_stamp_and_change() {
    let [source, between, there] = nodes("forward");
    let (tell, told) = mpsc::channel();
    let last = there.subscriber::<Untyped>("/out").callback(move |sample| {
        tell.send((*sample.info(), sample.to_vec())).unwrap();
    });
    let last = last.unwrap();
    let mut publisher = source.publisher::<Point>("/in").open().unwrap();
    let mut taking = between.subscriber::<Untyped>("/in").open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && taking.wait_connected(1, LONG));
    publisher.publish(&Point { x: 1.0, ..point() }).unwrap();
    publisher.dispose(&point()).unwrap();
    // What comes first goes elsewhere, so the numbers differ.
    let first = taking.wait(LONG).unwrap();
    let message = taking.publisher(first.info()).unwrap().message.clone();
    let mut forwarding = between.publisher::<Untyped>("/out").described(message.clone()).open().unwrap();
    assert!(forwarding.wait_connected(1, LONG) && last.wait_connected(1, LONG));
    let second = taking.wait(LONG).unwrap();
    let forwarded = forwarding.forward(second.info(), &second).unwrap();
    let (info, bytes) = told.recv_timeout(LONG).unwrap();
    assert_eq!((forwarded.seq, info.seq, second.info().seq), (1, 1, 2), "a number of the forwarding port");
    assert_eq!((info.source_ns, info.change), (second.info().source_ns, Change::Disposed));
    assert_eq!(bytes, to_cdr(&point()).unwrap());
    assert_eq!(last.publisher(&info).unwrap().message, message, "the type comes along");
    assert_eq!(message, TypeDescription::of::<Point>());
}

/// The clock of another host has another origin: the time of arrival here counts.
#[test]
fn a_sample_of_another_clock_is_stamped_as_it_arrives() {
    let [here, there] = nodes("clock");
    let mut subscriber = there.subscriber::<Untyped>("/a").open().unwrap();
    let mut publisher = here.publisher::<Untyped>("/a").described(TypeDescription::of::<Point>()).open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
    publisher.publish(&to_cdr(&point()).unwrap()).unwrap();
    let own = *subscriber.wait(LONG).unwrap().info();
    let abroad = thalweg::SampleInfo { same_clock: false, source_ns: 1, received_ns: own.source_ns + 7, ..own };
    publisher.forward(&abroad, &to_cdr(&point()).unwrap()).unwrap();
    assert_eq!(subscriber.wait(LONG).unwrap().info().source_ns, own.source_ns + 7);
}

#[test]
fn a_port_has_the_type_that_it_states() {
    let [here, there] = nodes("types");
    let untold = here.publisher::<Untyped>("/a").open();
    assert!(matches!(&untold, Err(Error::Usage(why)) if why.contains("described()")), "{:?}", untold.err());
    let any = TypeDescription { hash: 1, ..TypeDescription::any() };
    assert!(here.subscriber::<Untyped>("/a").described(any.clone()).open().is_err());
    assert!(here.publisher::<Untyped>("/a").described(any).open().is_err());
    let lie = TypeDescription { hash: 1, ..TypeDescription::of::<Point>() };
    let refused = here.publisher::<Untyped>("/a").described(lie).open();
    assert!(matches!(&refused, Err(Error::Usage(why)) if why.contains("expected the hash")), "{:?}", refused.err());
    let point = there.subscriber::<Untyped>("/a").described(TypeDescription::of::<Point>()).open().unwrap();
    let other = there.subscriber::<Untyped>("/a").described(TypeDescription::of::<Other>()).open().unwrap();
    let publisher = here.publisher::<Untyped>("/a").described(TypeDescription::of::<Point>()).open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && point.wait_connected(1, LONG));
    assert_eq!((publisher.connected(), other.connected()), (1, 0));
}

/// A bridge says for which end of the other system it has a port.
#[test]
fn the_foreign_end_of_a_bridge_is_known_to_others() {
    let [bridge, there] = nodes("foreign");
    let talker = Foreign { engine: "ros2".to_owned(), name: "/talker/chatter".to_owned(), ..Foreign::default() };
    let builder = bridge.publisher::<Untyped>("/chatter").named("/bridge/chatter").foreign(talker.clone());
    let _publisher = builder.described(TypeDescription::of::<Point>()).open().unwrap();
    assert!(there.wait_until(LONG, || there.holder("/bridge/chatter").is_some()));
    assert_eq!(there.holder("/bridge/chatter").unwrap().1.foreign, Some(talker));
    let unseen = Foreign { engine: "ros2".to_owned(), name: "a\u{1b}[2J".to_owned(), ..Foreign::default() };
    let refused = bridge.subscriber::<Untyped>("/chatter").foreign(unseen).open();
    assert!(matches!(&refused, Err(Error::Usage(why)) if why.contains("control character")), "{:?}", refused.err());
}

/// Peers refuse all ports of a node that has more.
#[test]
fn a_node_has_as_many_ports_as_its_peers_take() {
    let [node] = nodes("most");
    let open = || node.subscriber::<Untyped>("/a").pull_only().open();
    let _ports: Vec<_> = (0..4096).map(|_| open().unwrap()).collect();
    let refused = open();
    assert!(matches!(&refused, Err(Error::Usage(why)) if why.contains("at most 4096 ports")), "{:?}", refused.err());
}

/// Peers refuse a node whose document is too long: it leaves out sources of types before.
#[test]
fn sources_of_many_types_leave_the_node_visible() {
    let [here, there] = nodes("sources");
    let described = |number: usize| {
        let mut definitions = Definitions::new();
        let text = format!("# {}\nuint8 x{number}\n", "x".repeat(60 << 10));
        definitions.add(&format!("a/msg/T{number}"), &text).unwrap();
        definitions.describe(&format!("a/msg/T{number}")).unwrap()
    };
    let open = |number| here.publisher::<Untyped>(&format!("/t{number}")).described(described(number)).open().unwrap();
    let ports: Vec<_> = (0..150).map(open).collect();
    let seen = || there.nodes().into_iter().find(|node| node.node == here.id() && node.ports.len() == ports.len());
    assert!(there.wait_until(LONG, || seen().is_some()));
    let ros = seen().unwrap().ports.into_values().map(|port| port.message.ros.unwrap()).collect::<Vec<_>>();
    let told = ros.iter().filter(|ros| !ros.source.is_empty()).count();
    assert_eq!(told, 17, "sources of 61,450 B in a MiB");
    assert!(ros.iter().all(|ros| ros.check().is_ok()));
}
