//! The marks of a socket's packets: TOS octet (IPv4) or traffic class (IPv6), and the socket's priority, which chooses
//! the band of a queue on this host.
//!
//! Setting the octet changes the priority on IPv4 ([`qos::priority::kernel_priority`]) and not on IPv6, so the
//! priority is always set after it, on both. The effect of a mark depends on the queues on the way. The two lowest
//! bits of the octet are ECN's: on TCP the kernel keeps its own (`tcp(7)` negotiates them), so the octet that is read
//! back may differ in them.

use crate::socket::{option, set_option};
use qos::priority::Mark;
use rustix::net::AddressFamily;
use rustix::net::sockopt;
use std::io;
use std::os::fd::BorrowedFd;

/// The marks of a socket, as the kernel has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The octet of the packets that leave now: TOS, or traffic class.
    pub tos: u8,
    /// SO_PRIORITY.
    pub priority: u32,
    /// `true` if the packets are IPv6 (an IPv6 socket with an IPv4 peer sends IPv4).
    pub v6: bool,
}

/// Marks all further packets of the socket, retransmitted ones too.
///
/// # Errors
/// PermissionDenied for a priority above 6 without CAP_NET_ADMIN; else the error of setsockopt(2), such as
/// ENOPROTOOPT for a socket without IP. The marks are then unchanged.
pub fn set(socket: BorrowedFd<'_>, mark: &Mark, socket_priority: u32) -> io::Result<()> {
    let before = read(socket)?;
    mark_all(socket, mark.tos(), socket_priority).inspect_err(|_| drop(put_back(socket, &before)))
}

/// Restores a socket's marks as they were read.
///
/// # Errors
/// The error of setsockopt(2); a priority above 6 needs CAP_NET_ADMIN again.
pub fn put_back(socket: BorrowedFd<'_>, marks: &Marks) -> io::Result<()> {
    mark_all(socket, marks.tos, marks.priority)
}

/// The marks that the socket has now.
///
/// # Errors
/// The error of getsockopt(2); Unsupported for a socket that is not of the Internet.
pub fn read(socket: BorrowedFd<'_>) -> io::Result<Marks> {
    let v6 = is_v6(socket)?;
    let tos = if v6 { sockopt::ipv6_tclass(socket)? as u8 } else { sockopt::ip_tos(socket)? };
    Ok(Marks { tos, priority: option(socket, libc::SOL_SOCKET, libc::SO_PRIORITY)?, v6 })
}

/// Both octets of an IPv6 socket: its peer may be, or become, an IPv4 one.
fn mark_all(socket: BorrowedFd<'_>, tos: u8, priority: u32) -> io::Result<()> {
    let v6 = is_v6(socket)?;
    if family(socket)? == AddressFamily::INET6 {
        let other = sockopt::set_ip_tos(socket, tos);
        if v6 { sockopt::set_ipv6_tclass(socket, tos.into())? } else { other? }
    } else {
        sockopt::set_ip_tos(socket, tos)?;
    }
    set_option(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority.to_ne_bytes())
}

/// `true` if IPv6 packets leave the socket.
fn is_v6(socket: BorrowedFd<'_>) -> io::Result<bool> {
    match family(socket)? {
        AddressFamily::INET => Ok(false),
        AddressFamily::INET6 => Ok(!has_v4_peer(socket)),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "the socket has no packets: it is not of the Internet")),
    }
}

fn has_v4_peer(socket: BorrowedFd<'_>) -> bool {
    let peer = rustix::net::getpeername(socket).ok().flatten();
    let peer = peer.and_then(|peer| std::net::SocketAddr::try_from(peer).ok());
    matches!(peer, Some(std::net::SocketAddr::V6(peer)) if peer.ip().to_ipv4_mapped().is_some())
}

fn family(socket: BorrowedFd<'_>) -> io::Result<AddressFamily> {
    Ok(sockopt::socket_domain(socket)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::priority::{Dscp, band};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    fn dscp(value: u8) -> Mark {
        Mark::Dscp(Dscp::new(value).unwrap())
    }

    /// The table of docs/queueing.md against this kernel: the priority, and so the band, that IP_TOS alone gives.
    #[test]
    fn the_kernel_derives_the_table_from_ip_tos() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let table: [(&[u8], u32, u8); 4] = [
            (&[12, 20, 28, 36, 44], 6, 0),
            (&[0, 1, 8, 16, 24, 32, 40, 48, 56], 0, 1),
            (&[14, 22, 30, 38, 46], 4, 1),
            (&[10, 18, 26, 34], 2, 2),
        ];
        for (points, priority, wanted) in table {
            for point in points {
                sockopt::set_ip_tos(&socket, point << 2).unwrap();
                let derived = read(socket.as_fd()).unwrap().priority;
                assert_eq!((derived, band(derived)), (priority, wanted), "DSCP {point}");
            }
        }
        // All 64, against the function that predicts it.
        for tos in (0..=252).step_by(4) {
            sockopt::set_ip_tos(&socket, tos).unwrap();
            assert_eq!(read(socket.as_fd()).unwrap().priority, qos::priority::kernel_priority(tos), "TOS {tos}");
        }
    }

    #[test]
    fn ipv6_derives_nothing_so_that_the_priority_is_set() {
        let Ok(socket) = UdpSocket::bind("[::1]:0") else { return };
        sockopt::set_ipv6_tclass(&socket, 46 << 2).unwrap();
        assert_eq!(read(socket.as_fd()).unwrap(), Marks { tos: 184, priority: 0, v6: true });
        let mark = Mark::Class(qos::Class::High);
        set(socket.as_fd(), &mark, mark.socket_priority()).unwrap();
        assert_eq!(read(socket.as_fd()).unwrap(), Marks { tos: 144, priority: 6, v6: true });
    }

    #[test]
    fn an_ipv6_socket_with_an_ipv4_peer_sends_ipv4_marks() {
        let Ok(socket) = UdpSocket::bind("[::]:0") else { return };
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mapped = format!("[::ffff:127.0.0.1]:{}", peer.local_addr().unwrap().port());
        socket.connect(&mapped).unwrap();
        set(socket.as_fd(), &dscp(46), 6).unwrap();
        assert_eq!(read(socket.as_fd()).unwrap(), Marks { tos: 184, priority: 6, v6: false });
    }

    #[test]
    fn the_priority_asked_for_wins_over_the_derived_one() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set(socket.as_fd(), &dscp(46), 6).unwrap();
        assert_eq!(read(socket.as_fd()).unwrap(), Marks { tos: 184, priority: 6, v6: false });
        set(socket.as_fd(), &dscp(10), 0).unwrap();
        assert_eq!(read(socket.as_fd()).unwrap(), Marks { tos: 40, priority: 0, v6: false });
    }

    #[test]
    fn tcp_keeps_its_ecn_bits_and_udp_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set(stream.as_fd(), &Mark::Tos(0x93), 6).unwrap();
        assert_eq!(read(stream.as_fd()).unwrap().tos, 0x90);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set(socket.as_fd(), &Mark::Tos(0x93), 6).unwrap();
        assert_eq!(read(socket.as_fd()).unwrap().tos, 0x93);
    }

    #[test]
    fn a_socket_without_packets_says_so() {
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(set(unix.as_fd(), &dscp(46), 6).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
