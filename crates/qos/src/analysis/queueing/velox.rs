//! The delay model of Velox, §2.1.3. Times in microseconds, as in its tables.

/// A hop of a route, times in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hop {
    /// P: processing at the node that forwards onto it; not counted on the first hop, where the sample starts.
    pub forwarding: f64,
    /// L: propagation.
    pub propagation: f64,
    /// T: transmission of one packet.
    pub transmission: f64,
}

/// Eq. 6 (V-23), T_tot = M·L + N·T + (M−1)·T + (M−1)·P for N packets over M equal hops, written for hops that may differ:
/// ΣL + ΣT + (N−1)·max T + ΣP without the first hop's P.
///
/// Table 1 (V-30) gives 171.84 µs with T = 82.92 µs; 8192 bit at 100 Mbit/s are 81.92 µs, with which it would be 169.84.
pub(crate) fn network_delay(hops: &[Hop], packets: u64) -> f64 {
    let each: f64 = hops.iter().map(|hop| hop.propagation + hop.transmission).sum();
    let slowest = hops.iter().map(|hop| hop.transmission).fold(0.0, f64::max);
    let forwarding: f64 = hops.iter().skip(1).map(|hop| hop.forwarding).sum();
    each + packets.saturating_sub(1) as f64 * slowest + forwarding
}

/// The components of Velox's end-to-end delay (V-11), µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Velox {
    /// T_appmid: from the application to the middleware.
    pub hand_in: f64,
    /// T_midapp: from the middleware to the application.
    pub hand_out: f64,
    /// D: the network.
    pub network: f64,
    /// 1/λ: between two samples.
    pub interval: f64,
    /// 1/μ: service.
    pub service: f64,
}

impl Velox {
    /// As Table 2 computes it (V-31): T_pub + T_sub = 1/λ and P + P1 = 1/μ, each once. 306.74 µs.
    ///
    /// The waiting time of a queue is not 1/λ: that would take N̄ = 1, where ρ = 0.1 gives 0.111 (E-V3).
    pub(crate) fn table2(self) -> f64 {
        self.fixed() + self.interval + self.service
    }

    /// Eq. 4 as printed (V-21): 1/λ and 1/μ at the publisher and again at the subscriber. 398.04 µs (E-V4).
    pub(crate) fn eq4_literal(self) -> f64 {
        self.fixed() + 2.0 * (self.interval + self.service)
    }

    /// With the time in the system of eq. 5 at `sides` of the two ends, which is waiting and service in one (E-V5):
    /// 224.70 µs with one, 233.96 with both. `sojourn`: µs.
    pub(crate) fn with_queues(self, sojourn: f64, sides: u8) -> f64 {
        self.fixed() + f64::from(sides) * sojourn
    }

    fn fixed(self) -> f64 {
        self.hand_in + self.network + self.hand_out
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mm1;
    use super::*;

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 0.005, "{found}, wanted {wanted}");
    }

    const TABLE1: Hop = Hop { forwarding: 5.0, propagation: 0.5, transmission: 82.92 };
    const TABLE2: Velox = Velox { hand_in: 1.6, hand_out: 42.0, network: 171.84, interval: 83.3, service: 8.0 };

    #[test]
    fn tables_1_and_2_come_out() {
        near(network_delay(&[TABLE1; 2], 1), 171.84);
        near(network_delay(&[Hop { transmission: 81.92, ..TABLE1 }; 2], 1), 169.84);
        // M·L + N·T + (M−1)·T + (M−1)·P with M = 3, N = 4.
        near(network_delay(&[TABLE1; 3], 4), 1.5 + 6.0 * 82.92 + 10.0);
        near(network_delay(&[], 1), 0.0);
        near(TABLE2.table2(), 306.74);
        near(TABLE2.eq4_literal(), 398.04);
    }

    #[test]
    fn with_the_queues_taken_right() {
        let sojourn = Mm1 { arrivals: 12_000.0, service: 1.0 / 120_000.0 }.sojourn().unwrap() * 1e6;
        near(TABLE2.with_queues(sojourn, 1), 224.70);
        near(TABLE2.with_queues(sojourn, 2), 233.96);
    }
}
