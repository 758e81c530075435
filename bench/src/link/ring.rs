//! A bare futex ring: a word that counts messages, a flag for a waiting reader, and the payload next to them.
//!
//! A hand-over is one store, and one FUTEX_WAKE if the flag is set; waiting is one FUTEX_WAIT. Several readers may
//! wait on one ring: one wake-up reaches all.

use super::{Link, receive_descriptor};
use crate::meeting::Watch;
use crate::peer_left;
use linux::futex::{self, Scope};
use linux::raw::SharedWords;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const LINE: usize = 16; // words per cache line
const PAGE: usize = 4096;

/// Size of the ring of each direction, and flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes per message.
    pub size: usize,
    /// Messages that fit; a power of two.
    pub slots: u32,
    /// Flow control: the writer waits when the ring is full. Without it the reader's answer (or its loss) frees the slot.
    pub flow: bool,
}

impl Shape {
    /// One slot in each direction: a message is free again when its answer came.
    pub fn exchange(size: usize) -> Self {
        Self { size, slots: 1, flow: false }
    }

    /// Many slots and a writer that waits, for throughput.
    pub fn stream(size: usize) -> Self {
        let fit = (4 << 20) / size.max(1);
        Self { size, slots: (fit.clamp(2, 1024) as u32).next_power_of_two(), flow: true }
    }

    /// Slots for 64 messages and a writer that never waits, for many readers.
    pub fn broadcast(size: usize) -> Self {
        Self { size, slots: 64, flow: false }
    }

    fn slot(self) -> usize {
        self.size.next_multiple_of(64)
    }

    fn direction(self) -> usize {
        (PAGE + self.slot() * self.slots as usize).next_multiple_of(PAGE)
    }
}

/// One direction of a ring: its place in the shared memory, and this process's position.
struct Half {
    at: usize,
    done: u32,
}

impl Half {
    fn word<'m>(&self, memory: &'m SharedWords, line: usize) -> &'m AtomicU32 {
        &memory.words()[self.at / 4 + line * LINE]
    }

    fn written<'m>(&self, memory: &'m SharedWords) -> &'m AtomicU32 {
        self.word(memory, 0)
    }

    fn readers_wait<'m>(&self, memory: &'m SharedWords) -> &'m AtomicU32 {
        self.word(memory, 1)
    }

    fn consumed<'m>(&self, memory: &'m SharedWords) -> &'m AtomicU32 {
        self.word(memory, 2)
    }

    fn writer_waits<'m>(&self, memory: &'m SharedWords) -> &'m AtomicU32 {
        self.word(memory, 3)
    }

    fn payload(&self, shape: Shape) -> Range<usize> {
        let from = self.at + PAGE + shape.slot() * (self.done & (shape.slots - 1)) as usize;
        from..from + shape.size
    }
}

/// Both directions between two processes (or one direction to many readers), mapped.
pub struct Ring {
    memory: SharedWords,
    shape: Shape,
    out: Half,
    into: Half,
    gone: Arc<AtomicBool>,
    copy: Vec<u8>,
    _watch: Option<Watch>,
}

impl Ring {
    /// Makes the memory and passes it to the other process.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn create(control: &UnixStream, shape: Shape) -> io::Result<Self> {
        let (mut ring, fd) = Self::unwatched(shape)?;
        Self::pass(control, &fd)?;
        ring._watch = Some(ring.watch(control, &fd)?);
        Ok(ring)
    }

    /// Memory for a writer without answers, to be passed to each reader with [`Ring::pass`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn unwatched(shape: Shape) -> io::Result<(Self, OwnedFd)> {
        let (memory, fd) = SharedWords::create(shape.direction() * 2)?;
        Ok((Self::over(memory, shape, 0, shape.direction()), fd))
    }

    /// Passes the memory to another process.
    ///
    /// # Errors
    /// The error of sendmsg(2).
    pub fn pass(control: &UnixStream, fd: &OwnedFd) -> io::Result<()> {
        linux::socket::send_with_descriptors(control.as_fd(), &[0], &[fd.as_fd()]).map(|_| ())
    }

    /// Maps memory that the other process passes.
    ///
    /// # Errors
    /// The kernel's error; UnexpectedEof if the other process is gone; InvalidData if the memory is too small.
    pub fn open(control: &UnixStream, shape: Shape) -> io::Result<Self> {
        let fd = receive_descriptor(control)?;
        let memory = SharedWords::open(&fd)?;
        if memory.len() < shape.direction() * 2 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "shared memory smaller than the terms say"));
        }
        let mut ring = Self::over(memory, shape, shape.direction(), 0);
        ring._watch = Some(ring.watch(control, &fd)?);
        Ok(ring)
    }

    fn over(memory: SharedWords, shape: Shape, out: usize, into: usize) -> Self {
        let (out, into) = (Half { at: out, done: 0 }, Half { at: into, done: 0 });
        let copy = if shape.flow { vec![0; shape.size] } else { Vec::new() };
        Self { memory, shape, out, into, gone: Arc::default(), copy, _watch: None }
    }

    /// Records the end of the peer, and wakes all waiters here.
    fn watch(&self, control: &UnixStream, fd: &OwnedFd) -> io::Result<Watch> {
        let (memory, gone) = (SharedWords::open(fd)?, self.gone.clone());
        let words = [self.into.at / 4, self.out.at / 4 + 2 * LINE];
        Watch::start(control, move || {
            gone.store(true, Ordering::Release);
            words.iter().for_each(|w| _ = futex::wake(&memory.words()[*w], i32::MAX as u32, Scope::Shared));
        })
    }

    /// Waits until there is a message that was not taken yet; returns their number.
    #[inline]
    fn available(&self) -> io::Result<u32> {
        let written = self.into.written(&self.memory);
        loop {
            let count = written.load(Ordering::Acquire);
            if count != self.into.done {
                return Ok(count.wrapping_sub(self.into.done));
            }
            self.wait(written, count, self.into.readers_wait(&self.memory))?;
        }
    }

    /// Waits until a slot is free.
    #[inline]
    fn free(&self) -> io::Result<()> {
        let consumed = self.out.consumed(&self.memory);
        loop {
            let count = consumed.load(Ordering::Acquire);
            if self.out.done.wrapping_sub(count) < self.shape.slots {
                return Ok(());
            }
            self.wait(consumed, count, self.out.writer_waits(&self.memory))?;
        }
    }

    /// One FUTEX_WAIT while `word` is `seen`, with the flag set before the kernel looks at the word.
    #[inline]
    fn wait(&self, word: &AtomicU32, seen: u32, flag: &AtomicU32) -> io::Result<()> {
        if self.gone.load(Ordering::Acquire) {
            return Err(peer_left());
        }
        flag.store(1, Ordering::SeqCst);
        futex::wait(word, seen, None, Scope::Shared);
        Ok(())
    }

    /// Gives slots back to a writer that may wait for them.
    fn release(&mut self, count: u32) {
        self.into.done = self.into.done.wrapping_add(count);
        if self.shape.flow {
            hand_over(self.into.consumed(&self.memory), self.into.done, self.into.writer_waits(&self.memory));
        }
    }

    /// As [`Link::receive`] for one of many readers: messages that were overwritten before they were read are skipped.
    ///
    /// # Errors
    /// UnexpectedEof when the writer is gone.
    pub fn receive_latest<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let behind = self.available()?;
        if behind >= self.shape.slots {
            self.into.done = self.into.done.wrapping_add(behind - 1);
        }
        self.receive(read)
    }
}

/// Stores the new count, and wakes its waiters, if there are any.
#[inline]
fn hand_over(word: &AtomicU32, count: u32, flag: &AtomicU32) {
    word.store(count, Ordering::SeqCst);
    if flag.load(Ordering::SeqCst) != 0 {
        flag.store(0, Ordering::SeqCst);
        futex::wake(word, i32::MAX as u32, Scope::Shared);
    }
}

impl Link for Ring {
    const SHARED: bool = true;

    #[inline]
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> io::Result<()> {
        if self.shape.flow {
            self.free()?;
        }
        self.memory.write(self.out.payload(self.shape), write);
        self.out.done = self.out.done.wrapping_add(1);
        hand_over(self.out.written(&self.memory), self.out.done, self.out.readers_wait(&self.memory));
        Ok(())
    }

    #[inline]
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        self.available()?;
        let result = self.memory.read(self.into.payload(self.shape), read);
        self.release(1);
        Ok(result)
    }

    fn take(&mut self) -> io::Result<usize> {
        let count = self.available()?;
        for _ in 0..count {
            self.memory.copy_out(self.into.payload(self.shape).start, &mut self.copy);
            self.into.done = self.into.done.wrapping_add(1);
        }
        self.release(0);
        Ok(count as usize * self.shape.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(shape: Shape) -> (Ring, Ring) {
        let (a, b) = UnixStream::pair().unwrap();
        let active = Ring::create(&a, shape).unwrap();
        (active, Ring::open(&b, shape).unwrap())
    }

    #[test]
    fn messages_pass_both_ways_in_order() {
        let (mut a, mut b) = pair(Shape::exchange(8));
        let other = std::thread::spawn(move || {
            for n in 0..1000u64 {
                assert_eq!(b.receive(|got| got.to_vec()).unwrap(), n.to_le_bytes());
                b.send(|slot| slot.copy_from_slice(&(n + 1).to_le_bytes())).unwrap();
            }
        });
        for n in 0..1000u64 {
            a.send(|slot| slot.copy_from_slice(&n.to_le_bytes())).unwrap();
            assert_eq!(a.receive(|got| got.to_vec()).unwrap(), (n + 1).to_le_bytes());
        }
        other.join().unwrap();
    }

    #[test]
    fn a_full_ring_makes_the_writer_wait_and_nothing_is_lost() {
        let (mut a, mut b) = pair(Shape { slots: 4, ..Shape::stream(64) });
        let writer = std::thread::spawn(move || (0..10_000).for_each(|_| a.send(|_| ()).unwrap()));
        let mut taken = 0;
        while taken < 10_000 * 64 {
            taken += b.take().unwrap();
        }
        assert_eq!(taken, 640_000);
        writer.join().unwrap();
    }

    #[test]
    fn a_reader_is_told_when_its_writer_dies() {
        let (a, mut b) = pair(Shape::exchange(64));
        let reader = std::thread::spawn(move || b.receive(|_| ()));
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(a);
        assert_eq!(reader.join().unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
