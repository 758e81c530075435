//! A lower bound on the value of every placement, by prices instead of limits (Lagrangian relaxation).
//!
//! With a price for each limit every group chooses alone, among all nodes. The sum of what they pay, less the price of all
//! capacity, is below the value of every placement that keeps the limits (weak duality). Prices rise for limits that the
//! choices exceed and fall for others (subgradient steps), which raises the bound.

use std::collections::HashMap;

use super::problem::{Choice, Copy, Problem};
use crate::network::{Tree, wire_bytes};
use crate::system::Link;

/// Hops of a tree from its root on: the node, the one before it, and the direction between them.
type Hops = Vec<(u32, u32, u32)>;

/// The choices of each group, prepared for many prices.
pub(super) struct Bound<'a> {
    problem: &'a Problem<'a>,
    /// The nodes that fit each group, and their cost for it.
    pub places: Vec<Vec<u32>>,
    values: Vec<Vec<f64>>,
    /// Links of one kind turn a sample's bytes into equally many on the wire.
    kinds: Vec<(u64, u64)>,
    kind_of: Vec<usize>,
    trees: Vec<Hops>,
    /// For each tree and kind, the prices summed along the way between each node and the root.
    sums: Vec<Vec<f64>>,
    /// The load of each group on its paths: (index of the sum, bit/s).
    legs: Vec<Vec<(usize, f64)>>,
    /// Multicast: groups that may need the same stream, each of which is charged its part.
    sharers: HashMap<Copy, f64>,
    choices: Vec<Vec<Choice>>,
    /// Processors have prices, too.
    work: bool,
}

/// The choices of the groups at given prices.
#[derive(Clone, Default)]
pub(super) struct Chosen {
    /// Below the value of every placement.
    pub bound: f64,
    /// Each group's node.
    pub nodes: Vec<usize>,
}

impl<'a> Bound<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, places: Vec<Vec<u32>>) -> Self {
        let mut kinds: Vec<(u64, u64)> = Vec::new();
        let mut kind_of = Vec::new();
        for link in &problem.system.links {
            let kind = (link.mtu, link.overhead);
            kind_of.push(kinds.iter().position(|other| *other == kind).unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            }));
        }
        let system = problem.system;
        let work = system.placement.cpu_proxy > 0
            || system.topics.iter().any(|topic| topic.cpu_send > 0)
            || system.subscribers.iter().any(|subscriber| subscriber.cpu_receive > 0);
        let mut made = Self {
            problem,
            places,
            values: Vec::new(),
            kinds,
            kind_of,
            trees: Vec::new(),
            sums: Vec::new(),
            legs: Vec::new(),
            sharers: HashMap::new(),
            choices: Vec::new(),
            work,
        };
        if problem.multicast() {
            made.prepare_choices()
        } else {
            made.prepare_legs()
        }
        made
    }

    fn prepare_legs(&mut self) {
        let problem = self.problem;
        let mut roots: HashMap<(usize, bool), usize> = HashMap::new();
        for (group, places) in problem.groups.iter().zip(&self.places) {
            let mut legs: HashMap<usize, f64> = HashMap::new();
            let mut ways = vec![((group.publisher, true), problem.published(group).1, problem.fed(group))];
            ways.extend(group.subscribers.iter().map(|who| {
                ((problem.system.subscribers[*who].node, false), problem.request(*who).size, problem.wanted(*who))
            }));
            for ((root, outwards), size, rate) in ways {
                let tree = *roots.entry((root, outwards)).or_insert_with(|| {
                    let tree = if outwards { problem.network.from(root) } else { problem.network.towards(root) };
                    self.trees.push(hops(tree));
                    self.trees.len() - 1
                });
                for (kind, (mtu, overhead)) in self.kinds.iter().enumerate() {
                    let link = Link { mtu: *mtu, overhead: *overhead, ..Link::default() };
                    *legs.entry(tree * self.kinds.len() + kind).or_insert(0.0) +=
                        wire_bytes(&link, size) as f64 * 8.0 * rate;
                }
            }
            let mut legs: Vec<(usize, f64)> = legs.into_iter().collect();
            legs.sort_unstable_by_key(|(sum, _)| *sum);
            self.legs.push(legs);
            self.values.push(places.iter().map(|node| problem.value_at(group, *node as usize)).collect());
        }
        self.sums = vec![vec![0.0; problem.system.nodes.len()]; self.trees.len() * self.kinds.len()];
    }

    fn prepare_choices(&mut self) {
        let problem = self.problem;
        for (group, places) in problem.groups.iter().zip(&self.places) {
            let choices: Vec<Choice> = places.iter().map(|node| problem.choice(group, *node as usize)).collect();
            let mut copies: Vec<Copy> = choices.iter().flat_map(|choice| choice.shared.iter().copied()).collect();
            copies.sort_unstable();
            copies.dedup();
            copies.into_iter().for_each(|copy| *self.sharers.entry(copy).or_insert(0.0) += 1.0);
            self.choices.push(choices);
        }
        for (group, choices) in self.choices.iter_mut().enumerate() {
            for choice in choices.iter_mut() {
                for copy in std::mem::take(&mut choice.shared) {
                    let (one, part) = (problem.copy(&copy), 1.0 / self.sharers[&copy]);
                    choice.cost.add(&one.cost, part);
                    choice.uses.extend(one.uses.iter().map(|(limit, amount)| (*limit, amount * part)));
                }
            }
            self.values.insert(group, choices.iter().map(|choice| problem.value(&choice.cost)).collect());
        }
    }

    /// The groups' choices when one unit of each limit has this price.
    pub(super) fn at(&mut self, prices: &[f64]) -> Chosen {
        self.sum(prices);
        let mut chosen = Chosen::default();
        for (limit, price) in prices.iter().enumerate().filter(|(_, price)| **price > 0.0) {
            chosen.bound -= price * self.problem.capacity[limit];
        }
        let mut paid = Vec::new();
        for group in 0..self.places.len() {
            self.pay(group, prices, &mut paid);
            let best = (0..paid.len()).min_by(|a, b| paid[*a].total_cmp(&paid[*b])).unwrap_or(0);
            chosen.bound += paid[best];
            chosen.nodes.push(self.places[group][best] as usize);
        }
        chosen
    }

    /// The `count` places that a group pays least for, at the prices of the last call of [`Bound::at`].
    pub(super) fn cheapest(&self, group: usize, prices: &[f64], count: usize) -> Vec<usize> {
        let mut paid = Vec::new();
        self.pay(group, prices, &mut paid);
        let mut order: Vec<usize> = (0..paid.len()).collect();
        if count < order.len() {
            order.select_nth_unstable_by(count, |a, b| paid[*a].total_cmp(&paid[*b]));
            order.truncate(count);
        }
        order.sort_unstable_by(|a, b| paid[*a].total_cmp(&paid[*b]));
        order.into_iter().map(|at| self.places[group][at] as usize).collect()
    }

    /// The places that a group can have in a placement of at most `value`: its own least plus `value − bound` pays for them.
    pub(super) fn within(&self, group: usize, prices: &[f64], spare: f64) -> Vec<usize> {
        let mut paid = Vec::new();
        self.pay(group, prices, &mut paid);
        let least = paid.iter().copied().fold(f64::INFINITY, f64::min);
        let near = paid.iter().zip(&self.places[group]).filter(|(paid, _)| **paid <= least + spare);
        near.map(|(_, node)| *node as usize).collect()
    }

    /// Adds the load of the chosen places to the limits; shared streams by their parts.
    pub(super) fn load(&self, chosen: &Chosen, loads: &mut [f64]) {
        for (group, node) in chosen.nodes.iter().enumerate() {
            let of = &self.problem.groups[group];
            let prepared = self.choices.get(group).and_then(|all| all.iter().find(|choice| choice.node == *node));
            let made = prepared.cloned().unwrap_or_else(|| self.problem.choice(of, *node));
            made.uses.iter().for_each(|(limit, amount)| loads[*limit] += amount);
        }
    }

    fn sum(&mut self, prices: &[f64]) {
        let kinds = self.kinds.len();
        for (at, sum) in self.sums.iter_mut().enumerate() {
            let (tree, kind) = (&self.trees[at / kinds], at % kinds);
            for (node, up, direction) in tree {
                let direction = *direction as usize;
                let price = if self.kind_of[direction / 2] == kind { prices[direction] } else { 0.0 };
                sum[*node as usize] = sum[*up as usize] + price;
            }
        }
    }

    /// The cost of each place of a group at these prices.
    fn pay(&self, group: usize, prices: &[f64], paid: &mut Vec<f64>) {
        paid.clear();
        paid.extend_from_slice(&self.values[group]);
        let price = |uses: &[(usize, f64)]| uses.iter().map(|(limit, amount)| prices[*limit] * amount).sum::<f64>();
        if let Some(choices) = self.choices.get(group) {
            choices.iter().zip(paid).for_each(|(choice, paid)| *paid += price(&choice.uses));
            return;
        }
        let (problem, of, places) = (self.problem, &self.problem.groups[group], &self.places[group]);
        for (sum, load) in &self.legs[group] {
            let sum = &self.sums[*sum];
            places.iter().zip(paid.iter_mut()).for_each(|(node, paid)| *paid += load * sum[*node as usize]);
        }
        let handled = problem.fed(of);
        for (node, paid) in places.iter().map(|node| *node as usize).zip(paid) {
            let scales = problem.scales_at(of, node);
            *paid += if self.work {
                price(&problem.work(of, node).uses)
            } else if scales {
                prices[problem.proxies_of(node)] * handled
            } else {
                0.0
            };
        }
    }
}

fn hops(tree: &Tree) -> Hops {
    let hop = |node: &usize| {
        let (up, direction) = tree.up[*node]?;
        Some((*node as u32, up as u32, direction.index() as u32))
    };
    tree.order.iter().filter_map(hop).collect()
}
