//! `yarp-publish` (Y-52, §2.2): the time that a call of `publish` takes of the user's thread: sent by that thread, or handed over to a
//! thread of the channel's own.
//!
//! The channel's thread is on another processor than the user's, or on the same one with SCHED_FIFO 30. There it runs before the
//! call that woke it returns, so that handing over saves nothing; that arm is told and not judged.

use crate::error::{Error, Result};
use crate::experiments::{Experiment, Tally, shuffled};
use crate::lab::{Feature, Lab, Size};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Skipped, Table};
use crate::round_trips::{CARRIERS, Measure, PingPong, Priority, RoundTrip};
use crate::stalls::Monitor;
use crate::statistics::{Distribution, median, median_ratio};
use crate::topology::Topology;
use std::time::Duration;
use thalweg::carrier::Dice;

/// The experiment.
pub(in crate::experiments) struct YarpPublish;

impl Experiment for YarpPublish {
    fn name(&self) -> &'static str {
        "yarp-publish"
    }

    fn about(&self) -> &'static str {
        "the time of `publish` in the user's thread: sent by it, or handed over to a thread of the channel's own"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let processors = linux::sched::read(0)?.affinity;
        let [user, other] = match processors[..] {
            [user, other, ..] => [user, other],
            _ => {
                let because = "a thread beside the user's wants a second processor".into();
                let skipped = vec![Skipped { name: "handed over".into(), because }];
                return Ok(Findings { skipped, ..Findings::default() });
            }
        };
        let topology = Topology::link(lab, &[])?;
        let [ours, theirs] = [[usize::from(user)], [usize::from(other)]];
        let mut ping_pong = PingPong::acknowledged(lab, "publish", &topology, [1, 2], [&ours, &theirs], ANSWER)?;
        let arms = arms(user, other);
        let (repetitions, count) = match lab.options.size {
            Size::Tiny => (1, 25),
            Size::Ci => (3, 200),
            Size::Quick => (5, 500),
            Size::Whole => (5, 1000),
        };
        let mut cells: Vec<Calls> =
            CARRIERS.iter().flat_map(|carrier| PAYLOADS.map(|size| Calls::of(carrier, size))).collect();
        let mut dice = Dice::new(lab.options.seed);
        for repetition in 0..repetitions {
            lab.tell(&format!("repetition {} of {repetitions}", repetition + 1));
            for index in shuffled(arms.len(), &mut dice) {
                let arm = &arms[index];
                arm.set(lab, &mut ping_pong)?;
                for calls in &mut cells {
                    calls.run(lab, &mut ping_pong, index, count, lab.options.seed + repetition)?;
                }
            }
        }
        Ok(judge(&arms, &cells))
    }
}

/// Bytes of a sample: small; large enough that sending it costs.
const PAYLOADS: [usize; 2] = [64, 8192];
/// Bytes of its acknowledgement.
const ANSWER: usize = 64;
/// By so much a call that sends is longer than one that hands over, where the sample is large.
const LONGER: f64 = 1.5;

/// A way to send.
#[derive(Clone, Debug)]
struct Arm {
    name: &'static str,
    words: String,
    own_thread: bool,
}

/// Sent by the user's thread; by one of the channel's own on the other processor; by one on the same.
fn arms(user: u16, other: u16) -> [Arm; 3] {
    let arm = |name, words: String, own_thread| Arm { name, words, own_thread };
    [
        arm("sent by the user's thread", "sched=default affinity=default".into(), false),
        arm("handed over to another processor", format!("sched=default affinity={other}"), true),
        arm("handed over to fifo:30 on the same", format!("sched=fifo:30 affinity={user}"), true),
    ]
}

impl Arm {
    /// Sets it on the open channels, and looks whether the sending ends have it.
    fn set(&self, lab: &Lab, ping_pong: &mut PingPong) -> Result {
        let left_out = lab.options.without == Some(Feature::Threads);
        let words = if left_out { "sched=default affinity=default" } else { &self.words };
        for carrier in CARRIERS {
            let changes = words.parse().map_err(|e| Error::Failed(format!("{words}: {e}")))?;
            let ends = ping_pong.set_priority(lab, &Priority { route: carrier.to_owned(), changes, back: None })?;
            let wrong =
                ends.iter().find(|end| end.end == "publisher" && end.own_thread != (self.own_thread && !left_out));
            if let Some(end) = wrong {
                return Err(Error::Failed(format!("asked for {words}, and got {end:?}")));
            }
        }
        Ok(())
    }
}

/// The calls with one carrier and size, arm by arm.
struct Calls {
    carrier: &'static str,
    payload: usize,
    arms: [(Tally, Vec<Distribution>); 3],
}

impl Calls {
    fn of(carrier: &'static str, payload: usize) -> Self {
        Self { carrier, payload, arms: Default::default() }
    }

    fn run(&mut self, lab: &Lab, ping_pong: &mut PingPong, arm: usize, count: u32, seed: u64) -> Result {
        let (period, patience) = (Duration::from_millis(1), Duration::from_secs(1));
        let (route, payload) = (self.carrier.to_owned(), self.payload);
        let measure = Measure { route, payload, count, warmup: 20, period, patience, seed };
        let monitor = Monitor::start()?;
        let trips = ping_pong.measure(lab, &measure)?;
        self.add(arm, &trips, &monitor.finish());
        Ok(())
    }

    fn add(&mut self, arm: usize, trips: &[RoundTrip], stalls: &crate::stalls::Stalls) {
        let calls: Vec<f64> = trips.iter().map(|trip| trip.call_ns as f64 / 1000.0).collect();
        let (tally, figures) = &mut self.arms[arm];
        tally.add_trips(trips, stalls);
        if let Some(found) = Distribution::of(&calls) {
            tally.tell("call_us", serde_json::json!(found));
            figures.push(found);
        }
    }

    /// The median of a figure of an arm's calls over repetitions.
    fn each(&self, arm: usize, figure: fn(&Distribution) -> f64) -> f64 {
        median(&self.arms[arm].1.iter().map(figure).collect::<Vec<_>>())
    }

    /// The median of an arm's calls, sent / handed over, over repetitions.
    fn ratio(&self, [sent, handed]: [usize; 2]) -> f64 {
        let pairs = self.arms[sent].1.iter().zip(&self.arms[handed].1).map(|(sent, handed)| (sent.p50, handed.p50));
        median_ratio(&pairs.collect::<Vec<_>>())
    }
}

fn judge(arms: &[Arm; 3], cells: &[Calls]) -> Findings {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    let heads =
        ["call of publish, µs, medians over repetitions", "p50", "p90", "p99", "p50 sent / this", "round trip p50"];
    let mut table = Table::new("The time of `publish` in the user's thread", &heads);
    let mut groups = Vec::new();
    for calls in cells {
        let name = format!("{} B by {}", calls.payload, calls.carrier);
        let mut bars = Vec::new();
        for (index, arm) in arms.iter().enumerate() {
            let each = |figure| calls.each(index, figure);
            let [p50, p90, p99] = [each(|d| d.p50), each(|d| d.p90), each(|d| d.p99)];
            let trip = median(&calls.arms[index].0.each(|d| d.p50));
            table.row(format!("{name}, {}", arm.name), &[p50, p90, p99, calls.ratio([0, index]), trip]);
            let deviation = each(|d| d.stdev);
            bars.push(Bar { series: arm.name.into(), value: p50, deviation, mark: Some(p99) });
            let factors = Factors::new()
                .with("arm", arm.name)
                .with("measured", calls.carrier)
                .with("payload_bytes", calls.payload);
            findings.cells.push(calls.arms[index].0.cell(factors, true));
        }
        groups
            .push(Group { label: name.clone(), bars: bars.into_iter().filter(|bar| bar.value.is_finite()).collect() });
        if calls.payload > ANSWER {
            let name = format!("p50 of publish, sent / handed over to another processor: {name}");
            findings.checks.push(Check::at_least(name, calls.ratio([0, 1]), LONGER));
        }
    }
    findings.tables.push(table);
    findings.figure = Figure {
        title: "The time of publish in the user's thread".into(),
        axis: "call of publish, µs, medians over repetitions".into(),
        logarithmic: true,
        panels: vec![Panel { title: String::new(), groups }],
    };
    findings
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "A call is timed around `publish` in the thread that calls it, once in a millisecond, to a subscriber on another host (namespaces; \
             the link takes no time), which acknowledges each sample with {ANSWER} B. The user's thread and the subscriber are on two processors."
        ),
        "An arm is set on the open channels, at both ends: sched and affinity give a channel a sending thread of its own.".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::stalls::Stalls;

    /// Calls of these times in µs, arm by arm.
    fn found(call_us: [u64; 3]) -> Vec<Verdict> {
        let mut calls = Calls::of("tcp", 8192);
        for (arm, us) in call_us.into_iter().enumerate() {
            let trip = RoundTrip { sent_ns: 0, took_ns: Some(1), call_ns: us * 1000 };
            (0..3).for_each(|_| calls.add(arm, &[trip; 5], &Stalls::default()));
        }
        let findings = judge(&arms(0, 1), &[Calls::of("tcp", 64), calls]);
        assert_eq!((findings.tables[0].rows.len(), findings.cells.len()), (6, 6));
        findings.checks.iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn a_call_that_hands_over_is_shorter_than_one_that_sends() {
        assert_eq!(found([30, 20, 90]), [Verdict::Pass]);
        assert_eq!(found([29, 20, 10]), [Verdict::Fail]);
    }

    #[test]
    fn nothing_measured_passes_nothing() {
        let findings = judge(&arms(0, 1), &[Calls::of("udp", 8192)]);
        assert!(findings.checks.len() == 1 && !findings.checks[0].pass);
    }
}
