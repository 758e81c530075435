//! `thalweg dashboard`: all channels on a page and as metrics of Prometheus; their samples for Foxglove.
//!
//! | module | contents |
//! |---|---|
//! | [`look`] | the state, look by look |
//! | [`topology`] | the picture of the network, with the loads that are measured |
//! | [`log`] | what has changed, when, and by whom |
//! | [`settings`] | priorities that somebody has changed |
//! | [`stages`] | the stages of the topics that the page shows |
//! | `admissions` | sessions that a broker admits (feature `sessions`) |
//! | [`metrics`] | the state as text for Prometheus |
//! | [`server`] | connections, each bounded, and their answers |
//! | [`access`] | whose requests are answered: names of this host, pages of it, the token |
//! | `foxglove` | topics for Foxglove and Lichtblick (feature `foxglove`) |
//!
//! The node and all questions to others are this thread's; connections are the server's, which asks this thread. While nobody looks, no
//! node is asked and nothing is measured.

mod access;
#[cfg(feature = "sessions")]
mod admissions;
#[cfg(feature = "foxglove")]
mod foxglove;
mod log;
mod look;
mod metrics;
mod server;
mod settings;
mod stages;
mod topology;

use crate::failure::{Failure, Result};
use crate::output::tell;
use crate::participant::{Common, Participant};
use crate::plan::{read_plan, read_system};
use crate::priority;
use crate::quantity;
use access::Access;
#[cfg(feature = "sessions")]
use admissions::Admissions;
use clap::Args;
use look::Looker;
use serde_json::{Value, json};
use server::{Ask, Asked, Shared};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A page with all channels, live, and metrics for Prometheus
///
/// The page shows the network with its loads, rates, losses and what waits; with --plan each channel beside its promise. A channel that is
/// chosen there shows its stages. The log tells of changed priorities, and with --broker of admitted sessions. /metrics is for Prometheus,
/// /api/state the state as JSON. Everybody who reaches the address may read; nobody may change anything without --allow-set.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg dashboard\n         \
                  thalweg dashboard --plan plan.toml --contract system.toml\n         \
                  thalweg dashboard --allow-set token.txt --foxglove 127.0.0.1:8765")]
pub(crate) struct Arguments {
    /// Address of the page
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7480")]
    at: SocketAddr,
    /// A name by which browsers reach this host, besides its addresses and localhost (repeatable)
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Judge the channels by this plan
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,
    /// The contract of the plan, which tells which nodes of the network are hosts
    #[arg(long, value_name = "CONTRACT", requires = "plan")]
    contract: Option<PathBuf>,
    /// Let those change priorities on the page who know the first line of this file, of at least 16 characters
    #[arg(long, value_name = "FILE")]
    allow_set: Option<PathBuf>,
    /// Pause between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = quantity::seconds, allow_negative_numbers = true)]
    interval: Duration,
    #[cfg(feature = "foxglove")]
    #[command(flatten)]
    foxglove: foxglove::Options,
    #[cfg(feature = "sessions")]
    #[command(flatten)]
    broker: crate::domain::BrokerArguments,
    #[command(flatten)]
    common: Common,
}

/// Serves until told to stop.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let mut plan = arguments.plan.as_deref().map(read_plan).transpose()?;
    let contract = arguments.contract.as_deref().map(read_system).transpose()?;
    if let (Some(plan), Some(contract)) = (&plan, &contract)
        && !topology::is_of(plan, contract)
    {
        let remedy = "its links are not those of --plan: name the contract from which the plan was made";
        let file = arguments.contract.as_deref().unwrap_or(Path::new("")).display();
        return Err(Failure::Usage(format!("--contract {file}: {remedy}")));
    }
    plan.iter_mut().for_each(|plan| plan.channels.retain(|channel| !channel.pipe)); // no program has its ports
    let token = arguments.allow_set.as_deref().map(token).transpose()?;
    #[cfg(feature = "sessions")]
    let broker = arguments.broker.is_stated().then(|| arguments.broker.client()).transpose()?;
    let mut participant = arguments.common.open("dashboard")?;
    participant.settled();
    let access = Access::new(arguments.at, &arguments.host, token);
    let (shared, asked) = Shared::new(access);
    let at = server::start(arguments.at, shared.clone()).map_err(|error| unusable(arguments.at, &error))?;
    warn_of_open_address("the page", at);
    #[cfg(feature = "foxglove")]
    let serving = arguments.foxglove.start(&participant.node, &arguments.host)?;
    #[cfg(feature = "foxglove")]
    let viewers = serving.as_ref().map(|(at, _)| *at);
    #[cfg(not(feature = "foxglove"))]
    let viewers = None::<SocketAddr>;
    viewers.iter().for_each(|at| warn_of_open_address("Foxglove's server", *at));
    let [page, metrics] = ["", "metrics"].map(|path| format!("http://{at}/{path}"));
    let foxglove = viewers.map(|at| format!("ws://{at}"));
    let about =
        json!({"page": page, "metrics": metrics, "foxglove": foxglove, "may_set": arguments.allow_set.is_some()});
    let text = || foxglove.iter().fold(page.clone(), |text, viewers| format!("{text}\n{viewers} for Foxglove"));
    participant.output.result(&about, text)?;
    let mut looker = Looker::new(plan.as_ref(), contract.as_ref(), arguments.interval);
    #[cfg(feature = "sessions")]
    if let Some(client) = broker {
        looker.follow(Admissions::start(client)?);
    }
    while !participant.stop.asked() {
        let due = Instant::now() + arguments.interval;
        if shared.is_watched() {
            shared.show(looker.look(&mut participant));
        } else {
            looker.rest(&participant);
        }
        answer_until(due, &mut participant, &mut looker, &shared, &asked);
    }
    looker.rest(&participant);
    Ok(())
}

/// Carries out what the server asks for, until the next look is due or somebody begins to watch.
fn answer_until(
    due: Instant,
    participant: &mut Participant,
    looker: &mut Looker,
    shared: &Shared,
    asked: &Receiver<Asked>,
) {
    while !participant.stop.asked() {
        let left = due.saturating_duration_since(Instant::now()).min(crate::signals::TICK);
        match asked.recv_timeout(left) {
            Ok(Asked { ask: Ask::Look, answer }) => {
                shared.show(looker.look(participant));
                let _ = answer.send(Ok(Value::Null)); // who asked may have gone
                return;
            }
            Ok(Asked { ask: Ask::Stages(topic), answer }) => drop(answer.send(Ok(looker.stages(participant, &topic)))),
            Ok(Asked { ask: Ask::Set(words), answer }) => drop(answer.send(set(participant, looker, &words))),
            Err(RecvTimeoutError::Timeout) if Instant::now() < due => {}
            Err(_) => return,
        }
    }
}

/// Changes a priority as `thalweg set` does, and says what became of it.
fn set(participant: &Participant, looker: &mut Looker, words: &[String]) -> std::result::Result<Value, String> {
    let done = priority::carry_out(participant, words);
    let text = words.join(" ");
    match &done {
        Ok(done) => {
            looker.note_set(&format!("set {text}"), done["publisher"].as_str().zip(done["subscriber"].as_str()))
        }
        Err(failure) => looker.note_set(&format!("set {text}: refused: {}", failure.text()), None),
    }
    done.map_err(|failure| failure.text().to_owned())
}

/// The token in a file.
fn token(file: &Path) -> Result<String> {
    const SHORTEST: usize = 16;
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    let token = text.lines().next().unwrap_or_default().trim().to_owned();
    if !token.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        let why = "a token of ASCII only is needed, because it is sent in a header of HTTP";
        return Err(Failure::Usage(format!("{}: {why}", file.display())));
    }
    match token.len() {
        SHORTEST.. => Ok(token),
        short => Err(Failure::Usage(format!(
            "{}: a token of {short} characters; at least {SHORTEST} are needed",
            file.display()
        ))),
    }
}

fn unusable(at: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("--at {at}: {error}; name another port, or end what has this one"))
}

fn warn_of_open_address(what: &str, at: SocketAddr) {
    if !at.ip().is_loopback() {
        tell(&format!(
            "warning: {what} at {at} is not encrypted, and whoever reaches it can read names and figures of all channels, or their samples"
        ));
    }
}
