//! The bodies of all fuzz targets under the stable compiler: the stored corpus (`fuzz/seeds`), then random bytes, and
//! examples with random changes, for THALWEG_FUZZ_SECONDS each (default 2). Coverage is not followed, unlike in
//! cargo-fuzz, so it finds shallow bugs and earlier ones. The numbers come from THALWEG_SEED (default 0; `./test` sets it
//! by commit): a failure prints it, and the input in hexadecimal.

use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};
use thalweg::testing::fuzz;

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }
}

/// A few changes of an example: bytes replaced, removed, inserted, doubled.
fn changed(example: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = example.to_vec();
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len());
        let to = (at + random.below(40)).min(bytes.len());
        match random.below(5) {
            0 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 => drop(bytes.drain(at..to)),
            3 => drop(bytes.splice(at..at, random.bytes(12)).collect::<Vec<_>>()),
            _ => bytes.extend_from_within(at..to),
        }
    }
    bytes
}

/// All bodies: the library's and the planner's.
fn all() -> Vec<(&'static str, fuzz::Body, Vec<Vec<u8>>)> {
    let mut all = fuzz::all();
    all.push(("contract", qos::testing::contract, qos::testing::contracts()));
    all.push(("planner", qos::testing::planner, vec![vec![0; 8]]));
    all
}

/// Findings of cargo-fuzz for a target, by file name.
fn stored(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<_> = files
        .map(|file| (file.file_name().to_string_lossy().into_owned(), std::fs::read(file.path()).expect("a seed")))
        .collect();
    all.sort();
    all
}

/// The fewest inputs of a body, 100/s. On a busy machine they may take [`PATIENCE`] times as long as they should.
const LEAST: u64 = if cfg!(debug_assertions) { 20 } else { 200 };
const PATIENCE: f64 = 20.0;

fn run(name: &str) {
    let seconds = std::env::var("THALWEG_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2.0);
    let (_, body, mut examples) = all().into_iter().find(|(n, ..)| *n == name).expect("a body of this name");
    let stored = stored(name);
    for (file, input) in &stored {
        assert!(catch_unwind(|| body(input)).is_ok(), "{name} fails with fuzz/seeds/{name}/{file}");
    }
    let replayed = stored.len();
    examples.extend(stored.into_iter().map(|(_, input)| input));
    let seed = qos::testing::seed();
    // Each body has its own numbers.
    let mut random = Random(name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())));
    let mut inputs: u64 = 0;
    examples.iter().for_each(|example| body(example));
    let began = Instant::now();
    let after = |seconds: f64| began.elapsed() >= Duration::from_secs_f64(seconds);
    while !after(seconds) || inputs < LEAST {
        let late = after(seconds.max(2.0) * PATIENCE);
        assert!(!late, "{name}: {inputs} inputs in {:?}, {LEAST} are needed", began.elapsed());
        let input = match random.below(4) {
            0 => random.bytes(600),
            _ => changed(&examples[random.below(examples.len())], &mut random),
        };
        if catch_unwind(|| body(&input)).is_err() {
            let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            panic!("{name} fails after {inputs} inputs of THALWEG_SEED={seed} with these {} bytes: {hex}", input.len());
        }
        inputs += 1;
    }
    let rate = inputs as f64 / began.elapsed().as_secs_f64();
    println!("{name}: {replayed} stored and {inputs} other inputs, {rate:.0}/s, THALWEG_SEED={seed}");
}

#[test]
fn wire() {
    run("wire");
}
#[test]
fn reassembly() {
    run("reassembly");
}
#[test]
fn parity() {
    run("parity");
}
#[test]
fn handshake() {
    run("handshake");
}
#[test]
fn control() {
    run("control");
}
#[test]
fn codec() {
    run("codec");
}
#[test]
fn operations() {
    run("operations");
}
#[cfg(feature = "pictures")]
#[test]
fn pictures() {
    run("pictures");
}
#[test]
fn administration() {
    run("administration");
}
#[test]
fn pull() {
    run("pull");
}
#[test]
fn reliable() {
    run("reliable");
}
#[test]
fn directory() {
    run("directory");
}
#[test]
fn types() {
    run("types");
}
#[test]
fn contract() {
    run("contract");
}
#[test]
fn planner() {
    run("planner");
}
/// Detects a corpus that is not replayed, or is gone.
#[test]
fn every_body_but_the_planner_has_a_stored_corpus() {
    let names: Vec<&str> = all().into_iter().map(|(name, ..)| name).collect();
    // The planner's inputs are seeds of a generator: a stored one is no better than the next number.
    assert!(names.iter().all(|name| *name == "planner" || !stored(name).is_empty()), "one of {names:?} has none");
}
#[test]
fn every_body_is_run() {
    assert_eq!(all().len(), if cfg!(feature = "pictures") { 15 } else { 14 }, "a body without a test here");
}
