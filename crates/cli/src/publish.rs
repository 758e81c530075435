//! `thalweg pub`: publish lines, a file or counters.

mod source;
mod typed;

use crate::failure::Result;
use crate::output::{bytes, tell};
use crate::participant::{Common, Participant};
use crate::priority::Given;
use crate::quantity;
use clap::Args;
use lab::statistics::rounded;
use qos::{Class, Ownership, PullBuffer, Qos, Queue, Reliability, ResourceLimit};
use serde::Serialize;
use source::{Blocks, Counters, Lines, Next, Source};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg::ChannelReport;
use thalweg::carrier;
use thalweg::control::Direction;
use thalweg::control::matching::topic_matches;
use thalweg::{Published, Publisher};
use typed::{Typed, Values};

/// Publish lines, a file or counters on a topic
///
/// Without --stdin and --file, each sample is --size bytes that start with its number (little-endian, 8 bytes).
/// Before the first sample, pub waits until the subscribers that are there are connected, or one has come, but for a second at most:
/// see --wait.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: journalctl -f | thalweg pub /log --stdin\n         thalweg pub /counter --rate 100 --size 1KiB --carrier udp\n         echo '{\"data\": \"hello\"}' | thalweg pub /chatter --type std_msgs/msg/String"
)]
pub(crate) struct Arguments {
    /// The topic, such as /camera/left
    #[arg(value_parser = quantity::name)]
    topic: String,
    /// Name of the publishing port [default: /<node>/<topic>/pub1]
    #[arg(long, value_name = "/NAME", value_parser = quantity::name)]
    port: Option<String>,
    /// Carrier of the samples; udp and mcast may lose some unless --reliable is given
    #[arg(long, default_value = "auto", value_parser = quantity::carrier())]
    carrier: String,
    /// Samples per second [default: 1; lines and files: as fast as the subscribers take them]
    #[arg(long, value_name = "HZ", value_parser = quantity::rate, allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Bytes per sample [default: 64; files: 64KiB]
    #[arg(long, value_name = "BYTES", value_parser = quantity::size, conflicts_with = "stdin", allow_negative_numbers = true)]
    size: Option<usize>,
    /// Publish this file in blocks of --size bytes
    #[arg(long, value_name = "FILE", conflicts_with = "stdin")]
    file: Option<PathBuf>,
    /// Publish each line of standard input as a string
    #[arg(long)]
    stdin: bool,
    /// Publish each line of standard input, a value in JSON, as a message of this ROS 2 type, such as std_msgs/msg/String
    #[arg(long = "type", value_name = "TYPE", conflicts_with_all = ["file", "size"])]
    of_type: Option<String>,
    /// Where the definitions of --type are, as DIR/std_msgs/msg/String.msg [default: share in each of AMENT_PREFIX_PATH]
    #[arg(long, value_name = "DIR", requires = "of_type")]
    definitions: Vec<PathBuf>,
    /// Keep this many of the last samples for `thalweg pull`; 0: none
    #[arg(long, value_name = "N", default_value_t = PullBuffer::default().samples)]
    history: u32,
    /// End after this many samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Packet priority
    #[arg(long, default_value = "normal", value_parser = quantity::class())]
    class: Class,
    #[command(flatten)]
    given: Given,
    /// Highest rate of each channel, such as 1Mbit/s; more samples wait in its queue
    #[arg(long, value_name = "RATE", value_parser = quantity::limit)]
    limit: Option<thalweg::Limit>,
    /// Over udp and mcast, add so much parity to large samples: as many of their datagrams may be lost; 1% to 100%
    #[arg(long, value_name = "PERCENT", value_parser = quantity::parity)]
    parity: Option<thalweg::Redundancy>,
    /// Publish only as part of this session, which `thalweg session request` had admitted
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Lose nothing (the default, except on udp and mcast, which then retransmit)
    #[arg(long, conflicts_with = "best_effort")]
    reliable: bool,
    /// Samples may be lost on the way
    #[arg(long)]
    best_effort: bool,
    /// Exclusive ownership with this strength: of the living publishers only the strongest counts
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "QoS")]
    ownership_strength: Option<i32>,
    /// Wait until this many subscribers are connected, however long it takes; 0: start at once
    #[arg(long, value_name = "N")]
    wait: Option<usize>,
    #[command(flatten)]
    common: Common,
}

/// The result in the output of `--json`.
#[derive(Serialize)]
struct Summary<'a> {
    topic: &'a str,
    port: &'a str,
    published: u64,
    sent: u64,
    queued: u64,
    dropped: u64,
    not_connected: u64,
    bytes: u64,
    seconds: f64,
    rate_hz: f64,
    channels: Vec<ChannelReport>,
}

/// Sums over all samples and channels.
#[derive(Default)]
struct Totals {
    published: u64,
    bytes: u64,
    sent: u64,
    queued: u64,
    dropped: u64,
    not_connected: u64,
}

impl Totals {
    fn add(&mut self, published: Published, size: usize) {
        self.published += 1;
        self.bytes += size as u64;
        self.sent += u64::from(published.sent);
        self.queued += u64::from(published.queued);
        self.dropped += u64::from(published.dropped);
        self.not_connected += u64::from(published.not_connected);
    }
}

/// Largest message of lines and small samples.
const MAX_MESSAGE: usize = 16 << 20;
/// Bytes per line in the history of lines, which has room for 16 MiB at least.
const SMALL_LINE: usize = 1 << 10;
/// Samples that wait per channel when input is published as fast as it is taken.
const INPUT_QUEUE: u32 = 256;
/// Time that pub waits for a subscriber without room, while others have it.
const ROOM: Duration = Duration::from_secs(1);
/// Time that pub waits for a first subscriber, and for those that are there.
const GRACE: Duration = Duration::from_secs(1);
/// Time that the last samples may wait to be sent.
const DRAIN: Duration = Duration::from_secs(10);

/// Publishes as asked.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let typed = arguments.of_type.as_ref().map(|name| Typed::find(name, &arguments.definitions)).transpose()?;
    let mut participant = arguments.common.open("pub")?;
    let lines = || Lines::read_stdin(MAX_MESSAGE);
    match (typed, &arguments.file, arguments.stdin) {
        (Some(typed), ..) => publish(arguments, &mut participant, Values::of(typed, lines()?)),
        (_, _, true) => publish(arguments, &mut participant, lines()?),
        (_, Some(file), _) => publish(arguments, &mut participant, Blocks::open(file, arguments.sample_size())?),
        _ => publish(arguments, &mut participant, Counters::of(arguments.sample_size())),
    }
}

impl Arguments {
    fn has_lines(&self) -> bool {
        self.stdin || self.of_type.is_some()
    }

    fn sample_size(&self) -> usize {
        self.size.unwrap_or(if self.file.is_some() { 64 << 10 } else { 64 })
    }

    /// Period of the samples. Without a rate, input is published as fast as the subscribers take it.
    fn pace(&self) -> Option<Duration> {
        let input = self.has_lines() || self.file.is_some();
        self.rate.or((!input).then_some(1.0)).map(|hz| Duration::from_secs_f64(1.0 / hz))
    }

    fn qos(&self) -> Qos {
        let queue = if self.pace().is_none() {
            Queue::Block { limit: INPUT_QUEUE, up_to_us: ROOM.as_micros() as u64 }
        } else {
            Queue::default()
        };
        let largest = self.sample_size().max(MAX_MESSAGE);
        let max_message = u32::try_from(largest).unwrap_or(u32::MAX);
        Qos { queue, class: self.class, max_message, pull: self.pull_buffer(), ..Qos::default() }
    }

    /// The history of a publisher; lines have any size, and most are small.
    fn pull_buffer(&self) -> Option<PullBuffer> {
        let size = if self.has_lines() { SMALL_LINE } else { self.sample_size() } as u64;
        let default = PullBuffer::default();
        let bytes = (u64::from(self.history) * size).max(default.bytes);
        (self.history > 0).then_some(PullBuffer { samples: self.history, bytes, ..default })
    }

    /// Overrides the profile's reliability and ownership by the command's.
    fn decide(&self, qos: &mut Qos) {
        if self.best_effort || (carrier::Name::from(&self.carrier).is_lossy() && !self.reliable) {
            qos.reliability = Reliability::BestEffort;
        } else if self.reliable {
            qos.reliability = Reliability::Reliable;
        }
        if let Some(strength) = self.ownership_strength {
            (qos.ownership, qos.strength) = (Ownership::Exclusive, strength);
        }
    }

    fn open<S: Source>(&self, participant: &Participant, source: &S) -> Result<Publisher<S::Message>> {
        let default = || format!("/{}/{}/pub1", participant.node.name(), self.topic.trim_start_matches('/'));
        let mut qos = self.qos();
        let priority = self.given.settings(
            &self.port.clone().unwrap_or_else(default),
            &self.topic,
            Direction::Publisher,
            &mut qos,
        )?;
        self.decide(&mut qos);
        let mut builder = participant.node.publisher::<S::Message>(&self.topic).qos(qos).priority(priority);
        builder = source.describe(builder);
        if let Some(name) = &self.port {
            builder = builder.named(name);
        }
        if let Some(session) = &self.session {
            builder = builder.session(session);
        }
        if let Some(limit) = self.limit {
            builder = builder.limit(limit);
        }
        if let Some(redundancy) = self.parity {
            builder = builder.parity(redundancy);
        }
        if self.carrier != "auto" {
            builder = builder.carriers([self.carrier.as_str()]);
        }
        Ok(builder.open()?)
    }
}

fn publish<S: Source>(arguments: &Arguments, participant: &mut Participant, mut source: S) -> Result {
    let mut publisher = arguments.open(participant, &source)?;
    wait_for_subscribers(arguments, participant, &publisher);
    let started = Instant::now();
    let mut totals = Totals::default();
    let outcome = publish_all(arguments, participant, &mut publisher, &mut source, &mut totals);
    participant.tell_events();
    let name = publisher.name().to_owned();
    let seconds = started.elapsed().as_secs_f64();
    let channels = publisher.channels();
    let drained = publisher.close(if participant.stop.asked() { GRACE } else { DRAIN });
    outcome?;
    if !drained {
        tell("some samples could not be sent in time and were dropped");
    }
    let summary = totals.summary(&arguments.topic, &name, seconds, channels);
    participant.output.result(&summary, || summary.text())
}

fn wait_for_subscribers<S: thalweg::codec::Message>(
    arguments: &Arguments,
    participant: &mut Participant,
    publisher: &Publisher<S>,
) {
    let mine = |participant: &Participant| {
        let ports = participant.others().into_iter().flat_map(|node| node.ports.into_values());
        ports.filter(|p| p.direction == Direction::Subscriber && topic_matches(&p.topic, &arguments.topic)).count()
    };
    let (wanted, patience) = match arguments.wait {
        Some(0) => return,
        Some(count) => (count, None),
        None => (mine(participant).max(1), Some(GRACE)),
    };
    let until = patience.map(|patience| Instant::now() + patience);
    let mut told = patience.is_some();
    while !participant.stop.asked() && until.is_none_or(|until| Instant::now() < until) {
        if publisher.wait_connected(wanted, crate::signals::TICK) {
            return;
        }
        participant.tell_events();
        if !told {
            told = true;
            tell(&format!("waiting for {wanted} subscriber(s) of {}", arguments.topic));
        }
    }
}

fn publish_all<S: Source>(
    arguments: &Arguments,
    participant: &mut Participant,
    publisher: &mut Publisher<S::Message>,
    source: &mut S,
    totals: &mut Totals,
) -> Result {
    let pace = arguments.pace();
    let mut due = Instant::now();
    while !participant.stop.asked() && arguments.count.is_none_or(|count| totals.published < count) {
        match source.next()? {
            Next::End => break,
            Next::Nothing => {}
            Next::Sample(value, size) => {
                let mut published = publisher.publish(value)?;
                // Without a pace `publish` waits for room. If no subscriber had any, the sample was not taken: it is
                // offered again.
                while pace.is_none() && is_refused_by_all(published) && !participant.stop.asked() {
                    published = publisher.publish(value)?;
                }
                totals.add(published, size);
                if let Some(period) = pace {
                    due = wait_for_turn(participant, due, period);
                }
            }
        }
        participant.tell_events();
    }
    Ok(())
}

fn is_refused_by_all(published: Published) -> bool {
    // Waiting makes no sample smaller, and no room in a contract.
    let never = matches!(published.limit, Some(ResourceLimit::MaxMessage | ResourceLimit::Policing));
    !never && published.dropped > 0 && published.sent + published.queued + published.not_connected == 0
}

/// Sleeps until the next sample is due. A delay is caught up, unless it is longer than a second.
fn wait_for_turn(participant: &Participant, due: Instant, period: Duration) -> Instant {
    let next = due + period;
    participant.stop.sleep_until(next);
    let now = Instant::now();
    if now.saturating_duration_since(next) > Duration::from_secs(1) { now } else { next }
}

impl Totals {
    fn summary<'a>(&self, topic: &'a str, port: &'a str, seconds: f64, channels: Vec<ChannelReport>) -> Summary<'a> {
        let Totals { published, bytes, sent, queued, dropped, not_connected } = *self;
        let rate_hz = rounded(published as f64 / seconds.max(1e-9), 3);
        let seconds = rounded(seconds, 6);
        Summary { topic, port, published, sent, queued, dropped, not_connected, bytes, seconds, rate_hz, channels }
    }
}

impl Summary<'_> {
    fn text(&self) -> String {
        let mut text = format!(
            "{} {}, {}, in {:.1} s on {} ({}): {} sent, {} queued, {} dropped",
            self.published,
            if self.published == 1 { "sample" } else { "samples" },
            bytes(self.bytes as f64),
            self.seconds,
            self.topic,
            self.port,
            self.sent,
            self.queued,
            self.dropped,
        );
        if self.channels.is_empty() {
            text.push_str("; no subscriber at the end");
        }
        text
    }
}
