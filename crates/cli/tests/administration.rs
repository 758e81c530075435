//! `list`, `info`, `connect`, `disconnect`, `top` on two running ports.
#![allow(clippy::unwrap_used)]

use crate::support;
use serde_json::{Value, json};
use support::{Running, Testbed};

struct Ports {
    house: Testbed,
    publish: Running,
    subscribe: Running,
}

/// `/out` publishes `/a`; `/in` subscribes to `/b`.
fn ports(topic: &str) -> Ports {
    let house = Testbed::new();
    let publish = house.start("pub /a --port /out --rate 100 --name source");
    let subscribe = house.start(&format!("sub {topic} --port /in --json"));
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.len() == 2));
    Ports { house, publish, subscribe }
}

#[test]
fn list_shows_nodes_ports_topics_and_channels() {
    let Ports { house, publish, subscribe } = ports("/*");
    house.wait_for_list("channels", |channels| channels[0]["received"].as_u64() > Some(0));
    let all = house.run("list --json").json();
    assert_eq!(all["nodes"].as_array().map(Vec::len), Some(2), "{all}");
    assert_eq!((&all["ports"][0]["name"], &all["ports"][1]["name"]), (&json!("/in"), &json!("/out")));
    let topic = json!([{"topic": "/a", "type": ["bytes"], "publishers": ["/out"], "subscribers": ["/in"]}]);
    assert_eq!(all["topics"], topic);
    let channel = &all["channels"][0];
    assert_eq!((&channel["publisher"], &channel["subscriber"]), (&json!("/out"), &json!("/in")));
    let text = house.run("list").lines.join("\n");
    assert!(text.contains("source") && text.contains("reliable"), "{text}");
    assert_eq!([publish.interrupt().code(), subscribe.interrupt().code()], [0, 0]);
    assert_eq!(house.run("list ports --json").json(), json!({"ports": []}));
}

#[test]
fn info_tells_of_ports_topics_and_nodes() {
    let ports = ports("/a");
    let house = &ports.house;
    house.wait_for_list("channels", |channels| channels[0]["received"].as_u64() > Some(0));
    for (name, kind) in [("/out", "port"), ("/a", "topic"), ("source", "node")] {
        let info = house.run(&format!("info {name} --json")).json();
        assert_eq!(info["kind"], kind, "{info}");
        assert_eq!(info["channels"][0]["subscriber"], "/in", "{info}");
        assert!(house.run(&format!("info {name}")).lines.join("\n").contains("/in"));
    }
    let unknown = house.run("info /OUT");
    assert_eq!(unknown.code(), 1);
    assert!(unknown.errors.contains("is it /out?"), "{}", unknown.errors);
}

/// A node that starts while the holder of a name is stopped does not know of it.
#[test]
fn info_names_the_port_it_shows_of_several_with_one_name() {
    use rustix::process::Signal;
    let house = Testbed::new();
    let first = house.start("pub /a --port /twice --rate 10 --name first --wait 0");
    house.wait_for_list("ports", |ports| ports[0]["name"] == "/twice");
    first.signal(Signal::STOP);
    let second = house.start("pub /b --port /twice --rate 10 --name second --wait 0");
    house.wait_for_list("ports", |ports| ports[0]["node"] == "second");
    first.signal(Signal::CONT);
    house.wait_for_list("ports", |ports| ports.as_array().map(Vec::len) == Some(2));
    let info = house.run("info /twice --json");
    let told = format!("2 ports are called /twice: this one, of node {} ", info.json()["node"].as_str().unwrap());
    assert!(info.errors.contains(&told), "{told}: {}", info.errors);
    assert!(["first", "second"].iter().all(|node| info.errors.contains(node)), "{}", info.errors);
    drop((first, second));
}

/// Bytes for people, such as `12 B` or `1.5 kB`.
fn quantity(text: &str) -> f64 {
    let (number, unit) = text.split_once(' ').unwrap_or_else(|| panic!("{text:?}"));
    let times =
        [("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9)].into_iter().find(|(name, _)| *name == unit).unwrap().1;
    number.parse::<f64>().unwrap() * times
}

#[test]
fn info_shows_the_memory_for_channels_and_documents() {
    let ports = ports("/a");
    let house = &ports.house;
    house.wait_for_list("channels", |channels| channels[0]["received"].as_u64() > Some(0));
    for name in ["/out", "source"] {
        let info = house.run(&format!("info {name} --json")).json();
        let memory = &info["memory"][0];
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{info}"));
        assert_eq!((&memory["node"], number(&memory["limit"])), (&json!("source"), 1 << 30), "{info}");
        for held in [memory, &memory["histories"], &memory["documents"]] {
            assert!(number(&held["used"]) <= number(&held["limit"]) && number(&held["refused"]) == 0, "{info}");
        }
        // Documents of the command's own node, of the subscriber's and of the publisher's: a few kB each.
        let documents = number(&memory["documents"]["used"]);
        assert!((500..500_000).contains(&documents) && number(&memory["documents"]["limit"]) == 24 << 20, "{info}");

        let text = house.run(&format!("info {name}")).lines;
        let table = text.iter().skip_while(|line| !line.starts_with("memory ")).collect::<Vec<_>>();
        let cells = |what: &str| -> Vec<&str> {
            let row = table.iter().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("no {what}: {text:?}"));
            row[what.len()..].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
        };
        assert_eq!(cells("memory"), ["held", "at most", "refused"]);
        assert_eq!(cells("node source")[1..], ["1.07 GB", "0"]);
        let told = cells("  documents of nodes");
        assert_eq!(told[1..], ["25.2 MB", "0"]);
        assert!((quantity(told[0]) / documents as f64 - 1.0).abs() < 0.5, "{told:?}, {documents} bytes");
        assert_eq!(cells("queue of /out → /in")[2..], ["0"], "{text:?}");
        assert_eq!(cells("mailbox of /out → /in")[2..], ["0"], "{text:?}");
    }
}

#[test]
fn ports_of_different_topics_are_connected_and_disconnected_by_name() {
    let ports = ports("/b");
    let (house, subscribe) = (&ports.house, &ports.subscribe);
    assert_eq!(house.run("list channels --json").json(), json!({"channels": []}));
    let done = house.run("connect /out /in --carrier tcp --json").json();
    assert_eq!((&done["carrier"], &done["connected"]), (&json!("tcp"), &json!(true)));
    assert_eq!(subscribe.json_line()["topic"], "/a");
    // A refused connection leaves the existing one.
    let refused = house.run("connect /out /in --carrier local");
    assert_eq!(refused.code(), 1, "{}", refused.errors);
    house.wait_for_list("channels", |channels| channels[0]["carrier"] == "tcp");
    assert_eq!(house.run("disconnect /out /in").code(), 0);
    house.wait_for_list("channels", |channels| channels == &json!([]));
    assert_eq!(house.run("disconnect /out /in").code(), 1);
}

#[test]
fn missing_objects_are_answered_with_no() {
    let ports = ports("/a");
    let house = &ports.house;
    for (arguments, says) in [
        ("connect /in /out", "/in is a subscriber"),
        ("connect /nobody /in", "no port /nobody is known"),
        ("disconnect /out /nobody", "no port /nobody is known"),
        ("info /nobody", "no node, port or topic"),
        ("pub /a --port /out", "the port name /out is taken by node source"),
    ] {
        let done = house.run(arguments);
        assert_eq!(done.code(), 1, "{arguments}: {}", done.errors);
        assert!(done.errors.contains(says), "{arguments}: {}", done.errors);
    }
}

#[test]
fn a_named_peer_that_does_not_answer_is_told() {
    let house = Testbed::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let answered = house.run(&format!("list --peer {address}"));
    assert!(!answered.errors.contains("answers at"), "{}", answered.errors);
    drop(taken);
    let done = house.run(&format!("list --peer {address}"));
    let says = format!("no node or router answers at tcp/{address} (Connection refused");
    assert!(done.code() == 0 && done.errors.contains(&says), "{}", done.errors);
}

#[test]
fn top_shows_rates_of_both_ends() {
    let ports = ports("/a");
    let house = &ports.house;
    house.wait_for_list("channels", |channels| channels[0]["received"].as_u64() > Some(0));
    let done = house.run("top --count 2 --interval 200ms --json");
    let last: Value = serde_json::from_str(done.lines.last().unwrap()).unwrap();
    let row = &last["channels"][0];
    assert!(row["sent_hz"].as_f64() > Some(10.0) && row["received_hz"].as_f64() > Some(10.0), "{row}");
    assert_eq!((done.code(), done.lines.len()), (0, 2));
}
