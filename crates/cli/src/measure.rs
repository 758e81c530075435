//! `thalweg hz`, `bw` and `delay`: rate, bandwidth and latency; with `delay --stages` the latency by stage, on every channel
//! of a topic.

mod window;

use crate::census;
use crate::failure::{Failure, Result};
use crate::output::{bytes, micros, table, tell};
use crate::participant::{Common, Participant};
use crate::quantity;
use crate::signals::TICK;
use crate::tap::{self, Tap, Target};
use clap::Args;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thalweg::admin::{Reply, Request};
use thalweg::control::Document;
use thalweg::stages::{End, Figures, Stage, StagesReport, wire_us};
use window::Window;

/// Common options of `hz`, `bw` and `delay`.
#[derive(Args, Debug)]
struct Options {
    #[command(flatten)]
    target: Target,
    /// Figures are over the last N samples
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=10_000_000))]
    window: u32,
    /// End after this many samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this many seconds; exit 1 if nothing came
    #[arg(long, value_name = "SECONDS", value_parser = quantity::seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    #[command(flatten)]
    common: Common,
}

/// Rate of the samples that arrive, once per second
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg hz /robot/imu --seconds 5")]
pub(crate) struct HzArguments {
    #[command(flatten)]
    options: Options,
}

/// Bytes per second that arrive, once per second
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg bw /robot/camera --json")]
pub(crate) struct BwArguments {
    #[command(flatten)]
    options: Options,
}

/// Latency of the samples that arrive, once per second
///
/// Clocks of other hosts are compared with this one's by questions and answers, once per second; how far that may be off is shown,
/// and no latency where the publisher's node does not answer.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg delay /robot/imu --count 1000\n         thalweg delay /robot/imu --stages --seconds 5"
)]
pub(crate) struct DelayArguments {
    #[command(flatten)]
    options: Options,
    /// Latency by stage, on every channel of the topic (which costs them a few clock readings per sample), instead of
    /// on a channel of this command's own
    #[arg(long)]
    stages: bool,
    /// With --stages: measure only samples whose sequence number is a multiple of N
    #[arg(long, value_name = "N", default_value_t = 1, requires = "stages", value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
}

/// A figure of a verb.
struct Figure {
    verb: &'static str,
    of: fn(&Window) -> Value,
    text: fn(&Value) -> String,
}

/// Shows rates.
pub(crate) fn hz(arguments: &HzArguments) -> Result {
    measure(&arguments.options, &Figure { verb: "hz", of: Window::rate, text: rate_text })
}

/// Shows bytes per second.
pub(crate) fn bw(arguments: &BwArguments) -> Result {
    measure(&arguments.options, &Figure { verb: "bw", of: Window::bandwidth, text: bandwidth_text })
}

/// Shows latencies.
pub(crate) fn delay(arguments: &DelayArguments) -> Result {
    if arguments.stages {
        return delay_by_stage(arguments);
    }
    measure(&arguments.options, &Figure { verb: "delay", of: Window::delay, text: delay_text })
}

fn measure(options: &Options, figure: &Figure) -> Result {
    let mut participant = options.common.open(figure.verb)?;
    let window = Arc::new(Mutex::new(Window::new(options.window as usize)));
    let shared = window.clone();
    let _tap = Tap::open(&participant, &options.target, move |sample| lock(&shared).add(sample.info(), sample.len()))?;
    let started = Instant::now();
    let (mut due, mut told) = (started + PERIOD, false);
    while !is_over(options, &participant, started, &window) {
        std::thread::sleep(TICK.min(due.saturating_duration_since(Instant::now())));
        participant.tell_events();
        compare_clocks(&participant, &window, false);
        if Instant::now() >= due {
            due += PERIOD;
            if !std::mem::replace(&mut told, true) && lock(&window).total() == 0 {
                tap::silence(&participant, &options.target.topic).iter().for_each(|because| tell(because));
            }
            compare_clocks(&participant, &window, true);
            report(options, &participant, figure, &window)?;
        }
    }
    finish(options, &participant, figure, &window)
}

/// Compares clocks outside the lock, because samples come meanwhile.
fn compare_clocks(participant: &Participant, window: &Mutex<Window>, all: bool) {
    let nodes = lock(window).clocks.nodes(all);
    for node in nodes {
        let offset = participant.node.compare_clock(node, PATIENCE).ok();
        lock(window).clocks.found(node, offset);
    }
}

fn is_over(options: &Options, participant: &Participant, started: Instant, window: &Mutex<Window>) -> bool {
    participant.stop.asked()
        || options.seconds.is_some_and(|limit| started.elapsed() >= limit)
        || options.count.is_some_and(|count| lock(window).total() >= count)
}

fn report(options: &Options, participant: &Participant, figure: &Figure, window: &Mutex<Window>) -> Result {
    let mut figures = (figure.of)(&lock(window));
    lock(window).reported();
    let text = (figure.text)(&figures);
    figures["topic"] = options.target.topic.clone().into();
    participant.output.result(&figures, || text)
}

/// Shows the last figures; fails if no sample came, or no latency can be known.
fn finish(options: &Options, participant: &Participant, figure: &Figure, window: &Mutex<Window>) -> Result {
    let (total, fresh, known) = {
        let window = lock(window);
        (window.total(), window.fresh(), window.has_latency())
    };
    if fresh > 0 || total == 0 {
        report(options, participant, figure, window)?;
    }
    if total == 0 && !participant.stop.asked() {
        return Err(Failure::No(format!("no sample of {} arrived", options.target.topic)));
    }
    if figure.verb == "delay" && total > 0 && !known {
        return Err(Failure::No(window::NO_COMMON_CLOCK.to_owned()));
    }
    Ok(())
}

/// Locks the window. A poisoned lock means that the receiving thread panicked between two samples; the window itself
/// is whole.
fn lock(window: &Mutex<Window>) -> MutexGuard<'_, Window> {
    window.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(figures: &Value, path: &str) -> f64 {
    figures.pointer(path).and_then(Value::as_f64).unwrap_or_default()
}

fn rate_text(figures: &Value) -> String {
    let interval = |key: &str| micros(number(figures, &format!("/interval_us/{key}")));
    format!(
        "{:.2} Hz over {} samples; interval min {}, max {}, deviation {}",
        number(figures, "/rate_hz"),
        number(figures, "/window"),
        interval("min"),
        interval("max"),
        interval("stdev")
    )
}

fn bandwidth_text(figures: &Value) -> String {
    let size = |key: &str| bytes(number(figures, &format!("/message_bytes/{key}")));
    format!(
        "{}/s over {} samples; size min {}, mean {}, max {}",
        bytes(number(figures, "/bytes_per_s")),
        number(figures, "/window"),
        size("min"),
        size("mean"),
        size("max")
    )
}

fn delay_text(figures: &Value) -> String {
    if let Some(because) = figures.get("because").and_then(Value::as_str) {
        return format!("no latency: {because}");
    }
    let latency = |key: &str| micros(number(figures, &format!("/latency_us/{key}")));
    let uncertain = figures.get("clock_uncertainty_us").and_then(Value::as_f64);
    let uncertain = uncertain.map(|us| format!("; clocks compared to ± {}", micros(us))).unwrap_or_default();
    format!(
        "latency min {}, p50 {}, p99 {}, max {} over {} samples{uncertain}",
        latency("min"),
        latency("p50"),
        latency("p99"),
        latency("max"),
        number(figures, "/window")
    )
}

/// Measures, shows the result, and switches the measurement off, also when interrupted.
fn delay_by_stage(arguments: &DelayArguments) -> Result {
    let options = &arguments.options;
    let mut participant = options.common.open("delay")?;
    let nodes = participant.settled();
    let topic = &options.target.topic;
    ask(&participant, &nodes, &Request::Measure { topic: topic.clone(), every: arguments.sample });
    let limit = options.seconds.or(options.count.is_none().then_some(DEFAULT));
    let (started, mut reports) = (Instant::now(), Vec::new());
    let left = || limit.map_or(PAUSE, |limit| limit.saturating_sub(started.elapsed()).min(PAUSE));
    while !left().is_zero() && participant.stop.sleep_until(Instant::now() + left()) {
        reports = ask(&participant, &nodes, &Request::Stages { topic: topic.clone() });
        if reports.is_empty() || options.count.is_some_and(|count| reports.iter().any(|r| measured(r) >= count)) {
            break;
        }
    }
    for _ in 0..LOOKS {
        if ends_agree(&reports) {
            break;
        }
        reports = ask(&participant, &nodes, &Request::Stages { topic: topic.clone() });
    }
    ask(&participant, &nodes, &Request::Measure { topic: topic.clone(), every: 0 });
    show(&participant, topic, &reports)
}

/// `true` if the ends of each channel measured the same samples. They are asked one after the other, so beside much other work one of them
/// may be ahead, and the time on the wire between them is not known.
fn ends_agree(reports: &[StagesReport]) -> bool {
    let mut pairs = channels(reports).filter_map(|(publisher, subscriber)| publisher.zip(subscriber));
    pairs.all(|(publisher, subscriber)| {
        !subscriber.stages_us.contains_key("transit") || wire_us(publisher, subscriber).is_some()
    })
}

fn measured(report: &StagesReport) -> u64 {
    report.stages_us.values().map(|figures| figures.n).max().unwrap_or(0)
}

/// Asks all nodes about the stages of a topic's channels.
fn ask(participant: &Participant, nodes: &[Document], request: &Request) -> Vec<StagesReport> {
    let answers = census::ask_all(participant, nodes, request).into_iter();
    let stages = answers.filter_map(|(_, reply)| match reply {
        Some(Reply::Stages(reports)) => Some(reports),
        _ => None,
    });
    stages.flatten().collect()
}

fn show(participant: &Participant, topic: &str, reports: &[StagesReport]) -> Result {
    if reports.is_empty() {
        return Err(Failure::No(format!(
            "{topic} has no channel to measure: `thalweg list channels` shows which there are"
        )));
    }
    participant.output.result(&json!({"topic": topic, "channels": documents(reports)}), || text(reports))?;
    if reports.iter().all(|report| measured(report) == 0) {
        return Err(Failure::No(format!(
            "no sample of {topic} was measured: nothing is published, or --sample is too large"
        )));
    }
    Ok(())
}

/// Each channel as a document.
pub(crate) fn documents(reports: &[StagesReport]) -> Vec<Value> {
    channels(reports).map(|(publisher, subscriber)| document(publisher, subscriber)).collect()
}

/// Both ends of each channel, if they reported.
fn channels(reports: &[StagesReport]) -> impl Iterator<Item = (Option<&StagesReport>, Option<&StagesReport>)> {
    let sends = |report: &StagesReport| report.end != End::Subscriber;
    let is_first =
        move |report: &&StagesReport| sends(report) || !reports.iter().any(|other| sends(other) && same(report, other));
    reports.iter().filter(is_first).map(move |report| match sends(report) {
        true => (Some(report), reports.iter().find(|other| !sends(other) && same(report, other))),
        false => (None, Some(report)),
    })
}

fn same(one: &StagesReport, other: &StagesReport) -> bool {
    (&one.publisher, &one.subscriber) == (&other.publisher, &other.subscriber)
}

/// `true` if the first end of the channel is a relay.
fn is_relay(first: &StagesReport) -> bool {
    first.end == End::Relay
}

fn wire(publisher: Option<&StagesReport>, subscriber: Option<&StagesReport>) -> Option<f64> {
    wire_us(publisher?, subscriber?)
}

fn document(publisher: Option<&StagesReport>, subscriber: Option<&StagesReport>) -> Value {
    let Some(any) = publisher.or(subscriber) else { return Value::Null };
    let mut stages = serde_json::Map::new();
    for (name, figures) in [publisher, subscriber].into_iter().flatten().flat_map(|end| &end.stages_us) {
        stages.insert(name.clone(), json!(figures));
    }
    json!({
        "publisher": any.publisher, "subscriber": any.subscriber, "carrier": any.carrier, "every": any.every,
        "relay": is_relay(any), "stages_us": stages, "wire_mean_us": wire(publisher, subscriber),
    })
}

fn text(reports: &[StagesReport]) -> String {
    let headers =
        [("stage", '<'), ("mean", '>'), ("p50", '>'), ("p99", '>'), ("p99.9", '>'), ("max", '>'), ("samples", '>')];
    let one = |(publisher, subscriber): (Option<&StagesReport>, Option<&StagesReport>)| {
        let any = publisher.or(subscriber)?;
        let rows: Vec<_> = rows(publisher, subscriber);
        let from = if is_relay(any) { " from a relay" } else { "" };
        Some(format!("{} -> {} over {}{from}\n{}", any.publisher, any.subscriber, any.carrier, table(&headers, &rows)))
    };
    channels(reports).filter_map(one).collect::<Vec<_>>().join("\n\n")
}

fn rows(publisher: Option<&StagesReport>, subscriber: Option<&StagesReport>) -> Vec<Vec<String>> {
    let row = |name: &str, figures: &Figures| {
        let times = [figures.mean_us, figures.p50_us, figures.p99_us, figures.p999_us, figures.max_us];
        let cells = std::iter::once(name.to_owned()).chain(times.into_iter().map(micros));
        cells.chain([figures.n.to_string()]).collect::<Vec<_>>()
    };
    let mut rows = Vec::new();
    for stage in Stage::ALL {
        let ends = [publisher, subscriber].into_iter().flatten();
        let to_relay = stage == Stage::Publish && publisher.is_some_and(is_relay);
        let name = if to_relay { "to relay" } else { stage.name() };
        rows.extend(ends.filter_map(|end| end.stages_us.get(stage.name())).map(|figures| row(name, figures)));
        if stage == Stage::Send
            && let Some(mean) = wire(publisher, subscriber)
        {
            rows.push(vec!["wire".to_owned(), micros(mean)]);
        }
    }
    rows
}

/// Pause between two lines.
const PERIOD: Duration = Duration::from_secs(1);
/// Time after which a node without an answer is asked for its clock again later.
const PATIENCE: Duration = Duration::from_millis(500);
/// Duration of the measurement without `--seconds` and `--count`.
const DEFAULT: Duration = Duration::from_secs(5);
/// Pause between two checks of the count.
const PAUSE: Duration = Duration::from_millis(200);
/// Most looks until the ends of a channel agree.
const LOOKS: u32 = 20;
