//! The bodies of all fuzz targets of the library and the planner under the stable compiler ([`qos::testing::inputs`]).

use qos::testing::inputs;
use std::path::PathBuf;
use thalweg::testing::fuzz;

/// All bodies: the library's and the planner's.
fn all() -> Vec<(&'static str, fuzz::Body, Vec<Vec<u8>>)> {
    let mut all = fuzz::all();
    all.push(("contract", qos::testing::contract, qos::testing::contracts()));
    all.push(("planner", qos::testing::planner, vec![vec![0; 8]]));
    all
}

/// Findings of cargo-fuzz.
fn seeds() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
}

fn run(name: &str) -> inputs::Ran {
    let (_, body, examples) = all().into_iter().find(|(n, ..)| *n == name).expect("a body of this name");
    inputs::run(name, body, examples, &seeds())
}

/// Systems that are planned in a second of processor time, at least. Found: 480 by the clock of an idle machine, and 3 to 6 while each was
/// planned at length.
const SYSTEMS: f64 = 100.0;

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
fn definitions() {
    run("definitions");
}
#[test]
fn contract() {
    run("contract");
}
#[test]
fn planner() {
    let Some(rate) = run("planner").rate() else {
        return println!("skipped: the rate of planner: because this kernel has no /proc/thread-self/schedstat");
    };
    assert!(cfg!(debug_assertions) || rate >= SYSTEMS, "{rate:.0} systems in a second of processor time");
}
/// Detects a corpus that is not replayed, or is gone.
#[test]
fn every_body_but_the_planner_has_a_stored_corpus() {
    let names: Vec<&str> = all().into_iter().map(|(name, ..)| name).collect();
    // The planner's inputs are seeds of a generator: a stored one is no better than the next number.
    assert!(
        names.iter().all(|name| *name == "planner" || !inputs::stored(&seeds(), name).is_empty()),
        "one of {names:?} has none"
    );
}
#[test]
fn every_body_is_run() {
    assert_eq!(all().len(), if cfg!(feature = "pictures") { 16 } else { 15 }, "a body without a test here");
}
