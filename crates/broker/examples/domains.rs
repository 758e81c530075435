//! The time of admission over several domains: `cargo run --release -p thalweg-broker --example domains [DOMAINS [SESSIONS]]`.
//!
//! So many domains in a row (3 by default), each with a broker and its disk in this process, over TLS on loopback. Sessions are admitted one
//! after the other: a dry run of each, then the request until it is committed, and a renewal; then as many again by 16 clients at once. Agents are not
//! in it: their hosts report once. Exit code 1: a target of docs/sessions.md is missed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a measurement: it reads the clock, and ends where something is missing

mod neighbour;
mod targets;

use agent::client::Client;
use agent::identity::Kind;
use agent::keys::{self, Keys};
use agent::message::{Actual, State};
use neighbour::neighbour;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use targets::{Limit, Targets};
use thalweg_broker::api::Broker;
use thalweg_broker::serve::{Limits, News};
use thalweg_broker::store::Store;

type Failure = Box<dyn std::error::Error>;
type Result<T> = std::result::Result<T, Failure>;

/// Clients that ask at once.
const CLIENTS: usize = 16;

fn contract(index: usize, addresses: &[SocketAddr]) -> String {
    let mut text = format!(
        "[[node]]\nname = \"n{index}\"\n[[node]]\nname = \"n{next}\"\n[[link]]\nbetween = [\"n{index}\", \"n{next}\"]\nrate = \"1 Gbit/s\"\n\
         scheduler = \"strict\"\ndevices = {{ n{index} = \"eth\" }}\n[[pipe]]\nfrom = \"n{index}\"\nto = \"n{next}\"\nclass = \"high\"\n\
         rate = \"900 Mbit/s\"\nburst = \"9 MB\"\nlargest = \"1 kB\"\ndeadline = \"200 ms\"\n",
        next = index + 1
    );
    let mut beside = |other: usize, via: usize, behind: std::ops::Range<usize>| {
        let reach: Vec<String> = behind.map(|domain| format!("d{domain}")).collect();
        text += &neighbour(&format!("d{other}"), &format!("n{via}"), &addresses[other].to_string(), &reach);
    };
    if index > 0 {
        beside(index - 1, index, 0..index - 1);
    }
    if index + 1 < addresses.len() {
        beside(index + 1, index + 1, index + 2..addresses.len());
    }
    text
}

/// Starts a domain's broker, and reports for its one host.
fn start(index: usize, addresses: &[SocketAddr], dir: &Path) -> Result<()> {
    let broker_keys = Keys::read(dir, Kind::Broker, &format!("d{index}"))?;
    let (store, kept) = Store::open(&dir.join(index.to_string()))?;
    let broker = Broker::start(store, kept, 0)?;
    broker.plan_for(&contract(index, addresses), &broker_keys)?;
    let (tell, told) = channel();
    let listen = addresses[index];
    std::thread::spawn(move || {
        let news = move |news| match news {
            News::Listening(_) => tell.send(()).unwrap_or_default(),
            News::Refused { because, .. } => println!("refused: {because}"),
        };
        thalweg_broker::serve::run(listen, &broker_keys, broker, Limits::default(), &|| false, news)
    });
    told.recv()?;
    let host = format!("n{index}");
    let agent = Client::new(&listen.to_string(), &Keys::read(dir, Kind::Host, &host)?);
    let Some(desired) = agent.desired(&host, (0, 0), Duration::ZERO)? else { return Err("no plan".into()) };
    Ok(agent.report(&host, &Actual::new(desired.epoch, desired.revision, State::Applied))?)
}

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let domains = arguments.next().unwrap_or(Ok(3))?.max(1);
    let sessions = arguments.next().unwrap_or(Ok(300))?;
    let dir = std::env::temp_dir().join(format!("thalweg-example-domains-{}", std::process::id()));
    keys::init("world", &dir)?;
    keys::issue(&dir, Kind::User, "ann", 1, &dir)?;
    let listeners = (0..domains).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<Vec<_>>>()?;
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>()?;
    drop(listeners);
    for index in 0..domains {
        keys::issue(&dir, Kind::Broker, &format!("d{index}"), 1, &dir)?;
        keys::issue(&dir, Kind::Host, &format!("n{index}"), 1, &dir)?;
    }
    (0..domains).try_for_each(|index| start(index, &addresses, &dir))?;
    let user = Client::new(&addresses[0].to_string(), &Keys::read(&dir, Kind::User, "ann")?);
    let (last, node) = (domains - 1, domains);
    let text = |n: usize| {
        format!(
            "[[session]]\nname = \"s{n}\"\n[[topic]]\nname = \"t{n}\"\nsize = \"500 B\"\nrate = \"20 Hz\"\npublisher = \"n0\"\n\
             [[subscriber]]\ntopic = \"t{n}\"\nnode = \"d{last}/n{node}\"\ndeadline = \"2 s\"\n"
        )
    };
    while user.try_session("s0", &text(0)).is_err() {
        std::thread::sleep(Duration::from_millis(50)); // until all have heard of their hosts
    }
    let mut times: [Vec<Duration>; 3] = Default::default();
    for n in 0..sessions {
        let (name, text) = (format!("s{n}"), text(n));
        for (kind, times) in times.iter_mut().enumerate() {
            let began = Instant::now();
            match kind {
                0 => user.try_session(&name, &text)?,
                _ => user.request_session(&name, &text)?, // then again: a renewal
            };
            times.push(began.elapsed());
        }
    }
    println!("{domains} domains, {sessions} sessions, on {} processors", std::thread::available_parallelism()?);
    let mut targets = Targets::default();
    // In ms: admission in one domain and over several; a request until its session may begin.
    let most = [if domains == 1 { 2.0 } else { 20.0 }, 100.0, 100.0];
    let kinds = ["admission (dry run)", "request until committed", "renewal"];
    for ((what, times), most) in kinds.iter().zip(&mut times).zip(most) {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
        println!("{what}: p50 {:.2?}, p99 {:.2?}, most {:.2?}", at(50), at(99), at(100));
        if domains <= 3 {
            targets.judge(&format!("{what}, p99"), at(99).as_secs_f64() * 1e3, "ms", Limit::AtMost(most));
        }
    }
    let began = Instant::now();
    let each = sessions.min(900).div_ceil(CLIENTS); // 2,000 may go through one neighbour
    let client = |number: usize| -> Result<()> {
        let user = Client::new(&addresses[0].to_string(), &Keys::read(&dir, Kind::User, "ann")?);
        for n in (0..each).map(|n| sessions + number * each + n) {
            user.request_session(&format!("s{n}"), &text(n))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || client(number).map_err(|e: Failure| e.to_string())))
            .collect();
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| Err("a client failed".to_owned())))
    })?;
    let all = (each * CLIENTS) as f64;
    let rate = all / began.elapsed().as_secs_f64();
    println!("{CLIENTS} clients at once: {rate:.0} sessions/s");
    if domains == 1 {
        targets.judge("through the API", rate, "sessions/s", Limit::AtLeast(1500.0));
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(targets.exit())
}
