//! Comparison of two clocks by questions and answers, with certain bounds (V-11; F-5).

/// The offset of a peer's monotonic clock from this host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds to add to the peer's stamps to get this host's.
    pub offset_ns: i128,
    /// The largest distance of the true offset from it, in nanoseconds, at [`ClockOffset::at_ns`].
    pub uncertainty_ns: u64,
    /// Time of the last answer, by this host's clock.
    pub at_ns: u64,
}

/// The largest drift between two clocks, in nanoseconds per second: twice the specification of cheap quartzes (100
/// ppm each).
pub const DRIFT_NS_PER_S: u64 = 200_000;

/// A question and its answer: time of the question, the peer's clock in between, time of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// This host's clock.
    pub asked_ns: u64,
    /// The peer's.
    pub peer_ns: u64,
    /// This host's.
    pub answered_ns: u64,
}

impl ClockOffset {
    /// The offset from several exchanges. The peer read its clock at some time between request and answer, so each
    /// exchange gives an interval that certainly contains the offset. Their intersection, each widened by the
    /// possible drift since, is narrower. `None`: no exchange, or a clock was stepped in between.
    pub fn of(exchanges: &[Exchange]) -> Option<Self> {
        let at_ns = exchanges.iter().map(|e| e.answered_ns).max()?;
        let (mut least, mut most) = (i128::MIN, i128::MAX);
        for Exchange { asked_ns, peer_ns, answered_ns } in exchanges {
            let drift = drift(at_ns - answered_ns);
            least = least.max(i128::from(*asked_ns) - i128::from(*peer_ns) - drift);
            most = most.min(i128::from(*answered_ns) - i128::from(*peer_ns) + drift);
        }
        let uncertainty_ns = u64::try_from(most.checked_sub(least)?).ok()?.div_ceil(2);
        Some(Self { offset_ns: least + i128::from(uncertainty_ns), uncertainty_ns, at_ns })
    }

    /// Time from a stamp of the peer to one of this host, and its uncertainty, in nanoseconds. `None`: it would be negative by
    /// more than that, so one of the clocks was stepped.
    pub fn elapsed_ns(&self, peer_ns: u64, here_ns: u64) -> Option<(u64, u64)> {
        let uncertainty = self.uncertainty_ns.saturating_add(u64::try_from(drift(here_ns.abs_diff(self.at_ns))).ok()?);
        let elapsed = i128::from(here_ns) - i128::from(peer_ns) - self.offset_ns;
        (elapsed >= -i128::from(uncertainty)).then(|| (u64::try_from(elapsed).unwrap_or(0), uncertainty))
    }

    /// A stamp of the peer in this host's clock, and its uncertainty, in nanoseconds.
    pub fn here_ns(&self, peer_ns: u64) -> (i128, u64) {
        let here = i128::from(peer_ns) + self.offset_ns;
        let since = u64::try_from((here - i128::from(self.at_ns)).unsigned_abs()).unwrap_or(u64::MAX);
        (here, self.uncertainty_ns.saturating_add(u64::try_from(drift(since)).unwrap_or(u64::MAX)))
    }
}

fn drift(ns: u64) -> i128 {
    i128::from(ns) * i128::from(DRIFT_NS_PER_S) / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_fastest_answer_says_most() {
        let far = Exchange { asked_ns: 1_000_000, peer_ns: 501_500, answered_ns: 1_003_000 };
        let near = Exchange { asked_ns: 1_010_000, peer_ns: 510_050, answered_ns: 1_010_100 };
        let found = ClockOffset::of(&[far, near]).unwrap();
        assert_eq!((found.offset_ns, found.uncertainty_ns, found.at_ns), (500_000, 50, 1_010_100));
        assert_eq!(found.elapsed_ns(600_000, 1_130_000), Some((30_000, 50 + 23)));
        assert_eq!(found.elapsed_ns(600_000, 1_000_000), None, "earlier than it was sent");
        assert_eq!(found.here_ns(600_000), (1_100_000, 50 + 17));
        assert_eq!(ClockOffset::of(&[]), None);
    }

    proptest! {
        /// Delays of any asymmetry, and clocks that drift: the truth is always within.
        #[test]
        fn the_true_offset_is_within(
            ahead in 0u64..1 << 60,
            ppm in -100i128..=100,
            trips in prop::collection::vec((0u64..5_000_000, 0u64..5_000_000), 1..20),
        ) {
            let peer_at = |here: u64| {
                u64::try_from(i128::from(here) + i128::from(here) * ppm / 1_000_000 + i128::from(ahead)).unwrap()
            };
            let (mut now, mut exchanges) = (1_000_000_000, Vec::new());
            for (there, back) in trips {
                let exchange = Exchange { asked_ns: now, peer_ns: peer_at(now + there), answered_ns: now + there + back };
                now = exchange.answered_ns + 1_000;
                exchanges.push(exchange);
            }
            let found = ClockOffset::of(&exchanges).unwrap();
            let truth = i128::from(found.at_ns) - i128::from(peer_at(found.at_ns));
            prop_assert!((truth - found.offset_ns).abs() <= i128::from(found.uncertainty_ns) + 1);
        }

        #[test]
        fn absurd_clocks_do_no_harm(asked in any::<u64>(), peer in any::<u64>(), answered in any::<u64>(), stamp in any::<u64>()) {
            let exchange = Exchange { asked_ns: asked, peer_ns: peer, answered_ns: answered };
            let _ = ClockOffset::of(&[exchange]).map(|found| (found.elapsed_ns(stamp, answered), found.here_ns(stamp)));
        }
    }
}
