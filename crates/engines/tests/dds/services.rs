//! Services of ROS 2 over Cyclone DDS: the peer has them as `rmw_cyclonedds_cpp` does.

use super::joined::join;
use super::peers::{COUNT, Peer};
use super::{domain, settings, until};
use crate::running::Running;
use crate::world::{node, realm};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use thalweg::codec::Definitions;
use thalweg_engines::Engine;
use thalweg_engines::bridge::Rules;
use thalweg_engines::dds::{Dds, Describe, Settings};

#[derive(Serialize, Deserialize)]
#[serde(rename = "AddTwoInts_Request")]
struct Ask {
    a: i64,
    b: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "AddTwoInts_Response")]
struct Answer {
    sum: i64,
}

/// A place for a bridge that is a node of ROS 2 and knows the service's definition.
fn of_ros(domain: u32) -> Settings {
    let mut definitions = Definitions::new();
    definitions.add("example_interfaces/srv/AddTwoInts", "int64 a\nint64 b\n---\nint64 sum\n").unwrap();
    let describe: Describe = Arc::new(move |name| {
        let name = name.replace("::dds_::", "/").replace("::", "/");
        definitions.describe(name.strip_suffix('_')?).ok()
    });
    Settings { node: Some("gate".to_owned()), describe, ..settings(domain) }
}

fn bridge(realm: &str, domain: u32) -> Running {
    let own = node("bridge", realm);
    let engine = Dds::open(of_ros(domain), Some(Rules::default().identity(own.id()))).unwrap();
    Running::with(own, Box::new(engine), "")
}

/// The lines of a client there that has an answer to each of its questions, once.
fn answers() -> Vec<String> {
    (0..COUNT).map(|number| format!("[({number}, {number})]")).collect()
}

#[test]
fn a_client_here_asks_a_server_of_ros() {
    let (domain, realm) = (domain(), realm("dds-ask"));
    let here = node("here", &realm);
    let mut client = here.client::<Ask, Answer>("/math/add").unwrap();
    let bridge = bridge(&realm, domain);
    let Some(mut peer) = Peer::start("ros-serve", domain, "math/add") else { return };
    assert_eq!(peer.lines().next().unwrap(), "ready");
    // A question that comes while the ends of the service still find each other may get no answer.
    until("it answers", || client.call(Ask { a: 1, b: 2 }, Duration::from_secs(1)).is_ok());
    for a in 0..50 {
        let answer = client.call(Ask { a, b: -7 }, Duration::from_secs(10));
        assert_eq!(answer.unwrap(), Answer { sum: a - 7 }, "{:?}", bridge.notices());
    }
    peer.end();
}

#[test]
fn a_client_of_ros_asks_a_server_here() {
    let (domain, realm) = (domain(), realm("dds-serve"));
    let here = node("here", &realm);
    let _server = here.server("/math/add", |ask: &Ask| Answer { sum: ask.a + ask.b }).unwrap();
    let bridge = bridge(&realm, domain);
    let Some(mut peer) = Peer::start("ros-ask", domain, "math/add") else { return };
    assert_eq!(peer.lines().collect::<Vec<_>>(), answers(), "{:?}", bridge.notices());
    peer.end();
}

/// Two clients at once, whose questions have the same numbers. None asks again.
#[test]
fn clients_of_one_network_ask_a_server_of_another_one() {
    let (realm, [left, right]) = (realm("dds-join-ask"), [domain(), domain()]);
    let bridges = [join(&realm, "left", of_ros(left)), join(&realm, "right", of_ros(right))];
    let start = |what, domain| Peer::start(what, domain, "math/add");
    let Some(mut server) = start("ros-serve", right) else { return };
    assert_eq!(server.lines().next().unwrap(), "ready");
    let mut clients = [(); 2].map(|()| start("ros-ask", left).unwrap());
    for client in &mut clients {
        let told = client.lines().collect::<Vec<_>>();
        assert_eq!(told, answers(), "{:?}", bridges.each_ref().map(Running::notices));
    }
    clients.into_iter().for_each(Peer::end);
    server.end();
}

#[test]
fn a_service_without_a_definition_is_told() {
    let domain = domain();
    let engine = Dds::open(Settings { node: Some("gate".to_owned()), ..settings(domain) }, None).unwrap();
    let Some(mut peer) = Peer::start("ros-serve", domain, "math/add") else { return };
    assert_eq!(peer.lines().next().unwrap(), "ready");
    until("both of its ends are told", || engine.refused().count >= 2);
    let told = engine.refused().last;
    assert!(told.starts_with("service r") && told.contains("math/add") && told.contains("--definitions"), "{told}");
    assert_eq!(engine.endpoints(), []);
    peer.end();
}
