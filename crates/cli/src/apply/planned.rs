//! A plan on one of its hosts: the queues of its devices, and the settings of running channels.

use super::host_file::{Channel, LONGEST, MOST_SEGMENTS, SLOWEST, services};
use crate::ends::Which;
use crate::failure::{Failure, Result};
use crate::output::tell;
use linux::queueing::{Hook, PerClass, Scheduler, Share, Wanted};
use qos::contract::{DEVICE, is_device};
use qos::plan::{Link, Plan, Setting};
use qos::priority::Changes;
use qos::system::NodeKind;
use qos::verification::{Live, find};
use thalweg::control::{Direction, Document};
use thalweg::proxy::ProxyChanges;

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
    let own = plan.links.iter().filter(|link| link.from == node.name);
    let mut wanted = own
        .filter_map(|link| link.device.as_ref().map(|device| wanted(link, device, prio, map)))
        .collect::<Result<Vec<_>>>()?;
    for setting in plan.settings.iter().filter(|setting| setting.node == node.name) {
        limit(&mut wanted, setting)?;
    }
    Ok(wanted)
}

/// Limits the super-packets of a device that gets a queue.
fn limit(wanted: &mut [Wanted], setting: &Setting) -> Result<()> {
    let Setting { device, node, gso_max_segs, .. } = setting;
    if !(1..=MOST_SEGMENTS).contains(&i64::from(*gso_max_segs)) {
        return Err(Failure::Usage(format!(
            "the plan has gso_max_segs {gso_max_segs} for {device} of {node}: allowed is 1 to {MOST_SEGMENTS}"
        )));
    }
    let Some(one) = wanted.iter_mut().find(|one| one.device == *device) else {
        return Err(Failure::Usage(format!(
            "the plan has a setting for {device} of {node}, and no queue there: plan anew"
        )));
    };
    one.segments = Some(*gso_max_segs);
    Ok(())
}

/// A link's queue. A plan is a file, and may have been changed by hand.
fn wanted(link: &Link, device: &str, prio: bool, map: Option<Hook>) -> Result<Wanted> {
    let name = &link.name;
    if !is_device(device) {
        return Err(Failure::Usage(format!("the plan has device {device:?} for link {name:?}: allowed is {DEVICE}")));
    }
    let rate = link.rate_bits_per_s as u64;
    if rate < SLOWEST {
        let rate = link.rate_bits_per_s;
        return Err(Failure::Usage(format!(
            "the plan has {rate} bit/s for link {name:?}: allowed is 1 kbit/s and more"
        )));
    }
    let queue = link.queue_packets.unwrap_or(0).max(LEAST);
    if i64::from(queue) > LONGEST {
        return Err(Failure::Usage(format!("link {name:?} needs a queue of {queue} packets: allowed is {LONGEST}")));
    }
    Ok(Wanted { device: device.to_owned(), rate, queue, scheduler: scheduler(link, prio)?, segments: None, map })
}

fn scheduler(link: &Link, prio: bool) -> Result<Scheduler> {
    let shares = || {
        let missing = || Failure::No(format!("the plan has no shares for {}: plan anew, with bounds", link.name));
        let parts = link.shares.ok_or_else(missing)?;
        if parts.iter().any(|part| part.is_nan() || *part <= 0.0) || parts.iter().sum::<f64>() > 1.0 + 1e-9 {
            let name = &link.name;
            let allowed = "more than 0 for each class, and at most 1 together";
            return Err(Failure::Usage(format!(
                "the plan has shares {parts:?} for link {name:?}: allowed is {allowed}"
            )));
        }
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

/// The settings of each channel of the plan, found by topic, subscriber's port and publisher's node.
///
/// # Errors
/// A channel of the plan without its ports, or an unknown word in the plan.
pub(super) fn channels(plan: &Plan, nodes: &[Document]) -> Result<Vec<(usize, Channel)>> {
    let live = pairs(nodes);
    let found = find(plan, &live);
    let each = plan.channels.iter().zip(&found.planned).map(|(planned, at)| {
        let Some(live) = at.as_ref().and_then(|route| live.get(route.channel)) else { return Err(absent(planned)) };
        settings(planned, live, nodes)
    });
    let all: Vec<Vec<Channel>> = each.collect::<Result<_>>()?;
    Ok(all.into_iter().flatten().map(|channel| (0, channel)).collect())
}

/// All pairs of a publisher and a subscriber, connected or not.
fn pairs(nodes: &[Document]) -> Vec<Live> {
    let ports = || nodes.iter().flat_map(|node| node.ports.values().map(move |port| (node, port)));
    let publishers = || ports().filter(|(_, port)| port.direction == Direction::Publisher);
    let subscribers = ports().filter(|(_, port)| port.direction == Direction::Subscriber);
    let with_each = |(_, subscriber): (&Document, &thalweg::control::PortInfo)| {
        let subscriber = subscriber.name.clone();
        let pair = move |(node, publisher): (&Document, &thalweg::control::PortInfo)| Live {
            topic: publisher.topic.clone(),
            publisher: publisher.name.clone(),
            publisher_node: node.name.clone(),
            subscriber: subscriber.clone(),
            over: None,
        };
        publishers().map(pair).collect::<Vec<_>>()
    };
    subscribers.flat_map(with_each).collect()
}

fn absent(planned: &qos::plan::Channel) -> Failure {
    let qos::plan::Channel { topic, publisher, subscriber, .. } = planned;
    Failure::No(format!(
        "the plan has {topic} from {publisher} to {subscriber}, and no such ports are known: start their programs first (`thalweg list ports`)"
    ))
}

fn settings(planned: &qos::plan::Channel, live: &Live, nodes: &[Document]) -> Result<Vec<Channel>> {
    let qos::plan::Channel { class, sched, sched_publisher, .. } = planned;
    let mut all = vec![channel(live, Which::Both, &[format!("class={class}")])?];
    for (end, sched) in [(Which::Publisher, sched_publisher), (Which::Subscriber, sched)] {
        if let Some(sched) = sched {
            all.push(channel(live, end, &[format!("sched={sched}")])?);
        }
    }
    if let Some(place) = planned.place() {
        let away = place.relays().find(|name| !nodes.iter().any(|node| node.is_relay(name)));
        away.into_iter().for_each(|name| tell(&format!("no relay {name} is there: its proxies go to it when it is")));
        let scale = (planned.scale > 1).then(|| format!("every={}", planned.scale));
        let picture = planned.picture.as_ref().map(|picture| format!("picture={picture}"));
        let words: Vec<String> = scale.into_iter().chain(picture).chain([format!("proxy={place}")]).collect();
        all.push(channel(live, Which::Subscriber, &words)?);
    }
    Ok(all)
}

fn channel(live: &Live, end: Which, words: &[String]) -> Result<Channel> {
    let (mut changes, mut proxy) = (Changes::default(), ProxyChanges::default());
    for word in words {
        if !proxy.add(word).map_err(|wrong| Failure::Usage(wrong.to_string()))? {
            changes.add(word).map_err(|wrong| Failure::Usage(format!("the plan says {word}: {wrong}")))?;
        }
    }
    let (publisher, subscriber) = (live.publisher.clone(), live.subscriber.clone());
    Ok(Channel { publisher, subscriber, end, words: words.to_vec(), changes, proxy })
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
    fn a_setting_goes_with_the_queue_of_its_device() {
        let setting = |node: &str, device: &str, gso_max_segs| Setting {
            node: node.into(),
            device: device.into(),
            gso_max_segs,
            ..Setting::default()
        };
        let with = |setting| queues(&Plan { settings: vec![setting], ..plan() }, Some("a"), true);
        assert_eq!(with(setting("a", "eth0", 3)).unwrap()[0].segments, Some(3));
        assert_eq!(with(setting("r", "eth0", 3)).unwrap()[0].segments, None, "of another host");
        for wrong in [setting("a", "eth0", 0), setting("a", "eth0", 65_536), setting("a", "eth9", 1)] {
            assert!(matches!(with(wrong), Err(Failure::Usage(_))));
        }
    }

    #[test]
    fn a_host_that_the_plan_does_not_have_is_refused_if_named() {
        assert!(matches!(queues(&plan(), Some("b"), true), Err(Failure::Usage(said)) if said.contains("a, r")));
    }

    #[test]
    fn a_plan_that_was_changed_by_hand_is_checked() {
        type Change = fn(&mut Link);
        let changes: [(Change, &str); 6] = [
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
            let refused = queues(&changed, Some("a"), true);
            assert!(matches!(&refused, Err(Failure::Usage(said)) if said.contains(says)), "{says}: {refused:?}");
        }
    }
}
