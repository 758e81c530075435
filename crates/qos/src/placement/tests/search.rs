//! The search leaves a place where no single move is worth its fine.

use super::*;
use crate::placement::search::Search;
use crate::system::Proxies;

/// A flow as published, bit/s on the wire.
const WHOLE: f64 = 80_000.0;
const PUBLISHER: usize = 0;
const LEFT: usize = 1;
const RIGHT: usize = 2;

/// A topic for each of these: subscribers' scale, and their numbers on the left and on the right.
fn two_ways(wanted: &[(u32, usize, usize)]) -> System {
    let mut system = network(3, &[(PUBLISHER, LEFT), (PUBLISHER, RIGHT), (LEFT, RIGHT)]);
    system.placement.proxies = Proxies::Merged;
    system.links[0].rate = (1.97 * WHOLE) as u64;
    system.links[1].rate = (3.8 * WHOLE) as u64;
    for (at, &(scale, left, right)) in wanted.iter().enumerate() {
        system.topics.push(topic(PUBLISHER, 1000, 10.0));
        let nodes = std::iter::repeat_n(LEFT, left).chain(std::iter::repeat_n(RIGHT, right));
        system.subscribers.extend(nodes.map(|node| subscriber(at, node, scale, None)));
    }
    system
}

/// Two whole flows are too much for the left way and four for the right one. Only with three groups at the publisher everything fits, and
/// each of them alone would take more from one way than it gives the other, at equal fines.
#[test]
fn limits_that_are_exceeded_by_different_parts_do_not_hold_each_other() {
    let system = two_ways(&[(1, 0, 1), (4, 1, 3), (1, 1, 0), (3, 0, 2), (5, 1, 1), (1, 0, 1)]);
    let places: [&[usize]; 6] =
        [&[RIGHT], &[RIGHT, PUBLISHER], &[LEFT], &[LEFT, PUBLISHER], &[RIGHT, PUBLISHER], &[RIGHT]];
    let graph = Network::new(&system);
    let problem = Problem::new(&system, &graph);
    let choices = problem.groups.iter().zip(places);
    let candidates: Vec<Vec<_>> =
        choices.map(|(group, nodes)| nodes.iter().map(|node| problem.choice(group, *node)).collect()).collect();
    assert_eq!(
        exhaustive::best(&problem, &candidates).map(|best| best.chosen[3].as_ref().unwrap().node),
        Some(PUBLISHER)
    );
    let mut search = Search::new(&problem, candidates, vec![1e6; problem.capacity.len()]);
    let found = (0..100).any(|_| search.sweep());
    assert!(found && search.best.is_some_and(|(_, best)| best.keeps_all(&problem)));
}
