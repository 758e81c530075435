//! The result as a table and as a document.

use super::control_queues::{self, ControlQueue};
use super::gather::{Gatherer, Running};
use crate::output::table;
use lab::statistics::rounded;
use qos::plan::{Chain, ChainPart, For};
use qos::show_time;
use qos::verification::{ChainFound, Cost, Judged, Leg, Live, Looks, Verdict, suspects};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use thalweg::stages::Figures;

/// The whole result.
#[derive(Serialize)]
pub(crate) struct Document<'a> {
    plan: &'a For,
    seconds: f64,
    channels: Vec<Row<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chains: Vec<ChainRow<'a>>,
    /// Queues of control traffic on this host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    control_queues: Vec<&'a ControlQueue<'a>>,
    /// Links that every late channel crosses and no other one.
    suspects: Vec<String>,
    /// Running channels that are in no plan.
    unplanned: Vec<Unplanned<'a>>,
    /// Nodes that did not answer.
    silent: &'a [String],
    /// No promise is broken, and at least one was compared.
    pub pass: bool,
}

/// A channel of the plan. Unknown quantities are null.
#[derive(Serialize)]
struct Row<'a> {
    topic: &'a str,
    publisher: &'a str,
    subscriber: &'a str,
    node: &'a str,
    publisher_port: Option<&'a str>,
    carrier: Option<&'a str>,
    /// The port of the relay between, which takes the samples from the publisher.
    #[serde(skip_serializing_if = "Option::is_none")]
    relay_port: Option<&'a str>,
    running: bool,
    /// The verdict of all looks: a promise once broken stays broken.
    verdict: Verdict,
    /// The verdict of the last look.
    now: Verdict,
    because: String,
    /// Looks with a verdict.
    looks: u64,
    at_risk: Option<When>,
    broken: Option<When>,
    /// The longest delay at the last look.
    now_us: Option<f64>,
    /// Delays of all samples since they are measured, where both ends have one clock.
    latency_us: Option<&'a Figures>,
    worst_us: Option<f64>,
    /// Time of the look with the worst delay, in seconds since the start.
    worst_at_s: Option<f64>,
    uncertainty_us: Option<f64>,
    stage: Option<&'a str>,
    stages_us: Option<&'a BTreeMap<String, f64>>,
    bound_us: Option<f64>,
    deadline_us: Option<f64>,
    /// Difference between the latest sample's delay and the promise; negative if it was early.
    lateness_us: Option<f64>,
    late: u64,
    samples: u64,
    rate_hz: Option<f64>,
    planned_hz: Option<f64>,
    lost: u64,
    disordered: u64,
    /// Packets that the kernel dropped in its own queue; `None`: it has none, or it was not read.
    own_queue_dropped: Option<u64>,
    /// The largest cost of one sample.
    measured: Cost,
}

/// The promise of a channel, in figures.
#[cfg(feature = "dashboard")]
pub(crate) struct Promise<'a> {
    /// As programs have it: a contract may leave out the `/` before it.
    topic: String,
    publisher: &'a str,
    subscriber: &'a str,
    /// The verdict of the last look.
    pub now: Verdict,
    /// The longest delay so far, in µs.
    pub worst_us: Option<f64>,
    /// Delays of all samples since they are measured, if they are known.
    pub latency: Option<&'a Figures>,
    /// The bound, in µs.
    pub bound_us: Option<f64>,
    /// Samples that were too late.
    pub late: u64,
}

#[cfg(feature = "dashboard")]
impl Promise<'_> {
    /// What tells it from others, for metrics.
    pub(crate) fn labels(&self) -> Vec<(&'static str, &str)> {
        vec![("topic", &self.topic[..]), ("publisher", self.publisher), ("subscriber", self.subscriber)]
    }
}

/// Number of looks with a verdict, the first and the last of them in seconds since the start.
#[derive(Serialize)]
struct When {
    looks: u64,
    first_s: f64,
    last_s: f64,
}

impl When {
    fn of(looks: Looks) -> Option<Self> {
        let seconds = |time: Duration| rounded(time.as_secs_f64(), 3);
        let Looks { count, first, last } = looks;
        (count > 0).then(|| Self { looks: count, first_s: seconds(first), last_s: seconds(last) })
    }
}

/// A chain of the plan, judged by its parts.
#[derive(Serialize)]
struct ChainRow<'a> {
    name: &'a str,
    verdict: Verdict,
    because: String,
    /// Sum of the parts' `wait_us` and `worst_us` with their uncertainty: no sample was later, and perhaps none so late.
    at_most_us: Option<f64>,
    bound_us: Option<f64>,
    deadline_us: Option<f64>,
    parts: Vec<PartRow<'a>>,
}

#[derive(Serialize)]
struct PartRow<'a> {
    topic: &'a str,
    publisher: &'a str,
    subscriber: &'a str,
    verdict: Verdict,
    worst_us: Option<f64>,
    /// As the plan states it; not measured.
    wait_us: f64,
}

impl<'a> ChainRow<'a> {
    fn of(gatherer: &'a Gatherer<'_>, chain: &'a Chain, rows: &[Row]) -> Self {
        let ChainFound { judged, at_most_us, channels } = gatherer.verification.chain(gatherer.plan, chain);
        let part = |(part, channel): (&'a ChainPart, &Option<usize>)| {
            let row = channel.and_then(|channel| rows.get(channel));
            PartRow {
                topic: &part.topic,
                publisher: &part.publisher,
                subscriber: &part.subscriber,
                verdict: row.map(|row| row.verdict).unwrap_or_default(),
                worst_us: row.and_then(|row| row.worst_us),
                wait_us: part.wait_us,
            }
        };
        Self {
            name: &chain.name,
            verdict: judged.verdict,
            because: judged.because,
            at_most_us: at_most_us.map(|us| rounded(us, 3)),
            bound_us: chain.bound_us,
            deadline_us: chain.deadline_us,
            parts: chain.parts.iter().zip(&channels).map(part).collect(),
        }
    }

    fn cells(&self) -> Vec<String> {
        let time = |us: Option<f64>| us.map_or("-".to_owned(), show_time);
        let bound = time(self.bound_us.or(self.deadline_us));
        vec![self.name.to_owned(), self.verdict.to_string(), time(self.at_most_us), bound, self.because.clone()]
    }
}

#[derive(Serialize)]
struct Unplanned<'a> {
    topic: &'a str,
    publisher: &'a str,
    subscriber: &'a str,
}

impl<'a> Document<'a> {
    /// The result of all measurements so far.
    pub(crate) fn of(gatherer: &'a Gatherer<'_>) -> Self {
        let channels: Vec<Row> =
            (0..gatherer.plan.channels.len()).filter_map(|index| Row::of(gatherer, index)).collect();
        let legs: Vec<Leg> = (0..channels.len()).flat_map(|index| legs(gatherer, index, &channels[index])).collect();
        let unplanned =
            |live: &'a Live| Unplanned { topic: &live.topic, publisher: &live.publisher, subscriber: &live.subscriber };
        let chains: Vec<ChainRow> =
            gatherer.plan.chains.iter().map(|chain| ChainRow::of(gatherer, chain, &channels)).collect();
        let broken = chains.iter().any(|chain| chain.verdict == Verdict::Broken);
        let any = |verdict| channels.iter().any(|row| row.verdict == verdict);
        Self {
            plan: &gatherer.plan.contract,
            seconds: rounded(gatherer.elapsed().as_secs_f64(), 3),
            control_queues: gatherer.control_queues.all().collect(),
            suspects: suspects(gatherer.plan, &legs),
            unplanned: gatherer.unplanned.iter().map(unplanned).collect(),
            silent: &gatherer.silent,
            pass: !any(Verdict::Broken) && !broken && (any(Verdict::Kept) || any(Verdict::AtRisk)),
            channels,
            chains,
        }
    }

    /// The promises of all channels.
    #[cfg(feature = "dashboard")]
    pub(crate) fn promises(&self) -> impl Iterator<Item = Promise<'_>> {
        self.channels.iter().map(|row| {
            let Row { topic, publisher, subscriber, now, worst_us, latency_us: latency, bound_us, late, .. } = *row;
            Promise {
                topic: format!("/{}", topic.trim_start_matches('/')),
                publisher: row.publisher_port.unwrap_or(publisher),
                subscriber,
                now,
                worst_us,
                latency,
                bound_us,
                late,
            }
        })
    }

    /// `true` if there is no verdict at all.
    pub(super) fn nothing_compared(&self) -> bool {
        self.channels.iter().all(|row| row.verdict == Verdict::Unknown)
    }

    /// The table, for people.
    pub(super) fn text(&self) -> String {
        let headers = [
            ("topic", '<'),
            ("from", '<'),
            ("to", '<'),
            ("verdict", '<'),
            ("now", '<'),
            ("worst", '>'),
            ("bound", '>'),
            ("deadline", '>'),
            ("stage", '<'),
            ("late", '>'),
            ("rate", '>'),
            ("planned", '>'),
            ("lost", '>'),
            ("because", '<'),
        ];
        let rows: Vec<_> = self.channels.iter().map(Row::cells).collect();
        let mut parts = vec![self.verdict(), table(&headers, &rows)];
        if !self.chains.is_empty() {
            let headers = [("chain", '<'), ("verdict", '<'), ("at most", '>'), ("bound", '>'), ("because", '<')];
            let rows: Vec<_> = self.chains.iter().map(ChainRow::cells).collect();
            let how = "chains, by their parts: the latest of each added up, and the stated waits (samples do not carry their cause)";
            parts.push(format!("{how}\n{}", table(&headers, &rows)));
        }
        parts.extend(control_queues::text(&self.control_queues));
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
        let absent = self.channels.iter().filter(|row| !row.running && row.looks == 0).count();
        let mut words = self.counted(|row| row.verdict);
        words.extend((absent > 0).then(|| format!("{absent} not running")));
        let name = if self.plan.name.is_empty() { "the plan" } else { self.plan.name.as_str() };
        format!("{name} (contract {}), {:.0} s: {}", self.plan.hash, self.seconds, words.join(", "))
    }

    /// One line: the current state, and the worst so far.
    pub(super) fn line(&self) -> String {
        let now = self.counted(|row| row.now);
        let worst = self.channels.iter().filter(|row| row.verdict == Verdict::Broken).max_by(|a, b| {
            let excess = |row: &Row| row.lateness_us.unwrap_or(f64::MIN);
            excess(a).total_cmp(&excess(b))
        });
        let worst = worst.map(|row| format!("; broken: {} → {}, {}", row.topic, row.subscriber, row.because));
        let now = if now.is_empty() { "nothing runs".to_owned() } else { now.join(", ") };
        format!("{:.0} s: {now} now{}", self.seconds, worst.unwrap_or_default())
    }

    /// The number of running channels per verdict.
    fn counted(&self, of: impl Fn(&Row) -> Verdict) -> Vec<String> {
        let verdicts = [Verdict::Kept, Verdict::AtRisk, Verdict::Broken, Verdict::Unknown];
        let ran = || self.channels.iter().filter(|row| row.running || row.looks > 0);
        let counted = verdicts.map(|verdict| (ran().filter(|row| of(row) == verdict).count(), verdict));
        counted
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, verdict)| format!("{count} {verdict}"))
            .collect()
    }
}

/// The measured legs of a channel: the whole way, or the way to the relay and the way from it. A sample that was late
/// elsewhere is no evidence about links.
fn legs<'a>(gatherer: &'a Gatherer<'_>, index: usize, row: &Row) -> Vec<Leg<'a>> {
    let (Some(planned), Some(total)) = (gatherer.plan.channels.get(index), gatherer.verification.total(index)) else {
        return Vec::new();
    };
    if row.samples == 0 || total.seen.strays.is_some() {
        return Vec::new();
    }
    let is_late = row.late > 0;
    let on_its_way = |stage: &str| !is_late || row.stage == Some(stage);
    let leg = |route, late| Some(Leg { route, late });
    if row.relay_port.is_none() {
        return leg(&planned.route[..], is_late).filter(|_| on_its_way("wire")).into_iter().collect();
    }
    let [before, behind] = planned.legs();
    let late_at_relay = total.seen.late_at_relay > 0;
    // A sample late at the relay and in time at its end broke no promise.
    let first = leg(before, late_at_relay).filter(|_| planned.proxied_us.is_some() && (is_late || !late_at_relay));
    let second = leg(behind, is_late).filter(|_| on_its_way("wire from relay"));
    first.into_iter().chain(second).collect()
}

impl<'a> Row<'a> {
    fn of(gatherer: &'a Gatherer<'_>, index: usize) -> Option<Self> {
        let (planned, total) = (gatherer.plan.channels.get(index)?, gatherer.verification.total(index)?);
        let (promise, history) = (gatherer.verification.promise(index)?, gatherer.verification.history(index)?);
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
            relay_port: running.and_then(|running| running.live.over.as_ref()).map(|over| over.port.as_str()),
            running: running.is_some(),
            verdict,
            now: history.now,
            because: because_of(running, total.since.is_some(), because),
            looks: history.looks,
            at_risk: When::of(history.at_risk),
            broken: When::of(history.broken),
            now_us: gatherer.now_us(index).map(microseconds),
            latency_us: gatherer.latencies.get(index).and_then(Option::as_ref),
            worst_at_s: worst.map(|_| rounded(total.worst_at.as_secs_f64(), 3)),
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
            own_queue_dropped: promise.own_queue.as_ref().and(total.seen.own_queue),
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
            if self.looks > 0 || self.running { self.verdict.to_string() } else { "-".to_owned() },
            if self.running { self.now.to_string() } else { "not running".to_owned() },
            time(self.worst_us),
            time(self.bound_us.or(self.deadline_us)),
            time(self.deadline_us),
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
        Some(_) => because,
    }
}
