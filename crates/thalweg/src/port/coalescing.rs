//! Adaptive coalescing: whether a publishing thread outruns the system calls that send its samples.
//!
//! One call per sample is the shortest way for a sample that comes alone, and what limits a thread that publishes in a loop:
//! 64 B over tcp, 0.3 M/s. A thread that spends four fifths of its time in those calls, [`FIRST`] samples in a row, gains more
//! than it loses when small samples leave together, within [`WITHIN`]. As with rent and purchase (Karlin et al., "Competitive
//! snoopy caching", Algorithmica 3, 1988), a burst that ends just then is at most as late again as it was long.
//!
//! Two threads that answer each other look the same where both run on one processor, because a call to send contains the
//! answer. There coalescing ends with its first sample: each time it did not pay, twice as many samples pass
//! unseen until it may begin again, up to 65,536: 10⁶ round trips meet it 25 times.
//!
//! A pure state machine: all times are nanoseconds of the publisher's monotonic clock.

use std::time::Duration;

/// The longest that a small sample waits for others, from the one that is the first of them.
pub(crate) const WITHIN: Duration = Duration::from_micros(50);
/// Samples in a row whose calls took most of the time, before samples leave together: about as many calls as take [`WITHIN`] twice.
const FIRST: u32 = 32;
/// Samples that pass unseen after coalescing that did not pay: twice as many each time, up to this.
const MOST: u32 = 1 << 16;
/// Samples that pass unseen after one whose call did not take most of the time.
const UNSEEN: u32 = 7;
/// Coalescing that did not take in so many samples did not pay.
const PAYS: u32 = 64;
/// Samples further apart than this (start to start) do not outrun anything: no clock is read for them.
const NEAR_NS: u64 = 200_000;
/// Slow samples in a row that end it: a single one may be the scheduler's doing.
const SLOW: u32 = 2;

/// How a port publishes. Touched by the publishing thread only.
#[derive(Debug)]
pub(crate) struct Coalescing {
    on: bool,
    begun_ns: u64,
    ended_ns: u64,
    /// The shortest call of those in a row.
    call_ns: u64,
    in_a_row: u32,
    /// Samples that pass before it is looked at how they follow each other.
    unseen: u32,
    /// The last number of those after coalescing that did not pay.
    backoff: u32,
    together: u32,
    slow: u32,
    measures: bool,
}

impl Default for Coalescing {
    fn default() -> Self {
        Self {
            on: false,
            begun_ns: 0,
            ended_ns: 0,
            call_ns: 0,
            in_a_row: 0,
            unseen: 0,
            backoff: FIRST,
            together: 0,
            slow: 0,
            measures: false,
        }
    }
}

impl Coalescing {
    /// A sample is published at `now`.
    #[inline]
    pub fn begins(&mut self, now: u64) {
        if self.on {
            self.goes_on(now);
        } else if self.unseen > 0 {
            self.unseen -= 1;
        } else if now.saturating_sub(self.begun_ns) < NEAR_NS || self.measures {
            self.counts(now);
        } else {
            self.in_a_row = 0;
        }
        self.begun_ns = now;
    }

    /// When the last sample was published.
    #[inline]
    pub fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

    /// Small samples leave together.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Whether the time is wanted at which a sample's system calls were over.
    #[inline]
    pub fn measures(&self) -> bool {
        self.measures || self.on
    }

    /// The system calls of the sample that began last were over at `now`.
    #[inline]
    pub fn ended(&mut self, now: u64) {
        self.ended_ns = now;
    }

    fn counts(&mut self, now: u64) {
        let took = self.ended_ns.saturating_sub(self.begun_ns);
        if took > 0 && now.saturating_sub(self.ended_ns).saturating_mul(4) < took {
            self.call_ns = if self.in_a_row == 0 { took } else { self.call_ns.min(took) };
            self.in_a_row += 1;
        } else {
            (self.in_a_row, self.unseen) = (0, if took > 0 { UNSEEN } else { 0 });
        }
        self.measures = self.in_a_row > 0 || (self.unseen == 0 && now.saturating_sub(self.begun_ns) < NEAR_NS);
        if self.in_a_row >= FIRST {
            (self.on, self.together, self.slow) = (true, 1, 0);
        }
    }

    fn goes_on(&mut self, now: u64) {
        let gap = now.saturating_sub(self.begun_ns.max(self.ended_ns));
        self.slow = if gap <= self.call_ns { 0 } else { self.slow + 1 };
        self.together = self.together.saturating_add(1);
        if self.slow >= SLOW || u128::from(gap) > WITHIN.as_nanos() {
            let paid = self.together > PAYS;
            self.backoff = if paid { FIRST } else { (self.backoff * 2).min(MOST) };
            self.unseen = if paid { 0 } else { self.backoff };
            (self.on, self.in_a_row, self.measures) = (false, 0, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: u64 = 4_000;

    /// Publishes `count` samples, each `pause` after the one before was sent; how many left together.
    fn publish(port: &mut Coalescing, now: &mut u64, count: u32, pause: u64) -> u32 {
        let mut together = 0;
        for _ in 0..count {
            *now += pause;
            port.begins(*now);
            if port.is_on() {
                together += 1;
                *now += 100;
            } else {
                *now += CALL;
                if port.measures() {
                    port.ended(*now);
                }
            }
        }
        together
    }

    #[test]
    fn a_loop_that_does_nothing_else_coalesces_after_its_first_samples() {
        let (mut port, mut now) = (Coalescing::default(), 1_000_000);
        // The first two are not known to follow each other at once.
        assert_eq!(publish(&mut port, &mut now, FIRST + 1, 200), 0);
        assert_eq!(publish(&mut port, &mut now, 1000, 200), 1000);
        // A thread that was interrupted goes on, one that has become slow does not.
        assert_eq!(publish(&mut port, &mut now, 1, 10_000), 1);
        assert_eq!(publish(&mut port, &mut now, 1000, 200), 1000);
        assert_eq!(publish(&mut port, &mut now, 1000, 10_000), 1);
        // It paid: it begins again as soon.
        let again = publish(&mut port, &mut now, FIRST + 100, 200);
        assert!((100 - UNSEEN..=101).contains(&again), "{again}");
        assert_eq!(publish(&mut port, &mut now, 1, 60_000), 0, "alone after a pause");
    }

    #[test]
    fn samples_with_pauses_and_short_bursts_leave_one_by_one() {
        for pause in [1_500, 5_000, 30_000, 1_000_000] {
            let (mut port, mut now) = (Coalescing::default(), 1_000_000);
            assert_eq!(publish(&mut port, &mut now, 100_000, pause), 0, "{pause} ns");
        }
        let (mut port, mut now) = (Coalescing::default(), 1_000_000);
        for _ in 0..1000 {
            assert_eq!(publish(&mut port, &mut now, FIRST, 200), 0);
            now += 1_000_000;
        }
    }

    /// A round trip that looks like a call: the answer is there when the call returns, unless the sample was kept back.
    #[test]
    fn round_trips_on_one_processor_meet_it_a_few_times_only() {
        let (mut port, mut now, mut kept) = (Coalescing::default(), 1_000_000, 0);
        for _ in 0..1_000_000 {
            now += 500;
            port.begins(now);
            if port.is_on() {
                kept += 1;
                now += 2 * WITHIN.as_nanos() as u64;
            } else {
                now += 12_000;
                if port.measures() {
                    port.ended(now);
                }
            }
        }
        assert!((1..=27).contains(&kept), "{kept} of a million were kept back");
    }

    /// Sample by sample it is late at most by what calls one by one would have taken, and [`WITHIN`].
    #[test]
    fn bursts_of_one_length_are_soon_left_alone() {
        let (mut port, mut now) = (Coalescing::default(), 1_000_000);
        let kept: u32 = (0..1000)
            .map(|_| {
                now += 1_000_000;
                publish(&mut port, &mut now, FIRST + 20, 200)
            })
            .sum();
        assert!(kept <= 12 * 20, "{kept} of {}", 1000 * (FIRST + 20));
    }
}
