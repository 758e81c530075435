//! The publisher's side: requests that are granted, channels that join and leave publishers, and those that wait for their subscribers.

use super::events::Event;
use super::node::{Asked, MOST_CHANNELS, Node, Served, address_of, host_of, pair_of};
use super::publisher::{Attached, PublisherPort};
use super::world::{World, slot_of};
use crate::channel::memory::Account;
use crate::channel::{Channel, PortRef};
use crate::control::{NodeId, Peer, PortId};
use crate::driver::attachments::Joining;
use crate::driver::attachments::Settled;
use crate::driver::matching::grant::{check_greeting, check_node, check_port};
use crate::driver::matching::{PATIENCE, is_reliable, room};
use crate::driver::succession::may_return;
use crate::driver::succession::{Before, before};
use crate::handshake::{Refused, Request};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Longest time within `publish`, usually and where a publisher blocks.
const PUBLISHES: Duration = Duration::from_millis(5);
const BLOCKS: Duration = Duration::from_millis(800);

impl Node {
    /// The channel that was opened before for the ports of a request.
    pub fn before(&self, request: &Request) -> Before {
        let streams = self.served.iter().filter(|(_, served)| served.tcp);
        let served = streams.map(|(conn, served)| (*conn as usize, &served.channel, ()));
        before(request, served, self.waiting_for(request), |()| panic!("each request has a token"))
    }

    /// `true` if the subscriber's node is known and does not have this port any more.
    fn has_closed(&self, channel: &Channel) -> bool {
        let there = self.directory.node(channel.subscriber.node);
        there.is_some_and(|there| !there.ports.contains_key(&channel.subscriber.port))
    }

    fn waiting_for(&self, request: &Request) -> Option<Arc<Channel>> {
        self.cut_off.waiting_for(pair_of(request), request.token?).cloned()
    }

    /// Checks that this peer may have one more channel of the port, or one more proxy.
    pub fn check_room(&self, Asked { request, from, .. }: &Asked, but: Option<u64>) -> Result<(), Refused> {
        let Some(from) = *from else { return Ok(()) };
        let others = self.served.values().filter(|served| Some(served.channel.id) != but);
        if request.to_node != self.id() {
            let proxies = others.filter(|served| served.channel.publisher.node != self.id());
            let waiting_requests = self.relay.streams.waiting_requests().filter_map(|waiting| waiting.from);
            return self.relay.check_share(from, proxies.filter_map(|served| served.from).chain(waiting_requests));
        }
        let of_port = others.filter(|served| served.channel.publisher == pair_of(request).0);
        room::check(&self.document.name, MOST_CHANNELS, from, of_port.filter_map(|served| served.from))
    }

    /// Checks a request; returns the channel that was opened before.
    fn check(&self, asked: &Asked) -> Result<Before, Refused> {
        let request = &asked.request;
        check_greeting(request, &self.document.realm)?;
        if !self.is_hosted(request) {
            check_node(request, self.id())?;
            check_port(request, self.document.ports.get(&request.to_port)).map_err(|granted| granted.refused)?;
        }
        let before = self.before(request);
        self.check_room(asked, before.as_channel())?;
        Ok(before)
    }
}

impl World {
    pub fn requested(&mut self, number: u64) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        let (from, target) = (slot_of(conn.subscriber), conn.target);
        let Some(request) = conn.request.take() else { return };
        if self.is_cut(from, target) {
            return;
        }
        let Some(id) = self.slots.get(target).copied().flatten() else {
            let pause = self.delay(from, target);
            return self.after(pause, Event::Unreached(number));
        };
        let elsewhere = (host_of(from) != host_of(target)).then(|| (Peer::at(address_of(from).into()), request.node));
        let asked = Asked { conn: number, request, from: elsewhere };
        let hosted = self.nodes.get(&id).is_some_and(|node| node.is_hosted(&asked.request));
        if hosted { self.host(id, asked) } else { self.serve(id, &asked) }
    }

    /// Answers a request, unless the answer is lost.
    pub fn answer(&mut self, number: u64, answer: Result<(), Box<Refused>>) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (from, to) = (conn.target, slot_of(conn.subscriber));
        if !self.loses() {
            let pause = self.delay(from, to);
            self.after(pause, Event::Answer(number, answer));
        }
    }

    /// Grants or refuses a request.
    pub fn serve(&mut self, id: NodeId, asked: &Asked) {
        let Some(node) = self.nodes.get(&id) else { return };
        match node.check(asked) {
            Err(refused) => return self.answer(asked.conn, Err(Box::new(refused))),
            Ok(Before::Its(Some(older), _)) if !asked.request.moves => self.gives_way(id, older as u64),
            Ok(_) => {}
        }
        self.attach(id, asked);
        // The subscriber has given up meanwhile: the end of its connection follows the request.
        let asks =
            |node: &Node| node.handshakes.values().chain(node.move_handshakes.values()).any(|of| *of == asked.conn);
        if !self.nodes.get(&asked.request.node).is_some_and(asks) {
            self.close(asked.conn, false, false);
        }
    }

    fn attach(&mut self, id: NodeId, Asked { conn, request, from }: &Asked) {
        let (now, pair) = (self.instant(), pair_of(request));
        let (busy, long) = (self.dice.chance(0.05), self.disturbed && self.dice.chance(0.2));
        let pause = self.some(if long { BLOCKS } else { PUBLISHES });
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some((publisher_port, offered)) = node.publisher_for(request) else { return };
        let account = Account::new(usize::MAX);
        let ports = ((pair.0, &offered), (pair.1, &request.subscriber));
        let mut channel = Channel::new((*conn, now), ports.0, ports.1, request.carrier.clone(), account);
        channel.replaces = node.waiting_for(request).filter(|_| !request.moves).map(|older| older.id);
        let channel = Arc::new(channel);
        request.token.map(|token| channel.token.set(token));
        from.map(|from| channel.elsewhere.set(from));
        let outlasts = from.is_some() && is_reliable(&offered.qos, &request.subscriber.qos);
        publisher_port.give(channel.clone(), outlasts);
        if pair.0.node == id && busy {
            publisher_port.busy.set(true);
        }
        let tcp = self.conns.get(conn).is_some_and(|conn| conn.tcp);
        node.served.insert(*conn, Served { channel: channel.clone(), from: *from, tcp });
        let settled = node.attachments.join(Joining { publisher_port, channel, token: None, local: None });
        self.conns.get_mut(conn).into_iter().for_each(|conn| conn.reached = Some(id));
        if pair.0.node == id && busy {
            self.after(pause, Event::Published(id, pair.0.port));
        }
        settled.into_iter().for_each(|settled| self.joined(id, &settled));
    }

    /// A publisher has added or refused a channel.
    fn joined(&mut self, id: NodeId, Settled { joining, joined }: &Settled<Rc<PublisherPort>>) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let conn = joining.channel.id;
        if !joined {
            node.served.remove(&conn);
            return self.close(conn, true, false);
        }
        if let Some(older) = joining.channel.replaces {
            node.cut_off.was_replaced(older);
            self.counts.taken_over += 1;
        }
        self.answer(conn, Ok(()));
    }

    pub fn published(&mut self, id: NodeId, port: PortId) {
        let publisher_port = self.nodes.get(&id).and_then(|node| node.publisher_ports.get(&port));
        publisher_port.into_iter().for_each(|publisher_port| publisher_port.busy.set(false));
    }

    /// Asks the publishers again that were within `publish`.
    pub fn ask_publishers(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.attachments.is_busy()) else { return };
        let publisher_ports: Vec<_> = node.publisher_ports.values().cloned().collect();
        let settled = node.attachments.poll();
        settled.iter().for_each(|settled| self.joined(id, settled));
        publisher_ports.iter().for_each(|publisher_port| self.look_for_dropped(id, publisher_port));
    }

    /// The stream of a channel ended at its publisher.
    pub fn stream_ended(&mut self, id: NodeId, conn: u64, broken: bool) {
        let now = self.instant();
        let Some(served) = self.nodes.get_mut(&id).and_then(|node| node.served.remove(&conn)) else { return };
        self.last_change = self.now;
        if !may_return(&served.channel, broken, now) || !self.waits_for_return(id, &served.channel) {
            self.end_channel(id, &served.channel);
        }
    }

    /// A subscriber asks again while its channel seems to be well.
    fn gives_way(&mut self, id: NodeId, conn: u64) {
        self.stream_ended(id, conn, true);
        self.close(conn, true, false);
    }

    fn waits_for_return(&mut self, id: NodeId, channel: &Arc<Channel>) -> bool {
        let (now, most) = (self.instant(), MOST_CHANNELS.div_ceil(4) as usize);
        let Some(node) = self.nodes.get_mut(&id) else { return false };
        let Some(publisher_port) = node.publisher_port_of(channel) else { return false };
        let left = node.has_closed(channel);
        let Some(over) = node.cut_off.wait(publisher_port.clone(), channel, (left, most), now) else { return false };
        publisher_port.owes(channel.id, Some(self.now));
        self.counts.cut_off += 1;
        over.into_iter().for_each(|(publisher_port, over)| self.detach(id, &publisher_port, over));
        true
    }

    /// Gives up the channels that wait in vain, and those that have waited long enough.
    pub fn give_up_cut_off(&mut self, id: NodeId, hopeless: impl Fn(&Channel) -> bool) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let over = node.cut_off.give_up(now, hopeless);
        self.counts.given_up += over.len() as u64;
        over.into_iter().for_each(|(publisher_port, over)| self.detach(id, &publisher_port, over));
    }

    /// News of a node: channels that wait for ports which it does not have any more are given up.
    pub fn give_up_closed(&mut self, id: NodeId, there: NodeId) {
        let Some(node) = self.nodes.get(&id) else { return };
        let waiting = node.cut_off.channels().filter(|channel| channel.subscriber.node == there);
        let closed: Vec<u64> = waiting.filter(|channel| node.has_closed(channel)).map(|channel| channel.id).collect();
        self.give_up_cut_off(id, |channel| closed.contains(&channel.id));
    }

    fn end_channel(&mut self, id: NodeId, channel: &Channel) {
        let publisher_port = self.nodes.get(&id).and_then(|node| node.publisher_port_of(channel));
        publisher_port.into_iter().for_each(|publisher_port| self.detach(id, &publisher_port, channel.id));
    }

    fn detach(&mut self, id: NodeId, publisher_port: &Rc<PublisherPort>, channel: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.attachments.detach(publisher_port.clone(), channel);
        self.look_for_dropped(id, publisher_port);
    }

    /// A publisher's node ends this channel.
    pub fn end_served(&mut self, id: NodeId, conn: u64) {
        let Some(served) = self.nodes.get_mut(&id).and_then(|node| node.served.remove(&conn)) else { return };
        self.end_channel(id, &served.channel);
        self.close(conn, true, false);
    }

    /// A publisher closes, and its channels with it.
    pub fn close_publisher(&mut self, id: NodeId, port: PortRef) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.publisher_ports.get(&port.port).into_iter().for_each(|publisher_port| publisher_port.closed.set(true));
        let its = node.served.iter().filter(|(_, served)| served.channel.publisher == port);
        let its: Vec<u64> = its.map(|(conn, _)| *conn).collect();
        its.into_iter().for_each(|conn| self.end_served(id, conn));
        self.give_up_cut_off(id, |channel| channel.publisher == port);
    }

    /// Samples that waited may only go if nobody is there who wants them, or after their time.
    fn look_for_dropped(&mut self, id: NodeId, publisher_port: &PublisherPort) {
        for Attached { channel, owes, .. } in publisher_port.take_dropped() {
            let pair = (channel.publisher, channel.subscriber);
            let waited = owes.map_or(PATIENCE, |since| self.now - since);
            if pair.0.node == id && waited < PATIENCE && self.belongs(pair) {
                let (now, number) = (self.now.as_millis(), channel.id);
                self.lost_by_mistake.push(format!("{now}: {pair:?} ({number}) lost what waited for {waited:?}"));
            }
        }
    }
}
