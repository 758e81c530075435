//! Packets in a link's queue: deterministic network calculus (Cruz 1991; Le Boudec & Thiran 2001).
//!
//! Amounts are whole units of whatever flows (bits, samples, nanoseconds of work), rates units per second, times nanoseconds;
//! in between amounts are kept in billionths, so rounding loses nothing. Numbers of theorems are those of Le Boudec &
//! Thiran, Network Calculus, 2001.
//!
//! Here are the curves, and the longest stay if nothing goes before the class ([`Deviation`]). `queue` has
//! the busy period of one queue under each order of service, with arrivals as stair functions.

pub(crate) mod queue;

use crate::analysis::{BILLION, Steps};
use queue::{Load, Source, demand};

/// Nanoseconds per second, and billionths per unit.
const SECOND: u128 = 1_000_000_000;

/// At most `burst` at once and `rate` per second besides: a leaky bucket, γ(t) = burst + rate · t (§1.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Units that may come at once.
    pub burst: u64,
    /// Units per second.
    pub rate: u64,
}

impl Bucket {
    /// The most in any stretch of `span` ns, in billionths.
    fn billionths(&self, span: u64) -> u128 {
        (u128::from(self.burst) * SECOND).saturating_add(u128::from(self.rate) * u128::from(span))
    }

    /// The most in any stretch of `span` ns, rounded up.
    pub(crate) fn within(&self, span: u64) -> u64 {
        match self.rate.checked_mul(span) {
            // Nearly always, and much sooner.
            Some(billionths) => self.burst.saturating_add(billionths.div_ceil(SECOND as u64)),
            None => round(self.billionths(span).div_ceil(SECOND)),
        }
    }
}

/// A service of zero for `latency`, then of at least `rate`: β(t) = rate · (t − latency)⁺ (§1.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLatency {
    /// Units per second.
    pub rate: u64,
    /// Nanoseconds.
    pub latency: u64,
}

impl RateLatency {
    /// Time by which `amount` is surely served, rounded up; `None` with rate 0.
    pub(crate) fn time_for(&self, amount: u64) -> Option<u64> {
        self.time_for_billionths(u128::from(amount) * SECOND)
    }

    /// The same for billionths.
    fn time_for_billionths(&self, amount: u128) -> Option<u64> {
        let rate = Some(self.rate).filter(|rate| *rate > 0);
        let time = match u64::try_from(amount) {
            Ok(0) => 0,
            // Nearly always, and much sooner.
            Ok(amount) => amount.div_ceil(rate?),
            Err(_) => u64::try_from(amount.div_ceil(u128::from(rate?))).ok()?,
        };
        Some(time.saturating_add(self.latency))
    }
}

/// Most arrivals that are looked at.
const MOST: u64 = 50_000;

/// One of a class comes.
#[derive(Clone, Copy)]
struct Arrival {
    time: u64,
    source: usize,
    work: u64,
}

/// A leaky bucket above stairs: work at once, and per second.
#[derive(Clone, Copy)]
struct Above {
    burst: u128,
    rate: u128,
}

/// The longest stay if nothing goes before the class: the horizontal deviation of the arrivals from one service curve,
/// exactly. Arrivals up to some time, and the longest deviation so far.
///
/// Arrivals are stair functions, each at most what its line brings: concave between two steps. So the deviation is largest at a step,
/// where a line has brought all arrivals, or just before the next step (Le Boudec & Thiran 2001, theorem 1.4.2). Stairs stay below a
/// leaky bucket (ibid., §1.2.2), whose deviation decreases: from some time on no deviation exceeds the largest one found.
struct Deviation<'a> {
    sources: &'a [Source],
    service: RateLatency,
    /// A bucket above all stairs.
    above: Above,
    /// Work that has come from each source, and from all.
    came: Vec<u64>,
    work: u64,
    /// Sources whose line may still bring less than comes, with the time from which on it never does.
    lines: Vec<(usize, Bucket, u64)>,
    longest: u64,
}

impl<'a> Deviation<'a> {
    /// The start, before any arrival. Some stay is known to last `longest`.
    fn new(sources: &'a [Source], service: RateLatency, longest: u64) -> Self {
        let came: Vec<u64> = sources.iter().map(|source| demand(&source.own, 0)).collect();
        let work = came.iter().copied().fold(0, u64::saturating_add);
        let above = Above::of(sources.iter().flat_map(|source| &source.own));
        let line = |(at, source): (usize, &Source)| {
            let line = source.line?;
            let Above { burst, rate } = Above::of(&source.own);
            let behind = burst.saturating_sub(u128::from(line.burst)).saturating_mul(BILLION);
            Some((at, line, catches_up(behind, u128::from(line.rate).saturating_sub(rate))))
        };
        let lines = sources.iter().enumerate().filter_map(line).collect();
        Self { sources, service, above, came, work, lines, longest }
    }

    /// The longest deviation of the arrivals before `end`; `None` if there are too many of them, or they are never served.
    fn longest(mut self, end: u64, steps: &Steps) -> Option<u64> {
        self.look(0)?;
        let end = end.min(self.until());
        let count = |load: &Load| load.arrivals.before(end).saturating_sub(load.arrivals.within(0));
        let count = self.sources.iter().flat_map(|source| &source.own).map(count).fold(0, u64::saturating_add);
        if count > MOST || !steps.take(count) {
            return None;
        }
        let (mut from, mut until) = (0, end);
        for next in self.arrivals(end, count as usize) {
            if next.time > from {
                let longest = self.longest;
                self.stretch(from, next.time)?;
                if self.longest > longest {
                    until = self.until();
                }
                if next.time >= until {
                    return Some(self.longest);
                }
                from = next.time;
            }
            self.came[next.source] = self.came[next.source].saturating_add(next.work);
            self.work = self.work.saturating_add(next.work);
        }
        self.stretch(from, end)?;
        Some(self.longest)
    }

    /// Arrivals after 0 and before `end`, in order.
    fn arrivals(&self, end: u64, count: usize) -> Vec<Arrival> {
        let mut all = Vec::with_capacity(count);
        for (source, load) in self.sources.iter().enumerate().flat_map(|(i, of)| of.own.iter().map(move |own| (i, own)))
        {
            let numbers = load.arrivals.within(0)..load.arrivals.before(end);
            all.extend(numbers.map(|k| Arrival { time: load.arrivals.distance(k), source, work: load.work }));
        }
        all.sort_unstable_by_key(|arrival| arrival.time);
        all
    }

    /// Searches an interval without its end, in which there is no step, for the largest deviation.
    fn stretch(&mut self, from: u64, to: u64) -> Option<()> {
        self.lines.retain(|(.., never)| from < *never);
        self.look(from)?;
        for at in 0..self.lines.len() {
            let (source, line, _) = self.lines[at];
            let lacks = u128::from(self.came[source].saturating_sub(line.burst)) * BILLION;
            let brought = lacks.checked_div(u128::from(line.rate)).map_or(u64::MAX, round);
            if brought >= from {
                self.look(brought.min(to - 1))?;
                self.look(brought.saturating_add(1).min(to - 1))?;
            }
        }
        Some(())
    }

    /// Looks at the arrivals until `at`.
    fn look(&mut self, at: u64) -> Option<()> {
        let lacks = |(source, line, _): &(usize, Bucket, u64)| {
            (u128::from(self.came[*source]) * BILLION).saturating_sub(line.billionths(at))
        };
        let lacks: u128 = self.lines.iter().map(lacks).sum();
        let done = if lacks == 0 {
            self.service.time_for(self.work)
        } else {
            self.service.time_for_billionths((u128::from(self.work) * BILLION).saturating_sub(lacks))
        };
        self.longest = self.longest.max(done?.saturating_sub(at));
        Some(())
    }

    /// The time after which no deviation exceeds the longest: not even the bucket above all.
    fn until(&self) -> u64 {
        let (rate, latency) = (u128::from(self.service.rate), u128::from(self.service.latency));
        let done = self.above.burst.saturating_mul(BILLION).saturating_add(latency * rate);
        let ahead = done.saturating_sub(u128::from(self.longest) * rate);
        catches_up(ahead, rate.saturating_sub(self.above.rate))
    }
}

impl Above {
    /// A bucket above these loads: of each one sample at once, more by its jitter, and its rate.
    fn of<'a>(loads: impl IntoIterator<Item = &'a Load>) -> Self {
        loads.into_iter().fold(Self { burst: 0, rate: 0 }, |sum, Load { arrivals, work }| {
            let late = (u128::from(*work) * u128::from(arrivals.jitter)).div_ceil(u128::from(arrivals.period.max(1)));
            let burst = sum.burst.saturating_add(u128::from(*work)).saturating_add(late);
            Self { burst, rate: sum.rate.saturating_add(arrivals.load(*work)) }
        })
    }
}

/// Time at which a source that is `behind` billionths behind and `faster` has caught up; late by at most 1 ns.
fn catches_up(behind: u128, faster: u128) -> u64 {
    behind.checked_div(faster).map_or(u64::MAX, |time| round(time).saturating_add(1))
}

fn round(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Arrivals;
    use proptest::prelude::*;

    /// The streams of one neighbour, over a line or not, as (period, jitter, work).
    fn sources() -> impl Strategy<Value = Vec<Source>> {
        let line = prop::option::of((1..30u64, 100_000_000..3_000_000_000u64));
        let load = (20..400u64, 0..900u64, 1..20u64)
            .prop_map(|(period, jitter, work)| Load { arrivals: Arrivals { period, jitter }, work });
        let source = (line, prop::collection::vec(load, 1..5)).prop_map(|(line, own)| {
            let line = line.map(|(burst, rate)| Bucket { burst, rate });
            Source { line, own, higher: Vec::new() }
        });
        prop::collection::vec(source, 1..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        /// The largest deviation of all times is found, no more and no less, for any earlier results.
        #[test]
        fn the_deviation_is_the_longest_of_all_times(sources in sources(), rate in 1..=10u64, latency in 0..40u64, part in 0..=100u64) {
            let service = RateLatency { rate: rate * 100_000_000, latency };
            let come = |at: u64| -> u128 {
                let of = |source: &Source| {
                    let came = u128::from(demand(&source.own, at)) * BILLION;
                    source.line.map_or(came, |line| came.min(line.billionths(at)))
                };
                sources.iter().map(of).sum()
            };
            let done = |at: u64| service.time_for_billionths(come(at)).unwrap();
            prop_assume!(Above::of(sources.iter().flat_map(|source| &source.own)).rate <= u128::from(service.rate));
            let Some(end) = (1..20_000).find(|end| done(end - 1) <= *end) else { return Ok(()) };
            let longest = (0..end).map(|at| done(at).saturating_sub(at)).max().unwrap();
            let known = longest * part / 100;
            prop_assert_eq!(Deviation::new(&sources, service, known).longest(end, &Steps::new(u64::MAX)), Some(longest));
        }
    }
}
