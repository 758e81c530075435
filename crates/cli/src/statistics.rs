//! Percentiles of latencies.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A histogram of latencies from 1 ns to an hour, to 0.1 %.
pub struct Latencies(Option<Histogram<u64>>);

const LONGEST_NS: u64 = 3_600_000_000_000;

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half were faster.
    pub p50: f64,
    /// One in a hundred was slower.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

impl Latencies {
    /// An empty one.
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, 3).ok())
    }

    /// Notes one latency in nanoseconds.
    pub fn record(&mut self, ns: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(ns.max(1));
        }
    }

    /// How many were noted.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// The percentiles; `None` when nothing was noted.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let histogram = self.0.as_ref().filter(|h| !h.is_empty())?;
        let at = |quantile: f64| microseconds(histogram.value_at_quantile(quantile));
        Some(Percentiles { p50: at(0.5), p99: at(0.99), max: microseconds(histogram.max()) })
    }

    /// The fastest in microseconds.
    pub fn min(&self) -> Option<f64> {
        self.0.as_ref().filter(|h| !h.is_empty()).map(|h| microseconds(h.min()))
    }
}

/// Nanoseconds as microseconds, to a tenth.
pub fn microseconds(ns: u64) -> f64 {
    (ns as f64 / 100.0).round() / 10.0
}

/// A number to a given count of decimals, so that JSON has no digits that mean nothing.
pub fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_microseconds_and_absent_without_samples() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.percentiles(), None);
        (1..=100u64).for_each(|us| latencies.record(us * 1000));
        let found = latencies.percentiles().unwrap();
        assert!((found.p50 - 50.0).abs() < 0.2 && (found.p99 - 99.0).abs() < 0.2 && found.max >= 100.0, "{found:?}");
        assert_eq!(latencies.count(), 100);
    }
}
