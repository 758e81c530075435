//! Proxies of this node's channels: the proxy that each subscriber wants, and its effect at either end.

mod moves;

pub(crate) use moves::Moves;

use super::control::Control;
use super::keep::refuse_names;
use super::matching::{Pair, stated};
use crate::carrier;
use crate::channel::Channel;
use crate::channel::inbound::Inbound;
use crate::channel::proxy::{Provenance, Proxied, Proxy, ProxyChanges, Selection};
use crate::control::{NodeId, PortInfo};
use crate::handshake::{Accepted, Request};
use crate::port::AnyOutlet;
use moves::place;
use qos::Place;
use std::sync::Arc;

/// Most pairs of ports for which a proxy set by an administrator is kept.
const MOST_KEPT: usize = 4096;

impl Control {
    /// The proxy that is wanted of a publisher: the one that an administrator has set, and otherwise that of the subscriber's QoS.
    fn proxy_of(&mut self, publisher: &str, subscriber: &PortInfo) -> Proxy {
        let mut told = Vec::new();
        let proxy = self.matching.proxy_of(publisher, subscriber, &self.state.directory(), &mut told);
        self.act(told);
        proxy
    }

    /// The proxy that the subscriber's QoS states.
    fn stated(&mut self, publisher: &str, subscriber: &PortInfo) -> Proxy {
        let mut told = Vec::new();
        let proxy = stated(publisher, subscriber, &self.state.directory(), &mut told);
        self.act(told);
        proxy
    }

    /// At the publisher: the scaling that it applies to a requested flow; `None`: none.
    pub(super) fn scaled_for(&self, request: &Request, outlet: &dyn AnyOutlet) -> Option<Provenance> {
        let proxy = request.proxy.as_ref().filter(|proxy| proxy.place != Place::Subscriber && !proxy.is_nothing())?;
        Some(provenance(proxy, outlet.last_seq(), self.state.id))
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
        let inlets = self.state.inlets();
        let Some((port, inlet)) = inlets.iter().find(|(_, inlet)| inlet.info().name == subscriber) else {
            return Err(format!("this node has no subscriber {subscriber}"));
        };
        if self.is_hosted_port(*port) {
            return Err(format!("{subscriber} takes the stream for those whom it serves: scale their channels"));
        }
        let (said, known) = self.matching.proxies_said(&names);
        if said >= MOST_KEPT && !known {
            return Err(format!("proxies of {MOST_KEPT} channels are kept already: take some back (every=default)"));
        }
        let default = self.stated(publisher, inlet.info());
        let proxy = changes.apply(self.proxy_of(publisher, inlet.info()), &default);
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
