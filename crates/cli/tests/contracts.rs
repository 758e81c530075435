//! Errors in a contract, on the command line. Each is reported with file, line, key, value and allowed values, or as
//! infeasible with the reason; and soon.
#![allow(clippy::unwrap_used)]

use crate::support;
use std::process::Command;
use support::{Done, Running, Testbed};

/// A valid contract without findings; each case changes a line of it.
const FINE: &str = r#"[system]
name = "small"

[[node]]
name = "camera"

[[node]]
name = "switch"
kind = "switch"
proxy = false

[[node]]
name = "desk"
cpus = 2

[[link]]
name = "near"
between = ["camera", "switch"]
rate = "100 Mbit/s"
scheduler = "htb"
shares = { critical = "5 %", high = "30 %", normal = "45 %", low = "20 %" }

[[link]]
name = "far"
between = ["switch", "desk"]
rate = "10 Mbit/s"
delay = "1 ms"
scheduler = "strict"

[[topic]]
name = "video"
size = "8 KiB"
period = "20 ms"
publisher = "camera"
cpu_send = "100 us"

[[subscriber]]
topic = "video"
node = "desk"
name = "/viewer"
scale = 2
deadline = "60 ms"
cpu_receive = "200 us"

[placement]
delay = "bound"
"#;

/// `thalweg plan` of a text or of any bytes; it always ends within half a minute.
fn plan(house: &Testbed, contract: &[u8], arguments: &str) -> (Done, String) {
    let file = house.path("system.toml");
    std::fs::write(&file, contract).unwrap();
    let inner = house.command(&format!("plan {} {arguments}", file.display()));
    let mut command = Command::new("timeout");
    command.arg("30").arg(inner.get_program()).args(inner.get_args());
    (Running::start(command).finish(), file.display().to_string())
}

fn changed(from: &str, to: &str) -> String {
    assert!(FINE.contains(from), "{from}");
    FINE.replacen(from, to, 1)
}

/// The line of a text.
fn line(text: &str, what: &str) -> usize {
    let at = text.find(what).unwrap_or_else(|| panic!("{what}"));
    text[..at].matches('\n').count() + 1
}

#[test]
fn impossible_values_are_named_with_file_line_key_and_allowed_values() {
    let house = Testbed::new();
    for (from, to, says) in [
        // References.
        (
            "topic = \"video\"",
            "topic = \"vidoe\"",
            "topic = \"vidoe\": allowed is the name of a topic of this file: video",
        ),
        (
            "node = \"desk\"",
            "node = \"dest\"",
            "node = \"dest\": allowed is the name of a node of this file: camera, switch, desk",
        ),
        ("publisher = \"camera\"", "publisher = \"kamera\"", "publisher = \"kamera\": allowed is the name of a node"),
        (
            "between = [\"switch\", \"desk\"]",
            "between = [\"switch\", \"disk\"]",
            "between = \"disk\": allowed is the name of a node",
        ),
        (
            "between = [\"switch\", \"desk\"]",
            "between = [\"desk\", \"desk\"]",
            "allowed is a list of two different nodes",
        ),
        ("node = \"desk\"", "node = 3", "node = 3: allowed is the name of a node"),
        // Names.
        (
            "name = \"switch\"",
            "name = \"camera\"",
            "name = \"camera\": already used in line 5: allowed is each node's name once",
        ),
        (
            "name = \"far\"",
            "name = \"near\"",
            "name = \"near\": already used in line 17: allowed is each link's name once",
        ),
        ("name = \"video\"", "name = \"\"", "name = \"\": allowed is text of 1 to 255 bytes"),
        ("name = \"video\"", "name = \"vi\\u0000deo\"", "allowed is text of 1 to 255 bytes without control characters"),
        ("name = \"far\"", "nam = \"far\"", "unknown field `nam`, expected one of `name`, `between`, `rate`"),
        // Quantities.
        ("rate = \"10 Mbit/s\"", "rate = \"0 bit/s\"", "rate = \"0 bit/s\": allowed is 1 bit/s to 10000 Gbit/s"),
        ("rate = \"10 Mbit/s\"", "rate = \"-10 Mbit/s\"", "rate = \"-10 Mbit/s\": allowed is 1 bit/s"),
        (
            "rate = \"10 Mbit/s\"",
            "rate = \"1000000000000 Mbit/s\"",
            "rate = \"1000000000000 Mbit/s\": allowed is 1 bit/s",
        ),
        ("rate = \"10 Mbit/s\"", "rate = \"1e308 bit/s\"", "rate = \"1e308 bit/s\": allowed is 1 bit/s"),
        ("rate = \"10 Mbit/s\"", "rate = 10", "rate = 10: allowed is 1 bit/s to 10000 Gbit/s with a unit"),
        (
            "delay = \"1 ms\"",
            "delay = \"18446744073709551615 ns\"",
            "delay = \"18446744073709551615 ns\": allowed is a time from 0 ns to 86400 s",
        ),
        ("delay = \"1 ms\"", "delay = \"-1 ms\"", "delay = \"-1 ms\": allowed is a time from 0 ns"),
        ("period = \"20 ms\"", "period = \"0 ms\"", "period = \"0 ms\": allowed is a time from 100 ns"),
        ("period = \"20 ms\"", "period = 1e308", ": allowed is a time from 100 ns to 86400 s with a unit: ns us ms s"),
        ("period = \"20 ms\"", "period = inf", "period = inf: allowed is a time from 100 ns"),
        ("period = \"20 ms\"", "rate = \"1e308 Hz\"", "rate = \"1e308 Hz\": allowed is a rate from one sample a day"),
        ("size = \"8 KiB\"", "size = \"0 B\"", "size = \"0 B\": allowed is 1 to 1073741824 B"),
        (
            "size = \"8 KiB\"",
            "size = \"3 EB\"",
            "size = \"3 EB\": allowed is 1 to 1073741824 B with a unit: B kB MB KiB MiB",
        ),
        (
            "size = \"8 KiB\"",
            "size = \"3000000000000 MB\"",
            "size = \"3000000000000 MB\": allowed is 1 to 1073741824 B",
        ),
        ("scale = 2", "scale = 0", "scale = 0: allowed is a whole number from 1 to 1000000"),
        ("scale = 2", "scale = -2", "scale = -2: allowed is a whole number from 1"),
        ("scale = 2", "scale = 2.5", "scale = 2.5: allowed is a whole number from 1"),
        (
            "scale = 2",
            "scale = 18446744073709551616",
            "scale = 1.8446744073709552e19: allowed is a whole number from 1",
        ),
        ("cpus = 2", "cpus = 0", "cpus = 0: allowed is a whole number from 1 to 4096"),
        ("delay = \"bound\"", "cpu_weight = 1e308", "cpu_weight = 1"),
        ("delay = \"bound\"", "cpu_weight = nan", "cpu_weight = NaN: allowed is a number from 0"),
        ("scale = 2", "scale = 1e308", "scale = 1e308: allowed is a whole number from 1"),
        ("scale = 2", "scale = 99999999999999999999", "scale = 1e20: allowed is a whole number from 1"),
        ("scale = 2", "scale = { n = 2 }", "scale = {…}: allowed is a whole number from 1"),
        ("scale = 2", "scale = 2026-11-21", "scale = {…}: allowed is a whole number from 1"),
        // Invalid TOML.
        ("scale = 2", "scale == 2", "scale == 2: "),
        ("scale = 2", "scale = 2 3", "scale = 2 3: "),
        ("[placement]", "[[placement]]", "[[placement]]: allowed is one table, in single brackets"),
        // Sums over 100 %.
        ("\"45 %\"", "\"46 %\"", "shares add up to 101 %: allowed is at most 100 %"),
        ("\"45 %\"", "\"145 %\"", "normal = \"145 %\": allowed is 0 % to 100 %"),
    ] {
        let text = changed(from, to);
        let (done, file) = plan(&house, text.as_bytes(), "");
        let at = format!("{file}:{}:", line(FINE, from));
        assert_eq!((done.code(), &done.lines[..]), (2, &[][..]), "{from} → {to}: {}", done.errors);
        assert!(done.errors.contains(&at) && done.errors.contains(says), "{from} → {to}: {}", done.errors);
    }
}

#[test]
fn an_invalid_contract_is_refused_at_once() {
    let house = Testbed::new();
    let deep = |open: &str, close: &str| format!("name = {}1{}", open.repeat(100_000), close.repeat(100_000));
    let dotted = vec!["a"; 100_000].join(".");
    for (what, bytes, says) in [
        ("empty", Vec::new(), "1: no [[node]]: a contract has the tables"),
        ("a page of prose", b"Dear planner,\nplease plan.\n".to_vec(), "1: "),
        (
            "binary",
            [b"[system]\n".as_slice(), &[0x7f, b'E', b'L', b'F', 0xff, 0xfe]].concat(),
            ":2: a byte 0xff is no text: allowed is UTF-8",
        ),
        ("zeros", vec![0; 1000], "1: "),
        ("100 MB", vec![b'#'; 100_000_000], "too large: allowed are 64 MiB"),
        ("deep lists", deep("[", "]").into_bytes(), "nested too deeply"),
        ("deep tables", deep("{a=", "}").into_bytes(), "nested too deeply"),
        ("deep keys", format!("{dotted} = 1").into_bytes(), "nested too deeply"),
        ("deep headers", format!("[{dotted}]\n").into_bytes(), "nested too deeply"),
        (
            "a broken line",
            FINE.replacen("[[topic]]", "[[topic]", 1).into_bytes(),
            &format!(":{}: ", line(FINE, "[[topic]]")),
        ),
        ("a key twice", changed("cpus = 2", "cpus = 2\ncpus = 3").into_bytes(), ":15: cpus = 3: duplicate key"),
        (
            "one pair of brackets",
            FINE.replace("[[node]]", "[node]").into_bytes(),
            "tables in double brackets, such as [[node]]",
        ),
        ("a plan", b"feasible = true\n".to_vec(), "1: feasible = true: unknown field `feasible`"),
    ] {
        let (done, file) = plan(&house, &bytes, "");
        assert_eq!((done.code(), &done.lines[..]), (2, &[][..]), "{what}: {}", done.errors);
        assert!(done.errors.contains(&file) && done.errors.contains(says), "{what}: {}", done.errors);
        assert!(done.errors.len() < 1000, "{what}: {} bytes of message", done.errors.len());
    }
    for (file, says) in [
        ("/does/not/exist", "cannot be read: No such file"),
        ("/", "cannot be read: Is a directory"),
        ("/dev/zero", "too large"),
    ] {
        let done = house.run(&format!("plan {file}"));
        assert!(done.code() == 2 && done.errors.contains(says), "{file}: {}", done.errors);
    }
}

/// Valid contracts that cannot be kept: exit code 1, and the reason.
#[test]
fn a_contract_that_does_not_fit_is_refused_with_the_reason() {
    let house = Testbed::new();
    for (text, says) in [
        (
            changed("rate = \"10 Mbit/s\"", "rate = \"1 bit/s\""),
            "link far from switch to desk: needs 1.718 Mbit/s, has 1 bit/s",
        ),
        (changed("rate = \"10 Mbit/s\"", "rate = \"1 Mbit/s\""), "far to desk is asked for 171.76 % of what it has"),
        // A link whose load is within a millionth of its rate. Samples that come this evenly do not wait.
        (
            changed("rate = \"10 Mbit/s\"", "rate = \"1717601 bit/s\"").replacen("60 ms", "42 ms", 1),
            "deadline of /viewer: needs 42.849 ms, has 42 ms",
        ),
        (
            changed("rate = \"10 Mbit/s\"", "rate = \"10 Mbit/s\"\nbackground = \"9 Mbit/s\""),
            "besides 9 Mbit/s of background",
        ),
        (
            changed("scheduler = \"strict\"", "scheduler = \"htb\"\ncontrol = \"9 Mbit/s\""),
            "besides 9 Mbit/s of control traffic",
        ),
        (changed("cpu_send = \"100 us\"", "cpu_send = \"20001 us\""), "camera is asked for 100.01 % of what it has"),
        (
            changed("cpu_receive = \"200 us\"", "cpu_receive = \"81 ms\""),
            "processors of node desk: needs 2.02 processors",
        ),
        (changed("period = \"20 ms\"", "period = \"20 ms\"\nburst = 1000"), "deadline of /viewer: needs "),
        (changed("period = \"20 ms\"", "period = \"20 ms\"\njitter = \"10 s\""), "deadline of /viewer: needs "),
        (changed("size = \"8 KiB\"", "size = \"1024 MiB\""), "link far from switch to desk: needs 224.197 Gbit/s"),
        (ring("29.1 Mbit/s"), "is asked for 100.04 % of what it has"),
    ] {
        let (done, _) = plan(&house, text.as_bytes(), "");
        let said = format!("{}\n{}", done.lines.join("\n"), done.errors);
        assert_eq!(done.code(), 1, "{said}");
        assert!(said.contains("does NOT fit") && said.contains(says), "{says}: {said}");
        assert!(!said.contains("NaN") && !said.contains("inf "), "{said}");
    }
}

/// Streams around a ring, each over two links: the delay that one adds to the next comes back to it. With a load near
/// the rate the iteration would grow without end; it is stopped.
fn ring(rate: &str) -> String {
    let mut text = "[placement]\ndelay = \"bound\"\n".to_owned();
    for node in 0..5 {
        let next = (node + 1) % 5;
        text += &format!(
            "[[node]]\nname = \"n{node}\"\nkind = \"switch\"\n[[link]]\nbetween = [\"n{node}\", \"n{next}\"]\nrate = \"{rate}\"\n"
        );
    }
    for node in 0..5 {
        let after = (node + 2) % 5;
        text += &format!(
            "[[topic]]\nname = \"t{node}\"\nsize = \"10 KiB\"\nrate = \"170 Hz\"\njitter = \"5 ms\"\npublisher = \"n{node}\"\n\
             [[subscriber]]\ntopic = \"t{node}\"\nnode = \"n{after}\"\nname = \"/n{after}/t{node}\"\ndeadline = \"100 ms\"\n"
        );
    }
    text
}

#[test]
fn a_ring_with_room_has_bounds_and_names_may_be_of_any_script() {
    let house = Testbed::new();
    let (done, _) = plan(&house, ring("1 Gbit/s").as_bytes(), "");
    assert_eq!(done.code(), 0, "{:?} {}", done.lines, done.errors);
    let foreign = FINE.replace("camera", "камера").replace("\"desk\"", "\"机 → 台\"").replace("/viewer", "/بيننده");
    let (done, _) = plan(&house, foreign.as_bytes(), "--explain");
    assert_eq!(done.code(), 0, "{:?} {}", done.lines, done.errors);
    assert!(done.lines.iter().any(|line| line.contains("камера → /بيننده at 机 → 台")), "{:?}", done.lines);
    let file = house.path("plan.toml");
    let (done, _) = plan(&house, foreign.as_bytes(), &format!("-o {}", file.display()));
    assert_eq!(done.code(), 0, "{}", done.errors);
    let done = house.run(&format!("plan --diff {} {}", file.display(), file.display()));
    assert_eq!((done.code(), done.lines), (0, vec!["nothing differs".to_owned()]));
}

#[test]
fn a_network_in_two_parts_is_named() {
    let house = Testbed::new();
    let cut = FINE.replacen("between = [\"switch\", \"desk\"]", "between = [\"switch\", \"shelf\"]", 1);
    let cut = cut.replacen("[[link]]", "[[node]]\nname = \"shelf\"\n\n[[link]]", 1);
    let (done, file) = plan(&house, cut.as_bytes(), "");
    let at = format!("{file}:{}: node = \"desk\": no link leads there from \"camera\"", line(&cut, "node = \"desk\""));
    assert!(done.code() == 2 && done.errors.contains(&at), "{}", done.errors);
}

/// The six kinds of findings of `--check`, and none in a contract without mistakes.
#[test]
fn likely_mistakes_are_found() {
    let house = Testbed::new();
    let (done, file) = plan(&house, FINE.as_bytes(), "--check");
    assert_eq!((done.code(), done.lines), (0, vec![format!("{file}: nothing found")]));
    let unused = "[[link]]\nname = \"spare\"\nbetween = [\"camera\", \"desk\"]\nrate = \"1 Mbit/s\"\n\n[[link]]";
    let longer = changed("[[link]]", &unused.replace("\"camera\", \"desk\"", "\"camera\", \"shelf\"")).replacen(
        "[[link]]",
        "[[node]]\nname = \"shelf\"\n\n[[link]]",
        1,
    );
    for (text, table, says) in [
        (changed("\"45 %\"", "\"40 %\""), "name = \"near\"", "shares add up to 95 %: 5 % belong to no class"),
        (
            changed("deadline = \"60 ms\"", "deadline = \"8 ms\"")
                .replacen("scale = 2\n", "", 1)
                .replacen("20 ms", "5 ms", 1),
            "topic = \"video\"",
            "unreachable deadline 8 ms: from camera a sample takes 8.",
        ),
        (
            changed("deadline = \"60 ms\"", "deadline = \"30 ms\""),
            "topic = \"video\"",
            "filter longer than the deadline: scale = 2 lets a sample pass every 40 ms",
        ),
        (
            changed("deadline = \"60 ms\"", "deadline = \"15 ms\"").replacen("scale = 2\n", "", 1),
            "topic = \"video\"",
            "offered period 20 ms is longer than the requested deadline 15 ms",
        ),
        (
            changed("scale = 2", "scaled_size = \"9 KiB\""),
            "topic = \"video\"",
            "requested scaled_size 9216 B is more than the 8192 B that are offered",
        ),
        (longer, "name = \"spare\"", "unused: no route from a publisher to its subscribers crosses it"),
        (changed("name = \"far\"", "name = \"desk\""), "name = \"desk\"\nbetween", "name used twice: a node of line"),
    ] {
        let (done, file) = plan(&house, text.as_bytes(), "--check");
        assert_eq!(done.code(), 1, "{says}: {:?} {}", done.lines, done.errors);
        // The line of the table is the one before its first key.
        let at = format!("{file}:{}: ", line(&text, table) - 1);
        assert!(
            done.lines.iter().any(|found| found.starts_with(&at) && found.contains(says)),
            "{says}, {at}: {:?}",
            done.lines
        );
        let (done, _) = plan(&house, text.as_bytes(), "--check --json");
        let found: serde_json::Value = serde_json::from_str(&done.lines[0]).unwrap();
        assert!(found["ok"] == false && found["findings"].to_string().contains(&says.replace('"', "\\\"")), "{found}");
    }
    // Two objects of one kind with the same name cannot be read at all.
    let (done, file) = plan(&house, changed("name = \"switch\"", "name = \"desk\"").as_bytes(), "--check");
    assert!(done.code() == 2 && done.errors.contains(&format!("{file}:13: name = \"desk\"")), "{}", done.errors);
}
