//! Calls to nodes that are known by another back end: over a link that is made for them, whose address the other node sees.

use super::frame::Kind;
use super::target::{Address, State, Target};
use super::worker::Worker;
use crate::control::{Event, NodeId, Origin};
use std::net::SocketAddr;
use std::time::Instant;

/// Calls that wait for a link of their own, at most.
const MOST_WAITING: usize = 64;

/// Calls that wait for links, each with its node and number.
pub(super) type Waiting = Vec<(NodeId, u64, Vec<u8>)>;

impl Worker {
    /// A call waits for the first link with its node.
    pub(super) fn reach(&mut self, to: NodeId, addresses: Vec<SocketAddr>, id: u64, request: Vec<u8>) {
        if self.peers.contains_key(&to) {
            return self.send(to, Kind::Call, &[&id.to_le_bytes(), &request]);
        }
        if self.waiting.len() >= MOST_WAITING {
            return self.cannot(to, id, &format!("{MOST_WAITING} calls wait for connections already"));
        }
        self.waiting.push((to, id, request));
        let now = Instant::now();
        for address in addresses {
            let same = |target: &&mut Target| target.address == Address::Tcp(address) && target.once == Some(to);
            match self.targets.iter_mut().find(same) {
                Some(target) if target.state == State::Done => target.state = State::Waiting(now),
                Some(_) => {}
                None => self.add_target(Target::once(Address::Tcp(address), to, now)),
            }
        }
    }

    /// Sends the calls that waited for a link with this node.
    pub(super) fn reached(&mut self, node: NodeId) {
        let waiting = std::mem::take(&mut self.waiting);
        let (its, others): (Waiting, Waiting) = waiting.into_iter().partition(|(to, ..)| *to == node);
        self.waiting = others;
        for (to, id, request) in its {
            self.send(to, Kind::Call, &[&id.to_le_bytes(), &request]);
        }
    }

    /// Records a failed address of a node; the last one fails the waiting calls.
    pub(super) fn not_reached(&mut self, node: NodeId, why: &str) {
        let other = |target: &Target| target.once == Some(node) && target.state != State::Done;
        if self.targets.iter().any(other) {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (its, others): (Waiting, Waiting) = waiting.into_iter().partition(|(to, ..)| *to == node);
        self.waiting = others;
        its.into_iter().for_each(|(to, id, _)| self.cannot(to, id, why));
    }

    fn cannot(&self, to: NodeId, id: u64, why: &str) {
        let why =
            format!("node {to} takes what changes something over a connection of its own, which cannot be made: {why}");
        self.sink.deliver(Origin::Own, Event::Unreachable { id, why });
    }
}
