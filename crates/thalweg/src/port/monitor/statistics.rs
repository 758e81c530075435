//! `statistics`: counts the passing samples (YARP's stats_monitor).

use super::{Monitor, ParameterError, Seen, Verdict, unknown};
use crate::bottle::{Property, Value};

/// Counts samples and bytes, and the time between samples.
#[derive(Debug, Default)]
pub struct Statistics {
    count: u64,
    bytes: u64,
    first_ns: u64,
    last_ns: u64,
    shortest_ns: u64,
    longest_ns: u64,
}

impl Monitor for Statistics {
    fn kind(&self) -> &str {
        "statistics"
    }
    fn sample(&mut self, sample: &Seen<'_>, _: &mut Vec<u8>) -> Verdict {
        let gap = sample.now_ns.saturating_sub(self.last_ns);
        match self.count {
            0 => self.first_ns = sample.now_ns,
            1 => (self.shortest_ns, self.longest_ns) = (gap, gap),
            _ => (self.shortest_ns, self.longest_ns) = (self.shortest_ns.min(gap), self.longest_ns.max(gap)),
        }
        self.last_ns = sample.now_ns;
        self.count += 1;
        self.bytes += sample.bytes.len() as u64;
        Verdict::Pass
    }
    fn set(&mut self, key: &str, _: &Value) -> Result<(), ParameterError> {
        match key {
            "reset" => *self = Self::default(),
            _ => return Err(unknown(key, "statistics", "reset")),
        }
        Ok(())
    }
    fn parameters(&self) -> Vec<Property> {
        let gaps = self.count.saturating_sub(1);
        let seconds = self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9;
        // Rates over the gaps: the first sample's own gap is not known.
        let per_second = |what: f64| if seconds > 0.0 { what / seconds } else { 0.0 };
        let mean_ns = if gaps > 0 { seconds * 1e9 / gaps as f64 } else { 0.0 };
        let whole = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
        let ms = |ns: f64| Value::from(ns / 1e6);
        let mean_bytes = if self.count > 0 { self.bytes as f64 / self.count as f64 } else { 0.0 };
        vec![
            ("count".into(), whole(self.count)),
            ("bytes".into(), whole(self.bytes)),
            ("rate_hz".into(), per_second(gaps as f64).into()),
            ("bytes_per_s".into(), per_second(mean_bytes * gaps as f64).into()),
            ("gap_min_ms".into(), ms(self.shortest_ns as f64)),
            ("gap_mean_ms".into(), ms(mean_ns)),
            ("gap_max_ms".into(), ms(self.longest_ns as f64)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_rates_and_gaps() {
        let mut statistics = Statistics::default();
        for ms in [1000u64, 1010, 1040, 1050] {
            let seen = Seen { from: "", seq: 1, source_ns: 0, now_ns: ms * 1_000_000, bytes: &[0; 10] };
            assert_eq!(statistics.sample(&seen, &mut Vec::new()), Verdict::Pass);
        }
        let found: Vec<f64> = statistics.parameters().iter().map(|(_, v)| v.number().unwrap()).collect();
        let wanted = [4.0, 40.0, 60.0, 600.0, 10.0, 50.0 / 3.0, 30.0];
        assert!(found.iter().zip(wanted).all(|(f, w)| (f - w).abs() < 1e-6), "{found:?}");
        statistics.set("reset", &Value::Int(1)).unwrap();
        assert!(statistics.parameters().iter().all(|(_, v)| v.number() == Some(0.0)));
    }
}
