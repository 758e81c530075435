//! Network devices for traffic control, and the device by which a packet leaves.

use super::{QueueError, Reason};
use crate::netlink::{self, Socket, attribute, put, text, u32_at};
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub index: u32,
    pub name: String,
    /// `txqueuelen`, in packets.
    pub length: u32,
    pub largest: Largest,
    /// It is up and has a carrier.
    pub running: bool,
}

/// The largest unit that a device is given at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Largest {
    /// Bytes of the largest packet (`mtu`).
    pub mtu: u32,
    /// Bytes of the largest super-packet (`gso_max_size`).
    pub super_packet: u32,
    /// Segments of the largest super-packet (`gso_max_segs`).
    pub segments: u32,
}

/// `IFF_UP | IFF_RUNNING` (netdevice(7))
const UP_AND_RUNNING: u32 = 0x41;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NAME: u16 = 3;
const MTU: u16 = 4;
const QUEUE_LENGTH: u16 = 13;
const GSO_MAX_SEGMENTS: u16 = 40;
const GSO_MAX_SIZE: u16 = 41;
/// Written to, routes are looked up again.
const FLUSH: &str = "/proc/sys/net/ipv4/route/flush";
/// Limit of names (IFNAMSIZ).
const LONGEST_NAME: usize = 16;

/// The device with this name.
pub(crate) fn find(socket: &mut Socket, name: &str) -> Result<Device, QueueError> {
    let mut request = vec![0; 16];
    if name.is_empty() || name.len() >= LONGEST_NAME {
        return Err(QueueError::no_device(name));
    }
    put(&mut request, NAME, &[name.as_bytes(), &[0]].concat());
    look(socket, &request).and_then(|found| found.ok_or_else(|| QueueError::no_device(name)))
}

/// The device with this index, if there is one.
pub(crate) fn numbered(socket: &mut Socket, index: u32) -> Result<Option<Device>, QueueError> {
    let mut request = vec![0; 16];
    request[4..8].copy_from_slice(&index.to_ne_bytes());
    look(socket, &request)
}

fn look(socket: &mut Socket, request: &[u8]) -> Result<Option<Device>, QueueError> {
    match socket.ask(GET_LINK, 0, request)? {
        Ok(messages) => Ok(messages.iter().find(|m| m.kind == NEW_LINK).and_then(|m| device(&m.body))),
        Err(refusal) if refusal.errno == libc::ENODEV => Ok(None),
        Err(refusal) => Err(QueueError::refused("looking for a network device".to_owned(), refusal)),
    }
}

fn device(body: &[u8]) -> Option<Device> {
    let rest = body.get(16..)?;
    let number = |kind| attribute(rest, kind).and_then(|a| u32_at(a, 0)).unwrap_or(0);
    let largest = Largest { mtu: number(MTU), super_packet: number(GSO_MAX_SIZE), segments: number(GSO_MAX_SEGMENTS) };
    Some(Device {
        index: u32_at(body, 4)?,
        name: attribute(rest, NAME).map(text)?,
        length: number(QUEUE_LENGTH),
        largest,
        running: u32_at(body, 8)? & UP_AND_RUNNING == UP_AND_RUNNING,
    })
}

/// Sets the length of a device's own queue in packets.
pub(crate) fn set_length(socket: &mut Socket, index: u32, length: u32) -> Result<(), QueueError> {
    let mut request = vec![0; 16];
    request[4..8].copy_from_slice(&index.to_ne_bytes());
    put(&mut request, QUEUE_LENGTH, &length.to_ne_bytes());
    let answer = socket.ask(NEW_LINK, 0, &request)?;
    answer.map(drop).map_err(|r| QueueError::refused(format!("txqueuelen {length}"), r))
}

/// Sets the most segments of a super-packet that a device is given. Open connections ask for it when they look up their route again, so they are
/// made to, over IPv4 (the packet with which they do so still has the former size); `flushed`: that may not fail.
pub(crate) fn set_segments(socket: &mut Socket, index: u32, segments: u32, flushed: bool) -> Result<(), QueueError> {
    let mut request = vec![0; 16];
    request[4..8].copy_from_slice(&index.to_ne_bytes());
    put(&mut request, GSO_MAX_SEGMENTS, &segments.to_ne_bytes());
    let answer = socket.ask(NEW_LINK, 0, &request)?;
    answer.map_err(|r| QueueError::refused(format!("gso_max_segs {segments}"), r))?;
    match std::fs::write(FLUSH, "1") {
        Err(error) if flushed => Err(QueueError {
            what: format!("echo 1 > {FLUSH} (`ip route flush cache`)"),
            reason: Reason::Other(error),
            remedy: "open connections would go on to send larger super-packets: make the file writable".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// `true` if this device is there, is up, and has a carrier.
///
/// # Errors
/// The error of a netlink socket.
pub fn carrier(name: &str) -> io::Result<bool> {
    match find(&mut Socket::open()?, name) {
        Ok(device) => Ok(device.running),
        Err(QueueError { reason: Reason::NoDevice(_), .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The rate that a device has agreed on with the other end of its cable, bit/s. `None`: it does not say, is not there, or has no hardware behind it:
/// TAP and veth devices tell rates that they do not keep.
pub fn agreed_rate(name: &str) -> Option<u64> {
    agreed_in(Path::new("/sys/class/net"), name)
}

fn agreed_in(devices: &Path, name: &str) -> Option<u64> {
    let device = devices.join(name);
    let is_name = !name.contains('/') && name != "." && name != "..";
    if !is_name || !device.join("device").exists() {
        return None;
    }
    // Mbit/s; -1: unknown.
    let speed: i64 = std::fs::read_to_string(device.join("speed")).ok()?.trim().parse().ok()?;
    u64::try_from(speed).ok().filter(|speed| *speed > 0)?.checked_mul(1_000_000)
}

/// `true` if this device is there, or the kernel does not say.
pub fn exists(name: &str) -> bool {
    let found = Socket::open().map_err(QueueError::from).and_then(|mut socket| find(&mut socket, name));
    !matches!(found, Err(QueueError { reason: Reason::NoDevice(_), .. }))
}

/// The device by which packets from `local` to `peer` leave this network namespace (`ip route get PEER from LOCAL`).
/// An unspecified `local` leaves the choice to the kernel.
///
/// # Errors
/// No route, a local address that isn't this host's, or addresses of different families.
pub fn egress(local: IpAddr, peer: IpAddr) -> io::Result<String> {
    egress_device(local, peer).map(|device| device.name)
}

/// Largest super-packet that this device takes, in bytes (headers included) and packets.
///
/// # Errors
/// As [`egress`].
pub fn egress_super_packet(local: IpAddr, peer: IpAddr) -> io::Result<(u32, u32)> {
    egress_device(local, peer).map(|device| (device.largest.super_packet, device.largest.segments))
}

fn egress_device(local: IpAddr, peer: IpAddr) -> io::Result<Device> {
    let octets = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let (from, to) = (octets(local), octets(peer));
    if from.len() != to.len() && !local.is_unspecified() {
        return Err(no_route(local, peer));
    }
    let family = if to.len() == 4 { libc::AF_INET } else { libc::AF_INET6 };
    let bits = |address: &[u8]| (address.len() * 8) as u8;
    let mut request = vec![family as u8, bits(&to), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    put(&mut request, 1, &to);
    if !local.is_unspecified() {
        request[2] = bits(&from);
        put(&mut request, 2, &from);
    }
    let mut socket = Socket::open()?;
    let messages = socket.ask(GET_ROUTE, 0, &request)?.map_err(|r| explain(r, local, peer))?;
    let out = |m: &netlink::Message| attribute(m.body.get(12..)?, 4).and_then(|a| u32_at(a, 0));
    let index = messages.iter().find(|m| m.kind == NEW_ROUTE).and_then(out);
    let device = numbered(&mut socket, index.ok_or_else(|| no_route(local, peer))?).map_err(io::Error::from)?;
    device.ok_or_else(|| no_route(local, peer))
}

fn explain(refusal: netlink::Refusal, local: IpAddr, peer: IpAddr) -> io::Error {
    let error = io::Error::from(refusal);
    io::Error::new(error.kind(), format!("no way from {local} to {peer}: {error}"))
}

fn no_route(local: IpAddr, peer: IpAddr) -> io::Error {
    io::Error::new(io::ErrorKind::NetworkUnreachable, format!("no way from {local} to {peer}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn this_host_is_reached_by_loopback() {
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(egress(v4, v4).unwrap(), "lo");
        assert_eq!(egress(Ipv4Addr::UNSPECIFIED.into(), v4).unwrap(), "lo");
        assert_eq!(egress(v4, IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped())).unwrap(), "lo");
        let foreign = egress(Ipv6Addr::LOCALHOST.into(), v4).unwrap_err();
        assert!(foreign.to_string().contains("from ::1 to 127.0.0.1"), "{foreign}");
    }

    #[test]
    fn a_device_that_is_not_there_has_no_carrier() {
        assert!(carrier("lo").unwrap());
        assert!(!carrier("nothere").unwrap());
        assert!(exists("lo") && !exists("nothere"));
    }

    #[test]
    fn only_devices_with_hardware_tell_a_rate() {
        assert_eq!([agreed_rate("lo"), agreed_rate("nothere"), agreed_rate("../net/lo")], [None; 3]);
        let root = std::env::temp_dir().join(format!("thalweg-devices-{}", std::process::id()));
        let told = |speed: &str, hardware: bool| {
            let _ = std::fs::remove_dir_all(&root);
            std::fs::create_dir_all(root.join("eth0")).unwrap();
            std::fs::write(root.join("eth0/speed"), speed).unwrap();
            if hardware {
                std::fs::create_dir(root.join("eth0/device")).unwrap();
            }
            agreed_in(&root, "eth0")
        };
        assert_eq!((told("100\n", true), told("100\n", false)), (Some(100_000_000), None));
        assert_eq!(["-1\n", "0\n", "", "fast", &i64::MAX.to_string()].map(|speed| told(speed, true)), [None; 5]);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn devices_are_found_by_name_and_number() {
        let mut socket = Socket::open().unwrap();
        let lo = find(&mut socket, "lo").unwrap();
        assert_eq!(numbered(&mut socket, lo.index).unwrap(), Some(lo));
        for bad in ["", "nothere", "a-name-that-is-much-too-long"] {
            assert!(find(&mut socket, bad).unwrap_err().to_string().contains(bad));
        }
    }
}
