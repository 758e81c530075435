//! A plan on all hosts: a broker and three agents on hosts in a row (network namespaces), a – g – b.
#![allow(clippy::unwrap_used)]

use crate::support;
use agent::client::Client;
use agent::identity::Kind;
use agent::keys::Keys;
use rustix::process::Signal;
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

#[test]
fn a_plan_is_on_all_its_hosts_or_on_none() {
    let Some(domain) = Domain::new("a plan on all hosts") else { return };
    let before = domain.queues();
    let _broker = domain.broker();
    let agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("all agents are heard", |domain| HOSTS.iter().all(|host| !domain.host(host).is_null()));

    let applied = domain.apply("plan.toml").json();
    assert_eq!(applied["hosts"].as_array().unwrap().len(), 3, "{applied}");
    assert_eq!(domain.ours(), [true; 4]);
    let installed = domain.queues();

    // One of them cannot: all get back what they had.
    let refused = domain.apply("other.toml");
    assert_eq!(refused.code(), 1, "{:?}", refused.lines);
    assert!(refused.errors.contains("b refused") && refused.errors.contains("nothing"), "{}", refused.errors);
    domain.until("all have the former plan", |domain| HOSTS.iter().all(|host| domain.host(host)["state"] == "applied"));
    assert_eq!(domain.queues(), installed);

    // A queue of a channel's own is counted by its name.
    let own = CONTRACT.replace("publisher = \"a\"\n", "publisher = \"a\"\nown_queue = true\n");
    domain.plan("own", &own.replace("20 ms", "60 ms"));
    assert_eq!(domain.apply("own.toml").code(), 0);
    domain.until("the own queue is counted", |domain| {
        let queues = domain.host("a")["queues"].as_array().cloned().unwrap_or_default();
        queues.iter().any(|queue| queue["own"]["topic"] == "state" && queue["own"]["subscriber"] == "/state@b")
    });
    let shown = domain.ask("hosts --queues");
    assert!(shown.code() == 0 && shown.lines.concat().contains("\"own\""), "{:?}", shown.lines);

    // A host that the plan leaves out gets back its former queues.
    assert_eq!(domain.apply("half.toml").code(), 0);
    domain.until("two devices have queues", |domain| domain.ours() == [true, true, false, false]);

    let restored = domain.ask("restore --all").json();
    assert_eq!(restored["hosts"].as_array().unwrap().len(), 2, "{restored}");
    assert_eq!(domain.queues(), before);
    for agent in agents {
        assert_eq!(agent.interrupt().code(), 0);
    }
}

#[test]
fn what_somebody_changes_is_changed_back_and_a_crash_changes_nothing() {
    let Some(domain) = Domain::new("an agent looks after its queues") else { return };
    let broker = domain.broker();
    let agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("all agents are heard", |domain| HOSTS.iter().all(|host| !domain.host(host).is_null()));
    assert_eq!(domain.apply("plan.toml").code(), 0);
    let installed = domain.queues();

    let tc = |line: &str| {
        let done = domain.row.command(0, "tc").args(line.split_whitespace()).output();
        done.is_ok_and(|done| done.status.success())
    };
    assert!(tc("qdisc del dev eth root"));
    domain.until("it is made anew", |domain| domain.queues() == installed);
    domain.until("it is reported", |domain| domain.host("a")["repairs"].as_u64().is_some_and(|repairs| repairs > 0));

    // The broker dies and starts again: traffic and queues do not notice, agents hear and report.
    broker.signal(Signal::KILL);
    drop(broker);
    assert_eq!(domain.queues(), installed);
    let _broker = domain.broker();
    domain.until("the broker knows them again", |domain| {
        HOSTS.iter().all(|host| domain.host(host)["state"] == "applied")
    });

    // An agent dies and starts again, beside a broker that is away.
    let [first, ..] = &agents;
    first.signal(Signal::KILL);
    let again = domain.agent(0);
    let said = again.json_line();
    assert_eq!(said["installed"][0], "eth", "{said}");
    assert_eq!(domain.queues(), installed);

    domain.ask("restore --all").json();
    assert!(!domain.ours().contains(&true));
}

#[test]
fn a_host_without_an_agent_is_named() {
    let Some(domain) = Domain::new("a host without an agent") else { return };
    let _broker = domain.broker();
    let _agents = [0, 1].map(|host| domain.agent(host));
    domain.until("both agents are heard", |domain| HOSTS[..2].iter().all(|host| !domain.host(host).is_null()));
    let before = domain.queues();
    let refused = domain.apply("plan.toml");
    assert_eq!(refused.code(), 1, "{:?}", refused.lines);
    assert!(refused.errors.contains("from b: is `thalweg agent` running there?"), "{}", refused.errors);
    domain.until("the others have it no more", |domain| domain.queues() == before);
    let foreign = domain.house.path("foreign");
    domain.house.run(&format!("keys init foreign {}", foreign.display()));
    domain.house.run(&format!("keys issue user ann --dir {}", foreign.display()));
    let mut command = domain.row.command(1, env!("CARGO_BIN_EXE_thalweg"));
    command.args(["hosts", "--user", "ann", "--broker", BROKER[1], "--keys"]).arg(foreign);
    let stranger = Running::start(command).finish();
    assert_eq!(stranger.code(), 3, "{:?} {}", stranger.lines, stranger.errors);
}

/// A session with a topic from `a` to `b` of so many bytes at 50 Hz.
pub(crate) fn session(name: &str, bytes: u32) -> String {
    format!(
        "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"{bytes} B\"\nrate = \"50 Hz\"\npublisher = \"a\"\n\
         [[subscriber]]\ntopic = {name:?}\nnode = \"b\"\ndeadline = \"60 ms\"\n"
    )
}

#[test]
fn a_session_is_active_on_all_hosts_or_on_none() {
    let Some(domain) = Domain::new("sessions of a domain") else { return };
    let before = domain.queues();
    let contract = domain.house.path("plan-contract.toml");
    let _broker = domain.broker_with(&format!("--contract {}", contract.display()));
    let agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("the contract's queues are there", |domain| {
        HOSTS.iter().all(|host| domain.host(host)["state"] == "applied")
    });
    let without = domain.queues();
    let ask = |name: &str, bytes: u32| {
        let file = domain.house.path(&format!("{name}.toml"));
        std::fs::write(&file, session(name, bytes)).unwrap();
        domain.ask(&format!("session request {} --patience 2s", file.display()))
    };

    let file = domain.house.path("camera.toml");
    std::fs::write(&file, session("camera", 8000)).unwrap();
    let offered = domain.ask(&format!("session request {} --dry-run", file.display())).json();
    assert_eq!(offered["state"], "fits", "{offered}");
    assert_eq!((domain.queues(), domain.ask("session list").json()), (without.clone(), serde_json::json!([])));

    let camera = ask("camera", 8000).json();
    assert_eq!(camera["channels"], offered["channels"], "as it was offered");
    assert_eq!((&camera["state"], &camera["channels"][0]["topic"]), (&"active".into(), &"camera".into()), "{camera}");
    let bound = camera["channels"][0]["bound_us"].as_f64().unwrap();
    assert!(bound > 1000.0 * 8.0 * 8.0 / 10.0 && bound < 60_000.0, "{camera}");
    let with = domain.queues();

    // More than the links can carry beside it: refused with offers, and nothing is touched.
    let refused = ask("lidar", 20_000);
    assert_eq!(refused.code(), 1, "{:?} {}", refused.lines, refused.errors);
    let refused: Value = serde_json::from_str(&refused.lines[0]).unwrap();
    assert!(!refused["refusals"][0]["offers"].as_array().unwrap().is_empty(), "{refused}");
    assert_eq!(domain.queues(), with);

    // A host that does not answer: none has it.
    let [first, second, third] = agents;
    third.signal(Signal::KILL);
    drop(third);
    let late = ask("log", 100);
    assert_eq!(late.code(), 1, "{:?} {}", late.lines, late.errors);
    assert!(late.errors.contains("waits for b") && late.errors.contains("all hosts get back"), "{}", late.errors);
    let third = domain.agent(2);
    domain.until("all have what was before", |domain| HOSTS.iter().all(|host| domain.host(host)["state"] == "applied"));
    assert_eq!(domain.queues(), with);
    let all = domain.ask("session list").json();
    assert_eq!(all.as_array().unwrap().iter().map(|one| &one["session"]).collect::<Vec<_>>(), ["camera"]);

    // One that lasts as long as its command.
    let leased = session("held", 100).replacen('\n', "\nlease = \"2 s\"\n", 1);
    std::fs::write(&file, leased).unwrap();
    let line = format!("session request {} --hold --json --user ann --broker {}", file.display(), BROKER[1]);
    let held = domain.start(1, &line);
    assert_eq!(held.json_line()["state"], "active");
    let listed = domain.ask("session list").json();
    assert!(listed[1]["lease_left_ms"].as_u64().is_some_and(|left| left <= 2000), "{listed}");
    let watch = domain.start(1, &format!("session watch held --json --user ann --broker {}", BROKER[1]));
    assert_eq!(watch.json_line()["session"], "held");
    assert_eq!(held.interrupt().code(), 0);
    assert_eq!(watch.json_line()["state"], "stopped");
    assert_eq!(watch.interrupt().code(), 0);

    domain.ask("session stop camera").json();
    domain.until("the contract's queues are back", |domain| {
        HOSTS.iter().all(|host| domain.host(host)["state"] == "applied") && domain.queues() == without
    });
    domain.ask("restore --all").json();
    assert_eq!(domain.queues(), before);
    for agent in [first, second, third] {
        assert_eq!(agent.interrupt().code(), 0);
    }
}

/// A publisher that sends five times as much as the contract says gets no more through, and all when the plan is taken back.
#[test]
fn a_publisher_beyond_its_contract_is_policed_by_its_agent() {
    let Some(domain) = Domain::new("policing") else { return };
    let _broker = domain.broker();
    let _agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("all agents are heard", |domain| HOSTS.iter().all(|host| !domain.host(host).is_null()));
    let policed = CONTRACT.replace("publisher = \"a\"", "publisher = \"a\"\njitter = \"5 ms\"\npolice = true");
    domain.plan("policed", &policed.replace("20 ms", "60 ms"));
    assert_eq!(domain.apply("policed.toml").code(), 0);
    let subscriber = domain.program(2, "sub /state --json");
    let _publisher = domain.program(0, "pub /state --port /out --rate 500 --size 90");
    // Of so many samples in a row, the number that were published meanwhile.
    let published = |count: u64| {
        let seq = || subscriber.json_line()["seq"].as_u64().unwrap();
        let first = seq();
        for _ in 1..count {
            seq();
        }
        seq() - first
    };
    let until = Instant::now() + LONG;
    while published(100) < 400 {
        assert!(Instant::now() < until, "{:?}", domain.administer("get /out /b/state/sub1").lines);
    }
    let told = domain.administer("get /out /b/state/sub1");
    assert!(told.lines[0].contains("\"largest\":100"), "{:?} {}", told.lines, told.errors);
    domain.ask("restore --all").json();
    while published(100) > 101 {
        assert!(Instant::now() < until, "{:?}", domain.administer("get /out /b/state/sub1").lines);
    }
}

/// A rule of the contract keeps a user from more, and what went through a session is in the accounts.
#[test]
fn a_session_has_what_a_rule_permits_and_is_accounted_for() {
    let Some(domain) = Domain::new("accounts") else { return };
    let rules = "[[rule]]\nname = \"operators\"\nusers = [\"ann\"]\nsessions = 1\n";
    let file = |name: &str, text: &str| {
        std::fs::write(domain.house.path(name), text).unwrap();
        domain.house.path(name).display().to_string()
    };
    let contract = file("system.toml", &format!("{CONTRACT}{rules}"));
    let (camera, map) = (file("camera.toml", &session("camera", 800)), file("map.toml", &session("map", 10)));
    let broker = domain.broker_with(&format!("--contract {contract}"));
    let _agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("all agents are heard", |domain| HOSTS.iter().all(|host| !domain.host(host).is_null()));
    domain.ask(&format!("session request {camera}")).json();
    let refused = domain.ask(&format!("session request {map}"));
    assert!(refused.code() == 1 && refused.lines[0].contains("rule operators: sessions"), "{refused:?}");

    let _subscriber = domain.program(2, "sub /camera --json");
    let _publisher = domain.program(0, "pub /camera --port /out --rate 50 --size 800");
    let counted = |host: &str| {
        let ends = domain.host(host)["ends"].as_array().cloned().unwrap_or_default();
        let end = ends.into_iter().find(|end| end["topic"] == "camera");
        end.and_then(|end| end["counts"]["samples"].as_u64()).unwrap_or(0)
    };
    domain.until("both ends are counted", |_| counted("a") > 0 && counted("b") > 0);
    let first = (counted("a"), counted("b"));
    domain.until("they go on", |_| counted("a") > first.0 && counted("b") > first.1);
    domain.ask("session stop camera").json();
    let saved = domain.house.path("accounts.jsonl").display().to_string();
    let audit = domain.ask(&format!("audit --save {saved}")).json();
    let had = &audit["sessions"][0];
    assert_eq!((&audit["last"], &had["session"], &had["active"]), (&2.into(), &"camera".into(), &false.into()));
    for side in ["sent", "received"] {
        let Counted { samples, bytes } = Counted::of(&had["traffic"][side]);
        assert!(samples > 0 && bytes == samples * 800, "{audit}");
    }
    drop(broker);
    let head = audit["head"].as_str().unwrap();
    let check = |head: &str| domain.house.run(&format!("audit {saved} --head {head} --json"));
    assert_eq!(check(head).json(), audit, "without a broker");
    let said = |line: &str| domain.house.run(line).lines.last().cloned().unwrap_or_default();
    assert_eq!(
        [format!("audit {saved}"), format!("audit {saved} --head {head}")].map(|line| said(&line)),
        [
            format!("records 1 to 2 fit together; later, --head {head} proves that none of them was changed"),
            "records 1 to 2 fit together, and none from 1 to 2 was changed since its hash was noted".to_owned(),
        ]
    );
    let text = std::fs::read_to_string(&saved).unwrap();
    std::fs::write(&saved, text.replacen("320000", "319999", 1)).unwrap();
    let changed = check(head);
    assert!(changed.code() == 1 && changed.errors.contains("record 1 or 2 was changed"), "{changed:?}");
}

struct Counted {
    samples: u64,
    bytes: u64,
}

impl Counted {
    fn of(counts: &Value) -> Self {
        let number = |key: &str| counts[key].as_u64().unwrap();
        Self { samples: number("samples"), bytes: number("bytes") }
    }
}

/// The camera is thinned while the right link is slow, suspended while it is cut, and as before when it is back.
#[test]
fn a_session_gives_way_while_a_link_is_slow_or_cut() {
    let Some(domain) = Domain::new("links that are slow or cut") else { return };
    domain.plan("patient", &CONTRACT.replace("20 ms", "200 ms"));
    let contract = domain.house.path("patient-contract.toml");
    let _broker = domain.broker_with(&format!("--contract {}", contract.display()));
    let _agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("the contract's queues are there", |domain| {
        HOSTS.iter().all(|host| domain.host(host)["state"] == "applied")
    });
    let without = domain.queues();
    let file = domain.house.path("camera.toml");
    let text = session("camera", 8000).replace("deadline = \"60 ms\"", "deadline = \"900 ms\"\nscale_max = 8");
    std::fs::write(&file, text).unwrap();
    assert_eq!(domain.ask(&format!("session request {}", file.display())).json()["state"], "active");
    let camera = || domain.ask("session show camera").json();
    let subscriber = domain.program(2, "sub /camera --json");
    let _publisher = domain.program(0, "pub /camera --port /out --rate 50 --size 8000");
    // Samples that are one of `every`, twice in a row.
    let arrives = |every: u64| {
        let (until, mut last, mut in_a_row) = (Instant::now() + LONG, 0, 0);
        while in_a_row < 2 {
            let sample = subscriber.json_line();
            let seq = sample["seq"].as_u64().unwrap();
            in_a_row = if seq == last + every { in_a_row + 1 } else { 0 };
            last = seq;
            assert!(Instant::now() < until, "every {every}: {sample} {}", camera());
        }
    };
    arrives(1);
    let with = domain.queues();

    let links = domain.ask("links right --rate 1Mbit/s").json();
    assert_eq!(
        (&links["links"][1]["carries_bits_per_s"], &links["links"][1]["stated"]),
        (&1_000_000.into(), &true.into())
    );
    let every = camera()["channels"][0]["scale"].as_u64().unwrap();
    assert!((2..=8).contains(&every), "{}", camera());
    arrives(every);
    domain.until("the queues are slower", |domain| domain.queues().concat().contains("rate 1Mbit"));

    let began = Instant::now();
    let set = |state| {
        let line = ["link", "set", "dev", "gb", state];
        assert!(domain.row.command(1, "ip").args(line).status().unwrap().success());
    };
    set("down");
    domain.until("the camera is suspended", |_| camera()["state"] == "suspended");
    println!("FIGURE domain: a cut link is seen, and its session suspended, within {:.2?}", began.elapsed());
    let links = domain.ask("links").json();
    assert_eq!((&links["links"][1]["carries_bits_per_s"], &links["left_out"][0]), (&0.into(), &"/state@b".into()));
    assert!(camera()["because"].as_str().unwrap().contains("no way leads to /camera@b: down is right"), "{}", camera());

    set("up");
    domain.ask("links right --clear").json();
    domain.until("the camera is active", |_| camera()["state"] == "active" && camera()["channels"][0]["scale"] == 1);
    arrives(1);
    domain.until("the queues are as before", |domain| domain.queues() == with);
    domain.ask("session stop camera").json();
    domain.until("the contract's queues are back", |domain| domain.queues() == without);

    // A device that is gone keeps the host's other one from nothing, and nobody waits for the host behind it.
    assert!(domain.row.command(1, "ip").args(["link", "delete", "dev", "gb"]).status().unwrap().success());
    domain.until("the link is down", |domain| domain.ask("links").json()["links"][1]["carries_bits_per_s"] == 0);
    let near = domain.house.path("near.toml");
    std::fs::write(&near, session("near", 100).replace("node = \"b\"", "node = \"g\"")).unwrap();
    assert_eq!(domain.ask(&format!("session request {}", near.display())).json()["state"], "active");
    assert!(["a", "g"].iter().all(|host| domain.host(host)["state"] == "applied"), "{:?}", domain.ask("hosts").lines);
}

/// The ends of a plan's channel get its class when their programs start, and lose it with the plan.
#[test]
fn channels_follow_the_plan_as_their_programs_start() {
    let Some(domain) = Domain::new("channels of a plan") else { return };
    let _broker = domain.broker();
    let agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("all agents are heard", |domain| HOSTS.iter().all(|host| !domain.host(host).is_null()));
    let subscriber = domain.program(2, "sub /state --json");
    domain.plan("high", &CONTRACT.replace("publisher = \"a\"", "publisher = \"a\"\nclass = \"high\""));
    assert_eq!(domain.apply("high.toml").code(), 0);
    let publisher = domain.program(0, "pub /state --port /out --rate 100 --size 100");
    let ends = |host: &str| domain.host(host)["ends"].clone();
    domain.until("both ends are reported", |_| ["a", "b"].iter().all(|host| ends(host)[0]["subscriber"] == "/state@b"));
    assert_eq!((&ends("a")[0]["end"], &ends("b")[0]["end"]), (&"publisher".into(), &"subscriber".into()));
    assert!(ends("a")[0]["because"].is_null() && ends("g").is_null(), "{} {}", ends("a"), ends("g"));

    // A program that starts again has it again.
    assert_eq!(publisher.interrupt().code(), 0);
    domain.until("its end is gone", |_| ends("a").is_null());
    let _publisher = domain.program(0, "pub /state --port /out --rate 100 --size 100");
    domain.until("its end is back", |_| ends("a")[0]["end"] == "publisher");

    // The kernels of its way count its packets in its class.
    let high = |host: &str, device: &str| {
        let queues = domain.host(host)["queues"].as_array().cloned().unwrap_or_default();
        queues.into_iter().find(|queue| queue["device"] == device && queue["class"] == "high").unwrap_or_default()
    };
    domain.until("its packets are counted", |_| {
        [("a", "eth"), ("g", "gb")].iter().all(|(host, device)| high(host, device)["packets"].as_u64() > Some(100))
    });
    assert_eq!(high("a", "eth")["dropped"], 0, "{}", domain.host("a"));

    // What only one plan states goes with it, though the channel stays.
    let scaled = |wanted: bool| {
        let until = Instant::now() + LONG;
        while subscriber.json_line()["scaled"].is_null() == wanted {
            assert!(Instant::now() < until, "scaled: {wanted}");
        }
    };
    let high = CONTRACT.replace("publisher = \"a\"", "publisher = \"a\"\nclass = \"high\"");
    domain.plan("scaled", &high.replace("deadline = \"20 ms\"", "scale = 2\ndeadline = \"60 ms\""));
    assert_eq!(domain.apply("scaled.toml").code(), 0);
    scaled(true);
    assert_eq!(domain.apply("high.toml").code(), 0);
    scaled(false);

    // What somebody else sets is set back.
    let asked = || domain.asked("/out /b/state/sub1");
    let high = asked();
    assert!(high.to_string().contains("high"), "{high}");
    let other = domain.administer("set /out /b/state/sub1 class=low --end publisher");
    assert!(other.code() == 0 && other.lines[0].contains("low"), "{:?} {}", other.lines, other.errors);
    domain.until("it is changed back", |_| asked() == high);

    domain.ask("restore --all").json();
    domain.until("no end has it", |_| asked().is_null());
    drop(subscriber);
    for agent in agents {
        assert_eq!(agent.interrupt().code(), 0);
    }
}
