//! Carrier `mcast`: UDP to a multicast group; one send reaches all members, on this host, too.
//!
//! The interface is always explicit and packets never leave its link (TTL 1): which network a group lives on is a
//! decision, not a routing accident.

use super::tcp::interrupted;
use super::udp::{MOST, RECEIVE_BUFFER, forbid_fragments, no_room};
use super::{
    Capabilities, Carrier, Opening, Place, ReceiveHalf, SendHalf, Sender, SharedSocket, TICK, invalid, shared,
};
use crate::handshake::Parameters;
use rustix::net::sockopt;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// What multicast can do. The limit of a link is lower: its MTU less 28 (IPv4) or 48 (IPv6) bytes.
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
pub fn interface(name: &str) -> io::Result<u32> {
    let any = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&any, name)?)
}

/// Sends to a group.
pub struct McastSend {
    socket: Arc<Socket>,
    group: SocketAddr,
}

impl McastSend {
    /// A socket that sends to `group` on the interface of this index; members on this host hear it, too.
    ///
    /// # Errors
    /// InvalidInput if `group` is no multicast address; else what setsockopt(2) says.
    pub fn new(group: SocketAddr, interface: u32) -> io::Result<Self> {
        let socket = open(group)?;
        let v6 = group.is_ipv6();
        if v6 {
            sockopt::set_ipv6_multicast_if(&socket, interface)?;
            sockopt::set_ipv6_multicast_hops(&socket, 1)?;
            sockopt::set_ipv6_multicast_loop(&socket, true)?;
        } else {
            let none = Ipv4Addr::UNSPECIFIED;
            sockopt::set_ip_multicast_if_with_ifindex(&socket, &none, &none, interface)?;
            sockopt::set_ip_multicast_ttl(&socket, 1)?;
            sockopt::set_ip_multicast_loop(&socket, true)?;
        }
        forbid_fragments(socket.as_fd(), v6)?;
        Ok(Self { socket: Arc::new(socket), group: scoped(group, interface) })
    }
}

impl SendHalf for McastSend {
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        linux::socket::send_parts_to(self.socket.as_fd(), parts, &self.group).map_err(interrupted).map_err(no_room)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn socket(&self) -> Option<SharedSocket> {
        Some(shared(&self.socket))
    }

    /// Members can't notice: the frame [`crate::wire::Kind::End`] says it in band.
    fn close(&self) {}
}

/// A member of a group.
pub struct McastReceive {
    socket: Arc<Socket>,
}

impl McastReceive {
    /// Joins `group` on the interface of this index. Several members on one host share address and port, and each
    /// hears everything.
    ///
    /// # Errors
    /// InvalidInput if `group` is no multicast address; else what bind(2) and setsockopt(2) say.
    pub fn new(group: SocketAddr, interface: u32) -> io::Result<Self> {
        let socket = open(group)?;
        socket.set_reuse_address(true)?;
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        socket.bind(&scoped(group, interface).into())?; // to the group itself: other traffic to the port isn't heard
        match group.ip() {
            IpAddr::V4(ip) => {
                socket.set_multicast_all_v4(false)?; // nor what other sockets of this host joined elsewhere
                socket.join_multicast_v4_n(&ip, &InterfaceIndexOrAddress::Index(interface))?;
            }
            IpAddr::V6(ip) => {
                socket.set_multicast_all_v6(false)?;
                socket.join_multicast_v6(&ip, interface)?;
            }
        }
        socket.set_read_timeout(Some(TICK))?;
        Ok(Self { socket: Arc::new(socket) })
    }
}

impl ReceiveHalf for McastReceive {
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        linux::socket::receive(self.socket.as_fd(), buffer, wait).map_err(interrupted)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn socket(&self) -> Option<SharedSocket> {
        Some(shared(&self.socket))
    }
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
        let (group, interface) = (group_of(place.port_number, place.local.is_ipv6()), interface_of(place.local.ip())?);
        let half = McastReceive::new(group, interface)?;
        let buffer = u32::try_from(half.socket.recv_buffer_size()?).ok();
        Ok((Box::new(Joined { group, interface, half }), Parameters { buffer, ..Parameters::default() }))
    }
    fn sender(&self, place: &Place, _subscriber: &Parameters) -> io::Result<Sender> {
        let group = group_of(place.port_number, place.local.is_ipv6());
        let half = McastSend::new(group, interface_of(place.local.ip())?)?;
        // A multicast path has no path MTU: what every Ethernet carries, with IP and UDP headers taken off.
        let capabilities = Capabilities { max_datagram: Some(1500 - 48), ..CAPABILITIES };
        Ok(Sender {
            half: Box::new(half),
            capabilities,
            parameters: Parameters { group: Some(group), ..Parameters::default() },
        })
    }
}

struct Joined {
    group: SocketAddr,
    interface: u32,
    half: McastReceive,
}

impl Opening for Joined {
    fn complete(self: Box<Self>, publisher: &Parameters) -> io::Result<Box<dyn ReceiveHalf>> {
        let group = publisher.group.ok_or_else(|| invalid("the publisher named no multicast group"))?;
        if group == self.group {
            return Ok(Box::new(self.half));
        }
        Ok(Box::new(McastReceive::new(group, self.interface)?))
    }
}

fn interface_of(address: IpAddr) -> io::Result<u32> {
    let found = linux::net::interfaces()?.into_iter().find(|i| i.address == address);
    let found = found.ok_or_else(|| invalid(format!("no interface has the address {address}")))?;
    if !found.multicast && !found.loopback {
        return Err(invalid(format!("interface {} has no multicast: use another carrier", found.name)));
    }
    Ok(found.index)
}

/// The group of a publishing port, of the ranges for private use: 239.255.0.0/16 (RFC 2365 §6.1), ff12::/16 (RFC 4291 §2.7,
/// transient, link-local). Two ports that share one by chance only cost their receivers a look: the flow id tells them apart.
fn group_of(number: u64, v6: bool) -> SocketAddr {
    let [a, b, c, d, ..] = number.to_le_bytes();
    let port = 30_000 + u16::from_le_bytes([c, d]) % 10_000;
    let ip = if v6 {
        IpAddr::V6(Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0x7468, u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])))
    } else {
        IpAddr::V4(Ipv4Addr::new(239, 255, a, b))
    };
    SocketAddr::new(ip, port)
}
