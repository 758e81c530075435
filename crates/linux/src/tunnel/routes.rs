//! Netlink messages about nexthops and routes (rtnetlink(7), linux/nexthop.h), and about addresses without a network.
//!
//! All routes have a protocol number of our own (`rtm_protocol`), so those of others are never taken for ours, nor ours for theirs.

use super::message;
use crate::netlink::{put, words};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Messages about routes begin here (`RTM_NEWROUTE`), those about nexthops there (`RTM_NEWNEXTHOP`); then come delete and get.
pub(super) const ROUTE: u16 = 24;
pub(super) const NEXTHOP: u16 = 104;
/// The protocol of our routes: one that rtnetlink.h gives nobody.
pub(super) const OURS: u8 = 122;
/// `RT_TABLE_MAIN`
pub(super) const MAIN: u8 = 254;
/// Labels of MPLS as an address family.
pub(super) const AF_MPLS: u8 = 28;
/// The number of `lo` in each network namespace.
pub(super) const LO: u32 = 1;
/// Types of routes: `RTN_UNICAST`, `RTN_LOCAL`.
pub(super) const UNICAST: u8 = 1;
pub(super) const LOCAL: u8 = 2;
pub(super) const NESTED: u16 = 0x8000;

/// Attributes of nexthops (`NHA_…`).
pub(super) const NEXTHOP_ID: u16 = 1;
const NEXTHOP_OUTPUT: u16 = 5;
const NEXTHOP_ENCAPSULATION_TYPE: u16 = 7;
const NEXTHOP_ENCAPSULATION: u16 = 8;

/// Attributes of routes (`RTA_…`).
pub(super) const DESTINATION: u16 = 1;
pub(super) const OUTPUT: u16 = 4;
const SOURCE: u16 = 7;
pub(super) const ENCAPSULATION_TYPE: u16 = 21;
pub(super) const ENCAPSULATION: u16 = 22;
const BY_NEXTHOP: u16 = 30;

/// The address family.
pub(super) fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// The program for it, with its option.
pub(super) fn ip(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ip" } else { "ip -6" }
}

/// A nexthop by a device, with an encapsulation: its type and its attributes.
pub(super) fn nexthop(id: u32, index: u32, family: u8, (kind, inner): (u16, &[u8])) -> Vec<u8> {
    let mut body = vec![family, 0, OURS, 0, 0, 0, 0, 0];
    put(&mut body, NEXTHOP_ID, &id.to_ne_bytes());
    put(&mut body, NEXTHOP_OUTPUT, &index.to_ne_bytes());
    put(&mut body, NEXTHOP_ENCAPSULATION_TYPE, &kind.to_ne_bytes());
    put(&mut body, NEXTHOP_ENCAPSULATION | NESTED, inner);
    body
}

/// A route of a type.
pub(super) fn route(to: IpAddr, length: u8, of: u8, more: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = vec![family(to), length, 0, 0, MAIN, OURS, 0, of, 0, 0, 0, 0];
    put(&mut body, DESTINATION, &message::octets(to));
    more.iter().for_each(|(kind, value)| put(&mut body, *kind, value));
    body
}

/// The route by a nexthop to the network of an address, which is the sender's, and its command. `None`: it is alone there.
pub(super) fn to_network((own, length): (IpAddr, u8), id: u32) -> Option<(Vec<u8>, String)> {
    let network: IpAddr = match own {
        IpAddr::V4(v4) if length < 32 => Ipv4Addr::from(u32::from(v4) & !(u32::MAX >> length)).into(),
        IpAddr::V6(v6) if length < 128 => Ipv6Addr::from(u128::from(v6) & !(u128::MAX >> length)).into(),
        _ => return None,
    };
    let more: [(u16, &[u8]); 2] = [(BY_NEXTHOP, &id.to_ne_bytes()), (SOURCE, &message::octets(own))];
    let command = format!("{} route add {network}/{length} nhid {id} src {own} proto {OURS}", ip(own));
    Some((route(network, length, UNICAST, &more), command))
}

/// `IFA_CACHEINFO`, `IFA_FLAGS`
const LIFETIME: u16 = 6;
const FLAGS: u16 = 8;
/// `IFA_F_NODAD | IFA_F_NOPREFIXROUTE`: usable at once, and without a route of the kernel's own.
const PLAIN: u32 = 0x202;

/// An address of a device without a network, and its command. One of IPv6 is deprecated from the start, so that what is sent outside does not
/// have it; the route to the other end's network names it.
pub(super) fn address(own: IpAddr, index: u32, device: &str) -> (Vec<u8>, String) {
    if own.is_ipv4() {
        return (message::address(index, own, 32), format!("ip address add {own}/32 dev {device}"));
    }
    let mut body = message::address(index, own, 128);
    put(&mut body, FLAGS, &PLAIN.to_ne_bytes());
    put(&mut body, LIFETIME, &words([0, u32::MAX, 0, 0]));
    (body, format!("ip -6 address add {own}/128 dev {device} preferred_lft 0 nodad noprefixroute"))
}
