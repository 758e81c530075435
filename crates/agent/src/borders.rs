//! A plan at the borders of its domain, on one of its hosts: ends of tunnels, and what may come in from neighbours.

use crate::queues::{Unfit, labelled};
use linux::queueing::{self, Boundary, Hook, Pair};
use linux::tunnel::Tunnel;
use qos::contract::{DEVICE, is_device};
use qos::plan::{Admitted, Border, Limit, Plan, TunnelEnd};
use qos::system::NodeKind;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Most ends of tunnels of a host.
const MOST_TUNNELS: usize = 256;
/// Sizes that a packet in a tunnel may have: IPv4 takes no less (RFC 791 §3.2).
const SIZES: std::ops::RangeInclusive<u32> = 68..=65_535;
/// The device by which packets come in that had a label (MPLS), whatever device they came to.
const OUT_OF_LABELS: &str = "lo";

/// The ends of tunnels of the node `host`.
///
/// # Errors
/// A value of the plan is not allowed.
pub fn tunnels(plan: &Plan, host: &str) -> Result<Vec<Tunnel>, Unfit> {
    let own: Vec<&TunnelEnd> = plan.tunnels.iter().filter(|one| one.node == host).collect();
    if own.len() > MOST_TUNNELS {
        let count = own.len();
        return Err(Unfit::Altered(format!(
            "the plan has {count} ends of tunnels at {host}: allowed are {MOST_TUNNELS}"
        )));
    }
    let same = |one: &TunnelEnd, other: &TunnelEnd| {
        let of_routes = !one.kind.has_device() && !other.kind.has_device();
        one.device == other.device || of_routes && (one.id == other.id || one.local == other.local)
    };
    let twice = own.iter().enumerate().find(|(at, one)| own[..*at].iter().any(|other| same(one, other)));
    if let Some((_, one)) = twice {
        return Err(Unfit::Altered(format!(
            "the plan has two tunnels of device {:?}, id {} or address {} at {host}: allowed is each once",
            one.device, one.id, one.local
        )));
    }
    own.into_iter().map(tunnel).collect()
}

fn tunnel(end: &TunnelEnd) -> Result<Tunnel, Unfit> {
    let TunnelEnd { kind, device, id, port, local, remote, mtu, inside, .. } = end.clone();
    let altered = |what: String, allowed: &str| {
        Err(Unfit::Altered(format!("the plan has {what} for tunnel {device:?}: allowed is {allowed}")))
    };
    let longest = |(address, _): (std::net::IpAddr, u8)| if address.is_ipv4() { 32 } else { 128 };
    let numbers = kind.numbers();
    let misfit = kind.misfit([local, remote], inside.map(|(address, _)| address));
    match () {
        () if !is_device(&device) => altered(format!("device {device:?}"), DEVICE),
        () if !numbers.contains(&id) => {
            altered(format!("id {id}"), &format!("{} to {}", numbers.start(), numbers.end()))
        }
        () if port == 0 => altered("port 0".to_owned(), "1 to 65535"),
        () if !SIZES.contains(&mtu) => altered(format!("mtu {mtu}"), "68 to 65535"),
        () if inside.is_some_and(|inside| !(1..=longest(inside)).contains(&inside.1)) => {
            altered("inside".to_owned(), "an address with the length of its network")
        }
        () if misfit.is_some() => {
            altered(format!("the ends {local} and {remote}, and what is inside,"), misfit.unwrap_or_default())
        }
        () => Ok(Tunnel { kind, device, id, port, local, remote, mtu, inside }),
    }
}

/// The borders of the node `host`, with the flows of sessions that may come in.
///
/// # Errors
/// A value of the plan is not allowed.
pub fn boundaries(plan: &Plan, host: &str) -> Result<Vec<Boundary>, Unfit> {
    let is_switch = plan.nodes.iter().any(|node| node.name == host && node.kind == NodeKind::Switch);
    let hook = if is_switch { Hook::Bridge } else { Hook::Router };
    let own: Vec<&Border> = plan.borders.iter().filter(|one| one.node == host).collect();
    let behind: Vec<&Border> = own.iter().copied().filter(|one| labelled(plan, host, &one.device)).collect();
    let of = |device: &str, border: &Border, all: &[&Border]| {
        let is_its = |one: &&Admitted| all.iter().any(|border| border.neighbour == one.neighbour);
        boundary(device, border, pairs(plan.admitted.iter().filter(is_its))?, hook)
    };
    let each = own.iter().map(|border| of(&border.device, border, &[*border]));
    // Borders of one host reserve the same classes.
    each.chain(behind.first().map(|border| of(OUT_OF_LABELS, border, &behind))).collect()
}

fn boundary(device: &str, border: &Border, pairs: Vec<Pair>, hook: Hook) -> Result<Boundary, Unfit> {
    let (device, Border { classes, instead, .. }) = (device.to_owned(), border.clone());
    if !is_device(&device) {
        return Err(Unfit::Altered(format!("the plan has device {device:?} for a border: allowed is {DEVICE}")));
    }
    if classes.contains(&instead) {
        let class = instead.name();
        return Err(Unfit::Altered(format!(
            "the plan reserves class {class} at {device}, and gives it to all others: plan anew"
        )));
    }
    Ok(Boundary { device, hook, classes, instead, flows: Vec::new(), pairs })
}

/// The class of a session's packets, and their two hosts.
pub(crate) type Between = (qos::Class, IpAddr, IpAddr);

/// What each two hosts may send in a class: the limits of all sessions between them together, of each in that of its versions that may send most.
/// One without a limit has none for any.
fn pairs<'a>(admitted: impl Iterator<Item = &'a Admitted>) -> Result<Vec<Pair>, Unfit> {
    let mut all: BTreeMap<Between, BTreeMap<&str, Option<Limit>>> = BTreeMap::new();
    for Admitted { session, class, source, destination, limit, .. } in admitted {
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(Unfit::Altered(format!(
                "the plan admits {source} to {destination}: allowed are two addresses of one IP version"
            )));
        }
        let of_pair = all.entry((*class, *source, *destination)).or_default();
        let of_session = of_pair.entry(session.as_str()).or_insert(*limit);
        *of_session = of_session.zip(*limit).map(|(one, other)| one.max(other));
    }
    let pair = |((class, source, destination), limits): (Between, BTreeMap<&str, Option<Limit>>)| {
        let limits = limits.into_values().collect::<Option<Vec<Limit>>>();
        let limit = limits.map(|limits| of_kernel(limits.into_iter().fold(Limit::default(), Limit::with)));
        Pair { class, source, destination, limit }
    };
    Ok(all.into_iter().map(pair).collect())
}

fn of_kernel(limit: Limit) -> queueing::Limit {
    let Limit { rate_bits_per_s, burst_bytes, packets_per_hour, packets, packet_bytes } = limit;
    let packet = u32::try_from(packet_bytes).unwrap_or(u32::MAX);
    queueing::Limit { rate: rate_bits_per_s.div_ceil(8), burst: burst_bytes, packets_per_hour, packets, packet }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::Class;
    use qos::system::TunnelKind;

    fn plan() -> Plan {
        let end = |node: &str, local: &str, remote: &str| TunnelEnd {
            node: node.into(),
            kind: TunnelKind::Vxlan,
            device: "vx".into(),
            id: 7,
            port: 4789,
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            mtu: 1450,
            inside: Some(("10.98.0.1".parse().unwrap(), 30)),
        };
        let border = Border {
            node: "rw".into(),
            device: "last".into(),
            neighbour: "robot".into(),
            classes: vec![Class::High, Class::Critical],
            instead: Class::Normal,
        };
        let admitted = |neighbour: &str| Admitted {
            session: "robot/video".into(),
            neighbour: neighbour.into(),
            class: Class::High,
            source: "10.97.0.1".parse().unwrap(),
            destination: "10.97.2.2".parse().unwrap(),
            limit: None,
        };
        Plan {
            tunnels: vec![end("rw", "10.97.1.1", "10.97.1.2"), end("wb", "fd00::2", "fd00::1")],
            borders: vec![border],
            admitted: vec![admitted("robot"), admitted("base")],
            ..Plan::default()
        }
    }

    #[test]
    fn a_host_gets_its_own_ends_and_borders() {
        let plan = plan();
        let one = tunnels(&plan, "rw").unwrap();
        assert_eq!((one.len(), one[0].mtu, one[0].remote), (1, 1450, "10.97.1.2".parse().unwrap()));
        let found = boundaries(&plan, "rw").unwrap();
        assert_eq!((found.len(), found[0].pairs.len(), found[0].hook), (1, 1, Hook::Router));
        assert_eq!((boundaries(&plan, "wb").unwrap(), tunnels(&plan, "cam").unwrap()), (Vec::new(), Vec::new()));
    }

    #[test]
    fn what_comes_out_of_a_label_meets_the_border_too() {
        let mut plan = plan();
        (plan.tunnels[0].kind, plan.tunnels[0].device) = (TunnelKind::Mpls, "last".into());
        let other = Border { device: "other".into(), neighbour: "base".into(), ..plan.borders[0].clone() };
        plan.borders.push(other);
        let found = |plan: &Plan| -> Vec<(String, usize)> {
            boundaries(plan, "rw").unwrap().into_iter().map(|one| (one.device, one.pairs.len())).collect()
        };
        let expected = [("last", 1), ("other", 1), ("lo", 1)].map(|(device, pairs)| (device.to_owned(), pairs));
        assert_eq!(found(&plan), expected);
        // From two neighbours: both come in there.
        plan.tunnels.push(TunnelEnd { device: "other".into(), id: 8, ..plan.tunnels[0].clone() });
        plan.admitted[1].source = "10.97.3.1".parse().unwrap();
        assert_eq!(found(&plan)[2], ("lo".to_owned(), 2));
        plan.tunnels.iter_mut().for_each(|end| end.kind = TunnelKind::Vxlan);
        assert_eq!(found(&plan), expected[..2]);
    }

    #[test]
    fn two_hosts_may_send_what_all_sessions_between_them_may() {
        let limit = |packets| Limit {
            rate_bits_per_s: 8 * packets + 1,
            burst_bytes: packets,
            packets_per_hour: packets,
            packets,
            packet_bytes: 1500,
        };
        let of = |session: &str, limit| Admitted { session: session.into(), limit, ..plan().admitted[0].clone() };
        let found = |admitted: Vec<Admitted>| {
            let found = boundaries(&Plan { admitted, ..plan() }, "rw").unwrap();
            let [pair] = &found[0].pairs[..] else { panic!("{found:?}") };
            pair.limit
        };
        // A session that is being changed, and another one.
        let all = vec![of("a", Some(limit(4))), of("b", Some(limit(10))), of("a", Some(limit(3)))];
        let both = queueing::Limit { rate: 15, burst: 14, packets_per_hour: 14, packets: 14, packet: 1500 };
        assert_eq!(found(all.clone()), Some(both));
        let unlimited = of("c", None);
        assert_eq!(found([all, vec![unlimited]].concat()), None, "nobody is told from the one without");
    }

    #[test]
    fn a_plan_that_was_changed_by_hand_is_checked() {
        type Change = fn(&mut Plan);
        let changes: [(Change, &str); 9] = [
            (|plan| plan.tunnels[0].kind = TunnelKind::Mpls, "16 to 1048574"),
            (|plan| plan.tunnels[0].kind = TunnelKind::Srv6, "two IPv6 addresses"),
            (|plan| plan.tunnels[0].device = "a b".into(), "device \"a b\""),
            (|plan| plan.tunnels[0].id = 1 << 24, "1 to 16777215"),
            (|plan| plan.tunnels[0].port = 0, "1 to 65535"),
            (|plan| plan.tunnels[0].mtu = 67, "68 to 65535"),
            (|plan| plan.tunnels[0].remote = plan.tunnels[0].local, "one IP version"),
            (|plan| plan.tunnels[0].inside = Some(("10.98.0.1".parse().unwrap(), 33)), "length of its network"),
            (|plan| plan.tunnels[1].node = "rw".into(), "two tunnels"),
        ];
        for (change, says) in changes {
            let mut changed = plan();
            change(&mut changed);
            let refused = tunnels(&changed, "rw");
            assert!(matches!(&refused, Err(Unfit::Altered(said)) if said.contains(says)), "{says}: {refused:?}");
        }
        let changes: [(Change, &str); 3] = [
            (|plan| plan.borders[0].device = "\"; drop".into(), "for a border"),
            (|plan| plan.borders[0].instead = Class::High, "plan anew"),
            (|plan| plan.admitted[0].source = "fd00::1".parse().unwrap(), "one IP version"),
        ];
        for (change, says) in changes {
            let mut changed = plan();
            change(&mut changed);
            let refused = boundaries(&changed, "rw");
            assert!(matches!(&refused, Err(Unfit::Altered(said)) if said.contains(says)), "{says}: {refused:?}");
        }
    }
}
