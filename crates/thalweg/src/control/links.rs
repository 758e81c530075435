//! Control links: a small protocol between two nodes over any byte stream, unix or TCP.
//!
//! Both sides say hello (version, realm, node), then send their document, then each change of it; calls and answers travel
//! in between. One thread per node serves all links, and never waits for a peer. A node is gone when the last link
//! to it ends, which a killed process does at once.

mod connections;
mod exchange;
pub(crate) mod frame;
mod link;
mod target;
mod worker;

pub use frame::MESSAGE_LIMIT;
pub use link::OUT_LIMIT;
pub use target::Address;

use super::local::Users;
use super::{Change, Discovery, Document, Event, NodeId, Origin, Sink};
use crate::guard::{or_abort, parsing};
use linux::poll::Waker;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most calls and answers that wait for the links' thread.
const MOST_COMMANDS: usize = 4096;

/// A source of addresses to connect to at the node's start. Nodes that start later find it by themselves.
#[derive(Clone, Debug)]
pub enum Source {
    /// Unix sockets of the nodes of this host, each tried once, and whose they may be (see [`super::local`]).
    Sockets(Vec<PathBuf>, Users),
    /// TCP addresses, kept connected (see [`super::static_file`]).
    Addresses(Vec<std::net::SocketAddr>),
}

impl Source {
    fn addresses(self, own: &Document) -> Vec<Address> {
        match self {
            Source::Sockets(paths, users) => paths.into_iter().map(|path| Address::Unix(path, users)).collect(),
            Source::Addresses(all) => {
                all.into_iter().filter(|a| !own.addresses.contains(a)).map(Address::Tcp).collect()
            }
        }
    }
}

/// Counters of events that should not happen.
#[derive(Debug, Default)]
pub struct Counters {
    /// Links closed because of bytes that are no message.
    pub garbage: AtomicU64,
    /// Links closed because the peer speaks another version.
    pub other_version: AtomicU64,
    /// Links closed because the peer is in another realm.
    pub other_realm: AtomicU64,
    /// Unix sockets of users who may not use the run directory, or who admit no user.
    pub other_user: AtomicU64,
    /// Links closed because the peer did not read.
    pub not_reading: AtomicU64,
    /// Links closed because the peer did not say hello in time.
    pub silent: AtomicU64,
    /// Further links to nodes that have one: announcements on them are ignored.
    pub second: AtomicU64,
    /// Calls and answers dropped: too large, or too many at once.
    pub dropped: AtomicU64,
}

/// Commands of the node's control thread to the links' thread.
enum Command {
    Call(NodeId, u64, Vec<u8>),
    /// On this link, to the call with this number of its peer.
    Answer(u64, u64, Vec<u8>),
    /// A call to a node without a link, at these addresses.
    Reach(NodeId, Vec<SocketAddr>, u64, Vec<u8>),
    Refresh(NodeId),
    Adopt(OwnedFd, Option<IpAddr>),
    Look(Source),
    Stop,
}

#[derive(Default)]
struct Inbox {
    commands: VecDeque<Command>,
    announcement: Option<(Arc<Document>, Change)>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    waker: Waker,
    known: Mutex<HashSet<NodeId>>,
    /// Those with a unix socket on this host.
    here: Mutex<HashSet<NodeId>>,
    /// Open calls, by their number here: the link on which each came, and its number there. A peer's statement about
    /// itself must not decide where an answer goes.
    asked: Mutex<BTreeMap<u64, (u64, u64)>>,
    settled: Mutex<Settled>,
    settling: Condvar,
    counters: Counters,
}

impl Shared {
    fn new() -> io::Result<Self> {
        Ok(Self {
            inbox: Mutex::default(),
            waker: Waker::new()?,
            known: Mutex::default(),
            here: Mutex::default(),
            asked: Mutex::default(),
            settled: Mutex::new(Settled { asked: 1, begun: 1, answered: 0 }),
            settling: Condvar::new(),
            counters: Counters::default(),
        })
    }
}

/// The control links of one node.
pub struct Links {
    shared: Arc<Shared>,
    sink: Sink,
    thread: Option<JoinHandle<()>>,
}

/// The message to a peer that is not let in, before it is closed.
pub(crate) fn farewell(reason: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(frame::Kind::Bye, &[reason.as_bytes()], &mut bytes);
    bytes
}

/// Counts of looks around: requested, begun, and the last one that all present nodes have answered.
#[derive(Default)]
struct Settled {
    asked: u64,
    begun: u64,
    answered: u64,
}

/// The end of a node's looks around.
pub struct Settlement(Arc<Shared>);

impl Settlement {
    /// As [`Links::settled`].
    pub fn wait(&self, timeout: Duration) -> bool {
        let settled = lock(&self.0.settled);
        let asked = settled.asked;
        let waited = self.0.settling.wait_timeout_while(settled, timeout, |settled| settled.answered < asked);
        waited.unwrap_or_else(PoisonError::into_inner).0.answered >= asked
    }
}

impl Links {
    /// Starts the thread that serves the links, and connects to all addresses of `sources`.
    ///
    /// # Errors
    /// If the kernel gives no descriptor or thread.
    pub fn start(document: Arc<Document>, sources: Vec<Source>, sink: Sink) -> io::Result<Self> {
        let shared = Arc::new(Shared::new()?);
        let worker = worker::Worker::new(document, sources, shared.clone(), sink.clone())?;
        let thread =
            linux::thread::spawn(parsing("thalweg-links"), move || or_abort("control links", || worker.run()))?;
        Ok(Self { shared, sink, thread: Some(thread) })
    }

    /// Waits until every peer that was tried so far has sent its document (or turned out to be absent), at most
    /// `timeout`. `false`: a peer has not answered yet.
    #[cfg(any(test, feature = "testing"))]
    pub fn settled(&self, timeout: Duration) -> bool {
        self.settlement().wait(timeout)
    }

    /// The event that [`Links::settled`] waits for, for a caller that gave the links away.
    pub fn settlement(&self) -> Settlement {
        Settlement(self.shared.clone())
    }

    /// Counters of events that should not happen.
    #[cfg(any(test, feature = "testing"))]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    fn send(&self, to: NodeId, command: Command) -> bool {
        lock(&self.shared.known).contains(&to) && {
            self.push(command);
            true
        }
    }

    fn push(&self, command: Command) {
        let mut inbox = lock(&self.shared.inbox);
        if inbox.commands.len() >= MOST_COMMANDS && !matches!(command, Command::Stop) {
            drop(inbox);
            self.dropped(format!("more than {MOST_COMMANDS} calls at once"));
            return;
        }
        inbox.commands.push_back(command);
        drop(inbox);
        self.shared.waker.wake();
    }

    fn fits(&self, what: &str, to: NodeId, bytes: &[u8]) -> bool {
        let fits = bytes.len() + 8 <= MESSAGE_LIMIT;
        if !fits {
            self.dropped(format!("{what} of {} bytes for node {to}: {MESSAGE_LIMIT} are allowed", bytes.len()));
        }
        fits
    }

    fn dropped(&self, what: String) {
        self.shared.counters.dropped.fetch_add(1, Ordering::Relaxed);
        self.sink.deliver(Origin::Own, Event::Warning(format!("dropped: {what}")));
    }
}

impl Discovery for Links {
    fn announce(&mut self, document: &Arc<Document>, change: &Change) {
        let mut inbox = lock(&self.shared.inbox);
        match &mut inbox.announcement {
            Some((newest, all)) => {
                all.merge(change);
                *newest = document.clone();
            }
            none => *none = Some((document.clone(), change.clone())),
        }
        drop(inbox);
        self.shared.waker.wake();
    }

    fn call(&mut self, to: NodeId, id: u64, request: &[u8]) -> bool {
        !self.fits("a call", to, request) || self.send(to, Command::Call(to, id, request.to_vec()))
    }

    fn call_directly(&mut self, to: NodeId, addresses: &[SocketAddr], id: u64, request: &[u8]) -> bool {
        if self.call(to, id, request) {
            return true;
        }
        let some = !addresses.is_empty();
        if some {
            self.push(Command::Reach(to, addresses.to_vec(), id, request.to_vec()));
        }
        some
    }

    fn answer(&mut self, to: NodeId, id: u64, answer: &[u8]) -> bool {
        let Some((link, theirs)) = lock(&self.shared.asked).remove(&id) else { return false };
        if self.fits("an answer", to, answer) {
            self.push(Command::Answer(link, theirs, answer.to_vec()));
        }
        true
    }

    fn refresh(&mut self, node: NodeId) -> bool {
        self.send(node, Command::Refresh(node))
    }

    fn look(&mut self, source: Source) {
        lock(&self.shared.settled).asked += 1;
        self.push(Command::Look(source));
    }

    fn is_of_this_host(&self, node: NodeId) -> bool {
        lock(&self.shared.here).contains(&node)
    }

    fn adopt(&mut self, stream: OwnedFd, from: Option<IpAddr>) -> Option<OwnedFd> {
        self.push(Command::Adopt(stream, from));
        None
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.push(Command::Stop);
        let Some(thread) = self.thread.take() else { return };
        // The last owner may be the sink, whose deliveries run on the thread itself: it ends by itself then.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// State behind these locks stays usable if a holder panicked: all of it is replaced, never half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
