//! The roles `ping`, which sends at random distances and stamps both ways, and `pong`, which sends back.

use super::route::{self, By, End, Ends, LARGEST, Priority, Ready, Route};
use crate::error::{Error, Result};
use crate::part::Orders;
use linux::clock::monotonic_ns;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use thalweg::carrier::Dice;
use thalweg::codec::Raw;
use thalweg::{Publisher, Subscriber};

/// Name of the role.
pub(crate) const ROLE: &str = "ping";

/// Orders to either end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    Priority(Priority),
    Measure(Measure),
    /// Reports the times of the stages of a route's channel from this end (`ping`: the forward one) since the last report, and starts
    /// from zero.
    Stages {
        route: String,
        from: String,
    },
}

/// Round trips to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measure {
    /// Name of the route.
    pub route: String,
    /// Bytes of payload, 8 … 8192.
    pub payload: usize,
    /// Measured round trips.
    pub count: u32,
    /// Round trips before the measured ones.
    pub warmup: u32,
    /// Mean distance; the distances are spread evenly from half to one and a half of it, so that they have no rhythm in
    /// common with a load.
    pub period: Duration,
    /// Longest wait for the last ones to come back.
    pub patience: Duration,
    /// Seed of the distances.
    pub seed: u64,
}

impl Measure {
    /// Its longest duration, without an error.
    pub(crate) fn time(&self) -> Duration {
        self.period * (self.count + self.warmup) + self.patience
    }
}

/// One round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoundTrip {
    /// Time of sending, by CLOCK_MONOTONIC, in nanoseconds.
    pub sent_ns: u64,
    /// Duration in nanoseconds; `None`: it did not come back.
    pub took_ns: Option<u64>,
    /// Duration of the call that sent it, in nanoseconds.
    pub call_ns: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RoundTrips {
    pub trips: Vec<RoundTrip>,
}

/// Plays the role.
pub(crate) fn play(mut orders: Orders) -> Result {
    let end: End = orders.settings()?;
    let ends = Ends::open(&end, "ping")?;
    let mut pings = end.routes.iter().map(|route| Ping::open(&ends, route)).collect::<Result<Vec<_>>>()?;
    pings.iter_mut().try_for_each(|ping| ping.out.connect(&ends))?;
    orders.say(&Ready { ready: true })?;
    while let Some(order) = orders.wait()? {
        match order {
            Order::Priority(priority) => orders.say(&ends.set_priority(&priority)?)?,
            Order::Measure(measure) => {
                let ping = pings.iter_mut().find(|ping| ping.route == measure.route);
                let ping = ping.ok_or_else(|| Error::Usage(format!("route {:?}", measure.route)))?;
                orders.say(&RoundTrips { trips: ping.measure(&measure)? })?;
            }
            Order::Stages { route, from } => orders.say(&ends.stages(&route, &from)?)?,
        }
    }
    Ok(())
}

/// Most round trips of one measurement.
const MOST: usize = 1 << 16;

/// Times of return, written by the receiving thread.
struct ReturnTimes {
    round: AtomicU32,
    came_ns: Box<[AtomicU64]>,
}

impl ReturnTimes {
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

/// One route's end.
struct Ping {
    route: String,
    out: Out,
    board: Arc<ReturnTimes>,
}

/// The way there, with the holder of the way back.
enum Out {
    Channel { publisher: Publisher<Raw>, _subscriber: Subscriber<Raw> },
    Sockets { next: SocketAddr, stream: Option<TcpStream>, framed: Vec<u8> },
}

impl Ping {
    fn open(ends: &Ends, route: &Route) -> Result<Self> {
        let came_ns = (0..MOST).map(|_| AtomicU64::new(0)).collect();
        let board = Arc::new(ReturnTimes { round: AtomicU32::new(0), came_ns });
        let noted = board.clone();
        let name = &route.name;
        let out = match &route.by {
            By::Carrier { carrier, .. } => {
                let subscriber =
                    ends.subscriber(name, carrier, "pong").callback(move |sample| noted.note(&sample[..]))?;
                Out::Channel { publisher: ends.publisher(name, carrier, "ping").open()?, _subscriber: subscriber }
            }
            By::Sockets { listen, next } => {
                let listener = TcpListener::bind(listen)?;
                let read = move || drop(route::accept(&listener).and_then(|from| note_all(from, &noted)));
                linux::thread::spawn(linux::thread::Settings::named("sockets"), read)?;
                Out::Sockets { next: *next, stream: None, framed: Vec::with_capacity(4 + LARGEST) }
            }
        };
        Ok(Self { route: name.clone(), out, board })
    }

    fn measure(&mut self, measure: &Measure) -> Result<Vec<RoundTrip>> {
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
        let trip = |((sent_ns, call_ns), came_ns): ((u64, u64), u64)| {
            let took_ns = came_ns.checked_sub(sent_ns);
            RoundTrip { sent_ns, took_ns, call_ns }
        };
        Ok(sent.into_iter().zip(came).map(trip).skip(measure.warmup as usize).collect())
    }

    /// Sends all when they are due; gives when each was really sent, and how long the call took.
    fn send(&mut self, measure: &Measure, round: u32, all: usize) -> Result<Vec<(u64, u64)>> {
        let mut dice = Dice::new(measure.seed);
        let mut bytes = vec![0; measure.payload];
        let mut sent = Vec::with_capacity(all);
        let mut due = Instant::now();
        let period = u64::try_from(measure.period.as_nanos()).unwrap_or(u64::MAX);
        for number in 0..all {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            due += Duration::from_nanos(dice.around(period, period / 2));
            write(&mut bytes, round, number as u32);
            let called = monotonic_ns();
            self.out.send(&bytes)?;
            sent.push((called, monotonic_ns() - called));
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

impl Out {
    fn connect(&mut self, ends: &Ends) -> Result {
        match self {
            Out::Channel { publisher, .. } => ends.connected(publisher),
            Out::Sockets { next, stream, .. } => {
                *stream = Some(route::connect(*next)?);
                Ok(())
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result {
        match self {
            Out::Channel { publisher, .. } => publisher.publish(bytes).map(drop).map_err(Error::from),
            Out::Sockets { stream, framed, .. } => {
                framed.clear();
                framed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                framed.extend_from_slice(bytes);
                stream.as_mut().map_or(Ok(()), |stream| Ok(stream.write_all(framed)?))
            }
        }
    }
}

/// Notes the messages that come back over a bare socket.
fn note_all(from: TcpStream, board: &ReturnTimes) -> Result {
    let mut messages = route::Messages::of(from);
    while let Some(message) = messages.next()? {
        board.note(&message[4..]);
    }
    Ok(())
}

/// Name of the role that sends back.
pub(crate) const PONG: &str = "pong";

/// Sends messages back on the thread that received them.
pub(crate) fn play_pong(mut orders: Orders) -> Result {
    let end: End = orders.settings()?;
    let ends = Ends::open(&end, "pong")?;
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for route in &end.routes {
        let Some((carrier, most)) = route.carrier() else { continue };
        let publisher = ends.publisher(&route.name, carrier, "pong").open()?;
        let (give, given) = channel();
        held.push((answer(&ends, route, (carrier, most), given)?, route.proxy()));
        waiting.push((publisher, give));
    }
    for (publisher, give) in waiting {
        ends.connected(&publisher)?;
        let _ = give.send(publisher); // fails when the subscriber was closed, and no sample comes
    }
    held.iter().try_for_each(|(subscriber, place)| ends.placed(subscriber, *place))?;
    orders.say(&Ready { ready: true })?;
    while let Some(order) = orders.wait()? {
        match order {
            Order::Priority(priority) => orders.say(&ends.set_priority(&priority)?)?,
            Order::Measure(_) => return Err(Error::Usage("pongs measure nothing".into())),
            Order::Stages { route, from } => orders.say(&ends.stages(&route, &from)?)?,
        }
    }
    Ok(())
}

/// Answers the messages of a route with so many of their bytes at most, once the publisher is given.
fn answer(
    ends: &Ends,
    route: &Route,
    (carrier, most): (&str, usize),
    given: Receiver<Publisher<Raw>>,
) -> Result<Subscriber<Raw>> {
    let mut publisher = None;
    let builder = Ends::proxied(ends.subscriber(&route.name, carrier, "ping"), route.proxy());
    let subscriber = builder.callback(move |sample| {
        if publisher.is_none() {
            publisher = given.try_recv().ok();
        }
        // A sample that cannot be sent back is missed at the other end.
        if let Some(publisher) = &mut publisher {
            let _ = publisher.publish(&sample[..sample.len().min(most)]);
        }
    })?;
    Ok(subscriber)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_samples_of_this_measurement_are_noted_and_once() {
        let board = ReturnTimes { round: AtomicU32::new(2), came_ns: (0..4).map(|_| AtomicU64::new(0)).collect() };
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
