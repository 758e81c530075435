//! Shared memory of the `shm` carrier: sealed mappings, a publisher's payload memory, and one pair of rings per channel.
//!
//! | file | contents |
//! |---|---|
//! | `segment` | sealed memory files and their mappings: the only calls to the kernel |
//! | `arena` | [`Arena`]: a publisher's payload memory and its private table of borrows |
//! | `slots` | division of payload memory, and the number of borrows of each slot |
//! | `protocol` | the descriptor and return ring as an algorithm on atomics; loom checks this very file (`model`) |
//! | `layout` | position of the rings in their memory, and the check of foreign memory |
//! | `ring` | [`RingWriter`]: the publisher's side of one channel, which trusts nothing that it reads |
//! | `reader` | [`RingReader`]: the subscriber's side, which trusts nothing either |
//!
//! One sample from end to end, with one system call at most:
//!
//! ```
//! use thalweg_linux::memory::{Arena, Meta, Policy, Pushed, RingReader, RingWriter};
//! use std::os::fd::AsFd;
//!
//! let mut arena = Arena::create(1 << 20, 4096)?;
//! let (mut ring, ring_fd) = RingWriter::create(8, 4, 0)?;
//! let mut reader = RingReader::attach(arena.payload_fd(), ring_fd.as_fd())?;
//!
//! let loan = arena.loan(5)?;
//! arena.bytes_mut(&loan).copy_from_slice(b"hello");
//! let sample = arena.seal(loan); // from here on it is not written
//! assert_eq!(ring.push(&mut arena, &sample, Meta { seq: 1, ..Meta::default() }, Policy::KeepLast), Pushed::Sent);
//! arena.release(sample);
//! let bits = ring.reader_waits(); // or-ed over all channels that got the sample
//! arena.wake(bits);
//!
//! let taken = reader.try_next()?.expect("one was sent");
//! assert_eq!(reader.bytes(&taken), b"hello");
//! reader.give_back(taken);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arena;
mod layout;
mod protocol;
mod reader;
mod ring;
mod segment;
mod slots;

pub use arena::{Arena, ArenaError, Loan, Sealed};
pub use reader::{Borrowed, Interrupt, RingReader, TakeError, Taken};
pub use ring::{Meta, Policy, Pushed, RingWriter, Room};

/// The atomics that `protocol` uses; `model` puts loom's in their place.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
