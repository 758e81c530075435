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
