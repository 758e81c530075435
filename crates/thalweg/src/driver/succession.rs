//! Succession of channels. A subscriber that comes again, perhaps from another address, takes the place of its channel, whether the publisher
//! still sends to the former place or has lost the connection. A channel that lost its connection still takes published samples, by the
//! policy of its queue, until the subscriber comes back or the channel is given up.
//!
//! The names of node and port in a request are known to everybody, so they prove nothing. The proof is the token, which only the publisher
//! gets. A channel without a token gives way to the address of its stream. A subscriber without a proof is served beside the older channel,
//! like a subscriber of any other name. If it were refused, a peer that comes first with another's name would keep the owner of the name out.

use super::attachments::Publisher;
use super::control::Control;
use super::entries::Entry;
use super::handshake_server::ends;
use super::matching::{PATIENCE, Pair};
use crate::channel::Channel;
use crate::control::NodeId;
use crate::handshake::Request;
use crate::port::AnyPublisher;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A subscriber that ends its connection within this time after its request, by which it came back, may have given up the handshake: the
/// answer was lost or late. It tries again after [`ATTEMPT`](super::handshake_client::ATTEMPT). This node may have been stopped for some time meanwhile.
const ANSWERED: Duration = Duration::from_secs(10);

/// A channel whose subscriber is cut off.
struct CutOff<O> {
    publisher_port: O,
    channel: Arc<Channel>,
    /// The time at which the channel is given up. A subscriber tries to reach a vanished publisher for the same time.
    until: Instant,
}

/// All channels whose subscriber is cut off. Pure: time is an argument.
pub(super) struct CutOffs<O = Arc<dyn AnyPublisher>>(Vec<CutOff<O>>);

impl<O> Default for CutOffs<O> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<O: Publisher> CutOffs<O> {
    /// The stream of a channel is over, and published samples wait for its subscriber from now on. At most `most` channels of one port and
    /// host wait; returns those that are given up. `None`: the channel does not outlast its connection, or its subscriber `left` and does
    /// not come back.
    pub(super) fn wait(
        &mut self,
        publisher_port: O,
        channel: &Arc<Channel>,
        (left, most): (bool, usize),
        now: Instant,
    ) -> Option<Vec<(O, u64)>> {
        if left || channel.is_closed() || !publisher_port.cuts_off(channel) {
            return None;
        }
        let over = self.make_room_beside(channel, most);
        self.add(publisher_port, channel.clone(), now);
        Some(over)
    }

    fn add(&mut self, publisher_port: O, channel: Arc<Channel>, now: Instant) {
        self.0.push(CutOff { publisher_port, channel, until: now + PATIENCE });
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

    /// Another channel took the place and the queue of this one.
    pub(super) fn was_replaced(&mut self, id: u64) {
        self.0.retain(|cut_off| cut_off.channel.id != id);
    }

    /// Gives up the channels for which `hopeless` is true, those whose publisher closed, and those whose time is over.
    pub(super) fn give_up(&mut self, now: Instant, hopeless: impl Fn(&Channel) -> bool) -> Vec<(O, u64)> {
        let over = |of: &mut CutOff<O>| of.until <= now || of.publisher_port.is_closed() || hopeless(&of.channel);
        self.0.extract_if(.., over).map(|cut_off| (cut_off.publisher_port, cut_off.channel.id)).collect()
    }

    /// Gives up the oldest channels of the same port and host as `channel`, so that at most `most` remain with the new one. Otherwise a
    /// host that resets one connection after the other would make a port queue samples for more and more subscribers.
    fn make_room_beside(&mut self, channel: &Channel, most: usize) -> Vec<(O, u64)> {
        let host = |of: &Channel| of.elsewhere.get().map(|(host, _)| *host);
        let beside = |other: &&Arc<Channel>| other.publisher == channel.publisher && host(other) == host(channel);
        let ids: Vec<u64> = self.channels().filter(beside).map(|other| other.id).collect();
        let over = &ids[..ids.len().saturating_sub(most.saturating_sub(1))];
        let gone = self.0.extract_if(.., |of| over.contains(&of.channel.id));
        gone.map(|cut_off| (cut_off.publisher_port, cut_off.channel.id)).collect()
    }

    /// The next time at which one has waited long enough.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().map(|cut_off| cut_off.until).min()
    }
}

/// `true` if the subscriber of a channel whose stream ended may come back. `broken`: it did not end the stream itself.
pub(super) fn may_return(channel: &Channel, broken: bool, now: Instant) -> bool {
    broken || (channel.replaces.is_some() && now.duration_since(channel.begun) < ANSWERED)
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// The stream of a channel ended. A subscriber that left does not come back; one whose connection broke may.
    pub(super) fn served_stream_ended(&mut self, index: usize) {
        let Some((channel, why, broken)) = self.take_served(index) else { return };
        if let Some((peer, _)) = channel.elsewhere.get().filter(|_| channel.begun.elapsed() < SHORT) {
            self.came_to_nothing(*peer, "channels whose subscriber left within 0.1 s");
        }
        if !may_return(&channel, broken, Instant::now()) || !self.waits_for_return(&channel, &why) {
            self.end_channel(&channel, &why);
        }
    }

    /// A subscriber connected again while its channel seems to be well: the older channel gives way. Its unsent samples continue in the new
    /// one.
    pub(super) fn gives_way(&mut self, index: usize) {
        let Some((channel, ..)) = self.take_served(index) else { return };
        let why = "cut off from the subscriber: it comes again over another connection";
        if !self.waits_for_return(&channel, why) {
            self.end_channel(&channel, why);
        }
    }

    /// Published samples wait for the subscriber of this channel. `false`: the channel does not outlast its connection, or the subscriber
    /// does not come back.
    fn waits_for_return(&mut self, channel: &Arc<Channel>, why: &str) -> bool {
        let Some(publisher_port) = self.publisher_port_of(channel) else { return false };
        // The limit is the number of channels that a node of that host may have.
        let most = self.state.settings.limits.channels.div_ceil(4) as usize;
        let left = self.has_closed(channel);
        let Some(over) = self.cut_off.wait(publisher_port, channel, (left, most), Instant::now()) else { return false };
        self.unmatched(channel, why);
        over.into_iter().for_each(|(publisher_port, id)| self.detach(publisher_port, id));
        true
    }

    /// `true` if the subscriber's node is known and does not have this port any more.
    fn has_closed(&self, channel: &Channel) -> bool {
        let directory = self.state.directory();
        directory.node(channel.subscriber.node).is_some_and(|node| !node.ports.contains_key(&channel.subscriber.port))
    }

    /// News of a node: ends the channels that wait for ports which it does not have any more. It may have closed them while it was not
    /// known here.
    pub(super) fn give_up_closed(&mut self, node: NodeId, now: Instant) {
        let waiting = self.cut_off.channels().filter(|channel| channel.subscriber.node == node);
        let closed: Vec<u64> = waiting.filter(|channel| self.has_closed(channel)).map(|channel| channel.id).collect();
        if !closed.is_empty() {
            self.give_up_cut_off(now, |channel| closed.contains(&channel.id));
        }
    }

    /// The channel that waits for the sender of this request.
    pub(super) fn waiting_for(&self, request: &Request) -> Option<Arc<Channel>> {
        self.cut_off.waiting_for(ends(request), request.token?).cloned()
    }

    /// Ends the channels for which `hopeless` is true, and those whose time is over.
    pub(super) fn give_up_cut_off(&mut self, now: Instant, hopeless: impl Fn(&Channel) -> bool) {
        let over = self.cut_off.give_up(now, hopeless);
        over.into_iter().for_each(|(publisher_port, id)| self.detach(publisher_port, id));
    }

    /// The channel that was opened before for the ports of a request. Channels over shared memory do not count: a ring's slots are free
    /// only when the subscriber's own sign shows that they are not read any more.
    pub(super) fn opened_before(&self, request: &Request, stream: &OwnedFd) -> Before {
        let served = self.descriptors.iter().filter_map(|(index, entry)| match entry {
            Entry::Served(its, Some(channel)) | Entry::Shared(its, Some(channel), _) => Some((index, channel, its)),
            _ => None,
        });
        before(request, served, self.waiting_for(request), |its| is_of_one_place(its, stream))
    }
}

/// The channel of a request's ports that was opened before.
pub(super) enum Before {
    /// There is no such channel.
    Nothing,
    /// A channel of the same subscriber, which gives way, with its index among the entries; without one, it is cut off.
    Its(Option<usize>, Arc<Channel>),
    /// A channel that is not proven to be the subscriber's.
    Anothers,
}

impl Before {
    /// The number of the channel that gives way.
    pub(super) fn as_channel(&self) -> Option<u64> {
        if let Before::Its(_, channel) = self { Some(channel.id) } else { None }
    }

    pub(super) fn is_anothers(&self) -> bool {
        matches!(self, Before::Anothers)
    }
}

/// The channel that was opened before for the ports of a request. `served`: the channels whose streams are open, with their index and
/// stream; `waiting`: the one that is cut off from the sender of the request; `same_place`: `true` if a stream has the request's address.
pub(super) fn before<'a, S>(
    request: &Request,
    served: impl Iterator<Item = (usize, &'a Arc<Channel>, S)>,
    waiting: Option<Arc<Channel>>,
    same_place: impl Fn(S) -> bool,
) -> Before {
    let mut found = Before::Nothing;
    for (index, channel, its) in served.filter(|(_, of, _)| (of.publisher, of.subscriber) == ends(request)) {
        if gives_way(channel.token.get().copied(), request.token, || same_place(its)) {
            return Before::Its(Some(index), channel.clone());
        }
        found = Before::Anothers;
    }
    waiting.map_or(found, |channel| Before::Its(None, channel))
}

/// `true` if a channel with token `opened` gives way to a request with token `shown`, perhaps over a stream of the `same_place`.
fn gives_way(opened: Option<u64>, shown: Option<u64>, same_place: impl FnOnce() -> bool) -> bool {
    if opened.is_some() { opened == shown } else { same_place() }
}

/// `true` if two streams may come from one address. The kernel has no address for a stream that is over. A subscriber at the unix socket was
/// admitted by its user.
fn is_of_one_place(its: &TcpStream, stream: &OwnedFd) -> bool {
    address(its).is_none_or(|before| address(stream).is_none_or(|now| now == before))
}

fn address(stream: &impl AsFd) -> Option<IpAddr> {
    let peer = socket2::SockRef::from(stream).peer_addr().ok()?;
    Some(peer.as_socket()?.ip().to_canonical())
}

/// A subscriber that leaves its channel within this time did not come for samples.
const SHORT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::attachments::fake::{Fake, channel, pair};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
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
    fn a_channel_waits_no_more_once_its_publisher_closed_or_another_took_its_place() {
        let (start, publisher_port) = (Instant::now(), Rc::new(Fake::default()));
        let mut waiting = CutOffs::default();
        (1..=2).for_each(|n| waiting.add(publisher_port.clone(), channel(n, pair(1, n), start), start));
        waiting.was_replaced(1);
        assert_eq!(ids(waiting.give_up(start, |_| false)), [0; 0]);
        publisher_port.closed.set(true);
        assert_eq!(ids(waiting.give_up(start, |_| false)), [2]);
    }

    #[test]
    fn a_channel_waits_only_if_it_outlasts_its_connection_and_its_subscriber_did_not_leave() {
        let (start, publisher_port) = (Instant::now(), Rc::new(Fake::default()));
        let mut waiting = CutOffs::default();
        let [one, other, closed, last] = [1, 2, 3, 4].map(|n| channel(n, pair(1, n), start));
        publisher_port.has.borrow_mut().extend([1, 3, 4]);
        closed.close();
        let mut wait = |channel, left| waiting.wait(publisher_port.clone(), channel, (left, 1), start).map(ids);
        assert_eq!((wait(&one, true), wait(&other, false), wait(&closed, false)), (None, None, None));
        assert_eq!(wait(&one, false), Some(vec![]));
        assert_eq!(wait(&last, false), Some(vec![1]), "one of a host waits");
    }

    #[test]
    fn a_subscriber_that_came_back_and_leaves_at_once_may_have_missed_the_answer() {
        let start = Instant::now();
        let new = || Arc::into_inner(channel(2, pair(1, 2), start)).unwrap();
        let (first, resumed) = (new(), Channel { replaces: Some(1), ..new() });
        assert!(may_return(&first, true, start + PATIENCE) && !may_return(&first, false, start));
        assert!(may_return(&resumed, false, start + SHORT) && !may_return(&resumed, false, start + ANSWERED));
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
    fn the_oldest_channels_of_one_port_and_host_give_way() {
        let start = Instant::now();
        let mut waiting = CutOffs::<Rc<Fake>>::default();
        (1..=4).for_each(|n| waiting.add(Rc::default(), channel(n, pair(1, n), start), start));
        waiting.add(Rc::default(), channel(5, pair(2, 5), start), start);
        let next = channel(6, pair(1, 6), start);
        assert_eq!(ids(waiting.make_room_beside(&next, 3)), [1, 2]);
        assert_eq!(waiting.channels().map(|channel| channel.id).collect::<Vec<_>>(), [3, 4, 5]);
    }

    fn from(address: [u8; 4], listener: &TcpListener) -> (TcpStream, TcpStream) {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from((address, 0)).into()).unwrap();
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        (listener.accept().unwrap().0, socket.into())
    }

    #[test]
    fn a_channel_gives_way_to_its_token_and_without_one_to_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (old, _one) = from([127, 0, 0, 2], &listener);
        let (same, _two) = from([127, 0, 0, 2], &listener);
        let (other, _three) = from([127, 0, 0, 3], &listener);
        let unix = OwnedFd::from(UnixStream::pair().unwrap().0);
        let [same, other] = [same, other].map(OwnedFd::from);
        let gives_way = |opened, its: &TcpStream, shown, stream: &OwnedFd| {
            super::gives_way(opened, shown, || is_of_one_place(its, stream))
        };
        assert!(gives_way(Some(7), &old, Some(7), &other), "from another address");
        for stream in [&same, &other, &unix] {
            assert!(!gives_way(Some(7), &old, Some(8), stream) && !gives_way(Some(7), &old, None, stream));
        }
        assert!(gives_way(None, &old, None, &same) && gives_way(None, &old, Some(7), &same), "an older version's");
        assert!(!gives_way(None, &old, None, &other) && !gives_way(None, &old, Some(7), &other));
        assert!(gives_way(None, &old, None, &unix), "a user that was admitted");
    }
}
