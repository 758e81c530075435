//! Rows of the tools, each a figure of the tool's own report ([`crate::bench::tools`]).

use super::{Against, Figure, Job, Row, Target, latency, row};
use crate::bench::Carrier;

/// The rows.
pub(super) const ROWS: &[Row] = &[
    Row {
        against: Against::Nothing,
        ..row(
            "record-rate",
            "recorded rate / min(500 MB/s, 90 % of disk)",
            RECORDING,
            Figure::Tool("/figures/share_of_target", "×"),
            Target::AtLeast(1.0),
        )
    },
    Row {
        against: Against::Nothing,
        ..row(
            "record-accounted",
            "neither recorded nor counted as lost",
            RECORDING,
            Figure::Tool("/figures/unaccounted", "samples"),
            Target::AtMost(0.0),
        )
    },
    Row {
        against: Against::Nothing,
        ..row(
            "record-p99",
            "p99 of 64 B, recorded / not",
            RECORDING,
            Figure::Tool("/figures/p99_ratio", "×"),
            Target::AtMost(1.1),
        )
    },
    Row {
        against: Against::Nothing,
        ..row(
            "record-big-p99",
            "p99 of 1 MiB, recorded / not",
            RECORDING,
            Figure::Tool("/figures/p99_big_ratio", "×"),
            Target::AtMost(1.1),
        )
    },
    Row {
        against: Against::Nothing,
        ..row(
            "replay-interval",
            "interval error of a replay, p99",
            REPLAY,
            Figure::Tool("/figures/interval_error_p99_us", "µs"),
            Target::AtMost(100.0),
        )
    },
    Row {
        against: Against::Nothing,
        ..row(
            "check-equal",
            "equal builds that pass the timing test",
            REPLAY,
            Figure::Tool("/figures/equal_passed_share", "×"),
            Target::AtLeast(1.0),
        )
    },
    Row {
        against: Against::Nothing,
        ..row(
            "check-delay",
            "builds with 2 ms more that are named",
            REPLAY,
            Figure::Tool("/figures/delays_named_share", "×"),
            Target::AtLeast(1.0),
        )
    },
    Row {
        against: Against::Nothing,
        ..row(
            "page-p99",
            "p99, page and metrics / no dashboard",
            PAGE,
            Figure::Tool("/figures/p99_ratio", "×"),
            Target::AtMost(1.03),
        )
    },
    Row {
        against: Against::Nothing,
        ..row(
            "page-off",
            "channels, threads, files, page closed",
            PAGE,
            Figure::Tool("/figures/off_beyond", "more"),
            Target::AtMost(0.0),
        )
    },
    Row {
        against: Against::Nothing,
        ..row(
            "page-cpu",
            "500 channels on a page, of a core",
            PAGE,
            Figure::Tool("/figures/core_percent", "%"),
            Target::AtMost(10.0),
        )
    },
];

// A tool alternates its sides itself, and judges its rounds.
const RECORDING: Job = tool("recording", &["--time", "20s"]);
const REPLAY: Job = tool("replay", &[]);
const PAGE: Job = tool("dashboard", &[]);

const fn tool(mode: &'static str, further: &'static [&'static str]) -> Job {
    Job { mode, further, is_tool: true, ..latency(Carrier::Shm, 64, 1) }
}
