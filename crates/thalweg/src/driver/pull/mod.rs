//! Pull: answering questions to this node's histories, and asking those of others. Both ends mark their stream as class LOW; nothing here
//! runs on a thread that delivers samples.

mod answering;
mod ask;
mod late;
mod receive;
mod serve;
mod shares;
mod stream;

pub(crate) use ask::{Asked, Asking, Holder, not_kept};
pub(crate) use late::{Fetch, Fetches};
#[cfg(any(test, feature = "testing"))]
pub(crate) use receive::read_answer;
pub(crate) use serve::Questions;

use linux::marks;
use qos::Class;
use qos::priority::Mark;
use socket2::SockRef;
use std::os::fd::AsFd;

/// Send and receive buffer of an answer's stream, in bytes (the kernel doubles it for its own needs). Bytes that the kernel moves at one go
/// hold up more urgent channels: p99 of a 1 kHz channel was 2.0 times its p99 alone without a limit, and 1.3 times with this one.
const ON_THE_WAY: usize = 32 << 10;

/// Marks a stream of questions or answers as low, and gives it small buffers. A stream within the host has no packets to mark. If the
/// kernel refuses the mark, the answer comes unmarked.
fn make_low(stream: impl AsFd) {
    let mark = Mark::Class(Class::Low);
    let _ = marks::set(stream.as_fd(), &mark, mark.socket_priority());
    let socket = SockRef::from(&stream);
    let _ = (socket.set_send_buffer_size(ON_THE_WAY), socket.set_recv_buffer_size(ON_THE_WAY));
}
