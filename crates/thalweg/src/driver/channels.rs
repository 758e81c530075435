//! The channels of this node's subscribers: opened, ended and tried again.

use super::answers::Upcoming;
use super::attachments::Joining;
use super::control::{Command, Control};
use super::entries::Entry;
use super::matching::{Pair, Progress, Route, Wanted};
use super::proxy::came_by;
use super::reader::{CALLBACK, ServedBy};
use super::{Fetch, Holder};
use crate::carrier;
use crate::channel::history::Query;
use crate::channel::memory::Account;
use crate::channel::proxy::Proxy;
use crate::channel::{Channel, Latecomer, PortRef};
use crate::control::{Peer, PortInfo, PullRole};
use crate::guard::guarded;
use crate::port::{AnySubscriber, LOCAL, PublisherInfo, Way, is_kept_by_instance};
use crate::pull::Identity;
use qos::Durability;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The failure of a channel that may be `local` only.
const ELSEWHERE: &str = "the other port is in another process, or closing: let both ports take shm, too";
/// Number of the next channel. It counts for all nodes of the process, because two of them know a `local` channel by its number.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The open channel of a wanted pair, the one before it, and the one to come.
#[derive(Default)]
pub(crate) struct SubscriberEnd {
    /// The present channel, as long as [`Progress::Open`] has its number.
    open: Option<Arc<Channel>>,
    /// The channel before the present one, unless its history was not complete. A thread may have delivered from it while this end cut it,
    /// and may still read.
    before: Option<Arc<Channel>>,
    /// The channel before the present one, if it ended before its history. Samples may wait there.
    unfinished: Option<Arc<Channel>>,
    /// A channel that takes the place of the present one when that has ended.
    pub(super) upcoming: Option<Upcoming>,
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// The channel of these ports that is open.
    pub(super) fn open_channel(&self, pair: &Pair) -> Option<&Arc<Channel>> {
        let Progress::Open(id) = self.matching.get(pair)?.progress else { return None };
        self.ends.get(pair)?.open.as_ref().filter(|open| open.id == id)
    }

    pub(super) fn is_open(&self, channel: &Arc<Channel>) -> bool {
        let open = self.open_channel(&(channel.publisher, channel.subscriber));
        open.is_some_and(|open| Arc::ptr_eq(open, channel))
    }

    /// All open channels.
    pub(super) fn open_channels(&self) -> impl Iterator<Item = &Arc<Channel>> {
        self.ends.keys().filter_map(|pair| self.open_channel(pair))
    }

    /// The last sample that was delivered on an earlier channel of this incarnation of the publisher's node; 0: none.
    pub(super) fn resume_after(&self, pair: &Pair, incarnation: u64) -> u64 {
        let told = self.matching.get(pair).map_or(0, |wanted| wanted.delivered_of(incarnation));
        let before = self.ends.get(pair).and_then(|end| end.before.as_ref());
        let before = before.filter(|before| before.incarnation == incarnation);
        before.map_or(told, |before| told.max(before.counters.last_seq.load(Ordering::Relaxed)))
    }

    pub(super) fn try_local(&mut self, (publisher, subscriber): Pair) {
        let publisher_port = LOCAL.publishers().get(&publisher).cloned();
        let subscriber_port = LOCAL.subscribers().get(&subscriber).cloned();
        let (Some(publisher_port), Some(subscriber_port)) = (publisher_port, subscriber_port) else {
            return self.not_here((publisher, subscriber));
        };
        let pair = (publisher, subscriber);
        let incarnation = self.state.directory().node(publisher.node).map(|d| d.incarnation);
        let Some(incarnation) = incarnation else { return self.try_failed(pair, "its node is not known") };
        let Some(wanted) = self.matching.get(&pair) else { return };
        let ports = (&wanted.publisher, &wanted.subscriber);
        let account = self.state.memory.peer(Peer::Node(publisher.node));
        let channel = self.channel(pair, ports, (&carrier::Name::Local, true), incarnation, account);
        let mut channel = self.scaled_local(channel, &wanted.proxy, publisher_port.last_seq());
        if let Some(older) = self.open_channel(&pair) {
            channel.replaces = Some(older.id); // its proxy changes between two samples
            self.forget_channel(older);
        }
        let channel = Arc::new(channel);
        self.expect_samples_of(&channel, subscriber_port.as_ref());
        if let Err(error) = self.start_server(&subscriber_port) {
            return self.try_failed((publisher, subscriber), &format!("no thread for its callbacks: {error}"));
        }
        self.matching.tries(pair);
        match publisher_port.attach(channel.clone(), Way::Local(subscriber_port.clone().typed()), None) {
            Ok(()) => self.joining(Joining { publisher_port, channel, token: None, local: Some(subscriber_port) }),
            Err((_, why)) => self.try_failed((publisher, subscriber), &format!("{why:?}")),
        }
    }

    /// One of the ports is not in this process. A port that closes leaves the process before the directory, and takes its channel with it.
    /// Where processes are counted anew, as in containers with one network, another process may have this one's number, and another carrier
    /// leads there. Both are in order; only if no other carrier is allowed, somebody has to know.
    fn not_here(&mut self, pair: Pair) {
        let is_only = |wanted: &Wanted| wanted.candidates.iter().all(|way| way.route == Route::Process);
        if self.matching.get(&pair).is_some_and(is_only) {
            return self.try_failed(pair, ELSEWHERE);
        }
        if !self.begin_upcoming(pair) {
            self.matching.pass_over(pair, Instant::now());
        }
    }

    /// The publisher has added or refused a `local` channel: the subscriber's end follows.
    pub(super) fn joined_local(&mut self, joining: Joining, subscriber_port: &Arc<dyn AnySubscriber>, joined: bool) {
        let Joining { publisher_port, channel, .. } = joining;
        let pair = (channel.publisher, channel.subscriber);
        if !self.matching.is_in_handshake(&pair) {
            return self.detach(publisher_port, channel.id); // the channel is not wanted any more
        }
        if !joined {
            return self.try_failed(pair, "the publisher closed");
        }
        match subscriber_port.needs_server() {
            true => self.state.readers.served_by_port(&channel, subscriber_port),
            false => self.state.readers.served_elsewhere(&channel, ServedBy::Publisher),
        }
        let asked = Proxy::made(&channel);
        self.opened(pair, channel);
        self.settle(pair, &asked);
    }

    /// Starts the thread that runs the callbacks of `local` channels, if they need one and there is none yet. A
    /// callback that panics ends those channels, not only the thread.
    fn start_server(&self, subscriber_port: &Arc<dyn AnySubscriber>) -> std::io::Result<()> {
        if !subscriber_port.needs_server() || subscriber_port.server().is_some() {
            return Ok(());
        }
        let (server, state) = (subscriber_port.clone(), Arc::downgrade(&self.state));
        let tid = self.state.readers.run("local", move |stop| {
            while server.server().is_none() && !stop.load(Ordering::Relaxed) {
                std::thread::yield_now(); // its id is being noted
            }
            let Err(why) = guarded(CALLBACK, || server.serve(&|| stop.load(Ordering::Relaxed))) else { return };
            server.set_server(0);
            let channels = server.channels().lock().map(|channels| channels.clone()).unwrap_or_default();
            let Some(state) = state.upgrade() else { return };
            for channel in channels.into_iter().filter(|channel| channel.carrier == carrier::Name::Local) {
                state.command(Command::Ended { channel, why: why.clone() });
            }
        })?;
        subscriber_port.set_server(tid);
        Ok(())
    }

    /// A new channel between two ports as they describe themselves. `account` is that of the peer at the other end.
    pub(super) fn channel(
        &self,
        (publisher, subscriber): Pair,
        (offered, asked): (&PortInfo, &PortInfo),
        (carrier, same_clock): (&carrier::Name, bool),
        incarnation: u64,
        account: Arc<Account>,
    ) -> Channel {
        let sends = self.begin_policies((publisher, subscriber), (offered, asked), carrier);
        let number = (NEXT.fetch_add(1, Ordering::Relaxed), Instant::now());
        let channel = Channel::new(number, (publisher, offered), (subscriber, asked), carrier.clone(), account);
        Channel { incarnation, same_clock, sends, ..channel }
    }

    /// Prepares a subscriber for a publisher before its first sample: the subscriber knows the publisher, and one that keeps samples makes
    /// room.
    pub(super) fn expect_samples_of(&mut self, channel: &Channel, subscriber_port: &dyn AnySubscriber) {
        let Some(wanted) = self.matching.get(&(channel.publisher, channel.subscriber)) else { return };
        let PortInfo { name, topic, message, .. } = wanted.publisher.clone();
        let joined = (channel.incarnation, channel.joined_after.clone());
        subscriber_port.publishers().add(channel.publisher, joined, PublisherInfo { name, topic, message });
        let Some(histories) = subscriber_port.histories() else { return };
        let PortRef { node, port } = channel.publisher;
        let clock = self.state.directory().node(node).map(|there| there.clock.clone()).unwrap_or_default();
        let publisher = Identity { node, port, incarnation: channel.incarnation };
        if let Err(why) = self.make_room_for(histories, publisher) {
            let name = wanted.publisher.name.clone();
            return self.keep_not(&subscriber_port.info().topic, Some(&name), why);
        }
        histories.admit(publisher, &wanted.publisher, &clock);
    }

    /// Samples of a channel wait for its history, where the subscriber gets samples that were published before the channel opened, and behind
    /// those that still wait for this channel.
    pub(super) fn joins_late(&mut self, pair: Pair, channel: &Channel) -> Option<Arc<Latecomer>> {
        let unfinished = self.ends.get(&pair).and_then(|end| end.unfinished.as_ref());
        let goes_on = unfinished.is_some_and(|its| its.incarnation == channel.incarnation);
        let wanted = self.matching.get(&pair).filter(|wanted| goes_on || has_history(wanted, channel))?;
        let before = wanted.delivered.filter(|(incarnation, _)| *incarnation == channel.incarnation);
        // A subscriber of a hosted stream fetches its history itself. Only samples that an outage left out are passed on.
        if before.is_none() && self.is_hosted_port(pair.1.port) {
            return None;
        }
        channel.counters.made_up.store(u64::MAX, Ordering::Relaxed);
        let after = before.map_or(0, |(_, seq)| seq);
        let late = self.next_history(pair, channel, after);
        channel.gate.wait_for_history(late.clone());
        Some(late)
    }

    /// The waiting place of a channel's samples; its history follows sample `after`, or later ones that the channel before delivered since it
    /// ended. The thread of that one may still read samples.
    fn next_history(&mut self, pair: Pair, channel: &Channel, after: u64) -> Arc<Latecomer> {
        let make = |last: u64| Arc::new(Latecomer::new(after.max(last), channel.account.clone()));
        let Some(end) = self.ends.get_mut(&pair) else { return make(0) };
        let incarnation = channel.incarnation;
        if let Some(its) = end.unfinished.take_if(|its| its.incarnation == incarnation)
            && let Some(next) = its.gate.next_history(after, channel.account.clone())
        {
            return its.gate.followed_by(|| 0, |_| next);
        }
        match end.before.as_ref().filter(|its| its.incarnation == incarnation) {
            Some(its) => {
                let came = came_by(its); // including what came by its own history
                its.gate.followed_by(|| its.counters.last_seq.load(Ordering::Relaxed).max(came), make)
            }
            None => make(0),
        }
    }

    /// Fetches a channel's history after the publisher has added the channel: samples that are not in the history arrive live. Where there
    /// is no history, the waiting samples are delivered at once.
    pub(super) fn fetch_history(
        &self,
        pair: Pair,
        channel: &Arc<Channel>,
        subscriber_port: Arc<dyn AnySubscriber>,
        late: Arc<Latecomer>,
    ) {
        let Some(wanted) = self.matching.get(&pair) else {
            late.end(subscriber_port.as_ref());
            return;
        };
        let PortRef { node, port } = channel.publisher;
        let holder = || Holder::publisher(&self.state, node, port, &wanted.publisher);
        let holder = has_history(wanted, channel).then(holder);
        let (message, last) = (wanted.subscriber.message.clone(), u64::from(wanted.subscriber.qos.history));
        // A subscriber that keeps samples for others keeps the last ones of the topic, not of each instance.
        let by_instance = is_kept_by_instance(&wanted.publisher.qos) && wanted.subscriber.pull != PullRole::Keeps;
        let query = if by_instance { Query::LastOfEach(last) } else { Query::Last(last) };
        let channel = channel.clone();
        self.state.fetches.begin(&self.state, Fetch { channel, subscriber_port, late, holder, message, query });
    }

    pub(super) fn opened(&mut self, pair: Pair, channel: Arc<Channel>) {
        if let Some(subscriber_port) = self.state.subscriber_port(pair.1.port)
            && let Ok(mut channels) = subscriber_port.channels().lock()
        {
            channels.push(channel.clone());
        }
        if self.matching.is_wanted(&pair) {
            self.matching.opened(pair, channel.id, Instant::now());
            let end = self.ends.entry(pair).or_default();
            end.open = Some(channel.clone());
            if let Some(unfinished) = end.unfinished.take() {
                self.wait_no_longer(&unfinished); // the channel has taken over nothing
            }
        }
        self.watch_life(&channel);
        self.matched(&channel);
        self.look_after_waiting();
    }

    /// A channel of a subscriber of this node ended by itself: it is tried again as long as its publisher may be there.
    pub(super) fn channel_ended(&mut self, channel: &Arc<Channel>, why: String) {
        channel.close();
        let why = channel.ends_because.get().cloned().unwrap_or(why);
        let pair = (channel.publisher, channel.subscriber);
        // The channel that replaces this one exists before this one ends: its publisher has not left.
        let goes_on = self.ended_in_move(channel);
        self.drop_channel(channel);
        if goes_on {
            return;
        }
        if !self.is_open(channel) {
            return; // an older channel; the present one continues
        }
        channel.gate.ended();
        let history = channel.gate.give_up_history(linux::clock::monotonic_ns());
        let last = history.unwrap_or_else(|| came_by(channel));
        let delivered = (last > 0).then_some((channel.incarnation, last));
        self.matching.ended(pair, channel.id, delivered, Instant::now());
        if let Some(end) = self.ends.get_mut(&pair) {
            end.open = None;
            (end.before, end.unfinished) = match history {
                None => (Some(channel.clone()), None),
                Some(_) => (None, Some(channel.clone())),
            };
        }
        self.give_up_handshake(pair);
        if self.begin_upcoming(pair) || self.arrive(pair) {
            return;
        }
        self.unmatched(channel, &why);
        let now = Instant::now();
        let actions = self.ask_matching(|matching, known| matching.after_end(pair, known, now));
        self.act(actions);
        if !self.matching.is_wanted(&pair) {
            self.forget_end(&pair);
        }
    }

    /// Forgets a pair's channels. No other one follows them.
    fn forget_end(&mut self, pair: &Pair) {
        let Some(SubscriberEnd { open, unfinished, .. }) = self.ends.remove(pair) else { return };
        open.iter().chain(&unfinished).for_each(|channel| self.wait_no_longer(channel));
    }

    /// No channel takes over what waits at this one, or will wait there: it follows at once.
    fn wait_no_longer(&self, channel: &Channel) {
        if channel.gate.nobody_follows() {
            self.state.fetches.look();
        }
    }

    /// Removes a channel of a subscriber of this node.
    pub(super) fn drop_channel(&mut self, channel: &Arc<Channel>) {
        let held = |e: &Entry| matches!(e, Entry::Held(_, c) if Arc::ptr_eq(c, channel));
        if let Some(index) = self.descriptors.position(held) {
            self.unwatch(index);
        }
        self.forget_channel(channel);
        self.detach_local(channel);
    }

    pub(super) fn forget_channel(&self, channel: &Arc<Channel>) {
        if let Some(subscriber_port) = self.state.subscriber_port(channel.subscriber.port)
            && let Ok(mut channels) = subscriber_port.channels().lock()
        {
            channels.retain(|c| !Arc::ptr_eq(c, channel));
            // A proxy that moved has another channel between the same two ports.
            let other = channels.iter().any(|c| c.publisher == channel.publisher);
            subscriber_port.judge().filter(|_| !other).into_iter().for_each(|judge| judge.left(channel.publisher));
        }
    }

    /// Detaches a `local` channel from its publisher, which has no other sign of its end.
    fn detach_local(&mut self, channel: &Channel) {
        // The map's lock is released first: ending a channel may drop a callback that owns a publisher.
        let local = (channel.carrier == carrier::Name::Local)
            .then(|| LOCAL.publishers().get(&channel.publisher).cloned())
            .flatten();
        if let Some(publisher_port) = local {
            self.detach(publisher_port, channel.id);
        }
    }

    /// Like [`Self::drop_wanted`], but delivers no further sample: this side ends the channel.
    pub(super) fn cut_wanted(&mut self, pair: Pair, why: &str) {
        if let Some(channel) = self.open_channel(&pair) {
            channel.cut();
        }
        self.drop_wanted(pair, why);
    }

    pub(super) fn drop_wanted(&mut self, pair: Pair, why: &str) {
        self.give_up_move(pair);
        let open = self.open_channel(&pair).cloned();
        self.forget_end(&pair);
        if self.matching.forget(pair).is_none() {
            return;
        }
        if let Some(channel) = &open {
            channel.close();
            self.forget_channel(channel);
            self.detach_local(channel);
            self.unmatched(channel, why);
        }
        let held = self.descriptors.position(|e| match e {
            Entry::Held(_, channel) => (channel.publisher, channel.subscriber) == pair,
            Entry::ClientHandshake(handshake) => handshake.pair == pair,
            _ => false,
        });
        if let Some(index) = held {
            self.unwatch(index);
        }
    }
}

/// `true` if the subscriber gets samples from before the channel opened, or those that an earlier channel left out.
pub(super) fn has_history(wanted: &Wanted, channel: &Channel) -> bool {
    let durable = |qos: &qos::Qos| qos.durability == Durability::TransientLocal;
    // Pictures of the history are not scaled: no picture is better than a large one.
    let whole = channel.provenance().is_none_or(|scaled| scaled.picture.is_none());
    durable(&wanted.publisher.qos) && durable(&wanted.subscriber.qos) && whole
}

/// `true` if a subscriber of this QoS takes each sample: a sample that does not arrive is lost.
pub(super) fn takes_all(qos: &qos::Qos) -> bool {
    qos.filter.is_none() && qos.separation.is_none() && qos.scale == qos::Scale::default() && qos.key.is_empty()
}
