//! `cpu-contention`: round trips of a channel between two processes while others use the processors, with and without a
//! priority of the channel's threads.
//!
//! Policies are compared on the same processor only: a wake-up on another one costs 20 µs and more by itself, and FIFO
//! spreads threads. The kernel lets no thread with a reservation (DEADLINE) be pinned, so that is compared with OTHER and
//! FIFO on all processors. Priorities are changed on the live channels; a run of one policy follows one of the other.

use super::Experiment;
use super::tally::Tally;
use crate::error::{Error, Result};
use crate::part::{Part, Place};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Skipped, median_ratio};
use crate::run::Lab;
use crate::stalls::{Monitor, Timed};
use crate::trips::{Measure, Priority, Trip, Trips};
use serde_json::Value;
use std::time::Duration;

/// The experiment.
pub struct CpuContention;

/// Sent back by the lab's parts, as all other words.
const LONG: Duration = Duration::from_secs(40);
const CARRIER: &str = "tcp";
const PAYLOAD: usize = 64;
const HOGS: [u32; 3] = [0, 2, 4];
const HZ: f64 = 500.0;
/// FIFO must be this much better at p99 than OTHER pinned alike, with four hogs.
const BETTER: f64 = 10.0;

/// A policy: its name, and what brings it about.
type Arm = (&'static str, &'static str);
const OTHER: Arm = ("other", "sched=default");
const FIFO: Arm = ("fifo:30", "sched=fifo:30");
const DEADLINE: Arm = ("deadline", "sched=deadline:200us/1ms");

impl Experiment for CpuContention {
    fn name(&self) -> &'static str {
        "cpu-contention"
    }

    fn about(&self) -> &'static str {
        "round trips while other programs use the processors: OTHER, FIFO 30 and DEADLINE with 0, 2 and 4 of them"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let cpus: Vec<usize> = linux::sched::read(0)?.affinity.into_iter().map(usize::from).collect();
        let first = *cpus.first().ok_or_else(|| Error::System("no processor may be used".into()))?;
        let mut findings = Findings { notes: notes(first, &cpus), ..Findings::default() };
        let repetitions = if lab.options.tiny { 1 } else { 5 };
        let pinned = Pair::start(lab, "pinned", &[first])?;
        compare(lab, pinned, &[OTHER, FIFO], &HOGS, repetitions, &[first], &mut findings)?;
        let free = Pair::start(lab, "free", &[])?;
        let hogs = if lab.options.quick || lab.options.tiny { &HOGS[2..] } else { &HOGS[..] };
        compare(lab, free, &[OTHER, FIFO, DEADLINE], hogs, repetitions, &cpus, &mut findings)?;
        Ok(findings)
    }
}

fn notes(first: usize, cpus: &[usize]) -> Vec<String> {
    vec![
        format!(
            "ping and pong are two processes, {CARRIER} over loopback, {PAYLOAD} bytes, {HZ} a second, at uneven times; \
             pinned: all threads of both, and the hogs, on processor {first}"
        ),
        format!("hogs are processes at ordinary priority; not pinned: one after the other on processors {cpus:?}"),
        "fifo:30 and deadline are set on the live channels, at both ends: threads of their own send and receive".into(),
        "p99 is compared by pairs of runs that follow each other; samples hit by a stall of the machine are apart"
            .into(),
    ]
}

/// Two processes with a channel each way.
struct Pair {
    name: &'static str,
    trips: Trips,
}

impl Pair {
    fn start(lab: &Lab, name: &'static str, cpus: &[usize]) -> Result<Self> {
        Ok(Self { name, trips: Trips::on_this_host(lab, name, cpus)? })
    }

    fn set(&mut self, lab: &Lab, arm: Arm) -> Result {
        let changes = arm.1.parse().map_err(|e| Error::Usage(format!("{e}")))?;
        self.trips.set_priority(lab, &Priority { carrier: CARRIER.into(), changes }).map(drop)
    }

    fn run(&mut self, lab: &Lab, count: u32, seed: u64) -> Result<Vec<Trip>> {
        let (period, patience) = (Duration::from_secs_f64(1.0 / HZ), Duration::from_secs(1));
        let measure = Measure { carrier: CARRIER.into(), payload: PAYLOAD, count, warmup: 20, period, patience, seed };
        self.trips.measure(lab, &measure)
    }
}

/// Runs every policy with every number of hogs, in turns.
fn compare(
    lab: &Lab,
    mut pair: Pair,
    arms: &[Arm],
    hogs: &[u32],
    repetitions: usize,
    cpus: &[usize],
    findings: &mut Findings,
) -> Result {
    let mut panel = Panel { title: panel_title(&pair), groups: Vec::new() };
    for hogs in hogs {
        let _busy = (0..*hogs).map(|n| hog(lab, cpus[n as usize % cpus.len()])).collect::<Result<Vec<_>>>()?;
        let mut tallies: Vec<Tally> = arms.iter().map(|_| Tally::default()).collect();
        let mut refused: Vec<Option<String>> = vec![None; arms.len()];
        for repetition in 0..repetitions {
            lab.tell(&format!("{}, {hogs} hogs, repetition {} of {repetitions}", pair.name, repetition + 1));
            for turn in 0..arms.len() {
                let index = (turn + repetition) % arms.len();
                refused[index] = once(lab, &mut pair, arms[index], &mut tallies[index])?;
            }
        }
        note(&pair, arms, *hogs, &tallies, &refused, findings);
        panel.groups.push(group(*hogs, arms, &tallies));
    }
    let figure = &mut findings.figure;
    *figure = Figure {
        title: "Round trips while other programs use the processors".into(),
        axis: "round trip, µs: median, p99 marked".into(),
        logarithmic: true,
        panels: std::mem::take(&mut figure.panels),
    };
    figure.panels.push(panel);
    Ok(())
}

fn panel_title(pair: &Pair) -> String {
    if pair.name == "pinned" { "pinned to one processor".into() } else { "on all processors".into() }
}

/// One run of one policy; why the kernel refused it, if it did.
fn once(lab: &Lab, pair: &mut Pair, arm: Arm, tally: &mut Tally) -> Result<Option<String>> {
    match pair.set(lab, arm) {
        Err(Error::System(why)) | Err(Error::Failed(why)) if arm.0 == DEADLINE.0 => return Ok(Some(why)),
        other => other?,
    }
    let count = if lab.options.tiny { 30 } else { 500 };
    let monitor = Monitor::start()?;
    let trips = pair.run(lab, count, lab.options.seed + tally.repetitions.len() as u64)?;
    let back = |trip: &Trip| trip.took_ns.map(|ns| Timed { from_ns: trip.sent_ns, ns });
    tally.add(trips.len() as u64, &trips.iter().filter_map(back).collect::<Vec<_>>(), &monitor.finish());
    Ok(None)
}

fn hog(lab: &Lab, cpu: usize) -> Result<Part> {
    let mut hog = Part::start(lab, Place { namespace: None, processors: vec![cpu] }, "hog", &())?;
    hog.hear::<Value>(lab, LONG)?;
    Ok(hog)
}

fn note(pair: &Pair, arms: &[Arm], hogs: u32, tallies: &[Tally], refused: &[Option<String>], findings: &mut Findings) {
    for ((arm, tally), refused) in arms.iter().zip(tallies).zip(refused) {
        let factors = Factors::new()
            .with("arm", if arm.0 == OTHER.0 { "normal" } else { "qos" })
            .with("policy", arm.0)
            .with("hogs", hogs)
            .with("pinned", pair.name == "pinned")
            .with("measured", CARRIER)
            .with("payload_bytes", PAYLOAD);
        if let Some(because) = refused {
            let name = format!("{}, {} with {hogs} hogs", pair.name, arm.0);
            findings.skipped.push(Skipped { name, because: because.clone() });
            continue;
        }
        findings.cells.push(tally.cell(factors, true));
        if hogs == HOGS[2] && arm.0 != OTHER.0 {
            let better = median_ratio(&tallies[0].pairs(tally, |d| d.p99));
            let what = format!("p99 of OTHER / p99 of {} with {hogs} hogs, {}", arm.0, pair.name);
            // Processors differ by themselves: only what is pinned alike is judged by the whole factor.
            let limit = if pair.name == "pinned" { BETTER } else { 1.0 };
            findings.checks.push(Check::at_least(what, better, limit));
            let what = format!("samples lost by {} with {hogs} hogs, {}", arm.0, pair.name);
            findings.checks.push(Check::at_most(what, tally.lost() as f64, 0.0));
        }
    }
}

fn group(hogs: u32, arms: &[Arm], tallies: &[Tally]) -> Group {
    let bar = |(arm, tally): (&Arm, &Tally)| {
        let found = tally.all()?;
        Some(Bar { series: arm.0.into(), value: found.p50, deviation: 0.0, mark: Some(found.p99) })
    };
    Group { label: format!("{hogs} hogs"), bars: arms.iter().zip(tallies).filter_map(bar).collect() }
}
