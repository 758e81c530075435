//! The places: three domains in a row, and one domain whose sessions change its queues.

use super::eventually;
use crate::domain::{self, Domain};
use crate::domains::{self, DOMAINS, Domains};
use crate::support::{Done, Running};
use serde_json::Value;

/// The session that is asked for.
const SESSION: &str = "probe";

/// Hosts with processes, and a session that can be asked for.
pub trait Place: Sized + Sync {
    const NAME: &'static str;
    /// Its brokers and agents.
    const PROCESSES: &'static [&'static str];

    /// `None` if it cannot be made here; the reason is printed.
    fn new() -> Option<Self>;
    fn start(&self, process: usize) -> Running;
    /// All hosts have what they have to have.
    fn is_installed(&self) -> bool;
    /// A subscriber and a publisher, admitted.
    fn programs(&self) -> [Running; 2];
    fn request(&self) -> Running;
    fn stop(&self) -> Running;
    /// `Some(true)` if the session is active in all domains, `Some(false)` if nothing of it is held in any, and all hosts have said that they have
    /// the newest plan.
    fn settled(&self) -> Option<bool>;
    /// The queues of all hosts.
    fn queues(&self) -> Vec<String>;
    /// All that [`Self::settled`] looks at.
    fn shown(&self) -> String;
}

impl Place for Domains {
    const NAME: &'static str = "three brokers and their agents";
    const PROCESSES: &'static [&'static str] =
        &["broker of robot", "broker of wan", "broker of base", "agent of cam", "agent of rw", "agent of wb"];

    fn new() -> Option<Self> {
        Self::new("processes of three domains that are killed")
    }

    fn start(&self, process: usize) -> Running {
        match process.checked_sub(DOMAINS.len()) {
            None => self.broker(process),
            Some(domain) => self.agent(domain),
        }
    }

    fn is_installed(&self) -> bool {
        // Its exit code is 1 until they have.
        let is_applied = |done: Done| done.lines.iter().any(|line| json(line)[0]["state"] == "applied");
        (0..DOMAINS.len()).all(|domain| is_applied(self.ask(domain, "hosts")))
    }

    fn programs(&self) -> [Running; 2] {
        let session = domains::session("video", 934, "desk", "100 ms");
        eventually("the session of the traffic", || (self.request(&session).code() == 0).then_some(()));
        let subscriber = self.program(3, "sub /video --port /viewer --json");
        [subscriber, self.program(0, "pub /video --port /out --rate 20 --size 900 --session video")]
    }

    fn request(&self) -> Running {
        let file = self.house.path("probe.toml");
        std::fs::write(&file, domains::session(SESSION, 934, "desk", "100 ms")).unwrap();
        self.asks(0, &format!("session request {} --patience 10s", file.display()))
    }

    fn stop(&self) -> Running {
        self.asks(0, &format!("session stop {SESSION}"))
    }

    fn settled(&self) -> Option<bool> {
        let active = state(&self.ask(0, "session list").json())?;
        let sold = if active { 320_000.0 } else { 160_000.0 };
        (self.sold() == [sold; 3] && self.is_installed()).then_some(active)
    }

    fn queues(&self) -> Vec<String> {
        self.settings()
    }

    fn shown(&self) -> String {
        let of = |domain: usize| ["session list", "session pipes", "hosts"].map(|line| self.ask(domain, line).lines);
        (0..DOMAINS.len()).map(|domain| format!("\n{}: {:?}", DOMAINS[domain], of(domain))).collect()
    }
}

impl Place for Domain {
    const NAME: &'static str = "a broker and three agents";
    const PROCESSES: &'static [&'static str] = &["broker of base", "agent of a", "agent of g", "agent of b"];

    fn new() -> Option<Self> {
        Self::new("processes of a domain that are killed")
    }

    fn start(&self, process: usize) -> Running {
        match process.checked_sub(1) {
            None => self.broker_with(&format!("--contract {}", self.house.path("plan-contract.toml").display())),
            Some(host) => self.agent(host),
        }
    }

    fn is_installed(&self) -> bool {
        domain::HOSTS.iter().all(|host| self.host(host)["state"] == "applied")
    }

    fn programs(&self) -> [Running; 2] {
        [self.program(2, "sub /state --json"), self.program(0, "pub /state --port /out --rate 100 --size 100")]
    }

    fn request(&self) -> Running {
        let file = self.house.path("probe.toml");
        std::fs::write(&file, domain::session(SESSION, 8000)).unwrap();
        self.asks(&format!("session request {} --patience 10s", file.display()))
    }

    fn stop(&self) -> Running {
        self.asks(&format!("session stop {SESSION}"))
    }

    fn settled(&self) -> Option<bool> {
        let active = state(&self.ask("session list").json())?;
        self.is_installed().then_some(active)
    }

    fn queues(&self) -> Vec<String> {
        self.queues()
    }

    fn shown(&self) -> String {
        format!("{:?}", ["session list", "hosts"].map(|line| self.ask(line).lines))
    }
}

/// `Some(true)`: the session is active; `Some(false)`: there is none.
fn state(sessions: &Value) -> Option<bool> {
    let found = sessions.as_array().unwrap().iter().find(|one| one["session"] == SESSION);
    found.map_or(Some(false), |one| (one["state"] == "active").then_some(true))
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}
