//! `yarp-nic` and `yarp-switch`: the experiments of the YARP channel prioritization paper (§3.1, Fig. 4 and 5), with rows
//! that it lacks: no load, 70 % in bursts, 95 % and 120 %.
//!
//! | module | contents |
//! |---|---|
//! | [`rows`] | the rows, and the number of runs of each |
//! | [`testbed`] | the two set-ups: hosts, parts, the place of the queue; one run |
//! | [`outcome`] | the runs' results: cells, checks, the figure |
//! | [`bound`] | the planner's bound, beside the measurements |
//!
//! A row is run in both arms one after the other, in turns first; pairs are compared, and the medians of their ratios are
//! checked.

mod bound;
mod outcome;
mod rows;
mod testbed;

use super::{Experiment, shuffled};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::load::Protocol;
use crate::results::{Findings, Skipped};
use outcome::Outcome;
use rows::{Arm, Row};
use testbed::{NIC, Run, SWITCH, Setup, Testbed};
use thalweg::carrier::Dice;

/// Set-up (a): measured channel and load leave by the same card.
pub(super) struct YarpNic;

/// Set-up (b): both go to hosts behind the same port of a switch.
pub(super) struct YarpSwitch;

impl Experiment for YarpNic {
    fn name(&self) -> &'static str {
        "yarp-nic"
    }
    fn about(&self) -> &'static str {
        "a prioritised channel beside a load that leaves by the same network card"
    }
    fn run(&self, lab: &Lab) -> Result<Findings> {
        run(lab, &NIC)
    }
}

impl Experiment for YarpSwitch {
    fn name(&self) -> &'static str {
        "yarp-switch"
    }
    fn about(&self) -> &'static str {
        "a prioritised channel beside another host's load, behind the same port of a switch"
    }
    fn run(&self, lab: &Lab) -> Result<Findings> {
        run(lab, &SWITCH)
    }
}

fn run(lab: &Lab, setup: &'static Setup) -> Result<Findings> {
    let mut testbed = Testbed::build(lab, setup)?;
    let amount = rows::amount(&lab.options);
    let rows = rows::rows(setup, &lab.options);
    let mut outcome = Outcome::new(setup, &rows);
    if setup.switched {
        outcome.promise(bound::round_trip_us()?);
    }
    let mut dice = Dice::new(lab.options.seed);
    for repetition in 0..amount.repetitions {
        for (done, index) in shuffled(rows.len(), &mut dice).into_iter().enumerate() {
            let row = &rows[index];
            let all = rows.len() as u32 * amount.repetitions;
            lab.tell(&format!("{}/{all}: {row}", repetition * rows.len() as u32 + done as u32 + 1));
            pair(lab, &mut testbed, &mut outcome, index, row, repetition)?;
        }
    }
    Ok(outcome.findings(&amount, testbed.queues()))
}

/// One row in both arms; in every second repetition the other one first.
fn pair(lab: &Lab, testbed: &mut Testbed, outcome: &mut Outcome, index: usize, row: &Row, repetition: u32) -> Result {
    let seed = lab.options.seed ^ u64::from(repetition) << 32 ^ (index as u64) << 16;
    let mut arms = Arm::BOTH;
    if repetition % 2 == 1 {
        arms.reverse();
    }
    let mut runs = Vec::new();
    for arm in arms {
        match accepted(lab, testbed, row, arm, seed)? {
            Ok(run) => runs.push((arm, run)),
            Err(because) => {
                let name = format!("{row}, {}, repetition {}", arm.name(), repetition + 1);
                lab.tell(&format!("skipped: {name}: {because}"));
                outcome.skip(Skipped { name, because });
                return Ok(());
            }
        }
    }
    runs.into_iter().for_each(|(arm, run)| outcome.add(index, arm, run));
    Ok(())
}

/// Attempts before a run is given up that did not reach its load.
const ATTEMPTS: u32 = 3;

/// A run whose load was as stated, or the reason why there is none. With a stream as load the last attempt counts in any case:
/// a stream gives way, and its goodput is in the results.
fn accepted(
    lab: &Lab,
    testbed: &mut Testbed,
    row: &Row,
    arm: Arm,
    seed: u64,
) -> Result<std::result::Result<Run, String>> {
    let mut because = String::new();
    for attempt in 1..=ATTEMPTS {
        let run = testbed.run(lab, row, arm, seed)?;
        if arm == Arm::Qos && run.lost() > 0 {
            lab.tell(&format!("lost with priority: {row}: round trips {:?}", run.missing()));
        }
        let yields = attempt == ATTEMPTS && row.load == Protocol::Tcp;
        let Some(why) = run.fell_short(row).filter(|_| !yields) else { return Ok(Ok(run)) };
        lab.tell(&format!("rejected (attempt {attempt} of {ATTEMPTS}): {row}, {}: {why}", arm.name()));
        because = why;
    }
    Ok(Err(because))
}

/// The error for a case that the tables of this experiment exclude.
fn impossible(what: &str) -> Error {
    Error::Failed(format!("{what}: this is an error of the experiment itself"))
}
