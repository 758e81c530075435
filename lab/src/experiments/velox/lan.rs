//! `velox-lan` (V-52): one publisher and one subscriber on two hosts behind a switch: Velox's model and the planner's
//! bound beside measurements, by size.

use super::{Testbed, stream};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines};
use crate::lab::Lab;
use crate::prediction::{delay_us, plan, text};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::statistics::{Distribution, median};
use crate::topology::{Line, Topology};
use qos::plan::Model;
use std::time::Duration;
use thalweg::stages::End;

/// The experiment.
pub(crate) struct VeloxLan;

/// The set-up as a contract.
const CONTRACT: &str = include_str!("../../../../examples/velox-lan.toml");
const TOPIC: &str = "simulation";
/// Bytes: those of V-50, a frame's, and a sample of several packets.
const SIZES: [usize; 5] = [20, 300, 1024, 4096, 16384];
const HZ: f64 = 200.0;
/// Bytes of samples that surely fit in one packet.
const PACKET: usize = 1400;
/// Both links, in bit/s.
const RATE: u64 = 100_000_000;

impl Experiment for VeloxLan {
    fn name(&self) -> &'static str {
        "velox-lan"
    }

    fn about(&self) -> &'static str {
        "two hosts behind a switch: Velox's model, the planner's bound and what is measured"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (repetitions, ms) = match () {
            () if lab.options.tiny => (1, 100),
            () if lab.options.quick => (5, 1000),
            () => (9, 5000),
        };
        let mut topology = Topology::switch(lab, 2, &[1, 2].map(|host| Line::of(host, RATE)))?;
        let processor = linux::sched::read(0)?.affinity.first().copied().map(usize::from);
        let mut found = Vec::new();
        for (number, size) in SIZES.into_iter().enumerate() {
            lab.tell(&format!("{size} bytes"));
            let streams = [stream(&format!("/{TOPIC}"), size, HZ)];
            let mut testbed = Testbed::across(lab, &topology, number, &streams, &Vec::from_iter(processor))?;
            testbed.real_time(lab)?;
            let mut one = Found::default();
            testbed.run(lab, Duration::from_millis(ms), &mut Tally::default())?;
            for _ in 0..repetitions {
                testbed.stages(lab)?; // from nothing
                testbed.run(lab, Duration::from_millis(ms), &mut one.tally)?;
                let stages = testbed.stages(lab)?;
                one.stages.extend(stages.first().map(|[publisher, subscriber]| {
                    let sent = |stage| publisher.mean_us(End::Publisher, stage);
                    [sent("publish"), sent("send"), subscriber.mean_us(End::Subscriber, "decode")]
                }));
            }
            found.push(one);
        }
        let mut findings = judge(&found)?;
        lines::judge("all sizes", &topology.end_lines(), &mut findings);
        Ok(findings)
    }
}

/// Results of one size: latencies, and in each repetition the mean T_appmid, 1/μ and T_midapp.
#[derive(Debug, Default)]
struct Found {
    tally: Tally,
    stages: Vec<[f64; 3]>,
}

impl Found {
    /// The median of the repetitions, in µs.
    fn stage(&self, at: usize) -> f64 {
        median(&self.stages.iter().map(|stages| stages[at]).collect::<Vec<_>>())
    }

    /// The planner's figures for a sample of this size: the mean of the queueing model, and the bound.
    fn predicted(&self, size: usize) -> Result<[f64; 2]> {
        let time = |key, us: f64| {
            text("topic", TOPIC, key, &format!("{:.3} us", if us.is_finite() { us.max(0.001) } else { 0.001 }))
        };
        let changes = [
            text("topic", TOPIC, "size", &format!("{size} B")),
            time("hand_in", self.stage(0)),
            time("service", self.stage(1)),
            time("hand_out", self.stage(2)),
        ];
        let of = |model| plan(CONTRACT, &changes, model).map(|plan| delay_us(&plan, TOPIC));
        Ok([of(Model::Mm1)?, of(Model::Bound)?])
    }
}

fn judge(found: &[Found]) -> Result<Findings> {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    let heads = [
        "bytes",
        "T_appmid",
        "1/μ",
        "T_midapp",
        "model mm1",
        "measured mean",
        "largest",
        "less stalls",
        "bound",
        "bound / that",
    ];
    let mut table = Table::new("Latency in µs: model, measured, bound", &heads);
    let mut groups = Vec::new();
    for (size, one) in SIZES.into_iter().zip(found) {
        let [model, bound] = one.predicted(size)?;
        let factors = Factors::new().with("arm", "lan").with("payload_bytes", size).with("measured", super::CARRIER);
        let cell = one.tally.cell(factors, false);
        let figure = |of: fn(&Distribution) -> f64| cell.latency_us.as_ref().map_or(f64::NAN, of);
        let on_both = if size < PACKET { 2 } else { 1 }; // of more than a packet, the last one crosses the second line alone
        let of = format!("{size} bytes");
        lines::judge_idle(&of, figure(|d| d.min), size, &vec![RATE; on_both], &mut findings);
        let (mean, max) = (figure(|d| d.mean), one.tally.without_stalls());
        table.row(
            size.to_string(),
            &[one.stage(0), one.stage(1), one.stage(2), model, mean, one.tally.largest(), max, bound, bound / max],
        );
        findings.checks.push(Check::at_most(format!("{size} bytes: lost"), one.tally.lost() as f64, 0.0));
        findings.checks.push(
            Check::at_most(
                format!("{size} bytes: the largest latency without stalls of the machine, µs (limit: the bound)"),
                max,
                bound,
            )
            .less_stalls(one.tally.largest()),
        );
        findings.checks.push(Check::at_most(
            format!("{size} bytes: the model's mean, µs (limit: the bound)"),
            model,
            bound,
        ));
        let bar =
            |series: &str, value: f64, mark: Option<f64>| Bar { series: series.into(), value, deviation: 0.0, mark };
        let measured = Bar { deviation: figure(|d| d.stdev), ..bar("measured", mean, None) };
        let bound = bar("bound, and the largest", bound, Some(max).filter(|us| us.is_finite()));
        groups.push(Group { label: format!("{size} B"), bars: vec![bar("model mm1", model, None), measured, bound] });
        findings.cells.push(cell);
    }
    findings.tables.push(table);
    findings.figure = Figure {
        title: "Two hosts behind a switch: model, measured, bound".into(),
        axis: "Latency in µs".into(),
        logarithmic: true,
        panels: vec![Panel { title: String::new(), groups }],
    };
    Ok(findings)
}

fn notes() -> Vec<String> {
    vec![
        format!("{HZ} Hz by tcp from one host to another, threads FIFO 30 as planned; 100 Mbit/s behind the switch; latency from publish to the receiving thread"),
        "model: M/M/1 (V-22, V-33) with T_appmid, 1/μ and T_midapp as measured; it knows no threads that wake up, so what is above it is theirs".into(),
        "bound: examples/velox-lan.toml with 200 µs of computing at either end; the largest is less what stalls of the machine, and what they had left waiting, may have taken of it".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    /// Every sample takes so many times what the lines take.
    fn found(times: f64) -> Vec<Found> {
        let one = |size: &usize| {
            let mut one = Found { stages: vec![[2.0, 10.0, 3.0]], ..Found::default() };
            let crossed = if *size < PACKET { 2.0 } else { 1.0 };
            let ns = (times * crossed * lines::transmission_us(*size, RATE) * 1000.0) as u64;
            one.tally.add(3, &[Timed { from_ns: 0, ns }; 3], &Stalls::default());
            one
        };
        SIZES.iter().map(one).collect()
    }

    #[test]
    fn latencies_above_the_bound_fail_and_others_pass() {
        let well = judge(&found(1.2)).unwrap();
        assert!(well.checks.iter().all(|check| check.pass), "{:#?}", well.checks);
        let late = judge(&found(50.0)).unwrap();
        assert_eq!(late.checks.iter().filter(|check| !check.pass).count(), SIZES.len(), "{:#?}", late.checks);
    }

    #[test]
    fn an_empty_measurement_passes_no_bound() {
        let nothing = judge(&SIZES.map(|_| Found::default())).unwrap();
        assert!(nothing.checks.iter().filter(|check| check.name.contains("largest")).all(|check| !check.pass));
    }
}
