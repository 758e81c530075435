//! Streams that relays host: carries out what a node's [`Relay`](crate::driver::relay::Relay) says.

use super::node::{Asked, Hosted, Node};
use super::publisher::PublisherPort;
use super::world::World;
use crate::channel::PortRef;
use crate::control::{Change, NodeId, Peer, PortId, PortInfo};
use crate::driver::host::upstream;
use crate::driver::matching::grant::check_greeting;
use crate::driver::relay::{Action, Hosting, Stream};
use crate::handshake::{Refused, Request};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

impl Node {
    /// `true` if a request is for a stream of another node.
    pub fn is_hosted(&self, request: &Request) -> bool {
        self.relay.is_hosted(request, self.id())
    }

    /// The publisher that a request is for, and the port that it offers.
    pub fn publisher_for(&self, request: &Request) -> Option<(Rc<PublisherPort>, PortInfo)> {
        if self.is_hosted(request) {
            let hosted = self.relay.streams.get(&hosting(request))?;
            return Some((hosted.publisher_port.clone(), hosted.offered.clone()));
        }
        let offered = self.document.ports.get(&request.to_port)?.clone();
        Some((self.publisher_ports.get(&request.to_port)?.clone(), offered))
    }

    /// `true` if the source of a hosted stream gives no sign of life.
    pub fn lacks_source(&self, source: PortRef, now: Instant) -> bool {
        let mut silent = self.heartbeat.silent(now);
        silent.any(|of| of.publisher == source && self.is_hosted_port(of.subscriber.port))
    }
}

impl World {
    /// Serves a request for a hosted stream, at once or when its source has a channel to this node.
    pub fn host(&mut self, id: NodeId, asked: Asked) {
        let now = self.instant();
        let Some(node) = self.nodes.get(&id) else { return };
        let room = check_greeting(&asked.request, &node.document.realm).and_then(|()| {
            let before = node.before(&asked.request);
            node.check_room(&asked, before.as_channel())
        });
        let conn = asked.conn;
        match room.and_then(|()| self.ready_to_host(id, &asked)) {
            Ok(true) => self.serve(id, &asked),
            Ok(false) => {
                let Some(node) = self.nodes.get_mut(&id) else { return };
                let waits = node.relay.streams.wait(hosting(&asked.request), asked, now);
                waits.err().into_iter().for_each(|(_, why)| self.answer(conn, Err(Box::new(why))));
            }
            Err(why) => self.answer(conn, Err(Box::new(why))),
        }
    }

    fn ready_to_host(&mut self, id: NodeId, asked: &Asked) -> Result<bool, Refused> {
        let (key, now) = (hosting(&asked.request), self.instant());
        let Some(node) = self.nodes.get(&id) else { return Ok(false) };
        node.relay.check_load()?;
        if node.relay.streams.get(&key).is_none() {
            let there = node.directory.node(key.0.node);
            let Some(offered) = there.and_then(|there| there.ports.get(&key.0.port)).cloned() else { return Ok(false) };
            self.begin_hosting(id, key, offered, asked.from.map_or(Peer::Node(asked.request.node), |(host, _)| host));
        }
        let Some(node) = self.nodes.get(&id) else { return Ok(false) };
        node.look_at_sources();
        Ok(node.relay.streams.get(&key).is_some_and(Hosted::has_source) && !node.lacks_source(key.0, now))
    }

    fn begin_hosting(&mut self, id: NodeId, key: Hosting, offered: PortInfo, asker: Peer) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.next_port += 1;
        let (port, name) = (PortId(node.next_port), format!("/{id}/proxy{}", node.next_port));
        let (info, names) = (upstream(&offered, name.clone(), None), (offered.name.clone(), name.clone()));
        let hosted = Hosted { publisher_port: Rc::default(), offered, name, port, source: Cell::new(false) };
        node.relay.streams.begin(key, hosted, asker, now);
        node.matching.connect(names, None);
        self.counts.hosted += 1;
        let actions = node.ask(|matching, known, _| matching.own_added(port, &info, known, now));
        self.act(id, actions);
        self.announce(id, Change { added: [(port, info)].into(), ..Change::default() });
    }

    /// Requests that wait for their source are looked at again.
    pub fn look_after_waiting(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.relay.streams.waiting_requests().next().is_some())
        else {
            return;
        };
        for waiting in node.relay.streams.take_waiting() {
            let Some(node) = self.nodes.get(&id) else { return };
            node.look_at_sources();
            let ready = match node.relay.streams.get(&waiting.of) {
                Some(hosted) => Ok(hosted.has_source()),
                None => self.ready_to_host(id, &waiting.who),
            };
            match ready {
                Ok(false) => {
                    let Some(node) = self.nodes.get_mut(&id) else { return };
                    node.relay.streams.wait_on(waiting);
                }
                Ok(true) => self.serve(id, &waiting.who),
                Err(why) => self.answer(waiting.who.conn, Err(Box::new(why))),
            }
        }
    }

    /// Refuses requests that waited too long, ends streams that are not needed any more, and announces the load.
    pub fn look_after_hosted(&mut self, id: NodeId) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.look_at_sources();
        let Some(actions) = node.relay.look(now) else { return };
        for action in actions {
            match action {
                Action::Refuse(waiting, why) => self.answer(waiting.conn, Err(Box::new(why))),
                Action::EndStream(key) => self.end_hosting(id, key),
                Action::Warn(_) | Action::BeginBuffer(..) | Action::EndBuffer(_) => {}
            }
        }
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.relay.is_measured(now)) else { return };
        let load = node.relay.measure(0, &node.directory, now);
        if load.is_some() {
            self.announce(id, Change { relay: load, ..Change::default() });
        }
    }

    fn end_hosting(&mut self, id: NodeId, key: Hosting) {
        let Some(hosted) = self.nodes.get(&id).and_then(|node| node.relay.streams.get(&key)) else { return };
        let channels: Vec<u64> = hosted.publisher_port.channels().iter().map(|of| of.channel.id).collect();
        channels.into_iter().for_each(|conn| self.end_served(id, conn));
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(hosted) = node.relay.streams.end(&key) else { return };
        hosted.publisher_port.closed.set(true);
        node.matching.release(&(hosted.offered.name, hosted.name));
        self.counts.unhosted += 1;
        let actions = node.matching.own_removed(hosted.port);
        self.act(id, actions);
        self.announce(id, Change { removed: vec![hosted.port], ..Change::default() });
    }
}

fn hosting(request: &Request) -> Hosting {
    (PortRef { node: request.to_node, port: request.to_port }, None)
}
