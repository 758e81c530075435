//! Layout of the memory of one channel's rings: header, counters, descriptors, returned tickets.

use super::protocol::{Cell, Control, Lane};
use super::segment::{Access, RING_SEALS, Segment, Shared, refused};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"thalwegR");
const VERSION: u32 = 1;
const CONTROL_AT: usize = 64;
const CELLS_AT: usize = CONTROL_AT + size_of::<Control>();
/// More cells than any history needs; it bounds the memory that a foreign header can make us map.
const MOST: u32 = 1 << 16;

#[repr(C)]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    depth: AtomicU32,
    hold: AtomicU32,
    bit: AtomicU32,
}
// SAFETY: atomics only.
#[allow(unsafe_code)]
unsafe impl Shared for Header {}
// SAFETY: atomics only.
#[allow(unsafe_code)]
unsafe impl Shared for Control {}
// SAFETY: atomics only.
#[allow(unsafe_code)]
unsafe impl Shared for Cell {}

/// The agreement of both sides; each keeps its own copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) depth: u32,
    pub(super) hold: u32,
    pub(super) bit: u32,
}

impl Shape {
    fn check(self) -> io::Result<Self> {
        let fits = (1..=MOST).contains(&self.depth) && (1..=MOST).contains(&self.hold) && self.bit < 32;
        if fits { Ok(self) } else { Err(refused("depth and hold of a ring are 1 to 65536, its bit 0 to 31")) }
    }

    pub(super) fn cells(self) -> usize {
        self.depth.next_power_of_two() as usize
    }

    /// Largest number of samples in use at once: waiting in the ring, and held by the reader.
    pub(super) fn tickets(self) -> u32 {
        self.depth + self.hold
    }

    fn returns(self) -> usize {
        self.tickets().next_power_of_two() as usize
    }

    fn returns_at(self) -> usize {
        CELLS_AT + self.cells() * size_of::<Cell>()
    }

    fn len(self) -> usize {
        (self.returns_at() + self.returns() * size_of::<AtomicU32>()).next_multiple_of(4096)
    }
}

/// Ring memory of a checked shape.
#[derive(Debug)]
pub(super) struct RingMemory {
    map: Segment,
    pub(super) shape: Shape,
}

impl RingMemory {
    /// New ring memory of this shape.
    pub(super) fn create(shape: Shape) -> io::Result<(Self, OwnedFd)> {
        let shape = shape.check()?;
        let (map, fd) = Segment::create("thalweg-ring", shape.len(), RING_SEALS)?;
        let header: &Header = map.value(0).ok_or_else(|| refused("no room for the header"))?;
        header.version.store(VERSION, Ordering::Relaxed);
        header.depth.store(shape.depth, Ordering::Relaxed);
        header.hold.store(shape.hold, Ordering::Relaxed);
        header.bit.store(shape.bit, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        let _ = map.populate(); // on an older kernel the first round faults instead
        Ok((Self { map, shape }, fd))
    }

    /// Ring memory of another process: seals, magic, version, shape and size are checked first.
    pub(super) fn attach(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let map = Segment::attach(fd, RING_SEALS, Access::ReadWrite, CELLS_AT)?;
        let header: &Header = map.value(0).ok_or_else(|| refused("no room for the header"))?;
        if header.magic.load(Ordering::Acquire) != MAGIC || header.version.load(Ordering::Relaxed) != VERSION {
            return Err(refused("not ring memory of this version"));
        }
        let read = |field: &AtomicU32| field.load(Ordering::Relaxed);
        let shape = Shape { depth: read(&header.depth), hold: read(&header.hold), bit: read(&header.bit) }.check()?;
        if shape.len() != map.len() {
            return Err(refused("ring memory whose size does not fit its header"));
        }
        let _ = map.populate();
        Ok(Self { map, shape })
    }

    #[allow(unsafe_code)]
    /// The rings in it.
    #[inline(always)]
    pub(super) fn lane(&self) -> Lane<'_> {
        let (cells, returns) = (self.shape.cells(), self.shape.returns());
        let parts = self.map.value(CONTROL_AT).zip(self.map.slice(CELLS_AT, cells));
        let parts = parts.zip(self.map.slice(self.shape.returns_at(), returns));
        // SAFETY: the mapping has exactly `shape.len()` bytes (`create`, `attach`), which covers all three parts.
        let ((control, cells), returns) = unsafe { parts.unwrap_unchecked() };
        Lane { control, cells, returns }
    }
}
