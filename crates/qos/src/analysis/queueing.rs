//! Mean delays by the papers' closed forms. A mean is no bound, and the two are kept apart.
//!
//! | model | formulas |
//! |---|---|
//! | [`Mm1`], [`Mm1k`] | queues with Poisson arrivals and exponential service, without limit and with room for K (V-10, V-22) |
//! | [`TwoState`] | Velox's chain of two states, 0: waiting, 1: processing (V-12, V-20; eq. 2 and 3) |
//! | [`Velox`] | Velox's delay (§2.1.3), term by term, as its Table 2, as its eq. 4, and with the queues taken right (V-21…V-36) |
//! | [`hop_delay`] | one period per transmitting node (P-20, P-21): the delay of push-pull communications, §2.2 and §2.4 |
//! | `percentiles` | percentiles of the time in the first two |
//!
//! Times are seconds in pure formulas, and microseconds in the paper's tables.

mod percentiles;

/// A queue without limit, one server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mm1 {
    /// λ: arrivals per second, above 0.
    pub arrivals: f64,
    /// 1/μ: mean service time, seconds. (Velox's list of parameters calls μ the rate at which messages arrive at the subscriber,
    /// and computes with it as the rate of service: E-V12.)
    pub service: f64,
}

impl Mm1 {
    /// ρ = λ/μ: the part of the time in which the server is busy.
    pub(crate) fn utilisation(self) -> f64 {
        self.arrivals * self.service
    }

    /// N̄ = ρ/(1−ρ): messages in the system on average. `None`: ρ ≥ 1, the queue grows without limit.
    pub(crate) fn mean_in_system(self) -> Option<f64> {
        let busy = self.utilisation();
        (busy < 1.0).then(|| busy / (1.0 - busy))
    }

    /// T̄ = N̄/λ = 1/(μ−λ): seconds from arrival to the end of service. Velox's eq. 5 (V-22); it is the time in the system,
    /// service included, and adding P(μ) = 1/μ to it counts the service twice (E-V5).
    pub(crate) fn sojourn(self) -> Option<f64> {
        self.mean_in_system().map(|mean| mean / self.arrivals)
    }

    /// T̄ − 1/μ: seconds before service begins.
    pub(crate) fn wait(self) -> Option<f64> {
        self.sojourn().map(|sojourn| sojourn - self.service)
    }
}

/// A queue that holds `room` messages, the one in service included; messages that find it full are lost (V-10).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mm1k {
    /// Arrivals and service.
    pub queue: Mm1,
    /// K, at least 1.
    pub room: u32,
}

/// Nearer to ρ = 1 than this (times K), the quotients below lose their digits, and their limits are better.
const NEAR: f64 = 1e-4;

impl Mm1k {
    /// p_K = (1−ρ)ρ^K / (1−ρ^(K+1)), 1/(K+1) for ρ = 1: the part of all messages that is lost.
    pub(crate) fn loss(self) -> f64 {
        let (log, places) = self.exponents();
        if log == f64::NEG_INFINITY {
            return 0.0;
        }
        // Both sides divided by ρ^(K+1), so that nothing overflows whichever side of 1 ρ is on.
        if (log * places).abs() < 1e-12 { 1.0 / places } else { (-log).exp_m1() / (-places * log).exp_m1() }
    }

    /// N̄ = ρ/(1−ρ) − (K+1)ρ^(K+1)/(1−ρ^(K+1)), K/2 for ρ = 1: messages in the system on average.
    pub(crate) fn mean_in_system(self) -> f64 {
        let (log, places) = self.exponents();
        if log == f64::NEG_INFINITY {
            return 0.0;
        }
        if (log * places).abs() < NEAR {
            return f64::from(self.room) / 2.0 + log * (places * places - 1.0) / 12.0;
        }
        1.0 / (-log).exp_m1() - places / (-places * log).exp_m1()
    }

    /// N̄ / (λ(1−p_K)): seconds that a message which was not lost spends in the system (Little).
    pub(crate) fn sojourn(self) -> f64 {
        let taken = self.queue.arrivals * (1.0 - self.loss());
        if self.queue.service == 0.0 { 0.0 } else { self.mean_in_system() / taken }
    }

    /// ln ρ and K+1.
    fn exponents(self) -> (f64, f64) {
        (self.queue.utilisation().ln(), f64::from(self.room.max(1)) + 1.0)
    }
}

/// A chain that leaves each of its two states at a rate.
///
/// Velox calls it a Gilbert model. That is a model of bursts of losses, while this one gives the fraction of time in
/// which a node processes (E-V6). Its matrix (eq. 3) has P00 = P11 = 0 with P01 = λ and P10 = μ: its rows add up to λ
/// and μ, not to 1. Read as rates of a chain in continuous time, eq. 2 holds (E-V2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TwoState {
    /// P01 = λ: from waiting to processing, per second.
    pub to_processing: f64,
    /// P10 = μ: from processing to waiting, per second.
    pub to_waiting: f64,
}

impl TwoState {
    /// Eq. 2: π0 = P10/(P10+P01), π1 = P01/(P10+P01): the parts of the time spent waiting and processing. The text after eq. 3 has
    /// them the other way round, against eq. 2 and the paper's own 0.9 and 0.1 (E-V1).
    pub(crate) fn occupancy(self) -> [f64; 2] {
        let sum = self.to_waiting + self.to_processing;
        [self.to_waiting / sum, self.to_processing / sum]
    }
}

/// δ = d_pub·T + d_sub·T' (P-21): each node that transmits a sample on its way may hold it for one period of the stream it
/// forwards, the publisher's `period` before the proxy and the scaled one after it. Without a proxy, all hops count with T
/// (P-20). Times in nanoseconds.
///
/// A model, not a bound: transmission, queues and processors are not in it (E-P9).
pub(crate) fn hop_delay(hops_before: u32, hops_after: u32, period: u64, scaled: u64) -> u128 {
    u128::from(hops_before) * u128::from(period) + u128::from(hops_after) * u128::from(scaled)
}

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
    use super::*;
    use proptest::prelude::*;

    const VELOX: Mm1 = Mm1 { arrivals: 12_000.0, service: 1.0 / 120_000.0 };

    #[test]
    fn the_numbers_of_velox() {
        // V-33: 9.26 µs in the system, N̄ = 0.111, 0.93 µs in the queue, at ρ = 0.1.
        assert!((VELOX.utilisation() - 0.1).abs() < 1e-12);
        assert!((VELOX.mean_in_system().unwrap() - 1.0 / 9.0).abs() < 1e-12);
        assert!((VELOX.sojourn().unwrap() * 1e6 - 9.259).abs() < 1e-3);
        assert!((VELOX.wait().unwrap() * 1e6 - 0.926).abs() < 1e-3);
        // One message in the system, as T_pub = 1/λ has it, takes ρ = 1/2 (E-V3).
        assert_eq!(Mm1 { arrivals: 1.0, service: 0.5 }.mean_in_system(), Some(1.0));
        assert_eq!(Mm1 { arrivals: 1.0, service: 1.0 }.sojourn(), None);
    }

    #[test]
    fn extremes_stay_numbers() {
        for (busy, room) in
            [(0.0, 5), (1e-300, 1), (1.0, 7), (1.0 + 1e-13, 1_000_000), (1e6, 1_000_000), (0.999_999, 1)]
        {
            let queue = Mm1k { queue: Mm1 { arrivals: 1.0, service: busy }, room };
            let (loss, mean, sojourn) = (queue.loss(), queue.mean_in_system(), queue.sojourn());
            assert!((0.0..=1.0).contains(&loss) && mean <= f64::from(room) && sojourn.is_finite(), "{busy} {room}");
        }
        let critical = Mm1k { queue: Mm1 { arrivals: 2.0, service: 0.5 }, room: 9 };
        assert!((critical.loss() - 0.1).abs() < 1e-9 && (critical.mean_in_system() - 4.5).abs() < 1e-9);
    }

    proptest! {
        /// Against the sums over all states.
        #[test]
        fn a_full_queue_loses_what_the_states_say(busy in 0.01..4.0_f64, room in 1_u32..60) {
            let weights: Vec<f64> = (0..=room).map(|n| busy.powi(n as i32)).collect();
            let total: f64 = weights.iter().sum();
            let mean: f64 = weights.iter().enumerate().map(|(n, weight)| n as f64 * weight / total).sum();
            let queue = Mm1k { queue: Mm1 { arrivals: 1.0, service: busy }, room };
            prop_assert!((queue.loss() - weights[room as usize] / total).abs() < 1e-9);
            prop_assert!((queue.mean_in_system() - mean).abs() < 1e-5 * f64::from(room), "{} {mean}", queue.mean_in_system());
        }

        #[test]
        fn with_much_room_it_is_the_queue_without_limit(busy in 0.01..0.9_f64) {
            let queue = Mm1 { arrivals: 1000.0, service: busy / 1000.0 };
            let limited = Mm1k { queue, room: 100_000 };
            prop_assert!((limited.sojourn() / queue.sojourn().unwrap() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_occupancy_of_velox() {
        let chain = TwoState { to_processing: 12_000.0, to_waiting: 120_000.0 };
        let round = |parts: [f64; 2]| parts.map(|part| (part * 1e4).round() / 1e4);
        assert_eq!(round(chain.occupancy()), [0.9091, 0.0909]);
        // Eq. 3 as a chain in discrete time is periodic: half of the steps in each state, at any rates (E-V2).
        let step = |[waiting, processing]: [f64; 2]| [processing, waiting];
        assert_eq!(step(step([0.3, 0.7])), [0.3, 0.7]);
    }

    #[test]
    fn one_period_per_transmitting_node() {
        // P-20 with k = 3, T = 10, T' = 20: unscaled, proxy at the publisher, at the subscriber.
        assert_eq!([(3, 0), (0, 3), (3, 0)].map(|(before, after)| hop_delay(before, after, 10, 20)), [30, 60, 30]);
        // P-51, node 3 and subscriber 1 of the star: 2T + 2T'.
        assert_eq!(hop_delay(2, 2, 1, 2), 6);
        assert_eq!(hop_delay(0, 2, 1, u64::MAX), 2 * u128::from(u64::MAX), "two waits of ages are twice as long");
    }

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
