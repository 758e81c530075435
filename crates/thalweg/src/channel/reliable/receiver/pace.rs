//! The pace of a flow's samples, and their lateness.

/// The pace of samples, for the longest silence (U-26).
#[derive(Debug, Default)]
pub(super) struct Pace {
    pub delivered_at: u64,
    pub last: Option<(u64, u64)>, // number and stamp of the last sample
    pub period: u64,
    transit: Option<i64>, // the shortest transit, including the difference of the two clocks
    begun_by_one: bool,   // the transit comes from one message, whose stamp may be wrong
    claimed: Option<i64>, // a transit too short to be believed
}

/// The shortest transit follows a drifting clock, by the difference divided by this, with every message.
const DRIFT: i64 = 1024;
/// A transit that is shorter by more than the deadline divided by this is believed only when the next one is, too: otherwise one
/// wrong stamp would make all later messages late.
const BELIEVED: u64 = 4;

impl Pace {
    /// The message with this number, published at `stamp`, is delivered.
    pub(super) fn delivered(&mut self, now_ns: u64, at: u64, stamp: u64) {
        self.delivered_at = now_ns;
        if let Some((number, last)) = self.last.filter(|(number, _)| at > *number) {
            let each = stamp.saturating_sub(last) / (at - number);
            self.period = if self.period == 0 { each } else { self.period - self.period / 8 + each / 8 };
        }
        self.last = Some((at, stamp));
    }

    /// The excess of this transit over the shortest: the message's age beyond the inevitable delay.
    pub(super) fn late_by(&mut self, now_ns: u64, stamp: u64, deadline_ns: u64) -> u64 {
        let transit = now_ns.wrapping_sub(stamp) as i64;
        let before = self.transit.unwrap_or(transit);
        let shorter = before.saturating_sub(transit);
        let restarts = self.begun_by_one && before.abs_diff(transit) > deadline_ns;
        let believed = deadline_ns / BELIEVED;
        let is_jump = u64::try_from(shorter).is_ok_and(|shorter| shorter > believed);
        if is_jump && !restarts && !self.is_claimed_again(transit, believed) {
            return 0;
        }
        self.claimed = None;
        let shortest = if restarts { transit } else { transit.min(before.saturating_sub(shorter / DRIFT)) };
        self.begun_by_one = self.transit.is_none() || restarts;
        self.transit = Some(shortest);
        transit.abs_diff(shortest)
    }

    #[cold]
    fn is_claimed_again(&mut self, transit: i64, believed: u64) -> bool {
        self.claimed.replace(transit).is_some_and(|claimed| claimed.abs_diff(transit) <= believed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn by_one_wrong_stamp_nothing_else_is_late() {
        for wrong in [0, 1, 60 * MS, 400 * MS, u64::MAX, 1 << 63, (1 << 63) - 1, u64::MAX - 100 * MS, 90_000 * MS] {
            for first in [true, false] {
                let mut pace = Pace::default();
                let good = |pace: &mut Pace, n: u64| pace.late_by((1000 + n) * MS, n * MS, 100 * MS);
                if !first {
                    (0..5).for_each(|n| assert_eq!(good(&mut pace, n), 0));
                }
                pace.late_by(1005 * MS, wrong, 100 * MS);
                pace.delivered(1005 * MS, 7, wrong);
                (6..50).for_each(|n| assert!(good(&mut pace, n) < 100 * MS, "{wrong}, {first}, {n}"));
                pace.delivered(1006 * MS, 8, 6 * MS);
            }
        }
    }

    #[test]
    fn a_changed_clock_is_believed_with_the_second_message() {
        let mut pace = Pace::default();
        (0..5).for_each(|n| assert_eq!(pace.late_by((1000 + n) * MS, n * MS, 100 * MS), 0));
        assert_eq!([5, 6].map(|n| pace.late_by((1000 + n) * MS, (10_000 + n) * MS, 100 * MS)), [0, 0]);
        assert!(pace.late_by(1007 * MS, 9_907 * MS, 100 * MS) > 99 * MS);
    }
}
