//! The files of a recording: MCAP (mcap.dev), with the profile `ros2` where every type has a definition of ROS 2's form.
//!
//! | module | contents |
//! |---|---|
//! | `disk` | the bytes of one file, which can be cut off behind the last whole chunk |
//! | `writer` | one MCAP file: chunks, channels, attachments, its end with or without room for a summary |
//! | `output` | a recording over several files: the next one is open before the last one ends |
//! | `schema` | the text of a type, as `ros2msg` or `omgidl` |
//! | `metadata` | clock, channels, timing and losses as the file has them |

mod disk;
mod idl;
mod metadata;
mod msg;
mod output;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

pub use disk::{Files, Series, Store};
pub use metadata::{
    CHANGE, CLOCK, CONTRACT, ClockAnchor, ENDED_TOPIC, LOSSES, LatencyFigures, Loss, PLAN, Place, SETTINGS, TIMING,
    Timing, channel_metadata, channel_of_ends,
};
pub use output::{Attachment, Limits, Output, Split};
pub use schema::SchemaText;
pub use writer::{ChannelText, Compression, Profile, Stamped, Writer};
