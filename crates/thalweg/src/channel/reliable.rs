//! Reliable delivery over datagrams: a publisher keeps and retransmits messages ([`Sender`]), a subscriber reorders and requests
//! them ([`Receiver`]). Pure: time, frames and feedback in, frames and deadlines out; memory is bounded. [docs/reliability.md]
//!
//! The subscriber delivers in order. It requests missing messages, and acknowledges every half window or when it is asked; the
//! publisher asks when it has been idle. So messages are not acknowledged one by one, and the loss of the last one is noticed.
//!
//! [docs/reliability.md]: https://github.com/thalweg/thalweg/blob/main/docs/reliability.md

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub(crate) use receiver::{Arrived, IN_PROGRESS, Receiver, ReceiverSettings};
pub(crate) use sender::{Action, EXPECTED, Sender, SenderSettings, To};

/// Counters of a reliable flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Datagrams that were retransmitted (publisher), or messages that came by a retransmit (subscriber).
    pub repaired: u64,
    /// Messages given up: too old to be of use, or dropped by the queue's policy.
    pub skipped: u64,
    /// Acknowledgements received (publisher) or sent (subscriber).
    pub acknowledgements: u64,
}

/// The position nearest to `near` with these low 32 bits.
fn widen(sequence: u32, near: u64) -> u64 {
    near.wrapping_add_signed(i64::from(sequence.wrapping_sub(near as u32) as i32))
}

/// The number of messages after which an acknowledgement comes, if the publisher keeps `window`.
pub(crate) fn acknowledges_every(window: usize) -> u32 {
    (window.min(WINDOW) / 2).max(1) as u32
}

/// A measured round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    smoothed: Option<u64>,
    variation: u64,
}

impl RoundTrip {
    /// Takes one measurement (RFC 6298 §2.2 and §2.3: α = 1/8, β = 1/4).
    pub(crate) fn measured(&mut self, trip_ns: u64) {
        let trip_ns = trip_ns.min(LONGEST_NS);
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.variation) = (Some(trip_ns), trip_ns / 2);
            return;
        };
        self.variation = (3 * self.variation + smoothed.abs_diff(trip_ns)) / 4;
        self.smoothed = Some((7 * smoothed + trip_ns) / 8);
    }

    /// The smoothed round trip in nanoseconds.
    pub(crate) fn smoothed_ns(&self) -> u64 {
        self.smoothed.unwrap_or(INITIAL_NS)
    }

    /// The longest wait for an answer (RFC 6298 §2: K = 4), in nanoseconds.
    pub(crate) fn patience_ns(&self) -> u64 {
        self.smoothed_ns() + (4 * self.variation).max(GRANULARITY_NS)
    }

    /// Time that a frame may be overtaken before it is requested.
    pub(crate) fn reorder_ns(&self) -> u64 {
        (self.smoothed_ns() / 4).clamp(200_000, 5_000_000)
    }
}

/// The most messages of a flow that are unacknowledged; a longer queue waits at the publisher.
pub(crate) const WINDOW: usize = 1024;

/// The same for a flow with congestion control, which bytes bound. At 100 Mbit/s and 50 ms a tenth of this is in flight in
/// samples of 1,400 B, and a sample that is lost several times holds up the others for several round trips.
pub(crate) const CONTROLLED_WINDOW: usize = 4096;

/// The longest pause between two requests of a subscriber for the same message, and the longest period that is measured: after an
/// outage a flow is back within a second (P-16).
const LONGEST_PAUSE_NS: u64 = 400_000_000;

/// Positions start above this, so that one behind the first is never below 0. Its low 32 bits are 0.
const BASE: u64 = 1 << 40;

/// Round trip assumed before the first measurement. RFC 6298 §2.1 says a second for the Internet; a retransmit here is one small
/// datagram within a planned network.
const INITIAL_NS: u64 = 50_000_000;
/// The clock's granularity G of RFC 6298 §2: a thread does not wake up more exactly.
const GRANULARITY_NS: u64 = 1_000_000;
/// The longest round trip: a longer measurement is wrong.
const LONGEST_NS: u64 = 10_000_000_000;
