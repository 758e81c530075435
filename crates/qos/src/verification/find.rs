//! Finding the live channel of each channel of a plan.

use crate::Place;
use crate::plan::{Channel, Plan};
use std::collections::BTreeSet;

/// A channel that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Its topic.
    pub topic: String,
    /// Publisher's port name.
    pub publisher: String,
    /// Name of the program's node that has this port.
    pub publisher_node: String,
    /// Subscriber's port name.
    pub subscriber: String,
    /// The relay that its samples come from, if there is one.
    pub over: Option<Over>,
}

/// A node between a publisher and a subscriber.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Over {
    /// The port with which it takes samples from the publisher.
    pub port: String,
    /// Its name, and others by which it is known, such as its host's.
    pub names: Vec<String>,
}

/// The way on which a channel's samples travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// From the publisher, or from the relay, to the subscriber.
    pub channel: usize,
    /// From the publisher to the relay; `None`: there is none, or it is not known.
    pub feeder: Option<usize>,
    /// The path, if it differs from the plan's: no bound covers it.
    pub strays: Option<String>,
}

/// The live channels that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// For each channel of the plan: which of those that run it is.
    pub planned: Vec<Option<Route>>,
    /// Live channels that are in no plan, and feed none that is.
    pub unplanned: Vec<usize>,
}

/// Finds the channels of a plan among the running ones, each with the whole route: publisher, relay if there is one,
/// subscriber. Topic and subscriber's port have the names of the contract (a `/` before the topic's does not matter).
/// A publisher is the contract's node if its node or its port has that name, or the port is `/TOPIC@NODE`, or has the name that a
/// program on that node gives it (`/NODE/TOPIC/pub1`); if the plan has only one publisher for the subscriber, any publisher is it.
/// A subscriber without a name in the contract may have its program's, too ([`is_subscriber`]).
pub fn find(plan: &Plan, live: &[Live]) -> Found {
    let mut taken = vec![false; live.len()];
    let mut planned = vec![None; plan.channels.len()];
    for (exact, by_name) in [(true, true), (true, false), (false, true), (false, false)] {
        for (index, channel) in plan.channels.iter().enumerate() {
            let alone = || same_subscription(plan, channel) == 1;
            if planned[index].is_some() || !(by_name || alone()) {
                continue;
            }
            let fits = |one: &Live| {
                bare(&one.topic) == bare(&channel.topic)
                    && (one.subscriber == channel.subscriber || !exact && is_subscriber(channel, &one.subscriber))
                    && (!by_name || is_publisher(one, &channel.publisher))
            };
            let found = (0..live.len()).find(|at| !taken[*at] && fits(&live[*at]));
            planned[index] = found.map(|at| Route {
                channel: at,
                feeder: feeder(live, &live[at]),
                strays: strays(channel, &live[at]),
            });
            found.into_iter().for_each(|at| taken[at] = true);
        }
    }
    planned.iter().flatten().filter_map(|route: &Route| route.feeder).for_each(|at| taken[at] = true);
    let unplanned = (0..live.len()).filter(|at| !taken[*at]).collect();
    Found { planned, unplanned }
}

/// The channel that brings a channel's samples to the node between.
fn feeder(live: &[Live], one: &Live) -> Option<usize> {
    let over = &one.over.as_ref()?.port;
    let same = |other: &Live| (&other.topic, &other.publisher) == (&one.topic, &one.publisher);
    live.iter().position(|other| other.subscriber == *over && same(other))
}

fn strays(planned: &Channel, live: &Live) -> Option<String> {
    let name = |over: &Over| over.names.first().cloned().unwrap_or_default();
    match (planned.place(), &live.over) {
        (Some(Place::Relay(relay)), None) => Some(format!("directly, not over relay {relay} as planned")),
        (Some(Place::Relay(relay)), Some(over)) if over.names.contains(&relay) => None,
        (Some(Place::Relay(relay)), Some(over)) => {
            Some(format!("over {}, not over relay {relay} as planned", name(over)))
        }
        (_, None) => None,
        // A publisher's own node makes its pictures smaller so.
        (_, Some(over)) if over.names.contains(&live.publisher_node) => None,
        (_, Some(over)) => Some(format!("over {}, not directly as planned", name(over))),
    }
}

fn bare(name: &str) -> &str {
    name.strip_prefix('/').unwrap_or(name)
}

fn is_publisher(live: &Live, node: &str) -> bool {
    live.publisher_node == node
        || bare(&live.publisher) == node
        || live.publisher == format!("/{}@{node}", bare(&live.topic))
        || is_default(&live.publisher, node, &live.topic, "pub")
}

/// `true` if a port of this name is the subscriber of a channel of a plan: it has its name, or the contract names none (`/TOPIC@NODE`)
/// and it has the name that a program on that node gives it (`/NODE/TOPIC/sub1`).
pub fn is_subscriber(planned: &Channel, port: &str) -> bool {
    let Channel { topic, node, subscriber, .. } = planned;
    let unnamed = || *subscriber == format!("/{}@{node}", bare(topic));
    port == subscriber || (is_default(port, node, topic, "sub") && unnamed())
}

/// `true` for `/NODE/TOPIC/sub1` and so on, with `word` instead of `sub`.
fn is_default(port: &str, node: &str, topic: &str, word: &str) -> bool {
    let rest = port.strip_prefix('/').and_then(|port| port.strip_prefix(node)).and_then(|port| port.strip_prefix('/'));
    let rest = rest.and_then(|port| port.strip_prefix(bare(topic))).and_then(|port| port.strip_prefix('/'));
    let number = rest.and_then(|port| port.strip_prefix(word));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Publishers of the same topic for the same subscriber.
fn same_subscription(plan: &Plan, one: &Channel) -> usize {
    plan.channels.iter().filter(|other| (&other.topic, &other.subscriber) == (&one.topic, &one.subscriber)).count()
}

/// A way that was measured by itself: from a channel's publisher to its subscriber, or only as far as the relay between, or from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leg<'a> {
    /// The directions of links that it crosses, such as `air to operator`.
    pub route: &'a [String],
    /// Samples were late on it.
    pub late: bool,
}

/// Suspects for late samples: the directions of links that every late leg crosses and no other does, or (where the late ones share
/// no direction) the links. Empty: there is none.
pub fn suspects(plan: &Plan, legs: &[Leg<'_>]) -> Vec<String> {
    let (late, well): (Vec<&Leg>, Vec<&Leg>) = legs.iter().partition(|leg| leg.late);
    let suspected = |fits: &dyn Fn(&str) -> bool| {
        let crosses = |leg: &&Leg| leg.route.iter().any(|direction| fits(direction));
        !late.is_empty() && late.iter().all(crosses) && !well.iter().any(crosses)
    };
    let directions = plan.links.iter().map(|link| format!("{} to {}", link.name, link.to));
    let found: Vec<String> = directions.filter(|name| suspected(&|direction| direction == name)).collect();
    if !found.is_empty() {
        return found;
    }
    let links: BTreeSet<(&str, String, String)> =
        plan.links.iter().map(|link| ends(&link.name, &link.from, &link.to)).collect();
    let either =
        |(_, one, other): &(&str, String, String)| suspected(&|direction| direction == one || direction == other);
    links.into_iter().filter(either).map(|(name, ..)| name.to_owned()).collect()
}

/// A link with its two directions, in the same order for both.
fn ends<'a>(name: &'a str, from: &str, to: &str) -> (&'a str, String, String) {
    let (first, second) = if from < to { (from, to) } else { (to, from) };
    (name, format!("{name} to {first}"), format!("{name} to {second}"))
}
