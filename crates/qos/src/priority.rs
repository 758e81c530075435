//! A channel's priority: its packets' marks and its threads' scheduling (YARP channel prioritization, §3; Y-02).
//!
//! | module | contents |
//! |---|---|
//! | `mark` | DSCP by name or number, TOS octet, class, and the socket priority and band that follow from them |
//! | `scheduling` | policy, priority, reservation, nice and processors of a thread |
//! | `settings` | both, as one end of a channel has them, and changes to them |
//! | `yarp` | both as YARP writes them |

mod mark;
mod scheduling;
mod settings;
mod yarp;

pub use mark::{Class, Dscp, Mark, PRIORITY_BANDS, band, kernel_priority};
pub use scheduling::{Policy, Scheduling};
pub use settings::{Change, Changes, PrioritySettings};
pub use yarp::PolicyName;

use std::fmt;

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
