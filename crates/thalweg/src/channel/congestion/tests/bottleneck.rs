//! A bottleneck in virtual time: one queue that drops datagrams when it is full, a line with a rate and delay, and random loss.

use crate::carrier::Dice;
use std::collections::BTreeMap;

/// A path that several flows share.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub bytes_per_s: u64,
    pub queue_bytes: u64,
    pub trip_ns: u64,
    pub loss: f64,
}

/// A sender that always has something to send.
pub trait Source {
    /// The number and bytes of the next datagram, if it may leave now; otherwise the time to ask again, unless an answer comes.
    fn next(&mut self, now_ns: u64) -> Result<(u64, usize), Option<u64>>;
    /// The datagram with this number came, and its receipt is here.
    fn answered(&mut self, now_ns: u64, number: u64, received: u64);
    /// Datagrams that one answer answers.
    fn every(&self) -> u64;
}

enum Event {
    Ask(usize),
    Arrives { flow: usize, number: u64, bytes: usize },
    Answered { flow: usize, number: u64, received: u64 },
}

/// Flows over one path, and the bytes of each that arrived.
pub struct Run {
    path: Path,
    dice: Dice,
    events: BTreeMap<(u64, u64), Event>,
    order: u64,
    free_at: u64,
    flows: Vec<Box<dyn Source>>,
    received: Vec<(u64, u64)>, // bytes and datagrams
    asks: Vec<u64>,            // when each flow is asked next
    pub longest_queue_ns: u64,
}

impl Run {
    pub fn new(seed: u64, path: Path, flows: Vec<Box<dyn Source>>) -> Self {
        let received = vec![(0, 0); flows.len()];
        let (events, dice, asks) = (BTreeMap::new(), Dice::new(seed), vec![u64::MAX; flows.len()]);
        let mut run = Self { path, dice, events, order: 0, free_at: 0, flows, received, asks, longest_queue_ns: 0 };
        // One after the other, a tenth of a second apart.
        (0..run.flows.len()).for_each(|flow| run.ask_at(flow as u64 * 100_000_000, flow));
        run
    }

    /// Bytes per second of each flow between the two moments.
    pub fn goodput(&mut self, from_ns: u64, to_ns: u64) -> Vec<f64> {
        self.until(from_ns);
        let before = self.received.clone();
        self.until(to_ns);
        let seconds = (to_ns - from_ns) as f64 / 1e9;
        self.received.iter().zip(before).map(|(now, before)| (now.0 - before.0) as f64 / seconds).collect()
    }

    fn at(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn ask_at(&mut self, at: u64, flow: usize) {
        if self.asks[flow] != at {
            self.asks[flow] = at;
            self.at(at, Event::Ask(flow));
        }
    }

    fn until(&mut self, end: u64) {
        while let Some(first) = self.events.first_entry().filter(|first| first.key().0 <= end) {
            let ((now, _), event) = first.remove_entry();
            match event {
                Event::Ask(flow) if self.asks[flow] == now => {
                    self.asks[flow] = u64::MAX;
                    self.ask(now, flow);
                }
                Event::Ask(_) => {} // it is asked at another time
                Event::Arrives { flow, number, bytes } => self.arrives(now, flow, number, bytes),
                Event::Answered { flow, number, received } => {
                    self.flows[flow].answered(now, number, received);
                    self.ask(now, flow);
                }
            }
        }
    }

    fn ask(&mut self, now: u64, flow: usize) {
        loop {
            match self.flows[flow].next(now) {
                Ok((number, bytes)) => self.send(now, flow, number, bytes),
                Err(Some(at)) => return self.ask_at(at.max(now + 1000), flow),
                Err(None) => return,
            }
        }
    }

    fn send(&mut self, now: u64, flow: usize, number: u64, bytes: usize) {
        let Path { bytes_per_s, queue_bytes, trip_ns, loss } = self.path;
        let waits = self.free_at.saturating_sub(now);
        let queued = waits * bytes_per_s / 1_000_000_000;
        if queued + bytes as u64 > queue_bytes || self.dice.chance(loss) {
            return;
        }
        self.longest_queue_ns = self.longest_queue_ns.max(waits);
        self.free_at = self.free_at.max(now) + bytes as u64 * 1_000_000_000 / bytes_per_s;
        self.at(self.free_at + trip_ns / 2, Event::Arrives { flow, number, bytes });
    }

    fn arrives(&mut self, now: u64, flow: usize, number: u64, bytes: usize) {
        let (sum, count) = &mut self.received[flow];
        (*sum, *count) = (*sum + bytes as u64, *count + 1);
        if (*count).is_multiple_of(self.flows[flow].every()) {
            let received = *sum;
            self.at(now + self.path.trip_ns / 2, Event::Answered { flow, number, received });
        }
    }
}
