//! The rate of a link by what its devices take of full queues, with hysteresis: a radio's rate changes all the time, and each new plan is felt by
//! sessions. Pure: times come as arguments.
//!
//! | a device took of a full queue | the link's rate |
//! |---|---|
//! | less than [`Hysteresis::below`] of it, so many times one after the other | is the least of these, at once |
//! | less than all of it, but not so little | stays: this is the link's rate |
//! | all of it, or the queue was never full, for [`Hysteresis::held`] | is tried twice as high, up to the contract's |
//!
//! No more than a queue gives can be seen, so a higher rate has to be tried. One that does not hold costs a new plan, and another one back. So the
//! time before the next one doubles then, up to [`LONGEST_HELD`], as for links that come and go.

use std::time::Duration;

/// The part of a queue's rate that counts as all of it: looks are exact to some percent.
const ALL: f64 = 0.97;
/// The longest time before a higher rate is tried.
pub const LONGEST_HELD: Duration = Duration::from_secs(640);

/// When a rate that was measured counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hysteresis {
    /// A link is slower if it carries less than this part of what is planned.
    pub below: f64,
    /// So many times one after the other.
    pub reports: u32,
    /// A higher rate is tried when nothing was said against it for so long.
    pub held: Duration,
}

impl Default for Hysteresis {
    /// A tenth; three looks, so that a link is known to be slower 0.6 s after it is; and 10 s, as long as BBR keeps what it knows of a way
    /// (Cardwell et al. 2016).
    fn default() -> Self {
        Self { below: 0.9, reports: 3, held: Duration::from_secs(10) }
    }
}

/// A device of a link.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    /// bit/s that is planned for.
    rate: u64,
    /// bit/s by the contract, and the lowest that can be planned for.
    most: u64,
    least: u64,
    /// Measurements that were too low, one after the other.
    low: Option<Low>,
    /// Since when nothing speaks against a higher rate.
    since: Duration,
    /// How long that has to last.
    held: Duration,
    /// When the rate was raised, until it has lasted for `held`.
    tried: Option<Duration>,
    /// The last time that the rate was taken down.
    fell: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Low {
    count: u32,
    /// bit/s.
    least: u64,
    at: Duration,
}

impl Measured {
    /// A device of which nothing is known yet, at a link with this rate by the contract.
    pub fn new(now: Duration, least: u64, most: u64, rule: &Hysteresis) -> Self {
        Self { rate: most, most, least, low: None, since: now, held: rule.held, tried: None, fell: None }
    }

    /// bit/s that is planned for.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// `true` if nothing is to be remembered of it.
    pub fn is_forgotten(&self, now: Duration) -> bool {
        let is_old = |at: Duration| now.saturating_sub(at) > 2 * self.held;
        self.rate == self.most
            && self.tried.is_none()
            && self.fell.is_none_or(is_old)
            && self.low.is_none_or(|low| is_old(low.at))
    }

    /// It took this rate of a queue that was full all the time and gives the other one, bit/s.
    pub fn took(&mut self, now: Duration, rule: &Hysteresis, taken: u64, queue: u64) {
        if queue < self.rate {
            return; // of a queue that gives less than is planned for nothing more can be taken
        }
        if taken as f64 >= rule.below * self.rate as f64 {
            self.low = None;
            self.tried = self.tried.filter(|raised| now.saturating_sub(*raised) < self.held);
            if (taken as f64) < ALL * self.rate as f64 {
                self.since = now;
            }
            return;
        }
        self.since = now;
        let before = self.low.filter(|low| now.saturating_sub(low.at) < rule.held);
        let (count, least) = before.map_or((1, taken), |low| (low.count + 1, low.least.min(taken)));
        self.low = Some(Low { count, least, at: now });
        if count >= rule.reports {
            self.fall(now, rule, least);
        }
    }

    fn fall(&mut self, now: Duration, rule: &Hysteresis, rate: u64) {
        // Reports of a full link cross it themselves, and may take longer than a rate has to hold.
        let again = self.tried.is_some() || self.fell.is_some_and(|fell| now.saturating_sub(fell) <= 2 * self.held);
        self.held = if again { (2 * self.held).min(LONGEST_HELD.max(rule.held)) } else { rule.held };
        self.rate = rate.clamp(self.least, self.most);
        (self.fell, self.low, self.tried) = (Some(now), None, None);
    }

    /// Time has passed.
    pub fn passes(&mut self, now: Duration) {
        if now.saturating_sub(self.since) < self.held {
            return;
        }
        self.tried = (self.rate < self.most).then_some(now);
        if self.tried.is_some() {
            self.rate = self.rate.saturating_mul(2).min(self.most);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u64 = 10_000_000;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A device, its link and its queue, which gives what is planned for.
    struct Link {
        device: Measured,
        rule: Hysteresis,
        now: Duration,
        /// Changes of the planned rate.
        changes: Vec<u64>,
    }

    impl Link {
        fn new() -> Self {
            let rule = Hysteresis::default();
            Self { device: Measured::new(at(0), 10_000, MOST, &rule), rule, now: at(0), changes: Vec::new() }
        }

        /// For so long it carries this rate; `busy`: the queue is full all the time.
        fn carries(&mut self, rate: u64, busy: bool, time: Duration) {
            let until = self.now + time;
            while self.now < until {
                self.now += at(100);
                let before = self.device.rate();
                if busy {
                    let queue = self.device.rate();
                    self.device.took(self.now, &self.rule, rate.min(queue), queue);
                }
                self.device.passes(self.now);
                if self.device.rate() != before {
                    self.changes.push(self.device.rate());
                }
            }
        }
    }

    #[test]
    fn a_slower_link_counts_at_once_and_a_faster_one_when_it_lasts() {
        let mut link = Link::new();
        link.carries(9_100_000, true, at(60_000));
        assert!(link.changes.is_empty(), "within the band");
        link.carries(4_000_000, true, at(200));
        assert!(link.changes.is_empty(), "two looks");
        link.carries(4_000_000, true, at(100));
        assert_eq!(link.changes, [4_000_000]);
        link.carries(20_000_000, true, at(9900));
        assert_eq!(link.changes, [4_000_000], "it did not last yet");
        link.carries(20_000_000, true, at(10_100));
        assert_eq!(link.changes, [4_000_000, 8_000_000, MOST]);
        link.carries(20_000_000, true, at(30_000));
        assert!(link.device.is_forgotten(link.now));
    }

    #[test]
    fn what_does_not_hold_is_tried_less_and_less_often() {
        let mut link = Link::new();
        link.carries(4_000_000, true, at(3_600_000));
        // Each time up, and down again within three looks.
        let expected: Vec<u64> = [4_000_000, 8_000_000].into_iter().cycle().take(link.changes.len()).collect();
        assert_eq!(link.changes, expected);
        // After 10, 20, 40 … 640 s, and then every 640 s: 10 times in an hour.
        assert!((19..=23).contains(&link.changes.len()), "{:?}", link.changes);
        // Without traffic nothing speaks against it.
        link.changes.clear();
        link.carries(4_000_000, false, at(1_300_000));
        assert_eq!(link.changes.last(), Some(&MOST));
    }

    /// Of a queue the link takes nearly all: no higher rate is tried, but that one has lasted.
    #[test]
    fn an_attempt_that_lasts_within_the_band_is_over() {
        let mut link = Link::new();
        link.carries(4_000_000, true, at(300));
        link.carries(7_600_000, true, at(60_000));
        assert_eq!(link.changes, [4_000_000, 8_000_000]);
        link.changes.clear();
        link.carries(4_000_000, true, at(300));
        link.carries(20_000_000, true, at(10_100));
        assert_eq!(link.changes, [4_000_000, 8_000_000], "the first fall for a long time: 10 s, not 20 s");

        let mut link = Link::new();
        link.carries(9_000_000 - 1, true, at(300));
        link.carries(9_500_000, true, at(60_000));
        assert_eq!(link.device.rate(), MOST);
        assert!(link.device.is_forgotten(link.now));
    }

    #[test]
    fn an_attempt_whose_failure_is_reported_late_makes_the_next_one_later() {
        let rule = Hysteresis { held: at(2000), ..Hysteresis::default() };
        let (mut device, mut raised) = (Measured::new(at(0), 10_000, MOST, &rule), Vec::new());
        for ms in (0..200_000).step_by(100) {
            let before = device.rate();
            if ms % 1000 == 0 {
                device.took(at(ms), &rule, before.min(4_000_000), before);
            }
            device.passes(at(ms));
            if device.rate() > before {
                raised.push(ms);
            }
        }
        // Three reports take as long as the first rate had to hold, and more.
        let pauses: Vec<u64> = raised.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(pauses.len() >= 4, "{raised:?}");
        assert!(pauses.windows(2).all(|two| 2 * two[1] > 3 * two[0]), "{pauses:?}");
    }

    #[test]
    fn looks_far_apart_and_queues_of_a_former_plan_say_nothing() {
        let mut link = Link::new();
        for minute in 0..10 {
            link.device.took(at(minute * 60_000), &link.rule, 1_000_000, MOST);
        }
        assert_eq!(link.device.rate(), MOST);
        for ms in 0..10 {
            link.device.took(at(700_000 + ms), &link.rule, 1_000_000, 1_000_000);
        }
        assert_eq!(link.device.rate(), MOST, "its queue gave no more");
        for ms in 0..3 {
            link.device.took(at(700_100 + ms), &link.rule, 1, MOST);
        }
        assert_eq!(link.device.rate(), 10_000, "no slower than any queue");
    }

    proptest! {
        /// A rate that goes up and down within the band is no news, whenever one looks: at the contract's rate, and at a lower one at which the
        /// link is seen to be no faster once in a while.
        #[test]
        fn within_the_band_nothing_changes(
            low in 100_000u64..MOST,
            parts in proptest::collection::vec((0.901f64..1.2, 1u64..90), 1..200),
        ) {
            for falls in [false, true] {
                let mut link = Link::new();
                if falls {
                    link.carries(low * 9 / 10, true, at(300));
                }
                let planned = link.device.rate();
                link.changes.clear();
                for (part, looks) in &parts {
                    link.carries((planned as f64 * part) as u64, true, at(looks * 100));
                    link.carries((planned as f64 * 0.95) as u64, true, at(100));
                }
                prop_assert_eq!(&link.changes, &Vec::<u64>::new());
            }
        }

        /// Whatever a link carries, it is soon planned for no more than that, but for the band, and what is planned for is never out of range.
        #[test]
        fn a_busy_link_is_planned_for_what_it_carries(
            rates in proptest::collection::vec((10_000u64..2 * MOST, 4u64..600), 1..40),
        ) {
            let mut link = Link::new();
            for (rate, looks) in rates {
                let (mut high, mut before) = (0, link.device.rate());
                for _ in 0..looks {
                    link.carries(rate, true, at(100));
                    let planned = link.device.rate();
                    prop_assert!((10_000..=MOST).contains(&planned));
                    high = if planned > before || rate as f64 >= 0.9 * planned as f64 { 0 } else { high + 1 };
                    prop_assert!(high < 3, "{} is planned for, and {} is there", planned, rate);
                    before = planned;
                }
            }
        }

        /// A link that was slow for a while and is fast again is planned for as before, after a time that depends on the last falls alone.
        #[test]
        fn it_comes_back(rates in proptest::collection::vec(10_000u64..MOST, 1..20)) {
            let mut link = Link::new();
            rates.iter().for_each(|rate| link.carries(*rate, true, at(1000)));
            link.carries(2 * MOST, true, LONGEST_HELD * 11);
            prop_assert_eq!(link.device.rate(), MOST);
            link.carries(2 * MOST, true, LONGEST_HELD * 3);
            prop_assert!(link.device.is_forgotten(link.now));
        }
    }
}
