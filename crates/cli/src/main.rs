//! The command `thalweg`.

mod bench;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Real-time publish/subscribe.
#[derive(Parser)]
#[command(name = "thalweg", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure latency, throughput and fan-out, and compare them with bare sockets
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let Arguments { verb } = Arguments::parse();
    match verb {
        Verb::Bench(arguments) => bench::run(&arguments),
    }
}
