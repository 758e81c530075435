//! A pair of halves over shared memory, which carries datagrams, one copy in and one copy out, as the conformance suite requires.

use crate::carrier::{Capabilities, ReceiveHalf, SendHalf, TICK};
use linux::lock::PiMutex;
use linux::memory::{Arena, ArenaError, Meta, Policy, Pushed, RingReader, RingWriter, Room, Sealed, TakeError};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

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

/// A received datagram is copied out at once, so the reader never holds more.
const HOLD: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

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
