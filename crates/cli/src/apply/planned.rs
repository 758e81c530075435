//! A plan on one of its hosts: the queues of its devices, and the settings of running channels.

use super::host_file::{Borders, Channel};
use crate::ends::Which;
use crate::failure::{Failure, Result};
use crate::output::tell;
use agent::queues::Unfit;
use linux::queueing::{Leaf, Wanted};
use qos::plan::Plan;
use qos::priority::Changes;
use qos::verification::{Live, find};
use thalweg::control::{Direction, Document};
use thalweg::proxy::ProxyChanges;

/// The queues of `host`, or of the node with this host's name. None if the plan names no devices.
///
/// # Errors
/// A host that the plan does not have, or a link without what its queue needs.
pub(super) fn queues(plan: &Plan, host: Option<&str>, prio: bool) -> Result<Vec<Wanted>> {
    match agent::queues::queues(plan, &name(host), prio) {
        Ok(wanted) => Ok(wanted),
        Err(Unfit::NoHost(text)) if host.is_none() => {
            if !agent::queues::hosts(plan).is_empty() {
                tell(&format!("no queues are installed here: {text}; --host NODE says which one this host is"));
            }
            Ok(Vec::new())
        }
        Err(Unfit::NoHost(text)) => Err(Failure::Usage(format!("--host {text}"))),
        Err(other) => Err(unfit(other)),
    }
}

/// Tunnels and boundaries of `host`, or of the node with this host's name.
///
/// # Errors
/// A value that the plan may not have.
pub(super) fn borders(plan: &Plan, host: Option<&str>) -> Result<Borders> {
    let own = name(host);
    let tunnels = agent::borders::tunnels(plan, &own).map_err(unfit)?;
    Ok(Borders { tunnels, boundaries: agent::borders::boundaries(plan, &own).map_err(unfit)? })
}

fn name(host: Option<&str>) -> String {
    host.map_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned(), str::to_owned)
}

fn unfit(unfit: Unfit) -> Failure {
    match unfit {
        Unfit::Incomplete(text) => Failure::No(text),
        Unfit::NoHost(text) | Unfit::Altered(text) => Failure::Usage(text),
    }
}

/// The settings of each channel of the plan, found by topic, subscriber's port and publisher's node.
///
/// # Errors
/// A channel of the plan without its ports, or an unknown word in the plan.
pub(super) fn channels(plan: &Plan, nodes: &[Document]) -> Result<Vec<(usize, Channel)>> {
    let live = pairs(nodes);
    let found = find(plan, &live);
    let programs = plan.channels.iter().zip(&found.planned).filter(|(planned, _)| !planned.pipe);
    let each = programs.map(|(planned, at)| {
        let Some(live) = at.as_ref().and_then(|route| live.get(route.channel)) else { return Err(absent(planned)) };
        tell_absent_relay(planned, nodes);
        settings(planned, live)
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

fn tell_absent_relay(planned: &qos::plan::Channel, nodes: &[Document]) {
    let Some(place) = planned.place() else { return };
    let away = place.relays().find(|name| !nodes.iter().any(|node| node.is_relay(name)));
    away.into_iter().for_each(|name| tell(&format!("no relay {name} is there: its proxies go to it when it is")));
}

/// The settings of a channel of the plan, of which this is the one that runs.
///
/// # Errors
/// An unknown word in the plan.
pub(crate) fn settings(planned: &qos::plan::Channel, live: &Live) -> Result<Vec<Channel>> {
    let qos::plan::Channel {
        class, sched, sched_publisher, police, latency_budget_us, pace_bits_per_s, own_queue, ..
    } = planned;
    let mut all = vec![channel(live, Which::Both, &[format!("class={class}")])?];
    for (end, sched) in [(Which::Publisher, sched_publisher), (Which::Subscriber, sched)] {
        if let Some(sched) = sched {
            all.push(channel(live, end, &[format!("sched={sched}")])?);
        }
    }
    if let Some(own) = own_queue {
        let name = Leaf::named(own.number);
        all.push(channel(live, Which::Publisher, &[format!("priority={name}")])?);
    }
    if let Some(police) = police {
        all.push(channel(live, Which::Publisher, &[format!("police={police}")])?);
    }
    // A relay takes the stream by a channel of its own.
    let is_whole = planned.place().is_none_or(|place| place.relays().next().is_none());
    if let Some(us) = latency_budget_us.filter(|_| is_whole) {
        all.push(channel(live, Which::Publisher, &[format!("latency-budget={}ns", (us * 1e3).round())])?);
    }
    if let Some(rate) = pace_bits_per_s {
        all.push(channel(live, Which::Publisher, &[format!("pace={rate}bit/s")])?);
    }
    if let Some(place) = planned.place() {
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

    #[test]
    fn a_publisher_gets_the_pace_of_the_plan() {
        let live = Live { publisher: "/out".into(), subscriber: "/in".into(), ..Live::default() };
        let planned = qos::plan::Channel { pace_bits_per_s: Some(8_000_001), ..Default::default() };
        let all = settings(&planned, &live).unwrap();
        let paced = all.iter().find(|one| one.changes.pace != qos::priority::Change::Keep).unwrap();
        assert_eq!((paced.end, paced.words.join(" ")), (Which::Publisher, "pace=8000001bit/s".to_owned()));
    }

    #[test]
    fn a_publisher_names_the_own_queue_of_the_plan() {
        let live = Live { publisher: "/out".into(), subscriber: "/in".into(), ..Live::default() };
        let own = qos::plan::OwnQueue { number: 0xabc, ..Default::default() };
        let planned = qos::plan::Channel { own_queue: Some(own), ..Default::default() };
        let all = settings(&planned, &live).unwrap();
        let named = all.iter().find(|one| !one.changes.socket_priority.is_keep()).unwrap();
        assert_eq!((named.end, named.words.join(" ")), (Which::Publisher, "priority=7a2:1abc".to_owned()));
        assert_eq!(named.changes.socket_priority, qos::priority::Change::Set(Leaf::named(0xabc).0));
    }

    #[test]
    fn a_publisher_gets_the_latency_budget_of_the_plan() {
        let live = Live { publisher: "/out".into(), subscriber: "/in".into(), ..Live::default() };
        let words = |planned: &qos::plan::Channel| -> Vec<(Which, String)> {
            let all = settings(planned, &live).unwrap();
            all.into_iter().map(|one| (one.end, one.words.join(" "))).collect()
        };
        let mut planned = qos::plan::Channel { latency_budget_us: Some(600.0), ..Default::default() };
        let both = (Which::Both, "class=normal".to_owned());
        assert_eq!(words(&planned), [both.clone(), (Which::Publisher, "latency-budget=600000ns".into())]);
        planned.proxy = Some("gate".into());
        assert!(words(&planned).iter().all(|(_, words)| !words.contains("budget")), "a relay has a channel of its own");
        planned = qos::plan::Channel::default();
        assert_eq!(words(&planned), [both], "the contract states none");
    }
}
