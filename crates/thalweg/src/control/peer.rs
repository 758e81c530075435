//! Peers, identified by the kernel: each has a share of a node's resources. A peer's statement about itself makes it
//! no other peer.

use super::{NodeId, Origin};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;

/// The peer at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// A node of this host that it knows by the unix socket.
    Node(NodeId),
    /// A host, by TCP: its address, of IPv6 its network, with all the nodes that say they are there.
    Host(IpAddr),
    /// A process of this host, by the unix socket, that has not named its node yet.
    Process {
        /// Its user.
        user: u32,
        /// Its number.
        process: u32,
    },
    /// Everything that comes through intermediaries that do not report the sender.
    Zenoh,
}

impl Peer {
    /// The host at this address. Of IPv6 addresses that routers give away, a host has as many as it likes in its network of 64 bits.
    pub(crate) fn at(address: IpAddr) -> Self {
        Peer::Host(match address.to_canonical() {
            IpAddr::V6(v6) if !v6.is_loopback() && !v6.is_unicast_link_local() => {
                Ipv6Addr::from_bits(v6.to_bits() & !(u128::from(u64::MAX))).into()
            }
            other => other,
        })
    }

    /// The peer at the other end of a stream now. `None`: the stream was reset.
    pub(crate) fn of(stream: impl AsFd) -> Option<Self> {
        match socket2::SockRef::from(&stream).peer_addr().ok()?.as_socket() {
            Some(address) => Some(Peer::at(address.ip())),
            None => {
                let user = linux::socket::peer_user(&stream).ok()?;
                Some(Peer::Process { user, process: linux::socket::peer_process(&stream).ok()? })
            }
        }
    }

    /// The peer that sends by this way; `None`: this host.
    pub(crate) fn beyond(origin: Origin) -> Option<Self> {
        match origin {
            Origin::Own | Origin::Host { .. } => None,
            Origin::Tcp { from, .. } => Some(Peer::at(from)),
            Origin::Zenoh => Some(Peer::Zenoh),
        }
    }

    pub(crate) fn is_of_unix(self) -> bool {
        matches!(self, Peer::Process { .. })
    }

    pub(crate) fn user(self) -> Option<u32> {
        if let Peer::Process { user, .. } = self { Some(user) } else { None }
    }

    /// `true` if both have one share. Processes of one user do: otherwise a user would have as many shares as it likes.
    pub(crate) fn shares_with(self, other: Self) -> bool {
        self == other || (self.user().is_some() && self.user() == other.user())
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Node(node) => write!(f, "node {node}"),
            Peer::Host(address) => write!(f, "host {address}"),
            Peer::Process { user, process } => write!(f, "process {process} of user {user}"),
            Peer::Zenoh => write!(f, "Zenoh"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_by_the_network_that_it_has_for_itself() {
        let host = |text: &str| Peer::at(text.parse().unwrap()).to_string();
        assert_eq!([host("10.0.0.7"), host("::ffff:10.0.0.7")], ["host 10.0.0.7", "host 10.0.0.7"]);
        assert_eq!([host("2001:db8::7:1"), host("2001:db8:0:0:ffff::1")], ["host 2001:db8::", "host 2001:db8::"]);
        assert_eq!([host("fe80::1"), host("::1")], ["host fe80::1", "host ::1"]);
    }

    #[test]
    fn the_peer_of_a_stream_is_identified_by_the_kernel() {
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(Peer::of(&stream), Some(Peer::Process { user, process: std::process::id() }));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(Peer::of(&stream), Some(Peer::Host([127, 0, 0, 1].into())));
    }
}
