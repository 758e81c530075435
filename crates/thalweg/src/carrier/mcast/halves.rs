//! The halves of `mcast`: the publisher sends to a group and receives feedback of its members; a member accepts its publisher only.
//!
//! The kernel knows memberships, and the interface by which packets leave, as numbers. An interface that was deleted
//! and made again has another number: without renewal a member never receives packets again, and a publisher reaches
//! no member. A [`Membership`] renews them.

use super::{cannot, interface_of, open, scoped};
use crate::carrier::tcp::interrupted;
use crate::carrier::udp::{RECEIVE_BUFFER, forbid_fragments, no_room};
use crate::carrier::{ReceiveHalf, SendHalf, SharedSocket, TICK, UNKNOWN_SENDER, shared};
use linux::lock::PiMutex;
use linux::net::InterfaceAddress;
use linux::poll::{Poller, Readiness};
use rustix::net::sockopt;
use socket2::{InterfaceIndexOrAddress, Socket};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

/// Sends to a group, and receives feedback of its members.
pub struct McastSend {
    socket: Arc<Socket>,
    group: SocketAddr,
    interface: u32,
    /// Address of the interface, if it was found by it.
    address: Option<IpAddr>,
    members: PiMutex<Vec<(u64, SocketAddr)>>,
    has_feedback: bool,
}

impl McastSend {
    /// A socket that sends to `group` on the interface of this index; members on this host receive it, too.
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
            has_feedback: false,
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
        Ok((Self { has_feedback: true, ..half }, port))
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
fn leave_by(socket: &Socket, v6: bool, interface: u32) -> io::Result<()> {
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

    fn has_feedback(&self) -> bool {
        self.has_feedback
    }

    fn admit(&self, member: u64, address: SocketAddr) {
        self.members.lock().push((member, address));
    }

    fn dismiss(&self, member: u64) {
        self.members.lock().retain(|(other, _)| *other != member);
    }

    fn receive_feedback(&self, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        let (length, from) = linux::socket::receive_from(self.socket.as_fd(), buffer, false)?;
        let same =
            |address: &SocketAddr| from.is_some_and(|from| (from.ip(), from.port()) == (address.ip(), address.port()));
        let member = self.members.lock().iter().find(|(_, address)| same(address)).map(|(member, _)| *member);
        Ok((length, member.unwrap_or(UNKNOWN_SENDER)))
    }

    fn retransmit(&self, parts: &[IoSlice<'_>], to: Option<u64>) -> io::Result<usize> {
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

/// A member of a group.
pub struct McastReceive {
    socket: Arc<Socket>,
    group: SocketAddr,
    interface: u32,
    /// Address of the interface, if it was found by it.
    address: Option<IpAddr>,
    /// The only accepted sender; port 0 is any.
    publisher: Option<SocketAddr>,
}

impl McastReceive {
    /// Joins `group` on the interface of this index. Several members on one host share address and port, and each
    /// receives everything.
    ///
    /// # Errors
    /// InvalidInput if `group` is no multicast address; else the error of bind(2) or setsockopt(2).
    pub fn new(group: SocketAddr, interface: u32) -> io::Result<Self> {
        let socket = open(group)?;
        socket.set_reuse_address(true)?;
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        socket.bind(&scoped(group, interface).into())?; // to the group itself: other traffic to the port isn't heard
        match group.is_ipv4() {
            true => socket.set_multicast_all_v4(false)?, // no packets of groups that other sockets of this host joined
            false => socket.set_multicast_all_v6(false)?,
        }
        join(&socket, group, interface)?;
        socket.set_read_timeout(Some(TICK))?;
        Ok(Self { socket: Arc::new(socket), group, interface, address: None, publisher: None })
    }

    /// Joins on the interface with the address `local`, also when it is made again; only packets from the address
    /// `publisher` are accepted.
    pub(super) fn at(group: SocketAddr, local: IpAddr, publisher: IpAddr) -> io::Result<Self> {
        let interface = interface_of(local)?;
        let named = |error| io::Error::other(cannot("join", group, local, &error));
        let mut half = Self::new(group, interface).map_err(named)?;
        half.address = Some(local);
        half.only_from(SocketAddr::new(publisher, 0));
        Ok(half)
    }

    /// Drops packets of other senders to the group from now on, in the kernel if possible, without waking the reading
    /// thread. An earlier datagram is received as an empty one. With port 0 any port of the address is accepted.
    pub fn only_from(&mut self, publisher: SocketAddr) {
        let _ = linux::filter::only_from(&*self.socket, publisher); // else each is looked at below
        self.publisher = Some(publisher);
    }

    /// Bytes that the socket's buffer holds.
    pub(super) fn buffer(&self) -> Option<u32> {
        u32::try_from(self.socket.recv_buffer_size().ok()?).ok()
    }
}

impl ReceiveHalf for McastReceive {
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        let Some(publisher) = self.publisher else {
            return linux::socket::receive(self.socket.as_fd(), buffer, wait).map_err(interrupted);
        };
        let (length, from) = linux::socket::receive_from(self.socket.as_fd(), buffer, wait).map_err(interrupted)?;
        let its = from.is_some_and(|from| {
            from.ip() == publisher.ip() && (publisher.port() == 0 || from.port() == publisher.port())
        });
        Ok(if its { length } else { 0 })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn socket(&self) -> Option<SharedSocket> {
        Some(shared(&self.socket))
    }

    fn membership(&self) -> Option<Membership> {
        Some(Membership::new(&self.socket, self.group, self.address?, self.interface, End::Receives))
    }
}

/// A member that sends feedback, and receives retransmissions of its own.
pub(super) struct McastMember {
    group: McastReceive,
    back: UdpSocket,
    both: Poller, // readable when either is
    turn: u32,
}

impl McastMember {
    pub(super) fn new(group: McastReceive, back: UdpSocket, publisher: SocketAddr) -> io::Result<Self> {
        back.connect(publisher)?;
        let both = Poller::new()?;
        both.add(&group.socket, 0, Readiness::IN)?;
        both.add(&back, 1, Readiness::IN)?;
        Ok(Self { group, back, both, turn: 0 })
    }

    /// Receives from the group first, but not always: retransmissions to this member alone must not wait for a pause.
    fn receive_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.turn = self.turn.wrapping_add(1);
        let back = |buffer: &mut [u8]| linux::socket::receive(self.back.as_fd(), buffer, false);
        if self.turn.is_multiple_of(OWN_TURN)
            && let Ok(length) = back(buffer)
        {
            return Ok(length);
        }
        match self.group.receive(buffer, false) {
            // The handshake's stream reports reliably when the publisher's socket is gone.
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

    fn send_feedback(&mut self, bytes: &[u8]) -> io::Result<usize> {
        linux::socket::send(self.back.as_fd(), bytes)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.both.as_fd())
    }

    fn socket(&self) -> Option<SharedSocket> {
        self.group.socket()
    }

    fn membership(&self) -> Option<Membership> {
        self.group.membership()
    }
}

/// The end of a flow to which a socket belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Sends,
    Receives,
}

/// A socket's tie to the interface that has an address. Renewed by any thread, while others use the socket.
#[derive(Debug)]
pub struct Membership {
    socket: Weak<Socket>,
    group: SocketAddr,
    address: IpAddr,
    /// The interface's index; `None`: it, or its address, is gone.
    interface: Option<u32>,
    last: u32,
    end: End,
}

impl Membership {
    fn new(socket: &Arc<Socket>, group: SocketAddr, address: IpAddr, interface: u32, end: End) -> Self {
        Self { socket: Arc::downgrade(socket), group, address, interface: Some(interface), last: interface, end }
    }

    /// `true` if its socket is no longer in use.
    pub(crate) fn is_over(&self) -> bool {
        self.socket.strong_count() == 0
    }

    /// Compares the present interfaces, and those that were `deleted` since, and renews memberships. Returns a note
    /// for a person.
    pub(crate) fn look(&mut self, all: &[InterfaceAddress], deleted: &[u32]) -> Option<String> {
        let socket = self.socket.upgrade()?;
        let before = self.interface.filter(|index| !deleted.contains(index));
        let now = all.iter().find(|interface| interface.address == self.address);
        let (group, address) = (self.group.ip(), self.address);
        let Some(interface) = now else {
            let went = self.interface.take().is_some();
            return went.then(|| format!("no interface has {address} any more: multicast to {group} rests"));
        };
        if before == Some(interface.index) {
            return None;
        }
        // A membership that fails now is tried again with the next change.
        self.interface = None;
        let name = &interface.name;
        if let Err(error) = self.renew(&socket, interface.index) {
            return Some(format!("{address} is back on {name}, but multicast to {group} does not go on: {error}"));
        }
        (self.interface, self.last) = (Some(interface.index), interface.index);
        Some(match self.end {
            End::Sends => format!("{address} is back on {name}: multicast to {group} leaves there again"),
            End::Receives => format!("{address} is back on {name}: multicast group {group} is joined again"),
        })
    }

    fn renew(&self, socket: &Socket, interface: u32) -> io::Result<()> {
        match self.end {
            End::Sends => leave_by(socket, self.group.is_ipv6(), interface),
            End::Receives => {
                // The old one counts as long as the socket has it, also if the new one has the same number.
                let _ = leave(socket, self.group, self.last);
                join(socket, self.group, interface)
            }
        }
    }
}

pub(super) fn join(socket: &Socket, group: SocketAddr, interface: u32) -> io::Result<()> {
    match group.ip() {
        IpAddr::V4(ip) => socket.join_multicast_v4_n(&ip, &InterfaceIndexOrAddress::Index(interface)),
        IpAddr::V6(ip) => socket.join_multicast_v6(&ip, interface),
    }
}

fn leave(socket: &Socket, group: SocketAddr, interface: u32) -> io::Result<()> {
    match group.ip() {
        IpAddr::V4(ip) => socket.leave_multicast_v4_n(&ip, &InterfaceIndexOrAddress::Index(interface)),
        IpAddr::V6(ip) => socket.leave_multicast_v6(&ip, interface),
    }
}

/// The turn at which datagrams for one member alone are looked for first.
const OWN_TURN: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::mcast::group_of;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn memberships_follow_their_interface() {
        let group = group_of(u64::from(std::process::id()), false);
        let all = linux::net::interfaces().unwrap();
        let index = all.iter().find(|i| i.address == LOCAL).unwrap().index;
        let mut member = McastReceive::at(group, LOCAL, LOCAL).unwrap();
        let (sender, _) = McastSend::at(group, SocketAddr::new(LOCAL, 0)).unwrap();
        let mut ties = [member.membership().unwrap(), sender.membership().unwrap()];
        for tie in &mut ties {
            assert_eq!(tie.look(&all, &[]), None);
            assert!(tie.look(&[], &[]).unwrap().contains("rests"));
            assert_eq!(tie.look(&[], &[]), None, "told twice");
            assert!(tie.look(&all, &[]).unwrap().contains("back on lo"));
            assert!(tie.look(&all, &[index]).unwrap().contains("back on lo"), "another one with the same number");
            assert_eq!(tie.look(&all, &[]), None);
        }
        sender.send(&[io::IoSlice::new(b"on")]).unwrap();
        assert_eq!(member.receive(&mut [0; 8], true).unwrap(), 2);
        drop((member, sender));
        assert!(ties.iter().all(Membership::is_over));
    }
}
