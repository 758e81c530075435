//! The rows of the comparison and their targets.

mod bindings;
mod figure;
mod job;
#[cfg(all(feature = "dashboard", feature = "recording"))]
mod tools;

pub(super) use figure::{Figure, Target, short};
pub(super) use job::Job;

use crate::bench::{Carrier, Payload};
use job::{fanout, latency, start, stream, trial, with};

/// One row: the measurement, the figure that counts, its reference and its target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The name on the command line.
    pub name: &'static str,
    /// Its description, for people.
    pub what: &'static str,
    /// Thalweg's work.
    pub job: Job,
    /// The figure that counts.
    pub figure: Figure,
    /// The reference.
    pub against: Against,
    /// The target.
    pub target: Target,
}

/// The reference of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Against {
    /// The limit with the same work.
    Raw,
    /// The same engine with other work.
    Itself(Job),
    /// None: the target is a figure, not a ratio.
    Nothing,
}

const TCP: Job = latency(Carrier::Tcp, 64, 30_000);
const SHM: Job = latency(Carrier::Shm, 64, 50_000);
const SMALL: Job = latency(Carrier::Tcp, 64, 2_000);
const START: Job = start(1);
const HOSTS: Job = Job { further: &["--hosts"], ..START };
const MIB: usize = 1 << 20;

/// All rows.
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(bindings::ROWS).chain(TOOLS)
}

#[cfg(all(feature = "dashboard", feature = "recording"))]
const TOOLS: &[Row] = tools::ROWS;
#[cfg(not(all(feature = "dashboard", feature = "recording")))]
const TOOLS: &[Row] = &[];

/// The rows of the library itself.
pub(super) const ROWS: &[Row] = &[
    row("tcp-64-p50", "64 B round trip, tcp, p50", TCP, Figure::RoundTripP50, Target::AtMost(1.10)),
    row("tcp-64-p99", "64 B round trip, tcp, p99", TCP, Figure::RoundTripP99, Target::AtMost(1.3)),
    row("tcp-64-cpu", "CPU per message, tcp 64 B", TCP, Figure::Cpu, Target::AtMost(1.1)),
    row(
        "tcp-plain-p50",
        "64 B round trip, tcp, plain pair, p50",
        Job { further: &["--plain"], ..TCP },
        Figure::RoundTripP50,
        Target::AtMost(1.15),
    ),
    row(
        "udp-64",
        "64 B round trip, udp best effort",
        latency(Carrier::Udp, 64, 30_000),
        Figure::RoundTripP50,
        Target::AtMost(1.15),
    ),
    row(
        "udp-reliable-64",
        "64 B round trip, udp reliable",
        Job { reliable: true, ..latency(Carrier::Udp, 64, 30_000) },
        Figure::RoundTripP50,
        Target::AtMost(1.30),
    ),
    row("shm-64", "64 B round trip, shm with wake-up", SHM, Figure::RoundTripP50, Target::AtMost(1.4)),
    Row {
        against: Against::Nothing,
        ..row(
            "local-64",
            "64 B one way, local callback",
            latency(Carrier::Local, 64, 200_000),
            Figure::OneWayP50,
            Target::AtMost(0.3),
        )
    },
    row(
        "tcp-1m",
        "1 MiB round trip, tcp",
        latency(Carrier::Tcp, MIB, 1_000),
        Figure::RoundTripP50,
        Target::AtMost(1.05),
    ),
    Row {
        against: Against::Itself(with(SHM, Payload::Untouched)),
        ..row(
            "shm-1m-loaned",
            "1 MiB shm, loaned, untouched, vs 64 B",
            with(latency(Carrier::Shm, MIB, 50_000), Payload::Untouched),
            Figure::RoundTripP50,
            Target::AtMost(1.4),
        )
    },
    row(
        "shm-1m-checked",
        "1 MiB shm, written and checksummed",
        with(latency(Carrier::Shm, MIB, 1_000), Payload::Checked),
        Figure::RoundTripP50,
        Target::AtMost(1.05),
    ),
    row("tcp-throughput", "throughput 64 B, tcp", stream(1_000_000, false), Figure::Rate, Target::AtLeast(0.95)),
    Row {
        against: Against::Nothing,
        ..row(
            "tcp-batched",
            "throughput 64 B, tcp, batched",
            stream(5_000_000, true),
            Figure::Rate,
            Target::AtLeast(3e6),
        )
    },
    Row {
        against: Against::Nothing,
        ..row(
            "tcp-budget",
            "throughput 64 B, tcp, budget 100 µs",
            Job { further: &["--latency-budget", "100us"], ..stream(5_000_000, false) },
            Figure::Rate,
            Target::AtLeast(3e6),
        )
    },
    row("fanout-tcp", "last of 8, 1 kHz, 64 B, tcp", fanout(Carrier::Tcp), Figure::LastP50, Target::AtMost(1.10)),
    row("fanout-udp", "last of 8, 1 kHz, 64 B, udp", fanout(Carrier::Udp), Figure::LastP50, Target::AtMost(1.15)),
    row("fanout-shm", "last of 8, 1 kHz, 64 B, shm", fanout(Carrier::Shm), Figure::LastP50, Target::AtMost(1.3)),
    // 2 µs for both ends of a sample: 2 % of a processor at 10,000 samples per second.
    Row {
        against: Against::Itself(TCP),
        ..row(
            "stages-cpu",
            "CPU per message, stages of all measured, vs not",
            Job { stages: true, ..TCP },
            Figure::Cpu,
            Target::AtMost(1.15),
        )
    },
    alone("memory", "peak memory of a ping process", SMALL, Figure::Memory, 5.0),
    alone("threads", "threads of a node, 1,000 channels", start(1_000), Figure::Threads, 18.0),
    alone("start-open", "Node::open beside another node", START, Figure::Open, 5.0),
    alone("start-matched", "first channel after that", START, Figure::Matched, 20.0),
    alone("hosts-memory", "peak memory of a node with Zenoh", HOSTS, Figure::Memory, 16.0),
    alone("hosts-matched", "first channel between hosts, by Zenoh", HOSTS, Figure::Matched, 500.0),
    alone("crowd", "1,000 ports, 100 nodes: all channels", trial("crowd", Carrier::Tcp, 1_000), Figure::All, 2.0),
    alone("storm-tcp", "publish(), others join, tcp, p99", trial("storm", Carrier::Tcp, 4_000), Figure::CallP99, 50.0),
    alone("storm-shm", "publish(), others join, shm, p99", trial("storm", Carrier::Shm, 4_000), Figure::CallP99, 50.0),
    alone("resume-tcp", "first sample after 10 s down, tcp", trial("resume", Carrier::Tcp, 10), Figure::Resumed, 1e3),
    alone("resume-udp", "first sample after 10 s down, udp", trial("resume", Carrier::Udp, 10), Figure::Resumed, 1e3),
];

/// A row without a reference.
const fn alone(name: &'static str, what: &'static str, job: Job, figure: Figure, limit: f64) -> Row {
    Row { against: Against::Nothing, ..row(name, what, job, figure, Target::AtMost(limit)) }
}

const fn row(name: &'static str, what: &'static str, job: Job, figure: Figure, target: Target) -> Row {
    Row { name, what, job, figure, against: Against::Raw, target }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::EngineName;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_every_job_says_what_it_does() {
        let names: HashSet<_> = rows().map(|r| r.name).collect();
        assert_eq!(names.len(), rows().count());
        let arguments = ROWS[0].job.arguments(EngineName::Raw, [0, 1], ROWS[0].job.count, false).join(" ");
        let wanted = "bench latency --json --role both --engine raw --carrier tcp --payload copied --size 64 \
                      --count 30000 --warmup 3000 --pin 0 --pin-peer 1";
        assert_eq!(arguments, wanted);
    }

    #[test]
    fn a_missed_target_says_by_how_much() {
        assert!(Target::AtMost(1.1).met_by(1.1) && !Target::AtLeast(0.95).met_by(0.9));
        assert!((Target::AtMost(1.0).missed_by_percent(1.2) - 20.0).abs() < 1e-9);
        assert!((Target::AtLeast(2.0).missed_by_percent(1.0) - 50.0).abs() < 1e-9);
        assert_eq!((Target::AtLeast(3e6).text("/s"), short(13.94)), ("≥ 3.00 M /s".into(), "13.9".into()));
    }
}
