//! The channels that a node wants and grants, and the next steps for them. Pure: the caller says what happened and when, and carries out
//! the [`Action`]s.
//!
//! | what happened | method |
//! |---|---|
//! | ports of this node came and went | [`own_added`](Matching::own_added), [`own_removed`](Matching::own_removed) |
//! | the directory changed | [`seen`](Matching::seen), [`removed`](Matching::removed), [`added`](Matching::added) |
//! | a handshake ended | [`opened`](Matching::opened), [`failed`](Matching::failed), [`refused`](Matching::refused), [`had_no_room`](Matching::had_no_room) |
//! | a channel ended | [`ended`](Matching::ended) |
//! | an administrator said something | [`connect`](Matching::connect), [`disconnect`](Matching::disconnect) |
//! | time passed | [`time`](Matching::time), at [`next_deadline`](Matching::next_deadline) |
//!
//! An open channel is known by its number. [`grant`] and [`room`] decide which requests a publisher's node grants.

pub(crate) mod grant;
pub(crate) mod room;
#[cfg(test)]
mod tests;
mod wanted;
mod ways;

use wanted::CLOSED;
pub(crate) use wanted::{PATIENCE, Pair, Progress, Wanted, is_of_the_way, is_reliable, refusal_text};
pub(crate) use ways::{Candidate, Route, routes};

use crate::carrier;
use crate::channel::PortRef;
use crate::channel::proxy::Proxy;
use crate::control::directory::{Directory, PortKey};
use crate::control::matching::{Match, compare, topic_matches};
use crate::control::{Direction, Document, NodeId, PortId, PortInfo, PullRole};
use crate::event::Event;
use qos::Scale;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The names of a publisher and a subscriber.
pub(crate) type Names = (String, String);

/// Work for the control thread.
#[derive(Debug)]
pub(crate) enum Action {
    /// This channel is wanted from now on: call [`Matching::try_next`], unless there is no room for its samples.
    Begin(Pair),
    /// Ask for the channel by this way, and report the outcome.
    Try(Pair, Candidate),
    /// The channel is not wanted any more: end its open connection or handshake, and [`Matching::forget`] it.
    End {
        pair: Pair,
        why: &'static str,
        /// `true`: this side ends the channel, and delivers no further samples.
        cut: bool,
    },
    /// Report this event.
    Tell(Event),
}

/// The documents of a node and of all others.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub here: &'a Document,
    pub directory: &'a Directory,
}

/// A node's own ports.
pub(crate) struct OwnPorts<'a> {
    pub publishers: Vec<&'a PortInfo>,
    pub subscribers: Vec<(PortId, &'a PortInfo)>,
}

/// The settings of two ports before an administrator connected them.
pub(crate) struct Before {
    apart: bool,
    connected: Option<Option<carrier::Name>>,
}

/// The channels that a node's subscribers want.
pub(crate) struct Matching {
    node: NodeId,
    /// Carriers that were added to the built-in ones.
    carriers: Vec<carrier::Name>,
    /// Faults or a recorder wrap the node's carriers. They wrap sockets only, so carriers within the host are not used.
    only_sockets: bool,
    wanted: BTreeMap<Pair, Wanted>,
    /// Pairs of ports that were connected by name, and over which carrier.
    connected: BTreeMap<Names, Option<carrier::Name>>,
    /// Pairs of ports that an administrator keeps apart.
    apart: BTreeSet<Names>,
    /// The proxies that an administrator asked for, by channel.
    proxies: BTreeMap<Names, Proxy>,
}

impl Matching {
    pub(super) fn new(node: NodeId, carriers: Vec<carrier::Name>, only_sockets: bool) -> Self {
        let (wanted, connected) = (BTreeMap::new(), BTreeMap::new());
        Self { node, carriers, only_sockets, wanted, connected, apart: BTreeSet::new(), proxies: BTreeMap::new() }
    }

    /// A port of this node was opened.
    pub(super) fn own_added(&mut self, port: PortId, info: &PortInfo, known: Known, now: Instant) -> Vec<Action> {
        match info.direction {
            Direction::Publisher => self.compare_requests(info, known),
            Direction::Subscriber => {
                let named = self.connected.keys().any(|(_, subscriber)| *subscriber == info.name);
                let ports = known.directory.nodes().flat_map(|d| d.ports.iter().map(|(id, p)| (d.node, *id, p)));
                let ports = ports.filter(|(.., p)| named || topic_matches(&info.topic, &p.topic));
                let me = PortRef { node: self.node, port };
                let consider = |(node, port, p)| self.consider((PortRef { node, port }, p), (me, info), known, now);
                ports.flat_map(consider).collect()
            }
        }
    }

    /// A port of this node was closed.
    pub(super) fn own_removed(&self, port: PortId) -> Vec<Action> {
        let me = PortRef { node: self.node, port };
        let its = self.wanted.keys().filter(|(p, s)| *s == me || *p == me);
        its.map(|pair| Action::End { pair: *pair, why: "the port closed", cut: true }).collect()
    }

    /// A node is in the directory, or left it.
    pub(super) fn seen(&mut self, node: NodeId, present: bool, now: Instant) {
        let its = self.wanted.iter_mut().filter(|((publisher, _), _)| publisher.node == node);
        its.for_each(|(_, wanted)| wanted.seen(present, now));
    }

    /// A known node no longer has this port. A handshake that is under way goes on until its own end: the publisher may have accepted,
    /// published and closed since, and then the samples are on their way, behind the answer.
    pub(super) fn removed(&mut self, port: PortRef, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        for (pair, wanted) in self.wanted.iter_mut().filter(|((publisher, _), _)| *publisher == port) {
            wanted.closed_at = Some(now);
            actions.extend(wanted.is_over().then_some(Action::End { pair: *pair, why: CLOSED, cut: false }));
        }
        actions
    }

    /// Ports of other nodes became known; `added` are those that [`Self::of_concern`] chose.
    pub(super) fn added(
        &mut self,
        added: &[(PortRef, PortInfo)],
        own: &OwnPorts,
        known: Known,
        now: Instant,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        for (publisher, offered) in added {
            for (port, asked) in &own.subscribers {
                let me = PortRef { node: self.node, port: *port };
                actions.extend(self.consider((*publisher, offered), (me, asked), known, now));
            }
        }
        actions
    }

    /// The new ports that may belong to one of this node's, or are `named` in a request. Of a node with thousands of ports most are
    /// neither, and are not copied.
    pub(super) fn of_concern(
        &self,
        added: &[PortKey],
        own: &OwnPorts,
        directory: &Directory,
        named: impl Fn(&str) -> bool,
    ) -> Vec<(PortRef, PortInfo)> {
        let shares = |port: &PortInfo| match port.direction {
            Direction::Publisher => own.subscribers.iter().any(|(_, asked)| topic_matches(&asked.topic, &port.topic)),
            Direction::Subscriber => own.publishers.iter().any(|offered| topic_matches(&port.topic, &offered.topic)),
        };
        let known = added.iter().filter_map(|key| Some((*key, directory.port(*key)?)));
        let concerns = known.filter(|(_, port)| shares(port) || self.is_connected(&port.name) || named(&port.name));
        concerns.map(|(key, port)| (PortRef { node: key.node, port: key.port }, port.clone())).collect()
    }

    /// Wants the channel of two ports if they belong together.
    pub(super) fn consider(
        &mut self,
        (publisher, offered): (PortRef, &PortInfo),
        (subscriber, asked): (PortRef, &PortInfo),
        known: Known,
        now: Instant,
    ) -> Vec<Action> {
        let pulls = asked.pull == PullRole::Only;
        if offered.direction != Direction::Publisher || pulls {
            return Vec::new();
        }
        if let Some(wanted) = self.wanted.get_mut(&(publisher, subscriber)) {
            wanted.closed_at = None; // if news of its end came, they are outdated
            return Vec::new();
        }
        let names = (offered.name.clone(), asked.name.clone());
        if self.apart.contains(&names) {
            return Vec::new();
        }
        let by_name = self.connected.contains_key(&names);
        let found = if by_name {
            let seen = PortInfo { topic: asked.topic.clone(), ..offered.clone() };
            compare(&seen, &PortInfo { carriers: Vec::new(), ..asked.clone() })
        } else {
            compare(offered, asked)
        };
        match found {
            Match::Matched(given_up) => {
                let mut actions = grant::fell_back(&names, given_up, asked);
                let settled = PortInfo { qos: asked.qos.settled(&offered.qos), ..asked.clone() };
                let pair = (publisher, subscriber);
                actions.extend(self.want(pair, (offered, &settled), by_name, known, now));
                actions
            }
            Match::NotSameTopic => Vec::new(),
            Match::Mismatched(between) => grant::incompatible(&names, between, false),
        }
    }

    fn want(
        &mut self,
        pair: Pair,
        (offered, asked): (&PortInfo, &PortInfo),
        by_name: bool,
        known: Known,
        now: Instant,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let proxy = self.proxy_of(&offered.name, asked, known.directory, &mut actions);
        let ways = self.ways(pair, (offered, asked), &proxy, known);
        if ways.is_empty() {
            let text = format!("{} cannot reach {}: no carrier and address in common", asked.name, offered.name);
            actions.push(Action::Tell(Event::Warning { text }));
            return actions;
        }
        let mut wanted = Wanted::new(offered.clone(), asked.clone(), ways, by_name, now);
        wanted.proxy = proxy;
        self.wanted.insert(pair, wanted);
        actions.push(Action::Begin(pair));
        actions
    }

    /// A channel is offered along with another one. The ways to open it anew are found when they are needed, because its node's document
    /// may not have arrived yet.
    pub(super) fn expect(&mut self, pair: Pair, publisher: &PortInfo, subscriber: &PortInfo, now: Instant) {
        let new = || Wanted::new(publisher.clone(), subscriber.clone(), Vec::new(), false, now);
        self.wanted.entry(pair).or_insert_with(new);
    }

    /// A channel is not wanted any more.
    pub(super) fn forget(&mut self, pair: Pair) -> Option<Wanted> {
        self.wanted.remove(&pair)
    }

    /// The ways to a channel changed.
    pub(super) fn has_ways(&mut self, pair: Pair, ways: Vec<Candidate>) {
        if let Some(wanted) = self.wanted.get_mut(&pair) {
            wanted.candidates = ways;
        }
    }

    /// The proxy that is wanted for a publisher's stream: an administrator's, else that of the subscriber's QoS.
    pub(super) fn proxy_of(
        &self,
        publisher: &str,
        subscriber: &PortInfo,
        directory: &Directory,
        told: &mut Vec<Action>,
    ) -> Proxy {
        let said = self.proxies.get(&(publisher.to_owned(), subscriber.name.clone()));
        said.cloned().unwrap_or_else(|| stated(publisher, subscriber, directory, told))
    }

    /// Another proxy is wanted for a channel, and with it other ways.
    pub(super) fn has_proxy(&mut self, pair: Pair, proxy: Proxy, ways: Vec<Candidate>) {
        if let Some(wanted) = self.wanted.get_mut(&pair) {
            (wanted.proxy, wanted.candidates, wanted.next) = (proxy, ways, 0);
        }
    }

    /// Sets the proxy that an administrator wants for the channel of two ports; `None` takes it back.
    pub(super) fn set_proxy(&mut self, names: Names, proxy: Option<Proxy>) {
        match proxy {
            Some(proxy) => drop(self.proxies.insert(names, proxy)),
            None => drop(self.proxies.remove(&names)),
        }
    }

    /// Two ports are connected by name from now on.
    pub(super) fn connect(&mut self, names: Names, carrier: Option<carrier::Name>) -> Before {
        let apart = self.apart.remove(&names);
        Before { apart, connected: self.connected.insert(names, carrier) }
    }

    /// The connection by name failed: restores the former settings.
    pub(super) fn restore(&mut self, names: Names, before: Before) {
        self.connected.remove(&names);
        self.connected.extend(before.connected.map(|carrier| (names.clone(), carrier)));
        self.apart.extend(before.apart.then_some(names));
    }

    /// Two ports are no longer connected by name.
    pub(super) fn release(&mut self, names: &Names) {
        self.connected.remove(names);
    }

    /// Two ports are kept apart from now on. `None`: they have no channel to end.
    pub(super) fn disconnect(&mut self, names: Names) -> Option<Action> {
        self.connected.remove(&names);
        let pair = self.between(&names.0, &names.1);
        self.apart.insert(names);
        Some(Action::End { pair: pair?, why: "disconnected by an administrator", cut: true })
    }
}

/// Queries of other parts of the node.
impl Matching {
    pub(super) fn get(&self, pair: &Pair) -> Option<&Wanted> {
        self.wanted.get(pair)
    }
    pub(super) fn is_wanted(&self, pair: &Pair) -> bool {
        self.wanted.contains_key(pair)
    }
    /// `true` if a way to this channel is being tried.
    pub(super) fn is_in_handshake(&self, pair: &Pair) -> bool {
        self.wanted.get(pair).is_some_and(|wanted| wanted.progress == Progress::Handshake)
    }
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }
    /// The channel between the ports of these names.
    pub(super) fn between(&self, publisher: &str, subscriber: &str) -> Option<Pair> {
        let named = |wanted: &Wanted| wanted.publisher.name == publisher && wanted.subscriber.name == subscriber;
        self.wanted.iter().find(|(_, wanted)| named(wanted)).map(|(pair, _)| *pair)
    }
    /// `true` if a channel from a port of `node`, with ports of these names, is wanted.
    pub(super) fn is_wanted_of(&self, node: NodeId, publisher: &str, subscriber: &str) -> bool {
        let named = |wanted: &Wanted| wanted.publisher.name == publisher && wanted.subscriber.name == subscriber;
        self.wanted.iter().any(|((port, _), wanted)| port.node == node && named(wanted))
    }
    pub(super) fn is_apart(&self, names: &Names) -> bool {
        self.apart.contains(names)
    }
    pub(super) fn apart_count(&self) -> usize {
        self.apart.len()
    }
    pub(super) fn is_by_name(&self, names: &Names) -> bool {
        self.connected.contains_key(names)
    }
    /// The names of ports that were connected by name.
    pub(super) fn connected_names(&self) -> impl Iterator<Item = &str> {
        self.connected.keys().flat_map(|(publisher, subscriber)| [publisher.as_str(), subscriber.as_str()])
    }
    fn is_connected(&self, name: &str) -> bool {
        self.connected_names().any(|other| other == name)
    }
    /// The number of channels with an administrator's proxy, and whether this one is among them.
    pub(super) fn proxies_said(&self, names: &Names) -> (usize, bool) {
        (self.proxies.len(), self.proxies.contains_key(names))
    }
}

/// The proxy that the subscriber's QoS asks for.
pub(crate) fn stated(publisher: &str, subscriber: &PortInfo, directory: &Directory, told: &mut Vec<Action>) -> Proxy {
    let period = directory.port_named(publisher).and_then(|(_, offered)| offered.qos.deadline);
    if matches!(subscriber.qos.scale, Scale::Millihertz(_)) && period.is_none() {
        let name = &subscriber.name;
        let text = format!(
            "{name} wants a rate in Hz of {publisher}, which offers no deadline to take it of: all samples come (say every N, or P/Q)"
        );
        told.push(Action::Tell(Event::Warning { text }));
    }
    Proxy::of(&subscriber.qos, period)
}
