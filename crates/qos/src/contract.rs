//! The contract: the needs of topics and their subscribers, and the network they run on (`system.toml`).
//!
//! Times are whole nanoseconds, sizes bytes, rates bit/s or Hz; references between parts are indices into [`System`]'s lists
//! and always hold, because only the reader of the file makes them.
//!
//! | module | contents |
//! |---|---|
//! | `file` | the file as it is written: tables, lines, names |
//! | `value` | values and their ranges |
//! | `read` | from the file to [`System`] |
//! | `chain` | its chains: the channels that they go over |
//! | [`session`] | what is asked for beside a contract |
//! | [`flow`] | those parts of it that go into other domains |
//! | [`pipe`] | neighbouring domains, and capacity that is sold to sessions over several of them |
//! | [`tunnel`] | links and neighbours behind other networks |
//! | [`rule`] | who may ask for how much |
//! | `merging` | topics that would cost less as one |
//!
//! [`check`] finds likely mistakes in a readable contract, and [`hints`] what would cost less.

mod chain;
mod file;
pub mod flow;
pub mod joined;
mod merging;
pub mod pipe;
mod read;
pub mod rule;
pub mod session;
pub mod tunnel;
mod value;

use crate::gathering;
use crate::network::{Direction, Network, packets, wire_bytes};
use crate::quantity::{show_share, show_time};
use crate::system::{LatencyBudget, Link, Node, PlacementDelay, Sched, Subscriber, System, Topic};
pub use merging::{Hint, hints};
use pipe::{Neighbour, Pipe};
use rule::Rule;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fmt;
#[cfg(feature = "placement")]
pub(crate) use value::FASTEST;

/// A contract file that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contract {
    /// The system it describes.
    pub system: System,
    /// The lines of its tables.
    pub lines: Lines,
    /// The domains beside this one.
    pub neighbours: Vec<Neighbour>,
    /// Its pipes. Each is the topic and subscriber at the same place from the end of the system's lists.
    pub pipes: Vec<Pipe>,
    /// Who may ask for how much.
    pub rules: Vec<Rule>,
    /// 64-bit FNV-1a of the text, by which a plan names its contract.
    pub hash: u64,
}

/// The lines of a file at which its tables begin, counted from 1, in the order of [`System`]'s lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Lines of `[[node]]`.
    pub nodes: Vec<usize>,
    /// Lines of `[[link]]`.
    pub links: Vec<usize>,
    /// Lines of `[[topic]]`.
    pub topics: Vec<usize>,
    /// Lines of `[[subscriber]]`.
    pub subscribers: Vec<usize>,
    /// Lines of `[[chain]]`.
    pub chains: Vec<usize>,
    /// Lines of `[[session]]`: none in a contract of its own.
    pub sessions: Vec<usize>,
}

/// The names that [`is_device`] takes, for messages.
pub const DEVICE: &str = "a network device's name, 1 to 15 letters, digits or _ - . @ :";

/// A network device's name that the kernel takes (IFNAMSIZ), without characters that have a meaning for `tc` or `nft`.
pub fn is_device(name: &str) -> bool {
    (1..16).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.@:".contains(c))
}

/// An error in a contract file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractError {
    /// The line, counted from 1.
    pub line: usize,
    /// Key, value and the allowed ones.
    pub problem: String,
}

impl fmt::Display for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ContractError {}

impl Contract {
    /// Reads the text of a contract file. For any text, the numbers of the resulting [`System`] are within limits
    /// (times up to a day, samples up to 1 GiB, …), its references hold, and every subscriber can be reached.
    ///
    /// # Errors
    /// [`ContractError`] with line, key, value and the allowed ones.
    pub fn read(text: &str) -> Result<Self, ContractError> {
        read::read_alone(text)
    }
}

/// 64-bit FNV-1a.
pub(crate) fn hash(text: &str) -> u64 {
    let step = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A likely mistake in a contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The line of its table.
    pub line: usize,
    /// The part of the contract, such as `link "a"`.
    pub what: String,
    /// The reason, with the values.
    pub because: String,
}

/// Looks through a readable contract for likely mistakes (`thalweg plan --check`); findings in the order of its lines.
pub fn check(contract: &Contract) -> Vec<Finding> {
    let network = Network::new(&contract.system);
    let mut findings = shares(contract);
    findings.extend(unused(contract, &network));
    findings.extend(names(contract));
    findings.extend(topics(contract));
    findings.extend(chain::check(contract));
    // A pipe has no period of its own.
    let programs = |one: &Subscriber| !contract.system.topics[one.topic].pipe;
    for (index, subscriber) in contract.system.subscribers.iter().enumerate().filter(|(_, one)| programs(one)) {
        let because = requests(&contract.system, subscriber, &network);
        findings.extend(because.into_iter().map(|because| Finding {
            line: contract.lines.subscribers[index],
            what: format!("subscriber {:?}", subscriber.name),
            because,
        }));
    }
    findings.sort_by_key(|finding| finding.line);
    findings
}

fn shares(contract: &Contract) -> Vec<Finding> {
    let links = contract.system.links.iter().zip(&contract.lines.links);
    let less = |(link, line): (&Link, &usize)| {
        let sum: f64 = link.shares?.iter().sum();
        (sum < 1.0 - 1e-9).then(|| Finding {
            line: *line,
            what: format!("link {:?}", link.name),
            because: format!(
                "shares add up to {}: {} belong to no class (E-V7)",
                show_share(sum),
                show_share(1.0 - sum)
            ),
        })
    };
    links.filter_map(less).collect()
}

/// Links that no channel crosses, topics without subscribers, nodes with neither.
fn unused(contract: &Contract, network: &Network) -> Vec<Finding> {
    let system = &contract.system;
    let (mut links, mut nodes, mut topics) = (HashSet::new(), HashSet::new(), HashSet::new());
    for subscriber in &system.subscribers {
        topics.insert(subscriber.topic);
        for publisher in &system.topics[subscriber.topic].publishers {
            links.extend(network.route(*publisher, subscriber.node).unwrap_or_default().iter().map(|way| way.link));
            nodes.extend([*publisher, subscriber.node]);
        }
    }
    nodes.extend(system.topics.iter().flat_map(|topic| topic.publishers.iter().copied()));
    nodes.extend(system.links.iter().flat_map(|link| link.between));
    let finding = |line, what, because: &str| Finding { line, what, because: because.to_owned() };
    let link = |(index, link): (usize, &Link)| {
        let because = "unused: no route from a publisher to its subscribers crosses it";
        (!links.contains(&index))
            .then(|| finding(contract.lines.links[index], format!("link {:?}", link.name), because))
    };
    let topic = |(index, topic): (usize, &Topic)| {
        (!topics.contains(&index)).then(|| {
            finding(contract.lines.topics[index], format!("topic {:?}", topic.name), "unused: nobody wants it")
        })
    };
    let node = |(index, node): (usize, &Node)| {
        let because = "unused: no link leads to it, and nothing runs there";
        (!nodes.contains(&index))
            .then(|| finding(contract.lines.nodes[index], format!("node {:?}", node.name), because))
    };
    let found = system.links.iter().enumerate().filter_map(link);
    let found = found.chain(system.topics.iter().enumerate().filter_map(topic));
    found.chain(system.nodes.iter().enumerate().filter_map(node)).collect()
}

/// Names that mean different things. (Of one kind, a name used twice is an error.)
fn names(contract: &Contract) -> Vec<Finding> {
    let (system, lines) = (&contract.system, &contract.lines);
    let nodes = system.nodes.iter().zip(&lines.nodes).map(|(node, line)| (node.name.as_str(), "node", *line));
    let links = system.links.iter().zip(&lines.links).map(|(link, line)| (link.name.as_str(), "link", *line));
    let topics = system.topics.iter().zip(&lines.topics).map(|(topic, line)| (topic.name.as_str(), "topic", *line));
    let mut seen: HashMap<&str, (&str, usize)> = HashMap::new();
    let mut findings = Vec::new();
    for (name, kind, line) in nodes.chain(links).chain(topics) {
        if let Some((other, first)) = seen.insert(name, (kind, line)) {
            let because = format!("name used twice: a {other} of line {first} has it, too");
            findings.push(Finding { line, what: format!("{kind} {name:?}"), because });
        }
    }
    findings
}

fn topics(contract: &Contract) -> Vec<Finding> {
    let busy = |(topic, line): (&Topic, &usize)| {
        (topic.cpu_send > topic.period).then(|| Finding {
            line: *line,
            what: format!("topic {:?}", topic.name),
            because: format!(
                "cpu_send {} is longer than its period {}: no thread can send it",
                show(topic.cpu_send),
                show(topic.period)
            ),
        })
    };
    let idle = |(topic, line): (&Topic, &usize)| {
        (topic.sched == Some(Sched::Reserved) && topic.cpu_send == 0).then(|| Finding {
            line: *line,
            what: format!("topic {:?}", topic.name),
            because: "sched = \"reserved\" without cpu_send: nothing is reserved for its senders".to_owned(),
        })
    };
    let each = || contract.system.topics.iter().zip(&contract.lines.topics);
    let strict = |(topic, line): (&Topic, &usize)| {
        (topic.police && topic.jitter == 0 && topic.burst == 1).then(|| Finding {
            line: *line,
            what: format!("topic {:?}", topic.name),
            because: "police = true without jitter: behind a sample that is a little late, the next one comes too early and is refused".to_owned(),
        })
    };
    let whole = |(topic, line): (&Topic, &usize)| {
        let least = contract.system.links.iter().map(|link| link.mtu).min()?;
        (topic.pace.is_some() && topic.size <= least && topic.burst == 1).then(|| Finding {
            line: *line,
            what: format!("topic {:?}", topic.name),
            because: format!("pace without effect for others: its samples of {} B are single packets", topic.size),
        })
    };
    let useless = |(topic, line): (&Topic, &usize)| {
        let because = match topic.latency_budget? {
            LatencyBudget::Stated(0) => return None,
            _ if topic.size > gathering::LARGEST => {
                format!(
                    "latency_budget without effect: its samples of {} B are above {} B, and leave one by one",
                    topic.size,
                    gathering::LARGEST
                )
            }
            LatencyBudget::Auto if topic.cpu_send > 0 => {
                "latency_budget = \"auto\" with cpu_send: a thread of its own sends it, which gathers nothing"
                    .to_owned()
            }
            _ => return None,
        };
        Some(Finding { line: *line, what: format!("topic {:?}", topic.name), because })
    };
    let found = each().filter_map(busy).chain(each().filter_map(idle)).chain(each().filter_map(strict));
    found.chain(each().filter_map(useless)).chain(each().filter_map(whole)).collect()
}

fn show(ns: u64) -> String {
    show_time(ns as f64 / 1e3)
}

/// Requests that a subscriber can hardly get.
fn requests(system: &System, subscriber: &Subscriber, network: &Network) -> Vec<String> {
    let topic = &system.topics[subscriber.topic];
    let mut found = Vec::new();
    if let Some(scaled) = subscriber.scaled_size.filter(|scaled| *scaled > topic.size) {
        found.push(format!("requested scaled_size {scaled} B is more than the {} B that are offered", topic.size));
    }
    let filter = topic.period.saturating_mul(u64::from(subscriber.scale));
    if subscriber.cpu_receive > filter {
        let (receive, filter) = (show(subscriber.cpu_receive), show(filter));
        found.push(format!(
            "cpu_receive {receive} is longer than the {filter} between two samples: no thread can receive them"
        ));
    }
    let reserved = subscriber.sched.or(topic.sched) == Some(Sched::Reserved);
    if reserved && subscriber.cpu_receive == 0 {
        found.push("sched = \"reserved\" without cpu_receive: nothing is reserved for its thread".to_owned());
    }
    let Some(deadline) = subscriber.deadline else { return found };
    if subscriber.scale > 1 && filter > deadline {
        let scale = subscriber.scale;
        let (filter, deadline) = (show(filter), show(deadline));
        found.push(format!(
            "filter longer than the deadline: scale = {scale} lets a sample pass every {filter}, deadline {deadline}"
        ));
    } else if topic.period > deadline {
        let (period, deadline) = (show(topic.period), show(deadline));
        found.push(format!("offered period {period} is longer than the requested deadline {deadline}"));
    }
    for publisher in &topic.publishers {
        found.extend(unreachable(system, subscriber, *publisher, deadline, network));
    }
    found
}

/// A deadline that cannot be kept: a sample alone on its way takes longer, or placement's own delay does.
fn unreachable(
    system: &System,
    subscriber: &Subscriber,
    publisher: usize,
    deadline: u64,
    network: &Network,
) -> Option<String> {
    let topic = &system.topics[subscriber.topic];
    let size = subscriber.scaled_size.unwrap_or(topic.size).min(topic.size);
    let hops = network.route(publisher, subscriber.node)?;
    let from = &system.nodes[publisher].name;
    let link = |hop: &Direction| &system.links[hop.link];
    let bits = |link: &Link, size: u64| wire_bytes(link, size) as f64 * 8e9 / link.rate as f64;
    let one = |link: &Link| link.transmission.map_or(bits(link, size.min(link.mtu)), |stated| stated as f64);
    let whole =
        |link: &Link| link.transmission.map_or(bits(link, size), |stated| stated as f64 * packets(link, size) as f64);
    // The first packet crosses all links; the others follow on the slowest of them.
    let first: f64 = hops.iter().map(|hop| link(hop).delay as f64 + one(link(hop))).sum();
    let others = hops.iter().map(|hop| whole(link(hop)) - one(link(hop))).fold(0.0, f64::max);
    let forwarding: u64 = hops.iter().skip(1).map(|hop| link(hop).forwarding).sum();
    let hand_over = system.hand_over(subscriber.topic, publisher);
    let ends = topic.cpu_send + topic.hand_in + hand_over + topic.hand_out + subscriber.cpu_receive + forwarding;
    let least = (first + others + ends as f64) / 1e3;
    let limit = deadline as f64 / 1e3;
    if least > limit * (1.0 + 1e-9) {
        let (least, limit) = (show_time(least), show_time(limit));
        return Some(format!(
            "unreachable deadline {limit}: from {from} a sample takes {least} when nothing else is sent"
        ));
    }
    let paper = topic.period.saturating_mul(hops.len() as u64);
    let scales = subscriber.scale > 1 || subscriber.scaled_size.is_some();
    (scales && system.placement.delay == PlacementDelay::Paper && paper > deadline).then(|| {
        let (paper, limit, count) = (show(paper), show_time(limit), hops.len());
        format!("unreachable deadline {limit}: {count} hops from {from}, one period each, take {paper} (P-20; delay = \"bound\" counts otherwise)")
    })
}

#[cfg(test)]
mod tests;
