//! The thread that serves a node's control links.

use super::frame::{Hello, Kind, MESSAGE_LIMIT, VERSION};
use super::link::{Link, Overflow, Stage};
use super::target::{Address, Attempt, State, Target, set_options};
use super::{Command, Shared, Source, lock};
use crate::control::{CONTROL_LINK, Change, Document, Event, NodeId, Sink};
use linux::poll::{Poller, Readiness, Ready};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A peer says hello within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most links of a node.
const MOST_LINKS: usize = 8192;
/// Most different warnings about peers.
const MOST_WARNINGS: usize = 256;
const WAKER: u64 = 0;

/// Why a link ends.
pub(super) enum Close {
    /// The peer is gone, or said goodbye.
    Ended(String),
    /// This very node: its own address stands in the list.
    Own,
    /// Something to count, and to tell a person and the peer.
    Refused(fn(&super::Counters) -> &AtomicU64, String),
}

/// A node at the other end of one or more links.
#[derive(Default)]
pub(super) struct Peer {
    pub links: Vec<u64>,
    /// Revision of what was delivered last.
    pub told: Option<u64>,
    /// Its next document is delivered whatever its revision.
    pub asked: bool,
}

/// Everything the thread owns.
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) sink: Sink,
    poller: Poller,
    pub(super) document: Arc<Document>,
    encoded: Option<Vec<u8>>,
    pub(super) links: HashMap<u64, Link>,
    next_token: u64,
    pub(super) peers: HashMap<NodeId, Peer>,
    pub(super) targets: Vec<Target>,
    /// Targets whose node was there at the start and has not told its document yet.
    pub(super) unsettled: HashSet<usize>,
    warned: HashSet<String>,
}

impl Worker {
    pub(super) fn new(
        document: Arc<Document>,
        sources: Vec<Source>,
        shared: Arc<Shared>,
        sink: Sink,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let own = document.addresses.clone();
        let addresses = sources.into_iter().flat_map(|source| match source {
            Source::Sockets(paths, users) => {
                paths.into_iter().map(|path| Address::Unix(path, users)).collect::<Vec<_>>()
            }
            Source::Addresses(all) => all.into_iter().filter(|a| !own.contains(a)).map(Address::Tcp).collect(),
        });
        let targets: Vec<_> = addresses.map(|address| Target::new(address, now)).collect();
        let poller = Poller::new()?;
        poller.add(&shared.waker, WAKER, Readiness::IN)?;
        let unsettled = (0..targets.len()).collect();
        let (links, peers, warned, next_token) = (HashMap::new(), HashMap::new(), HashSet::new(), WAKER + 1);
        let encoded = None;
        Ok(Self { shared, sink, poller, document, encoded, links, next_token, peers, targets, unsettled, warned })
    }

    /// Serves the links until told to stop.
    pub fn run(mut self) {
        let (mut ready, mut scratch) = (Vec::<Ready>::with_capacity(64), vec![0; 64 << 10]);
        loop {
            let now = Instant::now();
            self.connect_due(now);
            self.close_silent(now);
            self.tell_settled();
            let timeout = self.next_time().map(|at| at.saturating_duration_since(Instant::now()));
            if let Err(error) = self.poller.wait(&mut ready, timeout) {
                return self.warn(format!("control links stopped: {error}"));
            }
            for event in &ready {
                if event.token == WAKER {
                    self.shared.waker.clear();
                    if !self.obey() {
                        return self.say_goodbye();
                    }
                } else {
                    self.serve(event, &mut scratch);
                }
            }
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let targets = self.targets.iter().filter_map(|t| match t.state {
            State::Waiting(at) => Some(at),
            State::Linked | State::Done => None,
        });
        let greetings = self.links.values().filter(|l| l.stage != Stage::Open).map(|l| l.patience);
        targets.chain(greetings).min()
    }

    fn connect_due(&mut self, now: Instant) {
        for index in 0..self.targets.len() {
            let target = &mut self.targets[index];
            if !matches!(target.state, State::Waiting(at) if at <= now) {
                continue;
            }
            match target.attempt(now) {
                Attempt::Stream(stream, connected) => self.link(stream, connected, Some(index)),
                Attempt::Failed(error) => self.target_failed(index, &error),
            }
        }
    }

    fn target_failed(&mut self, index: usize, error: &io::Error) {
        let target = &mut self.targets[index];
        let waits_for_its_turn = matches!((&target.address, target.state), (Address::Unix(..), State::Waiting(_)));
        if !waits_for_its_turn {
            self.unsettled.remove(&index);
        }
        if let (Address::Unix(path, _), io::ErrorKind::PermissionDenied) = (&target.address, error.kind()) {
            let text = format!("no control link with {}: {error}", path.display());
            self.shared.counters.other_user.fetch_add(1, Ordering::Relaxed);
            return self.warn_once(text);
        }
        if target.is_hopeless() {
            target.warned = true;
            let text = format!("no node answers at {}: {error}; tried again every second", target.address);
            self.warn(text);
        }
    }

    fn close_silent(&mut self, now: Instant) {
        let silent = |link: &Link| link.stage != Stage::Open && link.patience <= now;
        let tokens: Vec<u64> = self.links.iter().filter(|(_, link)| silent(link)).map(|(token, _)| *token).collect();
        for token in tokens {
            self.close(token, Close::Refused(|c| &c.silent, format!("no hello within {} s", PATIENCE.as_secs())));
        }
    }

    fn tell_settled(&mut self) {
        if self.unsettled.is_empty() {
            let mut settled = lock(&self.shared.settled);
            if !*settled {
                *settled = true;
                self.shared.settling.notify_all();
            }
        }
    }

    /// Makes a link of a stream: one that this node made for a target, or one that a peer made.
    fn link(&mut self, stream: OwnedFd, connected: bool, target: Option<usize>) {
        let stage = if connected { Stage::Greeting } else { Stage::Connecting };
        let mut link = Link::new(stream, stage, target, Instant::now() + PATIENCE);
        if target.is_some() {
            link.queue_raw(&[CONTROL_LINK]);
        }
        let hello = Hello { version: VERSION, realm: self.document.realm.clone(), node: Some(self.document.node) };
        if let Ok(body) = serde_json::to_vec(&hello) {
            let _ = link.queue(Kind::Hello, &[&body]);
        }
        let token = self.next_token;
        self.next_token += 1;
        let watched = if connected { Readiness::IN } else { Readiness::OUT };
        link.watches_room = !connected;
        let added = match self.links.len() < MOST_LINKS {
            true => self.poller.add(&link, token, watched),
            false => Err(io::Error::other(format!("{MOST_LINKS} links are the most"))),
        };
        self.links.insert(token, link);
        match added {
            Ok(()) if connected => self.flush(token),
            Ok(()) => {}
            Err(error) => self.close(token, Close::Ended(error.to_string())),
        }
    }

    /// Takes what the control thread asks; `false`: to stop.
    fn obey(&mut self) -> bool {
        let inbox = std::mem::take(&mut *lock(&self.shared.inbox));
        if let Some((document, change)) = inbox.announcement {
            self.announce(document, &change);
        }
        for command in inbox.commands {
            match command {
                Command::Call(to, id, request) => self.send(to, Kind::Call, &[&id.to_le_bytes(), &request]),
                Command::Answer(to, id, answer) => self.send(to, Kind::Answer, &[&id.to_le_bytes(), &answer]),
                Command::Refresh(node) => {
                    if let Some(peer) = self.peers.get_mut(&node) {
                        peer.asked = true;
                        self.send(node, Kind::Refresh, &[]);
                    }
                }
                Command::Adopt(stream) => self.adopt(stream),
                Command::Stop => return false,
            }
        }
        true
    }

    fn adopt(&mut self, stream: OwnedFd) {
        set_options(&stream);
        match rustix::io::ioctl_fionbio(&stream, true) {
            Ok(()) => self.link(stream, true, None),
            Err(error) => self.warn(format!("a control link could not be taken: {error}")),
        }
    }

    fn announce(&mut self, document: Arc<Document>, change: &Change) {
        self.document = document;
        self.encoded = None;
        let Ok(encoded) = serde_json::to_vec(change) else { return };
        let open: Vec<u64> = self.links.iter().filter(|(_, l)| l.stage == Stage::Open).map(|(t, _)| *t).collect();
        for token in open {
            let Some(link) = self.links.get_mut(&token) else { continue };
            if encoded.len() > MESSAGE_LIMIT {
                link.owe_document();
            }
            match link.owe_change(change, &encoded) {
                Ok(()) => self.flush(token),
                Err(Overflow) => self.close(token, not_reading()),
            }
        }
    }

    fn send(&mut self, to: NodeId, kind: Kind, parts: &[&[u8]]) {
        let Some(token) = self.peers.get(&to).and_then(|p| p.links.first().copied()) else { return };
        let Some(link) = self.links.get_mut(&token) else { return };
        match link.queue(kind, parts) {
            Ok(()) => self.flush(token),
            Err(Overflow) => self.close(token, not_reading()),
        }
    }

    /// Writes what a link has to write, and watches for room if something is left.
    pub(super) fn flush(&mut self, token: u64) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let (document, encoded, sink) = (&self.document, &mut self.encoded, &self.sink);
        let mut body = || encoded.get_or_insert_with(|| encode(document, sink)).clone();
        if let Err(error) = link.flush(&mut body) {
            return self.close(token, Close::Ended(error.to_string()));
        }
        let wants_room = link.waiting() > 0;
        if wants_room != link.watches_room {
            link.watches_room = wants_room;
            let watched = if wants_room { Readiness::IN | Readiness::OUT } else { Readiness::IN };
            if let Err(error) = self.poller.change(&*link, token, watched) {
                self.close(token, Close::Ended(error.to_string()));
            }
        }
    }

    fn serve(&mut self, event: &Ready, scratch: &mut [u8]) {
        let Some(link) = self.links.get_mut(&event.token) else { return };
        if link.stage == Stage::Connecting {
            return match link.connected() {
                Ok(()) => {
                    link.stage = Stage::Greeting;
                    self.flush(event.token);
                    // Nothing waits any more, or there is still something: either way reading starts now.
                    self.watch(event.token);
                }
                Err(error) => self.close(event.token, Close::Ended(error.to_string())),
            };
        }
        if event.flags.intersects(Readiness::OUT) {
            self.flush(event.token);
        }
        if event.flags.intersects(Readiness::IN | Readiness::HUP | Readiness::ERR | Readiness::RDHUP)
            && let Err(close) = self.receive(event.token, scratch)
        {
            self.close(event.token, close);
        }
    }

    fn watch(&mut self, token: u64) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let watched = if link.watches_room { Readiness::IN | Readiness::OUT } else { Readiness::IN };
        let _ = self.poller.change(&*link, token, watched);
    }

    fn close(&mut self, token: u64, why: Close) {
        let Some(mut link) = self.links.remove(&token) else { return };
        let _ = self.poller.remove(&link);
        let place = link.target.map_or("a peer that connected".to_owned(), |t| self.targets[t].address.to_string());
        if let Close::Refused(counter, reason) = &why {
            link.farewell(reason);
            counter(&self.shared.counters).fetch_add(1, Ordering::Relaxed);
            self.warn_once(format!("control link with {place} closed: {reason}"));
        } else if let (Close::Ended(reason), Stage::Greeting) = (&why, link.stage)
            && !reason.is_empty()
        {
            self.warn_once(format!("control link with {place} was refused: {reason}"));
        }
        self.target_ended(&link, &why);
        let Some(node) = link.peer else { return };
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.links.retain(|l| *l != token);
        if peer.links.is_empty() {
            let told = self.peers.remove(&node).and_then(|p| p.told);
            lock(&self.shared.known).remove(&node);
            if told.is_some() {
                self.sink.deliver(Event::Gone(node));
            }
        }
    }

    fn target_ended(&mut self, link: &Link, why: &Close) {
        let Some(index) = link.target else { return };
        self.unsettled.remove(&index);
        let target = &mut self.targets[index];
        match why {
            Close::Own => target.state = State::Done,
            _ if link.stage == Stage::Open => target.ended(Instant::now()),
            Close::Ended(reason) | Close::Refused(_, reason) => {
                let error = io::Error::other(reason.clone());
                target.failed(&error, Instant::now());
                self.target_failed(index, &error);
            }
        }
    }

    fn say_goodbye(&mut self) {
        for link in self.links.values_mut() {
            link.farewell("closed");
        }
    }

    /// What a peer does again and again is told once; the counters count all.
    fn warn_once(&mut self, text: String) {
        if self.warned.len() < MOST_WARNINGS && self.warned.insert(text.clone()) {
            self.warn(text);
        }
    }

    fn warn(&self, text: String) {
        self.sink.deliver(Event::Warning(text));
    }
}

fn not_reading() -> Close {
    let most = super::OUT_LIMIT >> 20;
    Close::Refused(|c| &c.not_reading, format!("it does not read, and {most} MiB wait for it"))
}

/// The document as bytes. One that is larger than a message may be is told without its ports, and a person is told so.
fn encode(document: &Document, sink: &Sink) -> Vec<u8> {
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    if bytes.len() <= MESSAGE_LIMIT {
        return bytes;
    }
    let (ports, size) = (document.ports.len(), bytes.len());
    sink.deliver(Event::Warning(format!(
        "the {ports} ports of this node need {size} bytes, {MESSAGE_LIMIT} are allowed: others cannot see them"
    )));
    serde_json::to_vec(&Document { ports: Default::default(), ..document.clone() }).unwrap_or_default()
}
