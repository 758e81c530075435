//! `yarp-nic` and `yarp-switch`: the experiments of the YARP channel prioritization paper (§3.1, Fig. 4 and 5), with rows
//! that it lacks: no load, 70 % in bursts, 95 % and 120 %. `yarp-both`: Fig. 1, where a card and a port are congested at once.
//!
//! | module | contents |
//! |---|---|
//! | [`setup`] | the set-ups: hosts, and the points of congestion between them |
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
mod setup;
mod testbed;

pub(super) use ablation::YarpAblation;
pub(super) use publish::YarpPublish;

use super::{Experiment, lines, shuffled};
use crate::error::{Error, Result};
use crate::lab::{Lab, Options, Size};
use crate::load::{Load, Pattern, Protocol};
use crate::results::{Factors, Findings};
use bound::Bound;
use outcome::{Outcome, is_in_both};
use setup::{BOTH, NIC, SMALL, SWITCH, Setup};
use std::fmt;
use std::time::Duration;
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
        match accepted(lab, testbed, row, arm, seed)? {
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
    arm: Arm,
    seed: u64,
) -> Result<std::result::Result<Run, String>> {
    let mut because = String::new();
    for attempt in 1..=ATTEMPTS {
        let run = testbed.run(lab, row, arm.treatment(), seed)?;
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

/// The arms that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    /// DSCP 0, SCHED_OTHER, one queue for all.
    Normal,
    /// Class HIGH, SCHED_FIFO 30 on the channels' threads, the queue that makes the mark count.
    Qos,
}

impl Arm {
    /// Both.
    const BOTH: [Self; 2] = [Arm::Normal, Arm::Qos];

    /// As factors say it.
    const fn name(self) -> &'static str {
        self.treatment().name
    }

    const fn treatment(self) -> Treatment {
        match self {
            Arm::Normal => Treatment { name: "normal", queue: false, mark: false, thread: false },
            Arm::Qos => Treatment { name: "qos", queue: true, mark: true, thread: true },
        }
    }
}

/// A row: settings that both arms share.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    /// Carrier of the measured channels.
    measured: Protocol,
    /// Bytes of payload.
    payload: usize,
    /// Percent of the link's rate that the load is to be; 0: none.
    percent: u32,
    /// The protocol of the load.
    load: Protocol,
    /// The spacing of its packets.
    pattern: Pattern,
}

impl Row {
    /// The load; `None`: none.
    fn load(&self, seed: u64) -> Option<Load> {
        let rate = RATE / 100 * u64::from(self.percent);
        let gso = self.load == Protocol::Udp && matches!(self.pattern, Pattern::Bursts(_));
        (self.percent > 0).then_some(Load { protocol: self.load, rate, pattern: self.pattern, gso, seed })
    }

    /// The factors of one of its cells.
    fn factors(&self, arm: Arm) -> Factors {
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
struct Amount {
    /// Pairs of each row.
    repetitions: u32,
    /// Round trips of each run.
    count: u32,
    /// Round trips before they count, while the queue fills.
    warmup: u32,
    /// Mean distance of two.
    period: Duration,
}

/// For these options.
fn amount(options: &Options) -> Amount {
    let period = Duration::from_millis(3);
    match options.size {
        Size::Tiny => Amount { repetitions: 1, count: 25, warmup: 5, period },
        Size::Ci => Amount { repetitions: 3, count: 100, warmup: 15, period },
        Size::Quick => Amount { repetitions: 5, count: 500, warmup: 75, period },
        Size::Whole => Amount { repetitions: 5, count: 1000, warmup: 75, period },
    }
}

/// The rows of a set-up: the paper's 16 cells are those with 20 and 70 % by messages at random distances.
fn rows(setup: &Setup, options: &Options) -> Vec<Row> {
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

/// Attempts before a run is given up that did not reach its load.
const ATTEMPTS: u32 = 3;
/// Rate of the congested link, in bit/s: a tenth of the paper's, so that two processors can overload it.
const RATE: u64 = 100_000_000;
/// Packets of a message of the load in the paper's rows: 6 kB.
const MESSAGE: u32 = 4;
/// Packets of a burst.
const BURST: u32 = 40;
/// Streams of a greedy load: enough to fill the queue.
const STREAMS: u32 = 32;

#[cfg(test)]
mod tests {
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
