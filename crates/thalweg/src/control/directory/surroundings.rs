//! A node's host, and the addresses of others that it therefore accepts, so that it cannot be redirected.

use crate::control::limits::MOST_ADDRESSES_TRIED;
use crate::control::{Document, Origin};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A node's knowledge of its own host.
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
    /// ones within one host identity. The handshake checks the identity of the peer, and `driver::dial::MOST_DIALS`
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
