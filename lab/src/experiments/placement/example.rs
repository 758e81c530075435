//! An example's contract, and the planner's figures for each place of the proxy.

use super::Place;
use super::judge::{Found, Predicted};
use crate::error::{Error, Result};
use crate::prediction::{answer, changed, text};
use qos::contract::Contract;
use qos::plan::{FileChange, Model, Plan};
use qos::system::System;

/// The publisher's period T in the lab: the paper's time runs faster, and everything else keeps its ratio.
pub(super) const PERIOD_MS: u64 = 40;
/// Rate of every line, in bit/s. The paper's example has kbit/s; a packet of 1.3 kB takes 1 ms of this, a fortieth of T: the paper
/// leaves transmission out.
pub(super) const RATE: u64 = 10_000_000;
/// Bytes around a sample on a line: Ethernet, IPv4 and UDP headers, and Thalweg's.
pub(super) const OVERHEAD: u64 = 14 + 20 + 8 + 32;

/// A contract of the paper's.
pub(super) struct Example {
    pub contract: &'static str,
    pub sharings: &'static [Sharing],
    /// For each node: how many times L (or f) and L′ (or f′) the paper prints as the cost of a proxy there.
    pub printed: &'static [[u32; 2]],
    /// The nodes that are enough for a short run: the proxy goes nowhere else.
    pub few: &'static [usize],
}

/// Streams of several subscribers on the way to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Each subscriber's is a flow of its own, as in the paper.
    Separate,
    /// One for all, as a relay takes it.
    Merged,
}

impl Sharing {
    /// As the contract has it.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Sharing::Separate => "per-topic",
            Sharing::Merged => "merged",
        }
    }
}

impl Example {
    /// The system of the contract, in the lab's time.
    pub(super) fn system(&self) -> Result<System> {
        Ok(self.contract(Sharing::Separate, ANY, UNLIMITED_US)?.system)
    }

    /// Every place of the proxy, or those at these nodes, with the plan's figures.
    pub(super) fn places(&self, at: Option<&[usize]>) -> Result<Vec<Place>> {
        let system = self.system()?;
        let mut places = Vec::new();
        for sharing in self.sharings {
            for node in (0..system.nodes.len()).filter(|node| at.is_none_or(|at| at.contains(node))) {
                let plan = answer(&self.contract(*sharing, &|other| other == node, UNLIMITED_US)?, Model::PaperHop);
                let predicted = predicted(&system, &plan)?;
                places.push(Place::new(*sharing, node, &system.nodes[node].name, predicted));
            }
        }
        Ok(places)
    }

    /// The planner's choice among these places for a deadline, by the paper's model; `None`: no place is in time.
    pub(super) fn choice(&self, sharing: Sharing, among: &[&Found], deadline_us: u64) -> Result<Option<String>> {
        let plan = answer(&self.contract(sharing, &is_among(among), deadline_us)?, Model::PaperHop);
        Ok(plan.placement.first().map(|proxy| proxy.node.clone()))
    }

    /// The planner's choice for a deadline where nodes pass samples on at once, by its own bounds.
    pub(super) fn choice_at_once(
        &self,
        sharing: Sharing,
        among: &[&Found],
        deadline_us: u64,
    ) -> Result<Option<String>> {
        let mut changes = self.changes(sharing, &is_among(among), deadline_us)?;
        changes.push(text("placement", "", "delay", "bound"));
        let plan = answer(&changed(self.contract, &changes)?, Model::Bound);
        Ok(plan.placement.first().map(|proxy| proxy.node.clone()))
    }

    fn contract(&self, sharing: Sharing, may: &dyn Fn(usize) -> bool, deadline_us: u64) -> Result<Contract> {
        changed(self.contract, &self.changes(sharing, may, deadline_us)?)
    }

    /// The lab's rates and times; the proxy at a node where it may be.
    fn changes(&self, sharing: Sharing, may: &dyn Fn(usize) -> bool, deadline_us: u64) -> Result<Vec<FileChange>> {
        let System { nodes, links, topics, subscribers, .. } = changed(self.contract, &[])?.system;
        let mut changes = vec![text("placement", "", "proxies", sharing.key())];
        for link in &links {
            changes.push(text("link", &link.name, "rate", &format!("{RATE} bit/s")));
            changes.push(text("link", &link.name, "overhead", &format!("{OVERHEAD} B")));
        }
        for topic in &topics {
            changes.push(text("topic", &topic.name, "period", &format!("{PERIOD_MS} ms")));
        }
        for subscriber in &subscribers {
            changes.push(text("subscriber", &subscriber.name, "deadline", &format!("{deadline_us} us")));
            // A proxy in time only: L′ is L / n. Where samples are made smaller, too, a relay takes no more of them than are wanted,
            // and L before it is less than the paper's.
            let size = topics[subscriber.topic].size;
            changes.push(text("subscriber", &subscriber.name, "scaled_size", &format!("{size} B")));
        }
        for (_, node) in nodes.iter().enumerate().filter(|(node, _)| !may(*node)) {
            let (table, key, value) = ("node".into(), "proxy".into(), "false".into());
            changes.push(FileChange { table, name: node.name.clone(), key, value });
        }
        Ok(changes)
    }
}

fn predicted(system: &System, plan: &Plan) -> Result<Predicted> {
    let missing = |what: &str| Error::Failed(format!("the plan has no {what}: {:?}", plan.refusals));
    let proxy = plan.placement.first().ok_or_else(|| missing("place"))?;
    let delay = |name: &String| proxy.delay_us.get(name).copied().ok_or_else(|| missing("delay"));
    let delays_us = system.subscribers.iter().map(|subscriber| delay(&subscriber.name)).collect::<Result<_>>()?;
    let load = |link: &qos::system::Link, way: [usize; 2]| {
        let [from, to] = way.map(|end| &system.nodes[link.between[end]].name);
        let found = plan.links.iter().find(|load| load.name == link.name && load.from == *from && load.to == *to);
        found.map(|load| load.load_bits_per_s).ok_or_else(|| missing("link"))
    };
    let loads = |link| Ok([load(link, [0, 1])?, load(link, [1, 0])?]);
    let links = system.links.iter().map(loads).collect::<Result<_>>()?;
    Ok(Predicted { links, messages_per_s: proxy.cost.messages_per_s, bits_per_s: proxy.cost.bits_per_s, delays_us })
}

const ANY: &dyn Fn(usize) -> bool = &|_| true;

/// Is one of these places at a node?
fn is_among(found: &[&Found]) -> impl Fn(usize) -> bool {
    let nodes: Vec<usize> = found.iter().map(|found| found.place.node).collect();
    move |node| nodes.contains(&node)
}

/// A deadline that every place keeps.
const UNLIMITED_US: u64 = 60_000_000;
