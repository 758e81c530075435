//! The map of a network in a figure: nodes, links and proxies.
//!
//! Nodes repel each other, links hold them together (Fruchterman & Reingold 1991). They start on a circle, without chance,
//! so the same contract gives the same picture.

use super::figure::{GREY, HALF_HEIGHT, NETWORK, Pen, Style, colour, half_width};
use qos::plan::{Link, Plan};
use qos::show_bit_rate;
use qos::system::{NodeKind, System};

/// Draws the network within [`NETWORK`] from `origin`.
pub(super) fn draw(pen: &mut Pen, system: &System, plan: &Plan, [x, y]: [f64; 2]) {
    let moved = |place: Place| Place { x: place.x + x, y: place.y + y };
    let places: Vec<Place> = places(system, NETWORK).into_iter().map(moved).collect();
    for (index, link) in system.links.iter().enumerate() {
        let ends = link.between.map(|node| [places[node].x, places[node].y]);
        let both: Vec<&Link> = plan.links.iter().skip(2 * index).take(2).collect();
        let name = format!("{}, {}", link.name, show_bit_rate(link.rate as f64));
        let labelled = system.links.len() <= LABELLED;
        draw_link(pen, ends, &both, labelled.then_some(name.as_str()));
    }
    for (node, place) in system.nodes.iter().zip(&places) {
        let (fill, round) = match node.kind {
            NodeKind::Host => ("#dbe9f6", 4.0),
            NodeKind::Router | NodeKind::Switch => ("#eceff1", 15.0),
        };
        pen.named([place.x, place.y], round, fill, &node.name);
        proxies(pen, plan, &node.name, [place.x, place.y + 30.0]);
    }
}

fn proxies(pen: &mut Pen, plan: &Plan, node: &str, [x, y]: [f64; 2]) {
    let here = plan.channels.iter().filter(|channel| channel.proxy.as_deref() == Some(node));
    let mut topics: Vec<&str> = here.map(|channel| channel.topic.as_str()).collect();
    topics.dedup();
    let more = (topics.len() > NAMED).then(|| format!("and {} more", topics.len() - NAMED));
    let named = topics.iter().take(NAMED).map(|topic| format!("◆ scales {topic}"));
    for (line, words) in named.chain(more).enumerate() {
        let style = Style { size: 11.0, anchor: "middle", colour: "#6a3d9a", ..Style::default() };
        pen.text([x, y + 13.0 * line as f64], &words, style);
    }
}

/// One line per direction, on the right-hand side of the traffic, with an arrow and the load.
fn draw_link(pen: &mut Pen, [a, b]: [[f64; 2]; 2], both: &[&Link], name: Option<&str>) {
    let length = f64::hypot(b[0] - a[0], b[1] - a[1]).max(1.0);
    let along = [(b[0] - a[0]) / length, (b[1] - a[1]) / length];
    // A quarter turn to the right, where y grows downwards.
    let aside = [-along[1], along[0]];
    for (index, direction) in both.iter().enumerate() {
        let sign = if index == 0 { 1.0 } else { -1.0 };
        let aside = aside.map(|part| sign * part);
        let (from, to) = if index == 0 { (a, b) } else { (b, a) };
        let ends = [beside(from, aside, APART), beside(to, aside, APART)];
        let idle = direction.utilisation <= 0.0;
        let (colour, width) = if idle {
            (IDLE, 1.5)
        } else {
            (colour(direction.utilisation), 1.5 + 4.0 * direction.utilisation.min(1.0))
        };
        pen.line(ends, colour, width, &load(direction));
        let ahead = along.map(|part| sign * part);
        let tip = beside(ends[1], ahead, -(to_edge(&direction.to, ahead) + CLEAR).min(0.4 * length));
        arrow(pen, tip, ahead, colour);
        if name.is_some() && !idle {
            let style = Style { size: 11.0, bold: direction.utilisation > 0.8, anchor: "middle", colour };
            words_beside(pen, tip, aside, &percent(direction.utilisation), style);
        }
    }
    if let Some(name) = name {
        let middle = [(a[0] + b[0]) / 2.0, (a[1] + b[1]) / 2.0];
        // Above the line, or on the right of a vertical one.
        let up = if aside[1].abs() > 0.2 { -aside[1].signum() } else { aside[0].signum() };
        let style = Style { size: 11.0, anchor: "middle", colour: GREY, ..Style::default() };
        // On a short link, the loads are between the line and its name.
        let apart = APART + 16.0;
        words_beside(pen, beside(middle, aside, up * apart), aside.map(|part| up * part), name, style);
    }
}

/// Distance from the middle of a node's box to its edge, in a direction.
fn to_edge(node: &str, [dx, dy]: [f64; 2]) -> f64 {
    (half_width(node) / dx.abs().max(1e-9)).min(HALF_HEIGHT / dy.abs().max(1e-9))
}

fn beside([x, y]: [f64; 2], [dx, dy]: [f64; 2], by: f64) -> [f64; 2] {
    [x + by * dx, y + by * dy]
}

/// Words beside a point of a line, far enough away in this direction not to cover the line.
fn words_beside(pen: &mut Pen, point: [f64; 2], aside: [f64; 2], words: &str, style: Style) {
    let half = [3.0 * words.chars().count() as f64, 5.0];
    let [x, y] = beside(point, aside, 7.0 + half[0] * aside[0].abs() + half[1] * aside[1].abs());
    pen.text([x, y + 4.0], words, style);
}

fn arrow(pen: &mut Pen, [x, y]: [f64; 2], [dx, dy]: [f64; 2], colour: &str) {
    let point = |ahead: f64, aside: f64| [x + ahead * dx - aside * dy, y + ahead * dy + aside * dx];
    pen.polygon([point(8.0, 0.0), point(-4.0, 5.0), point(-4.0, -5.0)], colour);
}

fn percent(part: f64) -> String {
    match part * 100.0 {
        part if part <= 0.0 => "0 %".to_owned(),
        part if part < 1.0 => "< 1 %".to_owned(),
        part => format!("{part:.0} %"),
    }
}

fn load(link: &Link) -> String {
    let of = show_bit_rate(link.rate_bits_per_s);
    format!("{} → {}: {} of {of}, {}", link.from, link.to, show_bit_rate(link.load_bits_per_s), link.scheduler)
}

/// The middle of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    /// Distance from the left.
    x: f64,
    /// Distance from the top.
    y: f64,
}

/// A place for each node, within `size`.
fn places(system: &System, size: [f64; 2]) -> Vec<Place> {
    let count = system.nodes.len();
    let mut places: Vec<Place> = (0..count).map(|n| on_circle(n, count)).collect();
    if count <= MOST {
        let apart = (1.0 / count.max(1) as f64).sqrt();
        let rounds = 300;
        for round in 0..rounds {
            let step = 0.1 * (1.0 - f64::from(round) / f64::from(rounds));
            relax(system, &mut places, apart, step);
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

fn relax(system: &System, places: &mut [Place], apart: f64, step: f64) {
    let mut moves = vec![[0.0, 0.0]; places.len()];
    for a in 0..places.len() {
        for b in 0..a {
            let (dx, dy, distance) = between(places[a], places[b]);
            push(&mut moves, a, b, [dx, dy], apart * apart / distance);
        }
    }
    for [a, b] in system.links.iter().map(|link| link.between) {
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

/// Number of a node's proxied topics that are named.
const NAMED: usize = 4;
/// Distance of the two directions of a link from its middle.
const APART: f64 = 4.0;
/// Distance between an arrow and the box it points at, so that the load stays visible.
const CLEAR: f64 = 24.0;
/// The colour of an idle link.
const IDLE: &str = "#c3c8ce";
/// Largest number of links with visible names and loads. More would cover each other: they are shown when the pointer
/// is on the line.
const LABELLED: usize = 40;
/// Margin for names around the outermost nodes, and for proxies below them.
const MARGIN: [f64; 2] = [70.0, 40.0];
/// Largest number of nodes that are moved. More of them stay on the circle: moving them costs more than it gives.
const MOST: usize = 400;
