//! The receiving side of faults: frames are held until they are due.

use super::FaultSettings;
use crate::carrier::Dice;
use crate::carrier::sim::sending_time_ns;
use crate::carrier::{Capabilities, ReceiveHalf, SharedSocket, TICK};
use linux::clock::monotonic_ns;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The most frames that are held; more wait in the wrapped carrier, as they would in a network.
const MOST_HELD: usize = 4096;
/// The most that is read from a stream at once.
const PIECE: usize = 64 * 1024;
/// Period of `stall`.
const STALL_PERIOD_NS: u64 = 1_000_000_000;
/// Least time for which a frame is held back, so that later ones overtake it.
const LEAST_HOLD: Duration = Duration::from_millis(1);

/// A receiving half that loses, delays, reorders, doubles and corrupts.
pub struct FaultReceive {
    inner: Box<dyn ReceiveHalf>,
    settings: FaultSettings,
    stream: bool,
    dice: Dice,
    scratch: Vec<u8>,
    held: BTreeMap<(u64, u64), Held>, // by due time, then by arrival
    order: u64,
    free_at: u64,
    last_due: u64,
    ended: Option<io::Result<usize>>, // the carrier's last result; returned when all earlier frames were taken
}

#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    taken: usize,  // of a stream's piece
    length: usize, // as the wrapped carrier said: longer than `bytes` if it was cut
}

impl FaultReceive {
    /// Wraps `inner`; its capabilities distinguish streams from datagrams, and give their largest size.
    pub fn new(inner: Box<dyn ReceiveHalf>, capabilities: Capabilities, settings: FaultSettings) -> Self {
        let most = if capabilities.stream { PIECE } else { capabilities.max_datagram.unwrap_or(PIECE) };
        Self {
            inner,
            settings,
            stream: capabilities.stream,
            dice: Dice::new(settings.seed.wrapping_add(1)), // not the sender's own sequence
            scratch: vec![0; most.max(1)],
            held: BTreeMap::new(),
            order: 0,
            free_at: 0,
            last_due: 0,
            ended: None,
        }
    }

    /// Takes over the frames of the wrapped carrier. If nothing has to be held, it takes one frame at a time, so that
    /// the carrier's descriptor still shows whether there is more.
    fn collect(&mut self, wait: bool) {
        let most = if self.settings.is_timed() { MOST_HELD } else { 1 };
        let mut wait = wait;
        for _ in 0..MOST_HELD {
            if self.held.len() >= most || self.ended.is_some() {
                return;
            }
            match self.inner.receive(&mut self.scratch, wait) {
                Ok(0) if self.stream => self.ended = Some(Ok(0)),
                Ok(n) => self.hold(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => self.ended = Some(Err(e)),
            }
            wait = false;
        }
    }

    /// Decides what happens to the frame in the scratch buffer.
    fn hold(&mut self, length: usize) {
        let s = self.settings;
        let kept = length.min(self.scratch.len());
        if !self.stream && self.dice.chance(s.loss) {
            return;
        }
        if self.dice.chance(s.corrupt) {
            self.dice.flip(&mut self.scratch[..kept]);
        }
        let due = self.due(length);
        if !self.stream && self.dice.chance(s.duplicate) {
            self.keep(due, kept, length);
        }
        self.keep(due, kept, length);
    }

    fn keep(&mut self, due: u64, kept: usize, length: usize) {
        self.order += 1;
        let frame = Held { bytes: self.scratch[..kept].to_vec(), taken: 0, length };
        self.held.insert((due, self.order), frame);
    }

    fn due(&mut self, length: usize) -> u64 {
        let s = self.settings;
        if !s.is_timed() {
            return 0;
        }
        let now = monotonic_ns();
        let sent = self.free_at.max(now) + s.rate_bytes_per_s.map_or(0, |rate| sending_time_ns(length, rate));
        self.free_at = sent;
        let delay = self.dice.around(s.delay.as_nanos() as u64, s.jitter.as_nanos() as u64);
        let due = after_stall((sent + delay).max(self.last_due), s.stall);
        if !self.stream && self.dice.chance(s.reorder) {
            return due + s.jitter.max(LEAST_HOLD).as_nanos() as u64;
        }
        self.last_due = due;
        due
    }

    /// The first frame if it is due.
    fn take(&mut self, buffer: &mut [u8], now: u64) -> Option<usize> {
        let mut first = self.held.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let frame = first.get_mut();
        let rest = &frame.bytes[frame.taken..];
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        if self.stream {
            frame.taken += n;
            if frame.taken < frame.bytes.len() {
                return Some(n);
            }
        }
        let length = first.remove().length;
        Some(if self.stream { n } else { length })
    }

    /// The end of the wrapped carrier, after all earlier data was taken. An error is returned again each time.
    fn end(&self) -> Option<io::Result<usize>> {
        let ended = self.ended.as_ref().filter(|_| self.held.is_empty())?;
        Some(match ended {
            Ok(n) => Ok(*n),
            Err(e) => Err(e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error)),
        })
    }

    /// Waits until the first held frame is due, something new arrives, or `until`.
    fn wait(&mut self, now: u64, until: u64) {
        let Some(((due, _), _)) = self.held.first_key_value() else { return self.collect(true) };
        let pause = Duration::from_nanos((*due).min(until).saturating_sub(now));
        match self.inner.descriptor().filter(|_| self.ended.is_none() && self.held.len() < MOST_HELD) {
            Some(fd) => drop(linux::poll::wait_readable(fd, Some(pause))),
            None => std::thread::sleep(pause),
        }
    }
}

impl ReceiveHalf for FaultReceive {
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        let until = monotonic_ns() + TICK.as_nanos() as u64;
        loop {
            self.collect(false);
            let now = monotonic_ns();
            if let Some(n) = self.take(buffer, now) {
                return Ok(n);
            }
            if let Some(end) = self.end() {
                return end;
            }
            if !wait || now >= until {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.wait(now, until);
        }
    }

    fn answer(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.dice.chance(self.settings.loss) { Ok(bytes.len()) } else { self.inner.answer(bytes) }
    }

    /// `None` if frames are held: the wrapped descriptor does not know when they are due.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if self.settings.is_timed() { None } else { self.inner.descriptor() }
    }

    fn socket(&self) -> Option<SharedSocket> {
        self.inner.socket()
    }
}

/// The first moment not before `due` that is no stall.
pub(super) fn after_stall(due: u64, stall: Duration) -> u64 {
    let (stall, phase) = (stall.as_nanos() as u64, due % STALL_PERIOD_NS);
    if phase < stall { due - phase + stall } else { due }
}
