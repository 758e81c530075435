//! `yarp-nic` and `yarp-switch`: the experiments of the YARP channel prioritization paper (§3.1, Fig. 4 and 5), with rows
//! that it lacks: no load, 70 % in bursts, 95 % and 120 %. `yarp-both`: Fig. 1, where a card and a port are congested at once.
//!
//! | module | contents |
//! |---|---|
//! | [`setup`] | the set-ups: hosts, and the points of congestion between them |
//! | [`rows`](mod@rows) | the rows of a set-up, both arms of each |
//! | [`testbed`] | the parts, and one run |
//! | [`ablation`] | mark, queue and thread alone and jointly, beside load on link and processor |
//! | [`bound`] | the planner's bound with measured times, and round trips beside it |
//! | [`outcome`] | the runs' results: cells, checks, the figure |
//! | [`publish`] | the time of `publish` in the user's thread |
//!
//! A row is run in both arms one after the other, in turns first; pairs are compared, and the medians of their ratios are
//! checked.

mod ablation;
mod bound;
mod outcome;
mod publish;
mod rows;
mod setup;
mod testbed;

pub(super) use ablation::YarpAblation;
pub(super) use publish::YarpPublish;

use super::{Experiment, lines, shuffled};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::load::Protocol;
use crate::results::Findings;
use bound::Bound;
use outcome::{Outcome, is_in_both};
use rows::{Amount, Arm, BURST, Row, amount, rows};
use setup::{BOTH, NIC, SMALL, SWITCH, Setup};
use testbed::{Run, Testbed, Treatment};
use thalweg::carrier::Dice;

/// Set-up (a): measured channel and load leave by the same card.
pub(super) struct YarpNic;

/// Set-up (b): both go to hosts behind the same port of a switch.
pub(super) struct YarpSwitch;

/// Fig. 1: three publishers on two hosts, three subscribers behind one port of a switch.
pub(super) struct YarpBoth;

impl Experiment for YarpBoth {
    fn name(&self) -> &'static str {
        "yarp-both"
    }
    fn about(&self) -> &'static str {
        "a prioritised channel beside two loads, at a network card and behind a port of a switch, both congested"
    }
    fn run(&self, lab: &Lab) -> Result<Findings> {
        run(lab, &BOTH)
    }
}

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
    let amount = amount(&lab.options);
    let rows = rows(setup, &lab.options);
    // In (a) the same rows have small samples, and the same numbers: the loads have the same seeds.
    let small: Vec<Row> = rows.iter().map(|row| Row { payload: SMALL, ..row.clone() }).collect();
    let mut card = if rows.iter().any(|row| is_in_both(setup, row)) { Some(Testbed::build(lab, &NIC)?) } else { None };
    let (mut outcome, mut beside) = (Outcome::new(setup, &rows), Outcome::new(&NIC, &small));
    let mut dice = Dice::new(lab.options.seed);
    for repetition in 0..amount.repetitions {
        for (done, index) in shuffled(rows.len(), &mut dice).into_iter().enumerate() {
            let row = &rows[index];
            let all = rows.len() as u32 * amount.repetitions;
            lab.tell(&format!("{}/{all}: {row}", repetition * rows.len() as u32 + done as u32 + 1));
            if let Some(card) = card.as_mut().filter(|_| is_in_both(setup, row)) {
                lab.tell(&format!("the same in set-up (a): {}", small[index]));
                pair(lab, card, &mut beside, index, &small[index], repetition)?;
            }
            pair(lab, &mut testbed, &mut outcome, index, row, repetition)?;
        }
    }
    let (queues, lines) = (testbed.queues(), testbed.end());
    if setup.has_contract() {
        outcome.promise(Bound::of(outcome.covered(), &lines)?);
    }
    if card.is_some() {
        outcome.beside(beside);
    }
    let mut findings = outcome.findings(&amount, queues);
    lines::judge("all rows", &lines, &mut findings);
    if let Some(card) = card {
        lines::judge("set-up (a)", &card.end(), &mut findings);
    }
    Ok(findings)
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
        match accepted(lab, testbed, row, arm.treatment(), seed)? {
            Ok(run) => runs.push((arm, run)),
            Err(because) => {
                let name = format!("{row}, {}, repetition {}", arm.name(), repetition + 1);
                lab.tell(&format!("dropped: {name}: {because}"));
                outcome.drop(&name, &because);
                return Ok(());
            }
        }
    }
    runs.into_iter().for_each(|(arm, run)| outcome.add(index, arm, run));
    Ok(())
}

/// A run whose load was as stated, or the reason why there is none. With a stream as load the last attempt counts in any case:
/// a stream gives way, and its goodput is in the results.
fn accepted(
    lab: &Lab,
    testbed: &mut Testbed,
    row: &Row,
    treatment: Treatment,
    seed: u64,
) -> Result<std::result::Result<Run, String>> {
    let mut because = String::new();
    for attempt in 1..=ATTEMPTS {
        let run = testbed.run(lab, row, treatment, seed)?;
        if treatment.is_whole() && run.lost() > 0 {
            lab.tell(&format!("lost with priority: {row}: round trips {:?}", run.missing()));
        }
        let yields = attempt == ATTEMPTS && row.load == Protocol::Tcp;
        let Some(why) = run.fell_short(row).filter(|_| !yields) else { return Ok(Ok(run)) };
        lab.tell(&format!("rejected (attempt {attempt} of {ATTEMPTS}): {row}, {}: {why}", treatment.name));
        because = why;
    }
    Ok(Err(because))
}

/// The error for a case that the tables of this experiment exclude.
fn impossible(what: &str) -> Error {
    Error::Failed(format!("{what}: this is an error of the experiment itself"))
}

/// Attempts before a run is given up that did not reach its load.
const ATTEMPTS: u32 = 3;
/// Rate of the congested link, in bit/s: a tenth of the paper's, so that two processors can overload it.
const RATE: u64 = 100_000_000;
