//! The answer of a publisher's node to a request for a channel, before anything is opened.

use super::Action;
use super::mismatch::incompatible;
use crate::control::matching::{Match, Mismatch, Subject, compare};
use crate::control::{NodeId, PortInfo};
use crate::handshake::{Reason, Refused, Request, VERSION};

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
