//! How planning time grows with nodes, with subscribers and with topics, each alone, from 200 × 1000 × 50.
//!
//! `cargo run --release -p thalweg-baseline --example growth [FILE.svg]` prints the table, and draws it.

use qos::contract::Proxies;
use std::fmt::Write;
use std::time::Duration;
use thalweg_baseline::planner::measure;
use thalweg_baseline::system::Size;

const BASE: Size = Size { nodes: 200, subscribers: 1000, topics: 50 };
const TIMES: [(&str, &str); 3] = [("placing", "#27496d"), ("analysis", "#d55e00"), ("one more subscriber", "#2e8b57")];

/// One panel: a name, and for each size the three times in ms, the analysis' with links twice as fast: where they are full little is bounded, and soon said.
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

/// Both axes logarithmic: a straight line is a power of the size.
fn draw(panels: &[Panel]) -> String {
    const SIDE: [f64; 2] = [240.0, 260.0];
    let width = 70.0 + panels.len() as f64 * (SIDE[0] + 40.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"360\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (at, (name, colour)) in TIMES.iter().enumerate() {
        let x = 70.0 + 150.0 * at as f64;
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"14\" width=\"11\" height=\"11\" fill=\"{colour}\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"24\">{name}</text>", x + 16.0);
    }
    // From 10 µs to 100 s.
    let y = |ms: f64| 50.0 + SIDE[1] * (5.0 - ms.max(0.01).log10()) / 7.0;
    for (at, (name, lines)) in panels.iter().enumerate() {
        let left = 70.0 + at as f64 * (SIDE[0] + 40.0);
        let (least, most) = (lines[0].0 as f64, lines[lines.len() - 1].0 as f64);
        let x = |count: usize| left + SIDE[0] * (count as f64 / least).log10() / (most / least).log10();
        for (power, label) in (-2..=5).zip(["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"]) {
            let (y, right) = (y(10_f64.powi(power)), left + SIDE[0]);
            let _ =
                writeln!(svg, "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#e3e6e8\"/>");
            if at == 0 {
                let _ = writeln!(svg, "<text x=\"62\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", y + 4.0);
            }
        }
        for (count, _) in lines {
            let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"328\" text-anchor=\"middle\">{count}</text>", x(*count));
        }
        let middle = left + SIDE[0] / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"348\" text-anchor=\"middle\" font-weight=\"bold\">{name}</text>"
        );
        for (which, (_, colour)) in TIMES.iter().enumerate() {
            let points: Vec<String> =
                lines.iter().map(|(count, times)| format!("{:.1},{:.1}", x(*count), y(times[which]))).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                points.join(" ")
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}
