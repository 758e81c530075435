//! A plan at the borders of its domain, on one of its hosts: ends of tunnels, and what may come in from neighbours.

use crate::queues::Unfit;
use linux::queueing::{Boundary, Hook, Pair};
use linux::tunnel::Tunnel;
use qos::contract::{DEVICE, is_device};
use qos::plan::{Admitted, Border, Plan, TunnelEnd};
use qos::system::NodeKind;

/// Most ends of tunnels of a host.
const MOST_TUNNELS: usize = 256;
/// Sizes that a packet in a tunnel may have: IPv4 takes no less (RFC 791 §3.2).
const SIZES: std::ops::RangeInclusive<u32> = 68..=65_535;

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
    let own = plan.borders.iter().filter(|one| one.node == host);
    own.map(|border| boundary(border, &plan.admitted, hook)).collect()
}

fn boundary(border: &Border, admitted: &[Admitted], hook: Hook) -> Result<Boundary, Unfit> {
    let Border { device, neighbour, classes, instead, .. } = border.clone();
    if !is_device(&device) {
        return Err(Unfit::Altered(format!("the plan has device {device:?} for a border: allowed is {DEVICE}")));
    }
    if classes.contains(&instead) {
        let class = instead.name();
        return Err(Unfit::Altered(format!(
            "the plan reserves class {class} at {device}, and gives it to all others: plan anew"
        )));
    }
    let its = admitted.iter().filter(|one| one.neighbour == neighbour);
    let pair = |one: &Admitted| {
        let Admitted { class, source, destination, .. } = *one;
        let same = source.is_ipv4() == destination.is_ipv4();
        let said = || format!("the plan admits {source} to {destination}: allowed are two addresses of one IP version");
        same.then_some(Pair { class, source, destination }).ok_or_else(|| Unfit::Altered(said()))
    };
    let pairs = its.map(pair).collect::<Result<_, _>>()?;
    Ok(Boundary { device, hook, classes, instead, flows: Vec::new(), pairs })
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
            neighbour: neighbour.into(),
            class: Class::High,
            source: "10.97.0.1".parse().unwrap(),
            destination: "10.97.2.2".parse().unwrap(),
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
