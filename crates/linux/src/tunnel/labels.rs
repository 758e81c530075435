//! Ends of MPLS tunnels: a nexthop that puts a label before packets (RFC 3032), rules that give the label the traffic class of the packet behind
//! it (the kernel gives it 0), and a route by which packets of the other end that have this label come out again, at `lo`.

use super::Tunnel;
use super::message::{self, ADDRESS};
use super::objects::Object;
use super::parts::Part;
use super::routes::{
    AF_MPLS, DESTINATION, LO, MAIN, NEXTHOP, OURS, OUTPUT, ROUTE, UNICAST, address, family, nexthop, to_network,
};
use super::rules::Rules;
use super::settings::Least;
use crate::netlink::put;
use crate::queueing::traffic_class;
use qos::priority::Dscp;
use std::fmt::Write as _;
use std::net::IpAddr;

pub(super) const LACKS: &str = "kind = \"mpls\" needs Linux 5.16 or later with MPLS (`modprobe mpls_iptunnel`; Debian's has it); or state kind = \"vxlan\"";

/// What belongs to an end, in the order in which it is made: the nexthop first, because it loads the kernel's module.
pub(super) fn parts(tunnel: &Tunnel, index: u32) -> Vec<Part> {
    let Tunnel { device, id, remote, .. } = tunnel;
    let object = |kind, (body, command)| Part::Object(Object { kind, body, command, lacks: LACKS });
    let command = format!("ip nexthop add id {id} via {remote} dev {device} encap mpls {id} proto {OURS}");
    let mut parts = vec![object(NEXTHOP, (pushing(*id, index, *remote), command)), Part::Rules(rules(device, *id))];
    parts.extend(settings(tunnel).into_iter().map(Part::Setting));
    parts.push(object(ROUTE, (popping(*id), format!("ip -f mpls route add {id} dev lo proto {OURS}"))));
    let Some(inside @ (own, _)) = tunnel.inside else { return parts };
    parts.push(object(ADDRESS, address(own, index, device)));
    parts.extend(to_network(inside, *id).map(|made| object(ROUTE, made)));
    parts
}

/// What the kernel needs to take packets with the label in by the device.
pub(super) fn settings(Tunnel { device, id, .. }: &Tunnel) -> [Least; 2] {
    [
        Least { name: "net/mpls/platform_labels".to_owned(), value: id.saturating_add(1) },
        Least { name: format!("net/mpls/conf/{device}/input"), value: 1 },
    ]
}

/// A label at the bottom of the stack, without traffic class and TTL.
fn entry(label: u32) -> [u8; 4] {
    (label << 12 | 1 << 8).to_be_bytes()
}

/// `LWTUNNEL_ENCAP_MPLS`, and of it `MPLS_IPTUNNEL_DST`; `NHA_GATEWAY`
const MPLS: u16 = 1;
const LABELS: u16 = 1;
const GATEWAY: u16 = 6;

/// A nexthop that puts a label before packets to a neighbour.
fn pushing(id: u32, index: u32, remote: IpAddr) -> Vec<u8> {
    let mut inner = Vec::new();
    put(&mut inner, LABELS, &entry(id));
    let mut body = nexthop(id, index, family(remote), (MPLS, &inner));
    put(&mut body, GATEWAY, &message::octets(remote));
    body
}

/// Bits of a label.
const LENGTH: u8 = 20;

/// A route that takes the label away, and the packet as one that came in by `lo`.
fn popping(id: u32) -> Vec<u8> {
    let mut body = vec![AF_MPLS, LENGTH, 0, 0, MAIN, OURS, 0, UNICAST, 0, 0, 0, 0];
    put(&mut body, DESTINATION, &entry(id));
    put(&mut body, OUTPUT, &LO.to_ne_bytes());
    body
}

/// The rules that write a label's traffic class. `nft` 1.0.6 ends itself when it lists a rule that asks for the protocol and for bits of the
/// network header, so these questions stand in chains of their own.
fn rules(device: &str, id: u32) -> Rules {
    let table = format!("thalweg_mpls_{id}");
    let classes: String = [(4, 40), (6, 36)].map(|(version, at)| classes(version, at)).concat();
    let script = format!(
        "table netdev {table} {{
  chain classes {{
{classes}  }}
  chain own {{
    @nh,0,20 {id} @nh,23,1 1 jump classes
  }}
  chain out {{
    type filter hook egress device \"{device}\" priority 0; policy accept;
    meta protocol 0x8847 jump own
  }}
}}
"
    );
    Rules { table, script }
}

/// The rules for packets of a version, whose code point begins at bit `at`: code points whose class is another one than their class selector
/// says, then class selectors (the three upper bits).
fn classes(version: u8, at: u8) -> String {
    let class = |dscp: u8| Dscp::new(dscp).map_or(0, traffic_class);
    // Most code points of a selector have the class of its last one.
    let others = (0..64).filter(|dscp| class(*dscp) != class(dscp | 7)).map(|dscp| (6, dscp, class(dscp)));
    let selectors = (1..8).map(|selector| (3, selector, class(selector << 3 | 7)));
    others.chain(selectors).fold(String::new(), |mut rules, (bits, value, class)| {
        let _ = writeln!(rules, "    @nh,32,4 {version} @nh,{at},{bits} {value} @nh,20,3 set {class} accept");
        rules
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute;
    use crate::tunnel::parts::commands;
    use qos::system::TunnelKind;

    fn end(remote: &str, inside: &str, length: u8) -> Tunnel {
        Tunnel {
            kind: TunnelKind::Mpls,
            device: "eth1".into(),
            id: 100,
            port: 4789,
            local: "10.97.1.2".parse().unwrap(),
            remote: remote.parse().unwrap(),
            mtu: 1496,
            inside: Some((inside.parse().unwrap(), length)),
        }
    }

    #[test]
    fn an_end_is_made_by_these_commands() {
        let mut made = commands(&end("10.97.1.1", "10.98.0.2", 30));
        let rules = made.remove(1);
        assert_eq!(
            made,
            [
                "ip nexthop add id 100 via 10.97.1.1 dev eth1 encap mpls 100 proto 122",
                "sysctl -w net/mpls/platform_labels=101",
                "sysctl -w net/mpls/conf/eth1/input=1",
                "ip -f mpls route add 100 dev lo proto 122",
                "ip address add 10.98.0.2/32 dev eth1",
                "ip route add 10.98.0.0/30 nhid 100 src 10.98.0.2 proto 122",
            ]
        );
        assert!(rules.starts_with("nft -f - <<'END'\ntable netdev thalweg_mpls_100 {\n"), "{rules}");
        for line in [
            "@nh,32,4 4 @nh,40,6 1 @nh,20,3 set 1 accept",
            "@nh,32,4 6 @nh,36,6 44 @nh,20,3 set 5 accept",
            "@nh,32,4 4 @nh,40,6 46 @nh,20,3 set 5 accept",
            "@nh,32,4 4 @nh,40,6 40 @nh,20,3 set 3 accept",
            "@nh,32,4 4 @nh,40,3 5 @nh,20,3 set 4 accept",
            "@nh,32,4 6 @nh,36,3 3 @nh,20,3 set 4 accept",
            "@nh,32,4 6 @nh,36,3 1 @nh,20,3 set 1 accept",
            "@nh,0,20 100 @nh,23,1 1 jump classes",
        ] {
            assert!(rules.contains(line), "{line} is not in {rules}");
        }
        let v6 = commands(&end("fd97::1", "fd98::2", 128));
        assert_eq!(v6.last().unwrap(), "ip -6 address add fd98::2/128 dev eth1 preferred_lft 0 nodad noprefixroute");
    }

    #[test]
    fn a_label_is_an_entry_at_the_bottom_of_the_stack() {
        assert_eq!(entry(100), [0, 6, 0x41, 0]);
        let all = parts(&end("10.97.1.1", "10.98.0.2", 30), 2);
        let Some(Part::Object(route)) = all.get(4) else { panic!("no route") };
        assert_eq!(attribute(&route.body[12..], DESTINATION), Some(&entry(100)[..]));
        let other = Object { body: popping(101), ..route.clone() };
        assert!(route.is_shown(&route.body) && !route.is_shown(&other.body));
    }
}
