//! The time of many sessions in one domain's pipes: `cargo run --release -p thalweg-broker --example store [SESSIONS [ETCD]]`.
//!
//! So many sessions (100,000 by default) are admitted and written, a hundred in a write: to disk, or to an etcd whose members have these URLs (with commas). Then the
//! broker's state is read again, as at its start. Exit code 1: a target of docs/sessions.md is missed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a measurement: it reads the clock, and ends where something is missing

mod targets;

use qos::contract::{Contract, flow, session};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use targets::{Limit, Targets};
use thalweg_broker::domains::{Asker, Domains, Wanted};
use thalweg_broker::hosts::Kept;
use thalweg_broker::store::{Campaign, Store};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Sessions in one write, as when so many clients ask at once.
const GROUP: usize = 100;

const CONTRACT: &str = "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"1000 Gbit/s\"\nscheduler = \"strict\"\n\
    [[pipe]]\nfrom = \"a\"\nto = \"b\"\nclass = \"high\"\nrate = \"500 Gbit/s\"\nburst = \"60 MB\"\nlargest = \"1 kB\"\ndeadline = \"200 ms\"\n";

fn wanted(contract: &Contract, n: usize) -> Result<Wanted> {
    let text = format!(
        "[[session]]\nname = \"s{n}\"\n[[topic]]\nname = \"t{n}\"\nsize = \"500 B\"\nrate = \"20 Hz\"\npublisher = \"a\"\n\
         [[subscriber]]\ntopic = \"t{n}\"\nnode = \"home/b\"\ndeadline = \"2 s\"\n"
    );
    let file = session::Session::read(&text)?;
    let flows = flow::flows("home", CONTRACT, contract, &file)?;
    let asker = Asker { owner: "thalweg://world/user/ann".into(), text, ..Asker::default() };
    Ok(Wanted { name: file.name, asker, flows })
}

fn main() -> Result<ExitCode> {
    let sessions = std::env::args().nth(1).map_or(Ok(100_000), |word| word.parse::<usize>())?;
    let dir = std::env::temp_dir().join(format!("thalweg-example-store-{}", std::process::id()));
    let contract = Contract::read(CONTRACT)?;
    let etcd = std::env::args().nth(2);
    let open = || match &etcd {
        None => Ok(Store::open(&dir)?),
        Some(urls) => {
            let members: Vec<String> = urls.split(',').map(str::to_owned).collect();
            let mut campaign = Campaign::new(&members, None, "example/store", "example")?;
            let began = Instant::now();
            let etcd = campaign.win(&|| false, &|because| println!("waits: {because}")).ok_or("nobody leads")?;
            println!("leads after {:.2?}", began.elapsed());
            Ok::<_, Box<dyn std::error::Error>>(Store::on(Box::new(etcd))?)
        }
    };
    let (mut store, _) = open()?;
    store.keep(&Kept { epoch: 1, contract: Some(CONTRACT.to_owned()), ..Kept::default() })?;
    let (mut domains, _) = Domains::start("home", &contract, Vec::new(), 1, Duration::ZERO)?;
    let (mut deciding, mut writing) = (Duration::ZERO, Duration::ZERO);
    let all = (0..sessions).map(|n| wanted(&contract, n)).collect::<Result<Vec<_>>>()?;
    for (group, of_group) in all.chunks(GROUP).enumerate() {
        let began = Instant::now();
        for one in of_group {
            domains.request(Duration::ZERO, one.clone()).map_err(|why| why.what)?;
        }
        let decided = Instant::now();
        store.keep_crossings(group as u64 + 1, &domains.changes())?;
        (deciding, writing) = (deciding + (decided - began), writing + decided.elapsed());
    }
    let sold: u64 = domains.pipes().iter().map(|pipe| pipe.sold_bytes).sum();
    println!("{sessions} sessions, {sold} bytes of bursts sold");
    let per_second = |time: Duration| sessions as f64 / time.as_secs_f64();
    println!(
        "decided: {:.0}/s; written, {GROUP} at once: {:.0}/s; both: {:.0}/s",
        per_second(deciding),
        per_second(writing),
        per_second(deciding + writing)
    );
    drop((store, domains));
    let mut targets = Targets::default();
    targets.judge("decided in process", per_second(deciding), "sessions/s", Limit::AtLeast(5000.0));
    targets.judge("decided and written", per_second(deciding + writing), "sessions/s", Limit::AtLeast(1000.0));
    // An etcd's members have their own directories.
    if etcd.is_none() {
        let bytes = std::fs::metadata(dir.join("broker.redb"))?.len() as f64;
        targets.judge("on disk", bytes / sessions.max(1) as f64, "bytes a session", Limit::AtMost(3000.0));
    }
    let began = Instant::now();
    let (_store, kept) = open()?;
    println!("read: {:.2?}", began.elapsed());
    let (domains, _) = Domains::start("home", &contract, kept.crossings, 2, Duration::ZERO)?;
    println!("read again: {:.2?}, {} sessions", began.elapsed(), domains.kept().len());
    let read = began.elapsed().as_secs_f64() * 100_000.0 / sessions.max(1) as f64;
    targets.judge("read again, for 100,000 sessions", read, "s", Limit::AtMost(3.0));
    if etcd.is_none() {
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(targets.exit())
}
