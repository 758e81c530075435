//! Network interfaces and their addresses (getifaddrs(3)).

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface's name, such as `eth0`.
    pub name: String,
    /// Its index, as socket options want it.
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
/// What getifaddrs(3) says.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found() {
        let found = interfaces().unwrap();
        let lo = found.iter().find(|i| i.address == IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert!(lo.loopback && lo.up && lo.index > 0, "{lo:?}");
    }
}
