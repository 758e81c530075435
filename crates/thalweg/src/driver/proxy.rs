//! Proxies of this node's channels: what each subscriber wants, and what becomes of it at either end.

mod leave;
mod moves;

pub(crate) use moves::Move;

use super::control::Control;
use super::keep::refuse_names;
use super::wanted::{Pair, Progress, Wanted};
use crate::channel::Channel;
use crate::channel::proxy::{Provenance, Proxied, Proxy, ProxyChanges, Selection};
use crate::control::{NodeId, PortInfo};
use crate::handshake::{Accepted, Request};
use crate::port::AnyOutlet;
use qos::{Place, Scale};

/// Pairs of ports for which an administrator's word is kept.
const MOST_KEPT: usize = 4096;

impl Control {
    /// What is wanted of a publisher: as an administrator said, else as the subscriber's QoS says.
    pub(super) fn proxy_of(&self, publisher: &str, subscriber: &PortInfo) -> Proxy {
        let said = self.proxies.get(&(publisher.to_owned(), subscriber.name.clone()));
        said.cloned().unwrap_or_else(|| self.stated(publisher, subscriber))
    }

    /// As the subscriber's QoS says.
    fn stated(&self, publisher: &str, subscriber: &PortInfo) -> Proxy {
        let period = self.state.directory().port_named(publisher).and_then(|(_, offered)| offered.qos.deadline);
        if matches!(subscriber.qos.scale, Scale::Millihertz(_)) && period.is_none() {
            let name = &subscriber.name;
            self.warn(format!("{name} wants a rate in Hz of {publisher}, which offers no deadline to take it of: all samples come (say every N, or P/Q)"));
        }
        Proxy::of(&subscriber.qos, period)
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
        if self.proxies.len() >= MOST_KEPT && !self.proxies.contains_key(&names) {
            return Err(format!("proxies of {MOST_KEPT} channels are kept already: take some back (every=default)"));
        }
        let default = self.stated(publisher, inlet.info());
        let proxy = changes.apply(self.proxy_of(publisher, inlet.info()), &default);
        if proxy == default {
            self.proxies.remove(&names)
        } else {
            self.proxies.insert(names, proxy)
        };
        let named = |wanted: &Wanted| wanted.publisher.name == publisher && wanted.subscriber.name == subscriber;
        let pair = self.wanted.iter().find(|(_, wanted)| named(wanted)).map(|(pair, _)| *pair);
        pair.into_iter().for_each(|pair| self.rescale(pair)); // none: for when it opens
        Ok(())
    }

    /// The wanted proxy of a channel may have changed.
    fn rescale(&mut self, pair: Pair) {
        let Some(wanted) = self.wanted.get(&pair) else { return };
        let proxy = self.proxy_of(&wanted.publisher.name, &wanted.subscriber);
        if wanted.proxy == proxy {
            return;
        }
        let (offered, asked) = (wanted.publisher.clone(), wanted.subscriber.clone());
        self.give_up_move(pair);
        let ways = self.ways(pair, &offered, &asked, &proxy);
        let Some(wanted) = self.wanted.get_mut(&pair) else { return };
        (wanted.proxy, wanted.candidates, wanted.next) = (proxy, ways, 0);
        if matches!(wanted.progress, Progress::Open(_)) {
            self.begin_move(pair);
        }
    }
}

fn provenance(proxy: &Proxy, last_seq: u64, node: NodeId) -> Provenance {
    let Proxy { selection, picture, .. } = *proxy;
    Provenance { selection, picture, from: selection.first_after(last_seq), node }
}
