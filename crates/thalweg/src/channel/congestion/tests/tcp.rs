//! A model of TCP with selective acknowledgements, Reno (RFC 5681, 6675) or CUBIC (RFC 9438), written for the test alone.

use super::bottleneck::Source;
use std::collections::BTreeMap;

const SEGMENT: usize = 1500;
/// Later segments after which one is lost.
const OVERTAKEN: u64 = 3;

#[derive(Clone, Copy, PartialEq)]
pub enum Growth {
    Reno,
    Cubic,
}

pub struct Tcp {
    growth: Growth,
    window: f64, // segments
    threshold: f64,
    top: f64,
    since: Option<u64>,
    reno: f64,
    round_trip: f64,
    next: u64,
    recovers_until: u64,
    under_way: BTreeMap<u64, u64>, // number, when it left
    heard_at: u64,
}

impl Tcp {
    pub fn new(growth: Growth) -> Self {
        Self {
            growth,
            window: 10.0,
            threshold: f64::MAX,
            top: 0.0,
            since: None,
            reno: 10.0,
            round_trip: 1e8,
            next: 0,
            recovers_until: 0,
            under_way: BTreeMap::new(),
            heard_at: 0,
        }
    }

    fn shrink(&mut self) {
        let left = if self.growth == Growth::Reno { 0.5 } else { 0.7 };
        self.top = if self.window < self.top { self.window * (1.0 + left) / 2.0 } else { self.window };
        self.window = (self.window * left).max(2.0);
        (self.threshold, self.since, self.recovers_until) = (self.window, None, self.next);
    }

    fn grow(&mut self, now: u64) {
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        if self.growth == Growth::Reno {
            self.window += 1.0 / self.window;
            return;
        }
        if self.since.is_none() {
            (self.reno, self.top) = (self.window, self.top.max(self.window));
        }
        let since = *self.since.get_or_insert(now);
        let shrunk = self.reno.min(self.window);
        let k = if shrunk < self.top { (self.top * 0.3 / 0.4).cbrt() } else { 0.0 };
        let t = (now - since) as f64 / 1e9 + self.round_trip / 1e9;
        let target = (self.top + 0.4 * (t - k).powi(3)).clamp(self.window, self.window * 1.5);
        self.reno += 0.9 / 1.7 / self.window;
        self.window = (self.window + (target - self.window) / self.window).max(self.reno);
    }
}

impl Source for Tcp {
    fn next(&mut self, now: u64) -> Result<(u64, usize), Option<u64>> {
        let timeout = (4.0 * self.round_trip) as u64 + 200_000_000;
        if !self.under_way.is_empty() && now > self.heard_at + timeout {
            self.shrink();
            (self.window, self.heard_at) = (1.0, now);
            self.under_way.clear();
        }
        if self.under_way.len() as f64 >= self.window {
            return Err(Some(self.heard_at + timeout + 1));
        }
        if self.under_way.is_empty() {
            self.heard_at = now;
        }
        self.next += 1;
        self.under_way.insert(self.next, now);
        Ok((self.next, SEGMENT))
    }

    fn answered(&mut self, now: u64, number: u64, _received: u64) {
        self.heard_at = now;
        let Some(left) = self.under_way.remove(&number) else { return };
        self.round_trip = 0.875 * self.round_trip + 0.125 * (now - left) as f64;
        let lost = self.under_way.keys().take_while(|other| **other + OVERTAKEN < number).count();
        (0..lost).for_each(|_| _ = self.under_way.pop_first());
        match lost {
            0 if number > self.recovers_until => self.grow(now),
            0 => {}
            _ if number > self.recovers_until => self.shrink(),
            _ => {}
        }
    }

    fn every(&self) -> u64 {
        1
    }
}
