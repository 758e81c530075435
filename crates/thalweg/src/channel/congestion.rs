//! Congestion control of one flow over datagrams: it limits the bytes in flight, and paces them. Pure: time,
//! datagrams and receipts in, allowances out.
//!
//! The window grows by CUBIC (RFC 9438) after a HyStart++ start (RFC 9406; `window`), and leaves paced over a
//! round trip (RFC 9002 §7.7). A loss shrinks it where a queue stands at the time, as in TCP Veno (Fu and Liew, 2003);
//! elsewhere it only causes a retransmit: radio links lose without being full. The receiver's socket buffer bounds the window, too.
//!
//! Datagrams carry no number of their own. A receipt names the newest datagram that came and counts the bytes of all that came:
//! bytes that were sent up to that datagram and are not counted are lost (`flight`). Decision 10 gives the reasons.

mod flight;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use flight::Receipts;

use super::bucket::{Pacer, burst};
use crate::channel::reliable::RoundTrip;
use crate::wire::feedback::{Datagram, Receipt};
use flight::{Flight, ShortestRoundTrip};
use window::{Cubic, Start};

/// The agreement of the two ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CongestionSettings {
    /// Bytes of the largest datagram.
    pub datagram: usize,
    /// Bytes that the receiver's socket buffer holds, as its kernel counts them.
    pub buffer: usize,
    /// Bytes per second that were reserved for the flow: it sends at that rate in spite of losses. `None`: it competes.
    pub reserved: Option<u64>,
}

/// The reason why a datagram cannot leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Too many bytes are in flight: a receipt makes room.
    Receipt,
    /// The pace allows it at this moment.
    Until(u64),
}

/// The least window in datagrams, as BBR has it: with two (RFC 9002 §7.2) one loss leaves no datagram that would reveal it.
const LEAST: usize = 4;
/// The first window in bytes where that is more (RFC 6928).
const INITIAL: usize = 14_720;
/// Memory that the kernel charges a receiver for a datagram besides its bytes: `struct sk_buff`, and rounding (1,472 bytes are
/// charged with 2,304, 96 bytes with 768).
const OVERHEAD: u64 = 832;
/// Lost share of a round trip above which random loss is no explanation: the path is full although no queue shows, as at a
/// policer.
const MOST_RANDOM: f64 = 0.25;
/// The fewest datagrams of a round trip for which its lost share is meaningful.
const ENOUGH: u64 = 32;
/// A queue of this many datagrams is no sign of congestion (Veno's β).
const NO_QUEUE: f64 = 3.0;
/// Delay that is noise: an eighth of the shortest round trip, within these bounds in nanoseconds.
const NOISE_NS: (u64, u64) = (100_000, 1_000_000);
/// Unanswered probes after which all bytes in flight are lost (RFC 9002 §7.6).
const PERSISTENT: u32 = 3;

/// Datagrams in flight that are not paced (RFC 9002 §7.7: the initial window): a flow of few datagrams never waits for its pace.
const BURST: u64 = 10;
/// The pace, in windows per round trip: slow start needs this many. Later the pace only spreads bursts, and receipts clock the
/// rest. With 5/4 (RFC 9002 §7.7) a flow beside a CUBIC flow loses more often than the CUBIC flow: a Jain index of 0.85 in
/// place of 0.90 at worst (one seed).
const FASTER: u128 = 2;
/// The fewest datagrams for which a waiting thread is woken.
const WORTH_WAKING: u64 = 8;

/// Counters of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Bytes lost in the network or the receiver's socket.
    pub lost: u64,
    /// Number of times that the window shrank.
    pub reductions: u64,
    /// Number of times that the window fell to the least because no receipt came for long.
    pub collapses: u64,
}

/// The controller of one flow.
#[derive(Debug)]
pub(crate) struct Congestion {
    settings: CongestionSettings,
    flight: Flight,
    round_trip: RoundTrip,
    shortest: ShortestRoundTrip,
    cubic: Cubic,
    start: Option<Start>, // until the first sign of congestion
    pacer: Pacer,
    recovers_until: u64, // losses of what was sent before this many bytes are one sign of congestion
    round: Round,
    limited: bool, // the window held something back since the last receipt
    heard_at: u64,
    probes: u32, // since then
    counters: Counters,
}

/// Losses of a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    ends_at: u64, // bytes sent when it began
    delivered: u64,
    lost: u64,
    before: (u64, u64), // delivered and lost of the one before
}

impl Congestion {
    /// The state of a new flow, before the first datagram.
    pub(crate) fn new(settings: CongestionSettings) -> Self {
        let datagram = settings.datagram.max(1);
        let initial = INITIAL.min(10 * datagram).max(LEAST * datagram);
        Self {
            settings,
            flight: Flight::default(),
            round_trip: RoundTrip::default(),
            shortest: ShortestRoundTrip::default(),
            cubic: Cubic::new(datagram, LEAST * datagram, initial),
            start: Some(Start::default()),
            pacer: Pacer::default(),
            recovers_until: 0,
            round: Round::default(),
            limited: false,
            heard_at: 0,
            probes: 0,
            counters: Counters::default(),
        }
    }

    /// From now on the flow sends at this rate, in bytes per second, in spite of losses; `None`: it competes.
    pub(crate) fn reserve(&mut self, rate: Option<u64>) {
        self.settings.reserved = rate;
    }

    /// Datagrams have at most this many bytes from now on. The window keeps its size, and grows and shrinks by such datagrams.
    pub(crate) fn shrink(&mut self, datagram: usize) {
        self.settings.datagram = datagram.max(1);
        self.cubic.shrink(self.settings.datagram);
    }

    /// Checks whether a datagram of this many bytes, which is ready, may leave now. It always may while no bytes are in
    /// flight.
    ///
    /// # Errors
    /// The resource it has to wait for.
    #[inline]
    pub(crate) fn room(&mut self, now_ns: u64, bytes: usize) -> Result<(), Wait> {
        let room = self.has_room(now_ns, bytes);
        // A sender that waits for the pace would use the window (RFC 9002 §7.8). A sender that waits for the receiver's socket
        // would not.
        self.limited |= match room {
            Ok(()) => false,
            Err(Wait::Receipt) => self.under_way() + bytes as u64 > self.window(),
            Err(Wait::Until(_)) => true,
        };
        room
    }

    /// As [`Self::room`], where perhaps no datagram is ready.
    ///
    /// # Errors
    /// The resource it would have to wait for.
    #[inline]
    pub(crate) fn has_room(&self, now_ns: u64, bytes: usize) -> Result<(), Wait> {
        let under_way = self.under_way();
        if under_way > 0 && !self.takes(bytes as u64, 1) {
            return Err(Wait::Receipt);
        }
        if self.settings.reserved.is_none() && under_way + bytes as u64 <= BURST * self.settings.datagram as u64 {
            return Ok(());
        }
        match self.pacing_rate() {
            Some(rate) => self.pacer.wait(now_ns, rate, burst(rate, self.settings.datagram)).map_err(Wait::Until),
            None => Ok(()),
        }
    }

    /// `true` if enough may leave to be worth waking a thread.
    pub(crate) fn is_open(&self) -> bool {
        let datagram = self.settings.datagram as u64;
        let most = self.window().min(self.buffer());
        let worth = (most / 4).min(WORTH_WAKING * datagram);
        self.under_way() == 0 || self.takes(worth, worth / datagram)
    }

    /// `true` if window and receiver's socket take this many more bytes in this many datagrams. Datagrams in flight count with
    /// their real length. Counted with the next one's length, a datagram of 64 B held back a flow that used a third of the
    /// socket.
    fn takes(&self, bytes: u64, datagrams: u64) -> bool {
        let bytes = self.under_way() + bytes;
        bytes <= self.window() && bytes + (self.flight.datagrams() + datagrams) * OVERHEAD <= self.buffer()
    }

    /// Bytes that the receiver's socket holds. A quarter of what the kernel counts is given back late (`udp_rmem_release`).
    fn buffer(&self) -> u64 {
        self.settings.buffer as u64 / 4 * 3
    }

    /// A datagram left.
    #[inline]
    pub(crate) fn on_sent(&mut self, now_ns: u64, datagram: Datagram, bytes: usize) {
        if self.flight.under_way() == 0 {
            self.heard_at = now_ns; // no feedback was expected
        }
        self.flight.on_sent(now_ns, datagram, bytes);
        if let Some(rate) = self.pacing_rate() {
            self.pacer.on_sent(now_ns, rate, bytes);
        }
    }

    /// Takes the last datagram back: the socket was full, and it did not leave.
    pub(crate) fn unsent(&mut self, bytes: usize) {
        self.flight.unsent(bytes);
    }

    /// Takes a receipt of the subscriber. Gives the round trip in nanoseconds, if the receipt shows one.
    pub(crate) fn on_ack(&mut self, now_ns: u64, receipt: &Receipt) -> Option<u64> {
        let before = self.flight.under_way();
        let reorder = self.round_trip.reorder_ns();
        let shortest = self.shortest.known().unwrap_or(0);
        let heard = self.flight.on_receipt(now_ns, receipt, reorder, shortest)?;
        (self.heard_at, self.probes) = (now_ns, 0);
        if let Some(round_trip) = heard.trip_ns {
            self.round_trip.measured(round_trip);
            self.shortest.measured(now_ns, round_trip);
        }
        (self.round.delivered, self.round.lost) =
            (self.round.delivered + heard.delivered, self.round.lost + heard.lost);
        // A window that was not used shows nothing of the path (RFC 9002 §7.8).
        let limited = std::mem::take(&mut self.limited) || before * 2 >= self.window() && self.start.is_some();
        let recovers = self.flight.heard_up_to() < self.recovers_until;
        if limited && !recovers && heard.delivered > 0 && self.settings.reserved.is_none() {
            self.grow(now_ns, heard.delivered, heard.trip_ns);
        }
        if heard.lost > 0 {
            self.on_loss(heard.lost, heard.missed_at);
        }
        if self.flight.heard_up_to() >= self.round.ends_at {
            self.next_round();
        }
        heard.trip_ns
    }

    fn grow(&mut self, now_ns: u64, delivered: u64, trip_ns: Option<u64>) {
        let Some(start) = &mut self.start else {
            return self.cubic.grow(now_ns, delivered, self.round_trip.smoothed_ns());
        };
        self.cubic.widen(start.on_ack(delivered, trip_ns));
    }

    fn next_round(&mut self) {
        let Round { delivered, lost, .. } = self.round;
        self.round = Round { ends_at: self.flight.sent(), before: (delivered, lost), ..Round::default() };
        if self.start.as_mut().is_some_and(|start| start.next_round()) {
            self.start = None;
            self.cubic.settle();
        }
    }

    /// `bytes` were lost. `missed_at`: bytes sent up to the newest datagram that had arrived when these were first missed. The
    /// window shrinks at most once per round trip (RFC 9002 §7.3.2), and only if a queue stands, or more is lost than random
    /// loss explains.
    pub(crate) fn on_loss(&mut self, bytes: u64, missed_at: u64) {
        self.counters.lost += bytes;
        if self.settings.reserved.is_some() || missed_at <= self.recovers_until {
            return;
        }
        if self.is_queueing() || self.loses_too_much() {
            (self.start, self.recovers_until) = (None, self.flight.sent());
            self.cubic.reduce();
            self.counters.reductions += 1;
        }
    }

    /// `true` if the last round trips were longer than the shortest by more than noise and a few datagrams.
    fn is_queueing(&self) -> bool {
        let Some((shortest, last)) = self.shortest.and_lately() else { return true };
        let few =
            NO_QUEUE * self.settings.datagram as f64 * self.round_trip.smoothed_ns() as f64 / self.window() as f64;
        let noise = (shortest / 8).clamp(NOISE_NS.0, NOISE_NS.1);
        last.saturating_sub(shortest) >= noise.max(few as u64)
    }

    fn loses_too_much(&self) -> bool {
        let Round { delivered, lost, before, .. } = self.round;
        let (delivered, lost) = (delivered + before.0, lost + before.1);
        let total = delivered + lost;
        total >= ENOUGH * self.settings.datagram as u64 && lost as f64 > MOST_RANDOM * total as f64
    }

    /// The time to ask for a receipt if bytes are in flight and none comes: twice as long after each request (RFC 9002 §6.2.1).
    pub(crate) fn probe_at(&self) -> u64 {
        self.heard_at.saturating_add(self.round_trip.patience_ns() << self.probes.min(8))
    }

    /// Notes that a receipt was asked for, because none came. After several requests in vain all bytes in flight are lost.
    pub(crate) fn on_probe(&mut self) {
        self.probes = self.probes.saturating_add(1);
        if self.probes == PERSISTENT && self.settings.reserved.is_none() {
            self.counters.collapses += u64::from(self.cubic.collapse());
            self.start = Some(Start::default());
        }
    }

    /// The window: bytes that the path lets be in flight.
    #[inline]
    pub(crate) fn window(&self) -> u64 {
        if self.settings.reserved.is_some() { u64::MAX } else { self.cubic.window() }
    }

    /// Bytes that are under way.
    pub(crate) fn under_way(&self) -> u64 {
        self.flight.under_way()
    }

    /// The pace in bytes per second. `None`: the path is not known yet.
    #[inline]
    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        if self.settings.reserved.is_some() {
            return self.settings.reserved;
        }
        let round_trip = self.shortest.known().map(|_| self.round_trip.smoothed_ns().max(1))?;
        let rate = u128::from(self.window()) * 1_000_000_000 * FASTER / u128::from(round_trip);
        Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// The counters so far.
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }
}
