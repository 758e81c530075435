//! How many channels of a port go to whom: each costs its publisher a system call per sample, so a stranger may not have as many
//! as it likes. Nodes of this host that are linked by the unix socket, whose users were admitted, are not counted: fan-out to
//! a hundred processes is their program's business.
//!
//! Elsewhere a peer is told by the address of its stream, which the kernel says, and only within that by its node's id, which
//! anybody may make up. Of a port's channels one host may have half and one node of it a quarter, so that others have room.

use super::control::Control;
use super::entries::Entry;
use crate::channel::memory::Account;
use crate::channel::{Channel, PortRef};
use crate::control::{NodeId, Peer};
use crate::handshake::{Refused, Request};
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::sync::Arc;

/// How many hosts share the proxies of a relay at least.
const HOSTS: u32 = 4;

/// A host, and the node of it that a peer says it is: of another host, or one that this host does not know.
type Elsewhere = (Peer, NodeId);

/// What one peer has of something, and all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Had {
    in_all: u32,
    host: u32,
    node: u32,
}

impl Had {
    fn of(peer: Elsewhere, all: impl Iterator<Item = Elsewhere>) -> Self {
        all.fold(Self::default(), |had, other| Self {
            in_all: had.in_all + 1,
            host: had.host + u32::from(other.0 == peer.0),
            node: had.node + u32::from(other == peer),
        })
    }
}

impl Control {
    /// Whether a port has room for one more channel to who asks on this stream.
    /// One that is replaced, `but`, leaves its room.
    pub(super) fn check_room(&self, request: &Request, stream: impl AsFd, but: Option<u64>) -> Result<(), Refused> {
        let Some(peer) = self.elsewhere(request.node, stream) else { return Ok(()) };
        let (host, node) = peer;
        let publisher = PortRef { node: request.to_node, port: request.to_port };
        if publisher.node != self.state.id {
            return self.check_room_at_relay(peer, but);
        }
        let its = |channel: &Channel| channel.publisher == publisher && Some(channel.id) != but;
        let had = Had::of(peer, self.channels_elsewhere(its));
        let most = self.state.settings.limits.channels;
        let limits = [
            (had.in_all, most, "subscribers of other hosts".to_owned()),
            (had.host, most.div_ceil(2), format!("those of {host}")),
            (had.node, most.div_ceil(4), format!("node {node} of {host}")),
        ];
        let full = limits.into_iter().find(|(has, most, _)| has >= most);
        full.map_or(Ok(()), |(has, most, whom)| Err(self.no_room(has, most, &whom)))
    }

    /// As [`Control::check_room`], of a relay's proxies for all its sources.
    fn check_room_at_relay(&self, peer: Elsewhere, but: Option<u64>) -> Result<(), Refused> {
        let Some(limits) = self.relay else { return Ok(()) };
        let its = |channel: &Channel| channel.publisher.node != self.state.id && Some(channel.id) != but;
        let had = Had::of(peer, self.channels_elsewhere(its).chain(self.guests_elsewhere()));
        let (host, node) = peer;
        let limits = [
            (had.host, limits.proxies.div_ceil(HOSTS).max(limits.per_peer), format!("peers of {host}")),
            (had.node, limits.per_peer, format!("node {node} of {host}")),
        ];
        let full = limits.into_iter().find(|(has, most, _)| has >= most);
        full.map_or(Ok(()), |(has, most, whom)| {
            Err(super::host::refused(format!("at most {most} proxies for {whom}, which has {has}")))
        })
    }

    fn guests_elsewhere(&self) -> impl Iterator<Item = Elsewhere> {
        self.guests.iter().filter_map(|guest| self.elsewhere(guest.request.node, &guest.stream))
    }

    fn no_room(&self, has: u32, most: u32, whom: &str) -> Refused {
        let name = &self.state.settings.name;
        Refused {
            policy: "channels".to_owned(),
            offered: format!("at most {most} channels of one port for {whom}"),
            requested: format!("one more than {has}"),
            remedy: format!(
                "close some, or start node {name} with --channels above {} (Settings::limits)",
                self.state.settings.limits.channels
            ),
            others: Vec::new(),
        }
    }

    /// The peers of those channels of this node that lead to elsewhere.
    fn channels_elsewhere(&self, its: impl Fn(&Channel) -> bool) -> impl Iterator<Item = Elsewhere> {
        let of = |entry: &'_ Entry| match entry {
            Entry::Served(stream, Some(channel)) | Entry::Shared(stream, Some(channel), _) => {
                Some((stream.clone(), channel.clone()))
            }
            _ => None,
        };
        let served = self.entries.iter().flatten().filter_map(of);
        let served = served.filter(move |(_, channel): &(_, Arc<Channel>)| its(channel));
        served.filter_map(|(stream, channel)| self.elsewhere(channel.subscriber.node, &*stream))
    }

    /// The account of who is at the other end of a stream and says that it is this node.
    pub(super) fn account_of(&self, node: NodeId, stream: impl AsFd) -> Arc<Account> {
        self.state.memory.peer(self.whose(node, stream))
    }

    /// Whose memory it takes.
    pub(super) fn whose(&self, node: NodeId, stream: impl AsFd) -> Peer {
        self.elsewhere(node, stream).map_or(Peer::Node(node), |(host, _)| host)
    }

    /// Who a peer is; `None`: a node of this host.
    pub(super) fn elsewhere(&self, node: NodeId, stream: impl AsFd) -> Option<Elsewhere> {
        let socket = socket2::SockRef::from(&stream);
        if socket.domain().is_ok_and(|domain| domain == socket2::Domain::UNIX) {
            return None;
        }
        let ip = |address: std::io::Result<socket2::SockAddr>| {
            address.ok()?.as_socket().map(|address| address.ip().to_canonical())
        };
        // One that was reset meanwhile has no address.
        let (own, peer) = (ip(socket.local_addr()), ip(socket.peer_addr()).unwrap_or(Ipv6Addr::UNSPECIFIED.into()));
        let here = own == Some(peer) && self.discoveries.iter().any(|discovery| discovery.is_of_this_host(node));
        (!here).then(|| (Peer::at(peer), node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_has_is_counted_by_node_and_by_address() {
        let peer = |address: u8, node| (Peer::at([10, 0, 0, address].into()), NodeId(node));
        let all = [peer(1, 1), peer(1, 1), peer(1, 2), peer(2, 1)];
        assert_eq!(Had::of(peer(1, 1), all.into_iter()), Had { in_all: 4, host: 3, node: 2 });
        assert_eq!(Had::of(peer(3, 9), all.into_iter()), Had { in_all: 4, host: 0, node: 0 });
    }
}
