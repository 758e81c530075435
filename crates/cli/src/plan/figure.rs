//! The network as a picture: nodes, links with their loads and proxies (the [`map`](super::map)), and each channel's delay
//! against its deadline.

use super::map::Map;
use qos::plan::{Channel, Plan, Term};
use qos::show_time;
use qos::system::System;
use std::fmt::Write;

/// Colours of a load, each with its upper limit and its words.
const FULL: [(f64, &str, &str); 4] = [
    (0.5, "#2e8b57", "up to 50 %"),
    (0.8, "#d99000", "up to 80 %"),
    (1.0, "#d55e00", "up to 100 %"),
    (f64::INFINITY, "#b00020", "over"),
];

/// Draws the picture.
pub(super) fn draw(system: &System, plan: &Plan) -> String {
    let left = MARGIN + NETWORK[0] + 2.0 * MARGIN;
    let height = (TOP + NETWORK[1]).max(TOP + channels_height(plan)) + 48.0;
    let mut pen = Pen::new([left + CHANNELS_WIDTH + MARGIN, height]);
    let colour = if plan.feasible { FULL[0].1 } else { FULL[3].1 };
    pen.rect([0.0, 0.0], [8.0, height], Style { colour, ..Style::default() });
    pen.text([MARGIN, 30.0], &super::show::verdict(plan), Style { size: 17.0, bold: true, ..Style::default() });
    super::map::draw(&mut pen, &Map::of_plan(system, plan), [MARGIN, TOP]);
    draw_channels(&mut pen, plan, [left, TOP]);
    let mut at = [MARGIN, height - 18.0];
    for (_, colour, words) in FULL {
        at = pen.key(at, colour, words);
    }
    pen.text(at, "of a link's rate or a channel's deadline", Style { colour: GREY, size: 11.0, ..Style::default() });
    pen.finish()
}

/// The colour of a load.
pub(super) fn colour(part: f64) -> &'static str {
    FULL.iter().find(|(limit, _, _)| part <= limit + 1e-9).map_or(FULL[3].1, |(_, colour, _)| *colour)
}

/// Height of this part of the picture.
fn channels_height(plan: &Plan) -> f64 {
    let rows = plan.channels.len().min(MOST) + usize::from(plan.channels.len() > MOST);
    HEAD + ROW * rows as f64
}

/// Draws the channels from `origin`.
fn draw_channels(pen: &mut Pen, plan: &Plan, [x, y]: [f64; 2]) {
    let mut channels: Vec<&Channel> = plan.channels.iter().collect();
    channels.sort_by(|a, b| used(b).total_cmp(&used(a)));
    let delay = if plan.model.is_mean() { "Mean delay" } else { "Latest arrival" };
    let heading = format!("{delay} of each channel, as a part of its deadline");
    pen.text([x, y], &heading, Style { size: 13.0, bold: true, ..Style::default() });
    let mut at = [x, y + 20.0];
    for (colour, words) in PARTS {
        at = pen.key(at, colour, words);
    }
    for (row, channel) in channels.iter().take(MOST).enumerate() {
        draw_channel(pen, channel, [x, y + HEAD + ROW * row as f64]);
    }
    if channels.len() > MOST {
        let more = format!("and {} more, farther from their deadlines", channels.len() - MOST);
        let style = Style { colour: GREY, ..Style::default() };
        pen.text([x, y + HEAD + ROW * MOST as f64], &more, style);
    }
}

fn draw_channel(pen: &mut Pen, channel: &Channel, [x, y]: [f64; 2]) {
    let Channel { topic, publisher, subscriber, .. } = channel;
    let words = format!("{publisher} → {subscriber}, {}", channel.class);
    pen.entitled([x, y], topic, &words, GREY);
    let part = used(channel);
    let top = y + 6.0;
    pen.rect([x, top], [BAR, 11.0], Style { colour: "#f0f2f4", ..Style::default() });
    if part.is_infinite() {
        pen.rect([x, top], [BAR, 11.0], Style { colour: colour(part), ..Style::default() });
    }
    let mut left = x;
    for ((colour, _), of) in PARTS.iter().zip(parts(channel)).filter(|_| part.is_finite()) {
        let width = BAR * part.min(1.0) * of;
        pen.rect([left, top], [width, 11.0], Style { colour, ..Style::default() });
        left += width;
    }
    let style = Style { size: 11.0, bold: part > 0.8, colour: colour(part), ..Style::default() };
    pen.text([x + BAR + 8.0, top + 10.0], &said(channel), style);
}

fn said(channel: &Channel) -> String {
    let delay = channel.mean_us.or(channel.bound_us);
    let percent = format!("{:.0} %", 100.0 * used(channel));
    match (delay, channel.deadline_us) {
        (Some(delay), Some(deadline)) => format!("{percent}: {} of {}", short(delay), short(deadline)),
        (Some(delay), None) => format!("{}, no deadline", short(delay)),
        (None, Some(deadline)) => format!("no bound; deadline {}", short(deadline)),
        (None, None) => "no bound, no deadline".to_owned(),
    }
}

/// A delay with three significant digits.
fn short(us: f64) -> String {
    let digits = 10_f64.powi(2 - us.max(1e-3).log10().floor() as i32);
    show_time((us * digits).round() / digits)
}

/// The parts of a delay in the order of [`PARTS`]. Without terms all of it is computing.
fn parts(channel: &Channel) -> [f64; 3] {
    let mut parts = [0.0; 3];
    channel.derivation.iter().for_each(|term| parts[kind(term)] += term.us);
    let sum: f64 = parts.iter().sum();
    if sum > 0.0 { parts.map(|part| part / sum) } else { [1.0, 0.0, 0.0] }
}

fn kind(term: &Term) -> usize {
    // The text after the place, which may have any name.
    let what = term.name.rsplit(": ").next().unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|word| what.contains(word));
    if has(&["waiting", "blocking", "latency of", "rounding", "queue", "interval"]) {
        2
    } else if has(&["transmission", "propagation", "forwarding", "network", "link", "hop"]) {
        1
    } else {
        0
    }
}

/// A channel's delay as a part of its deadline; 0 without one.
fn used(channel: &Channel) -> f64 {
    match (channel.mean_us.or(channel.bound_us), channel.deadline_us) {
        (Some(delay), Some(deadline)) => delay / deadline,
        (None, Some(_)) => f64::INFINITY,
        (_, None) => 0.0,
    }
}

/// Style of an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style<'a> {
    pub colour: &'a str,
    /// The size of text.
    pub size: f64,
    pub bold: bool,
    /// Position of text relative to its point: `start`, `middle` or `end`.
    pub anchor: &'a str,
}

impl Default for Style<'_> {
    fn default() -> Self {
        Self { colour: "#1d2127", size: 12.0, bold: false, anchor: "start" }
    }
}

/// A picture that is being drawn.
pub(super) struct Pen(String);

impl Pen {
    pub(super) fn new([width, height]: [f64; 2]) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ))
    }

    pub(super) fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], style: Style) {
        let fill = style.colour;
        self.write(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        ));
    }

    /// A box with round corners and a name in its middle.
    pub(super) fn named(&mut self, [x, y]: [f64; 2], round: f64, fill: &str, name: &str) {
        let half = half_width(name);
        let (left, top) = (x - half, y - HALF_HEIGHT);
        let (width, height) = (2.0 * half, 2.0 * HALF_HEIGHT);
        self.write(format_args!(
            "<rect class=\"node\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{round}\" fill=\"{fill}\" stroke=\"#5f6570\"/>"
        ));
        self.text([x, y + 4.5], name, Style { size: 13.0, bold: true, anchor: "middle", ..Style::default() });
    }

    /// A line with a title that is shown when the pointer is on it.
    pub(super) fn line(&mut self, [from, to]: [[f64; 2]; 2], colour: &str, width: f64, title: &str) {
        let ([x1, y1], [x2, y2], title) = (from, to, escaped(title));
        let ends = format!("x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"");
        self.write(format_args!(
            "<line {ends} stroke=\"{colour}\" stroke-width=\"{width:.1}\"><title>{title}</title></line>"
        ));
    }

    pub(super) fn polygon(&mut self, points: [[f64; 2]; 3], colour: &str) {
        let points = points.map(|[x, y]| format!("{x:.1},{y:.1}")).join(" ");
        self.write(format_args!("<polygon points=\"{points}\" fill=\"{colour}\"/>"));
    }

    pub(super) fn text(&mut self, [x, y]: [f64; 2], words: &str, style: Style) {
        let Style { colour, size, bold, anchor } = style;
        let (words, weight) = (escaped(words), if bold { " font-weight=\"bold\"" } else { "" });
        // White around the letters, so that they stay readable above a line.
        self.write(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\"{weight} fill=\"{colour}\" \
             stroke=\"white\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\">{words}</text>"
        ));
    }

    /// A bold title, followed by words of another colour.
    pub(super) fn entitled(&mut self, [x, y]: [f64; 2], title: &str, words: &str, colour: &str) {
        let (title, words) = (escaped(title), escaped(words));
        self.write(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"12\"><tspan font-weight=\"bold\" fill=\"#1d2127\">{title}</tspan>\
             <tspan dx=\"10\" font-size=\"11\" fill=\"{colour}\">{words}</tspan></text>"
        ));
    }

    /// The meaning of a colour; returns the position of the next one.
    pub(super) fn key(&mut self, [x, y]: [f64; 2], colour: &str, words: &str) -> [f64; 2] {
        self.rect([x, y - 9.0], [11.0, 11.0], Style { colour, ..Style::default() });
        self.text([x + 16.0, y], words, Style { size: 11.0, ..Style::default() });
        [x + 34.0 + 6.0 * words.chars().count() as f64, y]
    }

    pub(super) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn write(&mut self, element: std::fmt::Arguments) {
        // Writing to a text in memory cannot fail.
        let _ = writeln!(self.0, "{element}");
    }
}

/// Half the height of a box with a name in it.
pub(super) const HALF_HEIGHT: f64 = 15.0;

/// Half the width of a box with a name in it.
pub(super) fn half_width(name: &str) -> f64 {
    (4.2 * name.chars().count() as f64 + 12.0).max(24.0)
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Size of the network's part of the picture; the channels are to the right of it.
pub(super) const NETWORK: [f64; 2] = [640.0, 480.0];
const TOP: f64 = 64.0;
const MARGIN: f64 = 20.0;
pub(super) const GREY: &str = "#5f6570";
/// Width of this part of the picture.
const CHANNELS_WIDTH: f64 = 460.0;
const ROW: f64 = 38.0;
const HEAD: f64 = 46.0;
/// Length of a bar whose delay is its deadline.
const BAR: f64 = 300.0;
/// Largest number of channels that are drawn; the others are counted. Those nearest to their deadlines come first.
const MOST: usize = 24;
/// The parts of a delay: colour and words.
const PARTS: [(&str, &str); 3] = [("#27496d", "computing"), ("#6fa8dc", "on the wire"), ("#c9b3e6", "waiting")];

#[cfg(test)]
mod tests {
    use super::*;
    use qos::plan::Channel;
    use qos::system::{Link as ContractLink, Node, System};

    fn system(count: usize) -> System {
        let node = |n| Node { name: format!("n<{n}>"), ..Node::default() };
        let link = |n| ContractLink {
            name: format!("l{n}"),
            between: [n, (n + 1) % count],
            rate: 1_000_000,
            ..ContractLink::default()
        };
        System { nodes: (0..count).map(node).collect(), links: (0..count).map(link).collect(), ..System::default() }
    }

    #[test]
    fn everything_is_drawn_once_within_the_picture_and_escaped() {
        let system = system(30);
        let channel = |n: usize| Channel {
            bound_us: (!n.is_multiple_of(3)).then_some(n as f64 * 50.0),
            deadline_us: n.is_multiple_of(2).then_some(1000.0),
            ..Channel::default()
        };
        let plan = Plan { channels: (0..40).map(channel).collect(), ..Plan::default() };
        let svg = draw(&system, &plan);
        assert!(svg.contains("n&lt;7&gt;") && svg.contains("and 16 more") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("class=\"node\"").count(), 30);
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("=\"-"), "something is outside");
    }

    #[test]
    fn colours_say_how_full() {
        assert_eq!([0.0, 0.5, 0.6, 1.0, 1.01].map(colour), [0, 0, 1, 2, 3].map(|n| FULL[n as usize].1));
    }

    #[test]
    fn an_empty_plan_is_drawn_as_an_empty_figure() {
        assert!(draw(&System::default(), &Plan::default()).ends_with("</svg>\n"));
    }
}
