//! Bridges between realms of Thalweg and Zenoh networks.

mod several;
mod sharing;

use super::running::until;
use super::world::{LONG, address, node, realm};
use super::zenoh_world::{bridge, connecting, listening, open};
use qos::{Durability, Queue};
use serde::{Deserialize, Serialize};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use thalweg::codec::{Message, Raw, from_cdr, to_cdr};
use thalweg::{Change, Node};
use thalweg_engines::zenoh::Zenoh;
use thalweg_engines::{Engine, Sample, Subscriber, Topic};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    x: f64,
    name: String,
}

fn point(x: f64) -> Point {
    Point { x, name: "left".to_owned() }
}

fn raw(name: &str) -> Topic {
    Topic { name: name.to_owned(), message: Raw::description().as_ref().clone() }
}

fn written(message: &[u8]) -> Sample<'_> {
    Sample { topic: "", message, publisher: 0, origin: None, change: Change::Written, age_ns: 0, historical: false }
}

/// Topic, message and change.
type Came = (String, Vec<u8>, Change);

/// A program of Zenoh that subscribes.
fn listen(zenoh: &Zenoh, name: &str, durability: Durability) -> (Box<dyn Subscriber>, Receiver<Came>) {
    let (tell, told) = channel();
    let deliver = Box::new(move |sample: &Sample<'_>| {
        let _ = tell.send((sample.topic.to_owned(), sample.message.to_vec(), sample.change));
    });
    let request = qos::Qos { durability, history: 100, ..qos::Qos::default() };
    (zenoh.subscriber(&raw(name), &request, deliver).unwrap(), told)
}

#[test]
fn a_thousand_samples_leave_when_somebody_wants_them() {
    let (realm, address) = (realm("out"), address());
    let (here, zenoh) = (node("here", &realm), open(listening(&address)));
    let mut publisher =
        here.publisher::<Point>("/a/b").queue(Queue::Block { limit: 1024, up_to_us: 10_000_000 }).open().unwrap();
    let bridge = bridge(node("bridge", &realm), connecting(&address), "");
    until("the publisher is known there", || bridge.status().publishers == 1);
    assert_eq!((bridge.status().out, publisher.connected()), (0, 0), "nobody wants it");
    let (subscriber, told) = listen(&zenoh, "/a/b", Durability::Volatile);
    assert!(publisher.wait_connected(1, LONG));
    for number in 0..1000 {
        publisher.publish(&point(f64::from(number))).unwrap();
    }
    for number in 0..1000 {
        let (topic, message, change) = told.recv_timeout(LONG).unwrap();
        assert_eq!((&topic[..], change), ("/a/b", Change::Written));
        assert_eq!(from_cdr::<Point>(&message).unwrap(), point(f64::from(number)));
    }
    drop(subscriber);
    until("the route is closed", || publisher.connected() == 0);
}

#[test]
fn a_thousand_samples_come_to_whom_subscribes() {
    let (realm, address) = (realm("in"), address());
    let (here, zenoh) = (node("here", &realm), open(listening(&address)));
    let (tell, told) = channel();
    let subscriber =
        here.subscriber::<Point>("/a/b").callback(move |sample| tell.send(sample.clone()).unwrap()).unwrap();
    let bridge = bridge(node("bridge", &realm), connecting(&address), "");
    assert!(subscriber.wait_connected(1, LONG));
    let offer = qos::Qos::default();
    let publisher = zenoh.publisher(&raw("/a/b"), &offer).unwrap();
    until("the publisher is wanted", || publisher.is_wanted());
    (0..1000).for_each(|number| publisher.publish(&written(&to_cdr(&point(f64::from(number))).unwrap())).unwrap());
    for number in 0..1000 {
        assert_eq!(told.recv_timeout(LONG), Ok(point(f64::from(number))));
    }
    let foreign = here.holder(&bridge_port(&here, "/a/b")).unwrap().1.foreign.unwrap();
    assert_eq!(foreign.to_string(), "zenoh /a/b");
    drop(subscriber);
    until("the route is closed", || !publisher.is_wanted());
    assert_eq!(bridge.status().into, 0);
}

/// The name of the bridge's publisher of a topic.
fn bridge_port(node: &Node, topic: &str) -> String {
    let documents = node.nodes();
    let ports =
        documents.iter().filter(|document| document.name == "bridge").flat_map(|document| document.ports.values());
    ports.filter(|port| port.topic == topic).map(|port| port.name.clone()).next().unwrap()
}

#[test]
fn a_late_joiner_gets_each_publishers_history_on_either_side() {
    let (realm, address) = (realm("late"), address());
    let (here, zenoh) = (node("here", &realm), open(listening(&address)));
    let durable = qos::Qos { durability: Durability::TransientLocal, history: 2, ..qos::Qos::default() };
    let mut publishers = ["p", "q", "r"].map(|_| here.publisher::<Point>("/map").qos(durable.clone()).open().unwrap());
    for (publisher, x) in publishers.iter_mut().zip([10.0, 20.0, 30.0]) {
        for number in 0..3 {
            publisher.publish(&point(x + f64::from(number))).unwrap();
        }
    }
    let bridge = bridge(node("bridge", &realm), connecting(&address), "");
    until("the histories have left", || bridge.status().sent == 6);
    let (_subscriber, told) = listen(&zenoh, "/map", Durability::TransientLocal);
    let mut got: Vec<f64> = (0..6).map(|_| from_cdr::<Point>(&told.recv_timeout(LONG).unwrap().1).unwrap().x).collect();
    got.sort_by(f64::total_cmp);
    assert_eq!(got, [11.0, 12.0, 21.0, 22.0, 31.0, 32.0]);

    let foreign = zenoh.publisher(&raw("/grid"), &durable).unwrap();
    (0..3).for_each(|number| foreign.publish(&written(&to_cdr(&point(f64::from(number))).unwrap())).unwrap());
    let (tell, told) = channel();
    let late = here.subscriber::<Point>("/grid").qos(durable);
    let _late = late.callback(move |sample| tell.send(sample.x).unwrap()).unwrap();
    assert_eq!([told.recv_timeout(LONG), told.recv_timeout(LONG)], [Ok(1.0), Ok(2.0)]);
}

#[test]
fn rules_rename_refuse_and_thin_out() {
    let rules = "[[rule]]\ntopic = \"/a\"\nthere = \"/robot1/a\"\nscale = 5\nclass = \"high\"\n[[rule]]\ntopic = \"/secret\"\ndirection = \"none\"";
    let (realm, address) = (realm("rules"), address());
    let (here, zenoh) = (node("here", &realm), open(listening(&address)));
    let mut publisher = here.publisher::<Point>("/a").open().unwrap();
    let secret = here.publisher::<Point>("/secret").open().unwrap();
    let bridge = bridge(node("bridge", &realm), connecting(&address), rules);
    let (_subscriber, told) = listen(&zenoh, "/**", Durability::Volatile);
    assert!(publisher.wait_connected(1, LONG));
    for number in 1..=20 {
        publisher.publish(&point(f64::from(number))).unwrap();
    }
    for number in [5.0, 10.0, 15.0, 20.0] {
        let (topic, message, _) = told.recv_timeout(LONG).unwrap();
        assert_eq!((&topic[..], from_cdr::<Point>(&message).unwrap().x), ("/robot1/a", number));
    }
    assert_eq!((secret.connected(), bridge.status().publishers), (0, 1));
}

#[test]
fn a_policy_that_means_nothing_there_is_told_once() {
    let (realm, address) = (realm("lost"), address());
    let here = node("here", &realm);
    let deadline = qos::Qos { deadline: Some(Duration::from_secs(1)), ..qos::Qos::default() };
    let _publishers = ["/a", "/a"].map(|topic| here.publisher::<Point>(topic).qos(deadline.clone()).open().unwrap());
    let bridge = bridge(node("bridge", &realm), listening(&address), "");
    until("it is told", || !bridge.notices().is_empty());
    until("both have their publisher there", || bridge.status().publishers == 2);
    assert_eq!(bridge.notices(), ["/a: deadline means nothing behind the bridge"]);
    let keyed = qos::Qos { key: vec!["name".to_owned()], ..qos::Qos::default() };
    let _keyed = here.publisher::<Point>("/keyed").qos(keyed).open().unwrap();
    until("a key is told", || {
        bridge.notices().iter().any(|notice| notice == "/keyed: key means nothing behind the bridge")
    });
}

/// The bridge outlives its router, and finds the next one.
#[test]
fn a_router_may_start_again() {
    let (realm, address) = (realm("router"), address());
    let here = node("here", &realm);
    let router =
        || thalweg::control::zenoh::router(std::slice::from_ref(&address), &[], |text| panic!("{text}")).unwrap();
    let absent = Zenoh::open(connecting(&address), None).err().unwrap().to_string();
    assert!(absent.contains(&address), "{absent}");
    let mut publisher = here.publisher::<Point>("/a").open().unwrap();
    let mut running = router();
    let bridge = bridge(node("bridge", &realm), connecting(&address), "");
    for number in [1.0, 2.0] {
        let zenoh = open(connecting(&address));
        let (_listening, told) = listen(&zenoh, "/a", Durability::Volatile);
        assert!(publisher.wait_connected(1, LONG), "{:?}", bridge.notices());
        publisher.publish(&point(number)).unwrap();
        assert_eq!(from_cdr::<Point>(&told.recv_timeout(LONG).unwrap().1).unwrap(), point(number));
        drop((zenoh, running));
        until("the route is closed", || publisher.connected() == 0);
        running = router();
    }
}

/// `thalweg set` on the channel to the bridge moves the topic to another session of Zenoh, while samples flow.
#[test]
fn a_class_that_is_set_live_holds_behind_the_bridge() {
    use ::zenoh::Wait;
    let (realm, address) = (realm("class"), address());
    let here = node("here", &realm);
    let mut config = ::zenoh::Config::default();
    config.insert_json5("listen/endpoints", &format!("[{address:?}]")).unwrap();
    config.insert_json5("scouting/multicast/enabled", "false").unwrap();
    let peer = ::zenoh::open(config).wait().unwrap();
    let (tell, told) = channel();
    let listening = peer.declare_subscriber("a").callback(move |sample| {
        let point = from_cdr::<Point>(&sample.payload().to_bytes()).unwrap();
        tell.send((point.x, sample.priority())).unwrap();
    });
    let _listening = listening.wait().unwrap();
    let block = Queue::Block { limit: 1024, up_to_us: 10_000_000 };
    let mut publisher = here.publisher::<Point>("/a").named("/talker").queue(block).open().unwrap();
    let own = node("bridge", &realm);
    let _bridge = bridge(own.clone(), connecting(&address), "");
    assert!(publisher.wait_connected(1, LONG));
    let subscriber = publisher.channels()[0].subscriber.clone();
    let (mut sent, mut got) = (0.0, Vec::new());
    let mut exchange = |count: u32| {
        for _ in 0..count {
            sent += 1.0;
            publisher.publish(&point(sent)).unwrap();
        }
        let come = (0..count).map(|_| told.recv_timeout(LONG).unwrap()).collect::<Vec<_>>();
        got.extend(come.iter().map(|(x, _)| *x));
        come.last().unwrap().1
    };
    assert_eq!(exchange(100), ::zenoh::qos::Priority::Data);
    own.set_priority(&subscriber, "/talker", &"class=critical".parse().unwrap()).unwrap();
    until("samples come from the session of the class", || exchange(10) == ::zenoh::qos::Priority::RealTime);
    exchange(100);
    // Samples of two sessions may overtake each other.
    got.sort_by(f64::total_cmp);
    assert!(
        got.iter().zip(1..).all(|(x, number)| *x == f64::from(number)),
        "none lost, none twice: {} samples",
        got.len()
    );
}
