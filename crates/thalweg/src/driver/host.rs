//! Streams for which this node hosts a proxy (P-07): a relay for other nodes' streams, any node for pictures of its own publishers.
//!
//! One subscription to the source serves all subscribers that asked for the same stream; each flow to a subscriber selects its own samples.
//! A sample keeps its source's identity, sequence number and time stamps, so that both ends see each other as if they were connected
//! directly.

use super::buffers::Buffer;
use super::control::Control;
use super::handshake_server::answer;
use super::matching::grant::check_greeting;
use super::relay::{self, Action, Hosting, Stream, refused};
use crate::carrier;
use crate::channel::proxy::scaler::Scaler;
use crate::channel::proxy::{Picture, Proxy, Selection};
use crate::channel::{Channel, ChannelReport, PortRef};
use crate::codec::Untyped;
use crate::control::matching::{Match, compare};
use crate::control::{Change, Direction, Document, Peer, PortId, PortInfo};
use crate::handshake::{Answer, Reason, Refused, Request};
use crate::port::{AnyPublisher, AnySubscriber, PublisherPort, Sample, Sink, SubscriberPort};
use crate::trace::stages::{End, Stage, StagesReport};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// A stream that this node hosts.
pub(crate) struct Hosted {
    publisher_port: Arc<PublisherPort<Untyped>>,
    subscriber_port: Arc<SubscriberPort<Untyped>>,
    /// The number of that port.
    port: PortId,
    /// The node that publishes, as it was announced.
    source: Source,
}

/// Incarnation and clock of a node that publishes.
#[derive(Clone)]
pub(crate) struct Source {
    pub incarnation: u64,
    pub clock: String,
}

/// A request that waits for its source, and its stream.
pub(crate) type Waiting = (Request, OwnedFd);

/// The state of the streams and buffers that this node hosts.
pub(super) type Relay = relay::Relay<Hosted, Waiting, Buffer>;

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// The publishing ends of this node's ports and of the streams that it hosts.
    pub(super) fn publisher_ports(&self) -> Vec<Arc<dyn AnyPublisher>> {
        let hosted =
            self.relay.streams.iter().map(|(_, hosted)| hosted.publisher_port.clone() as Arc<dyn AnyPublisher>);
        self.state.publisher_ports().into_iter().chain(hosted).collect()
    }

    /// The channels of this node's publisher, and those that send its smaller pictures, the newest last.
    pub(super) fn channels_of_publisher(&self, port: PortId) -> Vec<Arc<Channel>> {
        let publisher = PortRef { node: self.state.id, port };
        let whole = self.state.publisher_port(port).map(|(publisher_port, _)| publisher_port.channels());
        let pictures = self.relay.streams.iter().filter(|((source, _), _)| *source == publisher);
        let pictures = pictures.flat_map(|(_, hosted)| hosted.publisher_port.channels());
        let mut channels: Vec<_> = whole.into_iter().flatten().chain(pictures).collect();
        channels.sort_by_key(|channel| channel.id);
        channels
    }

    /// Reports of the channels that send hosted streams, each with the name of the port that receives the stream from its source.
    pub(super) fn hosted_reports(&self) -> Vec<ChannelReport> {
        let over = |hosted: &Hosted| {
            let name = hosted.proxy_name().to_owned();
            let told = move |report: ChannelReport| ChannelReport { over: Some(name.clone()), ..report };
            hosted.publisher_port.reports().into_iter().map(told)
        };
        self.relay.streams.iter().flat_map(|(_, hosted)| over(hosted)).collect()
    }

    /// The stages of hosted streams, at the sending end. Stage `publish` is the way from the source to this node. It is known only if both read one clock.
    pub(super) fn stages_of_hosted(&self, topic: &str) -> Vec<StagesReport> {
        let channels = self.relay.streams.iter().flat_map(|(_, hosted)| hosted.publisher_port.channels());
        let mut reports = Vec::new();
        for channel in channels.filter(|channel| channel.topic == topic) {
            let Some(mut report) = channel.stages_report(End::Relay) else { continue };
            if self.source(channel.publisher).clock != self.state.clock {
                report.stages_us.remove(Stage::Publish.name());
            }
            reports.push(report);
        }
        reports
    }

    /// The publishing end of a channel.
    pub(super) fn publisher_port_of(&self, channel: &Channel) -> Option<Arc<dyn AnyPublisher>> {
        let of = |publisher_port: &PublisherPort<Untyped>| {
            publisher_port.channels().iter().any(|other| other.id == channel.id)
        };
        let mut hosted = self.relay.streams.iter();
        let hosted = hosted.find(|((source, _), hosted)| *source == channel.publisher && of(&hosted.publisher_port));
        if let Some((_, hosted)) = hosted {
            return Some(hosted.publisher_port.clone());
        }
        let own = (channel.publisher.node == self.state.id).then(|| self.state.publisher_port(channel.publisher.port));
        own.flatten().map(|(publisher_port, _)| publisher_port)
    }

    /// The node that a stream comes from: this node, or the source of a hosted stream. A source that was cut off from this node is not in the
    /// directory, while its stream may be back already.
    pub(super) fn source(&self, publisher: PortRef) -> Source {
        let hosted = || self.relay.streams.iter().find(|((source, _), _)| *source == publisher);
        let known = self.state.directory().node(publisher.node).map(Source::of);
        known
            .or_else(|| hosted().map(|(_, hosted)| hosted.source.clone()))
            .unwrap_or_else(|| Source { incarnation: self.state.incarnation, clock: self.state.clock.clone() })
    }

    /// `true` if a request is for a stream that this node has to host.
    pub(super) fn is_hosted(&self, request: &Request) -> bool {
        self.relay.is_hosted(request, self.state.id)
    }

    fn refuse(&self, refused: Refused, stream: &OwnedFd) {
        let _ = answer(stream, &Answer::Refused(refused));
    }

    /// Serves a request for a hosted stream, at once or when its source has a channel to this node. If that takes too long, the request is
    /// refused.
    pub(super) fn host(&mut self, request: Request, stream: OwnedFd) {
        let room = check_greeting(&request, &self.state.settings.realm).and_then(|()| {
            let before = self.opened_before(&request, &stream);
            self.check_room(&request, &stream, before.as_channel())
        });
        let ready = room.and_then(|()| self.ready_to_host(&request, &stream));
        match ready {
            Ok(true) => self.serve_now(request, stream),
            Ok(false) => {
                let waits = self.relay.streams.wait(hosting(&request), (request, stream), Instant::now());
                if let Err(((_, stream), why)) = waits {
                    self.refuse(why, &stream);
                }
            }
            Err(why) => self.refuse(why, &stream),
        }
    }

    /// The publishing end of the hosted stream for a request that was admitted.
    pub(super) fn hosted_for(&self, request: &Request) -> Result<Arc<dyn AnyPublisher>, Refused> {
        let hosted =
            self.relay.streams.get(&hosting(request)).ok_or_else(|| refused("a stream that it hosts".into()))?;
        let (mut offered, mut asked) = (hosted.publisher_port.info.clone(), request.subscriber.clone());
        if request.by_name {
            offered.topic.clone_from(&asked.topic);
            asked.carriers.clear();
        }
        match compare(&offered, &asked) {
            Match::Matched(_) => Ok(hosted.publisher_port.clone()),
            _ => Err(refused(format!("{} of type {}", offered.topic, offered.message.name))),
        }
    }

    /// `true` if this node receives the stream from its source, which is not silent. A stream whose source is known and which is not hosted
    /// yet is hosted from now on. A subscriber may have heard of the source before this node does: then the answer is `false`.
    fn ready_to_host(&mut self, request: &Request, stream: &OwnedFd) -> Result<bool, Refused> {
        let key = hosting(request);
        if request.to_node != self.state.id && request.node != self.state.id {
            self.relay.check_load()?;
        }
        if self.relay.streams.get(&key).is_none() {
            let Some((offered, source)) = self.announced(key.0) else { return Ok(false) };
            self.begin_hosting(key, offered, source, self.whose(request.node, stream))?;
        }
        Ok(self.relay.streams.get(&key).is_some_and(Hosted::has_source) && !self.lacks_source(key.0))
    }

    /// A port and its node, if this node knows the port.
    fn announced(&self, port: PortRef) -> Option<(PortInfo, Source)> {
        let directory = self.state.directory();
        let node = directory.node(port.node)?;
        Some((node.ports.get(&port.port)?.clone(), Source::of(node)))
    }

    fn begin_hosting(&mut self, key: Hosting, offered: PortInfo, source: Source, asker: Peer) -> Result<(), Refused> {
        let (publisher, picture) = key;
        let scaler = match picture {
            None => None,
            Some((picture, _)) => {
                let most = self.state.settings.limits.pictures;
                self.relay.streams.check_pictures(publisher, &offered.name, asker, most)?;
                Some((self.scaler(&offered)?, picture))
            }
        };
        let number = self.state.next_port();
        let name = format!("/{}/proxy{}", self.state.settings.name, number.0);
        let info = upstream(&offered, name.clone(), picture);
        self.state.reserve(&info).map_err(|why| refused(why.to_string()))?;
        let publisher_port =
            Arc::new(PublisherPort::<Untyped>::new(offered.clone(), publisher, source.incarnation, None));
        let (forward, events, memory) = (publisher_port.clone(), self.state.events.clone(), self.state.memory.clone());
        let subscriber_port = Arc::new_cyclic(|subscriber_port| {
            let sink = Sink::callback(forwarder(forward, scaler, subscriber_port.clone()));
            SubscriberPort::new(info.clone(), sink, false, false, events, &memory)
        });
        self.state.add_subscriber(number, subscriber_port.clone());
        crate::port::LOCAL.subscribers().insert(PortRef { node: self.state.id, port: number }, subscriber_port.clone());
        let hosted = Hosted { publisher_port, subscriber_port, port: number, source };
        self.relay.streams.begin(key, hosted, asker, Instant::now());
        self.matching.connect((offered.name, name), None);
        self.own_ports_added(vec![(number, info)]);
        Ok(())
    }

    /// `true` if the port receives a hosted stream from its source.
    pub(super) fn is_hosted_port(&self, port: PortId) -> bool {
        self.relay.streams.iter().any(|(_, hosted)| hosted.port == port)
    }

    /// The port that receives a hosted stream has a channel whose first sample is the one that follows sample `after`. The same holds for
    /// the channels that send the stream on.
    pub(super) fn hosted_from(&self, port: PortId, after: u64) {
        if let Some((_, hosted)) = self.relay.streams.iter().find(|(_, hosted)| hosted.port == port) {
            hosted.publisher_port.published.fetch_max(after, Relaxed);
        }
    }

    fn scaler(&self, offered: &PortInfo) -> Result<Box<dyn Scaler>, Refused> {
        let found = self.state.settings.scalers.find(&offered.topic, &offered.message);
        found.ok_or_else(|| {
            let offered = format!("types that it can scale, not {}", offered.message.name);
            Refused { policy: Reason::Picture, ..refused(offered) }
        })
    }

    /// A channel of this node opened, or a port was announced: requests that wait for their source are looked at again.
    pub(super) fn look_after_waiting(&mut self) {
        for waiting in self.relay.streams.take_waiting() {
            let (request, stream) = &waiting.who;
            let ready = match self.relay.streams.get(&waiting.of) {
                Some(hosted) => Ok(hosted.has_source()),
                None => self.ready_to_host(request, stream),
            };
            let (request, stream) = match ready {
                Ok(false) => {
                    self.relay.streams.wait_on(waiting);
                    continue;
                }
                Ok(true) | Err(_) => waiting.who,
            };
            match ready {
                Err(why) => self.refuse(why, &stream),
                Ok(_) => self.serve_now(request, stream),
            }
        }
    }

    /// Refuses requests that waited too long, ends streams and buffers that are not needed any more, and announces this relay's load.
    pub(super) fn look_after_hosted(&mut self, now: Instant) {
        let Some(actions) = self.relay.look(now) else { return };
        self.carry_out_hosting(actions);
        self.look_after_buffers(now);
        self.tell_load(now);
    }

    pub(super) fn carry_out_hosting(&mut self, actions: Vec<Action<Waiting>>) {
        for action in actions {
            match action {
                Action::Warn(text) => self.warn(text),
                Action::Refuse((_, stream), why) => self.refuse(why, &stream),
                Action::EndStream(key) => self.end_hosting(key),
                Action::BeginBuffer(key, limits) => self.begin_buffer(key, limits),
                Action::EndBuffer(key) => self.end_buffer(&key),
            }
        }
    }

    /// Measures this relay's load, and announces it if it changed.
    fn tell_load(&mut self, now: Instant) {
        if !self.relay.is_measured(now) {
            return;
        }
        let keeps = self.kept_for_others().map(|kept| kept.publishers() as u32).sum();
        let load = self.relay.measure(keeps, &self.state.directory(), now);
        if load.is_some() {
            self.announce(Change { relay: load, ..Change::default() });
        }
    }

    fn end_hosting(&mut self, key: Hosting) {
        let Some(hosted) = self.relay.streams.get(&key) else { return };
        // Each channel ends like one whose publisher closes: its subscriber looks for another way.
        for channel in hosted.publisher_port.channels() {
            self.end_served(&channel);
        }
        let Some(hosted) = self.relay.streams.end(&key) else { return };
        let picture = key.1.map(|(picture, _)| picture);
        self.groups.ended(key.0, picture);
        hosted.publisher_port.close();
        hosted.subscriber_port.close();
        let names = (hosted.publisher_port.info.name.clone(), hosted.subscriber_port.info.name.clone());
        self.matching.release(&names);
        crate::port::LOCAL.subscribers().remove(&PortRef { node: self.state.id, port: hosted.port });
        self.state.remove_subscriber(hosted.port, || ());
        self.own_port_removed(hosted.port);
    }
}

impl Source {
    fn of(node: &Document) -> Self {
        Self { incarnation: node.incarnation, clock: node.clock.clone() }
    }
}

impl Hosted {
    /// `true` if it is a stream of this publisher.
    pub(super) fn is_of(&self, publisher: &str) -> bool {
        self.publisher_port.info.name == publisher
    }

    /// The name of the port that receives the stream from its source.
    pub(super) fn proxy_name(&self) -> &str {
        &self.subscriber_port.info.name
    }
}

impl Stream for Hosted {
    fn has_source(&self) -> bool {
        self.subscriber_port.channels().lock().is_ok_and(|channels| channels.iter().any(|channel| !channel.is_closed()))
    }

    fn takers(&self) -> usize {
        self.publisher_port.channels().len()
    }

    fn carried(&self) -> (u64, u64) {
        let channels = self.subscriber_port.channels().lock().map(|channels| channels.clone()).unwrap_or_default();
        let sum = |(samples, bytes), channel: &Arc<Channel>| {
            let counters = &channel.counters;
            (samples + counters.samples.load(Relaxed), bytes + counters.bytes.load(Relaxed))
        };
        channels.iter().fold((0, 0), sum)
    }
}

fn hosting(request: &Request) -> Hosting {
    let source = PortRef { node: request.to_node, port: request.to_port };
    let picture = |proxy: &Proxy| Some((proxy.picture?, Proxy::sent(Some(proxy))));
    (source, request.proxy.as_ref().and_then(picture))
}

/// Forwards each sample of a source, scaled if asked. A sample that cannot be scaled is left out, and counted as one that could not be
/// decoded.
fn forwarder(
    publisher_port: Arc<PublisherPort<Untyped>>,
    mut scaler: Option<(Box<dyn Scaler>, Picture)>,
    subscriber_port: Weak<SubscriberPort<Untyped>>,
) -> impl FnMut(Sample<'_, Untyped>) + Send {
    let mut scaled = Vec::new();
    move |sample| {
        let Some((scaler, picture)) = &mut scaler else { return publisher_port.forward(sample.info(), &sample) };
        scaled.clear();
        match scaler.scale(&sample, *picture, &mut scaled) {
            Ok(()) => publisher_port.forward(sample.info(), &scaled),
            Err(why) => {
                let subscriber_port = subscriber_port.upgrade();
                subscriber_port.iter().for_each(|subscriber_port| subscriber_port.cannot_decode(&why.to_string()));
                for channel in publisher_port.channels() {
                    channel.counters.unscalable.fetch_add(1, Relaxed);
                }
            }
        }
    }
}

/// The subscriber that takes a stream from its source: whole, as it is offered, and connected by name alone. If pictures are scaled,
/// samples that no subscriber wants are left out before.
pub(super) fn upstream(offered: &PortInfo, name: String, picture: Option<(Picture, Selection)>) -> PortInfo {
    let mut qos = offered.qos.clone();
    if let Some((_, selection)) = picture {
        qos.scale = selection.into();
    }
    let topic = name.clone();
    // Within this process a publisher hands over values of its own type only.
    let carriers = offered.carriers.iter().filter(|carrier| **carrier != carrier::Name::Local).cloned().collect();
    let direction = Direction::Subscriber;
    PortInfo { name, topic, qos, carriers, direction, answers: None, foreign: None, ..offered.clone() }
}
