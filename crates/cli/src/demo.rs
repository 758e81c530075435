//! `thalweg demo`: a small robot of separate processes, measured while it runs.
//!
//! | module | what it holds |
//! |---|---|
//! | [`robot`] | which processes there are, and what flows between them |
//! | [`part`] | one process of the robot |
//! | [`conductor`] | starting, stopping and listening to the processes |
//! | [`report`] | what is told: the lines of a part, the table, the summary |

mod conductor;
mod part;
mod report;
mod robot;

use crate::failure::{Failure, Result};
use crate::output::{Live, Output, tell};
use crate::quantity;
use crate::session::Reach;
use crate::signals::Stop;
use clap::Args;
use conductor::Conductor;
use report::{Board, Summary};
use std::io::{IsTerminal, stderr, stdout};
use std::time::{Duration, Instant};

/// A small robot of six processes, measured while it runs
///
/// A 1 kHz IMU, a 30 Hz camera (640x480 RGB), 100 Hz commands and a 10 Hz map of 1 MB, on the carriers that are picked
/// for them. Exit 1 if a sample was lost or a channel was more than 10 % below its rate.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg demo --seconds 5\n         thalweg demo --json")]
pub struct Arguments {
    /// How long it runs
    #[arg(long, default_value = "20", value_parser = quantity::seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Realm of the robot's nodes [default: one of its own]
    #[arg(long)]
    realm: Option<String>,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
    /// How the robot's nodes reach other hosts.
    #[command(flatten)]
    reach: Reach,
}

/// The hidden verb that is one process of the robot.
pub const PART: &str = "demo-part";

/// Which process of the robot.
#[derive(Args, Debug)]
pub struct PartArguments {
    /// Its name
    part: String,
    /// Realm of the robot's nodes
    #[arg(long)]
    realm: String,
    /// How its node reaches other hosts.
    #[command(flatten)]
    reach: Reach,
}

/// Is one process of the robot, until standard input ends.
pub fn part(arguments: &PartArguments) -> Result {
    part::run(&arguments.part, &arguments.realm, &arguments.reach)
}

/// Runs the robot, and tells how it went.
pub fn run(arguments: &Arguments) -> Result {
    let realm = arguments.realm.clone().unwrap_or_else(|| format!("demo-{}", std::process::id()));
    thalweg::control::local::check_realm(&realm).map_err(|e| Failure::Usage(e.to_string()))?;
    let stop = Stop::on_signals()?;
    arguments.reach.warn_of_open_addresses();
    let mut conductor = Conductor::start(&realm, &arguments.reach)?;
    if !conductor.wait_until_ready(&stop)? {
        return Ok(());
    }
    if !arguments.json {
        tell(&format!(
            "{} processes run for {} s; meanwhile, in another terminal: thalweg top --realm {realm}",
            robot::parts().len(),
            arguments.seconds.as_secs_f64()
        ));
    }
    conductor.start_publishing()?;
    let started = Instant::now();
    let mut screen = Screen { live: Live::default(), json: arguments.json };
    let complete = watch(&mut conductor, &stop, started + arguments.seconds, &mut screen)?;
    let seconds = started.elapsed();
    conductor.stop_publishing()?;
    let summary = Summary::of(conductor.board(), seconds, !complete);
    conductor.end();
    tell_summary(&summary, &mut screen)
}

/// Where the table goes while the robot runs.
struct Screen {
    live: Live,
    json: bool,
}

impl Screen {
    /// How often the table changes: in place, or line by line where that is not possible.
    fn period() -> Duration {
        Duration::from_millis(if stdout().is_terminal() { 500 } else { 2000 })
    }

    fn show(&mut self, board: &Board, left: Duration) -> Result {
        if !self.json {
            return self.live.show(&board.table());
        }
        if stderr().is_terminal() {
            tell(&format!("{:.0} s left", left.as_secs_f64()));
        }
        Ok(())
    }
}

/// Shows the table until the time is up (`true`) or somebody asks to end.
fn watch(conductor: &mut Conductor, stop: &Stop, until: Instant, screen: &mut Screen) -> Result<bool> {
    let mut due = Instant::now() + Screen::period();
    while Instant::now() < until && !stop.asked() {
        conductor.listen(due.min(until))?;
        let now = Instant::now();
        if now >= due {
            due = now + Screen::period();
            screen.show(conductor.board(), until.saturating_duration_since(now))?;
        }
    }
    Ok(!stop.asked())
}

fn tell_summary(summary: &Summary, screen: &mut Screen) -> Result {
    if screen.json {
        Output { json: true }.document(summary)?;
    } else {
        screen.live.show(&format!("{}\n{}", summary.table(), summary.verdict()))?;
    }
    if summary.pass || summary.interrupted { Ok(()) } else { Err(Failure::No(summary.failures.join("; "))) }
}
