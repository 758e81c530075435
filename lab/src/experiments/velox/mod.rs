//! Velox: the costs of topics, samples and subscribers (V-50 to V-53).
//!
//! | module | contents |
//! |---|---|
//! | `topics` | `velox-topics`: from the application to the middleware and back, by number of topics and size |
//! | `processor` | `velox-cpu`: processor time by rate and size |
//! | `lan` | `velox-lan`: two hosts: model, bound and measurement |
//! | `subscribers` | `velox-subscribers`: one publisher, and 1, 2, 4 and 8 subscribers |

mod lan;
mod processor;
mod subscribers;
mod topics;

pub(super) use lan::VeloxLan;
pub(super) use processor::VeloxProcessor;
pub(super) use subscribers::VeloxSubscribers;
pub(super) use topics::VeloxTopics;

use crate::error::Result;
use crate::experiments::Tally;
use crate::lab::Lab;
use crate::part::member::{Order, Report, Settings, Stream};
use crate::part::{LONG, Measured, NodeSettings, Part, Place};
use crate::stalls::Monitor;
use crate::topology::Topology;
use qos::Class;
use qos::priority::{Change, Changes, Policy};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time for the last samples to arrive.
const SETTLE: Duration = Duration::from_millis(100);
const CARRIER: &str = "tcp";

/// A stream of this size and rate, reliable.
fn stream(topic: &str, size: usize, hz: f64) -> Stream {
    Stream {
        topic: topic.into(),
        size,
        hz,
        class: Class::Normal,
        every: 1,
        place: qos::Place::Publisher,
        carrier: CARRIER.into(),
    }
}

/// The processor on which all is measured.
fn first_processor() -> Result<Option<usize>> {
    Ok(linux::sched::read(0)?.affinity.first().copied().map(usize::from))
}

/// One process that publishes streams, and others on the same host that subscribe to all of them.
struct Testbed {
    streams: Vec<Stream>,
    publisher: Part,
    subscribers: Vec<Part>,
}

/// Share of one processor that a process used.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    publisher: f64,
    /// Each of them, on average.
    subscriber: f64,
}

impl Testbed {
    /// Starts and connects them, on these processors (none: all).
    fn start(lab: &Lab, realm: &str, streams: &[Stream], subscribers: usize, processors: &[usize]) -> Result<Self> {
        let at = |name: &str| (Place::here(processors), NodeSettings::local(name, realm));
        let subscribers = (0..subscribers).map(|n| at(&format!("subscriber{n}"))).collect();
        Self::of(lab, streams, at("publisher"), subscribers)
    }

    /// The publisher on the first host of a topology, a subscriber on the second. Testbeds with other numbers do not meet.
    fn across(lab: &Lab, topology: &Topology, number: usize, streams: &[Stream], processors: &[usize]) -> Result<Self> {
        let port = 7500 + 2 * number as u16;
        let addresses = [1, 2].map(|host| SocketAddr::new(Topology::address_of(host), port + u16::from(host)));
        let at = |host: u8, name: &str| {
            let listen = addresses[usize::from(host) - 1];
            let node = NodeSettings::at(lab, name, &format!("across-{number}"), listen, &addresses)?;
            Ok::<_, crate::Error>((Place::at(topology.host(host), processors), node))
        };
        Self::of(lab, streams, at(1, "publisher")?, vec![at(2, "subscriber0")?])
    }

    /// Gives all threads of all processes a real-time priority, as a plan does.
    fn real_time(&mut self, lab: &Lab) -> Result {
        let changes = Changes { sched: Change::Set(Policy::Fifo(30).into()), ..Changes::default() };
        let parts = std::iter::once(&mut self.publisher).chain(&mut self.subscribers);
        let order = Order::Schedule { changes };
        parts.map(|part| part.ask::<Value>(lab, &order, LONG)).try_for_each(|answer| answer.map(drop))
    }

    fn of(
        lab: &Lab,
        streams: &[Stream],
        publisher: (Place, NodeSettings),
        subscribers: Vec<(Place, NodeSettings)>,
    ) -> Result<Self> {
        let start = |(place, node): (Place, NodeSettings), publishes: &[Stream], subscribes: &[Stream]| {
            let settings =
                Settings { node, publishes: publishes.to_vec(), subscribes: subscribes.to_vec(), profile: None };
            Part::ready(lab, place.first(), "member", &settings)
        };
        let mut publisher = start(publisher, streams, &[])?;
        let subscribers =
            subscribers.into_iter().map(|place| start(place, &[], streams)).collect::<Result<Vec<_>>>()?;
        publisher.ask::<Value>(lab, &Order::Connected { count: subscribers.len() }, LONG)?;
        Ok(Self { streams: streams.to_vec(), publisher, subscribers })
    }

    /// Publishes for this long.
    fn run(&mut self, lab: &Lab, time: Duration, tally: &mut Tally) -> Result<Used> {
        self.arrived(lab)?;
        let monitor = Monitor::start()?;
        let (began, before) = (Instant::now(), self.processor_ns()?);
        self.publisher.ask::<Value>(lab, &Order::Start { topic: None }, LONG)?;
        lab.stop.sleep(time)?;
        let published: Report = self.publisher.ask(lab, &Order::Stop, LONG)?;
        let (after, took) = (self.processor_ns()?, began.elapsed().as_nanos() as f64);
        lab.stop.sleep(SETTLE)?;
        let arrived = self.arrived(lab)?;
        let samples: Vec<_> =
            arrived.iter().flat_map(|report| &report.streams).flat_map(|s| s.samples.iter().copied()).collect();
        let sent: u64 = published.streams.iter().map(|stream| stream.count).sum();
        tally.add(sent * self.subscribers.len() as u64, &samples, &monitor.finish());
        let share = |n: usize| (after[n] - before[n]) as f64 / took;
        Ok(Used { publisher: share(0), subscriber: share(1) / self.subscribers.len() as f64 })
    }

    fn arrived(&mut self, lab: &Lab) -> Result<Vec<Report>> {
        self.subscribers.iter_mut().map(|part| part.ask(lab, &Order::Arrived, LONG)).collect()
    }

    /// Processor time of the publisher, and of all subscribers.
    fn processor_ns(&self) -> Result<[u64; 2]> {
        let subscribers = self.subscribers.iter().map(Part::processor_ns).sum::<Result<u64>>()?;
        Ok([self.publisher.processor_ns()?, subscribers])
    }

    /// Times of the stages since the last call at the publisher and the first subscriber, stream by stream.
    fn stages(&mut self, lab: &Lab) -> Result<Vec<[Measured; 2]>> {
        let mut found = Vec::new();
        for stream in &self.streams {
            let order = Order::Stages { topic: stream.topic.clone() };
            let publisher = self.publisher.ask(lab, &order, LONG)?;
            found.push([publisher, self.subscribers[0].ask(lab, &order, LONG)?]);
        }
        Ok(found)
    }
}
