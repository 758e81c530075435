//! A channel's priority: its packets' marks and its threads' scheduling (YARP channel prioritization, §3; Y-02).
//!
//! | module | contents |
//! |---|---|
//! | `mark` | DSCP by name or number, TOS octet, class, and the socket priority and band that follow from them |
//! | `policing` | the samples that may be sent at all |
//! | `settings` | marks and scheduling as one end of a channel has them, changes to them, and both as YARP writes them |
//!
//! The [`Scheduling`] of a thread is policy, priority, reservation and nice value: sched(7).

mod mark;
mod policing;
mod settings;

pub use mark::{CONTROL, Class, Dscp, Mark, PRIORITY_BANDS, band, kernel_priority};
pub use policing::Policing;
pub use settings::{Change, Changes, PolicyName, PrioritySettings, priority_text};

use crate::quantity::parse_duration;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A scheduling policy with its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// SCHED_OTHER: shares the remaining time.
    #[default]
    Other,
    /// SCHED_FIFO with a priority of 1…99: runs until it waits or a higher one comes.
    Fifo(u8),
    /// SCHED_RR with a priority of 1…99: as FIFO, in turns with its equals.
    RoundRobin(u8),
    /// SCHED_DEADLINE: this much processor time within each period, by the deadline; admitted or refused by the kernel.
    Deadline {
        /// Processor time per period in nanoseconds, at least 1024.
        runtime_ns: u64,
        /// Deadline after the start of a period, in nanoseconds; runtime ≤ deadline ≤ period.
        deadline_ns: u64,
        /// The period in nanoseconds.
        period_ns: u64,
    },
}

impl Policy {
    /// `other`, `fifo`, `rr` or `deadline`.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Other => "other",
            Policy::Fifo(_) => "fifo",
            Policy::RoundRobin(_) => "rr",
            Policy::Deadline { .. } => "deadline",
        }
    }
    /// The kernel's number, as YARP writes it: 0, 1, 2, 6.
    pub const fn number(self) -> i32 {
        match self {
            Policy::Other => 0,
            Policy::Fifo(_) => 1,
            Policy::RoundRobin(_) => 2,
            Policy::Deadline { .. } => 6,
        }
    }
    /// The real-time priority, 0 if there is none.
    pub const fn priority(self) -> u8 {
        match self {
            Policy::Fifo(priority) | Policy::RoundRobin(priority) => priority,
            Policy::Other | Policy::Deadline { .. } => 0,
        }
    }
}

/// A policy and a nice value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Scheduling {
    /// The policy.
    pub policy: Policy,
    /// Nice value for `other`, −20 (first) … 19. Default 0.
    pub nice: i8,
}

const FORMS: &str = "other, other:NICE (-20 to 19), fifo:PRIORITY or rr:PRIORITY (1 to 99), or deadline:RUNTIME/PERIOD or \
                     deadline:RUNTIME/DEADLINE/PERIOD with units (at least 1024 ns, RUNTIME <= DEADLINE <= PERIOD <= 4 s)";

impl FromStr for Scheduling {
    type Err = PriorityError;
    /// `other`, `other:-5`, `fifo:30`, `rr:10`, `deadline:1ms/10ms`, `deadline:1ms/5ms/10ms`; any case, `sched_` before it allowed.
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let lower = text.trim().to_ascii_lowercase();
        let form = lower.strip_prefix("sched_").unwrap_or(&lower);
        let (name, rest) = form.split_once(':').map_or((form, None), |(name, rest)| (name, Some(rest)));
        let priority = || rest.and_then(|r| r.parse().ok()).filter(|p| (1..=99).contains(p));
        let found = match (name, rest) {
            ("other", None) => Some(Self::default()),
            ("other", Some(nice)) => {
                nice.parse().ok().filter(|n| (-20..=19).contains(n)).map(|nice| Self { nice, ..Self::default() })
            }
            ("fifo", _) => priority().map(|p| Policy::Fifo(p).into()),
            ("rr", _) => priority().map(|p| Policy::RoundRobin(p).into()),
            ("deadline", Some(rest)) => reservation(rest).map(Into::into),
            _ => None,
        };
        found.map_or_else(|| refuse("sched", text, FORMS), Ok)
    }
}

fn reservation(text: &str) -> Option<Policy> {
    let times: Vec<Duration> = text.split('/').map(|t| parse_duration(t).ok()).collect::<Option<_>>()?;
    let (runtime, deadline, period) = match times.as_slice() {
        [runtime, period] => (runtime, period, period),
        [runtime, deadline, period] => (runtime, deadline, period),
        _ => return None,
    };
    let sound = runtime.as_nanos() >= 1024 && runtime <= deadline && deadline <= period && period.as_secs() <= 4;
    let nanoseconds = |time: &Duration| u64::try_from(time.as_nanos()).ok();
    if !sound {
        return None;
    }
    let (runtime_ns, deadline_ns, period_ns) = (nanoseconds(runtime)?, nanoseconds(deadline)?, nanoseconds(period)?);
    Some(Policy::Deadline { runtime_ns, deadline_ns, period_ns })
}

impl From<Policy> for Scheduling {
    fn from(policy: Policy) -> Self {
        Self { policy, nice: 0 }
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy {
            Policy::Other if self.nice == 0 => f.write_str("other"),
            Policy::Other => write!(f, "other:{}", self.nice),
            Policy::Fifo(priority) => write!(f, "fifo:{priority}"),
            Policy::RoundRobin(priority) => write!(f, "rr:{priority}"),
            Policy::Deadline { runtime_ns, deadline_ns, period_ns } => {
                write!(f, "deadline:{}/", in_units(runtime_ns))?;
                if deadline_ns != period_ns {
                    write!(f, "{}/", in_units(deadline_ns))?;
                }
                f.write_str(&in_units(period_ns))
            }
        }
    }
}

/// In the largest unit of which it is a whole number.
fn in_units(nanoseconds: u64) -> String {
    let units = [(1_000_000, "ms"), (1000, "us")];
    let fits = units.into_iter().find(|(unit, _)| nanoseconds >= *unit && nanoseconds.is_multiple_of(*unit));
    fits.map_or_else(|| format!("{nanoseconds}ns"), |(unit, name)| format!("{}{name}", nanoseconds / unit))
}

/// Text or a number that is no priority of the kind asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityError {
    /// The setting, such as `class`.
    pub what: &'static str,
    /// The text.
    pub value: String,
    /// The allowed values.
    pub allowed: &'static str,
}

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, allowed } = self;
        write!(f, "{what} {value:?}: allowed is {allowed}")
    }
}

impl std::error::Error for PriorityError {}

fn refuse<T>(what: &'static str, value: &str, allowed: &'static str) -> Result<T, PriorityError> {
    Err(PriorityError { what, value: value.chars().take(64).collect(), allowed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_are_read_and_written_back() {
        for text in ["other", "other:-5", "fifo:30", "rr:99", "deadline:1ms/5ms/10ms", "deadline:1500us/10ms"] {
            assert_eq!(text.parse::<Scheduling>().unwrap().to_string(), text);
        }
        assert_eq!("SCHED_FIFO:1".parse::<Scheduling>().unwrap().policy, Policy::Fifo(1));
        assert_eq!("deadline:1000000ns/10ms/10000us".parse::<Scheduling>().unwrap().to_string(), "deadline:1ms/10ms");
    }

    #[test]
    fn settings_that_the_kernel_would_refuse_are_refused() {
        let bad = [
            "",
            "fifo",
            "fifo:0",
            "fifo:100",
            "fifo:-1",
            "rr:x",
            "other:20",
            "idle",
            "deadline",
            "deadline:1ms",
            "deadline:2ms/1ms",
            "deadline:1ms/3ms/2ms",
            "deadline:1/2",
            "deadline:100ns/1ms",
            "deadline:1ms/5s",
        ];
        for text in bad {
            assert!(text.parse::<Scheduling>().unwrap_err().to_string().contains("1 to 99"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,40}") {
            let _ = text.parse::<Scheduling>();
        }

        #[test]
        fn a_reservation_is_written_exactly(runtime_ns in 1024..1_000_000u64, more in 0..2_000_000_000u64, rest in 0..1_999_000_000u64) {
            let deadline_ns = runtime_ns + more;
            let wanted = Scheduling::from(Policy::Deadline { runtime_ns, deadline_ns, period_ns: deadline_ns + rest });
            prop_assert_eq!(wanted.to_string().parse::<Scheduling>(), Ok(wanted));
        }
    }
}
