//! Refusals: the conflict is real, and no part of it can be left out.

use proptest::prelude::*;

use super::*;

#[test]
fn an_overloaded_link_is_named_with_what_it_would_need() {
    let mut system = network(3, &[(0, 1), (1, 2)]);
    system.topics = vec![topic(0, 1000, 100.0), topic(0, 1000, 50.0), topic(1, 10, 1.0)];
    system.subscribers = vec![subscriber(0, 2, 2, None), subscriber(1, 2, 1, None), subscriber(2, 2, 1, None)];
    // 50 Hz + 50 Hz of 8000 bit; the third topic doesn't come here.
    system.links[0].rate = 700_000;
    let found = outcome(&system);
    assert_eq!((found.status, found.value, found.placed.len()), (Status::Infeasible, None, 0));
    let link =
        Conflict { limit: Limit::Link(Direction { link: 0, reversed: false }), needs: 800_000.0, has: 700_000.0 };
    assert!(found.conflicts.contains(&link), "{:?}", found.conflicts);
    let served: Vec<usize> = found
        .conflicts
        .iter()
        .filter_map(|c| if let Limit::Served { topic, .. } = c.limit { Some(topic) } else { None })
        .collect();
    assert_eq!(served, [0, 1]);
    assert_eq!(found.conflicts.len(), 3);
}

#[test]
fn a_deadline_that_no_place_keeps_says_what_it_would_have_to_be() {
    let mut system = network(4, &[(0, 1), (1, 2), (2, 3)]);
    system.topics = vec![topic(0, 100, 10.0)];
    system.subscribers = vec![subscriber(0, 3, 4, Some(250_000_000))];
    let found = outcome(&system);
    assert_eq!(found.conflicts[1..], [Conflict { limit: Limit::Deadline { subscriber: 0 }, needs: 3e8, has: 2.5e8 }]);
    // The proxy at the subscriber would do, but may not be there.
    system.subscribers[0].deadline = Some(300_000_000);
    assert_eq!(outcome(&system).placed[0].node, 3);
    system.nodes[3].proxy = false;
    let found = outcome(&system);
    assert_eq!(found.conflicts[1].limit, Limit::Proxies);
    assert_eq!(found.conflicts[2], Conflict { limit: Limit::Deadline { subscriber: 0 }, needs: 6e8, has: 3e8 });
}

#[test]
fn nodes_without_a_route_are_named() {
    let mut system = network(4, &[(0, 1), (2, 3)]);
    system.topics = vec![topic(0, 100, 10.0)];
    system.subscribers = vec![subscriber(0, 1, 1, None), subscriber(0, 3, 1, None)];
    let found = outcome(&system);
    assert_eq!(found.status, Status::Infeasible);
    assert_eq!(
        found.conflicts.iter().map(|conflict| conflict.limit).collect::<Vec<_>>(),
        [Limit::Unreachable { publisher: 0, subscriber: 1 }]
    );
}

/// The requirements as they are, but for those that are left out.
fn fits(system: &System, kept: &[Conflict], without: Option<usize>) -> bool {
    let stays =
        |limit: &Limit| kept.iter().enumerate().any(|(at, conflict)| conflict.limit == *limit && Some(at) != without);
    let graph = Network::new(system);
    let mut problem = Problem::new(system, &graph);
    problem.groups.retain(|group| stays(&conflict::served(group)));
    for limit in 0..problem.capacity.len() {
        if !stays(&problem.limit(limit)) {
            problem.capacity[limit] = f64::INFINITY;
        }
    }
    for subscriber in 0..problem.deadlines.len() {
        if !stays(&Limit::Deadline { subscriber }) {
            problem.deadlines[subscriber] = f64::INFINITY;
        }
    }
    problem.anywhere = !stays(&Limit::Proxies);
    exhaustive::best(&problem, &exhaustive::choices(&problem)).is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_conflict_cannot_be_kept_and_nothing_of_it_can_be_left_out(system in random::system()) {
        let found = outcome(&system);
        if found.status == Status::Infeasible {
            let conflicts = &found.conflicts;
            prop_assert!(!fits(&system, conflicts, None), "{conflicts:?}");
            for (at, conflict) in conflicts.iter().enumerate() {
                prop_assert!(fits(&system, conflicts, Some(at)), "{conflicts:?} without {conflict:?}");
                prop_assert!(conflict.needs > conflict.has, "{conflict:?}");
            }
        }
    }
}
