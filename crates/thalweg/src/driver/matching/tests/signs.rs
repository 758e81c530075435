//! Signs of life: carries out what a node's [`Heartbeat`](crate::driver::heartbeat::Heartbeat) says.

use super::events::{Event, Sign};
use super::node::{Node, Watched};
use super::world::{World, slot_of};
use crate::channel::failure_detector::FailureDetector;
use crate::channel::memory::Account;
use crate::channel::{Channel, PortRef};
use crate::control::NodeId;
use crate::driver::heartbeat::{Action, Silent};
use crate::driver::matching::Route;
use std::sync::Arc;
use std::time::Duration;

/// The silence of a node is noticed within this time: 2 s, as docs/proxies.md says, after the first question that it does not answer. The
/// questions are 400 ms apart, and the way of the last answer may be 30 ms long.
pub(super) const NOTICED: Duration = Duration::from_millis(2_450);
/// The part of the limit of silence after which a slow node answers: at least and at most, in percent.
const SLOW: (u64, u64) = (20, 85);
/// Chance that a question or its answer is lost, and most that are lost in a row: of five, one has to be answered.
const LOST: f64 = 0.3;
const MOST_LOST: u32 = 3;

/// `true` if the node in this slot is slow to answer.
pub(super) fn is_slow(slot: usize) -> bool {
    slot.is_multiple_of(3)
}

impl World {
    /// A channel opened: the relay that serves it, or the source of a hosted stream, is asked for signs of life.
    pub fn watch_life(&mut self, id: NodeId, number: u64) {
        let (now, since) = (self.instant(), self.now);
        let Some(conn) = self.conns.get(&number) else { return };
        let pair = conn.pair;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let relay = conn.reached.filter(|_| conn.asked.place_is_relay());
        let source = Some(pair.0.node).filter(|_| node.is_hosted_port(pair.1.port));
        let Some(there) = relay.or(source).filter(|there| *there != id) else { return };
        let Some(wanted) = node.matching.get(&pair) else { return };
        let ports = ((pair.0, &wanted.publisher), (pair.1, &wanted.subscriber));
        let channel = Channel::new((number, now), ports.0, ports.1, "tcp".into(), Account::new(usize::MAX));
        let channel = Arc::new(channel);
        let asked = wanted.subscriber.qos.clone();
        let limit = FailureDetector::new(&asked).period() * 5;
        node.heartbeat.watch(channel.clone(), (there, Route::Process), &asked, now);
        node.watched.insert(number, Watched { channel, node: there, since, limit, lost: 0, no_source: false });
    }

    /// Sends the questions that are due.
    pub fn ask_for_signs(&mut self, id: NodeId) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let mut silent = Vec::new();
        for action in node.heartbeat.poll(now) {
            let Action::Ask(channel) = action else { continue };
            let Some(node) = self.nodes.get_mut(&id) else { return };
            let Some((source, to, _)) = node.heartbeat.asks(channel) else { continue };
            silent.extend(node.heartbeat.asked(channel, now));
            self.counts.questions += 1;
            if !self.is_cut(slot_of(id), slot_of(to)) && !self.loses_question(id, channel, to) {
                let pause = self.delay(slot_of(id), slot_of(to));
                self.after(pause, Event::Question { to, from: id, channel, source });
            }
        }
        for silent in silent {
            self.judge_silence(id, &silent);
            self.noticed_silence(id, silent);
        }
    }

    /// A question or its answer may be lost, but not as many in a row as show that a node is silent.
    fn loses_question(&mut self, id: NodeId, channel: u64, to: NodeId) -> bool {
        let lost = self.disturbed && !is_slow(slot_of(to)) && self.dice.chance(LOST);
        let watched = self.nodes.get_mut(&id).and_then(|node| node.watched.get_mut(&channel));
        let Some(watched) = watched else { return lost };
        watched.lost = if lost && watched.lost < MOST_LOST { watched.lost + 1 } else { 0 };
        self.counts.lost += u64::from(watched.lost > 0);
        watched.lost > 0
    }

    /// A question arrived.
    pub fn asked_for_sign(&mut self, to: NodeId, from: NodeId, channel: u64, source: PortRef) {
        let now = self.instant();
        let sign = match self.nodes.get(&to) {
            None => Sign::Declined,
            Some(node) if node.lacks_source(source, now) => Sign::NoSource,
            Some(_) => Sign::Alive,
        };
        if self.is_cut(slot_of(from), slot_of(to)) {
            return;
        }
        let watched = self.nodes.get(&from).and_then(|node| node.watched.get(&channel));
        let limit = watched.filter(|_| is_slow(slot_of(to))).map_or(Duration::ZERO, |watched| watched.limit);
        let slow = limit * (SLOW.0 + self.dice.below(SLOW.1 - SLOW.0)) as u32 / 100;
        let pause = slow + self.delay(slot_of(from), slot_of(to));
        self.after(pause, Event::Sign { to: from, channel, sign });
    }

    pub fn heard_sign(&mut self, to: NodeId, channel: u64, sign: Sign) {
        let now = self.instant();
        let Some(node) = self.nodes.get_mut(&to) else { return };
        let watched = node.watched.get_mut(&channel);
        watched.into_iter().for_each(|watched| watched.no_source = matches!(sign, Sign::NoSource));
        let silent = match sign {
            Sign::Declined => {
                node.heartbeat.declined(channel, now);
                None
            }
            Sign::Alive => node.heartbeat.answered(channel, true),
            Sign::NoSource => node.heartbeat.answered(channel, false),
        };
        silent.into_iter().for_each(|silent| self.noticed_silence(to, silent));
    }

    /// The node that serves a channel is silent: its subscriber looks for another way, and a relay tells those who ask.
    fn noticed_silence(&mut self, id: NodeId, Silent { channel, first }: Silent) {
        self.counts.silences += u64::from(first);
        let hosted = |node: &Node| node.is_hosted_port(channel.subscriber.port);
        if !self.nodes.get(&id).is_some_and(hosted) {
            self.leave(id, channel.id);
        }
    }
}
