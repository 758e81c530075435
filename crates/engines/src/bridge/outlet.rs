//! From Thalweg to the engine: one topic, with a publisher in the engine for each publisher of Thalweg.
//!
//! The subscriber opens when somebody wants the topic in the engine, or when a publisher keeps samples for late joiners; else no sample
//! reaches the bridge.

use super::lock;
use super::routes::Out;
use crate::engine::{Engine, Error, Publisher, Result, Sample, Topic};
use qos::{Durability, PolicyName, Qos, Reliability};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use thalweg::codec::Untyped;
use thalweg::control::Foreign;
use thalweg::{Change, Node, PortRef, SampleInfo, Subscriber};

/// Samples of publishers that the bridge does not know yet; they wait until it does.
const MOST_EARLY: usize = 64;

pub(super) struct Outlet {
    lines: Arc<Mutex<Lines>>,
    subscriber: Option<Subscriber<Untyped>>,
    /// The request of the open subscriber.
    request: Option<Qos>,
}

/// The publishers of a topic in the engine, by those of Thalweg.
#[derive(Default)]
struct Lines {
    open: HashMap<PortRef, Line>,
    early: VecDeque<(SampleInfo, Vec<u8>)>,
    sent: u64,
    failed: Option<Error>,
}

struct Line {
    there: String,
    route: Out,
    publisher: Box<dyn Publisher>,
}

impl Outlet {
    pub(super) fn new() -> Self {
        Self { lines: Arc::default(), subscriber: None, request: None }
    }

    /// Opens and closes publishers of the engine until there is one for each route. Those that do not open are given by their topic there.
    pub(super) fn adjust(&mut self, engine: &dyn Engine, routes: &BTreeMap<PortRef, Out>) -> Vec<(String, Error)> {
        let mut lines = lock(&self.lines);
        lines.open.retain(|at, line| routes.get(at).is_some_and(|route| *route == line.route));
        let mut failed = Vec::new();
        for (at, route) in routes {
            if lines.open.contains_key(at) {
                continue;
            }
            let topic = Topic { name: route.there.clone(), message: route.message.clone() };
            match engine.publisher(&topic, &route.qos) {
                Ok(publisher) => {
                    let line = Line { there: route.there.clone(), route: route.clone(), publisher };
                    lines.open.insert(*at, line);
                }
                Err(error) => failed.push((route.there.clone(), error)),
            }
        }
        let early = std::mem::take(&mut lines.early);
        early.into_iter().for_each(|(info, message)| lines.send(&info, &message));
        failed
    }

    /// Opens the subscriber if somebody wants its samples, else closes it.
    pub(super) fn open_or_close(&mut self, node: &Node, topic: &str, engine: &str) -> Result<()> {
        let lines = lock(&self.lines);
        let wanted = lines.open.values().any(|line| line.publisher.is_wanted() || keeps(&line.route.qos));
        let request = wanted.then(|| request(lines.open.values().map(|line| &line.route.qos)));
        let there = lines.open.values().next().map(|line| line.there.clone()).unwrap_or_default();
        drop(lines);
        if request == self.request {
            return Ok(());
        }
        // The lock is free: closing a subscriber waits for its callback.
        self.subscriber = None;
        self.request.clone_from(&request);
        let Some(request) = request else { return Ok(()) };
        let (lines, own) = (self.lines.clone(), node.id());
        let foreign = Foreign { engine: engine.to_owned(), name: there };
        let builder = node.subscriber::<Untyped>(topic).qos(request).foreign(foreign);
        let opened = builder.callback(move |sample| {
            if sample.info().node != own {
                lock(&lines).take(sample.info(), &sample);
            }
        });
        self.subscriber = Some(opened.inspect_err(|_| self.request = None)?);
        Ok(())
    }

    pub(super) fn publishers(&self) -> usize {
        lock(&self.lines).open.len()
    }

    pub(super) fn is_open(&self) -> bool {
        self.subscriber.is_some()
    }

    pub(super) fn sent(&self) -> u64 {
        lock(&self.lines).sent
    }

    /// The last error of a sample, once.
    pub(super) fn failed(&self) -> Option<Error> {
        lock(&self.lines).failed.take()
    }
}

impl Lines {
    fn take(&mut self, info: &SampleInfo, message: &[u8]) {
        let at = PortRef { node: info.node, port: info.port };
        if self.open.contains_key(&at) {
            return self.send(info, message);
        }
        if self.early.len() == MOST_EARLY {
            self.early.pop_front();
        }
        self.early.push_back((*info, message.to_vec()));
    }

    fn send(&mut self, info: &SampleInfo, message: &[u8]) {
        let origin = PortRef { node: info.node, port: info.port };
        let Some(line) = self.open.get_mut(&origin) else { return };
        // The end of one instance of several is nothing that an engine without keys could say.
        if info.change != Change::Written && !line.route.qos.key.is_empty() {
            return;
        }
        let sample = Sample {
            topic: &line.there,
            message,
            publisher: crate::native::number(info.node, info.port),
            origin: Some(origin),
            change: info.change,
            age_ns: info.latency_ns().unwrap_or_default(),
            historical: info.historical,
        };
        match line.publisher.publish(&sample) {
            Ok(()) => self.sent += 1,
            Err(error) => self.failed = Some(error),
        }
    }
}

fn keeps(qos: &Qos) -> bool {
    qos.durability == Durability::TransientLocal
}

/// The request that matches each of these offers, and takes what each can give.
fn request<'a>(offers: impl Iterator<Item = &'a Qos>) -> Qos {
    let mut request = Qos {
        reliability: Reliability::Reliable,
        fallback: vec![
            PolicyName::Reliability,
            PolicyName::Durability,
            PolicyName::Deadline,
            PolicyName::LatencyBudget,
            PolicyName::DestinationOrder,
            PolicyName::Liveliness,
            PolicyName::Ownership,
        ],
        partition: vec!["*".to_owned()],
        max_message: 1,
        ..Qos::default()
    };
    for offer in offers {
        request.durability = request.durability.max(offer.durability);
        request.history = request.history.max(offer.history);
        request.max_message = request.max_message.max(offer.max_message);
        if offer.scale != request.scale {
            request.scale = offer.scale;
        }
        request.picture = request.picture.or(offer.picture);
        request.separation = request.separation.or(offer.separation);
    }
    request
}
