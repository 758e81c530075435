//! Planning time, and the distance of the plan from the optimum.
//!
//! `cargo run --release -p thalweg-baseline --example placement [--check] [NODES SUBSCRIBERS TOPICS [SEED]]`; without arguments, the sizes
//! of the table in docs/placement.md, the largest with each way to share proxies. Systems are generated so that links bind; their share
//! is printed. `--check` compares what was measured with the targets, and ends with exit code 1 if one is missed. How it grows:
//! `growth`.

use std::process::ExitCode;
use std::time::Duration;

use qos::system::Proxies;
use thalweg_baseline::planner::{ADMITTED, Measured, TABLE_3, measure, table_3, target};
use thalweg_baseline::system::{Binding, Size};

/// The targets of the check; those of the time and the gap depend on the size.
const ADMISSION: Duration = Duration::from_millis(10);
const MEMORY: u64 = 1 << 30;
const TABLE_3_TIME: Duration = Duration::from_millis(40);
/// Part of the used links that must bind in the largest system, so that there is a problem to solve.
const BINDING: f64 = 0.2;

fn row(measured: &Measured) {
    let Measured { size: Size { nodes, subscribers, topics }, proxies, outcome, .. } = measured;
    let Binding { used, overloaded, priced } = measured.links;
    let percent = |count: usize| format!("{} %", 100 * count / used.max(1));
    let gap = outcome.gap().map_or_else(|| "-".to_owned(), |gap| format!("{:.2} %", 100.0 * gap));
    let (slowest, fit) = measured.admitting;
    let analysed = measured.analysing.map(|(took, bounded)| format!("{:.2} s, {bounded} bounded", took.as_secs_f64()));
    println!(
        "| {nodes} × {subscribers} × {topics} | {proxies:?} | {:?} ({}) | {:.2} s | {gap} | {used} | {} | {} | {fit} of {ADMITTED}, {:.1} ms | {} | {} |",
        outcome.status,
        outcome.solver,
        measured.placing.as_secs_f64(),
        percent(overloaded),
        priced.map_or_else(|| "-".to_owned(), percent),
        slowest.as_secs_f64() * 1e3,
        analysed[0],
        analysed[1],
    );
}

/// A target: its name, the limit, the measured value, and whether that keeps it.
struct Target {
    name: String,
    limit: String,
    found: String,
    kept: bool,
}

impl Target {
    fn at_most(name: String, limit: Duration, found: Option<Duration>) -> Self {
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let kept = found.is_some_and(|found| found <= limit);
        Self { name, limit: format!("≤ {}", ms(limit)), found: found.map_or_else(|| "none".to_owned(), ms), kept }
    }
}

/// The targets of one system.
fn targets(measured: &Measured) -> Vec<Target> {
    let Measured { size, proxies, outcome, links: Binding { used, overloaded, .. }, .. } = measured;
    let Size { nodes, subscribers, topics } = size;
    let of = |what: &str| format!("{nodes} × {subscribers} × {topics}, {proxies:?}: {what}");
    let (gap, time) = target(*size);
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    let found = outcome.gap();
    let mut all = vec![
        Target::at_most(of("placing"), time, outcome.value.map(|_| measured.placing)),
        Target {
            name: of("gap"),
            limit: format!("≤ {}", percent(gap)),
            found: found.map_or_else(|| "none".to_owned(), percent),
            kept: found.is_some_and(|found| found <= gap),
        },
        Target::at_most(of("slowest of the admissions"), ADMISSION, Some(measured.admitting.0)),
    ];
    let (kept, found) = (measured.memory.is_some_and(|bytes| bytes <= MEMORY), measured.memory);
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let found = found.map_or_else(|| "unknown".to_owned(), mib);
    all.push(Target { name: of("memory"), limit: format!("≤ {}", mib(MEMORY)), found, kept });
    // Small systems are solved exactly, bound or not; with a proxy per subscriber fewer links bind.
    if size.subscribers > 2000 && *proxies != Proxies::PerSubscriber {
        let part = *overloaded as f64 / (*used).max(1) as f64;
        let (name, limit) = (of("links overloaded by best places"), format!("≥ {}", percent(BINDING)));
        all.push(Target { name, limit, found: percent(part), kept: part >= BINDING });
    }
    all
}

/// The sizes of Table 3.
fn published() -> impl Iterator<Item = Target> {
    TABLE_3.into_iter().map(|subscribers| {
        let took = (0..3).map(|_| table_3(subscribers)).min().flatten();
        Target::at_most(format!("Table 3, (1,{subscribers})"), TABLE_3_TIME, took)
    })
}

fn sizes(arguments: &[usize]) -> Vec<(Size, Proxies, u64)> {
    let all = [Proxies::PerTopic, Proxies::Merged, Proxies::PerSubscriber];
    if let [nodes, subscribers, topics, ref seed @ ..] = *arguments {
        let seed = seed.first().copied().unwrap_or(1) as u64;
        return all.map(|proxies| (Size { nodes, subscribers, topics }, proxies, seed)).to_vec();
    }
    let growing = [(50, 250, 12), (100, 500, 25), (200, 1000, 50), (400, 2000, 100)];
    let growing =
        growing.map(|(nodes, subscribers, topics)| (Size { nodes, subscribers, topics }, Proxies::PerTopic, 1));
    let largest = Size { nodes: 1000, subscribers: 10_000, topics: 500 };
    growing.into_iter().chain(all.map(|proxies| (largest, proxies, 1))).collect()
}

fn main() -> ExitCode {
    println!(
        "| nodes × subscribers × topics | proxies | answer | time | gap | links used | overloaded by best places | with a price | one more subscriber | analysis alone | with links twice as fast |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let mut all = Vec::new();
    for (size, proxies, seed) in sizes(&arguments) {
        let measured = measure(size, proxies, seed);
        row(&measured);
        all.extend(targets(&measured));
    }
    if !std::env::args().any(|argument| argument == "--check") {
        return ExitCode::SUCCESS;
    }
    all.extend(published());
    println!("\n| target | limit | found | kept |\n|---|---|---|---|");
    for Target { name, limit, found, kept } in &all {
        println!("| {name} | {limit} | {found} | {} |", if *kept { "yes" } else { "**no**" });
    }
    let missed = all.iter().filter(|target| !target.kept).count();
    println!("\n{} of {} targets are kept", all.len() - missed, all.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
