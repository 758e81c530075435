//! The last samples of a topic, and figures over them.

use lab::statistics::{Latencies, microseconds, rounded};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use thalweg::SampleInfo;
use thalweg::clock::ClockOffset;
use thalweg::control::NodeId;

/// Message for a missing latency.
pub(super) const NO_COMMON_CLOCK: &str =
    "the publisher's clock is not this host's, and its node did not tell what it says; measure on the publisher's host";

/// Arrival of a sample.
struct Arrival {
    received_ns: u64,
    size: usize,
    latency_ns: Option<u64>,
    uncertainty_ns: u64,
}

/// The last samples.
pub(super) struct Window {
    arrivals: VecDeque<Arrival>,
    most: usize,
    total: u64,
    reported: u64,
    /// Clocks of publishers on other hosts.
    pub clocks: Clocks,
}

impl Window {
    /// An empty window over `most` samples.
    pub(super) fn new(most: usize) -> Self {
        Self {
            arrivals: VecDeque::with_capacity(most.min(10_000)),
            most,
            total: 0,
            reported: 0,
            clocks: Clocks::default(),
        }
    }

    /// Records a sample.
    pub(super) fn add(&mut self, info: &SampleInfo, size: usize) {
        if self.arrivals.len() == self.most {
            self.arrivals.pop_front();
        }
        let (latency_ns, uncertainty_ns) = self.clocks.latency(info).unzip();
        let uncertainty_ns = uncertainty_ns.unwrap_or(0);
        let arrival = Arrival { received_ns: info.received_ns, size, latency_ns, uncertainty_ns };
        self.arrivals.push_back(arrival);
        self.total += 1;
    }

    /// Samples since the beginning.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Samples since the last report.
    pub(super) fn fresh(&self) -> u64 {
        self.total - self.reported
    }

    /// Marks all samples so far as reported.
    pub(super) fn reported(&mut self) {
        self.reported = self.total;
    }

    /// `true` if at least one latency is known.
    pub(super) fn has_latency(&self) -> bool {
        self.arrivals.iter().any(|a| a.latency_ns.is_some())
    }

    /// Time from the first to the last arrival, in seconds; 0 if no sample came since the last report.
    fn span(&self) -> f64 {
        match (self.arrivals.front(), self.arrivals.back()) {
            (Some(first), Some(last)) if self.fresh() > 0 => {
                last.received_ns.saturating_sub(first.received_ns) as f64 / 1e9
            }
            _ => 0.0,
        }
    }

    fn per_second(&self, amount: f64) -> f64 {
        let span = self.span();
        if span > 0.0 { amount / span } else { 0.0 }
    }

    /// Samples per second, and statistics of their intervals.
    pub(super) fn rate(&self) -> Value {
        let intervals = self.arrivals.iter().zip(self.arrivals.iter().skip(1));
        let us: Vec<f64> = intervals.map(|(a, b)| b.received_ns.saturating_sub(a.received_ns) as f64 / 1e3).collect();
        let mean = us.iter().sum::<f64>() / us.len().max(1) as f64;
        let variance = us.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / us.len().max(1) as f64;
        let min = us.iter().copied().fold(f64::INFINITY, f64::min);
        let max = us.iter().copied().fold(0.0, f64::max);
        let interval = (!us.is_empty()).then(|| {
            json!({"min": rounded(min, 1), "mean": rounded(mean, 1), "max": rounded(max, 1), "stdev": rounded(variance.sqrt(), 1)})
        });
        let rate = rounded(self.per_second(us.len() as f64), 3);
        json!({"samples": self.total, "window": self.arrivals.len(), "rate_hz": rate, "interval_us": interval})
    }

    /// Bytes per second, and statistics of the sizes.
    pub(super) fn bandwidth(&self) -> Value {
        let sizes = || self.arrivals.iter().map(|a| a.size);
        // The first sample opens the interval in which the others came.
        let moved: usize = sizes().skip(1).sum();
        let mean = sizes().sum::<usize>() as f64 / self.arrivals.len().max(1) as f64;
        let size = json!({"min": sizes().min(), "mean": rounded(mean, 1), "max": sizes().max()});
        let rate = rounded(self.per_second(moved as f64), 1);
        json!({"samples": self.total, "window": self.arrivals.len(), "bytes_per_s": rate, "message_bytes": size})
    }

    /// Percentiles of the latency; `null` with the reason where it cannot be known.
    pub(super) fn delay(&self) -> Value {
        let mut latencies = Latencies::default();
        self.arrivals.iter().filter_map(|a| a.latency_ns).for_each(|ns| latencies.record(ns));
        let mut figures = json!({"samples": self.total, "window": self.arrivals.len(), "latency_us": null});
        match latencies.percentiles() {
            Some(found) => {
                let min = rounded(latencies.min_us(), 1);
                figures["latency_us"] = json!({"min": min, "p50": found.p50, "p99": found.p99, "max": found.max});
                let uncertain = self.arrivals.iter().map(|a| a.uncertainty_ns).max().filter(|ns| *ns > 0);
                figures["clock_uncertainty_us"] = uncertain.map(microseconds).into();
            }
            _ if self.total > 0 => figures["because"] = NO_COMMON_CLOCK.into(),
            _ => figures["because"] = "no sample arrived".into(),
        }
        figures
    }
}

/// Largest number of publishers whose clocks are compared.
const MOST: usize = 64;

/// Clock offsets of other hosts by node, compared while samples of them arrive; `None`: still to be asked.
#[derive(Default)]
pub(super) struct Clocks(HashMap<NodeId, Option<ClockOffset>>);

impl Clocks {
    /// Latency of a sample and its uncertainty, in nanoseconds. `None`: not known (yet).
    fn latency(&mut self, info: &SampleInfo) -> Option<(u64, u64)> {
        if let Some(latency) = info.latency_ns() {
            return Some((latency, 0));
        }
        let room = self.0.len() < MOST;
        match self.0.get(&info.node) {
            Some(offset) => offset.as_ref()?.elapsed_ns(info.source_ns, info.received_ns),
            None if room => {
                self.0.insert(info.node, None);
                None
            }
            None => None,
        }
    }

    /// The nodes whose clocks matter: all, or only those whose offset is unknown.
    pub(super) fn nodes(&self, all: bool) -> Vec<NodeId> {
        self.0.iter().filter(|(_, offset)| all || offset.is_none()).map(|(node, _)| *node).collect()
    }

    /// Records a node's clock offset. Without a new answer the old one stays, with a growing uncertainty.
    pub(super) fn found(&mut self, node: NodeId, offset: Option<ClockOffset>) {
        let known = self.0.entry(node).or_default();
        *known = offset.or(*known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg::control::PortId;

    fn window(same_clock: bool) -> Window {
        let mut window = Window::new(4);
        for seq in 1..=6u64 {
            let received_ns = seq * 10_000_000;
            let (node, port) = (NodeId(1), PortId(1));
            let source_ns = received_ns - 5_000;
            let info = SampleInfo {
                node,
                port,
                incarnation: 1,
                seq,
                source_ns,
                received_ns,
                same_clock,
                historical: false,
                change: Default::default(),
                scaled: None,
            };
            window.add(&info, 100);
        }
        window
    }

    #[test]
    fn figures_are_over_the_last_samples() {
        let window = window(true);
        let rate = window.rate();
        assert_eq!((&rate["rate_hz"], &rate["samples"], &rate["window"]), (&json!(100.0), &json!(6), &json!(4)));
        assert_eq!(rate["interval_us"]["max"], json!(10_000.0));
        assert_eq!(window.bandwidth()["bytes_per_s"], json!(10_000.0));
        let p50 = window.delay()["latency_us"]["p50"].as_f64().unwrap();
        assert!((p50 - 5.0).abs() < 0.1, "{p50}");
    }

    #[test]
    fn a_topic_that_fell_silent_has_no_rate() {
        let mut window = window(true);
        window.reported();
        assert_eq!(window.rate()["rate_hz"], json!(0.0));
    }

    #[test]
    fn no_latency_is_told_between_different_clocks() {
        let delay = window(false).delay();
        assert!(delay["latency_us"].is_null() && delay["because"].as_str().is_some_and(|b| b.contains("clock")));
    }
}
