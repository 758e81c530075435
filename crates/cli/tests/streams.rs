//! `pub`, `sub`, `hz`, `bw`, `delay`, `top` in processes of their own.
#![allow(clippy::unwrap_used)]

use crate::support;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use support::{Running, Testbed};

/// A subscriber whose port `list` shows.
fn subscriber(house: &Testbed, arguments: &str) -> Running {
    let sub = house.start(&format!("sub {arguments} --port /in"));
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.iter().any(|p| p["name"] == "/in")));
    sub
}

#[test]
fn lines_arrive_as_text() {
    let house = Testbed::new();
    let sub = subscriber(&house, "/chat");
    let mut publish = house.start("pub /chat --stdin --wait 1 --json");
    publish.write("hello\n");
    assert_eq!(sub.line(), "hello");
    publish.write("two words\nlast");
    let summary = publish.finish().json();
    assert_eq!((&summary["published"], &summary["sent"]), (&json!(3), &json!(3)), "{summary}");
    assert_eq!([sub.line(), sub.line()], ["two words", "last"]);
    let done = sub.interrupt();
    assert_eq!(done.code(), 0, "{}", done.errors);
}

#[test]
fn values_in_json_are_messages_of_a_ros_2_type() {
    let house = Testbed::new();
    let messages = house.path("share/robot/msg");
    std::fs::create_dir_all(&messages).unwrap();
    std::fs::write(messages.join("Arm.msg"), "std_msgs/Header header\nfloat64[] joints # in rad\n").unwrap();
    let sub = subscriber(&house, "/arm");
    let share = house.path("share");
    let mut publish =
        house.start(&format!("pub /arm --port /out --type robot/Arm --definitions {} --wait 1", share.display()));
    let value = json!({"header": {"stamp": {"sec": 7, "nanosec": 0}, "frame_id": "base"}, "joints": [1.5, -2.0]});
    publish.write(&format!("{value}\n"));
    assert_eq!(sub.json_line(), value);
    let info = house.run("info /out --json").json();
    let ros = &info["type"]["ros"];
    assert_eq!(ros["name"], "robot/msg/Arm", "{info}");
    assert_eq!(
        ros["type_hash"].as_str().map(|hash| (hash.starts_with("RIHS01_"), hash.len())),
        Some((true, 71)),
        "{ros}"
    );
    let told = house.run("info /out").lines.join("\n");
    assert!(told.contains("robot/msg/Arm (RIHS01_"), "{told}");
    publish.write("\n{\"header\": 5, \"joints\": []}\n");
    let done = publish.finish();
    assert_eq!(done.code(), 2, "{}", done.errors);
    assert!(done.errors.contains("standard input, line 3: header: expected"), "{}", done.errors);
    let mut publish = house.start(&format!("pub /arm --type robot/Arm --definitions {}", share.display()));
    publish.write("{\"header\"\n");
    let done = publish.finish();
    assert!(done.errors.contains("standard input, line 1, column 9: EOF while parsing"), "{}", done.errors);
    let missing = house.run(&format!("pub /arm --type robot/msg/Leg --definitions {}", share.display()));
    assert_eq!(missing.code(), 2);
    assert!(missing.errors.contains("no file robot/msg/Leg.msg in"), "{}", missing.errors);
}

/// The publisher is gone before its sample is printed.
#[test]
fn a_line_of_a_publisher_that_left_arrives_as_text() {
    let house = Testbed::new();
    let sub = subscriber(&house, "chat --count 1");
    let mut publish = house.start("pub chat --stdin --wait 1");
    publish.write("hello\n");
    assert_eq!(publish.finish().code(), 0);
    assert_eq!(sub.line(), "hello");
}

#[test]
fn a_subscriber_takes_best_effort_publishers_at_once() {
    for carrier in ["udp", "mcast"] {
        let house = Testbed::new();
        let sub = subscriber(&house, "/fast --json --count 200");
        let publish = house.start(&format!("pub /fast --carrier {carrier} --rate 200 --count 200"));
        let first = serde_json::from_str::<serde_json::Value>(&sub.line()).unwrap();
        assert_eq!(first["seq"], 1, "{carrier}: the first samples are gone");
        let done = publish.finish();
        assert!(!done.errors.contains("do not match"), "{carrier}: {}", done.errors);
        let done = sub.finish();
        assert_eq!(done.code(), 0, "{carrier}: {}", done.errors);
        assert!(!done.errors.contains("do not match"), "{carrier}: {}", done.errors);
    }
}

/// Text that a peer published has no effect on the reader's terminal.
#[test]
fn a_terminal_shows_escape_sequences_as_text() {
    let house = Testbed::new();
    let inner = house.command("sub /chat --port /in --count 1");
    let words: Vec<String> = [inner.get_program()]
        .into_iter()
        .chain(inner.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &words.join(" "), "/dev/null"]).env("THALWEG_RUN_DIR", house.path("run"));
    if command.get_program() == "script" && std::process::Command::new("script").arg("--version").output().is_err() {
        return println!("skipped: because there is no program `script` to make a terminal");
    }
    let sub = Running::start(command);
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.iter().any(|p| p["name"] == "/in")));
    let mut publish = house.start("pub /chat --stdin --wait 1");
    publish.write("a\u{1b}]0;mine\u{7}b\n");
    // A terminal has the command's notices among its lines.
    let shown = std::iter::from_fn(|| Some(sub.line())).find(|line| line.starts_with('a'));
    assert_eq!(shown.unwrap().trim_end(), "a\\u{1b}]0;mine\\u{7}b");
    assert_eq!(publish.finish().code(), 0);
}

#[test]
fn a_long_input_arrives_whole_on_any_reliable_carrier() {
    for carrier in ["auto", "shm", "tcp"] {
        let house = Testbed::new();
        let sub = subscriber(&house, "/numbers");
        let numbers: Vec<String> = (1..=5000).map(|n| n.to_string()).collect();
        let file = house.path("numbers");
        std::fs::write(&file, numbers.join("\n")).unwrap();
        let mut command = house.command(&format!("pub /numbers --stdin --carrier {carrier} --wait 1 --json"));
        let publish = command.stdin(std::fs::File::open(&file).unwrap()).stdout(Stdio::piped());
        assert!(publish.output().unwrap().status.success());
        let got: Vec<String> = (1..=5000).map(|_| sub.line()).collect();
        assert!(got == numbers, "{carrier} lost or changed lines");
    }
}

#[test]
fn samples_are_told_as_json_with_type_and_latency() {
    let house = Testbed::new();
    let mut publish = house.start("pub /chat --stdin --port /out --wait 1");
    let sub = subscriber(&house, "/chat --json --count 1");
    publish.write("hello\n");
    let sample = sub.json_line();
    assert_eq!((&sample["topic"], &sample["publisher"]), (&json!("/chat"), &json!("/out")));
    assert_eq!((&sample["seq"], &sample["data"]), (&json!(1), &json!("hello")));
    assert!(sample["latency_us"].as_f64().is_some_and(|us| us > 0.0), "{sample}");
    assert_eq!(sub.finish().code(), 0);
}

#[test]
fn bytes_are_dumped_and_selected_by_number() {
    let house = Testbed::new();
    let _publish = house.start("pub /counter --rate 200 --size 20");
    let done = house.run("sub /counter --every 10 --count 2");
    assert_eq!((done.code(), done.lines.len()), (0, 6), "{:?}", done.lines);
    assert!(done.lines[0].ends_with("0 20 bytes"), "{:?}", done.lines);
    assert!(done.lines[2].starts_with("00000010  10 11 12 13 "), "{:?}", done.lines);
}

#[test]
fn a_proxy_is_set_shown_and_moved() {
    let house = Testbed::new();
    let _publish = house.start("pub /counter --rate 1000 --size 20 --port /out");
    let _sub = subscriber(&house, "/counter --json --rate 2/5 --carrier tcp");
    let proxied = |of: &serde_json::Value| of[0]["proxied"].clone();
    let found = house.wait_for_list("channels", |channels| proxied(channels)["place"] == "publisher");
    assert_eq!(proxied(&found)["selection"], "2/5", "{found}");
    let done = house.run("set /out /in every=10 proxy=subscriber");
    assert_eq!(done.code(), 0, "{}", done.errors);
    let found = house.wait_for_list("channels", |channels| proxied(channels)["place"] == "subscriber");
    assert_eq!((&found[0]["lost"], &proxied(&found)["selection"]), (&json!(0), &json!("10")), "{found}");
    let shown = house.run("get /out /in");
    assert!(shown.lines.iter().any(|line| line.ends_with("proxy  every 10 at subscriber")), "{:?}", shown.lines);
    let refused = house.run("set /out /in proxy=elsewhere");
    assert!(refused.code() == 2 && refused.errors.contains("relay:NAME"), "{}", refused.errors);
}

#[test]
fn a_relay_serves_and_tells_its_load() {
    let house = Testbed::new();
    let relay = house.start("relay --name gate --proxies 1 --json");
    assert_eq!(
        relay.json_line(),
        json!({"relay": "gate", "limits": {"proxies": 1, "samples_per_s": 100_000, "bytes_per_s": 1_000_000_000, "kept_bytes": 1_000_000_000}, "keeps": []})
    );
    let _publish = house.start("pub /counter --rate 200 --size 20 --port /out");
    let sub = house.start("sub /counter --json --every 4 --proxy relay:gate --port /in");
    house.wait_for_list("nodes", |nodes| {
        nodes.as_array().is_some_and(|all| {
            all.iter().any(|node| node["relay"]["proxies"] == 1 && node["relay"]["samples_per_s"] != 0)
        })
    });
    let sample = std::iter::from_fn(|| Some(sub.json_line()))
        .find(|sample| sample["scaled"]["from"].as_u64() > Some(0))
        .unwrap();
    assert_eq!((&sample["publisher"], sample["seq"].as_u64().unwrap() % 4), (&json!("/out"), 0), "{sample}");
    let why = house.run("why /out /in");
    assert!(why.code() == 0 && why.lines.iter().any(|line| line.contains("every 4 at relay:gate")), "{:?}", why.lines);
    let shown = house.run("get /out /in");
    assert!(
        shown.lines.iter().any(|line| line.ends_with("every 4 at relay:gate")),
        "{:?} {}",
        shown.lines,
        shown.errors
    );
    let gone = relay.interrupt();
    assert_eq!(gone.code(), 0, "{}", gone.errors);
    house.wait_for_list("channels", |channels| channels[0]["proxied"]["place"] == "publisher");
}

#[test]
fn a_file_arrives_in_blocks() {
    let house = Testbed::new();
    let file = house.path("blocks");
    let content: Vec<u8> = (0..2500u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let sub = subscriber(&house, "/file --json --full --count 3");
    let done = house.run(&format!("pub /file --file {} --size 1000 --wait 1", file.display()));
    assert_eq!(done.code(), 0, "{}", done.errors);
    let hex: String = sub
        .finish()
        .lines
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["hex"].as_str().unwrap().to_owned())
        .collect();
    assert!(hex == content.iter().map(|b| format!("{b:02x}")).collect::<String>());
}

#[test]
fn a_subscriber_takes_what_a_lossy_publisher_offers() {
    for carrier in ["udp", "mcast"] {
        let house = Testbed::new();
        // The subscriber comes first, so that it cannot know the offer.
        let sub = subscriber(&house, "/lossy --count 2 --json");
        let _publish = house.start(&format!("pub /lossy --carrier {carrier} --rate 100"));
        let done = sub.finish();
        assert_eq!((done.code(), done.lines.len()), (0, 2), "{carrier}: {}", done.errors);
    }
}

#[test]
fn a_reader_that_leaves_ends_the_verb_quietly() {
    let house = Testbed::new();
    let _publish = house.start("pub /counter --rate 200");
    for verb in ["sub /counter", "sub /counter --json", "top --interval 10ms"] {
        let mut child = house.command(verb).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let done = child.wait_with_output().unwrap();
        assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr)), (Some(0), "".into()), "{verb}");
    }
}

#[test]
fn rates_bytes_and_latencies_are_measured() {
    let house = Testbed::new();
    let _publish = house.start("pub /counter --rate 200 --size 100");
    let last = |arguments: &str| {
        let done = house.run(arguments);
        assert_eq!(done.code(), 0, "{}", done.errors);
        serde_json::from_str::<serde_json::Value>(done.lines.last().unwrap()).unwrap()
    };
    let rate = last("hz /counter --count 100 --json")["rate_hz"].as_f64().unwrap();
    assert!((100.0..400.0).contains(&rate), "{rate}");
    assert_eq!(last("bw /counter --count 10 --json")["message_bytes"], json!({"min": 100, "mean": 100.0, "max": 100}));
    assert!(last("delay /counter --count 10 --json")["latency_us"]["p50"].as_f64().is_some_and(|us| us > 0.0));
    let nothing = house.run("hz /nothing --seconds 1.2");
    assert_eq!(nothing.code(), 1);
    for told in ["no publisher of /nothing is known yet", "no sample of /nothing arrived"] {
        assert!(nothing.errors.contains(told), "{}", nothing.errors);
    }
}
