//! Carrier `udp`: connected sockets at both ends, one datagram per frame.
//!
//! Connected, so that the kernel demultiplexes, each flow has its own mark, and a peer that is gone is an error
//! (ECONNREFUSED). Never cut by IP: a datagram above the path's MTU is refused (EMSGSIZE), see [`UdpSend::most`].

use super::tcp::{interrupted, send_now};
use super::{
    Capabilities, Carrier, Interrupt, MOST_BYTES_TOGETHER, MOST_TOGETHER, Opening, Place, ReceiveHalf, SendHalf,
    Sender, SharedSocket, TICK, invalid, shared,
};
use crate::carrier::Parameters;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The most payload that a UDP datagram over IPv4 can have: 65535 bytes less the headers of IP and UDP.
pub const MOST: usize = 65_507;
/// The same on the loopback interface over IPv6, whose packets are never longer than its MTU of 65536.
#[cfg(any(test, feature = "testing"))]
pub const MOST_V6: usize = 65_488;

/// Capabilities of UDP. The limit of a path is lower: [`UdpSend::most`].
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
    together: Together,
}

/// Limits on the datagrams that leave in one call.
struct Together {
    datagrams: usize,
    /// Bytes of one packet before it is cut, headers included.
    bytes: usize,
    /// The kernel or the device refused to segment once.
    refused: AtomicBool,
}

impl Together {
    /// The limits of the device by which packets to this peer leave. An administrator lowers them to shorten the wait of other
    /// packets.
    fn of(socket: &UdpSocket) -> io::Result<Self> {
        let (local, peer) = (socket.local_addr()?.ip(), socket.peer_addr()?.ip());
        let (bytes, datagrams) = linux::queueing::egress_super_packet(local, peer).unwrap_or((u32::MAX, u32::MAX));
        let refused = AtomicBool::new(!linux::socket::cuts_datagrams(socket.as_fd()));
        Ok(Self { datagrams: MOST_TOGETHER.min(datagrams as usize), bytes: bytes as usize, refused })
    }

    /// The most datagrams of `segment` bytes in one call.
    fn most(&self, segment: usize, overhead: usize) -> usize {
        if self.refused.load(Relaxed) {
            return 1;
        }
        let bytes = self.bytes.saturating_sub(overhead).min(MOST_BYTES_TOGETHER);
        (bytes / segment.max(1)).min(self.datagrams).max(1)
    }
}

impl UdpSend {
    /// Takes a connected socket and forbids IP fragmentation on it.
    ///
    /// # Errors
    /// NotConnected without a peer; else the error of setsockopt(2).
    pub fn new(socket: impl Into<Arc<UdpSocket>>) -> io::Result<Self> {
        let socket = socket.into();
        socket.set_nonblocking(false)?;
        let v6 = socket.peer_addr()?.is_ipv6();
        forbid_fragments(socket.as_fd(), v6)?;
        let together = Together::of(&socket)?;
        Ok(Self { socket, overhead: if v6 { 48 } else { 28 }, together })
    }

    /// The largest datagram of the path, as the kernel knows it now (it shrinks when a router reports so).
    ///
    /// # Errors
    /// The error of getsockopt(2).
    pub fn most(&self) -> io::Result<usize> {
        let mtu = if self.overhead == 48 { sockopt::ipv6_mtu(&self.socket)? } else { sockopt::ip_mtu(&self.socket)? };
        Ok((mtu as usize).saturating_sub(self.overhead).min(MOST))
    }

    /// Sends these datagrams in one call; where the kernel does not cut them, the first one alone, and all by themselves from then on.
    fn send_cut(&self, datagrams: &[[IoSlice<'_>; 2]], segment: usize) -> io::Result<usize> {
        let segment = u16::try_from(segment).map_err(|_| Errno::MSGSIZE)?;
        let sent = linux::socket::send_segments(self.socket.as_fd(), datagrams.as_flattened(), segment);
        match sent {
            Ok(_) => Ok(datagrams.len()),
            Err(error) if refuses_to_cut(&error) => {
                // Before Linux 6.15 a segment that the path does not take is EINVAL, too: alone it is EMSGSIZE.
                self.send(&datagrams[0])?;
                self.together.refused.store(true, Relaxed);
                Ok(1)
            }
            Err(error) => Err(no_room(error)),
        }
    }
}

/// The kernel cannot segment (EINVAL, EOPNOTSUPP), or the device makes no checksums (EIO).
fn refuses_to_cut(error: &io::Error) -> bool {
    let refusals = [Errno::INVAL, Errno::IO, Errno::OPNOTSUPP];
    error.raw_os_error().is_some_and(|raw| refusals.contains(&Errno::from_raw_os_error(raw)))
}

impl SendHalf for UdpSend {
    #[inline]
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        send_now(self.socket.as_fd(), parts).map_err(no_room)
    }

    fn send_many(&self, datagrams: &[[IoSlice<'_>; 2]]) -> io::Result<usize> {
        let segment = datagrams.first().map_or(0, |[first, second]| first.len() + second.len());
        let mut left = 0;
        while let Some(rest) = datagrams.get(left..).filter(|rest| !rest.is_empty()) {
            let together = &rest[..rest.len().min(self.together.most(segment, self.overhead))];
            let sent = match together {
                [one] => self.send(one).map(|_| 1),
                many => self.send_cut(many, segment),
            };
            match sent {
                Ok(sent) => left += sent,
                Err(error) if left == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(left)
    }

    fn max_datagram(&self) -> Option<usize> {
        self.most().ok()
    }

    fn has_feedback(&self) -> bool {
        true
    }

    fn receive_feedback(&self, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        linux::socket::receive(self.socket.as_fd(), buffer, false).map(|length| (length, 0))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn socket(&self) -> Option<SharedSocket> {
        Some(shared(&self.socket))
    }

    /// UDP has no end: the frame `Kind::End` reports it in band.
    fn close(&self) {}
}

/// The receiving half of a connected socket.
pub struct UdpReceive {
    socket: Arc<UdpSocket>,
}

impl UdpReceive {
    /// Takes a socket (connected, so that only its peer is received); a waiting receive returns after [`TICK`].
    ///
    /// # Errors
    /// The error of setsockopt(2).
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

    /// The kernel guarantees datagrams of one length (UDP_GRO). It would report that length by recvmsg(2), which
    /// takes 0.2 µs more than recv(2) for each datagram that comes alone.
    fn join(&mut self) -> bool {
        linux::socket::join_datagrams(self.socket.as_fd()).is_ok()
    }

    fn send_feedback(&mut self, bytes: &[u8]) -> io::Result<usize> {
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
    match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOBUFS) => io::ErrorKind::WouldBlock.into(),
        _ => e,
    }
}

/// The carrier: a socket at each end, bound to the addresses of the handshake's stream and connected to each other.
pub struct Udp;

/// Buffer requested for a receiving socket: a burst of fragments must fit. The kernel grants at most `net.core.rmem_max`.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UdpSend, UdpReceive) {
        let [a, b] = [0, 0].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        let mut receive = UdpReceive::new(b).unwrap();
        assert!(receive.join());
        (UdpSend::new(a).unwrap(), receive)
    }

    /// Returns the received datagrams, and the number of calls.
    fn exchange(send: &UdpSend, receive: &mut UdpReceive, sizes: &[usize]) -> (Vec<usize>, usize) {
        let bytes: Vec<Vec<u8>> = sizes.iter().map(|size| vec![7; *size]).collect();
        let parts: Vec<[IoSlice<'_>; 2]> =
            bytes.iter().map(|b| [IoSlice::new(&b[..10]), IoSlice::new(&b[10..])]).collect();
        assert_eq!(send.send_many(&parts).unwrap(), sizes.len());
        let (mut buffer, mut came, mut calls) = (vec![0; 1 << 16], Vec::new(), 0);
        while came.len() < sizes.len() {
            let length = receive.receive(&mut buffer, true).unwrap();
            came.extend(buffer[..length].chunks(sizes[0]).map(<[u8]>::len));
            calls += 1;
        }
        (came, calls)
    }

    #[test]
    fn datagrams_of_one_length_come_together() {
        let (send, mut receive) = pair();
        for (sizes, calls) in [(vec![1000; 5], 1), ([vec![1000; 40], vec![20]].concat(), 1), (vec![1000; 130], 3)] {
            assert_eq!(exchange(&send, &mut receive, &sizes), (sizes, calls));
        }
        assert!(!send.together.refused.load(Relaxed));
    }

    /// A socket without checksums does not segment, like a device without them.
    #[test]
    fn without_segmentation_they_leave_one_by_one() {
        const SOL_SOCKET: i32 = 1;
        const SO_NO_CHECK: i32 = 11;
        let (send, mut receive) = pair();
        linux::socket::set_option(send.socket.as_fd(), SOL_SOCKET, SO_NO_CHECK, &1i32.to_ne_bytes()).unwrap();
        let sizes = vec![1000; 5];
        assert_eq!(exchange(&send, &mut receive, &sizes), (sizes.clone(), 5));
        assert!(send.together.refused.load(Relaxed), "and it is not asked again");
        assert_eq!(exchange(&send, &mut receive, &sizes), (sizes, 5));
    }

    /// This is no reason to give up segmentation.
    #[test]
    fn datagrams_too_large_for_the_path_are_reported() {
        let (send, _receive) = pair();
        let long = vec![0; MOST + 1];
        let datagram = [IoSlice::new(&[]), IoSlice::new(&long)];
        let error = send.send_many(&[datagram, datagram]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::MSGSIZE.raw_os_error()));
        assert!(!send.together.refused.load(Relaxed));
    }

    /// A device with a lower limit gets smaller packets, so that others wait for less.
    #[test]
    fn one_call_takes_no_more_than_the_device_does() {
        let together = |datagrams, bytes, refused| Together { datagrams, bytes, refused: AtomicBool::new(refused) };
        assert_eq!(together(64, usize::MAX, false).most(1472, 28), 44);
        assert_eq!(together(64, usize::MAX, false).most(100, 28), 64);
        assert_eq!(together(64, 3000, false).most(1472, 28), 2);
        assert_eq!(together(1, 65_536, false).most(1472, 28), 1);
        assert_eq!(together(64, 65_536, true).most(1472, 28), 1);
        assert_eq!(together(64, 65_536, false).most(MOST, 28), 1);
        assert_eq!(together(64, 0, false).most(0, 28), 1);
    }
}
