//! Figures of many samples, and of ratios of pairs.

use serde::{Deserialize, Serialize};

/// What samples look like together, in microseconds.
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
    /// Of these samples, in any order; `None` of none. A percentile is the least sample that so many are at most
    /// (nearest rank), never something between two.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (count, min, max) = (sorted.len() as f64, *sorted.first()?, *sorted.last()?);
        let mean = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        let stdev = if sorted.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let at = |quantile: f64| sorted[((quantile * count).ceil() as usize).clamp(1, sorted.len()) - 1];
        let (p50, p90, p99, p999) = (at(0.5), at(0.9), at(0.99), at(0.999));
        let [mean, stdev, min, p50, p90, p99, p999, max] = [mean, stdev, min, p50, p90, p99, p999, max].map(rounded);
        Some(Self { mean, stdev, min, p50, p90, p99, p999, max })
    }

    /// How far the slow ones are from the usual: p99 − p50.
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

/// How far the median of so few values may be from the one of many: its standard error, from the median distance of the values
/// from their median (1.4826 times that is a standard deviation, and a median's error 1.2533 times a mean's, for normal noise).
pub fn uncertainty(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    1.2533 * 1.4826 * median(&distances) / (values.len() as f64).sqrt()
}

/// Three digits after the point: nanoseconds where the number is microseconds.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
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
    fn what_scatters_more_is_less_certain() {
        assert!(uncertainty(&[]).is_nan());
        assert_eq!(uncertainty(&[2.0; 5]), 0.0);
        let near = uncertainty(&[1.0, 1.1, 1.2, 1.3, 1.4]);
        assert!((near - 1.2533 * 1.4826 * 0.1 / 5f64.sqrt()).abs() < 1e-9);
        assert!(uncertainty(&[1.0, 2.0, 3.0, 4.0, 5.0]) > 5.0 * near);
    }

    #[test]
    fn medians_are_of_pairs() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        // The ratio of the medians would be 10.
        assert_eq!(median_ratio(&[(100.0, 10.0), (10.0, 2.0), (300.0, 100.0)]), 5.0);
    }
}
