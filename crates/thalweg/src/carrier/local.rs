//! Carrier `local` for bytes: a bounded ring of datagrams between two threads of one process.
//!
//! Typed values are handed over elsewhere without a carrier; this one serves tests and code that speaks bytes. The
//! sender makes a system call only when the receiver sleeps.

use super::{Capabilities, ReceiveHalf, SendHalf, TICK};
use linux::futex::{self, Scope};
use linux::lock::PiMutex;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Capabilities of the local ring, for datagrams of at most `max_datagram` bytes.
pub const fn capabilities(max_datagram: usize) -> Capabilities {
    Capabilities {
        reliable: true,
        ordered: true,
        stream: false,
        multicast: false,
        loan: false,
        marks: false,
        max_datagram: Some(max_datagram),
    }
}

/// Two halves with a ring of `slots` datagrams of at most `max_datagram` bytes between them. All memory is reserved here.
pub fn pair(slots: usize, max_datagram: usize) -> (LocalSend, LocalReceive) {
    let slots = (0..slots.max(1)).map(|_| Vec::with_capacity(max_datagram)).collect();
    let ring = Ring { slots, first: 0, count: 0, ended: false, abandoned: false, sleeper: false, stuck: false };
    let shared = Arc::new(Shared {
        ring: PiMutex::new(ring),
        arrived: AtomicU32::new(0),
        left: AtomicU32::new(0),
        max_datagram,
    });
    (LocalSend { shared: shared.clone() }, LocalReceive { shared })
}

struct Ring {
    slots: Vec<Vec<u8>>,
    first: usize,
    count: usize,
    ended: bool,     // the sender closed
    abandoned: bool, // the receiver is gone
    sleeper: bool,   // the receiver waits for `arrived`
    stuck: bool,     // the sender waits for `left`
}

struct Shared {
    ring: PiMutex<Ring>,
    arrived: AtomicU32,
    left: AtomicU32,
    max_datagram: usize,
}

impl Shared {
    fn end(&self, change: impl FnOnce(&mut Ring)) {
        change(&mut self.ring.lock());
        for word in [&self.arrived, &self.left] {
            word.fetch_add(1, Ordering::Release);
            futex::wake(word, u32::MAX >> 1, Scope::Private);
        }
    }
}

/// The sending half. Dropping it closes.
pub struct LocalSend {
    shared: Arc<Shared>,
}

impl SendHalf for LocalSend {
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let length = parts.iter().map(|p| p.len()).sum();
        if length > self.shared.max_datagram {
            return Err(rustix::io::Errno::MSGSIZE.into());
        }
        let mut ring = self.shared.ring.lock();
        if ring.abandoned || ring.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if ring.count == ring.slots.len() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let at = (ring.first + ring.count) % ring.slots.len();
        let slot = &mut ring.slots[at];
        slot.clear();
        parts.iter().for_each(|part| slot.extend_from_slice(part));
        ring.count += 1;
        let wake = std::mem::take(&mut ring.sleeper);
        self.shared.arrived.fetch_add(1, Ordering::Release);
        drop(ring);
        if wake {
            futex::wake(&self.shared.arrived, 1, Scope::Private);
        }
        Ok(length)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait_room(&self, timeout: Duration) -> io::Result<bool> {
        let mut ring = self.shared.ring.lock();
        if ring.count < ring.slots.len() || ring.abandoned {
            return Ok(true);
        }
        ring.stuck = true;
        let seen = self.shared.left.load(Ordering::Acquire);
        drop(ring);
        Ok(futex::wait(&self.shared.left, seen, Some(timeout), Scope::Private))
    }

    fn close(&self) {
        self.shared.end(|ring| ring.ended = true);
    }
}

impl Drop for LocalSend {
    fn drop(&mut self) {
        self.close();
    }
}

/// The receiving half. After the sender closed and everything was received, `receive` returns `UnexpectedEof`.
pub struct LocalReceive {
    shared: Arc<Shared>,
}

impl LocalReceive {
    /// Takes the oldest datagram, or returns the word to sleep on.
    fn take(&mut self, buffer: &mut [u8], wait: bool) -> Result<io::Result<usize>, u32> {
        let mut ring = self.shared.ring.lock();
        if ring.count == 0 {
            if ring.ended {
                return Ok(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            ring.sleeper = wait;
            return Err(self.shared.arrived.load(Ordering::Acquire));
        }
        let slot = &ring.slots[ring.first];
        let (length, kept) = (slot.len(), slot.len().min(buffer.len()));
        buffer[..kept].copy_from_slice(&slot[..kept]);
        ring.first = (ring.first + 1) % ring.slots.len();
        ring.count -= 1;
        let wake = std::mem::take(&mut ring.stuck);
        drop(ring);
        if wake {
            self.shared.left.fetch_add(1, Ordering::Release);
            futex::wake(&self.shared.left, 1, Scope::Private);
        }
        Ok(Ok(length))
    }
}

impl ReceiveHalf for LocalReceive {
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        if wait {
            match self.take(buffer, true) {
                Ok(result) => return result,
                Err(seen) => futex::wait(&self.shared.arrived, seen, Some(TICK), Scope::Private),
            };
        }
        self.take(buffer, false).unwrap_or_else(|_| Err(io::ErrorKind::WouldBlock.into()))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for LocalReceive {
    fn drop(&mut self) {
        self.shared.end(|ring| ring.abandoned = true);
    }
}
