//! Several subscribers to one topic, and patterns beside topics.

use super::super::running::until;
use super::super::world::{LONG, address, node, realm};
use super::super::zenoh_world::{bridge, connecting, listening, open};
use super::{Point, bridge_port, point, raw, written};
use qos::Queue;
use std::sync::mpsc::channel;
use std::time::Duration;
use thalweg::Change;
use thalweg::codec::{Untyped, to_cdr};
use thalweg_engines::{Engine, Sample};

/// Patterns beside topics: each sample once, and no topic that is denied.
#[test]
fn subscriptions_that_overlap_give_each_sample_once() {
    let rules = "[[rule]]\ntopic = \"/arm/secret\"\ndirection = \"none\"";
    let (realm, address) = (realm("overlap"), address());
    let (here, zenoh) = (node("here", &realm), open(listening(&address)));
    let all = here.subscriber::<Untyped>("/**").queue(Queue::KeepAll(100));
    let mut all = all.open().unwrap();
    let mut arm = here.subscriber::<Untyped>("/arm/**").queue(Queue::KeepAll(100)).open().unwrap();
    let typed = here.subscriber::<Point>("/arm/x").open().unwrap();
    let bridge = bridge(node("bridge", &realm), connecting(&address), rules);
    until("the routes are open", || bridge.status().into == 3 && typed.connected() == 1);
    let publishers = ["/arm/secret", "/arm/x", "/arm/y", "/leg"]
        .map(|name| zenoh.publisher(&raw(name), &qos::Qos::default()).unwrap());
    publishers.iter().for_each(|publisher| until("it is wanted", || publisher.is_wanted()));
    let message = to_cdr(&point(1.0)).unwrap();
    for _ in 0..3 {
        publishers.iter().for_each(|publisher| publisher.publish(&written(&message)).unwrap());
    }
    let mut count = |expected: u32| (0..expected).for_each(|_| assert!(all.wait(LONG).is_some()));
    count(9);
    (0..6).for_each(|_| assert!(arm.wait(LONG).is_some()));
    publishers[3].publish(&written(b"last")).unwrap();
    assert_eq!(*all.wait(LONG).unwrap(), *b"last", "nine, and no more");
    publishers[2].publish(&written(b"last")).unwrap();
    assert_eq!(*arm.wait(LONG).unwrap(), *b"last", "six, and no more");
}

/// One who subscribes later leaves the channels of the others alone.
#[test]
fn a_second_subscriber_costs_the_first_no_sample() {
    let (realm, address) = (realm("second"), address());
    let (here, zenoh) = (node("here", &realm), open(listening(&address)));
    let (tell, told) = channel();
    let _first = here.subscriber::<Point>("/a").callback(move |sample| tell.send(sample.x).unwrap()).unwrap();
    let _bridge = bridge(node("bridge", &realm), connecting(&address), "");
    let publisher = zenoh.publisher(&raw("/a"), &qos::Qos::default()).unwrap();
    until("the publisher is wanted", || publisher.is_wanted());
    let mut sent = 0.0;
    let mut send = |count: u32| {
        for _ in 0..count {
            sent += 1.0;
            publisher.publish(&written(&to_cdr(&point(sent)).unwrap())).unwrap();
        }
        sent
    };
    send(10);
    let port = bridge_port(&here, "/a");
    let partition =
        qos::Qos { partition: vec!["left".to_owned()], history: 9, max_message: 1 << 20, ..qos::Qos::default() };
    let second = here.subscriber::<Point>("/a").qos(partition).open().unwrap();
    until("the second has its channel", || second.connected() == 1);
    // Long enough for the bridge to look around some ten times, each after at most 20 ms.
    let mut rounds = 0;
    until("the bridge has looked around", || {
        send(1);
        rounds += 1;
        rounds == 60
    });
    let last = send(10);
    let got: Vec<f64> = (1..=last as u32).map(|_| told.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(got, (1..=last as u32).map(f64::from).collect::<Vec<_>>());
    assert_eq!(bridge_port(&here, "/a"), port, "the port was not opened anew");
}

#[test]
fn a_pattern_of_bytes_comes_and_an_instance_ends() {
    let (realm, address) = (realm("pattern"), address());
    let (here, zenoh) = (node("here", &realm), open(listening(&address)));
    let mut subscriber = here.subscriber::<Untyped>("/arm/**").open().unwrap();
    let bridge = bridge(node("bridge", &realm), connecting(&address), "");
    until("the route is open", || bridge.status().into == 1);
    let publishers = ["/arm/x", "/arm/y/z"].map(|name| zenoh.publisher(&raw(name), &qos::Qos::default()).unwrap());
    for publisher in &publishers {
        until("it is wanted", || publisher.is_wanted());
    }
    // A publisher of a pattern opens with its first sample; channels to it open afterwards.
    for (publisher, name) in publishers.iter().zip(["/arm/x", "/arm/y/z"]) {
        let mut taken = None;
        until("a sample comes", || {
            publisher.publish(&written(name.as_bytes())).unwrap();
            taken = subscriber.wait(Duration::from_millis(20));
            taken.as_ref().is_some_and(|sample| **sample == *name.as_bytes())
        });
        let info = *taken.unwrap().info();
        assert_eq!(subscriber.publisher(&info).unwrap().topic, name);
    }
    publishers[1].publish(&Sample { change: Change::Disposed, ..written(b"") }).unwrap();
    until("the end comes", || subscriber.take().is_some_and(|sample| sample.info().change == Change::Disposed));
}
