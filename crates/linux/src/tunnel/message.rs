//! Netlink messages about VXLAN devices and their addresses (rtnetlink(7), linux/if_link.h).

use super::{Found, Tunnel};
use crate::netlink::{attribute, put, text, u16_at, u32_at};
use qos::system::TunnelKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Messages about links begin here (`RTM_NEWLINK`), those about addresses there (`RTM_NEWADDR`); then come delete and get.
pub(super) const LINK: u16 = 16;
pub(super) const ADDRESS: u16 = 20;
pub(super) const NEW: u16 = 0;
pub(super) const DELETE: u16 = 1;
pub(super) const GET: u16 = 2;

/// `IFF_UP`
const UP: u32 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LINK_INFO: u16 = 18;
const KIND: u16 = 1;
const DATA: u16 = 2;
/// Attributes of VXLAN (`IFLA_VXLAN_…`).
const ID: u16 = 1;
const REMOTE: [u16; 2] = [2, 16];
const LOCAL: [u16; 2] = [4, 17];
const TOS: u16 = 6;
const LEARNING: u16 = 7;
const PORT: u16 = 15;
/// The outer mark is the inner one.
const INHERIT: u8 = 1;

/// `ifinfomsg` with a device's number and flags to set.
fn head(index: u32, flags: u32) -> Vec<u8> {
    let mut head = vec![0; 4];
    for number in [index, flags, flags] {
        head.extend(number.to_ne_bytes());
    }
    head
}

pub(super) fn numbered(index: u32) -> Vec<u8> {
    head(index, 0)
}

pub(super) fn named(device: &str) -> Vec<u8> {
    let mut request = head(0, 0);
    put(&mut request, NAME, &[device.as_bytes(), &[0]].concat());
    request
}

/// The device as it is made: up, at once.
pub(super) fn link(Tunnel { device, id, port, local, remote, mtu, .. }: &Tunnel) -> Vec<u8> {
    let mut data = Vec::new();
    put(&mut data, ID, &id.to_ne_bytes());
    for (kinds, address) in [(REMOTE, remote), (LOCAL, local)] {
        put(&mut data, kinds[usize::from(address.is_ipv6())], &octets(*address));
    }
    put(&mut data, TOS, &[INHERIT]);
    put(&mut data, LEARNING, &[0]);
    put(&mut data, PORT, &port.to_be_bytes());
    let mut info = Vec::new();
    put(&mut info, KIND, b"vxlan\0");
    put(&mut info, DATA, &data);
    let mut request = head(0, UP);
    put(&mut request, NAME, &[device.as_bytes(), &[0]].concat());
    put(&mut request, MTU, &mtu.to_ne_bytes());
    put(&mut request, LINK_INFO, &info);
    request
}

/// The tunnel that a device is; `None`: another kind of device.
pub(super) fn read(body: &[u8]) -> Option<Found> {
    let rest = body.get(16..)?;
    let info = attribute(rest, LINK_INFO)?;
    if attribute(info, KIND).map(text)? != "vxlan" {
        return None;
    }
    let data = attribute(info, DATA)?;
    let flag = |kind| attribute(data, kind).and_then(|value| value.first().copied());
    let end = |kinds: [u16; 2]| {
        kinds.iter().find_map(|kind| attribute(data, *kind)).map_or(Some(Ipv4Addr::UNSPECIFIED.into()), address_of)
    };
    let tunnel = Tunnel {
        kind: TunnelKind::Vxlan,
        device: attribute(rest, NAME).map(text)?,
        id: attribute(data, ID).and_then(|value| u32_at(value, 0))?,
        port: attribute(data, PORT).and_then(|value| u16_at(value, 0)).map(u16::from_be)?,
        local: end(LOCAL)?,
        remote: end(REMOTE)?,
        mtu: attribute(rest, MTU).and_then(|value| u32_at(value, 0))?,
        inside: None,
    };
    let is_up = u32_at(body, 8)? & UP != 0;
    let is_ready = is_up && flag(TOS) == Some(INHERIT) && flag(LEARNING) == Some(0);
    Some(Found { index: u32_at(body, 4)?, tunnel, is_ready })
}

/// `IFA_F_NODAD`: the address is usable at once.
const NO_DETECTION: u8 = 2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// The address of a device.
pub(super) fn address(index: u32, address: IpAddr, length: u8) -> Vec<u8> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let flags = if address.is_ipv4() { 0 } else { NO_DETECTION };
    let mut request = vec![family as u8, length, flags, 0];
    request.extend(index.to_ne_bytes());
    put(&mut request, IFA_LOCAL, &octets(address));
    put(&mut request, IFA_ADDRESS, &octets(address));
    request
}

/// All addresses of this family.
pub(super) fn addresses(family: i32) -> Vec<u8> {
    vec![family as u8, 0, 0, 0, 0, 0, 0, 0]
}

/// The device's number, the address and the length of its network.
pub(super) fn read_address(body: &[u8]) -> Option<(u32, IpAddr, u8)> {
    let rest = body.get(8..)?;
    let found = attribute(rest, IFA_LOCAL).or_else(|| attribute(rest, IFA_ADDRESS)).and_then(address_of)?;
    Some((u32_at(body, 4)?, found, *body.get(1)?))
}

/// The number of a device of any kind, and its MTU.
pub(super) fn device(body: &[u8]) -> Option<(u32, u32)> {
    let mtu = attribute(body.get(16..)?, MTU).and_then(|value| u32_at(value, 0))?;
    Some((u32_at(body, 4)?, mtu))
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn address_of(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(|v4| Ipv4Addr::from(v4).into()),
        16 => <[u8; 16]>::try_from(octets).ok().map(|v6| Ipv6Addr::from(v6).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tunnel_is_read_as_it_is_asked_for() {
        for (local, remote) in [("10.97.1.1", "10.97.1.2"), ("fd00::1", "fd00::2")] {
            let tunnel = Tunnel {
                kind: TunnelKind::Vxlan,
                device: "vx".into(),
                id: 0x00ab_cdef,
                port: 4789,
                local: local.parse().unwrap(),
                remote: remote.parse().unwrap(),
                mtu: 1450,
                inside: None,
            };
            let found = read(&link(&tunnel)).unwrap();
            assert_eq!(found, Found { index: 0, tunnel, is_ready: true });
        }
        assert_eq!(read(&named("eth0")), None);
        let inside = "10.98.0.1".parse().unwrap();
        assert_eq!(read_address(&address(7, inside, 30)), Some((7, inside, 30)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (read(&bytes), read_address(&bytes), device(&bytes));
        }
    }
}
