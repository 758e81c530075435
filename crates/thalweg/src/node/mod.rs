//! Nodes: a node is one participating process, or one context in it.

#![allow(clippy::disallowed_methods)] // a user waits

mod descriptor;
mod policies;
mod publisher;
mod pulled;
mod remote;
mod service;
mod subscriber;
mod wait_set;

pub use descriptor::Descriptor;
pub use publisher::{Loan, OwnedLoan, Publisher, PublisherBuilder};
pub use pulled::{Origin, PullFrom, Pulled};
pub use remote::Remote;
pub use service::{Body, Client, Server};
pub use subscriber::{Mode, Subscriber, SubscriberBuilder};
pub use wait_set::{WaitSet, Waitable};

use crate::admin::{self, EndReport};
use crate::carrier;
use crate::channel::PortRef;
use crate::channel::flow::Sending;
use crate::clock::{ClockOffset, Exchange};
use crate::codec::{Message, PolicyFields, TypeDescription};
use crate::control::limits::{check_foreign, check_type};
use crate::control::local::shares::{Shares, of_name};
use crate::control::matching::{absolute, check_name, check_pattern};
use crate::control::{Direction, Document, Foreign, NodeId, PortId, PortInfo, PullRole};
use crate::driver::{Administration, Command, Control, End, NodeState, Reader};
use crate::error::{Error, Result};
use crate::event::EventReader;
use crate::port::monitor::Monitor;
use crate::port::{AnySubscriber, Histories, LOCAL, PublisherPort, SubscriberPort};
use crate::pull::Identity;
use crate::settings::Settings;
use qos::Qos;
use qos::priority::{Changes, PrioritySettings};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A node. Clones are handles to the same node; it closes when the last handle, publisher and subscriber is dropped.
#[derive(Clone)]
pub struct Node(Arc<Handle>);

struct Handle {
    state: Arc<NodeState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The request for a new port.
pub(crate) struct PortRequest {
    pub(crate) name: Option<String>,
    pub(crate) topic: String,
    pub(crate) qos: Qos,
    pub(crate) carriers: Option<Vec<carrier::Name>>,
    pub(crate) sending: Sending,
    pub(crate) answers: Option<PortRef>,
    pub(crate) monitor: Option<Box<dyn Monitor>>,
    pub(crate) reader: Option<Reader>,
    pub(crate) priority: PrioritySettings,
    pub(crate) pull: PullRole,
    pub(crate) session: Option<String>,
    /// The type, if it is known at run time only.
    pub(crate) message: Option<TypeDescription>,
    pub(crate) foreign: Option<Foreign>,
}

impl PortRequest {
    fn new(topic: &str) -> Self {
        Self {
            name: None,
            topic: absolute(topic).into_owned(),
            qos: Qos::default(),
            carriers: None,
            sending: Sending::default(),
            answers: None,
            monitor: None,
            reader: None,
            priority: PrioritySettings::default(),
            pull: PullRole::default(),
            session: None,
            message: None,
            foreign: None,
        }
    }

    /// The type of the port's samples.
    fn described<M: Message>(&self, direction: Direction) -> Result<TypeDescription> {
        let message = self.message.clone().unwrap_or_else(|| M::description().as_ref().clone());
        let any = TypeDescription::any();
        if message.name == any.name && (direction == Direction::Publisher || message != any) {
            return Err(Error::Usage("* is no type, but any: state one with described()".to_owned()));
        }
        check_type(&message).map_err(|wrong| Error::Usage(format!("type {}: {}", message.name, wrong.because)))?;
        let wrong = self.foreign.iter().try_for_each(check_foreign);
        wrong.map_err(|wrong| Error::Usage(format!("foreign end: {}", wrong.because)))?;
        Ok(message)
    }

    /// Joins its session, if it is to be part of one.
    fn join(&self) -> Result<()> {
        self.session.as_deref().map_or(Ok(()), |session| crate::session::join(session, &self.topic))
    }
}

const LARGEST_MESSAGE: u32 = 1 << 30;
/// Bytes of the sources of all types of a node's ports.
const MOST_SOURCES: usize = 1 << 20;
/// The node's own control thread answers within this time, unless it is gone.
const OWN_ANSWER: Duration = Duration::from_secs(10);

impl Node {
    /// Opens a node with the [default settings](Settings::default): it listens on loopback only. Takes a few milliseconds: peers of this host are known when it returns.
    ///
    /// # Errors
    /// [`Error::System`] when a listener, thread or the run directory cannot be had; [`Error::Configuration`] for an environment or configuration
    /// file that says what is not allowed.
    pub fn open(name: &str) -> Result<Self> {
        Self::with_settings(Settings { name: name.to_owned(), ..Settings::default() })
    }

    /// Opens a node with settings.
    ///
    /// # Errors
    /// As [`Node::open`]; [`Error::Configuration`] for a discovery file that cannot be used; [`Error::System`] with the remedy if memory is to be
    /// locked and may not be.
    pub fn with_settings(settings: Settings) -> Result<Self> {
        Settings::configured()?; // the run directory comes from there, too
        check_label("node", &settings.name)?;
        crate::control::local::check_realm(&settings.realm).map_err(|e| Error::Usage(e.to_string()))?;
        if settings.lock_memory {
            linux::sched::lock_memory().map_err(Error::scheduling)?;
        }
        let (state, thread) = Control::start(settings)?;
        Ok(Self(Arc::new(Handle { state, thread: Mutex::new(Some(thread)) })))
    }

    /// Begins a publisher of `topic` (`chat` is `/chat`); call `open` on the result.
    pub fn publisher<M: Message>(&self, topic: &str) -> PublisherBuilder<M> {
        PublisherBuilder { node: self.clone(), request: PortRequest::new(topic), message: PhantomData }
    }

    /// Begins a subscriber to `topic`, which may be a pattern (`*` one segment, `**` any number); call `open` or `callback` on
    /// the result.
    pub fn subscriber<M: Message>(&self, topic: &str) -> SubscriberBuilder<M> {
        SubscriberBuilder::new(self.clone(), PortRequest::new(topic))
    }

    /// The node's id: random, new at every start.
    pub fn id(&self) -> NodeId {
        self.state().id
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.state().settings.name
    }

    /// The addresses at which the node accepts handshakes.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.state().document().addresses.clone()
    }

    /// A reader of the node's events, starting with the oldest event still kept.
    pub fn events(&self) -> EventReader {
        self.state().events.reader()
    }

    /// The bytes that the node's channels hold, by peer, and those of documents.
    pub fn memory(&self) -> admin::MemoryReport {
        self.state().memory_report()
    }

    /// States how many ends of another system have no port here, for want of room or for another reason: `thalweg info` shows the number.
    /// A bridge states it anew whenever it changes.
    pub fn note_left_out(&self, ends: u64) {
        self.state().set_left_out(ends);
    }

    /// All nodes known now, this one included. A node has links to the nodes of its host that share a topic or name with it.
    /// The first call opens links to all the others and waits for them at most 0.2 s.
    pub fn nodes(&self) -> Vec<Document> {
        self.state().meet(Shares::All);
        self.state().directory().nodes().cloned().collect()
    }

    /// As [`nodes`](Self::nodes), without this node's own document.
    pub fn others(&self) -> Vec<Document> {
        self.state().meet(Shares::All);
        let own = self.id();
        self.state().directory().nodes().filter(|one| one.node != own).cloned().collect()
    }

    /// The node, incarnation and revision of each document that [`nodes`](Self::nodes) would give now, without its ports: a look whether
    /// any of them has changed.
    pub fn revisions(&self) -> Vec<(NodeId, u64, u64)> {
        self.state().meet(Shares::All);
        self.state().directory().nodes().map(|one| (one.node, one.incarnation, one.revision)).collect()
    }

    /// The port of this name, and its node. If several ports have the name, it is the one that every lookup by name finds: a
    /// port of this host before any other, then the one that started first.
    pub fn holder(&self, name: &str) -> Option<(NodeId, PortInfo)> {
        self.state().meet(Shares::default().with(of_name(name)));
        let directory = self.state().directory();
        directory.port_named(name).map(|(key, port)| (key.node, port.clone()))
    }

    /// Asks `node` to carry out an administrative request.
    ///
    /// # Errors
    /// [`Error::Peer`] if it is not known, does not answer in time, or refuses.
    pub fn ask(&self, node: NodeId, request: &admin::Request, timeout: Duration) -> Result<admin::Reply> {
        let (tell, told) = mpsc::channel();
        self.state().command(Command::Call { to: node, request: admin::pack(request), answer: tell });
        let answer = told.recv_timeout(timeout).map_err(|_| {
            Error::Peer(format!(
                "node {node} did not answer within {} ms: it is gone, stopped or unreachable",
                timeout.as_millis()
            ))
        })?;
        admin::unpack(&answer)
    }

    /// Compares this host's clock with that of another node's host by a few requests and answers, each at most
    /// `timeout`. Links between nodes have the lowest priority, so on a busy network the answer is vague, never
    /// wrong.
    ///
    /// # Errors
    /// [`Error::Peer`] when the node does not answer, or a clock was set meanwhile.
    pub fn compare_clock(&self, node: NodeId, timeout: Duration) -> Result<ClockOffset> {
        const EXCHANGES: usize = 8;
        let mut exchanges = Vec::with_capacity(EXCHANGES);
        for _ in 0..EXCHANGES {
            let asked_ns = linux::clock::monotonic_ns();
            let admin::Reply::Clock(peer_ns) = self.ask(node, &admin::Request::Clock, timeout)? else {
                return Err(Error::Peer(format!("node {node} does not tell its clock: it is of another version")));
            };
            exchanges.push(Exchange { asked_ns, peer_ns, answered_ns: linux::clock::monotonic_ns() });
        }
        ClockOffset::of(&exchanges).ok_or_else(|| Error::Peer(format!("the clock of node {node} jumps")))
    }

    /// Changes the priority of this node's end of the channel between its port `port` and the port `other`: at once and without
    /// reconnecting if they are connected, otherwise as soon as they are. The setting survives when the channel is opened
    /// again. If `other` is `port` itself, the scheduling of all threads of this process changes.
    ///
    /// # Errors
    /// [`Error::Peer`] with the reason: no such port, or the kernel refuses. Nothing is changed then.
    pub fn set_priority(&self, port: &str, other: &str, changes: &Changes) -> Result<EndReport> {
        let (port, other, changes) = (port.to_owned(), other.to_owned(), changes.clone());
        let report = self.own_settings(&admin::Request::Set { port, other, changes })?.pop();
        report.ok_or_else(|| Error::Peer("an empty answer".into()))
    }

    /// The priority of this node's ends of `port`'s channels as the kernel has it now: of the channel with the port `other`, or
    /// with `None` of all.
    ///
    /// # Errors
    /// [`Error::Peer`] when there is no such port or channel.
    pub fn priority_report(&self, port: &str, other: Option<&str>) -> Result<Vec<EndReport>> {
        self.own_settings(&admin::Request::Get { port: port.to_owned(), other: other.map(str::to_owned) })
    }

    fn own_settings(&self, request: &admin::Request) -> Result<Vec<EndReport>> {
        match self.ask(self.id(), request, OWN_ANSWER)? {
            admin::Reply::Settings(reports) => Ok(reports),
            other => Err(Error::Peer(format!("an unexpected answer: {other:?}"))),
        }
    }

    /// Asserts that this program is alive, and with it all publishers of this node whose liveliness is by node
    /// ([`qos::LivelinessKind::ByNode`]).
    pub fn assert_liveliness(&self) {
        let now = linux::clock::monotonic_ns();
        for publisher_port in self.state().publisher_ports() {
            if publisher_port.info().qos.liveliness.kind == qos::LivelinessKind::ByNode {
                publisher_port.judge().into_iter().for_each(|judge| judge.assert(now));
            }
        }
        self.state().command(Command::Alive(None));
    }

    /// Waits until `condition` holds, checking it whenever a channel, port or node appeared or left. Returns `false` if
    /// `timeout` passed first.
    pub fn wait_until(&self, timeout: Duration, condition: impl Fn() -> bool) -> bool {
        self.state().wait_until(Instant::now() + timeout, condition)
    }

    /// Waits until a node, port or channel has appeared, changed or left since the call that gave `seen` (0 at first), or until `timeout` has
    /// passed. The result is the `seen` of the next call: the same number if nothing changed.
    pub fn wait_for_changes(&self, seen: u64, timeout: Duration) -> u64 {
        self.state().wait_for_changes(seen, Instant::now() + timeout)
    }

    pub(crate) fn state(&self) -> &Arc<NodeState> {
        &self.0.state
    }

    pub(crate) fn open_publisher<M: Message>(&self, request: PortRequest) -> Result<Arc<PublisherPort<M>>> {
        check_name(&request.topic).map_err(|e| Error::Usage(format!("topic {e}")))?;
        request.join()?;
        let (port, info) = self.describe::<M>(&request, Direction::Publisher)?;
        let me = PortRef { node: self.id(), port };
        let incarnation = self.state().incarnation;
        let histories = Histories::of_publisher(&info, self.state().memory.histories()).map(Arc::new);
        if let Some(histories) = &histories {
            histories.admit(Identity { node: me.node, port, incarnation }, &info, &self.state().clock);
        }
        let publisher_port = Arc::new(PublisherPort::<M>::new(info.clone(), me, incarnation, histories));
        LOCAL.publishers().insert(me, publisher_port.clone());
        self.state().set_priority(port, request.priority);
        self.state().add_publisher(port, publisher_port.clone(), request.sending);
        self.keep(port, &End::Out(publisher_port.clone()), request.monitor, request.reader);
        self.state().command(Command::PortAdded(port, info));
        Ok(publisher_port)
    }

    pub(crate) fn open_subscriber<M: Message>(
        &self,
        request: PortRequest,
        make: impl FnOnce(PortInfo, crate::event::Events) -> SubscriberPort<M>,
    ) -> Result<(PortRef, Arc<SubscriberPort<M>>)> {
        check_pattern(&request.topic).map_err(|e| Error::Usage(format!("topic {e}")))?;
        request.join()?;
        let (port, info) = self.describe::<M>(&request, Direction::Subscriber)?;
        let me = PortRef { node: self.id(), port };
        let subscriber_port = Arc::new(make(info.clone(), self.state().events.clone()));
        LOCAL.subscribers().insert(me, subscriber_port.clone());
        self.state().set_priority(port, request.priority);
        self.state().add_subscriber(port, subscriber_port.clone());
        self.keep(port, &End::In(subscriber_port.clone()), request.monitor, request.reader);
        self.state().command(Command::PortAdded(port, info));
        Ok((me, subscriber_port))
    }

    fn keep(&self, port: PortId, end: &End, monitor: Option<Box<dyn Monitor>>, reader: Option<Reader>) {
        if let Some(monitor) = monitor {
            self.state().attach_monitor(end, monitor);
        }
        self.state().put_administration(port, Administration { reader, ..Administration::default() });
    }

    fn describe<M: Message>(&self, request: &PortRequest, direction: Direction) -> Result<(PortId, PortInfo)> {
        let state = self.state();
        if !(1..=LARGEST_MESSAGE).contains(&request.qos.max_message) {
            return Err(Error::Usage(format!(
                "max_message {} is not within 1 … {LARGEST_MESSAGE} bytes",
                request.qos.max_message
            )));
        }
        request.qos.check().map_err(|wrong| Error::Usage(format!("QoS: {wrong}")))?;
        let mut message = request.described::<M>(direction)?;
        self.bound_sources(&mut message);
        // A subscriber that takes any type looks up the type in each publisher's description.
        if direction == Direction::Publisher || message.schema.is_some() {
            PolicyFields::find(message.schema.as_deref(), &request.qos.key, request.qos.filter.as_ref())
                .map_err(|wrong| Error::Usage(format!("QoS: key or filter: {wrong}")))?;
        }
        request.priority.check().map_err(|wrong| Error::Usage(wrong.to_string()))?;
        let carriers = state.check_carriers(request.carriers.as_deref())?;
        if request.answers.is_some_and(|answers| answers.node != self.id()) {
            return Err(Error::Usage(
                "the port of the answers belongs to another node: open it on this one".to_owned(),
            ));
        }
        let port = state.next_port();
        let name = match &request.name {
            Some(name) => {
                let name = absolute(name).into_owned();
                check_name(&name).map_err(|e| Error::Usage(format!("port name {e}")))?;
                name
            }
            None => state.default_port_name(&request.topic, direction, port),
        };
        let info = PortInfo {
            name,
            direction,
            topic: request.topic.clone(),
            message,
            qos: request.qos.clone(),
            carriers,
            answers: request.answers.map(|answers| answers.port),
            pull: request.pull,
            foreign: request.foreign.clone(),
        };
        state.reserve(&info)?;
        Ok((port, info))
    }

    /// Leaves out the source of a type where those of all ports become so long that peers would refuse the node's document.
    fn bound_sources(&self, message: &mut TypeDescription) {
        let Some(ros) = &mut message.ros else { return };
        let length = |port: &PortInfo| port.message.ros.as_ref().map_or(0, |ros| ros.source.len());
        let is_own = |port: &PortRef| port.node == self.id();
        let publishers: usize =
            LOCAL.publishers().iter().filter(|(at, _)| is_own(at)).map(|(_, port)| length(port.info())).sum();
        let subscribers: usize =
            LOCAL.subscribers().iter().filter(|(at, _)| is_own(at)).map(|(_, port)| length(port.info())).sum();
        let told = publishers + subscribers;
        if told.saturating_add(ros.source.len()) > MOST_SOURCES {
            Arc::make_mut(ros).source.clear();
        }
    }

    pub(crate) fn close_publisher(&self, port: PortId) {
        LOCAL.publishers().remove(&PortRef { node: self.id(), port });
        self.state().close_publisher(port);
    }

    pub(crate) fn close_subscriber(&self, port: PortId, subscriber_port: &dyn AnySubscriber) {
        subscriber_port.close();
        LOCAL.subscribers().remove(&PortRef { node: self.id(), port });
        self.state().close_subscriber(port);
    }
}

impl admin::set::Nodes for Node {
    fn holder_of(&self, port: &str) -> Option<(NodeId, Direction)> {
        self.holder(port).map(|(node, port)| (node, port.direction))
    }

    fn answer(&self, node: NodeId, request: &admin::Request) -> Result<admin::Reply> {
        self.ask(node, request, admin::set::PATIENCE)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.state.close();
        let thread = self.thread.lock().unwrap_or_else(|e| e.into_inner()).take();
        // The last handle may be dropped by a callback, on one of the node's own threads.
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
        self.state.readers.close();
        self.state.senders.close();
        self.state.questions.close();
        self.state.fetches.close();
    }
}

fn check_label(what: &str, label: &str) -> Result<()> {
    let fits =
        !label.is_empty() && label.len() <= 64 && label.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if fits {
        return Ok(());
    }
    Err(Error::Usage(format!("{what} name {label:?}: 1 to 64 ASCII letters, digits and - _ . are allowed")))
}
