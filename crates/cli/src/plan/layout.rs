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

/// A place for each of so many nodes, of which some are joined, within `size`. Networks without a link between them stand side by side, each
/// as wide as it has nodes: together they would drift apart until nothing of them could be seen. Single nodes stand in a row below.
pub(super) fn places(count: usize, joins: &[[usize; 2]], size: [f64; 2]) -> Vec<Place> {
    let (lone, networks): (Vec<_>, Vec<_>) = parts(count, joins).into_iter().partition(|part| part.len() == 1);
    if networks.is_empty() || count > MOST {
        return together(count, joins, size);
    }
    let mut places = vec![Place { x: 0.0, y: 0.0 }; count];
    let height = if lone.is_empty() { size[1] } else { size[1] - 2.0 * MARGIN[1] };
    let all: usize = networks.iter().map(Vec::len).sum();
    let mut left = 0.0;
    for part in &networks {
        let width = size[0] * part.len() as f64 / all as f64;
        let own = |node: usize| part.iter().position(|other| *other == node);
        let inside: Vec<[usize; 2]> = joins.iter().filter_map(|&[a, b]| Some([own(a)?, own(b)?])).collect();
        for (node, place) in part.iter().zip(together(part.len(), &inside, [width, height])) {
            places[*node] = Place { x: left + place.x, y: place.y };
        }
        left += width;
    }
    let step = size[0] / (lone.len() + 1) as f64;
    for (at, node) in lone.iter().flatten().enumerate() {
        places[*node] = Place { x: step * (at + 1) as f64, y: size[1] - MARGIN[1] };
    }
    places
}

/// The nodes of each network that hangs together, in their order.
fn parts(count: usize, joins: &[[usize; 2]]) -> Vec<Vec<usize>> {
    let mut part_of: Vec<usize> = (0..count).collect();
    for &[a, b] in joins {
        let (from, to) = (part_of[a].max(part_of[b]), part_of[a].min(part_of[b]));
        part_of.iter_mut().filter(|part| **part == from).for_each(|part| *part = to);
    }
    let mut parts = vec![Vec::new(); count];
    part_of.iter().enumerate().for_each(|(node, part)| parts[*part].push(node));
    parts.retain(|part| !part.is_empty());
    parts
}

/// Places of nodes that are all moved together.
fn together(count: usize, joins: &[[usize; 2]], size: [f64; 2]) -> Vec<Place> {
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
    let [side, top] = [0, 1].map(|axis: usize| MARGIN[axis].min(size[axis] / 2.0));
    for place in places {
        place.x = scaled(place.x, across, side, size[0] - side);
        place.y = scaled(place.y, down, top, size[1] - top);
    }
}

/// Margin for names around the outermost nodes, and for proxies below them.
const MARGIN: [f64; 2] = [70.0, 40.0];
/// Largest number of nodes that are moved. More of them stay on the circle: moving them costs more than it gives.
const MOST: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_without_a_link_stand_side_by_side_and_single_nodes_below() {
        let size = [600.0, 400.0];
        let placed = places(7, &[[0, 1], [1, 2], [3, 4], [4, 5]], size);
        assert!(placed[..3].iter().all(|place| place.x < 300.0), "{placed:?}");
        assert!(placed[3..6].iter().all(|place| place.x > 300.0), "{placed:?}");
        assert!(placed[..6].iter().all(|place| place.y < placed[6].y), "{placed:?}");
        for (at, one) in placed.iter().enumerate() {
            let nearest = placed[..at].iter().map(|other| f64::hypot(one.x - other.x, one.y - other.y));
            assert!(nearest.fold(f64::INFINITY, f64::min) > 60.0, "{placed:?}");
            assert!((0.0..=size[0]).contains(&one.x) && (0.0..=size[1]).contains(&one.y), "{placed:?}");
        }
        assert_eq!(places(7, &[], size), together(7, &[], size));
        assert_eq!(parts(5, &[[3, 4], [4, 0]]), [vec![0, 3, 4], vec![1], vec![2]]);
    }
}
