//! Marked packets.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The 24 named code points.
pub const NAMED: [u8; 24] =
    [0, 1, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 44, 46, 48, 56, 63];

/// A socket of the calling thread's host that sends with this TOS octet, and this socket priority if one is given.
/// `SO_PRIORITY` comes after the mark, which overwrites it.
pub fn marked(to: SocketAddr, tos: u8, priority: Option<u32>) -> UdpSocket {
    let any: SocketAddr = if to.is_ipv6() { "[::]:0".parse().unwrap() } else { "0.0.0.0:0".parse().unwrap() };
    let socket = UdpSocket::bind(any).unwrap();
    match to.is_ipv6() {
        true => set(&socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos.into()),
        false => set(&socket, libc::IPPROTO_IP, libc::IP_TOS, tos.into()),
    }
    priority.iter().for_each(|priority| set(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, *priority as i32));
    socket.connect(to).unwrap();
    socket
}

/// The priority that the kernel has for the socket's packets.
pub fn priority_of(socket: &UdpSocket) -> u32 {
    let (mut value, mut size) = (0i32, size_of::<i32>() as libc::socklen_t);
    let fd = socket.as_raw_fd();
    // SAFETY: the option writes to value and size, which outlive the call.
    #[allow(unsafe_code)]
    let result =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, (&raw mut value).cast(), &raw mut size) };
    assert_eq!(result, 0);
    value as u32
}

/// Receives one packet. A process that was stopped and continues is interrupted, and tries again.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> usize {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done.unwrap(),
        }
    }
}

fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value is an i32 of the stated size, and the socket is borrowed for the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// A socket that receives on any address of the calling thread's host, of the family of `address`.
pub fn receiver(address: IpAddr) -> (UdpSocket, u16) {
    let any: SocketAddr = if address.is_ipv6() { "[::]:0".parse().unwrap() } else { "0.0.0.0:0".parse().unwrap() };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// From now on the socket tells the TOS octet or traffic class of each packet.
pub fn tell_tos(socket: &UdpSocket, v6: bool) {
    match v6 {
        true => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
        false => set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
    }
}

/// The TOS octet or traffic class of the next packet; `None`: none came in time.
pub fn tos_of_next(socket: &UdpSocket, v6: bool) -> Option<u8> {
    let (mut data, mut control) = ([0u8; 100], [0u64; 8]);
    let mut part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    // SAFETY: zeros are valid: no address, no flags.
    #[allow(unsafe_code)]
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
    // SAFETY: the parts outlive the call; the kernel writes control messages, which the macros find.
    #[allow(unsafe_code)]
    unsafe {
        if libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) < 0 {
            return None;
        }
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        assert!(!head.is_null(), "the packet came without its mark");
        let data = libc::CMSG_DATA(head);
        Some(if v6 { data.cast::<i32>().read_unaligned() as u8 } else { *data })
    }
}
