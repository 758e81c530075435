//! The ports of a program, and the thread that looks in the name server for publishers of the topics that are wanted here.

mod round;

use super::client::Client;
use super::hub::{Hub, Order};
use super::names;
use super::port::{Port, Role, Taker};
use crate::engine::{Error, Result};
use crate::lock;
use round::Known;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use thalweg::control::NodeId;

/// Pause between two looks into the name server.
const PERIOD: Duration = Duration::from_millis(400);
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
        let port = self.opened(name, role)?;
        let mut registered = lock(&port.registered);
        if !*registered {
            if let Err(error) = self.client.register(name, port.address) {
                drop(registered);
                self.release(&port);
                return Err(error);
            }
            *registered = true;
        }
        drop(registered);
        Ok(port)
    }

    /// A port that listens, for one user more. The name server need not have it.
    fn opened(&self, name: &str, role: Role) -> Result<Arc<Port>> {
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
        open.insert(name.to_owned(), (port.clone(), 1));
        Ok(port)
    }

    fn close(&self, port: &Arc<Port>) {
        lock(&self.hub.own).remove(&port.name);
        self.hub.order(Order::Close(port.clone()));
    }

    /// Gives a port back. The last one who does closes it.
    pub(crate) fn release(&self, port: &Port) {
        match lock(&self.open).get_mut(&port.name) {
            Some((_, users)) => *users -= 1,
            None => return,
        }
        let mut registered = lock(&port.registered);
        let is_unused = |(other, users): &(Arc<Port>, usize)| *users == 0 && std::ptr::eq(Arc::as_ptr(other), port);
        if !lock(&self.open).get(&port.name).is_some_and(is_unused) {
            return; // somebody has come, or closed it already
        }
        if std::mem::take(&mut *registered) {
            self.client.unregister([port.name.as_str()]);
        }
        // Who has come meanwhile waits, and registers it anew.
        let mut open = lock(&self.open);
        let unused = open.get(&port.name).filter(|entry| is_unused(entry)).map(|(port, _)| port.clone());
        if let Some(port) = unused {
            open.remove(&port.name);
            self.close(&port);
        }
    }

    /// Opens ports for the topics of a pattern, as they come.
    pub(crate) fn follow(&self, pattern: Arc<Pattern>) {
        lock(&self.patterns).push(pattern);
        self.look_now();
    }

    pub(crate) fn unfollow(&self, pattern: &Arc<Pattern>) {
        lock(&self.patterns).retain(|other| !Arc::ptr_eq(other, pattern));
        let held = lock(&pattern.held).take();
        held.into_iter().flat_map(HashMap::into_values).for_each(|port| self.leave(pattern, &port));
    }

    fn leave(&self, pattern: &Pattern, port: &Port) {
        port.remove_taker(&pattern.taker);
        self.release(port);
    }

    /// Tells others that this bridge is there.
    pub(crate) fn tell(&self, place: &str, node: NodeId) -> Result<()> {
        self.hold(&format!("{BRIDGES}/{place}/{node}"), Role::Sign)?;
        self.round(&mut Known::default(), Some(place))
    }

    pub(crate) fn bridges(&self) -> Vec<NodeId> {
        lock(&self.bridges).iter().copied().collect()
    }

    pub(crate) fn look_now(&self) {
        lock(&self.poke.0).0 = true;
        self.poke.1.notify_all();
    }

    /// Ends the thread that looks, after the question that it waits for.
    pub(crate) fn stop(&self) {
        lock(&self.poke.0).1 = true;
        self.poke.1.notify_all();
    }

    fn stops(&self) -> bool {
        lock(&self.poke.0).1
    }

    /// Gives all names back, when nobody looks any more.
    pub(crate) fn close_all(&self) {
        let left: Vec<Arc<Port>> = lock(&self.open).drain().map(|(_, (port, _))| port).collect();
        left.iter().for_each(|port| self.close(port));
        self.client.unregister(left.iter().map(|port| port.name.as_str()));
    }

    /// Looks into the name server until it is told to stop. `place` is that of this program's bridge.
    pub(crate) fn seek(&self, place: Option<&str>) {
        let (mut known, mut told) = (Known::default(), false);
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
            match self.round(&mut known, place) {
                Ok(()) => told = false,
                Err(error) if !std::mem::replace(&mut told, true) => self.hub.refuse(error.to_string()),
                Err(_) => {}
            }
        }
    }
}
