//! Topics that go from one engine over Thalweg to another one.

use super::mqtt_world::space;
use super::running::until;
use super::world::{LONG, address, node, realm};
use super::zenoh_world::{bridge, connecting, listening, open};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use thalweg::Change;
use thalweg::codec::{Message, Raw};
use thalweg_engines::{Engine, Sample, Subscriber, Topic};

const COUNT: u32 = 1000;
const RULES: &str = "[[rule]]\ntopic = \"/there\"\ntransit = \"yes\"\n[[rule]]\ntopic = \"/back\"\ntransit = \"yes\"";

fn topic(name: &str) -> Topic {
    Topic { name: name.to_owned(), message: Raw::description().as_ref().clone() }
}

fn written(message: &[u8]) -> Sample<'_> {
    Sample { topic: "", message, publisher: 0, origin: None, change: Change::Written, age_ns: 0, historical: false }
}

/// A program that subscribes, and the messages that it gets.
fn listen(engine: &dyn Engine, name: &str) -> (Box<dyn Subscriber>, Receiver<Vec<u8>>) {
    let (tell, told) = channel();
    let deliver = Box::new(move |sample: &Sample<'_>| {
        let _ = tell.send(sample.message.to_vec());
    });
    (engine.subscriber(&topic(name), &qos::Qos::default(), deliver).unwrap(), told)
}

/// Samples of a program of `from` reach one of `to`, once each.
fn cross(from: &dyn Engine, to: &dyn Engine, name: &str) {
    let (_subscriber, told) = listen(to, name);
    let publisher = from.publisher(&topic(name), &qos::Qos::default()).unwrap();
    until("the way is open", || {
        publisher.publish(&written(b"probe")).unwrap();
        told.recv_timeout(Duration::from_millis(100)).is_ok()
    });
    let mut samples =
        std::iter::from_fn(|| Some(told.recv_timeout(LONG).unwrap())).filter(|message| message != b"probe");
    // No more at once than the queues keep.
    for first in (0..COUNT).step_by(8) {
        let some: Vec<Vec<u8>> = (first..first + 8).map(|number| number.to_le_bytes().to_vec()).collect();
        some.iter().for_each(|message| publisher.publish(&written(message)).unwrap());
        assert_eq!(samples.by_ref().take(8).collect::<Vec<_>>(), some, "{name}");
    }
}

/// Neither Zenoh nor MQTT tells a bridge of its programs' ends: each bridge asks the other one for the topics that its rules name.
#[test]
fn samples_cross_from_zenoh_to_mqtt_and_back() {
    let Some(space) = space() else { return };
    let (realm, address) = (realm("transit"), address());
    let (zenoh, mqtt) = (open(listening(&address)), space.open());
    let bridges =
        [bridge(node("to-zenoh", &realm), connecting(&address), RULES), space.bridge(node("to-mqtt", &realm), RULES)];
    cross(&zenoh, &mqtt, "/there");
    cross(&mqtt, &zenoh, "/back");
    for bridge in bridges {
        assert_eq!(bridge.notices(), [""; 0]);
    }
}
