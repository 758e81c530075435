//! `dali-mappings` (D-15 to D-19, Table I): the walker's eight programs in three mappings to two boards, over every engine; each channel's
//! bound by the plan; and mapping 3 beside a file transfer that fills the line.

use super::arm::{ARMS, Arm, Role};
use super::boards::Boards;
use super::later_us;
use super::outcome::{Cell, judge};
use super::system::System;
use super::transfer::Transfer;
use super::walker::Mapping;
use crate::error::Result;
use crate::experiments::{Experiment, shuffled};
use crate::lab::{Lab, Size};
use crate::results::Findings;
use std::time::Duration;
use thalweg::carrier::Dice;

/// The experiment.
pub(in crate::experiments) struct DaliMappings;

/// The mapping beside which a file is transferred: most topics cross the line in it.
pub(super) const BESIDE: usize = 3;

impl Experiment for DaliMappings {
    fn name(&self) -> &'static str {
        "dali-mappings"
    }

    fn about(&self) -> &'static str {
        "the walker of DALi in three mappings to two boards over every engine: Table I, bounds, and beside a file transfer"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (numbers, repetitions, ms) = match lab.options.size {
            Size::Tiny => (&[1, BESIDE][..], 1, 300),
            Size::Ci => (&[BESIDE][..], 3, 1500), // an odd number, whose median is a majority
            Size::Quick => (&[1, 2, 3][..], 3, 4000),
            Size::Whole => (&[1, 2, 3][..], 7, 20_000),
        };
        let mut boards = Boards::new(lab)?;
        let mut rows = Vec::new();
        for number in numbers {
            let mapping = Mapping::new(*number, later_us())?;
            // `--ci` judges us alone, and what is kept beside the transfer is kept without it.
            let alone = ARMS.iter().filter(|_| lab.options.size != Size::Ci);
            rows.extend(alone.map(|arm| Cell::new(mapping.clone(), arm, false)));
            let judged = |arm: &&Arm| matches!(arm.role, Role::Planned | Role::Unplanned);
            let shown = |arm: &&Arm| arm.role == Role::Engine && lab.options.size != Size::Ci;
            let beside = ARMS.iter().filter(|arm| *number == BESIDE && (judged(arm) || shown(arm)));
            rows.extend(beside.map(|arm| Cell::new(mapping.clone(), arm, true)));
        }
        let mut file = Transfer::new(lab, &boards)?;
        let mut dice = Dice::new(lab.options.seed);
        for repetition in 0..repetitions {
            for at in shuffled(rows.len(), &mut dice) {
                let cell = &mut rows[at];
                lab.tell(&format!("{}, {} of {repetitions}", cell.name(), repetition + 1));
                let phases = Dice::new(lab.options.seed ^ (repetition + 1));
                let mut system = System::open(lab, &mut boards, cell.arm, &cell.mapping.programs)?;
                let time = Duration::from_millis(ms);
                if cell.file {
                    let (run, beside) = file.beside(lab, &boards, &mut system, time, &phases)?;
                    cell.add(&run);
                    cell.beside.push(beside);
                } else {
                    cell.add(&system.run(lab, time, Some(phases))?);
                }
            }
        }
        drop(file);
        let mut findings = judge(&rows);
        if !boards.are_apart() {
            findings.notes.push("one processor for both boards: latencies and bounds are not those of two".to_owned());
        }
        boards.end(&mut findings)?;
        Ok(findings)
    }
}
