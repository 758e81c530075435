//! The subscriber's side: carries out the actions of a node's machine, and reports their outcomes to it.

use super::events::{Conn, Event};
use super::node::{PER_HOST, host_of};
use super::world::{World, slot_of};
use crate::channel::proxy::Proxy;
use crate::control::NodeId;
use crate::driver::handshake_client::{ATTEMPT, MOST_HANDSHAKES, MOST_HANDSHAKES_WITH_NODE};
use crate::driver::matching::{Action, Candidate, Pair, Route};
use crate::handshake::{Refused, Request, VERSION};
use qos::Place;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

/// Time after which TCP gives up a connection.
const OUTAGE: Duration = Duration::from_secs(10);
/// Chance that a process that ends its connection leaves data unread, which resets the connection.
const UNREAD: f64 = 0.3;

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

    /// The machines of a node are called when they have work.
    pub fn wind(&mut self, id: NodeId) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let dropped = node.dropped.take();
        let next = node.next_deadline(now).map(|next| next.max(now));
        if let Some(next) = next.filter(|next| node.timer.is_none_or(|timer| *next < timer)) {
            node.timer = Some(next);
            self.after(next.duration_since(now), Event::Timer(id));
        }
        dropped.into_iter().for_each(|conn| self.hang_up(id, conn));
    }

    pub fn timer(&mut self, id: NodeId) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.timer.is_some_and(|at| at <= now)) else { return };
        node.timer = None;
        self.ask_publishers(id);
        self.give_up_cut_off(id, |_| false);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let actions = node.matching.time(now);
        self.act(id, actions);
        self.ask_for_signs(id);
        self.retry_moves(id);
        self.look_after_hosted(id);
    }

    fn try_way(&mut self, id: NodeId, pair: Pair, way: &Candidate) {
        let now = self.instant();
        let tcp = matches!(way.route, Route::Tcp(_));
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let handshakes = node.handshakes.iter().filter(|(_, conn)| self.conns.get(conn).is_some_and(|conn| conn.tcp));
        let (all, same) = handshakes.fold((0, 0), |(all, same), ((publisher, _), _)| {
            (all + 1, same + usize::from(publisher.node == pair.0.node))
        });
        if tcp && (all >= MOST_HANDSHAKES || same >= MOST_HANDSHAKES_WITH_NODE) {
            return node.matching.had_no_room(pair, now);
        }
        self.handshake(id, pair, way, false);
    }

    /// Begins a handshake.
    pub fn handshake(&mut self, id: NodeId, pair: Pair, way: &Candidate, moves: bool) {
        let conn = self.number();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(wanted) = node.matching.get(&pair) else { return };
        let asked = Proxy { place: way.place.clone(), ..wanted.proxy.clone() };
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
            proxy: Some(asked.clone()).filter(|proxy| !proxy.is_nothing()),
            moves,
            token: Some(token(pair, &way.place)),
        });
        let handshakes = if moves { &mut node.move_handshakes } else { &mut node.handshakes };
        handshakes.insert(pair, conn);
        let (target, tcp) = (target_of(slot_of(id), &way.route), matches!(way.route, Route::Tcp(_)));
        self.counts.requests += 1;
        self.counts.moves += u64::from(moves);
        let request = Some(request);
        self.conns.insert(conn, Conn { request, pair, subscriber: id, target, reached: None, tcp, asked, over: false });
        self.after(ATTEMPT, Event::TooLate(conn));
        if !self.loses() {
            let pause = self.delay(slot_of(id), target);
            self.after(pause, Event::Request(conn));
        }
    }

    pub fn answered(&mut self, number: u64, answer: Result<(), Box<Refused>>) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (id, pair, now, by_relay) = (conn.subscriber, conn.pair, self.instant(), conn.asked.place_is_relay());
        if self.is_cut(slot_of(id), conn.target) {
            return;
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let moves = node.move_handshakes.get(&pair) == Some(&number);
        if !moves && node.handshakes.get(&pair) != Some(&number) {
            return;
        }
        let handshakes = if moves { &mut node.move_handshakes } else { &mut node.handshakes };
        handshakes.remove(&pair);
        match answer {
            Ok(()) if moves => self.move_accepted(id, pair, number),
            Ok(()) => {
                let asked = conn.asked.clone();
                self.begin(id, pair, number);
                self.settle(id, pair, &asked);
            }
            Err(refused) => {
                *self.counts.refused.entry(refused.policy.to_string()).or_default() += 1;
                if moves {
                    return self.move_failed(id, pair);
                }
                let actions = node.ask(|matching, known, _| matching.refused(pair, by_relay, *refused, known, now));
                self.act(id, actions);
            }
        }
    }

    /// A channel is open, and brings what had waited for it.
    pub fn begin(&mut self, id: NodeId, pair: Pair, number: u64) {
        let now = self.instant();
        let Some(conn) = self.conns.get(&number) else { return };
        if let Some(served) = conn.reached.and_then(|there| self.nodes.get(&there)) {
            let channel = served.served.get(&number).map(|served| &served.channel);
            let publisher_port = channel.and_then(|channel| served.publisher_port_of(channel));
            publisher_port.into_iter().for_each(|publisher_port| publisher_port.owes(number, None));
        }
        let over = conn.over;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.open.insert(pair, number);
        node.matching.opened(pair, number, now);
        self.counts.opened += 1;
        self.last_change = self.now;
        self.watch_life(id, number);
        self.look_after_waiting(id);
        if over {
            self.after(Duration::ZERO, Event::Cut(number));
        }
        self.wind(id); // the publisher may have closed meanwhile
    }

    /// A handshake came to nothing, or ended.
    pub fn tried_in_vain(&mut self, number: u64, why: &str) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (id, pair, now) = (conn.subscriber, conn.pair, self.instant());
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.move_handshakes.get(&pair) == Some(&number) {
            node.move_handshakes.remove(&pair);
            self.close(number, false, false);
            return self.move_failed(id, pair);
        }
        if node.handshakes.get(&pair) != Some(&number) {
            return;
        }
        node.handshakes.remove(&pair);
        let action = node.ask(|matching, known, _| matching.failed(pair, why, known, now));
        self.close(number, false, false);
        self.act(id, action);
    }

    /// A channel is not wanted any more. Ending it is a mistake if its ports are there and belong together.
    fn end(&mut self, id: NodeId, pair: Pair, why: &'static str) {
        self.give_up_move(id, pair);
        let belongs = self.belongs(pair);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.matching.forget(pair).is_none() {
            return;
        }
        let (open, handshake) = (node.open.remove(&pair), node.handshakes.remove(&pair));
        if open.is_some() && belongs {
            self.lost_by_mistake.push(format!("{}: {pair:?} ended because {why}", self.now.as_millis()));
        }
        self.last_change = self.now;
        open.into_iter().chain(handshake).for_each(|conn| self.hang_up(id, conn));
    }

    /// A subscriber's node ends its end of a channel.
    pub fn hang_up(&mut self, id: NodeId, conn: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.watched.remove(&conn).into_iter().for_each(|watched| watched.channel.close());
        let broken = self.dice.chance(UNREAD);
        self.close(conn, false, broken);
    }

    /// The publisher's end, or else the subscriber's, is gone: the other one learns of it later.
    pub fn close(&mut self, number: u64, publisher: bool, broken: bool) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (from, to) = (slot_of(conn.subscriber), conn.target);
        let (pause, at_last) = (self.delay(from, to), self.now + OUTAGE);
        self.after(pause, Event::Ended { conn: number, publisher: !publisher, broken, at_last });
    }

    pub fn heard_end(&mut self, number: u64, publisher: bool, broken: bool, at_last: Duration) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        let (id, pair, reached, target) = (conn.subscriber, conn.pair, conn.reached, conn.target);
        if self.is_cut(slot_of(id), target) && self.now < at_last {
            let broken = true; // what is retransmitted finds no connection any more
            let pause = Duration::from_millis(200);
            return self.after(pause, Event::Ended { conn: number, publisher, broken, at_last });
        }
        if publisher {
            return reached.into_iter().for_each(|id| self.stream_ended(id, number, broken));
        }
        self.conns.get_mut(&number).into_iter().for_each(|conn| conn.over = true);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let passing = node.moves.passing(&pair).is_some_and(|crossing| crossing.new == number);
        if passing || node.open.get(&pair) == Some(&number) {
            return self.channel_ended(number);
        }
        self.tried_in_vain(number, "the connection ended");
    }

    /// A subscriber's channel ended: it is tried again as long as its publisher may be there.
    pub fn channel_ended(&mut self, number: u64) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (id, pair, now) = (conn.subscriber, conn.pair, self.instant());
        let goes_on = self.ended_in_move(id, pair, number);
        self.hang_up(id, number);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if goes_on || node.open.get(&pair) != Some(&number) {
            return;
        }
        node.open.remove(&pair);
        node.matching.ended(pair, number, None, now);
        self.counts.ended += 1;
        self.last_change = self.now;
        self.give_up_handshake(id, pair);
        if self.arrive(id, pair) {
            return;
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let actions = node.ask(|matching, known, _| matching.after_end(pair, known, now));
        self.act(id, actions);
    }

    /// TCP gives up where the other end is cut off.
    pub fn fell_silent(&mut self, number: u64, publisher: bool) {
        let Some(conn) = self.conns.get(&number) else { return };
        if self.is_cut(slot_of(conn.subscriber), conn.target) {
            self.heard_end(number, publisher, true, Duration::ZERO);
            self.close(number, publisher, true);
        }
    }
}

/// The place of the proxy of an open channel; `None`: it has none.
pub(super) fn place_of(conn: &Conn) -> Option<&Place> {
    Some(&conn.asked.place).filter(|_| !conn.asked.is_nothing())
}

/// The token of all requests for a channel by one relay, or by none.
fn token(pair: Pair, place: &Place) -> u64 {
    let mut hasher = DefaultHasher::new();
    let relay = if let Place::Relay(name) = place { name } else { "" };
    (pair, relay).hash(&mut hasher);
    hasher.finish()
}

/// The slot that a route leads to from another one.
fn target_of(from: usize, route: &Route) -> usize {
    match route {
        Route::Process => from,
        Route::Unix(path) => path.to_string_lossy().trim_start_matches("/run/").parse().unwrap_or(usize::MAX),
        Route::Tcp(address) => {
            let place = usize::from(address.port() - 7000);
            match address.ip() {
                IpAddr::V4(ip) if ip.octets()[0] == 10 => {
                    let [.., high, low] = ip.octets();
                    (usize::from(high) * 256 + usize::from(low) - 1) * PER_HOST + place
                }
                _ => host_of(from) * PER_HOST + place,
            }
        }
    }
}
