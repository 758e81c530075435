//! Connections of links: this node connects to its targets, and peers connect to it; and their ends.
//!
//! A call to a node that is known by another back end waits for a link that is made for it, whose address the other node sees.

#![allow(clippy::disallowed_methods)] // the thread of the links reads the clock

use super::exchange::{self, GREETING_OF_SOURCE, LINKS_OF_ADDRESS, LINKS_OF_LOOPBACK, due};
use super::frame::{Hello, Kind, VERSION};
use super::link::{Link, Stage};
use super::target::{Address, Attempt, State, Target, set_options};
use super::worker::Worker;
use super::{Source, lock};
use crate::control::{CONTROL_LINK, Event, NodeId, Origin, Peer};
use linux::poll::Readiness;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

impl Worker {
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
    fn add_target(&mut self, target: Target) {
        match self.targets.iter_mut().find(|old| old.state == State::Done) {
            Some(old) => *old = target,
            None => self.targets.push(target),
        }
    }

    /// Connects to targets that are not connected yet. Places of nodes that are gone are reused.
    pub(super) fn look(&mut self, source: Source) {
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

    pub(super) fn adopt(&mut self, stream: OwnedFd, from: Option<IpAddr>) {
        set_options(&stream);
        match rustix::io::ioctl_fionbio(&stream, true) {
            Ok(()) => self.link(stream, true, None, from),
            Err(error) => self.warn(format!("a control link could not be taken: {error}")),
        }
    }

    /// Makes room for a link from this address: of those without a hello the oldest gives way. Returns the reason if
    /// it has too many.
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

    /// A call waits for the first link with its node.
    pub(super) fn reach(&mut self, to: NodeId, addresses: Vec<SocketAddr>, id: u64, request: Vec<u8>) {
        if self.peers.contains_key(&to) {
            return self.send(to, Kind::Call, &[&id.to_le_bytes(), &request]);
        }
        if self.waiting.len() >= MOST_WAITING {
            return self.cannot(to, id, &format!("{MOST_WAITING} calls wait for connections already"));
        }
        self.waiting.push((to, id, request));
        let now = Instant::now();
        for address in addresses {
            let same = |target: &&mut Target| target.address == Address::Tcp(address) && target.once == Some(to);
            match self.targets.iter_mut().find(same) {
                Some(target) if target.state == State::Done => target.state = State::Waiting(now),
                Some(_) => {}
                None => self.add_target(Target::once(Address::Tcp(address), to, now)),
            }
        }
    }

    /// Sends the calls that waited for a link with this node.
    pub(super) fn reached(&mut self, node: NodeId) {
        let waiting = std::mem::take(&mut self.waiting);
        let (its, others): (Waiting, Waiting) = waiting.into_iter().partition(|(to, ..)| *to == node);
        self.waiting = others;
        for (to, id, request) in its {
            self.send(to, Kind::Call, &[&id.to_le_bytes(), &request]);
        }
    }

    /// Records a failed address of a node; the last one fails the waiting calls.
    fn not_reached(&mut self, node: NodeId, why: &str) {
        let other = |target: &Target| target.once == Some(node) && target.state != State::Done;
        if self.targets.iter().any(other) {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (its, others): (Waiting, Waiting) = waiting.into_iter().partition(|(to, ..)| *to == node);
        self.waiting = others;
        its.into_iter().for_each(|(to, id, _)| self.cannot(to, id, why));
    }

    fn cannot(&self, to: NodeId, id: u64, why: &str) {
        let why =
            format!("node {to} takes what changes something over a connection of its own, which cannot be made: {why}");
        self.sink.deliver(Origin::Own, Event::Unreachable { id, why });
    }

    pub(super) fn close_silent(&mut self, now: Instant) {
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

    pub(super) fn close(&mut self, token: u64, why: Close) {
        let Some(mut link) = self.links.remove(&token) else { return };
        let _ = self.poller.remove(&link);
        let place = link.target.map_or_else(|| link.who(), |t| self.targets[t].address.to_string());
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
        let source = self.source_of(token); // the debt of a process is kept: otherwise each link would start without one
        self.origins.remove(&token);
        let shared = self.origins.keys().any(|other| self.source_of(*other) == source);
        if !shared || matches!(source, exchange::Source::Link(_)) {
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

    pub(super) fn say_goodbye(&mut self) {
        for link in self.links.values_mut() {
            link.farewell("closed");
        }
    }
}

/// Calls that wait for links, each with its node and number.
pub(super) type Waiting = Vec<(NodeId, u64, Vec<u8>)>;

/// The reason why a link ends.
pub(super) enum Close {
    /// The peer is gone, or said goodbye.
    Ended(String),
    /// There is no room for it, which is not its fault.
    Crowded(String),
    /// This very node: its own address stands in the list.
    Own,
    /// A refusal to count, and to report to the user and the peer.
    Refused(fn(&super::Counters) -> &AtomicU64, String),
}

/// A peer's message made this node's own code panic: the link ends, the thread continues (docs/decisions/0011).
pub(super) fn panicked(panic: String) -> Close {
    Close::Refused(|c| &c.garbage, format!("an error of this program, please report it: {panic}"))
}

pub(super) fn not_reading() -> Close {
    let most = super::OUT_LIMIT >> 20;
    Close::Refused(|c| &c.not_reading, format!("it does not read, and {most} MiB wait for it"))
}

/// A peer says hello within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most links of a node.
const MOST_LINKS: usize = 8192;
/// Calls that wait for a link of their own, at most.
const MOST_WAITING: usize = 64;
