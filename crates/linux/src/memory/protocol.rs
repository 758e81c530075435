//! The rings of one channel as an algorithm on atomics, without memory mapping or waiting, so that loom can run this very file.
//!
//! The descriptor ring goes from writer to reader. Positions count up for ever; position `p` is in cell `p mod
//! cells`. `tail` is the next position to be written, `head` the next to be claimed. The reader claims by a
//! compare-and-swap on `head`, and so does the writer when it takes the oldest descriptor back (keep-last): the
//! winner gets it. A reader reads the cell *before* it claims, and trusts it only if the claim succeeds. A cell is
//! written again only after `head` has passed it, so a claimed descriptor was complete.
//!
//! The return ring goes back, with the tickets of samples that the reader no longer needs.

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Words of a descriptor.
pub(super) const WORDS: usize = 6;
/// Number of claims that are tried while the writer overtakes, before the reader looks after other things.
const TRIES: usize = 256;

/// A descriptor in a cell.
pub(super) type Record = [u64; WORDS];
/// A breach of the rules by the other side, in words.
pub(super) type Violation = &'static str;

/// A value with a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct Line<T>(pub(super) T);

/// The counters of both rings, each with its writer:
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Control {
    /// The writer.
    pub(super) tail: Line<AtomicU64>,
    /// Both, by compare-and-swap.
    pub(super) head: Line<AtomicU64>,
    /// The reader: number of tickets that it has given back.
    pub(super) returned: Line<AtomicU64>,
    /// The reader sets it before it waits; the writer clears it before it wakes.
    pub(super) waiting: Line<AtomicU32>,
    /// The writer sets it before it waits for room; the reader clears it.
    pub(super) asked: Line<AtomicU32>,
    /// The reader: incremented when there is room and the writer asked for it; the writer waits on it.
    pub(super) room: Line<AtomicU32>,
    /// The writer: it will write no more.
    pub(super) writer_closed: Line<AtomicU32>,
    /// The reader: it will read no more.
    pub(super) reader_closed: Line<AtomicU32>,
}

/// One descriptor. Atomics, because a reader may look at a cell that the writer is taking back.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct Cell {
    words: [AtomicU64; WORDS],
}

/// Both rings of one channel. `cells` and `returns` have a power of two of entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane<'a> {
    pub(super) control: &'a Control,
    pub(super) cells: &'a [Cell],
    pub(super) returns: &'a [AtomicU32],
}

impl Lane<'_> {
    fn cell(&self, position: u64) -> &Cell {
        &self.cells[position as usize & (self.cells.len() - 1)]
    }

    fn read(&self, position: u64) -> Record {
        std::array::from_fn(|i| self.cell(position).words[i].load(Ordering::Relaxed))
    }

    /// `true` if there is a sample to claim (or the counters are inconsistent, which [`ReaderSide::take`] reports).
    pub(super) fn has_news(&self) -> bool {
        self.control.tail.0.load(Ordering::Acquire) != self.control.head.0.load(Ordering::Acquire)
    }

    /// Reader: announces a wait. It must look at the ring again after this, and only then wait.
    pub(super) fn announce_waiting(&self) {
        // A swap, so that it is ordered after the write of `take_waiting` (loom knows no order between a store and
        // another thread's swap). It costs nothing: a wait follows.
        self.control.waiting.0.swap(1, Ordering::Relaxed);
        fence(Ordering::SeqCst); // the store comes before the look; pairs with the fence in `take_waiting`
    }

    /// Reader: withdraws the announcement.
    pub(super) fn withdraw_waiting(&self) {
        self.control.waiting.0.store(0, Ordering::Relaxed);
    }

    /// Writer, after a push: `true` if the reader must be woken. Asked once per wait, so that a burst wakes once.
    pub(super) fn take_waiting(&self) -> bool {
        fence(Ordering::SeqCst); // the push comes before the look; pairs with the fence in `announce_waiting`
        self.control.waiting.0.load(Ordering::Relaxed) != 0 && self.control.waiting.0.swap(0, Ordering::Relaxed) != 0
    }

    /// Writer: asks to be woken when there is room, and returns the word to wait on. It must try once more before it
    /// waits.
    pub(super) fn ask_room(&self) -> u32 {
        let word = self.control.room.0.load(Ordering::Acquire);
        self.control.asked.0.swap(1, Ordering::Relaxed); // as in `announce_waiting`
        fence(Ordering::SeqCst); // pairs with the fence in `tell_room`
        word
    }

    /// Reader, after a claim or a return: `true` if the writer must be woken (`room` has changed then).
    pub(super) fn tell_room(&self) -> bool {
        fence(Ordering::SeqCst); // pairs with the fence in `ask_room`
        let asked = &self.control.asked.0;
        if asked.load(Ordering::Relaxed) == 0 || asked.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        self.control.room.0.fetch_add(1, Ordering::Release);
        true
    }

    /// Reader: gives a ticket back; `tail` is its private count of those given back so far.
    pub(super) fn give_back(&self, tail: &mut u64, ticket: u32) {
        self.returns[*tail as usize & (self.returns.len() - 1)].store(ticket, Ordering::Relaxed);
        *tail += 1;
        self.control.returned.0.store(*tail, Ordering::Release);
    }

    /// Writer: the ticket at `position` of the return ring, which must be below `returned`.
    pub(super) fn ticket(&self, position: u64) -> u32 {
        self.returns[position as usize & (self.returns.len() - 1)].load(Ordering::Relaxed)
    }
}

/// The writer's private state, never read back from shared memory.
#[derive(Debug)]
pub(super) struct WriterSide {
    tail: u64,
    seen: u64,
    depth: u64,
}

impl WriterSide {
    pub(super) fn new(depth: u64) -> Self {
        Self { tail: 0, seen: 0, depth }
    }

    /// `true` if the ring was full at the last look.
    pub(super) fn full(&self) -> bool {
        self.tail - self.seen >= self.depth
    }

    /// The position that the next [`WriterSide::put`] fills.
    #[cfg_attr(loom, allow(dead_code))] // the model numbers its records itself
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Reads the position up to which the ring is claimed.
    pub(super) fn refresh(&mut self, lane: Lane<'_>) -> Result<u64, Violation> {
        let head = lane.control.head.0.load(Ordering::Acquire);
        if head < self.seen || head > self.tail {
            return Err("the reader moved the head of the ring where it never may be");
        }
        self.seen = head;
        Ok(head)
    }

    /// Takes the oldest descriptor back if the reader has not claimed it; returns its position.
    pub(super) fn reclaim(&mut self, lane: Lane<'_>) -> Result<Option<u64>, Violation> {
        let head = self.refresh(lane)?;
        if head == self.tail {
            return Ok(None);
        }
        let taken = lane.control.head.0.compare_exchange(head, head + 1, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if taken {
            self.seen = head + 1;
        }
        Ok(taken.then_some(head))
    }

    /// Writes the next descriptor. The ring must not be full.
    pub(super) fn put(&mut self, lane: Lane<'_>, record: Record) {
        let cell = lane.cell(self.tail);
        cell.words.iter().zip(record).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        self.tail += 1;
        lane.control.tail.0.store(self.tail, Ordering::Release);
    }
}

/// The reader's private state.
#[derive(Debug)]
pub(super) struct ReaderSide {
    seen: u64,
    depth: u64,
}

impl ReaderSide {
    pub(super) fn new(depth: u64) -> Self {
        Self { seen: 0, depth }
    }

    /// Claims the oldest descriptor. `None` if there is none, or the writer keeps overtaking.
    pub(super) fn take(&mut self, lane: Lane<'_>) -> Result<Option<Record>, Violation> {
        for _ in 0..TRIES {
            let head = lane.control.head.0.load(Ordering::Acquire);
            let tail = lane.control.tail.0.load(Ordering::Acquire);
            if head == tail {
                return Ok(None);
            }
            if lane.control.head.0.load(Ordering::Acquire) != head {
                continue; // the writer took one back between the two looks
            }
            if head < self.seen || tail < head || tail - head > self.depth {
                return Err("the writer moved the head or tail of the ring where it never may be");
            }
            let record = lane.read(head);
            if lane.control.head.0.compare_exchange(head, head + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.seen = head + 1;
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}
