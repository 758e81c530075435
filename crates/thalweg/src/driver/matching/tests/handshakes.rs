//! Handshakes and channels: carries out the actions of a node's machine, and reports their outcomes to it.

use super::node::{Node, PER_HOST, Served, address_of, host_of, pair_of};
use super::world::{Conn, Event, World, slot_of};
use crate::control::{NodeId, Peer};
use crate::driver::handshake_client::{ATTEMPT, MOST_HANDSHAKES, MOST_HANDSHAKES_WITH_NODE};
use crate::driver::matching::{Action, Candidate, Pair, Route};
use crate::handshake::{Refused, Request, VERSION};
use std::net::IpAddr;
use std::time::Duration;

/// Time after which TCP gives up a connection.
const OUTAGE: Duration = Duration::from_secs(10);

impl World {
    pub fn act(&mut self, id: NodeId, actions: impl IntoIterator<Item = Action>) {
        let mut acted = false;
        for action in actions {
            acted = true;
            match action {
                Action::Begin(pair) => {
                    let next = self.nodes.get_mut(&id).and_then(|node| node.matching.try_next(pair));
                    self.act(id, next);
                }
                Action::Try(pair, way) => self.try_way(id, pair, &way),
                Action::End { pair, why, .. } => self.end(id, pair, why),
                Action::Tell(_) => {}
            }
        }
        if acted {
            self.wind(id);
        }
    }

    pub fn wind(&mut self, id: NodeId) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(next) = node.matching.next_deadline() else { return };
        if node.timer.is_none_or(|timer| next < timer) {
            node.timer = Some(next);
            self.after(next.saturating_duration_since(now), Event::Timer(id));
        }
    }

    fn try_way(&mut self, id: NodeId, pair: Pair, way: &Candidate) {
        let now = self.instant();
        let tcp = matches!(way.route, Route::Tcp(_));
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(wanted) = node.matching.get(&pair) else { return };
        let request = Box::new(Request {
            version: VERSION,
            realm: node.document.realm.clone(),
            node: id,
            port: pair.1.port,
            subscriber: wanted.subscriber.clone(),
            to_node: pair.0.node,
            to_port: pair.0.port,
            carrier: way.carrier.clone(),
            clock: node.document.clock.clone(),
            by_name: wanted.by_name,
            parameters: Default::default(),
            answers: None,
            proxy: None,
            moves: false,
            token: Some(id.0 << 32 ^ u64::from(pair.1.port.0)),
        });
        let handshakes = node.handshakes.iter().filter(|(_, conn)| self.conns.get(conn).is_some_and(|conn| conn.tcp));
        let (all, same) = handshakes.fold((0, 0), |(all, same), ((publisher, _), _)| {
            (all + 1, same + usize::from(publisher.node == pair.0.node))
        });
        if tcp && (all >= MOST_HANDSHAKES || same >= MOST_HANDSHAKES_WITH_NODE) {
            return node.matching.had_no_room(pair, now);
        }
        let target = target_of(slot_of(id), &way.route);
        let conn = self.number();
        if let Some(node) = self.nodes.get_mut(&id) {
            node.handshakes.insert(pair, conn);
        }
        self.counts.requests += 1;
        self.conns.insert(conn, Conn { request: Some(request), pair, subscriber: id, target, reached: None, tcp });
        self.after(ATTEMPT, Event::TooLate(conn));
        if !self.loses() {
            let pause = self.delay(slot_of(id), target);
            self.after(pause, Event::Request(conn));
        }
    }

    pub fn requested(&mut self, number: u64) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        let (from, target) = (slot_of(conn.subscriber), conn.target);
        let Some(request) = conn.request.take() else { return };
        if self.is_cut(from, target) {
            return;
        }
        let pause = self.delay(from, target);
        let Some(id) = self.slots.get(target).copied().flatten() else {
            return self.after(pause, Event::Unreached(number));
        };
        let here = host_of(from) == host_of(target);
        let elsewhere = (!here).then(|| (Peer::at(address_of(from).into()), request.node));
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let granted = node.grant(&request, elsewhere);
        if let Ok(before) = &granted {
            node.served.insert(number, Served { pair: pair_of(&request), token: request.token, from: elsewhere });
            if let Some(conn) = self.conns.get_mut(&number) {
                conn.reached = Some(id);
            }
            before.iter().for_each(|before| self.close_end(*before, true));
        }
        let answer = granted.map(drop).map_err(Box::new);
        if !self.loses() {
            self.after(pause, Event::Answer(number, answer));
        }
        // The subscriber has given up meanwhile: the end of its connection follows the request.
        let waits = self.nodes.get(&request.node).is_some_and(|node| node.handshakes.values().any(|of| *of == number));
        if !waits {
            self.close(number, false);
        }
    }

    pub fn answered(&mut self, number: u64, answer: Result<(), Box<Refused>>) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (id, pair, now) = (conn.subscriber, conn.pair, self.instant());
        if self.is_cut(slot_of(id), conn.target) {
            return;
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.handshakes.get(&pair) != Some(&number) {
            return;
        }
        node.handshakes.remove(&pair);
        match answer {
            Ok(()) => {
                node.open.insert(pair, number);
                node.matching.opened(pair, number, now);
                self.counts.opened += 1;
                self.last_change = self.now;
                self.wind(id);
            }
            Err(refused) => {
                *self.counts.refused.entry(refused.policy.to_string()).or_default() += 1;
                let actions = node.ask(|matching, known, _| matching.refused(pair, false, *refused, known, now));
                self.act(id, actions);
            }
        }
    }

    pub fn tried_in_vain(&mut self, number: u64, why: &str) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (id, pair, now) = (conn.subscriber, conn.pair, self.instant());
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.handshakes.get(&pair) != Some(&number) {
            return;
        }
        node.handshakes.remove(&pair);
        let action = node.ask(|matching, known, _| matching.failed(pair, why, known, now));
        self.close(number, false);
        self.act(id, action);
    }

    /// A channel is not wanted any more. Ending it is a mistake if its ports are there and belong together.
    fn end(&mut self, id: NodeId, pair: Pair, why: &'static str) {
        let publishes = |node: &Node| node.drawn.contains_key(&pair.0.port);
        let there = self.nodes.get(&pair.0.node).is_some_and(publishes);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let here = node.drawn.contains_key(&pair.1.port);
        let Some(wanted) = node.matching.forget(pair) else { return };
        let apart = node.apart.contains(&(wanted.publisher.name.clone(), wanted.subscriber.name.clone()));
        let (open, dial) = (node.open.remove(&pair), node.handshakes.remove(&pair));
        if open.is_some() && here && there && !apart {
            self.lost_by_mistake.push(format!("{}: {pair:?} ended because {why}", self.now.as_millis()));
        }
        self.last_change = self.now;
        open.into_iter().chain(dial).for_each(|conn| self.close(conn, false));
    }

    pub fn close_served(&mut self, id: NodeId, which: impl Fn(&Served) -> bool) {
        let Some(node) = self.nodes.get(&id) else { return };
        let its: Vec<u64> = node.served.iter().filter(|(_, served)| which(served)).map(|(conn, _)| *conn).collect();
        its.into_iter().for_each(|conn| self.close_end(conn, true));
    }

    /// One end closes at once, and the other one learns of it later.
    fn close_end(&mut self, number: u64, publisher: bool) {
        let reached = self.conns.get(&number).and_then(|conn| conn.reached);
        if publisher && let Some(node) = reached.and_then(|id| self.nodes.get_mut(&id)) {
            node.served.remove(&number);
        }
        self.close(number, publisher);
    }

    /// The publisher's end, or else the subscriber's, is gone: the other one learns of it later.
    pub fn close(&mut self, number: u64, publisher: bool) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (from, to) = (slot_of(conn.subscriber), conn.target);
        let (pause, at_last) = (self.delay(from, to), self.now + OUTAGE);
        self.after(pause, Event::Ended { conn: number, publisher: !publisher, at_last });
    }

    pub fn heard_end(&mut self, number: u64, publisher: bool, at_last: Duration) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (id, pair, reached, now) = (conn.subscriber, conn.pair, conn.reached, self.instant());
        if self.is_cut(slot_of(id), conn.target) && self.now < at_last {
            return self.after(Duration::from_millis(200), Event::Ended { conn: number, publisher, at_last });
        }
        if publisher {
            if let Some(node) = reached.and_then(|id| self.nodes.get_mut(&id)) {
                node.served.remove(&number);
            }
            self.last_change = self.now;
            return;
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.open.get(&pair) != Some(&number) {
            return self.tried_in_vain(number, "the connection ended");
        }
        node.open.remove(&pair);
        self.counts.ended += 1;
        self.last_change = self.now;
        node.matching.ended(pair, number, None, now);
        let actions = node.ask(|matching, known, _| matching.after_end(pair, known, now));
        self.act(id, actions);
        self.wind(id);
    }

    /// TCP gives up where the other end is cut off.
    pub fn fell_silent(&mut self, number: u64, publisher: bool) {
        let Some(conn) = self.conns.get(&number) else { return };
        if self.is_cut(slot_of(conn.subscriber), conn.target) {
            self.heard_end(number, publisher, Duration::ZERO);
            self.close(number, publisher);
        }
    }
}

/// The slot that a route leads to from another one.
fn target_of(from: usize, route: &Route) -> usize {
    match route {
        Route::Process => from,
        Route::Unix(path) => path.to_string_lossy().trim_start_matches("/run/").parse().unwrap_or(usize::MAX),
        Route::Tcp(address) => {
            let place = usize::from(address.port() - 7000);
            match address.ip() {
                IpAddr::V4(ip) if ip.octets()[0] == 10 => (usize::from(ip.octets()[3]) - 1) * PER_HOST + place,
                _ => host_of(from) * PER_HOST + place,
            }
        }
    }
}
