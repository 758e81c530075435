//! Network interfaces and their addresses (getifaddrs(3)), their changes (rtnetlink(7)), and the users of connections
//! within the host (sock_diag(7)).

mod own_tcp;
mod tcp_user;
pub use own_tcp::{AtPort, descriptors};
pub use tcp_user::tcp_user;

use crate::netlink::{u16_at, u32_at};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
