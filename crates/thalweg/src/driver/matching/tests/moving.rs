//! Moves of channels to and from relays: carries out what a node's [`Moves`](crate::driver::moves::Moves) say.

use super::events::Event;
use super::handshakes::place_of;
use super::world::{World, slot_of};
use crate::carrier;
use crate::channel::PortRef;
use crate::channel::proxy::Proxy;
use crate::control::NodeId;
use crate::driver::matching::{Candidate, Pair};
use crate::driver::moves::{Failed, GivenUp, LONGEST_BOTH_OPEN, Open, Passing, Settled, fell_back, settled};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Longest time that a new channel needs to catch up, and one that lags.
const CATCHES_UP: Duration = Duration::from_millis(500);
const LAGS: Duration = Duration::from_secs(7);
/// Pause between two looks whether samples come by the new channel.
const LOOK: Duration = Duration::from_millis(600);

/// Both channels of a move. The one that continues is decided once.
pub(super) struct Crossing {
    /// The connection of the new one, and the time since which both are open.
    pub new: u64,
    since: Duration,
    /// `true`: the new one.
    verdict: Cell<Option<bool>>,
    told: Cell<bool>,
}

impl Crossing {
    /// The new channel takes over, unless it was given up; `false`: it was.
    fn takes_over(&self) -> bool {
        self.verdict.set(self.verdict.get().or(Some(true)));
        self.told.set(self.verdict.get() == Some(true));
        self.told.get()
    }
}

impl Passing for Rc<Crossing> {
    fn is_taken_over(&self) -> bool {
        self.told.get()
    }
    fn keep_old(&self) -> bool {
        self.verdict.set(self.verdict.get().or(Some(false)));
        self.verdict.get() == Some(false)
    }
}

/// A channel past a silent relay, before it begins. Its connection ends when it is dropped.
pub(super) struct Leaver {
    conn: Option<u64>,
    asked: Proxy,
    dropped: Rc<RefCell<Vec<u64>>>,
}

impl Drop for Leaver {
    fn drop(&mut self) {
        self.dropped.borrow_mut().extend(self.conn);
    }
}

impl World {
    /// A channel opened as `asked`: it may have to move.
    pub fn settle(&mut self, id: NodeId, pair: Pair, asked: &Proxy) {
        let Some(node) = self.nodes.get(&id) else { return };
        let (Some(wanted), Some(open)) = (node.matching.get(&pair), node.open.get(&pair)) else { return };
        let at = self.conns.get(open).and_then(place_of);
        match settled(asked, &wanted.proxy, at) {
            Settled::Move => self.begin_move(id, pair),
            Settled::Wait => self.wait_for_relay(id, pair),
            Settled::Stay => {}
        }
    }

    fn wait_for_relay(&mut self, id: NodeId, pair: Pair) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (Some(wanted), Some(open)) = (node.matching.get(&pair), node.open.get(&pair)) else { return };
        if fell_back(&wanted.proxy, self.conns.get(open).and_then(place_of)) {
            node.moves.wait_for_relay(pair, now);
        }
    }

    /// Another proxy is wanted for a channel: an open one moves.
    pub fn rescale(&mut self, id: NodeId, pair: Pair, proxy: Proxy) {
        self.give_up_move(id, pair);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(wanted) = node.matching.get(&pair) else { return };
        let (offered, asked) = (wanted.publisher.clone(), wanted.subscriber.clone());
        let ways = node.ask(|matching, known, _| matching.ways(pair, (&offered, &asked), &proxy, known));
        node.matching.has_proxy(pair, proxy, ways);
        if node.open.contains_key(&pair) {
            self.begin_move(id, pair);
        }
    }

    fn begin_move(&mut self, id: NodeId, pair: Pair) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(wanted) = node.matching.get(&pair) else { return };
        let ways = wanted.candidates.iter().filter(|way| !is_local(way)).cloned().collect();
        let way = node.moves.begin(pair, ways, false, now);
        self.try_move(id, pair, way);
    }

    fn try_move(&mut self, id: NodeId, pair: Pair, way: Option<Candidate>) {
        way.into_iter().for_each(|way| self.handshake(id, pair, &way, true));
    }

    pub fn move_failed(&mut self, id: NodeId, pair: Pair) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.moves.leaves(&pair) {
            let way = node.moves.leaving_failed(pair);
            return if way.is_some() { self.try_move(id, pair, way) } else { self.wait_for_relay(id, pair) };
        }
        let Some(wanted) = node.matching.get(&pair) else { return node.moves.forget(&pair) };
        let open = node.open.get(&pair).and_then(|open| self.conns.get(open));
        let at = open.and_then(place_of).cloned().unwrap_or_default();
        if let Failed::Try(way) = node.moves.failed(pair, &at, wanted.candidates.clone(), now) {
            self.try_move(id, pair, Some(way));
        }
    }

    /// A channel's relay is silent: looks for a way past it.
    pub fn leave(&mut self, id: NodeId, conn: u64) {
        let Some(of) = self.conns.get(&conn) else { return };
        let (pair, at) = (of.pair, place_of(of).cloned());
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(wanted) = node.matching.get(&pair) else { return };
        if node.open.get(&pair) != Some(&conn) || node.moves.is_under_way(&pair) {
            return;
        }
        let (offered, asked, proxy) = (wanted.publisher.clone(), wanted.subscriber.clone(), wanted.proxy.clone());
        let mut ways = node.ask(|matching, known, _| matching.ways(pair, (&offered, &asked), &proxy, known));
        ways.retain(|way| Some(&way.place) != at.as_ref() && !is_local(way));
        let way = node.moves.leave(pair, ways);
        self.try_move(id, pair, way);
    }

    /// The second channel of a move is open.
    pub fn move_accepted(&mut self, id: NodeId, pair: Pair, conn: u64) {
        let (now, lags) = (self.instant(), self.disturbed && self.dice.chance(0.1));
        let pause = if lags { LAGS } else { self.some(CATCHES_UP) };
        let asked = self.conns.get(&conn).map(|conn| conn.asked.clone()).unwrap_or_default();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (open, leaves) = (node.open.get(&pair).copied(), node.moves.leaves(&pair));
        if !leaves && (!node.moves.contains(&pair) || !node.matching.is_wanted(&pair)) {
            return self.hang_up(id, conn);
        }
        match open {
            None => {
                node.moves.forget(&pair);
                self.begin(id, pair, conn);
                if leaves {
                    self.settle(id, pair, &asked);
                }
            }
            Some(old) if leaves => {
                let dropped = node.dropped.clone();
                node.moves.arrives(pair, Leaver { conn: Some(conn), asked, dropped });
                let pause = self.some(LOOK);
                self.after(pause, Event::Cut(old));
            }
            Some(_) => {
                let crossing = Crossing { new: conn, since: self.now, verdict: Cell::default(), told: Cell::default() };
                node.moves.passes(pair, Rc::new(crossing), now);
                self.after(pause, Event::BothOpen(id, pair, conn));
            }
        }
    }

    /// The relay's channel has ended: the one past it begins, if there is one.
    pub fn arrive(&mut self, id: NodeId, pair: Pair) -> bool {
        let Some(node) = self.nodes.get_mut(&id) else { return false };
        let Some(mut leaver) = node.moves.arrived(pair) else { return false };
        let Some(conn) = leaver.conn.take() else { return false };
        self.counts.left += 1;
        self.begin(id, pair, conn);
        self.settle(id, pair, &leaver.asked);
        true
    }

    /// The new channel has caught up if samples come by it.
    pub fn both_open(&mut self, id: NodeId, pair: Pair, conn: u64) {
        let Some(node) = self.nodes.get(&id) else { return };
        let Some(crossing) = node.moves.passing(&pair).filter(|of| of.new == conn).cloned() else { return };
        if self.now - crossing.since > LONGEST_BOTH_OPEN + LOOK {
            let late = self.now.as_millis();
            self.lost_by_mistake
                .push(format!("{late}: {pair:?} is still moving after {:?}", self.now - crossing.since));
        }
        if !self.brings(conn) {
            return self.after(LOOK, Event::BothOpen(id, pair, conn));
        }
        if crossing.takes_over() {
            let pause = self.some(Duration::from_millis(5));
            self.after(pause, Event::Moved(id, pair));
        }
    }

    /// `true` if samples come by a connection now.
    pub fn brings(&self, conn: u64) -> bool {
        let Some(of) = self.conns.get(&conn) else { return false };
        let Some(there) = of.reached.and_then(|id| Some((id, self.nodes.get(&id)?))) else { return false };
        let apart = self.is_cut(slot_of(of.subscriber), of.target) || self.stopped.contains_key(&there.0);
        let source = of.pair.0;
        let hosted = || there.1.relay.streams.iter().find(|(key, _)| key.0 == source);
        let upstream = || {
            let port = PortRef { node: there.0, port: hosted()?.1.port };
            there.1.open.get(&(source, port)).copied()
        };
        let has_source = there.0 == source.node || upstream().is_some_and(|conn| self.brings(conn));
        !apart && there.1.served.contains_key(&conn) && has_source
    }

    /// A move is said to be over.
    pub fn moved(&mut self, id: NodeId, pair: Pair) {
        if self.nodes.get(&id).is_some_and(|node| node.moves.is_over(&pair)) {
            self.proxy_moved(id, pair);
        }
    }

    /// The new channel has taken over: the old one ends.
    fn proxy_moved(&mut self, id: NodeId, pair: Pair) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(crossing) = node.moves.finish(pair) else { return };
        let Some(wanted) = node.matching.get(&pair).map(|wanted| wanted.proxy.clone()) else { return };
        let old = node.open.get(&pair).copied();
        self.counts.moved += 1;
        self.begin(id, pair, crossing.new);
        old.into_iter().for_each(|old| self.hang_up(id, old));
        self.settle(id, pair, &wanted);
    }

    /// A channel of a move ended. `true`: the new one did, and the old one continues.
    pub fn ended_in_move(&mut self, id: NodeId, pair: Pair, conn: u64) -> bool {
        let Some(node) = self.nodes.get(&id) else { return false };
        let Some(crossing) = node.moves.passing(&pair).cloned() else { return false };
        if crossing.new != conn {
            if node.open.get(&pair) == Some(&conn) && crossing.takes_over() {
                self.proxy_moved(id, pair);
            }
            return false;
        }
        if !crossing.keep_old() {
            self.proxy_moved(id, pair);
            return false;
        }
        self.move_failed(id, pair);
        true
    }

    pub fn give_up_handshake(&mut self, id: NodeId, pair: Pair) {
        if self.nodes.get(&id).is_some_and(|node| node.moves.is_in_handshake(&pair)) {
            self.give_up_move(id, pair);
        }
    }

    pub fn give_up_move(&mut self, id: NodeId, pair: Pair) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        match node.moves.give_up(pair) {
            GivenUp::Over => return self.proxy_moved(id, pair),
            GivenUp::Nothing => return,
            GivenUp::Handshake => {}
            GivenUp::Passing(crossing) => self.hang_up(id, crossing.new),
        }
        let handshake = self.nodes.get_mut(&id).and_then(|node| node.move_handshakes.remove(&pair));
        handshake.into_iter().for_each(|conn| self.hang_up(id, conn));
    }

    /// Looks at moves that are under way, and tries those that are due.
    pub fn retry_moves(&mut self, id: NodeId) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let came: BTreeMap<Pair, u64> = node.moves.both_open().map(|pair| (*pair, 0)).collect();
        node.moves.look(now, &came);
        for pair in node.moves.laggards(now) {
            let new = self.nodes.get(&id).and_then(|node| Some(node.moves.passing(&pair)?.new));
            new.into_iter().for_each(|new| self.hang_up(id, new));
            self.move_failed(id, pair);
        }
        let Some(node) = self.nodes.get(&id) else { return };
        for pair in node.moves.due(now) {
            self.retry_move(id, pair);
        }
    }

    fn retry_move(&mut self, id: NodeId, pair: Pair) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(wanted) = node.matching.get(&pair) else { return node.moves.forget(&pair) };
        let (offered, asked, proxy) = (wanted.publisher.clone(), wanted.subscriber.clone(), wanted.proxy.clone());
        let open = node.open.get(&pair).and_then(|open| self.conns.get(open));
        let open = open.map(|open| {
            let differs = open.asked.selection != proxy.selection;
            Open { at: place_of(open).cloned(), differs, has_history: false }
        });
        let ways = node.ask(|matching, known, _| matching.ways(pair, (&offered, &asked), &proxy, known));
        node.matching.has_ways(pair, ways.clone());
        let way = node.moves.retry(pair, ways, (open.as_ref(), &proxy.place), now);
        self.try_move(id, pair, way);
    }
}

fn is_local(way: &Candidate) -> bool {
    way.carrier == carrier::Name::Local
}
