//! The driver: the threads of a node. Only here are clocks read and carriers called.
//!
//! | thread | how many | what it does |
//! |---|---|---|
//! | `control` | 1 | listeners, handshakes, matching, liveness, administration |
//! | `links` | 1 | control links to other nodes (see [`crate::control`]) |
//! | `reader` | ≤ 8 | one channel each, blocking |
//! | `readers` | ≤ 1 | all further channels |
//! | `send-CLASS` | ≤ 1 per class | drains flows whose socket was full, flushes batches |
//! | `send-FLOW` | one per channel with scheduling or processors of its own | sends all its samples |

mod administer;
mod channels;
mod commands;
mod control;
mod dial;
mod entries;
mod incoming;
mod keep;
mod news;
mod priority;
mod reader;
mod sender;
mod start;
mod state;
mod wanted;
mod wrap;

pub(crate) use commands::{Administration, End, Reader};
pub(crate) use control::{Command, Control};
pub(crate) use entries::Reply;
pub(crate) use reader::Readers;
pub(crate) use sender::{FlowNews, Own, Senders};
pub(crate) use state::NodeState;
pub use wrap::Around;
