//! Marks of the newest positions that were seen, and of a possible jump.

use super::{Arrival, MAX_JUMP, WINDOW};

/// Marks of the last [`WINDOW`] positions that were seen.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub next: Option<u64>,
    first: u64,
    begun_by_one: bool, // position, which may be wrong
    ahead: Option<u64>, // a position too far ahead to be believed
    seen: [u64; (WINDOW / 64) as usize],
}

impl Window {
    pub(super) fn new(next: Option<u64>) -> Self {
        let seen = [0; (WINDOW / 64) as usize];
        Self { next, first: next.unwrap_or(0), begun_by_one: next.is_none(), ahead: None, seen }
    }

    #[inline]
    pub(super) fn note(&mut self, at: u64) -> Arrival {
        if self.next == Some(at) {
            self.ahead = None;
            self.begun_by_one = false;
            self.see(at);
            return Arrival::InOrder;
        }
        self.note_other(at)
    }

    #[cold]
    fn note_other(&mut self, at: u64) -> Arrival {
        let Some(next) = self.next else { return self.begin(at) };
        let is_near = at.abs_diff(next) <= MAX_JUMP;
        if self.begun_by_one && !is_near {
            return self.begin(at);
        }
        self.begun_by_one = false;
        match (at < next, is_near) {
            (true, _) => self.note_behind(at, next),
            (false, true) => self.jump(at),
            (false, false) => self.note_ahead(at),
        }
    }

    /// Notes the first position of all, or the second if it is far from the first.
    fn begin(&mut self, at: u64) -> Arrival {
        (self.next, self.first, self.ahead) = (Some(at), at, None);
        self.forget(at, WINDOW);
        self.see(at);
        Arrival::InOrder
    }

    /// Notes a position far ahead: two of them that are near each other are believed.
    fn note_ahead(&mut self, at: u64) -> Arrival {
        let Some(other) = self.ahead.filter(|other| at.abs_diff(*other) <= MAX_JUMP) else {
            self.ahead = Some(at);
            return Arrival::Ahead;
        };
        if other == at {
            return Arrival::Duplicate;
        }
        let left_out = self.left_out_until(at.min(other)) + self.left_out_until(at.max(other));
        Arrival::Gap(u32::try_from(left_out).unwrap_or(u32::MAX))
    }

    fn jump(&mut self, at: u64) -> Arrival {
        Arrival::Gap(u32::try_from(self.left_out_until(at)).unwrap_or(u32::MAX))
    }

    /// Marks a position at or beyond the next one. Returns how many before it were not seen.
    fn left_out_until(&mut self, at: u64) -> u64 {
        let next = self.next.unwrap_or(at);
        let count = at.saturating_sub(next);
        self.forget(next, count);
        self.see(at);
        self.ahead = None;
        count
    }

    fn see(&mut self, at: u64) {
        self.next = Some(at.wrapping_add(1));
        self.set(at);
    }

    #[cold]
    fn note_behind(&mut self, at: u64, next: u64) -> Arrival {
        // Positions before the first one were not counted as lost, so they may not be taken off.
        if next - at > WINDOW || at < self.first || self.is_set(at) {
            return Arrival::Duplicate;
        }
        self.set(at);
        Arrival::Late
    }

    /// Moves on without a frame, to where the flow is for certain; returns how many positions were left out.
    pub(super) fn skip_to(&mut self, to: u64) -> u32 {
        let Some(next) = self.next else {
            (self.next, self.first) = (Some(to), to);
            return 0;
        };
        let came = self.ahead.take().filter(|at| (next..to).contains(at));
        let before = came.map_or(0, |at| self.left_out_until(at));
        let next = came.map_or(next, |at| at + 1);
        let missing = to.saturating_sub(next);
        if missing > 0 {
            self.forget(next, missing);
            self.next = Some(to);
        }
        u32::try_from(before + missing).unwrap_or(u32::MAX)
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
