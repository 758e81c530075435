//! Histograms, percentiles and the JSON documents of the measurements.

use super::Error;
use super::arguments::name_of;
use super::engine::Settings;
use hdrhistogram::Histogram;
use linux::clock::process_cpu_ns;
use serde::Serialize;
use std::time::Duration;

const LONGEST_NS: u64 = 60_000_000_000;

/// Counts latencies without allocating, and the processor time between start and stop.
pub struct Meter {
    histogram: Histogram<u32>,
    cpu_ns: u64,
    rss_kib: u64,
}

impl Meter {
    /// An empty meter: nanoseconds up to a minute, three significant digits.
    ///
    /// # Errors
    /// When the histogram cannot be made, which would be our own bug.
    pub fn new() -> Result<Self, Error> {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).map_err(|e| Error::System(e.to_string()))?;
        Ok(Self { histogram, cpu_ns: 0, rss_kib: 0 })
    }

    /// The measured part begins.
    pub fn start(&mut self) {
        self.cpu_ns = process_cpu_ns();
    }

    /// Counts one latency; longer than a minute counts as a minute.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.histogram.saturating_record(nanoseconds);
    }

    /// The measured part ends.
    pub fn stop(&mut self) {
        self.cpu_ns = process_cpu_ns().saturating_sub(self.cpu_ns);
        self.rss_kib = linux::thread::peak_rss_kib();
    }

    fn cpu_us(&self, messages: u64) -> f64 {
        rounded(self.cpu_ns as f64 / 1000.0 / messages.max(1) as f64)
    }
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// The shortest.
    pub min: f64,
    /// Half are shorter.
    pub p50: f64,
    /// 99 of 100 are shorter.
    pub p99: f64,
    /// 999 of 1000 are shorter.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl From<&Histogram<u32>> for Percentiles {
    fn from(histogram: &Histogram<u32>) -> Self {
        let at = |quantile| rounded(histogram.value_at_quantile(quantile) as f64 / 1000.0);
        let (min, max) = (rounded(histogram.min() as f64 / 1000.0), rounded(histogram.max() as f64 / 1000.0));
        Self { min, p50: at(0.5), p99: at(0.99), p999: at(0.999), max }
    }
}

/// The document of `bench latency`. Its keys are a contract.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    engine: &'static str,
    carrier: String,
    size: usize,
    count: u64,
    rtt_us: Percentiles,
    cpu_us_per_message: f64,
    rss_kib: u64,
}

impl Latency {
    /// From the round trips that `meter` counted.
    pub fn new(engine: &'static str, settings: &Settings, meter: &Meter) -> Self {
        let (carrier, size, count) = (name_of(settings.carrier), settings.terms.size, meter.histogram.len());
        let (rtt_us, cpu_us_per_message) = ((&meter.histogram).into(), meter.cpu_us(count));
        Self { engine, carrier, size, count, rtt_us, cpu_us_per_message, rss_kib: meter.rss_kib }
    }
}

/// The document of `bench throughput`.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
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
    /// From what the receiver counted, and the time from the first send to the last receive.
    pub fn new(engine: &'static str, settings: &Settings, received: u64, nanoseconds: u64, meter: &Meter) -> Self {
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
pub struct Fanout {
    engine: &'static str,
    carrier: String,
    size: usize,
    count: u64,
    subscribers: usize,
    latency_us: Percentiles,
    lost: u64,
    cpu_us_per_message: f64,
    rss_kib: u64,
}

impl Fanout {
    /// From the latencies of the last subscriber of each sample; a sample that one of them missed is not counted.
    pub fn new(engine: &'static str, settings: &Settings, meter: &Meter) -> Self {
        let terms = &settings.terms;
        Self {
            engine,
            carrier: name_of(settings.carrier),
            size: terms.size,
            count: terms.count,
            subscribers: settings.subscribers,
            latency_us: (&meter.histogram).into(),
            lost: terms.count.saturating_sub(meter.histogram.len()),
            cpu_us_per_message: meter.cpu_us(terms.count),
            rss_kib: meter.rss_kib,
        }
    }
}

/// The document of `bench start`.
#[derive(Clone, Debug, Serialize)]
pub struct Start {
    engine: &'static str,
    carrier: String,
    channels: u64,
    open_ms: f64,
    matched_ms: f64,
    threads: u64,
    rss_kib: u64,
}

impl Start {
    /// From the times to open a node and to its first channel after that, and the threads that all channels took.
    pub fn new(engine: &'static str, settings: &Settings, open: Duration, matched: Duration, threads: u64) -> Self {
        let ms = |time: Duration| rounded(time.as_secs_f64() * 1000.0);
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

/// Three digits after the point: a nanosecond where the number is microseconds.
pub fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_latencies_are_right_to_three_digits() {
        let mut meter = Meter::new().unwrap();
        (1..=10_000u64).for_each(|n| meter.record(n * 1000)); // 1 µs … 10 ms
        let p = Percentiles::from(&meter.histogram);
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.001;
        assert!(near(p.min, 1.0) && near(p.p50, 5000.0) && near(p.p99, 9900.0), "{p:?}");
        assert!(near(p.p999, 9990.0) && near(p.max, 10_000.0), "{p:?}");
    }

    #[test]
    fn one_outlier_shows_in_the_maximum_only_and_a_minute_is_the_most() {
        let mut meter = Meter::new().unwrap();
        (0..999).for_each(|_| meter.record(10_000));
        meter.record(u64::MAX);
        let p = Percentiles::from(&meter.histogram);
        assert!(p.p99 < 10.1 && p.p999 < 10.1 && p.max > 59e6 && p.max < 61e6 * 1.2, "{p:?}");
    }
}
