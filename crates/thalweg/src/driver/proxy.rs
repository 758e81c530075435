//! Proxies of this node's channels: the proxy that each subscriber wants, and its effect at either end.
//!
//! A proxy moves while samples flow. The subscriber owns the move: a second channel opens beside the present one, and takes over when it
//! has caught up.

use super::channels::has_history;
use super::control::{Command, Control};
use super::entries::Entry;
use super::handshake_client::{ClientHandshake, UNWATCHED};
use super::keep::refuse_names;
use super::matching::{Candidate, Pair, stated};
use super::moves::{self, Failed, GivenUp, LONGEST_BOTH_OPEN, Open, Settled, fell_back, settled};
use super::priority::{End, Side};
use super::reader::ServedBy;
use crate::carrier;
use crate::channel::Channel;
use crate::channel::inbound::Inbound;
use crate::channel::proxy::handover::Handover;
use crate::channel::proxy::{Provenance, Proxied, Proxy, ProxyChanges, Role, Selection, SharedHandover};
use crate::control::{NodeId, PortInfo};
use crate::handshake::{Accepted, Request};
use crate::port::{AnyPublisher, AnySubscriber};
use linux::poll::Readiness;
use qos::Place;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The new channel of a move, open beside the old one.
pub(crate) struct Passing {
    new: Arc<Channel>,
    subscriber_port: Arc<dyn AnySubscriber>,
    shared_handover: Arc<SharedHandover>,
    /// The first sample that the new channel has to bring.
    first: u64,
}

impl moves::Passing for Passing {
    fn is_taken_over(&self) -> bool {
        self.shared_handover.is_taken_over()
    }
    fn keep_old(&self) -> bool {
        self.shared_handover.keep_old()
    }
    fn is_due(&self, came: u64) -> bool {
        came >= self.first
    }
}

/// A channel that begins when the one of a silent relay has ended, and the proxy that was asked for.
pub(crate) type Leaving = (Box<Inbound>, Proxy);

/// The moves of this node's channels.
pub(crate) type Moves = moves::Moves<Passing, Leaving>;

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// The proxy that is wanted of a publisher: the one that an administrator has set, and otherwise that of the subscriber's QoS.
    fn proxy_of(&mut self, publisher: &str, subscriber: &PortInfo) -> Proxy {
        let mut told = Vec::new();
        let proxy = self.matching.proxy_of(publisher, subscriber, &self.state.directory(), &mut told);
        self.act(told);
        proxy
    }

    /// The proxy that is wanted at a subscriber's end. What is to be said about it is said when it is used.
    pub(super) fn proxy_asked(&self, end: &End) -> Option<Proxy> {
        let subscribers = self.state.subscriber_ports();
        let (_, subscriber) = subscribers.iter().find(|(id, _)| *id == end.port)?;
        Some(self.matching.proxy_of(&end.other, subscriber.info(), &self.state.directory(), &mut Vec::new()))
    }

    /// The proxy that the subscriber's QoS states.
    fn stated(&mut self, publisher: &str, subscriber: &PortInfo) -> Proxy {
        let mut told = Vec::new();
        let proxy = stated(publisher, subscriber, &self.state.directory(), &mut told);
        self.act(told);
        proxy
    }

    /// At the publisher: the scaling that it applies to a requested flow; `None`: none.
    pub(super) fn scaled_for(&self, request: &Request, publisher_port: &dyn AnyPublisher) -> Option<Provenance> {
        let proxy = request.proxy.as_ref().filter(|proxy| proxy.place != Place::Subscriber && !proxy.is_nothing())?;
        Some(provenance(proxy, publisher_port.last_seq(), self.state.id))
    }

    /// At the subscriber: an accepted channel with the scaling that remains for this end. A publisher that knows no proxies scales nothing:
    /// then this end does.
    pub(super) fn scaled(&self, channel: Channel, asked: &Proxy, accepted: &Accepted) -> Channel {
        match accepted.scaled {
            Some(provenance) => {
                let place = asked.place.clone();
                channel.scaled(Selection::ALL, Some(Proxied { place, provenance }))
            }
            // A picture is scaled by a node that has confirmed it, or by this node.
            None if asked.selection.is_all() && (asked.picture.is_none() || asked.place != Place::Subscriber) => {
                channel
            }
            None => {
                let provenance = provenance(asked, accepted.last_seq, self.state.id);
                channel.scaled(asked.selection, Some(Proxied { place: Place::Subscriber, provenance }))
            }
        }
    }

    /// Like [`Control::scaled`], for a channel within this process, which is scaled as samples are handed over.
    pub(super) fn scaled_local(&self, channel: Channel, asked: &Proxy, last_seq: u64) -> Channel {
        if asked.selection.is_all() {
            return channel;
        }
        let place = if asked.place == Place::Subscriber { Place::Subscriber } else { Place::Publisher };
        let node = if place == Place::Subscriber { channel.subscriber.node } else { channel.publisher.node };
        let proxied = Proxied { place, provenance: provenance(asked, last_seq, node) };
        channel.scaled(asked.selection, Some(proxied))
    }

    /// Sets the proxy of one channel for an administrator, now and for when the channel is opened again. An open channel moves.
    pub(super) fn set_proxy(
        &mut self,
        publisher: &str,
        subscriber: &str,
        changes: &ProxyChanges,
    ) -> Result<(), String> {
        let names = (publisher.to_owned(), subscriber.to_owned());
        if let Some(why) = refuse_names([publisher, subscriber]) {
            return Err(why);
        }
        let subscriber_ports = self.state.subscriber_ports();
        let Some((port, subscriber_port)) =
            subscriber_ports.iter().find(|(_, subscriber_port)| subscriber_port.info().name == subscriber)
        else {
            return Err(format!("this node has no subscriber {subscriber}"));
        };
        if self.is_hosted_port(*port) {
            return Err(format!("{subscriber} takes the stream for those whom it serves: scale their channels"));
        }
        let (said, known) = self.matching.proxies_said(&names);
        if said >= MOST_KEPT && !known {
            return Err(format!("proxies of {MOST_KEPT} channels are kept already: take some back (every=default)"));
        }
        let default = self.stated(publisher, subscriber_port.info());
        let proxy = changes.apply(self.proxy_of(publisher, subscriber_port.info()), &default);
        self.matching.set_proxy(names, Some(proxy).filter(|proxy| *proxy != default));
        let pair = self.matching.between(publisher, subscriber);
        pair.into_iter().for_each(|pair| self.rescale(pair)); // without a channel, it is used when one opens
        Ok(())
    }

    /// Moves a channel if its wanted proxy has changed.
    fn rescale(&mut self, pair: Pair) {
        let Some(wanted) = self.matching.get(&pair) else { return };
        let (offered, asked, before) = (wanted.publisher.clone(), wanted.subscriber.clone(), wanted.proxy.clone());
        let proxy = self.proxy_of(&offered.name, &asked);
        if before == proxy {
            return;
        }
        self.give_up_move(pair);
        let ways = self.ways(pair, &offered, &asked, &proxy);
        self.matching.has_proxy(pair, proxy, ways);
        if self.open_channel(&pair).is_some() {
            self.begin_move(pair);
        }
    }

    /// Opens the channel that is to take over.
    fn begin_move(&mut self, pair: Pair) {
        let Some(wanted) = self.matching.get(&pair) else { return };
        let mut ways = wanted.candidates.clone();
        let is_local = self.open_channel(&pair).is_some_and(|open| open.carrier == carrier::Name::Local);
        if is_local && ways.first().is_some_and(|way| way.carrier == carrier::Name::Local) {
            return self.try_local(pair);
        }
        ways.retain(|way| way.carrier != carrier::Name::Local); // samples of a local channel pass no gate
        let waits = self.has_history_under_way(&pair);
        let way = self.moves.begin(pair, ways, waits, Instant::now());
        self.try_move(pair, way);
    }

    /// Tries this way of a move, if there is one.
    fn try_move(&mut self, pair: Pair, way: Option<Candidate>) {
        let (Some(wanted), Some(way)) = (self.matching.get(&pair), way) else { return };
        let patience = Some(self.moves.patience(&pair));
        let handshake = ClientHandshake::start(&self.state, pair, wanted, &way, patience);
        let watched =
            handshake.map(|handshake| self.watch(Entry::ClientHandshake(Box::new(handshake)), Readiness::OUT));
        match watched {
            Ok(Some(_)) => {}
            Ok(None) => self.move_failed(pair, UNWATCHED),
            Err(why) => self.move_failed(pair, &why),
        }
    }

    /// One way of a move failed: tries the next one, or all again later. The present channel continues.
    pub(super) fn move_failed(&mut self, pair: Pair, why: &str) {
        if self.moves.leaves(&pair) {
            return self.leaving_failed(pair);
        }
        let Some(wanted) = self.matching.get(&pair) else { return self.moves.forget(&pair) };
        let open = self.open_channel(&pair).and_then(|open| place(open)).cloned().unwrap_or_default();
        match self.moves.failed(pair, &open, wanted.candidates.clone(), Instant::now()) {
            Failed::Try(way) => self.try_move(pair, Some(way)),
            Failed::Later { tell: true } => {
                let (publisher, subscriber) = (&wanted.publisher.name, &wanted.subscriber.name);
                let place = &wanted.proxy.place;
                self.warn(format!("{publisher} to {subscriber}: its proxy is not at {place} yet: {why}"));
            }
            Failed::Later { tell: false } | Failed::Nothing => {}
        }
    }

    /// The channel that is to take over is open, and brings the samples after `after`. Both channels deliver through one handover until it
    /// has taken over.
    pub(super) fn begin_passage(&mut self, pair: Pair, inbound: Inbound, after: u64) {
        if !self.moves.contains(&pair) || !self.matching.is_wanted(&pair) {
            return;
        }
        let Some(subscriber_port) = self.state.subscriber_port(pair.1.port) else { return };
        let Some(old) = self.open_channel(&pair).cloned() else {
            // The old channel ended meanwhile: the new one takes its place.
            self.moves.forget(&pair);
            return self.begin(pair, inbound);
        };
        let Some(wanted) = self.matching.get(&pair) else { return };
        let selection = wanted_of(&old);
        let last = came_by(&old);
        let depth = wanted.subscriber.qos.queue.limit() as usize;
        let state = self.state.clone();
        let taken_over = Box::new(move || state.command(Command::Moved(pair)));
        let handover = Handover::new(selection, last, depth.max(LEAST_HELD));
        let handover = handover.with_new_selection(wanted_of(&inbound.channel), after);
        let (has_history, account) = (has_history(wanted, &inbound.channel), inbound.channel.account.clone());
        let shared_handover = Arc::new(SharedHandover::new(handover, has_history, account, taken_over));
        inbound.channel.gate.shut(Role::New, inbound.subscriber_port.as_ref(), shared_handover.clone());
        old.gate.shut(Role::Old, inbound.subscriber_port.as_ref(), shared_handover.clone());
        let new = inbound.channel.clone();
        let first = wanted_of(&new).first_after(after);
        self.moves.passes(pair, Passing { new, subscriber_port, shared_handover, first }, Instant::now());
        self.serve_inbound(pair, inbound);
    }

    /// Gives a receive half to its reader thread.
    pub(super) fn serve_inbound(&mut self, pair: Pair, inbound: Inbound) {
        let Some(subscriber_port) = self.state.subscriber_port(pair.1.port) else { return };
        let channel = inbound.channel.clone();
        self.expect_samples_of(&channel, subscriber_port.as_ref());
        let class = self.matching.get(&pair).map_or(qos::Class::Normal, |wanted| wanted.publisher.qos.class);
        match subscriber_port.adopt(inbound) {
            Some(inbound) => self.state.readers.serve(inbound, class),
            None => self.state.readers.served_elsewhere(&channel, ServedBy::Waiter),
        }
    }

    /// A move is said to be over. The message may arrive late, when the next move has begun.
    pub(super) fn moved(&mut self, pair: Pair) {
        if self.moves.is_over(&pair) {
            self.proxy_moved(pair);
        }
    }

    /// The new channel has taken over: the old one ends.
    fn proxy_moved(&mut self, pair: Pair) {
        let Some(Passing { new, subscriber_port, shared_handover, .. }) = self.moves.finish(pair) else { return };
        if !self.matching.is_wanted(&pair) {
            return;
        }
        let old = self.open_channel(&pair).cloned();
        if let Some(late) = shared_handover.late() {
            new.gate.wait_for_history(late.clone());
            self.fetch_history(pair, &new, subscriber_port, late.clone());
        }
        self.opened(pair, new.clone());
        if let Some(old) = old {
            self.drop_channel(&old); // after the new one is there: otherwise its publisher would seem to have left
            old.cut();
        }
        self.prioritise_opened(Side::Subscriber, &new);
        let wanted = self.matching.get(&pair).map(|wanted| wanted.proxy.clone()).unwrap_or_default();
        self.settle(pair, &wanted);
    }

    /// A channel of a move ended. `true`: the new one did, and the old one continues.
    pub(super) fn ended_in_move(&mut self, channel: &Arc<Channel>) -> bool {
        let pair = (channel.publisher, channel.subscriber);
        let Some(Passing { new, shared_handover, .. }) = self.moves.passing(&pair) else { return false };
        if !Arc::ptr_eq(new, channel) {
            if self.is_open(channel) {
                shared_handover.end_old(came_by(channel));
                self.proxy_moved(pair);
            }
            return false;
        }
        if !shared_handover.keep_old() {
            self.proxy_moved(pair); // `Command::Moved` is in the queue: this channel ended as any other
            return false;
        }
        self.move_failed(pair, "its channel ended before it had taken over");
        true
    }

    /// The channel that was to move has ended: gives up its handshake. The ordinary ways, which are the same, are tried.
    pub(super) fn give_up_handshake(&mut self, pair: Pair) {
        if self.moves.is_in_handshake(&pair) {
            self.give_up_move(pair);
        }
    }

    /// Ends the handshake or the new channel of a move, if there is one.
    pub(super) fn give_up_move(&mut self, pair: Pair) {
        match self.moves.give_up(pair) {
            GivenUp::Over => return self.proxy_moved(pair), // `Command::Moved` is in the queue
            GivenUp::Nothing => return,
            GivenUp::Handshake => {}
            GivenUp::Passing(Passing { new, .. }) => {
                self.drop_channel(&new);
                new.cut();
            }
        }
        let in_handshake = |entry: &Entry| matches!(entry, Entry::ClientHandshake(d) if d.pair == pair && d.moves);
        if let Some(index) = self.descriptors.position(in_handshake) {
            self.unwatch(index);
        }
    }

    /// A channel opened as `asked`. If another proxy is wanted meanwhile, the channel moves again. A channel that fell back moves to its
    /// relay as soon as that is there.
    pub(super) fn settle(&mut self, pair: Pair, asked: &Proxy) {
        let (Some(wanted), Some(channel)) = (self.matching.get(&pair), self.open_channel(&pair)) else { return };
        match settled(asked, &wanted.proxy, place(channel)) {
            Settled::Move => return self.begin_move(pair),
            Settled::Stay => return,
            Settled::Wait => {}
        }
        let (publisher, subscriber) = (&channel.publisher_name, &channel.subscriber_name);
        let relay = |at: &&Place| at.relays().next().is_some();
        let by = place(channel).filter(relay).map_or("the publisher".to_owned(), Place::to_string);
        let preferred = wanted.proxy.place.relays().next().unwrap_or_default();
        let text = format!("{publisher} to {subscriber}: comes from {by} as long as relay:{preferred} is not there");
        if self.wait_for_relay(pair) {
            self.warn(text);
        }
    }

    /// Has an open channel wait for a relay that is preferred to the one that serves it. `true`: the wait begins.
    fn wait_for_relay(&mut self, pair: Pair) -> bool {
        let (Some(wanted), Some(channel)) = (self.matching.get(&pair), self.open_channel(&pair)) else { return false };
        fell_back(&wanted.proxy, place(channel)) && self.moves.wait_for_relay(pair, Instant::now())
    }

    /// `true` if the history of an open channel is still arriving: a move now would lose the rest of it.
    fn has_history_under_way(&self, pair: &Pair) -> bool {
        self.open_channel(pair).is_some_and(|open| open.gate.has_history_under_way())
    }

    /// Looks at moves that are under way. Without new samples nothing else shows that the old channel has brought all.
    fn look_at_passages(&mut self, now: Instant) {
        let came = |pair: &Pair| Some((*pair, came_by(self.open_channel(pair)?)));
        let came: BTreeMap<Pair, u64> = self.moves.both_open().filter_map(came).collect();
        for (pair, came) in self.moves.look(now, &came) {
            if let Some(passing) = self.moves.passing(&pair) {
                passing.shared_handover.nothing_comes(came, linux::clock::monotonic_ns());
            }
        }
        // The new channel does not catch up: the old one continues, and the move is tried again later.
        for pair in self.moves.laggards(now) {
            if let Some(new) = self.moves.passing(&pair).map(|passing| passing.new.clone()) {
                self.drop_channel(&new);
                new.cut();
            }
            self.move_failed(pair, &format!("what comes by it lags (looked at for {LONGEST_BOTH_OPEN:?})"));
        }
    }

    /// Tries the moves again that are due.
    pub(super) fn retry_moves(&mut self, now: Instant) {
        self.look_at_passages(now);
        for pair in self.moves.due(now) {
            let Some(wanted) = self.matching.get(&pair) else {
                self.moves.forget(&pair);
                continue;
            };
            let (offered, asked, proxy) = (wanted.publisher.clone(), wanted.subscriber.clone(), wanted.proxy.clone());
            let open = self.where_open(&pair, &proxy);
            let ways = self.ways(pair, &offered, &asked, &proxy);
            self.matching.has_ways(pair, ways.clone());
            let way = self.moves.retry(pair, ways, (open.as_ref(), &proxy.place), now);
            self.try_move(pair, way);
        }
    }

    /// The place of the open channel, and its difference from the wanted proxy; `None`: the channel is not open.
    fn where_open(&self, pair: &Pair, proxy: &Proxy) -> Option<Open> {
        let open = self.open_channel(pair)?;
        let picture = open.provenance().and_then(|provenance| provenance.picture);
        let differs = (wanted_of(open), picture) != (proxy.selection, proxy.picture);
        Some(Open { at: place(open).cloned(), differs, has_history: self.has_history_under_way(pair) })
    }
}

/// Leaving a relay that gives no sign of life. The new way is opened first. Without one the relay's channel continues, and the attempt has
/// lost nothing.
impl Control {
    /// Looks for a way past the relay that serves this channel, unless a move is under way.
    pub(super) fn leave(&mut self, channel: &Arc<Channel>) {
        let pair = (channel.publisher, channel.subscriber);
        let Some(wanted) = self.matching.get(&pair) else { return };
        let is_open = self.is_open(channel);
        if !is_open || self.moves.is_under_way(&pair) {
            return;
        }
        let (offered, asked, proxy) = (wanted.publisher.clone(), wanted.subscriber.clone(), wanted.proxy.clone());
        let at = place(channel).cloned();
        let mut ways = self.ways(pair, &offered, &asked, &proxy);
        ways.retain(|way| Some(&way.place) != at.as_ref() && way.carrier != carrier::Name::Local);
        let way = self.moves.leave(pair, ways);
        self.try_move(pair, way);
    }

    /// One way past a silent relay failed: tries the next one. Without one the channel waits for its relay, and all ways are tried again.
    fn leaving_failed(&mut self, pair: Pair) {
        match self.moves.leaving_failed(pair) {
            Some(way) => self.try_move(pair, Some(way)),
            None => drop(self.wait_for_relay(pair)),
        }
    }

    /// The other way is open: the relay's channel ends. The new channel continues after the last sample that the old channel's thread
    /// delivers, so it begins when that thread is done.
    pub(super) fn leave_for(&mut self, pair: Pair, inbound: Inbound, asked: &Proxy) {
        let Some(old) = self.open_channel(&pair).cloned() else {
            self.moves.forget(&pair);
            self.begin(pair, inbound);
            return self.settle(pair, asked);
        };
        self.moves.arrives(pair, (Box::new(inbound), asked.clone()));
        old.cut();
    }

    /// The relay's channel has ended: the channel that was opened in its place begins. `false`: none was opened.
    pub(super) fn arrive(&mut self, pair: Pair) -> bool {
        let Some((mut inbound, asked)) = self.moves.arrived(pair) else { return false };
        let delivered = self.resume_after(&pair, inbound.channel.incarnation);
        inbound.resume_after(delivered);
        self.begin(pair, *inbound);
        self.settle(pair, &asked);
        true
    }
}

fn provenance(proxy: &Proxy, last_seq: u64, node: NodeId) -> Provenance {
    let Proxy { selection, picture, .. } = *proxy;
    Provenance { selection, picture, from: selection.first_after(last_seq), node }
}

/// The last sample that a channel brought.
pub(super) fn came_by(channel: &Channel) -> u64 {
    channel.counters.last_seq.load(Ordering::Relaxed).max(channel.gate.last())
}

/// The selection of samples that a channel brings.
fn wanted_of(channel: &Channel) -> Selection {
    channel.provenance().map_or(Selection::ALL, |provenance| provenance.selection)
}

fn place(channel: &Channel) -> Option<&Place> {
    channel.proxied.as_ref().map(|proxied| &proxied.place)
}

/// Most pairs of ports for which a proxy set by an administrator is kept.
const MOST_KEPT: usize = 4096;
/// Samples that a move can hold even if the queue is less deep.
const LEAST_HELD: usize = 1024;
