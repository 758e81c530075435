//! The shortest recent round trip, and the last measured ones: their difference is the delay of the queue.

/// Half of the time for which a round trip counts as the shortest, in nanoseconds: 10 s as in BBR, kept in two halves.
const HALF_NS: u64 = 5_000_000_000;
/// The number of last measurements; the shortest of them is the present round trip.
const LATELY: usize = 4;

#[derive(Debug, Default)]
pub(super) struct ShortestTrip {
    halves: [Option<u64>; 2], // this one and the one before
    begun: u64,
    last: [u64; LATELY],
    count: usize,
}

impl ShortestTrip {
    pub(super) fn measured(&mut self, now_ns: u64, trip_ns: u64) {
        if now_ns.saturating_sub(self.begun) > HALF_NS {
            self.halves = [None, self.halves[0].or(self.halves[1])];
            self.begun = now_ns;
        }
        self.halves[0] = Some(self.halves[0].map_or(trip_ns, |shortest| shortest.min(trip_ns)));
        self.last[self.count % LATELY] = trip_ns;
        self.count += 1;
    }

    /// The shortest, if there is any.
    pub(super) fn known(&self) -> Option<u64> {
        self.halves.into_iter().flatten().min()
    }

    /// The shortest of all and of the last few.
    pub(super) fn and_lately(&self) -> Option<(u64, u64)> {
        let lately = self.last[..self.count.min(LATELY)].iter().min()?;
        Some((self.known()?, *lately))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_one_is_forgotten_after_ten_seconds() {
        let mut trip = ShortestTrip::default();
        assert_eq!(trip.and_lately(), None);
        trip.measured(0, 10);
        (1..=5).for_each(|n| trip.measured(n, 20));
        assert_eq!(trip.and_lately(), Some((10, 20)));
        trip.measured(HALF_NS + 1, 20);
        assert_eq!(trip.known(), Some(10));
        trip.measured(2 * HALF_NS + 2, 20);
        assert_eq!(trip.known(), Some(20));
    }
}
