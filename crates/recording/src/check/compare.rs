//! A recording beside a baseline: what became worse, by more than the baseline's own noise.

use super::Tolerance;
use super::bootstrap::{Change, change};
use super::figures::{Figures, Histogram, whole};
use super::report::{Finding, Measure, Quantile, Report, Row, Stage, Verdict, microseconds};
use super::run::{Flow, Run};
use qos::show_time;

/// Compares a recording with a baseline of one or several runs.
pub fn compare(baseline: &[Run], run: &Run, tolerance: Tolerance) -> Report {
    let mut report = Report::default();
    let mut topics: Vec<&String> = baseline.iter().chain([run]).flat_map(|run| run.flows.keys()).collect();
    topics.sort();
    topics.dedup();
    for topic in topics {
        let before: Vec<&Flow> = baseline.iter().filter_map(|run| run.flows.get(topic)).collect();
        let mut judge = Judge { topic, baseline, tolerance, row: Row::default(), findings: Vec::new(), judged: false };
        judge.topic(&before, run);
        let Judge { row, findings, .. } = judge;
        report.add(row, findings);
    }
    report.note = all_slower(&report);
    report.judged()
}

/// A hint where not one topic is at fault.
fn all_slower(report: &Report) -> Option<String> {
    let compared = report.topics.iter().filter(|row| matches!(row.verdict, Verdict::Kept | Verdict::Broken)).count();
    let mut slower: Vec<&str> =
        report.findings.iter().filter(|one| one.measure == Measure::Latency).map(|one| one.topic.as_str()).collect();
    slower.dedup();
    let note = "every topic comes later: the host or the recorder is slower, rather than one program";
    (compared > 1 && slower.len() == compared).then(|| note.to_owned())
}

/// The comparison of one topic.
struct Judge<'a> {
    topic: &'a str,
    baseline: &'a [Run],
    tolerance: Tolerance,
    row: Row,
    findings: Vec<Finding>,
    /// A figure was compared.
    judged: bool,
}

impl Judge<'_> {
    fn topic(&mut self, before: &[&Flow], run: &Run) {
        let sum = |of: fn(&Flow) -> u64| before.iter().map(|flow| of(flow)).fold(0, u64::saturating_add);
        self.row.topic = self.topic.to_owned();
        let now = run.flows.get(self.topic);
        self.row.samples = [sum(|flow| flow.samples), now.map_or(0, |flow| flow.samples)];
        self.row.late = [sum(|flow| flow.late), now.map_or(0, |flow| flow.late)];
        self.row.lost = [sum(Flow::lost), now.map_or(0, Flow::lost)];
        let Some(now) = now.filter(|now| now.samples > 0) else {
            let because = format!("no sample, {} in the baseline", self.row.samples[0]);
            return self.find(Stage::Publisher, Measure::Samples, because);
        };
        self.row.bound_us = now.bound_ns.map(|ns| microseconds(ns as f64));
        if self.row.samples[0] == 0 {
            self.row.verdict = Verdict::New;
            self.row.because = "it is not in the baseline".to_owned();
            return;
        }
        let of = |figures: fn(&Flow) -> &Figures| before.iter().map(|flow| figures(flow)).collect::<Vec<_>>();
        let uncertainty = before.iter().map(|flow| flow.uncertainty_ns).chain([now.uncertainty_ns]).max().unwrap_or(0);
        self.quantiles(Measure::Latency, Stage::Network, &of(|flow| &flow.latency), &now.latency, uncertainty);
        self.quantiles(Measure::Interval, Stage::Publisher, &of(|flow| &flow.intervals), &now.intervals, 0);
        self.reactions(run);
        self.shares(before, now);
        self.row.verdict = if self.judged { Verdict::Kept } else { Verdict::Unknown };
        if !self.judged {
            self.row.because = format!("fewer than {MEDIAN_SAMPLES} samples");
        }
    }

    /// Compares the callbacks that publish this topic.
    fn reactions(&mut self, run: &Run) {
        let topic = self.topic;
        for ((cause, effect), now) in run.reactions.iter().filter(|((_, effect), _)| effect == topic) {
            let pair = (cause.clone(), effect.clone());
            let before: Vec<&Figures> = self.baseline.iter().filter_map(|run| run.reactions.get(&pair)).collect();
            self.quantiles(Measure::After(cause.clone()), Stage::Callback, &before, now, 0);
        }
    }

    /// Compares median and 99th percentile of a figure.
    fn quantiles(&mut self, measure: Measure, stage: Stage, before: &[&Figures], now: &Figures, uncertainty_ns: u64) {
        let count = before.iter().map(|figures| figures.count()).sum::<u64>().min(now.count());
        for Compared { name, share, floors, .. } in COMPARED.into_iter().filter(|one| count >= one.samples) {
            let all: Vec<&Histogram> = before.iter().flat_map(|one| one.blocks()).collect();
            let blocks: Vec<&Histogram> = now.blocks().iter().collect();
            let Change { before_ns, after_ns, least_ns } = change(&all, &blocks, share);
            let limits = [
                before_ns * self.tolerance.share,
                noise(before, share),
                self.tolerance.floor.as_nanos() as f64 * floors,
                uncertainty_ns as f64,
            ];
            let allowed_ns = limits.into_iter().fold(0.0, f64::max);
            self.judged = true;
            let quantile = Quantile {
                before_us: Some(microseconds(before_ns)),
                now_us: microseconds(after_ns),
                allowed_us: Some(microseconds(allowed_ns)),
            };
            self.row.quantiles.insert(format!("{measure} {name}"), quantile);
            if least_ns > allowed_ns {
                let because = format!(
                    "{measure} {name} {}, in the baseline {}; {} more, at least {}, allowed {}",
                    show_time(after_ns / 1e3),
                    show_time(before_ns / 1e3),
                    show_time((after_ns - before_ns) / 1e3),
                    show_time(least_ns / 1e3),
                    show_time(allowed_ns / 1e3),
                );
                self.find(stage, measure.clone(), because);
            }
        }
    }

    /// Compares the parts of samples that were lost and late.
    fn shares(&mut self, before: &[&Flow], now: &Flow) {
        if self.grew(before, now, Flow::loss) {
            let lost = now.lost();
            let because = format!(
                "{lost} of {} samples lost, in the baseline {}",
                lost.saturating_add(now.samples),
                self.row.lost[0]
            );
            self.find(worst_place(before, now), Measure::Lost, because);
        }
        if self.grew(before, now, Flow::lateness) {
            let bound = now.bound_ns.map_or_else(String::new, |ns| show_time(ns as f64 / 1e3));
            let because = format!(
                "{} of {} samples later than {bound}, in the baseline {} of {}; the latest {}",
                now.late,
                now.latency.count(),
                self.row.late[0],
                before.iter().map(|flow| flow.latency.count()).sum::<u64>(),
                show_time(now.latency.longest() as f64 / 1e3),
            );
            self.find(Stage::Network, Measure::Late, because);
        }
    }

    /// `true` if a part of samples is larger than in any run of the baseline, by the tolerance and by more than a few.
    fn grew(&self, before: &[&Flow], now: &Flow, part: fn(&Flow) -> f64) -> bool {
        let most = before.iter().map(|flow| part(flow)).fold(0.0, f64::max);
        part(now) > most * (1.0 + self.tolerance.share) + FEW
    }

    fn find(&mut self, stage: Stage, measure: Measure, because: String) {
        self.findings.push(Finding { topic: self.topic.to_owned(), stage, measure, because });
    }
}

/// The place where more was lost than before.
fn worst_place(before: &[&Flow], now: &Flow) -> Stage {
    let count = |flow: &Flow, stage: &Stage| flow.lost.get(stage).copied().unwrap_or(0);
    let more = |stage: &Stage| {
        let most = before.iter().map(|flow| count(flow, stage)).max().unwrap_or(0);
        count(now, stage).saturating_sub(most)
    };
    now.lost.keys().max_by_key(|stage| more(stage)).copied().unwrap_or(Stage::Unknown)
}

/// The change of a quantile that the baseline has without a cause: between the quarters of its runs.
fn noise(runs: &[&Figures], share: f64) -> f64 {
    let quarters = runs.iter().flat_map(|one| one.blocks().chunks(one.blocks().len().div_ceil(QUARTERS).max(1)));
    let each: Vec<f64> = quarters.map(|blocks| whole(blocks).quantile(share)).collect();
    let least = each.iter().copied().fold(f64::INFINITY, f64::min);
    let most = each.iter().copied().fold(0.0, f64::max);
    (most - least).max(0.0)
}

/// Parts of a run that are compared with each other.
const QUARTERS: usize = 4;
/// The samples with a delay that a median needs at least, in the baseline and in the recording.
pub const MEDIAN_SAMPLES: u64 = 20;
/// The same for a 99th percentile.
pub const P99_SAMPLES: u64 = 200;
/// A quantile that is compared.
struct Compared {
    name: &'static str,
    share: f64,
    /// The samples that it needs at least.
    samples: u64,
    /// Its floor, in floors: what the slowest samples of a run need depends on everything else that runs.
    floors: f64,
}

const COMPARED: [Compared; 2] = [
    Compared { name: "p50", share: 0.5, samples: MEDIAN_SAMPLES, floors: 1.0 },
    Compared { name: "p99", share: 0.99, samples: P99_SAMPLES, floors: 5.0 },
];
/// A part of the samples that may be lost or late more than before.
const FEW: f64 = 0.001;
