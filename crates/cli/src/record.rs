//! `thalweg record`: topics into MCAP files.

use crate::failure::{Failure, Result};
use crate::output::{bytes, table, tell};
use crate::participant::{Common, Participant};
use crate::plan;
use crate::quantity;
use crate::signals::TICK;
use clap::Args;
use qos::contract::Contract;
use recording::file::{Attachment, CONTRACT, Compression, Limits, PLAN, Place, Split};
use recording::record::{Options, Priority, Recorded, Recorder, Summary};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Record topics to an MCAP file, with the delays of their samples and the place of each loss
///
/// Publishers never wait for it: samples that the disk cannot take in time wait in memory, and beyond --memory they are dropped
/// and counted. It gives way to other programs on this host (--priority). Topics that appear later are recorded, too. Ends on Ctrl-C,
/// SIGTERM or after --duration.
#[derive(Args, Debug)]
#[command(
    override_usage = "thalweg record [OPTIONS] <FILE> <TOPIC>...\n       thalweg record [OPTIONS] <FILE> --all",
    after_help = "Example: thalweg record run.mcap --all\n         thalweg record run.mcap /robot/imu '/camera/**' --split 4GiB --compress lz4 --plan plan.toml"
)]
pub(crate) struct Arguments {
    /// The file, such as run.mcap; with --split, further ones are run-2.mcap, run-3.mcap …
    file: PathBuf,
    /// Topics, or patterns of topics: * is any one segment, ** any number of segments
    #[arg(value_name = "TOPIC", value_parser = quantity::name, required_unless_present = "all", conflicts_with = "all")]
    topics: Vec<String>,
    /// Record all topics
    #[arg(short, long)]
    all: bool,
    /// Not these topics, or patterns of topics (repeatable): /camera/**
    #[arg(long, value_name = "TOPIC", value_parser = quantity::name)]
    exclude: Vec<String>,
    /// Begin a new file at this size or after this time: 4GiB, 10min
    #[arg(long, value_name = "SIZE|TIME", value_parser = split)]
    split: Option<Split>,
    /// Compression of the files: none, lz4 or zstd
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = compression)]
    compress: Compression,
    /// Memory for samples that wait for the disk
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = memory)]
    memory: u64,
    /// Priority of the threads that receive and write: low (gives way to other programs, and loses samples where they leave it too
    /// little time) or normal
    #[arg(long, value_name = "NAME", default_value = "low", value_parser = priority)]
    priority: Priority,
    /// End after this time
    #[arg(long, value_name = "DURATION", value_parser = quantity::seconds, allow_negative_numbers = true)]
    duration: Option<Duration>,
    /// A contract to keep with the samples
    #[arg(long, value_name = "FILE")]
    contract: Option<PathBuf>,
    /// A plan to keep with the samples, which a replay is compared with
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// The smallest file that is split off, and the smallest memory for waiting samples.
const LEAST: u64 = 1 << 20;
/// The largest.
const MOST: u64 = 1 << 40;
/// The nice value of the recorder's session, if it has one of its own.
const SESSION_NICE: i8 = 19;

fn split(text: &str) -> std::result::Result<Split, String> {
    let size = qos::parse_bytes(text).ok().filter(|size| *size >= LEAST).map(Split::Bytes);
    let time = qos::parse_duration(text).ok().filter(|time| *time >= Duration::from_secs(1)).map(Split::Time);
    size.or(time)
        .ok_or_else(|| "a size of at least 1MiB (MB GB MiB GiB), or a time of at least 1s (s min h)".to_owned())
}

fn compression(text: &str) -> std::result::Result<Compression, String> {
    text.parse()
}

fn priority(text: &str) -> std::result::Result<Priority, String> {
    text.parse()
}

fn memory(text: &str) -> std::result::Result<u64, String> {
    let size = qos::parse_bytes(text).ok().filter(|size| (LEAST..=MOST).contains(size));
    size.ok_or_else(|| "1MiB to 1024GiB (MB GB MiB GiB)".to_owned())
}

impl Arguments {
    fn options(&self) -> Result<Options> {
        let contract = |text: &str| Contract::read(text).map(drop).map_err(|wrong| wrong.to_string());
        let plan = |text: &str| qos::plan::Plan::from_text(text).map(drop).map_err(|wrong| wrong.to_string());
        let contract = self.contract.as_deref().map(|file| attached(file, CONTRACT, contract)).transpose()?;
        let plan = self.plan.as_deref().map(|file| attached(file, PLAN, plan)).transpose()?;
        Ok(Options {
            topics: if self.all { vec!["/**".to_owned()] } else { self.topics.clone() },
            exclude: self.exclude.clone(),
            memory: self.memory,
            priority: self.priority,
            limits: Limits { compression: self.compress, split: self.split },
            attachments: contract.into_iter().chain(plan).collect(),
        })
    }
}

/// A file as an attachment, once it can be read as what it is to be.
fn attached(
    file: &Path,
    name: &'static str,
    check: impl Fn(&str) -> std::result::Result<(), String>,
) -> Result<Attachment> {
    let text = plan::text_of(file)?;
    check(&text).map_err(|wrong| Failure::Usage(format!("{}:{wrong}", file.display())))?;
    Ok(Attachment { name, media_type: "application/toml", data: text.into_bytes() })
}

/// Records until it is told to end.
pub(crate) fn run(arguments: &Arguments) -> Result {
    for topic in arguments.topics.iter().chain(&arguments.exclude) {
        let checked = thalweg::control::matching::check_pattern(topic);
        checked.map_err(|wrong| Failure::Usage(format!("topic {wrong}")))?;
    }
    let options = arguments.options()?;
    let mut participant = arguments.common.open("record")?;
    if arguments.priority == Priority::Low {
        linux::sched::lower_session(SESSION_NICE);
    }
    let begun = Instant::now();
    let mut recorder = Recorder::start(participant.node.clone(), &arguments.file, options).map_err(failure)?;
    tell(&format!("recording to {}", arguments.file.display()));
    while !participant.stop.asked() && !recorder.has_ended() {
        let left = arguments.duration.map_or(TICK, |longest| longest.saturating_sub(begun.elapsed()));
        if left.is_zero() {
            break;
        }
        recorder.turn(left.min(TICK)).iter().for_each(|notice| tell(&format!("warning: {notice}")));
        participant.tell_events();
    }
    report(&participant, recorder.finish())
}

fn failure(error: recording::Error) -> Failure {
    match error {
        recording::Error::Node(error) => error.into(),
        recording::Error::Usage(text) => Failure::Usage(text),
        other => Failure::System(other.to_string()),
    }
}

/// Prints the totals; a refusal of the disk is a failure, whatever was recorded before it.
fn report(participant: &Participant, summary: Summary) -> Result {
    let Summary { files, channels, failure } = summary;
    let document = json!({"files": files, "channels": channels, "failure": failure});
    participant.output.result(&document, || text(&channels))?;
    failure.map_or(Ok(()), |because| Err(Failure::System(because)))
}

fn text(channels: &[Recorded]) -> String {
    if channels.is_empty() {
        return "no sample came: see `thalweg list topics`".to_owned();
    }
    let row = |channel: &Recorded| {
        let Recorded { topic, publisher, samples, bytes: size, ended, lost } = channel;
        let places = Place::ALL.into_iter().map(|place| (place.name(), lost.at(place)));
        let places = places.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}"));
        let places = places.collect::<Vec<_>>().join(", ");
        vec![
            topic.clone(),
            publisher.clone(),
            samples.to_string(),
            bytes(*size as f64),
            ended.to_string(),
            lost.total().to_string(),
            places,
        ]
    };
    let rows: Vec<Vec<String>> = channels.iter().map(row).collect();
    let headers = [
        ("topic", '<'),
        ("publisher", '<'),
        ("samples", '>'),
        ("size", '>'),
        ("ends of instances", '>'),
        ("lost", '>'),
        ("where", '<'),
    ];
    table(&headers, &rows)
}
