//! A node's knowledge of two ports: the answer to [`Request::Explain`](super::Request::Explain), which `thalweg why` asks.

use crate::carrier;
use crate::control::Document;
use crate::event::Event;
pub use crate::port::SubscriberState;
use serde::{Deserialize, Serialize};

/// One node's knowledge of a publisher and a subscriber.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// The node that has the other port, as this node knows it, with that port only.
    pub other: Option<Document>,
    /// An administrator keeps the two apart at this node.
    pub apart: bool,
    /// An administrator connected the two by name.
    pub by_name: bool,
    /// Progress of their channel; at the publisher's node always [`Stage::Unwanted`].
    pub stage: Stage,
    /// The ways that this node tries, best first.
    pub ways: Vec<Way>,
    /// Faults or a capture are around this node's network carriers (`--fault`, `--capture`).
    pub around: bool,
    /// Events of the two, oldest first: the last [`MOST_EVENTS`] that name both, or a port of both.
    pub events: Vec<Event>,
    /// The monitors that this node's ports of the two have, with their parameters and findings.
    pub monitors: Vec<String>,
    /// The subscriber, at its node.
    pub subscriber: Option<SubscriberState>,
}

/// Events in an [`Explanation`] at most.
pub const MOST_EVENTS: usize = 64;

/// Progress of a channel at the subscriber's node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The two do not belong together, as far as this node knows.
    #[default]
    Unwanted,
    /// It waits before it tries again.
    Waiting,
    /// It asked the publisher, and waits for the answer.
    Trying,
    /// It is open.
    Open,
    /// The publisher refused.
    Refused,
}

/// One way to a publisher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The carrier.
    pub carrier: carrier::Name,
    /// The address at which the publisher is asked: an address, a path, or `this process`.
    pub to: String,
}
