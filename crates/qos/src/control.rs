//! What nodes send beside samples, and how often at most. They keep to it, and limits of sessions count it.

use std::time::Duration;

/// The shortest silence after which a stream goes another way, even if its policies ask for less: a busy host may be away for this long.
pub const SHORTEST_SILENCE: Duration = Duration::from_millis(500);
/// Heartbeats that are asked for within the silence that is allowed.
pub const QUESTIONS: u32 = 5;
/// Packets of each heartbeat in either direction: its byte, and TCP's acknowledgement of the other one's.
pub const PACKETS_OF_HEARTBEAT: u64 = 2;
/// The shortest idle time, ns, after which a keep-alive asks for acknowledgement.
pub const SHORTEST_IDLE_NS: u64 = 20_000_000;
/// The longest pause, ns, between a message or keep-alive and the next keep-alive while an answer is due. After an outage samples
/// come again within 100 ms (P-16): half of that until a member asks, the rest for question, answer and retransmit.
pub const LONGEST_BEAT_NS: u64 = 50_000_000;
/// After this many periods without a message a reliable flow is idle.
const IDLE_PERIODS: u64 = 2;

/// The time without a message, ns, after which a reliable flow with this period asks for acknowledgement; as long, at least, between two
/// such questions.
pub fn keep_alive_after_ns(period_ns: u64) -> u64 {
    IDLE_PERIODS.saturating_mul(period_ns).clamp(SHORTEST_IDLE_NS, LONGEST_BEAT_NS)
}

/// The shortest time between two heartbeats of a channel.
pub fn heartbeat_every() -> Duration {
    SHORTEST_SILENCE / QUESTIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_within_their_limits() {
        let after_ms = [0, 5, 12, 25, 1000].map(|period| keep_alive_after_ns(period * 1_000_000) / 1_000_000);
        assert_eq!(after_ms, [20, 20, 24, 50, 50]);
        assert_eq!(keep_alive_after_ns(u64::MAX), LONGEST_BEAT_NS);
        assert_eq!(heartbeat_every(), Duration::from_millis(100));
    }
}
