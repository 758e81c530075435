//! A flow with congestion control: messages and retransmits leave within its window and pace.

use super::{LONGEST_BEAT_NS, Sender};
use crate::channel::congestion::{Congestion, CongestionSettings, Wait};
use crate::channel::queue::Entry;
use crate::channel::reliable::CONTROLLED_WINDOW;
use crate::wire::feedback::{Acknowledgement, Datagram, REPEATS};
use crate::wire::{FRAGMENT_HEADER, HEADER, Kind};
use std::ops::Range;

/// The controller, and the limits of the subscriber.
#[derive(Debug)]
pub(super) struct Controlled {
    congestion: Congestion,
    window: u64,    // bytes of messages that the subscriber takes beyond those that it acknowledged
    usual: usize,   // bytes of the last datagram
    largest: usize, // bytes of a message that one datagram takes as a whole
    noted: usize,   // messages that left, and are to be kept next
}

/// Congestion windows of messages that are kept: messages may be lost several times, and the flow continues meanwhile.
const KEPT_WINDOWS: u64 = 8;
/// The least number of bytes that are kept.
const KEPT_LEAST: u64 = 1 << 20;

impl Controlled {
    /// Datagrams have at most `most` bytes from now on.
    pub(super) fn shrink(&mut self, most: usize) {
        self.largest = most.saturating_sub(HEADER);
        self.usual = self.usual.min(most);
        self.congestion.shrink(most);
    }

    /// Bytes that were lost.
    pub(super) fn lost(&self) -> u64 {
        self.congestion.counters().lost
    }
}

impl Sender {
    /// From now on the flow has congestion control: the subscriber sends receipts, and takes at first `window` bytes of messages
    /// at a time. It is the flow's only member. Bytes limit the kept messages, unless the oldest gives way to a new one.
    pub(crate) fn control(&mut self, settings: CongestionSettings, window: u64) {
        if !self.settings.drops_oldest {
            self.settings.window = CONTROLLED_WINDOW;
        }
        let (largest, usual) = (settings.datagram.saturating_sub(HEADER), settings.datagram);
        self.controlled = Some(Controlled { congestion: Congestion::new(settings), window, usual, largest, noted: 0 });
    }

    /// Reserves a rate in bytes per second for the flow; `None`: it has no reserved rate any more.
    pub(crate) fn reserve(&mut self, rate: Option<u64>) {
        if let Some(controlled) = &mut self.controlled {
            controlled.congestion.reserve(rate);
        }
    }

    /// Checks whether a new datagram of this many bytes may leave. Retransmits go first where the window is short.
    ///
    /// # Errors
    /// The resource it has to wait for.
    pub(crate) fn room(&mut self, now_ns: u64, bytes: usize) -> Result<(), Wait> {
        let Some(Controlled { congestion, .. }) = &mut self.controlled else { return Ok(()) };
        let first = self.wanted > 0 && congestion.under_way() > congestion.window() / 2;
        let room = if first { Err(Wait::Receipt) } else { congestion.room(now_ns, bytes) };
        if room == Err(Wait::Receipt) {
            self.ask_by(now_ns);
        }
        room
    }

    /// The same for the next datagram, as long as the last one.
    ///
    /// # Errors
    /// As [`Sender::room`].
    pub(crate) fn usual_room(&mut self, now_ns: u64) -> Result<(), Wait> {
        self.room(now_ns, self.controlled.as_ref().map_or(0, |controlled| controlled.usual))
    }

    /// A part of a message leaves.
    pub(crate) fn leaves(&mut self, now_ns: u64, datagram: Datagram, bytes: usize) {
        if let Some(controlled) = &mut self.controlled {
            controlled.usual = bytes;
            controlled.congestion.on_sent(now_ns, datagram, bytes);
        }
    }

    /// Takes back the last part, which did not leave: the socket was full.
    pub(crate) fn left_not(&mut self, bytes: usize) {
        if let Some(controlled) = &mut self.controlled {
            controlled.congestion.unsent(bytes);
        }
    }

    /// Notes that a whole message or batch leaves, which is kept next. This comes before it leaves, because the first of many may be
    /// acknowledged before the last has left.
    pub(crate) fn leaves_whole(&mut self, now_ns: u64, datagram: Datagram, bytes: usize) {
        self.leaves(now_ns, datagram, bytes);
        if let Some(controlled) = &mut self.controlled {
            controlled.noted += 1;
        }
    }

    /// Takes back the last of them, which did not leave.
    pub(crate) fn left_not_whole(&mut self, bytes: usize) {
        self.left_not(bytes);
        if let Some(controlled) = &mut self.controlled {
            controlled.noted = controlled.noted.saturating_sub(1);
        }
    }

    /// `true` if a further message has to wait, besides `more` that leave now and are not kept yet.
    pub(crate) fn is_full_with(&self, more: usize) -> bool {
        let crowded = self.controlled.as_ref().is_some_and(|controlled| self.is_crowded(controlled));
        let most = self.sent.len() + more >= self.settings.window || self.bytes >= self.settings.bytes;
        crowded || (most && !self.settings.drops_oldest)
    }

    /// `true` if enough may leave to be worth waking waiting threads.
    pub(crate) fn is_open(&self) -> bool {
        self.controlled
            .as_ref()
            .is_none_or(|controlled| controlled.congestion.is_open() && !self.is_crowded(controlled))
    }

    /// Congestion counters of the flow.
    #[cfg(test)]
    pub fn congestion(&self) -> crate::channel::congestion::Counters {
        self.controlled.as_ref().map(|controlled| controlled.congestion.counters()).unwrap_or_default()
    }

    /// Bytes that are under way.
    #[cfg(test)]
    pub fn under_way(&self) -> u64 {
        self.controlled.as_ref().map_or(0, |controlled| controlled.congestion.under_way())
    }

    /// `true` if a further message has to wait for the window or the pace, or would find no room at the subscriber.
    pub(super) fn is_held_back(&self, now_ns: u64) -> bool {
        self.controlled.as_ref().is_some_and(|controlled| {
            controlled.congestion.has_room(now_ns, controlled.usual).is_err() || self.is_crowded(controlled)
        })
    }

    /// `true` if the unacknowledged messages fill the subscriber's window, or the bytes that are worth keeping. The subscriber
    /// always takes one message.
    fn is_crowded(&self, controlled: &Controlled) -> bool {
        let most = controlled.congestion.window().saturating_mul(KEPT_WINDOWS).max(KEPT_LEAST).min(controlled.window);
        !self.sent.is_empty() && self.kept > most
    }

    /// Notes a message that left: a small one now, a large one before, in parts.
    pub(super) fn note_left(&mut self, now_ns: u64, sequence: u32, entry: &Entry) {
        if let Some(controlled) = self.controlled.as_mut().filter(|controlled| controlled.noted > 0) {
            controlled.noted -= 1;
            return;
        }
        let length = entry.buffer.payload().len();
        if self.controlled.as_ref().is_some_and(|controlled| length <= controlled.largest) {
            let datagram = Datagram { sequence, offset: 0, mark: entry.kind() as u32 };
            self.leaves(now_ns, datagram, HEADER + length);
        }
    }

    /// `true` if this many bytes of a message may be retransmitted now.
    pub(super) fn may_repeat(&mut self, now_ns: u64, bytes: usize) -> bool {
        let Some(Controlled { congestion, .. }) = &mut self.controlled else {
            let taken = self.bucket.take(now_ns, bytes);
            self.held_up_until = taken.map_or_else(|wait| now_ns + wait, |()| self.held_up_until);
            return taken.is_ok();
        };
        match congestion.room(now_ns, HEADER + FRAGMENT_HEADER + bytes) {
            Ok(()) => true,
            Err(Wait::Until(at)) => {
                self.held_up_until = at;
                false
            }
            Err(Wait::Receipt) => {
                self.held_up_until = u64::MAX; // until one comes
                self.ask_by(now_ns);
                false
            }
        }
    }

    /// Notes a retransmit of a part of a message, or of all of it.
    pub(super) fn note_retransmitted(&mut self, now_ns: u64, index: usize, bytes: &Range<usize>) {
        let Some(Controlled { congestion, .. }) = &mut self.controlled else { return };
        let entry = &self.sent[index].entry;
        let whole = bytes.len() == entry.buffer.payload().len();
        let (kind, extra) = if whole { (entry.kind(), 0) } else { (Kind::Fragment, FRAGMENT_HEADER) };
        let sequence = (self.first + index as u64) as u32;
        let datagram = Datagram { sequence, offset: bytes.start as u32, mark: kind as u32 | REPEATS };
        congestion.on_sent(now_ns, datagram, HEADER + extra + bytes.len());
    }

    /// A keep-alive leaves.
    pub(super) fn note_asked(&mut self, now_ns: u64) {
        let sequence = self.next() as u32;
        let Some(Controlled { congestion, .. }) = &mut self.controlled else { return };
        if congestion.under_way() > 0 && now_ns >= congestion.probe_at() {
            congestion.on_probe();
        }
        congestion.on_sent(now_ns, Datagram { sequence, offset: 0, mark: Kind::KeepAlive as u32 }, HEADER);
    }

    /// Notes the receipt of the subscriber.
    pub(super) fn take_receipt(&mut self, now_ns: u64, said: &Acknowledgement<'_>) {
        let (Some(controlled), Some(receipt)) = (&mut self.controlled, &said.receipt) else { return };
        controlled.window = receipt.window;
        if let Some(round_trip) = controlled.congestion.on_ack(now_ns, receipt) {
            self.measured(now_ns, round_trip);
        }
        self.held_up_until = 0;
        self.note_came(receipt.newest);
    }

    /// Sets the time to ask for a receipt that does not come.
    fn ask_by(&mut self, now_ns: u64) {
        let Some(Controlled { congestion, .. }) = &self.controlled else { return };
        if congestion.under_way() > 0 {
            let at = congestion.probe_at().max(now_ns);
            let latest = self.beat_at.unwrap_or(now_ns + LONGEST_BEAT_NS);
            self.beat_at = Some(latest.min(at));
        }
    }
}
