//! Carrier `mcast`: UDP to a multicast group; one send reaches all members, on this host, too.
//!
//! The interface is always explicit and packets never leave its link (TTL 1): the network of a group is a decision,
//! not an accident of routing. A group may exist and still reach no member (a kernel without a route for it, a switch
//! without a querier, a firewall), so a channel opens only after a datagram came through.
//! Errors name the interface and the remedy.

mod halves;

pub use halves::{McastReceive, McastSend, Membership};

use super::udp::MOST;
use super::{Capabilities, Carrier, Opening, Parameters, Place, ReceiveHalf, Sender, invalid};
use crate::wire::{HEADER, Header};
use halves::McastMember;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;

/// Capabilities of multicast. The limit of a link is lower: its MTU less 28 (IPv4) or 48 (IPv6) bytes.
pub const CAPABILITIES: Capabilities = Capabilities {
    reliable: false,
    ordered: false,
    stream: false,
    multicast: true,
    loan: false,
    marks: true,
    max_datagram: Some(MOST),
};

/// The index of the interface `name` (`eth0`).
///
/// # Errors
/// NotFound (ENODEV) when there is none.
#[cfg(any(test, feature = "testing"))]
pub fn interface(name: &str) -> io::Result<u32> {
    let any = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&any, name)?)
}

fn open(group: SocketAddr) -> io::Result<Socket> {
    if !group.ip().is_multicast() {
        let why = format!("{} is no multicast address (239.0.0.0/8 or ff00::/8)", group.ip());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))
}

/// A link-local IPv6 group means a different one on each interface.
fn scoped(group: SocketAddr, interface: u32) -> SocketAddr {
    match group {
        SocketAddr::V6(mut v6) => {
            v6.set_scope_id(interface);
            v6.into()
        }
        v4 => v4,
    }
}

/// The carrier: one group per publishing port, on the interface over which the handshake came.
pub struct Mcast;

impl Carrier for Mcast {
    fn name(&self) -> &str {
        "mcast"
    }
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }
    fn receiver(&self, place: &Place) -> io::Result<(Box<dyn Opening>, Parameters)> {
        // Joined before the publisher is asked: from its answer on no sample is missed.
        let group = group_of(place.port_number, place.local.is_ipv6());
        let half = McastReceive::at(group, place.local.ip(), place.peer.ip())?;
        let mut own = place.local;
        own.set_port(0);
        let back = UdpSocket::bind(own)?;
        let (buffer, udp_port) = (half.buffer(), Some(back.local_addr()?.port()));
        let parameters = Parameters { buffer, udp_port, probe: true, ..Parameters::default() };
        Ok((Box::new(Joined { group, half, back, place: *place }), parameters))
    }
    fn sender(&self, place: &Place, _subscriber: &Parameters) -> io::Result<Sender> {
        let group = group_of(place.port_number, place.local.is_ipv6());
        let (half, port) = McastSend::at(group, place.local)?;
        // A multicast path has no path MTU: the size that every Ethernet carries, less IP and UDP headers.
        let capabilities = Capabilities { max_datagram: Some(1500 - 48), ..CAPABILITIES };
        Ok(Sender {
            half: Box::new(half),
            capabilities,
            parameters: Parameters { group: Some(group), udp_port: Some(port), ..Parameters::default() },
        })
    }
}

/// A subscriber's end: a member of the group that was to be expected.
struct Joined {
    group: SocketAddr,
    half: McastReceive,
    back: UdpSocket,
    place: Place,
}

impl Joined {
    /// A member of the group that the publisher names, which accepts this publisher only.
    fn follow(&mut self, publisher: &Parameters) -> io::Result<()> {
        let group = publisher.group.ok_or_else(|| invalid("the publisher named no multicast group"))?;
        if group != self.group {
            self.half = McastReceive::at(group, self.place.local.ip(), self.place.peer.ip())?;
            self.group = group;
        }
        self.half.only_from(SocketAddr::new(self.place.peer.ip(), publisher.udp_port.unwrap_or(0)));
        Ok(())
    }
}

impl Opening for Joined {
    fn probed(&mut self, flow: u32, publisher: &Parameters) -> io::Result<bool> {
        self.follow(publisher)?;
        // The header identifies a datagram's sender; the rest of it is cut off.
        let mut head = [0; HEADER];
        for _ in 0..MOST_LOOKED_AT {
            match self.half.receive(&mut head, false) {
                Ok(length) if length >= HEADER && Header::parse(&head).is_ok_and(|header| header.flow == flow) => {
                    return Ok(true);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.half.descriptor()
    }

    fn complete(mut self: Box<Self>, publisher: &Parameters) -> io::Result<Box<dyn ReceiveHalf>> {
        self.follow(publisher)?;
        match publisher.udp_port.filter(|_| publisher.first.is_some()) {
            Some(port) => {
                let mut to = self.place.peer;
                to.set_port(port);
                Ok(Box::new(McastMember::new(self.half, self.back, to)?))
            }
            None => Ok(Box::new(self.half)),
        }
    }
}

/// The index of the interface that has this address.
fn interface_of(address: IpAddr) -> io::Result<u32> {
    let found = linux::net::interfaces()?.into_iter().find(|i| i.address == address);
    let found = found.ok_or_else(|| invalid(format!("no interface has the address {address}")))?;
    if !found.multicast && !found.loopback {
        let why = format!("interface {0} has no multicast (ip link set {0} multicast on)", found.name);
        return Err(invalid(why));
    }
    Ok(found.index)
}

/// The group of a publishing port, of the ranges for private use: 239.255.0.0/16 (RFC 2365 §6.1), ff14::/16 (RFC 4291
/// §2.7, transient, admin-local). It is not link-local, although its packets stay on the link: a socket bound to a
/// link-local address is bound to an interface for good, and an interface that is made again is another one. Two ports
/// that share a group by chance cost their receivers only a check: the publisher's address distinguishes them.
fn group_of(number: u64, v6: bool) -> SocketAddr {
    let [a, b, c, d, ..] = number.to_le_bytes();
    let port = 30_000 + u16::from_le_bytes([c, d]) % 10_000;
    let ip = if v6 {
        IpAddr::V6(Ipv6Addr::new(0xff14, 0, 0, 0, 0, 0x7468, u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])))
    } else {
        IpAddr::V4(Ipv4Addr::new(239, 255, a, b))
    };
    SocketAddr::new(ip, port)
}

/// Explains why a group cannot be joined or sent to on the interface that has the address `local`. `doing` is "join" or "send
/// to".
pub(crate) fn cannot(doing: &str, group: SocketAddr, local: IpAddr, error: &io::Error) -> String {
    let interface = name_of(local);
    let remedy = remedy(&interface, group.is_ipv6(), error);
    format!("{interface} cannot {doing} {}: {error}{remedy}", group.ip())
}

fn remedy(interface: &str, v6: bool, error: &io::Error) -> String {
    let Some(errno) = error.raw_os_error().map(Errno::from_raw_os_error) else { return String::new() };
    match errno {
        // Linux makes this route for every interface but loopback.
        Errno::NETUNREACH if v6 && interface == "lo" => {
            " (ip -6 route add local ff00::/8 dev lo table local, or use another carrier)".to_owned()
        }
        Errno::NETUNREACH if v6 => {
            format!(" (ip -6 route add multicast ff00::/8 dev {interface} table local)")
        }
        Errno::NETUNREACH => format!(" (ip route add 224.0.0.0/4 dev {interface})"),
        Errno::PERM | Errno::ACCESS => " (this host's firewall refuses it: nft list ruleset)".to_owned(),
        Errno::NOBUFS => " (a socket joins net.ipv4.igmp_max_memberships groups: sysctl shows it)".to_owned(),
        Errno::ADDRNOTAVAIL | Errno::NODEV => format!(" ({interface} was taken away: ip address show {interface})"),
        _ => String::new(),
    }
}

/// The reason why no packet of a group reached the member on the interface with the address `local`.
pub(crate) fn nothing_came(group: Option<SocketAddr>, local: IpAddr) -> String {
    let (interface, group) = (name_of(local), group.map_or("the group".to_owned(), |group| group.ip().to_string()));
    format!(
        "nothing that the publisher sent to {group} came in by {interface}: a firewall or a switch drops multicast \
         (nft list ruleset; a switch that snoops needs a querier), or use another carrier"
    )
}

/// The interface that has this address, or the address.
fn name_of(local: IpAddr) -> String {
    let all = linux::net::interfaces().unwrap_or_default();
    all.into_iter().find(|found| found.address == local).map_or_else(|| local.to_string(), |found| found.name)
}

/// Datagrams that are looked at in one go for one of the flow.
const MOST_LOOKED_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_interface_and_the_remedy() {
        let v6 = SocketAddr::new(Ipv6Addr::new(0xff14, 0, 0, 0, 0, 0, 0, 1).into(), 1);
        let of = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        let said = cannot("send to", v6, Ipv4Addr::LOCALHOST.into(), &of(Errno::NETUNREACH));
        assert!(said.starts_with("lo cannot send to ff14::1: "), "{said}");
        assert!(said.contains("(ip -6 route add local ff00::/8 dev lo table local"), "{said}");
        assert!(remedy("eth0", true, &of(Errno::NETUNREACH)).contains("add multicast ff00::/8 dev eth0"));
        assert!(remedy("eth0", false, &of(Errno::PERM)).contains("firewall"));
        assert_eq!(remedy("eth0", false, &io::Error::other("odd")), "");
        let said = nothing_came(Some(v6), Ipv4Addr::LOCALHOST.into());
        assert!(said.contains("ff14::1 came in by lo: "), "{said}");
    }
}
