//! `thalweg dashboard --foxglove`: what viewers get, and what a stalled or hostile one costs the others.
#![allow(clippy::unwrap_used)]

use crate::support::{LONG, Running, Testbed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};
use tungstenite::{Bytes, ClientRequestBuilder, Message, WebSocket};

/// A dashboard, which viewers reach at an address.
struct Scene {
    house: Testbed,
    _dashboard: Running,
    address: String,
}

impl Scene {
    fn new(options: &str) -> Self {
        let house = Testbed::new();
        let dashboard =
            house.start(&format!("dashboard --at 127.0.0.1:0 --foxglove 127.0.0.1:0 --name board --json {options}"));
        let about = dashboard.json_line();
        let address = about["foxglove"].as_str().unwrap().trim_start_matches("ws://").to_owned();
        Self { house, _dashboard: dashboard, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    fn request(&self) -> String {
        format!(
            "GET / HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: foxglove.sdk.v1\r\n\r\n",
            self.address
        )
    }

    /// The status of the answer to a request.
    fn status(&self, request: &str) -> String {
        let mut stream = self.connect();
        let _ = stream.write_all(request.as_bytes()); // as below
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    fn viewer(&self) -> Viewer {
        let address = format!("ws://{}/", self.address).parse().unwrap();
        let request = ClientRequestBuilder::new(address).with_sub_protocol("foxglove.sdk.v1");
        Viewer(tungstenite::client(request, self.connect()).unwrap().0)
    }

    /// Waits until the dashboard's ports on this topic are so many.
    fn wait_for_subscribers(&self, topic: &str, count: usize) {
        self.house.wait_for_list("ports", |ports| {
            let own = |port: &&Value| port["node"] == "board" && port["topic"] == topic;
            ports.as_array().unwrap().iter().filter(own).count() == count
        });
    }

    /// Waits until samples of a topic arrive here.
    fn wait_for_channel(&self, topic: &str) {
        self.house.wait_for_list("channels", |channels| {
            channels.as_array().unwrap().iter().any(|channel| channel["topic"] == topic)
        });
    }
}

/// A viewer.
struct Viewer(WebSocket<TcpStream>);

/// A message to a viewer.
#[derive(Debug)]
enum Told {
    Text(Value),
    /// Subscription and bytes.
    Sample(u32, Bytes),
    /// Code.
    Closed(u16),
}

impl Viewer {
    /// Sends a frame that no client would send, with a mask of zeros.
    fn send(&mut self, first: u8, payload: &[u8]) {
        let length = (payload.len() as u64).to_be_bytes();
        let frame = [&[first, 0xff][..], &length, &[0; 4], payload].concat();
        let _ = self.0.get_mut().write_all(&frame); // what is refused need not be read to its end
    }

    fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).unwrap();
    }

    fn next(&mut self) -> Told {
        loop {
            match self.0.read().unwrap() {
                Message::Text(text) => return Told::Text(serde_json::from_str(&text).unwrap()),
                Message::Binary(bytes) => {
                    assert_eq!(bytes[0], 1, "the opcode of a sample");
                    let id = u32::from_le_bytes(bytes[1..5].try_into().unwrap());
                    return Told::Sample(id, bytes.slice(13..));
                }
                Message::Close(Some(close)) => return Told::Closed(close.code.into()),
                Message::Ping(_) => {} // is answered with the next read
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next text that fits.
    fn text(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            match self.next() {
                Told::Text(text) if fits(&text) => return text,
                Told::Closed(code) => panic!("closed with {code}"),
                _ => {}
            }
        }
    }

    /// Waits until a topic is offered; its channel.
    fn channel(&mut self, topic: &str) -> Value {
        loop {
            let message = self.text(|text| text["op"] == "advertise");
            let offered = message["channels"].as_array().unwrap().iter().find(|channel| channel["topic"] == topic);
            if let Some(channel) = offered {
                return channel.clone();
            }
        }
    }

    fn subscribe(&mut self, id: u32, channel: &Value) {
        self.say(&json!({"op": "subscribe", "subscriptions": [{"id": id, "channelId": channel["id"]}]}));
    }

    /// Waits for so many samples of a subscription; those of all others meanwhile.
    fn samples(&mut self, id: u32, count: usize) -> usize {
        let (mut left, mut others) = (count, 0);
        while left > 0 {
            match self.next() {
                Told::Sample(of, bytes) if of == id => {
                    assert!(!bytes.is_empty());
                    left -= 1;
                }
                Told::Sample(..) => others += 1,
                Told::Text(_) => {}
                Told::Closed(code) => panic!("closed with {code}"),
            }
        }
        others
    }
}

/// Topics are offered with their types; a subscriber exists as long as a viewer wants it, and no longer.
#[test]
fn a_viewer_gets_the_topics_it_asks_for_and_others_are_not_subscribed() {
    let scene = Scene::new("");
    let mut talker = scene.house.start("pub /text --stdin --wait 1");
    let _counter = scene.house.start("pub /counter --rate 100");
    let mut viewer = scene.viewer();
    let info = viewer.text(|text| text["op"] == "serverInfo");
    assert_eq!((&info["name"], &info["capabilities"]), (&json!("thalweg"), &json!([])));
    let text = viewer.channel("/text");
    assert_eq!((&text["encoding"], &text["schemaEncoding"]), (&json!("cdr"), &json!("ros2msg")), "{text}");
    scene.wait_for_subscribers("/text", 0);
    viewer.subscribe(7, &text);
    scene.wait_for_channel("/text");
    talker.write("hello\n");
    loop {
        if let Told::Sample(id, bytes) = viewer.next() {
            assert!(id == 7 && bytes.ends_with(b"hello\0"), "{id} {bytes:?}");
            break;
        }
    }
    scene.wait_for_subscribers("/counter", 0);
    viewer.say(&json!({"op": "unsubscribe", "subscriptionIds": [7]}));
    scene.wait_for_subscribers("/text", 0);
    let mut other = scene.viewer();
    let counter = other.channel("/counter");
    other.subscribe(1, &counter);
    other.samples(1, 5);
    drop(other);
    scene.wait_for_subscribers("/counter", 0);
    drop(talker);
    let gone = viewer.text(|message| message["op"] == "unadvertise");
    assert_eq!(gone["channelIds"], json!([text["id"]]));
}

/// One viewer never reads, and a topic of 50 MB/s is on the way of all: a small topic comes all the same.
#[test]
fn a_stalled_viewer_and_a_big_topic_delay_nobody() {
    let scene = Scene::new("");
    let _big = scene.house.start("pub /big --rate 50 --size 1MB");
    let _small = scene.house.start("pub /small --rate 50");
    let mut stalled = scene.viewer();
    let big = stalled.channel("/big");
    stalled.subscribe(1, &big);
    let mut viewer = scene.viewer();
    let (big, small) = (viewer.channel("/big"), scene.viewer().channel("/small"));
    viewer.subscribe(1, &big);
    viewer.subscribe(2, &small);
    viewer.samples(1, 20);
    let big = viewer.samples(2, 100);
    // At 50 Hz of both, a small sample waits for one big one at most: many more would mean that it waits in a queue with them.
    assert!(big <= 400, "{big} big samples beside 100 small ones");
    scene.wait_for_subscribers("/big", 1);
    drop(stalled);
}

#[test]
fn hostile_viewers_are_refused_or_closed_and_the_others_go_on() {
    let scene = Scene::new("");
    let _talker = scene.house.start("pub /word --rate 100");
    let mut viewer = scene.viewer();
    let word = viewer.channel("/word");
    viewer.subscribe(1, &word);
    viewer.samples(1, 1);
    let request = scene.request();
    for (was, is, status) in [
        (scene.address.as_str(), "evil.example", "421"),
        ("Upgrade: websocket", "Origin: https://evil.example\r\nUpgrade: websocket", "403"),
        ("foxglove.sdk.v1", "mqtt", "400"),
        // These open no WebSocket: there is no answer.
        ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8", ""),
        ("GET", "POST", ""),
    ] {
        assert_eq!(scene.status(&request.replace(was, is)), status, "{was:?} as {is:?}");
    }
    let endless = format!("GET / HTTP/1.1\r\n{}", "X: y\r\n".repeat(3000));
    assert_eq!(scene.status(&endless), "", "an endless header is cut off");
    for (code, first, payload) in
        [(1009, 0x81, vec![b' '; 70_000]), (1007, 0x81, vec![0xff]), (1002, 0xc1, vec![1]), (1002, 0x80, vec![1])]
    {
        let mut hostile = scene.viewer();
        hostile.send(first, &payload);
        let told = std::iter::repeat_with(|| hostile.next()).find(|told| !matches!(told, Told::Text(_)));
        assert!(matches!(told, Some(Told::Closed(found)) if found == code), "{code}: {told:?}");
    }
    for wrong in [json!("}"), json!({"op": "subscribe", "subscriptions": [{"id": 2, "channelId": 4_000_000_000u32}]})] {
        viewer.say(&wrong);
        viewer.text(|text| text["op"] == "status");
    }
    // Connections that say nothing, more than there may be.
    let silent: Vec<TcpStream> = (0..32).map(|_| scene.connect()).collect();
    viewer.samples(1, 10);
    scene.viewer().channel("/word"); // the oldest of them has made room
    drop(silent);
}

#[test]
fn unusable_arguments_are_refused_with_the_reason() {
    let house = Testbed::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for (arguments, says) in [
        (format!("--foxglove {}", taken.local_addr().unwrap()), "name another port"),
        ("--foxglove-rate 10".to_owned(), "--foxglove <IP:PORT>"),
        ("--foxglove 127.0.0.1:0 --foxglove-rate 0".to_owned(), "0 is not in 1..=10000"),
    ] {
        let done = house.run(&format!("dashboard --at 127.0.0.1:0 {arguments}"));
        assert!(done.code() == 2 && done.errors.contains(says), "{arguments}: {}", done.errors);
    }
}

/// Foxglove's own client for JavaScript, under both names of the protocol.
#[test]
fn the_client_library_of_foxglove_decodes_samples() {
    let modules = std::env::var("THALWEG_NODE_MODULES").unwrap_or_default();
    let scene = Scene::new("");
    let mut talker = scene.house.start("pub /text --stdin --wait 1");
    for protocol in ["foxglove.websocket.v1", "foxglove.sdk.v1"] {
        let mut command = Command::new("node");
        command.args(["-e", include_str!("foxglove/client.js"), &scene.address, protocol]).env("NODE_PATH", &modules);
        if Command::new("node").arg("--version").output().is_err() {
            return println!("skipped: because node is not installed (apt-get install nodejs npm)");
        }
        let mut client = Running::start(command);
        let mut written = 0;
        let mut found = BTreeSet::new();
        let until = Instant::now() + LONG;
        while let Some(line) = client.try_line() {
            match line.as_str() {
                "missing" => {
                    return println!(
                        "skipped: because node finds no @foxglove/ws-protocol and ws (THALWEG_NODE_MODULES names their folder)"
                    );
                }
                "subscribed" => {
                    scene.wait_for_channel("/text");
                    // A channel that the viewer before has left may be listed, and lead nowhere: samples come until five were heard.
                    while !client.has_ended() {
                        talker.write(&format!("{protocol} {written}\n"));
                        written += 1;
                        std::thread::sleep(Duration::from_millis(50)); // far below the rate of a viewer
                        assert!(
                            Instant::now() < until,
                            "{written} samples are not enough: {:?}",
                            client.lines_so_far()
                        );
                    }
                }
                sample => {
                    found.insert(sample.to_owned());
                }
            }
            assert!(Instant::now() < until, "{found:?}");
        }
        let expected: BTreeSet<String> =
            (0..written).map(|n| format!("thalweg/msg/String string data {protocol} {n}")).collect();
        assert!(found.len() == 5 && found.is_subset(&expected), "{found:?} {}", client.finish().errors);
        scene.wait_for_subscribers("/text", 0);
    }
}
