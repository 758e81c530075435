//! Rows that differ only in the measured protocol: with priority they are alike (Fig. 5).

use super::Outcome;
use crate::experiments::yarp::{Arm, Row};
use crate::load::Protocol;
use crate::results::{Check, Table};
use crate::statistics::{Distribution, median, uncertainty};

impl Outcome<'_> {
    /// Rows that differ only in the measured protocol, by index: udp, tcp.
    fn protocols(&self) -> Vec<(usize, usize)> {
        let find = |wanted: &Row| self.rows.iter().position(|row| row == wanted);
        let udp = |(index, row): (usize, &Row)| {
            let tcp = find(&Row { measured: Protocol::Tcp, ..row.clone() })?;
            (row.measured == Protocol::Udp && row.percent > 0).then_some((index, tcp))
        };
        self.rows.iter().enumerate().filter_map(udp).collect()
    }

    /// p50 by tcp / by udp of an arm, repetition by repetition.
    fn tcp_to_udp(&self, (udp, tcp): (usize, usize), arm: Arm) -> Vec<f64> {
        let p50 = |row: usize| {
            let runs = self.runs[row][arm as usize].iter();
            runs.map(|run| Distribution::of(&run.times()).map_or(f64::NAN, |d| d.p50)).collect::<Vec<_>>()
        };
        p50(tcp).iter().zip(p50(udp)).map(|(tcp, udp)| tcp / udp).collect()
    }

    /// With priority, round trips differ little by protocol.
    pub(super) fn alike(&self) -> Vec<Check> {
        let check = |rows: (usize, usize)| {
            let found = self.tcp_to_udp(rows, Arm::Qos);
            let ratio = median(&found);
            let name = format!("p50 qos by tcp / by udp, or the other way round: {}", beside(&self.rows[rows.0]));
            Check::at_most(name, ratio.max(1.0 / ratio), ALIKE).certain_within(uncertainty(&found), ALIKE - 1.0)
        };
        self.protocols().into_iter().map(check).collect()
    }

    /// The same in both arms. The paper has TCP's round trips below UDP's without priority (Y-54).
    pub(super) fn protocols_table(&self) -> Option<Table> {
        let heads = ["load", "normal", "qos"];
        let mut table = Table::new("Round trips by tcp / by udp beside the same load, medians of p50", &heads);
        for rows in self.protocols() {
            let ratios = Arm::BOTH.map(|arm| median(&self.tcp_to_udp(rows, arm)));
            let text = |ratio: f64| if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() };
            table.rows.push([beside(&self.rows[rows.0])].into_iter().chain(ratios.map(text)).collect());
        }
        (!table.rows.is_empty()).then_some(table)
    }
}

/// A row without its protocol.
fn beside(row: &Row) -> String {
    format!("{} B beside {} % by {} ({})", row.payload, row.percent, row.load.name(), row.pattern.name())
}

/// With priority, the protocols' round trips differ by this factor at most.
const ALIKE: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::yarp::setup::NIC;
    use crate::experiments::yarp::testbed::run;
    use crate::experiments::yarp::{amount, rows};
    use crate::lab::Options;
    use crate::results::Verdict;

    #[test]
    fn protocols_that_differ_with_priority_fail_and_without_it_are_told() {
        let rows = rows(&NIC, &Options::default());
        let judged = |tcp_us: [u64; 3]| {
            let mut outcome = Outcome::new(&NIC, &rows);
            for (index, row) in rows.iter().enumerate() {
                for tcp_us in tcp_us {
                    let us = if row.measured == Protocol::Tcp { tcp_us } else { 100 };
                    outcome.add(index, Arm::Normal, run(&[9000, 9000], 0));
                    outcome.add(index, Arm::Qos, run(&[us, us], 0));
                }
            }
            let found = outcome.findings(&amount(&Options::default()), Vec::new());
            let alike = found.checks.iter().filter(|check| check.name.starts_with("p50 qos by tcp"));
            let table = &found.tables.last().unwrap().rows;
            assert!(table.len() >= 8 && table.iter().all(|row| row[1] == "1.00" && !row[2].is_empty()), "{table:?}");
            alike.map(|check| check.verdict).collect::<Vec<_>>()
        };
        assert!(judged([120, 120, 120]).iter().all(|verdict| *verdict == Verdict::Pass));
        assert!(judged([60, 61, 62]).iter().all(|verdict| *verdict == Verdict::Fail));
        assert!(judged([20, 110, 600]).iter().all(|verdict| *verdict == Verdict::Inconclusive));
    }
}
