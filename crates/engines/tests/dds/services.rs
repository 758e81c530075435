//! Services of ROS 2 over Cyclone DDS: the peer has them as `rmw_cyclonedds_cpp` does.

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

/// A bridge that is a node of ROS 2 and knows the service's definition.
fn bridge(realm: &str, domain: u32) -> Running {
    let mut definitions = Definitions::new();
    definitions.add("example_interfaces/srv/AddTwoInts", "int64 a\nint64 b\n---\nint64 sum\n").unwrap();
    let describe: Describe = Arc::new(move |name| {
        let name = name.replace("::dds_::", "/").replace("::", "/");
        definitions.describe(name.strip_suffix('_')?).ok()
    });
    let own = node("bridge", realm);
    let settings = Settings { node: Some("gate".to_owned()), describe, ..settings(domain) };
    let engine = Dds::open(settings, Some(Rules::default().identity(own.id()))).unwrap();
    Running::with(own, Box::new(engine), "")
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
    let expected: Vec<String> = (0..COUNT).map(|number| format!("[(7, {number}, {})]", number + 1)).collect();
    assert_eq!(peer.lines().collect::<Vec<_>>(), expected, "{:?}", bridge.notices());
    peer.end();
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
