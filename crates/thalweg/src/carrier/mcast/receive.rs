//! The subscriber's end: a member of a group, which accepts its publisher only.

use super::membership::{End, Membership, join};
use super::{cannot, interface_of, open, scoped};
use crate::carrier::tcp::interrupted;
use crate::carrier::udp::RECEIVE_BUFFER;
use crate::carrier::{ReceiveHalf, SharedSocket, TICK, shared};
use linux::poll::{Poller, Readiness};
use socket2::Socket;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

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

/// The turn at which datagrams for one member alone are looked for first.
const OWN_TURN: u32 = 16;

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

    fn answer(&mut self, bytes: &[u8]) -> io::Result<usize> {
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
