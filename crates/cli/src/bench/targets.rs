//! The rows of the comparison and their targets.

mod bindings;
#[cfg(all(feature = "dashboard", feature = "recording"))]
mod tools;

use crate::bench::{Carrier, EngineName, Payload, name_of};
use std::time::Duration;

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

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// The engine, where it is not the one that is compared.
    pub engine: Option<EngineName>,
    /// The verb of `thalweg bench`.
    pub mode: &'static str,
    /// The carrier of the messages.
    pub carrier: Carrier,
    /// Bytes per message.
    pub size: usize,
    /// Number of measured messages.
    pub count: u64,
    /// Work on the payload.
    pub payload: Payload,
    /// Several messages per write.
    pub batched: bool,
    /// Lost messages are retransmitted.
    pub reliable: bool,
    /// The stages of every sample are measured.
    pub stages: bool,
    /// Both ends stay on their processors.
    pub pinned: bool,
    /// Further options, for the library and its bindings only.
    pub further: &'static [&'static str],
    /// A tool's figures ([`super::tools`]), which measure both sides themselves and have no end to choose.
    pub is_tool: bool,
}

/// A figure in the document of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Median round trip in µs.
    RoundTripP50,
    /// 99th percentile of the round trip in µs.
    RoundTripP99,
    /// Half the median round trip in µs.
    OneWayP50,
    /// Median latency of the last subscriber in µs.
    LastP50,
    /// 99th percentile of the latency of the last subscriber in µs.
    LastP99,
    /// Messages per second.
    Rate,
    /// Processor time per message in µs.
    Cpu,
    /// Processor time of all processes per message in µs.
    CpuOfAll,
    /// Messages that were copied between publisher and subscriber.
    Copies,
    /// Peak resident memory of the measuring process in MB (10⁶ bytes).
    Memory,
    /// Threads of the node that has the most.
    Threads,
    /// Time to open a node in ms.
    Open,
    /// Time from the open node to its first channel in ms.
    Matched,
    /// 99th percentile of a call of `publish` in µs.
    CallP99,
    /// Time until all ports of all nodes have their channels, in s.
    All,
    /// Time from the end of an outage to the first sample in ms.
    Resumed,
    /// A figure of a tool: its place in the report, and its unit.
    #[cfg(all(feature = "dashboard", feature = "recording"))]
    Tool(&'static str, &'static str),
}

impl Figure {
    /// The figure's place in the document, its factor and its unit.
    pub(super) fn place(self) -> (&'static str, f64, &'static str) {
        match self {
            Figure::RoundTripP50 => ("/rtt_us/p50", 1.0, "µs"),
            Figure::RoundTripP99 => ("/rtt_us/p99", 1.0, "µs"),
            Figure::OneWayP50 => ("/rtt_us/p50", 0.5, "µs"),
            Figure::LastP50 => ("/latency_us/p50", 1.0, "µs"),
            Figure::LastP99 => ("/latency_us/p99", 1.0, "µs"),
            Figure::Rate => ("/messages_per_second", 1.0, "/s"),
            Figure::Cpu => ("/cpu_us_per_message", 1.0, "µs"),
            Figure::CpuOfAll => ("/cpu_of_all_us_per_message", 1.0, "µs"),
            Figure::Copies => ("/copies", 1.0, "copies"),
            Figure::Memory => ("/rss_kib", 1.024e-3, "MB"),
            Figure::Threads => ("/threads", 1.0, "threads"),
            Figure::Open => ("/open_ms", 1.0, "ms"),
            Figure::Matched => ("/matched_ms", 1.0, "ms"),
            Figure::CallP99 => ("/call_us/p99", 1.0, "µs"),
            Figure::All => ("/matched_s", 1.0, "s"),
            Figure::Resumed => ("/resumed_ms", 1.0, "ms"),
            #[cfg(all(feature = "dashboard", feature = "recording"))]
            Figure::Tool(place, unit) => (place, 1.0, unit),
        }
    }
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

/// The target of a row: a ratio if the row has a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// At most this value.
    AtMost(f64),
    /// At least this value.
    AtLeast(f64),
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

const fn latency(carrier: Carrier, size: usize, count: u64) -> Job {
    Job {
        engine: None,
        mode: "latency",
        carrier,
        size,
        count,
        payload: Payload::Copied,
        batched: false,
        reliable: false,
        stages: false,
        pinned: true,
        further: &[],
        is_tool: false,
    }
}

const fn stream(count: u64, batched: bool) -> Job {
    Job { mode: "throughput", batched, ..latency(Carrier::Tcp, 64, count) }
}

const fn fanout(carrier: Carrier) -> Job {
    Job { mode: "fanout", ..latency(carrier, 64, 2_000) }
}

const fn start(channels: u64) -> Job {
    Job { mode: "start", ..latency(Carrier::Tcp, 64, channels) }
}

/// A trial of whole nodes: their threads run where the scheduler puts them.
const fn trial(mode: &'static str, carrier: Carrier, count: u64) -> Job {
    Job { mode, pinned: false, ..latency(carrier, 64, count) }
}

const fn with(job: Job, payload: Payload) -> Job {
    Job { payload, ..job }
}

impl Job {
    /// The arguments of the measuring process.
    pub(super) fn arguments(&self, engine: EngineName, pins: [usize; 2], count: u64, quick: bool) -> Vec<String> {
        if self.is_tool {
            let words = ["bench", self.mode, "--json"].into_iter().chain(self.further.iter().copied());
            return words.chain(quick.then_some("--quick")).map(str::to_owned).collect();
        }
        let mut arguments: Vec<String> = ["bench", self.mode, "--json", "--role", "both"].map(str::to_owned).into();
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        option("--engine", name_of(engine));
        option("--carrier", name_of(self.carrier));
        option("--payload", name_of(self.payload));
        option("--size", self.size.to_string());
        option("--count", count.to_string());
        option("--warmup", (count / 10).to_string());
        if self.pinned {
            option("--pin", pins[0].to_string());
            option("--pin-peer", pins[1].to_string());
        } else {
            arguments.push("--no-pin".to_owned());
        }
        if self.batched {
            arguments.push("--batched".to_owned());
        }
        if self.reliable {
            arguments.push("--reliable".to_owned());
        }
        if self.stages {
            arguments.push("--stages".to_owned());
        }
        if engine == EngineName::Thalweg || self.engine.is_some() {
            arguments.extend(self.further.iter().map(|word| (*word).to_owned()));
        }
        arguments
    }

    /// The longest time until it has a result. A tool makes all rounds.
    pub(super) fn longest(&self, rounds: u32) -> Duration {
        let of_a_tool = 1800 + 300 * u64::from(rounds);
        Duration::from_secs(if self.is_tool { of_a_tool } else { 120 })
    }

    /// Its description, for people.
    pub(super) fn text(&self) -> String {
        format!("{} {} {} B", self.mode, name_of(self.carrier), self.size)
    }

    /// Measured messages; few in a quick run.
    pub(super) fn count(&self, quick: bool) -> u64 {
        if quick { (self.count / 100).max(20).min(self.count) } else { self.count }
    }
}

impl Target {
    /// The limit.
    pub(super) fn limit(self) -> f64 {
        match self {
            Target::AtMost(limit) | Target::AtLeast(limit) => limit,
        }
    }

    /// `true` if `value` meets it.
    pub(super) fn met_by(self, value: f64) -> bool {
        match self {
            Target::AtMost(limit) => value <= limit,
            Target::AtLeast(limit) => value >= limit,
        }
    }

    /// Distance between `value` and the limit in percent of the limit; negative if the target is met.
    pub(super) fn missed_by_percent(self, value: f64) -> f64 {
        match self {
            Target::AtMost(limit) if limit <= 0.0 => 100.0, // no part of nothing
            Target::AtMost(limit) => (value / limit - 1.0) * 100.0,
            Target::AtLeast(limit) => (1.0 - value / limit) * 100.0,
        }
    }

    /// The target, for people.
    pub(super) fn text(self, unit: &str) -> String {
        match self {
            Target::AtMost(limit) => format!("≤ {} {unit}", short(limit)),
            Target::AtLeast(limit) => format!("≥ {} {unit}", short(limit)),
        }
    }
}

/// A figure with three significant digits.
pub(super) fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
