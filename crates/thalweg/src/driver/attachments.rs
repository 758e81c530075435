//! Channels on their way into and out of this node's publishers. A publisher adds or removes a channel between two samples. While it is
//! within `publish`, it is asked again later. An older channel of two ports leaves when it has nothing more to send.
//!
//! [`Attachments`] are pure: time is an argument, and publishers are asked over [`Publisher`].

use super::control::Control;
use super::matching::Pair;
use crate::channel::Channel;
use crate::port::{AnyPublisher, AnySubscriber, Reply, Way};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part of a publisher that adds and removes channels.
pub(super) trait Publisher {
    /// `true` if it has added this channel, `false` if it has refused it; `None`: it has not looked yet.
    fn has(&self, channel: u64) -> Option<bool>;
    /// Removes this channel. `false`: it cannot do so now.
    fn lets_go(&self, channel: u64) -> bool;
    /// Published samples wait for the subscriber of this channel from now on. `false`: the channel does not outlast its connection.
    fn cuts_off(&self, channel: &Channel) -> bool;
    /// `true` if it is closed.
    fn is_closed(&self) -> bool;
}

impl Publisher for Arc<dyn AnyPublisher> {
    fn has(&self, channel: u64) -> Option<bool> {
        self.attached(channel)
    }
    fn lets_go(&self, channel: u64) -> bool {
        self.detach(channel)
    }
    fn cuts_off(&self, channel: &Channel) -> bool {
        self.cut_off(channel)
    }
    fn is_closed(&self) -> bool {
        AnyPublisher::is_closed(self.as_ref())
    }
}

/// A channel that its publisher adds with its next sample, at the latest.
pub(crate) struct Joining<O = Arc<dyn AnyPublisher>> {
    pub publisher_port: O,
    pub channel: Arc<Channel>,
    pub token: Option<usize>,
    /// The subscriber's end, if both ends are in this process: it has to be opened, too.
    pub local: Option<Arc<dyn AnySubscriber>>,
}

/// A new channel for a publisher.
pub(crate) struct PendingAttach {
    pub publisher_port: Arc<dyn AnyPublisher>,
    pub channel: Arc<Channel>,
    pub way: Way,
    pub token: Option<usize>,
    /// The answer to the request. It is sent after the publisher has added the channel and before its next sample: a subscriber that reads
    /// it misses no sample from then on.
    pub answer: Option<Reply>,
}

/// A channel that its publisher has added or refused.
pub(super) struct Settled<O = Arc<dyn AnyPublisher>> {
    pub joining: Joining<O>,
    pub joined: bool,
}

/// A channel that gives way to a younger one of the same ports.
struct Leaving {
    pair: Pair,
    /// The number of the younger one.
    but: u64,
    until: Instant,
}

/// The channels that join and leave publishers.
pub(super) struct Attachments<O = Arc<dyn AnyPublisher>> {
    joining: Vec<Joining<O>>,
    detaching: Vec<(O, u64)>,
    leaving: Vec<Leaving>,
}

impl<O> Default for Attachments<O> {
    fn default() -> Self {
        Self { joining: Vec::new(), detaching: Vec::new(), leaving: Vec::new() }
    }
}

impl<O: Publisher> Attachments<O> {
    /// A channel was given to a publisher. Asks now, and later if need be, whether the publisher has added it.
    pub(super) fn join(&mut self, joining: Joining<O>) -> Option<Settled<O>> {
        match joining.publisher_port.has(joining.channel.id) {
            Some(joined) => Some(Settled { joining, joined }),
            None => {
                self.joining.push(joining);
                None
            }
        }
    }

    /// Removes a channel from a publisher, now or later.
    pub(super) fn detach(&mut self, publisher_port: O, id: u64) {
        self.joining.retain(|joining| joining.channel.id != id);
        if !publisher_port.lets_go(id) {
            self.detaching.push((publisher_port, id));
        }
    }

    /// The older channels of two ports, all but number `but`, leave when they have nothing more to send, at the latest at `until`.
    pub(super) fn leave(&mut self, pair: Pair, but: u64, until: Instant) {
        self.leaving.push(Leaving { pair, but, until });
    }

    /// Asks the publishers again that had no time before.
    pub(super) fn poll(&mut self) -> Vec<Settled<O>> {
        let settled = std::mem::take(&mut self.joining).into_iter().filter_map(|joining| self.join(joining)).collect();
        for (publisher_port, id) in std::mem::take(&mut self.detaching) {
            self.detach(publisher_port, id);
        }
        settled
    }

    /// The channels that are to end now, by their ports and the number of the channel that stays. `sends`: `true` if the older channel has
    /// samples left to send; `None`: there is no older channel.
    pub(super) fn left(&mut self, now: Instant, sends: impl Fn(Pair, u64) -> Option<bool>) -> Vec<(Pair, u64)> {
        let mut left = Vec::new();
        self.leaving.retain(|Leaving { pair, but, until }| match sends(*pair, *but) {
            None => false,
            Some(true) if now < *until => true,
            Some(_) => {
                left.push((*pair, *but));
                false
            }
        });
        left
    }

    /// `true` if a publisher or a channel is waited for.
    pub(super) fn is_busy(&self) -> bool {
        !(self.joining.is_empty() && self.detaching.is_empty() && self.leaving.is_empty())
    }

    /// The time of the next [`Self::poll`].
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.is_busy().then(|| now + BUSY_PAUSE)
    }
}

impl Control {
    pub(super) fn attach_now(&mut self, pending: PendingAttach) {
        let PendingAttach { publisher_port, channel, way, token, answer } = pending;
        match publisher_port.attach(channel.clone(), way, answer) {
            Ok(()) => self.joining(Joining { publisher_port, channel, token, local: None }),
            Err((way, _)) => {
                publisher_port.forget(way);
                token.and_then(|token| self.unwatch(token));
            }
        }
    }

    /// A channel was given to a publisher, which has added it or will.
    pub(super) fn joining(&mut self, joining: Joining) {
        let settled = self.attachments.join(joining);
        settled.into_iter().for_each(|settled| self.joined(settled));
    }

    /// Asks the publishers again that were within `publish`.
    pub(super) fn ask_publishers(&mut self) {
        if self.attachments.is_busy() {
            let settled = self.attachments.poll();
            settled.into_iter().for_each(|settled| self.joined(settled));
            self.state.made_progress();
        }
    }

    /// A publisher has added or refused a channel.
    fn joined(&mut self, Settled { joining, joined }: Settled) {
        match joining.local.clone() {
            Some(subscriber_port) => self.joined_local(joining, &subscriber_port, joined),
            None if joined => {
                joining.channel.replaces.into_iter().for_each(|older| self.cut_off.was_replaced(older));
                self.matched(&joining.channel);
            }
            None => drop(joining.token.and_then(|token| self.unwatch(token))),
        }
    }

    pub(super) fn detach(&mut self, publisher_port: Arc<dyn AnyPublisher>, id: u64) {
        self.attachments.detach(publisher_port, id);
        self.state.made_progress();
    }
}

/// Pause before a publisher that was within `publish` is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// A publisher and channels for tests of virtual time.
#[cfg(test)]
pub(super) mod fake {
    use super::Publisher;
    use crate::carrier;
    use crate::channel::memory::Account;
    use crate::channel::{Channel, PortRef};
    use crate::control::{Direction, NodeId, PortId};
    use crate::driver::matching::Pair;
    use crate::testing::discovery::port;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::Instant;

    /// A publisher with these channels, which may be `busy` within `publish`, or closed.
    #[derive(Default)]
    pub struct Fake {
        pub has: RefCell<BTreeSet<u64>>,
        pub busy: Cell<bool>,
        pub closed: Cell<bool>,
    }

    impl Publisher for Rc<Fake> {
        fn has(&self, channel: u64) -> Option<bool> {
            (!self.busy.get()).then(|| !self.closed.get() && self.has.borrow_mut().insert(channel))
        }
        fn lets_go(&self, channel: u64) -> bool {
            let free = !self.busy.get();
            if free {
                self.has.borrow_mut().remove(&channel);
            }
            free
        }
        fn cuts_off(&self, channel: &Channel) -> bool {
            self.has.borrow().contains(&channel.id)
        }
        fn is_closed(&self) -> bool {
            self.closed.get()
        }
    }

    pub fn pair(publisher: u64, subscriber: u64) -> Pair {
        let at = |node| PortRef { node: NodeId(node), port: PortId(1) };
        (at(publisher), at(subscriber))
    }

    pub fn channel(id: u64, (publisher, subscriber): Pair, now: Instant) -> Arc<Channel> {
        let out = port(Direction::Publisher, "/out", "/t");
        let into = port(Direction::Subscriber, "/in", "/t");
        let account = Account::new(usize::MAX);
        Arc::new(Channel::new((id, now), (publisher, &out), (subscriber, &into), carrier::Name::Tcp, account))
    }
}

#[cfg(test)]
mod tests {
    use super::fake::{Fake, channel, pair};
    use super::*;
    use std::rc::Rc;

    fn joining(publisher_port: &Rc<Fake>, id: u64, now: Instant) -> Joining<Rc<Fake>> {
        Joining {
            publisher_port: publisher_port.clone(),
            channel: channel(id, pair(1, 2), now),
            token: None,
            local: None,
        }
    }

    #[test]
    fn a_publisher_that_is_busy_is_asked_until_it_has_looked() {
        let (now, publisher_port) = (Instant::now(), Rc::new(Fake::default()));
        let mut attachments = Attachments::default();
        assert!(attachments.join(joining(&publisher_port, 7, now)).is_some_and(|settled| settled.joined));
        assert_eq!(attachments.next_deadline(now), None);
        publisher_port.busy.set(true);
        assert!(attachments.join(joining(&publisher_port, 8, now)).is_none());
        assert_eq!(attachments.next_deadline(now), Some(now + BUSY_PAUSE));
        assert!(attachments.poll().is_empty() && attachments.is_busy());
        publisher_port.busy.set(false);
        let settled: Vec<_> = attachments.poll().into_iter().map(|of| (of.joining.channel.id, of.joined)).collect();
        assert_eq!((settled, attachments.is_busy()), (vec![(8, true)], false));
        publisher_port.closed.set(true);
        assert!(attachments.join(joining(&publisher_port, 9, now)).is_some_and(|settled| !settled.joined));
    }

    #[test]
    fn a_channel_that_goes_before_it_came_never_comes() {
        let (now, publisher_port) = (Instant::now(), Rc::new(Fake::default()));
        let mut attachments = Attachments::default();
        publisher_port.busy.set(true);
        attachments.join(joining(&publisher_port, 7, now));
        attachments.detach(publisher_port.clone(), 7);
        publisher_port.busy.set(false);
        assert!(attachments.poll().is_empty() && !attachments.is_busy() && publisher_port.has.borrow().is_empty());
    }

    #[test]
    fn an_older_channel_leaves_when_it_has_sent_all_or_its_time_is_over() {
        let start = Instant::now();
        let until = start + Duration::from_secs(1);
        let mut attachments = Attachments::<Rc<Fake>>::default();
        (1..=3).for_each(|node| attachments.leave(pair(node, 9), node, until));
        let sends = |(publisher, _): Pair, _| [None, Some(false), Some(true)][publisher.node.0 as usize - 1];
        assert_eq!(attachments.left(start, sends), [(pair(2, 9), 2)]);
        assert!(attachments.is_busy());
        assert!(attachments.left(until - Duration::from_nanos(1), sends).is_empty());
        assert_eq!(attachments.left(until, sends), [(pair(3, 9), 3)]);
        assert!(!attachments.is_busy());
    }
}
