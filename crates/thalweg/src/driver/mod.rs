//! The driver: the threads of a node. What decides is pure and takes the time as an argument (a lint of `clippy.toml`); this room
//! and the threads that publish, send and receive read clocks and call carriers.
//!
//! | thread | how many | what it does |
//! |---|---|---|
//! | `control` | 1 | listeners, handshakes, matching, liveness, administration |
//! | `links` | 1 | control links to other nodes (see [`crate::control`]) |
//! | `reader` | ≤ 8, and one per channel with a priority or a queue that blocks of its own | one channel each, blocking |
//! | `read-CLASS` | ≤ 1 per class | all further channels of the class |
//! | `send-CLASS` | ≤ 1 per class | drains flows whose socket was full, flushes batches |
//! | `history` | ≤ 1 | fetches samples that were published earlier, for late joiners |
//! | `pull` | ≤ 1 | answers questions to histories, 32 at a time |
//! | `retransmit` | ≤ 1 | receives the reports of subscribers of reliable flows over datagrams, and retransmits |
//! | `send-FLOW` | one per channel with scheduling or processors of its own | sends all its samples |

mod administer;
mod admission;
mod answers;
mod attachments;
mod buffers;
mod calls;
mod channels;
mod commands;
mod control;
mod entries;
mod flows;
mod handshake_client;
mod handshake_server;
mod heartbeat;
mod host;
mod housekeeping;
mod incoming;
mod interfaces;
mod keep;
mod matching;
mod moves;
mod news;
mod own_ports;
mod peering;
mod permit;
mod policies;
mod priority;
mod probe;
mod proxy;
mod pull;
mod reader;
mod relay;
mod start;
mod state;
mod succession;

pub(crate) use commands::{Administration, End, Reader};
pub(crate) use control::{Command, Control};
#[cfg(any(test, feature = "testing"))]
pub(crate) use pull::read_answer;
pub(crate) use pull::{Asked, Asking, Fetch, Fetches, Holder, Questions, not_kept};
pub(crate) use reader::Readers;
pub(crate) use state::NodeState;

use std::cell::Cell;

thread_local! {
    static SERVES_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one that serves others: [`may_wait`] is `false` on it from now on.
pub(crate) fn serves_others() {
    SERVES_OTHERS.set(true);
}

/// `true` if the calling thread holds up only its own work while it waits.
pub(crate) fn may_wait() -> bool {
    !SERVES_OTHERS.get()
}
