//! A plan on all hosts: a broker and three agents on hosts in a row (network namespaces), a – g – b.
#![allow(clippy::unwrap_used)]

mod plans;
mod sessions;

use crate::support;
use agent::client::Client;
use agent::identity::Kind;
use agent::keys::Keys;
use serde_json::Value;
use std::process::Command;
use std::time::Instant;
use support::{Done, LONG, Row, Running, Testbed};

/// The address at which each host reaches the broker, which is on `g`.
pub(crate) const BROKER: [&str; 3] = ["10.96.1.254:7450", "127.0.0.1:7450", "10.96.2.254:7450"];
pub(crate) const HOSTS: [&str; 3] = ["a", "g", "b"];
/// All devices, by host.
const DEVICES: [(usize, &str); 4] = [(0, "eth"), (1, "ga"), (1, "gb"), (2, "eth")];

const CONTRACT: &str = r#"
[system]
name = "row"
[[node]]
name = "a"
[[node]]
name = "g"
kind = "router"
proxy = false
[[node]]
name = "b"
[[link]]
name = "left"
between = ["a", "g"]
rate = "10 Mbit/s"
scheduler = "htb"
devices = { a = "eth", g = "ga" }
[[link]]
name = "right"
between = ["g", "b"]
rate = "10 Mbit/s"
scheduler = "htb"
devices = { g = "gb", b = "eth" }
[[topic]]
name = "state"
size = "100 B"
rate = "100 Hz"
publisher = "a"
[[subscriber]]
topic = "state"
node = "b"
deadline = "20 ms"
"#;

pub(crate) struct Domain {
    row: Row,
    pub(crate) house: Testbed,
}

impl Domain {
    /// The hosts, with keys and plans; `None` if they cannot be made here.
    pub(crate) fn new(test: &str) -> Option<Self> {
        if !support::has_nft(test) {
            return None;
        }
        let domain = Self { row: Row::new(test)?, house: Testbed::new() };
        domain.plan("plan", CONTRACT);
        domain.plan("half", &CONTRACT.replace("devices = { g = \"gb\", b = \"eth\" }\n", ""));
        domain.plan("other", &CONTRACT.replace("b = \"eth\"", "b = \"nothing\""));
        let keys = domain.house.path("keys");
        let keys = keys.display();
        let issue = |party: &str| format!("keys issue {party} --dir {keys}");
        let parties = ["broker base", "user ann", "host a", "host g", "host b"].map(issue);
        for line in std::iter::once(format!("keys init robot {keys}")).chain(parties) {
            assert_eq!(domain.house.run(&line).code(), 0, "{line}");
        }
        Some(domain)
    }

    fn plan(&self, name: &str, contract: &str) {
        let file = self.house.path(&format!("{name}-contract.toml"));
        std::fs::write(&file, contract).unwrap();
        let plan = self.house.path(&format!("{name}.toml"));
        let done = self.house.run(&format!("plan {} -o {}", file.display(), plan.display()));
        assert_eq!(done.code(), 0, "{:?} {}", done.lines, done.errors);
    }

    /// A program on a host.
    pub(crate) fn command(&self, host: usize, program: &str) -> Command {
        self.row.command(host, program)
    }

    /// `thalweg` on a host, with its broker and keys.
    pub(crate) fn start(&self, host: usize, arguments: &str) -> Running {
        let mut command = self.row.command(host, env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments.split_whitespace()).arg("--keys").arg(self.house.path("keys"));
        command.env("THALWEG_RUN_DIR", self.house.path(&format!("run{host}")));
        Running::start(command)
    }

    fn broker(&self) -> Running {
        self.broker_with("")
    }

    pub(crate) fn broker_with(&self, options: &str) -> Running {
        let state = self.house.path("broker");
        let line = format!("broker --name base --listen 0.0.0.0:7450 --state {} --json {options}", state.display());
        let broker = self.start(1, &line);
        assert_eq!(broker.json_line()["listening"], "0.0.0.0:7450");
        broker
    }

    pub(crate) fn agent(&self, host: usize) -> Running {
        self.agent_of(host, BROKER[host])
    }

    /// The agent of a host, of brokers at these addresses.
    pub(crate) fn agent_of(&self, host: usize, at: &str) -> Running {
        let (state, name) = (self.house.path("agent"), HOSTS[host]);
        let agent = self.start(host, &format!("agent --host {name} --broker {at} --state {} --json", state.display()));
        assert_eq!(agent.json_line()["agent"], name);
        agent
    }

    /// A program on host 0 or 2.
    pub(crate) fn program(&self, host: usize, arguments: &str) -> Running {
        let nodes = self.house.path("nodes.toml");
        let at = ["10.96.1.1:7001", "", "10.96.2.1:7001"];
        std::fs::write(&nodes, [0, 2].map(|host| format!("[[node]]\naddress = \"{}\"\n", at[host])).concat()).unwrap();
        let mut command = self.row.command(host, env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments.split_whitespace());
        command.args(["--name", HOSTS[host], "--listen", at[host], "--discovery"]);
        command.arg(format!("static:{}", nodes.display()));
        command.env("THALWEG_RUN_DIR", self.house.path(&format!("run{host}")));
        Running::start(command)
    }

    /// An administrator's command on host `a`, for a channel from there.
    fn administer(&self, arguments: &str) -> Done {
        let mut command = self.row.command(0, env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments.split_whitespace()).args(["--json", "--listen", "10.96.1.1:7009", "--discovery"]);
        command.arg(format!("static:{}", self.house.path("nodes.toml").display()));
        command.env("THALWEG_RUN_DIR", self.house.path("run0"));
        Running::start(command).finish()
    }

    /// The class that was asked for the publisher's end of a channel from `a`; `null`: none.
    fn asked(&self, channel: &str) -> Value {
        let done = self.administer(&format!("get {channel}"));
        let found: Value = done.lines.first().map(|line| serde_json::from_str(line).unwrap()).unwrap_or_default();
        let ends = found["ends"].as_array().cloned().unwrap_or_default();
        let publisher = ends.into_iter().find(|end| end["end"] == "publisher");
        publisher.map_or("unknown".into(), |end| end["asked"]["mark"].clone())
    }

    /// Runs a closure on a host.
    pub(crate) fn inside<T: Send>(&self, host: usize, body: impl FnOnce() -> T + Send) -> T {
        self.row.inside(host, body)
    }

    /// The user's requests to brokers at these addresses.
    pub(crate) fn client(&self, at: &str) -> Client {
        Client::new(at, &Keys::read(&self.house.path("keys"), Kind::User, "ann").unwrap())
    }

    /// A command of the user, on the broker's host.
    pub(crate) fn ask(&self, arguments: &str) -> Done {
        self.asks(arguments).finish()
    }

    /// The same, while it runs.
    pub(crate) fn asks(&self, arguments: &str) -> Running {
        self.start(1, &format!("{arguments} --user ann --broker {} --json", BROKER[1]))
    }

    fn apply(&self, plan: &str) -> Done {
        self.ask(&format!("apply {} --all", self.house.path(plan).display()))
    }

    /// Queues and classes of all devices.
    pub(crate) fn queues(&self) -> Vec<String> {
        let show = |(host, device): &(usize, &str)| {
            ["qdisc", "class"].map(|what| {
                let done = self.row.command(*host, "tc").args([what, "show", "dev", device]).output();
                String::from_utf8(done.unwrap().stdout).unwrap()
            })
        };
        DEVICES.iter().flat_map(show).collect()
    }

    /// `true` for each device that has queues of ours.
    fn ours(&self) -> Vec<bool> {
        self.queues().iter().step_by(2).map(|shown| shown.contains("7a1:") || shown.contains("7a3:")).collect()
    }

    fn until(&self, what: &str, fits: impl Fn(&Self) -> bool) {
        let until = Instant::now() + LONG;
        while !fits(self) {
            assert!(Instant::now() < until, "{what}: {:#?} {:?}", self.queues(), self.ask("hosts").lines);
        }
    }

    pub(crate) fn host(&self, name: &str) -> Value {
        let done = self.ask("hosts");
        let hosts: Value = serde_json::from_str(&done.lines[0]).unwrap();
        hosts.as_array().unwrap().iter().find(|host| host["host"] == name).cloned().unwrap_or_default()
    }
}

/// A session with a topic from `a` to `b` of so many bytes at 50 Hz.
pub(crate) fn session(name: &str, bytes: u32) -> String {
    format!(
        "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"{bytes} B\"\nrate = \"50 Hz\"\npublisher = \"a\"\n\
         [[subscriber]]\ntopic = {name:?}\nnode = \"b\"\ndeadline = \"60 ms\"\n"
    )
}
