//! Datagrams leave evenly over a round trip, but for bursts that a thread's wake-up needs. The same virtual scheduling as
//! [`Bucket`](crate::channel::bucket::Bucket), at a rate that changes.

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
}

/// Nanoseconds that `bytes` take.
fn time_of(bytes: u64, rate: u64) -> u64 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
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
    }
}
