//! Thalweg as an engine: a node of its own.

use crate::engine::{
    Abilities, Deliver, Endpoint, Engine, Error, Incompatible, MarkedUnit, Publisher, Result, Sample, Subscriber,
    Support, Topic,
};
use crate::lock;
use qos::Qos;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use thalweg::codec::{TypeDescription, Untyped};
use thalweg::control::{NodeId, PortId, PortInfo};
use thalweg::{Change, Event, EventReader, Node, PortRef};

/// Publishers whose topics a subscriber to a pattern remembers.
const MOST_TOPICS: usize = 4096;

/// A node as an engine.
pub struct Native {
    node: Node,
    events: Mutex<EventReader>,
}

impl Native {
    /// The name of the engine.
    pub const NAME: &str = "thalweg";
    /// What it does about policies.
    pub const ABILITIES: Abilities = Abilities {
        reliability: Support::Enforced,
        durability: Support::Enforced,
        matching: Support::Enforced,
        deadline: Support::Enforced,
        lifespan: Support::Enforced,
        instances: Support::Enforced,
        keys: Support::Enforced,
        types: Support::Enforced,
        marked: MarkedUnit::Channel,
        endpoints: true,
        wanted: true,
    };

    /// The engine of this node.
    pub fn new(node: Node) -> Self {
        let events = Mutex::new(node.events());
        Self { node, events }
    }
}

/// The number of a port among all ports: engines know publishers by it.
pub fn number(node: NodeId, port: PortId) -> u128 {
    u128::from(node.0) << 32 | u128::from(port.0)
}

impl Engine for Native {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn abilities(&self) -> Abilities {
        Self::ABILITIES
    }

    fn publisher(&self, topic: &Topic, offer: &Qos) -> Result<Box<dyn Publisher>> {
        let builder = self.node.publisher::<Untyped>(&topic.name).qos(offer.clone()).described(topic.message.clone());
        Ok(Box::new(Publishing { publisher: Mutex::new(builder.open()?), node: self.node.clone() }))
    }

    fn subscriber(&self, topic: &Topic, request: &Qos, mut deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        let node = self.node.clone();
        let mut builder = self.node.subscriber::<Untyped>(&topic.name).qos(request.clone());
        if topic.message != TypeDescription::any() {
            builder = builder.described(topic.message.clone());
        }
        let pattern = thalweg::control::matching::is_pattern(&topic.name).then(|| topic.name.clone());
        let (name, own) = (topic.name.clone(), self.node.id());
        let mut topics: HashMap<PortRef, String> = HashMap::new();
        let subscriber = builder.callback(move |sample| {
            let info = sample.info();
            if info.node == own {
                return; // samples of others
            }
            let origin = PortRef { node: info.node, port: info.port };
            if pattern.is_some() && !topics.contains_key(&origin) && topics.len() < MOST_TOPICS {
                topic_of(&node, info.node, info.port).into_iter().for_each(|topic| drop(topics.insert(origin, topic)));
            }
            deliver(&Sample {
                topic: topics.get(&origin).unwrap_or(&name),
                message: &sample,
                publisher: number(info.node, info.port),
                origin: Some(origin),
                change: info.change,
                age_ns: info.latency_ns().unwrap_or_default(),
                historical: info.historical,
            });
        });
        Ok(Box::new(Subscribing { _subscriber: subscriber? }))
    }

    fn changes(&self) -> u64 {
        self.node.wait_for_changes(0, Duration::ZERO)
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let others = self.node.nodes().into_iter().filter(|document| document.node != self.node.id());
        let ends = others.flat_map(|document| {
            let node = document.node;
            document.ports.into_iter().map(move |(port, info)| endpoint(number(node, port), info))
        });
        ends.collect()
    }

    fn incompatible(&self) -> Vec<Incompatible> {
        let mut events = lock(&self.events);
        let mut found = Vec::new();
        while let Some(event) = events.wait(Duration::ZERO) {
            if let Event::Incompatible { publisher, policy, offered, requested, fallback: false, .. } = event {
                let topic = self.node.holder(&publisher).map_or(publisher, |(_, port)| port.topic);
                found.push(Incompatible { topic, policy, offered, requested });
            }
        }
        found
    }
}

fn topic_of(node: &Node, at: NodeId, port: PortId) -> Option<String> {
    let document = node.nodes().into_iter().find(|document| document.node == at)?;
    document.ports.get(&port).map(|info| info.topic.clone())
}

fn endpoint(id: u128, info: PortInfo) -> Endpoint {
    let PortInfo { name, direction, topic, message, qos, .. } = info;
    Endpoint { id, direction, topic: Topic { name: topic, message }, qos, name, way: Vec::new() }
}

struct Publishing {
    publisher: Mutex<thalweg::Publisher<Untyped>>,
    node: Node,
}

impl Publisher for Publishing {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        let mut publisher = lock(&self.publisher);
        let published = match sample.change {
            Change::Written => publisher.publish(sample.message)?,
            Change::Disposed => publisher.dispose(sample.message)?,
            Change::Unregistered => publisher.unregister(sample.message)?,
        };
        if published.refused > 0 {
            return Err(Error::Engine(format!(
                "{} of the channels of {} had no room",
                published.refused,
                publisher.name()
            )));
        }
        Ok(())
    }

    fn is_wanted(&self) -> bool {
        let channels = lock(&self.publisher).channels();
        let leads_away = |name: &str| self.node.holder(name).is_none_or(|(node, _)| node != self.node.id());
        channels.iter().any(|channel| leads_away(&channel.subscriber))
    }
}

struct Subscribing {
    _subscriber: thalweg::Subscriber<Untyped>,
}

impl Subscriber for Subscribing {}
