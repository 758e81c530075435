//! The publisher's end: unacknowledged messages, and their retransmits.

mod controlled;
mod members;
mod retransmit;

pub(crate) use retransmit::{Action, EXPECTED, To};

use super::{BASE, Counters, LONGEST_PAUSE_NS, RoundTrip, WINDOW, acknowledges_every, widen};
use crate::channel::bucket::{Bucket, Limit};
use crate::channel::queue::Entry;
use crate::wire::feedback::{Acknowledgement, Gap};
use crate::wire::{ASK, Header};
use qos::control::{LONGEST_BEAT_NS, SHORTEST_IDLE_NS, keep_alive_after_ns};
use std::collections::VecDeque;
use std::ops::Range;

use controlled::Controlled;
use members::{MOST_TOLD_APART, Members};
use retransmit::Rounds;

/// The settings of a flow's channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderSettings {
    /// Messages that are kept without an acknowledgement, at most [`WINDOW`].
    pub window: usize,
    /// Bytes that are kept without an acknowledgement; one message may always be.
    pub bytes: usize,
    /// A full window gives up its oldest message for a new one; otherwise the new one waits.
    pub drops_oldest: bool,
    /// Nanoseconds after which a message is of no use: the lifespan or the deadline, whichever is shorter.
    pub useful_ns: Option<u64>,
    /// There is a deadline: on a lossy path, single datagrams are retransmitted before a request.
    pub hurries: bool,
    /// Bytes of a message that one datagram takes, and bytes of a fragment.
    pub largest: usize,
    /// The limit of retransmits on the path.
    pub repairs: Limit,
}

/// The sending state of a reliable flow.
#[derive(Debug)]
pub(crate) struct Sender {
    settings: SenderSettings,
    sent: VecDeque<Sent>,
    kept: u64, // bytes of those messages
    bytes: usize,
    first: u64, // the number of the oldest kept
    members: Members,
    round_trip: RoundTrip,
    told_trip: u64, // the round trip that members know
    bucket: Bucket,
    controlled: Option<Controlled>, // instead of the bucket
    held_up_until: u64,             // by the bucket or the controller
    wanted: usize,                  // messages that members requested
    asks_from: u64,                 // time of their retransmit: other members may request the same
    early: Vec<(u64, Gap)>,         // gaps of members in a message whose end has not left yet
    beat_at: Option<u64>,
    tells: u64, // members that wait for given-up messages, a bit each: they are told before any retransmit leaves
    beats: u32, // keep-alives since the last acknowledgement
    last_sent: u64,
    period: u64,
    cut_anew: bool, // datagrams are shorter than before
    in_vain: bool,  // the message that was retransmitted last, again and again
    counters: Counters,
}

#[derive(Debug)]
struct Sent {
    entry: Entry,
    sent_at: u64,
    wanted: Vec<Range<u32>>, // bytes; an empty message is 0..1
    by: u64,                 // members that want it, a bit each
    got: u64,                // members that have it
    retransmitted_at: u64,
    retransmitted_to: usize, // bytes before this one were retransmitted recently, within the time of an answer
    copies: u32,
    copy_at: Option<u64>,
    rounds: Rounds,
}

impl Sender {
    /// The start, before any message and without a member: see [`Sender::join`].
    pub(crate) fn new(settings: SenderSettings) -> Self {
        let window = settings.window.clamp(1, WINDOW);
        Self {
            settings: SenderSettings { window, ..settings },
            sent: VecDeque::with_capacity(window.min(256) + 1),
            kept: 0,
            bytes: 0,
            first: BASE,
            members: Members::default(),
            round_trip: RoundTrip::default(),
            told_trip: 0,
            bucket: Bucket::new(settings.repairs),
            controlled: None,
            held_up_until: 0,
            wanted: 0,
            asks_from: 0,
            early: Vec::new(),
            beat_at: None,
            tells: 0,
            beats: 0,
            last_sent: 0,
            period: 0,
            cut_anew: false,
            in_vain: false,
            counters: Counters::default(),
        }
    }

    /// Sets the number of the next message, where the earlier ones are unknown to members.
    pub(crate) fn starts_at(&mut self, first: u32) {
        self.first = widen(first, self.next()) - self.sent.len() as u64;
    }

    /// `true` if a further message has to wait. One silent member of several does not hold up the others: the oldest message is
    /// given up instead, and the member is told when it comes back. A full window whose members were all cut off stays full: the
    /// flow is about to be cut off, and its queue takes the next messages.
    pub(crate) fn is_full(&self, now_ns: u64) -> bool {
        if self.is_held_back(now_ns) {
            return true;
        }
        let most = self.sent.len() >= self.settings.window || self.bytes >= self.settings.bytes;
        let full = most && !self.settings.drops_oldest;
        let alone = self.members.len() == 1 || self.has_only_absent();
        full && (alone || self.members.hold_up(now_ns, self.first, self.round_trip))
    }

    /// The number of unacknowledged messages.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.sent.len()
    }

    /// Takes the unacknowledged messages, the oldest first. Members cannot request them any more.
    pub(crate) fn take_unacknowledged(&mut self) -> Vec<Entry> {
        let sent = std::mem::take(&mut self.sent);
        (self.first, self.wanted, self.kept, self.bytes) = (self.first + sent.len() as u64, 0, 0, 0);
        sent.into_iter().map(|sent| sent.entry).collect()
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// `true` if the oldest message may be given up for a new one: by the settings of a full window, or because only absent members
    /// of a group with others need it.
    pub(crate) fn may_drop_oldest(&self) -> bool {
        self.settings.drops_oldest || self.members.are_absent(self.first)
    }

    /// `true` if all members were cut off.
    pub(crate) fn has_only_absent(&self) -> bool {
        self.members.len() > 0 && self.members.present() == 0
    }

    /// Without memory for more, a window that drops its oldest message gives up all but `bytes`.
    #[cold]
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        while self.may_drop_oldest() && self.bytes > bytes {
            self.give_up(1);
        }
    }

    /// The flags of a frame that is sent now.
    pub(crate) fn flags(&self) -> u16 {
        if self.settings.hurries && self.members.worst().is_noticeable() { ASK } else { 0 }
    }

    /// Notes a message that was sent with this number. An older one may be given up for it. Returns the time of the next look.
    pub(crate) fn sent(&mut self, now_ns: u64, sequence: u32, entry: Entry) -> Option<u64> {
        let at = widen(sequence, self.next());
        self.note_period(now_ns);
        self.note_left(now_ns, sequence, &entry);
        if self.members.all_have() > at {
            (self.wanted, self.kept) = (0, 0); // acknowledged before it was noted
            self.sent.clear();
            self.bytes = 0;
            self.first = at + 1;
            return None;
        }
        if at != self.next() {
            self.give_up(self.sent.len()); // a number was left out: the messages before it are gone
            self.first = at;
        }
        let size = entry.size();
        while self.sent.len() >= self.settings.window || (self.over(size) && !self.sent.is_empty()) {
            self.give_up(1);
        }
        self.bytes += size;
        if self.sent.is_empty() {
            self.members.begin(now_ns, at);
        }
        let small = entry.buffer.payload().len() <= self.settings.largest;
        let hurries = small && self.flags() & ASK != 0;
        let copy_at = hurries.then(|| now_ns + self.members.worst().interval_ns(self.round_trip.smoothed_ns()));
        self.kept += entry.buffer.payload().len() as u64;
        self.sent.push_back(Sent {
            entry,
            sent_at: now_ns,
            wanted: Vec::new(),
            by: 0,
            got: 0,
            retransmitted_at: 0,
            retransmitted_to: 0,
            copies: 0,
            copy_at,
            rounds: Rounds::default(),
        });
        self.beats = 0;
        self.beat_at = Some(self.next_beat(now_ns));
        if !self.early.is_empty() {
            self.want_early(now_ns);
        }
        let repairs = (self.wanted > 0).then_some(self.asks_from);
        copy_at.into_iter().chain(self.beat_at).chain(repairs).min()
    }

    /// Takes an acknowledgement. Returns how many messages need not be kept any more.
    ///
    /// # Errors
    /// The sender is no member, or acknowledges messages that were never sent.
    #[allow(clippy::result_unit_err)]
    pub(crate) fn acknowledge(
        &mut self,
        now_ns: u64,
        id: u64,
        sent_up_to: u32,
        header: &Header,
        said: &Acknowledgement<'_>,
    ) -> Result<usize, ()> {
        let most = widen(sent_up_to, self.next());
        let (upto, seen) = (widen(header.sequence, self.next()), widen(said.seen, self.next()));
        let index = self.members.position(id).ok_or(())?;
        if upto > most + WINDOW as u64 || seen < upto {
            return Err(());
        }
        // The member may have believed a wrong number: messages before it are not waited for any more.
        let (upto, seen) = (upto.min(most), seen.min(most));
        self.counters.acknowledgements += 1;
        self.take_receipt(now_ns, said);
        if said.fresh > 0 && self.controlled.is_none() {
            self.measure(now_ns, widen(header.sample as u32, self.next()), header.stamp_ns);
        }
        let (settles, moved) = self.receive_feedback(now_ns, index, (upto, seen), header, said.fresh);
        let bit = 1 << index.min(MOST_TOLD_APART - 1);
        if header.flags & ASK != 0 {
            self.note_got(bit, upto, seen, said);
        }
        said.gaps().for_each(|gap| self.want_now_or_then(now_ns, bit, gap));
        let before = self.sent.len();
        self.forget_acknowledged();
        if settles || !self.sent.is_empty() {
            self.beats = 0;
        }
        if self.beat_at.is_none_or(|at| at > now_ns) {
            let next = self.waits_for_answer().then(|| self.next_beat(now_ns));
            // In a group, an acknowledgement without news does not postpone the question: acknowledgements are counted.
            let kept = self.beat_at.filter(|_| self.members.len() > 1 && !moved);
            self.beat_at = next.map(|next| kept.map_or(next, |at| at.min(next)));
        }
        if upto < self.first && self.members.get(index).acknowledged < self.first {
            self.tells |= bit; // it waits for given-up messages
        }
        Ok(before - self.sent.len())
    }

    /// The time at which [`Sender::poll`] next has something to do, unless a datagram comes.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let hurries = self.settings.hurries; // without a deadline there are none, among thousands to look at
        let copies = hurries.then(|| self.sent.iter().filter_map(|sent| sent.copy_at).min()).flatten();
        let repairs = (self.wanted > 0).then_some(self.asks_from);
        let later = |at: u64| at.max(self.held_up_until);
        let tells = (self.tells != 0).then_some(0);
        [copies.map(later), repairs.map(later), self.beat_at, tells].into_iter().flatten().min()
    }

    /// The time to look at [`Sender::poll`] again. A flow that was active lately is looked at in time for messages sent in
    /// between.
    pub(crate) fn next_look(&self, now_ns: u64) -> Option<u64> {
        let active = now_ns.saturating_sub(self.last_sent) < ACTIVE_NS;
        self.next_deadline().into_iter().chain(active.then_some(now_ns + SHORTEST_IDLE_NS)).min()
    }

    /// The next datagram that is due, if one is.
    pub(crate) fn poll(&mut self, now_ns: u64) -> Option<Action> {
        self.expire(now_ns);
        if std::mem::take(&mut self.in_vain) {
            return Some(Action::Shorten);
        }
        // Behind a thousand retransmits this answer came 160 ms late, while the oldest of these messages were given up in turn.
        if self.tells != 0 {
            return Some(self.tell(now_ns));
        }
        if now_ns >= self.held_up_until {
            let retransmit = self.retransmit_wanted(now_ns).or_else(|| self.retransmit_unasked(now_ns));
            if retransmit.is_some() {
                self.counters.repaired += 1;
                return retransmit;
            }
        }
        if self.beat_at.is_none_or(|at| at > now_ns) {
            return None;
        }
        let pause = self.idle_ns().max(self.round_trip.patience_ns()) << self.beats.min(8);
        self.beats += 1;
        self.beat_at = self.waits_for_answer().then(|| now_ns + pause.min(LONGEST_BEAT_NS));
        self.told_trip = self.round_trip.smoothed_ns();
        self.members.asked();
        Some(self.keep_alive(now_ns, To::All))
    }

    /// Answers a member that waits for given-up messages, once for each of its reports: that is enough even on a lossy path. The
    /// other members get no keep-alive for it: otherwise one member could address all of them as often as it likes, and make them
    /// seem to stand still.
    fn tell(&mut self, now_ns: u64) -> Action {
        let index = self.tells.trailing_zeros() as usize;
        self.tells &= self.tells - 1;
        let alone = self.members.len() > 1 && index < MOST_TOLD_APART - 1;
        self.keep_alive(now_ns, if alone { To::One(index) } else { To::All })
    }

    fn keep_alive(&mut self, now_ns: u64, to: To) -> Action {
        self.note_asked(now_ns);
        Action::KeepAlive {
            next: self.next() as u32,
            oldest: self.first as u32,
            trip_ns: self.round_trip.smoothed_ns(),
            to,
        }
    }

    /// The next message's number, and the oldest that can be retransmitted.
    pub(crate) fn position(&self) -> (u32, u32) {
        (self.next() as u32, self.first as u32)
    }

    /// The round trip as measured.
    pub(crate) fn round_trip(&self) -> RoundTrip {
        self.round_trip
    }

    /// The share of messages that do not arrive when they are sent first, 0…1.
    #[cfg(test)]
    pub fn loss(&self) -> f64 {
        self.members.worst().share()
    }

    /// The counters so far.
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    fn next(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    fn idle_ns(&self) -> u64 {
        keep_alive_after_ns(self.period)
    }

    /// The time of the next keep-alive, unless a message or an acknowledgement comes before. Publishing does not postpone it while an
    /// answer is overdue: otherwise a member that lost touch would never learn the flow's position.
    fn next_beat(&self, now_ns: u64) -> u64 {
        let idle = now_ns + self.idle_ns();
        self.beat_at.filter(|_| self.is_owed_an_answer()).map_or(idle, |at| at.min(idle))
    }

    /// `true` if a member has not answered to more messages than it acknowledges at a time, besides those in flight.
    fn is_owed_an_answer(&self) -> bool {
        let under_way = self.round_trip.patience_ns() / self.period.max(1);
        let expected = under_way.saturating_add(acknowledges_every(self.settings.window).into());
        self.next().saturating_sub(self.members.heard_before()) > expected
    }

    /// Measures the round trip by a message that arrived `ago_ns` ago. A retransmitted one is ambiguous, and not used (Karn).
    fn measure(&mut self, now_ns: u64, at: u64, ago_ns: u64) {
        let sent = at.checked_sub(self.first).and_then(|index| self.sent.get(index as usize));
        if let Some(round_trip) = sent.and_then(|sent| now_ns.checked_sub(sent.sent_at.saturating_add(ago_ns))) {
            self.measured(now_ns, round_trip);
        }
    }

    /// Takes a round trip. Members that skip what is late are told when it has changed: they wait two of it for a missing message.
    fn measured(&mut self, now_ns: u64, trip_ns: u64) {
        self.round_trip.measured(trip_ns);
        let (now, told) = (self.round_trip.smoothed_ns(), self.told_trip);
        if self.settings.hurries && now.abs_diff(told) > told / 4 {
            self.beat_at = Some(now_ns);
        }
    }

    fn note_period(&mut self, now_ns: u64) {
        let since = now_ns.saturating_sub(self.last_sent).min(LONGEST_PAUSE_NS);
        if self.last_sent > 0 {
            self.period = if self.period == 0 { since } else { (7 * self.period + since) / 8 };
        }
        self.last_sent = now_ns;
    }

    /// `true` if a message of this size exceeds the limit of kept bytes, together with the kept ones. Only a window that may drop
    /// its oldest asks: any other was not full before this message, and keeps at most one message beyond its bytes.
    fn over(&self, size: usize) -> bool {
        self.bytes.saturating_add(size) > self.settings.bytes && self.may_drop_oldest()
    }

    /// Gives up the `count` oldest messages. A member that misses them reports how many it skipped.
    fn give_up(&mut self, count: usize) {
        for sent in self.sent.drain(..count) {
            self.wanted -= usize::from(!sent.wanted.is_empty());
            self.kept -= sent.entry.buffer.payload().len() as u64;
            self.bytes -= sent.entry.size();
        }
        self.first += count as u64;
    }

    /// `true` if a member has not yet received or skipped all sent messages, by its reports. If these are given-up messages, this
    /// holds for some time only.
    fn waits_for_answer(&self) -> bool {
        !self.sent.is_empty() || (self.beats < MOST_BEATS && self.members.all_have() < self.first)
    }

    /// Gives up messages that are too old to be of use (F-14).
    fn expire(&mut self, now_ns: u64) {
        let Some(useful) = self.settings.useful_ns else { return };
        let is_old = |sent: &&Sent| now_ns.saturating_sub(sent.entry.now) > useful;
        let old = self.sent.iter().take_while(is_old).count();
        self.give_up(old);
        if self.sent.is_empty() && old > 0 && self.beat_at.is_none() {
            self.beat_at = Some(now_ns);
        }
    }

    fn forget_acknowledged(&mut self) {
        let count = self.members.all_have().saturating_sub(self.first).min(self.sent.len() as u64) as usize;
        self.give_up(count);
    }
}

/// The most members that get a retransmit by unicast; more get one multicast.
const FEW: u32 = 2;
/// The time that a requested message waits for further requests, if there are several members.
const GATHER_NS: u64 = 2_000_000;
/// A flow that sent a datagram within this time is active.
const ACTIVE_NS: u64 = 1_000_000_000;
/// The most retransmits of a datagram before a request.
const MOST_COPIES: u32 = 8;
/// The most keep-alives that a flow without kept messages sends to members that do not answer: for longer than a host may be
/// silent.
const MOST_BEATS: u32 = 256;
