//! Topics for Foxglove and Lichtblick, by their WebSocket protocol. One thread serves all clients, none of whom it waits for; no topic is
//! subscribed to that no client wants.
//!
//! | module | contents |
//! |---|---|
//! | `handshake` | whose request opens a WebSocket |
//! | `protocol` | Foxglove's messages |
//! | `queue` | the last samples, in bounded memory |
//! | `client` | one client: subscriptions, rates, the messages that it gets |
//! | `connection` | a client's WebSocket (`tungstenite`), its limits and deadlines |
//! | `topics` | topics as channels; the subscribers |
//! | `server` | the thread: connections, and time |

mod client;
mod connection;
mod handshake;
mod protocol;
mod queue;
mod server;
mod topics;

use super::access::Access;
use crate::failure::{Failure, Result};
use clap::Args;
use handshake::Rules;
pub(super) use server::Serving;
use std::net::SocketAddr;
use thalweg::Node;

/// What viewers are served.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Serve Foxglove and Lichtblick here, such as 127.0.0.1:8765: the topics with their types, read-only
    #[arg(long, value_name = "IP:PORT")]
    pub(super) foxglove: Option<SocketAddr>,
    /// Most samples per second that a viewer gets of one topic; older ones are left out
    #[arg(long, value_name = "HZ", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000), requires = "foxglove")]
    foxglove_rate: u32,
    /// A web page that may connect as a viewer, besides Foxglove's own: http://lichtblick.local:8080 (repeatable)
    #[arg(long, value_name = "URL", requires = "foxglove")]
    foxglove_origin: Vec<String>,
}

impl Options {
    /// Serves, if it is asked for, until the result is dropped. `names`: of this host.
    pub(super) fn start(&self, node: &Node, names: &[String]) -> Result<Option<(SocketAddr, Serving)>> {
        let Some(at) = self.foxglove else { return Ok(None) };
        let rules = Rules { access: Access::new(at, names, None), origins: self.foxglove_origin.clone() };
        let unusable =
            |error| Failure::Usage(format!("--foxglove {at}: {error}; name another port, or end what has this one"));
        server::start(at, node.clone(), rules, self.foxglove_rate).map(Some).map_err(unusable)
    }
}
