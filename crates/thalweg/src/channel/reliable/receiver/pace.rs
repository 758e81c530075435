//! How the samples of a flow follow each other, and how late one is.

/// How samples follow each other, for the longest silence (U-26).
#[derive(Debug, Default)]
pub struct Pace {
    pub delivered_at: u64,
    pub last: Option<(u64, u64)>, // number and stamp of the last one
    pub period: u64,
    transit: Option<i64>, // the shortest, the difference of the two clocks included
}

/// The shortest transit follows a drifting clock: by this part of the difference, with every message.
const DRIFT: i64 = 1024;

impl Pace {
    /// The message with this number, published at `stamp`, is delivered.
    pub fn delivered(&mut self, now_ns: u64, at: u64, stamp: u64) {
        self.delivered_at = now_ns;
        if let Some((number, last)) = self.last.filter(|(number, _)| at > *number) {
            let each = stamp.saturating_sub(last) / (at - number);
            self.period = if self.period == 0 { each } else { (7 * self.period + each) / 8 };
        }
        self.last = Some((at, stamp));
    }

    /// How much longer than the shortest transit this one took: the message's age beyond what is inevitable.
    pub fn late_by(&mut self, now_ns: u64, stamp: u64) -> u64 {
        let transit = now_ns.wrapping_sub(stamp) as i64;
        let shortest = self.transit.map_or(transit, |shortest| transit.min(shortest + (transit - shortest) / DRIFT));
        self.transit = Some(shortest);
        transit.abs_diff(shortest)
    }
}
