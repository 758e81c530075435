//! Gathering: small samples of a publisher with a latency budget leave together. Publishers and the planner have the same rule from here.

use std::time::Duration;

/// The longest part of a latency budget that is used for gathering: one call in this time is less than a hundredth of a processor.
pub const LONGEST: Duration = Duration::from_millis(1);
/// Bytes with which a batch leaves at once.
pub const BYTES: usize = 64 << 10;
/// Bytes of the largest sample that gathers: a quarter of a batch.
pub const LARGEST: u64 = BYTES as u64 / 4;
/// How much later than asked for the kernel wakes a thread without a real-time priority, ns (`timerslack_ns`, prctl(2)): the thread that sends
/// a batch is such a one.
const SLACK_NS: u64 = 50_000;

/// The time for which samples gather with this latency budget: half of it. The other half is for the way.
pub fn time(budget: Duration) -> Duration {
    budget.min(2 * LONGEST) / 2
}

/// The longest that a sample waits for others with a latency budget of so many ns: the time of gathering, and what the timer adds.
pub fn longest_wait(budget_ns: u64) -> u64 {
    match nanoseconds(time(Duration::from_nanos(budget_ns))) {
        0 => 0,
        time => time + SLACK_NS,
    }
}

/// The latency budget with which so many samples with this period (ns) leave together; `None`: they do not come within [`LONGEST`].
pub fn budget_for(samples: u64, period: u64) -> Option<u64> {
    let time = period.checked_mul(samples.checked_sub(1)?)?;
    (time <= nanoseconds(LONGEST)).then_some(2 * time)
}

/// Samples that may leave together with this latency budget, when they come with this period (both ns) and so many of them at once.
pub fn batch(budget_ns: u64, period: u64, burst: u32) -> u64 {
    match nanoseconds(time(Duration::from_nanos(budget_ns))) {
        0 => 1,
        time => time / period.max(1) + u64::from(burst.max(1)),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_budget_gathers_a_millisecond_at_most() {
        assert_eq!([0, 1, 400_000, 50_000_000].map(longest_wait), [0, 0, 250_000, 1_050_000]);
        assert_eq!([0, 400_000, 500_000].map(|budget| batch(budget, 100_000, 1)), [1, 3, 3]);
        assert_eq!(batch(400_000, 100_000, 4), 6, "four of them at once");
    }

    #[test]
    fn the_budget_of_a_batch_is_twice_the_time_it_takes_to_come() {
        assert_eq!([1, 2, 11, 12].map(|n| budget_for(n, 100_000)), [Some(0), Some(200_000), Some(2_000_000), None]);
        for samples in 2..=11 {
            assert_eq!(budget_for(samples, 100_000).map(|budget| batch(budget, 100_000, 1)), Some(samples));
        }
        assert_eq!((budget_for(0, 1), budget_for(u64::MAX, u64::MAX)), (None, None));
    }
}
