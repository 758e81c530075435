//! Well-formed documents and frames with values at their extremes: random places of a document in turn.

use super::attacker::Attacker;
use super::client::{
    CONTROL, Frame, HANDSHAKE, HEARTBEAT, Link, Listener, PULL, framed, hello, kind, opening, packed, read_document,
};
use super::pair::{LURES, TOPIC};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use thalweg::carrier::Dice;

/// Numbers at which computations overflow.
pub const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    0xffff,
    0x1_0000,
    i32::MAX as u64,
    1 << 31,
    (1 << 31) + 1,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// A value at an extreme of any kind.
fn extreme(dice: &mut Dice, most: usize) -> Value {
    match dice.below(16) {
        0..=6 => NUMBERS[dice.below(14) as usize].into(),
        7 => json!(-1),
        8 => json!(1e300),
        9 => Value::Null,
        10 => json!("x".repeat(dice.below(most as u64) as usize)),
        11 => json!("/\u{1b}[2J\u{7}\u{0}\r\n\u{9b}31m/\u{202e}x"),
        12 => nested(dice.below(most as u64 / 2) as usize),
        13 => json!(vec![NUMBERS[dice.below(14) as usize]; dice.below(most as u64 / 24) as usize]),
        14 => json!({}),
        _ => json!([]),
    }
}

/// Nested lists, as deep as requested but no deeper than this program itself can hold.
fn nested(depth: usize) -> Value {
    (0..depth.min(120)).fold(Value::Null, |inner, _| json!([inner]))
}

/// All places of a document.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| places(inner, &format!("{at}/{}", escaped(key)), out)),
        Value::Array(list) => {
            list.iter().take(4).enumerate().for_each(|(index, inner)| places(inner, &format!("{at}/{index}"), out));
        }
        _ => {}
    }
}

/// A key in a JSON pointer (RFC 6901).
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The document with one or two places at an extreme.
pub fn mutated(document: &Value, dice: &mut Dice, most: usize) -> Value {
    let mut changed = document.clone();
    let mut all = Vec::new();
    places(document, "", &mut all);
    for _ in 0..=dice.below(2) {
        let place = &all[dice.below(all.len() as u64) as usize];
        let value = extreme(dice, most);
        if let Some(found) = changed.pointer_mut(place) {
            *found = value;
        }
    }
    changed
}

/// Channel, pull and heartbeat requests at the listeners over TCP.
pub fn openings_tcp(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = attacker.listeners(false);
    openings(attacker, &listeners)
}

/// The same at the unix sockets.
pub fn openings_unix(attacker: &mut Attacker) -> io::Result<()> {
    let listeners = attacker.listeners(true);
    openings(attacker, &listeners)
}

fn openings(attacker: &mut Attacker, listeners: &[Listener]) -> io::Result<()> {
    while attacker.goes_on() {
        let carrier = ["tcp", "udp", "mcast", "shm"][attacker.dice.below(4) as usize];
        let mut request = attacker.request(carrier)?;
        request["proxy"] = json!({"selection": "1/10", "picture": "320x240", "place": "publisher"});
        let question = json!({
            "version": 1, "realm": attacker.task.realm, "to_node": request["to_node"], "to_port": request["to_port"],
            "topic": TOPIC, "message": {"name": "any", "hash": 0}, "max_message": 65536,
            "except": [{"node": request["node"], "port": 1, "incarnation": 1}],
            "query": {"range": {"incarnation": null, "first": 1, "last": 20}},
        });
        let life = json!({
            "version": 1, "realm": attacker.task.realm, "to_node": request["to_node"], "source": request["to_node"],
            "port": 1,
        });
        let all = [(HANDSHAKE, request, "requests"), (PULL, question, "questions"), (HEARTBEAT, life, "signs of life")];
        let (first, document, what) = &all[attacker.dice.below(3) as usize];
        let document = mutated(document, &mut attacker.dice, 50_000);
        let Some(listener) = attacker.pick(listeners).cloned() else { break };
        let stream = attacker.throw(&listener, &opening(*first, &document), what);
        if let Some(mut stream) = stream.filter(|_| attacker.dice.below(4) == 0) {
            let _ = stream.set_read_timeout(Some(std::time::Duration::from_millis(20)));
            let _ = stream.read(&mut [0; 4096]); // some wait for the answer
        }
    }
    Ok(())
}

/// Hellos, documents, changes and calls, over control links.
pub fn control(attacker: &mut Attacker) -> io::Result<()> {
    let template = template(attacker)?;
    let realm = attacker.task.realm.clone();
    while attacker.goes_on() {
        let unix = attacker.dice.below(2) == 0;
        let listeners = attacker.listeners(unix);
        let Some(listener) = attacker.pick(&listeners).cloned() else { break };
        let node = format!("{:016x}", attacker.dice.bits());
        let mut bytes = vec![CONTROL];
        if attacker.dice.below(8) == 0 {
            let said = mutated(&json!({"version": 1, "realm": realm, "node": node}), &mut attacker.dice, 4000);
            bytes.extend(framed(kind::HELLO, said.to_string().as_bytes()));
            attacker.tried("hellos");
        } else {
            bytes.extend(hello(&realm, &node));
        }
        let mut document = template.clone();
        document["node"] = node.into();
        document = mutated(&document, &mut attacker.dice, 30_000);
        bytes.extend(framed(kind::DOCUMENT, document.to_string().as_bytes()));
        let change = json!({"base": 1, "revision": 2, "added": template["ports"], "removed": [1], "relay": {"proxies": 1, "samples_per_s": 1, "bytes_per_s": 1}});
        let change = mutated(&change, &mut attacker.dice, 30_000);
        bytes.extend(framed(kind::CHANGE, change.to_string().as_bytes()));
        bytes.extend(framed(kind::REFRESH, &[]));
        for question in questions() {
            let question = mutated(&question, &mut attacker.dice, 30_000);
            let number = NUMBERS[attacker.dice.below(14) as usize];
            bytes.extend(framed(kind::CALL, &[&number.to_le_bytes(), question.to_string().as_bytes()].concat()));
            bytes.extend(framed(kind::ANSWER, &[&number.to_le_bytes(), &b"{\"no\":\"\"}"[..]].concat()));
            attacker.tried("calls");
        }
        if let Some(mut stream) = attacker.throw(&listener, &bytes, "documents") {
            let _ = stream.set_read_timeout(Some(std::time::Duration::from_millis(10)));
            let _ = stream.read(&mut [0; 65_536]);
        }
    }
    Ok(())
}

/// A document with a port, as a victim's.
fn template(attacker: &Attacker) -> io::Result<Value> {
    let mut document = attacker.document()?;
    document["ports"] = attacker.victim("publisher")?.document["ports"].clone();
    Ok(document)
}

/// Calls of administrators that change nothing.
fn questions() -> Vec<Value> {
    vec![
        json!({"verb": "channels"}),
        json!({"verb": "clock"}),
        json!({"verb": "get", "port": "/publisher", "other": "/subscriber/tcp"}),
        json!({"verb": "explain", "publisher": "/publisher", "subscriber": "/subscriber/tcp"}),
        json!({"verb": "command", "port": "/publisher", "text": "list out"}),
        json!({"verb": "stages", "topic": "/nobody"}),
        json!({"verb": "lateness", "channels": [{"topic": "/nobody", "publisher": "/a", "subscriber": "/b", "after_ns": 1}],
            "asked": {"asker": 1, "look": 1, "received": 0}}),
    ]
}

/// Frames at their extremes from a publisher that a subscriber connected to, over TCP and in datagrams.
pub fn frames(attacker: &mut Attacker) -> io::Result<()> {
    let mut false_peer = super::lies::FalsePeer::start(attacker, &LURES[..2])?;
    while attacker.goes_on() {
        let Some(mut asked) = false_peer.asked(attacker, 200) else { continue };
        let udp = asked.request["carrier"] == "udp";
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut accepted = false_peer.acceptance(&asked.request);
        if udp {
            accepted["accepted"]["parameters"] =
                json!({"udp_port": socket.local_addr()?.port(), "first": 0, "window": 1024});
        }
        if asked.stream.write_all(&packed(&accepted)).is_err() {
            continue;
        }
        let port = asked.request["parameters"]["udp_port"].as_u64().unwrap_or(0) as u16;
        for _ in 0..200 {
            let frame = frame(&mut attacker.dice);
            attacker.tried(if udp { "datagrams" } else { "frames" });
            let sent = if udp {
                let bytes = frame.bytes();
                socket.send_to(&bytes[..bytes.len().min(1400)], (Ipv4Addr::LOCALHOST, port)).is_ok()
            } else {
                asked.stream.write_all(&frame.bytes()).is_ok()
            };
            if !sent || !attacker.goes_on() {
                break;
            }
        }
    }
    Ok(())
}

/// A frame of the false peer's flow with some fields at an extreme.
pub fn frame(dice: &mut Dice) -> Frame {
    let mut number = |otherwise: u64| match dice.below(3) {
        0 => NUMBERS[dice.below(14) as usize],
        1 => NUMBERS[dice.below(14) as usize].wrapping_add(otherwise),
        _ => otherwise,
    };
    let stamp = linux::clock::monotonic_ns();
    let mut frame = Frame::message(super::lies::FLOW, number(1) as u32, number(2), &[7; 40]);
    frame.stamp = number(stamp);
    let (first, second) = (number(0) as u32, number(40) as u32);
    frame.kind = 1 + (number(0) % 6) as u8;
    frame.flags = [0, 0, 2, 4, 8, 16][(number(5) % 6) as usize];
    if frame.kind > 1 {
        frame.payload[..4].copy_from_slice(&first.to_le_bytes());
        frame.payload[4..8].copy_from_slice(&second.to_le_bytes());
    }
    frame
}

/// Acknowledgements at their extremes from a subscriber of a reliable flow.
pub fn feedback(attacker: &mut Attacker) -> io::Result<()> {
    let listener = attacker.victim("publisher")?.tcp.clone();
    while attacker.goes_on() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut request = attacker.request("udp")?;
        request["parameters"]["udp_port"] = socket.local_addr()?.port().into();
        let Ok((_stream, accepted)) = attacker.subscribe(&listener, &request) else {
            attacker.pause(50);
            continue;
        };
        let port = accepted["parameters"]["udp_port"].as_u64().unwrap_or(0) as u16;
        let flow = accepted["flow"].as_u64().unwrap_or(0) as u32;
        for _ in 0..500 {
            let frame = Frame { kind: 5, flow, ..acknowledgement(&mut attacker.dice) };
            let _ = socket.send_to(&frame.bytes(), (Ipv4Addr::LOCALHOST, port));
            attacker.tried("acknowledgements");
        }
        attacker.pause(20);
    }
    Ok(())
}

fn acknowledgement(dice: &mut Dice) -> Frame {
    let mut frame = frame(dice);
    let gaps = dice.below(66) as usize;
    frame.payload = (0..2 + gaps * 4).flat_map(|_| (NUMBERS[dice.below(14) as usize] as u32).to_le_bytes()).collect();
    frame.flags = [0, 4][dice.below(2) as usize];
    frame
}

/// `true` if a node still answers a well-formed request after all this, in any way.
pub fn answers(listener: &Listener, request: &Value) -> bool {
    let ask = || -> io::Result<Value> {
        let mut stream = listener.open()?;
        stream.write_all(&opening(HANDSHAKE, request))?;
        read_document(&mut stream)
    };
    ask().is_ok()
}

/// `true` if a new link is accepted.
pub fn greets(listener: &Listener, realm: &str) -> bool {
    Link::open(listener, realm, "00000000000000bb").and_then(|mut link| link.hear_of(kind::DOCUMENT)).is_ok()
}
