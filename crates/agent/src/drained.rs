//! The rate that a device really takes, by the counters of its queue: what leaves a queue in which something waits all the time. Pure: looks come
//! with their times.
//!
//! Whether something waited all the time is no matter of luck: a queue out of which less has gone between two looks than waited at the first one
//! was never empty between them. A device that is faster than its queue takes what the queue gives, so nothing higher is ever seen than the queue's
//! own rate.

use linux::queueing::Backlog;
use std::time::Duration;

/// Fewest bytes that have to wait: twenty full packets.
const LEAST: u64 = 20 * 1514;
/// Fewest bytes between two looks: one packet more or less is a tenth then.
const FEW: u64 = 10 * 1514;
/// Shortest time between two looks: one takes up to 100 us.
const SHORTEST: Duration = Duration::from_millis(5);
/// Time after which fewer bytes are enough: that is the rate of a slow link.
const LONGEST: Duration = Duration::from_secs(1);

/// A look at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// The time, by any monotonic clock.
    pub at: Duration,
    /// The agent came later than it wanted: then the whole host may have stood still, and its queues with it.
    pub is_late: bool,
    /// What was there.
    pub backlog: Backlog,
}

impl Look {
    /// Something has waited all the time until this other look. Counters that are lower than before are another queue's.
    fn waits_until(&self, later: &Self) -> bool {
        let gone = later.backlog.gone.checked_sub(self.backlog.gone);
        gone.is_some_and(|gone| gone < self.backlog.waiting) && later.backlog.sent >= self.backlog.sent
    }
}

/// A queue that is looked at again and again.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    /// The look since which something has waited.
    first: Option<Look>,
}

impl Draining {
    /// A look. Gives the rate, bit/s, if there was enough to tell.
    pub(crate) fn see(&mut self, look: Look) -> Option<u64> {
        let begins = Some(look).filter(|look| look.backlog.waiting >= LEAST);
        let Some(first) = self.first.filter(|first| !look.is_late && first.waits_until(&look)) else {
            self.first = begins;
            return None;
        };
        let (sent, time) = (look.backlog.sent - first.backlog.sent, look.at.saturating_sub(first.at));
        if time < SHORTEST || sent < FEW && time < LONGEST {
            return None;
        }
        self.first = begins;
        let rate = u128::from(sent) * 8_000_000_000 / time.as_nanos().max(1);
        // A device that takes nothing at all has no rate.
        u64::try_from(rate).ok().filter(|rate| *rate > 0)
    }

    /// The time after which half of what waits has gone at the queue's own rate, bit/s: a second look is surely early enough then.
    pub(crate) fn half(&self, rate: u64) -> Option<Duration> {
        let waiting = self.first?.backlog.waiting;
        let nanoseconds = u128::from(waiting) * 4_000_000_000 / u128::from(rate.max(1));
        Some(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)).max(SHORTEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look(ms: u64, sent: u64, waiting: u64) -> Look {
        Look { at: Duration::from_millis(ms), is_late: false, backlog: Backlog { sent, gone: sent, waiting } }
    }

    #[test]
    fn a_queue_that_was_never_empty_tells_its_rate() {
        let mut queue = Draining::default();
        assert_eq!(queue.see(look(0, 1000, 100_000)), None);
        assert_eq!(queue.half(8_000_000), Some(Duration::from_millis(50)));
        assert_eq!(queue.see(look(50, 51_000, 60_000)), Some(8_000_000));
        assert_eq!(queue.see(look(100, 76_000, 40_000)), Some(4_000_000), "the device is slower than the queue now");
        assert_eq!(queue.see(look(200, 117_000, 90_000)), None, "more has gone than waited: it may have been empty");
        assert_eq!(queue.see(look(300, 137_000, 10_000)), Some(1_600_000));
        assert_eq!((queue.see(look(400, 138_000, 9000)), queue.half(8_000_000)), (None, None), "too little waits");
        assert_eq!(queue.see(look(500, 138_000, 90_000)), None);
        assert_eq!(
            queue.see(Look { is_late: true, ..look(700, 158_000, 90_000) }),
            None,
            "the host may have stood still"
        );
        assert_eq!(queue.see(look(800, 178_000, 90_000)), Some(1_600_000));
    }

    #[test]
    fn a_slow_link_takes_longer_and_another_queue_begins_anew() {
        let mut queue = Draining::default();
        for ms in (0..1000).step_by(100) {
            assert_eq!(queue.see(look(ms, ms * 2, 90_000)), None, "{ms}");
        }
        assert_eq!(queue.see(look(1000, 2000, 90_000)), Some(16_000));
        assert_eq!(queue.see(look(1100, 0, 90_000)), None, "the queue was made anew");
        assert_eq!(queue.see(look(1200, 20_000, 90_000)), Some(1_600_000));
        for ms in (1300..4000).step_by(100) {
            assert_eq!(queue.see(look(ms, 20_000, 90_000)), None, "a device that takes nothing has no rate");
        }
    }

    proptest! {
        /// A queue of a device with this rate, into which bursts come. What is told is the device's rate, whenever one looks.
        #[test]
        fn nothing_is_told_but_the_rate(
            rate in 100_000u64..1_000_000_000,
            bursts in proptest::collection::vec((0u64..400, 0u64..400_000), 1..30),
            looks in proptest::collection::vec(1u64..300, 1..60),
        ) {
            let mut queue = Draining::default();
            // Bytes at a time, in nanoseconds.
            let (mut now, mut sent, mut waiting) = (0u64, 0u64, 0u64);
            let mut next = 0u64;
            let mut arrivals = Vec::new();
            for (pause, bytes) in bursts {
                next += pause * 1_000_000;
                arrivals.push((next, bytes));
            }
            arrivals.reverse();
            let drain = |from: u64, to: u64, waiting: &mut u64, sent: &mut u64| {
                let bytes = (u128::from(to - from) * u128::from(rate) / 8_000_000_000) as u64;
                let bytes = bytes.min(*waiting);
                (*waiting, *sent) = (*waiting - bytes, *sent + bytes);
            };
            for pause in looks {
                let until = now + pause * 1_000_000;
                while let Some((at, bytes)) = arrivals.last().copied().filter(|(at, _)| *at <= until) {
                    drain(now, at.max(now), &mut waiting, &mut sent);
                    (now, waiting) = (at.max(now), waiting + bytes);
                    arrivals.pop();
                }
                drain(now, until, &mut waiting, &mut sent);
                now = until;
                if let Some(told) = queue.see(look(now / 1_000_000, sent, waiting)) {
                    // Each step is rounded down to a byte.
                    prop_assert!(told <= rate && told as f64 >= rate as f64 * 0.98, "{} instead of {}", told, rate);
                }
            }
        }
    }
}
