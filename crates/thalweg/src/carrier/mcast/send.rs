//! The publisher's end: sends to a group, and receives feedback of its members.

use super::membership::{End, Membership};
use super::{cannot, interface_of, open, scoped};
use crate::carrier::tcp::interrupted;
use crate::carrier::udp::{forbid_fragments, no_room};
use crate::carrier::{STRANGER, SendHalf, SharedSocket, shared};
use linux::lock::PiMutex;
use rustix::net::sockopt;
use socket2::Socket;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Sends to a group, and receives feedback of its members.
pub struct McastSend {
    socket: Arc<Socket>,
    group: SocketAddr,
    interface: u32,
    /// Address of the interface, if it was found by it.
    address: Option<IpAddr>,
    members: PiMutex<Vec<(u64, SocketAddr)>>,
    hears: bool,
}

impl McastSend {
    /// A socket that sends to `group` on the interface of this index; members on this host hear it, too.
    ///
    /// # Errors
    /// InvalidInput if `group` is no multicast address; else the error of setsockopt(2).
    pub fn new(group: SocketAddr, interface: u32) -> io::Result<Self> {
        let socket = open(group)?;
        let v6 = group.is_ipv6();
        leave_by(&socket, v6, interface)?;
        if v6 {
            sockopt::set_ipv6_multicast_hops(&socket, 1)?;
            sockopt::set_ipv6_multicast_loop(&socket, true)?;
        } else {
            sockopt::set_ip_multicast_ttl(&socket, 1)?;
            sockopt::set_ip_multicast_loop(&socket, true)?;
        }
        forbid_fragments(socket.as_fd(), v6)?;
        Ok(Self {
            socket: Arc::new(socket),
            group: scoped(group, interface),
            interface,
            address: None,
            members: PiMutex::default(),
            hears: false,
        })
    }

    /// Opens as [`McastSend::new`] does, on a port of this address, to which members send feedback.
    ///
    /// # Errors
    /// As [`McastSend::new`], and the error of bind(2).
    pub fn hearing(group: SocketAddr, interface: u32, mut local: SocketAddr) -> io::Result<(Self, u16)> {
        let half = Self::new(group, interface)?;
        local.set_port(0);
        half.socket.bind(&local.into())?;
        let port = half.socket.local_addr()?.as_socket().map_or(0, |bound| bound.port());
        Ok((Self { hears: true, ..half }, port))
    }

    /// Opens on the interface with this address, also when it is made again.
    pub(super) fn at(group: SocketAddr, local: SocketAddr) -> io::Result<(Self, u16)> {
        let interface = interface_of(local.ip())?;
        let named = |error| io::Error::other(cannot("send to", group, local.ip(), &error));
        let (half, port) = Self::hearing(group, interface, local).map_err(named)?;
        Ok((Self { address: Some(local.ip()), ..half }, port))
    }
}

/// Packets to groups leave by the interface of this index from now on.
pub(super) fn leave_by(socket: &Socket, v6: bool, interface: u32) -> io::Result<()> {
    if v6 {
        return Ok(sockopt::set_ipv6_multicast_if(socket, interface)?);
    }
    let none = Ipv4Addr::UNSPECIFIED;
    Ok(sockopt::set_ip_multicast_if_with_ifindex(socket, &none, &none, interface)?)
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
        let (length, from) = linux::socket::receive_from(self.socket.as_fd(), buffer, false)?;
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

    fn membership(&self) -> Option<Membership> {
        Some(Membership::new(&self.socket, self.group, self.address?, self.interface, End::Sends))
    }

    /// Members cannot notice: the frame `Kind::End` reports it in band.
    fn close(&self) {}
}
