//! The `shm` carrier.
//!
//! Ports use its loans: a port with many channels has one memory, which lends a message's place once, a ring for each channel, and
//! one wake-up for all readers. There are no frames. A [`pair`] is the same as datagrams, one copy in and one copy out, as the
//! conformance suite requires.

use super::{Capabilities, ReceiveHalf, SendHalf, TICK};
use linux::lock::PiMutex;
use linux::memory::{Arena, ArenaError, Loan, Meta, Policy, Pushed, RingReader, RingWriter, Room, Sealed, TakeError};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The payload memory of one port.
#[derive(Debug)]
pub(crate) struct Memory {
    arena: Arena,
}

impl Memory {
    /// Memory for messages of up to `largest` bytes, `capacity` bytes in all.
    ///
    /// # Errors
    /// Not one message would fit, or the kernel gives no memory.
    pub(crate) fn create(capacity: usize, largest: usize) -> io::Result<Self> {
        Arena::create(capacity, largest).map(|arena| Self { arena })
    }

    /// The capacity in which a loan never fails while fewer than `slots` messages of up to `largest` bytes are borrowed.
    pub(crate) fn capacity_for(slots: usize, largest: usize) -> usize {
        Arena::capacity_for(slots, largest)
    }

    /// The descriptor that readers attach to.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.arena.payload_fd()
    }

    /// A place for a message of `len` bytes.
    ///
    /// # Errors
    /// The message is too large, or all places are borrowed.
    pub(crate) fn loan(&mut self, len: usize) -> Result<Loan, ArenaError> {
        self.arena.loan(len)
    }

    /// The bytes of a loan, to be written.
    pub(crate) fn bytes_mut(&mut self, loan: &Loan) -> &mut [u8] {
        self.arena.bytes_mut(loan)
    }

    /// Takes an unused loan back.
    pub(crate) fn cancel(&mut self, loan: Loan) {
        self.arena.cancel(loan);
    }
}

/// One message, and its place in the memory while rings are given it. The place is lent until this is dropped, and as long as
/// readers hold it.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    memory: &'a mut Memory,
    sample: Option<Sealed>,
    waiting: u32, // bits of readers that are to be woken
}

impl<'a> Shared<'a> {
    /// A message that has no place yet.
    pub(crate) fn nowhere(memory: &'a mut Memory) -> Self {
        Self { memory, sample: None, waiting: 0 }
    }

    /// A message that was written into a loan.
    pub(crate) fn written(memory: &'a mut Memory, loan: Loan) -> Self {
        let sample = Some(memory.arena.seal(loan));
        Self { memory, sample, waiting: 0 }
    }

    /// Copies the message to a place of its own, unless it has one. `false`: all places are borrowed, or none is large enough.
    pub(crate) fn copy(&mut self, message: &[u8]) -> bool {
        if self.sample.is_none()
            && let Ok(loan) = self.memory.loan(message.len())
        {
            self.memory.bytes_mut(&loan).copy_from_slice(message);
            self.sample = Some(self.memory.arena.seal(loan));
        }
        self.sample.is_some()
    }

    /// The message, where it has a place.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.sample.as_ref().map(|sample| self.memory.arena.bytes(sample)).unwrap_or_default()
    }

    /// Wakes the readers that wait for pushed samples, with one system call.
    #[inline]
    pub(crate) fn wake(&mut self) {
        self.memory.arena.wake(std::mem::take(&mut self.waiting));
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.wake();
        if let Some(sample) = self.sample.take() {
            self.memory.arena.release(sample);
        }
    }
}

/// The publisher's end of one channel.
#[derive(Debug)]
pub(crate) struct RingHalf {
    writer: RingWriter,
}

impl RingHalf {
    /// A ring in which `depth` messages of `most` bytes in all can wait, for a reader that holds up to `hold` more. `bit`
    /// (0 to 31) is the reader's in wake-ups. The descriptor is for the reader.
    ///
    /// # Errors
    /// A number out of range, or the kernel gives no memory.
    pub(crate) fn create(depth: u32, hold: u32, bit: u32, most: u64) -> io::Result<(Self, OwnedFd)> {
        let (mut writer, descriptor) = RingWriter::create(depth, hold, bit)?;
        writer.limit_bytes(most);
        Ok((Self { writer }, descriptor))
    }

    /// Gives the reader a message; it is woken by [`Shared::wake`]. A full ring is waited for, at most `patience`. `None`: the
    /// message has no place in shared memory.
    #[inline]
    pub(crate) fn push(
        &mut self,
        shared: &mut Shared<'_>,
        meta: Meta,
        policy: Policy,
        patience: Duration,
    ) -> Option<Pushed> {
        let Shared { memory: Memory { arena }, sample, waiting } = shared;
        let sample = sample.as_ref()?;
        let mut pushed = self.writer.push(arena, sample, meta, policy);
        if pushed == Pushed::Full && !patience.is_zero() {
            arena.wake(std::mem::take(waiting) | self.writer.reader_waits());
            pushed = self.push_patiently(arena, sample, meta, patience);
        }
        if matches!(pushed, Pushed::Sent | Pushed::SentDroppedOldest(_)) {
            *waiting |= self.writer.reader_waits();
        }
        Some(pushed)
    }

    /// Waits for room, at most `patience`.
    #[cold]
    fn push_patiently(&mut self, arena: &mut Arena, sample: &Sealed, meta: Meta, patience: Duration) -> Pushed {
        let (room, until) = (self.writer.room(), Instant::now() + patience);
        loop {
            let asked = room.ask();
            let pushed = self.writer.push(arena, sample, meta, Policy::Refuse);
            let left = until.saturating_duration_since(Instant::now());
            if pushed != Pushed::Full || left.is_zero() {
                return pushed;
            }
            // A reader tells when it takes a sample, not when it gives one back.
            room.wait(asked, if self.writer.met_bytes() { left.min(HELD_PAUSE) } else { left });
        }
    }

    /// Takes back the places that the reader returned, for a message that found none.
    pub(crate) fn collect(&mut self, shared: &mut Shared<'_>) {
        let _ = self.writer.collect(&mut shared.memory.arena); // a violation shows at the next push
    }

    /// The messages that the reader may hold besides those that wait.
    pub(crate) fn hold(&self) -> u32 {
        self.writer.hold()
    }

    /// The bytes of the messages that the reader has.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// `true` if the last push met the limit of bytes.
    pub(crate) fn met_bytes(&self) -> bool {
        self.writer.met_bytes()
    }

    /// Ends the ring and takes all places back. For a reader whose sign is gone: the places are not read any more.
    pub(crate) fn end(&mut self, memory: &mut Memory) {
        self.writer.release_all(&mut memory.arena);
    }
}

/// Capabilities of the carrier for messages of up to `max_message` bytes.
pub const fn capabilities(max_message: usize) -> Capabilities {
    Capabilities {
        reliable: true,
        ordered: true,
        stream: false,
        multicast: false,
        loan: true,
        marks: false,
        max_datagram: Some(max_message),
    }
}

/// Both halves of a new flow for messages up to `max_message` bytes, of which `depth` can wait.
///
/// # Errors
/// A depth of 0 or above 65,536, or no memory.
pub fn pair(max_message: usize, depth: usize) -> io::Result<(ShmSend, ShmReceive)> {
    let slots = depth.saturating_add(HOLD as usize + 1); // and the one being written
    let arena = Arena::create(Arena::capacity_for(slots, max_message), max_message)?;
    let depth = u32::try_from(depth).map_err(|_| io::Error::new(ErrorKind::InvalidInput, "depth above 65536"))?;
    let (ring, fd) = RingWriter::create(depth, HOLD, 0)?;
    let reader = RingReader::attach(arena.payload_fd(), fd.as_fd())?;
    let room = ring.room();
    Ok((ShmSend { port: PiMutex::new(Port { arena, ring }), room }, ShmReceive { reader }))
}

struct Port {
    arena: Arena,
    ring: RingWriter,
}

/// The publisher's end of a pair.
pub struct ShmSend {
    port: PiMutex<Port>,
    room: Room,
}

impl Port {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.ring.reader_closed() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.ring.collect(&mut self.arena).map_err(broken)?;
        if !self.ring.has_room() {
            return Err(ErrorKind::WouldBlock.into()); // before anything is copied
        }
        let sample = self.copy(parts)?;
        let len = self.arena.bytes(&sample).len();
        let pushed = self.ring.push(&mut self.arena, &sample, Meta::default(), Policy::Refuse);
        self.arena.release(sample);
        match pushed {
            Pushed::Sent | Pushed::SentDroppedOldest(_) => {
                self.arena.wake(self.ring.reader_waits());
                Ok(len)
            }
            Pushed::Full => Err(ErrorKind::WouldBlock.into()),
            Pushed::Closed => Err(ErrorKind::BrokenPipe.into()),
            Pushed::Violation(what) => Err(broken(what)),
        }
    }

    fn copy(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Sealed> {
        let len = parts.iter().map(|part| part.len()).fold(0, usize::saturating_add);
        let loan = self.arena.loan(len).map_err(|error| match error {
            ArenaError::NoRoom { .. } => ErrorKind::WouldBlock.into(),
            ArenaError::TooLarge { .. } => io::Error::new(ErrorKind::InvalidInput, error),
        })?;
        let mut rest = self.arena.bytes_mut(&loan);
        for part in parts {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = after;
        }
        Ok(self.arena.seal(loan))
    }
}

impl SendHalf for ShmSend {
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.port.lock().send(parts)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait_room(&self, timeout: Duration) -> io::Result<bool> {
        let asked = self.room.ask();
        let ready = |port: &mut Port| port.ring.reader_closed() || port.ring.has_room();
        if ready(&mut self.port.lock()) {
            return Ok(true);
        }
        self.room.wait(asked, timeout); // without the lock
        Ok(ready(&mut self.port.lock()))
    }

    fn close(&self) {
        let port = &mut *self.port.lock();
        port.ring.close(&mut port.arena);
    }
}

impl Drop for ShmSend {
    fn drop(&mut self) {
        self.close();
    }
}

/// The subscriber's end of a pair.
pub struct ShmReceive {
    reader: RingReader,
}

impl ShmReceive {
    fn try_receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let closed = self.reader.writer_closed(); // read before the ring, so that no sample is missed
        let taken = self.reader.try_next().map_err(|error| match error {
            TakeError::Violation(what) => broken(what),
            TakeError::TooManyHeld { .. } => io::Error::other(error),
        })?;
        let Some(taken) = taken else { return if closed { Err(ErrorKind::BrokenPipe.into()) } else { Ok(None) } };
        let bytes = self.reader.bytes(&taken);
        let (len, fits) = (bytes.len(), bytes.len().min(buffer.len()));
        buffer[..fits].copy_from_slice(&bytes[..fits]);
        self.reader.give_back(taken);
        Ok(Some(len))
    }
}

impl ReceiveHalf for ShmReceive {
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        if let Some(len) = self.try_receive(buffer)? {
            return Ok(len);
        }
        if wait && self.reader.wait(TICK) {
            return self.try_receive(buffer)?.ok_or_else(|| ErrorKind::WouldBlock.into());
        }
        Err(ErrorKind::WouldBlock.into())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// Pause before another look for samples that a reader has given back.
const HELD_PAUSE: Duration = Duration::from_millis(1);
/// A received datagram is copied out at once, so the reader never holds more.
const HOLD: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn send(half: &ShmSend, bytes: &[u8]) -> io::Result<usize> {
        half.send(&[IoSlice::new(bytes)])
    }

    #[test]
    fn parts_arrive_as_one_datagram_and_a_short_buffer_learns_the_full_length() {
        let (out, mut into) = pair(100, 4).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(out.send(&[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")]).unwrap(), 5);
        assert_eq!(send(&out, &[1; 100]).unwrap(), 100);
        assert_eq!(send(&out, b"").unwrap(), 0);
        assert_eq!((into.receive(&mut buffer, false).unwrap(), &buffer[..5]), (5, &b"abcde"[..]));
        assert_eq!((into.receive(&mut buffer, true).unwrap(), buffer), (100, [1; 8]));
        assert_eq!(into.receive(&mut buffer, true).unwrap(), 0);
        assert_eq!(into.receive(&mut buffer, false).unwrap_err().kind(), ErrorKind::WouldBlock);
        let error = send(&out, &[0; 101]).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("101"), "{error}");
    }

    #[test]
    fn a_full_ring_refuses_and_tells_when_there_is_room() {
        let (out, mut into) = pair(3000, 2).unwrap();
        assert!(send(&out, &[1; 3000]).is_ok() && send(&out, &[2]).is_ok());
        assert_eq!(send(&out, &[3]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(!out.wait_room(Duration::from_millis(1)).unwrap());
        let reading = std::thread::spawn(move || into.receive(&mut [0; 1], true).map(|len| (len, into)));
        assert!(out.wait_room(Duration::from_secs(60)).unwrap());
        assert_eq!(send(&out, &[4]).unwrap(), 1);
        assert_eq!(reading.join().unwrap().unwrap().0, 3000);
    }

    #[test]
    fn each_end_notices_the_close_of_the_other() {
        let (out, mut into) = pair(64, 4).unwrap();
        send(&out, b"last").unwrap();
        let reading = std::thread::spawn(move || {
            assert_eq!(into.receive(&mut [0; 8], true).unwrap(), 4, "what was sent before arrives");
            loop {
                match into.receive(&mut [0; 8], true) {
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    other => return other.unwrap_err().kind(),
                }
            }
        });
        out.close();
        assert_eq!(reading.join().unwrap(), ErrorKind::BrokenPipe);
        assert_eq!(send(&out, b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert!(out.wait_room(Duration::from_secs(60)).unwrap(), "a closed end needs no waiting");
    }

    #[test]
    fn a_waiting_receive_comes_back_after_a_tick() {
        let (_out, mut into) = pair(64, 4).unwrap();
        let start = Instant::now();
        assert_eq!(into.receive(&mut [0; 8], true).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(start.elapsed() >= TICK && start.elapsed() < TICK * 20);
    }

    #[test]
    fn everything_arrives_in_order_whatever_its_size() {
        let (out, mut into) = pair(5000, 3).unwrap();
        let sending = std::thread::spawn(move || {
            for i in 0..20_000usize {
                while let Err(error) = send(&out, &vec![i as u8; i * 7 % 5001]) {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    out.wait_room(Duration::from_secs(20)).unwrap();
                }
            }
        });
        let mut buffer = [0; 5000];
        for i in 0..20_000usize {
            let len = loop {
                match into.receive(&mut buffer, true) {
                    Ok(len) => break len,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            };
            assert!(len == i * 7 % 5001 && buffer[..len].iter().all(|b| *b == i as u8), "message {i}");
        }
        sending.join().unwrap();
    }
}
