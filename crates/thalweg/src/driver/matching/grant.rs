//! The answer of a publisher's node to a request for a channel, before anything is opened, and the events, at both ends, about ports whose
//! policies do not fit.

use super::{Action, Known, Matching, Names, OwnPorts};
use crate::channel::PortRef;
use crate::control::matching::{Match, Mismatch, Subject, compare};
use crate::control::{Direction, NodeId, PortInfo, PullRole};
use crate::event::Event;
use crate::handshake::{Reason, Refused, Request, VERSION};
use qos::PolicyName;

/// A request that is not granted.
#[derive(Debug)]
pub(crate) struct NotGranted {
    /// The answer.
    pub refused: Refused,
    /// The events for listeners of this node.
    pub told: Vec<Action>,
}

impl From<Refused> for NotGranted {
    fn from(refused: Refused) -> Self {
        Self { refused, told: Vec::new() }
    }
}

/// Checks that both nodes speak the same version in the same realm, and that the request is within this node's limits.
pub(crate) fn check_greeting(request: &Request, realm: &str) -> Result<(), Refused> {
    if request.version != VERSION {
        return Err(refused(Reason::Version, request, &format!("handshake version {VERSION}")));
    }
    if request.realm != realm {
        return Err(refused(Reason::Realm, request, &format!("realm {realm}")));
    }
    request.refusal().map_or(Ok(()), Err)
}

/// Checks that the request reached the node that it names.
pub(crate) fn check_node(request: &Request, node: NodeId) -> Result<(), Refused> {
    if request.to_node == node {
        return Ok(());
    }
    Err(refused(Reason::Node, request, &format!("node {node}: that address has a new owner")))
}

/// Checks that the port that the request names is open and fits.
pub(crate) fn check_port(request: &Request, port: Option<&PortInfo>) -> Result<(), NotGranted> {
    let Some(port) = port else { return Err(refused(Reason::Port, request, "a port that is open").into()) };
    let (mut publisher, mut subscriber) = (port.clone(), request.subscriber.clone());
    if request.by_name {
        publisher.topic.clone_from(&subscriber.topic);
        subscriber.carriers.clear();
    }
    match compare(&publisher, &subscriber) {
        Match::Matched(_) => Ok(()),
        Match::NotSameTopic => Err(refused(Reason::Topic, request, &publisher.topic).into()),
        Match::Mismatched(between) => {
            // Carriers are tried one after another: their mismatch is no event.
            let told = match between.iter().all(|mismatch| mismatch.policy == Subject::Carrier) {
                true => Vec::new(),
                false => incompatible(&(publisher.name, subscriber.name), between.clone(), false),
            };
            let refused = refusal(between).unwrap_or_else(|| refused(Reason::Port, request, "a port that fits"));
            Err(NotGranted { refused, told })
        }
    }
}

/// The refusal that reports these mismatches; `None` without one.
fn refusal(found: Vec<Mismatch>) -> Option<Refused> {
    let mut refused = found.into_iter().map(|Mismatch { policy, offered, requested, remedy }| {
        let (policy, others) = (policy.into(), Vec::new());
        Refused { policy, offered, requested, remedy, others }
    });
    let first = refused.next()?;
    Some(Refused { others: refused.collect(), ..first })
}

/// A refusal of this request.
pub(crate) fn refused(policy: impl Into<Reason>, request: &Request, offered: &str) -> Refused {
    let policy = policy.into();
    let requested = match policy {
        Reason::Version => request.version.to_string(),
        Reason::Realm => request.realm.clone(),
        Reason::Node => request.to_node.to_string(),
        Reason::Port => format!("port {}", request.to_port.0),
        Reason::Topic => request.subscriber.topic.clone(),
        _ => request.carrier.to_string(),
    };
    let remedy = format!("it takes {offered}");
    Refused { policy, offered: offered.to_owned(), requested, remedy, others: Vec::new() }
}

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

/// A policy that keeps ports apart on purpose: its mismatch is not reported.
const ON_PURPOSE: Subject = Subject::Policy(PolicyName::Partition);
