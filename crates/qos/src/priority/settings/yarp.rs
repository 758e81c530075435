//! Priorities as YARP writes them.

use super::{Change, Changes};
use crate::priority::{PriorityError, Scheduling, refuse};
use std::str::FromStr;

/// A scheduling policy without its priority, as YARP names and numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// SCHED_OTHER, 0.
    Other,
    /// SCHED_FIFO, 1.
    Fifo,
    /// SCHED_RR, 2.
    RoundRobin,
}

const POLICIES: &str = "SCHED_OTHER (0), SCHED_FIFO (1) or SCHED_RR (2)";
const PRIORITIES: &str = "1 to 99 for SCHED_FIFO and SCHED_RR, 0 for SCHED_OTHER, -1 for back to the default";
const FORMS: &str = "level:low|normal|high|critical, dscp:NAME or 0 to 63, tos:0 to 255, policy:0|1|2 (also pol:), \
                     priority:1 to 99 of the thread (also prt:), separated by ;";

/// The changes that a text states: `KEY:VALUE` separated by `;`, commas or spaces.
pub(super) fn changes(text: &str) -> Result<Changes, PriorityError> {
    let mut changes = Changes::default();
    let (mut policy, mut priority) = (None::<PolicyName>, None::<i64>);
    let text = text.split(':').map(str::trim).collect::<Vec<_>>().join(":");
    let words = text.split([';', ',', ' ', '\t', '\n']).filter(|word| !word.is_empty());
    for word in words {
        let Some((key, value)) = word.split_once(':') else { return refuse("qos", word, FORMS) };
        match key.to_ascii_lowercase().as_str() {
            "level" => changes.add(&format!("class={value}"))?,
            "dscp" => changes.add(&format!("dscp={value}"))?,
            "tos" => changes.add(&format!("tos={value}"))?,
            "policy" | "pol" => policy = Some(value.parse()?),
            "priority" | "prt" => {
                let number = value.parse().or_else(|_| refuse("priority", value, PRIORITIES))?;
                priority = Some(number);
            }
            _ => return refuse("qos", word, FORMS),
        }
    }
    changes.sched = match (policy, priority) {
        (None, None) => Change::Keep,
        (_, Some(-1)) => Change::Unset,
        (Some(policy), given) => Change::Set(policy.with(given.unwrap_or(0))?),
        (None, Some(given)) => {
            let allowed = "a priority with its policy, such as policy:1; priority:10";
            return refuse("priority", &given.to_string(), allowed);
        }
    };
    Ok(changes)
}

impl FromStr for PolicyName {
    type Err = PriorityError;
    /// A number, or a name in any case with or without `SCHED_`.
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let lower = text.trim().to_ascii_lowercase();
        match lower.strip_prefix("sched_").unwrap_or(&lower) {
            "0" | "other" | "normal" => Ok(PolicyName::Other),
            "1" | "fifo" => Ok(PolicyName::Fifo),
            "2" | "rr" => Ok(PolicyName::RoundRobin),
            _ => refuse("policy", text, POLICIES),
        }
    }
}

impl PolicyName {
    /// The policy with a priority.
    ///
    /// # Errors
    /// A priority that doesn't fit: 1…99 for FIFO and RR, 0 for OTHER.
    pub fn with(self, priority: i64) -> Result<Scheduling, PriorityError> {
        let form = match self {
            PolicyName::Other if priority == 0 => "other".to_owned(),
            PolicyName::Other => String::new(),
            PolicyName::Fifo => format!("fifo:{priority}"),
            PolicyName::RoundRobin => format!("rr:{priority}"),
        };
        form.parse().or_else(|_| refuse("priority", &priority.to_string(), PRIORITIES))
    }
}
