//! Packets in a link's queue: deterministic network calculus (Cruz 1991; Le Boudec & Thiran 2001).
//!
//! | module | what it holds |
//! |---|---|
//! | `curve` | arrival and service curves, and what follows from a pair of them |
//! | `deviation` | the longest stay where nothing goes before the class, exactly |
//! | `queue` | the busy period of one queue under each order of service, with arrivals as stair functions |

pub mod curve;
mod deviation;
pub mod queue;

use crate::Class;
use crate::analysis::arrivals::BILLION;

/// Quanta of deficit round robin in proportion to `shares` (parts per billion), the least of them `unit` (ns of work, as the
/// result); 0 without a share.
pub fn quanta(shares: &[u64; 4], unit: u64) -> [u64; 4] {
    let least = shares.iter().copied().filter(|share| *share > 0).min().unwrap_or(1);
    let quantum = |share: u64| (u128::from(unit) * u128::from(share)).div_ceil(u128::from(least));
    shares.map(|share| u64::try_from(quantum(share)).unwrap_or(u64::MAX))
}

/// The lag of a class behind its share of the link's time in any interval in which it waits, in ns of work (Boyer, Stea & Sofack
/// 2012, theorem 1). One unit that is being sent is included.
pub fn lag(shares: &[u64; 4], class: Class, unit: u64) -> u64 {
    let quanta = quanta(shares, unit).map(u128::from);
    let (own, all) = (quanta[class as usize].max(1), quanta.iter().sum::<u128>().max(1));
    let others = (all - own.min(all)) + 3 * u128::from(unit);
    let waiting = others + (u128::from(unit) * (all - own.min(all))).div_ceil(own) + u128::from(unit);
    let sum = shares.iter().map(|share| u128::from(*share)).sum::<u128>().clamp(1, BILLION);
    let lag = (waiting * u128::from(shares[class as usize])).div_ceil(sum);
    u64::try_from(lag).unwrap_or(u64::MAX)
}
