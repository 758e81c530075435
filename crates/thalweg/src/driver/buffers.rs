//! Pull buffers that a relay keeps for others (P-09): a port whose QoS says `pull-place = relay:NAME` gets its topic kept there. Equal
//! requests share a buffer. A subscriber of its own fills each buffer, first from the publishers' histories where they are durable. A
//! buffer that no port wants stays for a while, because a killed process may come back.
//!
//! A relay publishes its refusals to keep samples with its load, so that the port's owner, and later readers of the samples, learn the
//! reason. [`Buffers`] and [`Refusals`] are pure: time is an argument.

use super::control::Control;
use crate::carrier;
use crate::channel::PortRef;
use crate::codec::{Message, Untyped};
use crate::control::directory::Directory;
use crate::control::limits::MOST_NOT_KEPT;
use crate::control::{Direction, Document, NodeId, NotKept, PortId, PortInfo, PullRole};
use crate::event::Event;
use crate::port::{AnySubscriber, Histories, Sink, SubscriberPort};
use crate::pull::Identity;
use qos::{Durability, Place, PolicyName, PullBuffer, Qos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The key of a buffer: the topic or pattern, the partitions, and the limits of number, bytes and age in nanoseconds.
pub(super) type Buffered = (String, Vec<String>, u32, u64, Option<u128>);

/// The buffers that ports want at the node `here`.
pub(super) fn wanted(here: &Document, directory: &Directory) -> Vec<(Buffered, PullBuffer)> {
    let ports = directory.nodes().flat_map(|node| node.ports.values());
    let wanted = ports.filter_map(|port| {
        let limits = port.qos.pull.clone()?;
        let here = limits.place.relays().any(|name| here.is_relay(name));
        let age = limits.age.map(|age| age.as_nanos());
        let key = (port.topic.clone(), port.qos.partition.clone(), limits.samples, limits.bytes, age);
        here.then_some((key, limits))
    });
    wanted.collect()
}

/// The outcome of a look at the buffers.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub begin: Vec<(Buffered, PullBuffer)>,
    pub end: Vec<Buffered>,
    /// Topics that are not kept because the limit of buffers is reached.
    pub full: Vec<String>,
}

/// A buffer that is kept.
struct Kept<B> {
    buffer: B,
    /// Time since which no port wants it.
    unwanted_since: Option<Instant>,
}

/// The buffers that are kept.
pub(super) struct Buffers<B> {
    kept: BTreeMap<Buffered, Kept<B>>,
}

impl<B> Default for Buffers<B> {
    fn default() -> Self {
        Self { kept: BTreeMap::new() }
    }
}

impl<B> Buffers<B> {
    /// A buffer was opened.
    pub(crate) fn begin(&mut self, key: Buffered, buffer: B) {
        self.kept.insert(key, Kept { buffer, unwanted_since: None });
    }

    /// A buffer is closed.
    pub(crate) fn end(&mut self, key: &Buffered) -> Option<B> {
        self.kept.remove(key).map(|kept| kept.buffer)
    }

    /// The buffers to begin and to end if these are wanted. A buffer that no port wants stays for the time `stay`.
    pub(super) fn look(&mut self, wanted: Vec<(Buffered, PullBuffer)>, stay: Duration, now: Instant) -> Look {
        let (mut look, mut all) = (Look::default(), BTreeSet::new());
        for (key, limits) in wanted {
            let is_new = all.insert(key.clone()) && !self.kept.contains_key(&key);
            match self.kept.len() + look.begin.len() {
                _ if !is_new => {}
                MOST.. => look.full.push(key.0),
                _ => look.begin.push((key, limits)),
            }
        }
        for (key, kept) in &mut self.kept {
            let since = kept.unwanted_since.unwrap_or(now);
            kept.unwanted_since = (!all.contains(key)).then_some(since);
        }
        let over = |since: Instant| now.duration_since(since) > stay;
        let ended = self.kept.iter().filter(|(_, kept)| kept.unwanted_since.is_some_and(over));
        look.end = ended.map(|(key, _)| key.clone()).collect();
        look
    }
}

/// Makes room for `more` bytes beside the `kept` ones, within the limit `most`. Returns the publishers to give up, from `gone` with their
/// bytes, in that order.
///
/// # Errors
/// The bytes that are kept, and their limit, if giving up all that are gone would not make enough room. Then none are given up.
pub(super) fn make_room<T>(
    (kept, more, most): (u64, u64, u64),
    gone: impl Iterator<Item = (u64, T)>,
) -> Result<Vec<T>, String> {
    let lacking = kept.saturating_add(more).saturating_sub(most);
    let (mut found, mut given_up) = (0_u64, Vec::new());
    let mut gone = gone.fuse();
    while found < lacking {
        let Some((bytes, of)) = gone.next() else {
            return Err(format!("{kept} bytes are kept, {more} more are asked for, and it keeps at most {most}"));
        };
        found = found.saturating_add(bytes);
        given_up.push(of);
    }
    Ok(given_up)
}

/// A refusal that the owner of a port was told, with the name of the relay.
type ReportedRefusal = (PortId, String, NotKept);

/// The refusals of a node: its own as a relay, and those that concern its ports.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Wanted samples that this relay does not keep.
    not_kept: Vec<NotKept>,
    /// Refusals of relays that the owners of this node's ports were told.
    told: BTreeSet<ReportedRefusal>,
}

impl Refusals {
    /// This relay keeps no samples of a topic, or of one publisher of it. Returns the refusal to report, if it is new.
    pub(crate) fn refuse(&mut self, topic: &str, publisher: Option<&str>, because: String) -> Option<NotKept> {
        let because = because.chars().take(LONGEST).collect(); // other nodes accept no longer ones
        let refusal = NotKept { topic: topic.to_owned(), publisher: publisher.map(str::to_owned), because };
        if self.not_kept.contains(&refusal) {
            return None;
        }
        self.keeps_now(topic, publisher); // an earlier reason is replaced: only one is told
        if self.not_kept.len() < MOST_REMEMBERED {
            self.not_kept.push(refusal.clone());
        }
        Some(refusal)
    }

    /// These samples can be kept now: removes their refusal.
    pub(crate) fn keeps_now(&mut self, topic: &str, publisher: Option<&str>) {
        self.not_kept.retain(|refusal| !(refusal.topic == topic && refusal.publisher.as_deref() == publisher));
    }

    /// The topics and publishers of refusals that concern one publisher.
    pub(crate) fn of_publishers(&self) -> Vec<(String, String)> {
        let named = |refusal: &NotKept| Some((refusal.topic.clone(), refusal.publisher.clone()?));
        self.not_kept.iter().filter_map(named).collect()
    }

    /// The refusals that still hold, as many of them as are announced.
    pub(super) fn standing(&mut self, directory: &Directory) -> Vec<NotKept> {
        let wanted = |port: &PortInfo| {
            let elsewhere = port.qos.pull.as_ref().is_some_and(|pull| pull.place.relays().next().is_some());
            elsewhere || port.pull == PullRole::Keeps
        };
        let holds = |refusal: &NotKept| {
            let publisher = refusal.publisher.as_ref().is_none_or(|name| directory.port_named(name).is_some());
            let mut ports = directory.nodes().flat_map(|node| node.ports.values());
            publisher && ports.any(|port| wanted(port) && refusal.is_of(&port.topic))
        };
        self.not_kept.retain(holds);
        self.not_kept.iter().take(MOST_NOT_KEPT).cloned().collect()
    }

    /// A port of this node closed.
    pub(crate) fn closed(&mut self, port: PortId) {
        self.told.retain(|(of, ..)| *of != port);
    }

    /// News of a node: the events for owners of ports of the node `own`, about samples that the other node does not keep, and those that it
    /// keeps now. For news of `own` itself, the refusals of all relays are looked at.
    pub(crate) fn heard(&mut self, node: NodeId, own: &Document, directory: &Directory) -> Vec<Event> {
        let mut events = Vec::new();
        for there in directory.nodes().filter(|there| node == own.node || there.node == node) {
            self.heard_refusals(there, own, &mut events);
        }
        if let Some(there) = directory.node(node) {
            self.heard_grants(there, (own, directory), &mut events);
        }
        events
    }

    fn heard_refusals(&mut self, there: &Document, own: &Document, events: &mut Vec<Event>) {
        let refusals = || there.relay.iter().flat_map(|relay| &relay.not_kept);
        if refusals().next().is_none() {
            return;
        }
        let wants = |port: &PortInfo| {
            port.qos.pull.as_ref().is_some_and(|pull| pull.place.relays().any(|name| there.is_relay(name)))
        };
        for (id, port) in own.ports.iter().filter(|(_, port)| wants(port)) {
            for refusal in refusals().filter(|refusal| refusal.is_of(&port.topic)) {
                let (name, relay, because) = (port.name.clone(), there.name.clone(), refusal.to_string());
                let remembered = self.told.len() < MOST_REMEMBERED;
                if remembered && self.told.insert((*id, relay.clone(), refusal.clone())) {
                    events.push(Event::NotKept { port: name, relay, because });
                }
            }
        }
    }

    /// Reports samples that a relay keeps now and refused before.
    fn heard_grants(&mut self, there: &Document, (own, directory): (&Document, &Directory), events: &mut Vec<Event>) {
        let Some(load) = &there.relay else { return };
        let same = |a: &NotKept, b: &NotKept| (&a.topic, &a.publisher) == (&b.topic, &b.publisher);
        let stands = |told: &NotKept| load.not_kept.iter().any(|refusal| same(told, refusal));
        let told = std::mem::take(&mut self.told).into_iter();
        let over = |(_, relay, refusal): &ReportedRefusal| *relay == there.name && !stands(refusal);
        let (over, told): (BTreeSet<ReportedRefusal>, BTreeSet<ReportedRefusal>) = told.partition(over);
        self.told = told;
        let mut last = None;
        for (id, relay, NotKept { topic, publisher, .. }) in over {
            // Samples of a publisher that is gone are not kept either.
            let is_there = publisher.as_ref().is_none_or(|name| directory.port_named(name).is_some());
            let what = (id, topic, publisher);
            if let Some(port) = own.ports.get(&id).filter(|_| is_there && last.as_ref() != Some(&what)) {
                events.push(Event::KeptNow { port: port.name.clone(), relay, publisher: what.2.clone() });
            }
            last = Some(what);
        }
    }
}

/// A buffer that is kept.
pub(crate) struct Buffer {
    subscriber_port: Arc<SubscriberPort<Untyped>>,
    port: PortId,
}

impl Control {
    /// Begins the buffers that ports want kept here, and ends those that no port wants.
    pub(super) fn look_after_buffers(&mut self, now: Instant) {
        if self.relay.is_relay() {
            let wanted = wanted(&self.state.document(), &self.state.directory());
            let actions = self.relay.look_at_buffers(wanted, now);
            self.carry_out_hosting(actions);
        }
    }

    pub(super) fn begin_buffer(&mut self, key: Buffered, limits: PullBuffer) {
        let number = self.state.next_port();
        let name = format!("/{}/keeps{}", self.state.settings.name, number.0);
        let info = keeper(&key, name, limits);
        if let Err(why) = self.state.reserve(&info) {
            return self.keep_not(&key.0, None, why.to_string());
        }
        let (events, memory) = (self.state.events.clone(), self.state.memory.clone());
        let subscriber_port =
            Arc::new(SubscriberPort::new(info.clone(), Sink::callback(|_| {}), false, false, events, &memory));
        self.state.add_subscriber(number, subscriber_port.clone());
        crate::port::LOCAL.subscribers().insert(PortRef { node: self.state.id, port: number }, subscriber_port.clone());
        self.relay.refusals.keeps_now(&key.0, None);
        self.relay.buffers.begin(key, Buffer { subscriber_port, port: number });
        self.own_ports_added(vec![(number, info)]);
    }

    pub(super) fn end_buffer(&mut self, key: &Buffered) {
        let Some(buffer) = self.relay.buffers.end(key) else { return };
        buffer.subscriber_port.close();
        crate::port::LOCAL.subscribers().remove(&PortRef { node: self.state.id, port: buffer.port });
        self.state.remove_subscriber(buffer.port, || ());
        self.own_port_removed(buffer.port);
    }

    /// The histories that ports of this node keep for others.
    pub(super) fn kept_for_others(&self) -> impl Iterator<Item = Arc<Histories>> {
        let keeps = |subscriber_port: &Arc<dyn AnySubscriber>| subscriber_port.info().pull == PullRole::Keeps;
        self.state
            .subscriber_ports()
            .into_iter()
            .filter(move |(_, i)| keeps(i))
            .filter_map(|(_, i)| i.histories().cloned())
    }

    /// Makes room for the samples of one more publisher, if need be: gives up those of publishers that are gone, the longest silent first.
    ///
    /// # Errors
    /// The bytes that are kept, and their limit, if giving up samples would not make enough room. Then none are given up.
    pub(super) fn make_room_for(&self, histories: &Histories, publisher: Identity) -> Result<(), String> {
        let Some(most) = self.relay.kept_bytes().filter(|_| !histories.knows(publisher)) else { return Ok(()) };
        let of = |kept: Arc<Histories>| kept.most_bytes().saturating_mul(kept.publishers() as u64);
        let kept = self.kept_for_others().map(of).fold(0, u64::saturating_add);
        let gone = std::iter::once_with(|| self.kept_of_the_gone()).flatten();
        let gone = gone.map(|(kept, gone)| (kept.most_bytes(), (kept, gone)));
        let given_up = make_room((kept, histories.most_bytes(), most), gone)?;
        given_up.iter().for_each(|(kept, gone)| kept.forget(*gone));
        Ok(())
    }

    /// Publishers that are gone, or have started anew, whose samples are kept for others; the longest silent first.
    fn kept_of_the_gone(&self) -> Vec<(Arc<Histories>, Identity)> {
        let directory = self.state.directory();
        let is_here = |of: &Identity| {
            let there = directory.node(of.node).filter(|there| there.incarnation == of.incarnation);
            there.is_some_and(|there| there.ports.contains_key(&of.port))
        };
        let mut gone = Vec::new();
        for histories in self.kept_for_others() {
            let kept = histories.heard().into_iter().filter(|(_, of)| !is_here(of));
            gone.extend(kept.map(|(heard, of)| (heard, histories.clone(), of)));
        }
        gone.sort_by_key(|(heard, ..)| *heard);
        gone.into_iter().map(|(_, histories, of)| (histories, of)).collect()
    }

    /// `true` if a channel is wanted. A relay without room for its samples does not want it: it would only discard them.
    pub(super) fn may_keep(&mut self, publisher: PortRef, offered: &PortInfo, subscriber: PortRef) -> bool {
        let subscriber_port = self
            .state
            .subscriber_port(subscriber.port)
            .filter(|subscriber_port| subscriber_port.info().pull == PullRole::Keeps);
        let Some(subscriber_port) = subscriber_port.filter(|_| self.relay.is_relay()) else { return true };
        let Some(histories) = subscriber_port.histories() else { return true };
        let there = self.state.directory().node(publisher.node).map(|there| (there.incarnation, there.clock.clone()));
        let Some((incarnation, clock)) = there else { return true };
        let identity = Identity { node: publisher.node, port: publisher.port, incarnation };
        match self.make_room_for(histories, identity) {
            Ok(()) => {
                histories.admit(identity, offered, &clock); // takes the room: other requests may come before this channel opens
                self.relay.refusals.keeps_now(&subscriber_port.info().topic, Some(&offered.name));
            }
            Err(why) => {
                self.keep_not(&subscriber_port.info().topic, Some(&offered.name), why);
                return false;
            }
        }
        true
    }

    /// This relay keeps no samples of a topic, or of one publisher of it: warns here, and tells other nodes with its load.
    pub(super) fn keep_not(&mut self, topic: &str, publisher: Option<&str>, because: String) {
        if let Some(refusal) = self.relay.refusals.refuse(topic, publisher, because) {
            self.warn(refusal.to_string());
        }
    }

    /// Considers refused publishers again: there may be room for them now.
    pub(super) fn consider_refused(&mut self) {
        for (topic, named) in self.relay.refusals.of_publishers() {
            let found = self.state.directory().port_named(&named).map(|(key, offered)| (key, offered.clone()));
            let Some((key, offered)) = found else { continue };
            let publisher = PortRef { node: key.node, port: key.port };
            for (port, subscriber_port) in self.state.subscriber_ports() {
                if subscriber_port.info().pull == PullRole::Keeps && subscriber_port.info().topic == topic {
                    self.consider(publisher, &offered, PortRef { node: self.state.id, port }, subscriber_port.info());
                }
            }
        }
    }

    /// News of a node: reports the samples that it does not keep for ports of this node, and those that it keeps now.
    pub(super) fn tell_of_refusals(&mut self, node: NodeId) {
        let events = self.relay.refusals.heard(node, &self.state.document(), &self.state.directory());
        events.into_iter().for_each(|event| self.state.events.push(event));
    }
}

/// The subscriber that fills a buffer: it takes what publishers offer, and their histories where they are durable.
fn keeper((topic, partition, ..): &Buffered, name: String, limits: PullBuffer) -> PortInfo {
    let qos = Qos {
        durability: Durability::TransientLocal,
        history: limits.samples,
        max_message: limits.bytes.min(LARGEST) as u32,
        partition: partition.clone(),
        pull: Some(PullBuffer { place: Place::Subscriber, ..limits }),
        fallback: vec![PolicyName::Reliability, PolicyName::Durability, PolicyName::Ownership],
        ..Qos::default()
    };
    PortInfo {
        name,
        direction: Direction::Subscriber,
        topic: topic.clone(),
        message: Untyped::description().as_ref().clone(),
        qos,
        carriers: carrier::Name::BUILT_IN.to_vec(),
        answers: None,
        pull: PullRole::Keeps,
        foreign: None,
    }
}

/// Most buffers at once.
pub(super) const MOST: usize = 64;
/// Most characters of a reason.
const LONGEST: usize = 200;
/// Refusals that are remembered, by a relay and by the nodes that they concern. Only the first few of them are announced.
const MOST_REMEMBERED: usize = 1024;
/// The largest message there is.
const LARGEST: u64 = 1 << 30;
