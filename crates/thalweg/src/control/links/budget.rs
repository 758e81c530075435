//! Budgets of peers: a token bucket per source for messages, and bounds for messages that are begun and not ended. Pure: time
//! is an argument.

use super::frame::Kind;
use crate::control::Peer;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Tokens that come per second, and that are there at most. A message costs one, and one for each 4 KiB; a call four times
/// as much: it is work for the control thread, a change less. So one source gets through 250 small calls per second, or
/// 4 MiB of answers.
const RATE: f64 = 1000.0;
const BURST: f64 = 4096.0;
const BYTES_PER_TOKEN: f64 = 4096.0;
const CALL: f64 = 4.0;
/// Bytes per second, and at once, of messages that are no answers. A thousand nodes of one host that start
/// together send less. The limit bounds the processor time that is taken from samples.
const UNASKED_RATE: f64 = (1 << 20) as f64;
const UNASKED_BURST: f64 = (2 << 20) as f64;
/// The kind of calls, as in frames.
const IS_CALL: u8 = Kind::Call as u8;
const IS_ANSWER: u8 = Kind::Answer as u8;

/// Most bytes of unfinished messages of one source: two of the largest.
pub(super) const UNFINISHED_OF_SOURCE: usize = 8 << 20;
/// Most bytes of unfinished messages of all links.
pub(super) const UNFINISHED: usize = 16 << 20;
/// Most links of one address that is not on this host; and of one that is, where each node has the same one.
pub(super) const LINKS_OF_ADDRESS: usize = 64;
pub(super) const LINKS_OF_LOOPBACK: usize = 1024;
/// The most of these without a hello: the oldest gives way.
pub(super) const GREETING_OF_SOURCE: usize = 16;

/// A message that was begun is complete within this time …
const IDLE: Duration = Duration::from_secs(5);
/// … plus the time of its bytes at this rate: half a megabit per second.
const SLOWEST: u64 = 64 << 10;

/// The source whose messages are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// All links to one host.
    Peer(Peer),
    /// All links of a process of this host, identified by the kernel; else it would have as many budgets as links.
    Process(u32),
    /// One link over a unix socket whose process the kernel does not report.
    Link(u64),
}

/// The used budgets of sources.
#[derive(Default)]
pub(super) struct Budgets(HashMap<Source, Budget>);

struct Budget {
    tokens: f64,
    /// Bytes of messages that are no answers.
    unasked: f64,
    at: Instant,
}

impl Budgets {
    /// Takes a message of this size, or returns the time that its source has to wait. A source may owe one message.
    pub(super) fn take(&mut self, source: Source, kind: u8, bytes: usize, now: Instant) -> Result<(), Duration> {
        let budget = self.0.entry(source).or_insert(Budget { tokens: BURST, unasked: UNASKED_BURST, at: now });
        let since = now.saturating_duration_since(budget.at).as_secs_f64();
        budget.tokens = (budget.tokens + since * RATE).min(BURST);
        budget.unasked = (budget.unasked + since * UNASKED_RATE).min(UNASKED_BURST);
        budget.at = now;
        let owed = if kind == IS_ANSWER { 0.0 } else { -budget.unasked / UNASKED_RATE };
        let lacks = owed.max((1.0 - budget.tokens) / RATE);
        if lacks > 0.0 {
            return Err(Duration::from_secs_f64(lacks));
        }
        let times = if kind == IS_CALL { CALL } else { 1.0 };
        budget.tokens -= times * (1.0 + bytes as f64 / BYTES_PER_TOKEN);
        if kind != IS_ANSWER {
            budget.unasked -= times * bytes as f64;
        }
        Ok(())
    }

    /// Notes that a source has no link any more. Its debt is kept until it is paid.
    pub(super) fn forget(&mut self, source: Source, now: Instant) {
        let paid = |budget: &Budget| {
            let since = now.saturating_duration_since(budget.at).as_secs_f64();
            budget.tokens + since * RATE >= BURST && budget.unasked + since * UNASKED_RATE >= UNASKED_BURST
        };
        if matches!(source, Source::Link(_)) {
            self.0.remove(&source);
        }
        self.0.retain(|_, budget| !paid(budget));
    }
}

/// The deadline of a message with this start and number of received bytes.
pub(super) fn due(begun: Instant, bytes: usize) -> Instant {
    begun + IDLE + Duration::from_millis(bytes as u64 * 1000 / SLOWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: u8 = Kind::Document as u8;

    #[test]
    fn a_flood_is_slowed_to_its_rate_and_a_burst_passes() {
        let (mut budgets, start) = (Budgets::default(), Instant::now());
        let source = Source::Peer(Peer::at([10, 0, 0, 1].into()));
        let mut now = start;
        let mut taken = 0;
        for _ in 0..100_000 {
            match budgets.take(source, IS_CALL, 0, now) {
                Ok(()) => taken += 1,
                Err(wait) => now += wait.max(Duration::from_millis(1)),
            }
        }
        let most = 1025 + ((now - start).as_secs_f64() * 250.0) as usize;
        assert!((1024..=most + 10).contains(&taken), "{taken} calls within {:?}", now - start);
        assert!(budgets.take(Source::Process(1), IS_CALL, 0, now).is_ok(), "others are not slowed");
        assert!(budgets.take(source, DOCUMENT, 3_500_000, now + Duration::from_secs(5)).is_ok());
    }

    #[test]
    fn large_documents_are_slowed_and_answers_are_not() {
        let (mut budgets, start) = (Budgets::default(), Instant::now());
        let source = Source::Peer(Peer::at([10, 0, 0, 1].into()));
        let taken = |budgets: &mut Budgets, millis: u64| {
            budgets.take(source, DOCUMENT, 1 << 20, start + Duration::from_millis(millis)).is_ok()
        };
        let documents = (0..10_000).filter(|millis| taken(&mut budgets, *millis)).count();
        assert_eq!(documents, 12, "2 at once and one that is owed, and then one per second");
        assert!(budgets.take(source, IS_ANSWER, 1 << 20, start + Duration::from_secs(10)).is_ok());
        let small = |n| budgets.take(Source::Process(1), DOCUMENT, 2000, start + Duration::from_micros(n)).is_ok();
        assert!((0..1000).all(small), "a thousand nodes of one host");
    }

    #[test]
    fn a_message_that_drips_ends_in_time() {
        let now = Instant::now();
        assert_eq!(due(now, 0) - now, IDLE);
        assert_eq!((due(now, 4 << 20) - now).as_secs(), 69);
    }
}
