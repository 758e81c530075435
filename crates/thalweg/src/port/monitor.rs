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
mod delay;
pub(crate) mod seat;
mod statistics;
mod throttle;

pub use arbitrate::Arbitrate;
pub use delay::Delay;
pub use statistics::Statistics;
pub use throttle::Throttle;

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

/// The types that can be attached by name.
pub const TYPES: &str = "(type throttle) (period_ms N), (type delay) (delay_ms N), (type statistics), or (type arbitrate) \
                         (input (from /port) (level N) (tc SECONDS)) …";

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
}
