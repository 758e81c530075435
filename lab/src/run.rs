//! The entry to the laboratory: runs an experiment to its document, and plays the part of a process.

use crate::error::{Error, Result};
use crate::experiments::{Experiment, dali, hostile, many_nodes, velox};
use crate::lab::{Lab, Size};
use crate::part::{self, Role};
use crate::results::{Document, Environment, Rates};
use crate::{load, round_trips, stalls};
use std::time::Duration;

/// Runs an experiment to its end.
///
/// # Errors
/// As [`Experiment::run`].
pub fn run(lab: &Lab, experiment: &dyn Experiment) -> Result<Document> {
    let environment = Environment::read(lab.options.seed);
    // Stalls come in bouts: half of the time before the experiment, half after it.
    let half = Duration::from_millis(match lab.options.size {
        Size::Tiny => 25,
        Size::Ci => 500,
        Size::Quick => 5000,
        Size::Whole => 10_000,
    });
    let idle = || {
        stalls::idle(half)
            .map_err(|e| Error::system("a thread of SCHED_FIFO 80", &e, "run it as root, or with CAP_SYS_NICE"))
    };
    let before = idle()?;
    let (taken, all) = stalls::processor_time()?;
    let findings = experiment.run(lab)?;
    let (taken, all) = stalls::processor_time().map(|(now, of)| (now - taken, of - all))?;
    let (loaded, loaded_s) = stalls::found();
    let after = idle()?;
    let rates = Rates {
        idle: before.0 + after.0,
        idle_s: before.1 + after.1,
        loaded,
        loaded_s,
        stolen: taken as f64 / all.max(1) as f64,
    };
    Ok(Document::new(experiment.name(), environment, findings, rates, &lab.options))
}

/// Roles by name, in addition to [`part::ROLES`].
pub const ROLES: &[(&str, Role)] = &[
    (load::ROLE, load::play),
    (load::sink::ROLE, load::sink::play),
    (round_trips::PING, round_trips::play_ping),
    (round_trips::PONG, round_trips::play_pong),
    (round_trips::FORWARD, round_trips::play_forward),
    ("attacked", hostile::pair::attacked),
    ("newcomer", hostile::newcomer::newcomer),
    ("attacker", hostile::attacker::play),
    (hostile::effect::BYSTANDER_ROLE, hostile::effect::play_bystander),
    (many_nodes::ROLE, many_nodes::play),
];

/// Plays the part that standard input asks for. The caller ignores signals: the experiment decides when a part ends.
///
/// # Errors
/// The error that ended the part early. It is also on standard output, where the experiment reads it.
pub fn play() -> Result {
    part::play(&[part::ROLES, ROLES, velox::ROLES, dali::ROLES])
}
