//! The role that sends at random distances, and stamps what it sends and what comes back.

use super::CARRIERS;
use super::ends::{End, Ends, LARGEST, Priority, Ready};
use crate::error::{Error, Result};
use crate::part::Orders;
use linux::clock::monotonic_ns;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::testing::Dice;
use thalweg::{Publisher, Subscriber};

/// Name of the role.
pub const ROLE: &str = "ping";

/// What either end is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    Priority(Priority),
    Measure(Measure),
}

/// Round trips to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measure {
    /// Of [`CARRIERS`].
    pub carrier: String,
    /// Bytes of payload, 8 … 4096.
    pub payload: usize,
    /// How many count.
    pub count: u32,
    /// How many are made before, and don't.
    pub warmup: u32,
    /// Mean distance; the distances are spread evenly from half to one and a half of it, so that they have no rhythm in
    /// common with a load.
    pub period: Duration,
    /// How long the last ones may take to come back.
    pub patience: Duration,
    /// Seed of the distances.
    pub seed: u64,
}

impl Measure {
    /// How long it takes at most, if nothing goes wrong.
    pub fn time(&self) -> Duration {
        self.period * (self.count + self.warmup) + self.patience
    }
}

/// One round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trip {
    /// When it was sent, by CLOCK_MONOTONIC, in nanoseconds.
    pub sent_ns: u64,
    /// How long it took, in nanoseconds; `None`: it did not come back.
    pub took_ns: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Trips {
    pub trips: Vec<Trip>,
}

/// Plays the role.
pub fn play(mut orders: Orders) -> Result {
    let ends = Ends::open(&orders.settings::<End>()?, "ping")?;
    let mut pings = CARRIERS.iter().map(|carrier| Ping::open(&ends, carrier)).collect::<Result<Vec<_>>>()?;
    pings.iter().try_for_each(|ping| ends.connected(&ping.publisher))?;
    orders.say(&Ready { ready: true })?;
    while let Some(order) = orders.wait()? {
        match order {
            Order::Priority(priority) => orders.say(&ends.set_priority(&priority)?)?,
            Order::Measure(measure) => {
                let ping = pings.iter_mut().find(|ping| ping.carrier == measure.carrier);
                let ping = ping.ok_or_else(|| Error::Usage(format!("carrier {:?}", measure.carrier)))?;
                orders.say(&Trips { trips: ping.measure(&measure)? })?;
            }
        }
    }
    Ok(())
}

/// Most round trips of one measurement.
const MOST: usize = 1 << 16;

/// When what came back did. Written by the receiving thread.
struct Board {
    round: AtomicU32,
    came_ns: Box<[AtomicU64]>,
}

impl Board {
    /// Notes a sample that came back, the first time that it does.
    fn note(&self, bytes: &[u8]) {
        let now = monotonic_ns();
        let Some((round, number)) = read(bytes) else { return };
        if round != self.round.load(Relaxed) {
            return; // of an earlier measurement, which waits for it no longer
        }
        if let Some(slot) = self.came_ns.get(number as usize) {
            let _ = slot.compare_exchange(0, now, Relaxed, Relaxed);
        }
    }
}

/// A payload begins with the number of the measurement and its own.
fn write(bytes: &mut [u8], round: u32, number: u32) {
    bytes[..4].copy_from_slice(&round.to_le_bytes());
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
}

fn read(bytes: &[u8]) -> Option<(u32, u32)> {
    let (round, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*round), u32::from_le_bytes(*rest.first_chunk::<4>()?)))
}

/// One carrier's end.
struct Ping {
    carrier: &'static str,
    publisher: Publisher<Raw>,
    board: Arc<Board>,
    _subscriber: Subscriber<Raw>,
}

impl Ping {
    fn open(ends: &Ends, carrier: &'static str) -> Result<Self> {
        let came_ns = (0..MOST).map(|_| AtomicU64::new(0)).collect();
        let board = Arc::new(Board { round: AtomicU32::new(0), came_ns });
        let noted = board.clone();
        let subscriber = ends.subscriber(carrier, "pong").callback(move |sample| noted.note(&sample[..]))?;
        let publisher = ends.publisher(carrier, "ping").open()?;
        Ok(Self { carrier, publisher, board, _subscriber: subscriber })
    }

    fn measure(&mut self, measure: &Measure) -> Result<Vec<Trip>> {
        let all = measure.warmup as usize + measure.count as usize;
        if !(8..=LARGEST).contains(&measure.payload) || all > MOST {
            let text = format!("{} bytes, {all} round trips: 8 to {LARGEST}, and up to {MOST}", measure.payload);
            return Err(Error::Usage(text));
        }
        let round = self.board.round.fetch_add(1, Relaxed) + 1;
        self.board.came_ns[..all].iter().for_each(|slot| slot.store(0, Relaxed));
        let sent = self.send(measure, round, all)?;
        self.wait(all, measure.patience);
        let came = self.board.came_ns[..all].iter().map(|slot| slot.load(Relaxed));
        let trip = |(sent_ns, came_ns): (u64, u64)| Trip { sent_ns, took_ns: came_ns.checked_sub(sent_ns) };
        Ok(sent.into_iter().zip(came).map(trip).skip(measure.warmup as usize).collect())
    }

    /// Sends all when they are due; gives when each was really sent.
    fn send(&mut self, measure: &Measure, round: u32, all: usize) -> Result<Vec<u64>> {
        let mut dice = Dice::new(measure.seed);
        let mut bytes = vec![0; measure.payload];
        let mut sent = Vec::with_capacity(all);
        let mut due = Instant::now();
        let period = u64::try_from(measure.period.as_nanos()).unwrap_or(u64::MAX);
        for number in 0..all {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            due += Duration::from_nanos(dice.around(period, period / 2));
            write(&mut bytes, round, number as u32);
            sent.push(monotonic_ns());
            self.publisher.publish(&bytes)?;
        }
        Ok(sent)
    }

    /// Waits until all came back, or too long.
    fn wait(&self, all: usize, patience: Duration) {
        let until = Instant::now() + patience;
        let missing = || self.board.came_ns[..all].iter().any(|slot| slot.load(Relaxed) == 0);
        while missing() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_samples_of_this_measurement_are_noted_and_once() {
        let board = Board { round: AtomicU32::new(2), came_ns: (0..4).map(|_| AtomicU64::new(0)).collect() };
        let mut bytes = [0; 64];
        for (round, number) in [(1, 0), (2, 1), (2, 4), (2, u32::MAX)] {
            write(&mut bytes, round, number);
            board.note(&bytes);
        }
        board.note(&[0; 7]);
        let came: Vec<u64> = board.came_ns.iter().map(|slot| slot.load(Relaxed)).collect();
        assert!(came[0] == 0 && came[1] > 0 && came[2..] == [0, 0], "{came:?}");
        write(&mut bytes, 2, 1);
        board.note(&bytes);
        assert_eq!(board.came_ns[1].load(Relaxed), came[1]);
    }
}
