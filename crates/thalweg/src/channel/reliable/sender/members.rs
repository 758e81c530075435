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
    heard_before: u64, // the number of the next message at its last answer
    unanswered: u32,   // keep-alives since then
    moved_at: u64,     // time at which it last reached its goal
    pub goal: u64,
    unmoved: u32, // keep-alives since then
    absent: bool, // it lost its connection, and may come back
    loss: Loss,
}

/// The most members with a bit of their own; further ones share the last bit.
pub(super) const MOST_TOLD_APART: usize = 64;
/// The time for which a silent member holds up the others, once, besides a round trip and as many unanswered keep-alives as
/// [`Loss::questions`] says. The clock alone gave up members that were present: beside four loops on two processors a publisher's
/// thread asked twice in 250 ms, and if one datagram in five is lost each way, six answers in a row may not come.
const PRESENT_NS: u64 = 500_000_000;
/// The multiple of the time and of the questions after which a member that answers, but does not acknowledge half a window (or
/// all messages), does not hold up the others any more: a question, its answer and a retransmit may be lost.
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

    /// Adds a member, which gets messages from `next` on, unless it is a member already.
    pub(super) fn join(&mut self, id: u64, next: u64) {
        if self.position(id).is_none() {
            let (acknowledged, heard_before, goal) = (next, next, next);
            self.0.push(Member { id, acknowledged, heard_before, goal, ..Member::default() });
        }
    }

    /// Notes that a member lost its connection, and may come back: meanwhile it is not waited for. `false`: there is none with this id.
    pub(super) fn loses(&mut self, id: u64) -> bool {
        let found = self.0.iter_mut().find(|member| member.id == id);
        found.map(|member| member.absent = true).is_some()
    }

    /// Notes that an absent member came back by this id. Gives the number of the first message that it may not have.
    pub(super) fn comes_back(&mut self, now_ns: u64, before: u64, id: u64) -> Option<u64> {
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
    pub(super) fn hold_up(&self, now_ns: u64, first: u64, trip: RoundTrip) -> bool {
        let patience = PRESENT_NS + trip.patience_ns().min(PRESENT_NS); // members measure the round trip
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
    pub(super) fn everybody(&self) -> u64 {
        u64::MAX >> (MOST_TOLD_APART - self.len().clamp(1, MOST_TOLD_APART))
    }
}

impl Member {
    /// Notes an answer of the member when `next` was the number of the next message: `fresh` of those before `seen` came without a
    /// retransmit.
    pub(super) fn heard(&mut self, now_ns: u64, next: u64, seen: u64, fresh: u32) {
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
    pub(super) fn moves(&mut self, now_ns: u64, goal: u64) {
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
