//! Wire formats of ROS 2 over Zenoh, as `rmw_zenoh_cpp` of Jazzy writes them. Pure: texts and bytes in, values out.
//!
//! | module | contents |
//! |---|---|
//! | [`key`] | key expressions of topics, and names of message types |
//! | [`token`] | liveliness tokens: nodes and endpoints in the graph |
//! | [`qos`] | quality of service, the last part of an endpoint's token |
//! | [`attachment`] | what accompanies each sample: sequence number, time, and the endpoint's identity (GID) |
//!
//! Sources are files of `ros2/rmw_zenoh`, package `rmw_zenoh_cpp` 0.2.10 (branch `jazzy`), and `docs/design.md` there.
//! What is read comes from strangers: every text has a longest length, stated beside what reads it.

pub mod attachment;
pub mod key;
pub mod qos;
pub mod token;

pub use attachment::{Attachment, Gid};
pub use key::TopicKey;
pub use qos::{Durability, History, Liveliness, Reliability, RosQos};
pub use token::{Entity, Kind, Topic};

use std::fmt;

/// Longest name of a topic, node, namespace or enclave, in bytes: ROS 2 allows nodes 255 (`rmw/validate_node_name.h`) and
/// topics 247 (`rmw/validate_full_topic_name.h`).
pub const MAX_NAME: usize = 255;
/// Longest name of a type, in bytes.
pub const MAX_TYPE: usize = 255;
/// Longest hash of a type, in bytes: RIHS01 has 71.
pub const MAX_HASH: usize = 128;

/// The longest excerpt of a text in an error, in characters.
const EXCERPT: usize = 80;
/// What a chunk of a key may be made of.
const CHUNK: &str = "1 or more visible ASCII characters without '/', '*', '$', '#' and '?'";

/// A text or bytes that `rmw_zenoh` does not write, or a value that it could not write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Too few or too many of something.
    Count {
        /// What was counted.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// The fewest.
        least: usize,
        /// The most.
        most: usize,
    },
    /// A text with another form.
    Text {
        /// What it should be.
        what: &'static str,
        /// The text, at most 80 characters of it.
        found: String,
        /// The form.
        allowed: &'static str,
    },
    /// No decimal number, or one that is too large.
    Number {
        /// What it should be.
        what: &'static str,
        /// The text, at most 80 characters of it.
        found: String,
        /// The largest.
        most: u64,
    },
    /// The type of a service, which has no samples.
    Service {
        /// The type, at most 80 characters of it.
        found: String,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { what, found, least, most } if least == most => {
                write!(f, "{found} {what}: rmw_zenoh writes {least}")
            }
            Self::Count { what, found, least, most } => write!(f, "{found} {what}: allowed are {least} to {most}"),
            Self::Text { what, found, allowed } => write!(f, "{found:?} is no {what}: allowed is {allowed}"),
            Self::Number { what, found, most } => {
                write!(f, "{found:?} is no {what}: allowed is a decimal number from 0 to {most}, without leading zeros")
            }
            Self::Service { found } => write!(
                f,
                "{found:?} is the type of a service, not of a topic: rmw_zenoh carries requests and responses as \
                 queries, which are not bridged"
            ),
        }
    }
}

impl std::error::Error for Malformed {}

/// Checks a count against both limits.
fn within(what: &'static str, found: usize, least: usize, most: usize) -> Result<(), Malformed> {
    if (least..=most).contains(&found) { Ok(()) } else { Err(Malformed::Count { what, found, least, most }) }
}

/// Checks a chunk of a key expression: Zenoh gives `*`, `$`, `#` and `?` a meaning, and allows no empty chunk.
fn chunk<'a>(what: &'static str, text: &'a str, most: usize) -> Result<&'a str, Malformed> {
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/*$#?".contains(&byte));
    if text.is_empty() || !plain {
        return Err(Malformed::Text { what, found: excerpt(text), allowed: CHUNK });
    }
    if text.len() > most {
        return Err(Malformed::Text { what, found: excerpt(text), allowed: "a shorter one: 255 bytes, of a hash 128" });
    }
    Ok(text)
}

/// Reads a decimal number as `std::to_string` writes it: digits only, no leading zero.
fn decimal<N: TryFrom<u64>>(what: &'static str, text: &str, most: u64) -> Result<N, Malformed> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse::<u64>()
        .ok()
        .filter(|number| digits && *number <= most)
        .and_then(|number| N::try_from(number).ok())
        .ok_or_else(|| Malformed::Number { what, found: excerpt(text), most })
}

/// The beginning of a text, for an error.
fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT).collect()
}

#[cfg(test)]
mod tests;
