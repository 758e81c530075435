//! The picture on the page: the network of a plan with the loads that are measured now, or without a plan the nodes, and what flows
//! between them.

use crate::output::bytes;
use crate::participant::Participant;
use crate::plan::{Drawer, Edge, Flow, Map, Spot, percent};
use crate::top::{Row, Screen};
use crate::verify::gather::Gatherer;
use qos::plan::{Link, Plan};
use qos::show_bit_rate;
use qos::system::{self, NodeKind, System};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use thalweg::control::Document;

/// Topics that are named at a line; the others are counted.
const NAMED: usize = 8;

/// Draws look by look.
pub(super) struct Topology<'a> {
    drawer: Drawer,
    /// The network of the plan, with the planned loads.
    planned: Option<(Map, &'a Plan)>,
}

impl<'a> Topology<'a> {
    /// The picture of a plan's network, as its contract has it if that is known; of the nodes if there is no such network.
    pub(super) fn new(plan: Option<&'a Plan>, contract: Option<&System>) -> Self {
        let plan = plan.filter(|plan| !plan.links.is_empty());
        let map = |plan: &Plan| match contract {
            Some(system) => Map::of_plan(system, plan),
            None => Map::of_plan(&system_of(plan), plan),
        };
        Self { drawer: Drawer::default(), planned: plan.map(|plan| (map(plan), plan)) }
    }

    /// The picture now, as SVG.
    pub(super) fn svg(&mut self, participant: &Participant, screen: &Screen, gatherer: Option<&Gatherer>) -> String {
        match (&self.planned, gatherer) {
            (Some((map, plan)), Some(gatherer)) => {
                let map = measured(map, plan, &loads(plan, screen, gatherer));
                self.drawer.svg(&map)
            }
            _ => self.drawer.svg(&live(&participant.others(), &screen.channels)),
        }
    }
}

/// `true` if a plan is of a contract's network: its links are the same, in the same order. A plan without links is drawn without them.
pub(super) fn is_of(plan: &Plan, contract: &System) -> bool {
    let planned = plan.links.iter().map(|link| link.name.as_str());
    let both = contract.links.iter().flat_map(|link| [link.name.as_str(); 2]);
    plan.links.is_empty() || planned.eq(both)
}

/// The system behind a plan, as far as the plan tells: nodes that have no port forward.
fn system_of(plan: &Plan) -> System {
    let names: BTreeSet<&str> = plan.links.iter().map(|link| link.from.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let ends: BTreeSet<&str> =
        plan.channels.iter().flat_map(|one| [one.publisher.as_str(), one.node.as_str()]).collect();
    let place = |name: &str| names.binary_search(&name).unwrap_or_default();
    let node = |name: &&str| system::Node {
        name: (*name).to_owned(),
        kind: if ends.contains(name) { NodeKind::Host } else { NodeKind::Switch },
        ..system::Node::default()
    };
    // Both directions of a link stand one after the other.
    let link = |there: &Link| system::Link {
        name: there.name.clone(),
        between: [place(&there.from), place(&there.to)],
        rate: there.rate_bits_per_s as u64,
        ..system::Link::default()
    };
    System {
        nodes: names.iter().map(node).collect(),
        links: plan.links.iter().step_by(2).map(link).collect(),
        ..System::default()
    }
}

/// Bits per second on each direction of a link that the plan's channels carry now: payload, without headers.
fn loads(plan: &Plan, screen: &Screen, gatherer: &Gatherer) -> HashMap<String, f64> {
    let key = |row: &Row| (row.channel.publisher.clone(), row.channel.subscriber.clone());
    let rates: HashMap<(String, String), f64> = screen.channels.iter().map(|row| (key(row), row.bytes_per_s)).collect();
    let mut loads = HashMap::new();
    for (channel, running) in plan.channels.iter().zip(&gatherer.running) {
        let live = running.as_ref().map(|running| &running.live);
        let rate = live.and_then(|live| rates.get(&(live.publisher.clone(), live.subscriber.clone())));
        for direction in &channel.route {
            *loads.entry(direction.clone()).or_insert(0.0) += 8.0 * rate.copied().unwrap_or(0.0);
        }
    }
    loads
}

/// The network of a plan with these loads instead of the planned ones.
fn measured(map: &Map, plan: &Plan, loads: &HashMap<String, f64>) -> Map {
    let mut map = map.clone();
    let flows = map.links.iter_mut().flat_map(|edge| &mut edge.both);
    for (flow, link) in flows.zip(&plan.links) {
        let load = loads.get(&format!("{} to {}", link.name, link.to)).copied().unwrap_or(0.0);
        let part = load / link.rate_bits_per_s.max(1.0);
        let [now, planned, rate] = [load, link.load_bits_per_s, link.rate_bits_per_s].map(show_bit_rate);
        let title = format!("{} → {}: {now} now, {planned} planned, of {rate}", link.from, link.to);
        *flow = Flow { part: Some(part), is_idle: load <= 0.0, words: percent(part), title };
    }
    map
}

/// What flows from one node to another.
#[derive(Default)]
struct Stream<'a> {
    bytes_per_s: f64,
    topics: BTreeSet<&'a str>,
}

/// The nodes, and what flows between them; over a relay, through it.
fn live(nodes: &[Document], rows: &[Row]) -> Map {
    let at = |(index, node)| ports(node).map(move |port| (port, index));
    let holders: HashMap<&str, usize> = nodes.iter().enumerate().flat_map(at).collect();
    let mut streams: BTreeMap<[usize; 2], [Stream; 2]> = BTreeMap::new();
    for row in rows {
        let ports = [Some(&row.channel.publisher), row.channel.over.as_ref(), Some(&row.channel.subscriber)];
        let way: Vec<usize> =
            ports.into_iter().flatten().filter_map(|port| holders.get(port.as_str()).copied()).collect();
        for leg in way.windows(2).filter(|leg| leg[0] != leg[1]) {
            let back = usize::from(leg[0] > leg[1]);
            let both = streams.entry([leg[back], leg[1 - back]]).or_default();
            both[back].bytes_per_s += row.bytes_per_s;
            both[back].topics.insert(&row.channel.topic);
        }
    }
    let spot = |node: &Document| Spot { name: node.name.clone(), is_host: true, notes: Vec::new() };
    let edge = |([a, b], [there, back]): ([usize; 2], [Stream; 2])| Edge {
        between: [a, b],
        name: String::new(),
        both: vec![flow(&there, &nodes[a].name, &nodes[b].name), flow(&back, &nodes[b].name, &nodes[a].name)],
    };
    Map { nodes: nodes.iter().map(spot).collect(), links: streams.into_iter().map(edge).collect() }
}

fn ports(node: &Document) -> impl Iterator<Item = &str> {
    node.ports.values().map(|port| port.name.as_str())
}

fn flow(stream: &Stream, from: &str, to: &str) -> Flow {
    let words = format!("{}/s", bytes(stream.bytes_per_s));
    let more = stream.topics.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let topics: Vec<&str> = stream.topics.iter().take(NAMED).copied().collect();
    let title = format!("{from} → {to}: {words}: {}{more}", topics.join(", "));
    Flow { part: None, is_idle: stream.topics.is_empty(), words, title }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(from: &str, to: &str) -> Link {
        let (name, rate_bits_per_s) = ("lan".to_owned(), 1e6);
        Link { name, from: from.to_owned(), to: to.to_owned(), rate_bits_per_s, ..Link::default() }
    }

    #[test]
    fn loads_of_a_plan_are_measured_ones() {
        let channel = qos::plan::Channel { publisher: "b".into(), node: "a".into(), ..qos::plan::Channel::default() };
        let plan = Plan { links: vec![link("a", "s"), link("s", "a")], channels: vec![channel], ..Plan::default() };
        let topology = Topology::new(Some(&plan), None);
        let (map, _) = topology.planned.as_ref().unwrap();
        let kinds: Vec<_> = map.nodes.iter().map(|node| (node.name.as_str(), node.is_host)).collect();
        assert_eq!((kinds, map.links[0].between), (vec![("a", true), ("s", false)], [0, 1]));
        let map = measured(map, &plan, &HashMap::from([("lan to a".to_owned(), 0.9e6)]));
        let [there, back] = &map.links[0].both[..] else { panic!("two directions") };
        assert!(there.is_idle && !back.is_idle && back.words == "90 %", "{map:?}");
        assert!(is_of(&plan, &system_of(&plan)) && !is_of(&plan, &System::default()));
        assert!(Topology::new(Some(&Plan::default()), None).planned.is_none(), "no network: the nodes are drawn");
    }
}
