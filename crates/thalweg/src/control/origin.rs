//! Origins of news and calls, from the kernel as far as possible; and what a node makes of them: the peer that each is counted with,
//! the addresses that it accepts, and the networks that may administer it.

use super::limits::MOST_ADDRESSES_TRIED;
use super::{Document, NodeId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;

/// The way by which news or a call of another node came, best known first: news by an earlier one outranks that by a later one.
/// A peer's statement about itself (its node, its host) is no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// This node itself.
    Own,
    /// This host: the node's unix socket, whose users were admitted.
    Host {
        /// The user at its other end, from the kernel.
        user: u32,
    },
    /// A TCP link.
    Tcp {
        /// The other end's address, as the kernel sees it.
        from: IpAddr,
        /// Both ends are on this host: a loopback address, or one of its own.
        here: bool,
        /// The user at the other end, if it is known: on this host, in this network namespace.
        user: Option<u32>,
    },
    /// Through intermediaries that do not report the sender: Zenoh.
    Zenoh,
}

impl Origin {
    /// This host, by a process of this one's user.
    pub fn this_user() -> Self {
        Origin::Host { user: rustix::process::geteuid().as_raw() }
    }

    /// `true` if the kernel confirms that it came from this node or a permitted user of this host.
    pub fn is_here(&self) -> bool {
        matches!(self, Origin::Own | Origin::Host { .. })
    }
}

/// Addresses with the same first bits, as CIDR writes them: `10.0.0.0/8`, `fd00::/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Text that is no [`Network`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError(String);

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network {:?}: an address and how many of its bits count, such as 10.0.0.0/8 or fd00::/8", self.0)
    }
}

impl std::error::Error for NetworkError {}

impl Network {
    /// All addresses with the same first 16 bits: those of one site.
    pub fn around(address: IpAddr) -> Self {
        Self { address: address.to_canonical(), bits: 16 }
    }

    /// `true` if an address is in it. An IPv4 address that an IPv6 socket shows as `::ffff:…` is that IPv4 address.
    pub fn contains(self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| (a ^ b).checked_shr(width - u32::from(self.bits)).unwrap_or(0) == 0;
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.chars().take(64).collect());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.trim().parse::<u8>().map_err(|_| wrong()))?;
        let mapped = !address.is_ipv4() && address.to_canonical().is_ipv4();
        if bits > most || mapped { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl From<Network> for String {
    fn from(network: Network) -> String {
        network.to_string()
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;
    fn try_from(text: String) -> Result<Self, NetworkError> {
        text.parse()
    }
}

/// The peer at the other end, identified by the kernel: each has a share of a node's resources. A peer's statement about itself makes it
/// no other peer.
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

/// A node's knowledge of its own host, and with it the addresses of others that it accepts, so that it cannot be redirected.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Its host identity.
    pub host: String,
    /// Its own socket in the run directory; the others' are beside it.
    pub socket: Option<PathBuf>,
    own: String,
}

impl Surroundings {
    /// The surroundings of the node with this document.
    pub fn of(own: &Document) -> Self {
        Self { host: own.host.clone(), socket: own.socket.clone(), own: own.node.to_string() }
    }

    /// Removes addresses that a node must not connect to from a document that came by this way.
    ///
    /// A socket counts if it is where this host's nodes of the realm have theirs: in the run directory, by the node's
    /// own name. An address from a TCP link counts if it is the link's other end, for any claimed host: any
    /// process may know a host's identity, and listeners at its loopback addresses are not meant for others. Through
    /// Zenoh the sender's address is not known, since routers pass documents on: any unicast address counts, loopback
    /// ones within one host identity. The handshake checks the identity of the peer, and `driver::handshake_client::MOST_HANDSHAKES`
    /// bounds the number of attempts at once.
    pub(super) fn believe(&self, origin: Origin, document: &mut Document) {
        if origin == Origin::Own {
            return;
        }
        let same_host = document.host == self.host;
        let socket =
            self.socket_of(document).filter(|_| same_host && !matches!(origin, Origin::Tcp { here: false, .. }));
        document.socket = document.socket.take().filter(|told| Some(told) == socket.as_ref());
        let told = std::mem::take(&mut document.addresses);
        document.addresses = match origin {
            Origin::Own => told,
            Origin::Host { .. } => unicast(told, true).collect(),
            Origin::Tcp { from, .. } => at(from, told),
            Origin::Zenoh => unicast(told, same_host).collect(),
        };
        document.addresses.truncate(MOST_ADDRESSES_TRIED);
    }

    /// Path of that node's socket, if it is in this host's run directory.
    fn socket_of(&self, document: &Document) -> Option<PathBuf> {
        let own = self.socket.as_ref()?;
        let name = own.file_name()?.to_str()?.replace(&self.own, &document.node.to_string());
        Some(own.with_file_name(name))
    }
}

fn unicast(told: Vec<SocketAddr>, loopback: bool) -> impl Iterator<Item = SocketAddr> {
    let elsewhere = |ip: IpAddr| ip.is_unspecified() || ip.is_multicast();
    told.into_iter().filter(move |a| !elsewhere(a.ip()) && (loopback || !a.ip().is_loopback()))
}

/// The listed addresses that are at `from`. A node with several addresses may be reached by another one than it sends
/// from: if none matches, its ports at this one.
fn at(from: IpAddr, told: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let from = from.to_canonical();
    let there: Vec<SocketAddr> = told.iter().filter(|a| a.ip().to_canonical() == from).copied().collect();
    if !there.is_empty() {
        return there;
    }
    let mut ports: Vec<u16> = unicast(told, false).map(|a| a.port()).collect();
    ports.sort_unstable();
    ports.dedup();
    ports.into_iter().map(|port| SocketAddr::new(from, port)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::discovery::document;

    #[test]
    fn addresses_are_in_a_network_by_their_first_bits() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("192.168.1.0/25", "192.168.1.127", "192.168.1.128"),
            ("10.0.0.7", "10.0.0.7", "10.0.0.6"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("::1", "::1", "::2"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
            ("fe80::/10", "fe80::1", "10.0.0.1"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert!(
                parsed.contains(inside.parse().unwrap()) && !parsed.contains(outside.parse().unwrap()),
                "{network}"
            );
            assert_eq!(parsed.to_string().parse(), Ok(parsed));
        }
        let all: Network = "::/0".parse().unwrap();
        assert!(all.contains("fd00::1".parse().unwrap()));
        for wrong in ["", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "ten", "10.0.0.0/", "::ffff:10.0.0.0/8"] {
            assert!(wrong.parse::<Network>().unwrap_err().to_string().contains("such as 10.0.0.0/8"), "{wrong}");
        }
    }

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

    fn told(addresses: &[&str], socket: Option<&str>) -> Document {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        Document { addresses, socket: socket.map(PathBuf::from), ..document(2) }
    }

    fn believed(origin: Origin, mut told: Document) -> (Vec<String>, Option<PathBuf>) {
        let own = Document { socket: Some("/run/t/h.test.0000000000000001.sock".into()), ..document(1) };
        Surroundings::of(&own).believe(origin, &mut told);
        (told.addresses.iter().map(ToString::to_string).collect(), told.socket)
    }

    const TCP: Origin = Origin::Tcp { from: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), here: false, user: None };

    #[test]
    fn a_stranger_names_no_address_but_its_own() {
        let all = ["10.0.0.2:7", "10.0.0.9:22", "127.0.0.1:22", "[::1]:22", "239.1.1.1:9", "0.0.0.0:5"];
        assert_eq!(believed(TCP, told(&all, None)).0, ["10.0.0.2:7"]);
        assert_eq!(believed(TCP, told(&["10.0.0.9:22", "10.0.0.8:22"], None)).0, ["10.0.0.2:22"]);
        assert!(believed(TCP, told(&["127.0.0.1:22"], None)).0.is_empty());
        let here = Origin::Tcp { from: IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 66)), here: true, user: None };
        assert_eq!(believed(here, told(&["127.0.0.1:22", "127.0.0.66:7", "10.0.0.9:22"], None)).0, ["127.0.0.66:7"]);
        assert!(believed(here, told(&["127.0.0.1:22"], None)).0.is_empty(), "its own host's, and yet not its own");
        let elsewhere = Document { host: "other".into(), ..told(&all, None) };
        assert_eq!(believed(Origin::Zenoh, elsewhere).0, ["10.0.0.2:7", "10.0.0.9:22"]);
        let many: Vec<String> = (1..=60).map(|n| format!("10.0.0.2:{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(believed(TCP, told(&many, None)).0.len(), MOST_ADDRESSES_TRIED);
    }

    #[test]
    fn a_socket_is_believed_where_the_nodes_of_the_host_have_theirs() {
        let right = "/run/t/h.test.0000000000000002.sock";
        assert_eq!(believed(Origin::this_user(), told(&[], Some(right))).1, Some(right.into()));
        for wrong in ["/run/docker.sock", "/run/t/h.test.0000000000000003.sock", "/run/t/../docker.sock"] {
            assert_eq!(believed(Origin::this_user(), told(&[], Some(wrong))).1, None, "{wrong}");
        }
        assert_eq!(believed(TCP, told(&[], Some(right))).1, None, "who is elsewhere has none here");
    }
}
