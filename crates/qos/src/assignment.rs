//! Who goes first: priorities of threads, classes of topics, shares of links (Y-17).
//!
//! | module | what it holds |
//! |---|---|
//! | `threads` | optimal order of threads on a processor, and the SCHED_FIFO priorities of it |
//! | `classes` | the lowest class of each topic with which all deadlines are kept |
//! | `links` | shares and queue lengths |
//!
//! Nothing gets a higher class than it needs, and where not all fits the least important give way.

mod classes;
mod links;
mod threads;

pub use classes::{Assignment, assign, ranked};
pub use links::{queue_limit, shares};
pub use threads::{audsley, deadline_monotonic, fifo_priority, rank};

#[cfg(test)]
mod tests;
