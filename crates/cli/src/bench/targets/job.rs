//! One measurement: its settings, and its arguments on the command line.

use crate::bench::{Carrier, EngineName, Payload, name_of};
use std::time::Duration;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) struct Job {
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
    /// A tool's figures ([`crate::bench::tools`]), which measure both sides themselves and have no end to choose.
    pub is_tool: bool,
}

pub(super) const fn latency(carrier: Carrier, size: usize, count: u64) -> Job {
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

pub(super) const fn stream(count: u64, batched: bool) -> Job {
    Job { mode: "throughput", batched, ..latency(Carrier::Tcp, 64, count) }
}

pub(super) const fn fanout(carrier: Carrier) -> Job {
    Job { mode: "fanout", ..latency(carrier, 64, 2_000) }
}

pub(super) const fn start(channels: u64) -> Job {
    Job { mode: "start", ..latency(Carrier::Tcp, 64, channels) }
}

/// A trial of whole nodes: their threads run where the scheduler puts them.
pub(super) const fn trial(mode: &'static str, carrier: Carrier, count: u64) -> Job {
    Job { mode, pinned: false, ..latency(carrier, 64, count) }
}

pub(super) const fn with(job: Job, payload: Payload) -> Job {
    Job { payload, ..job }
}

impl Job {
    /// The arguments of the measuring process.
    pub(in crate::bench) fn arguments(
        &self,
        engine: EngineName,
        pins: [usize; 2],
        count: u64,
        quick: bool,
    ) -> Vec<String> {
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
    pub(in crate::bench) fn longest(&self, rounds: u32) -> Duration {
        let of_a_tool = 1800 + 300 * u64::from(rounds);
        Duration::from_secs(if self.is_tool { of_a_tool } else { 120 })
    }

    /// Its description, for people.
    pub(in crate::bench) fn text(&self) -> String {
        format!("{} {} {} B", self.mode, name_of(self.carrier), self.size)
    }

    /// Measured messages; few in a quick run.
    pub(in crate::bench) fn count(&self, quick: bool) -> u64 {
        if quick { (self.count / 100).max(20).min(self.count) } else { self.count }
    }
}
