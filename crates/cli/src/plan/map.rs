//! The map of a network in a figure: nodes, links with their loads, and words at both.

use super::figure::{GREY, HALF_HEIGHT, NETWORK, Pen, Style, colour, half_width};
use super::layout::{Place, places};
use qos::plan::{Link, Plan};
use qos::show_bit_rate;
use qos::system::{NodeKind, System};

/// A network to draw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    pub nodes: Vec<Spot>,
    pub links: Vec<Edge>,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub name: String,
    /// It runs programs; else it forwards.
    pub is_host: bool,
    /// Lines below it.
    pub notes: Vec<String>,
}

/// What two nodes exchange.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    /// The two nodes, by their places in the list.
    pub between: [usize; 2],
    /// Words beside it; empty: none.
    pub name: String,
    /// From the first node to the second, and back; those there are.
    pub both: Vec<Flow>,
}

/// One direction.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// The load as a part of the rate; `None`: the rate is not known.
    pub part: Option<f64>,
    /// Nothing flows.
    pub is_idle: bool,
    /// Words at the arrow.
    pub words: String,
    /// Words that are shown when the pointer is on it.
    pub title: String,
}

impl Map {
    /// The network of a system, with the loads of a plan.
    pub(crate) fn of_plan(system: &System, plan: &Plan) -> Self {
        let spot = |node: &qos::system::Node| Spot {
            name: node.name.clone(),
            is_host: node.kind == NodeKind::Host,
            notes: proxies(plan, &node.name),
        };
        let edge = |(index, link): (usize, &qos::system::Link)| Edge {
            between: link.between,
            name: format!("{}, {}", link.name, show_bit_rate(link.rate as f64)),
            both: plan.links.iter().skip(2 * index).take(2).map(Flow::of_plan).collect(),
        };
        Self {
            nodes: system.nodes.iter().map(spot).collect(),
            links: system.links.iter().enumerate().map(edge).collect(),
        }
    }

    /// The links, by the nodes that they join.
    fn joins(&self) -> Vec<[usize; 2]> {
        self.links.iter().map(|link| link.between).collect()
    }

    fn name(&self, node: usize) -> &str {
        self.nodes.get(node).map_or("", |node| &node.name)
    }
}

impl Flow {
    fn of_plan(link: &Link) -> Self {
        let part = link.utilisation;
        Self { part: Some(part), is_idle: part <= 0.0, words: percent(part), title: load(link) }
    }
}

/// Draws the network within [`NETWORK`] from `origin`.
pub(super) fn draw(pen: &mut Pen, map: &Map, origin: [f64; 2]) {
    draw_at(pen, map, &places(map.nodes.len(), &map.joins(), NETWORK), origin);
}

fn draw_at(pen: &mut Pen, map: &Map, places: &[Place], [x, y]: [f64; 2]) {
    let at = |node: usize| places.get(node).map_or([x, y], |place| [place.x + x, place.y + y]);
    for link in &map.links {
        let [a, b] = link.between;
        let ends = [(at(a), map.name(a)), (at(b), map.name(b))];
        draw_link(pen, ends, link, map.links.len() <= LABELLED);
    }
    for (index, node) in map.nodes.iter().enumerate() {
        let (fill, round) = if node.is_host { ("#dbe9f6", 4.0) } else { ("#eceff1", 15.0) };
        let [x, y] = at(index);
        pen.named([x, y], round, fill, &node.name);
        for (line, words) in node.notes.iter().enumerate() {
            let style = Style { size: 11.0, anchor: "middle", colour: "#6a3d9a", ..Style::default() };
            pen.text([x, y + 30.0 + 13.0 * line as f64], words, style);
        }
    }
}

/// Lines about the topics that a node scales.
fn proxies(plan: &Plan, node: &str) -> Vec<String> {
    let here = plan.channels.iter().filter(|channel| channel.proxy.as_deref() == Some(node));
    let mut topics: Vec<&str> = here.map(|channel| channel.topic.as_str()).collect();
    topics.dedup();
    let more = (topics.len() > NAMED).then(|| format!("and {} more", topics.len() - NAMED));
    topics.iter().take(NAMED).map(|topic| format!("◆ scales {topic}")).chain(more).collect()
}

/// One line per direction, on the right-hand side of the traffic, with an arrow and the load.
fn draw_link(pen: &mut Pen, [(a, from), (b, to)]: [([f64; 2], &str); 2], link: &Edge, labelled: bool) {
    let length = f64::hypot(b[0] - a[0], b[1] - a[1]).max(1.0);
    let along = [(b[0] - a[0]) / length, (b[1] - a[1]) / length];
    // A quarter turn to the right, where y grows downwards.
    let aside = [-along[1], along[0]];
    for (index, flow) in link.both.iter().enumerate() {
        let sign = if index == 0 { 1.0 } else { -1.0 };
        let aside = aside.map(|part| sign * part);
        let (start, end, target) = if index == 0 { (a, b, to) } else { (b, a, from) };
        let ends = [beside(start, aside, APART), beside(end, aside, APART)];
        let (colour, width) = flow.stroke();
        pen.line(ends, colour, width, &flow.title);
        let ahead = along.map(|part| sign * part);
        let tip = beside(ends[1], ahead, -(to_edge(target, ahead) + CLEAR).min(0.4 * length));
        arrow(pen, tip, ahead, colour);
        if labelled && !flow.is_idle {
            let bold = flow.part.is_some_and(|part| part > 0.8);
            let style = Style { size: 11.0, bold, anchor: "middle", colour };
            words_beside(pen, tip, aside, &flow.words, style);
        }
    }
    if labelled && !link.name.is_empty() {
        let middle = [(a[0] + b[0]) / 2.0, (a[1] + b[1]) / 2.0];
        // Above the line, or on the right of a vertical one.
        let up = if aside[1].abs() > 0.2 { -aside[1].signum() } else { aside[0].signum() };
        let style = Style { size: 11.0, anchor: "middle", colour: GREY, ..Style::default() };
        // On a short link, the loads are between the line and its name.
        let apart = APART + 16.0;
        words_beside(pen, beside(middle, aside, up * apart), aside.map(|part| up * part), &link.name, style);
    }
}

impl Flow {
    /// The colour and width of its line.
    fn stroke(&self) -> (&'static str, f64) {
        match self.part {
            _ if self.is_idle => (IDLE, 1.5),
            Some(part) => (colour(part), 1.5 + 4.0 * part.min(1.0)),
            None => (UNRATED, 2.5),
        }
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

/// A part in words.
pub(crate) fn percent(part: f64) -> String {
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

/// Number of a node's proxied topics that are named.
const NAMED: usize = 4;
/// Distance of the two directions of a link from its middle.
const APART: f64 = 4.0;
/// Distance between an arrow and the box it points at, so that the load stays visible.
const CLEAR: f64 = 24.0;
/// The colour of an idle link.
const IDLE: &str = "#c3c8ce";
/// The colour of one whose rate is not known.
const UNRATED: &str = "#27496d";
/// Largest number of links with visible names and loads. More would cover each other: they are shown when the pointer
/// is on the line.
const LABELLED: usize = 40;

/// Draws maps one after the other. Nodes keep their places as long as nodes and links are the same, so that nothing moves in a live picture,
/// and no picture costs a layout.
#[cfg(feature = "dashboard")]
#[derive(Debug, Default)]
pub(crate) struct Drawer {
    count: usize,
    joins: Vec<[usize; 2]>,
    places: Vec<Place>,
}

#[cfg(feature = "dashboard")]
impl Drawer {
    /// The picture of a map.
    pub(crate) fn svg(&mut self, map: &Map) -> String {
        let (count, joins) = (map.nodes.len(), map.joins());
        if (self.count, &self.joins) != (count, &joins) {
            self.places = places(count, &joins, NETWORK);
            (self.count, self.joins) = (count, joins);
        }
        let mut pen = Pen::new(NETWORK);
        draw_at(&mut pen, map, &self.places, [0.0, 0.0]);
        pen.finish()
    }
}

#[cfg(all(test, feature = "dashboard"))]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_their_places_until_the_network_changes() {
        let spot = |name: &str| Spot { name: name.to_owned(), is_host: true, notes: Vec::new() };
        let flow = |words: &str| Flow { part: None, is_idle: false, words: words.to_owned(), title: "<a>".to_owned() };
        let edge = |words| Edge { between: [0, 1], name: String::new(), both: vec![flow(words)] };
        let mut map = Map { nodes: vec![spot("a"), spot("b"), spot("c")], links: vec![edge("1 kB/s")] };
        let mut drawer = Drawer::default();
        let first = drawer.svg(&map);
        assert!(
            first.contains("1 kB/s") && first.contains("&lt;a&gt;") && first.matches("class=\"node\"").count() == 3
        );
        let places = drawer.places.clone();
        map.links[0] = edge("2 kB/s");
        assert!(drawer.svg(&map).contains("2 kB/s") && drawer.places == places);
        map.nodes.push(spot("d"));
        drawer.svg(&map);
        assert_eq!(drawer.places.len(), 4);
        assert!(Drawer::default().svg(&Map::default()).ends_with("</svg>\n"));
    }
}
