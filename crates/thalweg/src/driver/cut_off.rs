//! Channels of this node's publishers whose subscriber lost its connection, and did not leave: they go on to take what is published,
//! by the policy of their queues, until it comes back and another channel takes them over, or nobody hopes for it any more.

use super::attachments::Publisher;
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
struct CutOff<O> {
    outlet: O,
    channel: Arc<Channel>,
    /// As long as a subscriber tries to reach a publisher that vanished.
    until: Instant,
}

/// All of them. Pure: time is an argument.
pub(super) struct CutOffs<O = Arc<dyn AnyOutlet>>(Vec<CutOff<O>>);

impl<O> Default for CutOffs<O> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<O: Publisher> CutOffs<O> {
    /// What is published waits for the subscriber of this channel from now on.
    pub(super) fn add(&mut self, outlet: O, channel: Arc<Channel>, now: Instant) {
        self.0.push(CutOff { outlet, channel, until: now + PATIENCE });
    }

    /// The youngest channel of these ports that waits for the request with this token.
    pub(super) fn waiting_for(&self, (publisher, subscriber): Pair, token: u64) -> Option<&Arc<Channel>> {
        let its = |channel: &&Arc<Channel>| {
            (channel.publisher, channel.subscriber) == (publisher, subscriber) && channel.token.get() == Some(&token)
        };
        self.channels().rev().find(its)
    }

    /// The channels that wait, oldest first.
    pub(super) fn channels(&self) -> impl DoubleEndedIterator<Item = &Arc<Channel>> {
        self.0.iter().map(|cut_off| &cut_off.channel)
    }

    /// Another channel took this one's place, and what it had.
    pub(super) fn was_replaced(&mut self, id: u64) {
        self.0.retain(|cut_off| cut_off.channel.id != id);
    }

    /// Gives up those of which this is true, those whose publisher closed, and those that have waited long enough.
    pub(super) fn give_up(&mut self, now: Instant, hopeless: impl Fn(&Channel) -> bool) -> Vec<(O, u64)> {
        let over = |of: &mut CutOff<O>| of.until <= now || of.outlet.is_closed() || hopeless(&of.channel);
        self.0.extract_if(.., over).map(|cut_off| (cut_off.outlet, cut_off.channel.id)).collect()
    }

    /// Who resets one connection after the other does not make a port take all that it publishes for ever more subscribers: of a port, a
    /// host has so many that are waited for at most, with one more to come, and the oldest give way.
    pub(super) fn make_room_beside(&mut self, channel: &Channel, most: usize) -> Vec<(O, u64)> {
        let host = |of: &Channel| of.elsewhere.get().map(|(host, _)| *host);
        let beside = |other: &&Arc<Channel>| other.publisher == channel.publisher && host(other) == host(channel);
        let ids: Vec<u64> = self.channels().filter(beside).map(|other| other.id).collect();
        let over = &ids[..ids.len().saturating_sub(most.saturating_sub(1))];
        let gone = self.0.extract_if(.., |of| over.contains(&of.channel.id));
        gone.map(|cut_off| (cut_off.outlet, cut_off.channel.id)).collect()
    }

    /// The next time at which one has waited long enough.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().map(|cut_off| cut_off.until).min()
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
        // As many as a node of that host may have channels.
        let most = self.state.settings.limits.channels.div_ceil(4) as usize;
        let over = self.cut_off.make_room_beside(channel, most);
        over.into_iter().for_each(|(outlet, id)| self.detach(outlet, id));
        self.cut_off.add(outlet, channel.clone(), Instant::now());
        true
    }

    /// The subscriber's node is known, and has no such port any more.
    fn has_closed(&self, channel: &Channel) -> bool {
        let directory = self.state.directory();
        directory.node(channel.subscriber.node).is_some_and(|node| !node.ports.contains_key(&channel.subscriber.port))
    }

    /// The channel that waits for who makes this request.
    pub(super) fn waiting_for(&self, request: &Request) -> Option<Arc<Channel>> {
        self.cut_off.waiting_for(ends(request), request.token?).cloned()
    }

    /// Ends those that nobody hopes for any more: these, and whose time is over.
    pub(super) fn give_up_cut_off(&mut self, now: Instant, hopeless: impl Fn(&Channel) -> bool) {
        let over = self.cut_off.give_up(now, hopeless);
        over.into_iter().for_each(|(outlet, id)| self.detach(outlet, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::attachments::fake::{Fake, channel, pair};
    use std::rc::Rc;

    fn ids(over: Vec<(Rc<Fake>, u64)>) -> Vec<u64> {
        over.into_iter().map(|(_, id)| id).collect()
    }

    #[test]
    fn a_channel_waits_for_its_subscriber_as_long_as_that_tries() {
        let start = Instant::now();
        let mut waiting = CutOffs::<Rc<Fake>>::default();
        (1..=2).for_each(|n| waiting.add(Rc::default(), channel(n, pair(1, n), start), start + n as u32 * SHORT));
        assert_eq!(waiting.next_deadline(), Some(start + SHORT + PATIENCE));
        assert_eq!(ids(waiting.give_up(start + PATIENCE, |_| false)), [0; 0]);
        assert_eq!(ids(waiting.give_up(start + SHORT + PATIENCE, |_| false)), [1]);
        assert_eq!(ids(waiting.give_up(start, |channel| channel.id == 2)), [2]);
        assert_eq!(waiting.next_deadline(), None);
    }

    #[test]
    fn whose_publisher_closed_or_whose_place_was_taken_waits_no_more() {
        let (start, outlet) = (Instant::now(), Rc::new(Fake::default()));
        let mut waiting = CutOffs::default();
        (1..=2).for_each(|n| waiting.add(outlet.clone(), channel(n, pair(1, n), start), start));
        waiting.was_replaced(1);
        assert_eq!(ids(waiting.give_up(start, |_| false)), [0; 0]);
        outlet.closed.set(true);
        assert_eq!(ids(waiting.give_up(start, |_| false)), [2]);
    }

    #[test]
    fn only_the_request_with_its_token_takes_a_channel_over_and_the_youngest() {
        let start = Instant::now();
        let mut waiting = CutOffs::<Rc<Fake>>::default();
        for (id, token) in [(1, Some(5)), (2, Some(5)), (3, None)] {
            let channel = channel(id, pair(1, 2), start);
            token.into_iter().for_each(|token| channel.token.set(token).unwrap());
            waiting.add(Rc::default(), channel, start);
        }
        let found = |pair, token| waiting.waiting_for(pair, token).map(|channel| channel.id);
        assert_eq!((found(pair(1, 2), 5), found(pair(1, 2), 6), found(pair(1, 3), 5)), (Some(2), None, None));
    }

    #[test]
    fn of_one_port_and_host_the_oldest_give_way() {
        let start = Instant::now();
        let mut waiting = CutOffs::<Rc<Fake>>::default();
        (1..=4).for_each(|n| waiting.add(Rc::default(), channel(n, pair(1, n), start), start));
        waiting.add(Rc::default(), channel(5, pair(2, 5), start), start);
        let next = channel(6, pair(1, 6), start);
        assert_eq!(ids(waiting.make_room_beside(&next, 3)), [1, 2]);
        assert_eq!(waiting.channels().map(|channel| channel.id).collect::<Vec<_>>(), [3, 4, 5]);
    }
}
