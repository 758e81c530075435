//! Planning time, and the distance of the plan from the optimum.
//!
//! `cargo run --release -p thalweg-baseline --example placement [NODES SUBSCRIBERS TOPICS [SEED]]`; without arguments, the sizes of the
//! table in docs/placement.md, the largest with each way to share proxies. Systems are generated so that links bind; their share is
//! printed. How it grows: `growth`.

use qos::system::Proxies;
use thalweg_baseline::planner::{ADMITTED, Measured, measure};
use thalweg_baseline::system::{Binding, Size};

fn row(measured: &Measured) {
    let Measured { size: Size { nodes, subscribers, topics }, proxies, outcome, .. } = measured;
    let Binding { used, overloaded, full } = measured.links;
    let percent = |count: usize| 100 * count / used.max(1);
    let gap = outcome.gap().map_or_else(|| "-".to_owned(), |gap| format!("{:.2} %", 100.0 * gap));
    let (slowest, fit) = measured.admitting;
    let analysed = measured.analysing.map(|(took, bounded)| format!("{:.2} s, {bounded} bounded", took.as_secs_f64()));
    println!(
        "| {nodes} × {subscribers} × {topics} | {proxies:?} | {:?} ({}) | {:.2} s | {gap} | {used} | {} % | {} % | {fit} of {ADMITTED}, {:.1} ms | {} | {} |",
        outcome.status,
        outcome.solver,
        measured.placing.as_secs_f64(),
        percent(overloaded),
        percent(full),
        slowest.as_secs_f64() * 1e3,
        analysed[0],
        analysed[1],
    );
}

fn main() {
    println!(
        "| nodes × subscribers × topics | proxies | answer | time | gap | links used | overloaded by best places | full | one more subscriber | analysis alone | with links twice as fast |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let all = [Proxies::PerTopic, Proxies::Merged, Proxies::PerSubscriber];
    if let [nodes, subscribers, topics, ref seed @ ..] = arguments[..] {
        let seed = seed.first().copied().unwrap_or(1) as u64;
        all.into_iter().for_each(|proxies| row(&measure(Size { nodes, subscribers, topics }, proxies, seed)));
        return;
    }
    for (nodes, subscribers, topics) in [(50, 250, 12), (100, 500, 25), (200, 1000, 50), (400, 2000, 100)] {
        row(&measure(Size { nodes, subscribers, topics }, Proxies::PerTopic, 1));
    }
    let largest = Size { nodes: 1000, subscribers: 10_000, topics: 500 };
    all.into_iter().for_each(|proxies| row(&measure(largest, proxies, 1)));
}
