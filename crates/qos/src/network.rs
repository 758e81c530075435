//! The network of a contract as a graph: routes, the size of a sample on the wire, and the load of each link.
//!
//! Routes avoid links that are down, and are shortest in hops; ties go to the lowest total propagation delay, then to the node that stands first in the file.
//! Such a route's parts are routes themselves, so those from one node form a tree, and those towards one node, too.

use std::sync::OnceLock;

use crate::system::{Link, System};

/// One direction of a link; it has a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Direction {
    /// The link (index into [`System::links`]).
    pub link: usize,
    /// From the second node of [`Link::between`] to the first.
    pub reversed: bool,
}

impl Direction {
    /// Its place in a list of all directions: two for each link.
    pub fn index(self) -> usize {
        2 * self.link + usize::from(self.reversed)
    }

    /// The direction at that place of such a list.
    pub fn at(index: usize) -> Self {
        Self { link: index / 2, reversed: index % 2 == 1 }
    }

    /// The nodes it leads from and to (indices).
    pub fn ends(self, system: &System) -> [usize; 2] {
        let [first, second] = system.links[self.link].between;
        if self.reversed { [second, first] } else { [first, second] }
    }

    /// Most packets of a super-packet that the device which sends takes of its own host, where the plan limits them.
    pub fn segments(self, system: &System) -> Option<u32> {
        system.links[self.link].segments[usize::from(self.reversed)]
    }

    /// The device that sends, if the plan's queue is installed there.
    pub fn device(self, system: &System) -> Option<&str> {
        system.links[self.link].devices[usize::from(self.reversed)].as_deref()
    }
}

/// The routes between one node, the root, and every other.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Hops between each node and the root; `None`: there is no way.
    pub hops: Vec<Option<u32>>,
    /// Each node's neighbour on its route, and the direction in which that hop is made; `None` at the root and off the tree.
    pub up: Vec<Option<(usize, Direction)>>,
    /// The nodes that have a route, the root first, then by hops.
    pub order: Vec<usize>,
}

/// A neighbour: the node, and the direction that leads there.
type Neighbour = (usize, Direction);

/// A contract's network. Trees are computed on first use, so that a large network costs only the parts in use.
#[derive(Debug)]
pub struct Network {
    neighbours: Vec<Vec<Neighbour>>,
    delays: Vec<u64>,
    towards: Vec<OnceLock<Tree>>,
    from: Vec<OnceLock<Tree>>,
}

impl Network {
    /// The network of `system`.
    pub fn new(system: &System) -> Self {
        let count = system.nodes.len();
        let mut neighbours = vec![Vec::new(); count];
        for (link, Link { between: [first, second], down, .. }) in system.links.iter().enumerate() {
            let (first, second) = (*first, *second);
            if first != second && !down {
                neighbours[first].push((second, Direction { link, reversed: false }));
                neighbours[second].push((first, Direction { link, reversed: true }));
            }
        }
        Self {
            neighbours,
            delays: system.links.iter().map(|link| link.delay).collect(),
            towards: (0..count).map(|_| OnceLock::new()).collect(),
            from: (0..count).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Hops of the route; `None`: there is no way.
    pub fn hops(&self, from: usize, to: usize) -> Option<u32> {
        self.towards(to).hops[from]
    }

    /// The route, hop by hop, empty from a node to itself; `None`: there is no way.
    pub fn route(&self, from: usize, to: usize) -> Option<Vec<Direction>> {
        let tree = self.towards(to);
        tree.hops[from]?;
        Some(std::iter::successors(tree.up[from], |(node, _)| tree.up[*node]).map(|(_, direction)| direction).collect())
    }

    /// The routes from every node to `target`.
    pub fn towards(&self, target: usize) -> &Tree {
        self.towards[target].get_or_init(|| self.tree(target, false))
    }

    /// The routes from `source` to every node.
    pub fn from(&self, source: usize) -> &Tree {
        self.from[source].get_or_init(|| self.tree(source, true))
    }

    /// Breadth first. Among the neighbours one hop nearer to the root, the one with the lowest total delay is taken, then the
    /// one whose route stands first. Towards a root, that route differs first at the neighbour itself; from a root, where the
    /// neighbours' routes differ: the rank of each among those of equal length.
    fn tree(&self, root: usize, outwards: bool) -> Tree {
        let count = self.neighbours.len();
        let mut tree = Tree { hops: vec![None; count], up: vec![None; count], order: vec![root] };
        let mut delay = vec![0_u64; count];
        let mut rank: Vec<usize> = if outwards { vec![0; count] } else { (0..count).collect() };
        tree.hops[root] = Some(0);
        let mut level = vec![root];
        for hops in 1.. {
            let mut next = Vec::new();
            for (node, _) in level.iter().flat_map(|node| &self.neighbours[*node]) {
                if tree.hops[*node].is_none() {
                    tree.hops[*node] = Some(hops);
                    next.push(*node);
                }
            }
            if next.is_empty() {
                return tree;
            }
            for node in &next {
                if let Some((total, near, away)) = self.nearest(&tree, *node, &delay, &rank) {
                    delay[*node] = total;
                    let reversed = away.reversed != outwards;
                    tree.up[*node] = Some((near, Direction { link: away.link, reversed }));
                }
            }
            if outwards {
                let by_route = |node: &usize| (tree.up[*node].map(|(near, _)| rank[near]), *node);
                next.sort_unstable_by_key(by_route);
                next.iter().enumerate().for_each(|(place, node)| rank[*node] = place);
            }
            tree.order.extend(&next);
            level = next;
        }
        tree
    }

    /// The neighbour by which a node's route goes, with the route's delay: of those one hop nearer.
    fn nearest(&self, tree: &Tree, node: usize, delay: &[u64], rank: &[usize]) -> Option<(u64, usize, Direction)> {
        let before = tree.hops[node]?.checked_sub(1);
        let nearer = self.neighbours[node].iter().filter(|(near, _)| tree.hops[*near] == before);
        let total = |near: usize, away: &Direction| delay[near].saturating_add(self.delays[away.link]);
        let best = nearer.min_by_key(|(near, away)| (total(*near, away), rank[*near], away.link));
        best.map(|(near, away)| (total(*near, away), *near, *away))
    }
}

/// Publishers and subscribers that no route joins: (topic, node of its publisher, subscriber), indices.
pub fn disconnected(system: &System, network: &Network) -> Vec<(usize, usize, usize)> {
    let mut found = Vec::new();
    for (index, subscriber) in system.subscribers.iter().enumerate() {
        let tree = network.towards(subscriber.node);
        let publishers = &system.topics[subscriber.topic].publishers;
        let apart = publishers.iter().filter(|node| tree.hops[**node].is_none());
        found.extend(apart.map(|node| (subscriber.topic, *node, index)));
    }
    found
}

/// Packets that a sample of `size` bytes takes on `link`: ⌈size/mtu⌉, at least 1.
pub fn packets(link: &Link, size: u64) -> u64 {
    size.div_ceil(link.mtu.max(1)).max(1)
}

/// Bytes that a sample of `size` bytes takes on `link`: size + packets · overhead.
pub fn wire_bytes(link: &Link, size: u64) -> u64 {
    size.saturating_add(packets(link, size).saturating_mul(link.overhead))
}

/// Bit/s on `link` of samples of `size` bytes, `rate` of them per second.
pub fn wire_load(link: &Link, size: u64, rate: f64) -> f64 {
    wire_bytes(link, size) as f64 * 8.0 * rate
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::system::{Node, Subscriber, Topic};

    /// A system of `nodes` nodes and these links (ends, delay).
    fn system(nodes: usize, links: &[(usize, usize, u64)]) -> System {
        System {
            nodes: (0..nodes).map(|index| Node { name: format!("n{index}"), ..Node::default() }).collect(),
            links: links.iter().map(|&(a, b, delay)| Link { between: [a, b], delay, ..Link::default() }).collect(),
            ..System::default()
        }
    }

    /// The nodes of a route, its end included.
    fn nodes(system: &System, from: usize, route: &[Direction]) -> Vec<usize> {
        std::iter::once(from).chain(route.iter().map(|direction| direction.ends(system)[1])).collect()
    }

    /// All ways without a node twice, by brute force: (nodes, delay).
    fn ways(system: &System, from: usize, to: usize) -> Vec<(Vec<usize>, u64)> {
        fn go(system: &System, way: &mut Vec<usize>, delay: u64, to: usize, found: &mut Vec<(Vec<usize>, u64)>) {
            let last = way[way.len() - 1];
            if last == to {
                return found.push((way.clone(), delay));
            }
            for link in &system.links {
                let [a, b] = link.between;
                for (here, there) in [(a, b), (b, a)] {
                    if here == last && !way.contains(&there) {
                        way.push(there);
                        go(system, way, delay + link.delay, to, found);
                        way.pop();
                    }
                }
            }
        }
        let mut found = Vec::new();
        go(system, &mut vec![from], 0, to, &mut found);
        found
    }

    #[test]
    fn ties_go_to_the_lowest_delay_then_to_the_order_of_the_file() {
        // 0 to 3 over 1 or 2.
        let slow_first = system(4, &[(0, 1, 5), (1, 3, 5), (0, 2, 4), (2, 3, 5)]);
        let route = Network::new(&slow_first).route(0, 3).unwrap();
        assert_eq!(nodes(&slow_first, 0, &route), [0, 2, 3]);
        let equal = system(4, &[(0, 2, 5), (2, 3, 5), (0, 1, 4), (1, 3, 6)]);
        let network = Network::new(&equal);
        assert_eq!(nodes(&equal, 0, &network.route(0, 3).unwrap()), [0, 1, 3]);
        assert_eq!(nodes(&equal, 3, &network.route(3, 0).unwrap()), [3, 1, 0]);
        // Fewer hops win at any delay; of two links side by side, the faster.
        let direct = system(3, &[(0, 1, 1), (1, 2, 1), (0, 2, 100), (2, 0, 50)]);
        let route = Network::new(&direct).route(0, 2).unwrap();
        assert_eq!(route, [Direction { link: 3, reversed: true }]);
    }

    #[test]
    fn a_node_is_no_hop_from_itself_and_parts_without_a_link_are_named() {
        let mut system = system(4, &[(0, 1, 0), (2, 3, 0), (1, 1, 0)]);
        system.topics = vec![Topic { publishers: vec![0, 3], ..Topic::default() }];
        system.subscribers = vec![Subscriber { node: 1, ..Subscriber::default() }];
        let network = Network::new(&system);
        assert_eq!(network.route(2, 2).unwrap(), []);
        assert_eq!(network.hops(2, 2), Some(0));
        assert_eq!((network.route(0, 2), network.hops(3, 1)), (None, None));
        assert_eq!(disconnected(&system, &network), [(0, 3, 0)]);
    }

    #[test]
    fn each_packet_adds_its_overhead() {
        let link = Link { mtu: 1500, overhead: 66, ..Link::default() };
        assert_eq!((wire_bytes(&link, 0), wire_bytes(&link, 1), wire_bytes(&link, 1500)), (66, 67, 1566));
        assert_eq!(wire_bytes(&link, 8192), 8192 + 6 * 66);
        assert_eq!(wire_load(&link, 1500, 10.0), 1566.0 * 80.0);
        assert_eq!(wire_bytes(&Link { mtu: 0, overhead: u64::MAX, ..link }, u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn routes_are_the_best_of_all_ways(count in 2_usize..7, links in prop::collection::vec((0_usize..7, 0_usize..7, 0_u64..3), 1..12)) {
            let links: Vec<_> = links.into_iter().map(|(a, b, delay)| (a % count, b % count, delay)).filter(|(a, b, _)| a != b).collect();
            let system = system(count, &links);
            let network = Network::new(&system);
            for from in 0..count {
                for to in 0..count {
                    let best = ways(&system, from, to).into_iter().min_by_key(|(way, delay)| (way.len(), *delay, way.clone()));
                    let route = network.route(from, to);
                    prop_assert_eq!(route.as_ref().map(|route| nodes(&system, from, route)), best.as_ref().map(|(way, _)| way.clone()));
                    prop_assert_eq!(network.hops(from, to), best.as_ref().map(|(way, _)| way.len() as u32 - 1));
                    // The tree from the source says the same, read from its end.
                    let tree = network.from(from);
                    let back: Option<Vec<_>> = tree.hops[to].map(|_| {
                        let mut hops: Vec<_> = std::iter::successors(tree.up[to], |(node, _)| tree.up[*node]).map(|(_, way)| way).collect();
                        hops.reverse();
                        hops
                    });
                    prop_assert_eq!(route, back);
                }
            }
        }
    }
}
