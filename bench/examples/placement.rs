//! How long placing takes, how near to the best it comes, and how both grow with the system.
//!
//! `cargo run --release -p thalweg-baseline --example placement [NODES SUBSCRIBERS TOPICS [SEED]]`; without arguments, the sizes of the
//! table in docs/placement.md. Systems are generated so that links bind; their share is printed.

use std::time::{Duration, Instant};

use qos::contract::{Proxies, Subscriber};
use qos::network::Network;
use qos::placement::{Effort, Progress, Watch, admit, place};
use thalweg_baseline::system::{Size, as_in_the_paper, binding, congested};

/// Subscribers that are added to see how long that takes.
const ADMITTED: usize = 5;

struct Clock {
    began: Instant,
    shown: Option<Duration>,
}

impl Watch for Clock {
    fn elapsed(&mut self) -> Duration {
        self.began.elapsed()
    }

    fn progress(&mut self, progress: &Progress) {
        let now = self.began.elapsed();
        if self.shown.is_none_or(|shown| now - shown >= Duration::from_millis(500)) {
            self.shown = Some(now);
            let value = progress.value.map_or_else(|| "none yet".to_owned(), |value| format!("{value:.0}"));
            eprintln!(
                "  {:5.1} s  step {:4}  value {value}  bound {:.0}",
                now.as_secs_f64(),
                progress.step,
                progress.bound
            );
        }
    }
}

fn measure(size: Size, proxies: Proxies, gap: f64, time: u64, seed: u64) {
    let how = qos::contract::Placement { proxies, ..as_in_the_paper() };
    let system = congested(size, how, seed);
    let network = Network::new(&system);
    let mut clock = Clock { began: Instant::now(), shown: None };
    let effort = Effort { time: Duration::from_secs(time), gap, ..Effort::default() };
    let outcome = place(&system, &network, &effort, &mut clock);
    let took = clock.began.elapsed();
    let (used, wanted, full) = binding(&system, &outcome);
    let percent = |count: usize| 100 * count / used.max(1);
    let gap = outcome.gap().map_or_else(|| "-".to_owned(), |gap| format!("{:.2} %", 100.0 * gap));
    // One more subscriber to each of the first topics, one at a time.
    let mut slowest = Duration::ZERO;
    let mut admitted = 0;
    for topic in 0..ADMITTED {
        let mut more = system.clone();
        more.subscribers.push(Subscriber { deadline: None, topic, ..system.subscribers[size.topics + topic].clone() });
        let began = Instant::now();
        admitted += u32::from(admit(&more, &network, &outcome, more.subscribers.len() - 1).is_some());
        slowest = slowest.max(began.elapsed());
    }
    println!(
        "| {} × {} × {} | {proxies:?} | {:?} ({}) | {:.2} s | {gap} | {used} | {} % | {} % | {admitted} of {ADMITTED}, {:.1} ms |",
        size.nodes,
        size.subscribers,
        size.topics,
        outcome.status,
        outcome.solver,
        took.as_secs_f64(),
        percent(wanted),
        percent(full),
        slowest.as_secs_f64() * 1e3,
    );
}

fn main() {
    println!(
        "| nodes × subscribers × topics | proxies | answer | time | gap | links used | of them wanted by too many | full | one more subscriber |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    if let [nodes, subscribers, topics, ref seed @ ..] = arguments[..] {
        let seed = seed.first().copied().unwrap_or(1) as u64;
        let large = subscribers > 2000;
        let (gap, time) = if large { (0.05, 30) } else { (0.01, 2) };
        for proxies in [Proxies::PerTopic, Proxies::Merged, Proxies::PerSubscriber] {
            measure(Size { nodes, subscribers, topics }, proxies, gap, time, seed);
        }
        return;
    }
    for (nodes, subscribers, topics) in
        [(50, 250, 12), (100, 500, 25), (200, 1000, 50), (400, 2000, 100), (1000, 10_000, 500)]
    {
        let (gap, time) = if subscribers > 2000 { (0.05, 30) } else { (0.01, 2) };
        measure(Size { nodes, subscribers, topics }, Proxies::PerTopic, gap, time, 1);
    }
}
