//! Waiting for many descriptors (epoll(7)), and waking such a wait (eventfd(2)).

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub use rustix::event::epoll::EventFlags as Readiness;

/// A set of watched descriptors, level-triggered, each with a token of the caller's.
pub struct Poller {
    epoll: OwnedFd,
}

/// One result of a wait: the token given to [`Poller::add`], and the readiness of the descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The caller's token.
    pub token: u64,
    /// Readiness flags.
    pub flags: Readiness,
}

impl Poller {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Watches `fd`; `fd` leaves the set when it is closed or deleted.
    pub fn add(&self, fd: impl AsFd, token: u64, flags: Readiness) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)?)
    }

    /// Changes the watched readiness of `fd`.
    pub fn change(&self, fd: impl AsFd, token: u64, flags: Readiness) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags)?)
    }

    /// Stops watching `fd`.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until a descriptor is ready or `timeout` passed and fills `ready` (cleared first; it never grows past its capacity).
    pub fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        let mut events = [const { Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 64];
        let timeout = timeout.map(timespec);
        let count = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok(n) => n,
            Err(rustix::io::Errno::INTR) => 0,
            Err(e) => return Err(e.into()),
        };
        for event in events.iter().take(count) {
            // Copied out first: the kernel's struct is packed.
            let (flags, data) = (event.flags, event.data);
            ready.push(Ready { token: data.u64(), flags });
        }
        Ok(())
    }
}

/// A descriptor that becomes readable at a call of [`Waker::wake`].
pub struct Waker {
    fd: OwnedFd,
}

impl Waker {
    /// A waker without pending wake-ups.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Makes it readable. One system call; never blocks.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Clears pending wake-ups.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }
}

/// Readable when a descriptor of the set is ready: a set within another.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until `fd` can be written, at most `timeout`; `false` when the time ran out.
pub fn wait_writable(fd: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
    wait_one(fd, PollFlags::OUT, timeout)
}

/// Waits until `fd` can be read (or its peer hung up), at most `timeout`; `false` when the time ran out.
pub fn wait_readable(fd: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
    wait_one(fd, PollFlags::IN, timeout)
}

fn wait_one(fd: impl AsFd, flags: PollFlags, timeout: Option<Duration>) -> io::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), flags)];
    match rustix::event::poll(&mut fds, timeout.map(timespec).as_ref()) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Waits until one of `fds` can be read, at most `timeout`; `ready[i]` tells which. `false` after the time-out.
pub fn wait_any_readable(fds: &[BorrowedFd<'_>], ready: &mut Vec<bool>, timeout: Option<Duration>) -> io::Result<bool> {
    const MOST: usize = 64; // a thread that waits for more uses a Poller
    ready.clear();
    ready.resize(fds.len(), false);
    let Some(first) = fds.first() else { return Ok(false) };
    let mut slots: [PollFd<'_>; MOST] =
        std::array::from_fn(|i| PollFd::from_borrowed_fd(*fds.get(i).unwrap_or(first), PollFlags::IN));
    let watched = &mut slots[..fds.len().min(MOST)];
    match rustix::event::poll(watched, timeout.map(timespec).as_ref()) {
        Ok(n) => {
            ready.iter_mut().skip(MOST).for_each(|flag| *flag = true); // beyond: looked at without being asked for
            for (flag, slot) in ready.iter_mut().zip(watched.iter()) {
                *flag = !slot.revents().is_empty();
            }
            Ok(n > 0 || fds.len() > MOST)
        }
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn timespec(d: Duration) -> Timespec {
    Timespec { tv_sec: d.as_secs() as i64, tv_nsec: d.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_ends_a_wait_and_clear_takes_it_back() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(&waker, 7, Readiness::IN).unwrap();
        let mut ready = Vec::new();
        waker.wake();
        poller.wait(&mut ready, None).unwrap();
        assert_eq!(ready.iter().map(|r| r.token).collect::<Vec<_>>(), [7]);
        waker.clear();
        poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());
    }
}
