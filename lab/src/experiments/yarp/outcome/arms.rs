//! A row with priority and without, run by run in pairs: the medians of their ratios, and what is expected of them.

use super::Outcome;
use crate::experiments::lines;
use crate::experiments::yarp::setup::SMALL;
use crate::experiments::yarp::testbed::{LIMIT, Run};
use crate::experiments::yarp::{RATE, Row};
use crate::lab::Size;
use crate::load::{Pattern, Protocol};
use crate::results::{Check, Table};
use crate::statistics::{Distribution, median, median_ratio};
use crate::topology::FULL_PACKET;

impl Outcome<'_> {
    /// The checks that compare a row's arms.
    pub(super) fn compared(&self, index: usize) -> Vec<Check> {
        let (row, pairs) = (&self.rows[index], Pairs::of(&self.runs[index]));
        let named = |what: &str| format!("{what}: {row}");
        let better = |limit| Check::at_least(named("p99 normal / qos"), pairs.ratio(|d| d.p99), limit);
        let lost = || Check::at_most(named("lost qos"), pairs.lost_with_priority(), 0.0);
        let steady = || Check::at_most(named("standard deviation qos / normal"), pairs.inverse(|d| d.stdev), 1.0);
        match (row.percent, row.pattern) {
            (0, _) => vec![lost(), self.as_slow_as_the_line(row, &pairs)],
            (20, _) => {
                let as_well = |what: &str, figure: fn(&Distribution) -> f64| {
                    let check =
                        Check::at_most(named(&format!("{what} qos / normal")), pairs.inverse(figure), 1.0 + LIGHT);
                    check.certain_within(pairs.noise(figure), LIGHT)
                };
                vec![as_well("mean", |d| d.mean), as_well("p99 - p50", Distribution::spread), lost()]
            }
            (70, pattern) => {
                let mean = Check::at_most(named("mean qos / normal"), pairs.inverse(|d| d.mean), 1.0);
                let spread = Check::at_most(named("p99 - p50 qos / normal"), pairs.inverse(Distribution::spread), 1.0);
                let bursts = matches!(pattern, Pattern::Bursts(_)).then(|| better(5.0));
                [mean, spread, steady(), lost()].into_iter().chain(bursts).collect()
            }
            (95, _) => vec![better(10.0), steady(), lost()],
            _ => {
                let usual = Check::at_least(named("p50 normal / qos"), pairs.ratio(|d| d.p50), USUAL);
                let usual = (row.load == Protocol::Udp && row.payload == SMALL).then_some(usual);
                [
                    self.much_better(row, &pairs).judged_from(Size::Quick),
                    steady(),
                    lost(),
                    self.against_no_load(row, &pairs),
                ]
                .into_iter()
                .chain(usual)
                .chain(self.all_full(row, &pairs))
                .collect()
            }
        }
    }

    /// The positive control of the lines: without load a round trip takes at least the sample's transmission on each that is congested otherwise.
    fn as_slow_as_the_line(&self, row: &Row, pairs: &Pairs) -> Check {
        let lines = self.setup.congested.len() as f64;
        let name = format!("the fastest, µs (limit: its transmission on the congested lines): {row}");
        Check::at_least(name, pairs.least(), lines * lines::transmission_us(row.payload, RATE))
    }

    /// Where there are several points of congestion, all are congested: in an overload a sample without priority waits in more full
    /// queues than all but one of them have.
    fn all_full(&self, row: &Row, pairs: &Pairs) -> Option<Check> {
        let points = self.setup.congested.len();
        let full_us = f64::from(LIMIT) * time_us(FULL_PACKET as usize);
        let limit = (points as f64 - 0.5) * full_us;
        let name = format!("p50 normal, µs (limit: {:.1} full queues of {points}): {row}", points as f64 - 0.5);
        (points > 1).then(|| Check::at_least(name, pairs.without_priority(|d| d.p50), limit))
    }

    /// In an overload p99 with priority is 20 times better. That is asked of small samples; of a large one, what it takes beyond its own
    /// transmission, which no priority shortens, is compared.
    fn much_better(&self, row: &Row, pairs: &Pairs) -> Check {
        let own = own_us(row);
        let beyond = if own > 0.0 { " beyond transmission" } else { "" };
        let name = format!("p99{beyond} normal / qos: {row}");
        Check::at_least(name, pairs.undisturbed_ratio(|d| d.p99 - own), MUCH_BETTER)
            .less_stalls(pairs.ratio(|d| d.p99 - own))
    }

    /// Overloads: p99 of both arms, their ratio, and the ratio of what is beyond a large sample's own transmission.
    pub(super) fn overloads(&self) -> Table {
        let heads =
            ["load of 120 %, p99 in µs", "normal", "qos", "normal / qos", "transmission", "beyond it, normal / qos"];
        let mut table = Table::new("Overload", &heads);
        for (row, runs) in self.rows.iter().zip(&self.runs).filter(|(row, _)| row.percent > 100) {
            let (pairs, own) = (Pairs::of(runs), own_us(row));
            let [normal, qos] = [pairs.without_priority(|d| d.p99), pairs.with_priority(|d| d.p99)];
            let ratios = [0.0, own].map(|own| pairs.ratio(|d| d.p99 - own));
            table.row(row.to_string(), &[normal, qos, ratios[0], own, ratios[1]]);
        }
        table
    }

    /// With priority, an overload costs at most one full packet that is being sent at each point of congestion, and some of the rest. A sample that is
    /// no small one also takes its own time on the link, which without load the token bucket does not charge for. What was found without load
    /// counts up to [`IDLE_US`].
    fn against_no_load(&self, row: &Row, pairs: &Pairs) -> Check {
        let is_same = |other: &Row| (other.percent, other.measured, other.payload) == (0, row.measured, row.payload);
        let idle = self.rows.iter().position(is_same).map(|index| Pairs::of(&self.runs[index]));
        let idle = idle.map_or(f64::NAN, |idle| idle.undisturbed(|d| d.p99));
        let (own, words) = if row.payload > SMALL { (time_us(row.payload), ", and its own time") } else { (0.0, "") };
        let points = self.setup.congested.len();
        let packets = if points == 1 { "one packet".to_owned() } else { format!("{points} packets") };
        let name = format!("p99 qos (limit: 2.5 x without load + {packets}{words}): {row}");
        // Of 100 samples it is the second largest: in three runs of the ci size of each experiment, it was late in one.
        let (found, raw) = (pairs.undisturbed(|d| d.p99), pairs.with_priority(|d| d.p99));
        let limit = |idle: f64| 2.5 * idle + points as f64 * time_us(FULL_PACKET as usize) + own;
        let check = Check::at_most(name, found, limit(idle)).capped(limit(IDLE_US + own_us(row)));
        check.less_stalls(raw).judged_from(Size::Quick)
    }
}

/// Transmission of a large sample and its acknowledgement over the line, with their headers, in µs; a small one's is left out.
fn own_us(row: &Row) -> f64 {
    let both = || [row.payload, SMALL].map(|bytes| lines::transmission_us(bytes, RATE)).iter().sum();
    if row.payload > SMALL { both() } else { 0.0 }
}

/// Time on the congested link, in microseconds.
pub(super) fn time_us(bytes: usize) -> f64 {
    bytes as f64 * 8e6 / RATE as f64
}

/// Figures of a row's pairs: normal, qos.
struct Pairs {
    pairs: Vec<(Distribution, Distribution)>,
    /// The same less stalls, and less the wait for what a line that had stood still had yet to send: at 2 % less than its rate it takes 49 times
    /// as long as it stood, and a hundredth of a run's samples come within 30 ms.
    undisturbed: Vec<(Distribution, Distribution)>,
    lost: u64,
}

impl Pairs {
    fn of([normal, qos]: &[Vec<Run>; 2]) -> Self {
        let figures = |run: &Run| Distribution::of(&run.times());
        let less = |run: &Run| Distribution::of(&run.undisturbed().collect::<Vec<f64>>());
        let each = normal.iter().zip(qos).filter_map(|(n, q)| Some(((figures(n)?, figures(q)?), (less(n)?, less(q)?))));
        let (pairs, undisturbed) = each.unzip();
        Self { pairs, undisturbed, lost: qos.iter().map(Run::lost).sum() }
    }

    /// Median of normal / qos.
    fn ratio(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        median_ratio(&self.pairs.iter().map(|(n, q)| (figure(n), figure(q))).collect::<Vec<_>>())
    }

    /// Median of qos / normal.
    fn inverse(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        median_ratio(&self.pairs.iter().map(|(n, q)| (figure(q), figure(n))).collect::<Vec<_>>())
    }

    /// Median of normal / qos, both less what disturbed the machine and its lines.
    fn undisturbed_ratio(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        median_ratio(&self.undisturbed.iter().map(|(n, q)| (figure(n), figure(q))).collect::<Vec<_>>())
    }

    /// Median with priority, less the same.
    fn undisturbed(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        median(&self.undisturbed.iter().map(|(_, q)| figure(q)).collect::<Vec<_>>())
    }

    /// The fastest of all; NaN of none.
    fn least(&self) -> f64 {
        self.pairs.iter().flat_map(|(normal, qos)| [normal.min, qos.min]).fold(f64::NAN, f64::min)
    }

    fn without_priority(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        median(&self.pairs.iter().map(|(n, _)| figure(n)).collect::<Vec<_>>())
    }

    fn with_priority(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        median(&self.pairs.iter().map(|(_, q)| figure(q)).collect::<Vec<_>>())
    }

    /// Samples lost with priority; NaN without a measurement, which is no success.
    fn lost_with_priority(&self) -> f64 {
        if self.pairs.is_empty() { f64::NAN } else { self.lost as f64 }
    }

    /// The noise of a figure between repetitions of the same arm: twice its median distance from its median.
    fn noise(&self, figure: impl Fn(&Distribution) -> f64) -> f64 {
        let found: Vec<f64> = self.pairs.iter().map(|(normal, _)| figure(normal)).collect();
        let middle = median(&found);
        let distances: Vec<f64> = found.iter().map(|one| (one - middle).abs()).collect();
        2.0 * median(&distances) / middle
    }
}

/// By so much p99 is better with priority in an overload.
const MUCH_BETTER: f64 = 20.0;
/// In an overload by datagrams, small samples with priority are so much faster in the middle: those without wait for a full queue of
/// 100 packets, 12 ms. Unlike p99, a hundred samples tell it.
const USUAL: f64 = 10.0;
/// Without load p99 of a small sample with priority counts up to this in a limit, in µs; that of a large one by its transmission more. The stored
/// runs (lab/results/yarp-*.json) found 296 to 451 of 64 B, and 508 and 515 of 1400 B, medians over repetitions.
const IDLE_US: f64 = 500.0;
/// At 20 % load a channel with priority may be worse by this share.
const LIGHT: f64 = 0.1;
