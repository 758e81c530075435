//! Events of a simulated network, and the nodes that they come to.

use super::world::{World, slot_of};
use crate::channel::PortRef;
use crate::channel::proxy::Proxy;
use crate::control::{Change, Document, NodeId, PortId};
use crate::driver::matching::Pair;
use crate::handshake::{Refused, Request};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A message from one node to another about itself.
pub(super) enum Said {
    Document(Box<Document>),
    Change(NodeId, Arc<Change>),
    Gone(NodeId),
}

/// The answer to a question for a sign of life.
#[derive(Clone, Copy)]
pub(super) enum Sign {
    Alive,
    NoSource,
    /// The node is not there, or not the one that was asked.
    Declined,
}

pub(super) enum Event {
    Said {
        to: NodeId,
        from: NodeId,
        said: Said,
    },
    AskDocument {
        to: NodeId,
        from: NodeId,
    },
    Timer(NodeId),
    Request(u64),
    Answer(u64, Result<(), Box<Refused>>),
    /// No node is at the address.
    Unreached(u64),
    TooLate(u64),
    /// One end learns that the connection is over, or gives it up. `broken`: the other end did not close it in order.
    Ended {
        conn: u64,
        publisher: bool,
        broken: bool,
        at_last: Duration,
    },
    /// The thread of a channel that its subscriber's node cut is done.
    Cut(u64),
    /// A publisher returns from `publish`.
    Published(NodeId, PortId),
    Question {
        to: NodeId,
        from: NodeId,
        channel: u64,
        source: PortRef,
    },
    Sign {
        to: NodeId,
        channel: u64,
        sign: Sign,
    },
    /// The new channel of a move has brought as much as the old one, if samples come by it.
    BothOpen(NodeId, Pair, u64),
    /// A node's control thread reads that a move is over.
    Moved(NodeId, Pair),
    Start(usize),
    NextChange(NodeId),
    Heal(usize),
    /// A stopped node continues.
    Continue(NodeId),
    /// Those that watch a node which was stopped at this time have noticed it.
    Noticed(NodeId, Duration),
    /// A lease is over: a node that is still cut off is gone.
    Lease {
        to: NodeId,
        from: NodeId,
    },
    /// One end gives up if the other is still cut off.
    Silent {
        conn: u64,
        publisher: bool,
    },
}

/// A connection of a handshake and its channel.
pub(super) struct Conn {
    /// The request, until it arrives.
    pub request: Option<Box<Request>>,
    pub pair: Pair,
    pub subscriber: NodeId,
    /// The slot that the connection leads to.
    pub target: usize,
    pub tcp: bool,
    /// The node that was reached.
    pub reached: Option<NodeId>,
    /// The proxy that was asked for.
    pub asked: Proxy,
    /// The subscriber's end has ended before it was read.
    pub over: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub events: u64,
    pub lost: u64,
    pub refreshes: u64,
    pub requests: u64,
    pub refused: BTreeMap<String, u64>,
    pub opened: u64,
    pub ended: u64,
    pub crashes: u64,
    pub splits: u64,
    pub stops: u64,
    pub moved_ports: u64,
    pub said: u64,
    /// Channels that waited for their subscriber, those that another one took over, and those that were given up.
    pub cut_off: u64,
    pub taken_over: u64,
    pub given_up: u64,
    /// Questions for signs of life, and silences that were noticed.
    pub questions: u64,
    pub silences: u64,
    /// The longest time from a stop to its notice, in milliseconds.
    pub noticed: u64,
    pub hosted: u64,
    pub unhosted: u64,
    /// Moves that were tried, that ended at the new place, and that left a silent relay.
    pub moves: u64,
    pub moved: u64,
    pub left: u64,
    /// Milliseconds from the last disturbance to the last change, by round.
    pub settled: Vec<u64>,
}

impl World {
    /// The node that an event happens to, if it is the node's own threads that take it.
    fn addressee(&self, event: &Event) -> Option<NodeId> {
        let conn = |number: &u64| self.conns.get(number);
        match event {
            Event::Said { to, .. } | Event::AskDocument { to, .. } | Event::Lease { to, .. } => Some(*to),
            Event::Question { to, .. } | Event::Sign { to, .. } => Some(*to),
            Event::Timer(id) | Event::NextChange(id) | Event::Published(id, _) => Some(*id),
            Event::BothOpen(id, ..) | Event::Moved(id, _) => Some(*id),
            Event::Request(number) => self.slots.get(conn(number)?.target).copied().flatten(),
            Event::Answer(number, _) | Event::Unreached(number) | Event::TooLate(number) | Event::Cut(number) => {
                Some(conn(number)?.subscriber)
            }
            Event::Ended { conn: number, publisher: true, .. } | Event::Silent { conn: number, publisher: true } => {
                conn(number)?.reached
            }
            Event::Ended { conn: number, .. } | Event::Silent { conn: number, .. } => Some(conn(number)?.subscriber),
            Event::Start(_) | Event::Heal(_) | Event::Continue(_) | Event::Noticed(..) => None,
        }
    }

    /// An event happens, or waits until the stopped node to which it happens continues.
    pub fn happens(&mut self, event: Event) {
        let whose = self.addressee(&event);
        if let Some(until) = whose.and_then(|id| self.stopped.get(&id)).map(|(_, until)| *until) {
            return self.after(until.saturating_sub(self.now), event);
        }
        self.carry_out(event);
        whose.into_iter().for_each(|id| self.wind(id));
    }

    fn carry_out(&mut self, event: Event) {
        match event {
            Event::Said { to, from, said } => self.said(to, from, said),
            Event::AskDocument { to, from } => self.asked_document(to, from),
            Event::Lease { to, from }
                if self.is_cut(slot_of(to), slot_of(from)) || self.stopped.contains_key(&from) =>
            {
                self.said(to, from, Said::Gone(from));
            }
            Event::Lease { .. } => {}
            Event::Timer(id) => self.timer(id),
            Event::Request(conn) => self.requested(conn),
            Event::Answer(conn, answer) => self.answered(conn, answer),
            Event::Unreached(conn) => self.tried_in_vain(conn, "connection refused"),
            Event::TooLate(conn) => self.tried_in_vain(conn, "no answer in time"),
            Event::Silent { conn, publisher } => self.fell_silent(conn, publisher),
            Event::Ended { conn, publisher, broken, at_last } => self.heard_end(conn, publisher, broken, at_last),
            Event::Cut(conn) => self.channel_ended(conn),
            Event::Published(id, port) => self.published(id, port),
            Event::Question { to, from, channel, source } => self.asked_for_sign(to, from, channel, source),
            Event::Sign { to, channel, sign } => self.heard_sign(to, channel, sign),
            Event::BothOpen(id, pair, conn) => self.both_open(id, pair, conn),
            Event::Moved(id, pair) => self.moved(id, pair),
            Event::Start(slot) => self.start(slot),
            Event::NextChange(id) => self.next_change(id),
            Event::Heal(host) => self.join(host),
            Event::Continue(id) => self.go_on(id),
            Event::Noticed(id, since) => self.judge_notice(id, since),
        }
    }
}
