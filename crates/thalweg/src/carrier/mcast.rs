//! Carrier `mcast`: UDP to a multicast group; one send reaches all members, on this host, too.
//!
//! The interface is always explicit and packets never leave its link (TTL 1): which network a group lives on is a
//! decision, not a routing accident.

use super::tcp::interrupted;
use super::udp::{MOST, RECEIVE_BUFFER, forbid_fragments, no_room};
use super::{
    Capabilities, Carrier, Opening, Place, ReceiveHalf, STRANGER, SendHalf, Sender, SharedSocket, TICK, invalid, shared,
};
use crate::handshake::Parameters;
use linux::lock::PiMutex;
use linux::poll::{Poller, Readiness};
use rustix::net::sockopt;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
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

/// Sends to a group, and hears what its members say back.
pub struct McastSend {
    socket: Arc<Socket>,
    group: SocketAddr,
    members: PiMutex<Vec<(u64, SocketAddr)>>,
    hears: bool,
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
        Ok(Self {
            socket: Arc::new(socket),
            group: scoped(group, interface),
            members: PiMutex::default(),
            hears: false,
        })
    }
}

impl McastSend {
    /// As [`McastSend::new`], on a port of this address, to which members may say something.
    ///
    /// # Errors
    /// As [`McastSend::new`], and what bind(2) says.
    pub fn hearing(group: SocketAddr, interface: u32, mut local: SocketAddr) -> io::Result<(Self, u16)> {
        let half = Self::new(group, interface)?;
        local.set_port(0);
        half.socket.bind(&local.into())?;
        let port = half.socket.local_addr()?.as_socket().map_or(0, |bound| bound.port());
        Ok((Self { hears: true, ..half }, port))
    }
}

impl SendHalf for McastSend {
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        linux::socket::send_parts_to(self.socket.as_fd(), parts, &self.group).map_err(interrupted).map_err(no_room)
    }

    fn hears(&self) -> bool {
        self.hears
    }

    fn admit(&self, member: u64, address: SocketAddr) {
        self.members.lock().push((member, address));
    }

    fn dismiss(&self, member: u64) {
        self.members.lock().retain(|(other, _)| *other != member);
    }

    fn hear(&self, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        let (length, from) = linux::socket::receive_from(self.socket.as_fd(), buffer)?;
        let same =
            |address: &SocketAddr| from.is_some_and(|from| (from.ip(), from.port()) == (address.ip(), address.port()));
        let member = self.members.lock().iter().find(|(_, address)| same(address)).map(|(member, _)| *member);
        Ok((length, member.unwrap_or(STRANGER)))
    }

    fn repeat(&self, parts: &[IoSlice<'_>], to: Option<u64>) -> io::Result<usize> {
        let known = |to| self.members.lock().iter().find(|(member, _)| *member == to).map(|(_, address)| *address);
        match to.and_then(known) {
            Some(address) => linux::socket::send_parts_to(self.socket.as_fd(), parts, &address).map_err(no_room),
            None => self.send(parts),
        }
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

/// A member that says something back, and hears what is for it alone.
struct McastMember {
    group: McastReceive,
    back: UdpSocket,
    both: Poller, // readable when either is
    turn: u32,
}

/// How often what is for one member alone is looked for first.
const OWN_TURN: u32 = 16;

impl McastMember {
    fn new(group: McastReceive, back: UdpSocket, publisher: SocketAddr) -> io::Result<Self> {
        back.connect(publisher)?;
        let both = Poller::new()?;
        both.add(&group.socket, 0, Readiness::IN)?;
        both.add(&back, 1, Readiness::IN)?;
        Ok(Self { group, back, both, turn: 0 })
    }

    /// The group's first, but for every so many: what is repeated to this one alone must not wait for a pause.
    fn receive_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.turn = self.turn.wrapping_add(1);
        let back = |buffer: &mut [u8]| linux::socket::receive(self.back.as_fd(), buffer, false);
        if self.turn.is_multiple_of(OWN_TURN)
            && let Ok(length) = back(buffer)
        {
            return Ok(length);
        }
        match self.group.receive(buffer, false) {
            // That the publisher's socket is gone, the handshake's stream tells for certain.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => back(buffer).map_err(|_| error),
            received => received,
        }
    }
}

impl ReceiveHalf for McastMember {
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        if wait {
            linux::poll::wait_readable(&self.both, Some(TICK))?;
        }
        self.receive_now(buffer)
    }

    fn answer(&mut self, bytes: &[u8]) -> io::Result<usize> {
        linux::socket::send(self.back.as_fd(), bytes)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.both.as_fd())
    }

    fn socket(&self) -> Option<SharedSocket> {
        self.group.socket()
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
        let mut own = place.local;
        own.set_port(0);
        let back = UdpSocket::bind(own)?;
        let parameters = Parameters { buffer, udp_port: Some(back.local_addr()?.port()), ..Parameters::default() };
        Ok((Box::new(Joined { group, interface, half, back, publisher: place.peer }), parameters))
    }
    fn sender(&self, place: &Place, _subscriber: &Parameters) -> io::Result<Sender> {
        let group = group_of(place.port_number, place.local.is_ipv6());
        let (half, port) = McastSend::hearing(group, interface_of(place.local.ip())?, place.local)?;
        // A multicast path has no path MTU: what every Ethernet carries, with IP and UDP headers taken off.
        let capabilities = Capabilities { max_datagram: Some(1500 - 48), ..CAPABILITIES };
        Ok(Sender {
            half: Box::new(half),
            capabilities,
            parameters: Parameters { group: Some(group), udp_port: Some(port), ..Parameters::default() },
        })
    }
}

struct Joined {
    group: SocketAddr,
    interface: u32,
    half: McastReceive,
    back: UdpSocket,
    publisher: SocketAddr,
}

impl Opening for Joined {
    fn complete(self: Box<Self>, publisher: &Parameters) -> io::Result<Box<dyn ReceiveHalf>> {
        let group = publisher.group.ok_or_else(|| invalid("the publisher named no multicast group"))?;
        let half = if group == self.group { self.half } else { McastReceive::new(group, self.interface)? };
        match publisher.udp_port.filter(|_| publisher.first.is_some()) {
            Some(port) => {
                let mut to = self.publisher;
                to.set_port(port);
                Ok(Box::new(McastMember::new(half, self.back, to)?))
            }
            None => Ok(Box::new(half)),
        }
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
