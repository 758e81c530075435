//! Rows of set-up (b) that were run in (a), too: their round trips are longer, as those of Fig. 5b are.

use super::Outcome;
use crate::experiments::yarp::setup::Setup;
use crate::experiments::yarp::testbed::Run;
use crate::experiments::yarp::{Arm, Row};
use crate::lab::Size;
use crate::load::{Pattern, Protocol};
use crate::results::{Check, Table};
use crate::statistics::{Distribution, median};

/// `true` for a row of (b) that is run in (a), too: one of the paper's, by datagrams.
pub(in crate::experiments::yarp) fn is_in_both(setup: &Setup, row: &Row) -> bool {
    let datagrams = (row.measured, row.load) == (Protocol::Udp, Protocol::Udp);
    setup.has_contract() && row.payload == setup.payload && datagrams && matches!(row.pattern, Pattern::Random(_))
}

impl<'a> Outcome<'a> {
    /// Puts set-up (a) beside it, with the runs of the rows that are in both.
    pub(in crate::experiments::yarp) fn beside(&mut self, card: Outcome<'a>) {
        self.card = Some(Box::new(card));
    }

    /// Of each row that is in both and each arm: the median of the repetitions' p50 in (b), and in (a); and the fewest repetitions.
    fn both(&self) -> Vec<(String, [f64; 2], usize)> {
        let of = |index: usize, arm: Arm| {
            let runs =
                [Some(self), self.card.as_deref()].map(|of| of.map_or(&[][..], |of| &of.runs[index][arm as usize]));
            let name = format!("{}, {}", self.rows[index], arm.name());
            (name, runs.map(p50), runs.map(<[Run]>::len)[0].min(runs[1].len()))
        };
        let rows =
            (0..self.rows.len()).filter(|index| self.card.is_some() && is_in_both(self.setup, &self.rows[*index]));
        rows.flat_map(|index| Arm::BOTH.map(|arm| of(index, arm))).collect()
    }

    /// Round trips behind a switch, of larger packets, are longer.
    pub(super) fn slower(&self) -> Vec<Check> {
        let check = |(name, [port, card], pairs): (String, [f64; 2], usize)| {
            let check = Check::at_least(format!("p50 of (b) / of (a): {name}"), port / card, SLOWER);
            let few = (1..self.least_pairs).contains(&pairs);
            let check = if few { check.inconclusive(format!("{pairs} pairs were left of the row")) } else { check };
            check.judged_from(Size::Quick)
        };
        self.both().into_iter().map(check).collect()
    }

    /// Both beside each other.
    pub(super) fn setups_table(&self) -> Option<Table> {
        let both = self.both();
        let heads = ["p50, medians over repetitions, µs", "(b)", "(a), 64 B", "(b) / (a)"];
        let mut table = Table::new("Behind a switch (b), and at one card (a)", &heads);
        both.iter().for_each(|(name, [port, card], _)| table.row(name.as_str(), &[*port, *card, port / card]));
        (!both.is_empty()).then_some(table)
    }
}

fn p50(runs: &[Run]) -> f64 {
    median(&runs.iter().map(|run| Distribution::of(&run.times()).map_or(f64::NAN, |d| d.p50)).collect::<Vec<_>>())
}

/// Round trips of (b) are longer than those of (a) by this factor at least. A sample of 1400 B alone is 0.1 ms longer on the line than
/// one of 64 B.
const SLOWER: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::super::Arm;
    use super::*;
    use crate::experiments::yarp::setup::{NIC, SMALL, SWITCH};
    use crate::experiments::yarp::testbed::run;
    use crate::experiments::yarp::{amount, rows};
    use crate::lab::Options;
    use crate::results::Verdict;

    /// Each row that is in both, with these times in µs.
    fn found(port: u64, card: u64, repetitions: usize) -> Vec<Verdict> {
        let rows = rows(&SWITCH, &Options::default());
        let small: Vec<Row> = rows.iter().map(|row| Row { payload: SMALL, ..row.clone() }).collect();
        let (mut outcome, mut beside) = (Outcome::new(&SWITCH, &rows), Outcome::new(&NIC, &small));
        for index in (0..rows.len()).filter(|index| is_in_both(&SWITCH, &rows[*index])) {
            for arm in Arm::BOTH {
                (0..repetitions).for_each(|_| outcome.add(index, arm, run(&[port, port], 0)));
                (0..repetitions).for_each(|_| beside.add(index, arm, run(&[card, card], 0)));
            }
        }
        outcome.beside(beside);
        let found = outcome.findings(&amount(&Options::default()), Vec::new());
        let table = found.tables.iter().find(|table| table.title.starts_with("Behind a switch")).unwrap();
        let checks: Vec<_> = found.checks.iter().filter(|check| check.name.starts_with("p50 of (b)")).collect();
        assert!(checks.len() == 6 && table.rows.len() == checks.len(), "{checks:?}");
        checks.iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn set_ups_that_are_alike_fail_and_few_pairs_tell_nothing() {
        assert!(found(220, 200, 3).iter().all(|verdict| *verdict == Verdict::Pass));
        assert!(found(200, 200, 3).iter().all(|verdict| *verdict == Verdict::Fail));
        assert!(found(220, 200, 2).iter().all(|verdict| *verdict == Verdict::Inconclusive));
        assert!(found(220, 200, 0).iter().all(|verdict| *verdict == Verdict::Fail));
    }
}
