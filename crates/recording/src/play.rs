//! Replay: the samples of a recording in the order in which they were published, each at its time.
//!
//! | module | contents |
//! |---|---|
//! | [`Ahead`] | a thread that reads ahead, within a limit of memory |
//! | [`describe`] | the type of a channel, for its publisher |
//! | [`as_recorded`] | the QoS that a channel's publisher had |
//! | [`Ordered`] | samples by their time, from a file in the order of receipt |
//! | [`Schedule`] | when each is due, and by how much all came later |

mod ahead;
mod described;
mod offered;
mod ordered;
mod schedule;

pub use ahead::{Ahead, AheadError, Part};
pub use described::{Described, describe};
pub use offered::as_recorded;
pub use ordered::{Ordered, Timed, WINDOW_NS};
pub use schedule::Schedule;
