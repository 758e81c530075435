//! The rows of a set-up, both arms of each, and the numbers of samples.

use super::RATE;
use super::setup::{SMALL, Setup};
use super::testbed::Treatment;
use crate::lab::{Options, Size};
use crate::load::{Load, Pattern, Protocol};
use crate::results::Factors;
use std::fmt;
use std::time::Duration;

/// The arms that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// DSCP 0, SCHED_OTHER, one queue for all.
    Normal,
    /// Class HIGH, SCHED_FIFO 30 on the channels' threads, the queue that makes the mark count.
    Qos,
}

impl Arm {
    /// Both.
    pub(super) const BOTH: [Self; 2] = [Arm::Normal, Arm::Qos];

    /// As factors say it.
    pub(super) const fn name(self) -> &'static str {
        self.treatment().name
    }

    pub(super) const fn treatment(self) -> Treatment {
        match self {
            Arm::Normal => Treatment { name: "normal", queue: false, mark: false, thread: false },
            Arm::Qos => Treatment { name: "qos", queue: true, mark: true, thread: true },
        }
    }
}

/// A row: settings that both arms share.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Carrier of the measured channels.
    pub measured: Protocol,
    /// Bytes of payload.
    pub payload: usize,
    /// Percent of the link's rate that the load is to be; 0: none.
    pub percent: u32,
    /// The protocol of the load.
    pub load: Protocol,
    /// The spacing of its packets.
    pub pattern: Pattern,
}

impl Row {
    /// The load; `None`: none.
    pub(super) fn load(&self, seed: u64) -> Option<Load> {
        let rate = RATE / 100 * u64::from(self.percent);
        let gso = self.load == Protocol::Udp && matches!(self.pattern, Pattern::Bursts(_));
        (self.percent > 0).then_some(Load { protocol: self.load, rate, pattern: self.pattern, gso, seed })
    }

    /// The factors of one of its cells.
    pub(super) fn factors(&self, arm: Arm) -> Factors {
        let factors = Factors::new()
            .with("arm", arm.name())
            .with("load_percent", self.percent)
            .with("measured", self.measured.name())
            .with("payload_bytes", self.payload);
        if self.percent == 0 {
            return factors.with("load", "none");
        }
        factors.with("load", self.load.name()).with("load_pattern", self.pattern.name())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B by {}, ", self.payload, self.measured.name())?;
        if self.percent == 0 {
            return f.write_str("no load");
        }
        write!(f, "{} % load by {} ({})", self.percent, self.load.name(), self.pattern.name())
    }
}

/// Numbers of repetitions and samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amount {
    /// Pairs of each row.
    pub repetitions: u32,
    /// Round trips of each run.
    pub count: u32,
    /// Round trips before they count, while the queue fills.
    pub warmup: u32,
    /// Mean distance of two.
    pub period: Duration,
}

/// For these options.
pub(super) fn amount(options: &Options) -> Amount {
    let period = Duration::from_millis(3);
    match options.size {
        Size::Tiny => Amount { repetitions: 1, count: 25, warmup: 5, period },
        Size::Ci => Amount { repetitions: 3, count: 100, warmup: 15, period },
        Size::Quick => Amount { repetitions: 5, count: 500, warmup: 75, period },
        Size::Whole => Amount { repetitions: 5, count: 1000, warmup: 75, period },
    }
}

/// The rows of a set-up: the paper's 16 cells are those with 20 and 70 % by messages at random distances.
pub(super) fn rows(setup: &Setup, options: &Options) -> Vec<Row> {
    use Protocol::{Tcp, Udp};
    let row = |measured, percent, load, pattern| Row { measured, payload: setup.payload, percent, load, pattern };
    let over = |percent, measured, load| row(measured, percent, load, above(load));
    if options.size == Size::Tiny || setup.loads.len() > 1 {
        return vec![row(Udp, 0, Udp, Pattern::Random(MESSAGE)), over(120, Udp, Udp)];
    }
    if options.size == Size::Ci {
        // Small samples in both set-ups: of a large one, its own time on the link is most of its round trip.
        let small = |row: Row| Row { payload: SMALL, ..row };
        return vec![small(row(Udp, 0, Udp, Pattern::Random(MESSAGE))), small(over(120, Udp, Udp))];
    }
    let mut rows: Vec<Row> = [Udp, Tcp].map(|measured| row(measured, 0, Udp, Pattern::Random(MESSAGE))).into();
    if options.size < Size::Whole {
        rows.extend([Udp, Tcp].map(|p| row(p, 70, p, Pattern::Random(MESSAGE))));
        rows.extend([Udp, Tcp].map(|p| over(120, p, p)));
    } else {
        for (measured, load) in [(Udp, Udp), (Udp, Tcp), (Tcp, Udp), (Tcp, Tcp)] {
            rows.extend([20, 70].map(|percent| row(measured, percent, load, Pattern::Random(MESSAGE))));
            rows.extend([95, 120].map(|percent| over(percent, measured, load)));
        }
        rows.extend([Udp, Tcp].map(|measured| row(measured, 70, Udp, Pattern::Bursts(BURST))));
    }
    if setup.payload != SMALL {
        let small = |row: &Row| Row { payload: SMALL, ..row.clone() };
        let wanted = |row: &&Row| row.percent == 0 || (row.load == Udp && row.pattern == Pattern::Bursts(BURST));
        let more: Vec<Row> = rows.iter().filter(wanted).map(small).collect();
        rows.extend(more);
    }
    rows
}

/// The pattern of a load above 70 %: datagrams in bursts, a stream as fast as it can.
fn above(load: Protocol) -> Pattern {
    if load == Protocol::Udp { Pattern::Bursts(BURST) } else { Pattern::Greedy(STREAMS) }
}

/// Packets of a message of the load in the paper's rows: 6 kB.
const MESSAGE: u32 = 4;
/// Packets of a burst.
pub(super) const BURST: u32 = 40;
/// Streams of a greedy load: enough to fill the queue.
const STREAMS: u32 = 32;

#[cfg(test)]
mod tests {
    use super::super::is_in_both;
    use super::super::setup::{NIC, SWITCH};
    use super::*;

    #[test]
    fn the_paper_s_16_cells_are_there_and_rows_are_different() {
        for setup in [&NIC, &SWITCH] {
            let rows = rows(setup, &Options::default());
            let paper = rows.iter().filter(|row| row.pattern == Pattern::Random(MESSAGE) && row.percent > 0);
            assert_eq!(paper.count() * Arm::BOTH.len(), 16);
            for (n, row) in rows.iter().enumerate() {
                assert!(!rows[..n].contains(row), "{row} twice");
                assert!(!rows[..n].iter().any(|other| other.factors(Arm::Qos) == row.factors(Arm::Qos)), "{row}");
            }
        }
    }

    #[test]
    fn quick_takes_less_than_five_minutes() {
        let options = Options { size: Size::Quick, ..Options::default() };
        let amount = amount(&options);
        assert!(amount.repetitions >= 3 && amount.count >= 500);
        let run = amount.period * (amount.count + amount.warmup) + Duration::from_millis(900);
        for setup in [&NIC, &SWITCH] {
            let rows = rows(setup, &options);
            let in_both = rows.iter().filter(|row| is_in_both(setup, row)).count();
            let runs = (rows.len() + in_both) as u32 * amount.repetitions * 2;
            assert!(run * runs < Duration::from_secs(290), "{:?}", run * runs);
        }
    }
}
