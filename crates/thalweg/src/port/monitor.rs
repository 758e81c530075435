//! Port monitors (Y-09, YS-37): code at a port's input or output that looks at every sample and lets it pass, changes,
//! delays or drops it. Attached and detached while samples flow; a port without one pays one branch.
//!
//! | type | YARP's name | parameters |
//! |---|---|---|
//! | `throttle` | `throttleDown` | `period_ms`: passes at most one sample in each period |
//! | `delay` | `simulated_network_delay` | `delay_ms`: passes every sample this much later |
//! | `statistics` | `stats_monitor` | `reset`; results: count, bytes, rates, time between samples |
//! | `arbitrate` | `priority` | one `input` per source: see [`arbitrate`] |
//!
//! Bandwidth is saved only by a throttle at the publisher's output.

pub mod arbitrate;
pub(crate) mod slot;

pub use arbitrate::Arbitrate;

use crate::bottle::{Property, Value};
use std::fmt;
use std::time::Duration;

/// A sample as a monitor sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Name of the publishing port; empty for an instant while its channel opens.
    pub from: &'a str,
    /// Its sequence number.
    pub seq: u64,
    /// Time of publication, in CLOCK_MONOTONIC nanoseconds of the publisher's host.
    pub source_ns: u64,
    /// The present time, in CLOCK_MONOTONIC nanoseconds of this host.
    pub now_ns: u64,
    /// The encoded message.
    pub bytes: &'a [u8],
}

/// The decision on a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The sample goes on as it is.
    Pass,
    /// The sample continues with the bytes that the monitor wrote.
    Changed,
    /// The sample continues after this delay, and before later ones. At most 4096 samples and 64 MiB wait; more are dropped.
    Late(Duration),
    /// The sample does not go on.
    Drop,
}

/// Code at one side of a port. Called on the thread that publishes or receives, for one sample at a time: it must return
/// quickly and not wait.
pub trait Monitor: Send {
    /// Its type, as the commands `atch` and `get` name it.
    fn kind(&self) -> &str;
    /// Judges a sample. `changed` is for [`Verdict::Changed`]: it is empty, and keeps its memory from call to call.
    fn sample(&mut self, sample: &Seen<'_>, changed: &mut Vec<u8>) -> Verdict;
    /// Sets a parameter.
    ///
    /// # Errors
    /// The parameter is unknown, or the value is not allowed.
    fn set(&mut self, key: &str, value: &Value) -> Result<(), ParameterError> {
        let _ = value;
        Err(ParameterError::new(key, format!("{} has no parameters to set", self.kind())))
    }
    /// Its parameters and results.
    fn parameters(&self) -> Vec<Property> {
        Vec::new()
    }
    /// `true` if it may ever return [`Verdict::Late`]: the port then has a thread that waits with the samples.
    fn delays(&self) -> bool {
        false
    }
}

/// A parameter that a monitor does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError {
    parameter: String,
    problem: String,
}

impl ParameterError {
    /// An error of this parameter. `problem` names the value if that is wrong, and the allowed values.
    pub fn new(parameter: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { parameter: parameter.into(), problem: problem.into() }
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.parameter, self.problem)
    }
}

impl std::error::Error for ParameterError {}

/// A ready monitor by its type, also in YARP's words, with its parameters.
///
/// # Errors
/// An unknown type or parameter, a value that is not allowed, a parameter that is missing.
pub fn ready(kind: &str, parameters: &[Property]) -> Result<Box<dyn Monitor>, ParameterError> {
    // (type dll) (file throttleDown), as YARP attaches plug-ins.
    let file = parameters.iter().find(|(key, _)| key == "file").and_then(|(_, value)| value.word());
    let kind = if kind == "dll" { file.unwrap_or(kind) } else { kind };
    let mut monitor: Box<dyn Monitor> = match kind {
        "throttle" | "throttleDown" => Box::new(Throttle::default()),
        "delay" | "simulated_network_delay" => Box::new(Delay::default()),
        "statistics" | "stats_monitor" => Box::new(Statistics::default()),
        "arbitrate" | "priority" => Box::new(Arbitrate::default()),
        _ => return Err(ParameterError::new(format!("type {kind:?}"), format!("there are {TYPES}"))),
    };
    for (key, value) in parameters.iter().filter(|(key, _)| key != "file") {
        monitor.set(key, value)?;
    }
    let needed = match monitor.kind() {
        "throttle" => Some("period_ms"),
        "delay" => Some("delay_ms"),
        "arbitrate" => Some("input"),
        _ => None,
    };
    match needed.filter(|needed| !parameters.iter().any(|(key, _)| key == needed)) {
        Some(missing) => Err(ParameterError::new(format!("({missing} …) is missing"), TYPES)),
        None => Ok(monitor),
    }
}

/// A time in milliseconds, up to a day.
fn milliseconds(key: &str, value: &Value) -> Result<Duration, ParameterError> {
    let number = value.number().filter(|ms| (0.0..=86_400_000.0).contains(ms));
    number
        .map(|ms| Duration::from_secs_f64(ms / 1e3))
        .ok_or_else(|| ParameterError::new(format!("{key} {value}"), "allowed is 0 to 86400000 (ms)"))
}

fn in_milliseconds(time: Duration) -> Value {
    Value::from(time.as_secs_f64() * 1e3)
}

fn unknown(key: &str, kind: &str, known: &str) -> ParameterError {
    ParameterError::new(key, format!("{kind} has {known}"))
}

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

/// Passes every sample after a delay.
#[derive(Debug, Default)]
pub struct Delay {
    delay: Duration,
}

impl Delay {
    /// A delay of this length.
    pub fn of(delay: Duration) -> Self {
        Self { delay }
    }
}

impl Monitor for Delay {
    fn kind(&self) -> &str {
        "delay"
    }
    fn sample(&mut self, _: &Seen<'_>, _: &mut Vec<u8>) -> Verdict {
        if self.delay.is_zero() { Verdict::Pass } else { Verdict::Late(self.delay) }
    }
    fn set(&mut self, key: &str, value: &Value) -> Result<(), ParameterError> {
        match key {
            "delay_ms" => milliseconds(key, value).map(|delay| self.delay = delay),
            _ => Err(unknown(key, "delay", "delay_ms")),
        }
    }
    fn parameters(&self) -> Vec<Property> {
        vec![("delay_ms".into(), in_milliseconds(self.delay))]
    }
    fn delays(&self) -> bool {
        true
    }
}

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

/// The types that can be attached by name.
pub const TYPES: &str = "(type throttle) (period_ms N), (type delay) (delay_ms N), (type statistics), or (type arbitrate) \
                         (input (from /port) (level N) (tc SECONDS)) …";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::grammar::Command;

    fn attach(text: &str) -> Result<Box<dyn Monitor>, ParameterError> {
        let Ok(Command::Attach { properties, .. }) = Command::parse(&format!("atch in {text}")) else {
            panic!("{text} is no command")
        };
        let kind = properties.iter().find(|p| p.0 == "type").and_then(|p| p.1.word()).unwrap_or_default().to_owned();
        ready(&kind, &properties.iter().filter(|p| p.0 != "type").cloned().collect::<Vec<_>>())
    }

    #[test]
    fn ys_37_monitors_are_made_by_name_ours_and_yarps() {
        for (text, kind) in [
            ("(type throttle) (period_ms 20)", "throttle"),
            ("(type dll) (file throttleDown) (period_ms 20)", "throttle"),
            ("(type simulated_network_delay) (delay_ms 1.5)", "delay"),
            ("(type stats_monitor)", "statistics"),
            ("(type priority) (input (from /a) (level 15))", "arbitrate"),
        ] {
            assert_eq!(attach(text).map(|m| m.kind().to_owned()), Ok(kind.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_refused_monitor_has_a_reason() {
        for (text, says) in [
            ("(type encrypt)", "there are (type throttle)"),
            ("(type throttle)", "(period_ms …) is missing"),
            ("(type throttle) (period_ms fast)", "0 to 86400000"),
            ("(type throttle) (period_ms -1)", "0 to 86400000"),
            ("(type throttle) (colour 3)", "throttle has period_ms"),
            ("(type statistics) (period_ms 3)", "statistics has reset"),
            ("(type arbitrate)", "(input …) is missing"),
            ("(type arbitrate) (input (level 3))", "(from /port)"),
        ] {
            let said = attach(text).map(|m| m.kind().to_owned()).unwrap_err().to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
    }

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
