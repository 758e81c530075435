//! The control plane: the directory of nodes and their ports, and calls between nodes.
//!
//! Discovery only proposes; the in-band handshake (`crate::handshake`) decides. No back end ever carries or delays a sample,
//! and losing one never closes a channel.
//!
//! | back end | finds | means |
//! |---|---|---|
//! | `links` + `local` | nodes of this host | a unix socket per node in a run directory; no server, no multicast |
//! | `links` + `static_file` | nodes whose addresses stand in a file | the same protocol over TCP |
//! | `zenoh` | nodes on other hosts | scouting, named peers or a router |
//! | `simulated` | nodes of one process, for tests | an in-process hub |

pub(crate) mod directory;
pub(crate) mod discovery;
mod document;
mod foreign;
pub(crate) mod kept;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod local;
pub mod matching;
mod origin;
mod ports;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod static_file;
#[cfg(feature = "zenoh")]
pub mod zenoh;

pub use local::{check_realm, check_run_dir, realms, run_dir, silent_processes};
pub use origin::{Network, NetworkError, Origin, Peer};
pub use ports::Ports;

pub(crate) use discovery::{Discovery, Event, Sink};
pub(crate) use document::{Change, kept_at_publisher};
pub use document::{Direction, Document, NodeId, NotKept, PortId, PortInfo, PullRole, RelayLoad};
pub use foreign::{Foreign, MOST_PASSED};

use std::sync::atomic::{AtomicU64, Ordering};

/// A unique number for an incoming call, from any back end: callers choose their own numbers, and any process may call in
/// any name.
fn number_call() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// First byte of a stream that asks for a control link.
pub const CONTROL_LINK: u8 = b'C';
/// First byte of a stream that asks for a channel (see `crate::handshake`).
pub const CHANNEL_HANDSHAKE: u8 = b'H';
/// First byte of a stream that asks a history (see `crate::pull`).
pub const PULL: u8 = b'P';
/// First byte of a stream that asks for heartbeats (see `Watching`).
pub const HEARTBEAT: u8 = b'L';
