//! `velox-topics` (V-50, Fig. 11 … 13): five reliable topics of 20 to 300 bytes; the time from the application to the middleware
//! (T_appmid) and back (T_midapp), by number of topics and by size.

use super::trace::{Run, Topic, Traced, Way};
use super::{RATE, first_processor, network};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines, shuffled};
use crate::lab::{Lab, Size};
use crate::part::{AWAKE, Hog};
use crate::results::{Bar, Check, Factors, Findings, Group, Panel, Table};
use crate::stalls::{Monitor, Timed};
use crate::statistics::{LinearFit, median, quotient_interval};
use crate::topology::Topology;
use std::time::Duration;
use thalweg::carrier::Dice;
use thalweg::stages::End;

/// The experiment.
pub(crate) struct VeloxTopics;

/// Names and sizes; the paper gives those of the first, second and fourth.
pub(super) const TOPICS: [(&str, usize); 5] =
    [("/climat", 200), ("/exo", 20), ("/global", 100), ("/object", 300), ("/observateur", 50)];
const SIZES: [usize; 5] = [20, 50, 100, 200, 300];
/// Of each topic; five are the 12,000 samples/s of Table 2 (V-32).
const HZ: f64 = 2400.0;
/// T_midapp of 1 to 5 topics (Fig. 12a), T_appmid and T_midapp of 5 (Fig. 11), and T_midapp by size where the paper has it (Fig.
/// 12b), in µs.
const PAPER_TOPICS: [f64; 5] = [9.0, 15.0, 24.0, 34.0, 42.0];
const PAPER_APPMID: [f64; 5] = [f64::NAN, f64::NAN, f64::NAN, f64::NAN, 1.6];
const PAPER_SIZES: [f64; 5] = [6.0, f64::NAN, f64::NAN, 9.0, 9.0];
/// Each of five topics may cost this many times what one alone does, and one alone this many times what each of five does: the
/// paper's line, -0.7 + 8.5·n µs, has 1.07 between them. (How much of the sums a line explains says little: they are sums of nearly
/// equal times.)
const EACH: f64 = 1.3;
/// From the least size to the greatest, costs may grow by this factor: they depend on it "hardly".
const HARDLY: f64 = 1.5;
/// Least share of the rate that must be reached.
const REACHED: f64 = 0.9;

impl Experiment for VeloxTopics {
    fn name(&self) -> &'static str {
        "velox-topics"
    }

    fn about(&self) -> &'static str {
        "five reliable topics of 20 to 300 bytes: from the application to the middleware and back, by number of topics and size"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let ends = |count: usize| if lab.options.size == Size::Ci { vec![0, count - 1] } else { (0..count).collect() };
        let mut numbers: Vec<Set> = ends(TOPICS.len()).into_iter().map(Set::of_topics).collect();
        if lab.options.size != Size::Ci {
            numbers.push(Set::all_as_slow());
        }
        let sizes = ends(SIZES.len()).into_iter().map(Set::of_size).collect();
        let mut topology = network(lab, 2)?;
        let by_number = measure(lab, &topology, "topics", numbers, &mut findings)?;
        let by_size = measure(lab, &topology, "size", sizes, &mut findings)?;
        lines::judge("all sets", &topology.end_lines(), &mut findings);
        judge(&by_number, &by_size, &mut findings);
        Ok(findings)
    }
}

/// Topics that are measured together.
struct Set {
    label: String,
    topics: Vec<Topic>,
    /// Samples per second of all of them together.
    hz: f64,
    /// T_appmid and T_midapp in the paper, in µs.
    paper: [f64; 2],
}

impl Set {
    /// The first topics, up to this index.
    fn of_topics(last: usize) -> Self {
        let topics = TOPICS[..=last].iter().map(|(topic, size)| ((*topic).to_owned(), *size)).collect();
        let hz = HZ * (last + 1) as f64;
        Self { label: (last + 1).to_string(), topics, hz, paper: [PAPER_APPMID[last], PAPER_TOPICS[last]] }
    }

    /// All topics, with as many samples together as one has alone.
    fn all_as_slow() -> Self {
        let all = Self::of_topics(TOPICS.len() - 1);
        Self { label: format!("{}, {HZ} Hz together", all.label), hz: HZ, paper: [f64::NAN; 2], ..all }
    }

    /// One topic of the size with this index.
    fn of_size(index: usize) -> Self {
        let size = SIZES[index];
        Self {
            label: format!("{size} B"),
            topics: vec![("/one".to_owned(), size)],
            hz: HZ,
            paper: [f64::NAN, PAPER_SIZES[index]],
        }
    }
}

/// The costs of a set, repetition by repetition.
struct Found {
    topics: usize,
    /// Samples per second that were asked for.
    hz: f64,
    costs: Vec<Costs>,
}

impl Found {
    /// The median of the repetitions.
    fn middle(&self, of: impl Fn(&Costs) -> f64) -> f64 {
        median(&self.costs.iter().map(of).collect::<Vec<_>>())
    }

    /// What each topic cost in each repetition.
    fn each(&self, of: impl Fn(&Costs) -> f64) -> Vec<f64> {
        self.costs.iter().map(|costs| of(costs) / self.topics as f64).collect()
    }
}

/// Checks the shapes of Fig. 11 to 13.
fn judge(by_number: &[Found], by_size: &[Found], findings: &mut Findings) {
    let midapp = ("T_midapp", Costs::midapp as fn(&Costs) -> f64);
    let received = ("from reception until taken", Costs::received as fn(&Costs) -> f64);
    let most = by_number.iter().map(|found| found.topics).max().unwrap_or(1);
    let at = |topics: usize, hz: f64| by_number.iter().find(|found| found.topics == topics && found.hz == hz);
    // The taking thread waits for the processor where the samples of several topics meet, the more so the more there are. So the way
    // from reception is compared at the rate of one topic.
    for ((what, of), hz) in [(midapp, HZ * most as f64), (received, HZ)] {
        let both = at(most, hz).zip(at(1, HZ));
        findings.checks.extend(both.into_iter().flat_map(|(many, one)| alike(what, of, many, one)));
    }
    for (what, of) in [midapp, received] {
        let sets = by_number.iter().filter(|found| found.hz == HZ * found.topics as f64);
        let points: Vec<(f64, f64)> = sets.map(|found| (found.topics as f64, found.middle(of))).collect();
        findings.notes.extend(LinearFit::through(&points).map(|LinearFit { a, b, explained }| {
            format!("{what}, of n topics: {a:.2} + {b:.2}·n µs, which explains {explained:.3} (paper: -0.7 + 8.5·n)")
        }));
    }
    for (name, cost) in [("T_appmid", Costs::appmid as fn(&Costs) -> f64), midapp] {
        let [least, greatest] =
            [by_size.first(), by_size.last()].map(|found| found.map_or(f64::NAN, |f| f.middle(cost)));
        let name = format!("{name} of 300 bytes / of 20");
        findings.checks.push(Check::at_most(name, greatest / least, HARDLY).judged_from(Size::Quick));
    }
    for found in by_number {
        let name = format!(
            "{} topics, {} Hz: from reception until taken / T_appmid (most of the time is the subscriber's)",
            found.topics, found.hz
        );
        let quotient = found.middle(Costs::received) / found.middle(Costs::appmid);
        findings.checks.push(Check::at_least(name, quotient, 1.0));
    }
}

/// Checks that each of several topics costs as much as one alone, at their rates.
fn alike(what: &str, of: fn(&Costs) -> f64, many: &Found, one: &Found) -> [Check; 2] {
    let (many, one) = (
        (format!("each of {} topics, {} Hz", many.topics, many.hz), many.each(of)),
        (format!("one alone, {} Hz", one.hz), one.each(of)),
    );
    [(&many, &one), (&one, &many)].map(|((over, values), (under, others))| {
        let mut dice = Dice::new(1);
        let interval = quotient_interval(values, others, |n| dice.below(n as u64) as usize);
        let check = Check::at_most(format!("{what}: {over} / {under}"), median(values) / median(others), EACH);
        check.within(interval).judged_from(Size::Quick)
    })
}

/// Sums over all topics, in µs.
#[derive(Clone, Copy, Debug)]
struct Costs {
    appmid: f64,
    midapp: f64,
    /// The wait from reception until `take` is called.
    cache: f64,
    /// From the return of `publish` to reception, of one sample.
    network: f64,
    /// Samples published per second.
    rate: f64,
}

impl Costs {
    fn appmid(&self) -> f64 {
        self.appmid
    }

    fn midapp(&self) -> f64 {
        self.midapp
    }

    /// From reception until the application has them.
    fn received(&self) -> f64 {
        self.cache + self.midapp
    }

    /// The costs of a run, with T_appmid of each topic.
    fn of(run: &Run, topics: usize, appmid: impl Iterator<Item = f64>) -> Self {
        let middle = |topic: usize, time: fn(&Way) -> u64| {
            let ways = run.ways.iter().filter(|way| way.topic == topic);
            median(&ways.map(|way| time(way) as f64 / 1e3).collect::<Vec<_>>())
        };
        let sum = |time: fn(&Way) -> u64| (0..topics).map(|topic| middle(topic, time)).sum();
        let span = run
            .ways
            .last()
            .zip(run.ways.first())
            .map_or(0, |(last, first)| last.published.saturating_sub(first.published));
        Self {
            appmid: appmid.sum(),
            midapp: sum(|way| way.taken.saturating_sub(way.asked)),
            cache: sum(|way| way.asked.saturating_sub(way.received)),
            network: middle(0, |way| way.received.saturating_sub(way.sent)),
            rate: run.sent.saturating_sub(1) as f64 * 1e9 / span as f64,
        }
    }
}

/// Measures the sets of topics in random order, each time with new processes. Two equal processes differ by half of
/// the measured value for as long as they live, and so do two seconds of a processor that others share. Many short
/// repetitions even that out, longer ones do not.
fn measure(lab: &Lab, topology: &Topology, by: &str, sets: Vec<Set>, findings: &mut Findings) -> Result<Vec<Found>> {
    let (repetitions, ms) = match lab.options.size {
        Size::Tiny => (1, 100),
        Size::Ci => (2, 200),
        Size::Quick => (21, 200),
        Size::Whole => (60, 500),
    };
    let processor = Vec::from_iter(first_processor()?);
    let _awake = processor.first().map(|processor| Hog::Idle.start(lab, *processor)).transpose()?;
    let mut dice = Dice::new(lab.options.seed);
    let mut measured: Vec<(Tally, Found)> = sets
        .iter()
        .map(|set| (Tally::default(), Found { topics: set.topics.len(), hz: set.hz, costs: Vec::new() }))
        .collect();
    for repetition in 0..repetitions {
        lab.tell(&format!("by {by}, repetition {} of {repetitions}", repetition + 1));
        for index in shuffled(sets.len(), &mut dice) {
            let topics = &sets[index].topics;
            let (hz, seed) = (sets[index].hz, lab.options.seed ^ repetition as u64);
            let mut traced = Traced::new(lab, topology, repetition * sets.len() + index, topics, &processor)?;
            traced.run(lab, hz, Duration::from_millis(ms / 4), seed)?;
            traced.stages(lab)?; // from nothing
            let (tally, found) = &mut measured[index];
            let monitor = Monitor::start()?;
            let run = traced.run(lab, hz, Duration::from_millis(ms), seed)?;
            let whole = |way: &Way| Timed { from_ns: way.published, ns: way.taken.saturating_sub(way.published) };
            tally.add(run.sent, &run.ways.iter().map(whole).collect::<Vec<_>>(), &monitor.finish());
            let stages = traced.stages(lab)?;
            let appmid = stages.iter().map(|publisher| publisher.p50_us(End::Publisher, "publish"));
            found.costs.push(Costs::of(&run, topics.len(), appmid));
        }
    }
    let heads = [
        by,
        "T_appmid",
        "T_midapp",
        "wait in the cache",
        "network, one sample",
        "samples/s",
        "reception until taken",
        "T_midapp in the paper",
    ];
    let mut table = Table::new(format!("By {by}, µs: sums over the topics"), &heads);
    let mut panel = Panel { title: format!("by {by}"), groups: Vec::new() };
    for (Set { label, topics, hz: asked, paper }, (tally, found)) in sets.into_iter().zip(&measured) {
        let middle = |of: fn(&Costs) -> f64| found.middle(of);
        let (appmid, midapp, cache) = (middle(|c| c.appmid), middle(|c| c.midapp), middle(|c| c.cache));
        let (network, rate, received) = (middle(|c| c.network), middle(|c| c.rate), middle(Costs::received));
        let factors = Factors::new().with("arm", by).with("topics", topics.len()).with("measured", super::CARRIER);
        let bytes = topics.iter().map(|(_, size)| size).sum::<usize>();
        findings.cells.push(tally.cell(factors.with("payload_bytes", bytes), false));
        findings.checks.push(Check::at_most(format!("by {by}, {label}: lost"), tally.missing(), 0.0));
        let (least, smallest) = (tally.least(), topics.iter().map(|(_, size)| *size).min().unwrap_or(0));
        lines::judge_idle(&format!("by {by}, {label}"), least, smallest, &[RATE; 2], findings);
        let name = format!("by {by}, {label}: share of {asked} samples/s that was reached");
        findings.checks.push(Check::at_least(name, rate / asked, REACHED));
        let text = |value: f64| if value.is_finite() { format!("{value:.2}") } else { String::new() };
        let values = [appmid, midapp, cache, network, rate, received, paper[1]].map(text);
        table.rows.push(std::iter::once(label.clone()).chain(values).collect());
        let bars = [
            ("T_appmid", appmid, paper[0]),
            ("T_midapp", midapp, paper[1]),
            ("from reception until taken", received, paper[1]),
        ];
        let bar = |(series, value, paper): (&str, f64, f64)| Bar {
            series: series.into(),
            value,
            mark: Some(paper).filter(|us| us.is_finite()),
            ..Bar::default()
        };
        panel
            .groups
            .push(Group { label, bars: bars.into_iter().filter(|(_, value, _)| value.is_finite()).map(bar).collect() });
    }
    findings.tables.push(table);
    findings.figure.title = "From the application to the middleware and back".into();
    findings.figure.axis = "Sum over the topics in µs, medians over repetitions (mark: the paper's)".into();
    findings.figure.logarithmic = true;
    findings.figure.panels.push(panel);
    Ok(measured.into_iter().map(|(_, found)| found).collect())
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "one process publishes all topics in turn at exponential distances, {HZ} Hz each, another one on another host subscribes to all and takes their samples; tcp, behind a switch, 100 Mbit/s \
             each; both on one processor, threads FIFO 30, the lines on another"
        ),
        AWAKE.into(),
        "T_appmid: stage `publish`, from the call until the encoded message is offered to the channel. T_midapp: the call of `take` that returns a sample, as the paper's read() from a reader's \
         cache, without its display. Wait in the cache: from reception until `take` is called: the taking thread wakes up. Network: from the return of `publish` to reception. Medians over \
         repetitions, each with new processes, of medians over all samples: one interrupt in a hundred samples is as long as what is measured."
            .into(),
        "T_midapp sums the calls of all topics, as the paper's \"cumulative time\" does".into(),
        "cells: latency from publish to taken of all topics together; payload_bytes: the sum of one sample of each".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    /// Repetitions that differ by a tenth.
    fn found(topics: usize, midapp: f64) -> Found {
        let costs = |off| Costs { appmid: 1.0, midapp: midapp * off, cache: 0.0, network: 50.0, rate: 12_000.0 };
        Found { topics, hz: HZ * topics as f64, costs: [0.95, 0.98, 1.0, 1.02, 1.05].map(costs).to_vec() }
    }

    /// Five topics cost as much whatever their rate.
    fn by_number(us: [f64; 5]) -> Vec<Found> {
        let as_slow = Found { hz: HZ, ..found(5, us[4]) };
        us.iter().zip(1..).map(|(us, topics)| found(topics, *us)).chain([as_slow]).collect()
    }

    fn by_size(us: [f64; 5]) -> Vec<Found> {
        us.iter().map(|us| found(1, *us)).collect()
    }

    fn judged(by_number: &[Found], by_size: &[Found], verdict: Verdict) -> Vec<String> {
        let mut findings = Findings::default();
        judge(by_number, by_size, &mut findings);
        findings.checks.into_iter().filter(|check| check.verdict == verdict).map(|check| check.name).collect()
    }

    #[test]
    fn the_papers_figures_pass_and_others_fail() {
        let failed = |numbers: &[Found], sizes: &[Found]| judged(numbers, sizes, Verdict::Fail);
        let (paper, sizes) = (by_number(PAPER_TOPICS), by_size([6.0, 7.0, 8.0, 9.0, 9.0]));
        assert_eq!(judged(&paper, &sizes, Verdict::Pass).len(), 12);
        // A further topic is dearer than the first one, or costs nothing.
        for (last, over) in [(63.0, ": each of 5 topics"), (9.0, ": one alone")] {
            let uneven = failed(&by_number([9.0, 18.0, 27.0, 36.0, last]), &sizes);
            assert!(uneven.len() == 2 && uneven.iter().all(|found| found.contains(over)), "{uneven:?}");
        }
        // They wait where their samples meet, at the higher rate only.
        let mut busy = by_number([9.0, 18.0, 27.0, 36.0, 45.0]);
        busy[4].costs.iter_mut().for_each(|costs| costs.cache = 20.0);
        assert_eq!(failed(&busy, &sizes), Vec::<String>::new());
        busy[5].costs.iter_mut().for_each(|costs| costs.cache = 20.0);
        let slow = failed(&busy, &sizes);
        assert_eq!(slow, ["from reception until taken: each of 5 topics, 2400 Hz / one alone, 2400 Hz"]);
        let steep = failed(&paper, &by_size([6.0, 7.0, 8.0, 9.0, 10.0]));
        assert_eq!(steep, ["T_midapp of 300 bytes / of 20"]);
        let instant = failed(&by_number([0.1, 0.2, 0.3, 0.4, 0.5]), &sizes);
        assert_eq!(instant.len(), 6, "{instant:?}");
    }

    #[test]
    fn noise_that_hides_the_quotient_is_inconclusive_and_nothing_measured_fails() {
        let mut noisy = by_number(PAPER_TOPICS);
        for found in &mut noisy[4..] {
            found.costs.iter_mut().zip([0.5, 0.7, 1.0, 1.4, 2.0]).for_each(|(costs, off)| costs.midapp *= off);
        }
        let sizes = by_size([6.0; 5]);
        assert_eq!(judged(&noisy, &sizes, Verdict::Inconclusive).len(), 4);
        let nothing = |mut found: Vec<Found>| {
            found.iter_mut().for_each(|found| found.costs.clear());
            found
        };
        assert_eq!(judged(&nothing(by_number([1.0; 5])), &nothing(by_size([1.0; 5])), Verdict::Fail).len(), 12);
    }

    #[test]
    fn costs_are_summed_over_the_topics() {
        let way = |n: u64| Way {
            topic: (n % 2) as usize,
            due: n * 1000,
            published: n * 1000,
            sent: n * 1000 + 100,
            received: n * 1000 + 300,
            asked: n * 1000 + 400,
            taken: n * 1000 + 900,
        };
        let run = Run { ways: (0..11).map(way).collect(), sent: 11 };
        let found = Costs::of(&run, 2, [0.3, 0.4].into_iter());
        assert_eq!([found.appmid, found.midapp, found.cache, found.network], [0.7, 1.0, 0.2, 0.2]);
        assert_eq!(found.rate, 1e6);
    }
}
