//! Bad arguments and files: exit codes, and the names in the message.
#![allow(clippy::unwrap_used)]

use crate::support;
use support::Testbed;

#[test]
fn bad_arguments_exit_2_and_say_what_is_allowed() {
    let house = Testbed::new();
    for (arguments, says) in [
        ("pbu /a", "'pub'"),
        ("lst", "'list'"),
        ("echo /a", "'sub'"),
        ("bag info x", "'info'"),
        (
            "foo",
            "demo, pub, sub, pull, list, info, connect, disconnect, set, get, admin, qos, sched, hz, bw, delay, top",
        ),
        ("bench foo", "latency, throughput, fanout, start, storm, crowd, resume, compare"),
        ("pub", "<TOPIC>"),
        ("pub a//b", "has an empty segment"),
        ("pub /a*", "only patterns may have"),
        ("sub /a*b", "a whole segment may be *"),
        ("pub /a --rate fast", "a number of Hz"),
        ("pub /a --rate 0", "a number of Hz"),
        ("pub /a --rate -1", "'-1' for '--rate <HZ>': a number of Hz"),
        ("pub /a --size 0", "1 to 1073741824 bytes"),
        ("pub /a --size 1parsec", "KiB"),
        ("pub /a --count 0", "0 is not in 1.."),
        ("pub /a --carrier pigeon", "auto, local, shm, tcp, udp, mcast"),
        ("pub /a --class best", "low, normal (norm), high or critical (crit)"),
        ("pub /a --reliable --best-effort", "cannot be used with"),
        ("pub /a --stdin --file x", "cannot be used with"),
        ("pub /a --type std_msgs/msg/String --file x", "cannot be used with"),
        ("pub /a --type String", "expected the name of a ROS 2 type"),
        ("pub /a --definitions x", "--type"),
        ("pub /a --type a/B --definitions /does/not", "--definitions /does/not: there is no such directory"),
        #[cfg(feature = "zenoh")]
        ("bridge ros2 --definitions /does/not", "--definitions /does/not: there is no such directory"),
        ("pub /a --file /does/not/exist", "/does/not/exist"),
        ("pub /a --port out/", "has an empty segment"),
        ("sub /a --every 0", "0 is not in 1.."),
        ("sub /a --min-separation 20", "ns us ms s"),
        ("sub /a --listen nowhere", "an IP address of this host"),
        ("sub /a --peer nobody", "10.0.0.1:7447"),
        ("sub /a --discovery dns", "static:FILE"),
        ("sub /a --discovery static:/does/not/exist", "/does/not/exist: cannot be read"),
        ("sub /a --realm a/b", "realm"),
        ("sub /a --name a/b", "node name"),
        ("list doors", "nodes, ports, topics, channels"),
        ("connect /out", "</IN>"),
        ("why /out", "</IN>"),
        ("why out/ /in", "has an empty segment"),
        ("doctor --fix=weather", "no-bands"),
        ("hz /a --seconds soon", "a number of seconds"),
        ("hz /a --seconds -1", "'-1' for '--seconds <SECONDS>': a number of seconds"),
        #[cfg(feature = "sessions")]
        ("broker --name a --keys k --slower-below 1", "0.1 to 0.95"),
        #[cfg(feature = "sessions")]
        ("broker --name a --keys k --faster-after 1ms", "1s to 10min"),
        ("demo --realm a/b", "realm \"a/b\": allowed are"),
        ("demo --seconds 0", "a number of seconds"),
        ("demo --seconds -1", "'-1' for '--seconds <SECONDS>': a number of seconds"),
    ] {
        let done = house.run(arguments);
        assert_eq!(done.code(), 2, "{arguments}: {}", done.errors);
        assert!(done.errors.contains(says), "{arguments}: {}", done.errors);
        assert_eq!(done.lines, [""; 0], "{arguments}");
    }
}

#[test]
fn a_bad_file_is_named_with_line_and_value() {
    let house = Testbed::new();
    let file = house.path("nodes.toml");
    std::fs::write(&file, "[[node]]\naddress = \"10.0.0.1\"\n").unwrap();
    let done = house.run(&format!("list --discovery static:{}", file.display()));
    assert_eq!(done.code(), 2, "{}", done.errors);
    let says = format!("{}:2:", file.display());
    assert!(done.errors.contains(&says) && done.errors.contains("10.0.0.1"), "{}", done.errors);
}

#[test]
fn limits_of_zero_are_refused_with_the_range() {
    let house = Testbed::new();
    for limit in ["--channels", "--pictures"] {
        let done = house.run(&format!("pub /a {limit} 0 --count 1 --wait 0"));
        assert_eq!(done.code(), 2, "{}", done.errors);
        assert!(done.errors.contains(limit) && done.errors.contains("0 is not in 1.."), "{}", done.errors);
    }
}

#[test]
fn a_line_that_is_no_text_is_named() {
    let house = Testbed::new();
    let file = house.path("lines");
    std::fs::write(&file, b"good\nb\xffd\n").unwrap();
    let mut command = house.command("pub /a --stdin --wait 0");
    let done = command.stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("standard input, line 2, byte 2"));
}

#[test]
fn a_refusal_by_the_system_exits_3_with_the_remedy() {
    let house = Testbed::new();
    let done = house.run("list --listen 192.0.2.1");
    assert_eq!(done.code(), 3, "{}", done.errors);
    assert!(
        done.errors.contains("cannot listen on 192.0.2.1") && done.errors.contains("ip address"),
        "{}",
        done.errors
    );
    assert!(done.errors.contains("without security"), "{}", done.errors);
}

#[test]
fn the_demo_exits_3_when_the_system_refuses_its_parts() {
    let house = Testbed::new();
    std::fs::write(house.path("run"), "no directory").unwrap();
    let done = house.run("demo --seconds 1");
    assert_eq!(done.code(), 3, "{}", done.errors);
    assert!(done.errors.contains("ended early"), "{}", done.errors);
}

#[cfg(feature = "zenoh")]
#[test]
fn a_router_that_cannot_listen_says_so_with_the_remedy() {
    let (house, taken) = (Testbed::new(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let taken = (taken.local_addr().unwrap().to_string(), taken);
    for (address, remedy) in [(taken.0.as_str(), "choose another port"), ("192.0.2.1:7447", "`ip address`")] {
        let done = house.run(&format!("router --listen {address}"));
        assert_eq!(done.code(), 3, "{}", done.errors);
        assert!(done.errors.contains(&format!("cannot listen on {address}: ")), "{}", done.errors);
        assert!(done.errors.contains(remedy) && !done.errors.contains(".rs"), "{}", done.errors);
    }
}

#[cfg(not(feature = "zenoh"))]
#[test]
fn a_build_without_a_router_says_so() {
    let done = Testbed::new().run("router");
    assert_eq!(done.code(), 3);
    assert!(done.errors.contains("build with the feature zenoh"), "{}", done.errors);
}

#[test]
fn every_verb_helps_with_an_example() {
    let house = Testbed::new();
    for verb in
        "demo pub sub list info connect disconnect set get admin qos sched hz bw delay top router bench plan apply restore \
         config new"
            .split(' ')
    {
        let help = house.run(&format!("{verb} --help")).lines.join("\n");
        assert!(help.contains(&format!("thalweg {verb}")) && help.contains("Example:"), "{verb}: {help}");
        assert!(help.contains("--json"), "{verb}");
    }
    let version = house.run("--version");
    assert_eq!((version.code(), version.lines), (0, vec![format!("thalweg {}", env!("CARGO_PKG_VERSION"))]));
}

/// Tasks with their verbs, in order.
type Tasks = Vec<(String, Vec<String>)>;

/// The groups of `thalweg --help`.
fn tasks_of_help(lines: &[String]) -> Tasks {
    let mut tasks = Tasks::new();
    for line in lines.iter().skip_while(|line| !line.starts_with("Usage:")).skip(1) {
        match (line.strip_suffix(':'), line.split_whitespace().next()) {
            (Some("Options"), _) => break,
            (Some(task), _) => tasks.push((task.to_owned(), Vec::new())),
            (None, Some(verb)) => tasks.last_mut().unwrap().1.push(verb.to_owned()),
            (None, None) => {}
        }
    }
    tasks
}

/// The groups of the table in README.md.
fn tasks_of_readme() -> Tasks {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let (_, table) = text.split_once("| command | effect |\n|---|---|\n").unwrap();
    let mut tasks = Tasks::new();
    for line in table.lines().take_while(|line| line.starts_with('|')) {
        let first = line.split('|').nth(1).unwrap().trim();
        match first.strip_prefix("**").and_then(|rest| rest.strip_suffix("**")) {
            Some(task) => tasks.push((task.to_owned(), Vec::new())),
            None => {
                let verbs = first.split(", ").map(|verb| verb.trim_matches('`').to_owned());
                tasks.last_mut().unwrap().1.extend(verbs);
            }
        }
    }
    tasks
}

/// A unit test of `help.rs` compares the help with the verbs that exist.
#[test]
fn help_and_readme_have_the_same_verbs_under_the_same_tasks() {
    let help = Testbed::new().run("--help");
    let (shown, told) = (tasks_of_help(&help.lines), tasks_of_readme());
    let whole = cfg!(all(
        feature = "bridge",
        feature = "dashboard",
        feature = "recording",
        feature = "sessions",
        feature = "shell"
    ));
    if whole {
        assert_eq!(shown, told);
    }
    for (task, verbs) in &shown {
        let (_, all) = told.iter().find(|(name, _)| name == task).unwrap_or_else(|| panic!("README.md has no {task}"));
        let missing: Vec<_> = verbs.iter().filter(|verb| !all.contains(verb)).collect();
        assert!(missing.is_empty(), "README.md, {task}: {missing:?}");
    }
    assert!(shown.len() > 4, "{:?}", help.lines);
}
