//! The policies of a port at run time: state machines that take time and bytes, and give verdicts and news. Pure. A port that
//! states none of these policies has none of them.
//!
//! | file | contents |
//! |---|---|
//! | [`instances`] | the instances that a subscriber knows: their publishers, and whether they are alive; when the next sample of each is due |
//! | [`reading`] | all policies of a subscriber together |
//! | [`writing`] | deadline and liveliness of a publisher |
//! | [`seat`] | the place of the policies in a port |

mod instances;
mod reading;
mod seat;
mod writing;

pub use reading::PolicyCounts;
pub(crate) use reading::Writer;
pub(crate) use seat::{Judge, judge_of_publisher, judge_of_subscriber};

use crate::channel::InstanceState;
use std::time::Duration;

/// An event that a policy noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Samples of an instance that did not come in time, since the last report and in all. `instance`: its key; `None`: all others.
    DeadlineMissed { instance: Option<String>, missed: u64, total: u64 },
    /// A publisher gives signs of life again, or has stopped.
    LivelinessChanged { publisher: String, alive: bool },
    /// Samples later than the latency budget, since the last report and in all.
    BudgetExceeded { late: u64, total: u64 },
    /// An instance, by its key, ended or came back.
    InstanceChanged { key: String, state: InstanceState },
    /// Samples rejected by the limit of instances, since the last report and in all.
    Rejected { most: u32, rejected: u64, total: u64 },
}

fn ns(duration: Option<Duration>) -> Option<u64> {
    duration.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
