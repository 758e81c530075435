//! Histograms, percentiles and the JSON documents of the measurements.

use super::engine::Settings;
use super::name_of;
use lab::statistics::{Latencies, rounded};
use linux::clock::process_cpu_ns;
use serde::Serialize;
use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(60);

/// Latencies, counted without allocation, and the processor time between start and stop.
pub(super) struct Meter {
    latencies: Latencies,
    cpu_ns: u64,
    rss_kib: u64,
}

impl Meter {
    /// An empty meter, for latencies up to a minute.
    pub(super) fn new() -> Self {
        Self { latencies: Latencies::up_to(LONGEST), cpu_ns: 0, rss_kib: 0 }
    }

    /// The meter of another process, which recorded these latencies.
    pub(super) fn of(nanoseconds: &[u64], cpu_ns: u64, rss_kib: u64) -> Self {
        let mut meter = Self { cpu_ns, rss_kib, ..Self::new() };
        nanoseconds.iter().for_each(|ns| meter.record(*ns));
        meter
    }

    /// Starts the measured part.
    pub(super) fn start(&mut self) {
        self.cpu_ns = process_cpu_ns();
    }

    /// Counts one latency; more than a minute counts as a minute.
    #[inline]
    pub(super) fn record(&mut self, nanoseconds: u64) {
        self.latencies.record(nanoseconds);
    }

    /// Ends the measured part.
    pub(super) fn stop(&mut self) {
        self.cpu_ns = process_cpu_ns().saturating_sub(self.cpu_ns);
        self.rss_kib = linux::thread::peak_rss_kib();
    }

    fn cpu_us(&self, messages: u64) -> f64 {
        rounded(self.cpu_ns as f64 / 1000.0 / messages.max(1) as f64, 3)
    }
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Percentiles {
    /// The shortest latency.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The longest latency.
    pub max: f64,
}

impl From<&Latencies> for Percentiles {
    fn from(latencies: &Latencies) -> Self {
        let at = |quantile| rounded(latencies.quantile_us(quantile), 3);
        let (min, max) = (rounded(latencies.min_us(), 3), rounded(latencies.max_us(), 3));
        Self { min, p50: at(0.5), p99: at(0.99), p999: at(0.999), max }
    }
}

/// The document of `bench latency`. Its keys are a contract.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Latency {
    engine: &'static str,
    carrier: String,
    size: usize,
    count: u64,
    rtt_us: Percentiles,
    cpu_us_per_message: f64,
    rss_kib: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<u64>,
}

impl Latency {
    /// The document of the round trips that `meter` counted.
    pub(super) fn new(engine: &'static str, settings: &Settings, meter: &Meter) -> Self {
        let (carrier, size, count) = (name_of(settings.carrier), settings.terms.size, meter.latencies.count());
        let (rtt_us, cpu_us_per_message) = ((&meter.latencies).into(), meter.cpu_us(count));
        Self { engine, carrier, size, count, rtt_us, cpu_us_per_message, rss_kib: meter.rss_kib, copies: None }
    }

    /// The same with the number of messages that were in memory of one process alone; `None`: nobody counted.
    pub(super) fn copies(self, copies: Option<u64>) -> Self {
        Self { copies, ..self }
    }
}

/// The document of `bench throughput`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Throughput {
    engine: &'static str,
    carrier: String,
    size: usize,
    count: u64,
    batched: bool,
    received: u64,
    lost: u64,
    messages_per_second: f64,
    cpu_us_per_message: f64,
    rss_kib: u64,
}

impl Throughput {
    /// The document of the receiver's count, and of the time from the first send to the last receive.
    pub(super) fn new(
        engine: &'static str,
        settings: &Settings,
        received: u64,
        nanoseconds: u64,
        meter: &Meter,
    ) -> Self {
        let terms = &settings.terms;
        Self {
            engine,
            carrier: name_of(settings.carrier),
            size: terms.size,
            count: terms.count,
            batched: terms.batched,
            received,
            lost: terms.count.saturating_sub(received),
            messages_per_second: (received as f64 * 1e9 / nanoseconds.max(1) as f64).round(),
            cpu_us_per_message: meter.cpu_us(terms.count),
            rss_kib: meter.rss_kib,
        }
    }
}

/// The document of `bench fanout`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fanout {
    engine: &'static str,
    carrier: String,
    size: usize,
    count: u64,
    subscribers: usize,
    latency_us: Percentiles,
    lost: u64,
    cpu_us_per_message: f64,
    rss_kib: u64,
    /// Of all processes together; not known of bare sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_of_all_us_per_message: Option<f64>,
}

impl Fanout {
    /// The document of the latencies of the last subscriber of each sample. A sample that a subscriber missed is not
    /// counted.
    pub(super) fn new(engine: &'static str, settings: &Settings, meter: &Meter) -> Self {
        let terms = &settings.terms;
        Self {
            engine,
            carrier: name_of(settings.carrier),
            size: terms.size,
            count: terms.count,
            subscribers: settings.subscribers,
            latency_us: (&meter.latencies).into(),
            lost: terms.count.saturating_sub(meter.latencies.count()),
            cpu_us_per_message: meter.cpu_us(terms.count),
            rss_kib: meter.rss_kib,
            cpu_of_all_us_per_message: None,
        }
    }

    /// The same with the processor time of all processes; `others` is that of the subscribers, in ns.
    pub(super) fn with_cpu_of_others(self, meter: &Meter, others: u64) -> Self {
        let all = (meter.cpu_ns + others) as f64 / 1000.0 / self.count.max(1) as f64;
        Self { cpu_of_all_us_per_message: Some(rounded(all, 3)), ..self }
    }
}

/// The document of `bench storm`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Storm {
    engine: &'static str,
    carrier: String,
    size: usize,
    count: u64,
    joins: u64,
    call_us: Percentiles,
}

impl Storm {
    /// The document of the calls that `meter` counted during that many joins.
    pub(super) fn new(settings: &Settings, joins: u64, meter: &Meter) -> Self {
        let (carrier, size, count) = (name_of(settings.carrier), settings.terms.size, meter.latencies.count());
        Self { engine: "thalweg", carrier, size, count, joins, call_us: (&meter.latencies).into() }
    }
}

/// The document of `bench crowd`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Crowd {
    engine: &'static str,
    carrier: String,
    nodes: u64,
    ports: u64,
    matched_s: f64,
}

impl Crowd {
    /// The document of the time until all ports of all nodes had their channels.
    pub(super) fn new(settings: &Settings, nodes: u64, took: Duration) -> Self {
        let (carrier, ports) = (name_of(settings.carrier), settings.terms.count);
        Self { engine: "thalweg", carrier, nodes, ports, matched_s: rounded(took.as_secs_f64(), 3) }
    }
}

/// The document of `bench resume`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Resume {
    engine: &'static str,
    carrier: String,
    down_s: f64,
    resumed_ms: f64,
}

impl Resume {
    /// The document of the time from the end of an outage to the first sample.
    pub(super) fn new(settings: &Settings, down: Duration, resumed: Duration) -> Self {
        let resumed_ms = rounded(resumed.as_secs_f64() * 1000.0, 3);
        Self { engine: "thalweg", carrier: name_of(settings.carrier), down_s: down.as_secs_f64(), resumed_ms }
    }
}

/// The document of `bench start`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Start {
    engine: &'static str,
    carrier: String,
    channels: u64,
    open_ms: f64,
    matched_ms: f64,
    threads: u64,
    rss_kib: u64,
}

impl Start {
    /// The document of the times to open a node and its first channel, and of the threads of all channels.
    pub(super) fn new(
        engine: &'static str,
        settings: &Settings,
        open: Duration,
        matched: Duration,
        threads: u64,
    ) -> Self {
        let ms = |time: Duration| rounded(time.as_secs_f64() * 1000.0, 3);
        Self {
            engine,
            carrier: name_of(settings.carrier),
            channels: settings.terms.count,
            open_ms: ms(open),
            matched_ms: ms(matched),
            threads,
            rss_kib: linux::thread::peak_rss_kib(),
        }
    }
}
