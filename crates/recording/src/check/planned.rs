//! A recording beside a plan: bounds, rates and losses.

use super::Tolerance;
use super::expected::Expected;
use super::figures::whole;
use super::report::{Finding, Measure, Quantile, Report, Row, Stage, Verdict, microseconds};
use super::run::{Flow, Run};
use qos::show_time;
use qos::verification::Promise;

/// Compares a recording with the plan that its `expected` was made of. The tolerance is that of rates: a bound has none.
pub fn against_plan(expected: &Expected, run: &Run, tolerance: Tolerance) -> Report {
    let mut report = Report::default();
    for topic in expected.topics() {
        let Some((flow, promise)) = run
            .flows
            .get(topic)
            .filter(|flow| flow.samples > 0)
            .and_then(|flow| Some((flow, expected.promise(topic, &flow.recorder)?)))
        else {
            let because = "not recorded".to_owned();
            report.add(Row { topic: topic.to_owned(), because, ..Row::default() }, Vec::new());
            continue;
        };
        let row = row(topic, flow);
        let found = |(stage, measure, because)| Finding { topic: topic.to_owned(), stage, measure, because };
        report.add(row, broken(flow, &promise, tolerance).into_iter().map(found).collect());
    }
    let others = run.flows.iter().filter(|(topic, _)| expected.topics().all(|planned| planned != topic.as_str()));
    for (topic, flow) in others {
        let because = "it is not in the plan".to_owned();
        report.add(Row { verdict: Verdict::New, because, ..row(topic, flow) }, Vec::new());
    }
    report.judged()
}

fn row(topic: &str, flow: &Flow) -> Row {
    let all = whole(flow.latency.blocks());
    let quantile =
        |name: &str, ns: f64| (format!("latency {name}"), Quantile { now_us: microseconds(ns), ..Quantile::default() });
    let quantiles = [
        quantile("p50", all.quantile(0.5)),
        quantile("p99", all.quantile(0.99)),
        quantile("max", flow.latency.longest() as f64),
    ];
    let (verdict, because) = match flow.bound_ns {
        Some(_) if flow.latency.count() > 0 => (Verdict::Kept, String::new()),
        Some(_) => (Verdict::Unknown, "no sample was published while it was recorded".to_owned()),
        None => (Verdict::Unknown, "the plan has no bound for it".to_owned()),
    };
    Row {
        topic: topic.to_owned(),
        verdict,
        because,
        samples: [0, flow.samples],
        quantiles: quantiles.into(),
        bound_us: flow.bound_ns.map(|ns| microseconds(ns as f64)),
        late: [0, flow.late],
        lost: [0, flow.lost()],
    }
}

/// The parts of a promise that are not kept.
fn broken(flow: &Flow, promise: &Promise, tolerance: Tolerance) -> Vec<(Stage, Measure, String)> {
    let mut found = Vec::new();
    if flow.late > 0 {
        let bound = show_time(flow.bound_ns.unwrap_or(0) as f64 / 1e3);
        let latest = show_time(flow.latency.longest() as f64 / 1e3);
        let because =
            format!("{} of {} samples later than {bound}; the latest {latest}", flow.late, flow.latency.count());
        found.push((Stage::Network, Measure::Late, because));
    }
    let rates = flow.rate_hz().zip(promise.rate_hz);
    if let Some((rate, planned)) = rates.filter(|(rate, planned)| *rate > planned * (1.0 + tolerance.share)) {
        let because = format!("{rate:.1} samples a second, planned are {planned:.1}");
        found.push((Stage::Publisher, Measure::Rate, because));
    }
    // What its own recorder lost says nothing of a channel.
    let on_the_way = flow.lost.iter().filter(|(stage, _)| !matches!(stage, Stage::Recorder | Stage::Disk));
    if let Some((stage, lost)) = on_the_way.max_by_key(|(_, count)| **count) {
        let all = lost.saturating_add(flow.samples);
        if *lost as f64 / all.max(1) as f64 > promise.loss {
            found.push((
                *stage,
                Measure::Lost,
                format!("{lost} of {all} samples lost, planned is {:.1} %", promise.loss * 100.0),
            ));
        }
    }
    found
}
