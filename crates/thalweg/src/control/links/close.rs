//! The end of links.

use super::budget::{Source, due};
use super::connections::PATIENCE;
use super::frame::Kind;
use super::link::{Link, Stage};
use super::lock;
use super::worker::Worker;
use crate::control::{Event, NodeId, Origin, Peer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The reason why a link ends.
pub(super) enum Close {
    /// The peer is gone, or said goodbye.
    Ended(String),
    /// There is no room for it, which is not its fault.
    Crowded(String),
    /// This very node: its own address stands in the list.
    Own,
    /// A refusal to count, and to report to the user and the peer.
    Refused(fn(&super::Counters) -> &AtomicU64, String),
}

impl Worker {
    pub(super) fn close_silent(&mut self, now: Instant) {
        let silent = |link: &Link| link.stage != Stage::Open && link.patience <= now;
        let tokens: Vec<u64> = self.links.iter().filter(|(_, link)| silent(link)).map(|(token, _)| *token).collect();
        for token in tokens {
            self.close(token, Close::Refused(|c| &c.silent, format!("no hello within {} s", PATIENCE.as_secs())));
        }
        let late = |link: &Link| {
            let begun = link.begun.filter(|_| link.held_until.is_none() && link.stage == Stage::Open);
            begun.is_some_and(|begun| due(begun, link.reader.unfinished()) <= now)
        };
        let tokens: Vec<u64> = self.links.iter().filter(|(_, link)| late(link)).map(|(token, _)| *token).collect();
        for token in tokens {
            self.close(
                token,
                Close::Refused(|c| &c.silent, "a message that was begun was not ended in time".to_owned()),
            );
        }
    }

    pub(super) fn close(&mut self, token: u64, why: Close) {
        let Some(mut link) = self.links.remove(&token) else { return };
        let _ = self.poller.remove(&link);
        let place = link.target.map_or_else(|| link.who(), |t| self.targets[t].address.to_string());
        if let Close::Refused(counter, reason) = &why {
            link.farewell(reason);
            counter(&self.shared.counters).fetch_add(1, Ordering::Relaxed);
            self.warn_once(format!("control link with {place} closed: {reason}"));
        } else if let (Close::Ended(reason) | Close::Crowded(reason), Stage::Greeting) = (&why, link.stage)
            && !reason.is_empty()
        {
            self.warn_once(format!("control link with {place} was refused: {reason}"));
        }
        self.target_ended(&link, &why);
        let in_vain = match why {
            Close::Refused(..) => true,
            Close::Ended(_) => link.stage == Stage::Greeting,
            Close::Own | Close::Crowded(_) => false,
        };
        if let (None, true, Origin::Tcp { from, .. }) = (link.target, in_vain, link.origin()) {
            self.sink.deliver(Origin::Own, Event::Rejected(Peer::at(from)));
        }
        self.leave(token, link.peer);
    }

    /// A link has ended: its node is gone with its last one, and speaks by the next one from now on.
    fn leave(&mut self, token: u64, node: Option<NodeId>) {
        let source = self.source_of(token); // the debt of a process is kept: otherwise each link would start without one
        self.origins.remove(&token);
        let shared = self.origins.keys().any(|other| self.source_of(*other) == source);
        if !shared || matches!(source, Source::Link(_)) {
            self.budgets.forget(source, Instant::now());
        }
        let Some(node) = node else { return };
        lock(&self.shared.asked).retain(|_, (on, _)| *on != token);
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let spoke = peer.links.first() == Some(&token);
        peer.links.retain(|l| *l != token);
        let links = &self.links;
        if !peer
            .links
            .iter()
            .any(|left| links.get(left).is_some_and(|left| matches!(left.origin(), Origin::Host { .. })))
        {
            lock(&self.shared.here).remove(&node);
        }
        if peer.links.is_empty() {
            let told_by = self.peers.remove(&node).and_then(|p| p.told_by);
            lock(&self.shared.known).remove(&node);
            if let Some(origin) = told_by {
                self.sink.deliver(origin, Event::Gone(node));
            }
        } else if spoke {
            (peer.told, peer.asked, peer.renewed) = (None, true, true);
            self.send(node, Kind::Refresh, &[]);
        }
    }

    pub(super) fn say_goodbye(&mut self) {
        for link in self.links.values_mut() {
            link.farewell("closed");
        }
    }
}

/// A peer's message made this node's own code panic: the link ends, the thread continues (docs/decisions/0011).
pub(super) fn panicked(panic: String) -> Close {
    Close::Refused(|c| &c.garbage, format!("an error of this program, please report it: {panic}"))
}

pub(super) fn not_reading() -> Close {
    let most = super::OUT_LIMIT >> 20;
    Close::Refused(|c| &c.not_reading, format!("it does not read, and {most} MiB wait for it"))
}
