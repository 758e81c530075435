//! Connections of links: this node connects to its targets, and peers connect to it.

use super::budget::{GREETING_OF_SOURCE, LINKS_OF_ADDRESS, LINKS_OF_LOOPBACK};
use super::close::Close;
use super::frame::{Hello, Kind, VERSION};
use super::link::{Link, Stage};
use super::target::{Address, Attempt, State, Target, set_options};
use super::worker::Worker;
use super::{Source, lock};
use crate::control::{CONTROL_LINK, Origin, Peer};
use linux::poll::Readiness;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A peer says hello within this time.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Most links of a node.
const MOST_LINKS: usize = 8192;

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
    pub(super) fn add_target(&mut self, target: Target) {
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

    pub(super) fn target_ended(&mut self, link: &Link, why: &Close) {
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
}
