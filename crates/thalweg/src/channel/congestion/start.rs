//! Slow start that ends when delays grow, before a queue overflows (HyStart++, RFC 9406).

/// Samples of a round that give its shortest round trip (N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// Bounds, in nanoseconds, of the delay growth that ends slow start: an eighth of a round trip (MIN_RTT_THRESH, MAX_RTT_THRESH).
const LEAST_NS: u64 = 4_000_000;
const MOST_NS: u64 = 16_000_000;
/// The divisor of growth in conservative slow start (CSS_GROWTH_DIVISOR), and its number of rounds (CSS_ROUNDS).
const SLOWER: u64 = 4;
const ROUNDS: u32 = 5;

#[derive(Debug)]
pub(super) struct Start {
    shortest: u64, // of this round
    samples: u32,
    before: u64,                 // shortest of the last round
    careful: Option<(u64, u32)>, // the shortest when it began, and rounds since
}

impl Default for Start {
    fn default() -> Self {
        Self { shortest: u64::MAX, samples: 0, before: u64::MAX, careful: None }
    }
}

impl Start {
    /// Bytes by which the window grows when `delivered` bytes arrived.
    pub(super) fn on_ack(&mut self, delivered: u64, trip_ns: Option<u64>) -> u64 {
        if let Some(trip) = trip_ns {
            self.shortest = self.shortest.min(trip);
            self.samples += 1;
        }
        if self.samples >= SAMPLES && self.before != u64::MAX {
            match self.careful {
                None => {
                    let more = (self.before / 8).clamp(LEAST_NS, MOST_NS);
                    if self.shortest >= self.before.saturating_add(more) {
                        self.careful = Some((self.shortest, 0));
                    }
                }
                Some((baseline, _)) if self.shortest < baseline => self.careful = None,
                Some(_) => {}
            }
        }
        if self.careful.is_some() { delivered / SLOWER } else { delivered }
    }

    /// Ends a round trip. `true`: slow start is over, too.
    pub(super) fn next_round(&mut self) -> bool {
        (self.before, self.shortest, self.samples) = (self.shortest, u64::MAX, 0);
        self.careful.as_mut().is_some_and(|(_, rounds)| {
            *rounds += 1;
            *rounds >= ROUNDS
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(start: &mut Start, trip_ms: u64) -> (u64, bool) {
        let grown = (0..20).map(|_| start.on_ack(100, Some(trip_ms * 1_000_000))).last().unwrap_or(0);
        (grown, start.next_round())
    }

    #[test]
    fn it_slows_down_when_delays_grow_and_ends_five_rounds_later() {
        let mut start = Start::default();
        assert_eq!(round(&mut start, 40), (100, false));
        assert_eq!(round(&mut start, 43), (100, false), "less than an eighth");
        assert_eq!(round(&mut start, 50), (25, false));
        let ends: Vec<_> = (0..4).map(|_| round(&mut start, 50)).collect();
        assert_eq!(ends, [(25, false), (25, false), (25, false), (25, true)]);
    }

    #[test]
    fn it_goes_on_when_the_delay_was_none_of_its_own() {
        let mut start = Start::default();
        let _ = [40, 50].map(|trip| round(&mut start, trip));
        assert_eq!(round(&mut start, 40), (100, false));
    }
}
