//! The state that all threads of a node share.

use super::commands::Administration;
use super::control::Command;
use super::matching::Pair;
use super::news::Mailbox;
use super::own_ports::OwnPorts;
use super::start::SETTLE;
use super::{Fetches, Questions, Readers};
use crate::carrier::{self, Carrier};
use crate::channel::flow::Sending;
use crate::channel::memory::Memory;
use crate::channel::{FlowNews, Senders};
use crate::control::directory::{Directory, Surroundings};
use crate::control::links::Settlement;
use crate::control::local::Users;
use crate::control::local::shares::{Shares, of_name};
use crate::control::{Direction, Document, NodeId, PortId, PortInfo};
use crate::error::{Error, Result};
use crate::event::Events;
use crate::port::{AnyPublisher, AnySubscriber};
use crate::settings::Settings;
use linux::poll::Waker;
use qos::Place;
use qos::priority::PrioritySettings;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Instant;

pub(crate) struct NodeState {
    pub id: NodeId,
    pub settings: Settings,
    /// The settings' own, and those built in.
    carriers: Vec<Arc<dyn Carrier>>,
    /// The users who may connect to this node's unix socket, and to whose sockets it connects.
    pub users: Users,
    pub incarnation: u64,
    pub clock: String,
    pub events: Events,
    pub readers: Readers,
    pub senders: Arc<Senders>,
    pub questions: Questions,
    pub fetches: Fetches,
    pub memory: Arc<Memory>,
    pub waker: Arc<Waker>,
    /// Events of other nodes that the control thread has not taken yet.
    pub mailbox: Mailbox,
    document: Mutex<Arc<Document>>,
    directory: Mutex<Directory>,
    #[allow(clippy::type_complexity)]
    publisher_ports: Mutex<BTreeMap<PortId, (Arc<dyn AnyPublisher>, Sending)>>,
    subscriber_ports: Mutex<BTreeMap<PortId, Arc<dyn AnySubscriber>>>,
    /// The priority that each port asks for all its channels.
    priorities: Mutex<BTreeMap<PortId, PrioritySettings>>,
    own_ports: Mutex<OwnPorts>,
    /// Ends of another system that have no port here, of a bridge's node.
    left_out: AtomicU64,
    /// Properties and readers that users set at ports for administration.
    administration: Mutex<BTreeMap<PortId, Administration>>,
    commands: mpsc::Sender<Command>,
    /// The end of the present look for nodes: those that were met have sent their documents.
    pub settlement: OnceLock<Settlement>,
    sees_all: AtomicBool,
    progress: (Mutex<u64>, Condvar),
    next_port: AtomicU32,
    next_bit: AtomicU32,
    closed: AtomicBool,
    /// Keys that no other process knows.
    secret: RandomState,
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl NodeState {
    pub(crate) fn new(
        settings: Settings,
        users: Users,
        document: Document,
        waker: Arc<Waker>,
        commands: mpsc::Sender<Command>,
    ) -> Self {
        let ended = {
            let (commands, waker) = (Mutex::new(commands.clone()), waker.clone());
            move |inbound: &crate::channel::inbound::Inbound, why: String| {
                let sender = commands.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = sender.send(Command::Ended { channel: inbound.channel.clone(), why });
                waker.wake();
            }
        };
        let events = Events::default();
        let memory = Arc::new(Memory::new(settings.memory));
        let tell = {
            let (commands, waker) = (Mutex::new(commands.clone()), waker.clone());
            move |flow: u32, news: FlowNews| {
                let sender = commands.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = sender.send(Command::Flow(flow, news));
                waker.wake();
            }
        };
        let carriers = settings.carriers.iter().cloned().chain(carrier::built_in()).collect();
        Self {
            id: document.node,
            incarnation: document.incarnation,
            clock: document.clock.clone(),
            settings,
            carriers,
            users,
            readers: Readers::new(Arc::new(ended), events.clone()),
            events,
            senders: Arc::new(Senders::new(Box::new(tell))),
            questions: Questions::default(),
            fetches: Fetches::default(),
            memory,
            waker,
            mailbox: Mailbox::default(),
            directory: Mutex::new(Directory::within(Surroundings::of(&document))),
            document: Mutex::new(Arc::new(document)),
            publisher_ports: Mutex::default(),
            priorities: Mutex::default(),
            subscriber_ports: Mutex::default(),
            own_ports: Mutex::default(),
            left_out: AtomicU64::new(0),
            administration: Mutex::default(),
            commands,
            settlement: OnceLock::new(),
            sees_all: AtomicBool::new(false),
            progress: Default::default(),
            next_port: AtomicU32::new(1),
            next_bit: AtomicU32::new(1),
            closed: AtomicBool::new(false),
            secret: RandomState::new(),
        }
    }

    pub(crate) fn command(&self, command: Command) {
        let _ = self.commands.send(command);
        self.waker.wake();
    }

    /// Waits until the nodes of this host that share this are known, in three waits of at most 0.2 s each. On a thread that may not wait,
    /// this returns at once, and the nodes are known soon.
    pub(crate) fn meet(&self, shares: Shares) {
        let all = shares == Shares::All;
        if self.sees_all.load(Ordering::Relaxed) || self.is_closed() {
            return;
        }
        let (tell, told) = mpsc::channel();
        self.command(Command::Meet(shares, tell));
        if super::may_wait() && told.recv_timeout(SETTLE) == Ok(true) {
            self.settlement.get().map(|settlement| settlement.wait(SETTLE));
            let (tell, told) = mpsc::channel();
            self.command(Command::Barrier(tell));
            let _ = told.recv_timeout(SETTLE);
        }
        self.sees_all.fetch_or(all, Ordering::Relaxed);
    }

    pub(crate) fn directory(&self) -> MutexGuard<'_, Directory> {
        locked(&self.directory)
    }

    pub(crate) fn document(&self) -> Arc<Document> {
        locked(&self.document).clone()
    }

    pub(crate) fn set_document(&self, document: Document) -> Arc<Document> {
        let document = Arc::new(document);
        *locked(&self.document) = document.clone();
        document
    }

    /// The priority that the port asks for all its channels.
    pub(crate) fn priority(&self, port: PortId) -> PrioritySettings {
        locked(&self.priorities).get(&port).cloned().unwrap_or_default()
    }
    pub(crate) fn set_priority(&self, port: PortId, priority: PrioritySettings) {
        locked(&self.priorities).insert(port, priority);
    }

    pub(crate) fn add_publisher(&self, port: PortId, publisher_port: Arc<dyn AnyPublisher>, sending: Sending) {
        locked(&self.publisher_ports).insert(port, (publisher_port, sending));
    }
    /// A publisher closed. Its name is free only after the command to the control thread: a port that then takes the name is announced
    /// after this port has gone, and no node has the name twice.
    pub(crate) fn close_publisher(&self, port: PortId) {
        self.take_administration(port);
        locked(&self.priorities).remove(&port);
        let publisher_port = locked(&self.publisher_ports).remove(&port);
        self.command(Command::PortRemoved(port));
        if let Some((publisher_port, _)) = publisher_port {
            self.release(&publisher_port.info().name);
        }
    }
    pub(crate) fn publisher_port(&self, port: PortId) -> Option<(Arc<dyn AnyPublisher>, Sending)> {
        locked(&self.publisher_ports).get(&port).cloned()
    }
    pub(crate) fn publisher_ports(&self) -> Vec<Arc<dyn AnyPublisher>> {
        locked(&self.publisher_ports).values().map(|(publisher_port, _)| publisher_port.clone()).collect()
    }
    pub(crate) fn publisher_named(&self, name: &str) -> Option<(PortId, Arc<dyn AnyPublisher>)> {
        locked(&self.publisher_ports)
            .iter()
            .find(|(_, (o, _))| o.info().name == name)
            .map(|(id, (o, _))| (*id, o.clone()))
    }
    pub(crate) fn add_subscriber(&self, port: PortId, subscriber_port: Arc<dyn AnySubscriber>) {
        locked(&self.subscriber_ports).insert(port, subscriber_port);
    }
    /// A subscriber closed: like [`Self::close_publisher`].
    pub(crate) fn close_subscriber(&self, port: PortId) {
        self.remove_subscriber(port, || self.command(Command::PortRemoved(port)));
    }
    /// Removes a subscriber. `before` runs before its name is free. The control thread calls this directly, because it announces the change
    /// itself.
    pub(crate) fn remove_subscriber(&self, port: PortId, before: impl FnOnce()) {
        self.take_administration(port);
        locked(&self.priorities).remove(&port);
        let subscriber_port = locked(&self.subscriber_ports).remove(&port);
        before();
        if let Some(subscriber_port) = subscriber_port {
            self.release(&subscriber_port.info().name);
        }
    }
    pub(crate) fn subscriber_port(&self, port: PortId) -> Option<Arc<dyn AnySubscriber>> {
        locked(&self.subscriber_ports).get(&port).cloned()
    }
    pub(crate) fn subscriber_ports(&self) -> Vec<(PortId, Arc<dyn AnySubscriber>)> {
        locked(&self.subscriber_ports).iter().map(|(id, subscriber_port)| (*id, subscriber_port.clone())).collect()
    }

    /// Properties and reader of a port, taken out while a command is carried out: a user's reader runs under no lock.
    pub(crate) fn take_administration(&self, port: PortId) -> Administration {
        locked(&self.administration).remove(&port).unwrap_or_default()
    }
    pub(crate) fn put_administration(&self, port: PortId, kept: Administration) {
        // A port that closed meanwhile has none.
        if self.publisher_port(port).is_some() || self.subscriber_port(port).is_some() {
            locked(&self.administration).insert(port, kept);
        }
    }

    /// The token that proves that later requests for a channel come from the sender of the first. A relay gets a token other than the
    /// publisher's, which it does not learn.
    pub(crate) fn token(&self, pair: Pair, place: &Place) -> u64 {
        let relay = if let Place::Relay(name) = place { name } else { "" };
        self.secret.hash_one((pair, relay))
    }

    pub(crate) fn next_port(&self) -> PortId {
        PortId(self.next_port.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn default_port_name(&self, topic: &str, direction: Direction, port: PortId) -> String {
        let role = if direction == Direction::Publisher { "pub" } else { "sub" };
        let topic = topic.trim_start_matches('/').replace('*', "any");
        format!("/{}/{topic}/{role}{}", self.settings.name, port.0)
    }

    /// Takes a port's name and its room in the document for this node, unless another port has the name, or the node's ports are as many,
    /// or as large, as its peers take: they would refuse all of them with one more.
    pub(crate) fn reserve(&self, port: &PortInfo) -> Result<()> {
        let name = &port.name;
        self.meet(Shares::default().with(of_name(name)));
        let mut own_ports = locked(&self.own_ports);
        let room = own_ports.room_for(port)?;
        let own = || format!("node {} (process {}), this node", self.settings.name, std::process::id());
        if own_ports.has(name) {
            return Err(Error::NameTaken { name: name.to_owned(), holder: own() });
        }
        let directory = self.directory();
        if let Some((key, _)) = directory.port_named(name).filter(|(key, _)| key.node != self.id) {
            let holder =
                directory.node(key.node).map(|d| format!("node {} (process {} on {})", d.name, d.pid, d.host_name));
            return Err(Error::NameTaken {
                name: name.to_owned(),
                holder: holder.unwrap_or_else(|| key.node.to_string()),
            });
        }
        own_ports.add(name, room);
        Ok(())
    }

    /// A port's name and room are free again.
    fn release(&self, name: &str) {
        locked(&self.own_ports).remove(name);
    }

    /// Ends of another system that have no port here.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
    pub(crate) fn set_left_out(&self, ends: u64) {
        self.left_out.store(ends, Ordering::Relaxed);
    }

    /// The carriers that a port may use: those asked for, or all that are built in.
    pub(crate) fn check_carriers(&self, asked: Option<&[carrier::Name]>) -> Result<Vec<carrier::Name>> {
        let Some(asked) = asked else { return Ok(carrier::Name::BUILT_IN.to_vec()) };
        let known = |c: &&carrier::Name| c.is_built_in() || self.settings.carriers.iter().any(|own| **c == *own.name());
        match asked.iter().find(|c| !known(c)) {
            Some(unknown) => {
                let (text, here) = (unknown.as_str(), carrier::Name::listed());
                Err(Error::Usage(format!("carrier {text:?}: this build has {here}")))
            }
            None if asked.is_empty() => Err(Error::Usage("a port needs at least one carrier".into())),
            None => Ok(asked.to_vec()),
        }
    }

    /// The carrier of this name, where it has streams or datagrams; shared memory and ports of one node have none.
    pub(crate) fn carrier(&self, name: &carrier::Name) -> Option<Arc<dyn Carrier>> {
        self.carriers.iter().find(|carrier| *name == *carrier.name()).cloned()
    }

    /// Wake-up bits in turn. Readers of shared memory with the same bit are woken together, which is harmless.
    pub(crate) fn next_bit(&self) -> u32 {
        self.next_bit.fetch_add(1, Ordering::Relaxed) % 32
    }

    /// Something changed for which a call in [`Self::wait_until`] may wait.
    pub(crate) fn made_progress(&self) {
        *locked(&self.progress.0) += 1;
        self.progress.1.notify_all();
    }

    pub(crate) fn wait_until(&self, until: Instant, condition: impl Fn() -> bool) -> bool {
        let mut count = locked(&self.progress.0);
        loop {
            if condition() {
                return true;
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            // Conditions may also change without the control thread: they are looked at again after each tick.
            let left = left.min(crate::carrier::TICK);
            count = self.progress.1.wait_timeout(count, left).map(|(c, _)| c).unwrap_or_else(|e| e.into_inner().0);
        }
    }

    /// Waits until the count of changes is another than `seen`, at most until `until`; gives the count.
    pub(crate) fn wait_for_changes(&self, seen: u64, until: Instant) -> u64 {
        let mut count = locked(&self.progress.0);
        while *count == seen {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            count = self.progress.1.wait_timeout(count, left).map(|(c, _)| c).unwrap_or_else(|e| e.into_inner().0);
        }
        *count
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// A poisoned lock means that a thread of ours panicked between two assignments; the maps themselves are whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
