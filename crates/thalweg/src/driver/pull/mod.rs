//! Pull: answering questions to this node's histories, and asking those of others. Both ends mark their stream as class
//! LOW; nothing here runs on a thread that samples go through.

mod answering;
mod ask;
mod late;
mod receive;
mod serve;
mod stream;

pub(crate) use ask::{Asked, Asking, Holder};
pub(crate) use late::{Fetch, Fetches, Latecomer};
pub(crate) use receive::read_answer;
pub(crate) use serve::Questions;

use linux::marks;
use qos::Class;
use qos::priority::Mark;
use std::os::fd::AsFd;

/// Marks a stream of questions or answers. One within the host has no packets, and a kernel that refuses leaves them
/// unmarked: what is asked comes all the same.
fn mark_low(stream: impl AsFd) {
    let mark = Mark::Class(Class::Low);
    let _ = marks::set(stream.as_fd(), &mark, mark.socket_priority());
}
