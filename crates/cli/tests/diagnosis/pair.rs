//! `why` between two hosts: two network namespaces with a wire between them.

use super::space::{Namespace, run};
use super::{answer, part};
use crate::support::{LONG, Running, Testbed};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Instant;

/// Two hosts: `/out` is at 10.77.0.1, `/in` at 10.77.0.2.
struct Pair {
    house: Testbed,
    hosts: [Namespace; 2],
}

impl Pair {
    fn new(test: &str) -> Option<Self> {
        let hosts = [Namespace::new(&format!("{test}-a"))?, Namespace::new(&format!("{test}-b"))?];
        let [a, b] = &hosts;
        a.does(&format!("ip link add wire0 type veth peer name wire1 netns {}", b.name));
        for (host, device, address) in [(a, "wire0", "10.77.0.1/24"), (b, "wire1", "10.77.0.2/24")] {
            host.does(&format!("ip address add {address} dev {device}"));
            host.does(&format!("ip link set {device} up"));
        }
        let house = Testbed::new();
        let nodes = "[[node]]\naddress = \"10.77.0.1:7400\"\n[[node]]\naddress = \"10.77.0.2:7400\"\n";
        std::fs::write(house.path("nodes.toml"), nodes).unwrap();
        Some(Self { house, hosts })
    }

    /// Arguments with which a command finds both hosts.
    fn found_by(&self) -> String {
        format!("--discovery static:{}", self.house.path("nodes.toml").display())
    }

    fn start(&self, host: usize, arguments: &str) -> Running {
        let address = format!("10.77.0.{}:7400", host + 1);
        let line = format!("{arguments} --listen {address} {}", self.found_by());
        Running::start(self.within(host, self.house.command(&line)))
    }

    fn within(&self, host: usize, command: Command) -> Command {
        let mut within = Command::new("ip");
        within.args(["netns", "exec", &self.hosts[host].name]).arg(command.get_program()).args(command.get_args());
        within.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        within
    }

    /// The document of `why` at the publisher's host.
    fn why(&self) -> (Value, i32) {
        let command = self.house.command(&format!("why /out /in --json {}", self.found_by()));
        let done = Running::start(self.within(0, command)).finish();
        let line = done.lines.first().unwrap_or_else(|| panic!("{}", done.errors));
        (serde_json::from_str(line).unwrap(), done.code())
    }

    /// Asks until the document fits.
    fn until(&self, fits: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + LONG;
        loop {
            let began = Instant::now();
            let (report, code) = self.why();
            let took = began.elapsed();
            assert_eq!(code == 0, report["problems"] == json!([]), "{report}");
            if fits(&report) {
                if let Some(fault) = report["problems"][0]["id"].as_str() {
                    answer::told("why", fault, took);
                }
                return report;
            }
            assert!(Instant::now() < until, "{report}");
        }
    }
}

fn named(id: &'static str) -> impl Fn(&Value) -> bool {
    move |report| report["problems"][0]["id"] == id
}

fn healthy(report: &Value) -> bool {
    report["healthy"] == true && !report["verdict"].as_str().unwrap().contains("none within")
}

#[test]
fn a_mark_is_effective_or_not_by_the_queue_of_the_device() {
    let Some(pair) = Pair::new("mark") else { return };
    let host = &pair.hosts[0];
    host.does("tc qdisc replace dev wire0 root pfifo_fast");
    let publish = pair.start(0, "pub /a --port /out --rate 200 --carrier tcp --class high");
    let _subscribe = pair.start(1, "sub /a --port /in --json --carrier tcp");
    pair.until(healthy);
    host.does("tc qdisc replace dev wire0 root pfifo limit 100");
    let report = pair.until(named("ineffective"));
    assert!(report["verdict"].as_str().unwrap().contains("pfifo on wire0"), "{report}");
    host.does("tc qdisc replace dev wire0 root pfifo_fast");
    assert!(pair.until(healthy).get("blocking_us").is_none(), "no rate is known");
    drop(publish);
}

#[test]
fn blocking_by_lower_classes_is_computed_where_the_rate_is_known() {
    let Some(pair) = Pair::new("blocking") else { return };
    pair.hosts[0].does("tc qdisc replace dev wire0 root handle 1: tbf rate 10mbit burst 3200 limit 100000");
    pair.hosts[0].does("tc qdisc add dev wire0 parent 1:1 pfifo_fast");
    let _publish = pair.start(0, "pub /a --port /out --rate 200 --carrier tcp --class high");
    let _subscribe = pair.start(1, "sub /a --port /in --json --carrier tcp");
    let report = pair.until(healthy);
    // Two packets fit the bucket and leave together: 3200 B at 10 Mbit/s.
    assert!((report["blocking_us"].as_f64().unwrap() - 2560.0).abs() < 1.0, "{report}");
    assert!(report.to_string().contains("waits ≤ 2560 µs for lower classes"), "{report}");
}

#[test]
fn expedited_forwarding_on_the_default_queue_is_best_effort() {
    let Some(pair) = Pair::new("ef") else { return };
    pair.hosts[0].does("tc qdisc replace dev wire0 root pfifo_fast");
    let place =
        [("LISTEN", "10.77.0.1:7400".to_owned()), ("NODES", pair.house.path("nodes.toml").display().to_string())];
    let mut command = part::command(&pair.house, "expedited");
    command.envs(place);
    let _publish = Running::start(pair.within(0, command));
    let _subscribe = pair.start(1, "sub /a --port /in --json --carrier tcp");
    let report = pair.until(named("ineffective"));
    assert!(report["verdict"].as_str().unwrap().contains("EF lands in band 1"), "{report}");
}

#[test]
fn packets_too_large_for_the_other_host_are_noticed() {
    let Some(pair) = Pair::new("mtu") else { return };
    pair.hosts[1].does("ip link set wire1 mtu 1300");
    let _publish = pair.start(0, "pub /a --port /out --rate 200 --size 1400 --carrier udp");
    let _subscribe = pair.start(1, "sub /a --port /in --json --carrier udp");
    let report = pair.until(named("not-arriving"));
    assert!(report["problems"][0]["remedy"].as_str().unwrap().contains("MTU"), "{report}");
}

#[test]
fn a_firewall_that_lets_no_datagrams_through_is_found() {
    let Some(pair) = Pair::new("wall") else { return };
    let rules = ["nft add table inet wall", "nft add chain inet wall in { type filter hook input priority 0 ; }"];
    if !rules.iter().all(|rule| run("ip", &format!("netns exec {} {rule}", pair.hosts[1].name))) {
        return println!("skipped: wall: because nft may not add a table");
    }
    pair.hosts[1].does("nft add rule inet wall in ip protocol udp drop");
    let _publish = pair.start(0, "pub /a --port /out --rate 200 --carrier udp");
    let _subscribe = pair.start(1, "sub /a --port /in --json --carrier udp");
    let report = pair.until(named("not-arriving"));
    assert!(report["problems"][0]["remedy"].as_str().unwrap().contains("firewall"), "{report}");
}

#[test]
fn unanswered_handshakes_are_reported_with_the_ways_tried() {
    let Some(pair) = Pair::new("deaf") else { return };
    let rules = ["nft add table inet wall", "nft add chain inet wall in { type filter hook input priority 0 ; }"];
    if !rules.iter().all(|rule| run("ip", &format!("netns exec {} {rule}", pair.hosts[0].name))) {
        return println!("skipped: deaf: because nft may not add a table");
    }
    // The publisher's host opens connections and takes none.
    pair.hosts[0].does("nft add rule inet wall in iifname wire0 tcp flags & (syn|ack) == syn drop");
    let _publish = pair.start(0, "pub /a --port /out --rate 200");
    let _subscribe = pair.start(1, "sub /a --port /in --json");
    let report = pair.until(named("carrier-failed"));
    assert!(report["verdict"].as_str().unwrap().contains("tcp (no answer in time)"), "{report}");
}

/// The channel worked before, and the publisher continues. Small packets still arrive, those of both control links
/// too.
#[test]
fn a_channel_with_a_deaf_end_is_not_healthy() {
    // Reliable `udp` continues with datagrams of 576 bytes or more: only a smaller MTU ends it.
    for (index, (carrier, mtu)) in
        [("udp --reliable", 500), ("mcast --reliable", 1300), ("udp", 1300)].into_iter().enumerate()
    {
        let Some(pair) = Pair::new(&format!("ceased{index}")) else { return };
        // One by one, as on a wire: a veth pair passes a super-packet at any MTU of the other end.
        pair.hosts[0].does("ip link set wire0 gso_max_segs 1");
        let _publish = pair.start(0, &format!("pub /a --port /out --rate 1000 --size 1400 --carrier {carrier}"));
        let reliable = if carrier.ends_with("reliable") { "--reliable" } else { "" };
        let name = carrier.split(' ').next().unwrap();
        let _subscribe = pair.start(1, &format!("sub /a --port /in --json --carrier {name} {reliable}"));
        pair.until(healthy);
        pair.hosts[1].does(&format!("ip link set wire1 mtu {mtu}"));
        let report = pair.until(named("not-arriving"));
        let (verdict, remedy) =
            (report["verdict"].as_str().unwrap(), report["problems"][0]["remedy"].as_str().unwrap());
        assert!(verdict.starts_with("/out sends, and /in receives nothing any more"), "{carrier}: {report}");
        assert!(remedy.contains("MTU"), "{carrier}: {report}");
        println!("{carrier}: {verdict}; {remedy}");
        pair.hosts[1].does("ip link set wire1 mtu 1500");
        pair.until(|report| report["problems"][0]["id"] != "not-arriving");
    }
}
