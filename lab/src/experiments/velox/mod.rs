//! Velox: the costs of topics, samples and subscribers (V-50 to V-53), between hosts behind a switch with lines of 100 Mbit/s.
//!
//! | module | contents |
//! |---|---|
//! | `topics` | `velox-topics`: from the application to the middleware and back, by number of topics and size |
//! | `queues` | `velox-queues`: λ, μ, ρ and the shares of time with n samples, from traces |
//! | `processor` | `velox-cpu`: processor time by rate and size |
//! | `lan` | `velox-lan`: two hosts: model, bound, bare sockets and measurement |
//! | `subscribers` | `velox-subscribers`: one publisher, and 1, 2, 4 and 8 subscribers |
//! | `protection` | `velox-protection`: a stream beside other traffic on a narrow link, by the router's policy |
//! | `wan` | `velox-wan`, `velox-one-to-many`, `velox-many-to-one`, `velox-many-to-many`: between two domains |
//! | `trace` | roles that publish and take, with the stamps of each sample |
//! | `station` | a queue's figures from its trace |
//! | `bare` | roles of bare sockets: the same way without the middleware |

mod bare;
mod lan;
mod processor;
mod protection;
mod queues;
mod station;
mod subscribers;
mod topics;
mod trace;
mod wan;

pub(super) use lan::VeloxLan;
pub(super) use processor::VeloxProcessor;
pub(super) use protection::VeloxProtection;
pub(super) use queues::VeloxQueues;
pub(super) use subscribers::VeloxSubscribers;
pub(super) use topics::VeloxTopics;
pub(super) use wan::{MANY_TO_MANY, MANY_TO_ONE, ONE_TO_MANY, ONE_TO_ONE};

use crate::error::Result;
use crate::experiments::Tally;
use crate::lab::Lab;
use crate::part::member::{Order, Report, Settings, Stream};
use crate::part::{LONG, Measured, NodeSettings, Part, Place, Role};
use crate::stalls::Monitor;
use crate::topology::{Line, Topology};
use qos::Class;
use qos::priority::{Change, Changes, Policy};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time for the last samples to arrive.
const SETTLE: Duration = Duration::from_millis(100);
const CARRIER: &str = "tcp";
/// Each line, in bit/s.
const RATE: u64 = 100_000_000;

/// The roles of these experiments.
pub(crate) const ROLES: &[(&str, Role)] = &[
    (trace::PUBLISHER, trace::play_publisher),
    (trace::SUBSCRIBER, trace::play_subscriber),
    (bare::SENDER, bare::play_sender),
    (bare::RECEIVER, bare::play_receiver),
];

/// A stream of this size and rate, reliable.
fn stream(topic: &str, size: usize, hz: f64) -> Stream {
    Stream {
        queue: qos::Queue::default(),
        sched: None,
        topic: topic.into(),
        size,
        hz,
        class: Class::Normal,
        scale: qos::Scale::default(),
        picture: None,
        place: qos::Place::Publisher,
        carrier: CARRIER.into(),
    }
}

/// Hosts behind a switch, each with a line. The lines poll the clock shortly before a frame is due: on the last processor, away
/// from the processes that are measured.
fn network(lab: &Lab, hosts: u8) -> Result<Topology> {
    let processor = linux::sched::read(0)?.affinity.last().copied();
    let lines = (1..=hosts).map(|host| Line { processor, ..Line::of(host, RATE) });
    Topology::switch(lab, hosts, &lines.collect::<Vec<_>>())
}

/// The scheduling of all threads that are measured, as a plan gives it.
pub(super) fn fifo() -> Changes {
    Changes { sched: Change::Set(Policy::Fifo(30).into()), ..Changes::default() }
}

/// The processor on which all is measured.
fn first_processor() -> Result<Option<usize>> {
    Ok(linux::sched::read(0)?.affinity.first().copied().map(usize::from))
}

/// One process that publishes streams, and others, on a host each, that subscribe to all of them.
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
    /// Samples published per second.
    rate: f64,
}

impl Testbed {
    /// The publisher on the first host of a topology, a subscriber on each of the next ones, on these processors (none: all).
    /// Testbeds with other numbers do not meet.
    fn across(
        lab: &Lab,
        topology: &Topology,
        number: usize,
        streams: &[Stream],
        subscribers: u8,
        processors: &[usize],
    ) -> Result<Self> {
        let port = 7500 + 16 * number as u16;
        let listen = |host: u8| SocketAddr::new(Topology::address_of(host), port + u16::from(host));
        let addresses: Vec<SocketAddr> = (1..=subscribers + 1).map(listen).collect();
        let at = |host: u8, name: &str| {
            let node = NodeSettings::at(lab, name, &format!("across-{number}"), listen(host), &addresses)?;
            Ok::<_, crate::Error>((Place::at(topology.host(host), processors), node))
        };
        let subscribers = (0..subscribers).map(|n| at(n + 2, &format!("subscriber{n}"))).collect::<Result<_>>()?;
        Self::of(lab, streams, at(1, "publisher")?, subscribers)
    }

    /// Gives all threads of all processes a real-time priority, as a plan does.
    fn real_time(&mut self, lab: &Lab) -> Result {
        let parts = std::iter::once(&mut self.publisher).chain(&mut self.subscribers);
        let order = Order::Schedule { changes: fifo() };
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
        self.publisher.ask::<Value>(lab, &Order::Start { topic: None, count: None }, LONG)?;
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
        let rate = sent as f64 * 1e9 / took;
        Ok(Used { publisher: share(0), subscriber: share(1) / self.subscribers.len() as f64, rate })
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
