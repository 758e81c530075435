//! The roles `traced-publisher` and `traced-subscriber`: topics that one thread publishes at random distances and another one
//! takes, with the stamps of each sample on its way. An experiment holds both as [`Traced`].

use super::{CARRIER, SETTLE, fifo, station::Visit};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::{LONG, Measured, NodeSettings, Orders, Part, Place};
use crate::topology::Topology;
use linux::clock::monotonic_ns;
use qos::priority::Changes;
use qos::{Qos, Queue};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thalweg::carrier::Dice;
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, Subscriber, WaitSet, Waitable};

/// Roles of this module.
pub(super) const PUBLISHER: &str = "traced-publisher";
/// The other one.
pub(super) const SUBSCRIBER: &str = "traced-subscriber";

/// A topic: name and bytes of a sample.
pub(super) type Topic = (String, usize);

/// Settings of both roles.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Settings {
    node: NodeSettings,
    topics: Vec<Topic>,
}

/// Orders; each is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Order {
    /// Waits for a channel of each topic: `{}`.
    Connected,
    /// Gives all threads of its process a scheduling: `{}`.
    Schedule { changes: Changes },
    /// Publishes all topics in turn, `hz` samples per second together, for `ms`: [`Sent`] (publisher).
    Publish { hz: f64, ms: u64, seed: u64 },
    /// Reports the samples taken since the last report: [`Taken`] (subscriber).
    Taken,
    /// Reports the times of a topic's stages since the last report: [`Measured`].
    Stages { topic: String },
}

/// Samples that were published: number of the topic, sequence number, and the times at which each was due, at which `publish`
/// was called and returned.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Sent {
    samples: Vec<(usize, u64, [u64; 3])>,
}

/// Samples that were taken: number of the topic, sequence number, and the times at which each was received, at which `take` was
/// called and returned it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Taken {
    samples: Vec<(usize, u64, [u64; 3])>,
}

/// The stamps of a sample, by CLOCK_MONOTONIC in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Number of its topic.
    pub topic: usize,
    /// Due to be published.
    pub due: u64,
    /// `publish` was called.
    pub published: u64,
    /// `publish` returned: the kernel has it.
    pub sent: u64,
    /// The receiving thread had it.
    pub received: u64,
    /// `take` was called.
    pub asked: u64,
    /// `take` returned it.
    pub taken: u64,
}

impl Way {
    /// Its time at the publisher: the wait for the thread and the processor, and the call of `publish`.
    pub(super) fn at_publisher(&self) -> Visit {
        Visit { arrived: self.due, left: self.sent }
    }

    /// Its time in the network. The receiving thread may have it before `publish` returns.
    pub(super) fn in_network(&self) -> Visit {
        Visit { arrived: self.sent.min(self.received), left: self.received }
    }

    /// Its time at the subscriber, until the application has it.
    pub(super) fn at_subscriber(&self) -> Visit {
        Visit { arrived: self.received, left: self.taken }
    }
}

/// What a run gave: the ways of the samples that arrived, and the number of published ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// In the order in which they were due.
    pub ways: Vec<Way>,
    /// Published samples.
    pub sent: u64,
}

/// A publisher on host 1 of a topology and a subscriber on host 2.
pub(super) struct Traced {
    topics: Vec<Topic>,
    publisher: Part,
    subscriber: Part,
}

impl Traced {
    /// Starts and connects them on these processors, with threads of FIFO 30. Others with another number do not meet them.
    pub(super) fn new(
        lab: &Lab,
        topology: &Topology,
        number: usize,
        topics: &[Topic],
        processors: &[usize],
    ) -> Result<Self> {
        let port = 8000 + 2 * number as u16;
        let addresses = [1, 2].map(|host| SocketAddr::new(Topology::address_of(host), port + u16::from(host)));
        let start = |host: u8, role: &str| {
            let listen = addresses[usize::from(host) - 1];
            let node = NodeSettings::at(lab, role, &format!("traced-{number}"), listen, &addresses)?;
            let settings = Settings { node, topics: topics.to_vec() };
            Part::ready(lab, Place::at(topology.host(host), processors).first(), role, &settings)
        };
        let (publisher, subscriber) = (start(1, PUBLISHER)?, start(2, SUBSCRIBER)?);
        let mut traced = Self { topics: topics.to_vec(), publisher, subscriber };
        for part in [&mut traced.publisher, &mut traced.subscriber] {
            part.ask::<Value>(lab, &Order::Connected, LONG)?;
            part.ask::<Value>(lab, &Order::Schedule { changes: fifo() }, LONG)?;
        }
        Ok(traced)
    }

    /// Publishes for this long, `hz` samples per second of all topics together.
    pub(super) fn run(&mut self, lab: &Lab, hz: f64, time: Duration, seed: u64) -> Result<Run> {
        self.subscriber.ask::<Taken>(lab, &Order::Taken, LONG)?;
        let order = Order::Publish { hz, ms: time.as_millis() as u64, seed };
        let sent: Sent = self.publisher.ask(lab, &order, time + LONG)?;
        lab.stop.sleep(SETTLE)?;
        let taken: Taken = self.subscriber.ask(lab, &Order::Taken, LONG)?;
        Ok(Run { sent: sent.samples.len() as u64, ways: join(&sent, &taken) })
    }

    /// Times of the stages since the last call at the publisher, topic by topic.
    pub(super) fn stages(&mut self, lab: &Lab) -> Result<Vec<Measured>> {
        let ask = |(topic, _): &Topic| self.publisher.ask(lab, &Order::Stages { topic: topic.clone() }, LONG);
        self.topics.iter().map(ask).collect()
    }
}

/// Both ends' stamps of the samples that arrived.
fn join(sent: &Sent, taken: &Taken) -> Vec<Way> {
    let arrived: HashMap<(usize, u64), [u64; 3]> =
        taken.samples.iter().map(|(topic, seq, at)| ((*topic, *seq), *at)).collect();
    let way = |(topic, seq, [due, published, sent]): &(usize, u64, [u64; 3])| {
        let [received, asked, taken] = *arrived.get(&(*topic, *seq))?;
        Some(Way { topic: *topic, due: *due, published: *published, sent: *sent, received, asked, taken })
    };
    sent.samples.iter().filter_map(way).collect()
}

/// Plays the publisher.
pub(crate) fn play_publisher(mut orders: Orders) -> Result {
    let settings: Settings = orders.settings()?;
    let node = settings.node.open()?;
    let open = |(topic, size): &Topic| {
        Ok((node.publisher::<Raw>(topic).named(format!("/out{topic}")).qos(qos()).open()?, vec![0x5a; *size]))
    };
    let mut topics = settings.topics.iter().map(open).collect::<Result<Vec<_>>>()?;
    orders.say(&json!({}))?;
    while let Some(order) = orders.wait::<Order>()? {
        match order {
            Order::Connected => {
                connected(&node, || topics.iter().all(|(port, _)| port.connected() > 0))?;
                orders.say(&json!({}))?;
            }
            Order::Publish { hz, ms, seed } => {
                orders.say(&publish(&mut topics, hz, Duration::from_millis(ms), seed)?)?;
            }
            Order::Schedule { changes } => {
                schedule(&node, topics.first().map(|(port, _)| port.name()), &changes)?;
                orders.say(&json!({}))?;
            }
            Order::Stages { topic } => orders.say(&Measured::take(&node, &topic)?)?,
            Order::Taken => return Err(Error::Usage("a publisher takes nothing".into())),
        }
    }
    Ok(())
}

/// Publishes the topics in turn at exponential distances; samples that are due wait for the thread.
fn publish(topics: &mut [(Publisher<Raw>, Vec<u8>)], hz: f64, time: Duration, seed: u64) -> Result<Sent> {
    let (mut dice, mean_ns, count) = (Dice::new(seed), 1e9 / hz, topics.len());
    let mut sent = Sent { samples: Vec::with_capacity((2.0 * hz * time.as_secs_f64()) as usize) };
    let began = monotonic_ns();
    let (end, mut due) = (began + time.as_nanos() as u64, began as f64);
    for topic in (0..count).cycle() {
        // 1 … 2^53 of 2^53: never 0, whose logarithm there is not.
        let drawn = ((dice.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        due += -drawn.ln() * mean_ns;
        std::thread::sleep(Duration::from_nanos((due as u64).saturating_sub(monotonic_ns())));
        let called = monotonic_ns();
        if called > end {
            break;
        }
        let (port, message) = &mut topics[topic];
        let seq = port.publish(message)?.seq;
        sent.samples.push((topic, seq, [due as u64, called, monotonic_ns()]));
    }
    Ok(sent)
}

/// Plays the subscriber.
pub(crate) fn play_subscriber(mut orders: Orders) -> Result {
    let settings: Settings = orders.settings()?;
    let node = settings.node.open()?;
    let open = |(topic, _): &Topic| {
        let builder = node.subscriber::<Raw>(topic).named(format!("/in{topic}")).qos(qos());
        Ok(builder.carriers([CARRIER]).open()?)
    };
    let ports = settings.topics.iter().map(open).collect::<Result<Vec<Subscriber<Raw>>>>()?;
    let name = ports.first().map(|port| port.name().to_owned());
    let (stop, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Taken::default())));
    let count = ports.len();
    let thread = {
        let (stop, taken) = (stop.clone(), taken.clone());
        std::thread::Builder::new().name("take".into()).spawn(move || take(ports, &stop, &taken))?
    };
    orders.say(&json!({}))?;
    while let Some(order) = orders.wait::<Order>()? {
        match order {
            // The publisher waits for the channels; a port of this end has one when that one has.
            Order::Connected => orders.say(&json!({ "topics": count }))?,
            Order::Schedule { changes } => {
                schedule(&node, name.as_deref(), &changes)?;
                orders.say(&json!({}))?;
            }
            Order::Taken => {
                let all = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
                orders.say(&all)?;
            }
            Order::Stages { topic } => orders.say(&Measured::take(&node, &topic)?)?,
            Order::Publish { .. } => return Err(Error::Usage("a subscriber publishes nothing".into())),
        }
    }
    stop.store(true, Relaxed);
    thread.join().map_err(|_| Error::Failed("the taking thread failed".into()))
}

/// Takes the samples of all topics as they come.
fn take(mut ports: Vec<Subscriber<Raw>>, stop: &AtomicBool, taken: &Mutex<Taken>) {
    let mut set = WaitSet::new();
    while !stop.load(Relaxed) {
        let all: Vec<&dyn Waitable> = ports.iter().map(|port| port as &dyn Waitable).collect();
        let ready = set.wait(&all, LOOK);
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        // A port that has nothing is not asked: that would delay the samples of the ports behind it.
        for (topic, (port, _)) in ports.iter_mut().zip(ready).enumerate().filter(|(_, (_, ready))| **ready) {
            let mut asked = monotonic_ns();
            while let Some(sample) = port.take() {
                let (now, info) = (monotonic_ns(), sample.info());
                taken.samples.push((topic, info.seq, [info.received_ns, asked, now]));
                drop(sample);
                asked = monotonic_ns();
            }
        }
    }
}

/// Reliable; nothing is dropped, whoever is slow.
fn qos() -> Qos {
    Qos { queue: Queue::Block { limit: 1 << 14, up_to_us: 1_000_000 }, max_message: 1 << 16, ..Qos::default() }
}

fn connected(node: &Node, all: impl Fn() -> bool) -> Result {
    let here = node.wait_until(CONNECT, all);
    if here { Ok(()) } else { Err(Error::Failed(format!("not every topic has its subscriber within {CONNECT:?}"))) }
}

/// Changes all threads of the process.
fn schedule(node: &Node, port: Option<&str>, changes: &Changes) -> Result {
    port.map(|port| node.set_priority(port, port, changes)).transpose()?;
    Ok(())
}

const CONNECT: Duration = Duration::from_secs(25);
/// Longest wait between two looks at the stop flag.
const LOOK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_both_ends_are_joined_by_topic_and_number() {
        let sent = Sent { samples: vec![(0, 1, [10, 11, 12]), (1, 1, [20, 21, 22]), (0, 2, [30, 31, 40])] };
        let taken = Taken { samples: vec![(1, 1, [50, 51, 52]), (0, 2, [39, 60, 61])] };
        let ways = join(&sent, &taken);
        assert_eq!(ways.len(), 2, "one was lost");
        assert_eq!((ways[0].topic, ways[0].due, ways[0].taken), (1, 20, 52));
        assert_eq!(ways[0].in_network(), Visit { arrived: 22, left: 50 });
        assert_eq!(ways[1].in_network(), Visit { arrived: 39, left: 39 }, "received before `publish` returned");
    }
}
