//! Whether a line was ever faster than its rate: what left beyond it, in the worst window.

/// Of one direction, by the times at which frames left.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    rate: f64,   // bytes per nanosecond
    beyond: f64, // bytes, in the window that ends now and is the worst of those
    last: u64,
    most: f64,
}

impl Ahead {
    /// Of a line with so many bits per second; one without a rate is never ahead of it.
    pub fn new(rate: Option<u64>) -> Self {
        let rate = rate.map_or(f64::INFINITY, |rate| rate as f64 / 8e9);
        Self { rate, beyond: 0.0, last: 0, most: 0.0 }
    }

    /// A frame left at this time.
    pub fn left(&mut self, now_ns: u64, bytes: u64) {
        let given = self.rate * (now_ns.saturating_sub(self.last).max(1)) as f64;
        self.beyond = (self.beyond - given).max(0.0) + bytes as f64;
        (self.last, self.most) = (now_ns, self.most.max(self.beyond));
    }

    /// Bytes beyond the rate in the worst window, its first frame among them.
    pub fn most(&self) -> u64 {
        if self.rate.is_finite() { self.most.ceil() as u64 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_to_the_rate_is_a_frame_ahead_and_a_burst_is_more() {
        // 8 Gbit/s: a byte in a nanosecond.
        let mut even = Ahead::new(Some(8_000_000_000));
        (1..100).for_each(|n| even.left(n * 1000, 1000));
        assert_eq!(even.most(), 1000);
        even.left(99_500, 1000);
        even.left(99_600, 1000);
        assert_eq!(even.most(), 2400, "1000 at 99,000, and 2000 within 600 ns");
        let mut none = Ahead::new(None);
        (0..100).for_each(|_| none.left(5, 1000));
        assert_eq!(none.most(), 0);
    }
}
