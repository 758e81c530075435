//! A publisher's channels, as its port adds and removes them, with what waits in their queues.

use crate::channel::Channel;
use crate::driver::attachments::Publisher;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A channel that a publisher has, or was given.
#[derive(Clone)]
pub(super) struct Attached {
    pub channel: Arc<Channel>,
    /// The channel outlasts its connection: it is reliable, and between two hosts.
    pub outlasts: bool,
    /// The time since which samples wait for the subscriber. They wait until it has a channel open that took them over.
    pub owes: Option<Duration>,
}

/// A publisher.
#[derive(Default)]
pub(super) struct PublisherPort {
    /// Channels that were given to it, and that it has not looked at: it was within `publish`.
    given: RefCell<Vec<Attached>>,
    /// Channels that it has added, and did not tell of.
    joined: RefCell<BTreeSet<u64>>,
    has: RefCell<BTreeMap<u64, Attached>>,
    /// It is within `publish`.
    pub busy: Cell<bool>,
    pub closed: Cell<bool>,
    /// Channels that went although samples waited in them.
    dropped: RefCell<Vec<Attached>>,
}

impl PublisherPort {
    /// Gives it a channel.
    pub fn give(&self, channel: Arc<Channel>, outlasts: bool) {
        self.given.borrow_mut().push(Attached { channel, outlasts, owes: None });
    }

    /// The channels that it has, and those that it was given.
    pub fn channels(&self) -> Vec<Attached> {
        self.has.borrow().values().chain(&*self.given.borrow()).cloned().collect()
    }

    pub fn contains(&self, channel: u64) -> bool {
        self.channels().iter().any(|of| of.channel.id == channel)
    }

    /// Samples wait in this channel since then; `None`: its subscriber gets them now.
    pub fn owes(&self, channel: u64, since: Option<Duration>) {
        let (mut has, mut given) = (self.has.borrow_mut(), self.given.borrow_mut());
        let all = has.values_mut().chain(&mut *given);
        all.filter(|of| of.channel.id == channel).for_each(|of| of.owes = since);
    }

    /// The channels that went although samples waited in them.
    pub fn take_dropped(&self) -> Vec<Attached> {
        self.dropped.take()
    }

    /// Adds the channels that it was given, in their order.
    fn look(&self) {
        let mut has = self.has.borrow_mut();
        for mut given in self.given.take().into_iter().filter(|_| !self.closed.get()) {
            let older = given.channel.replaces.and_then(|older| has.remove(&older));
            given.owes = given.owes.max(older.and_then(|older| older.owes));
            self.joined.borrow_mut().insert(given.channel.id);
            has.insert(given.channel.id, given);
        }
    }
}

impl Publisher for Rc<PublisherPort> {
    fn has(&self, channel: u64) -> Option<bool> {
        if self.busy.get() {
            return None;
        }
        self.look();
        Some(self.joined.borrow_mut().remove(&channel))
    }

    fn lets_go(&self, channel: u64) -> bool {
        if self.busy.get() {
            return false;
        }
        self.look();
        let gone = self.has.borrow_mut().remove(&channel);
        self.dropped.borrow_mut().extend(gone.filter(|gone| gone.owes.is_some()));
        true
    }

    fn cuts_off(&self, channel: &Channel) -> bool {
        let outlasts = self.channels().iter().any(|of| of.channel.id == channel.id && of.outlasts);
        if outlasts {
            channel.close();
        }
        outlasts
    }

    fn is_closed(&self) -> bool {
        self.closed.get()
    }
}
