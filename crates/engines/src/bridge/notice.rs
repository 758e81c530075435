//! The state of a bridge, and what a person should know of it.

use crate::engine::{Incompatible, Refused};
use std::fmt;
use thalweg::control::NodeId;

/// The state of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The node of the bridge that carries the samples instead, if there is one.
    pub standby_for: Option<NodeId>,
    /// Publishers of Thalweg that the engine has, too.
    pub publishers: usize,
    /// Topics that leave now, because somebody wants them there.
    pub out: usize,
    /// Topics, or patterns, that come in.
    pub into: usize,
    /// Ends there, and topics here, that have no port in the node's document and are not carried: it has no room for more, or there are more
    /// than a route has.
    pub left_out: usize,
    /// Samples that have left.
    pub sent: u64,
    /// Samples that have come.
    pub came: u64,
}

/// Something that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A port that has no route, or a sample that could not be carried: the topic and the reason.
    NotCarried(String),
    /// A policy of a publisher that the engine does not keep.
    NotKept {
        /// The topic.
        topic: String,
        /// The policies.
        policies: Vec<&'static str>,
    },
    /// An end in the engine that does not match.
    Incompatible(Incompatible),
    /// Things from the engine that could not be used; told again when there are twice as many.
    Refused(Refused),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::NotCarried(why) => f.write_str(why),
            Notice::NotKept { topic, policies } => {
                write!(f, "{topic}: {} means nothing behind the bridge", policies.join(", "))
            }
            Notice::Incompatible(ends) => ends.fmt(f),
            Notice::Refused(Refused { count, last }) => {
                write!(f, "refused {count} times what came from there; last: {last}")
            }
        }
    }
}
