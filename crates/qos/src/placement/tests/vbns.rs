//! The path of seven nodes of the vBNS (P-60…P-62, P-64, Table 3), and its closed form as an oracle.

use proptest::prelude::*;

use super::*;
use crate::system::Objective;

/// L = 8·`size`, L' = 8·`scaled`/`scale` bit/s, T = 1 s, T' = `scale` s; the deadline is in seconds.
fn path(size: u64, scaled: u64, scale: u32, deadline: u64) -> System {
    let mut system = network(7, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]);
    system.placement.objective = Objective::Bandwidth;
    system.topics = vec![topic(0, size, 1.0)];
    let wanted = subscriber(0, 6, scale, Some(deadline * SECOND));
    system.subscribers = vec![Subscriber { scaled_size: Some(scaled), ..wanted }];
    system
}

#[test]
fn each_node_has_the_objective_delay_and_loads_of_the_right_form() {
    let system = path(10, 2, 2, 9);
    let graph = Network::new(&system);
    let problem = Problem::new(&system, &graph);
    let [full, less] = [80.0, 8.0];
    for (k, line) in table(&system, &graph).remove(0).1.iter().enumerate() {
        let before = k as f64;
        assert_eq!(line.cost.bits_per_s, before * full + (6.0 - before) * less);
        assert_eq!(line.delays, [(before + (6.0 - before) * 2.0) * 1e9]);
        let loads = Layout::of(&problem, &[k]).loads;
        for link in 0..6 {
            // Link ℓ counted from 1: L if ℓ ≤ k else L'; nothing the other way.
            assert_eq!(loads[2 * link], if link < k { full } else { less }, "node {k}, link {link}");
            assert_eq!(loads[2 * link + 1], 0.0);
        }
    }
    let outcome = outcome(&system);
    assert_eq!((outcome.placed[0].node, outcome.value, &outcome.placed[0].delays), (3, Some(264.0), &vec![9e9]));
}

proptest! {
    #[test]
    fn the_closed_form_is_met(
        size in 2_u64..50, part in 1_u64..100, scale in 2_u32..6, deadline in 0_u64..40, rates in prop::collection::vec(0_u64..3, 6),
    ) {
        let scaled = (size * part / 100).max(1);
        let mut system = path(size, scaled, scale, deadline);
        let (full, less) = ((size * 8) as f64, (scaled * 8) as f64 / f64::from(scale));
        for (link, kind) in system.links.iter_mut().zip(&rates) {
            link.rate = [less as u64, less.ceil() as u64, full as u64][*kind as usize];
        }
        let least = ((6.0 * f64::from(scale) - deadline as f64) / f64::from(scale - 1)).ceil().max(0.0) as usize;
        let carries = |k: usize| (0..6).all(|link| system.links[link].rate as f64 >= if link < k { full } else { less });
        let k = (least..=6).find(|k| carries(*k));
        let expected = k.map(|k| k as f64 * full + (6 - k) as f64 * less);
        let found = outcome(&system);
        prop_assert_eq!(found.placed.first().map(|placed| placed.node), k);
        let equal = match (found.value, expected) {
            (Some(value), Some(expected)) => (value - expected).abs() <= 1e-9 * expected,
            (value, expected) => value == expected,
        };
        prop_assert!(equal, "{:?} instead of {:?}", found.value, expected);
        prop_assert_eq!(found.status, if k.is_some() { Status::Optimal } else { Status::Infeasible });
    }
}

/// One publisher at CMU and subscribers along the path, each with a proxy of its own.
fn table_3(subscribers: u32) -> System {
    let mut system = path(1000, 500, 2, 9);
    system.placement.proxies = crate::system::Proxies::PerSubscriber;
    let wanted = |index: u32| Subscriber {
        scaled_size: Some(100 + 40 * u64::from(index)),
        ..subscriber(0, 6 - (index % 4) as usize, 2 + index % 3, Some((9 + u64::from(index % 5)) * SECOND))
    };
    system.subscribers = (0..subscribers).map(wanted).collect();
    // On a path a place that is nearer to the publisher is lighter for every link, so all that can bind is the whole.
    system.links.iter_mut().for_each(|link| link.rate = u64::from(subscribers) * 8_000);
    system
}

#[test]
fn the_sizes_of_table_3_are_solved_at_once() {
    for (subscribers, limit) in [(1, 10), (2, 20), (5, 30), (10, 60)] {
        let system = table_3(subscribers);
        let graph = Network::new(&system);
        let problem = Problem::new(&system, &graph);
        let choices = exhaustive::choices(&problem);
        let began = Instant::now();
        let mip = mip::solve(&problem, &choices, None, None, Duration::from_secs(10));
        let took = began.elapsed();
        println!("(1,{subscribers}): {:.1} ms; CPLEX 1997: {limit} ms", took.as_secs_f64() * 1e3);
        let best = exhaustive::best(&problem, &choices);
        match (mip, best) {
            (mip::Found::Placed { layout, proved: true }, Some(best)) => {
                assert!((layout.value(&problem) / best.value(&problem) - 1.0).abs() < 1e-9);
            }
            (mip::Found::Infeasible, None) => panic!("(1,{subscribers}) should fit"),
            _ => panic!("(1,{subscribers}): the solver and the search through all differ"),
        }
    }
}
