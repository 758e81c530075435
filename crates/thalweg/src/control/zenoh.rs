//! Nodes of other hosts, found and talked to through Zenoh. No Zenoh type leaves this file.
//!
//! | key | content |
//! |---|---|
//! | `thalweg/1/<realm>/<node>/alive` | a liveliness token: the node is there |
//! | `thalweg/1/<realm>/<node>/doc` | asked for: its document; published: changes of it |
//! | `thalweg/1/<realm>/<node>/admin` | asked: calls, with the caller and its number as attachment |
//!
//! Opening takes up to half a second, so a thread of its own does it; requests wait in a queue meanwhile. Zenoh's
//! callbacks only fill queues.

#![allow(clippy::disallowed_methods)] // the threads of this back end read the clock

mod settings;
mod share;

pub use settings::{ZenohError, ZenohSettings};

use share::Guard;

use super::links::MESSAGE_LIMIT;
use super::{Change, Discovery, Document, Event, NodeId, Origin, Sink, limits, number_call};
use crate::guard::{or_abort, parsing};
use ::zenoh::bytes::ZBytes;
use ::zenoh::liveliness::LivelinessToken;
use ::zenoh::qos::CongestionControl;
use ::zenoh::query::{ConsolidationMode, Query, Reply};
use ::zenoh::sample::{Sample, SampleKind};
use ::zenoh::{Config, Session, Wait};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

/// Most things that wait for the thread.
const MOST_COMMANDS: usize = 4096;
/// Most calls of others that wait for an answer.
const MOST_CALLS: usize = 1024;
/// A call not answered within this time is given up by the caller.
const CALL_TIME: Duration = Duration::from_secs(10);
/// The first pause before a missing document is requested again; it doubles each time, up to the longest. A token alone costs
/// nothing to put up, and a thousand of them took 0.6 of a processor when each was asked every 500 ms.
const FETCH_AGAIN: Duration = Duration::from_millis(500);
const LONGEST_FETCH: Duration = Duration::from_secs(30);
/// Most tokens whose documents have not come; beyond, the one that was asked for most often is forgotten.
const MOST_UNANSWERED: usize = 256;
/// Dropping waits this long for Zenoh to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

type Failure = Box<dyn std::error::Error + Send + Sync>;

enum Command {
    /// There is an announcement, or a document to fetch.
    Look,
    Call(NodeId, u64, Vec<u8>),
    Answer(u64, Vec<u8>),
    /// A query for this node's document.
    Tell(Query),
}

#[derive(Default)]
struct Peer {
    /// Revision of the last delivered document.
    told: Option<u64>,
    /// Latest revision that a change spoke of.
    heard: u64,
    /// The next document is delivered with any revision.
    asked: bool,
    /// The time to ask for its document …
    fetch_at: Option<Instant>,
    /// … and the number of requests without an answer.
    tries: u32,
}

impl Peer {
    /// Records a request for it now; sets the time of the next one.
    fn asked(&mut self, now: Instant) {
        let pause = FETCH_AGAIN.saturating_mul(1 << self.tries.min(10)).min(LONGEST_FETCH);
        (self.fetch_at, self.tries) = (Some(now + pause), self.tries.saturating_add(1));
    }
}

/// Room for another token that has no document yet.
fn make_room(peers: &mut HashMap<NodeId, Peer>) {
    let unanswered = |peer: &Peer| peer.told.is_none();
    if peers.values().filter(|peer| unanswered(peer)).count() >= MOST_UNANSWERED {
        let vain = peers.iter().filter(|(_, peer)| unanswered(peer)).max_by_key(|(_, peer)| peer.tries);
        if let Some(node) = vain.map(|(node, _)| *node) {
            peers.remove(&node);
        }
    }
}

struct Shared {
    node: NodeId,
    realm: String,
    sink: Sink,
    commands: SyncSender<Command>,
    document: Mutex<(Arc<Document>, Option<Change>)>,
    peers: Mutex<HashMap<NodeId, Peer>>,
    calls: Mutex<HashMap<u64, (Query, Instant)>>,
    garbage: AtomicU64,
    opened: AtomicBool,
    stopping: AtomicBool,
}

/// The Zenoh back end of one node.
pub struct Zenoh {
    shared: Arc<Shared>,
    ended: Receiver<()>,
}

impl Zenoh {
    /// Starts opening Zenoh; returns at once.
    ///
    /// # Errors
    /// If an address in `settings` or the realm's name is malformed, or the kernel gives no thread.
    pub fn start(document: Arc<Document>, settings: &ZenohSettings, sink: Sink) -> Result<Self, ZenohError> {
        super::local::check_realm(&document.realm).map_err(|e| ZenohError(e.to_string()))?;
        let config = configuration(&settings.entries()?)?;
        settings.warnings().into_iter().for_each(|text| sink.deliver(Origin::Own, Event::Warning(text)));
        let (commands, queue) = sync_channel(MOST_COMMANDS);
        let (tell_end, ended) = channel();
        let shared = Arc::new(Shared {
            node: document.node,
            realm: document.realm.clone(),
            sink,
            commands,
            document: Mutex::new((document, None)),
            peers: Mutex::default(),
            calls: Mutex::default(),
            garbage: AtomicU64::new(0),
            opened: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        });
        let own = shared.clone();
        let serve = move || {
            if let Err(error) = run(config, &own, &queue) {
                own.warn(format!("Zenoh could not be opened, so nodes of other hosts are not found: {error}"));
            }
            let _ = tell_end.send(());
        };
        linux::thread::spawn(parsing("thalweg-zenoh"), move || or_abort("Zenoh", serve))
            .map_err(|e| ZenohError(format!("no thread for Zenoh: {e}")))?;
        Ok(Self { shared, ended })
    }
}

impl Discovery for Zenoh {
    fn announce(&mut self, document: &Arc<Document>, change: &Change) {
        let mut state = lock(&self.shared.document);
        state.0 = document.clone();
        match &mut state.1 {
            Some(all) => all.merge(change),
            none => *none = Some(change.clone()),
        }
        drop(state);
        self.shared.push(Command::Look);
    }

    fn call(&mut self, to: NodeId, id: u64, request: &[u8]) -> bool {
        lock(&self.shared.peers).contains_key(&to) && {
            self.shared.push(Command::Call(to, id, request.to_vec()));
            true
        }
    }

    fn answer(&mut self, _: NodeId, id: u64, answer: &[u8]) -> bool {
        lock(&self.shared.calls).contains_key(&id) && {
            self.shared.push(Command::Answer(id, answer.to_vec()));
            true
        }
    }

    fn refresh(&mut self, node: NodeId) -> bool {
        let mut peers = lock(&self.shared.peers);
        let Some(peer) = peers.get_mut(&node) else { return false };
        (peer.asked, peer.fetch_at) = (true, Some(Instant::now()));
        drop(peers);
        self.shared.push(Command::Look);
        true
    }
}

impl Drop for Zenoh {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.push(Command::Look);
        // A thread that is still opening has announced nothing: there is nothing to wait for, it ends by itself.
        if self.shared.opened.load(Ordering::Acquire) {
            let _ = self.ended.recv_timeout(GOODBYE);
        }
    }
}

/// Opens Zenoh and serves the queue until told to stop.
fn run(config: Config, shared: &Arc<Shared>, queue: &Receiver<Command>) -> Result<(), Failure> {
    let session = ::zenoh::open(config).wait()?;
    shared.opened.store(true, Ordering::Release);
    let stopping = || shared.stopping.load(Ordering::Acquire);
    let token = if stopping() { None } else { Some(declare(&session, shared)?) };
    let own = shared.clone();
    let guard = guard(&session, move |text| own.warn(text))?;
    while !stopping() {
        let next = shared.next_fetch();
        let wait = next.map_or(Duration::from_secs(60), |at| at.saturating_duration_since(Instant::now()));
        let done = match queue.recv_timeout(wait) {
            Ok(command) => obey(&session, shared, command),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if let Err(error) = done.and_then(|()| publish(&session, shared)).and_then(|()| fetch(&session, shared)) {
            shared.warn(format!("Zenoh: {error}"));
        }
    }
    drop((token, guard));
    lock(&shared.calls).clear();
    session.close().wait()
}

/// Declares what others can see and ask, and the subscriptions of this node. All of it ends with the session, the
/// node's token when it is dropped.
fn declare(session: &Session, shared: &Arc<Shared>) -> Result<LivelinessToken, Failure> {
    let own = shared.clone();
    session
        .declare_subscriber(shared.key("*", "doc"))
        .callback(move |sample| own.changed(&sample))
        .background()
        .wait()?;
    let own = shared.clone();
    let doc = session.declare_queryable(shared.own_key("doc"));
    doc.callback(move |query| own.push(Command::Tell(query))).background().wait()?;
    let own = shared.clone();
    let admin = session.declare_queryable(shared.own_key("admin"));
    admin.callback(move |query| own.called(query)).background().wait()?;
    let own = shared.clone();
    let alive = session.liveliness().declare_subscriber(shared.key("*", "alive")).history(true);
    alive.callback(move |sample| own.alive(&sample)).background().wait()?;
    // Last: nodes that see the token may ask at once.
    session.liveliness().declare_token(shared.own_key("alive")).wait()
}

/// No host has more than its share at the ports at which it listens to TCP.
fn guard(session: &Session, warn: impl Fn(String) + Send + 'static) -> io::Result<Guard> {
    let locators = session.info().locators().wait();
    let tcp = locators.iter().filter(|locator| locator.protocol().as_str() == "tcp");
    let mut ports: Vec<u16> =
        tcp.filter_map(|locator| locator.address().as_str().rsplit(':').next()?.parse().ok()).collect();
    ports.sort_unstable();
    ports.dedup();
    Guard::start(ports, settings::pending(), warn)
}

fn obey(session: &Session, shared: &Arc<Shared>, command: Command) -> Result<(), Failure> {
    match command {
        Command::Look => Ok(()),
        Command::Tell(query) => {
            let document = serde_json::to_vec(&*lock(&shared.document).0.clone())?;
            query.reply(shared.own_key("doc"), document).wait()
        }
        Command::Call(to, id, request) => {
            let label = [shared.node.0.to_le_bytes(), id.to_le_bytes()].concat();
            let own = shared.clone();
            let get = session.get(shared.key(&to.to_string(), "admin")).payload(request).attachment(label);
            let get = get.timeout(CALL_TIME).consolidation(ConsolidationMode::None);
            get.callback(move |reply| own.answered(to, id, &reply)).wait()
        }
        Command::Answer(id, answer) => match lock(&shared.calls).remove(&id) {
            Some((query, _)) => query.reply(shared.own_key("admin"), answer).wait(),
            None => Ok(()),
        },
    }
}

fn publish(session: &Session, shared: &Shared) -> Result<(), Failure> {
    let Some(change) = lock(&shared.document).1.take() else { return Ok(()) };
    let put = session.put(shared.own_key("doc"), serde_json::to_vec(&change)?);
    put.congestion_control(CongestionControl::Block).wait()
}

/// Asks for the documents that are due.
fn fetch(session: &Session, shared: &Arc<Shared>) -> Result<(), Failure> {
    let now = Instant::now();
    let mut due = Vec::new();
    for (node, peer) in lock(&shared.peers).iter_mut() {
        if peer.fetch_at.is_some_and(|at| at <= now) {
            peer.asked(now);
            due.push(*node);
        }
    }
    for node in due {
        let own = shared.clone();
        let get = session.get(shared.key(&node.to_string(), "doc")).timeout(CALL_TIME);
        let get = get.consolidation(ConsolidationMode::None);
        get.callback(move |reply| own.fetched(node, &reply)).wait()?;
    }
    Ok(())
}

/// Zenoh's callbacks: they check and enqueue.
impl Shared {
    fn alive(&self, sample: &Sample) {
        let Some(node) = self.sender(sample) else { return };
        let mut peers = lock(&self.peers);
        if sample.kind() == SampleKind::Delete {
            if peers.remove(&node).is_some_and(|peer| peer.told.is_some()) {
                self.sink.deliver(Origin::Zenoh, Event::Gone(node));
            }
        } else if peers.len() < limits::MOST_NODES {
            if !peers.contains_key(&node) {
                make_room(&mut peers);
            }
            peers.entry(node).or_default().fetch_at = Some(Instant::now());
            drop(peers);
            self.push(Command::Look);
        }
    }

    fn changed(&self, sample: &Sample) {
        let Some(node) = self.sender(sample) else { return };
        let Some(change) = self.parse::<Change>(node, sample.payload()) else { return };
        let mut peers = lock(&self.peers);
        let Some(peer) = peers.get_mut(&node) else { return };
        peer.heard = peer.heard.max(change.revision);
        // Before the first document there is nothing to change; that document is fetched again if it is older.
        let Some(told) = peer.told else { return };
        if change.revision <= told {
            return;
        }
        if !self.sink.has_room() {
            let again = Instant::now() + FETCH_AGAIN; // its document will contain the changes missed now
            peer.fetch_at = Some(peer.fetch_at.map_or(again, |at| at.min(again)));
            drop(peers);
            return self.push(Command::Look);
        }
        if change.base == told {
            peer.told = Some(change.revision);
        }
        self.sink.deliver(Origin::Zenoh, Event::Change(node, change));
    }

    fn fetched(&self, node: NodeId, reply: &Reply) {
        let Ok(sample) = reply.result() else { return };
        let Some(document) = self.parse::<Document>(node, sample.payload()) else { return };
        if document.node != node || document.realm != self.realm {
            return self.garbage(node, "a document of another node");
        }
        let mut peers = lock(&self.peers);
        let Some(peer) = peers.get_mut(&node) else { return };
        if !self.sink.has_room() {
            return; // it is asked for again
        }
        let late = peer.heard > document.revision;
        (peer.fetch_at, peer.tries) = (late.then(Instant::now), 0);
        if std::mem::take(&mut peer.asked) || peer.told.is_none_or(|told| document.revision > told) {
            peer.told = Some(document.revision);
            self.sink.deliver(Origin::Zenoh, Event::Document(Box::new(document)));
        }
        drop(peers);
        if late {
            self.push(Command::Look);
        }
    }

    fn called(&self, query: Query) {
        let label = query.attachment().map(|a| a.to_bytes().into_owned()).unwrap_or_default();
        let request = query.payload().map(|p| p.to_bytes().into_owned()).unwrap_or_default();
        let (Some((from, rest)), true) = (label.split_first_chunk::<8>(), request.len() <= MESSAGE_LIMIT) else {
            return self.garbage(self.node, "a call without a caller, or too large");
        };
        if rest.len() != 8 {
            return self.garbage(self.node, "a call without a number");
        }
        let from = NodeId(u64::from_le_bytes(*from));
        if !self.sink.has_room() {
            return self.garbage(from, "a call while the mailbox is full");
        }
        let mut calls = lock(&self.calls);
        if calls.len() >= MOST_CALLS {
            calls.retain(|_, (_, since)| since.elapsed() < CALL_TIME);
        }
        if calls.len() < MOST_CALLS {
            let id = number_call();
            calls.insert(id, (query, Instant::now()));
            drop(calls);
            self.sink.deliver(Origin::Zenoh, Event::Call { from, genuine: true, id, request });
        }
    }

    fn answered(&self, from: NodeId, id: u64, reply: &Reply) {
        let Ok(sample) = reply.result() else { return };
        if sample.payload().len() > MESSAGE_LIMIT {
            return self.garbage(from, "an answer that is too large");
        }
        self.sink.deliver(Origin::Zenoh, Event::Answer { from, id, answer: sample.payload().to_bytes().into_owned() });
    }

    fn parse<T: for<'a> serde::Deserialize<'a>>(&self, node: NodeId, payload: &ZBytes) -> Option<T> {
        if payload.len() > MESSAGE_LIMIT {
            self.garbage(node, "a message that is too large");
            return None;
        }
        let parsed = serde_json::from_slice(&payload.to_bytes());
        parsed.map_err(|error| self.garbage(node, &error.to_string())).ok()
    }
}

impl Shared {
    fn key(&self, node: &str, what: &str) -> String {
        format!("thalweg/1/{}/{node}/{what}", self.realm)
    }
    fn own_key(&self, what: &str) -> String {
        self.key(&self.node.to_string(), what)
    }
    /// The node a sample is about, unless it is this one.
    fn sender(&self, sample: &Sample) -> Option<NodeId> {
        let node = NodeId::try_from(sample.key_expr().as_str().split('/').nth(3)?.to_owned()).ok()?;
        (node != self.node).then_some(node)
    }
    fn next_fetch(&self) -> Option<Instant> {
        lock(&self.peers).values().filter_map(|p| p.fetch_at).min()
    }
    fn push(&self, command: Command) {
        // A full queue wakes the thread anyway, and a `Look` carries nothing itself.
        let look = matches!(command, Command::Look);
        if self.commands.try_send(command).is_err() && !look {
            self.warn(format!("a call was dropped: more than {MOST_COMMANDS} wait for Zenoh, or it is not open"));
        }
    }
    /// Counts malformed input; warns of the 1st, 2nd, 4th, 8th …
    fn garbage(&self, node: NodeId, what: &str) {
        let count = self.garbage.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            self.warn(format!("bad input through Zenoh from or for node {node} ({count} so far): {what}"));
        }
    }
    fn warn(&self, text: String) {
        self.sink.deliver(Origin::Own, Event::Warning(text));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn configuration(entries: &[(&str, String)]) -> Result<Config, ZenohError> {
    let mut config = Config::default();
    for (key, value) in entries {
        config.insert_json5(key, value).map_err(|e| ZenohError(format!("{key} = {value}: {e}")))?;
    }
    Ok(config)
}

/// A running Zenoh router; dropping it stops it.
pub struct RouterHandle {
    session: Option<Session>,
    _guard: Guard,
}

/// Starts a router: nodes that name it find each other through it, also across networks without multicast. Addresses
/// are `IP:PORT`, or Zenoh endpoints such as `tcp/10.0.0.1:7447`. `warn` receives warnings about hosts at their
/// limit.
///
/// # Errors
/// If an address is malformed or cannot be listened on.
pub fn router(
    listen: &[String],
    peers: &[String],
    warn: impl Fn(String) + Send + 'static,
) -> Result<RouterHandle, ZenohError> {
    let config = configuration(&settings::router_entries(listen, peers)?)?;
    let refused = |e: &dyn fmt::Display| ZenohError(format!("router on {}: {e}", listen.join(", ")));
    let session = ::zenoh::open(config).wait().map_err(|e| refused(&e))?;
    let guard = guard(&session, warn).map_err(|e| refused(&e))?;
    Ok(RouterHandle { session: Some(session), _guard: guard })
}

impl Drop for RouterHandle {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let (tell, told) = channel();
        let close = move || {
            let _ = tell.send(session.close().wait().is_ok());
        };
        if linux::thread::spawn(linux::thread::Settings::named("thalweg-close"), close).is_ok() {
            let _ = told.recv_timeout(GOODBYE);
        }
    }
}

#[cfg(test)]
mod tests;
