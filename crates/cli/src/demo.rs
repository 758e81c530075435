//! `thalweg demo`: a small robot of separate processes, measured while it runs, first without and then with priorities.
//!
//! | module | contents |
//! |---|---|
//! | [`robot`] | its processes, and the channels between them |
//! | [`part`] | one process of the robot |
//! | [`stage`] | the load, on a narrow link between two hosts or on the processors; the priorities against it |
//! | [`processes`] | starting, stopping and listening to the processes |
//! | `domains` | three domains that admit a session together (`--domains`) |
//! | [`report`], [`schedule`] | the lines of a part and the summary of one phase; both phases |

#[cfg(feature = "sessions")]
mod domains;
mod part;
mod processes;
mod report;
mod robot;
mod schedule;
mod stage;

use crate::failure::{Failure, Result};
use crate::lab::PART as PART_OF_LAB;
use crate::output::{Live, Output, line, tell};
use crate::participant::Reach;
use crate::quantity;
use crate::signals::Stop;
use clap::Args;
use processes::Processes;
use report::{ChannelStates, Summary};
use schedule::{Phase, Schedule};
use stage::Stage;
use std::io::{IsTerminal, stderr, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thalweg::{Node, Settings};

/// A small robot of six processes, first without and then with priorities, measured while it runs
///
/// A 1 kHz IMU, a 30 Hz camera (640x480 RGB), 100 Hz commands and a 10 Hz map of 1 MB, on the carriers that are picked
/// for them. As root, with iproute2: the commands cross a link of 20 Mbit/s that a file transfer fills, and get a higher
/// class and a real-time thread at half-time. Else: one of its processes fills the processors, and the commands' thread
/// gets what this user may give it. Exit 1 if, with its priority, the command channel lost a sample or was more than 10 %
/// below its rate.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg demo --seconds 5\n         thalweg demo --json --figure robot.svg\n         thalweg demo --domains --seconds 5"
)]
pub(crate) struct Arguments {
    /// Length of each of the two phases
    #[arg(long, default_value = "20", value_parser = quantity::seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// File of the figure [default: thalweg-demo.svg in the current folder; with --json none]
    #[arg(long, value_name = "FILE")]
    figure: Option<PathBuf>,
    /// Three domains instead, each with a broker, and a video over all of them: first as it is, then as a session that they admit together. As root
    #[cfg(feature = "sessions")]
    #[arg(long, conflicts_with = "without_root")]
    domains: bool,
    /// Do what needs no root, even as root
    #[arg(long)]
    without_root: bool,
    /// Realm of the robot's nodes [default: one of its own]
    #[arg(long)]
    realm: Option<String>,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
    /// Settings to reach other hosts.
    #[command(flatten)]
    reach: Reach,
}

/// The hidden verb of a process of the robot.
pub(crate) const PART: &str = "demo-part";

/// One process of the robot.
#[derive(Args, Debug)]
pub(crate) struct PartArguments {
    /// Its name
    part: String,
    #[command(flatten)]
    place: Place,
}

/// Runs one process of the robot until standard input ends.
pub(crate) fn part(arguments: &PartArguments) -> Result {
    part::run(&arguments.part, &arguments.place)
}

/// Runs the robot twice, and reports.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let realm = arguments.realm.clone().unwrap_or_else(|| format!("demo-{}", std::process::id()));
    thalweg::control::check_realm(&realm).map_err(|e| Failure::Usage(e.to_string()))?;
    #[cfg(feature = "sessions")]
    if arguments.domains {
        return domains::run(arguments, &realm);
    }
    let stop = Stop::on_signals()?;
    arguments.reach.warn_of_open_addresses();
    let (mut stage, because) = Stage::build(arguments.without_root, &arguments.reach)?;
    let mut schedule = Schedule { stage: stage.name(), because, phases: Vec::new(), steps: Vec::new() };
    let mut processes = Processes::start(&stage, &realm)?;
    if !processes.wait_until_ready(&stop)? {
        return Ok(());
    }
    if !arguments.json {
        tell(&schedule::opening(&stage, arguments.seconds.as_secs_f64()));
        tell(&format!("meanwhile, in another terminal: {}", stage.watch(&realm)));
    }
    if matches!(stage, Stage::Processors(_)) {
        processes.fill_processors()?;
    }
    for name in ["before", "after"] {
        if name == "after" {
            schedule.steps = stage.help(&realm)?;
            if !arguments.json {
                schedule::steps(&schedule.steps).iter().for_each(|step| tell(step));
            }
        }
        let Some(phase) = phase(name, &mut processes, &mut stage, &stop, arguments)? else { break };
        schedule.phases.push(phase);
        if schedule.interrupted() {
            break;
        }
    }
    processes.end();
    finish(&schedule, &stage.about(), arguments)
}

/// The place of a process of the robot: its network namespace, and the reach of its node.
#[derive(Args, Clone, Debug, Default)]
struct Place {
    /// Realm of the robot's nodes
    #[arg(long)]
    realm: String,
    /// Network namespace
    #[arg(long)]
    namespace: Option<String>,
    /// Settings to reach other hosts.
    #[command(flatten)]
    reach: Reach,
}

impl Place {
    /// Moves this thread into the namespace; threads that it starts inherit it.
    fn enter(&self) -> Result {
        let Some(name) = &self.namespace else { return Ok(()) };
        linux::namespace::Namespace::named(name)
            .and_then(|namespace| namespace.enter())
            .map_err(|e| Failure::System(format!("network namespace {name}: {e}; run it as root")))
    }

    /// Opens a node in this place.
    fn open(&self, name: &str) -> Result<Node> {
        let (name, realm) = (name.to_owned(), self.realm.clone());
        Ok(Node::with_settings(Settings { name, realm, ..self.reach.settings() })?)
    }

    /// The place as arguments of a program.
    fn arguments(&self) -> Vec<String> {
        let namespace = self.namespace.iter().flat_map(|name| ["--namespace".to_owned(), name.clone()]);
        let realm = ["--realm".to_owned(), self.realm.clone()];
        realm.into_iter().chain(namespace).chain(self.reach.arguments()).collect()
    }
}

/// One phase; `None` if the user asked to end before it began.
fn phase(
    name: &'static str,
    processes: &mut Processes,
    stage: &mut Stage,
    stop: &Stop,
    arguments: &Arguments,
) -> Result<Option<Phase>> {
    if !processes.prepare(stop)? {
        return Ok(None);
    }
    stage.begin()?;
    processes.start_publishing()?;
    let started = Instant::now();
    let mut screen = Screen { live: Live::default(), json: arguments.json };
    let complete = watch(processes, stop, started + arguments.seconds, &mut screen)?;
    let seconds = started.elapsed();
    processes.stop_publishing()?;
    let transfer_mbit_s = stage.end()?.map(|rate| (rate * 100.0).round() / 100.0);
    let summary = Summary::of(processes.board(), seconds, !complete);
    if !arguments.json {
        screen.live.show(&summary.table())?;
    }
    Ok(Some(Phase { phase: name, summary, transfer_mbit_s }))
}

/// The display of the table while the robot runs.
struct Screen {
    live: Live,
    json: bool,
}

impl Screen {
    /// Interval of the table: short in place, longer where it is printed line by line.
    fn period() -> Duration {
        Duration::from_millis(if stdout().is_terminal() { 500 } else { 2000 })
    }

    fn show(&mut self, board: &ChannelStates, left: Duration) -> Result {
        if !self.json {
            return self.live.show(&board.table());
        }
        if stderr().is_terminal() {
            tell(&format!("{:.0} s left", left.as_secs_f64()));
        }
        Ok(())
    }
}

/// Shows the table until the time is up (`true`) or the user asks to end.
fn watch(processes: &mut Processes, stop: &Stop, until: Instant, screen: &mut Screen) -> Result<bool> {
    let mut due = Instant::now() + Screen::period();
    while Instant::now() < until && !stop.asked() {
        processes.listen(due.min(until))?;
        let now = Instant::now();
        if now >= due {
            due = now + Screen::period();
            screen.show(processes.board(), until.saturating_duration_since(now))?;
        }
    }
    Ok(!stop.asked())
}

fn finish(schedule: &Schedule, about: &str, arguments: &Arguments) -> Result {
    let figure = draw(schedule, about, arguments)?.map(|file| file.display().to_string());
    if arguments.json {
        Output { json: true }.document(&schedule.document(figure.as_deref()))?;
    } else {
        figure.into_iter().for_each(|file| tell(&format!("figure: {file}")));
        line(&format!("\n{}", schedule.text()))?;
    }
    let failures = schedule.failures();
    if failures.is_empty() || schedule.interrupted() { Ok(()) } else { Err(Failure::No(failures.join("; "))) }
}

/// Writes the figure. The default figure may fail to be written; one that was asked for may not.
fn draw(schedule: &Schedule, about: &str, arguments: &Arguments) -> Result<Option<PathBuf>> {
    let file = arguments.figure.clone().or((!arguments.json).then(|| PathBuf::from("thalweg-demo.svg")));
    let Some(file) = file.filter(|_| schedule.phases.len() == 2) else { return Ok(None) };
    match std::fs::write(&file, lab::results::draw(&schedule.figure(about))) {
        Ok(()) => Ok(Some(file)),
        Err(error) => {
            let text = format!("cannot write {}: {error}; --figure FILE puts it elsewhere", Path::display(&file));
            tell(&text);
            if arguments.figure.is_some() { Err(Failure::System(text)) } else { Ok(None) }
        }
    }
}
