//! A subscriber's account: number, order and latency of samples. Receiving threads write it without allocating.

use linux::allocations;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::Duration;
use thalweg::SampleInfo;

/// Latencies that are kept; further ones are only counted.
const MOST: usize = 1 << 20;

/// The account of one subscriber.
pub struct Account(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    received: u64,
    first: u64,
    last: u64,
    again: u64,             // a sample came twice, or after a later one
    missing: u64,           // holes in the sequence numbers of one incarnation
    holes: Vec<(u64, u64)>, // the first few of them
    incarnations: u64,
    incarnation: u64,
    longest_gap_ns: u64,
    long_gaps_ms: Vec<f64>, // above 50 ms, the first few
    first_at_ns: u64,
    last_at_ns: u64,
    allocations: u64,
    allocations_at_first: u64,
    thread: i32,         // the receiving thread that noted last
    latencies: Vec<u32>, // tenths of microseconds
}

impl Account {
    /// An empty account.
    pub fn new() -> Self {
        Self(Mutex::new(Inner {
            latencies: Vec::with_capacity(MOST),
            long_gaps_ms: Vec::with_capacity(16),
            holes: Vec::with_capacity(16),
            ..Inner::default()
        }))
    }

    /// Records a sample. Called on the receiving thread.
    pub fn note(&self, info: &SampleInfo) {
        let mut inner = self.0.lock().unwrap();
        let allocations = allocations::count();
        if inner.incarnation != info.incarnation {
            (inner.incarnation, inner.last) = (info.incarnation, 0);
            inner.incarnations += 1;
        }
        if inner.received == 0 {
            inner.first = info.seq;
            inner.first_at_ns = info.received_ns;
            inner.allocations_at_first = allocations;
        } else {
            inner.again += u64::from(info.seq <= inner.last);
            inner.missing += info.seq.saturating_sub(inner.last + 1);
            if info.seq > inner.last + 1 && inner.holes.len() < inner.holes.capacity() {
                let hole = (inner.last + 1, info.seq - 1);
                inner.holes.push(hole);
            }
            let gap = info.received_ns.saturating_sub(inner.last_at_ns);
            inner.longest_gap_ns = inner.longest_gap_ns.max(gap);
            if gap > 50_000_000 && inner.long_gaps_ms.len() < inner.long_gaps_ms.capacity() {
                inner.long_gaps_ms.push(gap as f64 / 1e6);
            }
        }
        inner.received += 1;
        if inner.thread == 0 {
            inner.thread = rustix::thread::gettid().as_raw_nonzero().get();
        }
        inner.last = inner.last.max(info.seq);
        inner.last_at_ns = info.received_ns;
        // Counted per thread: meaningless for a port whose channels have several.
        inner.allocations = allocations.saturating_sub(inner.allocations_at_first);
        let late = info.received_ns.saturating_sub(info.source_ns) / 100;
        if inner.latencies.len() < MOST {
            inner.latencies.push(u32::try_from(late).unwrap_or(u32::MAX));
        }
    }

    /// Resets the account; the last sequence number stays, so that duplicates are noticed.
    pub fn reset(&self) {
        let mut inner = self.0.lock().unwrap();
        let (last, incarnation) = (inner.last, inner.incarnation);
        let mut latencies = std::mem::take(&mut inner.latencies);
        latencies.clear();
        let last_at_ns = inner.last_at_ns;
        let (long_gaps_ms, holes) = (Vec::with_capacity(16), Vec::with_capacity(16));
        *inner = Inner { latencies, long_gaps_ms, holes, last, incarnation, last_at_ns, ..Inner::default() };
    }

    /// Number of the newest sample, and the count of samples.
    pub fn last(&self) -> (u64, u64) {
        let inner = self.0.lock().unwrap();
        (inner.last, inner.received)
    }

    /// The whole account.
    pub fn report(&self) -> Value {
        let inner = self.0.lock().unwrap();
        let micros = |share| percentile(&inner.latencies, share) / 10.0;
        json!({
            "received": inner.received, "first": inner.first, "last": inner.last, "again": inner.again,
            "missing": inner.missing, "incarnations": inner.incarnations, "allocations": inner.allocations, "thread": inner.thread,
            "p50": micros(0.5), "p99": micros(0.99), "max": micros(1.0),
            "longest_gap_ms": inner.longest_gap_ns as f64 / 1e6, "first_at_ns": inner.first_at_ns,
            "long_gaps_ms": inner.long_gaps_ms, "holes": inner.holes,
        })
    }
}

/// Durations of calls.
#[derive(Default)]
pub struct Durations(Vec<u32>);

impl Durations {
    /// Room for `count` calls, so that recording them allocates nothing.
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Records a call.
    pub fn note(&mut self, took: Duration) {
        if self.0.len() < self.0.capacity() {
            self.0.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
        }
    }

    /// A percentile in microseconds.
    pub fn micros(&self, share: f64) -> f64 {
        percentile(&self.0, share) / 1000.0
    }
}

fn percentile(values: &[u32], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let index = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(index).copied().map_or(f64::NAN, f64::from)
}
