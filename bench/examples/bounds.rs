//! Soundness and tightness of bounds: random systems, each simulated with the worst patterns of release.
//!
//! `cargo run --release -p thalweg-baseline --example bounds [SYSTEMS [SEED]]`; without arguments 10,000 systems from seed 1,000,000, some
//! minutes. Exit code 1 if a sample was later than its bound.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use qos::testing::{Compared, Held, compare};

/// Simulations that are aimed at each pair.
const TRIES: u64 = 4;

fn main() -> ExitCode {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let systems = arguments.first().copied().unwrap_or(10_000);
    let first = arguments.get(1).copied().unwrap_or(1_000_000);
    let (compared, violations) = all(first..first.saturating_add(systems));
    println!(
        "{systems} systems from seed {first}: {violations} violations; {} channels with a bound, {} of overloaded systems without",
        compared.held.len(),
        compared.unbounded
    );
    println!(
        "\n| bound ÷ latest seen | channels | p10 | median | p90 | p99 | largest |\n|---|---|---|---|---|---|---|"
    );
    row("all", &compared.held, |_| true);
    row("threads, fifo, strict", &compared.held, |held| !held.shares);
    row("with a queue of htb or hfsc", &compared.held, |held| held.shares);
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The systems of all seeds, on all processors, and the number that broke a bound; those are printed.
fn all(seeds: Range<u64>) -> (Compared, u32) {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::new((Compared::default(), 0)));
    let work = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| seeds.contains(seed)) {
            let compared = compare(seed, TRIES);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            match compared {
                Ok(compared) => {
                    found.0.held.extend(compared.held);
                    found.0.unbounded += compared.unbounded;
                }
                Err(wrong) => {
                    found.1 += 1;
                    println!("{wrong}");
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn row(name: &str, held: &[Held], which: fn(&Held) -> bool) {
    let mut ratios: Vec<f64> = held.iter().filter(|held| which(held)).map(|held| held.ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let Some(last) = ratios.len().checked_sub(1) else { return };
    let quantiles = [0.1, 0.5, 0.9, 0.99, 1.0].map(|part| format!("{:.2}", ratios[(last as f64 * part) as usize]));
    println!("| {name} | {} | {} |", ratios.len(), quantiles.join(" | "));
}
