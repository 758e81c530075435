//! Laws of channels that wait, of heartbeats, of relays and of moves.

use super::handshakes::place_of;
use super::signs::{NOTICED, is_slow};
use super::world::{World, slot_of};
use crate::channel::PortRef;
use crate::control::NodeId;
use crate::driver::heartbeat::Silent;
use crate::driver::matching::{PATIENCE, Pair};
use std::time::Duration;

/// A node that was stopped or cut off may still be taken for silent, until a question that it was asked again is answered.
const AFTERMATH: Duration = Duration::from_secs(3);

impl World {
    /// Channels whose proxy is not at the preferred place, or that are still moving.
    pub fn not_in_place(&self, id: NodeId) -> Vec<String> {
        let Some(node) = self.nodes.get(&id) else { return Vec::new() };
        let mut wrong = Vec::new();
        for (pair, conn) in node.open.iter().filter(|(pair, _)| pair.0.node != id) {
            let (Some(wanted), Some(conn)) = (node.matching.get(pair), self.conns.get(conn)) else { continue };
            let proxy = &wanted.proxy;
            let at = place_of(conn).and_then(|at| at.relays().next());
            let other_place = proxy.place_is_relay() || !proxy.is_nothing();
            let wrong_place = match proxy.place.relays().next() {
                Some(preferred) => at != Some(preferred),
                None => at.is_some() || (other_place && conn.asked.place != proxy.place),
            };
            if !proxy.place_is_relay() && conn.reached != Some(pair.0.node) {
                wrong.push(self.show(*pair, "is served by another node than its publisher's"));
            }
            if wrong_place || conn.asked.selection != proxy.selection {
                wrong.push(self.show(*pair, "is not in its place"));
            }
            if node.moves.is_under_way(pair) {
                wrong.push(self.show(*pair, "is still moving"));
            }
        }
        wrong
    }

    /// Streams that a relay hosts for nobody.
    pub fn hosted_in_vain(&self, id: NodeId) -> Vec<String> {
        let Some(node) = self.nodes.get(&id) else { return Vec::new() };
        let in_vain = node.relay.streams.iter().filter(|(_, hosted)| hosted.publisher_port.channels().is_empty());
        let in_vain = in_vain.map(|(key, _)| format!("{id} hosts {:?} for nobody", key.0));
        let waiting_requests =
            node.relay.streams.waiting_requests().map(|waiting| format!("{id}: request {} still waits", waiting.conn));
        in_vain.chain(waiting_requests).collect()
    }

    /// Channels at their publishers that neither have a stream nor wait for somebody who may come, or that wait for too long.
    pub fn waits_in_vain(&self, id: NodeId) -> Vec<String> {
        let Some(node) = self.nodes.get(&id) else { return Vec::new() };
        let mut wrong = Vec::new();
        if node.attachments.is_busy() {
            wrong.push(format!("{id}: a publisher is still asked"));
        }
        let gone = node
            .cut_off
            .channels()
            .filter(|channel| !node.publisher_port_of(channel).is_some_and(|of| of.contains(channel.id)));
        wrong.extend(
            gone.map(|of| self.show((of.publisher, of.subscriber), "waits, and its publisher does not have it")),
        );
        let hosted = node.relay.streams.iter().map(|(_, hosted)| &hosted.publisher_port);
        for of in node.publisher_ports.values().chain(hosted).flat_map(|publisher_port| publisher_port.channels()) {
            let pair: Pair = (of.channel.publisher, of.channel.subscriber);
            let waits = node.cut_off.channels().any(|other| other.id == of.channel.id);
            if node.served.contains_key(&of.channel.id) {
                continue;
            }
            match of.owes.filter(|_| waits) {
                None => wrong.push(self.show(pair, "is left over at its publisher")),
                Some(since) if since + PATIENCE < self.now => wrong.push(self.show(pair, "waits for too long")),
                Some(_) if self.belongs(pair) && !self.has_choice(pair) => {
                    wrong.push(self.show(pair, "waits although its subscriber is there"));
                }
                Some(_) if self.nodes.contains_key(&pair.1.node) && !self.is_there(pair.1) => {
                    wrong.push(self.show(pair, "waits for a port that is closed"));
                }
                Some(_) => {}
            }
        }
        wrong
    }

    fn is_there(&self, subscriber: PortRef) -> bool {
        let node = self.nodes.get(&subscriber.node);
        node.is_some_and(|node| node.document.ports.contains_key(&subscriber.port))
    }

    /// `true` if the subscriber may have the stream from several nodes: what waits for it at one of them may be of no use.
    fn has_choice(&self, pair: Pair) -> bool {
        let Some(node) = self.nodes.get(&pair.1.node) else { return false };
        let Some(wanted) = node.matching.get(&pair) else { return false };
        let names = (wanted.publisher.name.clone(), wanted.subscriber.name.clone());
        wanted.proxy.place_is_relay() || node.proxies.contains_key(&names) || node.is_hosted_port(pair.1.port)
    }

    /// Nothing waits after the time for which a publisher waits.
    pub fn judge_rest(&self, round: usize) {
        let waits = |id: &NodeId| {
            let node = self.nodes.get(id)?;
            let next = node.cut_off.next_deadline().map(|_| format!("{id}: a channel still waits for its subscriber"));
            let left = self.waits_in_vain(*id).into_iter().next();
            next.or(left)
        };
        let wrong: Vec<String> = self.nodes.keys().filter_map(waits).collect();
        self.condemn(round, &wrong);
    }

    /// A node is taken for silent: it must have been stopped, cut off or gone.
    pub fn judge_silence(&mut self, id: NodeId, silent: &Silent) {
        let channel = &silent.channel;
        let Some(node) = self.nodes.get(&id) else { return };
        let Some(watched) = node.watched.get(&channel.id).filter(|watched| !watched.no_source) else { return };
        let (there, limit) = (watched.node, watched.limit);
        let (here, other) = (slot_of(id), slot_of(there));
        let lately = |at: Option<&Duration>| at.is_some_and(|at| *at + AFTERMATH >= self.now);
        let host = |slot| self.joined_since.get(&super::node::host_of(slot));
        let apart = self.is_cut(here, other) || lately(host(here)) || lately(host(other));
        let stopped = self.stopped.get(&there).map(|(since, _)| self.now - *since);
        // A node that was stopped itself counts the questions from before as well.
        let apart = apart || lately(self.well_since.get(&id));
        let unwell = stopped.is_some() || lately(self.well_since.get(&there)) || !self.nodes.contains_key(&there);
        if !(apart || unwell) {
            let number = channel.id;
            self.lost_by_mistake.push(format!("{}: {id} takes {there} for silent ({number})", self.now.as_millis()));
        }
        let noticed = stopped.filter(|_| silent.first && !apart && limit >= Duration::from_secs(2) && !is_slow(other));
        self.counts.noticed = self.counts.noticed.max(noticed.unwrap_or_default().as_millis() as u64);
    }

    /// A node was stopped at this time. If it is still stopped, those that watch it have noticed.
    pub fn judge_notice(&mut self, of: NodeId, since: Duration) {
        if self.stopped.get(&of).is_none_or(|(at, _)| *at != since) || is_slow(slot_of(of)) {
            return;
        }
        let now = self.instant();
        let awake = |id: &NodeId| {
            !self.stopped.contains_key(id)
                && self.well_since.get(id).is_none_or(|at| *at < since.saturating_sub(NOTICED))
        };
        let mut wrong = Vec::new();
        for (id, node) in self.nodes.iter().filter(|(id, _)| awake(id)) {
            let its = node.watched.iter().filter(|(_, watched)| watched.node == of && watched.since < since);
            let unnoticed = its.filter(|(conn, _)| !node.heartbeat.silent(now).any(|other| other.id == **conn));
            wrong.extend(unnoticed.map(|(conn, _)| format!("{id} has not noticed that {of} is stopped ({conn})")));
        }
        self.lost_by_mistake.extend(wrong);
    }
}
