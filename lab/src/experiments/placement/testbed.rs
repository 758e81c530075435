//! The network of a contract, with its publisher, subscribers and relays; the measurement of one place of the proxy.

use super::example::{Example, PERIOD_MS, RATE, Sharing};
use super::judge::{Place, Traffic};
use crate::error::Result;
use crate::experiments::Tally;
use crate::lab::Lab;
use crate::link::LinkReport;
use crate::part::member::{Order, Report, Settings, Stream};
use crate::part::{self, LONG, NodeSettings, Part, processors};
use crate::stalls::Monitor;
use crate::topology::{Count, Edge, Graph, Topology};
use linux::clock::monotonic_ns;
use qos::Class;
use qos::system::System;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Every process in the host of its node; all streams, one for each place, are open from the start, and one at a time is published.
pub(super) struct Testbed {
    publisher: Part,
    subscribers: Vec<Part>,
    _relays: Vec<Part>,
    system: System,
    graph: Graph, // after the parts: they end first
}

impl Testbed {
    pub(super) fn build(lab: &Lab, example: &Example, places: &mut [Place]) -> Result<Self> {
        let system = example.system()?;
        let edge = |link: &qos::system::Link| Edge { between: link.between.map(host), rate: RATE };
        let edges: Vec<Edge> = system.links.iter().map(edge).collect();
        let (processor, other) = processors()?;
        let graph = Graph::new(lab, system.nodes.len() as u8, &edges, other as u16)?;
        let crew = Crew::new(&system, places, profile(lab)?);
        let start = |(n, worker): (usize, &Worker)| {
            let at = part::Place::at(graph.host(host(worker.node)), &[processor]).first();
            let node = NodeSettings::at(lab, &worker.name, "placement", crew.address(n), &crew.addresses())?;
            let node = NodeSettings { names_carriers: true, ..node };
            match &worker.streams {
                None => Part::ready(lab, at, "relay", &node),
                Some([publishes, subscribes]) => {
                    let (publishes, subscribes) = (publishes.clone(), subscribes.clone());
                    let settings = Settings { node, publishes, subscribes, profile: Some(crew.profile.clone()) };
                    Part::ready(lab, at, "member", &settings)
                }
            }
        };
        let mut parts = crew.workers.iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
        let mut members = parts.split_off(crew.workers.len() - 1 - system.subscribers.len());
        let publisher = members.remove(0);
        let mut testbed = Self { publisher, subscribers: members, _relays: parts, system, graph };
        testbed.connect(lab, places)?;
        Ok(testbed)
    }

    /// A proxy whose relay was not ready begins at the publisher, and moves while samples flow.
    fn connect(&mut self, lab: &Lab, places: &mut [Place]) -> Result {
        self.publisher.ask::<Value>(lab, &Order::Start { topic: None, count: None }, LONG)?;
        for subscriber in &mut self.subscribers {
            subscriber.ask::<Value>(lab, &Order::Connected { count: 0 }, LONG)?;
        }
        let report: Report = self.publisher.ask(lab, &Order::Stop, LONG)?;
        places.iter_mut().zip(report.streams).for_each(|(place, stream)| place.published = stream.count);
        Ok(())
    }

    /// Publishes so many samples for one place, with nodes that send on once a period, and a quarter as many with nodes that do at once.
    pub(super) fn run(&mut self, lab: &Lab, place: &mut Place, samples: u32) -> Result {
        let before = self.graph.counts()?;
        let began = monotonic_ns();
        let count = self.publish(lab, place, samples, true)?;
        let after = self.graph.counts()?;
        place.traffic.push(Traffic {
            published_s: count as f64 * PERIOD_MS as f64 / 1e3,
            window_s: (monotonic_ns() - began) as f64 / 1e9,
            links: difference(&after, &before),
        });
        self.publish(lab, place, samples / 4, false).map(drop)
    }

    /// Ends it, and says how its lines were.
    pub(super) fn end(mut self) -> Vec<LinkReport> {
        self.graph.end_lines()
    }

    fn publish(&mut self, lab: &Lab, place: &mut Place, samples: u32, periodic: bool) -> Result<u64> {
        self.arrived(lab)?;
        self.graph.change(|line| line.periodic = periodic);
        let monitor = Monitor::start()?;
        let start = Order::Start { topic: Some(place.topic()), count: Some(samples.into()) };
        self.publisher.ask::<Value>(lab, &start, LONG)?;
        lab.stop.sleep(Duration::from_millis(PERIOD_MS) * samples)?;
        // The last ones wait for others that do not come: they arrive when the nodes send on at once, and have no delay to speak of.
        let last = monotonic_ns() - if periodic { self.longest_ns(place) } else { 0 };
        let report: Report = self.publisher.ask(lab, &Order::Stop, LONG)?;
        self.graph.change(|line| line.periodic = false);
        lab.stop.sleep(SETTLE)?;
        let count: u64 = report.streams.iter().map(|stream| stream.count).sum();
        let (from, to) = (place.published, place.published + count);
        place.published = to;
        let stalls = monitor.finish();
        let arrived = self.arrived(lab)?;
        let tallies: &mut Vec<Tally> = if periodic { &mut place.periodic } else { &mut place.at_once };
        tallies.resize_with(arrived.len(), Tally::default);
        let of = self.system.subscribers.iter().zip(arrived).zip(tallies);
        for ((subscriber, report), tally) in of {
            let every = u64::from(subscriber.scale);
            let expected = to / every - from / every;
            let mut samples: Vec<_> = report.streams.into_iter().flat_map(|stream| stream.samples).collect();
            let lost = expected.saturating_sub(samples.len() as u64);
            samples.retain(|sample| sample.from_ns <= last);
            tally.add(samples.len() as u64 + lost, &samples, &stalls);
        }
        Ok(count)
    }

    /// Longest time that a sample is under way: one period more than by the paper's model.
    fn longest_ns(&self, place: &Place) -> u64 {
        let scale = self.system.subscribers.iter().map(|subscriber| subscriber.scale).max().unwrap_or(1);
        let delay = place.predicted.delays_us.iter().fold(0.0, |longest: f64, delay| longest.max(*delay));
        (delay * 1e3) as u64 + PERIOD_MS * 1_000_000 * u64::from(scale)
    }

    fn arrived(&mut self, lab: &Lab) -> Result<Vec<Report>> {
        self.subscribers.iter_mut().map(|part| part.ask(lab, &Order::Arrived, LONG)).collect()
    }
}

/// The processes: relays, then the publisher, then the subscribers.
struct Crew {
    workers: Vec<Worker>,
    profile: PathBuf,
}

/// A process: its node in the contract, its name, and what it publishes and subscribes to; `None`: a relay.
struct Worker {
    node: usize,
    name: String,
    streams: Option<[Vec<Stream>; 2]>,
}

impl Crew {
    fn new(system: &System, places: &[Place], profile: PathBuf) -> Self {
        let stream = |place: &Place, subscriber: usize| {
            let every = system.subscribers[subscriber].scale;
            let (topic, place) = (place.topic(), at(system, place, subscriber));
            let (size, hz) = (system.topics[0].size as usize, 1e3 / PERIOD_MS as f64);
            Stream {
                topic,
                size,
                hz,
                class: Class::Normal,
                scale: qos::Scale::Every(every),
                picture: None,
                place,
                carrier: "udp".into(),
                queue: qos::Queue::default(),
                sched: None,
            }
        };
        let mut workers = Vec::new();
        for place in places {
            for subscriber in 0..system.subscribers.len() {
                for name in at(system, place, subscriber).relays() {
                    if workers.iter().all(|worker: &Worker| worker.name != name) {
                        workers.push(Worker { node: place.node, name: name.to_owned(), streams: None });
                    }
                }
            }
        }
        let member = |node, name: &str, streams| Worker { node, name: name.into(), streams: Some(streams) };
        let published = places.iter().map(|place| stream(place, 0)).collect();
        workers.push(member(system.topics[0].publishers[0], "publisher", [published, Vec::new()]));
        for (n, subscriber) in system.subscribers.iter().enumerate() {
            let wanted = places.iter().map(|place| stream(place, n)).collect();
            workers.push(member(subscriber.node, &format!("subscriber{n}"), [Vec::new(), wanted]));
        }
        Self { workers, profile }
    }

    fn address(&self, worker: usize) -> SocketAddr {
        SocketAddr::new(Topology::address_of(host(self.workers[worker].node)), 7400 + worker as u16)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.workers.len()).map(|n| self.address(n)).collect()
    }
}

/// The place of the proxy in a subscriber's request. For streams that share none, each subscriber has a relay of its own.
fn at(system: &System, place: &Place, subscriber: usize) -> qos::Place {
    let node = place.node;
    let alone = place.sharing == Sharing::Separate;
    match () {
        () if system.topics[0].publishers[0] == node => qos::Place::Publisher,
        () if alone && system.subscribers[subscriber].node == node => qos::Place::Subscriber,
        () => qos::Place::Relay(format!("{}-{}", system.nodes[node].name, if alone { subscriber } else { 0 })),
    }
}

/// Datagrams wherever samples go.
fn profile(lab: &Lab) -> Result<PathBuf> {
    let file = lab.folder().join("placement-profile.toml");
    std::fs::write(&file, "[[port]]\nreliability = \"best-effort\"\n")?;
    Ok(file)
}

/// The host of a contract's node.
fn host(node: usize) -> u8 {
    node as u8 + 1
}

fn difference(after: &[[Count; 2]], before: &[[Count; 2]]) -> Vec<[Count; 2]> {
    let of = |a: &Count, b: &Count| Count {
        sent: a.sent - b.sent,
        bytes: a.bytes - b.bytes,
        datagrams: a.datagrams - b.datagrams,
    };
    after.iter().zip(before).map(|(a, b)| [of(&a[0], &b[0]), of(&a[1], &b[1])]).collect()
}

/// Time for the last samples to arrive.
const SETTLE: Duration = Duration::from_millis(200);
