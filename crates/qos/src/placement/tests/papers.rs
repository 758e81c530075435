//! The papers' examples: the star of Appendix A, the path of the vBNS with its closed form as an oracle, and the paper's own linear
//! form of that, which gives wrong answers.

use proptest::prelude::*;

use super::*;
use crate::system::Objective;

/// The star (P-50…P-53): hub 5, publisher on 1, subscribers on 4 (i = 1) and 3 (i = 2). T = 0.5 s and T' = 1 s, so that
/// f = 2/s and f' = 1/s; the deadline is in units of T.
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

/// The path of seven nodes (P-60…P-62, P-64, Table 3): L = 8·`size`, L' = 8·`scaled`/`scale` bit/s, T = 1 s,
/// T' = `scale` s; the deadline is in seconds.
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
fn the_sizes_of_table_3_have_the_optimum_of_the_search_through_all() {
    for (subscribers, limit) in [(1, 10), (2, 20), (5, 30), (10, 60)] {
        let system = table_3(subscribers);
        let graph = Network::new(&system);
        let problem = Problem::new(&system, &graph);
        let choices = exact::choices(&problem);
        let began = Instant::now();
        let mip = exact::solve(&problem, &choices, None, None, Duration::from_secs(10));
        let took = began.elapsed();
        println!("(1,{subscribers}): {:.1} ms; CPLEX 1997: {limit} ms", took.as_secs_f64() * 1e3);
        let best = exact::best(&problem, &choices);
        match (mip, best) {
            (exact::Found::Placed { layout, proved: true }, Some(best)) => {
                assert!((layout.value(&problem) / best.value(&problem) - 1.0).abs() < 1e-9);
            }
            (exact::Found::Infeasible, None) => panic!("(1,{subscribers}) should fit"),
            _ => panic!("(1,{subscribers}): the solver and the search through all differ"),
        }
    }
}

/// A point of the linear form (P-63; E-P3…E-P6): X, Y, Z and the products a = XY, b = YZ, c = ZX, d = aZ.
type Point = [i64; 7];

const L: i64 = 10;
const SCALED: i64 = 1;

fn points() -> impl Iterator<Item = Point> {
    (0..128).map(|bits| std::array::from_fn(|at| (bits >> (6 - at)) & 1))
}

/// Coefficients of nodes 0…7 in terms of the binaries and their products.
fn nodes([x, y, z, a, b, c, d]: Point) -> [i64; 8] {
    [1 + a + b + c - x - y - z - d, z + d - c - b, y + d - a - b, b - d, x - a - c + d, c - d, a - d, d]
}

fn objective(point: Point, last: i64) -> i64 {
    let nodes = nodes(point);
    (0..6).map(|k| nodes[k as usize] * (k * L + (6 - k) * SCALED)).sum::<i64>() + last * 6 * L
}

/// As printed: `d − x ≤ 0` stands where `a − x ≤ 0` should, and `b − y ≤ 0` is missing (E-P4).
fn printed([x, y, z, a, b, c, d]: Point) -> bool {
    d <= x
        && a <= y
        && x + y - a <= 1
        && b <= z
        && c <= x
        && y + z - b <= 1
        && c <= z
        && d <= z
        && x + z - c <= 1
        && d <= a
        && z + a - d <= 1
}

/// `true` if a…d are the products.
fn products([x, y, z, a, b, c, d]: Point) -> bool {
    a == x * y && b == y * z && c == x * z && d == a * z
}

fn cheapest(allowed: impl Fn(Point) -> bool, last: impl Fn(Point) -> i64) -> (i64, Point) {
    points().filter(|point| allowed(*point)).map(|point| (objective(point, last(point)), point)).min().unwrap()
}

#[test]
fn the_printed_objective_charges_a_node_that_does_not_exist_twice() {
    let all: Point = [1; 7];
    assert_eq!(objective(all, all[3] + all[6]), 12 * L, "E-P3: (a + d)·6L");
    assert_eq!(objective(all, all[3] - all[6]), 0, "(a − d)·6L");
    // Corrected in that only, XYZ = 111 is the cheapest of all; so it is in the form before linearisation (E-P5). No node of the
    // path is counted there, so its delay and its load of each link are 0, too: no row excludes it.
    assert_eq!(nodes(all)[..7], [0; 7]);
    assert_eq!(cheapest(products, |point| point[3] - point[6]), (0, all));
    // With d = 0 the answer is node 0, at the publisher.
    assert_eq!(cheapest(|point| products(point) && point[6] == 0, |point| point[3] - point[6]), (6 * SCALED, [0; 7]));
}

#[test]
fn the_printed_constraints_let_through_what_is_no_product() {
    let wrong: Point = [0, 1, 0, 1, 0, 0, 0];
    assert!(printed(wrong) && !products(wrong), "E-P4: (a, X, Y) = (1, 0, 1)");
    let missing: Point = [0, 0, 1, 0, 1, 0, 0];
    assert!(printed(missing) && !products(missing), "E-P4: b without Y");
    // T = 1, T' = 2 and Δ = 10 need a proxy at node 2 or later, so link a carries L. Where it carries L' only, nothing fits, but
    // what is printed has an answer: once node 0, once node 6, less once node 4.
    let sum = |point: Point, of: &dyn Fn(i64) -> i64| (0..7).map(|k| nodes(point)[k as usize] * of(k)).sum::<i64>();
    let fits = |point: Point| {
        let link_a = sum(point, &|k| if k >= 1 { L } else { SCALED });
        point[6] == 0 && sum(point, &|k| k + (6 - k) * 2) <= 10 && link_a <= SCALED
    };
    assert!(!points().any(|point| products(point) && fits(point)));
    assert!(printed(wrong) && fits(wrong));
    // The constraints of P-63 let through products only.
    let right = |[x, y, z, a, b, c, d]: Point| {
        a <= x
            && a <= y
            && a + 1 >= x + y
            && b <= y
            && b <= z
            && b + 1 >= y + z
            && c <= x
            && c <= z
            && c + 1 >= x + z
            && d <= a
            && d <= z
            && d + 1 >= a + z
    };
    assert!(points().all(|point| right(point) == products(point)));
}

/// The nodes (0…6) at which each row, a…f, counts L as printed: the term X(1−Y)(1−Z) stands twice, X(1−Y)Z not at all.
const PRINTED_ROWS: [[i64; 7]; 6] = [
    [0, 1, 1, 1, 2, 0, 1],
    [0, 1, 0, 1, 2, 0, 1],
    [0, 0, 0, 1, 2, 0, 1],
    [0, 0, 0, 0, 1, 0, 1],
    [0, 0, 0, 0, 1, 0, 1],
    [0, 0, 0, 0, 1, 0, 1],
];

#[test]
fn the_printed_link_rows_are_wrong_at_four_nodes_once_their_repeated_term_is_mended() {
    // The second of the two terms is node 5's.
    let mended = PRINTED_ROWS.map(|row| {
        let twice = row[4] == 2;
        [row[0], row[1], row[2], row[3], i64::from(twice), 1, row[6]]
    });
    let right = |link: usize, node: usize| i64::from(link < node);
    let mut wrong = Vec::new();
    for (link, row) in mended.iter().enumerate() {
        wrong.extend(
            (0..7)
                .filter(|node| row[*node] != right(link, *node))
                .map(|node| (["a", "b", "c", "d", "e", "f"][link], node)),
        );
    }
    assert_eq!(wrong, [("b", 1), ("b", 2), ("d", 4), ("f", 5)], "E-P6");
    // Unmended, a proxy at node 5 loads no link at all, so it is allowed where nothing fits.
    assert!(PRINTED_ROWS.iter().all(|row| row[5] == 0));
}
