//! The plan: the computed needs of a contract. It has the delay of every channel, the load of each link and node, the
//! places of proxies, and, if not everything fits, the reasons and offers.
//!
//! | module | contents |
//! |---|---|
//! | [`Model`] | the delay models, by name |
//! | `border` | ends of tunnels, and what may come in from neighbouring domains |
//! | `make` | from a contract to its plan (feature `placement`: it needs a solver) |
//! | [`rewrite`] | changes made in the text of a contract (the same feature) |
//! | `file` | the plan file, and [`differences`] between two plans |
//!
//! Times are microseconds here, as people and the papers read them; the analysis itself counts whole nanoseconds.

mod border;
mod file;
#[cfg(feature = "placement")]
mod make;
mod model;
#[cfg(feature = "placement")]
mod rewrite;

pub use border::{Admitted, Border, Limit, TunnelEnd};
pub use file::{Change, PlanError, differences};
#[cfg(feature = "placement")]
pub use make::{Work, attempt, fits, make, make_for, make_within, offers_for};
pub use model::{Model, ModelError};
#[cfg(feature = "placement")]
pub use rewrite::{rewrite, rewrite_part};

use crate::system::{LatencyBudget, NodeKind, Objective, Pace, System};
use crate::{Class, Place};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A plan, as `thalweg plan --json` and the plan file have it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The contract it is for.
    pub contract: For,
    /// Everything fits, and every channel keeps its deadline by this model.
    pub feasible: bool,
    /// The model of delays.
    pub model: Model,
    /// The objective of placement; `None`: the plan is from before this was in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// The value of the objective: messages/s, bit/s or processors. `None`: nothing fits.
    pub objective_value: Option<f64>,
    /// Each publisher with each of its subscribers.
    #[serde(default)]
    pub channels: Vec<Channel>,
    /// Each chain over several topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<Chain>,
    /// Each direction of each link.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Settings of hosts without which it would not fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
    /// Ends of tunnels that agents make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunnels: Vec<TunnelEnd>,
    /// Borders at which agents look at what comes in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub borders: Vec<Border>,
    /// The flows of sessions that may come in there. Brokers add them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admitted: Vec<Admitted>,
    /// Each node.
    #[serde(default)]
    pub nodes: Vec<Node>,
    /// Each proxy.
    #[serde(default)]
    pub placement: Vec<Proxy>,
    /// Reasons why not all fits; empty if it does.
    #[serde(default)]
    pub refusals: Vec<Refusal>,
    /// The solver of the placement.
    pub solver: Solver,
}

impl Plan {
    /// The objective of placement, its value and its unit; `None`: nothing fits.
    pub fn show_objective(&self) -> Option<String> {
        let value = self.objective_value?;
        Some(self.objective.map_or_else(|| format!("{value:.3}"), |objective| objective.show(value)))
    }
}

/// The contract of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct For {
    /// The system's name.
    pub name: String,
    /// The hash of the contract's text, 16 hexadecimal digits.
    pub hash: String,
}

/// A channel's settings and delay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// The topic.
    pub topic: String,
    /// The publisher's node.
    pub publisher: String,
    /// The subscriber's port.
    pub subscriber: String,
    /// The subscriber's node.
    pub node: String,
    /// Packet priority.
    pub class: Class,
    /// The DSCP that marks it, 0…63.
    pub dscp: u8,
    /// Scheduling of the thread that receives it, such as `fifo:30`; `None`: no execution time is declared there.
    pub sched: Option<String>,
    /// The same of the thread that sends it.
    #[serde(default)]
    pub sched_publisher: Option<String>,
    /// It stands for a pipe, which sessions over several domains share: no program has its ports.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pipe: bool,
    /// The node of its proxy, if it has one.
    pub proxy: Option<String>,
    /// The directions of links that it crosses, in order, such as `air to operator`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub route: Vec<String>,
    /// Hops before its proxy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hops_to_proxy: usize,
    /// The latest time at which its proxy sends a sample on, µs, if the proxy is between both ends and the model has
    /// a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxied_us: Option<f64>,
    /// Ratio of published samples to those that the subscriber gets; 0: the plan is from before this was in it.
    #[serde(default)]
    pub scale: u32,
    /// The size of the pictures that it gets, such as `320x240`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<String>,
    /// Samples per second that the subscriber gets; `None`: the plan is from before this was in it.
    pub rate_hz: Option<f64>,
    /// Samples that may come at once, by burst and jitter.
    pub burst: Option<f64>,
    /// What its publisher may send on it, such as `100Hz/2/1000B`; `None`: it is not policed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub police: Option<String>,
    /// The latency budget of its publisher, µs: small samples gather for half of it, 1 ms at most, and leave together; 0: they leave as soon
    /// as they can. `None`: the contract states none, or no link is crossed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_budget_us: Option<f64>,
    /// Samples that may leave together; `None`: as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The pace at which its publisher sends the packets of a sample, bit/s; `None`: all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace_bits_per_s: Option<u64>,
    /// The queue of its own in which its packets wait where its publisher sends them; `None`: its class's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_queue: Option<OwnQueue>,
    /// Mean delay, µs; `None`: the model has none.
    pub mean_us: Option<f64>,
    /// The latest that a sample arrives, µs; `None`: the model has none.
    pub bound_us: Option<f64>,
    /// The latest that it may, µs.
    pub deadline_us: Option<f64>,
    /// Percentiles of the delay by a queueing model, beside bound or mean: no promise. `None`: the model has no distribution, or no service time is stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentiles: Option<Percentiles>,
    /// The part of samples that a full queue loses (`mm1k`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The parts of the delay, µs, by name.
    pub terms: BTreeMap<String, f64>,
    /// The same in the order in which a sample meets them, with their sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derivation: Vec<Term>,
    /// Figures beside the delay that are no part of it: results of another reading of the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Term>,
    /// The parts of the time in which the publisher's node waits and processes (Velox, eq. 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<[f64; 2]>,
}

/// A queue of a channel's own, before the first link that it crosses: what it sends beyond waits, and is dropped, there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnQueue {
    /// The link.
    pub link: String,
    /// Its number on the publisher's host, 0 to 4095: it names the queue to sockets.
    pub number: u16,
    /// What leaves it in the long run, bit/s: guaranteed, and never more.
    pub rate_bits_per_s: u64,
    /// What leaves it at once after a pause, bytes.
    pub burst_bytes: u64,
    /// Packets that wait in it.
    pub packets: u64,
}

impl OwnQueue {
    /// Numbers of queues on a host.
    pub const NUMBERS: u16 = 4096;
}

impl Channel {
    /// The place of its proxy, in the words of programs: at either end, or at the relay of the node's name.
    pub fn place(&self) -> Option<Place> {
        Some(match self.proxy.as_ref()? {
            node if *node == self.publisher => Place::Publisher,
            node if *node == self.node => Place::Subscriber,
            node => Place::Relay(node.clone()),
        })
    }

    /// Its route as far as the proxy, and from there.
    pub fn legs(&self) -> [&[String]; 2] {
        let (before, after) = self.route.split_at(self.hops_to_proxy.min(self.route.len()));
        [before, after]
    }
}

/// Percentiles of a channel's delay by a queueing model: Poisson arrivals, and a queue at the publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The model: M/M/1 beside bounds.
    pub model: Model,
    /// Half of the samples arrive within this, µs.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p999_us: f64,
}

/// A chain over several topics, with the sum of its parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// The latest end of the last callback, counted from the first `publish`, µs: the sum of its parts' waits and bounds. `None`: a part
    /// has no bound, or the model gives means.
    pub bound_us: Option<f64>,
    /// The latest that it may end, µs.
    pub deadline_us: Option<f64>,
    /// Its channels, in order.
    pub parts: Vec<ChainPart>,
}

/// A channel of a chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChainPart {
    /// The topic.
    pub topic: String,
    /// The publisher's node.
    pub publisher: String,
    /// The subscriber's port.
    pub subscriber: String,
    /// Published on a clock of its own; else by the callback of the part before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sampled: bool,
    /// The longest from the end of the callback before until a sample is published that the subscriber gets, µs; 0 unless it is sampled, or
    /// the subscriber gets only some of its samples.
    #[serde(default)]
    pub wait_us: f64,
    /// The bound of the channel, µs.
    pub bound_us: Option<f64>,
}

impl ChainPart {
    /// `true` for the plan's channel that it is.
    pub fn is(&self, channel: &Channel) -> bool {
        (&self.topic, &self.publisher, &self.subscriber) == (&channel.topic, &channel.publisher, &channel.subscriber)
    }
}

/// A part of a delay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// Its name, unique in its channel.
    pub name: String,
    /// Duration, µs.
    pub us: f64,
    /// The calculation and its source.
    pub because: String,
    /// The parts that it is the sum of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Term>,
}

impl Term {
    /// A term without parts.
    pub fn new(name: impl Into<String>, us: f64, because: impl Into<String>) -> Self {
        Self { name: name.into(), us, because: because.into(), parts: Vec::new() }
    }
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The link.
    pub name: String,
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// Its capacity, bit/s.
    pub rate_bits_per_s: f64,
    /// Its load, bit/s on the wire: headers included, undeclared background not.
    pub load_bits_per_s: f64,
    /// Undeclared traffic, bit/s.
    pub background_bits_per_s: f64,
    /// Both, and the rate of control traffic's queue, as a part of the rate.
    pub utilisation: f64,
    /// Order of service: fifo, strict, htb or hfsc.
    pub scheduler: String,
    /// Bytes that may wait in its queue, if the model bounds them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog_bytes: Option<f64>,
    /// The network device of the node that sends, for `thalweg apply` to install the queue on; `None`: the contract names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// It is down: nothing is planned over it, and it has no queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// Packets that each class's queue must hold (with `device`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
    /// Shares of low, normal, high and critical, 0…1 (`htb`, `hfsc`, in models with bounds).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<[f64; 4]>,
    /// The queue of control traffic, where the contract states its rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlQueue>,
}

/// A queue for control traffic, of class high: what comes beyond the rate waits, and is dropped, there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlQueue {
    /// What leaves it in the long run, bit/s: guaranteed, and never more.
    pub rate_bits_per_s: u64,
    /// What leaves it at once after a pause, bytes.
    pub burst_bytes: u64,
    /// Packets that wait in it.
    pub packets: u64,
}

/// A setting of a host's device, which `thalweg apply` makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The node.
    pub node: String,
    /// The link that the device is at.
    pub link: String,
    /// The device.
    pub device: String,
    /// Most packets of a super-packet that the host hands the device (`gso_max_segs`).
    pub gso_max_segs: u32,
    /// What would be late without it.
    pub because: String,
}

/// A system with settings of its hosts, as the plan that has them was computed.
pub fn settle(system: &System, settings: &[Setting]) -> System {
    let mut system = system.clone();
    for setting in settings {
        for link in system.links.iter_mut().filter(|link| link.name == setting.link) {
            let ends = link.between.iter().position(|node| system.nodes[*node].name == setting.node);
            ends.into_iter().for_each(|end| link.segments[end] = Some(setting.gso_max_segs));
        }
    }
    system
}

/// A system as its plan has it: with the settings of its hosts, and the latency budgets and paces that the plan computed.
pub fn as_planned(system: &System, plan: &Plan) -> System {
    let mut system = settle(system, &plan.settings);
    for topic in system.topics.iter_mut().filter(|topic| topic.latency_budget == Some(LatencyBudget::Auto)) {
        let budgets = plan.channels.iter().filter(|channel| channel.topic == topic.name);
        let us = budgets.filter_map(|channel| channel.latency_budget_us).fold(0.0, f64::max);
        topic.latency_budget = Some(LatencyBudget::Stated((us * 1e3).round() as u64));
    }
    for topic in system.topics.iter_mut().filter(|topic| topic.pace == Some(Pace::Auto)) {
        let channels = plan.channels.iter().filter(|channel| channel.topic == topic.name);
        topic.pace = channels.filter_map(|channel| channel.pace_bits_per_s).max().map(Pace::Stated);
    }
    system
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its kind: host, router or switch.
    #[serde(default)]
    pub kind: NodeKind,
    /// Its processors.
    pub cpus: u32,
    /// Processors that sending, receiving and scaling use.
    pub cpus_used: f64,
    /// Processors that the reservations of its channels' threads are worth.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cpus_reserved: f64,
    /// Samples per second that its proxies take.
    pub proxied_per_s: f64,
}

/// A proxy in its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proxy {
    /// The topic.
    pub topic: String,
    /// The publisher's node.
    pub publisher: String,
    /// The subscribers that it serves.
    pub subscribers: Vec<String>,
    /// Its node: the publisher's own, too, if nothing is scaled.
    pub node: String,
    /// The cost of the streams to and from it.
    pub cost: Cost,
    /// Each subscriber's delay of P-21, µs.
    pub delay_us: BTreeMap<String, f64>,
}

/// The cost of a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Messages per second over all links.
    pub messages_per_s: f64,
    /// Payload bit/s over all links.
    pub bits_per_s: f64,
    /// Processors in use.
    pub cpu: f64,
}

/// The reason why not all fits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The limit that is exceeded.
    pub what: String,
    /// The value that it would need, as a quantity.
    pub needs: String,
    /// Its value.
    pub has: String,
    /// The reason.
    pub because: String,
    /// Changes that would make everything fit, the nearest to the request first; the same for all refusals of a plan.
    #[serde(default)]
    pub offers: Vec<Offer>,
}

/// Changes of the contract with which everything fits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The change, for people.
    pub what: String,
    /// The same, as it is done in the file.
    pub changes: Vec<FileChange>,
}

/// A change as it is made in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The table: `subscriber`, `topic`, `chain`, `link`, `node` or `placement`.
    pub table: String,
    /// Its name; empty for `placement`.
    pub name: String,
    /// The key; empty: the table goes.
    pub key: String,
    /// Its new value, as the file has it.
    pub value: String,
}

fn is_none(processors: &f64) -> bool {
    *processors == 0.0
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The solver of a placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Solver {
    /// The method.
    pub name: String,
    /// Time it took, ms; not in the plan file.
    pub ms: Option<f64>,
    /// `true` if no placement is better; this is proved.
    pub optimal: bool,
    /// Largest distance from the optimum, as a part of it.
    pub gap: Option<f64>,
}

#[cfg(test)]
#[cfg(feature = "placement")]
mod tests;
