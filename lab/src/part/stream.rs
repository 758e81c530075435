//! The roles `publisher` and `subscriber`: a stream of samples, each with its publication time and latency. An experiment
//! holds them as a [`Flow`].

use super::{LONG, NodeSettings, Orders, PATIENCE, Part, Place};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::stalls::Timed;
use linux::clock::monotonic_ns;
use qos::priority::Changes;
use qos::{Qos, Queue, Reliability};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, Sample, Subscriber};

/// Settings of both roles.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The node.
    pub node: NodeSettings,
    /// The topic.
    pub topic: String,
    /// The port's name.
    pub name: String,
    /// Bytes of a sample.
    pub size: usize,
    /// Samples per second; 0: the next as soon as there is room for it (publisher).
    pub hz: f64,
    /// Carriers that may be used, best first; none: any.
    pub carriers: Vec<String>,
    /// Policies of both ports: the publisher offers what the subscriber requests, except for its reliability.
    pub qos: Qos,
}

/// Policies for a carrier: streams lose no samples, and datagrams may.
pub fn qos(carrier: &str) -> Qos {
    let reliability = if carrier == "tcp" { Reliability::Reliable } else { Reliability::BestEffort };
    Qos { reliability, ..Qos::default() }
}

/// Orders to both roles; each is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Order {
    /// Waits for this number of channels: [`Connected`].
    Connected {
        /// Channels to wait for.
        count: usize,
    },
    /// Sets the priority of this end of the channel with the port `other`; the port's own name: of the whole process.
    Set {
        /// The port at the other end.
        other: String,
        /// The changes.
        changes: Changes,
    },
    /// Publishes this number of samples: [`Published`].
    Publish {
        /// Samples to publish.
        count: u64,
    },
    /// Publishes until [`Order::Stop`].
    Start,
    /// Publishes no more: [`Published`].
    Stop,
    /// Reports the samples since the last report: [`Arrived`].
    Report,
    /// Reports their number: [`Counts`].
    Count,
    /// Waits until a sample of this number or a later one came, at most for `ms` milliseconds: [`Connected`].
    Until {
        /// The sequence number.
        seq: u64,
        /// The longest it waits.
        ms: u64,
    },
}

/// Answer to an order to wait.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connected {
    /// `true`: the awaited event has come.
    pub ok: bool,
    /// The number found: channels, or the latest sequence number.
    pub found: u64,
    /// Carriers of the channels.
    pub carriers: Vec<String>,
}

/// Samples published since the last order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Published {
    /// Samples.
    pub count: u64,
    /// Sequence number of the last one.
    pub last: u64,
    /// Begin and duration of the calls of `publish`.
    pub calls: Vec<Timed>,
}

/// Samples that arrived since the last report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Arrived {
    /// Samples.
    pub count: u64,
    /// Sequence number of the latest one.
    pub last: u64,
    /// Samples that came twice, or after a later one.
    pub again: u64,
    /// Samples that were not whole.
    pub damaged: u64,
    /// Arrival of the latest one.
    #[serde(skip)]
    pub latest_ns: u64,
    /// Publication time and latency of each sample.
    pub samples: Vec<Timed>,
}

/// Numbers of samples that arrived since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Samples.
    pub count: u64,
    /// Samples that came twice, or after a later one, and those that were not whole.
    pub wrong: u64,
    /// Arrival of the latest one, by CLOCK_MONOTONIC, in nanoseconds.
    pub latest_ns: u64,
    /// Time of the count.
    pub at_ns: u64,
}

/// Publishes.
pub(super) fn publisher(mut orders: Orders) -> Result {
    let settings: Settings = orders.settings()?;
    let node = settings.node.open()?;
    let patient = Queue::Block { limit: 1, up_to_us: ROOM_US };
    let queue = if settings.hz > 0.0 { settings.qos.queue } else { patient };
    let builder = node.publisher::<Raw>(&settings.topic).named(&settings.name).qos(settings.qos.clone());
    let builder = builder.reliability(Reliability::Reliable).queue(queue).max_message(most(settings.size));
    let port = Arc::new(Mutex::new(builder.open()?));
    let mut running: Option<Running> = None;
    orders.say(&json!({"node": node.id()}))?;
    while let Some(order) = orders.wait::<Order>()? {
        match order {
            Order::Connected { count } => {
                let ok = node.wait_until(PATIENCE, || hold(&port).connected() >= count);
                let port = hold(&port);
                let carriers = port.channels().into_iter().map(|c| c.carrier.to_string()).collect();
                orders.say(&Connected { ok, found: port.connected() as u64, carriers })?;
            }
            Order::Publish { count } => {
                let never = AtomicBool::new(false);
                let published = publish(&mut hold(&port), &settings, count, &never);
                orders.say(&published?)?;
            }
            Order::Start => {
                running = Some(Running::start(port.clone(), settings.clone())?);
                orders.say(&json!({}))?;
            }
            Order::Stop => orders.say(&running.take().map_or_else(|| Ok(Published::default()), Running::finish)?)?,
            Order::Set { other, changes } => orders.say(&set(&node, &settings.name, &other, &changes)?)?,
            order => return Err(Error::Usage(format!("a publisher does not {order:?}"))),
        }
    }
    if let Some(running) = running {
        running.finish()?;
    }
    // Samples in front of a slow link are not waited for.
    hold(&port).drain_on_close(Duration::ZERO);
    Ok(())
}

fn most(size: usize) -> u32 {
    u32::try_from(size.max(1 << 16)).unwrap_or(u32::MAX)
}

fn hold<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn set(node: &Node, port: &str, other: &str, changes: &Changes) -> Result<serde_json::Value> {
    let report = node.set_priority(port, other, changes)?;
    Ok(serde_json::to_value(report).map_err(std::io::Error::from)?)
}

/// A publisher on a thread of its own.
struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Published>>,
}

impl Running {
    fn start(port: Arc<Mutex<Publisher<Raw>>>, settings: Settings) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let body = move || publish(&mut hold(&port), &settings, u64::MAX, &asked);
        Ok(Self { stop, thread: std::thread::Builder::new().name("publish".into()).spawn(body)? })
    }

    fn finish(self) -> Result<Published> {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(Error::Failed("the publishing thread failed".into())))
    }
}

/// Publishes at even intervals, and catches up when late. Each sample is filled with the low byte of its number.
fn publish(port: &mut Publisher<Raw>, settings: &Settings, count: u64, stop: &AtomicBool) -> Result<Published> {
    let mut published = Published { calls: Vec::with_capacity(count.min(MOST_CALLS) as usize), ..Published::default() };
    let mut message = vec![0; settings.size];
    let start = Instant::now();
    while published.count < count && !stop.load(Relaxed) {
        if settings.hz > 0.0 {
            let due = start + Duration::from_secs_f64(published.count as f64 / settings.hz);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        message.fill(published.count as u8);
        let from_ns = monotonic_ns();
        published.last = port.publish(&message)?.seq;
        if published.calls.len() < MOST_CALLS as usize {
            published.calls.push(Timed { from_ns, ns: monotonic_ns() - from_ns });
        }
        published.count += 1;
    }
    Ok(published)
}

/// Subscribes.
pub(super) fn subscriber(mut orders: Orders) -> Result {
    let settings: Settings = orders.settings()?;
    let node = settings.node.open()?;
    let account = Arc::new(Mutex::new(Arrived::with_room()));
    let (seen, size) = (account.clone(), settings.size);
    let port = open(&node, &settings, move |sample| hold(&seen).note(&sample, size))?;
    orders.say(&json!({"node": node.id()}))?;
    while let Some(order) = orders.wait::<Order>()? {
        match order {
            Order::Connected { count } => {
                let ok = node.wait_until(PATIENCE, || port.connected() >= count);
                let carriers = port.channels().into_iter().map(|c| c.carrier.to_string()).collect();
                orders.say(&Connected { ok, found: port.connected() as u64, carriers })?;
            }
            Order::Report => orders.say(&hold(&account).take())?,
            Order::Count => {
                let counted = hold(&account).counted(monotonic_ns());
                orders.say(&counted)?;
            }
            Order::Until { seq, ms } => {
                let until = Instant::now() + Duration::from_millis(ms);
                while hold(&account).last < seq && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let found = hold(&account).last;
                orders.say(&Connected { ok: found >= seq, found, carriers: Vec::new() })?;
            }
            Order::Set { other, changes } => orders.say(&set(&node, &settings.name, &other, &changes)?)?,
            order => return Err(Error::Usage(format!("a subscriber does not {order:?}"))),
        }
    }
    Ok(())
}

fn open(
    node: &Node,
    settings: &Settings,
    note: impl FnMut(Sample<'_, Raw>) + Send + 'static,
) -> Result<Subscriber<Raw>> {
    let builder = node.subscriber::<Raw>(&settings.topic).named(&settings.name).qos(settings.qos.clone());
    let builder = builder.max_message(most(settings.size));
    let builder = if settings.carriers.is_empty() { builder } else { builder.carriers(settings.carriers.clone()) };
    Ok(builder.callback(note)?)
}

impl Arrived {
    /// With room for the times of a run.
    pub(crate) fn with_room() -> Self {
        Self { samples: Vec::with_capacity(MOST_CALLS as usize), ..Self::default() }
    }

    /// Counts a sample.
    pub(crate) fn note(&mut self, sample: &Sample<'_, Raw>, size: usize) {
        let info = sample.info();
        self.count += 1;
        self.latest_ns = info.received_ns;
        self.again += u64::from(info.seq <= self.last);
        self.last = self.last.max(info.seq);
        // A byte of every kilobyte: no fragment may be missing, or another sample's.
        let whole = sample.len() == size && sample.chunks(1 << 10).all(|part| part.last() == sample.first());
        self.damaged += u64::from(!whole);
        if self.samples.len() < self.samples.capacity() {
            self.samples.push(Timed { from_ns: info.source_ns, ns: info.received_ns.saturating_sub(info.source_ns) });
        }
    }

    /// The arrivals of these published samples alone: a stream that fell behind first brings older ones.
    pub fn of(mut self, published: &Published) -> Self {
        let begin = published.calls.first().map_or(u64::MAX, |call| call.from_ns);
        let all = self.samples.len();
        self.samples.retain(|sample| sample.from_ns >= begin);
        self.count -= (all - self.samples.len()) as u64;
        self
    }

    fn counted(&self, at_ns: u64) -> Counts {
        Counts { count: self.count, wrong: self.again + self.damaged, latest_ns: self.latest_ns, at_ns }
    }

    /// Takes all of it, and starts from zero. The last number stays known, so that duplicates are noticed.
    pub(crate) fn take(&mut self) -> Self {
        let samples = Vec::with_capacity(MOST_CALLS as usize);
        std::mem::replace(self, Self { samples, last: self.last, ..Self::default() })
    }
}

/// One end: its node, after which its port is named, and its place.
pub type End = (NodeSettings, Place);

/// A flow under test, as an experiment holds it: a publisher and its subscribers, connected, each a process. A subscriber that
/// is taken out is the experiment's own business.
#[derive(Debug)]
pub struct Flow {
    /// The publisher.
    pub publisher: Part,
    /// The subscribers that report their arrivals.
    pub subscribers: Vec<Part>,
    ports: Vec<String>, // of the publisher, then of the subscribers
    hz: f64,
}

impl Flow {
    /// Starts and connects it. Of `settings`, node and name are those of each end.
    ///
    /// # Errors
    /// [`Error::Failed`] when not every subscriber has a channel over one of the carriers.
    pub fn open(lab: &Lab, settings: &Settings, publisher: End, subscribers: Vec<End>) -> Result<Self> {
        let count = subscribers.len();
        let port = |(node, _): &End| format!("/{}", node.name);
        let ports = std::iter::once(&publisher).chain(&subscribers).map(port).collect();
        let start = |role: &str, end: End| {
            let name = port(&end);
            Part::ready(lab, end.1, role, &Settings { node: end.0, name, ..settings.clone() })
        };
        let mut publisher = start("publisher", publisher)?;
        let subscribers = subscribers.into_iter().map(|end| start("subscriber", end)).collect::<Result<Vec<Part>>>()?;
        let connected: Connected = publisher.ask(lab, &Order::Connected { count }, LONG)?;
        if !connected.ok || connected.carriers.iter().any(|found| !settings.carriers.contains(found)) {
            let carriers = settings.carriers.join(", ");
            return Err(Error::Failed(format!("not {count} channels over {carriers}: {connected:?}")));
        }
        Ok(Self { publisher, subscribers, ports, hz: settings.hz })
    }

    /// Changes the priority of every channel, at both ends.
    ///
    /// # Errors
    /// As [`Part::ask`].
    pub fn set(&mut self, lab: &Lab, changes: &Changes) -> Result {
        let order = |other: &str| Order::Set { other: other.to_owned(), changes: changes.clone() };
        for (subscriber, port) in self.subscribers.iter_mut().zip(&self.ports[1..]) {
            self.publisher.ask::<Value>(lab, &order(port), LONG)?;
            subscriber.ask::<Value>(lab, &order(&self.ports[0]), LONG)?;
        }
        Ok(())
    }

    /// Publishes `count` samples, and waits at most `patience` for the last one at each subscriber. Gives the published samples,
    /// and those that arrived at each.
    ///
    /// # Errors
    /// As [`Part::ask`].
    pub fn publish(&mut self, lab: &Lab, count: u64, patience: Duration) -> Result<(Published, Vec<Arrived>)> {
        self.report(lab)?;
        let time = if self.hz > 0.0 { Duration::from_secs_f64(count as f64 / self.hz) } else { LONG };
        let published = self.publisher.ask(lab, &Order::Publish { count }, LONG + time)?;
        self.wait(lab, published, patience)
    }

    /// Begins to publish.
    ///
    /// # Errors
    /// As [`Part::ask`].
    pub fn start(&mut self, lab: &Lab) -> Result {
        self.report(lab)?;
        self.publisher.ask::<Value>(lab, &Order::Start, LONG).map(drop)
    }

    /// Ends a publishing by [`Flow::start`]; returns as [`Flow::publish`] does.
    ///
    /// # Errors
    /// As there.
    pub fn stop(&mut self, lab: &Lab, patience: Duration) -> Result<(Published, Vec<Arrived>)> {
        let published = self.publisher.ask(lab, &Order::Stop, LONG)?;
        self.wait(lab, published, patience)
    }

    fn wait(&mut self, lab: &Lab, published: Published, patience: Duration) -> Result<(Published, Vec<Arrived>)> {
        let ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let until = Order::Until { seq: published.last, ms };
        for subscriber in &mut self.subscribers {
            subscriber.ask::<Connected>(lab, &until, LONG)?;
        }
        Ok((published, self.report(lab)?))
    }

    /// The samples that arrived at each subscriber since the last report.
    fn report(&mut self, lab: &Lab) -> Result<Vec<Arrived>> {
        self.subscribers.iter_mut().map(|subscriber| subscriber.ask(lab, &Order::Report, LONG)).collect()
    }
}

/// A publisher as fast as there is room waits for room this long at most.
const ROOM_US: u64 = 20_000_000;
/// Calls whose times are kept; memory for them is taken before.
const MOST_CALLS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_an_earlier_order_do_not_count() {
        let at = |from_ns| Timed { from_ns, ns: 5 };
        let arrived = || Arrived { count: 3, samples: vec![at(1), at(10), at(12)], ..Arrived::default() };
        let published = |calls| Published { count: 2, calls, ..Published::default() };
        let of = arrived().of(&published(vec![at(9), at(11)]));
        assert_eq!((of.count, of.samples), (2, vec![at(10), at(12)]));
        assert_eq!(arrived().of(&published(Vec::new())).count, 0);
    }
}
