//! `throttle`: passes a sample at most once per period (YARP's throttleDown).

use super::{Monitor, ParameterError, Seen, Verdict, in_milliseconds, milliseconds, unknown};
use crate::bottle::{Property, Value};
use std::time::Duration;

/// Passes a sample if at least the period went by since the last passed one.
#[derive(Debug, Default)]
pub struct Throttle {
    period: Duration,
    last_ns: Option<u64>,
    passed: i64,
    dropped: i64,
}

impl Throttle {
    /// A throttle with this period.
    pub fn every(period: Duration) -> Self {
        Self { period, ..Self::default() }
    }
}

impl Monitor for Throttle {
    fn kind(&self) -> &str {
        "throttle"
    }
    fn sample(&mut self, sample: &Seen<'_>, _: &mut Vec<u8>) -> Verdict {
        let early = |last: u64| u128::from(sample.now_ns.saturating_sub(last)) < self.period.as_nanos();
        if self.last_ns.is_some_and(early) {
            self.dropped += 1;
            return Verdict::Drop;
        }
        self.last_ns = Some(sample.now_ns);
        self.passed += 1;
        Verdict::Pass
    }
    fn set(&mut self, key: &str, value: &Value) -> Result<(), ParameterError> {
        match key {
            "period_ms" => milliseconds(key, value).map(|period| self.period = period),
            _ => Err(unknown(key, "throttle", "period_ms")),
        }
    }
    fn parameters(&self) -> Vec<Property> {
        vec![
            ("period_ms".into(), in_milliseconds(self.period)),
            ("passed".into(), self.passed.into()),
            ("dropped".into(), self.dropped.into()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_passes_at_most_once_per_period() {
        let mut throttle = Throttle::every(Duration::from_millis(20));
        let mut passes = |ms: u64| {
            let seen = Seen { from: "", seq: 1, source_ns: 0, now_ns: ms * 1_000_000, bytes: &[] };
            throttle.sample(&seen, &mut Vec::new()) == Verdict::Pass
        };
        let passed: Vec<u64> = (0..=65).step_by(5).filter(|ms| passes(*ms)).collect();
        assert_eq!(passed, [0, 20, 40, 60]);
        throttle.set("period_ms", &Value::Int(0)).unwrap();
        let seen = Seen { from: "", seq: 1, source_ns: 0, now_ns: 65_000_001, bytes: &[] };
        assert_eq!(throttle.sample(&seen, &mut Vec::new()), Verdict::Pass);
    }
}
