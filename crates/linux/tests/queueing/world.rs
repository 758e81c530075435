//! Hosts of a test's own: network namespaces without names, connected by veth pairs, gone with the test.

use std::process::Command;
use std::time::{Duration, Instant};
use thalweg_linux::namespace::Namespace;

/// A host with its programs.
pub struct Host(pub Namespace);

impl Host {
    /// Runs a program in it and returns its output; a failure fails the test.
    pub fn run(&self, line: &str) -> String {
        self.try_run(line).unwrap_or_else(|said| panic!("{line}: {said}"))
    }

    /// Runs a program in it; its output is the error if it failed.
    pub fn try_run(&self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let run = || Command::new(words[0]).args(&words[1..]).output();
        let output = self.0.run(run).unwrap().map_err(|e| format!("{}: {e}", words[0]))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Runs a closure in it.
    pub fn inside<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        self.0.run(body).unwrap()
    }

    /// The queues of a device, as printed by `tc`.
    pub fn queues(&self, device: &str) -> String {
        let qdiscs = self.run(&format!("tc -s -d qdisc show dev {device}"));
        let classes = self.run(&format!("tc -s -d class show dev {device}"));
        let link = self.run(&format!("ip -o link show dev {device}"));
        let holders = qdiscs.lines().filter_map(|l| l.strip_prefix("qdisc ")?.split(' ').nth(1).map(str::to_owned));
        let filters: String =
            holders.map(|h| self.run(&format!("tc -s -d filter show dev {device} parent {h}"))).collect();
        [qdiscs, classes, link, filters].concat()
    }

    /// The queues of a device, as printed by `tc`, without its counters: the kernel itself sends packets now and then.
    pub fn queues_without_counters(&self, device: &str) -> Vec<String> {
        let counts =
            |line: &&str| ["Sent", "backlog", "rate", "lended", "tokens"].iter().any(|w| line.trim().starts_with(w));
        let queues = self.queues(device);
        queues.lines().filter(|line| !counts(line)).map(|line| line.split(" (").next().unwrap().to_owned()).collect()
    }
}

/// Makes hosts, or prints why they are impossible here.
pub fn hosts<const N: usize>(test: &str) -> Option<[Host; N]> {
    let made: Result<Vec<Host>, String> =
        (0..N).map(|_| Namespace::new().map(Host).map_err(|e| e.to_string())).collect();
    let tools = ["ip", "tc", "nft"]
        .iter()
        .try_for_each(|tool| Command::new(tool).arg("-V").output().map(drop).map_err(|e| format!("{tool}: {e}")));
    match made.and_then(|hosts| tools.map(|()| hosts)) {
        Ok(hosts) => {
            hosts.iter().for_each(|host| drop(host.run("ip link set lo up")));
            hosts.try_into().ok()
        }
        Err(why) => {
            println!("skipped: {test}: because {why}");
            None
        }
    }
}

/// A cable: `device` at each of both ends, up, without addresses of its own (nothing but the test sends). The kernel says that a device is up
/// a moment after it is.
pub fn cable(from: &Host, device: &str, to: &Host, other: &str) {
    let far = to.0.path();
    from.run(&format!("ip link add {device} type veth peer name {other} netns {}", far.display()));
    for (host, device) in [(from, device), (to, other)] {
        let _ = host.try_run(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"));
        host.run(&format!("ip link set {device} up"));
    }
    let until = Instant::now() + Duration::from_secs(10);
    for (host, device) in [(from, device), (to, other)] {
        while !host.run(&format!("ip -o link show dev {device}")).contains(" state UP ") {
            assert!(Instant::now() < until, "{device} does not come up");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Two hosts at one cable: `veth` with 10.99.0.1 and fd99::1, `veth` with 10.99.0.2 and fd99::2.
pub fn pair(test: &str) -> Option<[Host; 2]> {
    let [a, b] = hosts(test)?;
    cable(&a, "veth", &b, "veth");
    subnet(&a, "veth", &b, "veth", "10.99.0", "fd99:");
    Some([a, b])
}

/// A host, a router and a host: `veth` 10.99.1.2 — `in` 10.99.1.1, `out` 10.99.2.1 — `veth` 10.99.2.2.
pub fn routed(test: &str) -> Option<[Host; 3]> {
    let [a, router, b] = hosts(test)?;
    cable(&router, "in", &a, "veth");
    cable(&router, "out", &b, "veth");
    subnet(&router, "in", &a, "veth", "10.99.1", "fd99:1:");
    subnet(&router, "out", &b, "veth", "10.99.2", "fd99:2:");
    router.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    for (host, number) in [(&a, 1), (&b, 2)] {
        host.run(&format!("ip route add default via 10.99.{number}.1"));
        host.run(&format!("ip -6 route add default via fd99:{number}::1"));
    }
    Some([a, router, b])
}

/// A host, a bridge and a host: `veth` 10.99.0.1 — `in`, `out` — `veth` 10.99.0.2.
pub fn bridged(test: &str) -> Option<[Host; 3]> {
    let [a, bridge, b] = hosts(test)?;
    bridge.run("ip link add bridge type bridge stp_state 0 mcast_snooping 0");
    bridge.run("ip link set bridge up");
    for (device, host) in [("in", &a), ("out", &b)] {
        cable(&bridge, device, host, "veth");
        bridge.run(&format!("ip link set {device} master bridge"));
    }
    subnet(&a, "veth", &b, "veth", "10.99.0", "fd99:");
    Some([a, bridge, b])
}

/// Addresses .1 and .2 for two hosts, who know each other's hardware, so that no packet waits for a question.
pub fn subnet(one: &Host, device: &str, two: &Host, other: &str, v4: &str, v6: &str) {
    address(one, device, &format!("{v4}.1/24"), &format!("{v6}:1/64"));
    address(two, other, &format!("{v4}.2/24"), &format!("{v6}:2/64"));
    neighbour(one, device, two, other, &format!("{v4}.2"), &format!("{v6}:2"));
    neighbour(two, other, one, device, &format!("{v4}.1"), &format!("{v6}:1"));
}

fn neighbour(at: &Host, device: &str, of: &Host, other: &str, v4: &str, v6: &str) {
    let link = of.run(&format!("ip -o link show dev {other}"));
    let hardware = link.split_once("link/ether ").and_then(|(_, rest)| rest.split(' ').next()).unwrap();
    for address in [v4, v6] {
        at.run(&format!("ip neigh replace {address} lladdr {} dev {device} nud permanent", hardware));
    }
}

/// Gives a device its addresses, usable at once.
fn address(host: &Host, device: &str, v4: &str, v6: &str) {
    host.run(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=0"));
    host.run(&format!("ip addr add {v4} dev {device}"));
    host.run(&format!("ip -6 addr add {v6} dev {device} nodad"));
}
