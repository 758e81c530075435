//! Sockets: sends that never wait, receives that wait a stated time, descriptor passing, peer credentials.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Sends `bytes` without waiting, in one system call. A peer that is gone is an error, never a signal.
#[inline]
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
}

/// Sends several pieces as one, without waiting, in one system call.
#[inline]
pub fn send_parts(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut none = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(fd, parts, &mut none, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
}

/// As [`send_parts`], but waits for room, at most the socket's send time-out.
#[inline]
pub fn send_parts_waiting(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    match parts {
        [one] => Ok(rustix::net::send(fd, one, SendFlags::NOSIGNAL)?),
        many => Ok(rustix::net::sendmsg(fd, many, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?),
    }
}

/// Sends several pieces as one datagram to `to`, without waiting.
pub fn send_parts_to(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>], to: &std::net::SocketAddr) -> io::Result<usize> {
    let mut none = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg_addr(fd, to, parts, &mut none, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
}

/// Largest number of datagrams in one call (UDP_MAX_SEGMENTS; newer kernels send twice as many).
pub const MOST_SEGMENTS: usize = 64;

/// A control message with the length of each datagram.
#[repr(C)]
struct Segment {
    head: libc::cmsghdr,
    bytes: u16, // where CMSG_DATA is: no less aligned than the header
}

/// Sends the concatenated `parts` as datagrams of `segment` bytes each, of which the last may be shorter, without
/// waiting, in one system call (UDP_SEGMENT): at most [`MOST_SEGMENTS`], and 65,507 bytes.
///
/// # Errors
/// The error of sendmsg(2); EINVAL or EIO if the kernel or the device cannot do it.
#[allow(unsafe_code)]
pub fn send_segments(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>], segment: u16) -> io::Result<usize> {
    // SAFETY: both are integers and pointers, for which zeros are valid: no address, no flags.
    let (mut message, head): (libc::msghdr, libc::cmsghdr) = unsafe { std::mem::zeroed() };
    let mut control = Segment { head, bytes: segment };
    (control.head.cmsg_level, control.head.cmsg_type) = (libc::SOL_UDP, libc::UDP_SEGMENT);
    // SAFETY: arithmetic, no memory is read.
    control.head.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<u16>() as u32) } as _;
    // `IoSlice` is an `iovec`; the bytes behind it are only read.
    (message.msg_iov, message.msg_iovlen) = (parts.as_ptr().cast_mut().cast(), parts.len() as _);
    (message.msg_control, message.msg_controllen) = ((&raw mut control).cast(), size_of::<Segment>() as _);
    // SAFETY: the descriptor is borrowed for the call, and the parts and the control message live until it is over.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// `true` if this socket can use [`send_segments`] (Linux 4.18).
pub fn cuts_datagrams(fd: BorrowedFd<'_>) -> bool {
    option(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
}

/// Lets [`receive`] return several datagrams of one sender, one behind the other: all of one length, the last may be
/// shorter (UDP_GRO).
///
/// # Errors
/// The error of setsockopt(2) if the kernel is older than 5.0.
pub fn join_datagrams(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::SOL_UDP, libc::UDP_GRO, &1i32.to_ne_bytes())
}

/// Receives into `buffer`; waits if `wait` (at most the socket's receive time-out). A datagram larger than the buffer
/// gives its full length, so that callers can tell it was cut.
#[inline]
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
    let flags = if wait { RecvFlags::TRUNC } else { RecvFlags::TRUNC | RecvFlags::DONTWAIT };
    Ok(rustix::net::recv(fd, buffer, flags)?.1)
}

/// Receives as [`receive`] does, and returns the sender if it is an address of the Internet.
#[inline]
pub fn receive_from(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    wait: bool,
) -> io::Result<(usize, Option<std::net::SocketAddr>)> {
    let flags = if wait { RecvFlags::TRUNC } else { RecvFlags::TRUNC | RecvFlags::DONTWAIT };
    let (_, length, from) = rustix::net::recvfrom(fd, buffer, flags)?;
    Ok((length, from.and_then(|from| std::net::SocketAddr::try_from(from).ok())))
}

/// Receives as [`receive`] does from a byte stream, where cutting is no loss (and MSG_TRUNC would discard bytes).
#[inline]
pub fn receive_stream(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
    let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    Ok(rustix::net::recv(fd, buffer, flags)?.0)
}

/// Largest number of descriptors in one message.
pub const MOST_DESCRIPTORS: usize = 4;

/// Sends `bytes` over a unix socket together with descriptors (SCM_RIGHTS).
///
/// # Errors
/// InvalidInput above [`MOST_DESCRIPTORS`]; otherwise the error of sendmsg(2).
pub fn send_with_descriptors(fd: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more than 4 descriptors in one message"));
    }
    Ok(rustix::net::sendmsg(fd, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives bytes and up to [`MOST_DESCRIPTORS`] descriptors (close-on-exec) without waiting.
pub fn receive_with_descriptors(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(fd, &mut parts, &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message with too many descriptors"));
    }
    Ok(got.bytes)
}

/// User id of the process at the other end of a unix socket when it connected.
pub fn peer_user(fd: impl AsFd) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(fd)?.uid.as_raw())
}

/// Number of the process at the other end of a unix socket when it connected or listened.
///
/// # Errors
/// The error of getsockopt(2).
pub fn peer_process(fd: impl AsFd) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(fd)?.pid.as_raw_nonzero().get().unsigned_abs())
}

/// Group ids of the process at the other end of a unix socket when it connected or listened: the first is its own group.
///
/// # Errors
/// The error of getsockopt(2); `ENOPROTOOPT` before Linux 4.13.
#[allow(unsafe_code)]
pub fn peer_groups(fd: impl AsFd) -> io::Result<Vec<u32>> {
    use std::os::fd::AsRawFd;
    let first = rustix::net::sockopt::socket_peercred(&fd)?.gid.as_raw();
    let mut others = vec![0u32; 32];
    loop {
        let mut size = (others.len() * size_of::<u32>()) as libc::socklen_t;
        let (fd, into) = (fd.as_fd().as_raw_fd(), others.as_mut_ptr().cast());
        // SAFETY: the descriptor is borrowed for the call, and `into` has room for `size` bytes.
        let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERGROUPS, into, &raw mut size) };
        let error = io::Error::last_os_error();
        let count = size as usize / size_of::<u32>();
        match result {
            0 => {
                others.truncate(count);
                others.insert(0, first);
                return Ok(others);
            }
            // The kernel reports the needed size.
            _ if error.raw_os_error() == Some(libc::ERANGE) && count > others.len() => others.resize(count, 0),
            _ => return Err(error),
        }
    }
}

/// Sets an integer option of the TCP level that the socket crates do not know; older kernels ignore it. `true` if it
/// was accepted.
pub fn set_tcp_option(fd: BorrowedFd<'_>, option: i32, value: i32) -> bool {
    set_option(fd, libc::IPPROTO_TCP, option, &value.to_ne_bytes()).is_ok()
}

/// Time after which the kernel retransmits unacknowledged data on this TCP socket.
///
/// # Errors
/// The error of getsockopt(2).
pub fn retransmission_timeout(fd: BorrowedFd<'_>) -> io::Result<Duration> {
    // The first bytes of `tcp_info` (linux/tcp.h): eight of states and flags, then `tcpi_rto` in microseconds.
    let mut info = [0; 12];
    get_option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    let [.., a, b, c, d] = info;
    Ok(Duration::from_micros(u32::from_ne_bytes([a, b, c, d]).into()))
}

/// Time when the last received datagram of this socket reached the kernel, by CLOCK_MONOTONIC in nanoseconds
/// (SIOCGSTAMPNS: a system call, and the kernel stamps this socket's packets from the first call on). `None`: not
/// known, as for streams and for the first packet. The kernel's stamp is of the wall clock: a step of that clock in
/// between falsifies the time.
#[allow(unsafe_code)]
pub fn arrived_ns(fd: BorrowedFd<'_>) -> Option<u64> {
    const SIOCGSTAMPNS: libc::Ioctl = 0x8907; // asm-generic/sockios.h
    let mut stamp = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the descriptor is borrowed for the call, and the kernel writes one timespec.
    if unsafe { libc::ioctl(fd.as_raw_fd(), SIOCGSTAMPNS, &mut stamp) } != 0 {
        return None;
    }
    let stamp = u64::try_from(stamp.tv_sec).ok()?.checked_mul(1_000_000_000)?.checked_add(stamp.tv_nsec as u64)?;
    let age = crate::clock::wall_ns().checked_sub(stamp)?;
    crate::clock::monotonic_ns().checked_sub(age)
}

/// Bytes of a connected stream that are not acknowledged, or have not left yet (SIOCOUTQ).
///
/// # Errors
/// The error of ioctl(2).
#[allow(unsafe_code)]
pub fn outstanding(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the descriptor is borrowed for the call, and the kernel writes one int.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &mut count) } {
        0 => Ok(usize::try_from(count).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Limits the kernel to this many bytes per second from this socket (SO_MAX_PACING_RATE); `None`: no limit. TCP paces
/// itself; datagrams are paced only by a queue discipline `fq` on the device.
///
/// # Errors
/// The error of setsockopt(2).
pub fn set_pace(fd: BorrowedFd<'_>, bytes_per_second: Option<u64>) -> io::Result<()> {
    let rate = bytes_per_second.unwrap_or(u64::MAX);
    set_option(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate.to_ne_bytes())
}

/// The pace in bytes per second; `None`: no limit.
///
/// # Errors
/// The error of getsockopt(2).
pub fn pace(fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    let mut rate = [0; 8];
    get_option(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut rate)?;
    Ok(Some(u64::from_ne_bytes(rate)).filter(|rate| *rate != u64::MAX))
}

/// An option of 32 bits.
pub(crate) fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<u32> {
    let mut value = [0; 4];
    get_option(fd, level, name, &mut value)?;
    Ok(u32::from_ne_bytes(value))
}

/// Sets an option to the bytes of its value.
///
/// # Errors
/// The error of setsockopt(2).
#[allow(unsafe_code)]
pub fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let size = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the call, and the value is `size` bytes long.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[allow(unsafe_code)]
fn get_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> io::Result<()> {
    let mut size = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the call, and the kernel writes at most `size` bytes, which the value has.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the socket's packets leave and arrive by this device only (SO_BINDTODEVICE).
///
/// # Errors
/// ENODEV for an unknown device; PermissionDenied without CAP_NET_RAW on kernels before 5.7.
pub fn bind_to_device(fd: BorrowedFd<'_>, device: &str) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())
}

/// Lets the kernel cut every datagram into ones of `bytes` each, of which the last may be shorter (UDP_SEGMENT; at
/// most 64 of them, 64 KiB in all).
///
/// # Errors
/// EINVAL for 0; the error of setsockopt(2) if the kernel is older than 4.18.
#[allow(unsafe_code)]
pub fn cut_datagrams(fd: BorrowedFd<'_>, bytes: u16) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    if bytes == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (value, size) = (i32::from(bytes), size_of::<i32>() as libc::socklen_t);
    // SAFETY: the descriptor is borrowed for the call, and the value is an i32 of the stated size.
    let answer = unsafe {
        let value = std::ptr::from_ref(&value).cast();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, size)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_travel_with_bytes() {
        let (a, b) = UnixStream::pair().unwrap();
        let (inner, outer) = UnixStream::pair().unwrap();
        send_with_descriptors(a.as_fd(), b"take", &[inner.as_fd()]).unwrap();
        let (mut buffer, mut got) = ([0; 16], Vec::new());
        assert_eq!(receive_with_descriptors(b.as_fd(), &mut buffer, &mut got).unwrap(), 4);
        assert_eq!(got.len(), 1);
        send(got[0].as_fd(), b"x").unwrap();
        assert_eq!(receive_stream(outer.as_fd(), &mut buffer, true).unwrap(), 1);
        assert_eq!(peer_user(&a).unwrap(), rustix::process::getuid().as_raw());
    }

    fn udp_pair() -> (std::net::UdpSocket, std::net::UdpSocket) {
        let [a, b] = [0, 0].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        (a, b)
    }

    #[test]
    fn datagrams_of_one_length_leave_in_one_call_and_come_in_one() {
        let (a, b) = udp_pair();
        assert!(cuts_datagrams(a.as_fd()));
        let parts: Vec<Vec<u8>> = (0..8).map(|n| vec![n; 250]).collect();
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        slices.push(IoSlice::new(b"end"));
        assert_eq!(send_segments(a.as_fd(), &slices, 500).unwrap(), 2003);
        let mut buffer = [0; 4096];
        for length in [500, 500, 500, 500, 3] {
            assert_eq!(receive(b.as_fd(), &mut buffer, true).unwrap(), length, "each by itself");
        }
        join_datagrams(b.as_fd()).unwrap();
        send_segments(a.as_fd(), &slices, 500).unwrap();
        assert_eq!(receive(b.as_fd(), &mut buffer, true).unwrap(), 2003);
        assert_eq!((&buffer[250..500], &buffer[2000..2003]), (&[1; 250][..], &b"end"[..]));
        // One alone, an empty one, and more than there is room for.
        for datagram in [&b"one"[..], b""] {
            send(a.as_fd(), datagram).unwrap();
            assert_eq!(receive(b.as_fd(), &mut buffer, true).unwrap(), datagram.len());
        }
        send_segments(a.as_fd(), &slices, 500).unwrap();
        assert_eq!(receive(b.as_fd(), &mut buffer[..700], true).unwrap(), 2003);
        assert_eq!(receive(b.as_fd(), &mut buffer, false).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_pace_is_read_back() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(pace(socket.as_fd()).unwrap(), None);
        for rate in [Some(2_500_000), Some(1 << 33), None] {
            set_pace(socket.as_fd(), rate).unwrap();
            assert_eq!(pace(socket.as_fd()).unwrap(), rate);
        }
    }

    #[test]
    fn the_groups_of_a_peer_are_all_of_its_groups() {
        let (a, _b) = UnixStream::pair().unwrap();
        let own = rustix::process::getgroups().unwrap().into_iter().map(|g| g.as_raw());
        let own: Vec<u32> = std::iter::once(rustix::process::getegid().as_raw()).chain(own).collect();
        assert_eq!(peer_groups(&a).unwrap(), own);
    }

    #[test]
    fn a_send_to_a_closed_peer_is_an_error_and_no_signal() {
        let (a, b) = UnixStream::pair().unwrap();
        drop(b);
        assert_eq!(send(a.as_fd(), b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
