//! A bare shared mapping for measuring programs: words to wait on, and payload bytes next to them.
//!
//! It has no channels and trusts its peer; the `shm` carrier uses the sealed segment instead.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// A memfd mapped for reading and writing, all of whose pages are there from the start.
///
/// Both ends take turns: a hand-over word says whose turn a range is (written with `Release`, read with `Acquire`).
/// This is an agreement between two processes of one measuring program, which the type cannot check. So it is for
/// such programs only, and its descriptor never reaches another one.
pub struct SharedWords {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread; it stays until `drop`, and words are reached atomically.
#[allow(unsafe_code)]
unsafe impl Send for SharedWords {}

impl SharedWords {
    /// A new mapping of at least `len` bytes, all zero, and the descriptor with which another process opens it.
    ///
    /// # Errors
    /// The error of memfd_create(2), ftruncate(2), fcntl(2) or mmap(2).
    pub fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = rustix::fs::memfd_create("thalweg-raw", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, len.max(1) as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::open(&fd)?, fd))
    }

    /// Maps another process's mapping.
    ///
    /// # Errors
    /// InvalidData if the memory could shrink under the mapping; otherwise the kernel's error.
    pub fn open(fd: impl AsFd) -> io::Result<Self> {
        let fd = fd.as_fd();
        if !rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "shared memory without a seal against shrinking"));
        }
        let len = rustix::fs::fstat(fd)?.st_size as usize;
        Ok(Self { base: map(fd, len)?, len })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// `true` if no byte is mapped; never true for a mapping that was made.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole mapping as words.
    #[inline]
    #[allow(unsafe_code)]
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is page-aligned, `len` bytes long, lives as long as `self`, and an AtomicU32 may be
        // changed by anyone at any time.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast::<AtomicU32>(), self.len / 4) }
    }

    /// Copies `bytes` into the mapping from byte `at` on. A range past the end is our own bug and panics, as a slice
    /// does.
    #[inline]
    pub fn copy_in(&mut self, at: usize, bytes: &[u8]) {
        self.write(at..at + bytes.len(), |slot| slot.copy_from_slice(bytes));
    }

    /// Copies out of the mapping, from byte `at` on.
    #[inline]
    pub fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.read(at..at + bytes.len(), |slot| bytes.copy_from_slice(slot));
    }

    /// Lets `f` write in place. It must be this end's turn.
    #[inline]
    #[allow(unsafe_code)]
    pub fn write<R>(&mut self, range: Range<usize>, f: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(range.start <= range.end && range.end <= self.len, "a range past the end of a mapping");
        // SAFETY: in range (checked above) and mapped as long as `self`; `&mut self` keeps this process from having
        // a second reference, and by agreement the other process stays away until it is handed over (see the type's description).
        f(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(range.start), range.end - range.start) })
    }

    /// Lets `f` read in place. It must be this end's turn.
    #[inline]
    #[allow(unsafe_code)]
    pub fn read<R>(&self, range: Range<usize>, f: impl FnOnce(&[u8]) -> R) -> R {
        assert!(range.start <= range.end && range.end <= self.len, "a range past the end of a mapping");
        // SAFETY: in range (checked above) and mapped as long as `self`; by agreement they are not written during the reader's turn.
        f(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(range.start), range.end - range.start) })
    }
}

impl Drop for SharedWords {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: this is the mapping made by `map`, and every borrow of it has ended.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[allow(unsafe_code)]
fn map(fd: impl AsFd, len: usize) -> io::Result<NonNull<u8>> {
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
    let base =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, fd, 0)? };
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave the null address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_show_the_same_words_and_bytes() {
        let (mut one, fd) = SharedWords::create(8192).unwrap();
        let other = SharedWords::open(&fd).unwrap();
        one.copy_in(4096, b"ebb");
        one.words()[3].store(7, Ordering::Release);
        let mut got = [0; 3];
        assert_eq!(other.words()[3].load(Ordering::Acquire), 7);
        other.copy_out(4096, &mut got);
        assert_eq!((&got, other.len()), (b"ebb", 8192));
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let fd = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert_eq!(SharedWords::open(&fd).err().map(|e| e.kind()), Some(io::ErrorKind::InvalidData));
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn a_range_past_the_end_is_not_touched() {
        SharedWords::create(4096).unwrap().0.copy_in(4090, &[0; 8]);
    }
}
