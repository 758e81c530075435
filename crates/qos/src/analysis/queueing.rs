//! Mean delays by the papers' closed forms. A mean is no bound, and the two are kept apart.
//!
//! | model | formulas |
//! |---|---|
//! | [`Mm1`], [`Mm1k`] | queues with Poisson arrivals and exponential service, without limit and with room for K (V-10, V-22) |
//! | [`TwoState`] | Velox's chain of two states, 0: waiting, 1: processing (V-12, V-20; eq. 2 and 3) |
//! | [`Velox`] | Velox's delay, term by term, as its Table 2, as its eq. 4, and with the queues taken right (V-21…V-36) |
//! | [`hop_delay`] | one period per transmitting node (P-20, P-21): the delay of push-pull communications, §2.2 and §2.4 |
//!
//! Times are seconds in pure formulas, and microseconds in the paper's tables.

mod velox;

pub(crate) use velox::{Hop, Velox, network_delay};

/// A queue without limit, one server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mm1 {
    /// λ: arrivals per second, above 0.
    pub arrivals: f64,
    /// 1/μ: mean service time, seconds.
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
}
