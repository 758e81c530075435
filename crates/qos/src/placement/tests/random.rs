//! Small random systems: mixed-integer programming finds the same as the search through all combinations.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRng;

use super::*;
use crate::system::{Objective, Proxies, Transport};

/// Up to 7 nodes, 3 topics and 5 subscribers, on links and nodes of which some are too small.
pub(super) fn system() -> impl Strategy<Value = System> {
    let shape = (3_usize..8, 0_u64..u64::MAX);
    shape.prop_map(|(nodes, seed)| {
        let mut state = seed | 1;
        // An xorshift generator: the system is a function of its seed.
        let mut below = move |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) % limit.max(1)
        };
        let mut links: Vec<(usize, usize)> = (1..nodes).map(|node| (below(node as u64) as usize, node)).collect();
        for _ in 0..below(4) {
            links.push((below(nodes as u64) as usize, below(nodes as u64) as usize));
        }
        let mut system = network(nodes, &links);
        for link in &mut system.links {
            link.rate = 20_000 + below(200_000);
            link.overhead = below(3) * 33;
            link.mtu = 500 + below(1000);
            link.background = below(5) * 2000;
        }
        for node in &mut system.nodes {
            node.proxy = below(5) > 0;
            node.proxy_capacity = (below(4) == 0).then_some(20.0 + below(60) as f64);
        }
        for _ in 0..1 + below(3) {
            let made = topic(below(nodes as u64) as usize, 50 + below(1000), 5.0 + below(20) as f64);
            system.topics.push(Topic { cpu_send: below(8_000_000), ..made });
        }
        if below(5) == 0 {
            let second = below(nodes as u64) as usize;
            let publishers = &mut system.topics[0].publishers;
            publishers.extend((publishers[0] != second).then_some(second));
        }
        for _ in 0..1 + below(5) {
            let topic = below(system.topics.len() as u64) as usize;
            let deadline = (below(4) > 0).then(|| (1 + below(12)) * system.topics[topic].period);
            let wanted = subscriber(topic, below(nodes as u64) as usize, 1 + below(4) as u32, deadline);
            let scaled_size = (below(3) == 0).then(|| 1 + system.topics[topic].size / 2);
            system.subscribers.push(Subscriber { scaled_size, cpu_receive: below(8_000_000), ..wanted });
        }
        system.placement.objective =
            [Objective::Messages, Objective::Bandwidth, Objective::Cpu, Objective::Weighted][below(4) as usize];
        system.placement.proxies = [Proxies::PerTopic, Proxies::PerSubscriber, Proxies::Merged][below(3) as usize];
        system.placement.transport = [Transport::Unicast, Transport::Multicast][below(2) as usize];
        system.placement.cpu_weight = 0.5;
        system.placement.cpu_proxy = below(5_000_000);
        system
    })
}

/// The outcome of a random system.
enum Kind {
    /// Every group has its own best place.
    Apart,
    /// Groups compete for links or nodes.
    Competing,
    /// No placement keeps all limits.
    Unfit,
}

/// Asserts that mixed-integer programming and the method of [`place`] find a value as good as the best of all
/// combinations, or prove that no placement fits if the search through all finds none.
fn solved(system: &System) -> Result<Kind, TestCaseError> {
    let graph = Network::new(system);
    let problem = Problem::new(system, &graph);
    let choices = exact::choices(&problem);
    let all = exact::best(&problem, &choices).map(|layout| layout.value(&problem));
    let solved = match exact::solve(&problem, &choices, None, None, Duration::from_secs(60)) {
        exact::Found::Placed { layout, proved } => {
            prop_assert!(proved && layout.keeps_all(&problem));
            Some(layout.value(&problem))
        }
        exact::Found::Infeasible => None,
        exact::Found::Nothing => return Err(TestCaseError::fail("the solver gave up")),
    };
    let whole = outcome(system);
    prop_assert_eq!(whole.status, if all.is_some() { Status::Optimal } else { Status::Infeasible });
    prop_assert_eq!(whole.gap(), all.map(|_| 0.0));
    for found in [solved, whole.value] {
        match (found, all) {
            (Some(found), Some(all)) => prop_assert!((found - all).abs() <= 1e-7 * all.max(1e-3), "{found} {all}"),
            (found, all) => prop_assert_eq!(found.is_some(), all.is_some()),
        }
    }
    Ok(match all {
        None => Kind::Unfit,
        Some(_) if each_alone(&problem, &choices).is_some() => Kind::Apart,
        Some(_) => Kind::Competing,
    })
}

#[test]
fn the_solver_finds_what_the_search_through_all_finds() {
    let config = ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() };
    let seed = TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(config, seed);
    let counts = [(); 3].map(|()| Cell::new(0));
    runner
        .run(&system(), |system| {
            let count = &counts[solved(&system)? as usize];
            count.set(count.get() + 1);
            Ok(())
        })
        .unwrap();
    let [apart, competing, unfit] = counts.map(Cell::into_inner);
    println!(
        "{apart} systems with every group in its own best place, {competing} where they compete, {unfit} that do not fit"
    );
    assert_eq!(apart + competing + unfit, 1000);
    assert!(apart > 100 && competing > 100 && unfit > 100, "each kind is among them");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_bound_is_below_every_placement(system in system()) {
        let graph = Network::new(&system);
        let problem = Problem::new(&system, &graph);
        let best = exact::best(&problem, &exact::choices(&problem)).map(|layout| layout.value(&problem));
        let places: Vec<Vec<usize>> = problem.groups.iter().map(|group| problem.places(group)).collect();
        prop_assume!(places.iter().all(|places| !places.is_empty()));
        let found = large(&problem, places, &Effort::default(), &mut Still);
        if let Some(bound) = found.bound.filter(|_| best.is_some()) {
            prop_assert!(bound <= best.unwrap_or(0.0) * (1.0 + 1e-9) + 1e-9, "{bound} above {best:?}");
        }
        if let Some(value) = found.value {
            prop_assert!(best.is_some_and(|best| value >= best * (1.0 - 1e-9) - 1e-9), "{value} below {best:?}");
            prop_assert!(Layout::of(&problem, &found.placed.iter().map(|placed| placed.node).collect::<Vec<_>>()).keeps_all(&problem));
        }
        prop_assert!(best.is_none() || found.status != Status::Infeasible);
    }

    #[test]
    fn prices_along_the_trees_are_those_of_the_choices(system in system(), seed in 1_u64..1000) {
        let graph = Network::new(&system);
        let problem = Problem::new(&system, &graph);
        let places: Vec<Vec<u32>> = problem.groups.iter().map(|group| problem.places(group).into_iter().map(|node| node as u32).collect()).collect();
        prop_assume!(!problem.multicast() && places.iter().all(|places| !places.is_empty()));
        let prices: Vec<f64> = (0..problem.capacity.len() as u64).map(|at| if problem.capacity[at as usize].is_finite() { (at * seed % 7) as f64 * 1e-3 } else { 0.0 }).collect();
        let paid = |choice: &problem::Choice| problem.value(&choice.cost) + choice.uses.iter().map(|(limit, amount)| prices[*limit] * amount).sum::<f64>();
        let least = |group: &Group| problem.places(group).into_iter().map(|node| paid(&problem.choice(group, node))).fold(f64::INFINITY, f64::min);
        let there: f64 = prices.iter().zip(&problem.capacity).filter(|(price, _)| **price > 0.0).map(|(price, has)| price * has).sum();
        let expected = problem.groups.iter().map(least).sum::<f64>() - there;
        let found = bound::Bound::new(&problem, places).at(&prices).bound;
        prop_assert!((found - expected).abs() <= 1e-9 * there.max(expected.abs()).max(1.0), "{found} instead of {expected}");
    }

    #[test]
    fn a_later_admission_keeps_all_limits(system in system()) {
        let mut before = system.clone();
        let last = before.subscribers.len() - 1;
        before.subscribers.pop();
        let (graph, first) = (Network::new(&system), outcome(&before));
        let admitted = admit(&system, &graph, &first, last);
        prop_assert!(first.value.is_some() || admitted.is_none());
        if let Some(found) = admitted {
            let problem = Problem::new(&system, &graph);
            let nodes: Vec<usize> = problem.groups.iter().map(|group| found.placed.iter().find(|placed| placed.group == *group).unwrap().node).collect();
            let layout = Layout::of(&problem, &nodes);
            prop_assert!(layout.keeps_all(&problem));
            prop_assert!(layout.loads.iter().zip([found.loads, found.proxied, found.processors].concat()).all(|(a, b)| (*a - b).abs() <= 1e-6 * a.abs().max(1.0)));
            prop_assert!(found.placed.iter().all(|placed| placed.group.subscribers.iter().zip(&placed.delays).all(|(who, delay)| problem.in_time(*who, *delay))));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn absurd_quantities_end_in_an_answer(mut system in system(), odd in prop::collection::vec((0_usize..12, 0_usize..8), 1..6)) {
        for (what, at) in odd {
            let (topic, link, wanted) = (at % system.topics.len(), at % system.links.len(), at % system.subscribers.len());
            match what {
                0 => system.topics[topic].size = u64::MAX,
                1 => system.topics[topic].rate = 1e-300,
                2 => system.topics[topic].rate = 1e300,
                3 => system.topics[topic].cpu_send = u64::MAX,
                4 => system.links[link].rate = 0,
                5 => system.links[link].rate = u64::MAX,
                6 => system.links[link].background = u64::MAX,
                7 => (system.links[link].mtu, system.links[link].overhead) = (1, u64::MAX),
                8 => system.subscribers[wanted].scale = u32::MAX,
                9 => system.subscribers[wanted].deadline = Some(0),
                10 => system.nodes[at % 3].proxy_capacity = Some(0.0),
                _ => system.subscribers[wanted].scaled_size = Some(0),
            }
        }
        let graph = Network::new(&system);
        let problem = Problem::new(&system, &graph);
        let places: Vec<Vec<usize>> = problem.groups.iter().map(|group| problem.places(group)).collect();
        let mut answers = vec![outcome(&system)];
        if places.iter().all(|places| !places.is_empty()) {
            answers.push(large(&problem, places, &Effort::default(), &mut Still));
        }
        for found in answers {
            prop_assert_eq!(found.value.is_some(), matches!(found.status, Status::Optimal | Status::Feasible));
            prop_assert!(found.value.is_none_or(|value| !value.is_nan()) && found.bound.is_none_or(|bound| !bound.is_nan()));
            prop_assert!(found.conflicts.iter().all(|conflict| !conflict.needs.is_nan() && !conflict.has.is_nan()));
        }
    }
}
