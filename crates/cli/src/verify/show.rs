//! What was found, as a table and as a document.

use super::gather::{Gatherer, Running};
use crate::output::table;
use crate::statistics::rounded;
use qos::plan::For;
use qos::show_time;
use qos::verification::{Cost, Judged, Live, Verdict, suspects};
use serde::Serialize;
use std::collections::BTreeMap;

/// All that was found.
#[derive(Serialize)]
pub struct Document<'a> {
    plan: &'a For,
    seconds: f64,
    channels: Vec<Row<'a>>,
    /// Links that every late channel crosses and no other one.
    suspects: Vec<String>,
    /// What runs and is in no plan.
    unplanned: Vec<Unplanned<'a>>,
    /// Nodes that did not answer.
    silent: &'a [String],
    /// No promise is broken, and some were compared.
    pub pass: bool,
}

/// A channel of the plan. Quantities that are not known are null.
#[derive(Serialize)]
struct Row<'a> {
    topic: &'a str,
    publisher: &'a str,
    subscriber: &'a str,
    node: &'a str,
    publisher_port: Option<&'a str>,
    carrier: Option<&'a str>,
    running: bool,
    verdict: Verdict,
    because: String,
    worst_us: Option<f64>,
    uncertainty_us: Option<f64>,
    stage: Option<&'a str>,
    stages_us: Option<&'a BTreeMap<String, f64>>,
    bound_us: Option<f64>,
    deadline_us: Option<f64>,
    /// By how much the latest sample was later than promised; below 0: earlier.
    lateness_us: Option<f64>,
    late: u64,
    samples: u64,
    rate_hz: Option<f64>,
    planned_hz: Option<f64>,
    lost: u64,
    disordered: u64,
    /// What one sample took at most.
    measured: Cost,
}

#[derive(Serialize)]
struct Unplanned<'a> {
    topic: &'a str,
    publisher: &'a str,
    subscriber: &'a str,
}

impl<'a> Document<'a> {
    /// Of all that was measured so far.
    pub fn of(gatherer: &'a Gatherer<'_>) -> Self {
        let channels: Vec<Row> =
            (0..gatherer.plan.channels.len()).filter_map(|index| Row::of(gatherer, index)).collect();
        let those = |fits: &dyn Fn(&Row) -> bool| {
            channels.iter().enumerate().filter(|(_, row)| fits(row)).map(|(index, _)| index).collect::<Vec<_>>()
        };
        let late = those(&|row| row.late > 0 && row.stage == Some("wire"));
        let well = those(&|row| row.samples > 0 && row.late == 0);
        let unplanned =
            |live: &'a Live| Unplanned { topic: &live.topic, publisher: &live.publisher, subscriber: &live.subscriber };
        let any = |verdict| channels.iter().any(|row| row.verdict == verdict);
        Self {
            plan: &gatherer.plan.contract,
            seconds: rounded(gatherer.elapsed().as_secs_f64(), 3),
            suspects: suspects(gatherer.plan, &late, &well),
            unplanned: gatherer.unplanned.iter().map(unplanned).collect(),
            silent: &gatherer.silent,
            pass: !any(Verdict::Broken) && (any(Verdict::Kept) || any(Verdict::AtRisk)),
            channels,
        }
    }

    /// Not one verdict says anything.
    pub fn nothing_compared(&self) -> bool {
        self.channels.iter().all(|row| row.verdict == Verdict::Unknown)
    }

    /// For people.
    pub fn text(&self) -> String {
        let headers = [
            ("topic", '<'),
            ("from", '<'),
            ("to", '<'),
            ("verdict", '<'),
            ("worst", '>'),
            ("bound", '>'),
            ("stage", '<'),
            ("late", '>'),
            ("rate", '>'),
            ("planned", '>'),
            ("lost", '>'),
            ("because", '<'),
        ];
        let rows: Vec<_> = self.channels.iter().map(Row::cells).collect();
        let mut parts = vec![self.verdict(), table(&headers, &rows)];
        if !self.suspects.is_empty() {
            parts.push(format!("every late channel, and no other, crosses {}", self.suspects.join(", ")));
        }
        let unplanned =
            self.unplanned.iter().map(|one| format!("  {}: {} → {}", one.topic, one.publisher, one.subscriber));
        if !self.unplanned.is_empty() {
            parts.push(format!("runs, and is not planned\n{}", unplanned.collect::<Vec<_>>().join("\n")));
        }
        if !self.silent.is_empty() {
            parts.push(format!("no answer from {}", self.silent.join(", ")));
        }
        parts.join("\n\n")
    }

    fn verdict(&self) -> String {
        let verdicts = [Verdict::Kept, Verdict::AtRisk, Verdict::Broken, Verdict::Unknown];
        let count = |verdict: Verdict| self.channels.iter().filter(|row| row.verdict == verdict && row.running).count();
        let counted = verdicts.into_iter().map(|verdict| (count(verdict), verdict)).filter(|(count, _)| *count > 0);
        let mut words: Vec<String> = counted.map(|(count, verdict)| format!("{count} {verdict}")).collect();
        let absent = self.channels.iter().filter(|row| !row.running).count();
        words.extend((absent > 0).then(|| format!("{absent} not running")));
        let name = if self.plan.name.is_empty() { "the plan" } else { self.plan.name.as_str() };
        format!("{name} (contract {}), {:.0} s: {}", self.plan.hash, self.seconds, words.join(", "))
    }
}

impl<'a> Row<'a> {
    fn of(gatherer: &'a Gatherer<'_>, index: usize) -> Option<Self> {
        let (planned, total) = (gatherer.plan.channels.get(index)?, gatherer.verification.total(index)?);
        let promise = gatherer.verification.promise(index)?;
        let Judged { verdict, because } = gatherer.verification.judged(index);
        let running: Option<&Running> = gatherer.running[index].as_ref();
        let worst = total.seen.worst.as_ref();
        let microseconds = |us: f64| rounded(us, 3);
        Some(Self {
            topic: &planned.topic,
            publisher: &planned.publisher,
            subscriber: &planned.subscriber,
            node: &planned.node,
            publisher_port: running.map(|running| running.live.publisher.as_str()),
            carrier: running.map(|running| running.carrier.as_str()),
            running: running.is_some(),
            verdict,
            because: because_of(running, total.since.is_some(), because),
            worst_us: worst.map(|worst| microseconds(worst.us)),
            uncertainty_us: worst.map(|worst| microseconds(worst.uncertainty_us)),
            stage: worst.and_then(|worst| worst.stage()),
            stages_us: worst.map(|worst| &worst.stages_us),
            bound_us: planned.bound_us,
            deadline_us: planned.deadline_us,
            lateness_us: worst.zip(promise.latest_us).map(|(worst, latest)| microseconds(worst.us - latest)),
            late: total.seen.late,
            samples: total.seen.received,
            rate_hz: total.rate_hz().map(|hz| rounded(hz, 2)),
            planned_hz: promise.rate_hz,
            lost: total.seen.lost,
            disordered: total.seen.disordered,
            measured: total.seen.cost,
        })
    }

    fn cells(&self) -> Vec<String> {
        let time = |us: Option<f64>| us.map_or("-".to_owned(), |us| show_time(us.max(0.0)));
        let hz = |hz: Option<f64>| hz.map_or("-".to_owned(), |hz| format!("{hz:.1} Hz"));
        vec![
            self.topic.to_owned(),
            self.publisher.to_owned(),
            self.subscriber.to_owned(),
            if self.running { self.verdict.to_string() } else { "not running".to_owned() },
            time(self.worst_us),
            time(self.bound_us.or(self.deadline_us)),
            self.stage.unwrap_or("-").to_owned(),
            self.late.to_string(),
            hz(self.rate_hz),
            hz(self.planned_hz),
            self.lost.to_string(),
            self.because.clone(),
        ]
    }
}

fn because_of(running: Option<&Running>, began: bool, because: String) -> String {
    match running {
        None if !began => "not running".to_owned(),
        None => [because, "not running any more".to_owned()]
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join("; "),
        Some(running) if running.carrier == "local" => {
            "carrier local is within one process, and is not measured".to_owned()
        }
        Some(_) => because,
    }
}
