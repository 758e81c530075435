//! The queues of a plan for one of its hosts.

use super::host_file::services;
use crate::failure::{Failure, Result};
use crate::output::tell;
use linux::queueing::{Hook, PerClass, Scheduler, Share, Wanted};
use qos::plan::{Link, Plan};
use qos::system::NodeKind;

/// Fewest packets that a queue holds: traffic that nobody declared waits there, too.
const LEAST: u32 = 100;

/// The queues of `host`, or of the node with this host's name. None if the plan names no devices.
///
/// # Errors
/// A host that the plan does not have, or a link without what its queue needs.
pub(super) fn queues(plan: &Plan, host: Option<&str>, prio: bool) -> Result<Vec<Wanted>> {
    let named = || plan.links.iter().any(|link| link.device.is_some());
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = host.unwrap_or(&own);
    let Some(node) = plan.nodes.iter().find(|node| node.name == name) else {
        let known: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).take(12).collect();
        let known = known.join(", ");
        if host.is_some() {
            return Err(Failure::Usage(format!("--host {name}: allowed is a node of the plan: {known}")));
        }
        if named() {
            tell(&format!(
                "no queues are installed: this host, {name}, is no node of the plan ({known}); --host NODE says which one it is"
            ));
        }
        return Ok(Vec::new());
    };
    let map = match node.kind {
        NodeKind::Host => None,
        NodeKind::Router => Some(Hook::Router),
        NodeKind::Switch => Some(Hook::Bridge),
    };
    let links = plan.links.iter().filter(|link| link.from == node.name);
    let wanted = |link: &Link| {
        let device = link.device.clone()?;
        Some(scheduler(link, prio).map(|scheduler| Wanted {
            device,
            rate: link.rate_bits_per_s as u64,
            queue: link.queue_packets.unwrap_or(0).max(LEAST),
            scheduler,
            map,
        }))
    };
    links.filter_map(wanted).collect()
}

fn scheduler(link: &Link, prio: bool) -> Result<Scheduler> {
    let shares = || {
        let missing = || Failure::No(format!("the plan has no shares for {}: plan anew, with bounds", link.name));
        let parts = link.shares.ok_or_else(missing)?;
        Ok::<PerClass<u64>, Failure>(parts.map(|part| ((link.rate_bits_per_s * part) as u64).max(8)))
    };
    Ok(match link.scheduler.as_str() {
        "fifo" => Scheduler::Fifo,
        "strict" if prio => Scheduler::StrictPrio,
        "strict" => Scheduler::Strict,
        "htb" => Scheduler::Htb(shares()?.map(|rate| Share { rate, ceil: None, priority: None })),
        "hfsc" => Scheduler::Hfsc(services(&shares()?, &[None; 4], &[None; 4])),
        other => {
            return Err(Failure::Usage(format!(
                "the plan has scheduler {other:?}: allowed is fifo, strict, htb or hfsc"
            )));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::plan::Node;

    fn plan() -> Plan {
        let link = |from: &str, device: Option<&str>, scheduler: &str| Link {
            name: "lan".into(),
            from: from.into(),
            rate_bits_per_s: 100e6,
            scheduler: scheduler.into(),
            device: device.map(str::to_owned),
            queue_packets: Some(if scheduler == "htb" { 7 } else { 400 }),
            shares: Some([0.1, 0.2, 0.3, 0.4]),
            ..Link::default()
        };
        let node = |name: &str, kind| Node { name: name.into(), kind, ..Node::default() };
        Plan {
            links: vec![link("a", Some("eth0"), "htb"), link("r", Some("eth1"), "strict"), link("r", None, "fifo")],
            nodes: vec![node("a", NodeKind::Host), node("r", NodeKind::Router)],
            ..Plan::default()
        }
    }

    #[test]
    fn a_host_gets_the_queues_of_its_own_devices() {
        let Ok(found) = queues(&plan(), Some("a"), true) else { panic!("a is a node") };
        let [one] = &found[..] else { panic!("{found:?}") };
        let Scheduler::Htb(shares) = &one.scheduler else { panic!("{one:?}") };
        assert_eq!((one.device.as_str(), one.rate, one.queue, one.map), ("eth0", 100_000_000, LEAST, None));
        assert_eq!(shares.map(|share| share.rate), [10_000_000, 20_000_000, 30_000_000, 40_000_000]);
        let Ok(found) = queues(&plan(), Some("r"), false) else { panic!("r is a node") };
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&one.scheduler, one.queue, one.map), (&Scheduler::Strict, 400, Some(Hook::Router)));
    }

    #[test]
    fn a_host_that_the_plan_does_not_have_is_refused_if_named() {
        assert!(matches!(queues(&plan(), Some("b"), true), Err(Failure::Usage(said)) if said.contains("a, r")));
        let mut fair = plan();
        fair.links[0].scheduler = "fair".into();
        assert!(queues(&fair, Some("a"), true).is_err());
    }
}
