//! The delay of push-pull communications, §2.2 and §2.4.

/// δ = d_pub·T + d_sub·T' (P-21): each node that transmits a sample on its way may hold it for one period of the stream it
/// forwards, the publisher's `period` before the proxy and the scaled one after it. Without a proxy, all hops count with T
/// (P-20). Times in nanoseconds.
///
/// A model, not a bound: transmission, queues and processors are not in it (E-P9).
pub fn hop_delay(hops_before: u32, hops_after: u32, period: u64, scaled: u64) -> u128 {
    u128::from(hops_before) * u128::from(period) + u128::from(hops_after) * u128::from(scaled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_period_per_transmitting_node() {
        // P-20 with k = 3, T = 10, T' = 20: unscaled, proxy at the publisher, at the subscriber.
        assert_eq!([(3, 0), (0, 3), (3, 0)].map(|(before, after)| hop_delay(before, after, 10, 20)), [30, 60, 30]);
        // P-51, node 3 and subscriber 1 of the star: 2T + 2T'.
        assert_eq!(hop_delay(2, 2, 1, 2), 6);
        assert_eq!(hop_delay(0, 2, 1, u64::MAX), 2 * u128::from(u64::MAX), "two waits of ages are twice as long");
    }
}
