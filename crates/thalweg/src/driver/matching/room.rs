//! How many channels of a port go to whom: each costs its publisher a system call per sample, so a stranger may not have as many
//! as it likes. Nodes of this host that are linked by the unix socket, whose users were admitted, are not counted: fan-out to
//! a hundred processes is their program's business.
//!
//! Elsewhere a peer is told by the address of its stream, which the kernel says, and only within that by its node's id, which
//! anybody may make up. Of a port's channels one host may have half and one node of it a quarter, so that others have room.

use crate::control::{NodeId, Peer};
use crate::handshake::{Reason, Refused};

/// A host, and the node of it that a peer says it is: of another host, or one that this host does not know.
pub(crate) type Elsewhere = (Peer, NodeId);

/// What one peer has of something, and all together.
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

/// Whether a port of the node of this name, whose ports may have `most` channels, has room for one more of this peer. `all`: whose the
/// port's channels are.
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
    fn what_a_peer_has_is_counted_by_node_and_by_address() {
        let peer = |address: u8, node| (Peer::at([10, 0, 0, address].into()), NodeId(node));
        let all = [peer(1, 1), peer(1, 1), peer(1, 2), peer(2, 1)];
        assert_eq!(Had::of(peer(1, 1), all.into_iter()), Had { in_all: 4, host: 3, node: 2 });
        assert_eq!(Had::of(peer(3, 9), all.into_iter()), Had { in_all: 4, host: 0, node: 0 });
    }
}
