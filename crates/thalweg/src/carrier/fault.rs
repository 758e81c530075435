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

use super::sim::sending_time_ns;
use super::{Capabilities, Dice, ReceiveHalf, SendHalf, SharedSocket};
use linux::clock::monotonic_ns;
use linux::lock::PiMutex;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

mod receive;
mod settings;
#[cfg(test)]
mod tests;

pub use receive::FaultReceive;
pub use settings::{FaultError, FaultSettings};

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

    fn hears(&self) -> bool {
        self.inner.hears()
    }

    fn admit(&self, member: u64, address: SocketAddr) {
        self.inner.admit(member, address);
    }

    fn dismiss(&self, member: u64) {
        self.inner.dismiss(member);
    }

    fn hear(&self, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        let heard = self.inner.hear(buffer)?;
        if self.state.lock().dice.chance(self.settings.loss) {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(heard)
        }
    }

    fn repeat(&self, parts: &[IoSlice<'_>], to: Option<u64>) -> io::Result<usize> {
        if self.state.lock().dice.chance(self.settings.loss) {
            return Ok(parts.iter().map(|part| part.len()).sum());
        }
        self.inner.repeat(parts, to)
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
