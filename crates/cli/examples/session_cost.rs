//! The cost of sessions over three domains: time until one is active, processors and memory of brokers and agents, and a stream of 1 kHz beside changes.
//! `cargo build --release --bin thalweg && cargo run --release -p thalweg-cli --example session_cost [TIMES]`, as root; exit 1 if a target of
//! docs/sessions.md is missed.
//!
//! Four hosts in a row (network namespaces), a broker and an agent on each of the first three, and a stream from the first host to the last as a
//! session. TIMES (1,000) sessions are asked for over all domains one after the other, each until it is active. Then a session of the first domain's
//! own is admitted, changed and stopped as often: its queue is made, changed and taken away at the device by which the stream leaves. The stream
//! alone is measured before and after that.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a measurement: it reads the clock, and ends where something is missing

#[path = "../tests/support/chain.rs"]
mod chain;
#[path = "../tests/support/domains.rs"]
mod domains;
#[path = "../../broker/examples/targets/mod.rs"]
mod targets;

use agent::client::{Client, ClientError};
use agent::identity::Kind;
use agent::keys::{self, Keys};
use agent::message::{HostState, SessionState};
use chain::Chain;
use domains::{DOMAINS, HOSTS, neighbours};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use targets::{Limit, Targets};

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;

/// Longest wait for what is started.
const LONG: Duration = Duration::from_secs(30);
/// Processes at rest, and the stream alone, are looked at for so long.
const LOOK: Duration = Duration::from_secs(10);
/// Between two looks at what is not there yet.
const TICK: Duration = Duration::from_millis(1);
/// The stream: `desk` is in the last domain.
const STREAM: (&str, u32, u32) = ("stream", 64, 1000);

/// A domain's contract: one link with room for queues of channels' own, a pipe, its neighbours.
fn contract(domain: usize) -> String {
    let [from, to] = [HOSTS[domain], HOSTS[domain + 1]];
    let text = format!(
        "[[node]]\nname = {from:?}\n[[node]]\nname = {to:?}\n[[link]]\nname = \"line\"\nbetween = [{from:?}, {to:?}]\nrate = \"100 Mbit/s\"\n\
         scheduler = \"htb\"\nshares = {{ critical = \"5 %\", high = \"40 %\", normal = \"25 %\", low = \"20 %\" }}\ndevices = {{ {from} = \"next\" }}\n\
         [[pipe]]\nfrom = {from:?}\nto = {to:?}\nclass = \"high\"\nrate = \"4 Mbit/s\"\nburst = \"20 kB\"\nlargest = \"1 kB\"\ndeadline = \"25 ms\"\n"
    );
    text + &neighbours(domain)
}

fn session(name: &str, (size, rate): (u32, u32), node: &str, more: &str) -> String {
    format!(
        "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"{size} B\"\nrate = \"{rate} Hz\"\npublisher = \"cam\"\n{more}\
         [[subscriber]]\ntopic = {name:?}\nnode = {node:?}\nname = \"/{name}-in\"\ndeadline = \"100 ms\"\n"
    )
}

/// A process, killed when dropped.
struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Its processors' time so far, and the memory that it has now in MiB.
    fn used(&self) -> Result<(Duration, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        let kib: f64 = resident.trim().trim_end_matches("kB").trim().parse()?;
        Ok((Duration::from_nanos(linux::clock::cpu_ns_of(self.child.id())?), kib / 1024.0))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hosts, brokers and agents; gone with this.
struct World {
    processes: Vec<Process>,
    chain: Chain,
    dir: PathBuf,
    program: String,
}

impl World {
    fn new() -> Result<Self> {
        let program = std::env::current_exe()?.ancestors().nth(2).ok_or("no folder")?.join("thalweg");
        if !program.exists() {
            return Err(format!("{} is not there: cargo build --release --bin thalweg", program.display()).into());
        }
        let chain = Chain::new("session_cost", HOSTS.len()).ok_or("network namespaces need root")?;
        let dir = std::env::temp_dir().join(format!("thalweg-session-cost-{}", std::process::id()));
        keys::init("world", &dir)?;
        let brokers = DOMAINS.map(|name| (Kind::Broker, name)).into_iter();
        for (kind, name) in brokers.chain(HOSTS.map(|name| (Kind::Host, name))).chain([(Kind::User, "ann")]) {
            keys::issue(&dir, kind, name, 1, &dir)?;
        }
        let mut world = Self { processes: Vec::new(), chain, dir, program: program.display().to_string() };
        (0..DOMAINS.len()).try_for_each(|domain| world.administer(domain))?;
        Ok(world)
    }

    /// Starts a domain's broker and the agent of its first host.
    fn administer(&mut self, domain: usize) -> Result<()> {
        let (name, host, dir) = (DOMAINS[domain], HOSTS[domain], self.dir.display().to_string());
        std::fs::write(self.dir.join(format!("{name}.toml")), contract(domain))?;
        for (what, words) in [
            (
                "broker",
                format!("broker --name {name} --listen 0.0.0.0:7450 --contract {dir}/{name}.toml --state {dir}/{name}"),
            ),
            ("agent", format!("agent --host {host} --broker 127.0.0.1:7450 --state {dir}/agents")),
        ] {
            let child = self.start(domain, &format!("{words} --keys {dir}"), Stdio::null())?;
            self.processes.push(Process { name: format!("{what} of {name}"), child });
        }
        Ok(())
    }

    fn start(&self, host: usize, words: &str, output: Stdio) -> Result<Child> {
        let mut command: Command = self.chain.command(host, &self.program);
        command.args(words.split_whitespace()).env("THALWEG_RUN_DIR", self.dir.join(format!("run{host}")));
        Ok(command.stdin(Stdio::null()).stdout(output).spawn()?)
    }

    /// The user's requests to the broker of the host on which they are made.
    fn client(&self) -> Result<Client> {
        Ok(Client::new("127.0.0.1:7450", &Keys::read(&self.dir, Kind::User, "ann")?))
    }

    /// All hosts have the queues of their pipes.
    fn is_ready(&self) -> Result<bool> {
        let is_applied = |domain| {
            let client = self.client()?;
            let hosts = self.chain.inside(domain, || client.hosts());
            let is_applied = hosts.is_ok_and(|hosts| hosts.iter().any(|host| host.state == HostState::Applied));
            Ok::<bool, Failure>(is_applied)
        };
        (0..DOMAINS.len()).try_fold(true, |all, domain| Ok(is_applied(domain)? && all))
    }

    /// Processors' time and memory of all brokers and agents while something is done.
    fn costs<T>(&self, when: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = self.processes.iter().map(Process::used).collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        let done = body()?;
        let took = began.elapsed().as_secs_f64();
        println!("{when}, {took:.0} s");
        for (process, (cpu, _)) in self.processes.iter().zip(before) {
            let (now, mib) = process.used()?;
            let percent = (now - cpu).as_secs_f64() / took * 100.0;
            println!("  {:<16} {percent:>6.2} % of a processor, {mib:>6.1} MiB", process.name);
        }
        Ok(done)
    }

    /// Starts both ends of the stream.
    fn stream(&self) -> Result<Stream> {
        let (nodes, at) = (self.dir.join("nodes.toml"), ["10.97.0.1:7001", "10.97.2.2:7001"]);
        std::fs::write(&nodes, at.map(|at| format!("[[node]]\naddress = \"{at}\"\n")).concat())?;
        let node = |name: &str, at: &str| format!("--name {name} --listen {at} --discovery static:{}", nodes.display());
        let (name, _, rate) = STREAM;
        let words = format!("sub /{name} --port /{name}-in --best-effort --json {}", node("desk", at[1]));
        let mut subscriber = self.start(3, &words, Stdio::piped())?;
        let lines = subscriber.stdout.take().ok_or("no output")?;
        let words = format!("--carrier udp --best-effort --session {name} {}", node("cam", at[0]));
        let words = format!("pub /{name} --port /out --rate {rate} --size 40 {words}");
        let publisher = self.start(0, &words, Stdio::null())?;
        let ends = [subscriber, publisher].map(|child| Process { name: name.to_owned(), child });
        let (tell, arrived) = channel();
        std::thread::spawn(move || follow(lines, &tell));
        Ok(Stream { _ends: ends, arrived, next: None })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.processes.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A sample that arrived: its number, and its latency in µs.
type Arrived = (u64, f64);

fn follow(lines: ChildStdout, tell: &std::sync::mpsc::Sender<Arrived>) {
    for line in BufReader::new(lines).lines().map_while(std::io::Result::ok) {
        let Ok(sample) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
        if let (Some(seq), Some(us)) = (sample["seq"].as_u64(), sample["latency_us"].as_f64()) {
            let _ = tell.send((seq, us));
        }
    }
}

/// Both ends of the stream.
struct Stream {
    _ends: [Process; 2],
    arrived: Receiver<Arrived>,
    /// The number that comes next.
    next: Option<u64>,
}

impl Stream {
    /// The latencies of what has arrived since the last call, and the number of samples that are missing.
    fn taken(&mut self) -> (Vec<f64>, u64) {
        let mut lost = 0;
        let all: Vec<Arrived> = self.arrived.try_iter().collect();
        for (seq, _) in &all {
            lost += self.next.map_or(0, |next| seq.saturating_sub(next));
            self.next = Some(seq + 1);
        }
        (all.into_iter().map(|(_, us)| us).collect(), lost)
    }
}

/// The value that this share is not above.
fn at(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share) as usize).copied().unwrap_or(f64::INFINITY)
}

/// Looks until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + LONG;
    while !is_so()? {
        if Instant::now() > until {
            return Err(format!("not within {LONG:?}: {what}").into());
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// Asks for a session, and waits until it is active.
fn request(user: &Client, name: &str, text: &str) -> Result<Duration> {
    let began = Instant::now();
    user.request_session(name, text)?;
    until(name, || Ok(user.session(name)?.state == SessionState::Active))?;
    Ok(began.elapsed())
}

/// Sessions over all domains, one after the other: each is active, and stopped.
fn over_domains(user: &Client, times: usize, targets: &mut Targets) -> Result<()> {
    let mut took = Vec::new();
    for n in 0..times {
        let name = format!("s{n}");
        let time = request(user, &name, &session(&name, (100, 20), "base/desk", ""))?;
        took.push(time.as_secs_f64() * 1e3);
        user.stop_session(&name)?;
    }
    println!("request until active over three domains: p50 {:.1} ms", at(&mut took, 0.5));
    targets.judge("request until active over three domains, p99", at(&mut took, 0.99), "ms", Limit::AtMost(100.0));
    Ok(())
}

/// A session with a queue of its own at the first host: admitted, changed and stopped.
fn change(user: &Client, times: usize) -> Result<()> {
    let text = |size| session("own", (size, 50), "rw", "own_queue = true\n");
    for _ in 0..times {
        request(user, "own", &text(1000))?;
        request(user, "own", &text(700))?;
        user.stop_session("own")?;
    }
    Ok(())
}

/// Asks for the stream's session. Domains that have not heard of their neighbours' hosts yet say so.
fn admit(user: &Client) -> Result<()> {
    let (name, size, rate) = STREAM;
    let text = session(name, (size, rate), "base/desk", "");
    until("the stream is admitted", || match user.request_session(name, &text) {
        Err(ClientError::Refused(503, _)) => Ok(false),
        other => {
            other?;
            Ok(true)
        }
    })
}

/// The stream while sessions are admitted, changed and stopped, and alone before and after that.
fn beside(world: &World, user: &Client, times: usize, targets: &mut Targets) -> Result<()> {
    let mut stream = world.stream()?;
    let is_set = || -> Result<bool> {
        let session = user.session(STREAM.0)?;
        Ok(session.channels.iter().any(|channel| !channel.set.is_empty()))
    };
    world.chain.inside(0, || until("the stream has its class", is_set))?;
    stream.taken();
    std::thread::sleep(LOOK);
    let (mut alone, before) = stream.taken();
    let when = format!("under {times} sessions that are admitted, changed and stopped");
    world.costs(&when, || world.chain.inside(0, || change(user, times)))?;
    let (mut beside, lost) = stream.taken();
    std::thread::sleep(LOOK);
    let (more, after) = stream.taken();
    alone.extend(more);
    let (p99, p99_beside) = (at(&mut alone, 0.99), at(&mut beside, 0.99));
    println!("the stream alone: {} samples, {} lost, p99 {p99:.0} µs", alone.len(), before + after);
    println!("the stream beside that: {} samples, {lost} lost, p99 {p99_beside:.0} µs", beside.len());
    targets.judge("lost of the stream beside that", lost as f64, "samples", Limit::AtMost(0.0));
    targets.judge("p99 of the stream beside that", p99_beside / p99, "times that alone", Limit::AtMost(1.5));
    Ok(())
}

fn measure(times: usize) -> Result<Targets> {
    let (world, mut targets) = (World::new()?, Targets::default());
    until("all hosts have their queues", || world.is_ready())?;
    world.costs("at rest", || {
        std::thread::sleep(LOOK);
        Ok(())
    })?;
    let user = world.client()?;
    world.chain.inside(0, || admit(&user))?;
    let when = format!("under {times} sessions over three domains");
    world.costs(&when, || world.chain.inside(0, || over_domains(&user, times, &mut targets)))?;
    beside(&world, &user, times, &mut targets)?;
    Ok(targets)
}

fn main() -> ExitCode {
    let times = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    measure(times).map_or_else(
        |why| {
            eprintln!("session_cost: {why}");
            ExitCode::FAILURE
        },
        |targets| targets.exit(),
    )
}
