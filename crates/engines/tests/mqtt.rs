//! MQTT: the suite of engines, and bridges between realms and the programs of mosquitto, in both versions of MQTT.

use super::mqtt_world::{Broker, Space, space, users};
use super::running::{Running, until};
use super::world::{LONG, node, realm};
use qos::{Durability, Queue};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use thalweg::codec::{Message, Raw};
use thalweg::{Change, Node};
use thalweg_engines::mqtt::{Mqtt, Settings};
use thalweg_engines::testing::Made;
use thalweg_engines::{Engine, Error, Sample, Subscriber, Topic};

const COUNT: u32 = 1000;

fn made() -> Option<Made> {
    let space = space()?;
    Some((Box::new(space.open()), Box::new(space.open())))
}

thalweg_engines::engine_conformance!(
    of_mqtt,
    match made() {
        Some(made) => made,
        None => return,
    }
);

fn raw(name: &str) -> Topic {
    Topic { name: name.to_owned(), message: Raw::description().as_ref().clone() }
}

fn durable() -> qos::Qos {
    qos::Qos { durability: Durability::TransientLocal, ..qos::Qos::default() }
}

fn written(message: &[u8]) -> Sample<'_> {
    Sample { topic: "", message, publisher: 0, origin: None, change: Change::Written, age_ns: 0, historical: false }
}

fn numbered() -> Vec<String> {
    (0..COUNT).map(|number| format!("sample {number}")).collect()
}

/// A subscriber of the realm, which has room for a burst.
fn hear(node: &Node, topic: &str, request: qos::Qos) -> (thalweg::Subscriber<Raw>, Receiver<String>) {
    let (tell, told) = channel();
    let subscriber = node.subscriber::<Raw>(topic).qos(request).queue(Queue::KeepAll(4096));
    let tell = move |sample: thalweg::Sample<Raw>| drop(tell.send(String::from_utf8_lossy(&sample).into_owned()));
    (subscriber.callback(tell).unwrap(), told)
}

/// Topic, message and change.
type Came = (String, Vec<u8>, Change);

/// A program of MQTT that subscribes.
fn listen(mqtt: &Mqtt, name: &str, request: &qos::Qos) -> (Box<dyn Subscriber>, Receiver<Came>) {
    let (tell, told) = channel();
    let deliver = Box::new(move |sample: &Sample<'_>| {
        let _ = tell.send((sample.topic.to_owned(), sample.message.to_vec(), sample.change));
    });
    (mqtt.subscriber(&raw(name), request, deliver).unwrap(), told)
}

/// A message of another program comes: the route is open.
fn until_heard(space: &Space, topic: &str, told: &Receiver<String>) {
    until("the route is open", || {
        space.put(topic, "probe", false);
        told.recv_timeout(Duration::from_millis(100)).is_ok()
    });
}

#[test]
fn samples_of_an_mqtt_program_come() {
    let Some(space) = space() else { return };
    let realm = realm("mqtt-in");
    let here = node("here", &realm);
    let (_subscriber, told) = hear(&here, "/robot/pose", qos::Qos::default());
    let _bridge = space.bridge(node("bridge", &realm), "");
    for version in ["mqttv5", "mqttv311"] {
        until_heard(&space, "robot/pose", &told);
        space.talker("robot/pose", version).say(&numbered());
        let samples = std::iter::from_fn(|| Some(told.recv_timeout(LONG).unwrap()));
        let got: Vec<String> = samples.filter(|text| text != "probe").take(COUNT as usize).collect();
        assert_eq!(got, numbered(), "{version}");
    }
    let nodes = here.nodes();
    let foreign = nodes.iter().flat_map(|document| document.ports.values()).find_map(|port| port.foreign.as_ref());
    assert_eq!(foreign.unwrap().to_string(), "mqtt /robot/pose");
}

#[test]
fn an_mqtt_program_gets_samples() {
    let Some(space) = space() else { return };
    let realm = realm("mqtt-out");
    let here = node("here", &realm);
    let mut publisher = here.publisher::<Raw>("/robot/pose").queue(Queue::KeepAll(1024)).open().unwrap();
    let _bridge = space.bridge(node("bridge", &realm), "");
    assert!(publisher.wait_connected(1, LONG), "a publisher is always wanted");
    for version in ["mqttv5", "mqttv311"] {
        let mut listener = space.listener("robot/pose", version, COUNT as usize);
        assert_eq!(listener.subscribed(), [""; 0]);
        for text in numbered() {
            until("there is room", || publisher.publish(text.as_bytes()).unwrap().refused == 0);
        }
        let expected: Vec<String> = numbered().iter().map(|text| format!("0 {text}")).collect();
        assert_eq!(listener.lines(), expected, "{version}");
    }
}

/// Retained messages are the history of a topic, and an empty one ends its instance.
#[test]
fn what_is_retained_reaches_late_joiners_on_either_side() {
    let Some(space) = space() else { return };
    let realm = realm("mqtt-late");
    let here = node("here", &realm);
    let mut publisher = here.publisher::<Raw>("/grid").qos(durable()).open().unwrap();
    publisher.publish(b"kept").unwrap();
    let bridge = space.bridge(node("bridge", &realm), "");
    until("the history has left", || bridge.status().sent == 1);
    until("a program has it", || space.listener("grid", "mqttv311", 1).subscribed() == ["1 kept"]);
    publisher.dispose(b"kept").unwrap();
    until("it is not retained any more", || space.listener("grid", "mqttv5", 1).subscribed().is_empty());

    space.put("map", "old", true);
    for _ in 0..2 {
        let (_late, told) = hear(&here, "/map", durable());
        assert_eq!(told.recv_timeout(LONG).unwrap(), "old");
    }
    let (_volatile, told) = listen(&space.open(), "/map", &qos::Qos::default());
    space.put("map", "new", true);
    assert_eq!(told.recv_timeout(LONG).unwrap().1, b"new", "and nothing before");
    space.put("map", "", true);
    assert_eq!(told.recv_timeout(LONG).unwrap().2, Change::Disposed);
    space.put("map", "", false);
    assert_eq!(told.recv_timeout(LONG).unwrap(), ("/map".to_owned(), Vec::new(), Change::Written));
}

/// The broker sends what is retained once more to all subscribers of a filter. Samples of programs bear no number by which that is seen.
#[test]
fn what_a_program_retained_comes_once_to_each_subscriber() {
    let Some(space) = space() else { return };
    let program = space.open();
    space.put("map", "old", true);
    let (_first, told) = listen(&program, "/map", &durable());
    assert_eq!(told.recv_timeout(LONG).unwrap().1, b"old");
    let (_second, late) = listen(&program, "/map", &durable());
    assert_eq!(late.recv_timeout(LONG).unwrap().1, b"old");
    for text in ["old", "new", "new"] {
        space.put("map", text, true);
        let came = [&told, &late].map(|told| told.recv_timeout(LONG).unwrap().1);
        assert_eq!(came, [text.as_bytes(), text.as_bytes()], "what is published again is another sample");
    }
}

/// Filters that overlap, two subscribers to one topic, a pattern that MQTT does not have, and own samples by another connection.
#[test]
fn subscribers_get_what_they_asked_for_once() {
    let Some(space) = space() else { return };
    let (first, second) = (space.open(), space.open());
    let any = qos::Qos::default();
    let names = ["/arm/pose", "/arm/pose", "/arm/*", "/arm/**", "/**", "/**/pose"];
    let listening = names.map(|name| listen(&second, name, &any));
    let publishers = ["/arm", "/arm/pose", "/arm/left/pose"].map(|name| first.publisher(&raw(name), &any).unwrap());
    for publisher in &publishers {
        publisher.publish(&written(b"1")).unwrap();
    }
    let (_other, heard) = listen(&first, "/arm/pose", &any);
    let own = second.publisher(&raw("/arm/pose"), &qos::Qos { class: qos::Class::High, ..any.clone() }).unwrap();
    own.publish(&written(b"own")).unwrap();
    assert_eq!(heard.recv_timeout(LONG).unwrap().1, b"own");
    let last = first.publisher(&raw("/arm/pose"), &any).unwrap();
    last.publish(&written(b"last")).unwrap();
    let topics = listening.each_ref().map(|(_, told)| {
        let samples = std::iter::from_fn(|| Some(told.recv_timeout(LONG).unwrap()));
        samples.take_while(|(_, message, _)| message != b"last").map(|(topic, ..)| topic).collect::<Vec<_>>()
    });
    let all = ["/arm", "/arm/pose", "/arm/left/pose"];
    assert_eq!(topics, [&all[1..2], &all[1..2], &all[1..2], &all[..], &all[..], &all[1..]]);
    space.put("no name", "x", false);
    until("it is refused by name", || second.refused().last.contains("no name"));
}

/// What leaves does not come back, nor by another bridge; one of two carries, the other one takes over.
#[test]
fn two_bridges_of_one_realm_give_each_sample_once() {
    let Some(space) = space() else { return };
    let realm = realm("mqtt-ring");
    let (here, there, program) = (node("here", &realm), node("there", &realm), space.open());
    let (subscriber, told) = hear(&here, "/a", qos::Qos::default());
    let mut publisher = there.publisher::<Raw>("/a").open().unwrap();
    let mut bridges = ["one", "two"].map(|name| Some(space.bridge(node(name, &realm), "")));
    let (_listening, told_there) = listen(&program, "/a", &qos::Qos::default());
    let standing = |bridge: &Running| bridge.status().standby_for.is_some();
    until("one carries, one is on standby", || {
        let all = || bridges.iter().flatten();
        all().filter(|bridge| standing(bridge)).count() == 1
            && all().map(|bridge| bridge.status().out).sum::<usize>() == 1
            && (publisher.connected(), subscriber.connected()) == (2, 2)
    });
    let foreign = program.publisher(&raw("/a"), &qos::Qos::default()).unwrap();
    let mut exchange = |text: &str| {
        publisher.publish(text.as_bytes()).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(text.to_owned()));
        assert_eq!(told_there.recv_timeout(LONG).unwrap().1, text.as_bytes());
    };
    (0..100).for_each(|number| exchange(&format!("first {number}")));
    until("what is published there comes", || {
        foreign.publish(&written(b"foreign")).unwrap();
        told.recv_timeout(Duration::from_millis(100)).is_ok_and(|text| text == "foreign")
    });
    let carrying = bridges.iter().position(|bridge| !standing(bridge.as_ref().unwrap())).unwrap();
    drop(bridges[carrying].take());
    let other = bridges[1 - carrying].as_ref().unwrap();
    until("the other one carries", || !standing(other) && other.status().out == 1);
    let name = ["/two/", "/one/"][carrying];
    let leads_there = || publisher.channels().iter().any(|channel| channel.subscriber.starts_with(name));
    until("its channels are open", || leads_there() && publisher.connected() == 2 && subscriber.connected() == 2);
    while told.recv_timeout(Duration::from_millis(1)) != Err(RecvTimeoutError::Timeout) {}
    let mut exchange = |text: &str| {
        publisher.publish(text.as_bytes()).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(text.to_owned()));
        assert_eq!(told_there.recv_timeout(LONG).unwrap().1, text.as_bytes());
    };
    (0..100).for_each(|number| exchange(&format!("second {number}")));
}

/// Two robots whose realms have the same topics, at one broker.
#[test]
fn two_realms_exchange_samples_over_a_broker() {
    let Some(space) = space() else { return };
    let realms = [realm("left"), realm("right")];
    let nodes = realms.each_ref().map(|realm| node("robot", realm));
    let _bridges = realms.each_ref().map(|realm| space.bridge(node("bridge", realm), ""));
    let heard = nodes.each_ref().map(|node| hear(node, "/a", qos::Qos::default()));
    let block = Queue::Block { limit: 1024, up_to_us: 10_000_000 };
    let mut publisher = nodes[0].publisher::<Raw>("/a").queue(block).open().unwrap();
    assert!(publisher.wait_connected(2, LONG));
    until("the other realm hears", || {
        publisher.publish(b"probe").unwrap();
        heard[1].1.recv_timeout(Duration::from_millis(100)).is_ok()
    });
    for number in 0..100_u32 {
        publisher.publish(number.to_string().as_bytes()).unwrap();
    }
    let expected: Vec<String> = (0..100).map(|number: u32| number.to_string()).collect();
    for ((_, told), realm) in heard.iter().zip(["own", "other"]) {
        let texts = std::iter::from_fn(|| told.recv_timeout(LONG).ok()).filter(|text| text != "probe");
        assert_eq!(texts.take(100).collect::<Vec<_>>(), expected, "{realm}");
        assert_eq!(told.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty), "once each: {realm}");
    }
}

/// The broker is killed, and starts again with nothing of what it had.
#[test]
fn a_broker_may_start_again() {
    let Some(mut broker) = Broker::start("allow_anonymous true") else { return };
    let space = broker.space();
    let (first, second) = (space.open(), space.open());
    let publisher = first.publisher(&raw("/a"), &durable()).unwrap();
    let (_subscriber, told) = listen(&second, "/a", &durable());
    for number in [b"1", b"2"] {
        publisher.publish(&written(number)).unwrap();
        assert_eq!(told.recv_timeout(LONG).unwrap().1, number);
        broker.kill();
        publisher.publish(&written(b"meanwhile")).unwrap();
        broker.again();
        assert_eq!(told.recv_timeout(LONG).unwrap().1, b"meanwhile");
    }
    broker.kill();
    let absent = Mqtt::open(space.settings(), None).err().unwrap();
    assert!(matches!(&absent, Error::Engine(why) if why.contains("refused")), "{absent}");
    assert!(first.publisher(&raw("/b"), &qos::Qos { class: qos::Class::High, ..durable() }).is_err());
    let late = second.subscriber(&raw("/b"), &durable(), Box::new(|_| {})).err().unwrap();
    assert!(late.to_string().contains(&space.address), "{late}");
}

#[test]
fn a_user_needs_the_right_password() {
    let Some(users) = users("robot", "secret") else { return };
    let configuration = format!("allow_anonymous false\npassword_file {}", users.display());
    let Some(broker) = Broker::start(&configuration) else { return };
    let with = |user: &str, password: &str| {
        let (user, password) = (user.to_owned(), password.to_owned());
        Mqtt::open(Settings { user, password, ..broker.space().settings() }, None).map(drop)
    };
    assert_eq!(with("robot", "secret"), Ok(()));
    for (user, password) in [("robot", "wrong"), ("", ""), ("robot", "")] {
        let refused = with(user, password).unwrap_err();
        assert!(matches!(&refused, Error::Usage(why) if why.contains("refuses")), "{refused}");
    }
    std::fs::remove_file(users).unwrap();
}
