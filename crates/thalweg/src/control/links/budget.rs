//! How much peers may say: a token bucket per source for messages, and bounds for those that are begun and not ended. Pure:
//! time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Tokens that come per second, and that are there at most. A message costs one, and one for each 4 KiB; a call four times
/// as much: it is work for the control thread, a change less. So one source gets through 250 small calls per second, or
/// 4 MiB of documents.
const RATE: f64 = 1000.0;
const BURST: f64 = 4096.0;
const BYTES_PER_TOKEN: f64 = 4096.0;
const CALL: f64 = 4.0;

/// Most bytes of unfinished messages of one source: two of the largest.
pub(super) const UNFINISHED_OF_SOURCE: usize = 8 << 20;
/// Most bytes of unfinished messages of all links.
pub(super) const UNFINISHED: usize = 16 << 20;
/// Most links of one address that is not on this host; and of one that is, where each node has the same one.
pub(super) const LINKS_OF_ADDRESS: usize = 64;
pub(super) const LINKS_OF_LOOPBACK: usize = 1024;
/// Of these, most that have not said hello yet: the oldest gives way.
pub(super) const GREETING_OF_SOURCE: usize = 16;

/// A message that was begun is complete within this time …
const IDLE: Duration = Duration::from_secs(5);
/// … and what its bytes take at this rate: half a megabit per second.
const SLOWEST: u64 = 64 << 10;

/// Whose messages are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// All links to one host: an address, of IPv6 its network.
    Address(IpAddr),
    /// One link over a unix socket: the run directory says who may use it.
    Link(u64),
}

/// What sources have used of their budgets.
#[derive(Default)]
pub(super) struct Budgets(HashMap<Source, Budget>);

struct Budget {
    tokens: f64,
    at: Instant,
}

impl Budgets {
    /// Takes a message of this size; else how long its source has to wait for it. It may owe what one message costs.
    pub fn take(&mut self, source: Source, call: bool, bytes: usize, now: Instant) -> Result<(), Duration> {
        let budget = self.0.entry(source).or_insert(Budget { tokens: BURST, at: now });
        let since = now.saturating_duration_since(budget.at).as_secs_f64();
        (budget.tokens, budget.at) = ((budget.tokens + since * RATE).min(BURST), now);
        if budget.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - budget.tokens) / RATE));
        }
        let cost = 1.0 + bytes as f64 / BYTES_PER_TOKEN;
        budget.tokens -= if call { CALL * cost } else { cost };
        Ok(())
    }

    /// A source has no link any more. What it owes is kept for as long as it takes to pay.
    pub fn forget(&mut self, source: Source, now: Instant) {
        let paid = |budget: &Budget| {
            let since = now.saturating_duration_since(budget.at).as_secs_f64();
            budget.tokens + since * RATE >= BURST
        };
        if matches!(source, Source::Link(_)) {
            self.0.remove(&source);
        }
        self.0.retain(|_, budget| !paid(budget));
    }
}

/// When a message must be complete that was begun then and of which so much has come.
pub(super) fn due(begun: Instant, bytes: usize) -> Instant {
    begun + IDLE + Duration::from_millis(bytes as u64 * 1000 / SLOWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_slowed_to_its_rate_and_a_burst_passes() {
        let (mut budgets, start) = (Budgets::default(), Instant::now());
        let source = Source::Address([10, 0, 0, 1].into());
        let mut now = start;
        let mut taken = 0;
        for _ in 0..100_000 {
            match budgets.take(source, true, 0, now) {
                Ok(()) => taken += 1,
                Err(wait) => now += wait.max(Duration::from_millis(1)),
            }
        }
        let most = 1025 + ((now - start).as_secs_f64() * 250.0) as usize;
        assert!((1024..=most + 10).contains(&taken), "{taken} calls within {:?}", now - start);
        assert!(budgets.take(Source::Link(1), true, 0, now).is_ok(), "others are not slowed");
        assert!(budgets.take(source, false, 3_500_000, now + Duration::from_secs(5)).is_ok());
    }

    #[test]
    fn a_message_that_drips_ends_in_time() {
        let now = Instant::now();
        assert_eq!(due(now, 0) - now, IDLE);
        assert_eq!((due(now, 4 << 20) - now).as_secs(), 69);
    }
}
