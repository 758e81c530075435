//! Figures that count, and targets for them.

/// A figure in the document of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Figure {
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
    pub(in crate::bench) fn place(self) -> (&'static str, f64, &'static str) {
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

/// The target of a row: a ratio if the row has a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::bench) enum Target {
    /// At most this value.
    AtMost(f64),
    /// At least this value.
    AtLeast(f64),
}

impl Target {
    /// The limit.
    pub(in crate::bench) fn limit(self) -> f64 {
        match self {
            Target::AtMost(limit) | Target::AtLeast(limit) => limit,
        }
    }

    /// `true` if `value` meets it.
    pub(in crate::bench) fn met_by(self, value: f64) -> bool {
        match self {
            Target::AtMost(limit) => value <= limit,
            Target::AtLeast(limit) => value >= limit,
        }
    }

    /// Distance between `value` and the limit in percent of the limit; negative if the target is met.
    pub(in crate::bench) fn missed_by_percent(self, value: f64) -> f64 {
        match self {
            Target::AtMost(limit) if limit <= 0.0 => 100.0, // no part of nothing
            Target::AtMost(limit) => (value / limit - 1.0) * 100.0,
            Target::AtLeast(limit) => (1.0 - value / limit) * 100.0,
        }
    }

    /// The target, for people.
    pub(in crate::bench) fn text(self, unit: &str) -> String {
        match self {
            Target::AtMost(limit) => format!("≤ {} {unit}", short(limit)),
            Target::AtLeast(limit) => format!("≥ {} {unit}", short(limit)),
        }
    }
}

/// A figure with three significant digits.
pub(in crate::bench) fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}
