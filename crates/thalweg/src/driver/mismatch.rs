//! What is told, at both ends, of ports whose policies do not fit.

use super::control::Control;
use crate::channel::PortRef;
use crate::control::matching::{Match, Mismatch, compare};
use crate::control::{Direction, PortInfo, PullRole};
use crate::event::Event;
use crate::handshake::Refused;

/// A policy that keeps ports apart on purpose: nobody is told.
const ON_PURPOSE: &str = "partition";

impl Control {
    /// Tells of all policies that do not fit.
    pub(super) fn incompatible(&self, names: &(String, String), found: Vec<Mismatch>, fallback: bool) {
        if found.iter().any(|mismatch| mismatch.policy == ON_PURPOSE) {
            return;
        }
        for Mismatch { policy, offered, requested, remedy } in found {
            let (publisher, subscriber, policy) = (names.0.clone(), names.1.clone(), policy.to_owned());
            let event = Event::Incompatible { publisher, subscriber, policy, offered, requested, remedy, fallback };
            self.state.events.push(event);
        }
    }

    /// Tells what a subscriber does without. One that keeps samples for others takes what there is.
    pub(super) fn fell_back(&self, names: &(String, String), given_up: Vec<Mismatch>, asked: &PortInfo) {
        if asked.pull != PullRole::Keeps {
            self.incompatible(names, given_up, true);
        }
    }

    /// As [`Self::incompatible`], of what a publisher's node refused.
    pub(super) fn incompatible_there(&self, names: &(String, String), refused: Refused) {
        let Refused { policy, offered, requested, remedy, others } = refused;
        let (publisher, subscriber) = names.clone();
        let event = Event::Incompatible { publisher, subscriber, policy, offered, requested, remedy, fallback: false };
        self.state.events.push(event);
        others.into_iter().for_each(|other| self.incompatible_there(names, other));
    }

    /// A subscriber of another node came to be known: tells which of this node's publishers do not fit it. Which do, its
    /// own node decides.
    pub(super) fn compare_offers(&self, subscriber: PortRef, asked: &PortInfo) {
        if asked.direction == Direction::Subscriber && subscriber.node != self.state.id {
            self.state.outlets().iter().for_each(|outlet| self.compare_offer(outlet.info(), asked));
        }
    }

    /// A publisher of this node was opened: tells which subscribers of other nodes do not fit it.
    pub(super) fn compare_requests(&self, offered: &PortInfo) {
        let asked: Vec<PortInfo> = {
            let directory = self.state.directory();
            let others = directory.nodes().filter(|document| document.node != self.state.id);
            let ports = others.flat_map(|document| document.ports.values());
            ports.filter(|port| port.direction == Direction::Subscriber).cloned().collect()
        };
        asked.iter().for_each(|asked| self.compare_offer(offered, asked));
    }

    fn compare_offer(&self, offered: &PortInfo, asked: &PortInfo) {
        let names = (offered.name.clone(), asked.name.clone());
        match compare(offered, asked) {
            _ if self.apart.contains(&names) => {}
            Match::Matched(given_up) => self.fell_back(&names, given_up, asked),
            Match::Mismatched(between) => self.incompatible(&names, between, false),
            Match::NotSameTopic => {}
        }
    }
}

/// What is answered to a request that does not fit; `None`: nothing stands between.
pub(super) fn refusal(found: Vec<Mismatch>) -> Option<Refused> {
    let mut refused = found.into_iter().map(|Mismatch { policy, offered, requested, remedy }| {
        let (policy, others) = (policy.to_owned(), Vec::new());
        Refused { policy, offered, requested, remedy, others }
    });
    let first = refused.next()?;
    Some(Refused { others: refused.collect(), ..first })
}
