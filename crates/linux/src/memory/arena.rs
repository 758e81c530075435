//! A publisher's payload memory, and its borrows.
//!
//! The bytes are shared, read-only for other processes. The table of slots and borrows is ordinary memory of this process:
//! no reader can break it, and a loan makes no allocation and no system call.

use super::segment::{PAYLOAD_SEALS, Segment, Shared};
use super::slots::{Slots, class_of, size_of_class};
use crate::futex::{self, Scope};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{fmt, io};

/// Start of the slots: behind the page of the header.
pub(super) const FIRST: usize = 4096;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"thalwegP");
pub(super) const VERSION: u32 = 1;

/// The first page of payload memory.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Header {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    pub(super) wake: AtomicU32,
}
// SAFETY: atomics only.
#[allow(unsafe_code)]
unsafe impl Shared for Header {}

/// The reason why there is no loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArenaError {
    /// The message is longer than the arena was made for.
    TooLarge {
        /// Bytes asked for.
        len: usize,
        /// The largest message, as given to [`Arena::create`].
        max: usize,
    },
    /// Every slot that would fit is still borrowed: collect from the rings, or drop.
    NoRoom {
        /// Bytes asked for.
        len: usize,
        /// Number of slots borrowed now, by loans, samples and readers.
        borrowed: usize,
    },
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { len, max } => write!(f, "a message of {len} bytes; this port was made for {max} at most"),
            Self::NoRoom { len, borrowed } => {
                write!(f, "no slot for {len} bytes: readers and the history hold {borrowed} slots")
            }
        }
    }
}

impl std::error::Error for ArenaError {}

/// A slot to write a message into. Goes back by [`Arena::cancel`], or on by [`Arena::seal`]; dropped, its slot is lost.
#[derive(Debug)]
#[must_use = "a loan that is neither sealed nor cancelled loses its slot"]
pub struct Loan {
    slot: u32,
    len: u32,
    arena: u64,
}

impl Loan {
    /// Shortens the message, when less was written than was loaned.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }
}

/// A finished message, which is no longer written. It goes to any number of rings, and stays (for a history, say)
/// until [`Arena::release`].
#[derive(Debug)]
#[must_use = "a sample that is not released loses its slot"]
pub struct Sealed {
    pub(super) slot: u32,
    pub(super) offset: usize,
    pub(super) len: u32,
    arena: u64,
}

/// A publisher port's payload memory with its private table of borrows.
#[derive(Debug)]
pub struct Arena {
    map: Segment,
    fd: OwnedFd,
    slots: Slots,
    max_message: usize,
    wakes: u64,
    id: u64,
}

impl Arena {
    /// Memory for messages up to `max_message` bytes, `capacity` bytes in all. Only touched pages cost memory.
    ///
    /// # Errors
    /// Not one message would fit, or the kernel gives no memory.
    pub fn create(capacity: usize, max_message: usize) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let too_small = || too_small(capacity, max_message);
        u32::try_from(max_message).map_err(|_| too_small())?;
        let slots = class_of(max_message).and_then(|class| Slots::new(capacity, class)).ok_or_else(too_small)?;
        let len = capacity.checked_next_multiple_of(FIRST).and_then(|c| c.checked_add(FIRST)).ok_or_else(too_small)?;
        let (map, fd) = Segment::create("thalweg-payload", len, PAYLOAD_SEALS)?;
        let header: &Header = map.value(0).ok_or_else(too_small)?;
        header.version.store(VERSION, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { map, fd, slots, max_message, wakes: 0, id })
    }

    /// The capacity for [`Arena::create`] with which a loan never fails while fewer than `slots` are borrowed, of any
    /// sizes.
    pub fn capacity_for(slots: usize, max_message: usize) -> usize {
        let slot = class_of(max_message).map_or(usize::MAX, size_of_class);
        slot.saturating_mul(slots)
    }

    /// The descriptor that readers attach to. They can only read.
    pub fn payload_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The largest message in bytes.
    pub fn max_message(&self) -> usize {
        self.max_message
    }

    /// Number of slots borrowed now, by loans, samples and readers.
    pub fn borrowed(&self) -> usize {
        self.slots.borrowed()
    }

    /// Touches all memory now, so that no later publish waits for a page.
    ///
    /// # Errors
    /// The kernel has no such memory, or is older than 5.14.
    pub fn populate(&self) -> io::Result<()> {
        self.map.populate()
    }

    /// Lends a slot for a message of `len` bytes. Its content is left over from before.
    ///
    /// # Errors
    /// A message too large, or no room.
    #[inline]
    pub fn loan(&mut self, len: usize) -> Result<Loan, ArenaError> {
        let class = class_of(len).filter(|_| len <= self.max_message);
        let class = class.ok_or(ArenaError::TooLarge { len, max: self.max_message })?;
        let slot = self.slots.take(class).ok_or(ArenaError::NoRoom { len, borrowed: self.borrowed() })?;
        Ok(Loan { slot, len: len as u32, arena: self.id })
    }

    /// The bytes of a loan, to be written.
    ///
    /// # Panics
    /// If the loan is of another arena (a bug of the caller).
    #[inline]
    #[allow(unsafe_code)]
    pub fn bytes_mut(&mut self, loan: &Loan) -> &mut [u8] {
        assert_eq!(loan.arena, self.id, "a loan of another arena");
        let offset = FIRST + self.slots.offset(loan.slot);
        // SAFETY: the slot is on loan, so it is in no ring and no other handle names it; `&mut self` keeps others out.
        unsafe { self.map.bytes_mut(offset, loan.len as usize) }.unwrap_or_default()
    }

    /// Gives an unused loan back.
    pub fn cancel(&mut self, loan: Loan) {
        let sample = self.seal(loan);
        self.release(sample);
    }

    /// Ends the writing: the message can now be pushed to rings.
    ///
    /// # Panics
    /// If the loan is of another arena (a bug of the caller).
    #[inline]
    pub fn seal(&mut self, loan: Loan) -> Sealed {
        assert_eq!(loan.arena, self.id, "a loan of another arena");
        let offset = FIRST + self.slots.offset(loan.slot);
        Sealed { slot: loan.slot, offset, len: loan.len, arena: self.id }
    }

    /// The bytes of a finished message.
    ///
    /// # Panics
    /// If the sample is of another arena (a bug of the caller).
    #[inline]
    #[allow(unsafe_code)]
    pub fn bytes(&self, sample: &Sealed) -> &[u8] {
        assert_eq!(sample.arena, self.id, "a sample of another arena");
        // SAFETY: sealed, and borrowed as long as the handle lives, so it is not written.
        unsafe { self.map.bytes(sample.offset, sample.len as usize) }.unwrap_or_default()
    }

    /// Gives up the publisher's own use of the sample; readers keep it.
    ///
    /// # Panics
    /// If the sample is of another arena (a bug of the caller).
    #[inline]
    pub fn release(&mut self, sample: Sealed) {
        assert_eq!(sample.arena, self.id, "a sample of another arena");
        self.slots.give_back(sample.slot);
    }

    /// Wakes the readers with these bits (as [`super::RingWriter::reader_waits`] gave them), all in one system call.
    /// Without bits it does nothing.
    #[inline]
    pub fn wake(&mut self, bits: u32) {
        let Some(bits) = NonZeroU32::new(bits) else { return };
        let Some(header) = self.map.value::<Header>(0) else { return };
        header.wake.fetch_add(1, Ordering::Release); // a reader that is about to wait on the old value will not
        futex::wake_bits(&header.wake, bits, Scope::Shared);
        self.wakes += 1;
    }

    /// Number of system calls that [`Arena::wake`] has made.
    pub fn wake_calls(&self) -> u64 {
        self.wakes
    }

    /// One more reader has the slot of this sample.
    #[inline]
    pub(super) fn borrow(&mut self, sample: &Sealed) {
        assert_eq!(sample.arena, self.id, "a sample of another arena");
        self.slots.borrow(sample.slot);
    }

    /// One borrow less; the last one frees the slot.
    #[inline]
    pub(super) fn give_back(&mut self, slot: u32) {
        self.slots.give_back(slot);
    }
}

fn too_small(capacity: usize, max_message: usize) -> io::Error {
    let why = format!("{capacity} bytes of shared memory do not hold one message of {max_message} bytes");
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_comes_back_when_its_last_borrow_ends() {
        let mut arena = Arena::create(1024, 1000).unwrap();
        let loan = arena.loan(1000).unwrap();
        arena.bytes_mut(&loan).fill(3);
        assert_eq!(arena.loan(10).unwrap_err(), ArenaError::NoRoom { len: 10, borrowed: 1 });
        let sample = arena.seal(loan);
        assert_eq!(arena.bytes(&sample), [3; 1000]);
        arena.borrow(&sample);
        let slot = sample.slot;
        arena.release(sample);
        assert_eq!(arena.borrowed(), 1);
        arena.give_back(slot);
        arena.give_back(slot); // once too often: no effect
        assert_eq!(arena.borrowed(), 0);
        let mut loan = arena.loan(300).unwrap();
        loan.truncate(7);
        assert_eq!(arena.bytes_mut(&loan).len(), 7);
        arena.cancel(loan);
    }

    #[test]
    fn too_large_names_both_numbers() {
        let mut arena = Arena::create(1 << 20, 3000).unwrap();
        let text = arena.loan(3001).unwrap_err().to_string();
        assert!(text.contains("3001") && text.contains("3000"), "{text}");
        assert!(Arena::create(1000, 3000).is_err() && Arena::create(1, usize::MAX).is_err());
        assert!(Arena::create(usize::MAX, 3000).is_err());
    }

    #[test]
    fn small_messages_use_large_slots_before_none_and_do_not_keep_large_ones_out() {
        let mut arena = Arena::create(4096, 4096).unwrap();
        let small: Vec<_> = (0..16).map(|_| arena.loan(256).unwrap()).collect();
        assert!(arena.loan(1).is_err());
        small.into_iter().for_each(|l| arena.cancel(l));
        let large = arena.loan(4096).unwrap();
        arena.cancel(large);
        let small = arena.loan(1).unwrap();
        assert!(arena.loan(4096).is_err());
        arena.cancel(small);
        let large = arena.loan(4096).unwrap();
        arena.cancel(large);
    }

    #[test]
    fn slots_never_overlap() {
        let mut arena = Arena::create(1 << 16, 5000).unwrap();
        let mut loans = Vec::new();
        for len in [1, 5000, 257, 4096, 256, 1025, 0, 3000].into_iter().cycle().take(40) {
            let Ok(loan) = arena.loan(len) else { continue };
            arena.bytes_mut(&loan).fill(loan.slot as u8);
            loans.push(loan);
        }
        assert!(loans.len() > 8);
        for loan in &loans {
            let expected = loan.slot as u8;
            assert!(arena.bytes_mut(loan).iter().all(|b| *b == expected));
        }
    }
}
