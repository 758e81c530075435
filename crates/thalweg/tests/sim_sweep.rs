//! The effect of loss and delay on messages of three sizes, as a stored table: a change of fragmenting, reassembly or
//! accounting appears in review as a changed table. Everything is seeded and in virtual time.
//!
//! After an intended change: `UPDATE_SNAPSHOTS=1 cargo test -p thalweg sim_sweep`, and look at the difference.
#![allow(clippy::unwrap_used)] // all of this is test

use std::fmt::Write;

use std::time::Duration;
use thalweg::testing::carrier::sim::{SimNetwork, SimSettings};
use thalweg::testing::channel::accept::Accept;
use thalweg::testing::channel::fragment::{Reassembly, fragments};
use thalweg::testing::channel::memory::Account;
use thalweg::testing::wire::{FRAGMENT_HEADER, Fragment, HEADER, Header, Kind, datagram};

const FLOW: u32 = 0x7468_616c;
const MTU: usize = 1472;
const PERIOD_NS: u64 = 50_000_000;
const TIMEOUT_NS: u64 = 100_000_000;
const MAX_MESSAGE: usize = 1 << 20;

#[test]
fn the_table_is_as_stored() {
    let table = table();
    assert_eq!(table, self::table(), "two runs with the same seed differ");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/sim_sweep.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(table == stored, "the table changed (UPDATE_SNAPSHOTS=1 stores it):\n{table}\nwas:\n{stored}");
}

fn table() -> String {
    let mut out = String::from(
        "Messages over a simulated 100 Mbit/s link, one every 50 ms; with delay 1 % of the frames are overtaken.\n\
         Latency is from publishing to the whole message, in ms of virtual time.\n\n\
         loss %  delay ms      size  sent  delivered  frames lost  late  timed out  evicted   p50 ms   max ms\n",
    );
    for loss in [0, 1, 10, 30] {
        for (delay, jitter) in [(0, 0), (10, 3)] {
            for (size, count) in [(64, 400), (8 << 10, 400), (256 << 10, 40)] {
                let mut run = Run::new(loss, delay, jitter);
                run.all(size, count);
                let (frames, parts) = (run.accept.counters(), run.reassembly.counters());
                let at = |q: usize| run.latency.get((run.latency.len().max(1) - 1) * q / 100).copied();
                let ms = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e6));
                let delay = if jitter == 0 { delay.to_string() } else { format!("{delay}±{jitter}") };
                writeln!(
                    out,
                    "{loss:6}  {delay:>8}  {size:8}  {count:4}  {:9}  {:11}  {:4}  {:9}  {:7}  {:>7}  {:>7}",
                    run.latency.len(),
                    frames.lost,
                    frames.reordered,
                    parts.timed_out,
                    parts.evicted,
                    ms(at(50)),
                    ms(at(100)),
                )
                .unwrap();
            }
        }
    }
    out
}

/// One flow: fragment → simulated link → accept → reassembly → accept.
struct Run {
    network: SimNetwork,
    accept: Accept,
    reassembly: Reassembly,
    sequence: u32,
    latency: Vec<u64>,
}

impl Run {
    fn new(loss: u32, delay: u64, jitter: u64) -> Self {
        let settings = SimSettings {
            loss: f64::from(loss) / 100.0,
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
            reorder: if jitter > 0 { 0.01 } else { 0.0 },
            rate_bytes_per_s: Some(12_500_000),
            mtu: MTU,
            ..Default::default()
        };
        Self {
            network: SimNetwork::new(42, settings),
            accept: Accept::new(Some(u32::MAX - 100), true), // the sequence wraps early
            reassembly: Reassembly::new(MAX_MESSAGE, TIMEOUT_NS, Account::new(4 << 20)),
            sequence: u32::MAX - 100,
            latency: Vec::new(),
        }
    }

    /// Publishes and receives until all is done, always at the next deadline.
    fn all(&mut self, size: usize, count: u64) {
        let mut sample = 0;
        loop {
            let publish = (sample < count).then_some(sample * PERIOD_NS);
            let Some(now) = [publish, self.network.next_deadline()].into_iter().flatten().min() else { break };
            if publish == Some(now) {
                self.publish(now, sample, size);
                sample += 1;
            }
            while let Some(bytes) = self.network.receive(now, 0) {
                self.receive(now, &bytes, size);
            }
            self.reassembly.expire(now);
        }
        self.reassembly.expire(u64::MAX);
        self.accept.announced(self.sequence);
        assert_eq!(self.accept.counters().lost, self.network.counters().lost, "every lost frame is counted once");
        assert_eq!((self.accept.counters().duplicates, self.reassembly.counters().inconsistent), (0, 0));
        self.latency.sort_unstable();
    }

    fn publish(&mut self, now: u64, sample: u64, size: usize) {
        let message = content(sample, size);
        if HEADER + size <= MTU {
            return self.send(now, Kind::Message, sample, &message);
        }
        for (offset, length) in fragments(size, MTU - HEADER - FRAGMENT_HEADER) {
            let mut head = [0; FRAGMENT_HEADER];
            Fragment { offset: offset as u32, total: size as u32 }.emit(&mut head);
            self.send(now, Kind::Fragment, sample, &[&head[..], &message[offset..offset + length]].concat());
        }
    }

    fn send(&mut self, now: u64, kind: Kind, sample: u64, payload: &[u8]) {
        let mut head = [0; HEADER];
        let length = payload.len() as u32;
        let sequence = self.sequence;
        Header { length, kind, flags: 0, flow: FLOW, sequence, sample, stamp_ns: now }.emit(&mut head);
        self.sequence = sequence.wrapping_add(1);
        self.network.send(now, 0, &[&head[..], payload].concat()).unwrap();
    }

    fn receive(&mut self, now: u64, bytes: &[u8], size: usize) {
        let (header, payload) = datagram(bytes, MAX_MESSAGE, Some(FLOW)).unwrap();
        if !self.accept.frame(header.sequence).is_new() {
            return;
        }
        let whole = match header.kind {
            Kind::Fragment => {
                let (at, part) = Fragment::parse(payload).unwrap();
                self.reassembly.insert(now, header.sample, at, part).unwrap_or_default()
            }
            _ => Some(payload),
        };
        if let Some(message) = whole {
            assert!(message == content(header.sample, size), "sample {} changed", header.sample);
            if self.accept.sample(header.sample) {
                self.latency.push(now - header.stamp_ns);
            }
        }
    }
}

fn content(sample: u64, size: usize) -> Vec<u8> {
    (0..size).map(|i| (i as u64 * 13 + sample) as u8).collect()
}
