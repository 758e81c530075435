//! Carrier `udp`: connected sockets at both ends, one datagram per frame.
//!
//! Connected, so that the kernel demultiplexes, each flow has its own mark, and a peer that is gone is an error
//! (ECONNREFUSED). Never cut by IP: a datagram above the path's MTU is refused (EMSGSIZE), see [`UdpSend::most`].

use super::tcp::{interrupted, send_now};
use super::{
    Capabilities, Carrier, Interrupt, Opening, Place, ReceiveHalf, SendHalf, Sender, SharedSocket, TICK, invalid,
    shared,
};
use crate::handshake::Parameters;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The most payload that a UDP datagram over IPv4 can have: 65535 bytes less the headers of IP and UDP.
pub const MOST: usize = 65_507;
/// The same on the loopback interface over IPv6, whose packets are never longer than its MTU of 65536.
pub const MOST_V6: usize = 65_488;

/// What UDP can do. The limit of a path is lower: [`UdpSend::most`].
pub const CAPABILITIES: Capabilities = Capabilities {
    reliable: false,
    ordered: false,
    stream: false,
    multicast: false,
    loan: false,
    marks: true,
    max_datagram: Some(MOST),
};

/// The sending half of a connected socket.
pub struct UdpSend {
    socket: Arc<UdpSocket>,
    overhead: usize,
}

impl UdpSend {
    /// Takes a connected socket and forbids IP fragmentation on it.
    ///
    /// # Errors
    /// NotConnected without a peer; else what setsockopt(2) says.
    pub fn new(socket: impl Into<Arc<UdpSocket>>) -> io::Result<Self> {
        let socket = socket.into();
        socket.set_nonblocking(false)?;
        let v6 = socket.peer_addr()?.is_ipv6();
        forbid_fragments(socket.as_fd(), v6)?;
        Ok(Self { socket, overhead: if v6 { 48 } else { 28 } })
    }

    /// The largest datagram that the path takes, as the kernel knows it now (it shrinks when a router says so).
    ///
    /// # Errors
    /// What getsockopt(2) says.
    pub fn most(&self) -> io::Result<usize> {
        let mtu = if self.overhead == 48 { sockopt::ipv6_mtu(&self.socket)? } else { sockopt::ip_mtu(&self.socket)? };
        Ok((mtu as usize).saturating_sub(self.overhead).min(MOST))
    }
}

impl SendHalf for UdpSend {
    #[inline]
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        send_now(self.socket.as_fd(), parts).map_err(no_room)
    }

    fn max_datagram(&self) -> Option<usize> {
        self.most().ok()
    }

    fn hears(&self) -> bool {
        true
    }

    fn hear(&self, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        linux::socket::receive(self.socket.as_fd(), buffer, false).map(|length| (length, 0))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn socket(&self) -> Option<SharedSocket> {
        Some(shared(&self.socket))
    }

    /// UDP has no end: the frame [`crate::wire::Kind::End`] says it in band.
    fn close(&self) {}
}

/// The receiving half of a connected socket.
pub struct UdpReceive {
    socket: Arc<UdpSocket>,
}

impl UdpReceive {
    /// Takes a socket (connected, so that only its peer is heard); a waiting receive returns after [`TICK`].
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn new(socket: impl Into<Arc<UdpSocket>>) -> io::Result<Self> {
        let socket = socket.into();
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(TICK))?;
        Ok(Self { socket })
    }
}

impl ReceiveHalf for UdpReceive {
    #[inline]
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        linux::socket::receive(self.socket.as_fd(), buffer, wait).map_err(interrupted)
    }

    fn answer(&mut self, bytes: &[u8]) -> io::Result<usize> {
        linux::socket::send(self.socket.as_fd(), bytes)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn socket(&self) -> Option<SharedSocket> {
        Some(shared(&self.socket))
    }

    fn wait_without_end(&mut self) -> Option<Interrupt> {
        self.socket.set_read_timeout(None).ok()?;
        let socket = self.socket.clone();
        let end = move || {
            let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Read); // fails only when it was closed already
        };
        Some(Interrupt { loses_nothing: true, end: Box::new(end) })
    }
}

/// Larger datagrams than the MTU are an error (EMSGSIZE) and not several packets of which all must arrive.
pub(super) fn forbid_fragments(fd: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    if v6 {
        sockopt::set_ipv6_mtu_discover(fd, Ipv6PathMtuDiscovery::DO)?;
    } else {
        sockopt::set_ip_mtu_discover(fd, Ipv4PathMtuDiscovery::DO)?;
    }
    Ok(())
}

/// A full device queue is no room, not an error of the flow.
pub(super) fn no_room(e: io::Error) -> io::Error {
    match e.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOBUFS) => io::ErrorKind::WouldBlock.into(),
        _ => e,
    }
}

/// The carrier: a socket at each end, bound to the addresses of the handshake's stream and connected to each other.
pub struct Udp;

/// What is asked of the kernel for a receiving socket: a burst of fragments must fit. It grants at most `net.core.rmem_max`.
pub(super) const RECEIVE_BUFFER: usize = 2 << 20;

impl Carrier for Udp {
    fn name(&self) -> &str {
        "udp"
    }
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }
    fn receiver(&self, place: &Place) -> io::Result<(Box<dyn Opening>, Parameters)> {
        let socket = UdpSocket::bind(SocketAddr::new(place.local.ip(), 0))?;
        let options = socket2::SockRef::from(&socket);
        let _ = options.set_recv_buffer_size(RECEIVE_BUFFER);
        let buffer = u32::try_from(options.recv_buffer_size()?).ok();
        let parameters = Parameters { udp_port: Some(socket.local_addr()?.port()), buffer, ..Parameters::default() };
        Ok((Box::new(Bound { socket, peer: place.peer }), parameters))
    }
    fn sender(&self, place: &Place, subscriber: &Parameters) -> io::Result<Sender> {
        let port = subscriber.udp_port.ok_or_else(|| invalid("the subscriber named no UDP port"))?;
        let socket = UdpSocket::bind(SocketAddr::new(place.local.ip(), 0))?;
        socket.connect(SocketAddr::new(place.peer.ip(), port))?;
        let parameters = Parameters { udp_port: Some(socket.local_addr()?.port()), ..Parameters::default() };
        let half = UdpSend::new(socket)?;
        let capabilities = Capabilities { max_datagram: Some(half.most()?), ..CAPABILITIES };
        Ok(Sender { half: Box::new(half), capabilities, parameters })
    }
}

struct Bound {
    socket: UdpSocket,
    peer: SocketAddr,
}

impl Opening for Bound {
    fn complete(self: Box<Self>, publisher: &Parameters) -> io::Result<Box<dyn ReceiveHalf>> {
        let port = publisher.udp_port.ok_or_else(|| invalid("the publisher named no UDP port"))?;
        self.socket.connect(SocketAddr::new(self.peer.ip(), port))?;
        Ok(Box::new(UdpReceive::new(self.socket)?))
    }
}
