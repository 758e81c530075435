//! Rows of the bindings: Python and C++ beside Rust, both with the same work.

use super::{Against, Figure, Job, MIB, Row, Target, alone, fanout, latency, row, with};
use crate::bench::{Carrier, EngineName, Payload};

/// The rows.
pub(super) const ROWS: &[Row] = &[
    binding("python-shm-64", "Python vs Rust, 64 B, shm, p50", PYTHON, SMALL_SHM, 1.6),
    binding("python-tcp-64", "Python vs Rust, 64 B, tcp, p50", PYTHON, SMALL_TCP, 1.2),
    binding("python-shm-1m", "Python vs Rust, 1 MiB in place, shm", PYTHON, LARGE, 1.2),
    alone("python-copies", "Python: copies, 1 MiB, in the warm-up", of(PYTHON, LARGE), Figure::Copies, 0.0),
    Row { figure: Figure::CpuOfAll, ..binding("python-cpu", "Python vs Rust, CPU at 1 kHz", PYTHON, ONE, 2.0) },
    Row {
        figure: Figure::LastP99,
        against: Against::Itself(AWAKE),
        ..binding("python-asleep", "p99, beside a callback that sleeps", PYTHON, ASLEEP, 1.1)
    },
    binding("cpp-shm-64", "C++ vs Rust, 64 B, shm, p50", CPP, SMALL_SHM, 1.05),
    binding("cpp-tcp-64", "C++ vs Rust, 64 B, tcp, p50", CPP, SMALL_TCP, 1.05),
    binding("cpp-shm-1m", "C++ vs Rust, 1 MiB in place, shm", CPP, LARGE, 1.05),
];

const PYTHON: EngineName = EngineName::Python;
const CPP: EngineName = EngineName::Cpp;
/// Bindings do not declare that two channels belong together, so Rust does not here.
const PAIRS: &[&str] = &["--plain"];
const SMALL_SHM: Job = Job { further: PAIRS, ..latency(Carrier::Shm, 64, 20_000) };
const SMALL_TCP: Job = Job { further: PAIRS, ..latency(Carrier::Tcp, 64, 20_000) };
const LARGE: Job = Job { further: PAIRS, ..with(latency(Carrier::Shm, MIB, 1_000), Payload::Checked) };
/// 12 s at 1 kHz: five rounds are a minute.
const ONE: Job = Job { count: 12_000, further: &["--subscribers", "1"], ..fanout(Carrier::Shm) };

/// A subscriber beside a callback of the same process that sleeps, and beside one that does not.
const ASLEEP: Job = Job { further: &["--subscribers", "1", "--beside", "asleep"], ..ONE };
const AWAKE: Job = Job { further: &["--subscribers", "1", "--beside", "awake"], ..of(PYTHON, ONE) };

const fn of(engine: EngineName, job: Job) -> Job {
    Job { engine: Some(engine), ..job }
}

/// A binding beside Rust, both with the same work: the median round trip.
const fn binding(name: &'static str, what: &'static str, engine: EngineName, job: Job, limit: f64) -> Row {
    let against = Against::Itself(of(EngineName::Thalweg, job));
    Row { against, ..row(name, what, of(engine, job), Figure::RoundTripP50, Target::AtMost(limit)) }
}
