//! The face of a back end, and the events that it delivers to its node.

use super::links::Source;
use super::{Change, Document, NodeId, Origin, Peer};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Events of a back end for its node. Delivered through [`Sink`], in order per remote node.
#[derive(Debug)]
pub enum Event {
    /// A node appeared, or its full state was fetched again after a gap.
    Document(Box<Document>),
    /// A known node's state moved from one revision to the next; the directory asks for the full state on a gap.
    Change(NodeId, Change),
    /// A node is gone: closed, killed, or silent beyond its lease.
    Gone(NodeId),
    /// A node calls this one.
    Call {
        /// The asker, by its own statement.
        from: NodeId,
        /// `true` if it came by a way on which that node may speak for itself, as far as the back end can know.
        genuine: bool,
        /// The number of the call here, for [`Discovery::answer`].
        id: u64,
        /// The question.
        request: Vec<u8>,
    },
    /// A node answers an earlier call.
    Answer {
        /// The node that answers.
        from: NodeId,
        /// The number given to [`Discovery::call`].
        id: u64,
        /// The answer.
        answer: Vec<u8>,
    },
    /// A call of this node cannot be sent, and why.
    Unreachable {
        /// The number given to [`Discovery::call`].
        id: u64,
        /// A sentence.
        why: String,
    },
    /// A warning for the user, such as "no multicast on this network: no peer can be found by scouting".
    Warning(String),
    /// A connection of this host was refused, or ended before a hello.
    Rejected(Peer),
}

/// The receiver of back ends' events: the node's mailbox. Never blocks.
#[derive(Clone)]
pub struct Sink {
    deliver: Arc<dyn Fn(Origin, Event) + Send + Sync>,
    has_room: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Sink {
    /// A sink that passes every event of any origin to `deliver`, and always has room.
    #[cfg(any(test, feature = "testing"))]
    pub fn new(deliver: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self::with_origin(move |_, event| deliver(event), || true)
    }
    /// A sink that passes every event to `deliver`. While `has_room` is false, back ends read nothing from others, or
    /// drop events that they cannot hold back.
    pub fn with_origin(
        deliver: impl Fn(Origin, Event) + Send + Sync + 'static,
        has_room: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { deliver: Arc::new(deliver), has_room: Arc::new(has_room) }
    }
    /// Delivers one event.
    pub fn deliver(&self, origin: Origin, event: Event) {
        (self.deliver)(origin, event)
    }
    /// `true` if the mailbox takes more of others' statements.
    pub fn has_room(&self) -> bool {
        (self.has_room)()
    }
}

/// One way of finding other nodes and talking to them. Called by the node's control thread only; must not block.
pub trait Discovery: Send {
    /// This node's state changed. `document` is the whole of it, `change` the difference to the previous announcement.
    fn announce(&mut self, document: &Arc<Document>, change: &Change);

    /// Sends a call; the answer comes as [`Event::Answer`]. `false`: this back end does not know that node.
    fn call(&mut self, to: NodeId, id: u64, request: &[u8]) -> bool;

    /// Sends a call over TCP to one of these addresses of `to`, so that the receiver sees its origin; if there is a
    /// link, over that. `false`: this back end makes no connections.
    fn call_directly(&mut self, to: NodeId, addresses: &[SocketAddr], id: u64, request: &[u8]) -> bool {
        let _ = (to, addresses, id, request);
        false
    }

    /// Answers the call that [`Event::Call`] brought from `to` under the number `id`. `false`: no such call waits here.
    fn answer(&mut self, to: NodeId, id: u64, answer: &[u8]) -> bool;

    /// A gap in `node`'s revisions was seen: fetch its full document. `false`: this back end does not know that node.
    fn refresh(&mut self, node: NodeId) -> bool;

    /// Further places where nodes may be that this one has no link to yet.
    fn look(&mut self, _source: Source) {}

    /// `true` if a node is linked by the unix socket: the kernel reported the user of its process, who may use the
    /// run directory.
    fn is_of_this_host(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// A peer connected to one of this node's listeners and asked for a control link (its first byte, already read,
    /// was [`CONTROL_LINK`](super::CONTROL_LINK)); by TCP from this address, as it was accepted. Gives the stream back if this back end has no use for it.
    fn adopt(&mut self, stream: OwnedFd, from: Option<IpAddr>) -> Option<OwnedFd> {
        let _ = from;
        Some(stream)
    }
}

impl Event {
    /// Its approximate size in a mailbox, in bytes.
    pub fn weight(&self) -> usize {
        let held = match self {
            Event::Document(document) => document.weight(),
            Event::Change(_, change) => change.weight(),
            Event::Call { request, .. } => request.len(),
            Event::Answer { answer, .. } => answer.len(),
            Event::Warning(text) | Event::Unreachable { why: text, .. } => text.len(),
            Event::Gone(_) | Event::Rejected(_) => 0,
        };
        held + size_of::<Event>()
    }
}
