//! The places: three domains in a row, and one domain whose sessions change its queues.

use super::eventually;
use crate::domain::{self, Domain};
use crate::domains::{self, DOMAINS, Domains};
use crate::support::Running;
use agent::client::Client;
use agent::message::{Host, HostState, Session, SessionState};

/// The session that is asked for.
pub(super) const SESSION: &str = "probe";

/// Hosts with processes, and a session that can be asked for. Looks are requests of this process: a campaign looks often, and would take the processors for
/// commands that start.
pub trait Place: Sized + Sync {
    const NAME: &'static str;
    /// Its brokers and agents.
    const PROCESSES: &'static [&'static str];

    fn start(&self, process: usize) -> Running;
    /// A process has died, and is to start again.
    fn died(&self, _process: usize) {}
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

    fn start(&self, process: usize) -> Running {
        match process.checked_sub(DOMAINS.len()) {
            None => self.broker(process),
            Some(domain) => self.agent(domain),
        }
    }

    fn is_installed(&self) -> bool {
        let is_applied = |hosts: Vec<Host>| hosts.first().is_some_and(|host| host.state == HostState::Applied);
        (0..DOMAINS.len()).all(|domain| self.asked(domain, Client::hosts).is_some_and(is_applied))
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
        let active = state(&self.asked(0, Client::sessions)?)?;
        let expected = if active { 320_000.0 } else { 160_000.0 };
        let is_sold = |domain: usize| {
            let pipes = self.asked(domain, Client::pipes).unwrap_or_default();
            pipes.iter().map(|pipe| pipe.sold_bits_per_s).sum::<f64>() == expected
        };
        ((0..DOMAINS.len()).all(is_sold) && self.is_installed()).then_some(active)
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

    fn start(&self, process: usize) -> Running {
        match process.checked_sub(1) {
            None => self.broker_with(&format!("--contract {}", self.house.path("plan-contract.toml").display())),
            Some(host) => self.agent(host),
        }
    }

    fn is_installed(&self) -> bool {
        self.inside(1, || self.client(domain::BROKER[1]).hosts()).is_ok_and(|hosts| are_applied(&hosts))
    }

    fn programs(&self) -> [Running; 2] {
        [self.program(2, "sub /state --json"), self.program(0, "pub /state --port /out --rate 100 --size 100")]
    }

    fn request(&self) -> Running {
        self.asks(&format!("session request {} --patience 10s", file(self, SESSION, 8000)))
    }

    fn stop(&self) -> Running {
        self.asks(&format!("session stop {SESSION}"))
    }

    fn settled(&self) -> Option<bool> {
        let active = state(&self.inside(1, || self.client(domain::BROKER[1]).sessions()).ok()?)?;
        self.is_installed().then_some(active)
    }

    fn queues(&self) -> Vec<String> {
        self.queues()
    }

    fn shown(&self) -> String {
        format!("{:?}", ["session list", "hosts"].map(|line| self.ask(line).lines))
    }
}

/// The file of a session of so many bytes.
pub(super) fn file(at: &Domain, name: &str, bytes: u32) -> String {
    let file = at.house.path(&format!("{name}.toml"));
    std::fs::write(&file, domain::session(name, bytes)).unwrap();
    file.display().to_string()
}

/// `Some(true)`: the session is active; `Some(false)`: there is none.
pub(super) fn state(sessions: &[Session]) -> Option<bool> {
    let found = sessions.iter().find(|one| one.session == SESSION);
    found.map_or(Some(false), |one| (one.state == SessionState::Active).then_some(true))
}

/// All hosts of [`Domain`] have said that they have the newest plan.
pub(super) fn are_applied(hosts: &[Host]) -> bool {
    let is_applied = |name: &&str| hosts.iter().any(|one| one.host == *name && one.state == HostState::Applied);
    domain::HOSTS.iter().all(is_applied)
}
