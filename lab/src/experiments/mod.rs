//! The experiments. To add one: a module with a type that is an [`Experiment`], and its line in [`experiments`].

mod big_messages;
mod cac;
mod conference;
mod cpu_contention;
pub(crate) mod dali;
mod goodput;
pub mod hostile;
mod isolation;
mod line_rates;
mod lines;
mod lossy;
pub mod many_nodes;
mod placement;
mod pull_beside;
mod pushpull;
pub(crate) mod velox;
mod yarp;

use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::stream::Flow;
use crate::results::{Bar, Cell, Factors, Findings, Stalled};
use crate::round_trips::RoundTrip;
use crate::stalls::{Monitor, Stalls, Timed};
use crate::statistics::Distribution;
use serde_json::{Value, json};
use std::time::Duration;
use thalweg::carrier::Dice;

/// An experiment.
pub trait Experiment: Sync {
    /// As `lab run` takes it, such as `yarp-nic`.
    fn name(&self) -> &'static str;
    /// Its purpose, in a line.
    fn about(&self) -> &'static str;
    /// Runs the experiment. A part that could not run is a [`crate::Skipped`] of the findings; an error stops all of
    /// it.
    ///
    /// # Errors
    /// The [`Error`]; [`Error::Stopped`] soon after [`crate::Stop`] was asked.
    fn run(&self, lab: &Lab) -> Result<Findings>;
}

/// All experiments.
pub fn experiments() -> &'static [&'static dyn Experiment] {
    &[
        &line_rates::LineRates,
        &yarp::YarpNic,
        &yarp::YarpSwitch,
        &yarp::YarpBoth,
        &yarp::YarpAblation,
        &yarp::YarpPublish,
        &cpu_contention::CpuContention,
        &isolation::Isolation,
        &big_messages::BigMessages,
        &pushpull::PushPullProxy,
        &pushpull::PushPullPlaces,
        &pushpull::PushPullSizes(1),
        &pushpull::PushPullSizes(2),
        &pushpull::PushPullSizes(3),
        &pushpull::PushPullSizes(4),
        &pushpull::PushPullLoaded,
        &placement::VBNS,
        &placement::STAR,
        &velox::VeloxTopics,
        &velox::VeloxQueues,
        &velox::VeloxProcessor,
        &velox::VeloxLan,
        &velox::VeloxSubscribers,
        &velox::VeloxProtection,
        &velox::ONE_TO_ONE,
        &velox::ONE_TO_MANY,
        &velox::MANY_TO_ONE,
        &velox::MANY_TO_MANY,
        &cac::Cac,
        &conference::Conference,
        &pull_beside::PullBeside,
        &lossy::LossyLink,
        &lossy::Outages,
        &many_nodes::ManyNodes,
        &goodput::Goodput,
        &hostile::Hostile,
        &dali::DaliMappings,
        &dali::DaliFailover,
        &dali::SINGLE,
        &dali::TWO,
        &dali::SIZES,
    ]
}

/// The experiment with this name.
///
/// # Errors
/// [`Error::Usage`] with all names.
pub fn find(name: &str) -> Result<&'static dyn Experiment> {
    experiments().iter().copied().find(|e| e.name() == name).ok_or_else(|| {
        let names: Vec<&str> = experiments().iter().map(|e| e.name()).collect();
        Error::Usage(format!("experiment {name:?}: there are {}", names.join(", ")))
    })
}

/// The numbers 0 … `count` − 1 in random order.
pub fn shuffled(count: usize, dice: &mut Dice) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, dice.below(last as u64 + 1) as usize);
    }
    order
}

/// One cell in the making: its repetitions so far. Figures are of all samples; those that a stall of the machine hit are also told apart.
#[derive(Debug, Default)]
struct Tally {
    samples: Vec<f64>,
    clean: Vec<f64>,
    stalled: Stalled,
    /// Less the stalls during each sample alone, and less its wait for a stall's backlog, too.
    less_own: Vec<f64>,
    less_stalls: Vec<f64>,
    sent: u64,
    received: u64,
    /// Figures of each repetition; a repetition without received samples has none.
    repetitions: Vec<Option<Distribution>>,
    told: Vec<Value>,
}

impl Tally {
    /// Adds a repetition: the numbers of samples and receivers, and the samples that arrived.
    fn add(&mut self, sent: u64, arrived: &[Timed], stalls: &Stalls) {
        let (clean, stalled) = stalls.apart(arrived);
        let all: Vec<f64> = arrived.iter().map(|sample| sample.ns as f64 / 1000.0).collect();
        let figures = Distribution::of(&all);
        let told = json!({"sent": sent, "received": arrived.len(), "us": figures, "stalled": stalled, "stalls": stalls.summary()});
        self.told.push(told);
        self.repetitions.push(figures);
        self.samples.extend(all);
        self.clean.extend(clean);
        let own = |sample: &Timed| stalls.without(sample.from_ns, sample.from_ns + sample.ns) as f64 / 1000.0;
        self.less_own.extend(arrived.iter().map(own));
        self.less_stalls.extend(stalls.without_backlog(arrived).into_iter().map(|ns| ns as f64 / 1000.0));
        self.stalled.n += stalled.n;
        self.stalled.max = self.stalled.max.max(stalled.max);
        self.sent += sent;
        self.received += arrived.len() as u64;
    }

    /// Publishes this number of samples of a flow, and adds those that arrived at most this long after the last one was published.
    fn publish(&mut self, lab: &Lab, flow: &mut Flow, count: u64, patience: Duration) -> Result {
        let monitor = Monitor::start()?;
        let (published, arrived) = flow.publish(lab, count, patience)?;
        let stalls = monitor.finish();
        let receivers = arrived.len() as u64;
        let samples: Vec<Timed> = arrived.into_iter().flat_map(|arrived| arrived.of(&published).samples).collect();
        self.add(count * receivers, &samples, &stalls);
        Ok(())
    }

    /// Adds a repetition of round trips.
    fn add_trips(&mut self, trips: &[RoundTrip], stalls: &Stalls) {
        let back = |trip: &RoundTrip| trip.took_ns.map(|ns| Timed { from_ns: trip.sent_ns, ns });
        self.add(trips.len() as u64, &trips.iter().filter_map(back).collect::<Vec<_>>(), stalls);
    }

    /// Adds a figure to the report of the last repetition.
    fn tell(&mut self, name: &str, value: impl Into<Value>) {
        if let Some(told) = self.told.last_mut() {
            told[name] = value.into();
        }
    }

    /// The largest time in µs; NaN if no sample arrived.
    fn largest(&self) -> f64 {
        self.samples.iter().copied().fold(f64::NAN, f64::max)
    }

    /// The largest time in µs, less stalls of the machine and their backlog; NaN if no sample arrived.
    fn without_stalls(&self) -> f64 {
        self.less_stalls.iter().copied().fold(f64::NAN, f64::max)
    }

    /// The largest time in µs, less the stalls during each sample alone; NaN if no sample arrived.
    fn without_own_stalls(&self) -> f64 {
        self.less_own.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Samples that took longer than this, in µs, although the stalls during each alone are taken off.
    fn beyond_without_own_stalls(&self, limit_us: f64) -> u64 {
        self.less_own.iter().filter(|us| **us > limit_us).count() as u64
    }

    /// Samples that took longer than this, in µs, and those of them that stalls of the machine excuse.
    fn beyond(&self, limit_us: f64) -> (u64, u64) {
        let [late, unexcused] =
            [&self.samples, &self.less_stalls].map(|all| all.iter().filter(|us| **us > limit_us).count() as u64);
        (late, late - unexcused)
    }

    /// Samples that were to arrive.
    fn sent(&self) -> u64 {
        self.sent
    }

    /// The share of the samples that arrived which a stall of the machine hit.
    fn stalled(&self) -> f64 {
        self.stalled.n as f64 / self.received.max(1) as f64
    }

    /// Samples that did not arrive.
    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// The same for a check; NaN if none was to arrive, which is no success.
    fn missing(&self) -> f64 {
        if self.sent == 0 { f64::NAN } else { self.lost() as f64 }
    }

    /// The least time in µs; NaN if no sample arrived.
    fn least(&self) -> f64 {
        self.samples.iter().copied().fold(f64::NAN, f64::min)
    }

    /// A figure of each repetition; NaN for a missing one.
    fn each(&self, figure: impl Fn(&Distribution) -> f64) -> Vec<f64> {
        self.repetitions.iter().map(|found| found.as_ref().map_or(f64::NAN, &figure)).collect()
    }

    /// The figure of each repetition with the one of another tally's repetition.
    fn pairs(&self, with: &Tally, figure: impl Fn(&Distribution) -> f64) -> Vec<(f64, f64)> {
        self.each(&figure).into_iter().zip(with.each(&figure)).collect()
    }

    /// The cell.
    fn cell(&self, factors: Factors, round_trips: bool) -> Cell {
        let figures = Distribution::of(&self.samples);
        let (rtt_us, latency_us) = if round_trips { (figures, None) } else { (None, figures) };
        Cell {
            factors,
            n: self.samples.len() as u64,
            rtt_us,
            latency_us,
            sent: self.sent,
            received: self.received,
            lost: self.lost(),
            stalled: Some(self.stalled),
            without_stalled_us: Distribution::of(&self.clean),
            repetitions: self.told.clone(),
            samples: self.samples.clone(),
        }
    }

    /// The cell as a bar.
    fn bar(&self, series: &str) -> Option<Bar> {
        let Distribution { mean, stdev, p99, .. } = Distribution::of(&self.samples)?;
        Some(Bar { series: series.to_owned(), value: mean, deviation: stdev, mark: Some(p99) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::Stall;

    #[test]
    fn everything_has_its_turn_once() {
        let mut dice = Dice::new(1);
        let (one, mut other) = (shuffled(20, &mut dice), shuffled(20, &mut dice));
        assert_ne!(one, other);
        other.sort_unstable();
        assert_eq!(other, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn repetitions_add_up_and_pair() {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        let samples = |us: u64| vec![Timed { from_ns: 0, ns: us * 1000 }; 3];
        for us in [10, 20] {
            one.add(4, &samples(us), &Stalls::default());
            other.add(3, &samples(us * 2), &Stalls::default());
        }
        let cell = one.cell(Factors::new(), true);
        assert_eq!((cell.n, cell.sent, cell.received, cell.lost, cell.repetitions.len()), (6, 8, 6, 2, 2));
        assert_eq!(other.pairs(&one, |d| d.p50), [(20.0, 10.0), (40.0, 20.0)]);
        assert!(cell.latency_us.is_none() && cell.rtt_us.is_some());
        assert_eq!([9.0, 15.0, 20.0].map(|limit| one.beyond(limit)), [(6, 0), (3, 0), (0, 0)]);
    }

    #[test]
    fn nothing_lost_of_nothing_is_no_success() {
        let mut tally = Tally::default();
        assert!(tally.missing().is_nan() && tally.least().is_nan());
        tally.add(2, &[Timed { from_ns: 0, ns: 5000 }], &Stalls::default());
        assert_eq!((tally.missing(), tally.least()), (1.0, 5.0));
    }

    #[test]
    fn a_sample_late_by_its_own_stall_is_told_from_one_that_waits_behind_it() {
        let stall = Stall { cpu: 0, from_ns: 100_000, to_ns: 200_000, late_ns: 90_000 };
        let stalls = Stalls { stalls: vec![stall], ..Stalls::default() };
        // Less the stall the first took 12 µs; the second waited for it for 1 of its 9.
        let arrived = [(90_000, 112_000), (201_000, 9_000)].map(|(from_ns, ns)| Timed { from_ns, ns });
        let mut tally = Tally::default();
        tally.add(2, &arrived, &stalls);
        assert_eq!([tally.largest(), tally.without_own_stalls(), tally.without_stalls()], [112.0, 12.0, 12.0]);
        let late = |limit| (tally.beyond(limit), tally.beyond_without_own_stalls(limit));
        assert_eq!([8.5, 10.0, 20.0].map(late), [((2, 1), 2), ((1, 0), 1), ((1, 1), 0)]);
    }
}
