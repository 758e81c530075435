//! Growth of planning time with nodes, with subscribers and with topics, each alone, from 200 × 1000 × 50.
//!
//! `cargo run --release -p thalweg-baseline --example growth [FILE.svg]` prints the table, and draws it.

use qos::system::Proxies;
use std::fmt::Write;
use std::time::Duration;
use thalweg_baseline::planner::measure;
use thalweg_baseline::system::Size;

const BASE: Size = Size { nodes: 200, subscribers: 1000, topics: 50 };
const TIMES: [(&str, &str); 3] =
    [("placing", "#27496d"), ("bounds of all", "#d55e00"), ("one more subscriber", "#2e8b57")];

/// A panel's name, and for each size the three times in ms. The bounds are those with links twice as fast: with full
/// links few channels have a bound, and the answer is quick.
type Panel = (&'static str, Vec<(usize, [f64; 3])>);

fn main() -> std::io::Result<()> {
    let nodes = |nodes| Size { nodes, ..BASE };
    let subscribers = |subscribers| Size { subscribers, ..BASE };
    let topics = |topics| Size { topics, ..BASE };
    let panels = [
        panel("nodes", [50, 100, 200, 400, 800], nodes),
        panel("subscribers", [250, 500, 1000, 2000, 4000], subscribers),
        panel("topics", [12, 25, 50, 100, 200], topics),
    ];
    match std::env::args().nth(1) {
        Some(file) => std::fs::write(file, draw(&panels)),
        None => Ok(()),
    }
}

fn panel(name: &'static str, sizes: [usize; 5], size: impl Fn(usize) -> Size) -> Panel {
    println!("| {name} | placing | gap | analysis | one more subscriber |\n|---|---|---|---|---|");
    let line = |count: usize| {
        let measured = measure(size(count), Proxies::PerTopic, 1);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let times = [ms(measured.placing), ms(measured.analysing[1].0), ms(measured.admitting.0)];
        let gap = measured.outcome.gap().map_or_else(|| "-".to_owned(), |gap| format!("{:.2} %", 100.0 * gap));
        println!("| {count} | {:.1} ms | {gap} | {:.1} ms | {:.2} ms |", times[0], times[1], times[2]);
        (count, times)
    };
    let lines = sizes.into_iter().map(line).collect();
    println!();
    (name, lines)
}

/// A panel's width and height, and the position of the first one's upper left corner.
const SIDE: [f64; 2] = [240.0, 260.0];
const CORNER: [f64; 2] = [70.0, 60.0];
/// The times that have a line across, as powers of ten of ms.
const SCALE: [(i32, &str); 8] =
    [(-2, "10 µs"), (-1, "100 µs"), (0, "1 ms"), (1, "10 ms"), (2, "100 ms"), (3, "1 s"), (4, "10 s"), (5, "100 s")];

/// Both axes logarithmic: a straight line is a power of the size.
fn draw(panels: &[Panel]) -> String {
    let (width, height) = (CORNER[0] + panels.len() as f64 * (SIDE[0] + 40.0), CORNER[1] + SIDE[1] + 60.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let Size { nodes, subscribers, topics } = BASE;
    let title =
        format!("Time to plan {nodes} nodes, {subscribers} subscribers and {topics} topics, one of the three changed");
    svg += &text(CORNER[0], 22.0, "start", &title);
    for (at, (name, colour)) in TIMES.iter().enumerate() {
        let x = CORNER[0] + 150.0 * at as f64;
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"34\" width=\"11\" height=\"11\" fill=\"{colour}\"/>");
        svg += &text(x + 16.0, 44.0, "start", name);
    }
    for (power, label) in SCALE {
        svg += &text(CORNER[0] - 8.0, height_of(10_f64.powi(power)) + 4.0, "end", label);
    }
    for (at, panel) in panels.iter().enumerate() {
        svg += &curves(panel, CORNER[0] + at as f64 * (SIDE[0] + 40.0));
    }
    svg + "</svg>\n"
}

/// Height of a time in the figure, from the top.
fn height_of(ms: f64) -> f64 {
    let (least, most) = (f64::from(SCALE[0].0), f64::from(SCALE[SCALE.len() - 1].0));
    CORNER[1] + SIDE[1] * (most - ms.log10().clamp(least, most)) / (most - least)
}

/// One panel: lines across for the times, sizes below, and a curve for each of [`TIMES`].
fn curves((name, lines): &Panel, left: f64) -> String {
    let mut svg = String::new();
    for y in SCALE.map(|(power, _)| height_of(10_f64.powi(power))) {
        let right = left + SIDE[0];
        let _ = writeln!(svg, "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#e3e6e8\"/>");
    }
    let (least, most) = (lines[0].0 as f64, lines[lines.len() - 1].0 as f64);
    let x = |count: usize| left + SIDE[0] * (count as f64 / least).log10() / (most / least).log10();
    let bottom = CORNER[1] + SIDE[1];
    for (count, _) in lines {
        svg += &text(x(*count), bottom + 18.0, "middle", &count.to_string());
    }
    svg += &text(left + SIDE[0] / 2.0, bottom + 40.0, "middle", name);
    for (which, (_, colour)) in TIMES.iter().enumerate() {
        let points: Vec<[f64; 2]> = lines.iter().map(|(count, times)| [x(*count), height_of(times[which])]).collect();
        let joined: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let joined = joined.join(" ");
        let _ = writeln!(svg, "<polyline points=\"{joined}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        for [x, y] in points {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
    }
    svg
}

fn text(x: f64, y: f64, anchor: &str, what: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>\n")
}
