//! The subscriber's side of one channel.

use super::arena::{FIRST, Header, MAGIC, VERSION};
use super::layout::RingMemory;
use super::protocol::{ReaderSide, Record, Violation};
use super::ring::Meta;
use super::segment::{Access, PAYLOAD_SEALS, Segment, refused};
use crate::futex::{self, Scope};
use crate::lock::PiMutex;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};

/// The reason why no sample could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeError {
    /// The application holds as many samples as it may; one must be given back first.
    TooManyHeld {
        /// Largest number that it may hold.
        limit: u32,
    },
    /// The publisher broke the rules: leave the channel.
    Violation(&'static str),
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyHeld { limit } => write!(f, "{limit} samples are held, the most this channel allows"),
            Self::Violation(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for TakeError {}

/// A taken sample; it goes back by [`RingReader::give_back`].
#[derive(Debug)]
#[must_use = "a sample that is not given back stays borrowed"]
pub struct Taken {
    /// Data that travelled with it.
    pub meta: Meta,
    offset: usize,
    len: usize,
    ticket: u32,
}

impl Taken {
    /// The length of the message in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// `true` if the message is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// State shared by the reading thread and the holders of samples.
#[derive(Debug)]
struct Attached {
    payload: Segment,
    ring: RingMemory,
    held: AtomicU32,
    returned: PiMutexCount,
    waits: AtomicBool, // its thread is within a wait without end
    interrupted: AtomicBool,
    _sign: Option<OwnedFd>,
}

/// Ends the waits of one reader, for good: they return at once from then on. Samples in the ring can still be taken.
#[derive(Clone, Debug)]
pub struct Interrupt {
    shared: Arc<Attached>,
}

impl Interrupt {
    /// Ends the waits.
    pub fn end(&self) {
        self.shared.interrupted.store(true, Ordering::SeqCst);
        let Some(header) = self.shared.payload.value::<Header>(0) else { return };
        let patience = Instant::now() + Duration::from_secs(1);
        // The wake word is the publisher's and read-only here, so it cannot record this event. A reader that looked
        // before and sleeps after the wake-up would miss it, so it is woken again until it has left the wait.
        while self.shared.waits.load(Ordering::SeqCst) && Instant::now() < patience {
            futex::wake_bits(&header.wake, self.shared.bit(), Scope::Shared);
            std::thread::yield_now();
        }
    }
}

struct PiMutexCount(PiMutex<u64>);

impl fmt::Debug for PiMutexCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("returned")
    }
}

impl Attached {
    #[allow(unsafe_code)]
    fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: the caller's `Taken` holds a borrow, so an honest publisher does not write these bytes. One that breaks
        // this changes plain bytes, which every decoder takes as untrusted input anyway; the bounds are checked.
        unsafe { self.payload.bytes(offset, len) }.unwrap_or_default()
    }

    fn bit(&self) -> NonZeroU32 {
        NonZeroU32::new(1 << self.ring.shape.bit).unwrap_or(NonZeroU32::MIN)
    }

    fn give_back(&self, ticket: u32) {
        self.ring.lane().give_back(&mut self.returned.0.lock(), ticket);
        self.held.fetch_sub(1, Ordering::Release); // after the return: the writer counts on it
        self.tell_room();
    }

    fn tell_room(&self) {
        let lane = self.ring.lane();
        if lane.tell_room() {
            futex::wake(&lane.control.room.0, u32::MAX >> 1, Scope::Shared);
        }
    }
}

/// The subscriber's side of one channel. One thread reads; samples may be given back from any.
#[derive(Debug)]
pub struct RingReader {
    shared: Arc<Attached>,
    side: ReaderSide,
    busy_poll: Duration,
}

impl RingReader {
    /// Maps a publisher's memory, after checking seals, sizes, magic numbers and versions.
    ///
    /// # Errors
    /// `InvalidData` for malformed memory, and the kernel's error.
    pub fn attach(payload: BorrowedFd<'_>, ring: BorrowedFd<'_>) -> io::Result<Self> {
        Self::attach_with_sign(payload, ring, None)
    }

    /// Attaches as [`RingReader::attach`] does, and keeps `sign`, one end of a socket, open as long as the reader or
    /// any sample of it lives. The other end sees it close exactly when the memory is not read any more, even after a
    /// kill.
    ///
    /// # Errors
    /// As [`RingReader::attach`].
    pub fn attach_with_sign(payload: BorrowedFd<'_>, ring: BorrowedFd<'_>, sign: Option<OwnedFd>) -> io::Result<Self> {
        let payload = Segment::attach(payload, PAYLOAD_SEALS, Access::Read, FIRST)?;
        let header: &Header = payload.value(0).ok_or_else(|| refused("no room for the header"))?;
        if header.magic.load(Ordering::Acquire) != MAGIC || header.version.load(Ordering::Relaxed) != VERSION {
            return Err(refused("not payload memory of this version"));
        }
        let ring = RingMemory::attach(ring)?;
        let side = ReaderSide::new(ring.shape.depth.into());
        let returned = PiMutexCount(PiMutex::new(0));
        let shared = Arc::new(Attached {
            payload,
            ring,
            held: AtomicU32::new(0),
            returned,
            waits: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            _sign: sign,
        });
        Ok(Self { shared, side, busy_poll: Duration::ZERO })
    }

    /// Polls the ring for this time before it waits. The default is zero: a waiting thread costs nothing.
    pub fn set_busy_poll(&mut self, time: Duration) {
        self.busy_poll = time;
    }

    /// Largest number of samples that may be held at once.
    pub fn hold_limit(&self) -> u32 {
        self.shared.ring.shape.hold
    }

    /// Number of samples held now.
    pub fn held(&self) -> u32 {
        self.shared.held.load(Ordering::Acquire)
    }

    /// The oldest waiting sample, if there is one. Never waits.
    ///
    /// # Errors
    /// Too many are held, or the publisher broke the rules.
    pub fn try_next(&mut self) -> Result<Option<Taken>, TakeError> {
        let limit = self.hold_limit();
        if self.held() >= limit {
            return Err(TakeError::TooManyHeld { limit });
        }
        let record = self.side.take(self.shared.ring.lane()).map_err(TakeError::Violation)?;
        let Some(record) = record else { return Ok(None) };
        let taken = self.check(record).map_err(TakeError::Violation)?;
        self.shared.held.fetch_add(1, Ordering::Relaxed);
        self.shared.tell_room();
        Ok(Some(taken))
    }

    /// As [`RingReader::try_next`], as a handle that gives itself back when dropped, on any thread. Allocates nothing.
    ///
    /// # Errors
    /// As [`RingReader::try_next`].
    pub fn try_borrow(&mut self) -> Result<Option<Borrowed>, TakeError> {
        Ok(self.try_next()?.map(|taken| self.keep(taken)))
    }

    /// Makes a handle of a taken sample that gives itself back when dropped, on any thread. Allocates nothing.
    pub fn keep(&self, taken: Taken) -> Borrowed {
        Borrowed { shared: self.shared.clone(), taken }
    }

    fn check(&self, record: Record) -> Result<Taken, Violation> {
        let [offset, len_ticket, seq, stamp_ns, flow_kind, _slot] = record;
        let (len, ticket) = (len_ticket as u32 as usize, (len_ticket >> 32) as u32);
        let offset = usize::try_from(offset).ok().filter(|o| *o >= FIRST);
        let offset = offset.filter(|o| o.checked_add(len).is_some_and(|end| end <= self.shared.payload.len()));
        let offset = offset.ok_or("the writer named bytes outside its memory")?;
        if ticket >= self.shared.ring.shape.tickets() {
            return Err("the writer gave a ticket that does not exist");
        }
        let meta = Meta { seq, stamp_ns, flow_seq: flow_kind as u32, kind: (flow_kind >> 32) as u32 };
        Ok(Taken { meta, offset, len, ticket })
    }

    /// The bytes of a sample.
    pub fn bytes<'a>(&'a self, taken: &'a Taken) -> &'a [u8] {
        self.shared.bytes(taken.offset, taken.len)
    }

    /// Gives the sample back.
    pub fn give_back(&self, taken: Taken) {
        self.shared.give_back(taken.ticket);
    }

    /// `true` if the publisher has closed. Samples in the ring can still be taken.
    pub fn writer_closed(&self) -> bool {
        self.shared.ring.lane().control.writer_closed.0.load(Ordering::Acquire) != 0
    }

    /// `true` if a sample can be taken, or the end is known.
    fn ready(&self) -> bool {
        self.shared.ring.lane().has_news() || self.writer_closed() || self.shared.interrupted.load(Ordering::SeqCst)
    }

    /// Waits until a sample can be taken or the publisher closed; `false` when the time ran out.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        self.wait_until(Some(Instant::now() + timeout))
    }

    /// As [`RingReader::wait`], without end but for an [`Interrupt`]. Spares the kernel's timer, 0.5 µs of a 64 B round trip.
    pub fn wait_without_end(&mut self) {
        self.shared.waits.store(true, Ordering::SeqCst);
        self.wait_until(None);
        self.shared.waits.store(false, Ordering::SeqCst);
    }

    /// Ends waits of this reader from another thread.
    pub fn interrupt(&self) -> Interrupt {
        Interrupt { shared: self.shared.clone() }
    }

    fn wait_until(&self, until: Option<Instant>) -> bool {
        if self.ready() || self.poll() {
            return true;
        }
        let Some(header) = self.shared.payload.value::<Header>(0) else { return false };
        let lane = self.shared.ring.lane();
        loop {
            let word = header.wake.load(Ordering::Acquire);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            lane.announce_waiting();
            let ready = self.ready();
            if ready || left.is_some_and(|left| left.is_zero()) {
                lane.withdraw_waiting();
                return ready;
            }
            futex::wait_bits(&header.wake, word, left, self.shared.bit(), Scope::Shared);
            if self.ready() {
                lane.withdraw_waiting();
                return true;
            } // else the word may have changed for another reader
        }
    }

    fn poll(&self) -> bool {
        if self.busy_poll.is_zero() {
            return false;
        }
        let start = Instant::now();
        while start.elapsed() < self.busy_poll {
            if self.ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        let control = self.shared.ring.lane().control;
        control.reader_closed.0.store(1, Ordering::Release);
        control.room.0.fetch_add(1, Ordering::Release);
        futex::wake(&control.room.0, u32::MAX >> 1, Scope::Shared);
    }
}

/// A taken sample that gives itself back when dropped, on any thread, also after its reader is gone.
#[derive(Debug)]
pub struct Borrowed {
    shared: Arc<Attached>,
    taken: Taken,
}

impl Borrowed {
    /// Data that travelled with the sample.
    pub fn meta(&self) -> Meta {
        self.taken.meta
    }
}

impl Deref for Borrowed {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.shared.bytes(self.taken.offset, self.taken.len)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.shared.give_back(self.taken.ticket);
    }
}
