//! ROS 2 interface definitions: the text of `.msg`, `.srv` and `.action` files, the structure of the bytes, and the type hash.
//!
//! Sources: the grammar is that of "Interface definition" (docs.ros.org, Concepts) as `rosidl_adapter` reads it; the messages
//! that belong to a service or an action are those of `rosidl_parser`; the hash is RIHS01 of REP-2011 as
//! `rosidl_generator_type_description` computes it; concatenated texts are the encoding `ros2msg` of MCAP and rosbag2
//! ("Message Definition Encoding").

mod definitions;
mod error;
mod hash;
mod interface;
mod known;
mod member;
mod name;
mod parse;
mod structure;
#[cfg(test)]
mod tests;
mod value;

pub use definitions::{Definitions, RosType};
pub use error::RosError;

/// The longest text that is read at once, in bytes.
const MAX_TEXT: usize = 1 << 20;
/// The most text that one set of definitions keeps, in bytes. A peer may send one definition after the other.
const MAX_TEXTS: usize = 64 << 20;
/// The longest text of a type and those it refers to that is told to others, in bytes.
const MAX_SOURCE: usize = 64 << 10;
