//! The source of a channel's samples: the frames of a byte stream, datagrams, of which several may have been received together, one
//! behind the other, or a ring of shared memory, whose samples are accepted and delivered in place.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use super::deliver::{accepts, deliver, info};
use super::{Inbound, Step};
use crate::carrier::ReceiveHalf;
use crate::carrier::shm::{NotReceived, RingReceive};
use crate::channel::Payload;
use crate::channel::fragment::Reassembly;
use crate::channel::memory::Account;
use crate::channel::queue::Label;
use crate::channel::reliable::Receiver;
use crate::trace;
use crate::wire::{self, INITIAL, StreamParser};
use linux::memory::Taken;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The source of samples.
pub(super) enum Source {
    /// A carrier's half and its framing.
    Half(Box<dyn ReceiveHalf>, Framing),
    /// The publisher's shared memory: samples are read where they lie.
    Ring(RingReceive),
}

/// The framing of a half's bytes.
pub(super) enum Framing {
    /// Frames follow each other.
    Stream(Stream),
    /// One frame per datagram, and one datagram per receive unless the half `joins` them. Large messages come in fragments. On a
    /// reliable flow missing messages are requested.
    Datagrams { buffer: Vec<u8>, joins: bool, reassembly: Reassembly, receiver: Option<Box<Receiver>> },
}

/// The frames of a byte stream: a parser, and who pays for it. Memory for a large message, beyond the room that every channel has, is
/// charged to the publisher's account before the message is read. As long as there is none, the message stays in the sockets, and
/// the publisher's queue fills.
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

/// The length of each datagram, from the first one's header: all have one length, and the last may be shorter. If the buffer was
/// too small for a single datagram, this length exceeds the received bytes.
#[inline]
pub(super) fn segment(buffer: &[u8], count: usize) -> usize {
    buffer.get(..count).and_then(wire::frame_length).unwrap_or(count)
}

/// The place of each datagram in `count` bytes. There is at least one, which may be empty.
#[inline]
pub(super) fn datagrams(count: usize, segment: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..count.max(1)).step_by(segment.max(1));
    starts.map(move |at| at..at.saturating_add(segment).min(count))
}

impl Inbound {
    /// Delivers the samples in the ring, and waits up to the tick if `wait`.
    pub(super) fn step_ring(&mut self, wait: bool) -> Step {
        let Source::Ring(ring) = &mut self.source else { return Step::Nothing };
        if wait {
            ring.wait();
        }
        // Read before the ring: samples that were pushed before the end are still taken.
        let over = ring.is_over() || self.channel.is_closed();
        let (mut delivered, mut held) = (0, false);
        while delivered < RING_STEP {
            let Source::Ring(ring) = &mut self.source else { return Step::Nothing };
            match ring.receive(self.max_message) {
                Ok(Some(taken)) => {
                    trace::step(trace::Step::Receive);
                    trace::step(trace::Step::Parse); // `receive` checks each index that it reads
                    delivered += u32::from(self.accept_taken(taken));
                }
                Ok(None) => break,
                Err(NotReceived::Held) => {
                    std::thread::sleep(HELD_PAUSE);
                    held = true;
                    break;
                }
                Err(NotReceived::Violation(what)) => return Step::Ended(what),
            }
        }
        match delivered {
            0 if over && !held => Step::Ended("the publisher closed".to_owned()),
            0 => Step::Nothing,
            _ => Step::Delivered(delivered),
        }
    }

    /// Delivers a sample of the ring unless it is a duplicate or is left out here; `true` if it did. A port that keeps samples
    /// borrows it; a callback reads it in place.
    #[inline]
    fn accept_taken(&mut self, taken: Taken) -> bool {
        let Self { source: Source::Ring(ring), accept, channel, subscriber_port, .. } = self else { return false };
        let meta = taken.meta;
        let label = Label::with(meta.seq, meta.stamp_ns, meta.kind as u16);
        if !(accept.frame(meta.flow_seq).is_new() && accepts(accept, channel, &label, taken.len())) {
            ring.give_back(taken);
            return false;
        }
        let info = info(channel, label, linux::clock::monotonic_ns());
        if subscriber_port.keeps() {
            deliver(channel, subscriber_port.as_ref(), info, Payload::Shared(ring.keep(taken)), None);
        } else {
            deliver(channel, subscriber_port.as_ref(), info, Payload::Bytes(ring.bytes(&taken)), None);
            ring.give_back(taken);
        }
        true
    }
}

/// The longest wait for memory. Then the channel is given up, since the same thread may serve others.
const PATIENT_NS: u64 = 1_000_000_000;

/// Samples of a ring that one step delivers at most, so that a closed channel is noticed under load.
const RING_STEP: u32 = 64;
/// Pause while the application holds as many samples of a ring as it may.
pub(crate) const HELD_PAUSE: Duration = Duration::from_micros(500);

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

    /// Start and end of each datagram in a buffer of 1000 bytes whose first header announces `says` bytes behind it.
    fn all(count: usize, says: u32) -> Vec<(usize, usize)> {
        let mut buffer = vec![0; 1000];
        buffer[..4].copy_from_slice(&says.to_le_bytes());
        let segment = segment(&buffer, count);
        datagrams(count, segment).map(|at| (at.start, at.end)).collect()
    }

    #[test]
    fn each_is_where_it_is() {
        assert_eq!(all(120, 8), [(0, 40), (40, 80), (80, 120)]);
        assert_eq!(all(100, 8), [(0, 40), (40, 80), (80, 100)]);
        assert_eq!((all(40, 8), all(64, 0)), (vec![(0, 40)], vec![(0, 32), (32, 64)]));
    }

    #[test]
    fn any_announced_length_gives_datagrams_within_the_received_bytes() {
        assert_eq!((all(0, 0), all(0, u32::MAX), all(1, 0)), (vec![(0, 0)], vec![(0, 0)], vec![(0, 1)]));
        assert_eq!((all(31, 0), all(40, 9), all(40, u32::MAX)), (vec![(0, 31)], vec![(0, 40)], vec![(0, 40)]));
        assert_eq!((all(1001, 8), all(usize::MAX, 0)), (vec![(0, 1001)], vec![(0, usize::MAX)]));
        for (count, says) in (0..200).flat_map(|count| (0..220).map(move |says| (count, says))) {
            let ends = all(count, says);
            assert!(ends.windows(2).all(|two| two[0].1 == two[1].0 && two[0].1 - two[0].0 >= HEADER));
            assert_eq!((ends[0].0, ends[ends.len() - 1].1), (0, count));
        }
    }
}
