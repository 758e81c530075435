//! Differences between two plans.

use super::{Channel, Plan};
use crate::quantity::{show_bit_rate, show_time};
use serde::Serialize;
use std::collections::BTreeMap;

/// A value that has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The part, such as `channel video n1 → /viewer`.
    pub what: String,
    /// The value, such as `bound`; empty: the part as a whole.
    pub key: &'static str,
    /// Before; empty: it was not there.
    pub old: String,
    /// After; empty: it is gone.
    pub new: String,
}

/// All differences, in the order of the plans: parts that are new or gone, then each value.
pub fn differences(old: &Plan, new: &Plan) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(
        &mut changes,
        BTreeMap::from([("plan".to_owned(), whole(old))]),
        BTreeMap::from([("plan".to_owned(), whole(new))]),
    );
    let channels = |plan: &Plan| plan.channels.iter().map(|one| (channel_name(one), channel(one))).collect();
    compare(&mut changes, channels(old), channels(new));
    compare(&mut changes, links(old), links(new));
    // Without a placement the load of the nodes is unknown.
    if !old.placement.is_empty() && !new.placement.is_empty() {
        compare(&mut changes, nodes(old), nodes(new));
        compare(&mut changes, proxies(old), proxies(new));
    }
    let refusals =
        |plan: &Plan| plan.refusals.iter().map(|one| (one.what.clone(), refused(&one.needs, &one.has))).collect();
    compare(&mut changes, refusals(old), refusals(new));
    changes
}

type Values = Vec<(&'static str, String)>;
type Parts = BTreeMap<String, Values>;

fn compare(changes: &mut Vec<Change>, old: Parts, new: Parts) {
    for (what, values) in &old {
        match new.get(what) {
            None => changes.push(Change { what: what.clone(), key: "", old: all(values), new: String::new() }),
            Some(now) => {
                let differ = values.iter().zip(now).filter(|(old, new)| old != new);
                changes.extend(differ.map(|((key, old), (_, new))| Change {
                    what: what.clone(),
                    key,
                    old: old.clone(),
                    new: new.clone(),
                }));
            }
        }
    }
    for (what, values) in new.iter().filter(|(what, _)| !old.contains_key(*what)) {
        changes.push(Change { what: what.clone(), key: "", old: String::new(), new: all(values) });
    }
}

fn all(values: &Values) -> String {
    values.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

fn whole(plan: &Plan) -> Values {
    let objective = plan.show_objective().unwrap_or_else(|| "none".to_owned());
    let feasible = if plan.feasible { "yes" } else { "no" };
    vec![("feasible", feasible.to_owned()), ("model", plan.model.to_string()), ("objective", objective)]
}

fn channel_name(channel: &Channel) -> String {
    format!("channel {} {} → {}", channel.topic, channel.publisher, channel.subscriber)
}

fn channel(channel: &Channel) -> Values {
    let time = |us: Option<f64>| us.map_or("none".to_owned(), show_time);
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "none".to_owned());
    vec![
        ("class", channel.class.to_string()),
        ("sched", word(&channel.sched)),
        ("proxy", word(&channel.proxy)),
        ("mean", time(channel.mean_us)),
        ("bound", time(channel.bound_us)),
        ("deadline", time(channel.deadline_us)),
    ]
}

fn links(plan: &Plan) -> Parts {
    let name = |link: &super::Link| format!("link {} {} → {}", link.name, link.from, link.to);
    let values = |link: &super::Link| {
        vec![("rate", show_bit_rate(link.rate_bits_per_s)), ("load", show_bit_rate(link.load_bits_per_s))]
    };
    plan.links.iter().map(|link| (name(link), values(link))).collect()
}

fn nodes(plan: &Plan) -> Parts {
    let values = |node: &super::Node| vec![("processors used", format!("{:.3} of {}", node.cpus_used, node.cpus))];
    plan.nodes.iter().map(|node| (format!("node {}", node.name), values(node))).collect()
}

fn proxies(plan: &Plan) -> Parts {
    let name =
        |proxy: &super::Proxy| format!("proxy {} {} → {}", proxy.topic, proxy.publisher, proxy.subscribers.join(", "));
    // Without scaling there is no need for a proxy.
    let scales = |proxy: &&super::Proxy| {
        let of = |channel: &Channel| channel.topic == proxy.topic && proxy.subscribers.contains(&channel.subscriber);
        plan.channels.iter().any(|channel| channel.proxy.is_some() && of(channel))
    };
    plan.placement.iter().filter(scales).map(|proxy| (name(proxy), vec![("node", proxy.node.clone())])).collect()
}

fn refused(needs: &str, has: &str) -> Values {
    vec![("needs", needs.to_owned()), ("has", has.to_owned())]
}
