//! Settings of a sender, and the actions it has its flow take.

use crate::channel::bucket::Limit;
use crate::channel::queue::Entry;
use std::ops::Range;

/// The settings of a flow's channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderSettings {
    /// Messages that are kept without an acknowledgement, at most [`WINDOW`](crate::channel::reliable::WINDOW).
    pub window: usize,
    /// Bytes that are kept without an acknowledgement; one message may always be.
    pub bytes: usize,
    /// A full window gives up its oldest message for a new one; otherwise the new one waits.
    pub drops_oldest: bool,
    /// Nanoseconds after which a message is of no use: the lifespan or the deadline, whichever is shorter.
    pub useful_ns: Option<u64>,
    /// There is a deadline: on a lossy path, single datagrams are retransmitted before a request.
    pub hurries: bool,
    /// Bytes of a message that one datagram takes, and bytes of a fragment.
    pub largest: usize,
    /// The limit of retransmits on the path.
    pub repairs: Limit,
}

/// The addressee of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// All members.
    All,
    /// The member with this number.
    One(usize),
}

/// A datagram that is due.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A retransmit of a message or a part of it.
    Retransmit {
        /// The message.
        entry: Entry,
        /// Its number in the flow.
        sequence: u32,
        /// The range of bytes; if it is all of the message, it leaves whole and not as a fragment.
        bytes: Range<usize>,
        /// Flags of its frame.
        flags: u16,
        /// The receiver.
        to: To,
    },
    /// Datagrams of this length do not come through, without an error: from now on they have to be shorter, see
    /// [`Sender::shrink`](super::Sender::shrink).
    Shorten,
    /// Progress of the flow: the next number, and the oldest that can be retransmitted.
    KeepAlive {
        /// The next message's number.
        next: u32,
        /// The oldest that can be retransmitted.
        oldest: u32,
        /// The round trip in nanoseconds.
        trip_ns: u64,
        /// The receiver.
        to: To,
    },
}
