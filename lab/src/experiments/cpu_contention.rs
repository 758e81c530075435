//! `cpu-contention`: round trips of a channel between two processes while others use the processors, with and without a
//! priority of the channel's threads.
//!
//! Policies are compared on the same processor only: a wake-up on another one costs 20 µs and more by itself, and
//! FIFO spreads threads. The kernel does not let a thread with a reservation (DEADLINE) be pinned, so that is
//! compared with OTHER and FIFO on all processors. Priorities are set on live channels; runs of the policies follow
//! each other in turns.

use super::{Experiment, Tally};
use crate::error::{Error, Result};
use crate::lab::{Feature, Lab, Size};
use crate::part::Hog;
use crate::results::{Check, Factors, Figure, Findings, Group, Panel, Skipped};
use crate::round_trips::{Measure, PingPong, Priority};
use crate::stalls::Monitor;
use crate::statistics::median_ratio;
use std::time::Duration;

/// The experiment.
pub(super) struct CpuContention;

/// Sent back by the lab's parts, as all other words.
const CARRIER: &str = "tcp";
const PAYLOAD: usize = 64;
const HOGS: [u32; 3] = [0, 2, 4];
const HZ: f64 = 500.0;
/// FIFO must be this much better at p99 than OTHER pinned alike, with four hogs.
const BETTER: f64 = 10.0;
/// The same in `--ci` size, which tells a policy that is set from one that is not: 5.5 to 12 and 1.0 to 1.1 were seen. What OTHER waits are slices, 2 ms
/// on each machine; what FIFO takes depends on the processor, so that slow ones miss the target.
const SET: f64 = 3.0;

/// A policy: its name, and the words that set it.
type Arm = (&'static str, &'static str);
const OTHER: Arm = ("other", "sched=default");
const FIFO: Arm = ("fifo:30", "sched=fifo:30");
const DEADLINE: Arm = ("deadline", "sched=deadline:100us/1ms");

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
        let size = lab.options.size;
        let repetitions = match size {
            Size::Tiny => 1,
            Size::Ci => 3,
            Size::Quick | Size::Whole => 5,
        };
        let pinned = Pairs::start(lab, "pinned", &[OTHER, FIFO], &[first])?;
        let hogs = if size == Size::Ci { &HOGS[2..] } else { &HOGS[..] };
        compare(lab, pinned, hogs, repetitions, &[first], &mut findings)?;
        if size == Size::Ci {
            return Ok(findings);
        }
        let free = Pairs::start(lab, "free", &[OTHER, FIFO, DEADLINE], &[])?;
        let hogs = if size < Size::Whole { &HOGS[2..] } else { &HOGS[..] };
        compare(lab, free, hogs, repetitions, &cpus, &mut findings)?;
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
        "p99 is compared by pairs of runs that follow each other; samples hit by a stall of the machine are counted, and left in"
            .into(),
    ]
}

/// Two processes with a channel each way, for each policy.
struct Pairs {
    name: &'static str,
    all: Vec<Pair>,
}

/// The processes of one policy, or the kernel's refusal.
struct Pair {
    arm: Arm,
    ping_pong: std::result::Result<PingPong, String>,
}

impl Pairs {
    fn start(lab: &Lab, name: &'static str, arms: &[Arm], cpus: &[usize]) -> Result<Self> {
        let all = arms.iter().map(|arm| Pair::start(lab, name, *arm, cpus)).collect::<Result<_>>()?;
        Ok(Self { name, all })
    }
}

impl Pair {
    /// Connected first, and then given the priority.
    fn start(lab: &Lab, name: &str, arm: Arm, cpus: &[usize]) -> Result<Self> {
        let realm = format!("{name}-{}", arm.0.replace(':', "-"));
        let mut ping_pong = PingPong::on_this_host(lab, &realm, cpus)?;
        let words = if lab.options.without == Some(Feature::Threads) { OTHER.1 } else { arm.1 };
        let changes = words.parse().map_err(|e| Error::Usage(format!("{e}")))?;
        let ping_pong = match ping_pong.set_priority(lab, &Priority { route: CARRIER.into(), changes, back: None }) {
            Ok(_) => Ok(ping_pong),
            // A reservation is admitted or not: other programs may have theirs.
            Err(Error::System(why) | Error::Failed(why)) if arm.0 == DEADLINE.0 => Err(why),
            Err(error) => return Err(error),
        };
        Ok(Self { arm, ping_pong })
    }

    /// One run.
    fn run(&mut self, lab: &Lab, tally: &mut Tally) -> Result {
        let Ok(ping_pong) = &mut self.ping_pong else { return Ok(()) };
        let count = match lab.options.size {
            Size::Tiny => 30,
            Size::Ci => 300,
            Size::Quick | Size::Whole => 500,
        };
        let (period, patience) = (Duration::from_secs_f64(1.0 / HZ), Duration::from_secs(1));
        let seed = lab.options.seed + tally.repetitions.len() as u64;
        let measure = Measure { route: CARRIER.into(), payload: PAYLOAD, count, warmup: 20, period, patience, seed };
        let monitor = Monitor::start()?;
        let trips = ping_pong.measure(lab, &measure)?;
        tally.add_trips(&trips, &monitor.finish());
        Ok(())
    }
}

/// Runs every policy with every number of hogs, in turns.
fn compare(
    lab: &Lab,
    mut pairs: Pairs,
    hogs: &[u32],
    repetitions: usize,
    cpus: &[usize],
    findings: &mut Findings,
) -> Result {
    let mut panel = Panel { title: panel_title(&pairs), groups: Vec::new() };
    for hogs in hogs {
        let _busy =
            (0..*hogs).map(|n| Hog::Ordinary.start(lab, cpus[n as usize % cpus.len()])).collect::<Result<Vec<_>>>()?;
        let mut tallies: Vec<Tally> = pairs.all.iter().map(|_| Tally::default()).collect();
        for repetition in 0..repetitions {
            lab.tell(&format!("{}, {hogs} hogs, repetition {} of {repetitions}", pairs.name, repetition + 1));
            for turn in 0..pairs.all.len() {
                let index = (turn + repetition) % pairs.all.len();
                pairs.all[index].run(lab, &mut tallies[index])?;
            }
        }
        let limit = if lab.options.size < Size::Quick { SET } else { BETTER };
        note(&pairs, *hogs, limit, &tallies, findings);
        panel.groups.push(group(*hogs, &pairs, &tallies));
    }
    let panels = [std::mem::take(&mut findings.figure.panels), vec![panel]].concat();
    findings.figure = Figure {
        title: "Round trips while other programs use the processors".into(),
        axis: "Round trip in µs".into(),
        logarithmic: true,
        panels,
    };
    Ok(())
}

fn panel_title(pairs: &Pairs) -> String {
    if pairs.name == "pinned" { "pinned to one processor".into() } else { "on all processors".into() }
}

fn note(pairs: &Pairs, hogs: u32, limit: f64, tallies: &[Tally], findings: &mut Findings) {
    for (pair, tally) in pairs.all.iter().zip(tallies) {
        let (policy, place) = (pair.arm.0, pairs.name);
        if let Err(because) = &pair.ping_pong {
            let name = format!("{place}, {policy} with {hogs} hogs");
            findings.skipped.push(Skipped { name, because: because.clone() });
            continue;
        }
        let factors = Factors::new()
            .with("arm", if policy == OTHER.0 { "normal" } else { "qos" })
            .with("policy", policy)
            .with("hogs", hogs)
            .with("pinned", place == "pinned")
            .with("measured", CARRIER)
            .with("payload_bytes", PAYLOAD);
        findings.cells.push(tally.cell(factors, true));
        if hogs == HOGS[2] && policy != OTHER.0 {
            findings.checks.extend(judge(policy, place, limit, [&tallies[0], tally]));
        }
    }
}

/// A policy beside OTHER, with the most hogs. Wake-ups on other processors cost by themselves: the limit applies only to runs that are
/// pinned alike.
fn judge(policy: &str, place: &str, limit: f64, [other, tally]: [&Tally; 2]) -> [Check; 2] {
    let beside = format!("with {} hogs, {place}", HOGS[2]);
    let better = median_ratio(&other.pairs(tally, |d| d.p99));
    let limit = if place == "pinned" { limit } else { 1.0 };
    [
        Check::at_least(format!("p99 of OTHER / p99 of {policy} {beside}"), better, limit),
        Check::at_most(format!("samples lost by {policy} {beside}"), tally.missing(), 0.0),
    ]
}

fn group(hogs: u32, pairs: &Pairs, tallies: &[Tally]) -> Group {
    let bar = |(pair, tally): (&Pair, &Tally)| tally.bar(pair.arm.0);
    Group { label: format!("{hogs} hogs"), bars: pairs.all.iter().zip(tallies).filter_map(bar).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    /// Three runs in which of ten round trips so many came, and took this long.
    fn tally(us: u64, came: usize) -> Tally {
        let mut tally = Tally::default();
        for _ in 0..3 {
            tally.add(10, &vec![Timed { from_ns: 0, ns: us * 1000 }; came], &Stalls::default());
        }
        tally
    }

    #[test]
    fn a_policy_that_does_not_help_and_one_that_loses_fail() {
        let passes = |place: &str, other: Tally, fifo: Tally| {
            judge("fifo:30", place, BETTER, [&other, &fifo]).map(|check| check.pass)
        };
        assert_eq!(passes("pinned", tally(1000, 10), tally(100, 10)), [true, true]);
        assert_eq!(passes("pinned", tally(990, 10), tally(100, 10)), [false, true]);
        assert_eq!(passes("free", tally(990, 10), tally(100, 10)), [true, true]);
        assert_eq!(passes("free", tally(99, 10), tally(100, 10)), [false, true]);
        assert_eq!(passes("pinned", tally(1000, 10), tally(100, 9)), [true, false]);
        assert_eq!(passes("pinned", Tally::default(), Tally::default()), [false, false], "nothing was measured");
    }
}
