//! Limits of a port's channels by peer. Each channel costs its publisher a system call per sample, so a stranger may not have as many as it
//! likes. Nodes of this host that connect by the unix socket, whose users were admitted, are not counted: fan-out to a hundred processes is
//! their program's business.
//!
//! A peer of another host is identified by the address of its stream, which the kernel reports. The id of its node, which the peer may
//! invent, counts only within that address. One host may have half of a port's channels and one node of it a quarter, so that others have
//! room.

use crate::control::{NodeId, Peer};
use crate::handshake::{Reason, Refused};

/// A peer, and the id that its node claims: of another host, or of one that this host does not know.
pub(crate) type Elsewhere = (Peer, NodeId);

/// The numbers of channels, or proxies: of all peers, of one host, and of one node of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Had {
    pub in_all: u32,
    pub host: u32,
    pub node: u32,
}

impl Had {
    pub(crate) fn of(peer: Elsewhere, all: impl Iterator<Item = Elsewhere>) -> Self {
        all.fold(Self::default(), |had, other| Self {
            in_all: had.in_all + 1,
            host: had.host + u32::from(other.0 == peer.0),
            node: had.node + u32::from(other == peer),
        })
    }
}

/// Checks that a port of the node of this name, whose ports may have `most` channels, has room for one more to this peer. `all`: the peers
/// of the port's channels.
pub(crate) fn check(
    name: &str,
    most: u32,
    peer: Elsewhere,
    all: impl Iterator<Item = Elsewhere>,
) -> Result<(), Refused> {
    let (had, (host, node)) = (Had::of(peer, all), peer);
    let limits = [
        (had.in_all, most, "subscribers of other hosts".to_owned()),
        (had.host, most.div_ceil(2), format!("those of {host}")),
        (had.node, most.div_ceil(4), format!("node {node} of {host}")),
    ];
    let full = limits.into_iter().find(|(has, most, _)| has >= most);
    full.map_or(Ok(()), |(has, of, whom)| {
        Err(Refused {
            policy: Reason::Channels,
            offered: format!("at most {of} channels of one port for {whom}"),
            requested: format!("one more than {has}"),
            remedy: format!("close some, or start node {name} with --channels above {most} (Settings::limits)"),
            others: Vec::new(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_a_peer_are_counted_by_node_and_by_address() {
        let peer = |address: u8, node| (Peer::at([10, 0, 0, address].into()), NodeId(node));
        let all = [peer(1, 1), peer(1, 1), peer(1, 2), peer(2, 1)];
        assert_eq!(Had::of(peer(1, 1), all.into_iter()), Had { in_all: 4, host: 3, node: 2 });
        assert_eq!(Had::of(peer(3, 9), all.into_iter()), Had { in_all: 4, host: 0, node: 0 });
    }
}
