//! What a publisher's node answers to a request for a channel, before anything is opened.

use super::Action;
use super::mismatch::incompatible;
use crate::control::matching::{Match, Mismatch, Subject, compare};
use crate::control::{NodeId, PortInfo};
use crate::handshake::{Reason, Refused, Request, VERSION};

/// Why nothing is granted.
#[derive(Debug)]
pub(crate) struct NotGranted {
    /// The answer.
    pub refused: Refused,
    /// What is told here.
    pub told: Vec<Action>,
}

impl From<Refused> for NotGranted {
    fn from(refused: Refused) -> Self {
        Self { refused, told: Vec::new() }
    }
}

/// Whether both speak the same version in the same realm, and what is asked is within the limits of what is believed.
pub(crate) fn check_greeting(request: &Request, realm: &str) -> Result<(), Refused> {
    if request.version != VERSION {
        return Err(refused(Reason::Version, request, &format!("handshake version {VERSION}")));
    }
    if request.realm != realm {
        return Err(refused(Reason::Realm, request, &format!("realm {realm}")));
    }
    request.refusal().map_or(Ok(()), Err)
}

/// Whether the request reached the node that is meant.
pub(crate) fn check_node(request: &Request, node: NodeId) -> Result<(), Refused> {
    if request.to_node == node {
        return Ok(());
    }
    Err(refused(Reason::Node, request, &format!("node {node}: that address has a new owner")))
}

/// Whether the port that is meant, if it is open, fits.
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
            // A carrier is asked for again and again.
            let told = match between.iter().all(|mismatch| mismatch.policy == Subject::Carrier) {
                true => Vec::new(),
                false => incompatible(&(publisher.name, subscriber.name), between.clone(), false),
            };
            let refused = refusal(between).unwrap_or_else(|| refused(Reason::Port, request, "a port that fits"));
            Err(NotGranted { refused, told })
        }
    }
}

/// What is answered to a request that does not fit; `None`: nothing stands between.
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
