//! Network interfaces and their addresses (getifaddrs(3)), their changes (rtnetlink(7)), the users of connections within the
//! host (sock_diag(7)), and sockets of this process that a library has opened.

use crate::netlink::{Socket, u16_at, u32_at};
use crate::{filter, marks};
use qos::priority::Mark;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use socket2::{SockRef, Type};
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface's name, such as `eth0`.
    pub name: String,
    /// Its index, for socket options.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// The interface is up.
    pub up: bool,
    /// It can send to multicast groups.
    pub multicast: bool,
    /// It is the loopback interface.
    pub loopback: bool,
}

/// All addresses of this network namespace.
///
/// # Errors
/// The error of getifaddrs(3).
#[allow(unsafe_code)]
pub fn interfaces() -> io::Result<Vec<InterfaceAddress>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call fills `list`, which is freed below exactly once.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: `next` is an element of the list, which lives until it is freed.
        let entry = unsafe { &*next };
        found.extend(read(entry));
        next = entry.ifa_next;
    }
    // SAFETY: `list` came from getifaddrs and nothing points into it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

#[allow(unsafe_code)]
fn read(entry: &libc::ifaddrs) -> Option<InterfaceAddress> {
    if entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: a non-null address starts with its family, and is as long as that family says.
    let address = unsafe {
        match i32::from((*entry.ifa_addr).sa_family) {
            libc::AF_INET => {
                let v4 = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)))
            }
            libc::AF_INET6 => {
                IpAddr::V6(Ipv6Addr::from((*entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr))
            }
            _ => return None,
        }
    };
    // SAFETY: the name is a C string of the list; `if_nametoindex` reads it.
    let (name, index) = unsafe { (CStr::from_ptr(entry.ifa_name), libc::if_nametoindex(entry.ifa_name)) };
    let has = |flag: i32| entry.ifa_flags & flag as u32 != 0;
    Some(InterfaceAddress {
        name: name.to_string_lossy().into_owned(),
        index,
        address,
        up: has(libc::IFF_UP),
        multicast: has(libc::IFF_MULTICAST),
        loopback: has(libc::IFF_LOOPBACK),
    })
}

/// Becomes readable when an interface or an address of this network namespace appears, changes or disappears. Needs
/// no permission.
#[derive(Debug)]
pub struct Changes {
    socket: OwnedFd,
}

/// The result of [`Changes::take`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// `true` if there was any change.
    pub any: bool,
    /// Indices of interfaces that were deleted: another one may have got the same index since.
    pub deleted: Vec<u32>,
}

/// `RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR` (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// `RTM_DELLINK`
const LINK_DELETED: u16 = 17;
/// Datagrams that one [`Changes::take`] reads: endless changes of a host hold up no thread.
const MOST_TAKEN: usize = 64;

impl Changes {
    /// Starts to watch for changes.
    ///
    /// # Errors
    /// The error of socket(2) and bind(2).
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { socket })
    }

    /// The changes since the last call. Never waits. After a long pause the kernel may have dropped details; the
    /// change itself is still reported.
    pub fn take(&self) -> Changed {
        let (mut found, mut buffer) = (Changed::default(), vec![0; 32 << 10]);
        for _ in 0..MOST_TAKEN {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => found.note(buffer.get(..length).unwrap_or_default()),
                Err(rustix::io::Errno::NOBUFS) => found.any = true,
                Err(_) => break,
            }
        }
        found
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Changed {
    /// Reads one datagram: messages of a header of 16 bytes and a body. Lengths that don't fit end it.
    fn note(&mut self, mut bytes: &[u8]) {
        while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
            let length = length as usize;
            let Some(body) = bytes.get(16..length) else { return };
            self.any = true;
            // struct ifinfomsg: the family is AF_UNSPEC but where a port only leaves its bridge (AF_BRIDGE); the index.
            if kind == LINK_DELETED && body.first() == Some(&0) {
                self.deleted.extend(u32_at(body, 4));
            }
            bytes = bytes.get(length.saturating_add(3) & !3..).unwrap_or_default();
        }
    }
}

/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// `TCP_ESTABLISHED` (tcp_states.h).
const ESTABLISHED: u8 = 1;

/// The user at the other end of a TCP connection within this host. The kernel is asked for that one socket: reading the
/// table of all (`/proc/net/tcp`) takes longer the more connections strangers leave behind. `None`: that end is not in
/// this network namespace, has no owner any more, or the kernel does not tell (built without `CONFIG_INET_DIAG`).
pub fn tcp_user(own: SocketAddr, far: SocketAddr) -> Option<u32> {
    let answer = Socket::for_sockets().ok()?.ask(BY_FAMILY, 0, &request(far, own)).ok()?.ok()?;
    user_of(&answer.first()?.body)
}

/// `struct inet_diag_req_v2` (linux/inet_diag.h): the socket with address `from`, connected to `to`. A socket of IPv6 that speaks IPv4
/// is found by its addresses of IPv4.
fn request(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let interface = if let SocketAddr::V6(v6) = from { v6.scope_id() } else { 0 };
    let (source, destination) = (from.ip().to_canonical(), to.ip().to_canonical());
    let family = if source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut body = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    body.extend_from_slice(&u32::MAX.to_ne_bytes()); // in any state
    body.extend_from_slice(&from.port().to_be_bytes());
    body.extend_from_slice(&to.port().to_be_bytes());
    body.extend_from_slice(&sixteen(source));
    body.extend_from_slice(&sixteen(destination));
    body.extend_from_slice(&interface.to_ne_bytes());
    body.extend_from_slice(&[0xff; 8]); // INET_DIAG_NOCOOKIE
    body
}

fn sixteen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
    }
}

/// `struct inet_diag_msg`: state at 1, user at 64, inode at 68. Without a connection the kernel returns the listener;
/// a closing socket has no inode, and is listed as root's.
fn user_of(body: &[u8]) -> Option<u32> {
    let (state, user, inode) = (*body.get(1)?, u32_at(body, 64)?, u32_at(body, 68)?);
    if state == ESTABLISHED && inode != 0 { Some(user) } else { None }
}

/// TCP sockets of this process at one of its ports, including those of a library, at the time of the search: the peers,
/// and the listeners.
#[derive(Debug, Default)]
pub struct SocketsAtPort {
    port: u16,
    listeners: Vec<RawFd>,
    accepted: Vec<(IpAddr, RawFd)>,
}

impl SocketsAtPort {
    /// Looks at all descriptors of the process: one system call for each, four for each connection at the port.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn look(port: u16) -> io::Result<Self> {
        let mut found = Self { port, ..Self::default() };
        for fd in numbers()? {
            match at(fd, port) {
                Some(None) => found.listeners.push(fd),
                Some(Some(peer)) => found.accepted.push((peer, fd)),
                None => {}
            }
        }
        Ok(found)
    }

    /// The hosts of the peers, one for each connection.
    pub fn connected(&self) -> impl Iterator<Item = IpAddr> {
        self.accepted.iter().map(|(peer, _)| *peer)
    }

    /// Ends connections whose host satisfies `ends`; returns their number.
    pub fn end(&self, mut ends: impl FnMut(IpAddr) -> bool) -> usize {
        let over = self.accepted.iter().filter(|(peer, _)| ends(*peer));
        over.filter(|(peer, fd)| {
            at(*fd, self.port) == Some(Some(*peer))
                && with(*fd, |fd| SockRef::from(&fd).shutdown(Shutdown::Both)).is_ok()
        })
        .count()
    }

    /// Makes the listeners ignore these hosts, see [`filter::not_from`].
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub fn refuse(&self, hosts: &[IpAddr]) -> io::Result<()> {
        let listens = |fd: &&RawFd| at(**fd, self.port) == Some(None);
        self.listeners.iter().filter(listens).try_for_each(|fd| with(*fd, |fd| filter::not_from(fd, hosts)))
    }
}

/// Marks the UDP sockets of this process whose send buffer has this size, in bytes as SO_SNDBUF tells it: twice what was asked for
/// (socket(7)). So the sockets of a library are found that opens them with a size that nobody else asks for. `priority` is their socket
/// priority, which chooses the band on this host. Returns their number.
///
/// # Errors
/// `/proc` cannot be read, or the error of setsockopt(2).
pub fn mark_by_send_buffer(bytes: usize, mark: &Mark, priority: u32) -> io::Result<usize> {
    let mut marked = 0;
    for fd in numbers()? {
        if with(fd, |fd| is_datagram_with(fd, bytes)) {
            with(fd, |fd| marks::set(fd, mark, priority))?;
            marked += 1;
        }
    }
    Ok(marked)
}

fn is_datagram_with(fd: BorrowedFd<'_>, send_buffer: usize) -> bool {
    let socket = SockRef::from(&fd);
    socket.r#type().is_ok_and(|kind| kind == Type::DGRAM)
        && socket.send_buffer_size().is_ok_and(|size| size == send_buffer)
        && socket.local_addr().is_ok_and(|address| address.as_socket().is_some())
}

/// The descriptors of this process.
fn numbers() -> io::Result<impl Iterator<Item = RawFd>> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Number of descriptors of this process, plus one for the count itself.
///
/// # Errors
/// `/proc` cannot be read.
pub fn descriptors() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

/// Calls with a descriptor of another owner. It may be closed meanwhile.
#[allow(unsafe_code)]
fn with<T>(fd: RawFd, call: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    // SAFETY: the number is one of this process. Its owner may close it while it is borrowed: then a call fails (EBADF), or meets the
    // socket that has the number next, which harms no memory; callers look at the socket just before they change anything.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    call(fd)
}

/// The host at the other end of a TCP socket at this port, or `None` of a listener.
fn at(fd: RawFd, port: u16) -> Option<Option<IpAddr>> {
    with(fd, |fd| {
        let socket = SockRef::from(&fd);
        if socket.local_addr().ok()?.as_socket()?.port() != port || socket.r#type().ok()? != Type::STREAM {
            return None;
        }
        if socket.is_listener().ok()? {
            return Some(None);
        }
        Some(Some(socket.peer_addr().ok()?.as_socket()?.ip().to_canonical()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::Domain;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_deleted_interface_is_told_by_its_index() {
        let link = |family: u8, index: u32| [&[family, 0, 1, 0][..], &index.to_ne_bytes(), &[0; 8]].concat();
        let mut found = Changed::default();
        found.note(&[message(16, &link(0, 3)), message(LINK_DELETED, &link(0, 7))].concat());
        found.note(&message(LINK_DELETED, &link(libc::AF_BRIDGE as u8, 9)));
        assert_eq!(found, Changed { any: true, deleted: vec![7] });
    }

    #[test]
    fn an_unchanged_network_is_reported_as_unchanged() {
        let changes = Changes::new().unwrap();
        changes.take(); // of other tests, if they change something
        assert!(changes.take().deleted.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            Changed::default().note(&bytes);
        }
    }

    #[test]
    fn the_loopback_interface_is_found() {
        let found = interfaces().unwrap();
        let lo = found.iter().find(|i| i.address == IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert!(lo.loopback && lo.up && lo.index > 0, "{lo:?}");
    }

    #[test]
    fn a_connection_within_the_host_tells_its_user_until_it_is_closed() {
        for any in ["127.0.0.1:0", "[::ffff:127.0.0.1]:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, far) = listener.accept().unwrap();
            let own = accepted.local_addr().unwrap();
            assert_eq!(tcp_user(own, far), Some(rustix::process::geteuid().as_raw()), "{any}");
            assert_eq!(tcp_user(far, SocketAddr::from(([192, 0, 2, 1], 9))), None);
            drop(stream);
            assert_eq!(tcp_user(own, far), None, "{any}: nobody has it any more");
        }
    }

    #[test]
    fn sockets_are_marked_by_their_send_buffer() {
        const ASKED: usize = 77_771;
        let sockets = [ASKED, ASKED, ASKED + 1].map(|bytes| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            SockRef::from(&socket).set_send_buffer_size(bytes).unwrap();
            socket
        });
        let (other, _peer) = std::os::unix::net::UnixDatagram::pair().unwrap();
        SockRef::from(&other).set_send_buffer_size(ASKED).unwrap();
        let mark = Mark::Class(qos::Class::Critical);
        assert_eq!(mark_by_send_buffer(2 * ASKED, &mark, 6).unwrap(), 2);
        let marks = sockets.map(|socket| marks::read(socket.as_fd()).unwrap());
        assert_eq!(marks.map(|marks| (marks.tos, marks.priority)), [(0xb0, 6), (0xb0, 6), (0, 0)]);
        assert_eq!(mark_by_send_buffer(2 * ASKED + 4, &mark, 6).unwrap(), 0);
    }

    fn connect(from: [u8; 4], to: SocketAddr) -> io::Result<TcpStream> {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect_timeout(&to.into(), Duration::from_millis(300))?;
        Ok(socket.into())
    }

    #[test]
    fn connections_at_a_port_are_counted_ended_and_refused_by_host() {
        let (listener, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let to = listener.local_addr().unwrap();
        let (one, two) = ([127, 0, 0, 2], [127, 0, 0, 3]);
        let clients: Vec<TcpStream> = [one, one, two].iter().map(|from| connect(*from, to).unwrap()).collect();
        let _elsewhere = connect(one, other.local_addr().unwrap()).unwrap();
        let _accepted: Vec<TcpStream> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        let found = SocketsAtPort::look(to.port()).unwrap();
        let mut hosts: Vec<IpAddr> = found.connected().collect();
        hosts.sort();
        assert_eq!(hosts, [one, one, two].map(IpAddr::from));
        let mut left = 1;
        let ended = found.end(|host| host == IpAddr::from(one) && std::mem::replace(&mut left, 0) == 0);
        assert_eq!(ended, 1);
        let over = |client: &TcpStream| {
            client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            matches!((&mut &*client).read(&mut [0]), Ok(0))
        };
        assert_eq!(clients.iter().filter(|client| over(client)).count(), 1);
        found.refuse(&[one.into()]).unwrap();
        assert!(connect(one, to).is_err() && connect(two, to).is_ok());
        found.refuse(&[]).unwrap();
        assert!(connect(one, to).is_ok());
    }
}
