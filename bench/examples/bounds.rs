//! Soundness and tightness of bounds: random systems, each simulated with the worst patterns of release.
//!
//! `cargo run --release -p thalweg-baseline --example bounds [SYSTEMS [SEED]]`; without arguments 10,000 systems from seed 1,000,000, some
//! minutes. Exit code 1 if a sample was later than its bound.

use std::process::ExitCode;

use qos::testing::{Held, compare_all};

/// Simulations that are aimed at each pair.
const TRIES: u64 = 4;

fn main() -> ExitCode {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let systems = arguments.first().copied().unwrap_or(10_000);
    let first = arguments.get(1).copied().unwrap_or(1_000_000);
    let (compared, wrong) = compare_all(first..first.saturating_add(systems), TRIES);
    wrong.iter().for_each(|wrong| println!("{wrong}"));
    println!(
        "{systems} systems from seed {first}: {} violations; {} channels with a bound, {} of overloaded systems without",
        wrong.len(),
        compared.held.len(),
        compared.unbounded
    );
    println!(
        "\n| bound ÷ latest seen | channels | p10 | median | p90 | p99 | largest |\n|---|---|---|---|---|---|---|"
    );
    row("all", &compared.held, |_| true);
    row("contended", &compared.held, |held| held.contended);
    row("over a busy link", &compared.held, |held| held.busy);
    row("contended: threads, fifo, strict", &compared.held, |held| held.contended && !held.shares);
    row("contended: with a queue of htb or hfsc", &compared.held, |held| held.contended && held.shares);
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn row(name: &str, held: &[Held], which: fn(&Held) -> bool) {
    let mut ratios: Vec<f64> = held.iter().filter(|held| which(held)).map(|held| held.ratio()).collect();
    ratios.sort_by(f64::total_cmp);
    let Some(last) = ratios.len().checked_sub(1) else { return };
    let quantiles = [0.1, 0.5, 0.9, 0.99, 1.0].map(|part| format!("{:.2}", ratios[(last as f64 * part) as usize]));
    println!("| {name} | {} | {} |", ratios.len(), quantiles.join(" | "));
}
