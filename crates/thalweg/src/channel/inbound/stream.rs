//! The frames of a byte stream. Memory for a large message, beyond the room that every channel has, is charged to the
//! publisher's account before the message is read. As long as there is none, the message stays in the sockets, and the
//! publisher's queue fills.

use crate::channel::memory::Account;
use crate::wire::{INITIAL, StreamParser};
use std::sync::Arc;

/// The longest wait for memory. Then the channel is given up, since the same thread may serve others.
const PATIENT_NS: u64 = 1_000_000_000;

/// A parser, and who pays for it.
pub(super) struct Stream {
    pub parser: StreamParser,
    budget: Arc<Account>,
    paid: usize,
    /// Start of the shortage of memory; 0: there is none.
    short_since: u64,
}

/// The reason why the stream cannot be read now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unpaid {
    /// There is no memory now.
    Waits,
    /// There was none for long.
    GivenUp(String),
}

impl Stream {
    pub(super) fn new(parser: StreamParser, budget: Arc<Account>) -> Self {
        Self { parser, budget, paid: 0, short_since: 0 }
    }

    /// Takes memory for the next read, and gives back unneeded memory.
    #[inline]
    pub(super) fn pay(&mut self, now_ns: impl FnOnce() -> u64) -> Result<(), Unpaid> {
        let wanted = self.parser.wanted().saturating_sub(INITIAL);
        if wanted == self.paid { Ok(()) } else { self.settle(wanted, now_ns()) }
    }

    #[cold]
    fn settle(&mut self, wanted: usize, now_ns: u64) -> Result<(), Unpaid> {
        let more = wanted.saturating_sub(self.paid);
        if let Err(limit) = self.budget.try_take(more) {
            // Each peer may have one message, even if there is little memory.
            if self.budget.used() > self.paid {
                return Err(self.short(wanted, limit, now_ns));
            }
            self.budget.take(more);
        }
        self.budget.give_back(self.paid.saturating_sub(wanted));
        (self.paid, self.short_since) = (wanted, 0);
        Ok(())
    }

    fn short(&mut self, wanted: usize, limit: qos::ResourceLimit, now_ns: u64) -> Unpaid {
        if self.short_since == 0 {
            self.short_since = now_ns;
        }
        if now_ns.saturating_sub(self.short_since) < PATIENT_NS {
            return Unpaid::Waits;
        }
        Unpaid::GivenUp(format!(
            "no memory for a message of some {wanted} bytes within 1 s ({limit:?}): see `thalweg info NODE`, or raise Settings::memory"
        ))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.budget.give_back(self.paid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::memory::Memory;
    use crate::control::NodeId;
    use crate::wire::{HEADER, Header, Kind};

    const LARGE: usize = 1 << 20;

    /// A stream on which a large message has begun.
    fn begun(account: &Arc<Account>) -> Stream {
        let mut stream = Stream::new(StreamParser::new(LARGE, Some(7)), account.clone());
        let length = LARGE as u32;
        let header = Header { length, kind: Kind::Message, flags: 0, flow: 7, sequence: 0, sample: 1, stamp_ns: 0 };
        let mut head = [0; HEADER];
        header.emit(&mut head);
        assert_eq!(stream.pay(|| 0), Ok(()));
        stream.parser.space()[..HEADER].copy_from_slice(&head);
        stream.parser.filled(HEADER);
        assert_eq!(stream.parser.next(), Ok(None));
        stream
    }

    #[test]
    fn a_large_message_is_paid_for_before_it_is_read_and_as_long_as_its_buffer_is_there() {
        let memory = Memory::new(3 * LARGE);
        let account = memory.peer(crate::admin::Peer::Node(NodeId(1)));
        let mut stream = begun(&account);
        assert_eq!((account.used(), stream.parser.capacity()), (0, INITIAL));
        assert_eq!(stream.pay(|| 1), Ok(()));
        let paid = account.used();
        assert!((LARGE - INITIAL..=LARGE).contains(&paid), "{paid}");
        stream.parser.space();
        assert_eq!(
            (stream.parser.capacity() - INITIAL, stream.pay(|| panic!("nothing is to be paid"))),
            (paid, Ok(()))
        );
        drop(stream);
        assert_eq!((account.used(), memory.node().used()), (0, 0));
    }

    #[test]
    fn without_memory_it_waits_and_is_given_up_in_the_end_but_one_message_each_peer_may_have() {
        let memory = Memory::new(2 * LARGE);
        let account = memory.peer(crate::admin::Peer::Node(NodeId(1)));
        let (mut first, mut second) = (begun(&account), begun(&account));
        assert_eq!((first.pay(|| 1), second.pay(|| 1)), (Ok(()), Err(Unpaid::Waits)));
        assert_eq!(second.pay(|| PATIENT_NS), Err(Unpaid::Waits));
        let text = "no memory for a message";
        assert!(matches!(second.pay(|| PATIENT_NS + 1), Err(Unpaid::GivenUp(why)) if why.starts_with(text)));
        drop(first);
        assert_eq!(second.pay(|| PATIENT_NS + 2), Ok(()));
        let little = Memory::new(1000);
        assert_eq!(
            begun(&little.peer(crate::admin::Peer::Node(NodeId(2)))).pay(|| 1),
            Ok(()),
            "however little memory there is"
        );
    }
}
