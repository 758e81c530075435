//! Places for the nodes of a network.
//!
//! Nodes repel each other, links hold them together (Fruchterman & Reingold 1991). They start on a circle, without chance,
//! so the same network gives the same picture.

/// The middle of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// Distance from the left.
    pub(super) x: f64,
    /// Distance from the top.
    pub(super) y: f64,
}

/// A place for each of so many nodes, of which some are joined, within `size`.
pub(super) fn places(count: usize, joins: &[[usize; 2]], size: [f64; 2]) -> Vec<Place> {
    let mut places: Vec<Place> = (0..count).map(|n| on_circle(n, count)).collect();
    if count <= MOST {
        let apart = (1.0 / count.max(1) as f64).sqrt();
        let rounds = 300;
        for round in 0..rounds {
            let step = 0.1 * (1.0 - f64::from(round) / f64::from(rounds));
            relax(joins, &mut places, apart, step);
        }
    }
    fit(&mut places, size);
    places
}

fn on_circle(n: usize, count: usize) -> Place {
    // A little off the regular polygon, whose equal distances would balance each other.
    let angle = std::f64::consts::TAU * (n as f64 + 0.05 * (n % 3) as f64) / count.max(1) as f64;
    Place { x: angle.cos(), y: angle.sin() }
}

fn relax(joins: &[[usize; 2]], places: &mut [Place], apart: f64, step: f64) {
    let mut moves = vec![[0.0, 0.0]; places.len()];
    for a in 0..places.len() {
        for b in 0..a {
            let (dx, dy, distance) = between(places[a], places[b]);
            push(&mut moves, a, b, [dx, dy], apart * apart / distance);
        }
    }
    for &[a, b] in joins {
        let (dx, dy, distance) = between(places[a], places[b]);
        push(&mut moves, a, b, [dx, dy], -distance * distance / apart);
    }
    for (place, [x, y]) in places.iter_mut().zip(moves) {
        let length = f64::hypot(x, y).max(1e-9);
        let limited = length.min(step) / length;
        place.x += x * limited;
        place.y += y * limited;
    }
}

/// The direction from `b` to `a`, and the distance.
fn between(a: Place, b: Place) -> (f64, f64, f64) {
    let distance = f64::hypot(a.x - b.x, a.y - b.y).max(1e-6);
    ((a.x - b.x) / distance, (a.y - b.y) / distance, distance)
}

fn push(moves: &mut [[f64; 2]], a: usize, b: usize, [dx, dy]: [f64; 2], force: f64) {
    for (node, sign) in [(a, 1.0), (b, -1.0)] {
        moves[node][0] += sign * dx * force;
        moves[node][1] += sign * dy * force;
    }
}

/// Stretches the picture to the given size.
fn fit(places: &mut [Place], size: [f64; 2]) {
    let range = |of: fn(&Place) -> f64| {
        let values = places.iter().map(of);
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max))
    };
    let (across, down) = (range(|place| place.x), range(|place| place.y));
    let scaled = |value: f64, (low, high): (f64, f64), from: f64, to: f64| {
        if high - low < 1e-6 { (from + to) / 2.0 } else { from + (value - low) / (high - low) * (to - from) }
    };
    for place in places {
        place.x = scaled(place.x, across, MARGIN[0], size[0] - MARGIN[0]);
        place.y = scaled(place.y, down, MARGIN[1], size[1] - MARGIN[1]);
    }
}

/// Margin for names around the outermost nodes, and for proxies below them.
const MARGIN: [f64; 2] = [70.0, 40.0];
/// Largest number of nodes that are moved. More of them stay on the circle: moving them costs more than it gives.
const MOST: usize = 400;
