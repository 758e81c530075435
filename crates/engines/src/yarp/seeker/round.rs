//! One look into the name server: for ports of others that publish what is wanted here, and for other bridges.

#![allow(clippy::disallowed_methods)] // its thread reads the clock

use super::super::client::Presence::{Gone, There, Unknown};
use super::super::client::{ask_to_send, is_at};
use super::super::frame::Carrier;
use super::super::names::Registration;
use super::super::port::{Port, Role};
use super::{BRIDGES, Pattern, Ports};
use crate::engine::Result;
use crate::lock;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg::control::NodeId;
use thalweg::control::matching::{check_name, topic_matches};

/// A publisher that was asked to send, and does not, is asked again after this time.
const AGAIN: Duration = Duration::from_secs(2);
/// Topics of a pattern.
const MOST_TOPICS: usize = 1024;

/// What the thread that looks knows from one time to the next.
#[derive(Default)]
pub(super) struct Known {
    asked: Asked,
    /// Bridges that could not be reached the last time.
    doubted: BTreeSet<NodeId>,
}

/// By port here and port there: since when it was asked to send.
type Asked = HashMap<(String, String), Instant>;

impl Ports {
    pub(super) fn round(&self, known: &mut Known, place: Option<&str>) -> Result<()> {
        let own: Vec<Arc<Port>> = lock(&self.open).values().map(|(port, _)| port.clone()).collect();
        if own.is_empty() && lock(&self.patterns).is_empty() {
            return Ok(());
        }
        let list = self.client.list()?;
        own.iter().for_each(|port| self.renew(port, &list));
        self.adopt(&list);
        self.call(&list, &mut known.asked);
        if let Some(place) = place {
            self.find_bridges(&format!("{BRIDGES}/{place}/"), &list, &mut known.doubted);
        }
        Ok(())
    }

    /// A name server that has started again does not know the ports.
    fn renew(&self, port: &Arc<Port>, list: &[Registration]) {
        if list.iter().any(|one| one.name == port.name) {
            return;
        }
        let registered = lock(&port.registered);
        if *registered && let Err(error) = self.client.register(&port.name, port.address) {
            self.hub.refuse(error.to_string());
        }
    }

    /// The topics that a port of another program may publish, by its name.
    fn topics<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.from.iter().filter_map(|from| name.strip_prefix(from.as_str())).filter(|topic| check_name(topic).is_ok())
    }

    /// Opens ports for topics of patterns that are new, and gives those back that nobody publishes any more.
    fn adopt(&self, list: &[Registration]) {
        let patterns = lock(&self.patterns).clone();
        for pattern in patterns {
            let others = list.iter().filter(|one| !self.is_own(&one.name) && !is_of_the_house(&one.name));
            let topics = others.flat_map(|one| self.topics(&one.name));
            let topics: BTreeSet<&str> = topics.filter(|topic| topic_matches(&pattern.pattern, topic)).collect();
            self.give_back(&pattern, &topics);
            for topic in topics {
                if self.stops() {
                    return;
                }
                self.adopt_one(&pattern, topic);
            }
        }
    }

    /// A publisher that a new name server does not know yet may still be connected.
    fn give_back(&self, pattern: &Pattern, topics: &BTreeSet<&str>) {
        let is_gone = |topic: &String, port: &mut Arc<Port>| {
            !topics.contains(topic.as_str()) && lock(&port.ends).inputs.is_empty()
        };
        let gone: Vec<Arc<Port>> = match lock(&pattern.held).as_mut() {
            Some(held) => held.extract_if(is_gone).map(|(_, port)| port).collect(),
            None => return,
        };
        gone.iter().for_each(|port| self.leave(pattern, port));
    }

    fn adopt_one(&self, pattern: &Pattern, topic: &str) {
        match lock(&pattern.held).as_ref() {
            Some(held) if held.len() >= MOST_TOPICS && !held.contains_key(topic) => {
                return self.hub.refuse(format!("{topic}: {} has {MOST_TOPICS} topics already", pattern.pattern));
            }
            Some(held) if !held.contains_key(topic) => {}
            _ => return,
        }
        // Without the lock, which who ends the pattern waits for.
        let port = match self.input(topic) {
            Ok(port) => port,
            Err(error) => return self.hub.refuse(error.to_string()),
        };
        port.add_taker(pattern.taker.clone());
        if let Some(held) = lock(&pattern.held).as_mut() {
            held.insert(topic.to_owned(), port);
            return;
        }
        self.leave(pattern, &port);
    }

    fn is_own(&self, name: &str) -> bool {
        lock(&self.hub.own).contains(name)
    }

    /// Asks publishers of topics that are wanted here to send.
    fn call(&self, list: &[Registration], asked: &mut Asked) {
        let now = Instant::now();
        asked.retain(|_, at| now.saturating_duration_since(*at) < AGAIN);
        let open: Vec<Arc<Port>> = lock(&self.open).values().map(|(port, _)| port.clone()).collect();
        let inputs = open.iter().filter_map(|port| match &port.role {
            Role::In(topic) => Some((topic.as_str(), port)),
            _ => None,
        });
        let inputs: HashMap<&str, &Arc<Port>> = inputs.collect();
        for one in list.iter().filter(|one| !self.is_own(&one.name)) {
            if self.stops() {
                return;
            }
            for port in self.topics(&one.name).filter_map(|topic| inputs.get(topic)) {
                let is_there = lock(&port.ends).inputs.iter().any(|end| end.other == one.name);
                let key = (port.name.clone(), one.name.clone());
                if is_there || asked.contains_key(&key) {
                    continue;
                }
                // Who refuses may only read; who does not answer may be on its way out.
                let _ = ask_to_send(&one.address(), Carrier::FastTcp, &port.name);
                asked.insert(key, Instant::now());
            }
        }
    }

    /// The bridges that are alive. Those that died without a word leave their names behind.
    fn find_bridges(&self, place: &str, list: &[Registration], doubted: &mut BTreeSet<NodeId>) {
        let (mut found, mut dead, mut doubts) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
        for one in list {
            if self.stops() {
                return;
            }
            let Some(node) = one.name.strip_prefix(place) else { continue };
            let Ok(node) = NodeId::try_from(node.to_owned()) else { continue };
            let presence = if self.is_own(&one.name) { There } else { is_at(&one.address(), &one.name) };
            match presence {
                There => {
                    found.insert(node);
                }
                // It may be busy, or its host be gone: the second time in a row tells.
                Unknown if !doubted.contains(&node) => {
                    doubts.insert(node);
                    found.insert(node);
                }
                Unknown | Gone => dead.push(one.name.as_str()),
            }
        }
        *doubted = doubts;
        self.client.unregister(dead);
        *lock(&self.bridges) = found;
    }
}

/// Names that publish nothing.
fn is_of_the_house(name: &str) -> bool {
    name == "/root" || name.starts_with(BRIDGES) || name.starts_with("/tmp/port/")
}
