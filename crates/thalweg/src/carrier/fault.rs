//! Carrier around a carrier that injects faults, in real time and seeded. For tests, the lab and the CLI.
//!
//! The carrier has no thread, so delays happen at the receiver, which holds frames until they are due:
//!
//! | fault | [`FaultSend`] | [`FaultReceive`] |
//! |---|---|---|
//! | loss, corrupt | yes | yes |
//! | loss of feedback | yes | yes |
//! | rate | yes: `WouldBlock` until it is time | yes: frames are due later |
//! | delay, jitter, reorder, stall, duplicate | no | yes |
//!
//! On streams loss, duplicate and reorder do nothing: TCP repairs them, and an application sees a stall. A node wraps
//! the halves it owns; [`pair`] wraps both ends so that each fault happens once.

#![allow(clippy::disallowed_methods)] // waits and faults are timed

mod settings;

pub use settings::{FaultError, FaultSettings};

use super::{Capabilities, Dice, ReceiveHalf, SendHalf, SharedSocket, TICK};
use linux::clock::monotonic_ns;
use linux::lock::PiMutex;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Wraps both ends of a flow: the sender has the rate, the receiver everything else. The result keeps the order unless
/// `reorder` is set, and is reliable only if nothing can get lost or changed.
pub fn pair(
    send: Box<dyn SendHalf>,
    receive: Box<dyn ReceiveHalf>,
    capabilities: Capabilities,
    settings: FaultSettings,
) -> (FaultSend, FaultReceive, Capabilities) {
    let s = settings;
    let sender = FaultSettings { rate_bytes_per_s: s.rate_bytes_per_s, seed: s.seed, ..Default::default() };
    let receiver = FaultSettings { rate_bytes_per_s: None, ..s };
    let harmless = s.corrupt == 0.0 && (capabilities.stream || s.loss + s.duplicate == 0.0);
    let result = Capabilities {
        reliable: capabilities.reliable && harmless,
        ordered: capabilities.ordered && (capabilities.stream || s.reorder == 0.0),
        ..capabilities
    };
    (FaultSend::new(send, capabilities, sender), FaultReceive::new(receive, capabilities, receiver), result)
}

/// A sending half that loses, corrupts and slows down.
pub struct FaultSend {
    inner: Box<dyn SendHalf>,
    settings: FaultSettings,
    stream: bool,
    state: PiMutex<SendState>,
}

struct SendState {
    dice: Dice,
    free_at: u64, // when the last message would have been sent at the limited rate
    scratch: Vec<u8>,
}

impl FaultSend {
    /// Wraps `inner`.
    pub fn new(inner: Box<dyn SendHalf>, capabilities: Capabilities, settings: FaultSettings) -> Self {
        let state = SendState { dice: Dice::new(settings.seed), free_at: 0, scratch: Vec::new() };
        Self { inner, settings, stream: capabilities.stream, state: PiMutex::new(state) }
    }

    fn send_changed(&self, state: &mut SendState, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        state.scratch.clear();
        parts.iter().for_each(|part| state.scratch.extend_from_slice(part));
        state.dice.flip(&mut state.scratch);
        self.inner.send(&[IoSlice::new(&state.scratch)])
    }
}

impl SendHalf for FaultSend {
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let state = &mut *self.state.lock();
        let now = self.settings.rate_bytes_per_s.map(|_| monotonic_ns());
        if now.is_some_and(|now| now < state.free_at) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let lost = !self.stream && state.dice.chance(self.settings.loss);
        let taken = if lost {
            parts.iter().map(|p| p.len()).sum()
        } else if state.dice.chance(self.settings.corrupt) {
            self.send_changed(state, parts)?
        } else {
            self.inner.send(parts)?
        };
        if let (Some(now), Some(rate)) = (now, self.settings.rate_bytes_per_s) {
            state.free_at = now + sending_time_ns(taken, rate);
        }
        Ok(taken)
    }

    fn max_datagram(&self) -> Option<usize> {
        self.inner.max_datagram()
    }

    fn has_feedback(&self) -> bool {
        self.inner.has_feedback()
    }

    fn admit(&self, member: u64, address: SocketAddr) {
        self.inner.admit(member, address);
    }

    fn dismiss(&self, member: u64) {
        self.inner.dismiss(member);
    }

    fn receive_feedback(&self, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        let heard = self.inner.receive_feedback(buffer)?;
        if self.state.lock().dice.chance(self.settings.loss) {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(heard)
        }
    }

    fn retransmit(&self, parts: &[IoSlice<'_>], to: Option<u64>) -> io::Result<usize> {
        if self.state.lock().dice.chance(self.settings.loss) {
            return Ok(parts.iter().map(|part| part.len()).sum());
        }
        self.inner.retransmit(parts, to)
    }

    /// With a rate there is none: the wrapped one would say "writable" too early.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.settings.rate_bytes_per_s.map_or_else(|| self.inner.descriptor(), |_| None)
    }

    fn socket(&self) -> Option<SharedSocket> {
        self.inner.socket()
    }

    fn wait_room(&self, timeout: Duration) -> io::Result<bool> {
        let early = self.state.lock().free_at.saturating_sub(monotonic_ns());
        let pause = Duration::from_nanos(early).min(timeout);
        if self.settings.rate_bytes_per_s.is_some() && early > 0 {
            std::thread::sleep(pause);
        }
        if pause == timeout && early > 0 {
            return Ok(false);
        }
        self.inner.wait_room(timeout - pause)
    }

    fn outstanding(&self) -> Option<usize> {
        self.inner.outstanding()
    }

    fn close(&self) {
        self.inner.close();
    }
}

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

    fn send_feedback(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.dice.chance(self.settings.loss) { Ok(bytes.len()) } else { self.inner.send_feedback(bytes) }
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
fn after_stall(due: u64, stall: Duration) -> u64 {
    let (stall, phase) = (stall.as_nanos() as u64, due % STALL_PERIOD_NS);
    if phase < stall { due - phase + stall } else { due }
}

/// The most frames that are held; more wait in the wrapped carrier, as they would in a network.
const MOST_HELD: usize = 4096;
/// The most that is read from a stream at once.
const PIECE: usize = 64 * 1024;
/// Period of `stall`.
const STALL_PERIOD_NS: u64 = 1_000_000_000;
/// Least time for which a frame is held back, so that later ones overtake it.
const LEAST_HOLD: Duration = Duration::from_millis(1);

/// Nanoseconds that `length` bytes take at `rate` bytes per second.
pub(super) fn sending_time_ns(length: usize, rate: u64) -> u64 {
    u64::try_from(length as u128 * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::local;
    use std::time::Instant;

    #[test]
    fn the_text_is_read() {
        let read: FaultSettings = "loss=1%, delay=5ms,rate=1Mbit/s,seed=7,stall=200 ms".parse().unwrap();
        let want = FaultSettings {
            loss: 0.01,
            delay: Duration::from_millis(5),
            rate_bytes_per_s: Some(125_000),
            seed: 7,
            stall: Duration::from_millis(200),
            ..Default::default()
        };
        assert_eq!(read, want);
        assert_eq!("".parse(), Ok(FaultSettings::default()));
        assert!(read.is_timed() && !FaultSettings { loss: 0.5, ..Default::default() }.is_timed());
    }

    #[test]
    fn malformed_settings_are_named() {
        for (text, names) in [("loss=1", "loss=1"), ("los=1%", "los=1%"), ("delay", "no ="), ("seed=x", "whole number")]
        {
            let message = format!("loss=2%,{text}").parse::<FaultSettings>().unwrap_err().to_string();
            assert!(message.contains(names), "{message}");
        }
    }

    fn faulty(text: &str) -> (FaultSend, FaultReceive) {
        let (send, receive) = local::pair(2000, 2048);
        let (send, receive, _) =
            pair(Box::new(send), Box::new(receive), local::capabilities(2048), text.parse().unwrap());
        (send, receive)
    }

    /// Sends `count` numbered messages and returns the numbers that arrive until the sender's end is noticed.
    fn numbers(text: &str, count: u32) -> Vec<u32> {
        let (send, mut receive) = faulty(text);
        for i in 0..count {
            let message = [&i.to_le_bytes()[..], &[0; 12]].concat();
            while send.send(&[IoSlice::new(&message)]).is_err() {
                send.wait_room(Duration::from_secs(1)).unwrap();
            }
        }
        drop(send);
        let (mut got, mut buffer) = (Vec::new(), [0; 64]);
        loop {
            match receive.receive(&mut buffer, true) {
                Ok(n) => got.push(u32::from_le_bytes(*buffer[..n].first_chunk().unwrap())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return got,
            }
        }
    }

    #[test]
    fn the_same_seed_loses_the_same_frames() {
        let got = numbers("loss=10%,seed=3", 1000);
        assert!((850..950).contains(&got.len()), "{}", got.len());
        assert!(got.is_sorted());
        assert_eq!(got, numbers("loss=10%,seed=3", 1000));
        assert_ne!(got, numbers("loss=10%,seed=4", 1000));
    }

    #[test]
    fn twice_late_and_changed_frames_arrive() {
        assert!(numbers("duplicate=20%,seed=1", 1000).len() > 1100);
        let late = numbers("reorder=20%,seed=1", 300);
        assert_eq!(late.len(), 300);
        assert!(!late.is_sorted());
        assert_ne!(numbers("corrupt=50%,seed=1", 100), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_delayed_frame_is_not_there_before_it_is_due_and_soon_after() {
        let (send, mut receive) = faulty("delay=20ms");
        let (start, mut buffer) = (Instant::now(), [0; 8]);
        send.send(&[IoSlice::new(b"late")]).unwrap();
        assert_eq!(receive.receive(&mut buffer, false).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        while receive.receive(&mut buffer, true).is_err() {}
        assert!(start.elapsed() >= Duration::from_millis(20) && &buffer[..4] == b"late");
    }

    #[test]
    fn a_limited_rate_takes_its_time() {
        let start = Instant::now();
        assert_eq!(numbers("rate=64kbit/s", 21).len(), 21);
        assert!(start.elapsed() >= Duration::from_millis(40), "20 messages of 16 bytes at 8000 bytes per second");
    }

    #[test]
    fn a_stall_begins_each_second() {
        let stall = Duration::from_millis(200);
        let s = 1_000_000_000;
        assert_eq!(after_stall(5 * s + 1, stall), 5 * s + 200_000_000);
        assert_eq!(after_stall(5 * s + 200_000_000, stall), 5 * s + 200_000_000);
    }
}
