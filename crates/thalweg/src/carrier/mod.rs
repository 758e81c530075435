//! Carriers: how a channel travels.
//!
//! A carrier is two halves made during the handshake: the publisher's [`SendHalf`] and the subscriber's [`ReceiveHalf`].
//! Neither has a thread or a buffer of its own; the driver decides who calls them and when. The contract that every
//! carrier keeps is the conformance suite in [`crate::testing::conformance`], which each one passes by instantiating it.

pub mod shm;

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How long a waiting [`ReceiveHalf::receive`] may wait before it returns `WouldBlock`: the reader's tick.
/// Short enough that a closed node ends its readers at once for a person, long enough to cost nothing.
pub const TICK: Duration = Duration::from_millis(100);

/// What a carrier can do. The planner, `auto` and the conformance suite read it; nobody asks for the carrier's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What was taken by `send` arrives unless the connection breaks (which both halves notice).
    pub reliable: bool,
    /// What arrives, arrives in order.
    pub ordered: bool,
    /// A byte stream: `send` may take a part, `receive` may return parts of several messages. Else datagrams, whole or not at all.
    pub stream: bool,
    /// One send reaches all members.
    pub multicast: bool,
    /// Payload can be written in place and read in place.
    pub loan: bool,
    /// Packets carry DSCP and socket priority.
    pub marks: bool,
    /// Largest datagram in bytes, header included; `None` for streams and carriers without a limit.
    pub max_datagram: Option<usize>,
}

/// The publisher's end. Called by the holder of the flow's send right only, from any thread.
pub trait SendHalf: Send + Sync {
    /// Sends the parts as one message (datagram) or as the next bytes (stream), in one system call, without waiting.
    /// Returns how many bytes were taken; a datagram is taken whole.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room now; any other error ends the flow.
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Becomes writable when there is room again. `None`: [`SendHalf::wait_room`] is the only way.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Waits for room, at most `timeout`; `false` when there is none yet.
    ///
    /// # Errors
    /// What poll(2) says.
    fn wait_room(&self, timeout: Duration) -> io::Result<bool> {
        match self.descriptor() {
            Some(fd) => linux::poll::wait_writable(fd, Some(timeout)),
            None => {
                std::thread::sleep(timeout.min(Duration::from_millis(1)));
                Ok(true)
            }
        }
    }

    /// Ends the flow; the other end notices where the carrier can tell.
    fn close(&self);
}

/// The subscriber's end. Owned by exactly one thread at a time; moving it is sending it.
pub trait ReceiveHalf: Send {
    /// Receives one datagram or the next bytes into `buffer`. With `wait` it waits at most [`TICK`].
    /// Returns 0 when a stream's peer closed. A datagram longer than `buffer` returns its full length (it was cut).
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing (yet); any other error ends the channel.
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize>;

    /// Becomes readable when there is something to receive. `None`: only a waiting `receive` tells.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}
