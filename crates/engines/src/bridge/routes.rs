//! The routes that a bridge is to have, from the ports of all other nodes and its rules. No I/O.

mod parting;
pub(super) mod partitions;

use super::place::{Place, way};
use super::rules::Rules;
use crate::engine::Endpoint;
use qos::{Durability, Qos, Queue, Reliability, ResourceLimits};
use std::collections::BTreeMap;
use thalweg::PortRef;
use thalweg::codec::{Message, Raw, TypeDescription};
use thalweg::control::matching::{is_pattern, topic_matches};
use thalweg::control::{Direction, Document, MOST_PASSED, NodeId, PortInfo, PullRole};

/// Most routes of a bridge, in each direction.
pub(super) const MOST_ROUTES: usize = 4096;

/// The routes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Routes {
    /// From Thalweg: one for each publisher.
    pub(super) out: BTreeMap<PortRef, Out>,
    /// To Thalweg: one for each topic, or pattern, and type that somebody subscribes to.
    pub(super) into: BTreeMap<InKey, In>,
    /// Ports for which there was no room.
    pub(super) beyond: usize,
    /// Publishers whose samples have come too far to be carried on.
    pub(super) far: usize,
}

/// A publisher whose samples leave.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Out {
    /// The publisher's name.
    pub(super) publisher: String,
    pub(super) topic: String,
    pub(super) there: String,
    pub(super) message: TypeDescription,
    /// Offered in the engine; requested of the publisher.
    pub(super) qos: Qos,
    /// The places that its samples have passed.
    pub(super) way: Vec<String>,
}

/// Topic, and the name and hash of the type.
pub(super) type InKey = (String, String, u64);

/// A topic whose samples come in, or a pattern of topics.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct In {
    pub(super) topic: String,
    pub(super) there: String,
    pub(super) message: TypeDescription,
    /// Its subscribers take any type.
    pub(super) any: bool,
    /// Somebody subscribes; ports of other bridges that only ask for it take nothing.
    pub(super) taken: bool,
    /// Requested in the engine; offered to the subscribers.
    pub(super) qos: Qos,
    /// Its publishers in the engine with their names, where the engine tells of them.
    pub(super) sources: BTreeMap<u128, String>,
    /// The places that their samples have passed, of those who state any.
    pub(super) ways: BTreeMap<u128, Vec<String>>,
    /// Of a pattern: topics and patterns whose samples come by routes of their own.
    pub(super) skips: Vec<String>,
    /// Topics and patterns whose samples come by routes of other types, too: subscribers to any type have them from those.
    pub(super) beside: Vec<String>,
}

impl In {
    /// `true` if the ends of `self` serve `wanted`, too: they offer the same, or more of a history.
    pub(super) fn serves(&self, wanted: &In) -> bool {
        let (own, other) = (&self.qos, &wanted.qos);
        let history = own.durability == other.durability
            && (own.durability == Durability::Volatile || own.history >= other.history);
        let queue =
            own.queue == other.queue || matches!((own.queue, other.queue), (Queue::KeepAll(_), Queue::KeepLast(_)));
        let partitions = partitions::include(&own.partition, &other.partition);
        let partition = own.partition.clone();
        let rest = Qos { history: own.history, queue: own.queue, partition, ..other.clone() } == *own;
        let same = self.topic == wanted.topic && self.there == wanted.there && self.message == wanted.message;
        history && queue && partitions && rest && same
    }

    /// Takes over what its ends can follow without opening anew.
    pub(super) fn follow(&mut self, wanted: &In) {
        self.taken = wanted.taken;
        self.sources.clone_from(&wanted.sources);
        self.ways.clone_from(&wanted.ways);
        self.skips.clone_from(&wanted.skips);
        self.beside.clone_from(&wanted.beside);
    }
}

/// The ports of other nodes than `own`.
pub(super) fn ports(documents: &[Document], own: NodeId) -> impl Iterator<Item = (PortRef, &PortInfo)> {
    let others = documents.iter().filter(move |document| document.node != own);
    others.flat_map(|Document { node, ports, .. }| {
        ports.iter().map(move |(port, info)| (PortRef { node: *node, port: *port }, info))
    })
}

/// The routes of a bridge to this place, whose publishers and subscribers are `ends`, if its engine tells of them. `ports` are those of other
/// nodes.
pub(super) fn routes<'a>(
    ports: impl Iterator<Item = (PortRef, &'a PortInfo)>,
    place: &Place,
    rules: &Rules,
    ends: Option<&[Endpoint]>,
) -> Routes {
    let mut found = Routes::default();
    let sources = ends.map(Sources::new);
    for (at, info) in ports {
        let told = rules.of(&info.topic);
        // What a bridge to the same network publishes comes from there, and what it subscribes to goes there. Over a bridge to another engine
        // it could come back.
        if place.skips(info, told.transit) {
            continue;
        }
        match info.direction {
            Direction::Publisher if told.way.leads_out() => {
                let mut qos = offer(info);
                told.apply(&mut qos);
                let (publisher, topic, message) = (info.name.clone(), info.topic.clone(), info.message.clone());
                match way(at, info) {
                    Some(way) => found.put_out(at, Out { publisher, topic, there: told.there, message, qos, way }),
                    None => found.far += 1,
                }
            }
            // Another bridge's port that takes no samples asks for what it would take.
            Direction::Subscriber if info.pull != PullRole::Only || info.foreign.is_some() => match &sources {
                Some(sources) => sources.of(info, rules).into_iter().for_each(|into| found.put_in(into)),
                None if told.way.leads_in() || (is_pattern(&info.topic) && rules.may_lead_in(&info.topic)) => {
                    let mut qos = wanted(info);
                    told.apply(&mut qos);
                    let any = info.message == TypeDescription::any();
                    let message = if any { raw() } else { info.message.clone() };
                    let (topic, there, taken) = (info.topic.clone(), told.there, info.pull != PullRole::Only);
                    let (sources, ways, skips, beside) = (BTreeMap::new(), BTreeMap::new(), Vec::new(), Vec::new());
                    found.put_in(In { topic, there, message, any, taken, qos, sources, ways, skips, beside });
                }
                None => {}
            },
            _ => {}
        }
    }
    if ends.is_none() {
        found.part();
    } else {
        found.prefer_structures();
    }
    found
}

/// Publishers of an engine by their topics.
struct Sources<'a>(BTreeMap<&'a str, Vec<&'a Endpoint>>);

impl<'a> Sources<'a> {
    fn new(ends: &'a [Endpoint]) -> Self {
        let mut by_topic: BTreeMap<&str, Vec<&Endpoint>> = BTreeMap::new();
        for end in ends.iter().filter(|end| end.direction == Direction::Publisher) {
            by_topic.entry(&end.topic.name).or_default().push(end);
        }
        Self(by_topic)
    }

    /// The routes that a subscriber wants: one for each topic and type that the engine has of what it subscribes to.
    fn of(&self, info: &PortInfo, rules: &Rules) -> Vec<In> {
        if is_pattern(&info.topic) {
            let fitting = self.0.iter().filter(|(topic, _)| topic_matches(&info.topic, topic));
            return fitting.flat_map(|(topic, ends)| into_routes(info, topic, ends, rules)).collect();
        }
        let there = rules.of(&info.topic).there;
        self.0.get(&there[..]).map(|ends| into_routes(info, &info.topic, ends, rules)).unwrap_or_default()
    }
}

/// The routes of the publishers of one topic: one for each of their types, which offers no more than each of them does.
fn into_routes(info: &PortInfo, topic: &str, ends: &[&Endpoint], rules: &Rules) -> Vec<In> {
    let told = rules.of(topic);
    if !told.way.leads_in() {
        return Vec::new();
    }
    let mut routes: Vec<In> = Vec::new();
    for end in ends {
        let Qos { reliability, durability, history, deadline, lifespan, key, .. } = end.qos.clone();
        let wanted = wanted(info);
        // Another bridge asks for what there is.
        let ownership = if info.foreign.is_some() { end.qos.ownership } else { wanted.ownership };
        let qos = Qos { reliability, durability, history, deadline, lifespan, key, ownership, ..wanted };
        let message = message(info, end);
        let way = (!end.way.is_empty()).then(|| (end.id, end.way.clone()));
        match routes.iter_mut().find(|route| route.message == *message) {
            Some(route) => {
                route.sources.insert(end.id, end.name.clone());
                if route.qos.key.is_empty() {
                    route.qos.key = qos.key;
                }
                route.ways.extend(way);
                route.qos.reliability = route.qos.reliability.min(reliability);
                route.qos.durability = route.qos.durability.max(durability);
                route.qos.history = route.qos.history.max(history);
                route.qos.deadline = route.qos.deadline.zip(deadline).map(|(one, other)| one.max(other));
                route.qos.lifespan = route.qos.lifespan.zip(lifespan).map(|(one, other)| one.max(other));
            }
            None => routes.push(In {
                topic: topic.to_owned(),
                there: end.topic.name.clone(),
                message: message.clone(),
                qos,
                sources: BTreeMap::from([(end.id, end.name.clone())]),
                ways: way.into_iter().collect(),
                any: false,
                taken: info.pull != PullRole::Only,
                skips: Vec::new(),
                beside: Vec::new(),
            }),
        }
    }
    routes.iter_mut().for_each(|route| told.apply(&mut route.qos));
    routes
}

/// The type of a publisher there. Where its name is all that is known (DDS), it is that of a subscriber here of this name.
fn message<'a>(info: &'a PortInfo, end: &'a Endpoint) -> &'a TypeDescription {
    let (stated, own) = (&end.topic.message, &info.message);
    let is_name = stated.schema.is_none() && stated.ros.is_none();
    if is_name && own.schema.is_some() && short(stated) == own.name { own } else { stated }
}

/// The name of a type without its modules.
fn short(message: &TypeDescription) -> &str {
    message.name.rsplit("::").next().unwrap_or_default()
}

impl Routes {
    /// What has no route, and why.
    pub(super) fn left_out(&self) -> impl Iterator<Item = String> + use<> {
        let (beyond, far, networks) = (self.beyond, self.far, MOST_PASSED / 2);
        let beyond =
            (beyond > 0).then(|| format!("{beyond} ports beyond {MOST_ROUTES} have no route: allow fewer topics"));
        let far = (far > 0).then(|| {
            format!("{far} publishers are not carried on: their samples have come over more than {networks} networks")
        });
        beyond.into_iter().chain(far)
    }

    fn put_out(&mut self, at: PortRef, out: Out) {
        match self.out.len() < MOST_ROUTES {
            true => drop(self.out.insert(at, out)),
            false => self.beyond += 1,
        }
    }

    /// Several subscribers to one topic share a route, which offers as much as the most demanding one requests.
    fn put_in(&mut self, new: In) {
        let name = if new.any { TypeDescription::any().name } else { new.message.name.clone() };
        let key = (new.topic.clone(), name, new.message.hash);
        if let Some(known) = self.into.get_mut(&key) {
            known.taken |= new.taken;
            known.join(&new.qos);
        } else if self.into.len() < MOST_ROUTES {
            self.into.insert(key, new);
        } else {
            self.beyond += 1;
        }
    }
}

fn raw() -> TypeDescription {
    Raw::description().as_ref().clone()
}

/// A publisher's offer, as far as it means something in another system.
fn offer(info: &PortInfo) -> Qos {
    let Qos {
        reliability,
        class,
        max_message,
        durability,
        history,
        deadline,
        latency_budget,
        lifespan,
        liveliness,
        ..
    } = info.qos.clone();
    let (key, ownership, partition) = (info.qos.key.clone(), info.qos.ownership, info.qos.partition.clone());
    Qos {
        reliability,
        class,
        max_message,
        durability,
        history,
        deadline,
        latency_budget,
        lifespan,
        liveliness,
        ownership,
        partition,
        key,
        ..Qos::default()
    }
}

/// Samples of a burst that wait in the channels of what the bridge publishes: others' publishers are not held up, and not lost within it.
const BURST: u32 = 1024;

/// Their bytes, beyond which the oldest are dropped earlier.
const BURST_BYTES: u64 = 64 << 20;

/// The offer that satisfies a subscriber. Little of it depends on the subscriber, so that the route stays when others come.
fn wanted(info: &PortInfo) -> Qos {
    let Qos { durability, ownership, destination_order, strict, .. } = info.qos;
    let (pattern, partition) = (is_pattern(&info.topic), &info.qos.partition[..]);
    // Other bridges take as much as there is.
    let history = if info.foreign.is_some() { Qos::default().history } else { info.qos.history };
    Qos {
        reliability: Reliability::Reliable,
        // The history of a pattern would be that of all topics that ever fit.
        durability: if pattern { Durability::Volatile } else { durability },
        history,
        limits: ResourceLimits { bytes: Some(BURST_BYTES), ..ResourceLimits::default() },
        ownership,
        destination_order,
        partition: partitions::meeting([partition].into_iter()),
        queue: if strict { Queue::KeepAll(BURST) } else { Queue::KeepLast(BURST) },
        ..Qos::default()
    }
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
