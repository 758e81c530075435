//! `thalweg relay`: hosts proxies and pull buffers for others.

use crate::failure::Result;
use crate::participant::{Common, Participant};
use crate::quantity;
use crate::signals::TICK;
use clap::Args;
use qos::{Durability, PolicyName, PullBuffer, Qos};
use serde_json::json;
use std::time::{Duration, Instant};
use thalweg::codec::Untyped;
use thalweg::{RelayLimits, Subscriber};

/// Host proxies and pull buffers for others
///
/// Subscribers name this node as the place where their stream is scaled: it takes each stream from its publisher once,
/// whole, and feeds all who asked for it. It keeps the last samples of the topics given by --keep, and of those that ports
/// want kept here (`--policy pull-place=relay:NAME`), for `thalweg pull`. What is beyond its limits is refused, and served
/// by the publisher instead; so is everything while no relay runs. `thalweg list nodes` shows its load.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg relay --name gate --listen 10.0.0.1 --keep '/robot/**' --history 1000 --age 7200s\n         \
                  thalweg sub /camera/image --every 10 --proxy relay:gate"
)]
pub(crate) struct Arguments {
    /// Most proxies: one for each channel that leads from it
    #[arg(long, value_name = "N", default_value_t = RelayLimits::default().proxies)]
    proxies: u32,
    /// Most proxies for one node of another host; one host may have a quarter of all
    #[arg(long, value_name = "N", default_value_t = RelayLimits::default().per_peer)]
    per_peer: u32,
    /// Most samples that come from their publishers within a second
    #[arg(long, value_name = "N", default_value_t = RelayLimits::default().samples_per_s)]
    samples: u64,
    /// Most payload bytes that come from their publishers within a second: 100MB
    #[arg(long, value_name = "BYTES", value_parser = quantity::size)]
    bytes: Option<usize>,
    /// Most payload bytes that it keeps of all publishers together [default: 1GB]
    #[arg(long, value_name = "BYTES", value_parser = quantity::size)]
    kept: Option<usize>,
    /// Time to keep samples that no port wants kept any more: a killed publisher may come back
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = quantity::duration)]
    unwanted: Duration,
    #[command(flatten)]
    keep: Keep,
    #[command(flatten)]
    common: Common,
}

/// Histories that the relay keeps unasked.
#[derive(Args, Debug)]
#[command(next_help_heading = "Pull buffers")]
struct Keep {
    /// Keep the last samples of this topic, or pattern of topics (repeatable)
    #[arg(long, value_name = "TOPIC", value_parser = quantity::name)]
    keep: Vec<String>,
    /// Samples of each publisher
    #[arg(long, value_name = "N", default_value_t = PullBuffer::default().samples, value_parser = clap::value_parser!(u32).range(1..))]
    history: u32,
    /// Payload bytes of each publisher [default: 16 MiB]
    #[arg(long, value_name = "BYTES", value_parser = quantity::size)]
    memory: Option<usize>,
    /// Longest age of a sample: 7200s
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    age: Option<Duration>,
}

impl Keep {
    fn buffer(&self) -> PullBuffer {
        let default = PullBuffer::default();
        let bytes = self.memory.map_or(default.bytes, |bytes| bytes as u64);
        PullBuffer { samples: self.history, bytes, age: self.age, ..default }
    }

    /// Subscribes with the offered reliability, and with the histories of durable publishers: samples that were
    /// published while this relay was away come, too.
    fn open(&self, participant: &Participant, topic: &str) -> Result<Subscriber<Untyped>> {
        let buffer = self.buffer();
        let qos = Qos {
            durability: Durability::TransientLocal,
            history: buffer.samples,
            max_message: u32::try_from(buffer.bytes).unwrap_or(u32::MAX).min(1 << 30),
            fallback: vec![PolicyName::Reliability, PolicyName::Durability, PolicyName::Ownership],
            ..Qos::default()
        };
        let name = format!("/{}/keeps/{}", participant.node.name(), topic.trim_start_matches('/').replace('*', "any"));
        let builder = participant.node.subscriber::<Untyped>(topic).named(name).qos(qos);
        Ok(builder.history_for_others(buffer).callback(|_| {})?)
    }
}

/// Runs until told to stop.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let Arguments { proxies, per_peer, samples, bytes, kept, unwanted, keep, common } = arguments;
    let default = RelayLimits::default();
    let bytes_per_s = bytes.map_or(default.bytes_per_s, |bytes| bytes as u64);
    let kept_bytes = kept.map_or(default.kept_bytes, |bytes| bytes as u64);
    let limits = RelayLimits {
        proxies: *proxies,
        per_peer: *per_peer,
        samples_per_s: *samples,
        bytes_per_s,
        kept_bytes,
        unwanted: *unwanted,
    };
    let mut participant = common.open_relay(limits)?;
    let _kept = keep.keep.iter().map(|topic| keep.open(&participant, topic)).collect::<Result<Vec<_>>>()?;
    let name = participant.node.name().to_owned();
    let limits =
        json!({"proxies": proxies, "samples_per_s": samples, "bytes_per_s": bytes_per_s, "kept_bytes": kept_bytes});
    let told = json!({"relay": name, "limits": limits, "keeps": keep.keep});
    participant.output.result(&told, || {
        let keeps = keep.keep.iter().map(|topic| format!("\nkeeps the last {} samples of {topic}", keep.history));
        let takes = format!("relay:{name} takes {proxies} proxies, {samples} samples/s, {bytes_per_s} bytes/s");
        takes + &keeps.collect::<String>()
    })?;
    while participant.stop.sleep_until(Instant::now() + TICK) {
        participant.tell_events();
    }
    Ok(())
}
