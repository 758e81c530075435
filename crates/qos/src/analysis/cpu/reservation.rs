//! SCHED_DEADLINE: the supply of a reservation, and the test whether reservations fit on a processor.
//!
//! A reservation gives `runtime` within `deadline` of the start of each `period` (constant bandwidth server: Abeni & Buttazzo
//! 1998; in Linux sched(7)).

use super::{Unbounded, Work};
use crate::analysis::arrivals::BILLION;

/// A reservation of a thread; runtime ≤ deadline ≤ period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Processor time per period, ns.
    pub runtime: u64,
    /// Time after the start of each period by which it has been given, ns.
    pub deadline: u64,
    /// The period, ns.
    pub period: u64,
}

impl Reservation {
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

    /// The longest from an activation's coming to its completion when the thread has this reservation for itself: as
    /// [`super::response`], with the supply in place of the processor.
    pub fn response(&self, own: &Work) -> Result<u64, Unbounded> {
        let load = own.arrivals.load(own.execution) * u128::from(self.period) / u128::from(self.runtime.max(1));
        if load > BILLION || self.runtime == 0 {
            return Err(Unbounded::Overload(load));
        }
        let mut worst = 0;
        for q in 0..100_000 {
            let work = own.execution.checked_mul(q + 1).ok_or(Unbounded::TooLong)?;
            let window = if work == 0 { 0 } else { self.time_for(work).ok_or(Unbounded::TooLong)? };
            worst = worst.max(window.saturating_sub(own.arrivals.distance(q)));
            if window <= own.arrivals.distance(q + 1) {
                return Ok(worst);
            }
        }
        Err(Unbounded::TooLong)
    }
}

/// `true` if earliest deadline first serves all of them on one processor: the demand of each interval fits into it (processor
/// demand criterion: Baruah, Rosier & Howell 1990; Buttazzo, Hard Real-Time Computing Systems, §4.6.1). The intervals to check
/// end at a deadline before L* = Σ (Tᵢ − Dᵢ)·Uᵢ ÷ (1 − U). `Err` when that is more than 100,000 deadlines away.
pub fn fit(reservations: &[Reservation]) -> Result<bool, Unbounded> {
    let share = |r: &Reservation| (u128::from(r.runtime) * BILLION).div_ceil(u128::from(r.period.max(1)));
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
        if demand(reservations, end) > u128::from(end) {
            return Ok(false);
        }
    }
    Err(Unbounded::TooLong)
}

/// Processor time that must have been supplied by the end of an interval that begins with all of them.
fn demand(reservations: &[Reservation], span: u64) -> u128 {
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
    use crate::analysis::arrivals::Arrivals;
    use proptest::prelude::*;

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
        let own = |execution| Work { arrivals: Arrivals::periodic(10), execution };
        assert_eq!(reservation(3, 5, 5).response(&own(3)), Ok(7));
        assert_eq!(reservation(3, 5, 5).response(&own(5)), Ok(11));
        assert!(matches!(reservation(3, 5, 5).response(&own(7)), Err(Unbounded::Overload(_))));
        assert!(reservation(0, 0, 0).response(&own(1)).is_err());
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
