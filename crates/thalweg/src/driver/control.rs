//! The control thread of a node: one loop over listeners, handshakes, signs of life, commands and timers.

use super::dial::Dial;
use super::incoming::{Incoming, MOST_INCOMING, Progress as Served};
use super::state::NodeState;
use super::wanted::{Candidate, Pair, Progress, Route, Wanted, WantedChannels, candidates};
use crate::admin;
use crate::carrier::Carrier;
use crate::channel::flow::Flow;
use crate::control::directory::{Applied, Delta};
use crate::control::matching::{Match, compare};
use crate::control::{self, Change, Direction, Discovery, Document, NodeId, PortId, PortInfo, Sink};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::handshake::Parameters;
use crate::node::Settings;
use crate::port::{AnyOutlet, Attach, Channel, LOCAL, PortRef, Way};
use linux::poll::{Poller, Readiness, Ready, Waker};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What other threads ask of the control thread.
pub(crate) enum Command {
    PortAdded(PortId, PortInfo),
    PortRemoved(PortId),
    /// A back end's event, with its number.
    Discovered(u8, control::Event),
    /// A reader is done with a channel.
    Ended {
        channel: Arc<Channel>,
        why: String,
    },
    /// Everything before it was carried out.
    Barrier(mpsc::Sender<()>),
    /// Ask another node.
    Call {
        to: NodeId,
        request: Vec<u8>,
        answer: mpsc::Sender<Vec<u8>>,
    },
}

/// A descriptor the loop watches.
pub(crate) enum Entry {
    Tcp(TcpListener),
    Unix(UnixListener),
    Incoming(Incoming),
    Dial(Box<Dial>),
    /// The publisher's end of a channel: the stream's end is the subscriber's.
    Served(Arc<TcpStream>, Option<Arc<Channel>>),
    ServedUnix(Arc<OwnedFd>, Option<Arc<Channel>>),
    /// The subscriber's end of a channel that does not read its stream: the stream's end is the publisher's.
    Held(OwnedFd, Arc<Channel>),
}

impl Entry {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Entry::Tcp(fd) => fd.as_fd(),
            Entry::Unix(fd) => fd.as_fd(),
            Entry::Incoming(incoming) => incoming.stream.as_fd(),
            Entry::Dial(dial) => dial.stream.as_fd(),
            Entry::Served(stream, _) => stream.as_fd(),
            Entry::ServedUnix(fd, _) => fd.as_fd(),
            Entry::Held(fd, _) => fd.as_fd(),
        }
    }
}

/// A channel that waits until the publishing thread is not within `publish`.
pub(crate) struct PendingAttach {
    pub outlet: Arc<dyn AnyOutlet>,
    pub channel: Arc<Channel>,
    pub way: Way,
    pub token: Option<usize>,
    /// Sent when the port has the channel and before its next sample: whoever reads it misses none from then on.
    pub answer: Option<Reply>,
}

/// An answer to a subscriber that is sent once.
pub(crate) type Reply = Box<dyn FnOnce() + Send>;

/// The state of the control thread.
pub(crate) struct Control {
    pub state: Arc<NodeState>,
    pub(super) poller: Poller,
    commands: mpsc::Receiver<Command>,
    entries: Vec<Option<Entry>>,
    pub(super) discoveries: Vec<Box<dyn Discovery>>,
    pub(super) groups: HashMap<(PortId, IpAddr), (Arc<Flow>, Parameters)>,
    pub(super) wanted: WantedChannels,
    carriers: Vec<Arc<dyn Carrier>>,
    attaching: Vec<PendingAttach>,
    detaching: Vec<(Arc<dyn AnyOutlet>, u64)>,
    calls: HashMap<u64, mpsc::Sender<Vec<u8>>>,
    next_call: u64,
    next_bit: u32,
    /// Pairs of port names that an administrator connected (with a carrier) …
    connected: BTreeMap<(String, String), Option<String>>,
    /// … and keeps apart.
    apart: Vec<(String, String)>,
    counts: BTreeMap<&'static str, u64>,
    _endpoint: Option<control::local::LocalEndpoint>,
}

const WAKER: u64 = u64::MAX;
/// Pause before another try at a port whose publisher was within `publish`.
const BUSY_PAUSE: Duration = Duration::from_millis(1);
/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Peers of this host that are there already are waited for at most this long when a node opens.
const SETTLE: Duration = Duration::from_millis(200);

impl Control {
    /// Opens a node: listeners, back ends, thread.
    pub fn start(settings: Settings) -> Result<(Arc<NodeState>, JoinHandle<()>)> {
        let waker = Arc::new(Waker::new().map_err(|e| Error::system("cannot make an eventfd", e))?);
        let poller = Poller::new().map_err(|e| Error::system("cannot make an epoll set", e))?;
        let listeners = listen(&settings)?;
        let id = NodeId(random());
        let (unix, endpoint) = control::local::LocalEndpoint::bind(&settings.realm, id)
            .map_err(|e| Error::system("cannot make the node's socket in the run directory", e))?;
        let document = describe(&settings, id, &listeners, &endpoint)?;
        let (sender, commands) = mpsc::channel();
        let state = Arc::new(NodeState::new(settings, document, waker.clone(), sender));
        poller.add(&*waker, WAKER, Readiness::IN).map_err(|e| Error::system("cannot watch an eventfd", e))?;
        let mut control = Self {
            state: state.clone(),
            poller,
            commands,
            entries: Vec::new(),
            discoveries: Vec::new(),
            groups: HashMap::new(),
            wanted: BTreeMap::new(),
            carriers: state.settings.carriers.clone(),
            attaching: Vec::new(),
            detaching: Vec::new(),
            calls: HashMap::new(),
            next_call: 1,
            next_bit: 0,
            connected: BTreeMap::new(),
            apart: Vec::new(),
            counts: BTreeMap::new(),
            _endpoint: None,
        };
        control.carriers.push(Arc::new(crate::carrier::udp::Udp));
        control.carriers.push(Arc::new(crate::carrier::mcast::Mcast));
        for listener in listeners {
            control.watch(Entry::Tcp(listener), Readiness::IN);
        }
        control.watch(Entry::Unix(unix), Readiness::IN);
        control.directory_event(OWN, control::Event::Document(Box::new(state.document().as_ref().clone())));
        // The control thread runs while the back ends settle: others' first links arrive at this node's listeners.
        let sources = control.link_sources(&endpoint)?;
        control._endpoint = Some(endpoint);
        let links = control::links::Links::start(state.document(), sources, control.sink(LINKS))
            .map_err(|e| Error::system("cannot start the control links", e))?;
        let settled = links.settlement();
        control.discoveries.push(Box::new(links));
        control.start_zenoh();
        let thread = linux::thread::spawn(linux::thread::Settings::named("control"), move || control.run())
            .map_err(|e| Error::system("cannot start a thread", e))?;
        settled.wait(SETTLE);
        // What the peers said is in the mailbox: opened means that it is known, too (names can be checked).
        let (tell, told) = mpsc::channel();
        state.command(Command::Barrier(tell));
        let _ = told.recv_timeout(SETTLE);
        Ok((state, thread))
    }

    fn link_sources(&self, endpoint: &control::local::LocalEndpoint) -> Result<Vec<control::links::Source>> {
        use crate::node::DiscoverySource;
        match &self.state.settings.discovery {
            DiscoverySource::Automatic => Ok(vec![endpoint.others()]),
            DiscoverySource::Static(file) => {
                let nodes = control::static_file::read(file).map_err(|e| Error::Configuration(e.to_string()))?;
                Ok(vec![endpoint.others(), control::static_file::source(&nodes)])
            }
        }
    }

    #[cfg(feature = "zenoh")]
    fn start_zenoh(&mut self) {
        use crate::node::DiscoverySource;
        let settings = &self.state.settings;
        let beyond: Vec<IpAddr> = settings.listen.iter().map(|a| a.ip()).filter(|ip| !ip.is_loopback()).collect();
        if settings.discovery != DiscoverySource::Automatic || (beyond.is_empty() && settings.peers.is_empty()) {
            return;
        }
        let zenoh = control::zenoh::ZenohSettings {
            listen: beyond,
            peers: settings.peers.clone(),
            scouting: true,
            ..control::zenoh::ZenohSettings::default()
        };
        match control::zenoh::Zenoh::start(self.state.document(), &zenoh, self.sink(ZENOH)) {
            Ok(opened) => self.discoveries.push(Box::new(opened)),
            Err(problem) => self.warn(format!("no discovery across hosts: {problem}")),
        }
    }

    #[cfg(not(feature = "zenoh"))]
    fn start_zenoh(&mut self) {
        if !self.state.settings.listen.is_empty() || !self.state.settings.peers.is_empty() {
            self.warn("this build has no discovery across hosts: use --discovery static:FILE, or build with the feature zenoh".into());
        }
    }

    fn sink(&self, number: u8) -> Sink {
        let state = Arc::downgrade(&self.state);
        Sink::new(move |event| {
            if let Some(state) = state.upgrade() {
                state.command(Command::Discovered(number, event));
            }
        })
    }

    fn run(mut self) {
        let mut ready: Vec<Ready> = Vec::with_capacity(64);
        while !self.state.is_closed() {
            let timeout = self.next_timer().map(|at| at.saturating_duration_since(Instant::now()));
            if self.poller.wait(&mut ready, timeout).is_err() {
                return;
            }
            for event in ready.iter().filter(|e| e.token != WAKER) {
                self.entry_ready(event.token as usize, event.flags);
            }
            self.state.waker.clear();
            while let Ok(command) = self.commands.try_recv() {
                self.command(command);
            }
            self.timers(Instant::now());
        }
        for wanted in self.wanted.values() {
            if let Progress::Open(channel) = &wanted.progress {
                channel.cut();
            }
        }
        for inlet in self.state.inlets() {
            inlet.1.close();
        }
        for outlet in self.state.outlets() {
            outlet.close();
        }
    }

    // --- descriptors -------------------------------------------------------------------------------------------

    pub(super) fn watch(&mut self, entry: Entry, readiness: Readiness) -> Option<usize> {
        let index = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        self.poller.add(entry.descriptor(), index as u64, readiness).ok()?;
        if index == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[index] = Some(entry);
        Some(index)
    }

    /// Watches for the end of a channel at the publisher's side.
    pub(super) fn watch_served(&mut self, entry: Entry, channel: Arc<Channel>) -> Option<usize> {
        let entry = match entry {
            Entry::Served(stream, _) => Entry::Served(stream, Some(channel)),
            Entry::ServedUnix(stream, _) => Entry::ServedUnix(stream, Some(channel)),
            other => other,
        };
        self.watch(entry, Readiness::IN | Readiness::RDHUP)
    }

    pub(super) fn unwatch(&mut self, index: usize) -> Option<Entry> {
        let entry = self.entries.get_mut(index)?.take()?;
        let _ = self.poller.remove(entry.descriptor());
        Some(entry)
    }

    fn entry_ready(&mut self, index: usize, flags: Readiness) {
        match self.entries.get_mut(index) {
            Some(Some(Entry::Tcp(listener))) => {
                let accepted = listener.accept().map(|(stream, _)| OwnedFd::from(stream));
                self.accepted_stream(accepted);
            }
            Some(Some(Entry::Unix(listener))) => {
                let accepted = listener.accept().map(|(stream, _)| OwnedFd::from(stream));
                self.accepted_stream(accepted);
            }
            Some(Some(Entry::Incoming(_))) => self.incoming_ready(index),
            Some(Some(Entry::Dial(_))) => self.dial_ready(index, flags),
            Some(Some(Entry::Served(..) | Entry::ServedUnix(..))) => self.served_ended(index),
            Some(Some(Entry::Held(..))) => self.held_ended(index),
            _ => {}
        }
    }

    fn accepted_stream(&mut self, accepted: std::io::Result<OwnedFd>) {
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(_) => {
                // Out of descriptors, most likely. The listener stays ready, so the loop pauses instead of spinning.
                std::thread::sleep(ACCEPT_PAUSE);
                return self.count("connections that could not be accepted: raise the limit of open files (ulimit -n)");
            }
        };
        let waiting = self.entries.iter().flatten().filter(|e| matches!(e, Entry::Incoming(_))).count();
        if waiting >= MOST_INCOMING {
            return self.count("incoming streams beyond the limit");
        }
        self.watch(Entry::Incoming(Incoming::new(stream, Instant::now())), Readiness::IN);
    }

    fn incoming_ready(&mut self, index: usize) {
        // Taken out of the loop while it is looked at: it may get another owner.
        let Some(Entry::Incoming(incoming)) = self.unwatch(index) else { return };
        let mut incoming = Some(incoming);
        if let (Served::Waiting, Some(incoming)) = (self.incoming(&mut incoming), incoming.take()) {
            self.watch(Entry::Incoming(incoming), Readiness::IN);
        }
    }

    fn served_ended(&mut self, index: usize) {
        let channel = match self.unwatch(index) {
            Some(Entry::Served(_, Some(channel)) | Entry::ServedUnix(_, Some(channel))) => channel,
            _ => return,
        };
        let Some((outlet, _)) = self.state.outlet(channel.publisher.port) else { return };
        if !channel.is_closed() {
            self.unmatched(&channel, "the subscriber left");
        }
        self.detach(outlet, channel.id);
    }

    fn held_ended(&mut self, index: usize) {
        let Some(Entry::Held(_, channel)) = self.unwatch(index) else { return };
        self.channel_ended(&channel, "the publisher left".to_owned());
    }

    // --- publisher's side --------------------------------------------------------------------------------------

    pub(super) fn attach_now(&mut self, pending: PendingAttach) {
        let PendingAttach { outlet, channel, way, token, mut answer } = pending;
        match outlet.attach(channel.clone(), way, &mut answer) {
            Ok(_) => self.matched(&channel),
            Err((way, Attach::Busy)) => self.attaching.push(PendingAttach { outlet, channel, way, token, answer }),
            Err((way, _)) => {
                end_way(way);
                if let Some(token) = token {
                    self.unwatch(token);
                }
            }
        }
    }

    /// An older channel of the same two ports gives way to a new one.
    pub(super) fn replace(&mut self, (publisher, subscriber): Pair) {
        let same = |channel: &Channel| channel.publisher == publisher && channel.subscriber == subscriber;
        let old = self.entries.iter().position(|e| match e {
            Some(Entry::Served(_, Some(channel)) | Entry::ServedUnix(_, Some(channel))) => same(channel),
            _ => false,
        });
        if let Some(index) = old {
            self.served_ended(index);
        }
    }

    fn detach(&mut self, outlet: Arc<dyn AnyOutlet>, id: u64) {
        if !outlet.detach(id) {
            self.detaching.push((outlet, id));
        }
        self.state.made_progress();
    }

    pub(super) fn carrier(&self, name: &str) -> Option<Arc<dyn Carrier>> {
        self.carriers.iter().find(|c| c.name() == name).cloned()
    }

    /// Wake-up bits go round; readers that share one are woken together, which is harmless.
    pub(super) fn next_bit(&mut self) -> u32 {
        self.next_bit = (self.next_bit + 1) % 32;
        self.next_bit
    }

    pub(super) fn random_flow(&self) -> u32 {
        random() as u32
    }

    // --- subscriber's side -------------------------------------------------------------------------------------

    fn own_port_added(&mut self, port: PortId, info: PortInfo) {
        let me = PortRef { node: self.state.id, port };
        if info.direction == Direction::Subscriber {
            let others: Vec<_> = {
                let directory = self.state.directory();
                directory
                    .nodes()
                    .flat_map(|d| d.ports.iter().map(|(id, p)| (PortRef { node: d.node, port: *id }, p.clone())))
                    .collect()
            };
            for (publisher, other) in others {
                self.consider(publisher, &other, me, &info);
            }
        }
        let mut change = Change::default();
        change.added.insert(port, info);
        self.announce(change);
    }

    fn own_port_removed(&mut self, port: PortId) {
        let me = PortRef { node: self.state.id, port };
        let ended: Vec<Pair> = self.wanted.keys().filter(|(p, s)| *s == me || *p == me).copied().collect();
        for pair in ended {
            self.cut_wanted(pair, "the port closed");
        }
        self.groups.retain(|(outlet, _), _| *outlet != port);
        self.announce(Change { removed: vec![port], ..Change::default() });
    }

    fn announce(&mut self, mut change: Change) {
        let mut document = self.state.document().as_ref().clone();
        (change.base, change.revision) = (document.revision, document.revision + 1);
        document.apply(&change);
        let document = self.state.set_document(document);
        for discovery in &mut self.discoveries {
            discovery.announce(&document, &change);
        }
        self.directory_event(OWN, control::Event::Change(self.state.id, change));
    }

    /// Whether two ports belong together; wants their channel if so.
    fn consider(&mut self, publisher: PortRef, offered: &PortInfo, subscriber: PortRef, asked: &PortInfo) {
        if offered.direction != Direction::Publisher || self.wanted.contains_key(&(publisher, subscriber)) {
            return;
        }
        let names = (offered.name.clone(), asked.name.clone());
        if self.apart.contains(&names) {
            return;
        }
        let by_name = self.connected.get(&names).cloned();
        let mut seen = offered.clone();
        let mut wants = asked.clone();
        if by_name.is_some() {
            seen.topic.clone_from(&asked.topic);
            wants.carriers.clear();
        }
        match compare(&seen, &wants) {
            Match::Matched => self.want(publisher, offered, subscriber, asked, by_name),
            Match::NotSameTopic => {}
            Match::Mismatch { policy, offered: o, requested, remedy } => {
                let (publisher, subscriber) = names;
                let policy = policy.to_owned();
                self.state.events.push(Event::Incompatible {
                    publisher,
                    subscriber,
                    policy,
                    offered: o,
                    requested,
                    remedy,
                });
            }
        }
    }

    fn want(
        &mut self,
        publisher: PortRef,
        offered: &PortInfo,
        subscriber: PortRef,
        asked: &PortInfo,
        by_name: Option<Option<String>>,
    ) {
        let here = self.state.document();
        let there = self.state.directory().node(publisher.node).cloned();
        let Some(there) = there else { return };
        let only = by_name.as_ref().and_then(|carrier| carrier.as_deref());
        let mut ways = candidates(&here, &there, offered, asked, only);
        if let Some(extra) = self.added_carriers(&there, offered, asked, only) {
            ways.splice(0..0, extra);
        }
        if !self.state.settings.around.is_nothing() {
            ways.retain(|way| !matches!(way.carrier.as_str(), "local" | "shm"));
        }
        if ways.is_empty() {
            let text = format!("{} cannot reach {}: no carrier and address in common", asked.name, offered.name);
            return self.warn(text);
        }
        let pair = (publisher, subscriber);
        self.wanted.insert(pair, Wanted::new(offered.clone(), asked.clone(), ways, by_name.is_some(), Instant::now()));
        self.try_wanted(pair);
    }

    /// Carriers that were added to this node and that both ports name.
    fn added_carriers(
        &self,
        there: &Document,
        offered: &PortInfo,
        asked: &PortInfo,
        only: Option<&str>,
    ) -> Option<Vec<Candidate>> {
        let builtin = |name: &str| super::state::CARRIERS.contains(&name);
        let names = self.carriers.iter().map(|c| c.name().to_owned()).filter(|n| !builtin(n));
        let named = |n: &String| only.map_or(offered.carriers.contains(n) && asked.carriers.contains(n), |o| o == n);
        let address = there.addresses.first()?;
        Some(names.filter(named).map(|carrier| Candidate { carrier, route: Route::Tcp(*address) }).collect())
    }

    pub(super) fn try_wanted(&mut self, pair: Pair) {
        let Some(wanted) = self.wanted.get_mut(&pair) else { return };
        let Some(candidate) = wanted.candidate().cloned() else { return };
        if candidate.route == Route::Process {
            return self.try_local(pair);
        }
        // A ring's reader needs a thread of its own; when they are used up, sockets share one.
        let others = wanted.candidates.iter().any(|c| c.carrier != "shm");
        if candidate.carrier == "shm" && others && !self.state.readers.has_own_thread_left() {
            return wanted.failed(Instant::now());
        }
        wanted.progress = Progress::Dialing;
        match Dial::start(&self.state, pair, wanted, &candidate, &self.carriers) {
            Ok(dial) => {
                self.watch(Entry::Dial(Box::new(dial)), Readiness::OUT);
            }
            Err(why) => self.try_failed(pair, &why),
        }
    }

    pub(super) fn try_failed(&mut self, pair: Pair, why: &str) {
        let Some(wanted) = self.wanted.get_mut(&pair) else { return };
        let carrier = wanted.candidate().map(|c| c.carrier.clone()).unwrap_or_default();
        let here = matches!(wanted.candidate().map(|c| &c.route), Some(Route::Unix(_) | Route::Process))
            || matches!(wanted.candidate().map(|c| &c.route), Some(Route::Tcp(a)) if a.ip().is_loopback());
        // On this host a node that has left the directory and does not answer is dead, not cut off.
        if here && self.state.directory().node(pair.0.node).is_none() {
            return self.drop_wanted(pair, "its process is gone");
        }
        let (publisher, subscriber) = (wanted.publisher.name.clone(), wanted.subscriber.name.clone());
        wanted.failed(Instant::now());
        self.state.events.push(Event::CarrierFailed { publisher, subscriber, carrier, reason: why.to_owned() });
    }

    fn try_local(&mut self, (publisher, subscriber): Pair) {
        let outlet = LOCAL.publishers().get(&publisher).cloned();
        let inlet = LOCAL.subscribers().get(&subscriber).cloned();
        let (Some(outlet), Some(inlet)) = (outlet, inlet) else {
            return self.try_failed((publisher, subscriber), "not in this process");
        };
        let Some(incarnation) = self.state.directory().node(publisher.node).map(|d| d.incarnation) else { return };
        let channel = Arc::new(self.channel((publisher, subscriber), "local", incarnation, true));
        match outlet.attach(channel.clone(), Way::Local(inlet.clone().typed()), &mut None) {
            Ok(_) => {
                if inlet.needs_server()
                    && inlet.channels().lock().map_or(true, |c| c.iter().all(|c| c.carrier != "local"))
                {
                    let server = inlet.clone();
                    self.state
                        .readers
                        .run("local", move |stop| server.serve(&|| stop.load(std::sync::atomic::Ordering::Relaxed)));
                }
                self.opened((publisher, subscriber), channel);
            }
            Err((_, Attach::Busy)) => {
                if let Some(wanted) = self.wanted.get_mut(&(publisher, subscriber)) {
                    wanted.progress = Progress::Idle(Instant::now() + BUSY_PAUSE);
                }
            }
            Err((_, why)) => self.try_failed((publisher, subscriber), &format!("{why:?}")),
        }
    }

    pub(super) fn channel(
        &self,
        (publisher, subscriber): Pair,
        carrier: &str,
        incarnation: u64,
        same_clock: bool,
    ) -> Channel {
        let wanted = self.wanted.get(&(publisher, subscriber));
        let name = |f: fn(&Wanted) -> &String| wanted.map(|w| f(w).clone()).unwrap_or_default();
        Channel {
            id: self.state.next_channel(),
            publisher,
            subscriber,
            publisher_name: name(|w| &w.publisher.name),
            subscriber_name: name(|w| &w.subscriber.name),
            topic: name(|w| &w.publisher.topic),
            carrier: carrier.to_owned(),
            incarnation,
            max_message: wanted.map_or(0, |w| w.publisher.qos.max_message.min(w.subscriber.qos.max_message)),
            same_clock,
            counters: Default::default(),
            closed: Default::default(),
            interrupt: Default::default(),
            cut: Default::default(),
        }
    }

    pub(super) fn opened(&mut self, pair: Pair, channel: Arc<Channel>) {
        if let Some(inlet) = self.state.inlet(pair.1.port)
            && let Ok(mut channels) = inlet.channels().lock()
        {
            channels.push(channel.clone());
        }
        if let Some(wanted) = self.wanted.get_mut(&pair) {
            wanted.opened(channel.clone());
        }
        self.matched(&channel);
    }

    /// A channel of a subscriber of this node ended by itself: it is tried again as long as its publisher may be there.
    fn channel_ended(&mut self, channel: &Arc<Channel>, why: String) {
        channel.close();
        let pair = (channel.publisher, channel.subscriber);
        self.forget_channel(channel);
        let Some(wanted) = self.wanted.get_mut(&pair) else { return };
        if !matches!(&wanted.progress, Progress::Open(open) if Arc::ptr_eq(open, channel)) {
            return; // an older one; the present one goes on
        }
        let last = channel.counters.last_seq.load(std::sync::atomic::Ordering::Relaxed);
        if last > 0 {
            wanted.delivered = Some((channel.incarnation, last));
        }
        wanted.ended(Instant::now());
        self.unmatched(channel, &why);
        self.drop_if_gone(pair);
    }

    fn forget_channel(&mut self, channel: &Arc<Channel>) {
        if let Some(inlet) = self.state.inlet(channel.subscriber.port)
            && let Ok(mut channels) = inlet.channels().lock()
        {
            channels.retain(|c| !Arc::ptr_eq(c, channel));
        }
    }

    /// The publisher's node is known and says that the port is no more.
    fn drop_if_gone(&mut self, pair: Pair) {
        let gone = self.state.directory().node(pair.0.node).is_some_and(|d| !d.ports.contains_key(&pair.0.port));
        if gone {
            self.drop_wanted(pair, "the publisher closed");
        }
    }

    /// As [`Self::drop_wanted`], and nothing more is delivered: this side ends the channel.
    fn cut_wanted(&mut self, pair: Pair, why: &str) {
        if let Some(Wanted { progress: Progress::Open(channel), .. }) = self.wanted.get(&pair) {
            channel.cut();
        }
        self.drop_wanted(pair, why);
    }

    pub(super) fn drop_wanted(&mut self, pair: Pair, why: &str) {
        let Some(wanted) = self.wanted.remove(&pair) else { return };
        if let Progress::Open(channel) = &wanted.progress {
            channel.close();
            self.forget_channel(channel);
            if channel.carrier == "local"
                && let Some(outlet) = LOCAL.publishers().get(&pair.0).cloned()
            {
                self.detach(outlet, channel.id);
            }
            self.unmatched(channel, why);
        }
        let held = self.entries.iter().position(|e| match e {
            Some(Entry::Held(_, channel)) => (channel.publisher, channel.subscriber) == pair,
            Some(Entry::Dial(dial)) => dial.pair == pair,
            _ => false,
        });
        if let Some(index) = held {
            self.unwatch(index);
        }
    }

    // --- commands and events -----------------------------------------------------------------------------------

    fn command(&mut self, command: Command) {
        match command {
            Command::PortAdded(port, info) => self.own_port_added(port, info),
            Command::PortRemoved(port) => self.own_port_removed(port),
            Command::Discovered(source, event) => self.discovered(source, event),
            Command::Ended { channel, why, .. } => self.channel_ended(&channel, why),
            Command::Barrier(reached) => drop(reached.send(())),
            Command::Call { to, request, answer } => self.call(to, request, answer),
        }
    }

    fn discovered(&mut self, source: u8, event: control::Event) {
        match event {
            control::Event::Warning(text) => self.warn(text),
            control::Event::Call { from, id, request } => {
                let answer = admin::pack(&self.administer(&request));
                for discovery in &mut self.discoveries {
                    if discovery.answer(from, id, &answer) {
                        break;
                    }
                }
            }
            control::Event::Answer { id, answer, .. } => {
                if let Some(waiting) = self.calls.remove(&id) {
                    let _ = waiting.send(answer);
                }
            }
            other => self.directory_event(source, other),
        }
    }

    fn directory_event(&mut self, source: u8, event: control::Event) {
        let applied = self.state.directory().apply(source, event);
        match applied {
            Applied::Nothing => {}
            Applied::Changed(delta) => self.directory_changed(delta),
            Applied::RefreshNeeded(node) => {
                for discovery in &mut self.discoveries {
                    discovery.refresh(node);
                }
            }
            Applied::Refused { node, refusal } => self.warn(format!("news of node {node} refused: {refusal:?}")),
        }
        self.state.made_progress();
    }

    fn directory_changed(&mut self, delta: Delta) {
        let now = Instant::now();
        for (pair, wanted) in self.wanted.iter_mut().filter(|((p, _), _)| p.node == delta.node) {
            wanted.seen(!delta.gone, now);
            let _ = pair;
        }
        for (key, _) in delta.removed.iter().filter(|_| !delta.gone) {
            let port = PortRef { node: key.node, port: key.port };
            let pairs: Vec<Pair> = self.wanted.keys().filter(|(p, _)| *p == port).copied().collect();
            pairs.into_iter().for_each(|pair| self.drop_wanted(pair, "the publisher closed"));
        }
        for conflict in &delta.conflicts {
            let holder = conflict.winner.node.to_string();
            self.state.events.push(Event::NameTaken { name: conflict.name.clone(), holder });
        }
        let added: Vec<_> = {
            let directory = self.state.directory();
            delta
                .added
                .iter()
                .filter_map(|key| directory.port(*key).map(|p| (PortRef { node: key.node, port: key.port }, p.clone())))
                .collect()
        };
        let inlets = self.state.inlets();
        for (publisher, offered) in &added {
            for (port, inlet) in &inlets {
                let me = PortRef { node: self.state.id, port: *port };
                self.consider(*publisher, offered, me, inlet.info());
            }
        }
    }

    fn call(&mut self, to: NodeId, request: Vec<u8>, answer: mpsc::Sender<Vec<u8>>) {
        if to == self.state.id {
            let _ = answer.send(admin::pack(&self.administer(&request)));
            return;
        }
        let id = self.next_call;
        self.next_call += 1;
        if self.discoveries.iter_mut().any(|d| d.call(to, id, &request)) {
            self.calls.insert(id, answer);
        }
    }

    /// Carries out an administrative request.
    fn administer(&mut self, request: &[u8]) -> admin::Reply {
        match serde_json::from_slice(request) {
            Ok(admin::Request::Channels) => admin::Reply::Channels(self.reports()),
            Ok(admin::Request::Connect { publisher, subscriber, carrier }) => {
                self.connect(publisher, subscriber, carrier)
            }
            Ok(admin::Request::Disconnect { publisher, subscriber }) => self.disconnect(publisher, subscriber),
            Err(problem) => admin::Reply::No(format!("a request that cannot be read: {problem}")),
        }
    }

    fn reports(&self) -> Vec<crate::port::ChannelReport> {
        let sent = self.state.outlets().into_iter().flat_map(|o| o.reports());
        let received = self.state.inlets().into_iter().flat_map(|(_, i)| i.reports());
        sent.chain(received).collect()
    }

    fn connect(&mut self, publisher: String, subscriber: String, carrier: Option<String>) -> admin::Reply {
        if let Some(name) = &carrier
            && !super::state::CARRIERS.contains(&name.as_str())
            && self.carrier(name).is_none()
        {
            return admin::Reply::No(format!("carrier {name:?}: this node has {}", super::state::CARRIERS.join(", ")));
        }
        let Some((port, inlet)) = self.state.inlets().into_iter().find(|(_, i)| i.info().name == subscriber) else {
            return admin::Reply::No(format!("this node has no subscriber {subscriber}"));
        };
        let found = self
            .state
            .directory()
            .port_named(&publisher)
            .map(|(k, p)| (PortRef { node: k.node, port: k.port }, p.clone()));
        let Some((other, offered)) = found else { return admin::Reply::No(format!("no port {publisher} is known")) };
        if offered.direction != Direction::Publisher {
            return admin::Reply::No(format!("{publisher} is a subscriber: say the publisher first"));
        }
        let names = (publisher, subscriber);
        let was_apart = self.apart.contains(&names);
        self.apart.retain(|n| *n != names);
        let before = self.connected.insert(names.clone(), carrier.clone());
        let me = PortRef { node: self.state.id, port };
        self.cut_wanted((other, me), "connected anew by an administrator");
        self.consider(other, &offered, me, inlet.info());
        if self.wanted.contains_key(&(other, me)) {
            return admin::Reply::Done;
        }
        // It cannot be: all is as it was.
        let over = carrier.map_or(String::new(), |name| format!(" over {name}"));
        let text = format!("{} cannot be connected to {}{over}: see `thalweg info` of both", names.0, names.1);
        self.connected.remove(&names);
        self.connected.extend(before.map(|carrier| (names.clone(), carrier)));
        self.apart.extend(was_apart.then_some(names));
        self.consider(other, &offered, me, inlet.info());
        admin::Reply::No(text)
    }

    fn disconnect(&mut self, publisher: String, subscriber: String) -> admin::Reply {
        let names = (publisher, subscriber);
        self.connected.remove(&names);
        let pair = self
            .wanted
            .iter()
            .find(|(_, w)| (&w.publisher.name, &w.subscriber.name) == (&names.0, &names.1))
            .map(|(p, _)| *p);
        if !self.apart.contains(&names) {
            self.apart.push(names.clone());
        }
        match pair {
            Some(pair) => {
                self.cut_wanted(pair, "disconnected by an administrator");
                admin::Reply::Done
            }
            None => admin::Reply::No(format!("{} and {} were not connected; they will not be", names.0, names.1)),
        }
    }

    // --- timers ------------------------------------------------------------------------------------------------

    fn next_timer(&self) -> Option<Instant> {
        let wanted =
            self.wanted.values().filter_map(|w| if let Progress::Idle(at) = w.progress { Some(at) } else { None });
        let streams = self.entries.iter().flatten().filter_map(|e| match e {
            Entry::Incoming(incoming) => Some(incoming.until),
            Entry::Dial(dial) => Some(dial.until),
            _ => None,
        });
        let busy = (!self.attaching.is_empty() || !self.detaching.is_empty()).then(|| Instant::now() + BUSY_PAUSE);
        wanted.chain(streams).chain(busy).min()
    }

    fn timers(&mut self, now: Instant) {
        for pending in std::mem::take(&mut self.attaching) {
            self.attach_now(pending);
        }
        for (outlet, id) in std::mem::take(&mut self.detaching) {
            self.detach(outlet, id);
        }
        let due: Vec<Pair> = self
            .wanted
            .iter()
            .filter(|(_, w)| matches!(w.progress, Progress::Idle(at) if at <= now))
            .map(|(p, _)| *p)
            .collect();
        due.into_iter().for_each(|pair| self.try_wanted(pair));
        let hopeless: Vec<Pair> = self.wanted.iter().filter(|(_, w)| w.is_hopeless(now)).map(|(p, _)| *p).collect();
        hopeless.into_iter().for_each(|pair| self.drop_wanted(pair, "its node is gone"));
        self.expire_streams(now);
    }

    fn expire_streams(&mut self, now: Instant) {
        for index in 0..self.entries.len() {
            match &self.entries[index] {
                Some(Entry::Incoming(incoming)) if incoming.until <= now => {
                    self.unwatch(index);
                    self.count("incoming streams that said nothing in time");
                }
                Some(Entry::Dial(dial)) if dial.until <= now => {
                    let pair = dial.pair;
                    self.unwatch(index);
                    self.try_failed(pair, "no answer in time");
                }
                _ => {}
            }
        }
    }

    // --- telling -----------------------------------------------------------------------------------------------

    fn matched(&self, channel: &Channel) {
        let (publisher, subscriber) = (channel.publisher_name.clone(), channel.subscriber_name.clone());
        self.state.events.push(Event::Matched { publisher, subscriber, carrier: channel.carrier.clone() });
        self.state.made_progress();
    }

    fn unmatched(&self, channel: &Channel, why: &str) {
        let (publisher, subscriber) = (channel.publisher_name.clone(), channel.subscriber_name.clone());
        self.state.events.push(Event::Unmatched { publisher, subscriber, reason: why.to_owned() });
        self.state.made_progress();
    }

    pub(super) fn warn(&self, text: String) {
        self.state.events.push(Event::Warning { text });
    }

    /// Counts something that a stranger did, and tells the first time.
    pub(super) fn count(&mut self, what: &'static str) {
        let count = self.counts.entry(what).or_default();
        *count += 1;
        if *count == 1 {
            self.warn(format!("{what} (counted from now on)"));
        }
    }
}

/// Numbers of the back ends in the directory.
const LINKS: u8 = 0;
#[cfg(feature = "zenoh")]
const ZENOH: u8 = 1;
const OWN: u8 = 31;

fn end_way(way: Way) {
    if let Way::Flow(flow) = way {
        flow.end();
    }
}

fn listen(settings: &Settings) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for address in settings.listen.iter().filter(|a| !a.ip().is_loopback() || a.port() != 0) {
        let listener =
            TcpListener::bind(address).map_err(|e| Error::system(format!("cannot listen on {address}"), e))?;
        listeners.push(listener);
    }
    // A host without IPv6 (or without loopback addresses) still has the other family.
    let own: Vec<_> = crate::node::loopback().iter().map(TcpListener::bind).collect();
    let failed = own.iter().all(std::result::Result::is_err);
    for result in own {
        match result {
            Ok(listener) => listeners.push(listener),
            Err(error) if failed && listeners.is_empty() => {
                return Err(Error::system("cannot listen on 127.0.0.1 or ::1", error));
            }
            Err(_) => {}
        }
    }
    for listener in &listeners {
        listener.set_nonblocking(true).map_err(|e| Error::system("cannot make a listener non-blocking", e))?;
    }
    Ok(listeners)
}

fn describe(
    settings: &Settings,
    node: NodeId,
    listeners: &[TcpListener],
    endpoint: &control::local::LocalEndpoint,
) -> Result<Document> {
    let mut addresses = Vec::new();
    for address in listeners.iter().filter_map(|l| l.local_addr().ok()) {
        if address.ip().is_unspecified() {
            let all = linux::net::interfaces().map_err(|e| Error::system("cannot list interfaces", e))?;
            let same_family = all.iter().filter(|i| i.up && !i.loopback && i.address.is_ipv4() == address.is_ipv4());
            addresses.extend(same_family.map(|i| std::net::SocketAddr::new(i.address, address.port())));
        } else {
            addresses.push(address);
        }
    }
    Ok(Document {
        node,
        name: settings.name.clone(),
        realm: settings.realm.clone(),
        host: linux::clock::host_id(),
        host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        clock: linux::clock::clock_id(),
        pid: std::process::id(),
        incarnation: linux::clock::wall_ns(),
        revision: 1,
        addresses,
        socket: Some(endpoint.path().to_owned()),
        ports: BTreeMap::new(),
    })
}

/// Random bits from the standard library's hash keys, which come from the kernel: unguessable enough for ids.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(linux::clock::wall_ns());
    hasher.finish()
}
