//! The ports of a program, and the thread that looks in the name server for publishers of the topics that are wanted here.

#![allow(clippy::disallowed_methods)] // its thread reads the clock

use super::client::{Client, ask_to_send, is_at};
use super::frame::Carrier;
use super::hub::{Hub, Order};
use super::names::{self, Registration};
use super::port::{Port, Role, Taker};
use crate::engine::{Error, Result};
use crate::lock;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thalweg::control::NodeId;
use thalweg::control::matching::{check_name, topic_matches};

/// Pause between two looks into the name server.
const PERIOD: Duration = Duration::from_millis(400);
/// A publisher that was asked to send, and does not, is asked again after this time.
const AGAIN: Duration = Duration::from_secs(2);
/// Topics of a pattern.
const MOST_TOPICS: usize = 1024;
/// Below this name each bridge has a port: its data space and rules, and its node.
const BRIDGES: &str = "/thalweg-bridges";

/// All ports of a program.
pub(crate) struct Ports {
    pub(crate) hub: Arc<Hub>,
    client: Client,
    host: IpAddr,
    /// Before the names of ports here.
    prefix: String,
    /// What names of others have before their topics.
    from: Vec<String>,
    open: Mutex<HashMap<String, (Arc<Port>, usize)>>,
    patterns: Mutex<Vec<Arc<Pattern>>>,
    bridges: Mutex<BTreeSet<NodeId>>,
    /// Look now; stop.
    poke: (Mutex<(bool, bool)>, Condvar),
}

/// A subscriber to a pattern, with the ports for its topics.
pub(crate) struct Pattern {
    pub(crate) pattern: String,
    pub(crate) taker: Arc<Taker>,
    /// By topic; `None`: it is closed.
    held: Mutex<Option<HashMap<String, Arc<Port>>>>,
}

impl Pattern {
    pub(crate) fn new(pattern: &str, taker: Arc<Taker>) -> Self {
        Self { pattern: pattern.to_owned(), taker, held: Mutex::new(Some(HashMap::new())) }
    }
}

impl Ports {
    pub(crate) fn new(hub: Arc<Hub>, client: Client, host: IpAddr, prefix: &str, from: &[String]) -> Self {
        let (open, patterns, bridges) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (prefix, from) = (prefix.to_owned(), from.to_vec());
        Self { hub, client, host, prefix, from, open, patterns, bridges, poke: Default::default() }
    }

    /// The port that publishes a topic: one for all publishers of a topic here.
    pub(crate) fn output(&self, topic: &str) -> Result<Arc<Port>> {
        self.hold(&format!("{}{topic}", self.prefix), Role::Out)
    }

    /// The port that takes a topic: one for all subscribers to a topic here.
    pub(crate) fn input(&self, topic: &str) -> Result<Arc<Port>> {
        self.hold(&format!("{}{topic}:i", self.prefix), Role::In(topic.to_owned()))
    }

    fn hold(&self, name: &str, role: Role) -> Result<Arc<Port>> {
        names::check(name).map_err(Error::Topic)?;
        let mut open = lock(&self.open);
        if let Some((port, users)) = open.get_mut(name) {
            if std::mem::discriminant(&port.role) != std::mem::discriminant(&role) {
                return Err(Error::Topic(format!("{name} is the name of another port of this bridge")));
            }
            *users += 1;
            return Ok(port.clone());
        }
        let failed = |error: std::io::Error| Error::Engine(format!("{name} cannot listen on {}: {error}", self.host));
        let listener = TcpListener::bind((self.host, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = Arc::new(Port::new(name, listener.local_addr().map_err(failed)?, role));
        // Before it can be found: somebody may look for it at once.
        lock(&self.hub.own).insert(name.to_owned());
        self.hub.order(Order::Listen(port.clone(), listener));
        if let Err(error) = self.client.register(name, port.address) {
            self.close(&port);
            return Err(error);
        }
        open.insert(name.to_owned(), (port.clone(), 1));
        Ok(port)
    }

    fn close(&self, port: &Arc<Port>) {
        lock(&self.hub.own).remove(&port.name);
        self.hub.order(Order::Close(port.clone()));
    }

    /// Gives a port back. The last one who does closes it.
    pub(crate) fn release(&self, port: &Port) {
        let mut open = lock(&self.open);
        let Some((port, users)) = open.get_mut(&port.name) else { return };
        *users -= 1;
        if *users == 0 {
            let port = port.clone();
            open.remove(&port.name);
            self.close(&port);
            self.client.unregister([port.name.as_str()]);
        }
    }

    /// Opens ports for the topics of a pattern, as they come.
    pub(crate) fn follow(&self, pattern: Arc<Pattern>) {
        lock(&self.patterns).push(pattern);
        self.look_now();
    }

    pub(crate) fn unfollow(&self, pattern: &Arc<Pattern>) {
        lock(&self.patterns).retain(|other| !Arc::ptr_eq(other, pattern));
        for port in lock(&pattern.held).take().into_iter().flat_map(HashMap::into_values) {
            port.remove_taker(&pattern.taker);
            self.release(&port);
        }
    }

    /// Tells others that this bridge is there.
    pub(crate) fn tell(&self, place: &str, node: NodeId) -> Result<()> {
        self.hold(&format!("{BRIDGES}/{place}/{node}"), Role::Sign)?;
        self.round(&mut HashMap::new(), Some(place))
    }

    pub(crate) fn bridges(&self) -> Vec<NodeId> {
        lock(&self.bridges).iter().copied().collect()
    }

    pub(crate) fn look_now(&self) {
        lock(&self.poke.0).0 = true;
        self.poke.1.notify_all();
    }

    /// Ends the thread that looks, and gives all names back.
    pub(crate) fn stop(&self) {
        lock(&self.poke.0).1 = true;
        self.poke.1.notify_all();
        let left: Vec<Arc<Port>> = lock(&self.open).drain().map(|(_, (port, _))| port).collect();
        left.iter().for_each(|port| self.close(port));
        self.client.unregister(left.iter().map(|port| port.name.as_str()));
    }

    /// Looks into the name server until it is told to stop. `place` is that of this program's bridge.
    pub(crate) fn seek(&self, place: Option<&str>) {
        let (mut asked, mut told) = (HashMap::new(), false);
        loop {
            let poke = lock(&self.poke.0);
            let waits = |(now, stop): &mut (bool, bool)| !*now && !*stop;
            let waited = self.poke.1.wait_timeout_while(poke, PERIOD, waits);
            let mut poke = waited.unwrap_or_else(PoisonError::into_inner).0;
            poke.0 = false;
            if poke.1 {
                return;
            }
            drop(poke);
            match self.round(&mut asked, place) {
                Ok(()) => told = false,
                Err(error) if !std::mem::replace(&mut told, true) => self.hub.refuse(error.to_string()),
                Err(_) => {}
            }
        }
    }

    fn round(&self, asked: &mut Asked, place: Option<&str>) -> Result<()> {
        let own: Vec<Arc<Port>> = lock(&self.open).values().map(|(port, _)| port.clone()).collect();
        if own.is_empty() && lock(&self.patterns).is_empty() {
            return Ok(());
        }
        let list = self.client.list()?;
        own.iter().for_each(|port| self.renew(port, &list));
        self.adopt(&list);
        self.call(&list, asked);
        if let Some(place) = place {
            self.find_bridges(&format!("{BRIDGES}/{place}/"), &list);
        }
        Ok(())
    }

    /// A name server that has started again does not know the ports.
    fn renew(&self, port: &Arc<Port>, list: &[Registration]) {
        if list.iter().any(|one| one.name == port.name) {
            return;
        }
        // With the lock, so that nobody closes it meanwhile.
        let open = lock(&self.open);
        if open.contains_key(&port.name)
            && let Err(error) = self.client.register(&port.name, port.address)
        {
            self.hub.refuse(error.to_string());
        }
    }

    /// The topics that a port of another program may publish, by its name.
    fn topics<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.from.iter().filter_map(|from| name.strip_prefix(from.as_str())).filter(|topic| check_name(topic).is_ok())
    }

    /// Opens ports for topics of patterns that are new.
    fn adopt(&self, list: &[Registration]) {
        for pattern in lock(&self.patterns).clone() {
            let others = list.iter().filter(|one| !self.is_own(&one.name) && !is_of_the_house(&one.name));
            for one in others {
                for topic in self.topics(&one.name).filter(|topic| topic_matches(&pattern.pattern, topic)) {
                    self.adopt_one(&pattern, topic);
                }
            }
        }
    }

    fn adopt_one(&self, pattern: &Pattern, topic: &str) {
        let mut held = lock(&pattern.held);
        let Some(held) = held.as_mut().filter(|held| !held.contains_key(topic)) else { return };
        if held.len() >= MOST_TOPICS {
            return self.hub.refuse(format!("{topic}: {} has {MOST_TOPICS} topics already", pattern.pattern));
        }
        match self.input(topic) {
            Ok(port) => {
                port.add_taker(pattern.taker.clone());
                held.insert(topic.to_owned(), port);
            }
            Err(error) => self.hub.refuse(error.to_string()),
        }
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
    fn find_bridges(&self, place: &str, list: &[Registration]) {
        let (mut found, mut dead) = (BTreeSet::new(), Vec::new());
        for one in list {
            let Some(node) = one.name.strip_prefix(place) else { continue };
            let Ok(node) = NodeId::try_from(node.to_owned()) else { continue };
            if self.is_own(&one.name) || is_at(&one.address(), &one.name) {
                found.insert(node);
            } else {
                dead.push(one.name.as_str());
            }
        }
        self.client.unregister(dead);
        *lock(&self.bridges) = found;
    }
}

/// Names that publish nothing.
fn is_of_the_house(name: &str) -> bool {
    name == "/root" || name.starts_with(BRIDGES) || name.starts_with("/tmp/port/")
}

/// By port here and port there: since when it was asked to send.
type Asked = HashMap<(String, String), Instant>;
