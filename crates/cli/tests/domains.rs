//! A session over three domains: hosts in a row (network namespaces), cam – rw – wb – desk, a broker for each domain, and agents.
#![allow(clippy::unwrap_used)]

use crate::support;
use agent::client::{Client, ClientError};
use agent::identity::Kind;
use agent::keys::Keys;
use serde_json::Value;
use std::time::Instant;
pub(crate) use support::DOMAINS;
use support::{Chain, Done, HOSTS, LONG, Running, Testbed, neighbours};

/// The hosts' devices.
const DEVICES: [(usize, &str); 6] = [(0, "next"), (1, "last"), (1, "next"), (2, "last"), (2, "next"), (3, "last")];

/// The contract of a domain: one link, a pipe of each kind, its neighbours.
pub(crate) fn contract(domain: usize) -> String {
    let [from, to] = [HOSTS[domain], HOSTS[domain + 1]];
    let pipe = |class: &str, rate: u32, deadline: u32, price: u32| {
        format!(
            "[[pipe]]\nfrom = {from:?}\nto = {to:?}\nclass = {class:?}\nrate = \"{rate} kbit/s\"\nburst = \"9 kB\"\nlargest = \"1 kB\"\n\
             deadline = \"{deadline} ms\"\nprice = {price}\n"
        )
    };
    // The way back is another domain's matter: one device for each host of the plan.
    format!(
        "[[node]]\nname = {from:?}\n[[node]]\nname = {to:?}\n[[link]]\nname = \"line\"\nbetween = [{from:?}, {to:?}]\nrate = \"10 Mbit/s\"\n\
         scheduler = \"htb\"\nshares = {{ critical = \"10 %\", high = \"40 %\", normal = \"30 %\", low = \"20 %\" }}\ndevices = {{ {from} = \"next\" }}\n{}{}{}",
        pipe("high", 400, 25, 5),
        pipe("low", 800, 60, 1),
        neighbours(domain),
    )
}

pub(crate) struct Domains {
    chain: Chain,
    pub(crate) house: Testbed,
    contract: fn(usize) -> String,
}

impl Domains {
    pub(crate) fn new(test: &str) -> Option<Self> {
        Self::with(test, contract)
    }

    /// The same with other contracts.
    pub(crate) fn with(test: &str, contract: fn(usize) -> String) -> Option<Self> {
        if !support::has_nft(test) {
            return None;
        }
        let domains = Self { chain: Chain::new(test, HOSTS.len())?, house: Testbed::new(), contract };
        let keys = domains.house.path("keys").display().to_string();
        let brokers = DOMAINS.iter().map(|name| format!("broker {name}"));
        let hosts = HOSTS.iter().map(|name| format!("host {name}"));
        let parties = brokers.chain(hosts).chain(["user ann".to_owned()]);
        let lines = std::iter::once(format!("keys init world {keys}"));
        for line in lines.chain(parties.map(|party| format!("keys issue {party} --dir {keys}"))) {
            assert_eq!(domains.house.run(&line).code(), 0, "{line}");
        }
        Some(domains)
    }

    /// `thalweg` on a host, with its keys.
    fn start(&self, host: usize, arguments: &str) -> Running {
        let mut command = self.chain.command(host, env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments.split_whitespace()).arg("--keys").arg(self.house.path("keys"));
        command.env("THALWEG_RUN_DIR", self.house.path(&format!("run{host}")));
        Running::start(command)
    }

    pub(crate) fn broker(&self, domain: usize) -> Running {
        self.broker_with(domain, "")
    }

    fn broker_with(&self, domain: usize, more: &str) -> Running {
        let (name, state) = (DOMAINS[domain], self.house.path(DOMAINS[domain]));
        let file = self.house.path(&format!("{name}.toml"));
        std::fs::write(&file, (self.contract)(domain)).unwrap();
        let line = format!(
            "broker --name {name} --listen 0.0.0.0:7450 --contract {} --state {} --json {more}",
            file.display(),
            state.display()
        );
        let broker = self.start(domain, &line);
        assert_eq!(broker.json_line()["listening"], "0.0.0.0:7450");
        broker
    }

    /// The agent of the host from which a domain's link leads.
    pub(crate) fn agent(&self, domain: usize) -> Running {
        let (name, state) = (HOSTS[domain], self.house.path("agent"));
        let line = format!("agent --host {name} --broker 127.0.0.1:7450 --state {} --json", state.display());
        let agent = self.start(domain, &line);
        assert_eq!(agent.json_line()["agent"], name);
        agent
    }

    /// A program on a host, with its node.
    pub(crate) fn program(&self, host: usize, arguments: &str) -> Running {
        let nodes = self.house.path("nodes.toml");
        let at = [(0, "10.97.0.1:7001"), (3, "10.97.2.2:7001")];
        std::fs::write(&nodes, at.map(|(_, at)| format!("[[node]]\naddress = \"{at}\"\n")).concat()).unwrap();
        let own = at.iter().find(|(of, _)| *of == host).unwrap().1;
        let mut command = self.chain.command(host, env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments.split_whitespace());
        command.args(["--name", HOSTS[host], "--listen", own, "--discovery", &format!("static:{}", nodes.display())]);
        command.env("THALWEG_RUN_DIR", self.house.path(&format!("run{host}")));
        Running::start(command)
    }

    /// A command of the user at a domain's broker.
    pub(crate) fn ask(&self, domain: usize, arguments: &str) -> Done {
        self.asks(domain, arguments).finish()
    }

    /// The same, while it runs.
    pub(crate) fn asks(&self, domain: usize, arguments: &str) -> Running {
        self.start(domain, &format!("{arguments} --user ann --broker 127.0.0.1:7450 --json"))
    }

    /// Asks a domain's broker as the user, without a command; `None`: it does not answer.
    pub(crate) fn asked<T: Send>(
        &self,
        domain: usize,
        ask: impl FnOnce(&Client) -> Result<T, ClientError> + Send,
    ) -> Option<T> {
        let keys = Keys::read(&self.house.path("keys"), Kind::User, "ann").unwrap();
        self.inside(domain, || ask(&Client::new("127.0.0.1:7450", &keys)).ok())
    }

    pub(crate) fn request(&self, text: &str) -> Done {
        let file = self.house.path("session.toml");
        std::fs::write(&file, text).unwrap();
        self.ask(0, &format!("session request {}", file.display()))
    }

    /// What is sold of each domain's pipes, bit/s.
    pub(crate) fn sold(&self) -> Vec<f64> {
        let of = |domain: usize| {
            let pipes = self.ask(domain, "session pipes").json();
            pipes.as_array().unwrap().iter().map(|pipe| pipe["sold_bits_per_s"].as_f64().unwrap()).sum()
        };
        (0..DOMAINS.len()).map(of).collect()
    }

    /// Queues, classes and marking rules of all hosts.
    pub(crate) fn settings(&self) -> Vec<String> {
        let shown = |host: usize| {
            let devices = DEVICES.iter().filter(|(of, _)| *of == host).map(|(_, device)| {
                ["qdisc", "class", "filter"].map(|what| format!("tc {what} show dev {device}; ")).concat()
            });
            self.output(host, "sh", &["-c", &(devices.collect::<String>() + "nft list ruleset")])
        };
        (0..HOSTS.len()).map(shown).collect()
    }

    /// What a program prints on a host.
    pub(crate) fn output(&self, host: usize, program: &str, arguments: &[&str]) -> String {
        let done = self.chain.command(host, program).args(arguments).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    }

    /// Runs a closure on a host.
    pub(crate) fn inside<T: Send>(&self, host: usize, body: impl FnOnce() -> T + Send) -> T {
        self.chain.inside(host, body)
    }

    pub(crate) fn until(&self, what: &str, fits: impl Fn(&Self) -> bool) {
        let until = Instant::now() + LONG;
        while !fits(self) {
            assert!(Instant::now() < until, "{what}: {:?} {:?}", self.sold(), self.ask(0, "session list").lines);
        }
    }
}

/// A session from `cam` to `desk`, of so many bytes at 20 Hz.
pub(crate) fn session(name: &str, bytes: u32, node: &str, deadline: &str) -> String {
    format!(
        "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"{bytes} B\"\nrate = \"20 Hz\"\npublisher = \"cam\"\n\
         [[subscriber]]\ntopic = {name:?}\nnode = \"base/{node}\"\nname = \"/viewer\"\ndeadline = {deadline:?}\n"
    )
}

#[test]
fn a_session_over_three_domains_is_active_in_all_of_them_or_leaves_no_trace() {
    let Some(domains) = Domains::new("a session over three domains") else { return };
    let bare = domains.settings();
    let broker = |domain| domains.broker_with(domain, "--accounts-every 1s");
    let _brokers: Vec<Running> = (0..DOMAINS.len()).map(broker).collect();
    let _agents: Vec<Running> = (0..DOMAINS.len()).map(|domain| domains.agent(domain)).collect();
    let applied = |domains: &Domains, domain: usize| {
        let hosts = domains.ask(domain, "hosts").json();
        hosts[0]["state"] == "applied"
    };
    domains.until("all pipes are installed", |domains| (0..DOMAINS.len()).all(|domain| applied(domains, domain)));
    let without = domains.settings();
    assert_ne!(without, bare);

    // A program that joins a session which nobody asked for hears so.
    let join =
        |topic: &str| domains.program(0, &format!("pub /{topic} --port /out --rate 20 --size 900 --session {topic}"));
    let early = join("video").finish();
    assert_eq!(early.code(), 1, "{}", early.errors);
    assert!(early.errors.contains("session video: nobody has asked for it"), "{}", early.errors);

    // 934 B and 66 of overhead, 20 times a second.
    let admitted = domains.request(&session("video", 934, "desk", "100 ms")).json();
    assert_eq!(admitted["state"], "active", "{admitted}");
    let parts: Vec<(&str, f64)> = admitted["domains"].as_array().unwrap().iter().map(part).collect();
    assert_eq!(parts, [("robot", 25_000.0), ("wan", 25_000.0), ("base", 25_000.0)]);
    assert_eq!(domains.sold(), [160_000.0; 3]);
    assert_eq!(domains.settings(), without, "the pipes' queues were there before");

    // Its programs start: the first domain's agent gives the channel its class.
    let subscriber = domains.program(3, "sub /video --port /viewer --json");
    let publisher = join("video");
    for _ in 0..20 {
        assert_eq!(subscriber.json_line()["publisher"], "/out");
    }
    domains.until("the publisher's end is set", |domains| {
        let shown = domains.ask(0, "session show video").json();
        shown["channels"][0]["set"][0] == "publisher"
    });

    // Refused by the last domain: no host has another setting, and nothing is sold.
    for (text, what) in [
        (session("lidar", 934, "moon", "100 ms"), "node moon of domain base"),
        (session("lidar", 1500, "desk", "1 s"), "largest sample of pipe cam-rw"),
    ] {
        let refused = domains.request(&text);
        assert_eq!(refused.code(), 1, "{:?} {}", refused.lines, refused.errors);
        let said: Value = serde_json::from_str(&refused.lines[0]).unwrap();
        assert!(said["refusals"][0]["what"].as_str().is_some_and(|found| found.starts_with(what)), "{said}");
        assert_eq!((domains.sold(), domains.settings()), (vec![160_000.0; 3], without.clone()), "{what}");
    }
    let too_soon = domains.request(&session("lidar", 900, "desk", "50 ms"));
    let said: Value = serde_json::from_str(&too_soon.lines[0]).unwrap();
    let offer = &said["refusals"][0]["offers"][0]["changes"][0];
    assert_eq!(
        (&offer["name"], &offer["key"], &offer["value"]),
        (&"/viewer".into(), &"deadline".into(), &"\"75.001 ms\"".into()),
        "{said}"
    );

    assert_eq!(publisher.interrupt().code(), 0);
    let refused = join("lidar").finish();
    assert_eq!(refused.code(), 1, "{}", refused.errors);
    assert!(
        refused.errors.contains("deadline of /viewer") && refused.errors.contains("75.001 ms"),
        "{}",
        refused.errors
    );

    domains.ask(0, "session stop video").json();
    domains.until("nothing is sold", |domains| domains.sold() == [0.0; 3]);
    // Each domain has signed its accounts, and the domain before what it owes: start, stop, and each second between them. Only the first one
    // has heard of prices.
    for (domain, before, without_prices) in [(1, "robot", false), (2, "wan", true)] {
        domains.until("the domain before has signed", |domains| {
            let audit = domains.ask(domain, "audit").json();
            let [own, neighbour] = [0, 1].map(|at| audit["signatures"][at].clone());
            let whole = neighbour["last"].as_u64() >= last_of_session(domains, domain);
            assert!(own.is_null() || own["domain"] == DOMAINS[domain] && own["checked"] == true, "{audit}");
            assert!(neighbour.is_null() || neighbour["disputed"] == serde_json::json!([]), "{audit}");
            let expected = (&before.into(), &without_prices.into(), &true.into());
            whole && (&neighbour["domain"], &neighbour["without_prices"], &neighbour["checked"]) == expected
        });
    }
    let log = domains.ask(2, "session log video").json();
    let events: Vec<&str> = log.as_array().unwrap().iter().filter_map(|record| record["event"].as_str()).collect();
    assert_eq!(events, ["start", "stop"], "{log}");
    (0..DOMAINS.len()).for_each(|domain| drop(domains.ask(domain, "restore --all").json()));
    domains.until("all have what they had", |domains| domains.settings() == bare);
}

/// The number of the last record of a session in a domain's accounts.
fn last_of_session(domains: &Domains, domain: usize) -> Option<u64> {
    let saved = domains.house.path("saved.jsonl");
    let _ = std::fs::remove_file(&saved);
    domains.ask(domain, &format!("audit --save {}", saved.display())).json();
    let text = std::fs::read_to_string(&saved).unwrap();
    let mut records = text.lines().rev().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let stop = records.find(|record| record["event"] == "stop")?;
    stop["number"].as_u64()
}

fn part(part: &Value) -> (&str, f64) {
    (part["domain"].as_str().unwrap(), part["bound_us"].as_f64().unwrap())
}
