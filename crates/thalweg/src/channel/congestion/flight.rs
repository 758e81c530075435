//! Datagrams under way, in the order in which they left: the receipts of the receiving end, their effect, and round trips.

use crate::wire::feedback::{Datagram, Receipt};
use crate::wire::{HEADER, Header};
use std::collections::VecDeque;

/// The news of a receipt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    pub trip_ns: Option<u64>,
    /// Bytes that arrived since the last one.
    pub delivered: u64,
    /// Bytes that are lost for certain.
    pub lost: u64,
    /// Bytes sent up to the datagram whose arrival first showed that they are missing; they left before it.
    pub missed_at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    datagram: Datagram,
    end: u64, // bytes sent with it
    at: u64,
}

/// Datagrams of a flow between its two ends.
#[derive(Debug, Default)]
pub(super) struct Flight {
    records: VecDeque<Record>,
    sent: u64,    // bytes
    heard: u64,   // bytes that arrived, as told
    highest: u64, // bytes sent with the newest datagram that arrived
    lost: u64,    // bytes
    settled: u64, // bytes of which nothing more is expected
    suspect: Option<Suspect>,
}

/// Datagrams that did not arrive although later ones did: perhaps those only overtook them.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    until: u64,
    least: u64,
    at: u64, // bytes sent with the newest that had arrived then
}

impl Flight {
    /// Bytes that neither arrived nor were lost.
    pub(super) fn under_way(&self) -> u64 {
        self.sent.saturating_sub(self.settled)
    }

    /// Datagrams that left after the newest one that arrived, as far as they are remembered.
    pub(super) fn datagrams(&self) -> u64 {
        self.records.len() as u64
    }

    /// Bytes sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes sent with the newest datagram that arrived.
    pub(super) fn heard_up_to(&self) -> u64 {
        self.highest
    }

    pub(super) fn on_sent(&mut self, now_ns: u64, datagram: Datagram, bytes: usize) {
        self.sent += bytes as u64;
        if self.records.len() < MOST_RECORDS {
            self.records.push_back(Record { datagram, end: self.sent, at: now_ns });
        }
    }

    /// The last one did not leave.
    pub(super) fn unsent(&mut self, bytes: usize) {
        if self.records.back().is_some_and(|record| record.end == self.sent) {
            self.records.pop_back();
        }
        self.sent = self.sent.saturating_sub(bytes as u64);
    }

    /// The news of a receipt; `None`: it was overtaken and has no news. A missing datagram counts as lost when it is still
    /// missing `reorder_ns` later (RFC 8985 §6.2).
    pub(super) fn on_receipt(
        &mut self,
        now_ns: u64,
        receipt: &Receipt,
        reorder_ns: u64,
        shortest_ns: u64,
    ) -> Option<Heard> {
        let received = receipt.received.min(self.sent); // the other end may claim any number
        let newest = self.newest(receipt, now_ns.saturating_sub(shortest_ns.saturating_add(receipt.ago_ns.into())));
        if received < self.heard || (received == self.heard && newest.is_none()) {
            return None;
        }
        let delivered = received - self.heard;
        self.heard = received;
        let trip_ns = newest.and_then(|(record, alone, pause)| {
            self.highest = self.highest.max(record.end);
            if pause >= reorder_ns {
                // A datagram that left so much earlier would have come (RFC 8985 §6.2).
                self.suspect.get_or_insert(Suspect { until: 0, least: u64::MAX, at: self.highest }).until = now_ns;
            }
            now_ns.checked_sub(record.at.saturating_add(receipt.ago_ns.into())).filter(|_| alone)
        });
        self.highest = self.highest.max(received);
        let (lost, missed_at) = self.note_missing(now_ns, reorder_ns);
        self.settled = self.settled.max(self.heard + self.lost).min(self.sent);
        Some(Heard { trip_ns, delivered, lost, missed_at })
    }

    /// The datagram that came last; `true` if no other has its name (Karn: of two the receipt may mean either); and the pause
    /// before it left. Earlier datagrams are forgotten. If several have the name, it is the last of them that left by `latest`,
    /// since a path keeps the order. Keep-alives all have one name: had the oldest been taken, more would leave than are settled.
    ///
    /// A name that may repeat does not mean a datagram that left after `latest`: an earlier one of that name came, and is forgotten.
    /// Taken for its copy, it showed a round trip of 13 ms on a path of 20, and each later one seemed to have waited in a queue.
    fn newest(&mut self, receipt: &Receipt, latest: u64) -> Option<(Record, bool, u64)> {
        let named = |record: &Record| record.datagram == receipt.newest;
        let first = self.records.iter().position(named)?;
        if receipt.newest.may_repeat() && self.records[first].at > latest {
            return None;
        }
        let later = self.records.iter().enumerate().skip(first + 1).filter(|(_, record)| named(record));
        let (mut index, mut alone) = (first, true);
        for (at, record) in later {
            alone = false;
            if record.at > latest {
                break;
            }
            index = at;
        }
        let record = self.records[index];
        let pause = index.checked_sub(1).map_or(0, |before| record.at.saturating_sub(self.records[before].at));
        self.records.drain(..=index);
        Some((record, alone, pause))
    }

    /// Bytes that are lost for certain now, and when they were missed first.
    fn note_missing(&mut self, now_ns: u64, reorder_ns: u64) -> (u64, u64) {
        let missing = self.highest.saturating_sub(self.heard);
        if missing <= self.lost {
            (self.lost, self.suspect) = (missing, None); // bytes that came late were not lost
            return (0, 0);
        }
        let until = now_ns.saturating_add(reorder_ns);
        let suspect = self.suspect.get_or_insert(Suspect { until, least: missing, at: self.highest });
        suspect.least = suspect.least.min(missing);
        if now_ns < suspect.until {
            return (0, 0);
        }
        let (sure, at) = (suspect.least.saturating_sub(self.lost), suspect.at);
        self.suspect = None;
        self.lost += sure;
        (sure, at)
    }
}

/// The receiving end's receipts for the sender's congestion control: the part of a flow that came, and the time of the next receipt.
#[derive(Debug)]
pub(crate) struct Receipts {
    every: u64,
    received: u64, // bytes
    told: u64,     // of them
    newest: Datagram,
    arrived: u64,
}

impl Receipts {
    /// Told after so many bytes.
    pub(crate) fn new(every: u32) -> Self {
        Self { every: every.into(), received: 0, told: 0, newest: Datagram::default(), arrived: 0 }
    }

    /// Counts a datagram of the flow that came, even if it is dropped later.
    #[inline]
    pub(crate) fn arrived(&mut self, now_ns: u64, header: &Header, payload: &[u8]) {
        self.received += (HEADER + payload.len()) as u64;
        (self.newest, self.arrived) = (Datagram::of(header, payload), now_ns);
    }

    /// `true` if enough came for a receipt.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.received - self.told >= self.every
    }

    /// The receipt up to now. `window`: bytes of messages that the receiver takes beyond the delivered ones.
    pub(crate) fn tell(&mut self, now_ns: u64, window: u64) -> Receipt {
        self.told = self.received;
        let ago_ns = u32::try_from(now_ns.saturating_sub(self.arrived)).unwrap_or(u32::MAX);
        Receipt { received: self.received, newest: self.newest, ago_ns, window }
    }
}

/// The shortest recent round trip, and the last measured ones: their difference is the delay of the queue.
#[derive(Debug, Default)]
pub(super) struct ShortestRoundTrip {
    halves: [Option<u64>; 2], // this one and the one before
    begun: u64,
    last: [u64; LATELY],
    count: usize,
}

impl ShortestRoundTrip {
    pub(super) fn measured(&mut self, now_ns: u64, trip_ns: u64) {
        if now_ns.saturating_sub(self.begun) > HALF_NS {
            self.halves = [None, self.halves[0].or(self.halves[1])];
            self.begun = now_ns;
        }
        self.halves[0] = Some(self.halves[0].map_or(trip_ns, |shortest| shortest.min(trip_ns)));
        self.last[self.count % LATELY] = trip_ns;
        self.count += 1;
    }

    /// The shortest, if there is any.
    pub(super) fn known(&self) -> Option<u64> {
        self.halves.into_iter().flatten().min()
    }

    /// The shortest of all and of the last few.
    pub(super) fn and_lately(&self) -> Option<(u64, u64)> {
        let lately = self.last[..self.count.min(LATELY)].iter().min()?;
        Some((self.known()?, *lately))
    }
}

/// Datagrams that are remembered. Receipts for further ones give bytes but no round trip.
const MOST_RECORDS: usize = 1 << 14;

/// Half of the time for which a round trip counts as the shortest, in nanoseconds: 10 s as in BBR, kept in two halves.
const HALF_NS: u64 = 5_000_000_000;
/// The number of last measurements; the shortest of them is the present round trip.
const LATELY: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::feedback::REPEATS;

    fn datagram(sequence: u32) -> Datagram {
        Datagram { sequence, offset: 0, mark: 1 }
    }

    fn receipt(received: u64, sequence: u32) -> Receipt {
        Receipt { received, newest: datagram(sequence), ago_ns: 0, window: 0 }
    }

    fn ten() -> Flight {
        let mut flight = Flight::default();
        (0..10).for_each(|n| flight.on_sent(u64::from(n), datagram(n), 100));
        flight
    }

    #[test]
    fn a_missing_datagram_counts_as_lost_after_the_reordering_time_and_no_earlier() {
        let mut flight = ten();
        let heard = flight.on_receipt(100, &receipt(300, 2), 50, 0).unwrap();
        assert_eq!(
            (heard, flight.under_way()),
            (Heard { trip_ns: Some(98), delivered: 300, lost: 0, missed_at: 0 }, 700)
        );
        // 3 and 4 are missing: perhaps overtaken. Then 4 comes.
        assert_eq!(flight.on_receipt(110, &receipt(400, 5), 50, 0).unwrap().lost, 0);
        assert_eq!(flight.on_receipt(120, &receipt(500, 4), 50, 0).unwrap().lost, 0);
        assert_eq!(flight.on_receipt(165, &receipt(600, 6), 50, 0).unwrap().lost, 100);
        assert_eq!((flight.under_way(), flight.heard_up_to()), (300, 700));
        // 3 comes after all.
        assert_eq!(flight.on_receipt(170, &receipt(700, 3), 50, 0).unwrap().lost, 0);
        assert_eq!((flight.lost, flight.highest), (0, 700));
    }

    #[test]
    fn an_overtaken_receipt_a_lie_and_a_name_twice_tell_nothing() {
        let mut flight = ten();
        flight.on_receipt(100, &receipt(500, 4), 50, 0).unwrap();
        assert_eq!(flight.on_receipt(101, &receipt(400, 3), 50, 0), None);
        flight.on_sent(102, Datagram { mark: 0x101, ..datagram(1) }, 100);
        flight.on_sent(103, Datagram { mark: 0x101, ..datagram(1) }, 100);
        let repeated = Receipt { newest: Datagram { mark: 0x101, ..datagram(1) }, ..receipt(600, 0) };
        assert_eq!(flight.on_receipt(104, &repeated, 50, 0).unwrap().trip_ns, None);
        let heard = flight.on_receipt(105, &receipt(u64::MAX, 77), 50, 0).unwrap();
        assert_eq!((heard.delivered, flight.under_way()), (600, 0));
    }

    /// The first retransmit came and was told; its copy leaves, and then the same is told once more: acknowledgements repeat it.
    #[test]
    fn a_receipt_that_is_told_again_is_not_of_a_later_copy() {
        let mut flight = ten();
        let copy = Datagram { mark: REPEATS | 1, ..datagram(4) };
        let told = |now: u64| Receipt { newest: copy, ago_ns: (now - 120) as u32, ..receipt(600, 0) };
        flight.on_sent(100, copy, 100);
        assert_eq!(flight.on_receipt(140, &told(130), 1, 20).unwrap().trip_ns, Some(30));
        flight.on_sent(150, copy, 100);
        assert_eq!(flight.on_receipt(175, &told(165), 1, 20), None, "it left 30 after that arrival");
        let later = Receipt { newest: copy, ago_ns: 2, ..receipt(700, 0) };
        assert_eq!(flight.on_receipt(182, &later, 1, 20).unwrap().trip_ns, Some(30));
    }

    /// A keep-alive asks after a pause: its receipt is certain at once.
    #[test]
    fn a_datagram_sent_long_before_one_that_came_is_lost_at_once() {
        let mut flight = ten();
        flight.on_sent(1000, datagram(10), 32);
        let heard = flight.on_receipt(1100, &receipt(32, 10), 50, 0).unwrap();
        assert_eq!((heard.lost, heard.delivered, flight.under_way()), (1000, 32, 0));
    }

    #[test]
    fn an_unsent_datagram_is_not_in_flight() {
        let mut flight = ten();
        flight.unsent(100);
        assert_eq!((flight.under_way(), flight.records.len()), (900, 9));
    }

    #[test]
    fn a_short_one_is_forgotten_after_ten_seconds() {
        let mut round_trip = ShortestRoundTrip::default();
        assert_eq!(round_trip.and_lately(), None);
        round_trip.measured(0, 10);
        (1..=5).for_each(|n| round_trip.measured(n, 20));
        assert_eq!(round_trip.and_lately(), Some((10, 20)));
        round_trip.measured(HALF_NS + 1, 20);
        assert_eq!(round_trip.known(), Some(10));
        round_trip.measured(2 * HALF_NS + 2, 20);
        assert_eq!(round_trip.known(), Some(20));
    }
}
