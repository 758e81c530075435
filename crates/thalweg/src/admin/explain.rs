//! What a node knows of two ports: the answer to [`Request::Explain`](super::Request::Explain), which `thalweg why` asks.

use crate::control::Document;
use crate::event::Event;
use crate::port::{InstanceReport, PolicyCounts};
use serde::{Deserialize, Serialize};

/// What one node knows of a publisher and a subscriber.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// The node that has the other port, as this node knows it, with that port only.
    pub other: Option<Document>,
    /// An administrator keeps the two apart at this node.
    pub apart: bool,
    /// An administrator connected the two by name.
    pub by_name: bool,
    /// How far their channel has come; at the publisher's node always [`Stage::Unwanted`].
    pub stage: Stage,
    /// The ways that this node tries, best first.
    pub ways: Vec<Way>,
    /// Faults or a capture are around this node's network carriers (`--fault`, `--capture`).
    pub around: bool,
    /// What happened to the two, oldest first: the last [`MOST_EVENTS`] events that name both, or a port of both.
    pub events: Vec<Event>,
    /// The monitors that this node's ports of the two have, with their parameters and findings.
    pub monitors: Vec<String>,
    /// The subscriber, at its node.
    pub subscriber: Option<SubscriberState>,
}

/// Events in an [`Explanation`] at most.
pub const MOST_EVENTS: usize = 64;

/// How far a channel has come at the subscriber's node.
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
    pub carrier: String,
    /// Where the publisher is asked: an address, a path, or `this process`.
    pub to: String,
}

/// A subscriber at the moment of the question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscriberState {
    /// Samples that wait to be taken.
    pub waiting: u64,
    /// Samples that found its queue full.
    pub dropped: u64,
    /// Samples that were no value of its type.
    pub undecodable: u64,
    /// The number of the sample in its callback; 0: none is.
    pub in_callback: u64,
    /// It has a callback, which the receiving thread runs.
    pub has_callback: bool,
    /// What its policies dropped or noticed.
    pub policies: PolicyCounts,
    /// Of a keyed topic: the instances that missed most deadlines, the worst first.
    pub late: Vec<InstanceReport>,
}
