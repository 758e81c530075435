//! Alternating pairs of runs: the delays of several subscribers while all is well, and while another one is disturbed.

use super::{figure, median};

/// Percentiles of one run, in µs.
#[derive(Clone, Copy)]
pub struct Delays {
    /// Latency of the median subscriber.
    pub p50: f64,
    /// Latency of the median subscriber.
    pub p99: f64,
    /// Duration of `publish`.
    pub call_p50: f64,
    /// Duration of `publish`.
    pub call_p99: f64,
}

/// The largest ratios of a disturbed run to its undisturbed one. A ratio to less than a floor is taken to the floor.
#[derive(Clone, Copy)]
pub struct Limits {
    /// At the median.
    pub p50: f64,
    /// At the 99th percentile.
    pub p99: f64,
    /// Of both percentiles, in µs.
    pub floors: [f64; 2],
}

/// Limits for a machine that does other things, too. Each is a median of pairs, so one disturbed pair decides nothing. The
/// floors: a median of 20 µs becomes 40 when a scheduler's decision differs, and a 99th percentile is a matter of a tick.
pub const LOOSE: Limits = Limits { p50: 1.5, p99: 5.0, floors: [100.0, 400.0] };
/// Those of F-8, for a quiet machine.
pub const STRICT: Limits = Limits { p50: 1.10, p99: 1.5, floors: [0.0, 0.0] };

/// Runs of both kinds, in pairs.
pub struct Pairs(Vec<[Delays; 2]>);

impl Pairs {
    /// Makes `count` pairs. `run(true)` is disturbed; it goes first in every second pair.
    pub fn measure(count: usize, mut run: impl FnMut(bool) -> Delays) -> Self {
        let pair = |number: usize| {
            let first = number % 2 == 1;
            let (one, other) = (run(first), run(!first));
            if first { [other, one] } else { [one, other] }
        };
        Self((0..count).map(pair).collect())
    }

    /// Prints the figures, and returns those beyond their limits.
    pub fn beyond(&self, test: &str, what: &str, limits: Limits) -> Vec<String> {
        let [low, high] = limits.floors;
        type Percentile = fn(&Delays) -> f64;
        let all: [(&str, Percentile, f64, f64); 4] = [
            ("latency p50", |d| d.p50, limits.p50, low),
            ("latency p99", |d| d.p99, limits.p99, high),
            ("publish() p50", |d| d.call_p50, limits.p50, low),
            ("publish() p99", |d| d.call_p99, limits.p99, high),
        ];
        let judged = all.into_iter().filter_map(|(name, of, limit, floor)| {
            let middle = |disturbed: usize| median(self.0.iter().map(|pair| of(&pair[disturbed])).collect());
            let ratio = median(self.0.iter().map(|[calm, wild]| of(wild) / of(calm).max(floor)).collect());
            let said = format!("{what}: {name} {:.0} µs, disturbed {:.0} µs, ratio {ratio:.2}", middle(0), middle(1));
            figure(test, format!("{said} (limit {limit}, to at least {floor} µs)"));
            (ratio.is_nan() || ratio > limit).then_some(said)
        });
        judged.collect()
    }
}
