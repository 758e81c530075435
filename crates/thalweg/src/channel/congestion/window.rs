//! The window of a flow in bytes: its growth (CUBIC, RFC 9438) and its start (HyStart++, RFC 9406).

/// The window, which grows by CUBIC (RFC 9438).
#[derive(Debug)]
pub(super) struct Cubic {
    datagram: f64,
    least: f64,
    window: f64,
    top: f64,  // W_max: the window before it shrank
    reno: f64, // W_est
    since: Option<Epoch>,
}

/// Growth since the window shrank.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    at: u64,
    k: f64, // seconds until the window is at the top again
}

impl Cubic {
    /// Datagrams have this many bytes from now on. The least window stays: the receiver sends a receipt after the same number of
    /// bytes as before, and a smaller window would bring none.
    pub(super) fn shrink(&mut self, datagram: usize) {
        self.datagram = datagram as f64;
    }

    pub(super) fn new(datagram: usize, least: usize, initial: usize) -> Self {
        let [datagram, least, window] = [datagram, least, initial].map(|bytes| bytes as f64);
        Self { datagram, least, window, top: 0.0, reno: window, since: None }
    }

    #[inline]
    pub(super) fn window(&self) -> u64 {
        self.window as u64
    }

    /// Grows by this many bytes, in slow start.
    pub(super) fn widen(&mut self, bytes: u64) {
        self.window = (self.window + bytes as f64).min(MOST);
    }

    /// Slow start ended without a loss: growth continues from here.
    pub(super) fn settle(&mut self) {
        (self.top, self.since) = (self.window, None);
    }

    /// Grows by bytes that arrived while the window was full (§4.2 to §4.5).
    pub(super) fn grow(&mut self, now_ns: u64, delivered: u64, trip_ns: u64) {
        let Epoch { at, k } = *self.since.get_or_insert_with(|| {
            self.top = self.top.max(self.window);
            self.reno = self.window;
            Epoch { at: now_ns, k: ((self.top - self.window) / self.datagram / C).cbrt() }
        });
        let seconds = now_ns.saturating_sub(at).saturating_add(trip_ns) as f64 / 1e9;
        let cubic = self.top + C * (seconds - k).powi(3) * self.datagram;
        let alpha = if self.reno < self.top { ALPHA } else { 1.0 };
        self.reno += alpha * self.datagram * delivered as f64 / self.window;
        // The window grows by at most half within a round trip (§4.4).
        let target = cubic.clamp(self.window, 1.5 * self.window);
        let grown = self.window + (target - self.window) * (delivered as f64 / self.window).min(1.0);
        self.window = grown.max(self.reno.min(1.5 * self.window)).min(MOST);
    }

    /// A sign of congestion (§4.6, with fast convergence, §4.7).
    pub(super) fn reduce(&mut self) {
        self.top = if self.window < self.top { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(self.least);
        self.since = None;
    }

    /// Persistent congestion: no receipt came for long (RFC 9002 §7.6.2). Returns `true` if the window changes.
    pub(super) fn collapse(&mut self) -> bool {
        let changes = self.window > self.least;
        if changes {
            self.reduce();
            self.window = self.least;
        }
        changes
    }
}

/// Slow start that ends when delays grow, before a queue overflows (HyStart++, RFC 9406).
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
        if let Some(round_trip) = trip_ns {
            self.shortest = self.shortest.min(round_trip);
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

/// C in segments per second cubed (§5.1).
const C: f64 = 0.4;
/// Share of the window that remains after a sign of congestion (§4.6).
const BETA: f64 = 0.7;
/// Growth per round trip by which Reno would have the same share with [`BETA`] (§4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// No window is larger.
const MOST: f64 = (1u64 << 40) as f64;

/// Samples of a round that give its shortest round trip (N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// Bounds, in nanoseconds, of the delay growth that ends slow start: an eighth of a round trip (MIN_RTT_THRESH, MAX_RTT_THRESH).
const LEAST_NS: u64 = 4_000_000;
const MOST_NS: u64 = 16_000_000;
/// The divisor of growth in conservative slow start (CSS_GROWTH_DIVISOR), and its number of rounds (CSS_ROUNDS).
const SLOWER: u64 = 4;
const ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9438 §4.2: after K = ∛(W_max (1 − β) / C) seconds the window has its former size.
    #[test]
    fn after_k_seconds_the_window_is_back() {
        let mut cubic = Cubic::new(1000, 4000, 1_000_000);
        cubic.reduce();
        assert_eq!(cubic.window(), 700_000);
        let (k, round_trip) = ((1000.0f64 * 0.3 / 0.4).cbrt(), 100_000_000);
        let mut now = 0;
        while (now as f64) < k * 1e9 {
            cubic.grow(now, cubic.window(), round_trip);
            now += round_trip;
        }
        assert!((990_000..1_050_000).contains(&cubic.window()), "{} after {k} s", cubic.window());
    }

    /// §4.3: where Reno would be faster, the window grows as fast as Reno's.
    #[test]
    fn on_short_paths_it_is_no_slower_than_reno() {
        let mut cubic = Cubic::new(1000, 4000, 20_000);
        cubic.reduce();
        (0..100).for_each(|round| cubic.grow(round * 1_000_000, cubic.window(), 1_000_000));
        let reno = 14_000.0 + ALPHA * 100.0 * 1000.0;
        assert!(cubic.window() as f64 > reno * 0.95, "{} of {reno}", cubic.window());
    }

    #[test]
    fn a_window_falls_to_the_least_and_no_further() {
        let mut cubic = Cubic::new(1000, 4000, 10_000);
        (0..10).for_each(|_| cubic.reduce());
        assert_eq!((cubic.window(), cubic.collapse()), (4000, false));
    }

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
        let _ = [40, 50].map(|round_trip| round(&mut start, round_trip));
        assert_eq!(round(&mut start, 40), (100, false));
    }
}
