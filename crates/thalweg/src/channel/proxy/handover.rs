//! Moving a proxy while samples flow: a new flow opens beside the old one, and its samples are held until the old one has
//! delivered all before them. Pure: time is an argument.
//!
//! Nothing is left out beyond what the selections leave out, and nothing comes twice: a sample is delivered only if it is
//! newer than the last one, whichever flow brings it. If the new flow fails first, the old one just goes on.

use super::Selection;
use std::collections::VecDeque;

/// How long the old flow may take to bring what is missing, besides two periods of the stream: a round trip, and a pause of
/// a thread that has a sample in its hands. Later it counts as lost.
pub const PATIENCE_NS: u64 = 200_000_000;

/// The state of one move. `T` is what is held of a sample.
#[derive(Debug)]
pub struct Handover<T> {
    old: Selection,
    /// The new flow brings all that it selects after this one.
    after: u64,
    last: u64,
    held: VecDeque<Held<T>>,
    depth: usize,
    /// A sample of the old flow passed since the move began …
    passed: bool,
    /// … and one of the new.
    begun: bool,
    taken_over: bool,
}

#[derive(Debug)]
struct Held<T> {
    seq: u64,
    stamp_ns: u64,
    received_ns: u64,
    sample: T,
}

impl<T> Handover<T> {
    /// A move away from a flow with the selection `old` that has delivered up to `last`, or just now one more; at most
    /// `depth` samples are held.
    pub fn new(old: Selection, last: u64, depth: usize) -> Self {
        let (held, depth) = (VecDeque::new(), depth.max(1));
        Self { old, after: 0, last, held, depth, passed: false, begun: false, taken_over: false }
    }

    /// The same, to a flow that brings what follows sample `after`.
    pub fn to_one_after(self, after: u64) -> Self {
        Self { after, ..self }
    }

    /// A sample of the old flow came: whether it is delivered, before anything [`Handover::released`].
    pub fn old(&mut self, seq: u64) -> bool {
        if !std::mem::replace(&mut self.passed, true) {
            // One more may have been delivered while the move began; the flow is in order.
            self.last = self.last.max(self.old.last_before(seq));
        }
        // What follows the first held one comes by the new flow, in its order.
        self.taken_over |= self.held.front().is_some_and(|first| seq >= first.seq);
        if (self.taken_over && seq > self.after) || seq <= self.last {
            return false;
        }
        self.last = seq;
        self.take_over_if_complete();
        true
    }

    /// A sample of the new flow came: whether it is delivered. `keep` makes what is held of it.
    pub fn new_one(&mut self, seq: u64, stamp_ns: u64, now_ns: u64, keep: impl FnOnce() -> T) -> bool {
        self.begun = true;
        if self.taken_over && self.held.is_empty() && seq > self.last {
            self.last = seq;
            return true;
        }
        if seq > self.last && self.held.back().is_none_or(|newest| seq > newest.seq) {
            self.held.push_back(Held { seq, stamp_ns, received_ns: now_ns, sample: keep() });
        }
        self.take_over_if_complete();
        self.taken_over |= self.held.len() >= self.depth || self.is_late(now_ns);
        false
    }

    /// The old flow has nothing more to bring when it has delivered the last one before the first that is held, or is
    /// ahead of the new one. What it has delivered is known for sure once a sample of it passed here.
    fn take_over_if_complete(&mut self) {
        let behind = self.held.front().is_none_or(|first| self.last >= self.old.last_before(first.seq));
        self.taken_over |= self.begun && self.passed && behind;
    }

    /// Nothing comes by either flow, and `came` was the last that the old one delivered: the new one takes over, if it brings
    /// all that follows.
    pub fn nothing_comes(&mut self, came: u64) {
        (self.last, self.passed) = (self.last.max(came), true);
        self.held.retain(|held| held.seq > came);
        self.taken_over |= self.held.is_empty() && came >= self.old.last_before(self.after.saturating_add(1));
    }

    /// The old flow ended: the new one takes over at once.
    pub fn old_ended(&mut self) {
        self.taken_over = true;
    }

    /// The last sample that was delivered.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether the new flow has taken over.
    pub fn is_taken_over(&self) -> bool {
        self.taken_over
    }

    /// The held samples that are to be delivered now, the oldest first, one at each call.
    pub fn released(&mut self) -> Option<T> {
        if !self.taken_over {
            return None;
        }
        let held = std::iter::from_fn(|| self.held.pop_front()).find(|held| held.seq > self.last)?;
        self.last = held.seq;
        Some(held.sample)
    }

    /// Two periods and the patience have passed since the first held sample.
    fn is_late(&self, now_ns: u64) -> bool {
        let (Some(first), Some(newest)) = (self.held.front(), self.held.back()) else { return false };
        let periods = newest.stamp_ns.saturating_sub(first.stamp_ns) / (self.held.len() as u64 - 1).max(1) * 2;
        self.held.len() > 1 && now_ns.saturating_sub(first.received_ns) > periods.saturating_add(PATIENCE_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: u64 = 1_000_000;

    /// What the subscriber gets while flows bring their samples at these times.
    struct Subscriber {
        delivered: Vec<u64>,
    }

    impl Subscriber {
        fn release(&mut self, handover: &mut Handover<u64>) {
            self.delivered.extend(std::iter::from_fn(|| handover.released()));
        }
        fn old(&mut self, handover: &mut Handover<u64>, seq: u64) {
            self.delivered.extend(handover.old(seq).then_some(seq));
            self.release(handover);
        }
        fn new_one(&mut self, handover: &mut Handover<u64>, seq: u64, now: u64) {
            self.delivered.extend(handover.new_one(seq, seq * PERIOD, now, || seq).then_some(seq));
            self.release(handover);
        }
    }

    proptest! {
        /// Two flows in virtual time, each with its delay; the new one opens at some sample. Whatever the order in which
        /// the two bring theirs, the subscriber gets exactly the selected samples, in order.
        #[test]
        fn no_gap_and_nothing_twice(
            n in 1..20u32,
            opens in 50..150u64,
            delay in (0..30 * PERIOD, 0..30 * PERIOD),
        ) {
            let selection = Selection::every(n).unwrap();
            let selected = || (1..=600u64).filter(|seq| selection.takes(*seq));
            // What the old flow brings before the new one opens is delivered at once; of the last of these the move is
            // not told, for it is just being delivered.
            let shut = opens * PERIOD;
            let (at_once, later): (Vec<u64>, Vec<u64>) = selected().partition(|seq| seq * PERIOD + delay.0 < shut);
            let known = at_once.len().saturating_sub(2);
            let last = at_once.get(known).copied().unwrap_or(0);
            let mut arrivals: Vec<(u64, bool, u64)> = later.iter().map(|seq| (seq * PERIOD + delay.0, false, *seq)).collect();
            arrivals.extend(selected().filter(|seq| *seq >= opens).map(|seq| (seq * PERIOD + delay.1, true, seq)));
            arrivals.sort_unstable();
            let mut handover = Handover::new(selection, last, 64);
            let mut subscriber = Subscriber { delivered: at_once };
            for (now, new, seq) in arrivals {
                match new {
                    false => subscriber.old(&mut handover, seq),
                    true => subscriber.new_one(&mut handover, seq, now),
                }
            }
            prop_assert!(handover.is_taken_over());
            prop_assert_eq!(subscriber.delivered, selected().collect::<Vec<_>>());
        }

        /// The new flow never delivers, and ends: all comes by the old one.
        #[test]
        fn a_new_flow_that_fails_changes_nothing(n in 1..20u32, count in 1..100u64) {
            let selection = Selection::every(n).unwrap();
            let mut handover = Handover::new(selection, 0, 8);
            let mut subscriber = Subscriber { delivered: Vec::new() };
            let selected: Vec<u64> = (1..=count).filter(|seq| selection.takes(*seq)).collect();
            selected.iter().for_each(|seq| subscriber.old(&mut handover, *seq));
            prop_assert!(!handover.is_taken_over());
            prop_assert_eq!(subscriber.delivered, selected);
        }
    }

    #[test]
    fn an_old_flow_that_falls_silent_is_not_waited_for_long() {
        let mut handover = Handover::new(Selection::ALL, 10, 64);
        let mut subscriber = Subscriber { delivered: Vec::new() };
        subscriber.new_one(&mut handover, 13, 0);
        subscriber.new_one(&mut handover, 14, PATIENCE_NS);
        assert!(subscriber.delivered.is_empty(), "11 and 12 may still come");
        subscriber.new_one(&mut handover, 15, PATIENCE_NS + 2 * PERIOD + 1);
        assert_eq!(subscriber.delivered, [13, 14, 15]);
        subscriber.old(&mut handover, 11); // too late
        assert_eq!(subscriber.delivered, [13, 14, 15]);
    }

    #[test]
    fn what_is_held_is_bounded_and_an_ended_flow_is_not_waited_for() {
        let mut handover = Handover::new(Selection::ALL, 10, 3);
        let mut subscriber = Subscriber { delivered: Vec::new() };
        (13..16).for_each(|seq| subscriber.new_one(&mut handover, seq, 0));
        assert_eq!(subscriber.delivered, [13, 14, 15]);
        let mut handover = Handover::new(Selection::ALL, 10, 3);
        subscriber.delivered.clear();
        subscriber.new_one(&mut handover, 13, 0);
        handover.old_ended();
        subscriber.release(&mut handover);
        subscriber.new_one(&mut handover, 14, 0);
        assert_eq!(subscriber.delivered, [13, 14]);
    }

    /// Nothing is published any more: the move ends all the same, if the new flow brings all that the old one did not.
    #[test]
    fn a_move_ends_while_nothing_comes_unless_something_would_be_left_out() {
        let every_third = Selection::every(3).unwrap();
        let (mut missing, mut complete) =
            (Handover::new(every_third, 3, 8).to_one_after(8), Handover::new(every_third, 3, 8).to_one_after(8));
        missing.nothing_comes(3);
        assert!(!missing.is_taken_over(), "6 is on its way");
        let mut subscriber = Subscriber { delivered: vec![3] };
        subscriber.old(&mut missing, 6);
        missing.nothing_comes(6);
        assert!(missing.is_taken_over());
        subscriber.new_one(&mut missing, 9, 0);
        assert_eq!(subscriber.delivered, [3, 6, 9]);
        // What the old one delivered beside the gate comes by the new one, too: once.
        let mut subscriber = Subscriber { delivered: vec![3, 6, 9] };
        subscriber.new_one(&mut complete, 9, 0);
        complete.nothing_comes(9);
        assert!(complete.is_taken_over());
        subscriber.new_one(&mut complete, 12, 0);
        assert_eq!(subscriber.delivered, [3, 6, 9, 12]);
    }
}
