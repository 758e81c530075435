//! The delay of each channel against its deadline, and its parts.

use super::pen::{Pen, Style};
use super::{GREY, colour};
use qos::plan::{Channel, Plan, Term};
use qos::show_time;

/// Width of this part of the picture.
pub(super) const WIDTH: f64 = 460.0;
const ROW: f64 = 38.0;
const HEAD: f64 = 46.0;
/// Length of a bar whose delay is its deadline.
const BAR: f64 = 300.0;
/// Largest number of channels that are drawn; the others are counted. Those nearest to their deadlines come first.
const MOST: usize = 24;

/// The parts of a delay: colour and words.
const PARTS: [(&str, &str); 3] = [("#27496d", "computing"), ("#6fa8dc", "on the wire"), ("#c9b3e6", "waiting")];

/// Height of this part of the picture.
pub(super) fn height(plan: &Plan) -> f64 {
    let rows = plan.channels.len().min(MOST) + usize::from(plan.channels.len() > MOST);
    HEAD + ROW * rows as f64
}

/// Draws the channels from `origin`.
pub(super) fn draw(pen: &mut Pen, plan: &Plan, [x, y]: [f64; 2]) {
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
