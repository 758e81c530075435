//! The thread that serves a node's control links.

use super::budget::{Budgets, GREETING_OF_SOURCE, LINKS_OF_ADDRESS, LINKS_OF_LOOPBACK, Source as Talker, due};
use super::exchange::NO_ROOM_PAUSE;
use super::frame::{Hello, Kind, MESSAGE_LIMIT, VERSION};
use super::link::{Link, Overflow, Stage};
use super::reach::Waiting;
use super::target::{Address, Attempt, State, Target, set_options};
use super::{Command, Shared, Source, lock};
use crate::control::{CONTROL_LINK, Change, Document, Event, NodeId, Origin, Peer, Sink};
use crate::driver::{abort, guarded};
use linux::poll::{Poller, Readiness, Ready, wait_readable};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A peer says hello within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most links of a node.
const MOST_LINKS: usize = 8192;
/// Most calls of which is known on which link they came.
pub(super) const MOST_ASKED: usize = 4096;
/// Most different warnings about peers.
const MOST_WARNINGS: usize = 256;
const WAKER: u64 = 0;

/// Why a link ends.
pub(super) enum Close {
    /// The peer is gone, or said goodbye.
    Ended(String),
    /// There is no room for it, which is not its fault.
    Crowded(String),
    /// This very node: its own address stands in the list.
    Own,
    /// Something to count, and to tell a person and the peer.
    Refused(fn(&super::Counters) -> &AtomicU64, String),
}

/// A node at the other end of one or more links.
#[derive(Default)]
pub(super) struct Linked {
    pub links: Vec<u64>,
    /// Revision of what was delivered last.
    pub told: Option<u64>,
    /// By which way what was delivered came.
    pub told_by: Option<Origin>,
    /// Where it says that it is, on the link that counts.
    pub addresses: BTreeSet<IpAddr>,
    /// Its next document is delivered whatever its revision.
    pub asked: bool,
    /// The link that told it has ended; another one is to tell all anew.
    pub renewed: bool,
}

/// Everything the thread owns.
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) sink: Sink,
    poller: Poller,
    pub(super) document: Arc<Document>,
    encoded: Option<Vec<u8>>,
    pub(super) links: HashMap<u64, Link>,
    pub(super) origins: HashMap<u64, Origin>,
    pub(super) budgets: Budgets,
    next_token: u64,
    pub(super) peers: HashMap<NodeId, Linked>,
    pub(super) targets: Vec<Target>,
    /// Targets whose node was there at the start and has not told its document yet.
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
    pub fn run(mut self) {
        let (mut ready, mut scratch) = (Vec::<Ready>::with_capacity(64), vec![0; 64 << 10]);
        loop {
            let now = Instant::now();
            self.connect_due(now);
            self.close_silent(now);
            self.release(now);
            self.tell_settled();
            if !self.sink.has_room() {
                // Nothing is read before the control thread has taken what waits for it; what it asks for itself goes on.
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

    /// The control thread asks for something; `false`: to stop.
    fn woken(&mut self) -> bool {
        self.shared.waker.clear();
        self.obey()
    }

    /// Leaves a link alone until then: its peer said too much, or there is no room for what it says.
    pub(super) fn hold(&mut self, token: u64, until: Instant) {
        let Some(link) = self.links.get_mut(&token) else { return };
        link.held_until = Some(until);
        self.watch(token);
    }

    /// Goes on with the links that were left alone.
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

    pub(super) fn connect_due(&mut self, now: Instant) {
        for index in 0..self.targets.len() {
            let target = &mut self.targets[index];
            if !matches!(target.state, State::Waiting(at) if at <= now) {
                continue;
            }
            match target.attempt(now) {
                Attempt::Stream(stream, connected) => self.link(stream, connected, Some(index), None),
                Attempt::Failed(error) => self.target_failed(index, &error),
            }
        }
    }

    /// Takes the place of a target that is done with, if there is one: no link has that.
    pub(super) fn add_target(&mut self, target: Target) {
        match self.targets.iter_mut().find(|old| old.state == State::Done) {
            Some(old) => *old = target,
            None => self.targets.push(target),
        }
    }

    fn target_failed(&mut self, index: usize, error: &io::Error) {
        if error.kind() == io::ErrorKind::WouldBlock {
            let deaf = self.targets.iter().filter(|target| target.is_deaf()).count();
            self.targets[index].share(deaf, Instant::now());
        }
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
        if let Some(node) = target.once {
            return self.not_reached(node, &error.to_string());
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
        let late = |link: &Link| {
            let begun = link.begun.filter(|_| link.held_until.is_none() && link.stage == Stage::Open);
            begun.is_some_and(|begun| due(begun, link.reader.unfinished()) <= now)
        };
        let tokens: Vec<u64> = self.links.iter().filter(|(_, link)| late(link)).map(|(token, _)| *token).collect();
        for token in tokens {
            self.close(
                token,
                Close::Refused(|c| &c.silent, "a message that was begun was not ended in time".to_owned()),
            );
        }
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

    /// Makes a link of a stream: one that this node made for a target, or one that a peer made, from this address.
    pub(super) fn link(&mut self, stream: OwnedFd, connected: bool, target: Option<usize>, from: Option<IpAddr>) {
        let stage = if connected { Stage::Greeting } else { Stage::Connecting };
        let mut link = Link::new(stream, stage, target, Instant::now() + PATIENCE).accepted_from(from);
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
        let crowded = if target.is_none() { self.make_room(link.origin()) } else { None };
        let added = match (crowded, self.links.len() < MOST_LINKS) {
            (Some(why), _) => Err(io::Error::other(why)),
            (None, true) => self.poller.add(&link, token, watched),
            (None, false) => Err(io::Error::other(format!("{MOST_LINKS} links are the most"))),
        };
        if connected {
            self.origins.insert(token, link.origin());
        }
        self.links.insert(token, link);
        match added {
            Ok(()) if connected => self.flush(token),
            Ok(()) => {}
            Err(error) => self.close(token, Close::Crowded(error.to_string())),
        }
    }

    /// Makes room for a link from this address: of those that have not said hello the oldest gives way. Says why not, if it
    /// has too many.
    pub(super) fn make_room(&mut self, origin: Origin) -> Option<String> {
        let Origin::Tcp { here, from, .. } = origin else { return None };
        let same = |of: &Origin| matches!(of, Origin::Tcp { from: its, .. } if Peer::at(*its) == Peer::at(from));
        let greeting = self.origins.iter().filter(|(_, of)| same(of)).map(|(token, _)| *token);
        let greeting = greeting.filter(|token| self.links.get(token).is_some_and(|l| l.stage == Stage::Greeting));
        let greeting: Vec<u64> = greeting.collect();
        if let Some(oldest) = greeting.iter().min().filter(|_| greeting.len() >= GREETING_OF_SOURCE) {
            self.close(*oldest, Close::Refused(|c| &c.silent, "no hello, and newer ones wait".to_owned()));
        }
        let most = if here { LINKS_OF_LOOPBACK } else { LINKS_OF_ADDRESS };
        let has = self.origins.values().filter(|of| same(of)).count();
        (has >= most).then(|| format!("{most} links of one address are the most"))
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

    fn adopt(&mut self, stream: OwnedFd, from: Option<IpAddr>) {
        set_options(&stream);
        match rustix::io::ioctl_fionbio(&stream, true) {
            Ok(()) => self.link(stream, true, None, from),
            Err(error) => self.warn(format!("a control link could not be taken: {error}")),
        }
    }

    /// Connects to what is not connected yet. Places of nodes that are gone are taken again.
    pub(super) fn look(&mut self, source: super::Source) {
        let now = Instant::now();
        for address in source.addresses(&self.document) {
            let linked = address.node().is_some_and(|node| self.peers.contains_key(&node));
            match self.targets.iter_mut().find(|target| target.address == address) {
                _ if linked => {}
                Some(target) if target.state != State::Done => {}
                Some(target) => *target = Target::new(address, now),
                None => self.add_target(Target::new(address, now)),
            }
        }
        let due = |target: &Target| matches!(target.state, State::Waiting(at) if at == now);
        let new = self.targets.iter().enumerate().filter(|(_, target)| due(target)).map(|(index, _)| index);
        self.unsettled.extend(new);
        lock(&self.shared.settled).begun += 1;
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
            if let Err(error) = self.poller.change(&*link, token, link.wanted()) {
                self.close(token, Close::Ended(error.to_string()));
            }
        }
    }

    fn serve(&mut self, event: &Ready, scratch: &mut [u8], now: Instant) {
        let Some(link) = self.links.get_mut(&event.token) else { return };
        if link.stage == Stage::Connecting {
            return match link.connected() {
                Ok(()) => {
                    link.stage = Stage::Greeting;
                    self.origins.insert(event.token, link.origin());
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
        let Some(link) = self.links.get(&event.token) else { return };
        if link.held_until.is_some() {
            if event.flags.intersects(Readiness::HUP | Readiness::ERR) {
                self.close(event.token, Close::Ended(String::new())); // what it said too much is not heard
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

    pub(super) fn close(&mut self, token: u64, why: Close) {
        let Some(mut link) = self.links.remove(&token) else { return };
        let _ = self.poller.remove(&link);
        let place = link.target.map_or("a peer that connected".to_owned(), |t| self.targets[t].address.to_string());
        if let Close::Refused(counter, reason) = &why {
            link.farewell(reason);
            counter(&self.shared.counters).fetch_add(1, Ordering::Relaxed);
            self.warn_once(format!("control link with {place} closed: {reason}"));
        } else if let (Close::Ended(reason) | Close::Crowded(reason), Stage::Greeting) = (&why, link.stage)
            && !reason.is_empty()
        {
            self.warn_once(format!("control link with {place} was refused: {reason}"));
        }
        self.target_ended(&link, &why);
        let in_vain = match why {
            Close::Refused(..) => true,
            Close::Ended(_) => link.stage == Stage::Greeting,
            Close::Own | Close::Crowded(_) => false,
        };
        if let (None, true, Origin::Tcp { from, .. }) = (link.target, in_vain, link.origin()) {
            self.sink.deliver(Origin::Own, Event::Rejected(Peer::at(from)));
        }
        self.leave(token, link.peer);
    }

    /// A link has ended: its node is gone with its last one, and speaks by the next one from now on.
    fn leave(&mut self, token: u64, node: Option<NodeId>) {
        let source = self.source_of(token); // of a process what it owes is kept: it would begin anew with each link
        self.origins.remove(&token);
        let shared = self.origins.keys().any(|other| self.source_of(*other) == source);
        if !shared || matches!(source, Talker::Link(_)) {
            self.budgets.forget(source, Instant::now());
        }
        let Some(node) = node else { return };
        lock(&self.shared.asked).retain(|_, (on, _)| *on != token);
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let spoke = peer.links.first() == Some(&token);
        peer.links.retain(|l| *l != token);
        let links = &self.links;
        if !peer
            .links
            .iter()
            .any(|left| links.get(left).is_some_and(|left| matches!(left.origin(), Origin::Host { .. })))
        {
            lock(&self.shared.here).remove(&node);
        }
        if peer.links.is_empty() {
            let told_by = self.peers.remove(&node).and_then(|p| p.told_by);
            lock(&self.shared.known).remove(&node);
            if let Some(origin) = told_by {
                self.sink.deliver(origin, Event::Gone(node));
            }
        } else if spoke {
            (peer.told, peer.asked, peer.renewed) = (None, true, true);
            self.send(node, Kind::Refresh, &[]);
        }
    }

    fn target_ended(&mut self, link: &Link, why: &Close) {
        let Some(index) = link.target else { return };
        self.unsettled.remove(&index);
        let target = &mut self.targets[index];
        match why {
            Close::Own => target.state = State::Done,
            _ if link.stage == Stage::Open => target.ended(Instant::now()),
            Close::Ended(reason) | Close::Crowded(reason) | Close::Refused(_, reason) => {
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
        self.sink.deliver(Origin::Own, Event::Warning(text));
    }
}

/// What a peer said made this node's own code panic: the link ends, the thread goes on (docs/decisions/0011).
fn panicked(panic: String) -> Close {
    Close::Refused(|c| &c.garbage, format!("an error of this program, please report it: {panic}"))
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
    sink.deliver(
        Origin::Own,
        Event::Warning(format!(
            "the {ports} ports of this node need {size} bytes, {MESSAGE_LIMIT} are allowed: others cannot see them"
        )),
    );
    serde_json::to_vec(&Document { ports: Default::default(), ..document.clone() }).unwrap_or_default()
}
