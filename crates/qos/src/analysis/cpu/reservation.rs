//! SCHED_DEADLINE: the reservation of a thread, the bound that it gives, and the test whether those of a node fit.
//!
//! A reservation gives `runtime` within `deadline` of the start of each `period` (constant bandwidth server: Abeni & Buttazzo
//! 1998; in Linux sched(7)). Linux serves all threads of a node by the earliest deadline, on any of its processors. They cannot be
//! pinned: the kernel wants them allowed on all.

use super::{Unbounded, Work};
use crate::analysis::{Arrivals, BILLION, Steps};

/// A reservation of a thread; runtime ≤ deadline ≤ period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// Processor time per period, ns.
    pub runtime: u64,
    /// Time after the start of each period by which it has been given, ns.
    pub deadline: u64,
    /// The period, ns.
    pub period: u64,
}

/// Runtime per declared execution time: a fifth more, because what is declared was measured with a hot cache.
const MARGIN: [u64; 2] = [6, 5];
/// The kernel's shortest and longest period (`sched_deadline_period_min_us`, `…_max_us`, here a little less), and least runtime, ns.
const SHORTEST: u64 = 100_000;
const LONGEST: u64 = 4_000_000_000;
const LEAST: u64 = 1024;

impl Reservation {
    /// The reservation of a thread that computes `execution` ns for a sample in each `interval` on average: its period is that interval, or as
    /// many of them as the kernel's shortest needs. Each of the `halvings` halves the deadline: samples that come `even`ly are
    /// served by it. Where they may come late, two come close to each other, and the period must be as short.
    pub fn of(execution: u64, interval: u64, even: bool, halvings: u32) -> Self {
        let samples = SHORTEST.div_ceil(interval.max(1)).max(1);
        let work = u128::from(execution) * u128::from(samples) * u128::from(MARGIN[0]);
        let runtime = u64::try_from(work.div_ceil(MARGIN[1].into())).unwrap_or(u64::MAX).max(LEAST);
        let whole = interval.saturating_mul(samples).min(LONGEST);
        let deadline = whole.checked_shr(halvings).unwrap_or(0);
        Self { runtime, deadline, period: if even { whole } else { deadline } }
    }

    /// The kernel takes it: runtime ≤ deadline, and a period that is not too short.
    pub fn is_sound(&self) -> bool {
        self.runtime <= self.deadline && self.period >= SHORTEST
    }

    /// Part of a processor that it reserves; with its deadline instead of its period: that it may take at once. Parts per billion.
    fn share(&self, of: u64) -> u128 {
        (u128::from(self.runtime) * BILLION).div_ceil(u128::from(of.max(1)))
    }

    /// The most that it takes from threads without one, which wait for it: two runtimes next to each other, then one each period.
    pub fn taken(&self) -> Work {
        let jitter = self.deadline.saturating_sub(self.runtime);
        Work { arrivals: Arrivals { period: self.period, jitter }, execution: self.runtime }
    }

    /// The least processor time that any stretch of `span` ns gives (supply bound function; Shin & Lee 2003, eq. 6 for
    /// deadline = period): nothing for up to (period − runtime) + (deadline − runtime), then the runtime of each period.
    pub fn supply(&self, span: u64) -> u64 {
        let Some(rest) = span.checked_sub(self.silence()) else { return 0 };
        let (whole, part) = (rest / self.period.max(1), rest % self.period.max(1));
        whole.saturating_mul(self.runtime).saturating_add(part.min(self.runtime))
    }

    /// The shortest stretch that surely gives `work` ns; `None` when none does.
    pub fn time_for(&self, work: u64) -> Option<u64> {
        let whole = work.checked_sub(1)?.checked_div(self.runtime)?;
        let part = work - whole * self.runtime;
        self.silence().checked_add(whole.checked_mul(self.period)?)?.checked_add(part)
    }

    /// The longest stretch without any: one runtime at the very start of its period, the next one as late as it may be.
    fn silence(&self) -> u64 {
        self.period.saturating_sub(self.runtime).saturating_add(self.deadline.saturating_sub(self.runtime))
    }

    /// The longest stay of a sample at the thread, as [`super::response`] counts it from `origin`, in a set that [`admits`].
    ///
    /// Samples a period apart find the reservation of the one before over, and get one of their own: each is done by the deadline (Abeni &
    /// Buttazzo 1998). Closer ones may find it used up, and wait as long as the supply may pause.
    pub fn response(&self, own: &Work, origin: &Arrivals, steps: &Steps) -> Result<u64, Unbounded> {
        let load = own.arrivals.load(own.execution) * u128::from(self.period) / u128::from(self.runtime.max(1));
        if load > BILLION || !self.is_sound() {
            return Err(Unbounded::Overload(load.max(self.share(self.deadline))));
        }
        if own.execution <= self.runtime && own.arrivals.distance(1) >= self.period {
            return Ok(self.deadline);
        }
        let mut worst = 0;
        for q in (0..u64::MAX).take_while(|_| steps.take(1)) {
            let work = own.execution.checked_mul(q + 1).ok_or(Unbounded::TooLong)?;
            let window = if work == 0 { 0 } else { self.time_for(work).ok_or(Unbounded::TooLong)? };
            worst = worst.max(window.saturating_sub(origin.distance(q)));
            if window <= own.arrivals.distance(q + 1) {
                return Ok(worst);
            }
        }
        Err(Unbounded::TooLong)
    }
}

/// More reserved than a node can give: processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Excess {
    /// Needed.
    pub needs: f64,
    /// To be had.
    pub has: f64,
}

/// Part of each processor that reservations may have: the kernel keeps 5 % for other threads (`sched_rt_runtime_us`), and from Linux 6.12 on
/// its fair server takes another 5 %.
const CAPACITY: u128 = BILLION * 9 / 10;
/// The fair server, which lets ordinary threads run beside real-time ones: `fair_server/cpu0/runtime` and `period`.
const FAIR: Reservation = Reservation { runtime: 50_000_000, deadline: 1_000_000_000, period: 1_000_000_000 };

/// All of them meet their deadlines on so many processors, by the earliest deadline first, and the kernel admits them.
///
/// On one processor by their demand ([`fit`]). On several the kernel's own test, the sum of the parts, promises only bounded lateness (Devi
/// & Anderson 2005): a long runtime may hold one processor while the others idle. So the test is that of Goossens, Funk & Baruah 2003: Σ δ ≤
/// m·c − (m − 1)·δmax, with δ = runtime ÷ deadline and c = 0.9.
///
/// # Errors
/// What they need, and what there is.
pub fn admits(reservations: &[Reservation], processors: u32) -> Result<(), Excess> {
    let densities = || reservations.iter().map(|r| r.share(r.deadline));
    let (sum, most) = (densities().sum::<u128>(), densities().max().unwrap_or(0));
    let others = u128::from(processors.max(1)) - 1;
    let (needs, has) = (sum + others * most, (others + 1) * CAPACITY);
    if needs <= has && reservations.iter().all(Reservation::is_sound) {
        return Ok(());
    }
    let load: u128 = reservations.iter().map(|r| r.share(r.period)).sum();
    let with_fair = || [reservations, &[FAIR]].concat();
    if others == 0
        && load <= CAPACITY
        && reservations.iter().all(Reservation::is_sound)
        && fit(&with_fair()) == Ok(true)
    {
        return Ok(());
    }
    Err(Excess { needs: needs as f64 / BILLION as f64, has: has as f64 / BILLION as f64 })
}

/// `true` if earliest deadline first serves all of them on one processor: the demand of each interval fits into it (processor
/// demand criterion: Baruah, Rosier & Howell 1990; Buttazzo, Hard Real-Time Computing Systems, §4.6.1). The intervals to check
/// end at a deadline before L* = Σ (Tᵢ − Dᵢ)·Uᵢ ÷ (1 − U). `Err` when that is more than 100,000 deadlines away.
pub fn fit(reservations: &[Reservation]) -> Result<bool, Unbounded> {
    let share = |r: &Reservation| r.share(r.period);
    let load: u128 = reservations.iter().map(share).sum();
    if load > BILLION {
        return Ok(false);
    }
    if reservations.iter().all(|r| r.deadline >= r.period) {
        return Ok(true);
    }
    let slack: u128 = reservations.iter().map(|r| u128::from(r.period.saturating_sub(r.deadline)) * share(r)).sum();
    let limit = u64::try_from(slack.checked_div(BILLION - load).ok_or(Unbounded::TooLong)?).unwrap_or(u64::MAX);
    let mut end = 0;
    for _ in 0..100_000 {
        let next = reservations.iter().filter_map(|r| next_deadline(r, end)).min();
        match next {
            Some(next) if next <= limit => end = next,
            _ => return Ok(true),
        }
        if demand_by(reservations, end) > u128::from(end) {
            return Ok(false);
        }
    }
    Err(Unbounded::TooLong)
}

/// Processor time that must have been supplied by the end of an interval that begins with all of them.
fn demand_by(reservations: &[Reservation], span: u64) -> u128 {
    let due = |r: &Reservation| span.checked_sub(r.deadline).map_or(0, |rest| rest / r.period.max(1) + 1);
    reservations.iter().map(|r| u128::from(due(r)) * u128::from(r.runtime)).sum()
}

fn next_deadline(r: &Reservation, after: u64) -> Option<u64> {
    let count = (after + 1).saturating_sub(r.deadline).div_ceil(r.period.max(1));
    count.checked_mul(r.period)?.checked_add(r.deadline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn reservation(runtime: u64, deadline: u64, period: u64) -> Reservation {
        Reservation { runtime, deadline, period }
    }

    #[test]
    fn supply_is_the_published_one() {
        // Shin & Lee 2003, figure 2: Γ = (5, 3): nothing up to 2·(5 − 3) = 4, then 3 of every 5.
        let supply: Vec<u64> = (0..=15).map(|t| reservation(3, 5, 5).supply(t)).collect();
        assert_eq!(supply, [0, 0, 0, 0, 0, 1, 2, 3, 3, 3, 4, 5, 6, 6, 6, 7]);
    }

    #[test]
    fn deadlines_before_periods_are_judged_by_demand() {
        // Buttazzo, §4.6.1, table 4.4: (C, D, T) = (2, 4, 6), (2, 5, 8), (3, 7, 9): feasible under EDF.
        let mut set = vec![reservation(2, 4, 6), reservation(2, 5, 8), reservation(3, 7, 9)];
        assert_eq!(fit(&set), Ok(true));
        set[2].deadline = 6;
        assert_eq!(fit(&set), Ok(false), "7 by 6");
        assert_eq!(fit(&[reservation(5, 10, 10), reservation(6, 10, 10)]), Ok(false));
        assert_eq!(fit(&[]), Ok(true));
    }

    #[test]
    fn a_thread_in_its_reservation_has_a_bound() {
        let steps = Steps::new(1000);
        let own = |execution, jitter| Work {
            arrivals: Arrivals { period: 10 * MS, jitter: jitter * MS },
            execution: execution * MS,
        };
        let response = |(runtime, deadline, period), own: Work| {
            let origin = Arrivals::periodic(own.arrivals.period);
            reservation(runtime * MS, deadline * MS, period * MS).response(&own, &origin, &steps).map(|ns| ns / MS)
        };
        // One in each period: done by the deadline.
        assert_eq!(response((3, 5, 5), own(3, 0)), Ok(5));
        assert_eq!(response((3, 4, 10), own(3, 0)), Ok(4));
        // More than a runtime, or closer than a period: 4 ms without any, then 3 of each 5.
        assert_eq!(response((3, 5, 5), own(5, 0)), Ok(11));
        assert_eq!(response((3, 5, 5), own(3, 6)), Ok(7));
        assert!(matches!(response((3, 5, 5), own(7, 0)), Err(Unbounded::Overload(_))));
        assert!(response((0, 0, 0), own(1, 0)).is_err());
    }

    #[test]
    fn a_thread_reserves_a_fifth_more_than_it_needs_in_what_the_kernel_takes() {
        let of = |execution, interval, even, halvings| {
            let Reservation { runtime, deadline, period } = Reservation::of(execution, interval, even, halvings);
            (runtime, deadline, period)
        };
        assert_eq!(of(100_000, 10 * MS, true, 0), (120_000, 10 * MS, 10 * MS));
        assert_eq!(of(100_000, 10 * MS, true, 2), (120_000, 10 * MS / 4, 10 * MS), "they come evenly");
        assert_eq!(of(100_000, 10 * MS, false, 2), (120_000, 10 * MS / 4, 10 * MS / 4));
        assert_eq!(of(10, 10 * MS, true, 0).0, 1024);
        assert_eq!(of(5_000, 30_000, true, 0), (24_000, 120_000, 120_000), "four samples in each period");
        assert_eq!(of(5_000, 60_000 * MS, true, 0).2, 4_000_000_000);
    }

    #[test]
    fn a_node_admits_what_surely_meets_its_deadlines() {
        let part = |percent: u64| reservation(percent * MS, 100 * MS, 100 * MS);
        assert_eq!(admits(&[part(45), part(45)], 1), Ok(()));
        assert_eq!(admits(&[part(45), part(46)], 1).map_err(|e| (e.needs, e.has)), Err((0.91, 0.9)));
        // Dhall & Liu 1978: one long runtime beside short ones on two processors. The kernel would take 0.05 + 0.05 + 0.9.
        assert!(admits(&[part(5), part(5), part(90)], 2).is_err());
        assert_eq!(admits(&[part(60), part(60)], 2), Ok(()));
        // By demand: densities of 0.5 and 0.5 of which no interval needs more than there is.
        assert_eq!(admits(&[reservation(MS, 2 * MS, 10 * MS), reservation(2 * MS, 4 * MS, 10 * MS)], 1), Ok(()));
        assert!(admits(&[reservation(MS, 2 * MS, 10 * MS), reservation(2 * MS, 2 * MS, 10 * MS)], 1).is_err());
        assert!(admits(&[reservation(2000, 90_000, 90_000)], 1).is_err(), "a period that the kernel refuses");
    }

    proptest! {
        #[test]
        fn the_time_for_some_work_is_the_first_that_supplies_it(runtime in 1..9u64, more in 0..9u64, rest in 0..9u64, work in 1..60u64) {
            let r = reservation(runtime, runtime + more, runtime + more + rest);
            let time = r.time_for(work).unwrap();
            prop_assert!(r.supply(time) >= work && r.supply(time - 1) < work);
        }

        /// The demand criterion agrees with a processor that runs the earliest deadline first, tick by tick.
        #[test]
        fn a_load_that_fits_meets_its_deadlines(set in prop::collection::vec((1..4u64, 0..5u64, 0..5u64), 1..4)) {
            let set: Vec<_> = set.iter().map(|&(c, d, t)| reservation(c, c + d, c + d + t)).collect();
            let (mut left, mut met) = (vec![(0u64, 0u64); set.len()], true);
            for now in 0..2000 {
                for (r, (work, due)) in set.iter().zip(&mut left) {
                    met &= *work == 0 || now < *due;
                    if now % r.period == 0 {
                        (*work, *due) = (r.runtime, now + r.deadline);
                    }
                }
                if let Some((work, _)) = left.iter_mut().filter(|(work, _)| *work > 0).min_by_key(|(_, due)| *due) {
                    *work -= 1;
                }
            }
            let load: f64 = set.iter().map(|r| r.runtime as f64 / r.period as f64).sum();
            match fit(&set) {
                Ok(fits) if (load - 1.0).abs() > 1e-6 => prop_assert_eq!(fits, met),
                fits => prop_assert!(fits != Ok(true) || met),
            }
        }
    }
}
