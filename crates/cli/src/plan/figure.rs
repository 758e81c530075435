//! The network as a picture: nodes, links with their loads, proxies, and each channel's delay against its deadline.

mod layout;

use layout::{Place, places};
use qos::contract::{NodeKind, System};
use qos::plan::{Channel, Link, Plan};
use qos::show_time;
use std::fmt::Write;

/// The network's part of the picture, and where the channels' begins.
const NETWORK: [f64; 2] = [620.0, 520.0];
const TOP: f64 = 64.0;
const CHANNELS: f64 = NETWORK[0] + 40.0;
const ROW: f64 = 34.0;
/// Length of a bar whose delay is its deadline.
const BAR: f64 = 240.0;
/// More channels than this are counted, not drawn; those nearest to their deadlines come first.
const MOST: usize = 24;

/// Colours of how full something is, up to which part of it, and in words.
const FULL: [(f64, &str, &str); 4] = [
    (0.5, "#009e73", "up to 50 %"),
    (0.8, "#e69f00", "up to 80 %"),
    (1.0, "#d55e00", "up to 100 %"),
    (f64::INFINITY, "#b00020", "over"),
];

/// Draws it.
pub fn draw(system: &System, plan: &Plan) -> String {
    let mut channels: Vec<&Channel> = plan.channels.iter().collect();
    channels.sort_by(|a, b| used(b).total_cmp(&used(a)));
    let rows = channels.len().min(MOST) + usize::from(channels.len() > MOST);
    let height = (TOP + NETWORK[1]).max(TOP + 24.0 + ROW * rows as f64) + 40.0;
    let width = CHANNELS + BAR + 160.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, [16.0, 24.0], "start", "font-size=\"16\"", super::show::verdict(plan).as_str());
    legend(&mut svg, height - 16.0);
    let places = places(system, NETWORK);
    links(&mut svg, system, plan, &places);
    for (index, place) in places.iter().enumerate() {
        node(&mut svg, system, plan, index, *place);
    }
    text(&mut svg, [CHANNELS, TOP], "start", "font-weight=\"bold\"", heading(plan));
    for (row, channel) in channels.iter().take(MOST).enumerate() {
        bar(&mut svg, channel, TOP + 24.0 + ROW * row as f64);
    }
    if channels.len() > MOST {
        let more = format!("and {} more", channels.len() - MOST);
        text(&mut svg, [CHANNELS, TOP + 24.0 + ROW * MOST as f64], "start", "fill=\"#555\"", &more);
    }
    svg.push_str("</svg>\n");
    svg
}

fn heading(plan: &Plan) -> &'static str {
    if plan.model.is_mean() {
        "Mean delay of each channel; line: deadline"
    } else {
        "Bound of each channel; line: deadline"
    }
}

fn legend(svg: &mut String, y: f64) {
    let mut x = 16.0;
    for (_, colour, words) in FULL {
        let _ =
            writeln!(svg, "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"12\" fill=\"{colour}\"/>", y - 10.0);
        text(svg, [x + 19.0, y], "start", "", words);
        x += 100.0;
    }
    text(svg, [x, y], "start", "fill=\"#555\"", "of a link's rate or a channel's deadline; ◆ proxy");
}

fn colour(part: f64) -> &'static str {
    FULL.iter().find(|(limit, _, _)| part <= limit + 1e-9).map_or(FULL[3].1, |(_, colour, _)| *colour)
}

/// A channel's delay as a part of its deadline; 0 without one.
fn used(channel: &Channel) -> f64 {
    match (channel.mean_us.or(channel.bound_us), channel.deadline_us) {
        (Some(delay), Some(deadline)) => delay / deadline,
        (None, Some(_)) => f64::INFINITY,
        (_, None) => 0.0,
    }
}

fn links(svg: &mut String, system: &System, plan: &Plan, places: &[Place]) {
    for (index, link) in system.links.iter().enumerate() {
        let [from, to] = link.between.map(|node| places[node]);
        let both: Vec<&Link> = plan.links.iter().skip(2 * index).take(2).collect();
        let most = both.iter().map(|one| one.utilisation).fold(0.0, f64::max);
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\" stroke-width=\"{:.1}\"><title>{}</title></line>",
            from.x,
            from.y,
            to.x,
            to.y,
            colour(most),
            2.0 + 4.0 * most.min(1.0),
            escaped(&both.iter().map(|one| load(one)).collect::<Vec<_>>().join("; ")),
        );
        let middle = [(from.x + to.x) / 2.0, (from.y + to.y) / 2.0];
        label(svg, [middle[0], middle[1] - 5.0], &format!("{}: {}", link.name, qos::show_bit_rate(link.rate as f64)));
        let percents: Vec<String> = both.iter().map(|one| format!("{:.0} %", one.utilisation * 100.0)).collect();
        // Leftwards or rightwards as they are drawn.
        let arrows = if from.x <= to.x { ["→", "←"] } else { ["←", "→"] };
        let percents: Vec<String> =
            arrows.iter().zip(percents).map(|(arrow, part)| format!("{arrow} {part}")).collect();
        label(svg, [middle[0], middle[1] + 10.0], &percents.join("  "));
    }
}

fn load(link: &Link) -> String {
    let of = qos::show_bit_rate(link.rate_bits_per_s);
    format!("{} → {}: {} of {of}, {}", link.from, link.to, qos::show_bit_rate(link.load_bits_per_s), link.scheduler)
}

fn node(svg: &mut String, system: &System, plan: &Plan, index: usize, place: Place) {
    let node = &system.nodes[index];
    let half = (4.0 * node.name.chars().count() as f64 + 12.0).max(22.0);
    let (fill, round) = match node.kind {
        NodeKind::Host => ("#dbe9f6", 4.0),
        NodeKind::Router | NodeKind::Switch => ("#eeeeee", 14.0),
    };
    let _ = writeln!(
        svg,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"28\" rx=\"{round}\" fill=\"{fill}\" stroke=\"#333\"/>",
        place.x - half,
        place.y - 14.0,
        2.0 * half,
    );
    text(svg, [place.x, place.y + 4.0], "middle", "", &node.name);
    let here = |channel: &&Channel| channel.proxy.as_deref() == Some(node.name.as_str());
    let mut topics: Vec<&str> = plan.channels.iter().filter(here).map(|channel| channel.topic.as_str()).collect();
    topics.dedup();
    for (line, topic) in topics.iter().take(4).enumerate() {
        label(svg, [place.x, place.y + 28.0 + 14.0 * line as f64], &format!("◆ {topic}"));
    }
}

fn bar(svg: &mut String, channel: &Channel, y: f64) {
    let Channel { topic, publisher, subscriber, .. } = channel;
    let delay = channel.mean_us.or(channel.bound_us);
    let title = format!("{topic}: {publisher} → {subscriber} ({})", channel.class);
    text(svg, [CHANNELS, y], "start", "", &title);
    let said = match (delay, channel.deadline_us) {
        (Some(delay), Some(deadline)) => format!("{} of {}", show_time(delay), show_time(deadline)),
        (Some(delay), None) => format!("{}, no deadline", show_time(delay)),
        (None, Some(deadline)) => format!("no bound, deadline {}", show_time(deadline)),
        (None, None) => "no bound, no deadline".to_owned(),
    };
    let part = used(channel);
    let length = BAR * part.min(1.0);
    let _ = writeln!(
        svg,
        "<rect x=\"{CHANNELS:.1}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"10\" fill=\"{}\"/>",
        y + 4.0,
        colour(part)
    );
    if channel.deadline_us.is_some() {
        let x = CHANNELS + BAR;
        let (above, below) = (y + 1.0, y + 17.0);
        let _ =
            writeln!(svg, "<line x1=\"{x:.1}\" y1=\"{above:.1}\" x2=\"{x:.1}\" y2=\"{below:.1}\" stroke=\"#333\"/>");
    }
    text(svg, [CHANNELS + BAR + 8.0, y + 13.0], "start", "fill=\"#555\" font-size=\"10\"", &said);
}

/// Text that stays readable above a line.
fn label(svg: &mut String, [x, y]: [f64; 2], words: &str) {
    let width = 6.0 * words.chars().count() as f64;
    let (left, top) = (x - width / 2.0, y - 10.0);
    let ground = "height=\"13\" fill=\"white\" fill-opacity=\"0.85\"";
    let _ = writeln!(svg, "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" {ground}/>");
    text(svg, [x, y], "middle", "font-size=\"10\"", words);
}

fn text(svg: &mut String, [x, y]: [f64; 2], anchor: &str, more: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{words}</text>");
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::contract::{Link as ContractLink, Node, System};

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
        assert_eq!(svg.matches("rx=").count(), 30);
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("=\"-"), "something is outside");
    }

    #[test]
    fn colours_say_how_full() {
        assert_eq!([0.0, 0.5, 0.6, 1.0, 1.01].map(colour), ["#009e73", "#009e73", "#e69f00", "#d55e00", "#b00020"]);
    }

    #[test]
    fn nothing_is_drawn_as_nothing() {
        assert!(draw(&System::default(), &Plan::default()).ends_with("</svg>\n"));
    }
}
