//! The star of Appendix A (P-50…P-53): hub 5, publisher on 1, subscribers on 4 (i = 1) and 3 (i = 2).

use super::*;

/// T = 0.5 s and T' = 1 s, so that f = 2/s and f' = 1/s; the deadline is in units of T.
fn star(deadline: u64) -> System {
    let mut system = network(5, &[(0, 4), (1, 4), (2, 4), (3, 4)]);
    system.topics = vec![topic(0, 100, 2.0)];
    system.subscribers = [3, 2].map(|node| subscriber(0, node, 2, Some(deadline * SECOND / 2))).to_vec();
    system
}

fn star_table(system: &System) -> Vec<Candidate> {
    table(system, &Network::new(system)).remove(0).1
}

#[test]
fn delays_and_costs_are_those_of_the_paper() {
    let [t, scaled] = [0.5e9, 1e9];
    let both = 2.0 * t + 2.0 * scaled;
    let delays = [[2.0 * scaled; 2], [both; 2], [both, 2.0 * t], [2.0 * t, both], [t + scaled; 2]];
    let [f, less] = [2.0, 1.0];
    let costs = [4.0 * less, 4.0 * f + 4.0 * less, 4.0 * f + 2.0 * less, 4.0 * f + 2.0 * less, 2.0 * f + 2.0 * less];
    for (node, line) in star_table(&star(4)).iter().enumerate() {
        assert_eq!(line.delays, delays[node], "P-51, node {}", node + 1);
        assert_eq!(line.cost.messages_per_s, costs[node], "P-52, node {}", node + 1);
        assert_eq!(line.cost.bits_per_s, costs[node] * 800.0);
    }
}

#[test]
fn the_place_is_the_cheapest_that_is_in_time() {
    let place = |deadline| {
        let outcome = outcome(&star(deadline));
        (outcome.placed.first().map(|placed| placed.node + 1), outcome.value, outcome.status)
    };
    // P-53.
    assert_eq!(place(2), (None, None, Status::Infeasible));
    assert_eq!(place(3), (Some(5), Some(6.0), Status::Optimal));
    assert_eq!(place(4), (Some(1), Some(4.0), Status::Optimal));
    assert_eq!(place(5), (Some(1), Some(4.0), Status::Optimal));
}

/// Appendix A as printed: infeasible if Δ > δ (E-P1), so only places that are too late, or just in time, are taken.
fn as_printed(deadline: u64) -> Option<(usize, f64)> {
    let limit = (deadline * SECOND / 2) as f64;
    let table = star_table(&star(deadline));
    let kept = table.iter().filter(|line| !line.delays.iter().any(|delay| limit > *delay));
    kept.map(|line| (line.node + 1, line.cost.messages_per_s)).min_by(|a, b| a.1.total_cmp(&b.1))
}

#[test]
fn the_printed_comparison_is_the_wrong_way_round() {
    assert_eq!(as_printed(2), Some((1, 4.0)), "where nothing is in time");
    assert_eq!(as_printed(3), Some((1, 4.0)), "where only node 5 is");
    assert_eq!(as_printed(5), Some((2, 12.0)), "where node 1 costs a third");
}

#[test]
fn a_deadline_of_two_publisher_periods_cannot_be_kept() {
    // E-P2: the paper says 2T and chooses node 1, which takes 2T'.
    let outcome = outcome(&star(2));
    let deadline = |conflict: &Conflict| matches!(conflict.limit, Limit::Deadline { .. });
    let late: Vec<_> = outcome.conflicts.iter().filter(|conflict| deadline(conflict)).collect();
    // Either subscriber alone is served in 2T, by a proxy at its own node; both are not.
    assert_eq!(late.len(), 2, "{:?}", outcome.conflicts);
    assert!(late.iter().all(|conflict| (conflict.needs, conflict.has) == (3e9, 1e9)), "{late:?}");
}

#[test]
fn the_papers_files_say_the_same() {
    let answer = |text: &str| {
        let system = crate::contract::Contract::read(text).unwrap().system;
        let found = outcome(&system);
        (found.placed.first().map(|placed| system.nodes[placed.node].name.clone()), found.value)
    };
    let node = |name: &str| Some(name.to_owned());
    let star = include_str!("../../../../../examples/papers/star.toml");
    assert_eq!(answer(star), (node("n5"), Some(6.0)));
    assert_eq!(answer(&star.replace("1500 ms", "2 s")), (node("n1"), Some(4.0)));
    assert_eq!(answer(&star.replace("1500 ms", "1 s")), (None, None));
    let vbns = include_str!("../../../../../examples/papers/vbns.toml");
    assert_eq!(answer(vbns), (node("n3"), Some(33_000.0)));
    // The proxy has to be at n3 or later, so link c carries L.
    let narrow = vbns.replacen("100 kbit/s", "9 kbit/s", 3);
    assert_eq!(answer(&narrow), (None, None));
}
