//! The plan file: the same plan always gives the same text. Its errors, and the differences between two plans.

use super::{Admitted, Border, Chain, ChainPart, Channel, Link, Node, Plan, Proxy, Setting, TunnelEnd};
use crate::contract::ContractError;
use crate::quantity::{show_bit_rate, show_time};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The head of every plan.
const HEAD: &str =
    "# Made by `thalweg plan`; changes belong into the contract. Compare two of them with `thalweg plan --diff`.\n\n";

impl Plan {
    /// The plan as the text of a file, without values that differ from one run to the next.
    pub fn to_text(&self) -> String {
        let mut plan = self.clone();
        plan.solver.ms = None;
        for channel in &mut plan.channels {
            channel.derivation.clear();
            channel.also.clear();
        }
        // All parts of a plan are tables with text keys, so there is nothing that cannot be written.
        toml::to_string(&plan).map(|text| format!("{HEAD}{text}")).unwrap_or_default()
    }

    /// Channels as text that may stand behind the text of a plan with other channels: none as no text.
    pub fn text_of_channels(channels: &[Channel]) -> String {
        #[derive(Serialize)]
        struct More<'a> {
            channels: &'a [Channel],
        }
        let text = || toml::to_string(&More { channels }).unwrap_or_default(); // as above
        if channels.is_empty() { String::new() } else { format!("\n{}", text()) }
    }

    /// Flows that may come in, as text that may stand behind the text of a plan: none as no text.
    pub fn text_of_admitted(admitted: &[Admitted]) -> String {
        #[derive(Serialize)]
        struct More<'a> {
            admitted: &'a [Admitted],
        }
        let text = || toml::to_string(&More { admitted }).unwrap_or_default(); // as above
        if admitted.is_empty() { String::new() } else { format!("\n{}", text()) }
    }

    /// Reads the text of a plan file.
    ///
    /// # Errors
    /// [`PlanError::File`] with the line and the error there.
    pub fn from_text(text: &str) -> Result<Self, PlanError> {
        toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
            PlanError::File { line, problem: e.message().to_owned() }
        })
    }
}

/// A plan file that cannot be read, a plan that belongs to another contract, or a change that a contract cannot take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The contract cannot be read.
    Contract(ContractError),
    /// The contract cannot be read with the changes made in it.
    Changed(ContractError),
    /// The plan file cannot be read.
    File {
        /// The line, counted from 1.
        line: usize,
        /// The error there.
        problem: String,
    },
    /// The plan was made of another contract.
    OtherContract {
        /// Hash of the plan's contract.
        planned: String,
        /// Hash of the contract at hand.
        given: String,
    },
    /// A change of a table that the contract does not have.
    Missing {
        /// The kind of table, such as `topic`.
        table: String,
        /// Its name.
        name: String,
    },
    /// A change of a table that is written in another form of TOML.
    Layout {
        /// The kind of table.
        table: String,
        /// The form that can be changed.
        form: &'static str,
    },
    /// A change to text that is no TOML value.
    Value {
        /// The key.
        key: String,
        /// The text.
        value: String,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contract(error) => error.fmt(f),
            Self::Changed(error) => write!(f, "with the changes, line {error}"),
            Self::File { line, problem } => write!(f, "{line}: {problem}; allowed is what `thalweg plan -o` writes"),
            Self::OtherContract { planned, given } => {
                write!(f, "1: the plan is of contract {planned}, this is {given}: plan anew")
            }
            Self::Missing { table, name } => write!(f, "the contract has no {table} {name}"),
            Self::Layout { table, form } => write!(f, "{table} is not written as {form}: change it by hand"),
            Self::Value { key, value } => write!(f, "{key} = {value} is no value"),
        }
    }
}

impl std::error::Error for PlanError {}

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
    compare(&mut changes, chains(old), chains(new));
    compare(&mut changes, links(old), links(new));
    compare(&mut changes, settings(old), settings(new));
    compare(&mut changes, tunnels(old), tunnels(new));
    compare(&mut changes, borders(old), borders(new));
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
        ("latency budget", time(channel.latency_budget_us)),
        ("batch", channel.batch.map_or("none".to_owned(), |samples| samples.to_string())),
        ("pace", channel.pace_bits_per_s.map_or("none".to_owned(), |rate| show_bit_rate(rate as f64))),
        (
            "own queue",
            channel.own_queue.as_ref().map_or("none".to_owned(), |own| show_bit_rate(own.rate_bits_per_s as f64)),
        ),
        ("mean", time(channel.mean_us)),
        ("bound", time(channel.bound_us)),
        ("deadline", time(channel.deadline_us)),
    ]
}

fn chains(plan: &Plan) -> Parts {
    let time = |us: Option<f64>| us.map_or("none".to_owned(), show_time);
    let topic = |part: &ChainPart| part.topic.clone() + if part.sampled { " (sampled)" } else { "" };
    let values = |chain: &Chain| {
        let topics = chain.parts.iter().map(topic).collect::<Vec<_>>().join(" → ");
        vec![("topics", topics), ("bound", time(chain.bound_us)), ("deadline", time(chain.deadline_us))]
    };
    plan.chains.iter().map(|chain| (format!("chain {}", chain.name), values(chain))).collect()
}

fn links(plan: &Plan) -> Parts {
    let name = |link: &Link| format!("link {} {} → {}", link.name, link.from, link.to);
    let values = |link: &Link| {
        let control = link.control.as_ref().map(|queue| show_bit_rate(queue.rate_bits_per_s as f64));
        vec![
            ("rate", show_bit_rate(link.rate_bits_per_s)),
            ("load", show_bit_rate(link.load_bits_per_s)),
            ("control", control.unwrap_or_else(|| "none".to_owned())),
        ]
    };
    plan.links.iter().map(|link| (name(link), values(link))).collect()
}

fn settings(plan: &Plan) -> Parts {
    let name = |one: &Setting| format!("setting of {} at {}", one.device, one.node);
    let values = |one: &Setting| vec![("gso_max_segs", one.gso_max_segs.to_string())];
    plan.settings.iter().map(|one| (name(one), values(one))).collect()
}

fn tunnels(plan: &Plan) -> Parts {
    let name = |one: &TunnelEnd| format!("tunnel {} at {}", one.device, one.node);
    let values = |one: &TunnelEnd| {
        let inside = one.inside.map_or("none".to_owned(), |(address, length)| format!("{address}/{length}"));
        let way = format!("{} to {}, port {}", one.local, one.remote, one.port);
        vec![
            ("kind", one.kind.name().to_owned()),
            ("id", one.id.to_string()),
            ("way", way),
            ("mtu", one.mtu.to_string()),
            ("inside", inside),
        ]
    };
    plan.tunnels.iter().map(|one| (name(one), values(one))).collect()
}

fn borders(plan: &Plan) -> Parts {
    let name = |one: &Border| format!("border at {} of {}", one.device, one.node);
    let values = |one: &Border| {
        let classes: Vec<&str> = one.classes.iter().map(|class| class.name()).collect();
        vec![
            ("neighbour", one.neighbour.clone()),
            ("reserved", classes.join(", ")),
            ("instead", one.instead.to_string()),
        ]
    };
    plan.borders.iter().map(|one| (name(one), values(one))).collect()
}

fn nodes(plan: &Plan) -> Parts {
    let values = |node: &Node| vec![("processors used", format!("{:.3} of {}", node.cpus_used, node.cpus))];
    plan.nodes.iter().map(|node| (format!("node {}", node.name), values(node))).collect()
}

fn proxies(plan: &Plan) -> Parts {
    let name = |proxy: &Proxy| format!("proxy {} {} → {}", proxy.topic, proxy.publisher, proxy.subscribers.join(", "));
    // Without scaling there is no need for a proxy.
    let scales = |proxy: &&Proxy| {
        let of = |channel: &Channel| channel.topic == proxy.topic && proxy.subscribers.contains(&channel.subscriber);
        plan.channels.iter().any(|channel| channel.proxy.is_some() && of(channel))
    };
    plan.placement.iter().filter(scales).map(|proxy| (name(proxy), vec![("node", proxy.node.clone())])).collect()
}

fn refused(needs: &str, has: &str) -> Values {
    vec![("needs", needs.to_owned()), ("has", has.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::super::{Limit, Model, Term};
    use super::*;
    use crate::Class;
    use crate::system::TunnelKind;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let mut plan = Plan { model: Model::Mm1, feasible: true, objective_value: Some(0.1 + 0.2), ..Plan::default() };
        plan.channels.push(Channel { topic: "a \"b\"\n".into(), bound_us: Some(1e-7), ..Channel::default() });
        plan.channels[0].terms.insert("link a".into(), 83.42);
        let text = plan.to_text();
        assert!(text.starts_with("# Made by `thalweg plan`"), "{text}");
        assert_eq!(Plan::from_text(&text), Ok(plan.clone()));
        plan.solver.ms = Some(3.0);
        plan.channels[0].derivation.push(Term::new("link a", 83.42, "L"));
        assert_eq!(plan.to_text(), text, "what differs between runs is not in it");
    }

    #[test]
    fn channels_may_stand_behind_a_plan() {
        let channel = |topic: &str| {
            let mut channel = Channel { topic: topic.into(), ..Channel::default() };
            channel.terms.insert("pipe".into(), 1.0);
            channel
        };
        let plan = Plan { channels: vec![channel("a")], feasible: true, ..Plan::default() };
        let more = Plan::text_of_channels(&[channel("b"), channel("c")]) + &Plan::text_of_channels(&[channel("d")]);
        let read = Plan::from_text(&(plan.to_text() + &more)).unwrap();
        assert_eq!(read.channels.iter().map(|one| one.topic.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert_eq!(Plan::text_of_channels(&[]), "");
    }

    #[test]
    fn tunnels_and_borders_are_read_as_they_were_written_with_flows_behind() {
        let address = |text: &str| text.parse().unwrap();
        let tunnel = TunnelEnd {
            node: "rw".into(),
            kind: TunnelKind::Srv6,
            device: "vx".into(),
            id: 7,
            port: 4789,
            local: address("10.97.1.1"),
            remote: address("10.97.1.2"),
            mtu: 1450,
            inside: Some((address("fd98::1"), 64)),
        };
        let border = Border { classes: vec![Class::High, Class::Critical], ..Border::default() };
        let channels = vec![Channel::default()];
        let plan = Plan { channels, tunnels: vec![tunnel], borders: vec![border], ..Plan::default() };
        let limit = Limit {
            rate_bits_per_s: 175_000,
            burst_bytes: 2000,
            packets_per_hour: 144_000,
            packets: 4,
            packet_bytes: 1566,
        };
        let flow = Admitted {
            session: "robot/video".into(),
            neighbour: "robot".into(),
            class: Class::High,
            source: address("10.97.0.1"),
            destination: address("10.97.2.2"),
            limit: Some(limit),
        };
        let more = [Plan::text_of_channels(&[Channel::default()]), Plan::text_of_admitted(std::slice::from_ref(&flow))];
        let read = Plan::from_text(&(plan.to_text() + &more.concat() + &more.concat())).unwrap();
        assert_eq!((&read.tunnels, &read.borders), (&plan.tunnels, &plan.borders));
        assert_eq!((read.admitted, read.channels.len()), (vec![flow.clone(), flow], 3));
        assert_eq!(Plan::text_of_admitted(&[]), "");
    }

    #[test]
    fn an_invalid_plan_is_reported() {
        assert!(Plan::from_text("").unwrap_err().to_string().starts_with("1: missing field"));
        assert!(Plan::from_text("feasible = 3").unwrap_err().to_string().starts_with("1: "));
    }
}
