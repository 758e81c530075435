//! The peers of a port's channels and of a relay's proxies. [`matching::room`](super::matching::room) limits the number of each peer.

use super::control::Control;
use super::entries::Entry;
use super::matching::room::{self, Elsewhere};
use crate::channel::memory::Account;
use crate::channel::{Channel, PortRef};
use crate::control::{NodeId, Peer};
use crate::handshake::{Refused, Request};
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::sync::Arc;

impl Control {
    /// Checks that a port has room for one more channel to the peer of this stream. A channel that is replaced, `but`, does not count.
    pub(super) fn check_room(&self, request: &Request, stream: impl AsFd, but: Option<u64>) -> Result<(), Refused> {
        let Some(peer) = self.elsewhere(request.node, stream) else { return Ok(()) };
        let publisher = PortRef { node: request.to_node, port: request.to_port };
        if publisher.node != self.state.id {
            return self.check_room_at_relay(peer, but);
        }
        let its = |channel: &Channel| channel.publisher == publisher && Some(channel.id) != but;
        let settings = &self.state.settings;
        room::check(&settings.name, settings.limits.channels, peer, self.channels_elsewhere(its))
    }

    /// Like [`Control::check_room`], for a relay's proxies of all its sources.
    fn check_room_at_relay(&self, peer: Elsewhere, but: Option<u64>) -> Result<(), Refused> {
        let its = |channel: &Channel| channel.publisher.node != self.state.id && Some(channel.id) != but;
        self.relay.check_share(peer, self.channels_elsewhere(its).chain(self.guests_elsewhere()))
    }

    fn guests_elsewhere(&self) -> impl Iterator<Item = Elsewhere> {
        self.relay.streams.guests().filter_map(|(request, stream)| self.elsewhere(request.node, stream))
    }

    /// The peers of those channels of this node that lead elsewhere.
    fn channels_elsewhere(&self, its: impl Fn(&Channel) -> bool) -> impl Iterator<Item = Elsewhere> {
        let of = |entry: &'_ Entry| match entry {
            Entry::Served(stream, Some(channel)) | Entry::Shared(stream, Some(channel), _) => {
                Some((stream.clone(), channel.clone()))
            }
            _ => None,
        };
        let served = self.descriptors.all().filter_map(of);
        let served = served.filter(move |(_, channel): &(_, Arc<Channel>)| its(channel));
        served.filter_map(|(stream, channel)| self.elsewhere(channel.subscriber.node, &*stream))
    }

    /// The memory account of the peer at the other end of a stream, which claims to be `node`.
    pub(super) fn account_of(&self, node: NodeId, stream: impl AsFd) -> Arc<Account> {
        self.state.memory.peer(self.whose(node, stream))
    }

    /// The peer whose memory a stream takes.
    pub(super) fn whose(&self, node: NodeId, stream: impl AsFd) -> Peer {
        self.elsewhere(node, stream).map_or(Peer::Node(node), |(host, _)| host)
    }

    /// The identity of a peer; `None`: a node of this host.
    pub(super) fn elsewhere(&self, node: NodeId, stream: impl AsFd) -> Option<Elsewhere> {
        let socket = socket2::SockRef::from(&stream);
        if socket.domain().is_ok_and(|domain| domain == socket2::Domain::UNIX) {
            return None;
        }
        let ip = |address: std::io::Result<socket2::SockAddr>| {
            address.ok()?.as_socket().map(|address| address.ip().to_canonical())
        };
        // A stream that was reset meanwhile has no address.
        let (own, peer) = (ip(socket.local_addr()), ip(socket.peer_addr()).unwrap_or(Ipv6Addr::UNSPECIFIED.into()));
        let here = own == Some(peer) && self.discoveries.is_of_this_host(node);
        (!here).then(|| (Peer::at(peer), node))
    }
}
