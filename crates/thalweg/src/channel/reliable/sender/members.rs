//! Members that acknowledge a flow: the messages that each has, and the time for which the others wait for it.

use super::loss::Loss;
use crate::channel::reliable::RoundTrip;

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
    heard_before: u64, // the number of the next message when it was heard last
    unanswered: u32,   // keep-alives since then
    moved_at: u64,     // when it had acknowledged up to its goal last, and what was kept then
    pub goal: u64,
    unmoved: u32, // keep-alives since then
    absent: bool, // it lost its connection, and may come back
    loss: Loss,
}

/// Members that are told apart; those beyond share the last bit.
pub(super) const MOST_TOLD_APART: usize = 64;
/// The time for which a silent member holds up the others, once, besides a round trip and as many unanswered keep-alives as
/// [`Loss::questions`] says. The clock alone gave up members that were there: beside four loops on two processors a publisher's
/// thread asked twice in 250 ms, and where one datagram in five is lost each way, six answers in a row do not come.
const PRESENT_NS: u64 = 500_000_000;
/// The multiple of the time and of the questions after which a member that answers, but acknowledges no half window (or all
/// there was), holds up nobody either: of what it misses a question, its answer and the retransmit may be lost.
const ANSWERS: u32 = 2;

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

    /// A member, which gets what comes from the message `next` on, unless it is one already.
    pub(super) fn join(&mut self, id: u64, next: u64) {
        if self.position(id).is_none() {
            let (acknowledged, heard_before, goal) = (next, next, next);
            self.0.push(Member { id, acknowledged, heard_before, goal, ..Member::default() });
        }
    }

    /// A member lost its connection, and may come back: meanwhile nobody waits for it. `false`: there is none with this id.
    pub(super) fn loses(&mut self, id: u64) -> bool {
        let found = self.0.iter_mut().find(|member| member.id == id);
        found.map(|member| member.absent = true).is_some()
    }

    /// An absent member came back by this id. Gives the number of the first message that it may not have.
    pub(super) fn comes_back(&mut self, now_ns: u64, before: u64, id: u64) -> Option<u64> {
        let member = self.0.iter_mut().find(|member| member.absent && member.id == before)?;
        (member.id, member.absent, member.heard_at, member.unanswered) = (id, false, now_ns, 0);
        member.moves(now_ns, member.goal);
        Some(member.acknowledged)
    }

    /// `true` if some are there, and only absent ones need the message `first`, the oldest that is kept.
    pub(super) fn are_absent(&self, first: u64) -> bool {
        (1..self.len()).contains(&self.present())
            && self.0.iter().all(|member| member.absent || member.acknowledged > first)
    }

    /// The number of members that are there.
    pub(super) fn present(&self) -> usize {
        self.0.iter().filter(|member| !member.absent).count()
    }

    /// A member left. Gives its place.
    pub(super) fn leave(&mut self, id: u64) -> Option<usize> {
        let index = self.position(id)?;
        self.0.remove(index);
        Some(index)
    }

    /// `true` if the others wait for one of them; `first` is the oldest message that is kept.
    pub(super) fn hold_up(&self, now_ns: u64, first: u64, trip: RoundTrip) -> bool {
        let patience = PRESENT_NS + trip.patience_ns().min(PRESENT_NS); // members measure the round trip
        self.0.iter().any(|member| member.acknowledged <= first && !member.is_given_up(now_ns, patience))
    }

    /// The message `at` is the only one that they may acknowledge: they have nothing to say before; who lags behind has.
    pub(super) fn begin(&mut self, now_ns: u64, at: u64) {
        for member in self.0.iter_mut().filter(|member| member.acknowledged >= at) {
            (member.heard_at, member.unanswered) = (now_ns, 0);
            member.moves(now_ns, at + 1);
        }
    }

    /// A keep-alive asked all of them.
    pub(super) fn asked(&mut self) {
        for Member { unanswered, unmoved, .. } in &mut self.0 {
            (*unanswered, *unmoved) = (unanswered.saturating_add(1), unmoved.saturating_add(1));
        }
    }

    /// All have, or do without, what is before this message.
    pub(super) fn all_have(&self) -> u64 {
        self.0.iter().map(|member| member.acknowledged).min().unwrap_or(u64::MAX)
    }

    /// All said something when this message, or a later one, was the next.
    pub(super) fn heard_before(&self) -> u64 {
        self.0.iter().map(|member| member.heard_before).min().unwrap_or(u64::MAX)
    }

    /// The path of the member that loses most.
    pub(super) fn worst(&self) -> Loss {
        let losses = self.0.iter().map(|member| member.loss);
        losses.max_by(|a, b| a.share().total_cmp(&b.share())).unwrap_or_default()
    }

    /// A bit for each.
    pub(super) fn everybody(&self) -> u64 {
        u64::MAX >> (MOST_TOLD_APART - self.len().clamp(1, MOST_TOLD_APART))
    }
}

impl Member {
    /// It said something when `next` was the number of the next message: so much of those before `seen` arrived at once.
    pub(super) fn heard(&mut self, now_ns: u64, next: u64, seen: u64, fresh: u32) {
        (self.heard_at, self.heard_before, self.unanswered) = (now_ns, next, 0);
        self.loss.told(seen, fresh);
    }

    /// It has all before `upto`, or does without: `skipped` so far. Gives how many of those are new. An acknowledgement that was
    /// overtaken says nothing new.
    pub(super) fn acknowledges(&mut self, upto: u64, skipped: u32) -> u64 {
        let passed = upto.saturating_sub(self.acknowledged);
        if passed == 0 {
            return 0;
        }
        let more = skipped.wrapping_sub(self.skipped);
        (self.acknowledged, self.skipped) = (upto, skipped);
        u64::from(more).min(passed)
    }

    /// It acknowledged what it should have, and should get so far next.
    pub(super) fn moves(&mut self, now_ns: u64, goal: u64) {
        (self.moved_at, self.goal, self.unmoved) = (now_ns, goal, 0);
    }

    /// It is absent, or stands still.
    fn is_given_up(&self, now_ns: u64, patience: u64) -> bool {
        let long_ago = |at: u64| now_ns.saturating_sub(at) >= patience;
        let questions = self.loss.questions();
        let silent = long_ago(self.heard_at) && self.unanswered >= questions;
        self.absent || silent || (long_ago(self.moved_at) && self.unmoved >= ANSWERS * questions)
    }
}
