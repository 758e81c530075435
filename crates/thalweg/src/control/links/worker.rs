//! The thread that serves a node's control links, and this node's messages on them.

#![allow(clippy::disallowed_methods)] // the thread of the links reads the clock

use super::connections::{Close, Waiting, not_reading, panicked};
use super::exchange::{Budgets, NO_ROOM_PAUSE, due};
use super::frame::{Kind, MESSAGE_LIMIT};
use super::link::{Link, Overflow, Stage};
use super::target::{State, Target};
use super::{Command, Shared, Source, lock};
use crate::control::{Change, Document, Event, NodeId, Origin, Sink};
use crate::guard::{abort, guarded};
use linux::poll::{Poller, Readiness, Ready, wait_readable};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// A node at the other end of one or more links.
#[derive(Default)]
pub(super) struct Linked {
    pub links: Vec<u64>,
    /// Revision of the last delivered document.
    pub told: Option<u64>,
    /// The way by which the delivered document came.
    pub told_by: Option<Origin>,
    /// Its addresses by its own statement, on the link that counts.
    pub addresses: BTreeSet<IpAddr>,
    /// The next document is delivered with any revision.
    pub asked: bool,
    /// The link of the document has ended; another one is to send the full document.
    pub renewed: bool,
}

/// Everything the thread owns.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) sink: Sink,
    pub(super) poller: Poller,
    pub(super) document: Arc<Document>,
    pub(super) encoded: Option<Vec<u8>>,
    pub(super) links: HashMap<u64, Link>,
    pub(super) origins: HashMap<u64, Origin>,
    pub(super) budgets: Budgets,
    pub(super) next_token: u64,
    pub(super) peers: HashMap<NodeId, Linked>,
    pub(super) targets: Vec<Target>,
    /// Targets whose node existed at the start and has not sent its document yet.
    pub(super) unsettled: HashSet<usize>,
    warned: HashSet<String>,
    /// Calls to nodes that have no link yet.
    pub(super) waiting: Waiting,
}

impl Worker {
    pub(super) fn new(
        document: Arc<Document>,
        sources: Vec<Source>,
        shared: Arc<Shared>,
        sink: Sink,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let addresses = sources.into_iter().flat_map(|source| source.addresses(&document));
        let targets: Vec<_> = addresses.map(|address| Target::new(address, now)).collect();
        let poller = Poller::new()?;
        poller.add(&shared.waker, WAKER, Readiness::IN)?;
        let unsettled = (0..targets.len()).collect();
        let (links, peers, warned, next_token) = (HashMap::new(), HashMap::new(), HashSet::new(), WAKER + 1);
        let (origins, budgets) = (HashMap::new(), Budgets::default());
        let encoded = None;
        Ok(Self {
            shared,
            sink,
            poller,
            document,
            encoded,
            links,
            origins,
            budgets,
            next_token,
            peers,
            targets,
            unsettled,
            warned,
            waiting: Waiting::new(),
        })
    }

    /// Serves the links until told to stop.
    pub(super) fn run(mut self) {
        let (mut ready, mut scratch) = (Vec::<Ready>::with_capacity(64), vec![0; 64 << 10]);
        loop {
            let now = Instant::now();
            self.connect_due(now);
            self.close_silent(now);
            self.release(now);
            self.tell_settled();
            if !self.sink.has_room() {
                // No link is read before the control thread has taken the waiting events; its own requests continue.
                let asked = wait_readable(&self.shared.waker, Some(NO_ROOM_PAUSE)).unwrap_or(false);
                if asked && !self.woken() {
                    return self.say_goodbye();
                }
                if !self.sink.has_room() {
                    continue;
                }
            }
            let timeout = self.next_time().map(|at| at.saturating_duration_since(Instant::now()));
            if let Err(error) = self.poller.wait(&mut ready, timeout) {
                abort(&format!("control links cannot wait any more: {error}"));
            }
            let now = Instant::now();
            for event in &ready {
                if event.token != WAKER {
                    self.serve(event, &mut scratch, now);
                } else if !self.woken() {
                    return self.say_goodbye();
                }
            }
        }
    }

    /// Serves requests of the control thread. `false`: it asks to stop.
    fn woken(&mut self) -> bool {
        self.shared.waker.clear();
        self.obey()
    }

    /// Pauses a link until then: its peer exceeded its budget, or there is no room for its messages.
    pub(super) fn hold(&mut self, token: u64, until: Instant) {
        let Some(link) = self.links.get_mut(&token) else { return };
        link.held_until = Some(until);
        self.watch(token);
    }

    /// Continues with the links that were held.
    fn release(&mut self, now: Instant) {
        let due = |link: &Link| link.held_until.is_some_and(|until| until <= now);
        let tokens: Vec<u64> = self.links.iter().filter(|(_, link)| due(link)).map(|(token, _)| *token).collect();
        for token in tokens {
            if let Some(link) = self.links.get_mut(&token) {
                link.held_until = None;
                link.begun = link.begun.map(|_| now); // it was not its peer that made it wait
            }
            if let Err(close) = self.guarded_messages(token, now) {
                self.close(token, close);
            }
            self.watch(token);
        }
    }

    fn guarded_messages(&mut self, token: u64, now: Instant) -> Result<(), Close> {
        let taken = guarded("a control link", || self.take_messages(token, now));
        taken.unwrap_or_else(|panic| Err(panicked(panic)))
    }

    fn next_time(&self) -> Option<Instant> {
        let targets = self.targets.iter().filter_map(|t| match t.state {
            State::Waiting(at) => Some(at),
            State::Linked | State::Done => None,
        });
        let greetings = self.links.values().filter(|l| l.stage != Stage::Open).map(|l| l.patience);
        let begun = self.links.values().filter(|l| l.held_until.is_none() && l.stage == Stage::Open);
        let begun = begun.filter_map(|l| Some(due(l.begun?, l.reader.unfinished())));
        let held = self.links.values().filter_map(|l| l.held_until);
        targets.chain(greetings).chain(begun).chain(held).min()
    }

    fn tell_settled(&mut self) {
        if self.unsettled.is_empty() {
            let mut settled = lock(&self.shared.settled);
            if settled.answered < settled.begun {
                settled.answered = settled.begun;
                self.shared.settling.notify_all();
            }
        }
    }

    /// Carries out requests of the control thread; `false`: to stop.
    fn obey(&mut self) -> bool {
        let inbox = std::mem::take(&mut *lock(&self.shared.inbox));
        if let Some((document, change)) = inbox.announcement {
            self.announce(document, &change);
        }
        for command in inbox.commands {
            match command {
                Command::Call(to, id, request) => self.send(to, Kind::Call, &[&id.to_le_bytes(), &request]),
                Command::Answer(link, id, answer) => {
                    self.send_on(link, Kind::Answer, &[&id.to_le_bytes(), &answer]);
                }
                Command::Reach(to, addresses, id, request) => self.reach(to, addresses, id, request),
                Command::Refresh(node) => {
                    if let Some(peer) = self.peers.get_mut(&node) {
                        peer.asked = true;
                        self.send(node, Kind::Refresh, &[]);
                    }
                }
                Command::Adopt(stream, from) => self.adopt(stream, from),
                Command::Look(source) => self.look(source),
                Command::Stop => return false,
            }
        }
        true
    }

    fn serve(&mut self, event: &Ready, scratch: &mut [u8], now: Instant) {
        let Some(link) = self.links.get_mut(&event.token) else { return };
        if link.stage == Stage::Connecting {
            return match link.connected() {
                Ok(()) => {
                    link.stage = Stage::Greeting;
                    self.origins.insert(event.token, link.origin());
                    self.flush(event.token);
                    // Reading starts now, also if some bytes still wait to be sent.
                    self.watch(event.token);
                }
                Err(error) => self.close(event.token, Close::Ended(error.to_string())),
            };
        }
        if event.flags.intersects(Readiness::OUT) {
            self.flush(event.token);
        }
        let Some(link) = self.links.get(&event.token) else { return };
        if link.held_until.is_some() {
            if event.flags.intersects(Readiness::HUP | Readiness::ERR) {
                self.close(event.token, Close::Ended(String::new())); // its excess messages are not read
            }
            return;
        }
        if event.flags.intersects(Readiness::IN | Readiness::HUP | Readiness::ERR | Readiness::RDHUP)
            && self.sink.has_room()
        {
            let received = guarded("a control link", || self.receive(event.token, scratch, now));
            if let Err(close) = received.unwrap_or_else(|panic| Err(panicked(panic))) {
                self.close(event.token, close);
            }
        }
    }

    fn watch(&mut self, token: u64) {
        let Some(link) = self.links.get(&token) else { return };
        let _ = self.poller.change(link, token, link.wanted());
    }

    /// Warns once of a thing that a peer does again and again; the counters count all.
    pub(super) fn warn_once(&mut self, text: String) {
        if self.warned.len() < MOST_WARNINGS && self.warned.insert(text.clone()) {
            self.warn(text);
        }
    }

    pub(super) fn warn(&self, text: String) {
        self.sink.deliver(Origin::Own, Event::Warning(text));
    }

    pub(super) fn announce(&mut self, document: Arc<Document>, change: &Change) {
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

    pub(super) fn send(&mut self, to: NodeId, kind: Kind, parts: &[&[u8]]) {
        if let Some(token) = self.peers.get(&to).and_then(|p| p.links.first().copied()) {
            self.send_on(token, kind, parts);
        }
    }

    fn send_on(&mut self, token: u64, kind: Kind, parts: &[&[u8]]) {
        let Some(link) = self.links.get_mut(&token) else { return };
        match link.queue(kind, parts) {
            Ok(()) => self.flush(token),
            Err(Overflow) => self.close(token, not_reading()),
        }
    }

    /// Writes a link's data, and watches for room if some remains.
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
            if let Err(error) = self.poller.change(&*link, token, link.wanted()) {
                self.close(token, Close::Ended(error.to_string()));
            }
        }
    }
}

/// The encoded document. If it exceeds the limit of a message, it is sent without its ports, with a warning.
fn encode(document: &Document, sink: &Sink) -> Vec<u8> {
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    if bytes.len() <= MESSAGE_LIMIT {
        return bytes;
    }
    let (ports, size) = (document.ports.len(), bytes.len());
    sink.deliver(
        Origin::Own,
        Event::Warning(format!(
            "the {ports} ports of this node need {size} bytes, {MESSAGE_LIMIT} are allowed: others cannot see them"
        )),
    );
    serde_json::to_vec(&Document { ports: Default::default(), ..document.clone() }).unwrap_or_default()
}

/// Largest number of calls whose link is remembered.
pub(super) const MOST_ASKED: usize = 4096;
/// Most different warnings about peers.
const MOST_WARNINGS: usize = 256;
const WAKER: u64 = 0;
