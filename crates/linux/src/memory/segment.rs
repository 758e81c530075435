//! Sealed memory files: created by one process, mapped by several, trusted only after their seals are read.
//!
//! A file that may shrink while it is mapped can kill its reader (SIGBUS), so [`Segment::attach`] maps only files that are
//! sealed against it. They have no name in a file system: when the last process is gone, so is the memory.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Required seals of payload memory: fixed size, and written only by its first mapping.
pub(super) const PAYLOAD_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);
/// Required seals of ring memory: fixed size. Both sides write it.
pub(super) const RING_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Types that may lie in memory which other processes write at any time.
///
/// # Safety
/// Every bit pattern must be valid, and every part that another process may write must be an atomic.
#[allow(unsafe_code)]
pub(super) unsafe trait Shared {}
// SAFETY: an atomic integer, valid for any bits.
#[allow(unsafe_code)]
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic integer, valid for any bits.
#[allow(unsafe_code)]
unsafe impl Shared for AtomicU64 {}

/// Kinds of mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    ReadWrite,
}

/// One mapping of a sealed memory file; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Segment {
    base: NonNull<u8>,
    len: usize,
    access: Access,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is reached only as atomics or under the rules of
// `bytes` and `bytes_mut`.
#[allow(unsafe_code)]
unsafe impl Send for Segment {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Segment {}

impl Segment {
    /// A new memory file of `len` zero bytes, mapped for reading and writing here, then sealed with `seals`.
    pub(super) fn create(name: &str, len: usize, seals: SealFlags) -> io::Result<(Self, OwnedFd)> {
        let fd = memory_file(name)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        let segment = Self::map(fd.as_fd(), len, Access::ReadWrite)?;
        rustix::fs::fcntl_add_seals(&fd, seals)?; // after the mapping: FUTURE_WRITE refuses later ones
        Ok((segment, fd))
    }

    /// Maps a file made elsewhere, if it is a memory file with at least these seals and `least` bytes.
    pub(super) fn attach(fd: BorrowedFd<'_>, seals: SealFlags, access: Access, least: usize) -> io::Result<Self> {
        let found = rustix::fs::fcntl_get_seals(fd).map_err(|_| refused("not a memory file with seals"))?;
        if !found.contains(seals) {
            return Err(refused("a memory file that lacks a seal: its maker could still change or shrink it"));
        }
        if rustix::fs::fstatfs(fd)?.f_type as u64 != TMPFS_MAGIC {
            return Err(refused("a memory file of huge pages, which can fail when first touched"));
        }
        let len = usize::try_from(rustix::fs::fstat(fd)?.st_size).map_err(|_| refused("a size below zero"))?;
        if len < least {
            return Err(refused("a memory file too small for its header"));
        }
        Self::map(fd, len, access)
    }

    #[allow(unsafe_code)]
    fn map(fd: BorrowedFd<'_>, len: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len, access })
    }

    /// The size of the mapping in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// `count` values of type `T` from `offset` on; `None` when they do not lie wholly within the mapping.
    #[allow(unsafe_code)]
    pub(super) fn slice<T: Shared>(&self, offset: usize, count: usize) -> Option<&[T]> {
        let start = self.check(offset, count.checked_mul(size_of::<T>())?)?;
        if !start.as_ptr().addr().is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: within the mapping and aligned; `Shared` types are valid for any bits and written only atomically.
        // In a read-only mapping they are only loaded, else the kernel stops the process.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), count) })
    }

    /// One value of type `T` at `offset`.
    pub(super) fn value<T: Shared>(&self, offset: usize) -> Option<&T> {
        self.slice(offset, 1)?.first()
    }

    /// Bytes for reading; `None` when they do not lie wholly within the mapping.
    ///
    /// # Safety
    /// They must not be written while the slice lives: they belong to a sealed sample whose borrow is held.
    #[allow(unsafe_code)]
    pub(super) unsafe fn bytes(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let start = self.check(offset, len)?;
        // SAFETY: within the mapping; the caller promises that they are not written.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// Bytes for writing; `None` also when the mapping is read-only.
    ///
    /// # Safety
    /// No one else may read or write them while the slice lives: they belong to a loan that is not yet sealed.
    #[allow(unsafe_code)]
    pub(super) unsafe fn bytes_mut(&mut self, offset: usize, len: usize) -> Option<&mut [u8]> {
        let start = self.check(offset, len).filter(|_| self.access == Access::ReadWrite)?;
        // SAFETY: within a writable mapping; the caller promises that no one else uses them.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// Makes the pages present now, so that no later access faults.
    #[allow(unsafe_code)]
    pub(super) fn populate(&self) -> io::Result<()> {
        let advice = match self.access {
            Access::Read => rustix::mm::Advice::LinuxPopulateRead,
            Access::ReadWrite => rustix::mm::Advice::LinuxPopulateWrite,
        };
        // SAFETY: the range is exactly this mapping, and populating changes no content.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, advice) }?;
        Ok(())
    }

    #[allow(unsafe_code)]
    fn check(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        offset.checked_add(len).filter(|end| *end <= self.len)?;
        // SAFETY: `offset` is at most the length of the mapping.
        Some(unsafe { self.base.add(offset) })
    }
}

impl Drop for Segment {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `map` with this length, and every reference borrows `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn memory_file(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => Ok(rustix::fs::memfd_create(name, flags)?), // before Linux 6.3
        other => Ok(other?),
    }
}

/// An error for foreign memory that is malformed.
pub(super) fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_could_shrink_is_not_mapped() {
        let fd = memory_file("test").unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        let attach = || Segment::attach(fd.as_fd(), RING_SEALS, Access::ReadWrite, 64).map(|_| ());
        assert!(attach().unwrap_err().to_string().contains("lacks a seal"));
        rustix::fs::fcntl_add_seals(&fd, RING_SEALS).unwrap();
        attach().unwrap();
        assert!(Segment::attach(fd.as_fd(), RING_SEALS, Access::Read, 4097).is_err(), "too small");
        assert!(Segment::attach(fd.as_fd(), PAYLOAD_SEALS, Access::Read, 64).is_err(), "not sealed against writing");
    }

    #[test]
    fn an_ordinary_file_is_refused() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Segment::attach(file.as_fd(), RING_SEALS, Access::Read, 1).is_err());
    }

    #[test]
    fn payload_can_be_written_by_its_first_mapping_only() {
        let (segment, fd) = Segment::create("test", 8192, PAYLOAD_SEALS).unwrap();
        segment.value::<AtomicU32>(0).unwrap().store(7, std::sync::atomic::Ordering::Relaxed);
        assert!(Segment::attach(fd.as_fd(), PAYLOAD_SEALS, Access::ReadWrite, 1).is_err());
        let reader = Segment::attach(fd.as_fd(), PAYLOAD_SEALS, Access::Read, 1).unwrap();
        assert_eq!(reader.value::<AtomicU32>(0).unwrap().load(std::sync::atomic::Ordering::Relaxed), 7);
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
    }

    #[test]
    fn a_value_outside_the_mapping_is_refused() {
        let (segment, _fd) = Segment::create("test", 4096, RING_SEALS).unwrap();
        assert!(segment.value::<AtomicU64>(4096).is_none() && segment.value::<AtomicU64>(usize::MAX).is_none());
        assert!(segment.value::<AtomicU64>(4).is_none(), "not aligned");
        assert_eq!(segment.slice::<AtomicU64>(0, 512).unwrap().len(), 512);
        assert!(segment.slice::<AtomicU64>(0, 513).is_none());
    }
}
