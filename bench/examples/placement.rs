//! Planning time, and the distance of the plan from the optimum.
//!
//! `cargo run --release -p thalweg-baseline --example placement [--check [--table-3]] [NODES SUBSCRIBERS TOPICS [SEED]]`; without arguments,
//! the sizes of the table in docs/placement.md, the largest with each way to share proxies. Systems are generated so that links bind; their
//! share is printed. `--check` compares what was measured with the targets, and ends with exit code 1 if one is missed; with `--table-3`
//! only the sizes of the paper's Table 3 are measured. How it grows: `growth`.

use std::io;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use qos::system::Proxies;
use thalweg_baseline::planner::{ADMITTED, Measured, TABLE_3, measure, table_3};
use thalweg_baseline::system::{Binding, Size};
use thalweg_baseline::targets::{self, MISSED, Target, megabytes};

const TABLE_3_TIME: Duration = Duration::from_millis(40);

fn row(measured: &Measured) -> String {
    let Measured { size: Size { nodes, subscribers, topics }, proxies, outcome, .. } = measured;
    let Binding { used, overloaded, priced, charged } = measured.links;
    let percent = |count: usize| format!("{} %", 100 * count / used.max(1));
    let gap = outcome.gap().map_or_else(|| "-".to_owned(), |gap| format!("{:.2} %", 100.0 * gap));
    let (slowest, fit) = measured.admitting;
    let analysed = measured.analysing.map(|(took, bounded)| format!("{:.2} s, {bounded} bounded", took.as_secs_f64()));
    format!(
        "| {nodes} × {subscribers} × {topics} | {proxies:?} | {:?} ({}) | {:.2} s | {gap} | {} | {used} | {} | {} | {} | {:.0} % | {fit} of {ADMITTED}, {:.1} ms | {} | {} |",
        outcome.status,
        outcome.solver,
        measured.placing.as_secs_f64(),
        measured.memory.map_or_else(|| "-".to_owned(), megabytes),
        percent(overloaded),
        percent(priced),
        charged.map_or_else(|| "-".to_owned(), percent),
        100.0 * measured.dearer,
        slowest.as_secs_f64() * 1e3,
        analysed[0],
        analysed[1],
    )
}

/// The sizes of Table 3.
fn published() -> impl Iterator<Item = Target> {
    TABLE_3.into_iter().map(|subscribers| {
        let took = (0..3).map(|_| table_3(subscribers)).min().flatten();
        Target::at_most(format!("Table 3, (1,{subscribers})"), TABLE_3_TIME, took)
    })
}

/// A system to measure: its size, how proxies are shared, its seed.
type Case = (Size, Proxies, usize);

const SHARING: [Proxies; 3] = [Proxies::PerTopic, Proxies::Merged, Proxies::PerSubscriber];

fn cases(numbers: &[usize]) -> Vec<Case> {
    if let [nodes, subscribers, topics, ref seed @ ..] = *numbers {
        let seed = seed.first().copied().unwrap_or(1);
        return SHARING.map(|proxies| (Size { nodes, subscribers, topics }, proxies, seed)).to_vec();
    }
    let growing = [(50, 250, 12), (100, 500, 25), (200, 1000, 50), (400, 2000, 100)];
    let growing = growing.map(|(nodes, subscribers, topics)| (Size { nodes, subscribers, topics }, SHARING[0], 1));
    let largest = Size { nodes: 1000, subscribers: 10_000, topics: 500 };
    growing.into_iter().chain(SHARING.map(|proxies| (largest, proxies, 1))).collect()
}

/// The argument of a process that measures one system.
const ONE: &str = "--one";

/// Measures a system in a process of its own: the kernel counts the most memory of a process, in which freed memory may still be. The first
/// line is its row, the others are its targets.
fn apart((size, proxies, seed): &Case) -> io::Result<Vec<String>> {
    let sharing = SHARING.iter().position(|other| other == proxies).unwrap_or(0);
    let numbers = [size.nodes, size.subscribers, size.topics, *seed, sharing].map(|number| number.to_string());
    let child = Command::new(std::env::current_exe()?).arg(ONE).args(numbers).stderr(Stdio::inherit()).output()?;
    let lines: Vec<String> = String::from_utf8_lossy(&child.stdout).lines().map(str::to_owned).collect();
    if child.status.success() { Ok(lines) } else { Err(io::Error::other(format!("{size:?}: {}", child.status))) }
}

fn one(numbers: &[usize]) {
    let [nodes, subscribers, topics, seed, sharing] = *numbers else { return };
    let measured = measure(Size { nodes, subscribers, topics }, SHARING[sharing], seed as u64);
    println!("{}", row(&measured));
    targets::of(&measured).iter().for_each(|target| println!("{target}"));
}

/// Measures each system in a process of its own, prints its row, and returns the lines of its targets.
fn systems(numbers: &[usize]) -> io::Result<Vec<String>> {
    println!(
        "| nodes × subscribers × topics | proxies | answer | time | gap | memory | links used | overloaded by best places | with a price | charged by the planner | dearer | one more subscriber | analysis alone | with links twice as fast |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut all = Vec::new();
    for case in cases(numbers) {
        let mut lines = apart(&case)?.into_iter();
        println!("{}", lines.next().unwrap_or_default());
        all.extend(lines);
    }
    Ok(all)
}

fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has(ONE) {
        one(&numbers);
        return Ok(ExitCode::SUCCESS);
    }
    let mut all = if has("--table-3") { Vec::new() } else { systems(&numbers)? };
    if !has("--check") {
        return Ok(ExitCode::SUCCESS);
    }
    all.extend(published().map(|target| target.to_string()));
    println!("\n| target | limit | found | kept |\n|---|---|---|---|\n{}", all.join("\n"));
    let missed = all.iter().filter(|target| target.contains(MISSED)).count();
    println!("\n{} of {} targets are kept", all.len() - missed, all.len());
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
