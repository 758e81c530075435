//! Proxies of this node's channels: what each subscriber wants, and what becomes of it at either end.

mod leave;
mod moves;

pub(crate) use moves::Moves;

use super::control::Control;
use super::keep::refuse_names;
use super::matching::{Pair, stated};
use crate::channel::Channel;
use crate::channel::proxy::{Provenance, Proxied, Proxy, ProxyChanges, Selection};
use crate::control::{NodeId, PortInfo};
use crate::handshake::{Accepted, Request};
use crate::port::AnyOutlet;
use qos::Place;

/// Pairs of ports for which an administrator's word is kept.
const MOST_KEPT: usize = 4096;

impl Control {
    /// What is wanted of a publisher: as an administrator said, else as the subscriber's QoS says.
    fn proxy_of(&mut self, publisher: &str, subscriber: &PortInfo) -> Proxy {
        let mut told = Vec::new();
        let proxy = self.matching.proxy_of(publisher, subscriber, &self.state.directory(), &mut told);
        self.act(told);
        proxy
    }

    /// As the subscriber's QoS says.
    fn stated(&mut self, publisher: &str, subscriber: &PortInfo) -> Proxy {
        let mut told = Vec::new();
        let proxy = stated(publisher, subscriber, &self.state.directory(), &mut told);
        self.act(told);
        proxy
    }

    /// At the publisher: what a flow that was asked for is told to be.
    pub(super) fn scaled_for(&self, request: &Request, outlet: &dyn AnyOutlet) -> Option<Provenance> {
        let proxy = request.proxy.as_ref().filter(|proxy| proxy.place != Place::Subscriber && !proxy.is_nothing())?;
        Some(provenance(proxy, outlet.last_seq(), self.state.id))
    }

    /// At the subscriber: what a channel that was accepted does, and what is left to do at this end. A publisher that
    /// scales nothing, because it knows of no proxies, has it done here.
    pub(super) fn scaled(&self, channel: Channel, asked: &Proxy, accepted: &Accepted) -> Channel {
        match accepted.scaled {
            Some(provenance) => {
                let place = asked.place.clone();
                channel.scaled(Selection::ALL, Some(Proxied { place, provenance }))
            }
            // A picture is made smaller by who says so, or by this node.
            None if asked.selection.is_all() && (asked.picture.is_none() || asked.place != Place::Subscriber) => {
                channel
            }
            None => {
                let provenance = provenance(asked, accepted.last_seq, self.state.id);
                channel.scaled(asked.selection, Some(Proxied { place: Place::Subscriber, provenance }))
            }
        }
    }

    /// As [`Control::scaled`], for a channel within this process, which is scaled as samples are handed over.
    pub(super) fn scaled_local(&self, channel: Channel, asked: &Proxy, last_seq: u64) -> Channel {
        if asked.selection.is_all() {
            return channel;
        }
        let place = if asked.place == Place::Subscriber { Place::Subscriber } else { Place::Publisher };
        let node = if place == Place::Subscriber { channel.subscriber.node } else { channel.publisher.node };
        let proxied = Proxied { place, provenance: provenance(asked, last_seq, node) };
        channel.scaled(asked.selection, Some(proxied))
    }

    /// An administrator says what is wanted of one channel, now and when it is opened again. An open one moves.
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
        pair.into_iter().for_each(|pair| self.rescale(pair)); // none: for when it opens
        Ok(())
    }

    /// The wanted proxy of a channel may have changed.
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

fn provenance(proxy: &Proxy, last_seq: u64, node: NodeId) -> Provenance {
    let Proxy { selection, picture, .. } = *proxy;
    Provenance { selection, picture, from: selection.first_after(last_seq), node }
}
