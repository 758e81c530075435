//! The loss of a path, as its receiver counts it, and the number of retransmits of a message before a request.

/// Messages between two estimates.
const ENOUGH: u64 = 16;
/// The least share of losses that matters.
const NOTICEABLE: f64 = 1.0 / 128.0;
/// The probability of a message that is late by two round trips (U-26).
const RARE: f64 = 1e-4;
/// The probability that all questions to a member, or its answers, were lost.
const SILENT: f64 = 1e-6;
/// Bounds of their number.
const QUESTIONS: (u32, u32) = (16, 32);
/// The shortest pause between two copies: a thread does not wake up more exactly.
const SHORTEST_NS: u64 = 1_000_000;

/// The share of messages that do not arrive when they are sent first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    share: f64,
    last: Option<(u64, u32)>, // the last reported numbers of seen and fresh messages
}

impl Loss {
    /// Takes a report: the receiver saw messages up to `seen`, and `fresh` of them without a retransmit.
    pub(super) fn told(&mut self, seen: u64, fresh: u32) {
        let Some((seen_before, fresh_before)) = self.last else {
            self.last = Some((seen, fresh));
            return;
        };
        let passed = seen.saturating_sub(seen_before);
        if passed < ENOUGH {
            return;
        }
        let came = u64::from(fresh.wrapping_sub(fresh_before)).min(passed);
        let now = 1.0 - came as f64 / passed as f64;
        // Up at once, down slowly: losses come in bursts.
        self.share = if now > self.share { now } else { (7.0 * self.share + now) / 8.0 };
        self.last = Some((seen, fresh));
    }

    pub(super) fn share(&self) -> f64 {
        self.share
    }

    pub(super) fn is_noticeable(&self) -> bool {
        self.share > NOTICEABLE
    }

    /// The number of unanswered questions in a row that shows an absent member, if answers are lost as often as messages.
    pub(super) fn questions(&self) -> u32 {
        let answered = (1.0 - self.share.min(0.99)).powi(2);
        let count = (SILENT.ln() / (1.0 - answered).ln()).ceil();
        (count as u32).clamp(QUESTIONS.0, QUESTIONS.1)
    }

    /// The pause between two copies: enough of them leave within two round trips that all are lost only rarely.
    pub(super) fn interval_ns(&self, trip_ns: u64) -> u64 {
        let share = self.share.clamp(NOTICEABLE, 0.5);
        let copies = (RARE.ln() / share.ln()).ceil() as u64;
        (2 * trip_ns / copies.max(1)).max(SHORTEST_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_what_came_and_copies_follow_the_share() {
        let mut loss = Loss::default();
        loss.told(100, 90);
        assert_eq!((loss.share(), loss.is_noticeable()), (0.0, false), "one count is no rate");
        loss.told(110, 95);
        assert_eq!(loss.share(), 0.0, "too few");
        loss.told(200, 160);
        assert!((loss.share() - 0.3).abs() < 1e-9);
        assert_eq!(loss.interval_ns(40_000_000), 10_000_000, "0.3^8 < 10⁻⁴");
        assert_eq!((Loss::default().questions(), loss.questions()), (16, 21), "0.51^21 < 10⁻⁶");
        (3..100).for_each(|n| loss.told(n * 100, 160 + (n as u32 - 2) * 100));
        assert!(!loss.is_noticeable() && loss.interval_ns(40_000_000) == 40_000_000, "0.0078^2 < 10⁻⁴");
    }
}
