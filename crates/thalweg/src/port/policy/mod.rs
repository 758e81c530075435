//! What a port's policies do at run time: state machines that take time and bytes, and give verdicts and news. Pure; ports
//! that state none of these policies have none of this.
//!
//! | file | what it holds |
//! |---|---|
//! | [`deadline`] | when the next sample of an instance is due, and how many did not come |
//! | [`known`] | the instances that a subscriber knows: who publishes them, and whether they are alive |
//! | [`reading`] | all policies of a subscriber together |
//! | [`writing`] | deadline and liveliness of a publisher |
//! | [`seat`] | where a port keeps them |

mod deadline;
mod known;
mod reading;
mod seat;
mod writing;

pub use reading::PolicyCounts;
pub(crate) use reading::Writer;
pub(crate) use seat::{Judge, judge_of_publisher, judge_of_subscriber};

use crate::channel::InstanceState;
use std::time::Duration;

/// Something that a policy noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// So many samples more of an instance (by its key; without: of all others) did not come in time, and so many of all.
    DeadlineMissed { instance: Option<String>, missed: u64, total: u64 },
    /// A publisher gives a sign of life again, or none any more.
    LivelinessChanged { publisher: String, alive: bool },
    /// So many samples more were later than the latency budget, and so many in all.
    BudgetExceeded { late: u64, total: u64 },
    /// An instance, by its key, ended or came back.
    InstanceChanged { key: String, state: InstanceState },
    /// So many samples more were rejected by the limit of so many instances, and so many in all.
    Rejected { most: u32, rejected: u64, total: u64 },
}

fn ns(duration: Option<Duration>) -> Option<u64> {
    duration.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
