//! `thalweg verify`: what a plan promised beside what is measured of the channels that run.
//!
//! | module | what it holds |
//! |---|---|
//! | [`gather`] | what the nodes say, look by look |
//! | [`clocks`] | stamps of other hosts |
//! | [`show`] | the table and the document |
//! | [`agent`] | who plans anew when measured values leave the contract |
//! | [`tell`] | who is told of a verdict that changed |

mod agent;
mod clocks;
mod gather;
mod show;
mod tell;

use crate::failure::{Failure, Result};
use crate::output::Live;
use crate::plan::read_plan;
use crate::quantity;
use crate::session::{Common, Session};
use agent::Agent;
use clap::Args;
use gather::Gatherer;
use qos::Class;
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
    after_help = "Example: thalweg verify plan.toml --for 60s\n         thalweg verify plan.toml --watch\n         thalweg sub /thalweg/verification\n         thalweg verify plan.toml --watch --agent system.toml --apply --classes low,normal,high"
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
    /// Plan anew when rates, sizes or execution times exceed this contract's (the plan's) by a tenth in three looks, and propose
    /// the settings that follow; each decision is shown with its reason
    #[arg(long, value_name = "CONTRACT", help_heading = "Agent")]
    agent: Option<PathBuf>,
    /// Set what the agent proposes, all of a proposal or nothing
    #[arg(long, requires = "agent", help_heading = "Agent")]
    apply: bool,
    /// The classes that the agent may give
    #[arg(long, value_name = "CLASS,…", value_delimiter = ',', default_value = "low,normal,high", value_parser = quantity::class, requires = "agent", help_heading = "Agent")]
    classes: Vec<Class>,
    /// The agent decides at most once in this time
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = quantity::seconds, requires = "agent", help_heading = "Agent")]
    decide_every: Duration,
    #[command(flatten)]
    common: Common,
}

/// How long it measures.
const DEFAULT: Duration = Duration::from_secs(10);

/// Measures, shows, and stops measuring, also when it is interrupted.
pub fn run(arguments: &Arguments) -> Result {
    let plan = read_plan(&arguments.plan)?;
    let mut agent = Agent::new(arguments, &plan)?;
    let mut session = arguments.common.open("verify")?;
    session.settled();
    let mut gatherer = Gatherer::new(&plan, arguments.interval);
    let measured = measure(arguments, &mut session, &mut gatherer, &mut agent);
    gatherer.stop_measuring(&session);
    measured.and_then(|()| finish(arguments, &gatherer))
}

/// Looks again and again, and tells of what changed.
fn measure(
    arguments: &Arguments,
    session: &mut Session,
    gatherer: &mut Gatherer<'_>,
    agent: &mut Option<Agent>,
) -> Result {
    let mut teller = Teller::open(session)?;
    let duration = arguments.duration.or((!arguments.watch).then_some(DEFAULT));
    gatherer.look(session);
    let (started, mut live) = (Instant::now(), Live::default());
    let left =
        || duration.map_or(arguments.interval, |whole| whole.saturating_sub(started.elapsed()).min(arguments.interval));
    while !left().is_zero() && session.stop.sleep_until(Instant::now() + left()) {
        let changes = gatherer.look(session);
        teller.tell(session, gatherer, &changes);
        if let Some(agent) = agent {
            agent.look(session, gatherer, &mut teller)?;
        }
        if arguments.watch {
            let document = Document::of(gatherer);
            match session.output.json {
                true => session.output.document(&document)?,
                false => live.show(&document.text())?,
            }
        }
        session.tell_events();
    }
    Ok(())
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
