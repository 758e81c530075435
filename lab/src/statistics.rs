//! Statistics of measurements: histograms of latencies, distributions of samples, medians of repetitions, lines through points.
//!
//! Latencies that come one by one go into an HDR histogram, which records without allocating. Samples that are kept anyway give exact
//! figures.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A histogram of latencies, to 0.1 %. Recording makes no allocation.
#[derive(Clone, Debug)]
pub struct Latencies(Option<Histogram<u32>>); // `None`: the bounds are refused, which they are not

impl Default for Latencies {
    /// Up to an hour.
    fn default() -> Self {
        Self::up_to(Duration::from_secs(3600))
    }
}

impl Latencies {
    /// No latencies yet. Those above `longest` count as that.
    pub fn up_to(longest: Duration) -> Self {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Self(Histogram::new_with_bounds(1, longest.max(2), 3).ok())
    }

    /// Records one latency in nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(ns.max(1));
        }
    }

    /// Latencies recorded so far.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// The latency in microseconds that this share (0 to 1) of all does not exceed; 0 of none.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.as_ref().map_or(0.0, |histogram| histogram.value_at_quantile(quantile) as f64 / 1000.0)
    }

    /// The percentiles that people are shown; `None` of none.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let tenths = |us: f64| rounded(us, 1);
        let (p50, p99) = (tenths(self.quantile_us(0.5)), tenths(self.quantile_us(0.99)));
        (self.count() > 0).then(|| Percentiles { p50, p99, max: tenths(self.max_us()) })
    }

    /// The shortest in microseconds; 0 of none.
    pub fn min_us(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |histogram| histogram.min() as f64 / 1000.0)
    }

    /// The longest in microseconds; 0 of none.
    pub fn max_us(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |histogram| histogram.max() as f64 / 1000.0)
    }
}

/// Percentiles of latencies in microseconds, to a tenth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// Nanoseconds as microseconds, to a tenth.
pub fn microseconds(ns: u64) -> f64 {
    rounded(ns as f64 / 1000.0, 1)
}

/// The distribution of samples, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the samples (n − 1).
    pub stdev: f64,
    /// The least.
    pub min: f64,
    /// Half are at most this.
    pub p50: f64,
    /// 90 of 100 are.
    pub p90: f64,
    /// 99 of 100 are.
    pub p99: f64,
    /// 999 of 1000 are.
    pub p999: f64,
    /// The greatest.
    pub max: f64,
}

impl Distribution {
    /// The distribution of these samples, in any order; `None` of none. A percentile is a sample (nearest rank), never a value
    /// between two.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (count, min, max) = (sorted.len() as f64, *sorted.first()?, *sorted.last()?);
        let mean = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        let stdev = if sorted.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let at = |quantile: f64| sorted[((quantile * count).ceil() as usize).clamp(1, sorted.len()) - 1];
        let (p50, p90, p99, p999) = (at(0.5), at(0.9), at(0.99), at(0.999));
        let [mean, stdev, min, p50, p90, p99, p999, max] =
            [mean, stdev, min, p50, p90, p99, p999, max].map(|us| rounded(us, 3));
        Some(Self { mean, stdev, min, p50, p90, p99, p999, max })
    }

    /// Distance of the slow samples from the usual ones: p99 − p50.
    pub fn spread(&self) -> f64 {
        self.p99 - self.p50
    }
}

/// The median; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The median of the ratios of pairs; NaN of none.
pub fn median_ratio(pairs: &[(f64, f64)]) -> f64 {
    median(&pairs.iter().map(|(over, under)| over / under).collect::<Vec<_>>())
}

/// The largest interarrival jitter of any moment (RFC 3550 §6.4.1): the distance of the delays of two samples that follow each other, smoothed
/// over 16 of them. Delays in the order of arrival; the unit is theirs. NaN of fewer than two.
pub fn largest_jitter(delays: impl IntoIterator<Item = f64>) -> f64 {
    let (mut before, mut jitter, mut largest) = (None, 0.0, f64::NAN);
    for delay in delays {
        if let Some(before) = before.replace(delay) {
            jitter += (f64::abs(delay - before) - jitter) / 16.0;
            largest = f64::max(largest, jitter);
        }
    }
    largest
}

/// The standard error of the median of these values, from their median absolute deviation. For normal noise, 1.4826 times that is
/// the standard deviation, and a median's error is 1.2533 times a mean's. NaN of fewer than three: they tell nothing of it.
pub fn uncertainty(values: &[f64]) -> f64 {
    if values.len() < LEAST_REPETITIONS {
        return f64::NAN;
    }
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    1.2533 * 1.4826 * median(&distances) / (values.len() as f64).sqrt()
}

/// Fewer repetitions do not show how much they scatter.
const LEAST_REPETITIONS: usize = 3;

/// The interval that holds the quotient of two medians with 95 % confidence, by the percentile bootstrap (Efron 1979): quotients of
/// medians of values drawn again, as many as there are. `below(n)` draws from 0 … n − 1. `None` of fewer than three values of either.
pub fn quotient_interval(
    over: &[f64],
    under: &[f64],
    mut below: impl FnMut(usize) -> usize,
) -> Option<std::ops::RangeInclusive<f64>> {
    if over.len().min(under.len()) < LEAST_REPETITIONS || over.iter().chain(under).any(|value| value.is_nan()) {
        return None;
    }
    let mut again = |values: &[f64]| median(&values.iter().map(|_| values[below(values.len())]).collect::<Vec<_>>());
    let mut quotients: Vec<f64> = (0..DRAWS).map(|_| again(over) / again(under)).collect();
    quotients.sort_by(f64::total_cmp);
    Some(quotients[DRAWS / 40]..=quotients[DRAWS - 1 - DRAWS / 40])
}

/// Draws of a bootstrap.
const DRAWS: usize = 4000;

/// The largest probability of an event that happened in so many of independent tries, with 95 % confidence (Clopper and Pearson 1934): with
/// that one, so few would happen in one of twenty such series. Of none in n tries about 3 / n; 1 if there were no others, or no tries.
pub fn largest_probability(events: u64, tries: u64) -> f64 {
    if events >= tries {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if at_most(events, tries, middle) > RARELY {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// One in twenty.
const RARELY: f64 = 0.05;
/// Steps after which the two ends hardly differ.
const HALVINGS: u32 = 50;

/// The probability of at most so many events, fewer than tries; each try has one with probability `p`, above 0 and below 1.
fn at_most(events: u64, tries: u64, p: f64) -> f64 {
    let mut ln = tries as f64 * (-p).ln_1p(); // of exactly so many; a logarithm, for it may be below all positive numbers
    let mut sum = ln.exp();
    for before in 0..events {
        ln += ((tries - before) as f64 / (before + 1) as f64 * p / (1.0 - p)).ln();
        sum += ln.exp();
    }
    sum
}

/// The median of repetitions with its range, each to three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of these values; `None` of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().map(|value| rounded(value, 3)).collect();
        let min = values.iter().copied().min_by(f64::total_cmp)?;
        let max = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { median: rounded(median(&values), 3), min, max })
    }
}

/// Rounds a number to this many decimals: digits without meaning stay out of JSON.
pub fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

/// `a + b·x`, and the part of the points' variation that it explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearFit {
    /// At x = 0.
    pub a: f64,
    /// Per unit of x.
    pub b: f64,
    /// Coefficient of determination R², 0 … 1: 1 where all points are on it.
    pub explained: f64,
}

impl LinearFit {
    /// The least-squares line; `None` of fewer than two different x, or of NaN.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| of(p.0 - x, p.1 - y)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|dx, _| dx * dx), sum(&|dx, dy| dx * dy), sum(&|_, dy| dy * dy));
        let (b, level) = (xy / xx, yy == 0.0);
        let explained = if level { 1.0 } else { xy * b / yy };
        (b.is_finite() && explained.is_finite()).then_some(Self { a: y - b * x, b, explained })
    }

    /// Its height at x.
    pub fn at(&self, x: f64) -> f64 {
        self.a + self.b * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_known_samples_are_right() {
        let samples: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let d = Distribution::of(&samples).unwrap();
        assert_eq!((d.min, d.p50, d.p90, d.p99, d.p999, d.max), (1.0, 500.0, 900.0, 990.0, 999.0, 1000.0));
        assert_eq!((d.mean, d.spread()), (500.5, 490.0));
        assert!((d.stdev - 288.819).abs() < 0.001, "{d:?}");
        assert_eq!(Distribution::of(&[]), None);
        let one = Distribution::of(&[7.0]).unwrap();
        assert_eq!((one.stdev, one.p50, one.p999), (0.0, 7.0, 7.0));
    }

    #[test]
    fn jitter_is_the_smoothed_distance_of_neighbouring_delays() {
        assert!(largest_jitter([]).is_nan() && largest_jitter([5.0]).is_nan());
        assert_eq!(largest_jitter([5.0; 100]), 0.0);
        // One delay that is 16 longer: 1 at once, and with the way back 1 + (16 − 1) / 16.
        assert_eq!(largest_jitter([0.0, 0.0, 16.0, 0.0, 0.0, 0.0]), 1.9375);
        let alternating = largest_jitter((0..1000).map(|n| f64::from(n % 2)));
        assert!((alternating - 1.0).abs() < 1e-9, "{alternating}");
    }

    #[test]
    fn more_scatter_means_more_uncertainty() {
        assert!(uncertainty(&[]).is_nan() && uncertainty(&[1.0, 1.0]).is_nan(), "two may be alike by chance");
        assert_eq!(uncertainty(&[2.0; 5]), 0.0);
        let near = uncertainty(&[1.0, 1.1, 1.2, 1.3, 1.4]);
        assert!((near - 1.2533 * 1.4826 * 0.1 / 5f64.sqrt()).abs() < 1e-9);
        assert!(uncertainty(&[1.0, 2.0, 3.0, 4.0, 5.0]) > 5.0 * near);
    }

    #[test]
    fn the_largest_probability_is_that_of_the_tables() {
        // Upper limits of 95 %, one-sided: Clopper and Pearson.
        for (events, tries, printed) in
            [(0, 10, 0.2589), (1, 10, 0.3942), (5, 10, 0.7776), (0, 100, 0.0295), (2, 100, 0.0616)]
        {
            let found = largest_probability(events, tries);
            assert!((found - printed).abs() < 5e-5, "{events} of {tries}: {found}");
        }
        assert!(largest_probability(800, 1000) > 0.8 && largest_probability(800, 1000) < 0.83);
        assert_eq!([(0, 0), (1, 1), (7, 7)].map(|(events, tries)| largest_probability(events, tries)), [1.0; 3]);
        // The rule of three: 598 show that it is rarer than one in 200.
        assert!(largest_probability(0, 598) < 1.0 / 200.0 && largest_probability(0, 597) > 1.0 / 200.0);
    }

    #[test]
    fn the_interval_of_a_quotient_holds_it_and_is_wider_of_values_that_scatter() {
        let mut state = 1_usize;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let near: Vec<f64> = (0..21).map(|n| 10.0 + f64::from(n % 3) * 0.1).collect();
        let far: Vec<f64> = (0..21).map(|n| 10.0 + f64::from(n % 7)).collect();
        let halves = |values: &[f64]| values.iter().map(|value| value / 2.0).collect::<Vec<_>>();
        let mut width = |values: &[f64]| {
            let interval = quotient_interval(values, &halves(values), &mut below).unwrap();
            assert!(interval.contains(&2.0), "{interval:?}");
            interval.end() - interval.start()
        };
        assert!(width(&far) > 3.0 * width(&near));
        assert_eq!(quotient_interval(&near, &near[..2], &mut below), None);
        assert_eq!(quotient_interval(&near, &[f64::NAN; 5], &mut below), None);
    }

    #[test]
    fn quantiles_of_known_latencies_are_right_to_three_digits() {
        let mut latencies = Latencies::up_to(Duration::from_secs(60));
        assert_eq!((latencies.count(), latencies.quantile_us(0.5), latencies.max_us()), (0, 0.0, 0.0));
        (1..=10_000u64).for_each(|n| latencies.record(n * 1000)); // 1 µs … 10 ms
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.001;
        let found = [latencies.min_us(), latencies.quantile_us(0.5), latencies.quantile_us(0.99), latencies.max_us()];
        for (found, wanted) in found.into_iter().zip([1.0, 5000.0, 9900.0, 10_000.0]) {
            assert!(near(found, wanted), "{found} instead of {wanted}");
        }
        assert!(near(latencies.quantile_us(0.999), 9990.0) && latencies.count() == 10_000);
        let Percentiles { p50, p99, max } = latencies.percentiles().unwrap();
        assert!(near(p50, 5000.0) && near(p99, 9900.0) && near(max, 10_000.0));
        assert_eq!((Latencies::up_to(Duration::from_secs(1)).percentiles(), microseconds(1249)), (None, 1.2));
    }

    #[test]
    fn one_outlier_shows_in_the_maximum_only_and_the_longest_is_the_most() {
        let mut latencies = Latencies::up_to(Duration::from_secs(60));
        (0..999).for_each(|_| latencies.record(10_000));
        latencies.record(u64::MAX);
        assert!(latencies.quantile_us(0.999) < 10.1, "{latencies:?}");
        assert!(latencies.max_us() > 59e6 && latencies.max_us() < 61e6 * 1.2, "{latencies:?}");
    }

    #[test]
    fn spreads_are_of_even_and_odd_many_values() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|s| s.median), Some(2.5));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn medians_are_of_pairs() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        // The ratio of the medians would be 10.
        assert_eq!(median_ratio(&[(100.0, 10.0), (10.0, 2.0), (300.0, 100.0)]), 5.0);
    }

    #[test]
    fn the_line_of_velox_fig_11_and_16_is_found() {
        let topics = [(1.0, 9.0), (2.0, 15.0), (3.0, 24.0), (4.0, 34.0), (5.0, 42.0)];
        let line = LinearFit::through(&topics).unwrap();
        assert!((line.b - 8.5).abs() < 1e-9 && (line.a + 0.7).abs() < 1e-9, "{line:?}");
        assert!(line.explained > 0.99 && (line.at(5.0) - 41.8).abs() < 1e-9);
        let subscribers = [(1.0, 400.0), (2.0, 600.0), (4.0, 900.0), (8.0, 1400.0)];
        let line = LinearFit::through(&subscribers).unwrap();
        assert!((line.b - 140.0).abs() < 1.0 && (line.a - 300.0).abs() < 5.0, "{line:?}");
    }

    #[test]
    fn points_off_a_line_have_none_or_explain_little() {
        assert_eq!(LinearFit::through(&[]), None);
        assert_eq!(LinearFit::through(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(LinearFit::through(&[(1.0, f64::NAN), (2.0, 3.0)]), None);
        let bent = LinearFit::through(&[(0.0, 0.0), (1.0, 10.0), (2.0, 0.0)]).unwrap();
        assert!(bent.explained < 0.01, "{bent:?}");
        assert_eq!(
            LinearFit::through(&[(0.0, 4.0), (9.0, 4.0)]).map(|line| (line.b, line.explained)),
            Some((0.0, 1.0))
        );
    }
}
