//! `pull` and `pub --history` in processes of their own.
#![allow(clippy::unwrap_used)]

use crate::support;
use serde_json::Value;
use support::{Done, Running, Testbed};

/// `pub --stdin` that has published these lines, and continues.
fn published(house: &Testbed, options: &str, lines: std::ops::RangeInclusive<u32>) -> Running {
    let mut publish = house.start(&format!("pub /a --port /p --stdin --wait 0 {options}"));
    let last = *lines.end();
    lines.for_each(|n| publish.write(&format!("line {n}\n")));
    for _ in 0..1000 {
        if house.run("pull /a --latest").lines == [format!("line {last}")] {
            return publish;
        }
    }
    panic!("line {last} is not there");
}

fn seqs(done: &Done) -> Vec<u64> {
    let read = |line: &String| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap();
    done.lines.iter().map(read).collect()
}

#[test]
fn all_four_forms_print_the_existing_samples() {
    let house = Testbed::new();
    let _publish = published(&house, "--history 10", 1..=30);
    let pull = |how: &str| house.run(&format!("pull /a {how}"));
    for (how, first, last) in [("", 30, 30), ("--latest", 30, 30), ("--nth 1", 30, 30), ("--nth 10", 21, 21)] {
        let done = pull(how);
        let lines: Vec<String> = (first..=last).map(|n| format!("line {n}")).collect();
        assert_eq!((done.code(), &done.lines), (0, &lines), "{how}: {}", done.errors);
    }
    let done = pull("--seq 22..25 --json");
    assert_eq!((done.code(), seqs(&done)), (0, vec![22, 23, 24, 25]));
    let sample: Value = serde_json::from_str(&done.lines[0]).unwrap();
    assert_eq!(
        (&sample["topic"], &sample["publisher"], &sample["data"]),
        (&"/a".into(), &"/p".into(), &"line 22".into())
    );
    let done = pull(&format!("--seq {} --json", sample["id"].as_str().unwrap()));
    assert_eq!((done.code(), seqs(&done)), (0, vec![22]), "an id is what --seq takes");
    let done = pull("--since 60s --json");
    assert_eq!((done.code(), seqs(&done)), (0, (21..=30).collect()), "{}", done.errors);
}

#[test]
fn missing_samples_exit_1_with_the_existing_range() {
    let house = Testbed::new();
    let _publish = published(&house, "--history 10", 1..=30);
    for (how, printed, because) in [
        ("--seq 12", 0, "gone: 12 was dropped, 21..30 are here"),
        ("--seq 18..22", 2, "gone: 18..20 was dropped, 21..30 are here"),
        ("--seq 30..40", 1, "never was: the last is 30"),
        ("--nth 11", 0, "gone: the 11th latest was dropped, 21..30 are here"),
        ("--since 1us", 0, "never was: the last is 30"),
        ("--seq 3:1..2", 0, "gone: 3:1..2 was another start of the publisher"),
        ("--publisher /other", 0, "nothing of /a is kept"),
        ("--at /other --timeout 100ms", 0, "nobody keeps samples of /a at /other"),
    ] {
        let done = house.run(&format!("pull /a {how}"));
        assert_eq!((done.code(), done.lines.len()), (1, printed), "{how}: {:?} {}", done.lines, done.errors);
        assert!(done.errors.contains(because), "{how}: {}", done.errors);
    }
    let nobody = house.run("pull /b --timeout 100ms");
    assert!(nobody.code() == 1 && nobody.errors.contains("pub --history N"), "{}", nobody.errors);
    for wrong in ["--seq 5..3", "--seq x", "--nth 0", "--latest --nth 2", "--since 2"] {
        assert_eq!(house.run(&format!("pull /a {wrong}")).code(), 2, "{wrong}");
    }
}

#[test]
fn a_publisher_without_history_cannot_be_asked() {
    let house = Testbed::new();
    let _publish = house.start("pub /a --history 0 --port /p");
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.iter().any(|p| p["name"] == "/p")));
    let done = house.run("pull /a --timeout 100ms");
    assert!(done.code() == 1 && done.errors.contains("nobody keeps samples of /a"), "{}", done.errors);
}

/// The relay has room for one publisher. The other one, and a pull for its samples, get the reason.
#[test]
fn a_full_relay_names_the_reason_to_those_who_want_a_buffer() {
    let house = Testbed::new();
    let _relay = house.start("relay --name gate --kept 20MB");
    house.wait_for_list("nodes", |nodes| nodes.to_string().contains("gate"));
    let wants = "--policy pull-place=relay:gate";
    let _publish = ["/p1", "/p2"].map(|name| house.start(&format!("pub /a --history 0 --port {name} --rate 50")));
    let subscribe = house.start(&format!("sub /a {wants}"));
    let limit = "16777216 bytes are kept, 16777216 more are asked for, and it keeps at most 20000000";
    let until = std::time::Instant::now() + support::LONG;
    let told = loop {
        let done = house.run("pull /a --json");
        // The samples of the other one are there.
        if done.code() == 1 && done.lines.len() == 1 && done.errors.contains("at relay:gate, samples of /p") {
            break done;
        }
        assert!(std::time::Instant::now() < until, "{:?} {}", done.lines, done.errors);
    };
    assert!(told.errors.contains(limit), "{}", told.errors);
    let said = subscribe.interrupt().errors;
    assert!(said.contains("wants samples kept at relay:gate") && said.contains(limit), "{said}");
}

#[test]
fn numbers_of_a_killed_publisher_differ_from_those_of_its_successor() {
    let house = Testbed::new();
    let mut first = published(&house, "", 1..=20);
    let before = house.run("pull /a --json").json();
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let _second = published(&house, "", 1..=3);
    let pull = |how: &str| house.run(&format!("pull /a {how}"));
    assert_eq!(seqs(&pull("--since 60s --json")), [1, 2, 3]);
    let gone = pull(&format!("--seq {}", before["id"].as_str().unwrap()));
    assert!(gone.code() == 1 && gone.errors.contains("was another start of the publisher"), "{}", gone.errors);
    let never = pull("--seq 20");
    assert!(never.code() == 1 && never.errors.contains("never was: the last is 3"), "{}", never.errors);
    let now = pull("--latest --json").json();
    assert_eq!(pull(&format!("--seq {}", now["id"].as_str().unwrap())).lines, ["line 3"]);
}

#[test]
fn pulling_opens_no_channel() {
    let house = Testbed::new();
    let publish = published(&house, "--json", 1..=3);
    let summary = publish.finish().json();
    assert_eq!((&summary["sent"], &summary["published"]), (&0.into(), &3.into()), "{summary}");
}

/// Two hosts: the request goes over TCP, and both ends of its stream are marked AF11.
#[test]
fn another_host_is_asked_over_tcp() {
    let id = std::process::id();
    let names = [format!("tw{id}pa"), format!("tw{id}pb")];
    let ip = |arguments: &str| {
        let done = std::process::Command::new("ip").args(arguments.split_whitespace()).output();
        done.is_ok_and(|done| done.status.success())
    };
    struct Gone<'a>(&'a [String]);
    impl Drop for Gone<'_> {
        fn drop(&mut self) {
            for name in self.0 {
                let _ = std::process::Command::new("ip").args(["netns", "delete", name]).output();
            }
        }
    }
    let [a, b] = &names;
    let _gone = Gone(&names);
    let made = ip(&format!("netns add {a}"))
        && ip(&format!("netns add {b}"))
        && ip(&format!("-n {a} link add veth type veth peer name veth netns {b}"))
        && [(a, "10.98.0.1/24"), (b, "10.98.0.2/24")].into_iter().all(|(host, address)| {
            ip(&format!("-n {host} address add {address} dev veth"))
                && ip(&format!("-n {host} link set lo up"))
                && ip(&format!("-n {host} link set veth up"))
        });
    if !made {
        return println!("skipped: another_host_is_asked_over_tcp because network namespaces need root");
    }
    let house = Testbed::new();
    let nodes = house.path("nodes.toml");
    std::fs::write(&nodes, "[[node]]\naddress = \"10.98.0.1:7400\"\n[[node]]\naddress = \"10.98.0.2:7400\"\n").unwrap();
    let within = |host: &str, folder: &str, address: &str, arguments: &str| {
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", host, env!("CARGO_BIN_EXE_thalweg")]).args(arguments.split_whitespace());
        command.args(["--listen", address, "--discovery", &format!("static:{}", nodes.display())]);
        command.env("THALWEG_RUN_DIR", house.path(folder));
        Running::start(command)
    };
    let mut publish = within(a, "a", "10.98.0.1:7400", "pub /a --stdin --wait 0");
    (1..=70).for_each(|n| publish.write(&format!("line {n}\n")));
    let marked = "tcp and ip[1] & 0xfc == 0x28";
    let mut capture = std::process::Command::new("ip");
    capture.args(["netns", "exec", b, "tcpdump", "-lni", "veth", "-c", "4", marked]);
    let tcpdump = capture.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).spawn().ok();
    let until = std::time::Instant::now() + support::LONG;
    let done = loop {
        let done = within(b, "b", "10.98.0.2:7400", "pull /a --seq 7..70 --json").finish();
        if done.code() == 0 {
            break done;
        }
        assert!(std::time::Instant::now() < until, "{}", done.errors);
    };
    assert_eq!(seqs(&done), (7..=70).collect::<Vec<_>>());
    let gone = within(b, "b", "10.98.0.2:7400", "pull /a --seq 6").finish();
    assert!(gone.code() == 1 && gone.errors.contains("gone: 6 was dropped, 7..70 are here"), "{}", gone.errors);
    let Some(mut tcpdump) = tcpdump else { return println!("skipped: the marks because there is no tcpdump") };
    let _ = within(b, "b", "10.98.0.2:7400", "pull /a --latest").finish();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let _ = tcpdump.kill();
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut tcpdump.stdout.take().unwrap(), &mut seen).unwrap();
    let from = |host: &str| seen.lines().any(|line| line.contains(&format!("IP {host}.")));
    assert!(seen.is_empty() || (from("10.98.0.1") && from("10.98.0.2")), "{seen}");
}
