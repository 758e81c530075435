//! One direction of a link, pure: which frame leaves when, and whether any window had more than its rate, by the times that
//! are handed in.

use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;
use thalweg::carrier::Dice;

/// The behaviour of one direction. The default has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Behaviour {
    /// From the end of a frame's transmission to its arrival.
    pub delay: Duration,
    /// The delay is this much shorter or longer, uniformly; the order stays.
    pub jitter: Duration,
    /// Share of the frames that vanish on the way, 0 to 1. They have used the line.
    pub loss: f64,
    /// Share of the frames that are not delayed and so overtake the others, 0 to 1.
    pub reorder: f64,
    /// Bits per second, whole Ethernet frames counted; `None`: no limit.
    pub rate: Option<u64>,
    /// Bytes that may wait for the line; a frame that does not fit is dropped.
    pub queue: u64,
    /// The node at this end sends on once a period: a datagram waits for the next one of its flow.
    pub periodic: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        let zero = Duration::ZERO;
        Self { delay: zero, jitter: zero, loss: 0.0, reorder: 0.0, rate: None, queue: QUEUE, periodic: false }
    }
}

/// A hundred full frames.
const QUEUE: u64 = 150_000;

/// Counts of frames so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames that came in.
    pub arrived: u64,
    /// Frames that found the queue full.
    pub overflowed: u64,
    /// Frames that were lost, as the behaviour wants it.
    pub lost: u64,
    /// Frames that overtook others, as the behaviour wants it.
    pub reordered: u64,
    /// Frames that left.
    pub released: u64,
}

/// The state of one direction. A frame is any value of the caller's.
pub(super) struct Line<F> {
    behaviour: Behaviour,
    dice: Dice,
    free_at: u64, // ns: when the line has sent all that it has
    last: u64,    // ns: when the last frame leaves that does not overtake
    backlog: u64, // bits since the line was last idle that no released frame accounts for
    waiting: BinaryHeap<Reverse<Entry<F>>>,
    counts: Counts,
}

/// A frame that leaves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Leaving<F> {
    /// Time to leave, in nanoseconds of the caller's clock.
    pub at: u64,
    /// The frame.
    pub frame: F,
    /// Bits that the line sent since the frame before, if it was busy all the time; they measure the rate.
    pub back_to_back: Option<u64>,
}

impl<F> Line<F> {
    /// A line at rest; the same seed gives the same losses.
    pub(super) fn new(behaviour: Behaviour, seed: u64) -> Self {
        let (dice, counts) = (Dice::new(seed), Counts::default());
        Self { behaviour, dice, free_at: 0, last: 0, backlog: 0, waiting: BinaryHeap::new(), counts }
    }

    /// Behaves otherwise from now on. A frame that is waiting keeps its time.
    pub(super) fn behave(&mut self, behaviour: Behaviour) {
        self.behaviour = behaviour;
    }

    /// A frame of `length` bytes comes in at `now` (nanoseconds, never less than before). Gives it back if it goes no further.
    pub(super) fn arrive(&mut self, now: u64, length: u64, frame: F) -> Option<F> {
        self.counts.arrived += 1;
        let busy = self.free_at > now;
        if busy && self.bytes_waiting(now) + length > self.behaviour.queue {
            self.counts.overflowed += 1;
            return Some(frame);
        }
        self.free_at = self.free_at.max(now) + self.transmission(length);
        self.backlog = if busy { self.backlog + length * 8 } else { 0 };
        if self.dice.chance(self.behaviour.loss) {
            self.counts.lost += 1;
            return Some(frame);
        }
        let at = self.leaves_at();
        let back_to_back = (self.backlog > 0).then(|| std::mem::take(&mut self.backlog));
        let number = self.counts.arrived;
        self.waiting.push(Reverse(Entry { number, leaving: Leaving { at, frame, back_to_back } }));
        None
    }

    /// Time at which the next frame leaves.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.waiting.peek().map(|Reverse(entry)| entry.leaving.at)
    }

    /// The next frame, if it is due.
    pub(super) fn leave(&mut self, now: u64) -> Option<Leaving<F>> {
        self.next_at().filter(|at| *at <= now)?;
        self.counts.released += 1;
        self.waiting.pop().map(|Reverse(entry)| entry.leaving)
    }

    /// Time at which the line has sent all that came in so far.
    pub(super) fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Counts of frames so far.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    fn leaves_at(&mut self) -> u64 {
        if self.dice.chance(self.behaviour.reorder) {
            self.counts.reordered += 1;
            return self.free_at;
        }
        let delay = self.dice.around(nanoseconds(self.behaviour.delay), nanoseconds(self.behaviour.jitter));
        self.last = self.last.max(self.free_at + delay);
        self.last
    }

    fn bytes_waiting(&self, now: u64) -> u64 {
        let busy = u128::from(self.free_at.saturating_sub(now));
        (busy * u128::from(self.behaviour.rate.unwrap_or(0)) / 8_000_000_000) as u64
    }

    fn transmission(&self, length: u64) -> u64 {
        let Some(rate) = self.behaviour.rate else { return 0 };
        (u128::from(length) * 8_000_000_000).div_ceil(u128::from(rate.max(1))) as u64
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// A waiting frame, ordered by time of leaving, then of arrival.
struct Entry<F> {
    number: u64,
    leaving: Leaving<F>,
}

impl<F> Entry<F> {
    fn key(&self) -> (u64, u64) {
        (self.leaving.at, self.number)
    }
}

impl<F> PartialEq for Entry<F> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<F> Eq for Entry<F> {}

impl<F> PartialOrd for Entry<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> Ord for Entry<F> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// The line stood still with its thread. Frames that came meanwhile wait in front of it, whatever their marks, so that each later
/// frame is late by this time at most, until the line was idle once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandStill {
    /// The time for which it stood still, in nanoseconds.
    pub ns: u64,
    /// Time at which it went on, by CLOCK_MONOTONIC.
    pub to_ns: u64,
    /// Time at which it had sent all that waited; `None`: not yet.
    pub drained_ns: Option<u64>,
}

impl StandStill {
    /// The most of a delay from `from_ns` on, in nanoseconds, that is this one's doing, less what it met of the standing still itself.
    pub fn delays(&self, from_ns: u64) -> u64 {
        let waits = self.drained_ns.is_none_or(|drained| from_ns < drained);
        if waits { self.ns.saturating_sub(self.to_ns.saturating_sub(from_ns)) } else { 0 }
    }

    /// What is left of that at `from_ns`, if it shrinks evenly until the line has sent all that waited.
    pub fn left(&self, from_ns: u64) -> u64 {
        let most = self.delays(from_ns);
        match self.drained_ns {
            Some(drained) if from_ns > self.to_ns && drained > self.to_ns => {
                (u128::from(most) * u128::from(drained - from_ns.min(drained)) / u128::from(drained - self.to_ns))
                    as u64
            }
            _ => most,
        }
    }
}

/// The bytes that one direction sent beyond its rate in the worst window, by the times at which frames left.
#[derive(Clone, Copy, Debug)]
pub struct RateExcess {
    rate: f64,   // bytes per nanosecond
    beyond: f64, // bytes, in the window that ends now and is the worst of those
    last: u64,
    most: f64,
}

impl RateExcess {
    /// The meter of a line with this rate in bit/s; without a rate there is no excess.
    pub fn new(rate: Option<u64>) -> Self {
        let rate = rate.map_or(f64::INFINITY, |rate| rate as f64 / 8e9);
        Self { rate, beyond: 0.0, last: 0, most: 0.0 }
    }

    /// The rate from now on.
    pub fn change_rate(&mut self, rate: Option<u64>) {
        let most = self.most;
        *self = Self { most, last: self.last, ..Self::new(rate) };
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
mod tests;
