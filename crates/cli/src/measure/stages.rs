//! `thalweg delay --stages`: latency by stage, on every channel of a topic.

use super::DelayArguments;
use crate::census;
use crate::failure::{Failure, Result};
use crate::output::{micros, table};
use crate::session::Session;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use thalweg::admin::{Reply, Request};
use thalweg::control::Document;
use thalweg::stages::{End, Figures, Stage, StagesReport, wire_us};

/// Duration of the measurement without `--seconds` and `--count`.
const DEFAULT: Duration = Duration::from_secs(5);
/// Pause between two checks of the count.
const PAUSE: Duration = Duration::from_millis(200);

/// Measures, shows the result, and switches the measurement off, also when interrupted.
pub(super) fn run(arguments: &DelayArguments) -> Result {
    let options = &arguments.options;
    let mut session = options.common.open("delay")?;
    let nodes = session.settled();
    let topic = &options.target.topic;
    ask(&session, &nodes, &Request::Measure { topic: topic.clone(), every: arguments.sample });
    let limit = options.seconds.or(options.count.is_none().then_some(DEFAULT));
    let (started, mut reports) = (Instant::now(), Vec::new());
    let left = || limit.map_or(PAUSE, |limit| limit.saturating_sub(started.elapsed()).min(PAUSE));
    while !left().is_zero() && session.stop.sleep_until(Instant::now() + left()) {
        reports = ask(&session, &nodes, &Request::Stages { topic: topic.clone() });
        if reports.is_empty() || options.count.is_some_and(|count| reports.iter().any(|r| measured(r) >= count)) {
            break;
        }
    }
    ask(&session, &nodes, &Request::Measure { topic: topic.clone(), every: 0 });
    show(&session, topic, &reports)
}

fn measured(report: &StagesReport) -> u64 {
    report.stages_us.values().map(|figures| figures.n).max().unwrap_or(0)
}

fn ask(session: &Session, nodes: &[Document], request: &Request) -> Vec<StagesReport> {
    let answers = census::ask_all(session, nodes, request).into_iter();
    let stages = answers.filter_map(|(_, reply)| match reply {
        Some(Reply::Stages(reports)) => Some(reports),
        _ => None,
    });
    stages.flatten().collect()
}

fn show(session: &Session, topic: &str, reports: &[StagesReport]) -> Result {
    if reports.is_empty() {
        return Err(Failure::No(format!(
            "{topic} has no channel to measure: `thalweg list channels` shows which there are"
        )));
    }
    let channels: Vec<Value> =
        channels(reports).map(|(publisher, subscriber)| document(publisher, subscriber)).collect();
    session.output.result(&json!({"topic": topic, "channels": channels}), || text(reports))?;
    if reports.iter().all(|report| measured(report) == 0) {
        return Err(Failure::No(format!(
            "no sample of {topic} was measured: nothing is published, or --sample is too large"
        )));
    }
    Ok(())
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
