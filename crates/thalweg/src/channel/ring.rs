//! The publisher's end of a channel over shared memory, in the role of [`Flow`](super::flow::Flow) for carriers with frames (step 3
//! of the data path). It has no queue and sends no bytes: the reader reads the message in place.

use super::Outcome;
use super::outgoing::Outgoing;
use crate::carrier::shm::{Memory, RingHalf, Shared};
use crate::trace::{self, Step};
use linux::memory::{Meta, Policy, Pushed};
use qos::{Queue, ResourceLimit};

/// One channel's ring. Its owner is the publishing thread.
#[derive(Debug)]
pub(crate) struct Ring {
    half: RingHalf,
    queue: Queue,
    next: u32, // flow sequence number of the next message
}

impl Ring {
    /// The policy applies to messages that find the ring full.
    pub(crate) fn new(half: RingHalf, queue: Queue) -> Self {
        Self { half, queue, next: 0 }
    }

    /// Gives the reader the message in shared memory, or returns the reason why not.
    #[inline]
    pub(crate) fn offer(&mut self, message: &mut Outgoing<'_>) -> Outcome {
        trace::step(Step::Push);
        let label = message.label();
        let meta = Meta { seq: label.seq, stamp_ns: label.stamp, flow_seq: self.next, kind: label.flags().into() };
        let policy = if matches!(self.queue, Queue::KeepLast(_)) { Policy::KeepLast } else { Policy::Refuse };
        let patience = self.queue.patience();
        let pushed = message.shared().and_then(|shared| self.half.push(shared, meta, policy, patience));
        let limit = if self.half.met_bytes() { ResourceLimit::Bytes } else { ResourceLimit::Samples };
        match pushed {
            Some(Pushed::Sent) => {
                self.next = self.next.wrapping_add(1);
                Outcome::Sent
            }
            Some(Pushed::SentDroppedOldest(dropped)) => {
                self.next = self.next.wrapping_add(1);
                Outcome::DroppedOldest { dropped, limit }
            }
            Some(Pushed::Full) => Outcome::Refused { limit },
            Some(Pushed::Closed | Pushed::Violation(_)) => Outcome::NotConnected,
            // All places are borrowed: subscribers hold too many samples.
            None => Outcome::Refused { limit: ResourceLimit::Samples },
        }
    }

    /// Takes back the places that the reader returned, for a message that found none.
    pub(crate) fn collect(&mut self, shared: &mut Shared<'_>) {
        self.half.collect(shared);
    }

    /// The samples that the reader may hold besides the waiting ones.
    pub(crate) fn hold(&self) -> u32 {
        self.half.hold()
    }

    /// The bytes of the samples that the reader has.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.half.bytes()).unwrap_or(usize::MAX)
    }

    /// Ends the channel, when the reader's sign is gone.
    pub(crate) fn end(&mut self, memory: &mut Memory) {
        self.half.end(memory);
    }
}
