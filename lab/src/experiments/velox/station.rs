//! A station of a sample's way as a queue, from its trace: arrivals and departures give λ, μ, ρ, the shares of time with n samples
//! in it, and the mean sojourn; beside them M/M/1 and the formula of Pollaczek and Khinchine (V-32).

/// A sample's time at a station, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    /// It arrived.
    pub arrived: u64,
    /// It left.
    pub left: u64,
}

/// Numbers of samples that are told apart; more count with the last one.
pub(super) const STATES: usize = 8;

/// A station's figures. Rates are per second, times in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Station {
    /// Arrivals: λ.
    pub arrivals: f64,
    /// Mean service time: 1/μ. The service of a sample begins once it is there and the one before has left, so a wake-up is
    /// part of it.
    pub service_us: f64,
    /// Mean of the squares of service times, in µs².
    pub square: f64,
    /// Mean time from arrival to departure: T.
    pub sojourn_us: f64,
    /// Mean number of samples in it, over time: N.
    pub number: f64,
    /// The share of time with n samples: π_n.
    pub shares: [f64; STATES],
}

impl Station {
    /// The figures of a trace; `None` of fewer than two visits, or none that takes time.
    pub(super) fn of(visits: &[Visit]) -> Option<Self> {
        let mut visits = visits.to_vec();
        visits.sort_unstable_by_key(|visit| (visit.arrived, visit.left));
        let (first, last) = (visits.first()?.arrived, visits.iter().map(|visit| visit.left).max()?);
        let (count, span) = (visits.len() as f64, last.saturating_sub(first) as f64);
        if visits.len() < 2 || span == 0.0 {
            return None;
        }
        let mean = |sum: f64| sum / count / 1e3;
        let mut free = 0;
        let (mut service, mut square, mut sojourn) = (0.0, 0.0, 0.0);
        for Visit { arrived, left } in &visits {
            let took = left.saturating_sub(free.max(*arrived)) as f64;
            free = free.max(*left);
            service += took;
            square += took * took;
            sojourn += left.saturating_sub(*arrived) as f64;
        }
        let (number, shares) = occupancy(&visits, span);
        Some(Self {
            arrivals: count / span * 1e9,
            service_us: mean(service),
            square: mean(square) / 1e3,
            sojourn_us: mean(sojourn),
            number,
            shares,
        })
    }

    /// The utilisation: ρ = λ/μ.
    pub(super) fn utilisation(&self) -> f64 {
        self.arrivals * self.service_us / 1e6
    }

    /// N / (λ·T): 1 by Little's law where no visit was lost, counted twice or stamped wrongly.
    pub(super) fn little(&self) -> f64 {
        self.number / (self.arrivals * self.sojourn_us / 1e6)
    }

    /// The mean sojourn of M/M/1 with these λ and μ, in µs; infinite for ρ ≥ 1.
    pub(super) fn mm1_us(&self) -> f64 {
        self.waits(self.service_us * self.service_us)
    }

    /// The mean sojourn of M/G/1 with the services as they are distributed (Pollaczek, Khinchine), in µs.
    pub(super) fn mg1_us(&self) -> f64 {
        self.waits(self.square / 2.0)
    }

    /// Service, and the wait λ·(E[S²]/2)/(1 − ρ).
    fn waits(&self, half_square: f64) -> f64 {
        let idle = 1.0 - self.utilisation();
        if idle <= 0.0 {
            return f64::INFINITY;
        }
        self.service_us + self.arrivals / 1e6 * half_square / idle
    }

    /// (1 − ρ)·ρⁿ; the last state has all numbers from it on.
    pub(super) fn mm1_shares(&self) -> [f64; STATES] {
        let busy = self.utilisation().min(1.0);
        std::array::from_fn(|n| busy.powi(n as i32) * if n + 1 < STATES { 1.0 - busy } else { 1.0 })
    }

    /// The states "waiting" and "processing" of the paper's chain (V-12): μ/(λ + μ) and λ/(λ + μ).
    pub(super) fn chain(&self) -> [f64; 2] {
        let busy = self.utilisation();
        [1.0 / (1.0 + busy), busy / (1.0 + busy)]
    }
}

/// The mean number over time and the shares of time, by going through all arrivals and departures: independent of the sojourns.
fn occupancy(visits: &[Visit], span: f64) -> (f64, [f64; STATES]) {
    let arrivals = visits.iter().map(|visit| (visit.arrived, 1));
    let mut events: Vec<(u64, i64)> = arrivals.chain(visits.iter().map(|visit| (visit.left, -1))).collect();
    events.sort_unstable();
    let (mut inside, mut number, mut shares) = (0_i64, 0.0, [0.0; STATES]);
    for pair in events.windows(2) {
        inside += pair[0].1;
        let time = (pair[1].0 - pair[0].0) as f64 / span;
        let state = inside.max(0);
        number += state as f64 * time;
        shares[(state as usize).min(STATES - 1)] += time;
    }
    (number, shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg::carrier::Dice;

    fn close(found: f64, wanted: f64, within: f64) {
        assert!((found / wanted - 1.0).abs() < within, "{found} instead of {wanted}");
    }

    /// A single server: exponential distances, and services by `service`, in ns.
    fn trace(count: usize, mean_ns: f64, mut service: impl FnMut(&mut dyn FnMut() -> f64) -> f64) -> Vec<Visit> {
        let mut dice = Dice::new(3);
        let mut exponential = move || -(((dice.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64).ln();
        let (mut at, mut free) = (0.0, 0.0_f64);
        let visit = |_| {
            at += exponential() * mean_ns;
            free = free.max(at) + service(&mut exponential);
            Visit { arrived: at as u64, left: free as u64 }
        };
        (0..count).map(visit).collect()
    }

    #[test]
    fn a_short_trace_has_the_figures_of_pencil_and_paper() {
        // Two samples at once for 1 µs, one for 2, none for 1, one for 1.
        let visits = [(0, 2000), (1000, 3000), (4000, 5000)].map(|(arrived, left)| Visit { arrived, left });
        let found = Station::of(&visits).unwrap();
        close(found.arrivals, 600_000.0, 1e-9);
        close(found.number, 1.0, 1e-9);
        for (share, wanted) in found.shares.into_iter().zip([0.2, 0.6, 0.2, 0.0]) {
            assert!((share - wanted).abs() < 1e-9, "{found:?}");
        }
        close(found.service_us, 4.0 / 3.0, 1e-9);
        close(found.square, 2.0, 1e-9);
        close(found.sojourn_us, 5.0 / 3.0, 1e-9);
        close(found.little(), 1.0, 1e-9);
        close(1.0 - found.shares[0], found.utilisation(), 1e-9);
        assert_eq!((Station::of(&visits[..1]), Station::of(&[])), (None, None));
    }

    #[test]
    fn exponential_services_are_mm1_and_even_ones_are_not() {
        // The paper's λ and μ: 12,000/s and 8.33 µs.
        let paper = Station::of(&trace(300_000, 83_333.0, |random| random() * 8333.0)).unwrap();
        close(paper.utilisation(), 0.1, 0.02);
        close(paper.sojourn_us, 9.26, 0.02);
        close(paper.mm1_us(), 9.26, 0.02);
        close(paper.chain()[0], 0.909, 0.002);
        let shares = paper.mm1_shares();
        close(paper.shares[1], shares[1], 0.03);
        close(shares.iter().sum(), 1.0, 1e-9);
        let even = Station::of(&trace(300_000, 83_333.0, |_| 66_666.0)).unwrap();
        close(even.mg1_us(), even.sojourn_us, 0.05);
        assert!(even.mm1_us() > 1.4 * even.sojourn_us, "{even:?}");
    }

    #[test]
    fn a_trace_with_a_wrong_stamp_breaks_littles_law() {
        let mut visits = trace(1000, 83_333.0, |_| 20_000.0);
        close(Station::of(&visits).unwrap().little(), 1.0, 1e-6);
        for visit in visits.iter_mut().step_by(10) {
            visit.left = visit.arrived.saturating_sub(50_000); // left before it came
        }
        let broken = Station::of(&visits).unwrap().little();
        assert!((broken - 1.0).abs() > 0.02, "{broken}");
    }
}
