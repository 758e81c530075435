//! Several bridges: of one realm, and of two.

use super::super::running::{Running, until};
use super::super::world::{LONG, address, node, realm};
use super::super::zenoh_world::{bridge, connecting, listening, open, ros_settings};
use super::{Point, listen, point, raw, written};
use qos::Durability;
use std::sync::mpsc::channel;
use thalweg::Node;
use thalweg::codec::{from_cdr, to_cdr};
use thalweg_engines::Engine;

/// The nodes of these names to which a publisher's channels lead.
fn leads_to<'a>(publisher: &thalweg::Publisher<Point>, names: [&'a str; 2]) -> Vec<&'a str> {
    let channels = publisher.channels();
    let found = names.into_iter().filter(|name| channels.iter().any(|channel| channel.subscriber.starts_with(name)));
    found.collect()
}

/// What leaves does not come back, though the bridge subscribes to the same key; nor by another bridge of the realm.
#[test]
fn two_bridges_of_one_realm_give_each_sample_once() {
    let (realm, address) = (realm("ring"), address());
    // Only by a router do peers that listen nowhere find each other.
    let _router =
        thalweg::control::zenoh::router(std::slice::from_ref(&address), &[], |text| panic!("{text}")).unwrap();
    let (here, there, zenoh) = (node("here", &realm), node("there", &realm), open(connecting(&address)));
    let (tell, told) = channel();
    let told_here = here.subscriber::<Point>("/a").callback(move |sample| tell.send(sample.x).unwrap()).unwrap();
    let mut publisher = there.publisher::<Point>("/a").open().unwrap();
    let bridges = ["one", "two"].map(|name| bridge(node(name, &realm), connecting(&address), ""));
    let (_listening, told_there) = listen(&zenoh, "/a", Durability::Volatile);
    until("one carries, one is on standby", || {
        let standing = bridges.iter().filter(|bridge| bridge.status().standby_for.is_some()).count();
        standing == 1 && bridges.iter().map(|bridge| bridge.status().out).sum::<usize>() == 1
    });
    let names = ["/one/", "/two/"];
    let carries = |index: usize| bridges[index].status().standby_for.is_none();
    let carrying = (0..2).find(|index| carries(*index)).unwrap();
    until("the channel leads to the carrying bridge alone", || leads_to(&publisher, names) == [names[carrying]]);
    // The publisher, and what the carrying bridge publishes.
    until("the subscriber has both", || told_here.connected() == 2);
    for number in 0..100 {
        publisher.publish(&point(f64::from(number))).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(f64::from(number)));
        let (_, message, _) = told_there.recv_timeout(LONG).unwrap();
        assert_eq!(from_cdr::<Point>(&message).unwrap().x, f64::from(number));
    }
    let foreign = zenoh.publisher(&raw("/a"), &qos::Qos::default()).unwrap();
    until("the publisher there is wanted", || foreign.is_wanted());
    foreign.publish(&written(&to_cdr(&point(-1.0)).unwrap())).unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok(-1.0), "and nothing between");
    // The other one takes over.
    let [one, two] = bridges;
    let (index, carrying, standing) = if carrying == 0 { (0, one, two) } else { (1, two, one) };
    drop(carrying);
    until("the other one carries", || standing.status().standby_for.is_none() && standing.status().out == 1);
    until("the channel leads to the other one", || leads_to(&publisher, names) == [names[1 - index]]);
    publisher.publish(&point(7.0)).unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok(7.0));
    let (_, message, _) = told_there.recv_timeout(LONG).unwrap();
    assert_eq!(from_cdr::<Point>(&message).unwrap().x, 7.0);
    publisher.publish(&point(8.0)).unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok(8.0), "once each");
    assert_eq!(from_cdr::<Point>(&told_there.recv_timeout(LONG).unwrap().1).unwrap().x, 8.0);
}

/// Bridges of other rules, prefixes or engines carry what is theirs.
#[test]
fn a_bridge_stands_in_for_its_like_alone() {
    let (realm, address) = (realm("like"), address());
    let _router =
        thalweg::control::zenoh::router(std::slice::from_ref(&address), &[], |text| panic!("{text}")).unwrap();
    let here = node("here", &realm);
    let _publisher = here.publisher::<Point>("/a").open().unwrap();
    let zenoh = bridge(node("zenoh", &realm), connecting(&address), "");
    let ros = node("ros", &realm);
    let settings = ros_settings("ros", &[&address], &[]);
    let engine =
        thalweg_engines::ros2::Ros2::open(settings, Some(thalweg_engines::bridge::Rules::default().identity(ros.id())))
            .unwrap();
    let ros = Running::with(ros, Box::new(engine), "");
    let prefix = thalweg_engines::zenoh::Settings { prefix: "fleet".to_owned(), ..connecting(&address) };
    let fleet = bridge(node("fleet", &realm), prefix, "");
    let marked = bridge(node("marked", &realm), connecting(&address), "[[rule]]\ntopic = \"/b\"");
    for bridge in [&zenoh, &fleet, &marked] {
        until("it carries", || bridge.status().publishers == 1);
    }
    let like = bridge(node("like", &realm), connecting(&address), "");
    until("one of two is on standby", || {
        [&zenoh, &like].iter().filter(|bridge| bridge.status().standby_for.is_some()).count() == 1
    });
    assert!([&ros, &fleet, &marked].iter().all(|bridge| bridge.status().standby_for.is_none()));
}

/// Two robots whose realms have the same topics, over one Zenoh network.
#[test]
fn two_realms_exchange_samples_over_zenoh() {
    let address = address();
    let realms = [realm("left"), realm("right")];
    let nodes: Vec<Node> = realms.iter().map(|realm| node("robot", realm)).collect();
    let settings = [listening(&address), connecting(&address)];
    let _bridges: Vec<_> =
        realms.iter().zip(settings).map(|(realm, settings)| bridge(node("bridge", realm), settings, "")).collect();
    let (tell, told) = channel();
    let subscriber =
        nodes[1].subscriber::<Point>("/a").callback(move |sample| tell.send(sample.clone()).unwrap()).unwrap();
    let mut publisher = nodes[0].publisher::<Point>("/a").open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
    publisher.publish(&point(1.0)).unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok(point(1.0)));
}
