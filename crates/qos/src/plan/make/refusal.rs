//! Refusals: the reasons why not all fits.

use crate::analysis::cpu::reservation::Excess;
use crate::network::Direction;
use crate::placement::{Conflict, Limit, Outcome, Status};
use crate::plan::{Channel, Model, Refusal};
use crate::quantity::{show_bit_rate, show_time};
use crate::system::{self, PlacementDelay, System};

/// Requirements that no placement keeps together.
pub(super) fn of_placement(system: &System, found: &Outcome) -> Vec<Refusal> {
    let is_served = |conflict: &&Conflict| matches!(conflict.limit, Limit::Served { .. });
    let (served, limits): (Vec<_>, Vec<_>) = found.conflicts.iter().partition(is_served);
    let together = together(system, &served, limits.len());
    let mut refusals: Vec<Refusal> = limits.iter().map(|conflict| of_conflict(system, conflict)).collect();
    refusals.iter_mut().for_each(|refusal| refusal.because.push_str(&together));
    if limits.is_empty() {
        refusals.extend(served.iter().map(|conflict| of_conflict(system, conflict)));
    }
    if found.status == Status::Unknown {
        refusals.push(Refusal {
            what: "placement of proxies".to_owned(),
            needs: "more time".to_owned(),
            has: "none".to_owned(),
            because: format!("{} found no placement in its time, and no proof that there is none", found.solver),
            offers: Vec::new(),
        });
    }
    refusals
}

/// The groups that cannot be served together. Without any of them, or any other of the limits, the rest would fit.
fn together(system: &System, served: &[&Conflict], limits: usize) -> String {
    let name = |conflict: &&Conflict| match conflict.limit {
        Limit::Served { subscriber, .. } => Some(system.subscribers[subscriber].name.as_str()),
        _ => None,
    };
    let names: Vec<&str> = served.iter().filter_map(name).collect();
    let others = if limits > 1 { "; without any one of the limits named here the others could be kept" } else { "" };
    if names.is_empty() { others.to_owned() } else { format!("; needed to serve {}{others}", names.join(", ")) }
}

fn of_conflict(system: &System, conflict: &Conflict) -> Refusal {
    let (show, because): (fn(f64) -> String, String) = match conflict.limit {
        Limit::Deadline { subscriber } => (|ns| show_time(ns / 1e3), too_far(system, subscriber)),
        Limit::Link(direction) => (show_bit_rate, crossing(system, direction)),
        Limit::ProxyCapacity { .. } => (per_second, "samples its proxies have to take".to_owned()),
        Limit::Processors { .. } => (processors, "sending, receiving and scaling".to_owned()),
        Limit::Served { publisher, .. } => {
            (|_| "served".to_owned(), format!("what {} publishes has to reach it", system.nodes[publisher].name))
        }
        Limit::Proxies => (whole, "proxy = false".to_owned()),
        Limit::Unreachable { .. } => (whole, "no links lead there".to_owned()),
    };
    let what = what(system, conflict.limit);
    Refusal { what, needs: show(conflict.needs), has: show(conflict.has), because, offers: Vec::new() }
}

/// The limit that cannot be kept.
fn what(system: &System, limit: Limit) -> String {
    let node = |index: usize| &system.nodes[index].name;
    let name = |subscriber: usize| &system.subscribers[subscriber].name;
    match limit {
        Limit::Deadline { subscriber } => format!("deadline of {}", name(subscriber)),
        Limit::Link(direction) => {
            let [from, to] = direction.ends(system);
            format!("link {} from {} to {}", system.links[direction.link].name, node(from), node(to))
        }
        Limit::ProxyCapacity { node: index } => format!("proxies of node {}", node(index)),
        Limit::Processors { node: index } => format!("processors of node {}", node(index)),
        Limit::Served { topic, subscriber, .. } => {
            format!("serving {} of topic {:?}", name(subscriber), system.topics[topic].name)
        }
        Limit::Proxies => "nodes that may not host a proxy".to_owned(),
        Limit::Unreachable { publisher, subscriber } => format!("way from {} to {}", node(publisher), name(subscriber)),
    }
}

fn too_far(system: &System, subscriber: usize) -> String {
    let model = match system.placement.delay {
        PlacementDelay::Paper => "by one period per transmitting node (P-21), ",
        PlacementDelay::Bound => "",
    };
    let topic = &system.topics[system.subscribers[subscriber].topic].name;
    format!("{model}no place of the proxy of {topic:?} is nearer")
}

fn crossing(system: &System, direction: Direction) -> String {
    let system::Link { background, control, .. } = &system.links[direction.link];
    let besides = |rate: u64, what: &str| match rate {
        0 => String::new(),
        rate => format!(", besides {} of {what}", show_bit_rate(rate as f64)),
    };
    let (background, control) = (besides(*background, "background"), besides(*control, "control traffic"));
    format!("so much has to cross it, headers included{background}{control}")
}

fn per_second(value: f64) -> String {
    format!("{value:.1} Hz")
}

fn processors(value: f64) -> String {
    format!("{value:.2} processors")
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// A node that cannot keep its threads' reservations.
pub(super) fn of_reservations(system: &System, node: usize, Excess { needs, has }: &Excess) -> Refusal {
    let system::Node { name, cpus, .. } = &system.nodes[node];
    let together = if *cpus > 1 { ", and so that no long runtime holds up others" } else { "" };
    Refusal {
        what: format!("reserved processor time of {name}"),
        needs: processors(*needs),
        has: processors(*has),
        because: format!(
            "a thread reserves 1.2 times its execution time in each deadline{together}; the kernel admits 90 % of {cpus}"
        ),
        offers: Vec::new(),
    }
}

/// Channels that are later than they may be.
pub(super) fn of_channels(channels: &[Channel], model: Model) -> Vec<Refusal> {
    channels.iter().filter_map(|channel| of_channel(channel, model)).collect()
}

fn of_channel(channel: &Channel, model: Model) -> Option<Refusal> {
    let what = format!("deadline of {}", channel.subscriber);
    let has = channel.deadline_us.map_or("none".to_owned(), show_time);
    let offers = Vec::new();
    let Some(delay) = channel.mean_us.or(channel.bound_us) else {
        // A channel without a deadline may have any delay, unless its queue never comes to rest.
        let matters = channel.deadline_us.is_some() || model.is_mean();
        let why = channel.also.first().map(|term| format!(": {}", term.because)).unwrap_or_default();
        let kind = if model.is_mean() { "mean" } else { "bound" };
        let because = format!(
            "there is no {kind} of the delay of {:?} from {} (model {model}){why}",
            channel.topic, channel.publisher
        );
        return matters.then(|| Refusal { what, needs: "more than any time".to_owned(), has, because, offers });
    };
    // Rounding, not a nanosecond more.
    let late = channel.deadline_us.is_some_and(|deadline| delay > deadline * (1.0 + 1e-9));
    late.then(|| {
        let kind = if model.is_mean() { "the mean delay" } else { "the longest delay" };
        let most = channel.derivation.iter().max_by(|a, b| a.us.total_cmp(&b.us));
        let most = most.map(|term| format!(", most of it {} ({})", term.name, show_time(term.us))).unwrap_or_default();
        let because = format!("{kind} of {:?} from {} (model {model}){most}", channel.topic, channel.publisher);
        Refusal { what, needs: show_time(delay), has, because, offers }
    })
}
