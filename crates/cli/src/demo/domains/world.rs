//! Four hosts in a row (network namespaces) with lines between them; each line is a domain with a broker, and an agent on the host that it leads
//! from.

use crate::demo::PART_OF_LAB;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use agent::client::{Client, ClientError};
use agent::identity::Kind;
use agent::keys::{self, Keys};
use agent::message::{HostState, Session, SessionState};
use lab::load::{Generator, Load, Pattern, Protocol, Sink};
use lab::part::Place as At;
use lab::topology::{Edge, Graph, Topology};
use lab::{Lab, Options, Program};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The hosts, from 1 in the graph.
const HOSTS: [&str; 4] = ["cam", "rw", "wb", "desk"];
/// The domain from each host to the next one.
const DOMAINS: [&str; 3] = ["robot", "wan", "base"];
/// Rate of each domain's link, Mbit/s.
const RATES: [u64; 3] = [10, 2, 10];
/// What its fast and its slow pipe promise, ms.
const PROMISES: [[u64; 2]; 3] = [[10, 20], [40, 80], [10, 20]];
/// The link between domains, and the traffic beside, for people.
pub(super) const WAN: &str = "2 Mbit/s";
pub(super) const TRAFFIC: &str = "3 Mbit/s";
/// The same, bit/s.
const LOAD: u64 = 3_000_000;
/// A line is this much faster than its queue lets through, in percent: packets wait where marks count.
const ABOVE: u64 = 103;
/// Time in which brokers and agents have to be ready.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks.
const TICK: Duration = Duration::from_millis(50);

/// Hosts, lines and processes. Dropping it ends and removes them.
pub(super) struct World {
    processes: Vec<Process>,
    load: Option<(Generator, Sink)>,
    graph: Graph,
    lab: Lab,
}

impl World {
    /// Builds hosts and lines, without brokers.
    pub(super) fn build(realm: &str) -> Result<Self> {
        let program = Program::this(&[PART_OF_LAB]).map_err(Failure::from)?;
        let lab = Lab::open(Options::default(), lab::Stop::default(), program, |_| {})?;
        let edge = |(index, rate): (usize, u64)| Edge {
            between: [index as u8 + 1, index as u8 + 2],
            rate: rate * 10_000 * ABOVE,
        };
        let edges: Vec<Edge> = RATES.into_iter().enumerate().map(edge).collect();
        let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
        let graph = Graph::new(&lab, HOSTS.len() as u8, &edges, last as u16)?;
        let sink = Sink::new(&lab, At::at(graph.host(3), &[]), Topology::address_of(3))?;
        let generator = Generator::new(&lab, At::at(graph.host(2), &[]), sink.target)?;
        let world = Self { processes: Vec::new(), load: Some((generator, sink)), graph, lab };
        world.issue(realm).map_err(|e| Failure::System(e.to_string()))?;
        Ok(world)
    }

    fn keys(&self) -> PathBuf {
        self.lab.folder().join("keys")
    }

    fn issue(&self, realm: &str) -> std::result::Result<(), keys::KeyError> {
        let dir = self.keys();
        keys::init(realm, &dir)?;
        let brokers = DOMAINS.map(|name| (Kind::Broker, name)).into_iter();
        let parties = brokers.chain(HOSTS.map(|name| (Kind::Host, name))).chain([(Kind::User, "ann")]);
        parties.into_iter().try_for_each(|(kind, name)| keys::issue(&dir, kind, name, 1, &dir).map(drop))
    }

    /// The network namespace of a host.
    fn namespace(&self, host: usize) -> String {
        self.graph.host(host as u8 + 1).name().to_owned()
    }

    /// The address of a node on a host.
    pub(super) fn node(&self, host: usize) -> SocketAddr {
        SocketAddr::new(Topology::address_of(host as u8 + 1), 7400)
    }

    /// A file with the addresses of the nodes at both ends.
    pub(super) fn addresses(&self) -> Result<PathBuf> {
        let file = self.lab.folder().join("nodes.toml");
        let text: String = [0, 3].map(|host| format!("[[node]]\naddress = \"{}\"\n", self.node(host))).concat();
        std::fs::write(&file, text)?;
        Ok(file)
    }

    /// Starts the other traffic, over the wan's link.
    pub(super) fn begin(&mut self) -> Result {
        let Some((generator, _)) = &mut self.load else { return Ok(()) };
        let load = Load { protocol: Protocol::Udp, rate: LOAD, pattern: Pattern::Random(4), gso: false, seed: 1 };
        Ok(generator.start(&self.lab, &load)?)
    }

    /// Ends it.
    pub(super) fn end(&mut self) -> Result {
        let Some((generator, _)) = &mut self.load else { return Ok(()) };
        generator.stop(&self.lab)?;
        Ok(())
    }

    /// Starts brokers and agents, and waits until all pipes are installed.
    pub(super) fn administer(&mut self, realm: &str, stop: &Stop) -> Result {
        for (domain, name) in DOMAINS.iter().enumerate() {
            let contract = self.lab.folder().join(format!("{name}.toml"));
            std::fs::write(&contract, contract_of(domain))?;
            let state = self.lab.folder().join(name);
            let listen = broker_of(domain);
            let words = format!(
                "broker --name {name} --listen {listen} --contract {} --state {}",
                contract.display(),
                state.display()
            );
            self.administers(domain, &words)?;
            let state = self.lab.folder().join("agents");
            let (host, state) = (HOSTS[domain], state.display());
            self.administers(
                domain,
                &format!("agent --host {host} --broker {listen} --state {state} --realm {realm}"),
            )?;
        }
        let ready = |domain: usize| {
            let hosts = self.ask(domain, |client| client.hosts());
            hosts.is_ok_and(|hosts| hosts.iter().any(|host| host.planned && host.state == HostState::Applied))
        };
        wait(stop, "the pipes are not installed", || (0..DOMAINS.len()).all(ready).then_some(()))
    }

    /// Starts a broker or an agent.
    fn administers(&mut self, host: usize, words: &str) -> Result {
        let process = self.start(host, &format!("{words} --keys {}", self.keys().display()))?;
        self.processes.push(process);
        Ok(())
    }

    /// Starts this program on a host, with these arguments.
    pub(super) fn start(&self, host: usize, words: &str) -> Result<Process> {
        let program = std::env::current_exe()?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(&program).args(words.split_whitespace());
        // What agents note goes with the hosts.
        command.env("THALWEG_RUN_DIR", self.lab.folder().join("run"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| Failure::System(format!("cannot start {}: {e}", program.display())))?;
        Ok(Process(child))
    }

    /// Asks a domain's broker, from its own host.
    fn ask<T: Send>(
        &self,
        domain: usize,
        ask: impl FnOnce(&Client) -> std::result::Result<T, ClientError> + Send,
    ) -> std::result::Result<T, ClientError> {
        let unreachable = |what: &dyn std::fmt::Display| ClientError::Unreachable(what.to_string());
        let keys = Keys::read(&self.keys(), Kind::User, "ann").map_err(|e| unreachable(&e))?;
        let asked = self.graph.host(domain as u8 + 1).within(|| ask(&Client::new(&broker_of(domain), &keys)));
        asked.map_err(|e| unreachable(&e))?
    }

    /// Asks the robot's broker for a session, and waits until it is active.
    pub(super) fn request(
        &self,
        stop: &Stop,
        name: &str,
        text: &str,
    ) -> Result<std::result::Result<Session, ClientError>> {
        // Domains that have not heard of their hosts yet say so.
        let asked = wait(stop, "the domains are not ready", || {
            match self.ask(0, |client| client.request_session(name, text)) {
                Err(ClientError::Refused(503, _)) => None,
                other => Some(other),
            }
        })?;
        if asked.is_err() {
            return Ok(asked);
        }
        let active = || self.ask(0, |client| client.session(name)).ok().filter(|one| one.state == SessionState::Active);
        // The agent gives the running channel its class within a second.
        let set = || active().filter(|session| session.channels.iter().all(|channel| !channel.set.is_empty()));
        wait(stop, "the session is not active", set).map(Ok)
    }

    /// Takes the carrier of the wan's line away at its sending end, or gives it back.
    pub(super) fn cut(&self, cut: bool) -> Result {
        let (namespace, device) = (self.namespace(1), device_of(1));
        let carrier = if cut { "off" } else { "on" };
        let words = ["-n", &namespace, "link", "set", "dev", &device, "carrier", carrier];
        let done = Command::new("ip").args(words).output()?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        Err(Failure::System(format!("ip {}: {said}", words.join(" "))))
    }

    /// Waits until the robot's broker tells that a session runs no more, and gives its reason.
    pub(super) fn ended(&self, stop: &Stop, name: &str) -> Result<String> {
        let ended = || {
            let session = self.ask(0, |client| client.session(name)).ok()?;
            (session.state == SessionState::Refused).then(|| session.because.unwrap_or_default())
        };
        wait(stop, "the session goes on", ended)
    }

    /// Asks for a session again and again, until it is active.
    pub(super) fn regained(&self, stop: &Stop, name: &str, text: &str) -> Result<Session> {
        let active = || {
            let asked = self.ask(0, |client| client.request_session(name, text)).ok()?;
            (asked.state == SessionState::Active).then_some(asked)
        };
        wait(stop, "the session is not admitted again", active)
    }
}

/// A process on a host, killed when dropped.
pub(super) struct Process(Child);

impl Process {
    /// Its standard output, once.
    pub(super) fn output(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks until there is something.
fn wait<T>(stop: &Stop, otherwise: &str, look: impl Fn() -> Option<T>) -> Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if stop.asked() || Instant::now() > until {
            return Err(Failure::No(format!("{otherwise} within {PATIENCE:?}")));
        }
        std::thread::sleep(TICK);
    }
}

fn broker_of(domain: usize) -> String {
    format!("{}:7450", Topology::address_of(domain as u8 + 1))
}

/// The device of a domain's link, at the host that it leads from.
fn device_of(domain: usize) -> String {
    format!("to{}", domain + 2)
}

/// A domain's contract: its link, a fast and a slow pipe, its neighbours.
fn contract_of(domain: usize) -> String {
    let [from, to] = [HOSTS[domain], HOSTS[domain + 1]];
    let [fast, slow] = PROMISES[domain];
    let rate = RATES[domain];
    let device = device_of(domain);
    let pipe = |class: &str, kbit: u32, deadline: u64, price: u32| {
        format!(
            "[[pipe]]\nfrom = {from:?}\nto = {to:?}\nclass = {class:?}\nrate = \"{kbit} kbit/s\"\nburst = \"4 kB\"\nlargest = \"500 B\"\n\
             deadline = \"{deadline} ms\"\nprice = {price}\n"
        )
    };
    let neighbour = |other: usize, via: &str, reach: &str| {
        format!(
            "[[neighbour]]\ndomain = {:?}\nvia = {via:?}\nbroker = {:?}\nreach = [{reach}]\n",
            DOMAINS[other],
            broker_of(other)
        )
    };
    let neighbours = match domain {
        0 => neighbour(1, to, "\"base\""),
        1 => neighbour(0, from, "") + &neighbour(2, to, ""),
        _ => neighbour(1, from, "\"robot\""),
    };
    let kind = if domain == 0 { "host" } else { "router" };
    format!(
        "[[node]]\nname = {from:?}\nkind = {kind:?}\n[[node]]\nname = {to:?}\n[[link]]\nname = \"line\"\nbetween = [{from:?}, {to:?}]\n\
         rate = \"{rate} Mbit/s\"\nscheduler = \"strict\"\ndevices = {{ {from} = {device:?} }}\n{}{}{neighbours}",
        pipe("high", 600, fast, 5),
        pipe("low", 100, slow, 1),
    )
}
