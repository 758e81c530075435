//! The time of a broker's decisions beside more and more sessions: `cargo run --release -p thalweg-broker --example decisions [RATE]`.
//!
//! Four hosts around a router, and sessions of one channel each, one after the other, until there are as many as a broker takes, or ten
//! were refused. Then links carry less and less, and sessions are thinned or suspended. RATE is that of each link, 1 Gbit/s by default; with 10 Mbit/s some are refused. Neither disk nor network is in it.
//! Exit code 1: a target of docs/sessions.md is missed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a measurement: it reads the clock, and ends where something is missing

mod targets;

use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use targets::{Limit, Targets};
use thalweg_broker::degradation::{AT_LEISURE, AT_ONCE, adapt};
use thalweg_broker::ledger::NOTHING_SOLD;
use thalweg_broker::links::Rates;
use thalweg_broker::planning::{Admitted, MOST_SESSIONS, Present, Reduction};
use thalweg_broker::sessions::request;

struct Clock(Instant);

impl qos::placement::Watch for Clock {
    fn elapsed(&mut self) -> Duration {
        self.0.elapsed()
    }
}

const HOSTS: [&str; 4] = ["a", "b", "c", "d"];

fn contract(rate: &str) -> String {
    let host = |host: &&str| {
        format!(
            "[[node]]\nname = {host:?}\n[[link]]\nname = {host:?}\nbetween = [{host:?}, \"router\"]\nrate = {rate:?}\nscheduler = \"htb\"\n\
             devices = {{ {host} = \"eth0\", router = \"to-{host}\" }}\n"
        )
    };
    format!("[[node]]\nname = \"router\"\nkind = \"router\"\n{}", HOSTS.iter().map(host).collect::<String>())
}

fn session(n: usize) -> String {
    let (size, rate, deadline) = (200 + n % 7 * 100, [10, 20, 50][n % 3], [50, 100, 200][n % 3]);
    let (from, to) = (HOSTS[n % 4], HOSTS[(n + 1 + n / 4 % 3) % 4]);
    format!(
        "[[session]]\nname = \"s{n}\"\n[[topic]]\nname = \"t{n}\"\nsize = \"{size} B\"\nrate = \"{rate} Hz\"\npublisher = {from:?}\n\
         [[subscriber]]\ntopic = \"t{n}\"\nnode = {to:?}\ndeadline = \"{deadline} ms\"\nscale_max = 4\n"
    )
}

/// With all links as the contract says.
fn present<'a>(contract: &'a str, sessions: &'a [Admitted]) -> Present<'a> {
    static AS_STATED: LazyLock<(Rates, Reduction)> = LazyLock::new(Default::default);
    let (links, reduction) = &*AS_STATED;
    Present { contract, links, reduction, sessions, sold: &NOTHING_SOLD }
}

/// The link of host `a` carries this part of what the contract says.
fn slower(contract: &str, sessions: &[Admitted], percent: u64, targets: &mut Targets) {
    let rate = qos::contract::Contract::read(contract).map_or(0, |contract| contract.system.links[0].rate);
    let links: Rates = [("a".to_owned(), rate * percent / 100)].into();
    for (when, time) in [("at once", AT_ONCE), ("at leisure", AT_LEISURE)] {
        let (present, began) = (Present { links: &links, ..present(contract, sessions) }, Instant::now());
        let found = adapt(present, time, &mut Clock(began));
        let took = began.elapsed();
        if when == "at once" {
            let what = format!("decided at once, a link at {percent} %, beside {} sessions", sessions.len());
            targets.judge(&what, took.as_secs_f64() * 1e3, "ms", Limit::AtMost(100.0));
        }
        match found {
            Ok(change) => {
                let (scaled, suspended) = (change.reduction.scaled.len(), change.reduction.suspended.len());
                println!("a link at {percent} %, {when}: {scaled} thinned, {suspended} suspended, decided in {took:?}");
                if !change.hurried {
                    break;
                }
            }
            Err(why) => println!("a link at {percent} %, {when}: {why}, decided in {took:?}"),
        }
    }
}

fn main() -> ExitCode {
    let contract = contract(&std::env::args().nth(1).unwrap_or_else(|| "1 Gbit/s".to_owned()));
    let (mut sessions, mut refused): (Vec<Admitted>, Vec<Duration>) = (Vec::new(), Vec::new());
    let (mut last, mut targets) = (Vec::new(), Targets::default());
    for n in 0.. {
        if sessions.len() == MOST_SESSIONS || refused.len() == 10 {
            break;
        }
        let (text, began) = (session(n), Instant::now());
        match request(present(&contract, &sessions), ("ann", &text), n as u64, &mut Clock(began)) {
            Ok(change) => {
                last.push(began.elapsed());
                sessions = change.sessions;
            }
            Err(_) => refused.push(began.elapsed()),
        }
        if last.len() == 100 {
            let (beside, took) = (sessions.len(), median(&mut last));
            println!("beside {beside} sessions: admitted in {took:?} (median of the last 100)");
            if (901..=1000).contains(&beside) {
                let what = format!("a bound of each flow beside {beside} sessions, median");
                targets.judge(&what, took.as_secs_f64() * 1e3, "ms", Limit::AtMost(10.0));
            }
            last.clear();
        }
    }
    if !refused.is_empty() {
        println!(
            "beside {} sessions: refused in {:?} (median of {})",
            sessions.len(),
            median(&mut refused),
            refused.len()
        );
    }
    [50, 20, 10, 5, 2, 0].into_iter().for_each(|percent| slower(&contract, &sessions, percent, &mut targets));
    targets.exit()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
