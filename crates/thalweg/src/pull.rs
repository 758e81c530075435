//! Questions to the pull buffers of other nodes, as they travel (P-05, P-09). Pure.
//!
//! Over a stream of its own (TCP, or the other node's unix socket on the same host) the asking node sends the byte
//! [`PULL`](crate::control::PULL) and one [`Question`]. Documents and data frames come back: for each publisher whose
//! samples answer it [`Answer::Run`], its samples as frames of one flow, an end frame and [`Answer::Ended`]; at last
//! [`Answer::Over`]. Or [`Answer::Refused`] at once. Documents have the format of the [handshake](crate::handshake).

use crate::channel::history::{Absent, Query};
use crate::codec::TypeDescription;
use crate::control::limits::{check_text, check_type};
use crate::control::{NodeId, PortId};
use crate::handshake::{Checked, Refused};
use serde::{Deserialize, Serialize};

/// Version of the questions and of the frames of the answers.
pub const VERSION: u32 = 1;
/// Most publishers that a question may leave out.
pub const MOST_EXCEPT: usize = 256;

/// One start of one publisher: sample numbers are unique within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    /// The publishing node.
    pub node: NodeId,
    /// The publishing port.
    pub port: PortId,
    /// The node's incarnation.
    pub incarnation: u64,
}

/// The request to one port: a publisher, or a subscriber that keeps samples for others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// [`VERSION`].
    pub version: u32,
    /// Nodes of different realms do not answer each other.
    pub realm: String,
    /// The node that is asked.
    pub to_node: NodeId,
    /// The port that is asked.
    pub to_port: PortId,
    /// The topic, or a pattern of topics.
    pub topic: String,
    /// The type that the asking end can read.
    pub message: TypeDescription,
    /// Larger samples are left out, and counted.
    pub max_message: u32,
    /// Samples of the publisher of this name only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// Publishers that have answered for themselves, at most [`MOST_EXCEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<Identity>,
    /// The samples requested.
    pub query: Query,
}

/// Messages besides the samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Samples of one publisher follow.
    Run(Run),
    /// The end of its samples, with the missing ones.
    Ended(Ended),
    /// The end of the answer.
    Over,
    /// There is no answer.
    Refused(Refused),
}

/// The origin of the samples that follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The publisher.
    pub publisher: Identity,
    /// Its name.
    pub name: String,
    /// The topic.
    pub topic: String,
    /// The type of the samples.
    #[serde(rename = "type")]
    pub message: TypeDescription,
    /// The clock of their stamps.
    pub clock: String,
    /// The id that the frames carry.
    pub flow: u32,
}

impl Checked for Question {
    fn check(&self) -> Result<(), String> {
        let texts = [&self.topic].into_iter().chain(&self.publisher).try_for_each(|text| check_text(text));
        texts.and_then(|()| check_type(&self.message)).map_err(|refusal| refusal.to_string())
    }
}

impl Checked for Answer {
    fn check(&self) -> Result<(), String> {
        let Answer::Run(run) = self else { return Ok(()) };
        let texts = [&run.name, &run.topic, &run.clock].into_iter().try_for_each(|text| check_text(text));
        texts.and_then(|()| check_type(&run.message)).map_err(|refusal| refusal.to_string())
    }
}

/// Samples of a publisher that were requested and did not come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Samples that are missing, and those that are there instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<Absent>,
    /// Samples too large for the asking end.
    #[serde(default)]
    pub too_large: u64,
}
