//! Token buckets and pacers: they limit the bytes that leave, by a rate and a burst. Pure; time comes as an argument.
//!
//! The state is the moment at which all bytes that left would have left at the rate (the virtual scheduling of ITU-T I.371,
//! annex A): one number, no refilling, exact in integers.

/// A rate in bytes per second, and the burst of bytes that may leave at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes per second, at least 1.
    pub rate: u64,
    /// Bytes that may leave at once after a pause.
    pub burst: u64,
}

/// The remainder of a [`Limit`] at the moment.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    limit: Limit,
    even_at: u64, // when all that was taken would have left at the rate
}

impl Bucket {
    /// A full one.
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, even_at: 0 }
    }

    /// Takes `bytes`. More than the burst are taken when the bucket is full, so that no message waits for ever; the next
    /// bytes then wait longer.
    ///
    /// # Errors
    /// Nanoseconds after which they can be taken.
    pub(crate) fn take(&mut self, now_ns: u64, bytes: usize) -> Result<(), u64> {
        let (cost, burst) = (self.time_of(bytes as u64), self.time_of(self.limit.burst));
        let start = self.even_at.max(now_ns);
        let early = (start + cost.min(burst)).saturating_sub(now_ns + burst);
        if early > 0 {
            return Err(early);
        }
        self.even_at = start + cost;
        Ok(())
    }

    /// Time that `bytes` take at the rate.
    fn time_of(&self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.limit.rate.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
    }
}

/// The pace of datagrams: they leave evenly over a round trip, but for bursts that a thread's wake-up needs. The same virtual
/// scheduling as that of [`Bucket`], at a rate that changes.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    even_at: u64, // when all that left would have left at the rate
}

impl Pacer {
    /// Checks whether a datagram may leave at this rate in bytes per second, with bursts of this many bytes.
    ///
    /// # Errors
    /// The time at which half a burst may leave: a wake-up for each datagram would cost more than sending it.
    #[inline]
    pub(super) fn wait(&self, now_ns: u64, rate: u64, burst: u64) -> Result<(), u64> {
        let most = time_of(burst, rate);
        let ahead = self.even_at.saturating_sub(now_ns);
        if ahead > most { Err(self.even_at.saturating_sub(most / 2)) } else { Ok(()) }
    }

    #[inline]
    pub(super) fn on_sent(&mut self, now_ns: u64, rate: u64, bytes: usize) {
        self.even_at = self.even_at.max(now_ns).saturating_add(time_of(bytes as u64, rate));
    }

    /// Takes back the last datagram, which did not leave.
    pub(super) fn unsent(&mut self, rate: u64, bytes: usize) {
        self.even_at = self.even_at.saturating_sub(time_of(bytes as u64, rate));
    }
}

/// Bytes that leave at once at this rate: a millisecond's, because threads do not wake up more exactly, and at least two datagrams.
pub(super) fn burst(rate: u64, datagram: usize) -> u64 {
    (2 * datagram as u64).max(rate / 1000)
}

/// Nanoseconds that `bytes` take.
fn time_of(bytes: u64, rate: u64) -> u64 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
        let mut bucket = Bucket::new(Limit { rate: 1000, burst: 100 });
        let second = 1_000_000_000;
        assert_eq!((bucket.take(second, 60), bucket.take(second, 40)), (Ok(()), Ok(())));
        assert_eq!(bucket.take(second, 50), Err(50_000_000));
        assert_eq!(bucket.take(second + 50_000_000, 50), Ok(()));
        assert_eq!(bucket.take(10 * second, 5000), Ok(()), "more than the burst, when it is full");
        assert_eq!(bucket.take(10 * second, 1), Err(4_901_000_000));
    }

    proptest! {
        /// No more leaves in any stretch of time than the burst and the rate allow. A sender that waits as long as the error says
        /// gets its bytes.
        #[test]
        fn never_more_than_the_limit(
            rate in 1u64..1_000_000, burst in 1u64..10_000, steps in prop::collection::vec((0u64..50_000_000, 1usize..5000), 1..100),
        ) {
            let (mut bucket, mut now, mut taken) = (Bucket::new(Limit { rate, burst }), 0, Vec::new());
            for (pause, bytes) in steps {
                now += pause;
                if let Err(wait) = bucket.take(now, bytes) {
                    now += wait;
                    prop_assert_eq!(bucket.take(now, bytes), Ok(()));
                }
                taken.push((now, bytes as u64));
            }
            let most = taken.iter().map(|t| t.1).max().unwrap_or(0).max(burst);
            for from in 0..taken.len() {
                let mut sum = 0;
                for (at, bytes) in &taken[from..] {
                    sum += u128::from(*bytes);
                    let allowed = u128::from(most) * 2 + u128::from(at - taken[from].0) * u128::from(rate) / 1_000_000_000 + 100;
                    prop_assert!(sum <= allowed, "{sum} bytes, {allowed} allowed");
                }
            }
        }
    }

    #[test]
    fn a_pacer_lets_a_burst_leave_at_once_and_the_rest_at_the_rate() {
        let (mut pacer, mut now, mut left) = (Pacer::default(), 1000, 0);
        while now < 1_000_000_000 {
            match pacer.wait(now, 1_000_000, 10_000) {
                Ok(()) => {
                    pacer.on_sent(now, 1_000_000, 1000);
                    left += 1;
                }
                Err(at) => now = at,
            }
        }
        assert!((1005..=1015).contains(&left), "{left} kB in a second and a burst of 10");
        let before = pacer.even_at;
        pacer.on_sent(now, 1_000_000, 1000);
        pacer.unsent(1_000_000, 1000);
        assert_eq!(pacer.even_at, before.max(now), "what did not leave costs nothing");
    }
}
