//! Ends of SRv6 tunnels: a nexthop that puts packets into IPv6 with a routing header of one segment (RFC 8754), and the own segment, at which those of
//! the other end come out again (End.DT6, RFC 8986 §4.6). Packets have their traffic class and flow label outside, too: the kernel copies them.

use super::objects::Object;
use super::routes::{
    ENCAPSULATION, ENCAPSULATION_TYPE, LO, LOCAL, MAIN, NESTED, NEXTHOP, OURS, OUTPUT, ROUTE, UNICAST, address,
    nexthop, route, to_network,
};
use super::{Tunnel, message};
use crate::netlink::put;
use std::net::IpAddr;

const LACKS: &str = "kind = \"srv6\" needs Linux 5.3 or later with CONFIG_IPV6_SEG6_LWTUNNEL=y (Debian's has it); or state kind = \"vxlan\"";

/// What belongs to an end, in the order in which it is made.
pub(super) fn parts(tunnel: &Tunnel, index: u32) -> Vec<Object> {
    let Tunnel { device, id, local, remote, .. } = tunnel;
    let part = |kind, (body, command)| Object { kind, body, command, lacks: LACKS };
    let to_segment = format!("ip -6 nexthop add id {id} encap seg6 mode encap segs {remote} dev {device} proto {OURS}");
    let own_segment =
        format!("ip -6 route add {local}/128 encap seg6local action End.DT6 table {MAIN} dev {device} proto {OURS}");
    let mut parts = vec![
        part(NEXTHOP, (through(*id, index, *remote), to_segment)),
        part(ROUTE, (segment(*local, index), own_segment)),
    ];
    let Some(inside @ (own, _)) = tunnel.inside else { return parts };
    parts.push(part(message::ADDRESS, address(own, index, device)));
    // End.DT6 looks only into the table that it names, so the own address has to be there, too.
    let there = route(own, 128, LOCAL, &[(OUTPUT, &LO.to_ne_bytes())]);
    parts.push(part(ROUTE, (there, format!("ip -6 route add local {own}/128 dev lo table {MAIN} proto {OURS}"))));
    parts.extend(to_network(inside, *id).map(|made| part(ROUTE, made)));
    parts
}

/// `LWTUNNEL_ENCAP_SEG6`, `SEG6_IPTUN_MODE_ENCAP`
const SEG6: u16 = 5;
const ENCAP: u32 = 1;
/// Next header (the kernel's), length beyond 8 B in units of 8 B, type 4, segments left, last entry, flags, tag (RFC 8754 §2).
const ONE_SEGMENT: [u8; 8] = [0, 2, 4, 0, 0, 0, 0, 0];

/// A nexthop that leads to a segment.
fn through(id: u32, index: u32, remote: IpAddr) -> Vec<u8> {
    let mut inner = Vec::new();
    put(&mut inner, 1, &[&ENCAP.to_ne_bytes()[..], &ONE_SEGMENT, &message::octets(remote)].concat());
    nexthop(id, index, libc::AF_INET6 as u8, (SEG6, &inner))
}

/// `LWTUNNEL_ENCAP_SEG6_LOCAL`, and of it `SEG6_LOCAL_ACTION` with `SEG6_LOCAL_ACTION_END_DT6`, and `SEG6_LOCAL_TABLE`.
const SEG6_LOCAL: u16 = 7;
const ACTION: u16 = 1;
const END_DT6: u32 = 7;
const TABLE: u16 = 3;

fn segment(local: IpAddr, index: u32) -> Vec<u8> {
    let mut inner = Vec::new();
    put(&mut inner, ACTION, &END_DT6.to_ne_bytes());
    put(&mut inner, TABLE, &u32::from(MAIN).to_ne_bytes());
    let more: [(u16, &[u8]); 3] = [
        (OUTPUT, &index.to_ne_bytes()),
        (ENCAPSULATION_TYPE, &SEG6_LOCAL.to_ne_bytes()),
        (ENCAPSULATION | NESTED, &inner),
    ];
    route(local, 128, UNICAST, &more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::parts::commands;
    use qos::system::TunnelKind;

    fn end(inside: &str, length: u8) -> Tunnel {
        Tunnel {
            kind: TunnelKind::Srv6,
            device: "eth1".into(),
            id: 7,
            port: 4789,
            local: "fd97:1::7".parse().unwrap(),
            remote: "fd97:2::7".parse().unwrap(),
            mtu: 1436,
            inside: Some((inside.parse().unwrap(), length)),
        }
    }

    #[test]
    fn an_end_is_made_by_these_commands() {
        let made = commands(&end("fd98::1", 64));
        assert_eq!(
            made,
            [
                "ip -6 nexthop add id 7 encap seg6 mode encap segs fd97:2::7 dev eth1 proto 122",
                "ip -6 route add fd97:1::7/128 encap seg6local action End.DT6 table 254 dev eth1 proto 122",
                "ip -6 address add fd98::1/128 dev eth1 preferred_lft 0 nodad noprefixroute",
                "ip -6 route add local fd98::1/128 dev lo table 254 proto 122",
                "ip -6 route add fd98::/64 nhid 7 src fd98::1 proto 122",
            ]
        );
        assert_eq!(commands(&end("fd98::1", 128)), made[..4]);
        assert_eq!(commands(&Tunnel { inside: None, ..end("fd98::1", 64) }), made[..2]);
    }

    #[test]
    fn a_part_is_shown_with_more_but_not_with_less_or_other_values() {
        let all = parts(&end("fd98::1", 64), 2);
        let other = parts(&Tunnel { id: 8, remote: "fd97:3::7".parse().unwrap(), ..end("fd98::2", 64) }, 3);
        for (part, other) in all.iter().zip(&other) {
            let mut more = part.body.clone();
            put(&mut more, 20, &[0]);
            assert!(part.is_shown(&part.body) && part.is_shown(&more), "{}", part.command);
            assert!(!part.is_shown(&other.body) && !part.is_shown(&part.body[..12]), "{}", part.command);
        }
    }
}
