//! The paper's own linear form of the vBNS problem (P-63): as printed it gives wrong answers (E-P3…E-P6).

/// X, Y, Z and the products a = XY, b = YZ, c = ZX, d = aZ.
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
    // Corrected in that only, XYZ = 111 is the cheapest of all; so it is in the form before linearisation (E-P5).
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
