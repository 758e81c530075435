//! Threads on one processor: response-time analysis under fixed priorities, pre-emptive (P-24).
//!
//! R = max over q of w(q) − distance(q), with w(q) = B + (q + 1)·C + Σ over higher j of ⌈(w(q) + Jⱼ) ÷ Tⱼ⌉ · Cⱼ, for all
//! activations q of the busy period that begins with activation 0. Sources: Joseph & Pandya 1986 (the iteration), Audsley,
//! Burns, Richardson, Tindell & Wellings 1993 (blocking, jitter), Lehoczky 1990 and Tindell, Burns & Wellings 1994 (arbitrary
//! deadlines: the level-i busy period).
//!
//! [`reservation`] has SCHED_DEADLINE.

pub mod reservation;

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
}
