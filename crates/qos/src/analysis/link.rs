//! Packets in a link's queue: deterministic network calculus (Cruz 1991; Le Boudec & Thiran 2001).
//!
//! Amounts are whole units of whatever flows (bits, samples, nanoseconds of work), rates units per second, times nanoseconds;
//! in between amounts are kept in billionths, so rounding loses nothing. Numbers of theorems are those of Le Boudec &
//! Thiran, Network Calculus, 2001.
//!
//! | module | |
//! |---|---|
//! | `deviation` | the longest stay if nothing goes before the class, exactly |
//! | `queue` | the busy period of one queue under each order of service, with arrivals as stair functions |

mod deviation;
pub(crate) mod queue;

use crate::Class;
use crate::analysis::arrivals::BILLION;

/// Quanta of deficit round robin in proportion to `shares` (parts per billion), the least of them `unit` (ns of work, as the
/// result); 0 without a share.
pub(crate) fn quanta(shares: &[u64; 4], unit: u64) -> [u64; 4] {
    let least = shares.iter().copied().filter(|share| *share > 0).min().unwrap_or(1);
    let quantum = |share: u64| (u128::from(unit) * u128::from(share)).div_ceil(u128::from(least));
    shares.map(|share| u64::try_from(quantum(share)).unwrap_or(u64::MAX))
}

/// The lag of a class behind its share of the link's time in any interval in which it waits, in ns of work (Boyer, Stea & Sofack
/// 2012, theorem 1). One unit that is being sent is included.
pub(crate) fn lag(shares: &[u64; 4], class: Class, unit: u64) -> u64 {
    let quanta = quanta(shares, unit).map(u128::from);
    let (own, all) = (quanta[class as usize].max(1), quanta.iter().sum::<u128>().max(1));
    let others = (all - own.min(all)) + 3 * u128::from(unit);
    let waiting = others + (u128::from(unit) * (all - own.min(all))).div_ceil(own) + u128::from(unit);
    let sum = shares.iter().map(|share| u128::from(*share)).sum::<u128>().clamp(1, BILLION);
    let lag = (waiting * u128::from(shares[class as usize])).div_ceil(sum);
    u64::try_from(lag).unwrap_or(u64::MAX)
}

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
    pub(super) fn billionths(&self, span: u64) -> u128 {
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
}

fn round(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}
