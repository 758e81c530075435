//! A plan on one of its hosts: the queues of its devices.

use linux::queueing::{
    Hook, LONGEST, Leaf, MOST_LEAVES, MOST_SEGMENTS, PerClass, SLOWEST, Scheduler, Service, Share, Wanted, Whose,
};
use qos::Class;
use qos::contract::{DEVICE, is_device};
use qos::plan::{Channel, ControlQueue, Link, OwnQueue, Plan, Setting, TunnelEnd};
use qos::system::{MOST_AT_ONCE, NodeKind, TunnelKind};
use std::fmt;

/// Fewest packets that a queue holds: traffic that nobody declared waits there, too.
const LEAST: u32 = 100;
/// Most nodes of a plan that an error names.
const NAMED: usize = 12;

/// The reason why a plan has no queues for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The plan has no such host.
    NoHost(String),
    /// A value of the plan is not allowed: somebody changed the file.
    Altered(String),
    /// The plan was made without what this queue needs.
    Incomplete(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NoHost(text) | Self::Altered(text) | Self::Incomplete(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Unfit {}

/// The hosts of a plan on which it names devices, all links of which are not down: those that need an agent. Ends of tunnels and borders do, too.
pub fn hosts(plan: &Plan) -> Vec<&str> {
    let has_device =
        |name: &str| plan.links.iter().any(|link| link.from == name && link.device.is_some() && !link.down);
    let is_border = |name: &str| {
        plan.tunnels.iter().map(|one| &one.node).chain(plan.borders.iter().map(|one| &one.node)).any(|one| one == name)
    };
    let names = plan.nodes.iter().map(|node| node.name.as_str());
    names.filter(|name| has_device(name) || is_border(name)).collect()
}

/// Those of its devices whose links are down: they may be gone.
pub fn down(plan: &Plan, host: &str) -> Vec<String> {
    let down = plan.links.iter().filter(|link| link.from == host && link.down);
    down.filter_map(|link| link.device.clone()).collect()
}

/// The devices of the node `host`, also those of links that are down, with the rates of their queues, bit/s.
pub fn devices(plan: &Plan, host: &str) -> Vec<(String, u64)> {
    let own = plan.links.iter().filter(|link| link.from == host);
    own.filter_map(|link| Some((link.device.clone()?, link.rate_bits_per_s as u64))).collect()
}

/// The queues of the node `host`, with the discipline `prio` if the kernel has it. None if the plan names no devices there.
///
/// # Errors
/// A host that the plan does not have, or a link without what its queue needs.
pub fn queues(plan: &Plan, host: &str, prio: bool) -> Result<Vec<Wanted>, Unfit> {
    let Some(node) = plan.nodes.iter().find(|node| node.name == host) else {
        let known: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).take(NAMED).collect();
        return Err(Unfit::NoHost(format!("{host} is no node of the plan: allowed is {}", known.join(", "))));
    };
    let map = match node.kind {
        NodeKind::Host => None,
        NodeKind::Router => Some(Hook::Router),
        NodeKind::Switch => Some(Hook::Bridge),
    };
    let own = plan.links.iter().filter(|link| link.from == node.name);
    let mut wanted = own
        .filter_map(|link| link.device.as_ref().map(|device| queue(plan, link, device, prio, map)))
        .collect::<Result<Vec<_>, _>>()?;
    for setting in plan.settings.iter().filter(|setting| setting.node == node.name) {
        limit(&mut wanted, setting)?;
    }
    Ok(wanted)
}

/// Limits the super-packets of a device that gets a queue.
fn limit(wanted: &mut [Wanted], setting: &Setting) -> Result<(), Unfit> {
    let Setting { device, node, gso_max_segs, .. } = setting;
    if !(1..=MOST_SEGMENTS).contains(gso_max_segs) {
        return Err(Unfit::Altered(format!(
            "the plan has gso_max_segs {gso_max_segs} for {device} of {node}: allowed is 1 to {MOST_SEGMENTS}"
        )));
    }
    let Some(one) = wanted.iter_mut().find(|one| one.device == *device) else {
        return Err(Unfit::Altered(format!(
            "the plan has a setting for {device} of {node}, and no queue there: plan anew"
        )));
    };
    one.segments = Some(*gso_max_segs);
    Ok(())
}

/// A link's queue. A plan is a file, and may have been changed by hand.
fn queue(plan: &Plan, link: &Link, device: &str, prio: bool, map: Option<Hook>) -> Result<Wanted, Unfit> {
    let name = &link.name;
    if !is_device(device) {
        return Err(Unfit::Altered(format!("the plan has device {device:?} for link {name:?}: allowed is {DEVICE}")));
    }
    let rate = link.rate_bits_per_s as u64;
    if rate < SLOWEST {
        let rate = link.rate_bits_per_s;
        return Err(Unfit::Altered(format!(
            "the plan has {rate} bit/s for link {name:?}: allowed is 1 kbit/s and more"
        )));
    }
    let queue = link.queue_packets.unwrap_or(0).max(LEAST);
    if queue > LONGEST {
        return Err(Unfit::Altered(format!("link {name:?} needs a queue of {queue} packets: allowed is {LONGEST}")));
    }
    Ok(Wanted {
        device: device.to_owned(),
        rate,
        queue,
        scheduler: scheduler(link, prio, leaves(plan, link)?)?,
        segments: None,
        encapsulation: outside(plan, &link.from, device),
        labels: labelled(plan, &link.from, device),
        map,
        boundary: false,
    })
}

/// Bytes that each packet by a device has more outside: none, if the device is no tunnel. Packets of SRv6 and MPLS have all of it before they come there.
fn outside(plan: &Plan, node: &str, device: &str) -> u32 {
    let end = plan.tunnels.iter().find(|one| one.node == node && one.device == device);
    end.filter(|end| end.kind.has_device()).map_or(0, |end| end.kind.added(end.remote) as u32)
}

/// `true` if packets of a tunnel leave by the device with labels.
pub(crate) fn labelled(plan: &Plan, node: &str, device: &str) -> bool {
    let is_label = |one: &TunnelEnd| one.kind == TunnelKind::Mpls && one.node == node && one.device == device;
    plan.tunnels.iter().any(is_label)
}

/// The channels of the node `host` that have queues of their own before this device.
pub fn own<'a>(plan: &'a Plan, host: &str, device: &str) -> Vec<(&'a Channel, &'a OwnQueue)> {
    let link = plan.links.iter().find(|link| link.from == host && link.device.as_deref() == Some(device));
    let is_there =
        |channel: &Channel, own: &OwnQueue| channel.publisher == host && link.is_some_and(|link| link.name == own.link);
    let of = |channel: &'a Channel| {
        let own = channel.own_queue.as_ref().filter(|own| is_there(channel, own))?;
        Some((channel, own))
    };
    plan.channels.iter().filter_map(of).collect()
}

/// The queues of channels' own before a link, and that of control traffic.
fn leaves(plan: &Plan, link: &Link) -> Result<Vec<Leaf>, Unfit> {
    let own = |channel: &&Channel| {
        channel.publisher == link.from && channel.own_queue.as_ref().is_some_and(|own| own.link == link.name)
    };
    let channels: Vec<&Channel> = plan.channels.iter().filter(own).collect();
    let altered = |text: String| Unfit::Altered(format!("the plan has {text}"));
    let count = channels.len() + usize::from(link.control.is_some());
    if count > MOST_LEAVES {
        return Err(altered(format!("{count} own queues before link {:?}: allowed are {MOST_LEAVES}", link.name)));
    }
    if count > 0 && link.scheduler != "htb" {
        return Err(altered(format!("own queues before link {:?}: allowed is that with htb", link.name)));
    }
    let mut leaves: Vec<Leaf> = Vec::new();
    for channel in channels {
        let Some(own) = &channel.own_queue else { continue };
        let leaf = leaf(channel, own).map_err(altered)?;
        if leaves.iter().any(|other| other.whose == leaf.whose) {
            return Err(altered(format!("two own queues with number {} at {}: plan anew", own.number, link.from)));
        }
        leaves.push(leaf);
    }
    if let Some(control) = &link.control {
        leaves.push(of_control(link, control).map_err(altered)?);
    }
    Ok(leaves)
}

fn leaf(channel: &Channel, own: &OwnQueue) -> Result<Leaf, String> {
    let OwnQueue { number, rate_bits_per_s, burst_bytes, packets, .. } = *own;
    let of = format!("the own queue of {}", channel.subscriber);
    if number >= OwnQueue::NUMBERS {
        return Err(format!("number {number} of {of}: allowed is 0 to 4095"));
    }
    let (burst, queue) = sizes(&of, rate_bits_per_s, burst_bytes, packets)?;
    Ok(Leaf { class: channel.class, rate: rate_bits_per_s, burst, queue, whose: Whose::Sockets(number) })
}

fn of_control(link: &Link, control: &ControlQueue) -> Result<Leaf, String> {
    let ControlQueue { rate_bits_per_s, burst_bytes, packets } = *control;
    let of = format!("the queue of control traffic before link {:?}", link.name);
    let (burst, queue) = sizes(&of, rate_bits_per_s, burst_bytes, packets)?;
    Ok(Leaf { class: Class::High, rate: rate_bits_per_s, burst, queue, whose: Whose::Control })
}

/// Bytes at once and packets of a queue, if these and its rate are allowed.
fn sizes(of: &str, rate: u64, burst: u64, packets: u64) -> Result<(u32, u32), String> {
    let refuse = |what: &str, value: u64, allowed: &str| Err(format!("{what} {value} of {of}: allowed is {allowed}"));
    if rate < SLOWEST {
        return refuse("rate", rate, "1000 bit/s and more");
    }
    let at_once = u32::try_from(burst).ok().filter(|bytes| (1514..=MOST_AT_ONCE).contains(&u64::from(*bytes)));
    let Some(at_once) = at_once else { return refuse("burst", burst, "1514 B to 16 MiB") };
    let queue = u32::try_from(packets).ok().filter(|packets| (1..=LONGEST).contains(packets));
    let Some(queue) = queue else { return refuse("packets", packets, "1 to 100000") };
    Ok((at_once, queue))
}

fn scheduler(link: &Link, prio: bool, leaves: Vec<Leaf>) -> Result<Scheduler, Unfit> {
    let own: u64 = leaves.iter().map(|leaf| leaf.rate).fold(0, u64::saturating_add);
    let shares = || {
        let missing = || Unfit::Incomplete(format!("the plan has no shares for {}: plan anew, with bounds", link.name));
        let parts = link.shares.ok_or_else(missing)?;
        let sum = parts.iter().sum::<f64>() + own as f64 / link.rate_bits_per_s;
        // Rates of own queues are whole, and rounded up.
        if parts.iter().any(|part| part.is_nan() || *part <= 0.0) || sum > 1.0 + if own > 0 { 1e-6 } else { 1e-9 } {
            let name = &link.name;
            let allowed = "more than 0 for each class, and at most 1 together, own queues included";
            return Err(Unfit::Altered(format!(
                "the plan has shares {parts:?} for link {name:?}: allowed is {allowed}"
            )));
        }
        Ok::<PerClass<u64>, Unfit>(parts.map(|part| ((link.rate_bits_per_s * part) as u64).max(8)))
    };
    Ok(match link.scheduler.as_str() {
        "fifo" => Scheduler::Fifo,
        "strict" if prio => Scheduler::StrictPrio,
        "strict" => Scheduler::Strict,
        "htb" => Scheduler::Htb(shares()?.map(|rate| Share { rate, ceil: None, priority: None }), leaves),
        "hfsc" => Scheduler::Hfsc(shares()?.map(|share| Service::new(share, None, None))),
        other => {
            return Err(Unfit::Altered(format!(
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
        let Ok(found) = queues(&plan(), "a", true) else { panic!("a is a node") };
        let [one] = &found[..] else { panic!("{found:?}") };
        let Scheduler::Htb(shares, _) = &one.scheduler else { panic!("{one:?}") };
        assert_eq!((one.device.as_str(), one.rate, one.queue, one.map), ("eth0", 100_000_000, LEAST, None));
        assert_eq!(shares.map(|share| share.rate), [10_000_000, 20_000_000, 30_000_000, 40_000_000]);
        let Ok(found) = queues(&plan(), "r", false) else { panic!("r is a node") };
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&one.scheduler, one.queue, one.map), (&Scheduler::Strict, 400, Some(Hook::Router)));
    }

    #[test]
    fn a_tunnel_s_queue_counts_what_its_packets_have_outside() {
        let end = |remote: &str| qos::plan::TunnelEnd {
            node: "a".into(),
            kind: TunnelKind::Vxlan,
            device: "eth0".into(),
            id: 7,
            port: 4789,
            local: remote.parse().unwrap(),
            remote: remote.parse().unwrap(),
            mtu: 1450,
            inside: None,
        };
        let with = |tunnels| queues(&Plan { tunnels, ..plan() }, "a", true).unwrap()[0].encapsulation;
        assert_eq!([with(Vec::new()), with(vec![end("10.0.0.1")]), with(vec![end("fd00::1")])], [0, 50, 70]);
        let mut far = end("10.0.0.1");
        far.node = "b".into();
        assert_eq!(with(vec![far]), 0);
        let mut segment = end("fd00::1");
        segment.kind = TunnelKind::Srv6;
        assert_eq!(with(vec![segment]), 0, "its packets come to the queue with all of it");
        let mut label = end("10.0.0.1");
        label.kind = TunnelKind::Mpls;
        let queues = |tunnels| queues(&Plan { tunnels, ..plan() }, "a", true).unwrap();
        assert_eq!([queues(vec![label])[0].labels, queues(vec![end("10.0.0.1")])[0].labels], [true, false]);
    }

    #[test]
    fn a_setting_goes_with_the_queue_of_its_device() {
        let setting = |node: &str, device: &str, gso_max_segs| Setting {
            node: node.into(),
            device: device.into(),
            gso_max_segs,
            ..Setting::default()
        };
        let with = |setting| queues(&Plan { settings: vec![setting], ..plan() }, "a", true);
        assert_eq!(with(setting("a", "eth0", 3)).unwrap()[0].segments, Some(3));
        assert_eq!(with(setting("r", "eth0", 3)).unwrap()[0].segments, None, "of another host");
        for wrong in [setting("a", "eth0", 0), setting("a", "eth0", 65_536), setting("a", "eth9", 1)] {
            assert!(matches!(with(wrong), Err(Unfit::Altered(_))));
        }
    }

    #[test]
    fn a_channel_has_a_queue_of_its_own_where_it_begins() {
        let own = OwnQueue { link: "lan".into(), number: 7, rate_bits_per_s: 500_000, burst_bytes: 3000, packets: 20 };
        let channel = |publisher: &str, own: OwnQueue| Channel {
            publisher: publisher.into(),
            class: qos::Class::High,
            own_queue: Some(own),
            ..Channel::default()
        };
        let room = |channels: Vec<Channel>, shares| {
            let mut plan = Plan { channels, ..plan() };
            plan.links[0].shares = Some(shares);
            queues(&plan, "a", true)
        };
        let (quarter, full) = ([0.1, 0.2, 0.3, 0.25], [0.1, 0.2, 0.3, 0.4]);
        let found = room(vec![channel("a", own.clone()), channel("r", own.clone())], quarter).unwrap();
        let leaf =
            |queue| Leaf { class: qos::Class::High, rate: 500_000, burst: 3000, queue, whose: Whose::Sockets(7) };
        assert_eq!(found[0].leaves(), [leaf(20)]);
        let channels = vec![channel("a", own.clone()), channel("r", own.clone()), Channel::default()];
        let with = Plan { channels, ..plan() };
        let owners = |host: &str, device: &str| super::own(&with, host, device).len();
        assert_eq!([owners("a", "eth0"), owners("a", "eth1"), owners("b", "eth0")], [1, 0, 0]);
        for (wrong, says) in [
            (vec![channel("a", OwnQueue { number: 4096, ..own.clone() })], "number 4096"),
            (vec![channel("a", OwnQueue { rate_bits_per_s: 999, ..own.clone() })], "rate 999"),
            (vec![channel("a", OwnQueue { burst_bytes: u64::MAX, ..own.clone() })], "16 MiB"),
            (vec![channel("a", OwnQueue { packets: 0, ..own.clone() })], "packets 0"),
            (vec![channel("a", own.clone()), channel("a", own.clone())], "two own queues with number 7"),
            (vec![channel("a", own.clone()); 65], "65 own queues"),
        ] {
            let refused = room(wrong, quarter);
            assert!(matches!(&refused, Err(Unfit::Altered(said)) if said.contains(says)), "{says}: {refused:?}");
        }
        assert!(
            matches!(room(vec![channel("a", own.clone())], full), Err(Unfit::Altered(said)) if said.contains("included"))
        );
        let mut strict = Plan { channels: vec![channel("r", own)], ..plan() };
        strict.links[1].shares = None;
        assert!(matches!(queues(&strict, "r", true), Err(Unfit::Altered(said)) if said.contains("htb")));
    }

    #[test]
    fn control_traffic_has_a_queue_where_the_plan_has_one() {
        let control = ControlQueue { rate_bits_per_s: 500_000, burst_bytes: 4542, packets: 100 };
        let mut plan = plan();
        plan.links[0].shares = Some([0.1, 0.2, 0.3, 0.395]);
        plan.links[0].control = Some(control.clone());
        let leaf = Leaf { class: Class::High, rate: 500_000, burst: 4542, queue: 100, whose: Whose::Control };
        assert_eq!(queues(&plan, "a", true).unwrap()[0].leaves(), [leaf]);
        plan.links[0].shares = Some([0.1, 0.2, 0.3, 0.4]);
        assert!(matches!(queues(&plan, "a", true), Err(Unfit::Altered(said)) if said.contains("included")));
        plan.links[1].control = Some(control);
        assert!(matches!(queues(&plan, "r", true), Err(Unfit::Altered(said)) if said.contains("that with htb")));
    }

    #[test]
    fn a_host_that_the_plan_does_not_have_is_refused_if_named() {
        assert!(matches!(queues(&plan(), "b", true), Err(Unfit::NoHost(said)) if said.contains("a, r")));
    }

    #[test]
    fn a_plan_that_was_changed_by_hand_is_checked() {
        type Change = fn(&mut Link);
        let slow =
            |link: &mut Link| link.control = Some(ControlQueue { rate_bits_per_s: 9, ..ControlQueue::default() });
        let changes: [(Change, &str); 7] = [
            (slow, "rate 9 of the queue of control traffic before link \"lan\""),
            (|link| link.scheduler = "fair".into(), "scheduler \"fair\""),
            (|link| link.device = Some("a; drop".into()), "device \"a; drop\""),
            (|link| link.rate_bits_per_s = f64::NAN, "1 kbit/s and more"),
            (|link| link.queue_packets = Some(u32::MAX), "allowed is 100000"),
            (|link| link.shares = Some([0.5, 0.5, 0.5, 0.5]), "shares"),
            (|link| link.shares = Some([f64::NAN, 0.1, 0.1, 0.1]), "shares"),
        ];
        for (change, says) in changes {
            let mut changed = plan();
            change(&mut changed.links[0]);
            let refused = queues(&changed, "a", true);
            assert!(matches!(&refused, Err(Unfit::Altered(said)) if said.contains(says)), "{says}: {refused:?}");
        }
    }
}
