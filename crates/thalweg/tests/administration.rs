//! YARP's administration on live ports (Y-20…Y-22, YS-01…YS-22): every command, every shape of answer.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use std::time::Duration;
use thalweg::admin::{Reply, Request};
use thalweg::bottle::{Bottle, Value};
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, Settings, Subscriber};
use world::LONG;
use world::agent::Agent;
use world::net::{A, B, TwoHosts};
use world::{World, skipped};

struct Pair {
    near: Node,
    far: Node,
    publisher: Publisher<Raw>,
    _subscriber: Subscriber<Raw>,
}

/// `/out` at one node, `/in` at another, connected over `carrier`.
fn pair(name: &str, carrier: &str) -> Pair {
    let realm = format!("administration-{}-{name}", std::process::id());
    let open =
        |node: &str| Node::with_settings(Settings { realm: realm.clone(), name: node.into(), ..Settings::default() });
    let (near, far) = (open("near").unwrap(), open("far").unwrap());
    let lossy = if carrier == "udp" { qos::Reliability::BestEffort } else { qos::Reliability::Reliable };
    let subscriber = far.subscriber::<Raw>("/a").named("/in").reliability(lossy);
    let subscriber = subscriber.carriers([carrier, "tcp"]).callback(|_| {}).unwrap();
    let publisher = near.publisher::<Raw>("/a").named("/out").reliability(lossy).open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
    Pair { near, far, publisher, _subscriber: subscriber }
}

impl Pair {
    /// A command to a port, sent by the other port's node.
    fn command(&self, port: &str, text: &str) -> (bool, String) {
        let (asker, asked) = if port == "/in" { (&self.near, &self.far) } else { (&self.far, &self.near) };
        let request = Request::Command { port: port.into(), text: text.into() };
        match asker.ask(asked.id(), &request, LONG).unwrap() {
            Reply::Text { ok, text } => (ok, text),
            other => panic!("{text}: {other:?}"),
        }
    }
    fn done(&self, port: &str, text: &str) -> String {
        let (ok, said) = self.command(port, text);
        assert!(ok, "{text}: {said}");
        said
    }
    fn refused(&self, port: &str, text: &str) -> String {
        let (ok, said) = self.command(port, text);
        assert!(!ok && said.starts_with("fail \"") && said.len() > 10, "{text}: {said}"); // YS-55
        said
    }
}

/// The value in nested groups of this answer.
fn find(answer: &str, path: &[&str]) -> Value {
    let Bottle(mut values) = Bottle::parse(answer).unwrap();
    for name in path {
        let found = values.iter().find_map(|v| v.group().filter(|(n, _)| n == name).map(|(_, rest)| rest.to_vec()));
        values = found.unwrap_or_else(|| panic!("no {name} in {answer}"));
        if let [Value::List(inner)] = values.as_slice() {
            values = inner.clone();
        }
    }
    values.first().unwrap().clone()
}

#[test]
fn y_22_ys_11_ys_20_packets_are_marked_and_the_answer_has_yarps_shape() {
    let _beside = world::beside();
    let pair = pair("marks", "tcp");
    for (text, tos) in [
        ("prop set /in (qos ((priority HIGH)))", 144), // the paper's, verbatim but for the name
        ("prop set /in (qos ((priority LOW)))", 40),
        ("prop set /in (qos ((dscp AF12)))", 48),
        ("prop set /in (qos ((dscp 36)))", 144),
        ("prop set /in (qos ((tos 12)))", 12),
        ("[prop] [set] /in (qos ((tos 12) (dscp EF) (priority CRIT)))", 176),
        ("prop set /in (qos ((priority NORMAL)))", 0),
    ] {
        assert_eq!(pair.done("/out", text), "ok");
        let got = pair.done("/out", "prop get /in");
        let shape = format!("(qos ((tos {tos})))");
        assert!(got.starts_with("(sched ((tid ") && got.ends_with(&shape), "{text}: {got}");
    }
    // YS-14: the answers of the other end carry the mark that was set there.
    assert_eq!(pair.done("/in", "prop set /out (qos ((priority HIGH)))"), "ok");
    assert_eq!(find(&pair.done("/in", "prop get /out"), &["qos", "tos"]), Value::Int(144));
    assert_eq!(find(&pair.done("/out", "prop get /in"), &["qos", "tos"]), Value::Int(0));
}

#[test]
fn ys_12_ys_20_threads_are_scheduled_by_name_and_number() {
    let _beside = world::beside();
    let pair = pair("threads", "tcp");
    let affinity = pair.done("/out", "prop set /in (sched ((policy SCHED_OTHER) (priority 0)))");
    assert_eq!(affinity, "ok");
    let (ok, said) = pair.command("/out", "prop set /in (sched ((policy SCHED_FIFO) (priority 30)))");
    if !ok {
        assert!(said.contains("CAP_SYS_NICE") || said.contains("rt_runtime"), "a refusal names its remedy: {said}");
        return skipped("this user may not set SCHED_FIFO");
    }
    assert_eq!(said, "ok");
    let got = pair.done("/out", "prop get /in");
    let number = |name: &str| find(&got, &["sched", name]).int().unwrap();
    assert_eq!((number("policy"), number("priority")), (1, 30), "{got}");
    let stat = std::fs::read_to_string(format!("/proc/{}/task/{}/stat", std::process::id(), number("tid"))).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!((fields[37], fields[38]), ("30", "1"), "rt_priority and policy of proc(5)");
    pair.done("/out", "prop set /in (sched ((priority 40)))");
    pair.done("/out", "prop set /in (sched ((policy 2)))");
    assert!(pair.done("/out", "prop get /in").contains("(priority 40) (policy 2)"));
    // Back to the default, and both groups in one command (YS-10); (tos -1) is no failure (YS-54).
    pair.done("/out", "prop set /in (sched ((priority -1))) (qos ((tos 16)))");
    let got = pair.done("/out", "prop get /in");
    assert!(got.contains("(policy 0)") && got.contains("(tos 16)"), "{got}");
    assert_eq!(pair.done("/out", "prop set /in (sched ((priority 30) (policy 1))) (qos ((tos -1)))"), "ok");
    assert_eq!(find(&pair.done("/out", "prop get /in"), &["qos", "tos"]), Value::Int(16));
}

#[test]
fn y_16_settings_without_effect_are_reported() {
    let _beside = world::beside();
    let pair = pair("nothing", "shm");
    for (text, part) in [
        ("prop set /in (sched ((policy SCHED_OTHER) (priority 0)))", "sched and affinity have no effect here"),
        ("prop set /in (sched ((priority -1))) (qos ((priority HIGH)))", "the mark has no effect here"),
    ] {
        let said = pair.done("/out", text);
        assert!(said.starts_with("ok \"") && said.contains(part), "{said}");
    }
    assert_eq!(pair.done("/in", "prop set /out (sched ((policy SCHED_OTHER) (priority 0)))"), "ok");
}

#[test]
fn ys_21_the_port_itself() {
    let _beside = world::beside();
    let pair = pair("itself", "tcp");
    let got = pair.done("/in", "prop get /in");
    assert_eq!(find(&got, &["process", "pid"]), Value::Int(i64::from(std::process::id())));
    assert!(find(&got, &["process", "name"]).word().unwrap().contains("processes")); // this program
    assert_eq!(find(&got, &["platform", "os"]), "Linux".into());
    let flags = ["is_input", "is_output", "is_rpc"].map(|flag| find(&got, &["port", flag]).int().unwrap());
    assert_eq!(flags, [1, 0, 0]);
    for name in ["tid", "priority", "policy"] {
        assert!(find(&got, &["sched", name]).int().is_some(), "{got}");
    }
    let order: Vec<usize> = ["(sched (", "(process (", "(platform (", "(port ("].map(|g| got.find(g).unwrap()).into();
    assert!(order.is_sorted(), "{got}");
    // Settings of the whole process go to the port's own name only.
    assert!(pair.refused("/in", "prop set /out (process ((policy 0) (priority 0)))").contains("own name /in"));
    assert!(pair.refused("/in", "prop set /in (qos ((priority HIGH)))").contains("the other end of a connection"));
}

#[test]
fn ys_22_ys_13_missing_objects_are_refused_with_the_reason() {
    let _beside = world::beside();
    let pair = pair("unknown", "tcp");
    for text in [
        "prop get /x",
        "prop set /x (qos ((priority HIGH)))",
        "prop set /x (sched ((policy 1) (priority 3)))",
        "list out /x",
    ] {
        assert_eq!(pair.refused("/out", text), "fail \"cannot find any connection to/from /x\"", "{text}");
    }
    for (text, says) in [
        ("prop set /in (qos ((priority URGENT)))", "critical (crit)"),
        ("prop set /in (sched ((policy SCHED_FIFO) (priority 100)))", "1 to 99"),
        ("prop set /in (sched ((policy SCHED_FIFO) (priority 30))", "at character 14"),
        ("((((((((((((((((((((", "16 lists"),
        ("wave", "send [help] for list of valid commands"),
    ] {
        let said = pair.refused("/out", text);
        assert!(said.contains(says), "{text}: {said}");
    }
    // A change is not applied in part: with one wrong group neither takes effect.
    pair.refused("/out", "prop set /in (qos ((priority HIGH))) (sched ((policy SCHED_FIFO) (priority 0)))");
    assert_eq!(find(&pair.done("/out", "prop get /in"), &["qos", "tos"]), Value::Int(0));
    let long = format!("prop set key {}", "x".repeat(9000));
    assert!(pair.refused("/out", &long).contains("8192"));
}

#[test]
fn ys_03_ys_15_properties_are_kept() {
    let _beside = world::beside();
    let pair = pair("properties", "tcp");
    assert_eq!(pair.done("/out", "prop get"), "");
    pair.done("/out", "prop set colour (red green)");
    pair.done("/out", "prop set /in (qos ((priority HIGH)))");
    assert_eq!(pair.done("/out", "prop get colour"), "(red green)");
    assert_eq!(pair.done("/out", "prop get"), "(/in (qos ((priority HIGH)))) (colour (red green))");
    // After a port's name, an unknown group is a mistake and not a property.
    for text in ["prop set /in (qoz ((priority HIGH)))", "prop set /out (qoz 3)"] {
        assert_eq!(pair.refused("/out", text), "fail \"(qoz …): groups are sched, qos and process\"", "{text}");
    }
    assert_eq!(pair.done("/out", "prop set /elsewhere (mood good)"), "ok");
    pair.refused("/out", "prop set /in 3");
    assert!(pair.refused("/out", "prop get size").contains("no property size"));
    (0..300).for_each(|n| drop(pair.command("/in", &format!("prop set k{n} 1"))));
    assert!(pair.refused("/in", "prop set one_more 1").contains("256"));
}

#[test]
fn ys_01_ys_02_connections_by_command_from_either_end() {
    let _beside = world::beside();
    let pair = pair("connections", "udp");
    assert_eq!((pair.done("/out", "list"), pair.done("/in", "list in")), ("/in".into(), "/out".into()));
    assert_eq!(pair.done("/in", "list out"), "");
    assert_eq!(pair.done("/out", "list out /in"), "(from /out) (to /in) (carrier udp) (connectionless 1)");
    let reached = |count: usize| {
        let there = || (pair.publisher.connected() == count).then_some(());
        assert!(world::eventually(LONG, there).is_some(), "{} channels", pair.publisher.connected());
    };
    assert_eq!(pair.done("/out", "del /in"), "0 \"Removed connection from \\\"/out\\\" to \\\"/in\\\".\"");
    reached(0);
    assert_eq!(pair.done("/out", "[add] /in tcp"), "0 \"Added output connection from \\\"/out\\\" to \\\"/in\\\".\"");
    reached(1);
    let tcp = || pair.done("/out", "list /in").contains("(carrier tcp)").then_some(());
    assert!(world::eventually(LONG, tcp).is_some());
    pair.done("/in", "del /out");
    reached(0);
    assert!(pair.refused("/in", "del /out").contains("were not connected"));
    assert!(pair.refused("/out", "add /nobody").contains("no port /nobody is known"));
    assert!(pair.refused("/out", "add /in pigeon").contains("pigeon"));
    assert!(pair.refused("/in", "add /out").contains("say it to /out"));
    pair.done("/out", "add udp://in");
    reached(1);
    assert!(pair.done("/out", "help").contains("prop set /port (sched"));
    assert_eq!(pair.done("/out", "[ver]"), "ver 1 2 3");
    assert!(pair.done("/out", "pray").contains("/out"));
}

#[test]
fn ys_01_unknown_verbs_go_to_the_users_own_reader() {
    let _beside = world::beside();
    let realm = format!("administration-{}-reader", std::process::id());
    let node = Node::with_settings(Settings { realm, name: "one".into(), ..Settings::default() }).unwrap();
    let reader = |command: &Bottle| Bottle(vec!["heard".into(), Value::List(command.0.clone())]);
    let publisher = node.publisher::<Raw>("/a").named("/out").admin_reader(reader).open().unwrap();
    let ask = |text: &str| {
        let request = Request::Command { port: "/out".into(), text: text.into() };
        node.ask(node.id(), &request, Duration::from_secs(10)).unwrap()
    };
    assert_eq!(ask("wave 3"), Reply::Text { ok: true, text: "heard (wave 3)".into() });
    assert_eq!(ask("ver"), Reply::Text { ok: true, text: "ver 1 2 3".into() });
    drop(publisher);
    let request = Request::Command { port: "/out".into(), text: "ver".into() };
    assert!(node.ask(node.id(), &request, LONG).unwrap_err().to_string().contains("no port /out"));
}

#[test]
fn a_reader_that_panics_is_told_and_the_node_goes_on() {
    let _beside = world::beside();
    let realm = format!("administration-{}-panics", std::process::id());
    let node = Node::with_settings(Settings { realm, name: "one".into(), ..Settings::default() }).unwrap();
    let reader = |command: &Bottle| panic!("cannot {command}");
    let _publisher = node.publisher::<Raw>("/a").named("/out").admin_reader(reader).open().unwrap();
    let ask = |text: &str| {
        let request = Request::Command { port: "/out".into(), text: text.into() };
        node.ask(node.id(), &request, LONG).unwrap()
    };
    for _ in 0..2 {
        let Reply::Text { ok, text } = ask("wave 3") else { panic!("no text") };
        assert!(!ok && text.contains("the port's reader panicked: cannot wave 3"), "{text}");
    }
    assert_eq!(ask("ver"), Reply::Text { ok: true, text: "ver 1 2 3".into() });
}

#[test]
fn pairs_are_kept_apart_up_to_a_limit() {
    let _beside = world::beside();
    let pair = pair("apart", "tcp");
    let apart = |publisher: &str, subscriber: &str| {
        let request = Request::Disconnect { publisher: publisher.into(), subscriber: subscriber.into() };
        pair.near.ask(pair.far.id(), &request, LONG).unwrap_err().to_string()
    };
    assert!(apart("out", "/in").contains("does not start with '/'"));
    (0..4096).for_each(|n| assert!(apart("/nobody", &format!("/in/{n}")).contains("were not connected")));
    assert!(apart("/out", "/in").contains("4096 pairs of ports are kept apart already"));
    assert!(apart("/nobody", "/in/0").contains("were not connected"), "a pair that is apart already takes no room");
    assert_eq!(pair.publisher.connected(), 1);
}

#[test]
fn ys_33_a_connection_between_hosts_outlasts_restarts_of_either_end() {
    let _alone = world::alone();
    let hosts = match TwoHosts::new("k") {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    let file = world.dir().join("nodes.toml");
    std::fs::write(&file, format!("[[node]]\naddress = \"{A}:7400\"\n[[node]]\naddress = \"{B}:7400\"\n")).unwrap();
    let part = |role: &str, at: &str| format!("{role} file={} listen={at}:7400", file.display());
    let publisher = || Agent::start_by(&world, &part("publisher topic=/a name=/out ports=3", A), &hosts.in_a());
    let subscriber = || Agent::start_by(&world, &part("subscriber topic=/b name=/in", B), &hosts.in_b());
    // Only the publisher's host gets the request, before a subscriber exists; that host has a run directory of its own.
    let mut first = publisher();
    for to in ["/out0,/in", "/out1,/in"] {
        let kept = first.ask(&format!("keep to={to}"));
        assert_eq!(kept["ok"], true, "{kept}");
    }
    let mut second = subscriber();
    second.connected(2);
    second.finish();
    let mut second = subscriber();
    second.connected(2);
    first.finish();
    let mut first = publisher();
    first.connected(2);
    second.connected(2);
    // The publisher's port forgets the connection, and so does its own node, which no longer reminds others.
    let deleted = first.ask("command port=/out0 text=del+/in");
    assert_eq!(deleted["ok"], true, "{deleted}");
    second.finish();
    let mut second = subscriber();
    second.connected(1);
    first.ask("keep to=/out2,/in"); // reported after the others
    second.connected(2);
    let status = second.ask("status");
    assert!(status["connected"] == 2 && !status["channels"].to_string().contains("/out0"), "{status}");
}
