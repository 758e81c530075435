//! Streams that this node hosts a proxy for (P-07): a relay for others, and any node for pictures of its own publishers.
//!
//! One subscription to the source feeds all that asked for the same: each flow to a subscriber selects for itself. A
//! sample keeps its source's identity, numbers and stamps, so that both ends see each other as if nothing were between.

mod buffers;
mod load;
mod refusals;
mod stages;
mod stream;

pub(super) use buffers::{Buffer, Buffered};
pub(super) use load::Carried;
pub(super) use refusals::Told;

use super::control::Control;
use super::matching::grant::check_greeting;
use super::offer::answer;
use crate::channel::proxy::scaler::Scaler;
use crate::channel::proxy::{Picture, Proxy, Selection};
use crate::channel::{Channel, ChannelReport, PortRef};
use crate::codec::Untyped;
use crate::control::matching::{Match, compare};
use crate::control::{NodeId, Peer, PortId, PortInfo};
use crate::handshake::{Answer, Reason, Refused, Request};
use crate::port::{AnyInlet, AnyOutlet, Inlet, Outlet, Sink};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use stream::{forwarder, upstream};

/// Which stream: its source, and what becomes of its pictures.
pub(crate) type Hosting = (PortRef, Option<(Picture, Selection)>);

/// A stream that this node hosts.
pub(crate) struct Hosted {
    outlet: Arc<Outlet<Untyped>>,
    inlet: Arc<Inlet<Untyped>>,
    /// The port of `inlet`.
    port: PortId,
    /// For whom it was begun.
    asker: Peer,
    /// Since when nothing comes from the source.
    idle_since: Option<Instant>,
}

/// A request that waits for the source of what it asked for.
pub(crate) struct Guest {
    pub(super) request: Request,
    pub(super) stream: OwnedFd,
    until: Instant,
}

/// How long a request waits for the source: less than its sender waits for an answer.
const PATIENCE: Duration = Duration::from_millis(400);
/// Requests that wait at once.
const MOST_GUESTS: usize = 256;
/// A stream whose source is gone, or that nobody takes any more, is hosted for so long.
const IDLE: Duration = Duration::from_millis(500);
/// How often load and idle streams are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// A relay that has not looked for so long was stopped.
const AWAY: Duration = Duration::from_secs(1);

impl Control {
    /// All publishing ends of this node: its own ports', and those of streams that it hosts.
    pub(super) fn outlets(&self) -> Vec<Arc<dyn AnyOutlet>> {
        let hosted = self.hosted.values().map(|hosted| hosted.outlet.clone() as Arc<dyn AnyOutlet>);
        self.state.outlets().into_iter().chain(hosted).collect()
    }

    /// What is sent of hosted streams, and over which port each comes here.
    pub(super) fn hosted_reports(&self) -> Vec<ChannelReport> {
        let over = |hosted: &Hosted| {
            let name = hosted.proxy_name().to_owned();
            let told = move |report: ChannelReport| ChannelReport { over: Some(name.clone()), ..report };
            hosted.outlet.reports().into_iter().map(told)
        };
        self.hosted.values().flat_map(over).collect()
    }

    /// The publishing end of a channel.
    pub(super) fn outlet_of(&self, channel: &Channel) -> Option<Arc<dyn AnyOutlet>> {
        let of = |outlet: &Outlet<Untyped>| outlet.channels().iter().any(|other| other.id == channel.id);
        let hosted =
            self.hosted.iter().find(|((source, _), hosted)| *source == channel.publisher && of(&hosted.outlet));
        if let Some((_, hosted)) = hosted {
            return Some(hosted.outlet.clone());
        }
        let own = (channel.publisher.node == self.state.id).then(|| self.state.outlet(channel.publisher.port));
        own.flatten().map(|(outlet, _)| outlet)
    }

    /// Incarnation and clock of the node that a stream comes from: this one, or the source of a hosted stream.
    pub(super) fn source(&self, node: NodeId) -> (u64, String) {
        let known = self.state.directory().node(node).map(|there| (there.incarnation, there.clock.clone()));
        known.unwrap_or_else(|| (self.state.incarnation, self.state.clock.clone()))
    }

    /// Whether a request is for a stream that this node has to host.
    pub(super) fn is_hosted(&self, request: &Request) -> bool {
        let picture = request.proxy.as_ref().is_some_and(|proxy| proxy.picture.is_some());
        picture || (request.to_node != self.state.id && self.relay.is_some())
    }

    fn refuse(&self, refused: Refused, stream: &OwnedFd) {
        let _ = answer(stream, &Answer::Refused(refused));
    }

    /// Serves a request for a hosted stream: at once if its source is here, else when it is, or not.
    pub(super) fn host(&mut self, request: Request, stream: OwnedFd) {
        let room = check_greeting(&request, &self.state.settings.realm).and_then(|()| {
            let before = self.opened_before(&request, &stream);
            self.check_room(&request, &stream, before.as_channel())
        });
        let ready = room.and_then(|()| self.ready_to_host(&request, &stream));
        match ready {
            Ok(true) => self.serve_now(request, stream),
            Ok(false) if self.guests.len() < MOST_GUESTS => {
                self.guests.push(Guest { request, stream, until: Instant::now() + PATIENCE });
            }
            Ok(false) => self.refuse(refused(format!("fewer than {MOST_GUESTS} requests that wait")), &stream),
            Err(why) => self.refuse(why, &stream),
        }
    }

    /// What is hosted for a request that was let in.
    pub(super) fn hosted_for(&self, request: &Request) -> Result<Arc<dyn AnyOutlet>, Refused> {
        let hosted = self.hosted.get(&hosting(request)).ok_or_else(|| refused("a stream that it hosts".into()))?;
        let (mut offered, mut asked) = (hosted.outlet.info.clone(), request.subscriber.clone());
        if request.by_name {
            offered.topic.clone_from(&asked.topic);
            asked.carriers.clear();
        }
        match compare(&offered, &asked) {
            Match::Matched(_) => Ok(hosted.outlet.clone()),
            _ => Err(refused(format!("{} of type {}", offered.topic, offered.message.name))),
        }
    }

    /// Whether the source of a stream is here; begins to host it if it is known and not hosted yet. Who asks may have heard of it
    /// before this node does.
    fn ready_to_host(&mut self, request: &Request, stream: &OwnedFd) -> Result<bool, Refused> {
        let key = hosting(request);
        if request.to_node != self.state.id && request.node != self.state.id {
            self.check_relay()?;
        }
        if !self.hosted.contains_key(&key) {
            let Some((offered, incarnation)) = self.announced(key.0) else { return Ok(false) };
            self.begin_hosting(key, offered, incarnation, self.whose(request.node, stream))?;
        }
        Ok(self.hosted.get(&key).is_some_and(Hosted::has_source) && !self.is_dry(key.0))
    }

    /// A port, and its node's incarnation, as far as this node heard of it.
    fn announced(&self, port: PortRef) -> Option<(PortInfo, u64)> {
        let directory = self.state.directory();
        let node = directory.node(port.node)?;
        Some((node.ports.get(&port.port)?.clone(), node.incarnation))
    }

    fn begin_hosting(&mut self, key: Hosting, offered: PortInfo, incarnation: u64, asker: Peer) -> Result<(), Refused> {
        let (source, picture) = key;
        let scaler = match picture {
            None => None,
            Some((picture, _)) => {
                self.check_pictures(source, &offered, asker)?;
                Some((self.scaler(&offered)?, picture))
            }
        };
        let number = self.state.next_port();
        let name = format!("/{}/proxy{}", self.state.settings.name, number.0);
        self.state.reserve_name(&name).map_err(|why| refused(why.to_string()))?;
        let info = upstream(&offered, name.clone(), picture);
        let outlet = Arc::new(Outlet::<Untyped>::new(offered.clone(), source, incarnation, None));
        let (forward, events, memory) = (outlet.clone(), self.state.events.clone(), self.state.memory.clone());
        let inlet = Arc::new_cyclic(|inlet| {
            let sink = Sink::callback(forwarder(forward, scaler, inlet.clone()));
            Inlet::new(info.clone(), sink, false, false, events, &memory)
        });
        self.state.add_inlet(number, inlet.clone());
        crate::port::LOCAL.subscribers().insert(PortRef { node: self.state.id, port: number }, inlet.clone());
        self.hosted.insert(key, Hosted { outlet, inlet, port: number, asker, idle_since: Some(Instant::now()) });
        self.matching.connect((offered.name, name), None);
        self.own_port_added(number, info);
        Ok(())
    }

    /// Whether a port takes a hosted stream from its source.
    pub(super) fn is_hosted_port(&self, port: PortId) -> bool {
        self.hosted.values().any(|hosted| hosted.port == port)
    }

    /// The port that takes a hosted stream from its source got a channel that brings what follows sample `after`: so do
    /// those that lead from here.
    pub(super) fn hosted_from(&self, port: PortId, after: u64) {
        if let Some(hosted) = self.hosted.values().find(|hosted| hosted.port == port) {
            hosted.outlet.published.fetch_max(after, Relaxed);
        }
    }

    /// Whether one more size of a publisher's pictures is made here: each takes a thread, and a processor's time per sample. One
    /// other host may have half of them made.
    fn check_pictures(&self, source: PortRef, offered: &PortInfo, asker: Peer) -> Result<(), Refused> {
        let (name, most) = (&offered.name, self.state.settings.limits.pictures);
        let all = self.hosted.iter().filter(|((port, _), _)| *port == source);
        let made: Vec<_> = all.filter_map(|((_, picture), hosted)| Some((picture.as_ref()?.0, hosted.asker))).collect();
        let its = made.iter().filter(|(_, of)| *of == asker).count();
        let (full, whom) = match asker {
            Peer::Host(address) if its >= most.div_ceil(2) as usize => (most.div_ceil(2), format!(" for {address}")),
            _ if made.len() >= most as usize => (most, String::new()),
            _ => return Ok(()),
        };
        let made = made.iter().map(|(picture, _)| picture.to_string()).collect::<Vec<_>>().join(", ");
        Err(refused(format!(
            "at most {full} different pictures of {name}{whom}, and makes {made}: ask for one of these, or start it with --pictures above {most}"
        )))
    }

    fn scaler(&self, offered: &PortInfo) -> Result<Box<dyn Scaler>, Refused> {
        let found = self.state.settings.scalers.find(&offered.topic, &offered.message);
        found.ok_or_else(|| {
            let offered = format!("types that it can scale, not {}", offered.message.name);
            Refused { policy: Reason::Picture, ..refused(offered) }
        })
    }

    /// A channel of this node opened, or a port was announced: perhaps the source that somebody waits for.
    pub(super) fn look_after_guests(&mut self) {
        for guest in std::mem::take(&mut self.guests) {
            let ready = match self.hosted.get(&hosting(&guest.request)) {
                Some(hosted) => Ok(hosted.has_source()),
                None => self.ready_to_host(&guest.request, &guest.stream),
            };
            match ready {
                Ok(true) => self.serve_now(guest.request, guest.stream),
                Ok(false) => self.guests.push(guest),
                Err(why) => self.refuse(why, &guest.stream),
            }
        }
    }

    /// When hosted streams are to be looked at.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let busy = self.relay.is_some() || !self.hosted.is_empty() || !self.guests.is_empty();
        busy.then_some(self.looked + LOOK)
    }

    /// Ends what waited too long and what nobody needs, and tells what this relay carries.
    pub(super) fn look_after_hosted(&mut self, now: Instant) {
        if now < self.looked + LOOK {
            return;
        }
        let away = now.duration_since(std::mem::replace(&mut self.looked, now));
        if self.relay.is_some() && away > AWAY && !self.hosted.is_empty() {
            self.begin_anew(away);
        }
        let guests = std::mem::take(&mut self.guests).into_iter();
        let (late, waiting): (Vec<Guest>, Vec<Guest>) = guests.partition(|guest| guest.until <= now);
        self.guests = waiting;
        for guest in late {
            let (node, port) = (guest.request.to_node, guest.request.to_port.0);
            let why = match self.hosted.contains_key(&hosting(&guest.request)) {
                true => "a source that it reaches, which this one is not now".to_owned(),
                false => format!("a publisher that it knows, not port {port} of {node}"),
            };
            self.refuse(refused(why), &guest.stream);
        }
        self.hosted.values_mut().for_each(|hosted| hosted.note(now));
        let over = |hosted: &Hosted| hosted.idle_since.is_some_and(|since| now.duration_since(since) > IDLE);
        let ended: Vec<Hosting> = self.hosted.iter().filter(|(_, h)| over(h)).map(|(key, _)| *key).collect();
        ended.into_iter().for_each(|key| self.end_hosting(key));
        self.look_after_buffers(now);
        self.tell_load(now);
    }

    /// This relay was stopped: who has another way took it, and what came meanwhile was dropped before it came here, so that
    /// nobody may return to these streams as if nothing were missing.
    fn begin_anew(&mut self, away: Duration) {
        self.warn(format!("this relay did nothing for {away:.1?} (stopped?): it takes the streams that it hosts anew"));
        let all: Vec<Hosting> = self.hosted.keys().copied().collect();
        all.into_iter().for_each(|key| self.end_hosting(key));
    }

    fn end_hosting(&mut self, key: Hosting) {
        let Some(hosted) = self.hosted.get(&key) else { return };
        // Each channel ends as one whose publisher closes: its subscriber looks for another way.
        for channel in hosted.outlet.channels() {
            self.end_served(&channel);
        }
        let Some(hosted) = self.hosted.remove(&key) else { return };
        let picture = key.1.map(|(picture, _)| picture);
        self.groups.retain(|(source, _, _, of), _| *source != key.0 || *of != picture);
        hosted.outlet.close();
        hosted.inlet.close();
        let names = (hosted.outlet.info.name.clone(), hosted.inlet.info.name.clone());
        self.matching.release(&names);
        crate::port::LOCAL.subscribers().remove(&PortRef { node: self.state.id, port: hosted.port });
        self.state.remove_inlet(hosted.port, || ());
        self.own_port_removed(hosted.port);
    }
}

impl Hosted {
    fn has_source(&self) -> bool {
        self.inlet.channels().lock().is_ok_and(|channels| channels.iter().any(|channel| !channel.is_closed()))
    }

    /// Whether it is a stream of this publisher.
    pub(super) fn is_of(&self, publisher: &str) -> bool {
        self.outlet.info.name == publisher
    }

    /// The name of the port that takes it from its source.
    pub(super) fn proxy_name(&self) -> &str {
        &self.inlet.info.name
    }

    /// Neither source nor takers: not needed for long.
    fn note(&mut self, now: Instant) {
        let needed = self.has_source() && !self.outlet.channels().is_empty();
        self.idle_since = if needed { None } else { self.idle_since.or(Some(now)) };
    }

    fn carried(&self) -> (u64, u64) {
        let channels = self.inlet.channels().lock().map(|channels| channels.clone()).unwrap_or_default();
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

pub(super) fn refused(offered: String) -> Refused {
    let (policy, requested, remedy) = (Reason::Relay, "a proxy".to_owned(), format!("it takes {offered}"));
    Refused { policy, offered, requested, remedy, others: Vec::new() }
}
