//! Arrival and service curves, and what follows from a pair of them.
//!
//! Amounts are whole units of whatever flows (bits, samples, nanoseconds of work), rates units per second, times nanoseconds;
//! in between amounts are kept in billionths, so nothing is lost to rounding. Numbers of theorems are those of Le Boudec &
//! Thiran, Network Calculus, 2001.

/// Nanoseconds per second, and billionths per unit.
const SECOND: u128 = 1_000_000_000;

/// At most `burst` at once and `rate` per second besides: a leaky bucket, γ(t) = burst + rate · t (§1.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Units that may come at once.
    pub burst: u64,
    /// Units per second.
    pub rate: u64,
}

impl Bucket {
    /// The most in any stretch of `span` ns, in billionths.
    pub(super) fn billionths(&self, span: u64) -> u128 {
        (u128::from(self.burst) * SECOND).saturating_add(u128::from(self.rate) * u128::from(span))
    }

    /// The most in any stretch of `span` ns, rounded up.
    pub fn within(&self, span: u64) -> u64 {
        match self.rate.checked_mul(span) {
            // Nearly always, and much sooner.
            Some(billionths) => self.burst.saturating_add(billionths.div_ceil(SECOND as u64)),
            None => round(self.billionths(span).div_ceil(SECOND)),
        }
    }
}

/// The least of several buckets: concave (§1.2.2); `[{M, p}, {b, r}]` is the T-SPEC of IntServ. Without any nothing is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrivalCurve(pub Vec<Bucket>);

impl ArrivalCurve {
    /// The most in any stretch of `span` ns; `None` without a bucket.
    pub fn within(&self, span: u64) -> Option<u64> {
        self.0.iter().map(|bucket| bucket.within(span)).min()
    }

    fn billionths(&self, span: u64) -> Option<u128> {
        self.0.iter().map(|bucket| bucket.billionths(span)).min()
    }

    /// The arrival curve behind a server (theorem 1.4.3, α ⊘ β): later by up to its latency, therefore burstier by as much, and
    /// no faster than the server after its backlog. `None` when more comes than is served.
    pub fn after(&self, service: &RateLatency) -> Option<Self> {
        let shaped = Bucket { burst: backlog(self, service)?, rate: service.rate };
        let later = |b: &Bucket| Bucket { burst: b.within(service.latency), rate: b.rate };
        let (slow, fast): (Vec<Bucket>, Vec<Bucket>) = self.0.iter().partition(|b| b.rate <= service.rate);
        Some(Self(slow.iter().map(later).chain((!fast.is_empty()).then_some(shaped)).collect()))
    }

    /// The rate in the long run.
    pub fn rate(&self) -> Option<u64> {
        self.0.iter().map(|bucket| bucket.rate).min()
    }

    /// Times at which one bucket takes over from another, rounded both ways, and 0: where extremes are.
    fn corners(&self) -> impl Iterator<Item = u64> {
        let meet = |a: &Bucket, b: &Bucket| {
            let rate = a.rate.checked_sub(b.rate).filter(|rate| *rate > 0)?;
            Some(round(u128::from(b.burst.checked_sub(a.burst)?) * SECOND / u128::from(rate)))
        };
        let pairs = self.0.iter().flat_map(move |a| self.0.iter().filter_map(move |b| meet(a, b)));
        pairs.flat_map(|t| [t, t.saturating_add(1)]).chain([0])
    }
}

/// Nothing for `latency`, then at least `rate`: β(t) = rate · (t − latency)⁺ (§1.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLatency {
    /// Units per second.
    pub rate: u64,
    /// Nanoseconds.
    pub latency: u64,
}

impl RateLatency {
    /// Two servers one after the other (theorem 1.4.6, β₁ ⊗ β₂): a stream pays for its burst only once.
    pub fn then(self, next: Self) -> Self {
        Self { rate: self.rate.min(next.rate), latency: self.latency.saturating_add(next.latency) }
    }

    /// Work that is surely served in `span` ns of backlog, rounded down.
    pub fn served(&self, span: u64) -> u64 {
        round(self.billionths(span) / SECOND)
    }

    fn billionths(&self, span: u64) -> u128 {
        u128::from(self.rate) * u128::from(span.saturating_sub(self.latency))
    }

    /// By when `amount` is surely served, rounded up; `None` with rate 0.
    pub fn time_for(&self, amount: u64) -> Option<u64> {
        self.time_for_billionths(u128::from(amount) * SECOND)
    }

    /// The same for billionths.
    pub(super) fn time_for_billionths(&self, amount: u128) -> Option<u64> {
        let rate = Some(self.rate).filter(|rate| *rate > 0);
        let time = match u64::try_from(amount) {
            Ok(0) => 0,
            // Nearly always, and much sooner.
            Ok(amount) => amount.div_ceil(rate?),
            Err(_) => u64::try_from(amount.div_ceil(u128::from(rate?))).ok()?,
        };
        Some(time.saturating_add(self.latency))
    }

    /// The service that others leave, in whatever order they are served (theorem 6.2.1 with α a bucket): rate R − r, latency
    /// (b + R·T) ÷ (R − r); `None` when they leave nothing.
    pub fn left_by(&self, others: &Bucket) -> Option<Self> {
        let rate = self.rate.checked_sub(others.rate).filter(|rate| *rate > 0)?;
        let wait = u128::from(others.burst) * SECOND + u128::from(self.rate) * u128::from(self.latency);
        Some(Self { rate, latency: u64::try_from(wait.div_ceil(u128::from(rate))).ok()? })
    }
}

/// The longest that what comes may stay (theorem 1.4.2, the horizontal deviation), in ns, when it is served in order of
/// arrival. `None` when there is no bound: more comes than is served.
pub fn delay(arrivals: &ArrivalCurve, service: &RateLatency) -> Option<u64> {
    if arrivals.rate()? > service.rate {
        return None;
    }
    let late = |t: u64| Some(service.time_for_billionths(arrivals.billionths(t)?)?.saturating_sub(t));
    arrivals.corners().map(late).max().flatten()
}

/// The most that waits at once (theorem 1.4.1, the vertical deviation): the size of a buffer that never overflows.
pub fn backlog(arrivals: &ArrivalCurve, service: &RateLatency) -> Option<u64> {
    if arrivals.rate()? > service.rate {
        return None;
    }
    let waits = |t: u64| Some(arrivals.billionths(t)?.saturating_sub(service.billionths(t)));
    let most = arrivals.corners().chain([service.latency]).map(waits).max().flatten()?;
    Some(round(most.div_ceil(SECOND)))
}

fn round(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const MBIT: u64 = 1_000_000;

    fn one(burst: u64, rate: u64) -> ArrivalCurve {
        ArrivalCurve(vec![Bucket { burst, rate }])
    }

    #[test]
    fn one_bucket_through_one_server() {
        // Le Boudec & Thiran, §1.4.1, figure 1.8: delay T + b ÷ R, backlog b + r·T, output b + r·T and r.
        let service = RateLatency { rate: 10 * MBIT, latency: 2 * MS };
        let arrivals = one(50_000, 4 * MBIT);
        assert_eq!(delay(&arrivals, &service), Some(7 * MS));
        assert_eq!(backlog(&arrivals, &service), Some(58_000));
        assert_eq!(arrivals.after(&service), Some(one(58_000, 4 * MBIT)));
        assert_eq!(delay(&one(1, 11 * MBIT), &service), None);
        assert_eq!(delay(&ArrivalCurve::default(), &service), None);
        assert_eq!(RateLatency { rate: 0, latency: 0 }.time_for(1), None);
    }

    #[test]
    fn a_t_spec_through_a_guaranteed_service() {
        // Ibid., proposition 1.4.1: delay (M + (b − M)·(p − R)⁺ ÷ (p − r)) ÷ R + T, backlog (θ = (b − M) ÷ (p − r) > T)
        // M + (p − R)·θ + R·T.
        let (m, p, b, r) = (10_000, 20 * MBIT, 100_000, 2 * MBIT);
        let arrivals = ArrivalCurve(vec![Bucket { burst: m, rate: p }, Bucket { burst: b, rate: r }]);
        let service = RateLatency { rate: 10 * MBIT, latency: MS };
        assert_eq!(delay(&arrivals, &service), Some(7 * MS));
        assert_eq!(backlog(&arrivals, &service), Some(70_000));
    }

    #[test]
    fn bursts_are_paid_only_once() {
        // Ibid., §1.4.3: through two servers T₁ + T₂ + b ÷ min(R₁, R₂), not b ÷ R₁ + (b + r·T₁) ÷ R₂ + T₁ + T₂.
        let (first, second) =
            (RateLatency { rate: 10 * MBIT, latency: MS }, RateLatency { rate: 5 * MBIT, latency: MS });
        let arrivals = one(50_000, MBIT);
        assert_eq!(delay(&arrivals, &first.then(second)), Some(12 * MS));
        let apart = delay(&arrivals, &first).unwrap() + delay(&arrivals.after(&first).unwrap(), &second).unwrap();
        assert_eq!(apart, 17 * MS + 200_000);
        assert_eq!(
            first.left_by(&Bucket { burst: 8000, rate: 8 * MBIT }),
            Some(RateLatency { rate: 2 * MBIT, latency: 9 * MS })
        );
    }

    fn curves() -> impl Strategy<Value = ArrivalCurve> {
        prop::collection::vec((0..5000u64, 1..2000u64), 1..4).prop_map(|buckets| {
            ArrivalCurve(buckets.into_iter().map(|(burst, rate)| Bucket { burst, rate: rate * MBIT }).collect())
        })
    }

    proptest! {
        /// Against sampled points: no deviation anywhere exceeds the result, and somewhere it is reached.
        #[test]
        fn deviations_are_those_of_sampled_points(arrivals in curves(), rate in 1..3000u64, latency in 0..2000u64) {
            let service = RateLatency { rate: rate * MBIT, latency };
            // The last corner may be far out.
            let times = || (0..20_000).chain(arrivals.corners());
            let late = |t| service.time_for(arrivals.within(t).unwrap()).unwrap().saturating_sub(t);
            let waits = |t| arrivals.within(t).unwrap().saturating_sub(service.served(t));
            match (delay(&arrivals, &service), backlog(&arrivals, &service)) {
                (Some(delay), Some(backlog)) => {
                    let (longest, most) = (times().map(late).max().unwrap(), times().map(waits).max().unwrap());
                    // What is sampled is rounded up to a whole unit: at most one more, which takes 1 ÷ rate.
                    prop_assert!(longest <= delay + 1 + 1000u64.div_ceil(rate), "{longest} > {delay}");
                    prop_assert!(delay <= longest, "{delay} > {longest}");
                    prop_assert!(most <= backlog + 1 && backlog <= most + 1, "{most} {backlog}");
                }
                (delay, backlog) => prop_assert!(delay.is_none() && backlog.is_none() && arrivals.rate().unwrap() > service.rate),
            }
        }

        /// Concatenation and output against their definitions: inf over s of β₁(s) + β₂(t − s), sup over u of α(t + u) − β(u).
        #[test]
        fn operations_are_their_definitions(arrivals in curves(), a in (1..3000u64, 0..500u64), b in (1..3000u64, 0..500u64), t in 0..1000u64) {
            let [a, b] = [a, b].map(|(rate, latency)| RateLatency { rate: rate * MBIT, latency });
            let both = (0..=t).map(|s| a.served(s) + b.served(t - s)).min().unwrap();
            prop_assert!(a.then(b).served(t).abs_diff(both) <= 2);
            if let Some(out) = arrivals.after(&a) {
                let most = (0..3000).map(|u| arrivals.within(t + u).unwrap().saturating_sub(a.served(u))).max().unwrap();
                prop_assert!(most <= out.within(t).unwrap() + 1, "{most} {:?}", out);
            }
        }
    }
}
