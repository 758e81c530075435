//! Members that acknowledge a flow: the messages that each has, the loss of its path as it counts it, and the time for which the
//! others wait for it.

use super::{Sender, Sent};
use crate::channel::reliable::{RoundTrip, acknowledges_every, widen};
use crate::wire::Header;
use crate::wire::feedback::Acknowledgement;

/// The members of a flow, by their place among them.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<Member>);

/// One of them.
#[derive(Debug, Default)]
pub(super) struct Member {
    id: u64,
    pub acknowledged: u64,
    skipped: u32, // as it says
    heard_at: u64,
    heard_before: u64, // the number of the next message at its last answer
    unanswered: u32,   // keep-alives since then
    moved_at: u64,     // time at which it last reached its goal
    pub goal: u64,
    unmoved: u32, // keep-alives since then
    absent: bool, // it lost its connection, and may come back
    loss: Loss,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn position(&self, id: u64) -> Option<usize> {
        self.0.iter().position(|member| member.id == id)
    }

    pub(super) fn get(&self, index: usize) -> &Member {
        &self.0[index]
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Member {
        &mut self.0[index]
    }

    /// Adds a member, which gets messages from `next` on, unless it is a member already.
    pub(super) fn join(&mut self, id: u64, next: u64) {
        if self.position(id).is_none() {
            let (acknowledged, heard_before, goal) = (next, next, next);
            self.0.push(Member { id, acknowledged, heard_before, goal, ..Member::default() });
        }
    }

    /// Notes that a member lost its connection, and may come back: meanwhile it is not waited for. `false`: there is none with this id.
    fn loses(&mut self, id: u64) -> bool {
        let found = self.0.iter_mut().find(|member| member.id == id);
        found.map(|member| member.absent = true).is_some()
    }

    /// Notes that an absent member came back by this id. Gives the number of the first message that it may not have.
    fn comes_back(&mut self, now_ns: u64, before: u64, id: u64) -> Option<u64> {
        let member = self.0.iter_mut().find(|member| member.absent && member.id == before)?;
        (member.id, member.absent, member.heard_at, member.unanswered) = (id, false, now_ns, 0);
        member.moves(now_ns, member.goal);
        Some(member.acknowledged)
    }

    /// `true` if some members are present, and only absent ones need the message `first`, the oldest that is kept.
    pub(super) fn are_absent(&self, first: u64) -> bool {
        (1..self.len()).contains(&self.present())
            && self.0.iter().all(|member| member.absent || member.acknowledged > first)
    }

    /// The number of present members.
    pub(super) fn present(&self) -> usize {
        self.0.iter().filter(|member| !member.absent).count()
    }

    /// Removes a member that left. Gives its place.
    pub(super) fn leave(&mut self, id: u64) -> Option<usize> {
        let index = self.position(id)?;
        self.0.remove(index);
        Some(index)
    }

    /// `true` if the others wait for one of them; `first` is the oldest message that is kept.
    pub(super) fn hold_up(&self, now_ns: u64, first: u64, round_trip: RoundTrip) -> bool {
        let patience = PRESENT_NS + round_trip.patience_ns().min(PRESENT_NS); // members measure the round trip
        self.0.iter().any(|member| member.acknowledged <= first && !member.is_given_up(now_ns, patience))
    }

    /// Restarts the time of members that have all messages before `at`, the only one that they may acknowledge now. Members that lag
    /// behind keep theirs.
    pub(super) fn begin(&mut self, now_ns: u64, at: u64) {
        for member in self.0.iter_mut().filter(|member| member.acknowledged >= at) {
            (member.heard_at, member.unanswered) = (now_ns, 0);
            member.moves(now_ns, at + 1);
        }
    }

    /// Notes that a keep-alive asked all members.
    pub(super) fn asked(&mut self) {
        for Member { unanswered, unmoved, .. } in &mut self.0 {
            (*unanswered, *unmoved) = (unanswered.saturating_add(1), unmoved.saturating_add(1));
        }
    }

    /// The first message that some member has neither received nor skipped.
    pub(super) fn all_have(&self) -> u64 {
        self.0.iter().map(|member| member.acknowledged).min().unwrap_or(u64::MAX)
    }

    /// The lowest next message at the last answers: all members answered at or after it.
    pub(super) fn heard_before(&self) -> u64 {
        self.0.iter().map(|member| member.heard_before).min().unwrap_or(u64::MAX)
    }

    /// The path of the member that loses most.
    pub(super) fn worst(&self) -> Loss {
        let losses = self.0.iter().map(|member| member.loss);
        losses.max_by(|a, b| a.share().total_cmp(&b.share())).unwrap_or_default()
    }

    /// A bit for each.
    fn everybody(&self) -> u64 {
        u64::MAX >> (MOST_TOLD_APART - self.len().clamp(1, MOST_TOLD_APART))
    }
}

impl Member {
    /// Notes an answer of the member when `next` was the number of the next message: `fresh` of those before `seen` came without a
    /// retransmit.
    fn heard(&mut self, now_ns: u64, next: u64, seen: u64, fresh: u32) {
        (self.heard_at, self.heard_before, self.unanswered) = (now_ns, next, 0);
        self.loss.told(seen, fresh);
    }

    /// The member has received or skipped all messages before `upto`, and `skipped` so far. Gives how many skipped ones are new. An
    /// overtaken acknowledgement has no news.
    pub(super) fn acknowledges(&mut self, upto: u64, skipped: u32) -> u64 {
        let passed = upto.saturating_sub(self.acknowledged);
        if passed == 0 {
            return 0;
        }
        let more = skipped.wrapping_sub(self.skipped);
        (self.acknowledged, self.skipped) = (upto, skipped);
        u64::from(more).min(passed)
    }

    /// Notes that the member reached its goal, and sets the next one.
    fn moves(&mut self, now_ns: u64, goal: u64) {
        (self.moved_at, self.goal, self.unmoved) = (now_ns, goal, 0);
    }

    /// `true` if the member is absent, or stands still.
    fn is_given_up(&self, now_ns: u64, patience: u64) -> bool {
        let long_ago = |at: u64| now_ns.saturating_sub(at) >= patience;
        let questions = self.loss.questions();
        let silent = long_ago(self.heard_at) && self.unanswered >= questions;
        self.absent || silent || (long_ago(self.moved_at) && self.unmoved >= ANSWERS * questions)
    }
}

/// The share of messages that do not arrive when they are sent first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    share: f64,
    last: Option<(u64, u32)>, // the last reported numbers of seen and fresh messages
}

impl Loss {
    /// Takes a report: the receiver saw messages up to `seen`, and `fresh` of them without a retransmit.
    pub(super) fn told(&mut self, seen: u64, fresh: u32) {
        let Some((seen_before, fresh_before)) = self.last else {
            self.last = Some((seen, fresh));
            return;
        };
        let passed = seen.saturating_sub(seen_before);
        if passed < ENOUGH {
            return;
        }
        let came = u64::from(fresh.wrapping_sub(fresh_before)).min(passed);
        let now = 1.0 - came as f64 / passed as f64;
        // Up at once, down slowly: losses come in bursts.
        self.share = if now > self.share { now } else { (7.0 * self.share + now) / 8.0 };
        self.last = Some((seen, fresh));
    }

    pub(super) fn share(&self) -> f64 {
        self.share
    }

    pub(super) fn is_noticeable(&self) -> bool {
        self.share > NOTICEABLE
    }

    /// The number of unanswered questions in a row that shows an absent member, if answers are lost as often as messages.
    fn questions(&self) -> u32 {
        let answered = (1.0 - self.share.min(0.99)).powi(2);
        let count = (SILENT.ln() / (1.0 - answered).ln()).ceil();
        (count as u32).clamp(QUESTIONS.0, QUESTIONS.1)
    }

    /// The pause between two copies: enough of them leave within two round trips that all are lost only rarely.
    pub(super) fn interval_ns(&self, trip_ns: u64) -> u64 {
        let share = self.share.clamp(NOTICEABLE, 0.5);
        let copies = (RARE.ln() / share.ln()).ceil() as u64;
        (2 * trip_ns / copies.max(1)).max(SHORTEST_NS)
    }
}

impl Sender {
    /// Adds a member, which gets messages from now on. Returns the number of its first message.
    pub(crate) fn join(&mut self, id: u64) -> u32 {
        self.members.join(id, self.next());
        self.next() as u32
    }

    /// Notes that a member lost its connection. Its unacknowledged messages are kept for it, but hold up no other member.
    pub(crate) fn loses(&mut self, id: u64) -> bool {
        self.members.loses(id)
    }

    /// Notes that a member came back by this id; it gets the flow's position at once. Returns the number of the first message that
    /// it may not have. `None`: the member is not known any more.
    pub(crate) fn comes_back(&mut self, now_ns: u64, before: u64, id: u64) -> Option<u32> {
        let first = self.members.comes_back(now_ns, before, id)?;
        (self.beats, self.beat_at) = (0, Some(now_ns));
        Some(first as u32)
    }

    /// A member left.
    pub(crate) fn leave(&mut self, id: u64) {
        if let Some(index) = self.members.leave(id) {
            self.early.clear(); // its entries have the numbers of members
            self.tells = 0; // so do these
            let below = (1u64 << index.min(63)) - 1;
            let without = |bits: u64| (bits & below) | ((bits >> 1) & !below);
            for sent in &mut self.sent {
                (sent.by, sent.got) = (without(sent.by), without(sent.got));
            }
            self.forget_acknowledged();
        }
    }

    /// Notes the messages that a member has or has given up. `true`: the member advanced, and has all that it should have by now.
    pub(super) fn receive_feedback(
        &mut self,
        now_ns: u64,
        index: usize,
        (upto, seen): (u64, u64),
        header: &Header,
        fresh: u32,
    ) -> (bool, bool) {
        let next = self.next();
        let member = self.members.get_mut(index);
        member.heard(now_ns, next, seen, fresh);
        let before = member.acknowledged;
        self.counters.skipped += member.acknowledges(upto, (header.sample >> 32) as u32);
        let (acknowledged, moves) = (member.acknowledged, member.acknowledged >= member.goal);
        if moves {
            let goal = self.goal(acknowledged);
            self.members.get_mut(index).moves(now_ns, goal);
        }
        (acknowledged > before, moves)
    }

    /// The next goal of a member that has all messages before this number: half a window more, but no more than the retransmits
    /// of that time.
    fn goal(&self, acknowledged: u64) -> u64 {
        let from = acknowledged.max(self.first);
        let half = acknowledges_every(self.settings.window) as usize;
        let mut bytes = 0_usize;
        let fits = |sent: &&Sent| {
            let begun = bytes > 0;
            bytes = bytes.saturating_add(sent.entry.buffer.payload().len());
            !begun || bytes <= GOAL_BYTES
        };
        let ahead = self.sent.iter().skip((from - self.first) as usize).take(half);
        from + ahead.take_while(fits).count() as u64
    }

    /// A member that lists its gaps has all messages between them.
    pub(super) fn note_got(&mut self, bit: u64, upto: u64, seen: u64, said: &Acknowledgement<'_>) {
        let all = self.members.everybody();
        let (first, next) = (self.first, self.next());
        let mut gaps = said.gaps().map(|gap| (widen(gap.first, next), u64::from(gap.count))).peekable();
        for at in upto.max(first)..seen.min(next) {
            while gaps.peek().is_some_and(|(gap, count)| gap + count <= at) {
                gaps.next();
            }
            let sent = &mut self.sent[(at - first) as usize];
            if gaps.peek().is_none_or(|(gap, _)| at < *gap) {
                sent.got |= bit;
                if sent.got == all {
                    sent.copy_at = None;
                }
            }
        }
    }
}

/// The most bytes that a member with losses has to acknowledge in the time after which it counts as standing still (one message may be
/// larger): a quarter of a second of a group's retransmits (4 MB/s), which other members need, too.
const GOAL_BYTES: usize = 1_000_000;
/// The most members with a bit of their own; further ones share the last bit.
pub(super) const MOST_TOLD_APART: usize = 64;
/// The time for which a silent member holds up the others, once, besides a round trip and as many unanswered keep-alives as
/// [`Loss::questions`] says. The clock alone gave up members that were present: beside four loops on two processors a publisher's
/// thread asked twice in 250 ms, and if one datagram in five is lost each way, six answers in a row may not come.
const PRESENT_NS: u64 = 500_000_000;
/// The multiple of the time and of the questions after which a member that answers, but does not acknowledge half a window (or
/// all messages), does not hold up the others any more: a question, its answer and a retransmit may be lost.
const ANSWERS: u32 = 2;

/// Messages between two estimates.
const ENOUGH: u64 = 16;
/// The least share of losses that matters.
const NOTICEABLE: f64 = 1.0 / 128.0;
/// The probability of a message that is late by two round trips (U-26).
const RARE: f64 = 1e-4;
/// The probability that all questions to a member, or its answers, were lost.
const SILENT: f64 = 1e-6;
/// Bounds of their number.
const QUESTIONS: (u32, u32) = (16, 32);
/// The shortest pause between two copies: a thread does not wake up more exactly.
const SHORTEST_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_what_came_and_copies_follow_the_share() {
        let mut loss = Loss::default();
        loss.told(100, 90);
        assert_eq!((loss.share(), loss.is_noticeable()), (0.0, false), "one count is no rate");
        loss.told(110, 95);
        assert_eq!(loss.share(), 0.0, "too few");
        loss.told(200, 160);
        assert!((loss.share() - 0.3).abs() < 1e-9);
        assert_eq!(loss.interval_ns(40_000_000), 10_000_000, "0.3^8 < 10⁻⁴");
        assert_eq!((Loss::default().questions(), loss.questions()), (16, 21), "0.51^21 < 10⁻⁶");
        (3..100).for_each(|n| loss.told(n * 100, 160 + (n as u32 - 2) * 100));
        assert!(!loss.is_noticeable() && loss.interval_ns(40_000_000) == 40_000_000, "0.0078^2 < 10⁻⁴");
    }
}
