//! Conditions that must hold when nothing was disturbed for a while.

use super::ports::Drawn;
use super::world::{World, slot_of};
use crate::channel::PortRef;
use crate::control::NodeId;
use crate::driver::matching::Pair;
use std::collections::BTreeSet;

/// Most differences that are printed.
const SHOWN: usize = 5;

impl World {
    pub fn judge(&mut self, round: usize) {
        let mut wrong = self.lost_by_mistake.clone();
        for id in self.nodes.keys() {
            wrong.extend(self.unknown_to(*id));
            wrong.extend(self.not_as_expected(*id));
            wrong.extend(self.not_agreed(*id));
            wrong.extend(self.not_in_place(*id));
            wrong.extend(self.hosted_in_vain(*id));
            wrong.extend(self.waits_in_vain(*id));
        }
        let settled = self.last_disturbance_ago();
        self.counts.settled.push(settled);
        self.condemn(round, &wrong);
    }

    /// Fails with what is wrong, if something is.
    pub fn condemn(&self, round: usize, wrong: &[String]) {
        let shown = wrong.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n  ");
        assert!(
            wrong.is_empty(),
            "seed {}, round {round}: {} wrong:\n  {shown}\n{}",
            self.seed,
            wrong.len(),
            self.summary()
        );
    }

    /// Differences between the nodes that this one knows and those of its realm.
    fn unknown_to(&self, id: NodeId) -> Vec<String> {
        let Some(node) = self.nodes.get(&id) else { return Vec::new() };
        let others: BTreeSet<NodeId> = self.others(id).into_iter().chain([id]).collect();
        let known: BTreeSet<NodeId> = node.directory.nodes().map(|document| document.node).collect();
        let mut wrong: Vec<String> =
            known.symmetric_difference(&others).map(|other| format!("{id}: {other} is not known as it is")).collect();
        let stale = node.directory.nodes().filter(|document| {
            self.nodes.get(&document.node).is_some_and(|there| there.document.revision > document.revision + 1)
        });
        wrong.extend(stale.map(|document| format!("{id}: {} is stale", document.node)));
        wrong
    }

    /// Differences between the open channels and the expected ones, by brute force over all drawn ports of the realm.
    fn not_as_expected(&self, id: NodeId) -> Vec<String> {
        let Some(node) = self.nodes.get(&id) else { return Vec::new() };
        let hosted = node.relay.streams.iter().map(|(key, of)| (key.0, PortRef { node: id, port: of.port }));
        let mut expected: BTreeSet<Pair> = hosted.collect();
        for publisher in self.others(id).into_iter().chain([id]) {
            let Some(there) = self.nodes.get(&publisher) else { continue };
            for (port, offered) in &there.drawn {
                for (own, asked) in &node.drawn {
                    let pair: Pair = (PortRef { node: publisher, port: *port }, PortRef { node: id, port: *own });
                    if self.belong(id, offered, asked) {
                        expected.insert(pair);
                    }
                }
            }
        }
        let open: BTreeSet<Pair> = node.open.keys().copied().collect();
        let missing = expected.difference(&open).map(|pair| self.show(*pair, "is missing"));
        let surplus = open.difference(&expected).map(|pair| self.show(*pair, "should not be"));
        missing.chain(surplus).collect()
    }

    fn belong(&self, id: NodeId, offered: &Drawn, asked: &Drawn) -> bool {
        let names = (offered.name.clone(), asked.name.clone());
        let Some(node) = self.nodes.get(&id) else { return false };
        !node.apart.contains(&names) && offered.fits(asked, node.by_name.contains(&names))
    }

    /// `true` if both ports are there and belong together.
    pub fn belongs(&self, (publisher, subscriber): Pair) -> bool {
        let there = self.nodes.get(&publisher.node).and_then(|there| there.drawn.get(&publisher.port));
        let (Some(offered), Some(here)) = (there, self.nodes.get(&subscriber.node)) else { return false };
        match here.drawn.get(&subscriber.port) {
            Some(asked) => self.belong(subscriber.node, offered, asked),
            None => here.is_hosted_port(subscriber.port),
        }
    }

    /// Channels that are open at one end only.
    fn not_agreed(&self, id: NodeId) -> Vec<String> {
        let Some(node) = self.nodes.get(&id) else { return Vec::new() };
        let there = |conn: &u64| {
            let reached = self.conns.get(conn).and_then(|conn| conn.reached);
            reached.and_then(|there| self.nodes.get(&there)).is_some_and(|node| node.served.contains_key(conn))
        };
        let here = |(conn, pair): &(u64, Pair)| {
            self.nodes.get(&pair.1.node).and_then(|node| node.open.get(pair)).is_some_and(|of| of == conn)
        };
        let one = node.open.iter().filter(|(_, conn)| !there(conn));
        let one = one.map(|(pair, _)| self.show(*pair, "is open at the subscriber only"));
        let served = node.served.iter().map(|(conn, of)| (*conn, (of.channel.publisher, of.channel.subscriber)));
        let other = served.filter(|of| !here(of));
        let other = other.map(|(_, pair)| self.show(pair, "is open at the publisher only, or twice"));
        let under_way = node.handshakes.keys().chain(node.move_handshakes.keys());
        let under_way = under_way.map(|pair| self.show(*pair, "is still asked for"));
        one.chain(other).chain(under_way).collect()
    }

    pub fn show(&self, pair: Pair, what: &str) -> String {
        let (publisher, subscriber) = pair;
        let node = self.nodes.get(&subscriber.node);
        let progress = node.and_then(|node| node.matching.get(&pair));
        let progress = progress.map(|wanted| (&wanted.progress, wanted.candidates.len(), wanted.next, &wanted.proxy));
        let asked = node.and_then(|node| self.conns.get(node.open.get(&pair)?)).map(|conn| &conn.asked);
        let moves = node.map(|node| (node.moves.contains(&pair), node.moves.is_under_way(&pair)));
        let (from, to) = (slot_of(publisher.node), slot_of(subscriber.node));
        format!(
            "{publisher:?} (slot {from}) to {subscriber:?} (slot {to}) {what}: {progress:?}, open as {asked:?}, moves {moves:?}"
        )
    }

    pub fn summary(&self) -> String {
        let ports: usize = self.nodes.values().map(|node| node.drawn.len()).sum();
        let open: usize = self.nodes.values().map(|node| node.open.len()).sum();
        let (nodes, relays, time) = (self.nodes.len(), self.relays.len(), self.now.as_secs());
        format!("{nodes} nodes ({relays} relays), {ports} ports, {open} channels after {time} s; {:?}", self.counts)
    }
}
