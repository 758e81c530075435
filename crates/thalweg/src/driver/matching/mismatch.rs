//! Events, at both ends, about ports whose policies do not fit.

use super::{Action, Known, Matching, Names, OwnPorts};
use crate::channel::PortRef;
use crate::control::matching::{Match, Mismatch, Subject, compare};
use crate::control::{Direction, PortInfo, PullRole};
use crate::event::Event;
use crate::handshake::Refused;
use qos::PolicyName;

/// A policy that keeps ports apart on purpose: its mismatch is not reported.
const ON_PURPOSE: Subject = Subject::Policy(PolicyName::Partition);

/// Reports all policies that do not fit.
pub(super) fn incompatible(names: &Names, found: Vec<Mismatch>, fallback: bool) -> Vec<Action> {
    if found.iter().any(|mismatch| mismatch.policy == ON_PURPOSE) {
        return Vec::new();
    }
    let told = |Mismatch { policy, offered, requested, remedy }| {
        let (publisher, subscriber, policy) = (names.0.clone(), names.1.clone(), policy.to_string());
        Action::Tell(Event::Incompatible { publisher, subscriber, policy, offered, requested, remedy, fallback })
    };
    found.into_iter().map(told).collect()
}

/// Reports the policies that a subscriber gave up by its fallback. A subscriber that keeps samples for others takes any offer, unreported.
pub(super) fn fell_back(names: &Names, given_up: Vec<Mismatch>, asked: &PortInfo) -> Vec<Action> {
    match asked.pull {
        PullRole::Keeps => Vec::new(),
        _ => incompatible(names, given_up, true),
    }
}

/// Reports the mismatches for which a publisher's node refused.
pub(super) fn incompatible_there(names: &Names, refused: Refused) -> Vec<Action> {
    let Refused { policy, offered, requested, remedy, others } = refused;
    let policy = policy.into();
    let (publisher, subscriber) = names.clone();
    let event = Event::Incompatible { publisher, subscriber, policy, offered, requested, remedy, fallback: false };
    let others = others.into_iter().flat_map(|other| incompatible_there(names, other));
    [Action::Tell(event)].into_iter().chain(others).collect()
}

impl Matching {
    /// A subscriber of another node became known: reports which of this node's publishers do not fit it. The subscriber's node decides
    /// which do.
    pub(crate) fn compare_offers(&self, subscriber: PortRef, asked: &PortInfo, own: &OwnPorts) -> Vec<Action> {
        if asked.direction != Direction::Subscriber || subscriber.node == self.node {
            return Vec::new();
        }
        own.publishers.iter().flat_map(|offered| self.compare_offer(offered, asked)).collect()
    }

    /// A publisher of this node was opened: reports which subscribers of other nodes do not fit it.
    pub(super) fn compare_requests(&self, offered: &PortInfo, known: Known) -> Vec<Action> {
        let others = known.directory.nodes().filter(|document| document.node != self.node);
        let ports = others.flat_map(|document| document.ports.values());
        let asked = ports.filter(|port| port.direction == Direction::Subscriber);
        asked.flat_map(|asked| self.compare_offer(offered, asked)).collect()
    }

    fn compare_offer(&self, offered: &PortInfo, asked: &PortInfo) -> Vec<Action> {
        let names = (offered.name.clone(), asked.name.clone());
        match compare(offered, asked) {
            _ if self.is_apart(&names) => Vec::new(),
            Match::Matched(given_up) => fell_back(&names, given_up, asked),
            Match::Mismatched(between) => incompatible(&names, between, false),
            Match::NotSameTopic => Vec::new(),
        }
    }
}
