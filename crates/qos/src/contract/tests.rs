use super::*;
use crate::Class;
use crate::system::{NodeKind, Objective, Scheduler};
use proptest::prelude::*;

/// A contract with one of everything; each test changes a line of it.
const WHOLE: &str = r#"[system]
name = "star"

[[node]]
name = "n1"
cpus = 2
domain = "robot"
proxy_capacity = "2 kHz"

[[node]]
name = "n2"
kind = "switch"
proxy = false

[[node]]
name = "n3"

[[link]]
name = "a"
between = ["n1", "n2"]
rate = "100 Mbit/s"
delay = "0.5 us"
forwarding = "5 us"
transmission = "82.92 us"
scheduler = "htb"
shares = { critical = "5 %", high = "30 %", normal = "45 %", low = "20 %" }
background = "60 Mbit/s"

[[link]]
between = ["n2", "n3"]
rate = "1 Gbit/s"
mtu = "9000 B"
overhead = "0 B"

[[topic]]
name = "video"
size = "8 KiB"
period = "83.3 us"
jitter = "1 us"
burst = 3
publisher = "n1"
cpu_send = "20 us"
hand_in = "1.6 us"
hand_out = "42 us"
buffer = 64
class = "high"

[[subscriber]]
topic = "video"
node = "n3"
name = "/viewer"
scale = 2
picture = "320x240"
scaled_size = "1 KiB"
deadline = "40 ms"
cpu_receive = "30 us"
importance = 7

[[subscriber]]
topic = "video"
node = "n3"

[placement]
proxies = "merged"
objective = "weighted"
cpu_weight = 2
transport = "multicast"
delay = "bound"
cpu_proxy = "10 us"
"#;

fn changed(from: &str, to: &str) -> String {
    assert!(WHOLE.contains(from), "{from}");
    WHOLE.replacen(from, to, 1)
}

fn refused(from: &str, to: &str) -> String {
    Contract::read(&changed(from, to)).unwrap_err().to_string()
}

#[test]
fn everything_is_read() {
    let Contract { system, lines, hash, .. } = Contract::read(WHOLE).unwrap();
    assert_eq!((system.name.as_str(), system.nodes.len(), system.nodes[1].kind), ("star", 3, NodeKind::Switch));
    assert_eq!((system.nodes[0].cpus, system.nodes[0].proxy_capacity, system.nodes[2].cpus), (2, Some(2000.0), 1));
    let link = &system.links[0];
    assert_eq!((link.rate, link.delay, link.transmission, link.mtu), (100_000_000, 500, Some(82_920), 1500));
    assert_eq!((link.scheduler, link.shares), (Scheduler::Htb, Some([0.2, 0.45, 0.3, 0.05])));
    assert_eq!((system.links[1].name.as_str(), system.links[1].overhead), ("n2-n3", 0));
    let topic = &system.topics[0];
    assert_eq!((topic.size, topic.period, topic.service, topic.class), (8192, 83_300, 20_000, Some(Class::High)));
    assert!((topic.rate - 1e9 / 83_300.0).abs() < 1e-9);
    let viewer = &system.subscribers[0];
    assert_eq!((viewer.picture, viewer.scaled_size, viewer.deadline), (Some([320, 240]), Some(1024), Some(40_000_000)));
    assert_eq!((system.subscribers[1].name.as_str(), system.subscribers[1].scale), ("/video@n3", 1));
    assert_eq!((system.placement.objective, system.placement.cpu_proxy), (Objective::Weighted, 10_000));
    assert_eq!((lines.nodes, lines.subscribers), (vec![4, 10, 15], vec![48, 59]));
    assert_ne!(hash, Contract::read(&changed("scale = 2", "scale = 3")).unwrap().hash);
}

#[test]
fn a_hand_over_counts_where_a_thread_sends() {
    assert_eq!(Contract::read(WHOLE).unwrap().system.hand_over(0, 0), 0, "none by default");
    let woken = changed("cpus = 2", "cpus = 2\nhand_over = \"14 us\"");
    let system = Contract::read(&woken).unwrap().system;
    assert_eq!((system.nodes[0].hand_over, system.hand_over(0, 0)), (14_000, 14_000));
    let inline = Contract::read(&woken.replace("cpu_send = \"20 us\"\n", "")).unwrap().system;
    assert_eq!(inline.hand_over(0, 0), 0, "publish sends");
    let said = refused("cpus = 2", "hand_over = 14");
    assert!(said.contains("hand_over = 14: allowed is a time from 0 ns"), "{said}");
}

#[test]
fn an_error_names_line_key_value_and_what_is_allowed() {
    for (from, to, says) in [
        ("rate = \"100 Mbit/s\"", "rate = 100", "21: rate = 100: allowed is 1 bit/s to 10000 Gbit/s with a unit"),
        ("rate = \"100 Mbit/s\"", "rate = \"0 bit/s\"", "21: rate = \"0 bit/s\": allowed is 1 bit/s"),
        ("rate = \"100 Mbit/s\"\n", "", "18: rate is missing; such as rate = \"100 Mbit/s\""),
        ("\"0.5 us\"", "\"-0.5 us\"", "22: delay = \"-0.5 us\": allowed is a time from 0 ns to 86400 s with a unit"),
        ("\"83.3 us\"", "\"0 us\"", "38: period = \"0 us\": allowed is a time from 100 ns"),
        ("period = \"83.3 us\"", "period = 0.0833", "38: period = 0.0833: allowed is a time"),
        ("\"83.3 us\"", "\"99999999999999999999 s\"", "allowed is a time"),
        ("\"83.3 us\"", "\"83.3 us\"\nrate = \"5 Hz\"", "39: rate and period: allowed is one of both"),
        ("\"8 KiB\"", "\"8 XiB\"", "37: size = \"8 XiB\": allowed is 1 to 1073741824 B with a unit: B kB MB KiB MiB"),
        ("\"8 KiB\"", "\"4000000000 MiB\"", "37: size"),
        ("burst = 3", "burst = 0", "40: burst = 0: allowed is a whole number from 1 to 1000000"),
        ("cpus = 2", "cpus = \"two\"", "6: cpus = \"two\": allowed is a whole number from 1 to 4096"),
        ("cpus = 2", "cpu = 2", "6: cpu = 2: unknown field `cpu`, expected one of `name`, `kind`, `cpus`"),
        ("kind = \"switch\"", "kind = \"hub\"", "12: kind = \"hub\": allowed is host, router, switch"),
        (
            "[[node]]\nname = \"n3\"",
            "[[node]]\nname = \"n1\"",
            "16: name = \"n1\": already used in line 5: allowed is each node's name once",
        ),
        (
            "[placement]",
            "[[link]]\nbetween = [\"n2\", \"n3\"]\nrate = \"1 Mbit/s\"\n[placement]",
            "63: name = \"n2-n3\", given to what has no name: already used in line 29: allowed is each link's name once",
        ),
        ("cpus = 2", "cpus = { a = 1 }", "6: cpus = {…}: allowed is a whole number from 1 to 4096"),
        ("cpus = 2", "cpus = 2026-11-21", "6: cpus = {…}: allowed is a whole number from 1 to 4096"),
        ("cpus = 2", "cpus = 99999999999999999999", "6: cpus = 1e20: allowed is a whole number from 1 to 4096"),
        ("burst = 3", "burst = 1e308", "40: burst = 1e308: allowed is a whole number from 1"),
        ("cpus = 2", "cpus = 2\ncpus = 3", "7: cpus = 3: duplicate key"),
        ("cpus = 2", "cpus = 2 \u{202e}3", "6: cpus = 2 \\u{202e}3: "),
        ("shares = {", "shares = 3 #", "26: shares = 3 #"),
        ("[placement]", "[[placement]]", "63: [[placement]]: allowed is one table, in single brackets"),
        (
            "[[node]]\nname = \"n2\"",
            "[node]\nname = \"n2\"",
            "10: [node]: there may be several: allowed are tables in double",
        ),
        (
            "between = [\"n2\", \"n3\"]",
            "between = [\"n2\", \"n2\"]",
            "30: between = [\"n2\", \"n2\"]: allowed is a list",
        ),
        (
            "between = [\"n2\", \"n3\"]",
            "between = [\"n2\", \"n9\"]",
            "allowed is the name of a node of this file: n1, n2",
        ),
        ("\"5 %\"", "\"15 %\"", "26: shares add up to 110 %: allowed is at most 100 %"),
        ("\"5 %\"", "\"0 %\"", "26: critical = \"0 %\""),
        ("\"htb\"", "\"strict\"", "26: shares: only with scheduler"),
        ("background = \"60 Mbit/s\"", "control = \"1 Mbit/s\"", "27: control: only without transmission"),
        ("background = \"60 Mbit/s\"", "control = \"9 bit/s\"", "27: control = \"9 bit/s\": allowed is 1000 bit/s"),
        ("transmission = \"82.92 us\"", "control = \"1 Mbit/s\"", "24: control: with the shares it adds up to 101 %"),
        ("mtu = \"9000 B\"", "control = \"1 Mbit/s\"", "32: control: only with scheduler = \"htb\""),
        ("publisher = \"n1\"", "publisher = [\"n1\", \"n1\"]", "41: publisher = \"n1\": allowed is each node once"),
        ("topic = \"video\"", "topic = \"audio\"", "49: topic = \"audio\": allowed is the name of a topic"),
        ("topic = \"video\"\n", "", "48: topic is missing: allowed is the name of a topic of this file: video"),
        (
            "between = [\"n2\", \"n3\"]",
            "between = [\"n2\", \"n1\"]",
            "50: node = \"n3\": no link leads there from \"n1\"",
        ),
        ("scale = 2", "scale = -2", "52: scale = -2"),
        ("\"320x240\"", "\"320*240\"", "53: picture = \"320*240\": allowed is width x height"),
        ("\"40 ms\"", "\"0 ms\"", "55: deadline = \"0 ms\": allowed is a time from 1 ns"),
        ("objective = \"weighted\"", "objective = \"best\"", "allowed is messages, bandwidth, cpu, weighted"),
        ("cpu_weight = 2", "cpu_weight = nan", "cpu_weight = NaN: allowed is a number from 0"),
        ("\"1 Gbit/s\"", "\"0.1 bit/s\"", "rate = \"0.1 bit/s\""),
        ("\"8 KiB\"\n", "\"1 MiB\"\nburst = 3\n", "duplicate key"),
        (
            "rate = \"1 Gbit/s\"\nmtu = \"9000 B\"",
            "rate = \"1 bit/s\"\ntransmission = \"80000 s\"",
            "longer than a day on link \"n2-n3\"",
        ),
    ] {
        let said = refused(from, to);
        assert!(said.contains(says), "{from} → {to}: {said}");
    }
}

#[test]
fn an_invalid_contract_is_reported() {
    for (text, says) in [
        ("", "1: no [[node]]: a contract has the tables"),
        ("nonsense", "1: "),
        ("[[node]\n", "1: "),
        ("x = 1\n", "1: x = 1: unknown field `x`, expected one of `system`, `node`, `link`"),
        ("[[node]]\nname = 1979-05-27\n", "2: name = {…}: allowed is text of 1 to 255 bytes"),
        ("node = 3\n", "1: node = 3: there may be several: allowed are tables in double brackets, such as [[node]]"),
    ] {
        let said = Contract::read(text).unwrap_err().to_string();
        assert!(said.starts_with(says), "{text}: {said}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}") {
        let _ = Contract::read(&text);
    }

    /// Pieces of a real contract in any order, with any piece replaced.
    #[test]
    fn no_mixture_of_lines_makes_it_panic(
        order in prop::collection::vec(0_usize..80, 0..80),
        value in prop::sample::select(vec!["-1", "0", "1e400", "\"\"", "\"1e9 s\"", "\"9999999999 Gbit/s\"", "[]", "[[1]]", "nan"]),
        at in 0_usize..80,
    ) {
        let lines: Vec<&str> = WHOLE.lines().collect();
        let mixed: Vec<&str> = order.iter().filter_map(|n| lines.get(*n).copied()).collect();
        let _ = Contract::read(&mixed.join("\n"));
        let replaced = |(n, line): (usize, &&str)| match line.split_once(" = ") {
            Some((key, _)) if n == at => format!("{key} = {value}"),
            _ => (*line).to_owned(),
        };
        let text: Vec<String> = lines.iter().enumerate().map(replaced).collect();
        if let Err(error) = Contract::read(&text.join("\n")) {
            prop_assert!(error.line >= 1 && error.line <= lines.len() && !error.problem.is_empty(), "{error}");
        }
    }
}

#[test]
fn only_likely_mistakes_are_found() {
    let plain = changed("deadline = \"40 ms\"", "deadline = \"10 ms\"");
    assert_eq!(check(&Contract::read(&plain).unwrap()), []);
    for (from, to, line, says) in [
        ("\"45 %\"", "\"40 %\"", 18, "shares add up to 95 %: 5 % belong to no class"),
        ("\"10 ms\"", "\"150 us\"", 48, "filter longer than the deadline: scale = 2 lets a sample pass every 166.6 us"),
        ("\"10 ms\"", "\"170 us\"", 48, "unreachable deadline 170 us: from n1 a sample takes"),
        ("\"1 KiB\"", "\"9 KiB\"", 48, "requested scaled_size 9216 B is more than the 8192 B"),
        (
            "between = [\"n2\", \"n3\"]",
            "between = [\"n2\", \"n3\"]\nname = \"video\"",
            36,
            "name used twice: a link of line 29",
        ),
        (
            "[placement]",
            "[[link]]\nbetween = [\"n1\", \"n2\"]\nrate = \"1 Mbit/s\"\ndelay = \"1 s\"\n[placement]",
            63,
            "unused: no route",
        ),
        ("[placement]", "[[node]]\nname = \"n4\"\n[placement]", 63, "unused: no link leads"),
        (
            "[placement]",
            "[[topic]]\nname = \"t\"\nsize = \"1 B\"\nrate = \"1 Hz\"\npublisher = \"n1\"\n[placement]",
            63,
            "nobody wants it",
        ),
        (
            "cpu_receive = \"30 us\"",
            "cpu_receive = \"170 us\"",
            48,
            "cpu_receive 170 us is longer than the 166.6 us between",
        ),
        ("cpu_send = \"20 us\"", "cpu_send = \"90 us\"", 35, "cpu_send 90 us is longer than its period 83.3 us"),
    ] {
        let text = plain.replacen(from, to, 1);
        let found = check(&Contract::read(&text).unwrap_or_else(|error| panic!("{from}: {error}")));
        assert!(found.iter().any(|one| one.line == line && one.because.contains(says)), "{from} → {to}: {found:?}");
    }
}
