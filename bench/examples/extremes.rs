//! Plans at the extremes: systems with quantities at the limits of a contract, planned by all models.
//!
//! `cargo run --release -p thalweg-baseline --example extremes [SYSTEMS [SEED]]`; without arguments 10,000 systems
//! from seed 0, some minutes. Prints the time of the slowest; exit code 1 if a plan broke a promise
//! (`qos::testing::planner_at_length` defines the promises).
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a measurement: it reads the clock, and ends where something is missing

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use qos::plan::Model;
use qos::testing::planner_at_length;

/// Number of the slowest systems shown at the end, and the time from which on one is shown at once.
const SHOWN: usize = 5;
const SLOW: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let systems = arguments.first().copied().unwrap_or(10_000);
    let first = arguments.get(1).copied().unwrap_or(0);
    let (next, times) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let work = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| seed - first < systems) {
            // A broken promise panics; the message names it.
            let (took, held) = planned(seed);
            if took > SLOW {
                eprintln!("seed {seed}: {:.1} s", took.as_secs_f64());
            }
            times.lock().unwrap_or_else(PoisonError::into_inner).push((took, seed, held));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut times: Vec<(Duration, u64, bool)> = times.into_inner().unwrap_or_else(PoisonError::into_inner);
    times.sort_unstable_by(|a, b| b.cmp(a));
    let broken = times.iter().filter(|(_, _, held)| !held).count();
    let all: Duration = times.iter().map(|(took, ..)| *took).sum();
    println!("{systems} systems from seed {first}: {broken} broke a promise; {:.1} s of planning", all.as_secs_f64());
    times.iter().take(SHOWN).for_each(|(took, seed, _)| println!("  seed {seed}: {:.2} s", took.as_secs_f64()));
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The planning time of a seed's system by the model that is its turn, and `true` if all promises held.
fn planned(seed: u64) -> (Duration, bool) {
    let began = Instant::now();
    let held = catch_unwind(|| planner_at_length(seed, Model::ALL[seed as usize % Model::ALL.len()])).is_ok();
    (began.elapsed(), held)
}
