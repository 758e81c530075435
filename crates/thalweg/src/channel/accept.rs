//! `accept`: which frame is new, which is lost, which comes twice or late (step 9 of the data path). Pure.
//!
//! Two numbers are watched. The *flow sequence* counts message frames on one flow, so a gap in it is loss. The *sample
//! sequence* names a sample for ever, so after a resumed flow or a moved proxy it tells what was delivered already;
//! gaps in it are normal (selection).

/// How far behind the newest frame one is still recognised as late or twice. Above the burst that a re-marked flow can
/// overtake in a queue, and 128 bytes per flow.
pub const WINDOW: u64 = 1024;

/// What one frame is in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The one that was due.
    InOrder,
    /// This many before it are missing: lost, unless they come late.
    Gap(u32),
    /// Missing until now; the loss is corrected.
    Late,
    /// Seen before, or so far behind the window that nobody can tell: not delivered.
    Duplicate,
}

impl Arrival {
    /// True unless the frame must be dropped.
    pub fn is_new(self) -> bool {
        self != Self::Duplicate
    }
}

/// What was counted on one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// New frames.
    pub received: u64,
    /// Frames that never came (so far: one that comes late and is still delivered is taken off again).
    pub lost: u64,
    /// Frames that came again, or far too late.
    pub duplicates: u64,
    /// Frames that came after a later one.
    pub reordered: u64,
    /// Whole samples that were dropped because a later one was delivered already, or they themselves were.
    pub outdated: u64,
}

/// The receiving state of one flow.
#[derive(Clone, Debug)]
pub struct Accept {
    frames: Window,
    samples: Window,
    resumed: Option<u64>, // the last sample delivered before the flow resumed
    floor: Option<u64>,   // the last sample delivered (ordered), or delivered before the flow resumed (unordered)
    ordered: bool,
    late: bool, // the last frame
    counters: Counters,
}

impl Accept {
    /// State for a flow that begins with frame `first`, or `None` to begin with whatever comes first (a multicast
    /// member that joined later). `ordered`: a sample is delivered only if it is newer than the last one.
    pub fn new(first: Option<u32>, ordered: bool) -> Self {
        let frames = Window::new(first.map(|f| u64::from(f) + BASE));
        let (samples, counters) = (Window::new(None), Counters::default());
        Self { frames, samples, resumed: None, floor: None, ordered, late: false, counters }
    }

    /// Says which sample was delivered last on the flow before this one: nothing up to it is delivered again.
    pub fn resume_after(&mut self, sample: u64) {
        self.resumed = self.resumed.max(Some(sample));
        self.floor = self.floor.max(Some(sample));
    }

    /// Notes a message frame (whole or fragment) of this flow sequence.
    #[inline]
    pub fn frame(&mut self, sequence: u32) -> Arrival {
        let arrival = self.frames.note(self.widen(sequence));
        self.late = arrival == Arrival::Late;
        match arrival {
            Arrival::InOrder => self.counters.received += 1,
            Arrival::Gap(n) => {
                self.counters.received += 1;
                self.counters.lost += u64::from(n);
            }
            Arrival::Late => {
                self.counters.received += 1;
                self.counters.reordered += 1;
                self.counters.lost = self.counters.lost.saturating_sub(1);
            }
            Arrival::Duplicate => self.counters.duplicates += 1,
        }
        arrival
    }

    /// Notes a keep-alive or end, which carries the number that the *next* message frame will have. Returns how many
    /// frames before it are newly known as missing: so the loss of the last frames is noticed, too.
    pub fn announced(&mut self, next: u32) -> u32 {
        let missing = self.frames.skip_to(self.widen(next));
        self.counters.lost += u64::from(missing);
        missing
    }

    /// Whether a whole sample is delivered, whose frame was the last one noted.
    #[inline]
    pub fn sample(&mut self, sequence: u64) -> bool {
        let newer = self.floor.is_none_or(|floor| sequence > floor);
        let deliver = newer && (self.ordered || self.samples.note(sequence).is_new());
        if deliver && self.ordered {
            self.floor = Some(sequence);
        }
        if !deliver {
            self.counters.outdated += 1;
            self.counters.lost += u64::from(self.late); // it came, and is lost all the same
        }
        deliver
    }

    /// As [`Accept::sample`], of one that comes from a history after later ones: its flow sends each sample once, so it is new
    /// unless it was delivered before the flow resumed.
    #[cold]
    pub fn historical(&self, sequence: u64) -> bool {
        self.resumed.is_none_or(|resumed| sequence > resumed)
    }

    /// The flow sequence that is due next, once there was one.
    pub fn next_frame(&self) -> Option<u32> {
        self.frames.next.map(|n| n as u32)
    }

    /// The newest sample delivered: where a flow that follows this one resumes.
    pub fn last_sample(&self) -> Option<u64> {
        self.floor.max(self.samples.next.map(|n| n.wrapping_sub(1)))
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The position nearest to the one that is due: the 32 bits of the wire without their wrapping.
    #[inline]
    fn widen(&self, sequence: u32) -> u64 {
        match self.frames.next {
            None => u64::from(sequence) + BASE,
            Some(next) => next.wrapping_add_signed(i64::from(sequence.wrapping_sub(next as u32) as i32)),
        }
    }
}

/// Flow positions start above this, so that one behind the first is never below 0. Its low 32 bits are 0.
const BASE: u64 = 1 << 40;

/// Which of the last [`WINDOW`] positions were seen.
#[derive(Clone, Debug)]
struct Window {
    next: Option<u64>,
    first: u64,
    seen: [u64; (WINDOW / 64) as usize],
}

impl Window {
    fn new(next: Option<u64>) -> Self {
        Self { next, first: next.unwrap_or(0), seen: [0; (WINDOW / 64) as usize] }
    }

    #[inline]
    fn note(&mut self, at: u64) -> Arrival {
        let next = match self.next {
            Some(next) => next,
            None => {
                self.first = at;
                at
            }
        };
        if at < next {
            return self.note_behind(at, next);
        }
        let gap = at - next;
        if gap > 0 {
            self.forget(next, gap);
        }
        self.next = Some(at.wrapping_add(1));
        self.set(at);
        match gap {
            0 => Arrival::InOrder,
            n => Arrival::Gap(u32::try_from(n).unwrap_or(u32::MAX)),
        }
    }

    #[cold]
    fn note_behind(&mut self, at: u64, next: u64) -> Arrival {
        // Before the first position nothing was counted as lost, so nothing may be taken off.
        if next - at > WINDOW || at < self.first || self.is_set(at) {
            return Arrival::Duplicate;
        }
        self.set(at);
        Arrival::Late
    }

    /// Moves on without a frame; returns how many positions were left out.
    fn skip_to(&mut self, to: u64) -> u32 {
        let Some(next) = self.next else {
            (self.next, self.first) = (Some(to), to);
            return 0;
        };
        let missing = to.saturating_sub(next);
        if missing > 0 {
            self.forget(next, missing);
            self.next = Some(to);
        }
        u32::try_from(missing).unwrap_or(u32::MAX)
    }

    /// Clears the marks of `count` positions from `from` on: they come into the window unseen.
    fn forget(&mut self, from: u64, count: u64) {
        if count >= WINDOW {
            self.seen = [0; (WINDOW / 64) as usize];
        } else {
            (from..from + count).for_each(|at| self.seen[word(at)] &= !bit(at));
        }
    }

    fn is_set(&self, at: u64) -> bool {
        self.seen[word(at)] & bit(at) != 0
    }

    #[inline]
    fn set(&mut self, at: u64) {
        self.seen[word(at)] |= bit(at);
    }
}

fn word(at: u64) -> usize {
    (at % WINDOW / 64) as usize
}

fn bit(at: u64) -> u64 {
    1 << (at % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn order_gap_late_and_duplicate_are_told_apart_across_the_wrap() {
        let mut accept = Accept::new(Some(u32::MAX - 1), true);
        assert_eq!(accept.frame(u32::MAX - 1), Arrival::InOrder);
        assert_eq!(accept.frame(2), Arrival::Gap(3));
        assert_eq!(accept.frame(0), Arrival::Late);
        assert_eq!(accept.frame(0), Arrival::Duplicate);
        assert_eq!(accept.frame(3), Arrival::InOrder);
        let want = Counters { received: 4, lost: 2, duplicates: 1, reordered: 1, outdated: 0 };
        assert_eq!((accept.counters(), accept.next_frame()), (want, Some(4)));
    }

    #[test]
    fn before_the_first_frame_and_behind_the_window_nothing_is_corrected() {
        let mut accept = Accept::new(None, true);
        assert_eq!(accept.frame(5), Arrival::InOrder);
        assert_eq!(accept.frame(4), Arrival::Duplicate);
        assert_eq!(accept.frame(5 + 5000), Arrival::Gap(4999));
        assert_eq!(accept.frame(6), Arrival::Duplicate, "outside of the window");
        assert_eq!(accept.frame(5000), Arrival::Late);
        assert_eq!(accept.counters().lost, 4998);
    }

    #[test]
    fn a_keep_alive_shows_that_the_last_frames_were_lost_and_they_may_still_come() {
        let mut accept = Accept::new(Some(0), true);
        accept.frame(0);
        assert_eq!((accept.announced(1), accept.announced(3), accept.announced(3)), (0, 2, 0));
        assert_eq!(accept.frame(2), Arrival::Late);
        assert_eq!(accept.counters().lost, 1);
    }

    #[test]
    fn what_a_new_mark_overtakes_is_lost_and_counted() {
        let mut accept = Accept::new(Some(0), true);
        // 3 and 4 left with a higher mark and came before 1 and 2, which waited in the lower band.
        let arrived = [0, 3, 4, 1, 2, 5];
        let delivered: Vec<u32> =
            arrived.into_iter().filter(|n| accept.frame(*n).is_new() && accept.sample(u64::from(*n) + 1)).collect();
        assert_eq!(delivered, [0, 3, 4, 5]);
        let want = Counters { received: 6, lost: 2, duplicates: 0, reordered: 2, outdated: 2 };
        assert_eq!(accept.counters(), want);
    }

    #[test]
    fn after_a_resumed_flow_only_newer_samples_are_delivered() {
        let mut ordered = Accept::new(Some(0), true);
        ordered.resume_after(10);
        let delivered: Vec<_> = [9, 10, 11, 13, 12, 14].map(|s| ordered.sample(s)).into();
        assert_eq!(delivered, [false, false, true, true, false, true]);
        assert_eq!((ordered.last_sample(), ordered.counters().outdated), (Some(14), 3));
        let mut unordered = Accept::new(Some(0), false);
        unordered.resume_after(10);
        let delivered: Vec<_> = [9, 11, 13, 12, 12].map(|s| unordered.sample(s)).into();
        assert_eq!(delivered, [false, true, true, true, false]);
        assert_eq!(unordered.last_sample(), Some(13));
    }

    proptest! {
        #[test]
        fn counters_agree_with_a_set(first: u32, steps in prop::collection::vec(-40i32..60, 1..300)) {
            let mut accept = Accept::new(Some(first), false);
            let (mut seen, mut at, mut newest, mut again) = (BTreeSet::new(), 0i64, -1i64, 0);
            for step in steps {
                at = (at + i64::from(step)).max(0);
                let arrival = accept.frame(first.wrapping_add(at as u32));
                if at > newest || newest - at < WINDOW as i64 {
                    prop_assert_eq!(arrival.is_new(), seen.insert(at));
                }
                again += u64::from(!arrival.is_new());
                newest = newest.max(at);
            }
            let counters = accept.counters();
            prop_assert_eq!(counters.received, seen.len() as u64);
            prop_assert_eq!(counters.duplicates, again);
            prop_assert_eq!(counters.lost, (newest + 1) as u64 - seen.len() as u64);
        }
    }

    #[test]
    fn what_comes_from_a_history_is_new_unless_it_was_delivered_before_the_flow_resumed() {
        let mut accept = Accept::new(Some(0), true);
        accept.resume_after(4);
        assert!(accept.sample(9) && accept.historical(5) && accept.historical(8));
        assert!(!accept.historical(4));
        assert!(!accept.sample(9) && accept.sample(10), "the order of the others stays");
    }
}
