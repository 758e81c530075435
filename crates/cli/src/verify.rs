//! `thalweg verify`: what a plan promised beside what is measured of the channels that run.
//!
//! | module | what it holds |
//! |---|---|
//! | [`gather`] | what the nodes say, look by look |
//! | [`clocks`] | stamps of other hosts |
//! | [`show`] | the table and the document |
//! | [`tell`] | who is told of a verdict that changed |

mod clocks;
mod gather;
mod show;
mod tell;

use crate::failure::{Failure, Result};
use crate::output::Live;
use crate::plan::read_plan;
use crate::quantity;
use crate::session::Common;
use clap::Args;
use gather::Gatherer;
use show::Document;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tell::Teller;

/// Compare the channels that run with what their plan promised: kept, at risk (90 % of the bound and more) or broken, and in which stage the time went
///
/// The plan's channels are found by topic, subscriber's port and publisher's node. Each verdict that changes is an event at both
/// ends, and a sample of the topic /thalweg/verification.
/// Exit code 1 when a promise is broken, or nothing could be compared.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg verify plan.toml --for 1m\n         thalweg verify plan.toml --watch\n         thalweg sub /thalweg/verification"
)]
pub struct Arguments {
    /// The plan: what `thalweg plan system.toml -o plan.toml` wrote
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// How long to measure [default: 10s; with --watch: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = quantity::seconds, allow_negative_numbers = true)]
    duration: Option<Duration>,
    /// Pause between two looks; a verdict changes at most once in it
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = quantity::seconds, allow_negative_numbers = true)]
    interval: Duration,
    /// Show after each look how things are
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    common: Common,
}

/// How long it measures.
const DEFAULT: Duration = Duration::from_secs(10);

/// Measures, shows, and stops measuring, also when it is interrupted.
pub fn run(arguments: &Arguments) -> Result {
    let plan = read_plan(&arguments.plan)?;
    let mut session = arguments.common.open("verify")?;
    session.settled();
    let duration = arguments.duration.or((!arguments.watch).then_some(DEFAULT));
    let (mut gatherer, mut teller) = (Gatherer::new(&plan, arguments.interval), Teller::open(&session)?);
    gatherer.look(&session);
    let (started, mut live) = (Instant::now(), Live::default());
    let left =
        || duration.map_or(arguments.interval, |whole| whole.saturating_sub(started.elapsed()).min(arguments.interval));
    while !left().is_zero() && session.stop.sleep_until(Instant::now() + left()) {
        let changes = gatherer.look(&session);
        teller.tell(&session, &gatherer, &changes);
        if arguments.watch {
            let document = Document::of(&gatherer);
            match session.output.json {
                true => session.output.document(&document)?,
                false => live.show(&document.text())?,
            }
        }
        session.tell_events();
    }
    gatherer.stop_measuring(&session);
    finish(arguments, &gatherer)
}

/// The last words, where they were not said yet, and the answer.
fn finish(arguments: &Arguments, gatherer: &Gatherer<'_>) -> Result {
    let document = Document::of(gatherer);
    if !arguments.watch {
        arguments.common.output().result(&document, || document.text())?;
    }
    match (document.pass, document.nothing_compared()) {
        (true, _) => Ok(()),
        (false, true) => Err(Failure::No(
            "no channel of the plan could be compared: `thalweg list channels` shows what runs; topics and subscribers have the names of the contract".to_owned(),
        )),
        (false, false) => Err(Failure::No(String::new())),
    }
}
