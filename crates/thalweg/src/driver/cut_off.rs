//! Channels of this node's publishers whose subscriber lost its connection, and did not leave: they go on to take what is published,
//! by the policy of their queues, until it comes back and another channel takes them over, or nobody hopes for it any more.

use super::control::Control;
use super::matching::{PATIENCE, Pair};
use super::offer::ends;
use crate::channel::Channel;
use crate::handshake::Request;
use crate::port::AnyOutlet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A subscriber that leaves its channel so soon did not come for samples.
const SHORT: Duration = Duration::from_millis(100);

/// One of them.
pub(crate) struct CutOff {
    outlet: Arc<dyn AnyOutlet>,
    channel: Arc<Channel>,
    /// As long as a subscriber tries to reach a publisher that vanished.
    until: Instant,
}

impl CutOff {
    pub fn is_between(&self, (publisher, subscriber): Pair) -> bool {
        self.channel.publisher == publisher && self.channel.subscriber == subscriber
    }
}

impl Control {
    /// The stream of a channel ended. Who left says nothing more; whose connection broke may come back.
    pub(super) fn served_stream_ended(&mut self, index: usize) {
        let Some((channel, why, broken)) = self.take_served(index) else { return };
        if let Some((peer, _)) = channel.elsewhere.get().filter(|_| channel.begun.elapsed() < SHORT) {
            self.came_to_nothing(*peer, "channels whose subscriber left within 0.1 s");
        }
        if !broken || !self.waits_for_return(&channel, &why) {
            self.end_channel(&channel, &why);
        }
    }

    /// A subscriber came again while its channel seems to be well: that gives way. What it had not sent goes on in the new one.
    pub(super) fn gives_way(&mut self, index: usize) {
        let Some((channel, ..)) = self.take_served(index) else { return };
        let why = "cut off from the subscriber: it comes again over another connection";
        if !self.waits_for_return(&channel, why) {
            self.end_channel(&channel, why);
        }
    }

    /// What is published waits for the subscriber of this channel. `false`: it does not outlast its connection, or nobody comes back.
    fn waits_for_return(&mut self, channel: &Arc<Channel>, why: &str) -> bool {
        let Some(outlet) = self.outlet_of(channel).filter(|_| !channel.is_closed() && !self.has_closed(channel)) else {
            return false;
        };
        if !outlet.cut_off(channel) {
            return false;
        }
        self.unmatched(channel, why);
        self.make_room_beside(channel);
        self.cut_off.push(CutOff { outlet, channel: channel.clone(), until: Instant::now() + PATIENCE });
        true
    }

    /// Who resets one connection after the other does not make a port take all that it publishes for ever more subscribers: of a port, its
    /// host has as many that are waited for as a node may have channels, and the oldest give way.
    fn make_room_beside(&mut self, channel: &Channel) {
        let most = self.state.settings.limits.channels.div_ceil(4) as usize;
        let host = |of: &Channel| of.elsewhere.get().map(|(host, _)| *host);
        let beside =
            |other: &&CutOff| other.channel.publisher == channel.publisher && host(&other.channel) == host(channel);
        let ids: Vec<u64> = self.cut_off.iter().filter(beside).map(|other| other.channel.id).collect();
        let over = ids.len().saturating_sub(most.saturating_sub(1));
        self.give_up_cut_off(|other, _| ids[..over].contains(&other.id));
    }

    /// The subscriber's node is known, and has no such port any more.
    fn has_closed(&self, channel: &Channel) -> bool {
        let directory = self.state.directory();
        directory.node(channel.subscriber.node).is_some_and(|node| !node.ports.contains_key(&channel.subscriber.port))
    }

    /// The channel that waits for who makes this request.
    pub(super) fn waiting_for(&self, request: &Request) -> Option<Arc<Channel>> {
        let its = |cut_off: &&CutOff| {
            cut_off.is_between(ends(request)) && cut_off.channel.token.get() == request.token.as_ref()
        };
        let found = self.cut_off.iter().rev().find(its).filter(|_| request.token.is_some());
        found.map(|cut_off| cut_off.channel.clone())
    }

    /// Whether this is true of a channel that waits for its subscriber.
    pub(super) fn any_cut_off(&self, is: impl Fn(&Arc<Channel>) -> bool) -> bool {
        self.cut_off.iter().any(|cut_off| is(&cut_off.channel))
    }

    /// Another channel took this one's place, and what it had.
    pub(super) fn was_replaced(&mut self, id: u64) {
        self.cut_off.retain(|cut_off| cut_off.channel.id != id);
    }

    /// Ends those that nobody hopes for any more: these.
    pub(super) fn give_up_cut_off(&mut self, hopeless: impl Fn(&Channel, Instant) -> bool) {
        for cut_off in std::mem::take(&mut self.cut_off) {
            match hopeless(&cut_off.channel, cut_off.until) || cut_off.outlet.is_closed() {
                true => self.detach(cut_off.outlet, cut_off.channel.id),
                false => self.cut_off.push(cut_off),
            }
        }
    }

    /// When to look at them next.
    pub(super) fn next_cut_off(&self) -> Option<Instant> {
        self.cut_off.iter().map(|cut_off| cut_off.until).min()
    }
}
