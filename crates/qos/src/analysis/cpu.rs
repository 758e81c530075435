//! Threads on one processor: response-time analysis under fixed priorities, pre-emptive (P-24). [`Reservation`] has SCHED_DEADLINE.
//!
//! R = max over q of w(q) − distance(q), with w(q) = B + (q + 1)·C + Σ over higher j of ⌈(w(q) + Jⱼ) ÷ Tⱼ⌉ · Cⱼ, for all
//! activations q of the busy period that begins with activation 0. Sources: Joseph & Pandya 1986 (the iteration), Audsley,
//! Burns, Richardson, Tindell & Wellings 1993 (blocking, jitter), Lehoczky 1990 and Tindell, Burns & Wellings 1994 (arbitrary
//! deadlines: the level-i busy period).
//!
//! A reservation gives `runtime` within `deadline` of the start of each `period` (constant bandwidth server: Abeni & Buttazzo
//! 1998; in Linux sched(7)).

use crate::analysis::{Arrivals, BILLION, Steps};

/// A thread's work for each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Arrivals of its samples.
    pub arrivals: Arrivals,
    /// The longest it computes for one, ns.
    pub execution: u64,
}

/// The reason why there is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unbounded {
    /// Overload of the resource: utilisation in parts per billion, above its capacity.
    Overload(u128),
    /// The busy period is longer than the analysis follows it.
    TooLong,
}

/// Most times that the threads above one are looked at, so that it ends at a load near 1 as well.
const LOOKS: u32 = 200_000;

/// The response time of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The longest from an activation's coming to its completion, ns.
    pub time: u64,
    /// The part of it that is blocking by lower threads. The rest, besides the execution, is waiting for higher
    /// threads and for earlier activations.
    pub blocking: u64,
}

/// The response time of `own` below the threads `higher` and with at most `blocking` ns by lower ones.
///
/// An activation counts from its arrival at the thread, or, if its way began elsewhere, from the latest possible
/// arrival of the first one of a busy period: `origin` gives the distances of activations where they began (on a
/// single processor `origin` = `own.arrivals`). So a late one does not pay both for its lateness and for being the
/// next one's predecessor (Tindell & Clark 1994, §3).
///
/// Threads of equal priority belong into `higher` (SCHED_FIFO serves them in order of arrival).
pub fn response(
    own: &Work,
    origin: &Arrivals,
    higher: &[Work],
    blocking: u64,
    steps: &Steps,
) -> Result<Response, Unbounded> {
    let load: u128 = higher.iter().chain([own]).map(|work| work.arrivals.load(work.execution)).sum();
    if load > BILLION {
        return Err(Unbounded::Overload(load));
    }
    let (mut looks, mut time, mut window) = (LOOKS, 0, blocking);
    for q in 0..u64::MAX {
        let alone = own.execution.checked_mul(q + 1).and_then(|w| w.checked_add(blocking)).ok_or(Unbounded::TooLong)?;
        window = settle(window.max(alone), alone, higher, &mut looks, steps)?;
        time = time.max(window.saturating_sub(origin.distance(q)));
        if window <= own.arrivals.distance(q + 1) {
            return Ok(Response { time, blocking });
        }
    }
    Err(Unbounded::TooLong)
}

/// The least w ≥ `from` with w = `alone` + the demand of `higher` in w.
fn settle(from: u64, alone: u64, higher: &[Work], looks: &mut u32, steps: &Steps) -> Result<u64, Unbounded> {
    let mut window = from;
    loop {
        *looks = looks.checked_sub(1).ok_or(Unbounded::TooLong)?;
        if !steps.take(1 + higher.len() as u64) {
            return Err(Unbounded::TooLong);
        }
        let next = demand(alone, higher, window).ok_or(Unbounded::TooLong)?;
        if next <= window {
            return Ok(window);
        }
        window = next;
    }
}

fn demand(alone: u64, higher: &[Work], window: u64) -> Option<u64> {
    higher.iter().try_fold(alone, |sum, work| {
        // An instance that comes at time 0 counts although the stretch before 0 is empty.
        sum.checked_add(work.arrivals.before(window.max(1)).checked_mul(work.execution)?)
    })
}

/// A reservation of a thread (SCHED_DEADLINE); runtime ≤ deadline ≤ period.
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
    /// [`response`], with the supply in place of the processor.
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

    /// Response times of threads in order of priority, the highest first, each with its blocking.
    fn responses(threads: &[(Work, u64)]) -> Vec<Result<Response, Unbounded>> {
        let steps = Steps::new(u64::MAX);
        let works: Vec<Work> = threads.iter().map(|(work, _)| *work).collect();
        let of = |(i, (work, blocking)): (usize, &(Work, u64))| {
            response(work, &work.arrivals, &works[..i], *blocking, &steps)
        };
        threads.iter().enumerate().map(of).collect()
    }

    fn work(period: u64, execution: u64) -> Work {
        Work { arrivals: Arrivals::periodic(period), execution }
    }
    fn times(threads: &[(Work, u64)]) -> Vec<u64> {
        responses(threads).into_iter().map(|r| r.unwrap().time).collect()
    }

    #[test]
    fn published_examples_have_their_answers() {
        // Burns & Wellings, Real-Time Systems and Programming Languages, §"Response time analysis": task sets B and C,
        // by the iteration of Joseph & Pandya 1986 and Audsley et al. 1993.
        assert_eq!(times(&[(work(7, 3), 0), (work(12, 3), 0), (work(20, 5), 0)]), [3, 6, 20]);
        assert_eq!(times(&[(work(20, 5), 0), (work(40, 10), 0), (work(80, 40), 0)]), [5, 15, 80]);
        // Lehoczky 1990, §2: the fifth activation is the worst, not the first (114).
        assert_eq!(times(&[(work(70, 26), 0), (work(100, 62), 0)]), [26, 118]);
    }

    #[test]
    fn blocking_and_jitter_are_in_the_window() {
        // Tindell, Burns & Wellings 1994, §3: w = 5 + 4·⌈(w + J) ÷ 20⌉: 9 without jitter, 13 with 12 of it; blocking adds.
        let late = Work { arrivals: Arrivals { period: 20, jitter: 12 }, execution: 4 };
        assert_eq!(times(&[(work(20, 4), 0), (work(100, 5), 0)]), [4, 9]);
        assert_eq!(times(&[(late, 0), (work(100, 5), 0)]), [4, 13]);
        assert_eq!(times(&[(late, 0), (work(100, 5), 3)]), [4, 16]);
        assert_eq!(times(&[(work(70, 26), 10), (work(100, 62), 0)])[0], 36);
    }

    #[test]
    fn a_load_that_cannot_be_served_is_refused() {
        let over = responses(&[(work(10, 6), 0), (work(10, 5), 0)]);
        assert_eq!((over[0].map(|r| r.time), over[1]), (Ok(6), Err(Unbounded::Overload(1_100_000_000))));
        let huge = Work { arrivals: Arrivals { period: 1, jitter: u64::MAX }, execution: u64::MAX };
        assert!(response(&huge, &huge.arrivals, &[huge], u64::MAX, &Steps::new(u64::MAX)).is_err());
        // Full load, periods with an astronomic common multiple: any answer, in bounded time.
        let full = [(work(999_999_937, 333_333_312), 0), (work(999_999_893, 666_666_580), 0)];
        let _ = responses(&full);
    }

    /// Completion of each activation, tick by tick: threads in order of priority, released as early as they may be.
    fn simulated(threads: &[(u64, u64, u64)], ticks: u64) -> Vec<u64> {
        let mut waiting = vec![std::collections::VecDeque::<(u64, u64)>::new(); threads.len()];
        let mut worst = vec![0; threads.len()];
        for now in 0..ticks {
            for (queue, &(period, jitter, execution)) in waiting.iter_mut().zip(threads) {
                let arrivals = Arrivals { period, jitter };
                let due = |now| (0..).take_while(|q| arrivals.distance(*q) <= now).count();
                let before = if now == 0 { 0 } else { due(now - 1) };
                queue.extend((before..due(now)).map(|_| (now, execution)));
            }
            if let Some(i) = waiting.iter().position(|queue| !queue.is_empty()) {
                let head = waiting[i].front_mut().unwrap();
                head.1 -= 1;
                if head.1 == 0 {
                    worst[i] = worst[i].max(now + 1 - head.0);
                    waiting[i].pop_front();
                }
            }
        }
        worst
    }

    proptest! {
        /// The critical instant gives exactly the bound, jitter and backlog included.
        #[test]
        fn the_bound_is_what_the_critical_instant_shows(threads in prop::collection::vec((4..30u64, 0..40u64, 1..6u64), 1..5)) {
            let works: Vec<_> = threads.iter().map(|&(period, jitter, execution)| (Work { arrivals: Arrivals { period, jitter }, execution }, 0)).collect();
            let shown = simulated(&threads, 600);
            for (i, answer) in responses(&works).into_iter().enumerate() {
                let load: f64 = threads[..=i].iter().map(|t| t.2 as f64 / t.0 as f64).sum();
                match answer {
                    Ok(answer) if load < 0.9 => prop_assert_eq!(answer.time, shown[i]),
                    Ok(answer) => prop_assert!(answer.time >= shown[i]),
                    Err(_) => prop_assert!(load > 1.0 - 1e-6),
                }
            }
        }
    }

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
