//! The publisher's side of one channel.
//!
//! Every index from shared memory is compared with the writer's private state: the positions that it has written, and
//! the slot of each ticket. A reader that writes nonsense hurts only itself.

use super::arena::{Arena, Sealed};
use super::layout::{RingMemory, Shape};
use super::protocol::{Violation, WriterSide};
use crate::futex::{self, Scope};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Data that travels with a sample besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The publisher's sequence number.
    pub seq: u64,
    /// Time of publishing, `CLOCK_MONOTONIC`.
    pub stamp_ns: u64,
    /// The flow's own dense sequence.
    pub flow_seq: u32,
    /// Free for the caller.
    pub kind: u32,
}

/// Policy for a full ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Take the oldest sample back.
    KeepLast,
    /// Refuse the new one.
    Refuse,
}

/// Result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// In the ring.
    Sent,
    /// In the ring; this many older ones were taken back unread.
    SentDroppedOldest(u32),
    /// Not sent: the ring is full.
    Full,
    /// Not sent: the reader has closed, or [`RingWriter::close`] was called.
    Closed,
    /// Not sent: the reader broke the rules. Call [`RingWriter::release_all`] and drop the ring.
    Violation(&'static str),
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    slot: u32,
    len: u32,
    position: u64,
    out: bool,
}

/// The publisher's side of one channel. Before it is dropped, [`RingWriter::release_all`] returns the reader's
/// samples.
#[derive(Debug)]
pub struct RingWriter {
    memory: Arc<RingMemory>,
    side: WriterSide,
    entries: Box<[Entry]>, // by ticket
    free: Vec<u32>,        // tickets
    queued: Box<[u32]>,    // by position: the ticket
    collected: u64,
    bytes: u64, // of the samples that are out
    most_bytes: u64,
    met_bytes: bool, // by the last push
    broken: Option<Violation>,
    closed: bool,
}

impl RingWriter {
    /// A ring for `depth` waiting samples and a reader that holds at most `hold` more. `bit` (0 to 31) is the reader's in
    /// wake-ups; readers may share one. The descriptor goes to the reader.
    ///
    /// # Errors
    /// A number out of range, or no memory.
    pub fn create(depth: u32, hold: u32, bit: u32) -> io::Result<(Self, OwnedFd)> {
        let (memory, fd) = RingMemory::create(Shape { depth, hold, bit })?;
        let tickets = memory.shape.tickets();
        let writer = Self {
            side: WriterSide::new(depth.into()),
            entries: vec![Entry::default(); tickets as usize].into(),
            free: (0..tickets).rev().collect(),
            queued: vec![0; memory.shape.cells()].into(),
            memory: Arc::new(memory),
            collected: 0,
            bytes: 0,
            most_bytes: u64::MAX,
            met_bytes: false,
            broken: None,
            closed: false,
        };
        Ok((writer, fd))
    }

    /// Gives the reader a sample, which borrows the sample's slot until it gives it back.
    pub fn push(&mut self, arena: &mut Arena, sample: &Sealed, meta: Meta, policy: Policy) -> Pushed {
        match self.try_push(arena, sample, meta, policy) {
            Ok(pushed) => pushed,
            Err(violation) => {
                self.broken = Some(violation);
                Pushed::Violation(violation)
            }
        }
    }

    fn try_push(
        &mut self,
        arena: &mut Arena,
        sample: &Sealed,
        meta: Meta,
        policy: Policy,
    ) -> Result<Pushed, Violation> {
        if let Some(violation) = self.broken {
            return Err(violation);
        }
        if self.closed || self.reader_closed() {
            return Ok(Pushed::Closed);
        }
        let Some(by_bytes) = self.make_room_for(arena, sample.len, policy)? else { return Ok(Pushed::Full) };
        let Some(dropped) = self.make_room(arena, policy)? else { return Ok(Pushed::Full) };
        let dropped = by_bytes + dropped;
        self.gather(arena)?; // after the look at the head: then an honest reader has left a ticket
        let ticket = self.free.pop().ok_or("the reader holds more samples than its limit")?;
        arena.borrow(sample);
        let position = self.side.tail();
        self.entries[ticket as usize] = Entry { slot: sample.slot, len: sample.len, position, out: true };
        self.bytes += u64::from(sample.len);
        let index = position as usize & (self.queued.len() - 1);
        self.queued[index] = ticket;
        let (len, flow) = (u64::from(sample.len), u64::from(meta.flow_seq));
        let words = [
            sample.offset as u64,
            len | u64::from(ticket) << 32,
            meta.seq,
            meta.stamp_ns,
            flow | u64::from(meta.kind) << 32,
            u64::from(sample.slot),
        ];
        self.side.put(self.memory.lane(), words);
        Ok(if dropped == 0 { Pushed::Sent } else { Pushed::SentDroppedOldest(dropped) })
    }

    /// Makes room. Returns the number of samples taken back, or `None` if the ring stays full.
    fn make_room(&mut self, arena: &mut Arena, policy: Policy) -> Result<Option<u32>, Violation> {
        if self.side.full() {
            self.side.refresh(self.memory.lane())?;
        }
        if !self.side.full() {
            return Ok(Some(0));
        }
        if policy == Policy::Refuse {
            return Ok(None);
        }
        Ok(Some(u32::from(self.take_back(arena)?))) // when the reader was faster, there is room as well
    }

    /// Makes room by bytes, of waiting and held samples together. One sample always has room. Where older ones are
    /// taken back, one also has room beside the held ones, whose number is bounded.
    fn make_room_for(&mut self, arena: &mut Arena, len: u32, policy: Policy) -> Result<Option<u32>, Violation> {
        self.met_bytes = false;
        if self.fits(len) {
            return Ok(Some(0));
        }
        self.gather(arena)?;
        let mut dropped = 0;
        while !self.fits(len) {
            self.met_bytes = true;
            if policy == Policy::Refuse {
                return Ok(None);
            }
            if !self.take_back(arena)? {
                break;
            }
            dropped += 1;
        }
        Ok(Some(dropped))
    }

    fn fits(&self, len: u32) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(u64::from(len)) <= self.most_bytes
    }

    /// Takes the oldest waiting sample back, unless there is none or the reader is faster.
    fn take_back(&mut self, arena: &mut Arena) -> Result<bool, Violation> {
        let Some(position) = self.side.reclaim(self.memory.lane())? else { return Ok(false) };
        let ticket = self.queued[position as usize & (self.queued.len() - 1)];
        self.end(arena, ticket);
        Ok(true)
    }

    fn end(&mut self, arena: &mut Arena, ticket: u32) {
        let entry = &mut self.entries[ticket as usize];
        if std::mem::take(&mut entry.out) {
            self.bytes -= u64::from(entry.len);
            arena.give_back(entry.slot);
            self.free.push(ticket);
        }
    }

    /// Collects the samples that the reader gave back; returns their number. Any number of times, at any time.
    ///
    /// # Errors
    /// The reader broke the rules.
    pub fn collect(&mut self, arena: &mut Arena) -> Result<usize, &'static str> {
        if let Some(violation) = self.broken {
            return Err(violation);
        }
        self.gather(arena).inspect_err(|violation| self.broken = Some(violation))
    }

    fn gather(&mut self, arena: &mut Arena) -> Result<usize, Violation> {
        let returned = self.memory.lane().control.returned.0.load(Ordering::Acquire);
        if returned == self.collected {
            return Ok(0);
        }
        let count = returned.checked_sub(self.collected).filter(|n| *n <= self.entries.len() as u64);
        let count = count.ok_or("the reader moved the return ring where it never may be")?;
        let head = self.side.refresh(self.memory.lane())?;
        for position in self.collected..returned {
            let ticket = self.memory.lane().ticket(position);
            let held = self.entries.get(ticket as usize).is_some_and(|e| e.out && e.position < head);
            if !held {
                return Err("the reader gave back what it does not hold");
            }
            self.end(arena, ticket);
            self.collected = position + 1;
        }
        Ok(count as usize)
    }

    /// After a push: the reader's bit if it must be woken, else 0. Asked once per wait.
    #[inline]
    pub fn reader_waits(&self) -> u32 {
        u32::from(self.memory.lane().take_waiting()) << self.memory.shape.bit
    }

    /// `true` if a sample could be pushed without taking an older one back.
    pub fn has_room(&mut self) -> bool {
        !self.side.full() || (self.side.refresh(self.memory.lane()).is_ok() && !self.side.full())
    }

    /// Number of samples that the reader may hold besides those in the ring.
    #[inline]
    pub fn hold(&self) -> u32 {
        self.memory.shape.hold
    }

    /// Limits the bytes of waiting and held samples from now on.
    pub fn limit_bytes(&mut self, most: u64) {
        self.most_bytes = most;
    }

    /// The bytes of the samples that this reader has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `true` if the last push met the limit of bytes.
    #[inline]
    pub fn met_bytes(&self) -> bool {
        self.met_bytes
    }

    /// Number of the reader's samples: waiting in the ring, or held.
    pub fn out(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// `true` if the reader has closed. It may still hold samples, until [`RingWriter::out`] is 0 after a collect.
    pub fn reader_closed(&self) -> bool {
        self.memory.lane().control.reader_closed.0.load(Ordering::Acquire) != 0
    }

    /// Tells the reader that no more samples will come. It still reads those in the ring.
    pub fn close(&mut self, arena: &mut Arena) {
        self.closed = true;
        self.memory.lane().control.writer_closed.0.store(1, Ordering::Release);
        let bits = self.reader_waits();
        arena.wake(bits);
    }

    /// Takes back the samples in the ring, and collects returned ones, for a reader that closed but still lives.
    /// Samples that it holds stay with it.
    ///
    /// # Errors
    /// The reader broke the rules.
    pub fn withdraw(&mut self, arena: &mut Arena) -> Result<(), &'static str> {
        self.collect(arena)?;
        while self.take_back(arena).inspect_err(|violation| self.broken = Some(violation))? {}
        Ok(())
    }

    /// Takes everything back, held or not, and closes: for a reader that is dead or broke the rules.
    pub fn release_all(&mut self, arena: &mut Arena) {
        (0..self.entries.len() as u32).for_each(|ticket| self.end(arena, ticket));
        self.broken = self.broken.or(Some("the ring was released"));
        self.close(arena);
    }

    /// A handle to wait for room with, that needs no lock on the ring.
    pub fn room(&self) -> Room {
        Room { memory: self.memory.clone() }
    }
}

/// A wait for room. Ask, try once more, and only then wait.
#[derive(Clone, Debug)]
pub struct Room {
    memory: Arc<RingMemory>,
}

impl Room {
    /// Asks the reader to tell; returns the argument of [`Room::wait`].
    pub fn ask(&self) -> u32 {
        self.memory.lane().ask_room()
    }

    /// Waits until the reader has claimed or given back a sample since [`Room::ask`], or closed; `false` on time-out.
    pub fn wait(&self, asked: u32, timeout: Duration) -> bool {
        futex::wait(&self.memory.lane().control.room.0, asked, Some(timeout), Scope::Shared)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RingReader, TakeError};
    use super::*;
    use std::os::fd::AsFd;

    fn channel(depth: u32, hold: u32) -> (Arena, RingWriter, RingReader) {
        let arena = Arena::create(64 * 256, 256).unwrap();
        let (writer, fd) = RingWriter::create(depth, hold, 31).unwrap();
        let reader = RingReader::attach(arena.payload_fd(), fd.as_fd()).unwrap();
        (arena, writer, reader)
    }

    fn push(arena: &mut Arena, ring: &mut RingWriter, seq: u64, policy: Policy) -> Pushed {
        let loan = arena.loan(8).unwrap();
        arena.bytes_mut(&loan).copy_from_slice(&seq.to_le_bytes());
        let sample = arena.seal(loan);
        let pushed = ring.push(arena, &sample, Meta { seq, ..Meta::default() }, policy);
        arena.release(sample);
        pushed
    }

    #[test]
    fn keep_last_takes_the_oldest_back_and_refuse_says_full() {
        let (mut arena, mut ring, mut reader) = channel(2, 1);
        assert_eq!(push(&mut arena, &mut ring, 1, Policy::Refuse), Pushed::Sent);
        assert_eq!(push(&mut arena, &mut ring, 2, Policy::Refuse), Pushed::Sent);
        assert_eq!(push(&mut arena, &mut ring, 3, Policy::Refuse), Pushed::Full);
        assert_eq!(push(&mut arena, &mut ring, 4, Policy::KeepLast), Pushed::SentDroppedOldest(1));
        assert_eq!((arena.borrowed(), ring.out()), (2, 2));
        let taken = reader.try_next().unwrap().unwrap();
        assert_eq!((taken.meta.seq, reader.bytes(&taken)), (2, &2u64.to_le_bytes()[..]));
        assert_eq!(reader.try_next().unwrap_err(), TakeError::TooManyHeld { limit: 1 });
        reader.give_back(taken);
        assert_eq!(ring.collect(&mut arena), Ok(1));
        let last = reader.try_borrow().unwrap().unwrap();
        drop(reader);
        assert_eq!(push(&mut arena, &mut ring, 5, Policy::KeepLast), Pushed::Closed);
        assert_eq!((last[0], ring.out()), (4, 1), "what is held stays after the reader closed");
        drop(last);
        ring.withdraw(&mut arena).unwrap();
        assert_eq!((arena.borrowed(), ring.out()), (0, 0));
    }

    #[test]
    fn slots_of_a_dead_reader_are_released() {
        let (mut arena, mut ring, mut reader) = channel(4, 4);
        (0..4).for_each(|seq| assert_eq!(push(&mut arena, &mut ring, seq, Policy::KeepLast), Pushed::Sent));
        let held = (reader.try_next().unwrap(), reader.try_next().unwrap());
        assert!(held.0.is_some() && held.1.is_some() && arena.borrowed() == 4);
        ring.release_all(&mut arena);
        assert_eq!((arena.borrowed(), ring.out()), (0, 0));
        assert!(matches!(push(&mut arena, &mut ring, 9, Policy::KeepLast), Pushed::Violation(_)));
    }

    #[test]
    fn a_close_is_seen_after_the_ring_is_drained() {
        let (mut arena, mut ring, mut reader) = channel(4, 4);
        push(&mut arena, &mut ring, 1, Policy::KeepLast);
        ring.close(&mut arena);
        assert!(reader.writer_closed() && reader.wait(Duration::from_secs(60)));
        assert_eq!(reader.try_next().unwrap().unwrap().meta.seq, 1);
        assert!(reader.try_next().unwrap().is_none());
    }

    #[test]
    fn a_waiting_reader_is_woken_by_one_call_and_a_busy_one_by_none() {
        let (mut arena, mut ring, mut reader) = channel(4, 4);
        assert!(!reader.wait(Duration::from_millis(1)), "nothing was sent");
        push(&mut arena, &mut ring, 1, Policy::KeepLast);
        assert_eq!(ring.reader_waits(), 0, "it waits no more");
        let waiter = std::thread::spawn(move || {
            let first = reader.try_next().unwrap().unwrap();
            reader.give_back(first);
            assert!(reader.wait(Duration::from_secs(60)));
            reader.try_next().unwrap().unwrap().meta.seq
        });
        while ring.memory.lane().control.waiting.0.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(push(&mut arena, &mut ring, 2, Policy::KeepLast), Pushed::Sent);
        let bits = ring.reader_waits();
        assert_eq!((bits, ring.reader_waits()), (1 << 31, 0), "asked once per wait");
        arena.wake(bits);
        assert_eq!((waiter.join().unwrap(), arena.wake_calls()), (2, 1));
    }

    #[test]
    fn a_writer_that_asked_for_room_is_told() {
        let (mut arena, mut ring, mut reader) = channel(1, 1);
        push(&mut arena, &mut ring, 1, Policy::Refuse);
        let room = ring.room();
        let asked = room.ask();
        assert!(!ring.has_room() && !room.wait(asked, Duration::from_millis(1)));
        let taker = std::thread::spawn(move || reader.try_next().unwrap().map(|t| t.meta.seq));
        assert!(room.wait(asked, Duration::from_secs(60)));
        assert!(ring.has_room());
        assert_eq!(taker.join().unwrap(), Some(1));
    }
}
