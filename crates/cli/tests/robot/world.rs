//! The hosts of examples/robot.toml and its links, with the devices that the contract names: network namespaces, gone with the test. The links are no
//! slower than the queues before them.

use super::picture;
use crate::support::{Done, LONG, Running, Testbed, has_nft};
use qos::contract::Contract;
use qos::plan::Plan;
use qos::system::{NodeKind, System, Topic};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// The addresses of hosts on their devices. `lan` is the bridge of the switch.
const ADDRESSES: [(&str, &str, &str); 7] = [
    ("motors", "eth0", "10.95.1.1"),
    ("vision", "eth0", "10.95.1.2"),
    ("pilot", "eth0", "10.95.1.3"),
    ("switch", "lan", "10.95.1.4"),
    ("radio", "eth0", "10.95.1.254"),
    ("radio", "wlan0", "10.95.2.254"),
    ("operator", "wlan0", "10.95.2.1"),
];
/// The host of the broker and of the user, and its address.
const BASE: &str = "pilot";
const BROKER: &str = "10.95.1.3:7450";

/// The plan's hosts, and files of the test.
pub struct World {
    pub house: Testbed,
    pub plan: Plan,
    pub system: System,
}

impl World {
    /// `None` if the hosts cannot be made here; the reason is printed.
    pub fn new(test: &str) -> Option<Self> {
        if !has_nft(test) {
            return None;
        }
        let (house, contract) = (Testbed::new(), concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/robot.toml"));
        let file = house.path("plan.toml");
        let done = house.run(&format!("plan {contract} -o {}", file.display()));
        assert_eq!(done.code(), 0, "{:?} {}", done.lines, done.errors);
        let plan = Plan::from_text(&std::fs::read_to_string(file).unwrap()).unwrap();
        let system = Contract::read(&std::fs::read_to_string(contract).unwrap()).unwrap().system;
        let world = Self { house, plan, system };
        if !world.making().iter().all(|line| ip(line)) {
            println!("skipped: {test} because network namespaces need root");
            return None;
        }
        world.issue_keys();
        Some(world)
    }

    /// What makes the hosts, in the words of `ip`.
    fn making(&self) -> Vec<String> {
        let hosts = || self.plan.nodes.iter().map(|node| namespace(&node.name));
        let mut lines: Vec<String> = hosts().map(|host| format!("netns add {host}")).collect();
        lines.extend(hosts().map(|host| format!("-n {host} link set lo up")));
        let end = |link: &qos::plan::Link| (namespace(&link.from), link.device.clone().unwrap());
        for both in self.plan.links.chunks_exact(2) {
            let [(one, device), (other, opposite)] = [end(&both[0]), end(&both[1])];
            lines.push(format!("-n {one} link add {device} type veth peer name {opposite} netns {other}"));
            lines.extend([format!("-n {one} link set {device} up"), format!("-n {other} link set {opposite} up")]);
        }
        for node in self.plan.nodes.iter().filter(|node| node.kind == NodeKind::Switch) {
            let host = namespace(&node.name);
            lines.push(format!("-n {host} link add lan type bridge stp_state 0 mcast_snooping 0"));
            lines.extend(self.devices(&node.name).map(|device| format!("-n {host} link set {device} master lan")));
            lines.push(format!("-n {host} link set lan up"));
        }
        for (host, device, address) in ADDRESSES {
            let (name, (net, _)) = (namespace(host), address.rsplit_once('.').unwrap());
            lines.push(format!("-n {name} address add {address}/24 dev {device}"));
            let last = if host == "radio" {
                format!("netns exec {name} sysctl -qw net.ipv4.ip_forward=1")
            } else {
                format!("-n {name} route add default via {net}.254")
            };
            lines.push(last);
        }
        lines
    }

    fn issue_keys(&self) {
        let keys = self.house.path("keys");
        let keys = keys.display();
        let hosts = self.plan.nodes.iter().map(|node| format!("host {}", node.name));
        let parties = ["broker base", "user ann"].map(str::to_owned).into_iter().chain(hosts);
        let issued = parties.map(|party| format!("keys issue {party} --dir {keys}"));
        for line in std::iter::once(format!("keys init robot {keys}")).chain(issued) {
            assert_eq!(self.house.run(&line).code(), 0, "{line}");
        }
    }

    /// The devices of a host on which the plan has queues.
    pub fn devices(&self, host: &str) -> impl Iterator<Item = &str> {
        self.plan.links.iter().filter(move |link| link.from == host).filter_map(|link| link.device.as_deref())
    }

    /// `thalweg` on a host.
    fn start(&self, host: &str, arguments: &str) -> Running {
        let mut command = on(host, env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments.split_whitespace());
        command.env("THALWEG_RUN_DIR", self.house.path(host)).env("THALWEG_ADMIN_FROM", "10.95.0.0/16");
        Running::start(command)
    }

    /// The broker and an agent on each host.
    pub fn domain(&self) -> Vec<Running> {
        let keys = self.house.path("keys");
        let common =
            |state: &str| format!("--keys {} --state {} --json", keys.display(), self.house.path(state).display());
        let broker = self.start(BASE, &format!("broker --name base --listen 0.0.0.0:7450 {}", common("broker")));
        assert_eq!(broker.json_line()["listening"], "0.0.0.0:7450");
        let agent =
            |host: &str| self.start(host, &format!("agent --host {host} --broker {BROKER} {}", common("agent")));
        let agents = self.plan.nodes.iter().map(|node| agent(&node.name));
        std::iter::once(broker).chain(agents).collect()
    }

    /// A command of the user to the broker.
    pub fn ask(&self, arguments: &str) -> Done {
        let keys = self.house.path("keys");
        let line = format!("{arguments} --user ann --broker {BROKER} --keys {} --json", keys.display());
        self.start(BASE, &line).finish()
    }

    /// A command that reaches the programs of all hosts, while it runs. Those that run together have different numbers.
    pub fn look(&self, number: usize, arguments: &str) -> Running {
        let (nodes, port) = (self.house.path("nodes.toml"), 7900 + number);
        let line = format!("{arguments} --json --listen 10.95.1.3:{port} --discovery static:{}", nodes.display());
        self.start(BASE, &line)
    }

    /// A subscriber of each channel, and a publisher of each topic with the rate and size of the contract.
    pub fn programs(&self) -> Vec<Running> {
        let system = &self.system;
        let host = |node: usize| system.nodes[node].name.as_str();
        let mut all = Vec::new();
        for one in &system.subscribers {
            let topic = &system.topics[one.topic];
            let line = format!("sub /{} --json --carrier {}", topic.name, carrier(topic));
            all.push((host(one.node), one.name.clone(), line));
        }
        for (number, topic) in system.topics.iter().enumerate() {
            let (from, name, size) = (host(topic.publishers[0]), &topic.name, topic.size);
            let is_scaled = system.subscribers.iter().any(|one| one.topic == number && one.picture.is_some());
            let source = if is_scaled { format!("--file {}", self.pictures(size).display()) } else { String::new() };
            let line = format!("pub /{name} --rate {} --size {size} {source} --carrier {}", topic.rate, carrier(topic));
            all.push((from, format!("/{name}@{from}"), line));
        }
        let address = |host: &str| ADDRESSES.iter().find(|(name, ..)| *name == host).unwrap().2;
        let at = |number: usize, host: &str| format!("{}:{}", address(host), 7001 + number);
        let nodes = all.iter().enumerate().map(|(number, (host, ..))| at(number, host));
        let nodes: String = nodes.map(|address| format!("[[node]]\naddress = \"{address}\"\n")).collect();
        let file = self.house.path("nodes.toml");
        std::fs::write(&file, nodes).unwrap();
        let start = |(number, (host, port, line)): (usize, &(&str, String, String))| {
            let common = format!("--port {port} --listen {} --discovery static:{}", at(number, host), file.display());
            self.start(host, &format!("{line} {common}"))
        };
        all.iter().enumerate().map(start).collect()
    }

    /// A pipe out of which pictures of so many bytes come, one after the other.
    fn pictures(&self, bytes: u64) -> PathBuf {
        let (pipe, picture) = (self.house.path("pictures"), picture::of(bytes as usize));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let write_to = pipe.clone();
        // It ends when nobody reads any more.
        std::thread::spawn(move || {
            let mut pipe = std::fs::OpenOptions::new().write(true).open(write_to).unwrap();
            while pipe.write_all(&picture).is_ok() {}
        });
        pipe
    }

    /// What the kernels of all hosts have on their devices, and their packet filters.
    pub fn installed(&self) -> BTreeMap<String, String> {
        let shown = |host: &str, line: &str| {
            let (program, arguments) = line.split_once(' ').unwrap();
            let done = on(host, program).args(arguments.split(' ')).output().unwrap();
            assert!(done.status.success(), "{host}: {line}");
            String::from_utf8(done.stdout).unwrap()
        };
        let of = |host: &str| {
            let each = |device: &str| ["class", "filter"].map(|what| format!("tc {what} show dev {device}"));
            let common = ["tc qdisc show", "nft list ruleset", "ip link show"].map(str::to_owned);
            let lines = common.into_iter().chain(self.devices(host).flat_map(each));
            lines.map(|line| shown(host, &line)).collect::<String>()
        };
        self.plan.nodes.iter().map(|node| (node.name.clone(), of(&node.name))).collect()
    }

    /// Repeats a command of the user until its output fits.
    pub fn until(&self, what: &str, arguments: &str, fits: impl Fn(&Value) -> bool) {
        let until = Instant::now() + LONG;
        loop {
            let done = self.ask(arguments);
            let shown: Value = done.lines.first().map(|line| serde_json::from_str(line).unwrap()).unwrap_or_default();
            if fits(&shown) {
                return;
            }
            assert!(Instant::now() < until, "{what}: {shown} {}", done.errors);
        }
    }
}

/// How the threads of a program are scheduled, each way once.
pub fn scheduling(program: &Running) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", program.child.id())).unwrap();
    let each = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?; // it may have ended
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let [nice, priority, policy] = [16, 37, 38].map(|at| fields.get(at).copied().unwrap_or_default());
        Some(format!("policy {policy}, priority {priority}, nice {nice}"))
    });
    let mut all: Vec<String> = each.collect();
    all.sort();
    all.dedup();
    all
}

impl Drop for World {
    fn drop(&mut self) {
        for node in &self.plan.nodes {
            ip(&format!("netns delete {}", namespace(&node.name)));
        }
    }
}

/// A sample of one packet cannot lose a part of itself.
fn carrier(topic: &Topic) -> &'static str {
    if topic.size <= 1400 { "udp" } else { "tcp" }
}

fn namespace(host: &str) -> String {
    format!("tb{}{host}", std::process::id())
}

/// A program on a host.
fn on(host: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace(host), program]);
    command
}

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split(' ')).output().is_ok_and(|done| done.status.success())
}
