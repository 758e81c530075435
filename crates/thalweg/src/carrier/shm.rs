//! The `shm` carrier.
//!
//! Ports use its loans: a port with many channels has one memory, which lends a message's place once, a ring for each channel, and
//! one wake-up for all readers. There are no frames.

#![allow(clippy::disallowed_methods)] // waits and faults are timed

#[cfg(any(test, feature = "testing"))]
mod pair;

#[cfg(any(test, feature = "testing"))]
pub use pair::{capabilities, pair};

use super::{Interrupt, TICK};
use linux::memory::{
    Arena, ArenaError, Borrowed, Loan, Meta, Policy, Pushed, RingReader, RingWriter, Sealed, TakeError, Taken,
};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The payload memory of one port.
#[derive(Debug)]
pub(crate) struct Memory {
    arena: Arena,
}

impl Memory {
    /// Memory for messages of up to `largest` bytes, `capacity` bytes in all.
    ///
    /// # Errors
    /// Not one message would fit, or the kernel gives no memory.
    pub(crate) fn create(capacity: usize, largest: usize) -> io::Result<Self> {
        Arena::create(capacity, largest).map(|arena| Self { arena })
    }

    /// The capacity in which a loan never fails while fewer than `slots` messages of up to `largest` bytes are borrowed.
    pub(crate) fn capacity_for(slots: usize, largest: usize) -> usize {
        Arena::capacity_for(slots, largest)
    }

    /// The descriptor that readers attach to.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.arena.payload_fd()
    }

    /// A place for a message of `len` bytes.
    ///
    /// # Errors
    /// The message is too large, or all places are borrowed.
    pub(crate) fn loan(&mut self, len: usize) -> Result<Loan, ArenaError> {
        self.arena.loan(len)
    }

    /// The bytes of a loan, to be written.
    pub(crate) fn bytes_mut(&mut self, loan: &Loan) -> &mut [u8] {
        self.arena.bytes_mut(loan)
    }

    /// Takes an unused loan back.
    pub(crate) fn cancel(&mut self, loan: Loan) {
        self.arena.cancel(loan);
    }
}

/// One message, and its place in the memory while rings are given it. The place is lent until this is dropped, and as long as
/// readers hold it.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    memory: &'a mut Memory,
    sample: Option<Sealed>,
    waiting: u32, // bits of readers that are to be woken
}

impl<'a> Shared<'a> {
    /// A message that has no place yet.
    pub(crate) fn nowhere(memory: &'a mut Memory) -> Self {
        Self { memory, sample: None, waiting: 0 }
    }

    /// A message that was written into a loan.
    pub(crate) fn written(memory: &'a mut Memory, loan: Loan) -> Self {
        let sample = Some(memory.arena.seal(loan));
        Self { memory, sample, waiting: 0 }
    }

    /// Copies the message to a place of its own, unless it has one. `false`: all places are borrowed, or none is large enough.
    pub(crate) fn copy(&mut self, message: &[u8]) -> bool {
        if self.sample.is_none()
            && let Ok(loan) = self.memory.loan(message.len())
        {
            self.memory.bytes_mut(&loan).copy_from_slice(message);
            self.sample = Some(self.memory.arena.seal(loan));
        }
        self.sample.is_some()
    }

    /// The message, where it has a place.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.sample.as_ref().map(|sample| self.memory.arena.bytes(sample)).unwrap_or_default()
    }

    /// Wakes the readers that wait for pushed samples, with one system call.
    #[inline]
    pub(crate) fn wake(&mut self) {
        self.memory.arena.wake(std::mem::take(&mut self.waiting));
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.wake();
        if let Some(sample) = self.sample.take() {
            self.memory.arena.release(sample);
        }
    }
}

/// The publisher's end of one channel.
#[derive(Debug)]
pub(crate) struct RingHalf {
    writer: RingWriter,
}

impl RingHalf {
    /// A ring in which `depth` messages of `most` bytes in all can wait, for a reader that holds up to `hold` more. `bit`
    /// (0 to 31) is the reader's in wake-ups. The descriptor is for the reader.
    ///
    /// # Errors
    /// A number out of range, or the kernel gives no memory.
    pub(crate) fn create(depth: u32, hold: u32, bit: u32, most: u64) -> io::Result<(Self, OwnedFd)> {
        let (mut writer, descriptor) = RingWriter::create(depth, hold, bit)?;
        writer.limit_bytes(most);
        Ok((Self { writer }, descriptor))
    }

    /// Gives the reader a message; it is woken by [`Shared::wake`]. A full ring is waited for, at most `patience`. `None`: the
    /// message has no place in shared memory.
    #[inline]
    pub(crate) fn push(
        &mut self,
        shared: &mut Shared<'_>,
        meta: Meta,
        policy: Policy,
        patience: Duration,
    ) -> Option<Pushed> {
        let Shared { memory: Memory { arena }, sample, waiting } = shared;
        let sample = sample.as_ref()?;
        let mut pushed = self.writer.push(arena, sample, meta, policy);
        if pushed == Pushed::Full && !patience.is_zero() {
            arena.wake(std::mem::take(waiting) | self.writer.reader_waits());
            pushed = self.push_patiently(arena, sample, meta, patience);
        }
        if matches!(pushed, Pushed::Sent | Pushed::SentDroppedOldest(_)) {
            *waiting |= self.writer.reader_waits();
        }
        Some(pushed)
    }

    /// Waits for room, at most `patience`.
    #[cold]
    fn push_patiently(&mut self, arena: &mut Arena, sample: &Sealed, meta: Meta, patience: Duration) -> Pushed {
        let (room, until) = (self.writer.room(), Instant::now() + patience);
        loop {
            let asked = room.ask();
            let pushed = self.writer.push(arena, sample, meta, Policy::Refuse);
            let left = until.saturating_duration_since(Instant::now());
            if pushed != Pushed::Full || left.is_zero() {
                return pushed;
            }
            // A reader tells when it takes a sample, not when it gives one back.
            room.wait(asked, if self.writer.met_bytes() { left.min(HELD_PAUSE) } else { left });
        }
    }

    /// Takes back the places that the reader returned, for a message that found none.
    pub(crate) fn collect(&mut self, shared: &mut Shared<'_>) {
        let _ = self.writer.collect(&mut shared.memory.arena); // a violation shows at the next push
    }

    /// The messages that the reader may hold besides those that wait.
    pub(crate) fn hold(&self) -> u32 {
        self.writer.hold()
    }

    /// The bytes of the messages that the reader has.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// `true` if the last push met the limit of bytes.
    pub(crate) fn met_bytes(&self) -> bool {
        self.writer.met_bytes()
    }

    /// Ends the ring and takes all places back. For a reader whose sign is gone: the places are not read any more.
    pub(crate) fn end(&mut self, memory: &mut Memory) {
        self.writer.release_all(&mut memory.arena);
    }
}

/// The reason why no message was received.
#[derive(Debug)]
pub(crate) enum NotReceived {
    /// The application holds as many messages as it may: more come when it releases one.
    Held,
    /// The publisher's end broke the rules of the memory, or of the channel.
    Violation(String),
}

/// The subscriber's end of one channel: messages are borrowed where they lie in the publisher's memory.
pub(crate) struct RingReceive {
    reader: RingReader,
    without_end: bool, // waits until it is interrupted
}

impl RingReceive {
    /// Maps a port's memory and the ring of one channel. `sign` is closed when no message is read any more.
    ///
    /// # Errors
    /// The descriptors are no sealed memory of this form.
    pub(crate) fn attach(payload: BorrowedFd<'_>, ring: BorrowedFd<'_>, sign: OwnedFd) -> io::Result<Self> {
        Ok(Self { reader: RingReader::attach_with_sign(payload, ring, Some(sign))?, without_end: false })
    }

    /// Waits for a message: at most the tick, or without end after [`RingReceive::wait_without_end`].
    #[inline]
    pub(crate) fn wait(&mut self) {
        if self.without_end {
            self.reader.wait_without_end();
        } else {
            self.reader.wait(TICK);
        }
    }

    /// Waits for a message, at most so long.
    pub(crate) fn wait_within(&mut self, timeout: Duration) {
        self.reader.wait(timeout);
    }

    /// Makes [`RingReceive::wait`] wait without end; the returned interrupt ends it.
    pub(crate) fn wait_without_end(&mut self) -> Interrupt {
        let interrupt = self.reader.interrupt();
        self.without_end = true;
        Interrupt { loses_nothing: true, end: Box::new(move || interrupt.end()) }
    }

    /// `true` if the publisher's end closed. Messages that were pushed before can still be received.
    pub(crate) fn is_over(&self) -> bool {
        self.reader.writer_closed()
    }

    /// Borrows the next message, of at most `most` bytes, without waiting. Each index that is read from shared memory is checked.
    #[inline]
    pub(crate) fn receive(&mut self, most: usize) -> Result<Option<Taken>, NotReceived> {
        match self.reader.try_next() {
            Ok(Some(taken)) if taken.len() > most => {
                let what = format!("a message of {} bytes in shared memory is over the limit of {most}", taken.len());
                self.reader.give_back(taken);
                Err(NotReceived::Violation(what))
            }
            Ok(taken) => Ok(taken),
            Err(TakeError::TooManyHeld { .. }) => Err(NotReceived::Held),
            Err(TakeError::Violation(what)) => Err(NotReceived::Violation(format!("protocol violation: {what}"))),
        }
    }

    /// The bytes of a borrowed message.
    #[inline]
    pub(crate) fn bytes<'a>(&'a self, taken: &'a Taken) -> &'a [u8] {
        self.reader.bytes(taken)
    }

    /// Returns a message.
    #[inline]
    pub(crate) fn give_back(&self, taken: Taken) {
        self.reader.give_back(taken);
    }

    /// A borrowed message that returns itself when it is dropped, on any thread.
    #[inline]
    pub(crate) fn keep(&self, taken: Taken) -> Borrowed {
        self.reader.keep(taken)
    }
}

/// Pause before another look for samples that a reader has given back.
const HELD_PAUSE: Duration = Duration::from_millis(1);
