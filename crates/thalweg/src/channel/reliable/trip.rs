//! The round trip of a flow, and the time to wait for an answer (RFC 6298).

/// Round trip before the first measurement. RFC 6298 §2.1 says a second for the Internet; a retransmit here is one small
/// datagram within a planned network.
const INITIAL_NS: u64 = 50_000_000;
/// The clock's granularity G of RFC 6298 §2: a thread does not wake up more exactly.
const GRANULARITY_NS: u64 = 1_000_000;
/// The longest round trip: a longer measurement is wrong.
const LONGEST_NS: u64 = 10_000_000_000;

/// A measured round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    smoothed: Option<u64>,
    variation: u64,
}

impl RoundTrip {
    /// Takes one measurement (RFC 6298 §2.2 and §2.3: α = 1/8, β = 1/4).
    pub(crate) fn measured(&mut self, trip_ns: u64) {
        let trip_ns = trip_ns.min(LONGEST_NS);
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.variation) = (Some(trip_ns), trip_ns / 2);
            return;
        };
        self.variation = (3 * self.variation + smoothed.abs_diff(trip_ns)) / 4;
        self.smoothed = Some((7 * smoothed + trip_ns) / 8);
    }

    /// The smoothed round trip in nanoseconds.
    pub(crate) fn smoothed_ns(&self) -> u64 {
        self.smoothed.unwrap_or(INITIAL_NS)
    }

    /// The longest wait for an answer (RFC 6298 §2: K = 4), in nanoseconds.
    pub(crate) fn patience_ns(&self) -> u64 {
        self.smoothed_ns() + (4 * self.variation).max(GRANULARITY_NS)
    }

    /// Time that a frame may be overtaken before it is requested.
    pub(crate) fn reorder_ns(&self) -> u64 {
        (self.smoothed_ns() / 4).clamp(200_000, 5_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_rfc_computes_it() {
        let mut trip = RoundTrip::default();
        assert_eq!(trip.patience_ns(), INITIAL_NS + GRANULARITY_NS);
        trip.measured(100_000_000);
        assert_eq!(trip.patience_ns(), 300_000_000);
        trip.measured(180_000_000);
        assert_eq!((trip.smoothed_ns(), trip.variation), (110_000_000, 57_500_000));
        (0..200).for_each(|_| trip.measured(1_000));
        assert_eq!((trip.smoothed_ns() / 1000, trip.patience_ns() / 100_000), (1, 10));
    }
}
