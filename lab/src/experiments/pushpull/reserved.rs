//! Experiment 5 with reservations (P-12, P-70, P-73): processor time only, network only, both; each beside the same load.
//!
//! Threads are not pinned here: the kernel wants those with a reservation allowed on all processors. So programs that compute
//! without pause run on each of them, and the arms have a testbed of their own. Reservations and shares of links are those of the plan of
//! `examples/pushpull-5.toml`, whose bound stands beside the measurement.

use super::{Amount, processors};
use crate::error::{Error, Result};
use crate::experiments::{Tally, lines};
use crate::lab::{Feature, Lab, Size};
use crate::load::{Generator, Load, Pattern, Protocol, Sink};
use crate::part::{Hog, Measured, Place};
use crate::prediction::{plan, text};
use crate::results::{Check, Factors, Findings, Group, Panel, Skipped, Table};
use crate::round_trips::{Measure, PING, PONG, PingPong, Priority};
use crate::stalls::Monitor;
use crate::statistics::{median, median_ratio};
use crate::topology::{DEVICE, Line, Queue, Topology, Wire};
use qos::plan::{Channel, Model, Plan};
use qos::priority::Changes;
use std::time::Duration;
use thalweg::stages::End;

const CONTRACT: &str = include_str!("../../../../examples/pushpull-5.toml");
const CARRIER: &str = "tcp";
/// Of a sample, as in the contract.
const BYTES: usize = 4096;
const RATE: u64 = 100_000_000;
/// Load in percent of the link's rate: the contract's background.
const PERCENT: u64 = 88;
/// Packets of a burst: 7 ms of the link.
const BURST: u32 = 60;
/// Programs that compute, for each processor.
const HOGS: usize = 2;
/// The least that the load lengthens p99 without a reservation: the lower end of the paper's factors.
const UNRESERVED: f64 = 5.0;
/// The most that it may with both, and what each half alone exceeds.
const RESERVED: f64 = 1.5;

/// An arm: the load is there, the threads are reserved, the classes of the queues count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arm {
    name: &'static str,
    loaded: bool,
    threads: bool,
    queues: bool,
}

const fn arm(name: &'static str, loaded: bool, threads: bool, queues: bool) -> Arm {
    Arm { name, loaded, threads, queues }
}

const ARMS: [Arm; 5] = [
    arm("unloaded", false, false, false),
    arm("nothing reserved", true, false, false),
    arm("processor time reserved", true, true, false),
    arm("network reserved", true, false, true),
    arm("both reserved", true, true, true),
];
const BOTH: usize = 4;

impl Arm {
    /// With a feature left out (`--without`), which must fail.
    fn without(self, feature: Option<Feature>) -> Self {
        Self {
            threads: self.threads && feature != Some(Feature::Threads),
            queues: self.queues && feature != Some(Feature::Marks),
            ..self
        }
    }
}

struct ReservedTestbed {
    ping_pong: PingPong,
    generator: Generator,
    _sink: Sink,
    plan: Plan,
    topology: Topology, // after the parts: they end first
}

/// Runs all arms, and adds what was found. A kernel that does not admit the reservations leaves them out, with its reason.
pub(super) fn run(lab: &Lab, findings: &mut Findings) -> Result {
    let (repetitions, count) = match lab.options.size {
        Size::Tiny => (1, 10),
        // Too few samples to judge a p99; and a host may admit no reservation.
        Size::Ci => return Ok(()),
        Size::Quick => (5, 200),
        Size::Whole => (9, 400),
    };
    let period = Duration::from_millis(8);
    let amount = Amount { count, warmup: 10, period, patience: Duration::from_secs(3) };
    let mut testbed = ReservedTestbed::build(lab)?;
    let mut found: [Found; ARMS.len()] = Default::default();
    for repetition in 0..repetitions {
        for turn in 0..ARMS.len() {
            let index = (turn + repetition) % ARMS.len();
            let arm = ARMS[index].without(lab.options.without);
            lab.tell(&format!("repetition {} of {repetitions}, {}", repetition + 1, ARMS[index].name));
            if let Err(refused) = testbed.run(lab, arm, amount, &mut found[index]) {
                // Reservations belong to the machine: other programs may have theirs.
                let Error::System(because) = refused else { return Err(refused) };
                findings.skipped.push(Skipped { name: ARMS[index].name.into(), because });
                return Ok(());
            }
        }
    }
    judge(&found, &testbed.plan, findings);
    lines::judge("reserved arms", &testbed.topology.end_lines(), findings);
    Ok(())
}

/// The results of an arm.
#[derive(Default)]
struct Found {
    tally: Tally,
    /// The load that was really there, in Mbit/s.
    offered: Vec<f64>,
    /// Means of Table 4's components, of the way there and back, µs: computing at the sender and at the receiver.
    computed: Vec<[[f64; 2]; 2]>,
}

impl ReservedTestbed {
    fn build(lab: &Lab) -> Result<Self> {
        let (_, other) = processors()?;
        let lines = [1, 2].map(|host| Line::of(host, RATE).on(other as u16));
        let topology = Topology::router(lab, 2, &lines)?;
        let ping_pong = PingPong::acknowledged(lab, "reserved", &topology, [1, 2], [&[], &[]], BYTES)?;
        // The load is there whatever else computes.
        let place = |host| Place::at(topology.host(host), &[other]).first();
        let sink = Sink::new(lab, place(2), Topology::address_of(2))?;
        let generator = Generator::new(lab, place(1), sink.target)?;
        let plan = plan(CONTRACT, &[], Model::Bound)?;
        Ok(Self { ping_pong, generator, _sink: sink, plan, topology })
    }

    fn run(&mut self, lab: &Lab, arm: Arm, amount: Amount, found: &mut Found) -> Result {
        self.prepare(lab, arm)?;
        let mut hogs = Vec::new();
        if arm.loaded {
            let (rate, pattern, seed) = (RATE * PERCENT / 100, Pattern::Bursts(BURST), lab.options.seed);
            self.generator.start(lab, &Load { protocol: Protocol::Udp, rate, pattern, gso: true, seed })?;
            for processor in <[usize; 2]>::from(processors()?) {
                for _ in 0..HOGS {
                    hogs.push(Hog::Ordinary.start(lab, processor)?);
                }
            }
        }
        let Amount { count, warmup, period, patience } = amount;
        let seed = lab.options.seed + found.tally.repetitions.len() as u64;
        let measure = Measure { route: CARRIER.into(), payload: BYTES, count, warmup, period, patience, seed };
        self.stages(lab)?; // from nothing
        let monitor = Monitor::start()?;
        let trips = self.ping_pong.measure(lab, &measure)?;
        found.tally.add_trips(&trips, &monitor.finish());
        found.computed.push(self.stages(lab)?);
        drop(hogs);
        if arm.loaded {
            found.offered.push(self.generator.stop(lab)?.mbit());
        }
        Ok(())
    }

    /// Queues, marks and threads of an arm.
    fn prepare(&mut self, lab: &Lab, arm: Arm) -> Result {
        let queue = if arm.queues { Queue::Shares(shares(&self.plan)) } else { Queue::Fifo };
        let wire = Wire { rate: RATE, limit: 100, queue };
        wire.install(self.topology.host(1), DEVICE)?;
        wire.install(self.topology.middle()?, &Topology::leads_to(2))?;
        let class = if arm.queues { "critical" } else { "default" };
        let words = |sched: &Option<String>| {
            let sched = sched.as_deref().filter(|_| arm.threads).unwrap_or("default");
            let words = format!("class={class} sched={sched}");
            words.parse::<Changes>().map_err(|e| Error::Usage(format!("{words}: {e}")))
        };
        let channel = |topic: &str| self.plan.channels.iter().find(|channel| channel.topic == topic);
        let (Some(there), Some(back)) = (channel("there"), channel("back")) else {
            return Err(Error::Failed("the experiment's own contract has other topics".into()));
        };
        let of = |there: &Option<String>, back: &Option<String>| -> Result<Priority> {
            Ok(Priority { route: CARRIER.into(), changes: words(there)?, back: Some(words(back)?) })
        };
        let (ping, pong) = (of(&there.sched_publisher, &back.sched)?, of(&there.sched, &back.sched_publisher)?);
        self.ping_pong.set_priorities(lab, [&ping, &pong]).map(drop)
    }

    /// Computing at the sender and at the receiver since the last call, there and back.
    fn stages(&mut self, lab: &Lab) -> Result<[[f64; 2]; 2]> {
        let computed = |[sender, receiver]: [&Measured; 2]| {
            let sum =
                |of: &Measured, end, stages: &[&str]| stages.iter().map(|stage| of.mean_us(end, stage)).sum::<f64>();
            let send = sum(sender, End::Publisher, &["publish", "queue", "send"]);
            [send, sum(receiver, End::Subscriber, &["decode", "callback"])]
        };
        let [ping, pong] = self.ping_pong.stages(lab, CARRIER, PING)?;
        let [ping_back, pong_back] = self.ping_pong.stages(lab, CARRIER, PONG)?;
        Ok([computed([&ping, &pong]), computed([&pong_back, &ping_back])])
    }
}

/// The shares of the plan's links, in percent.
fn shares(plan: &Plan) -> [u64; 4] {
    plan.links.first().and_then(|link| link.shares).unwrap_or([0.25; 4]).map(|share| (share * 100.0).round() as u64)
}

fn judge(found: &[Found; ARMS.len()], plan: &Plan, findings: &mut Findings) {
    let against = |index: usize| median_ratio(&found[index].tally.pairs(&found[0].tally, |d| d.p99));
    let p99 = |index: usize| median(&found[index].tally.each(|d| d.p99));
    let bound = whole(plan);
    let mut table = Table::new(
        "Experiment 5 with reservations: p99 of round trips of 4096 bytes, and the longest by analysis",
        &["", "p99, us", "times the unloaded", "predicted, us"],
    );
    let mut bars = Vec::new();
    for (index, (arm, found)) in ARMS.iter().zip(found).enumerate() {
        let factors = Factors::new().with("arm", arm.name).with("measured", CARRIER).with("payload_bytes", BYTES);
        findings.cells.push(found.tally.cell(factors, true));
        bars.extend(found.tally.bar(arm.name));
        let predicted = match index {
            0 => predicted(found).unwrap_or(f64::NAN),
            BOTH => bound,
            _ => f64::NAN,
        };
        table.row(arm.name.to_owned(), &[p99(index), against(index), predicted]);
    }
    findings.tables.push(table);
    findings
        .figure
        .panels
        .push(Panel { title: "With reservations".into(), groups: vec![Group { label: format!("{BYTES} B"), bars }] });
    let quick = |check: Check| check.judged_from(Size::Quick);
    let name = |index: usize| format!("p99 {} / unloaded", ARMS[index].name);
    findings.checks.push(quick(Check::at_least(name(1), against(1), UNRESERVED)));
    for half in [2, 3] {
        findings.checks.push(quick(Check::at_least(
            format!("{}: not enough alone", name(half)),
            against(half),
            RESERVED,
        )));
    }
    findings.checks.push(quick(Check::at_most(name(BOTH), against(BOTH), RESERVED)));
    findings.checks.push(quick(Check::at_most("p99 with both reserved / bound of the plan", p99(BOTH) / bound, 1.0)));
    let lost: f64 = found.iter().map(|found| found.tally.missing()).sum();
    findings.checks.push(Check::at_most("lost in the reserved arms", lost, 0.0));
    // Of more than a packet, the last one crosses the second line alone.
    lines::judge_idle("unloaded, round trip", found[0].tally.least(), BYTES, &[RATE; 2], findings);
    let least = found.iter().flat_map(|found| &found.offered).copied().fold(f64::INFINITY, f64::min);
    let wanted = (RATE * PERCENT / 100) as f64 / 1e6;
    findings.checks.push(quick(Check::at_least("least load really offered, Mbit/s", least, 0.9 * wanted)));
    findings.tables.push(components(found, plan));
    findings.notes.extend(notes(plan));
}

/// The bound of the whole round trip.
fn whole(plan: &Plan) -> f64 {
    plan.chains.first().and_then(|chain| chain.bound_us).unwrap_or(f64::NAN)
}

/// The longest round trip without load by response times (`rta`), from Table 4's components as measured in this arm. The kernel's work is in
/// none of them.
fn predicted(found: &Found) -> Option<f64> {
    let us = |way: usize, end: usize| {
        let mean = median(&found.computed.iter().map(|all| all[way][end]).collect::<Vec<_>>());
        mean.is_finite().then(|| format!("{:.1} us", mean.max(0.1)))
    };
    let mut changes = Vec::new();
    for (way, topic, subscriber) in [(0, "there", "/there"), (1, "back", "/back")] {
        changes.push(text("topic", topic, "cpu_send", &us(way, 0)?));
        changes.push(text("topic", topic, "sched", "priority"));
        changes.push(text("subscriber", subscriber, "cpu_receive", &us(way, 1)?));
    }
    plan(CONTRACT, &changes, Model::Rta).ok().map(|plan| whole(&plan))
}

/// Table 4's components as measured, beside the contract's execution times.
fn components(found: &[Found; ARMS.len()], plan: &Plan) -> Table {
    let mut table = Table::new(
        "Computing of each thread: mean as measured, in us, and declared",
        &["", "sending there", "receiving there", "sending back", "receiving back"],
    );
    for (arm, found) in ARMS.iter().zip(found) {
        let mean = |way: usize, end: usize| median(&found.computed.iter().map(|all| all[way][end]).collect::<Vec<_>>());
        table.row(arm.name.to_owned(), &[mean(0, 0), mean(0, 1), mean(1, 0), mean(1, 1)]);
    }
    let declared = |channel: &Channel, step: &str| {
        channel.derivation.iter().filter(|term| term.name.ends_with(step)).map(|term| term.us).sum::<f64>()
    };
    let both = |topic: &str| {
        let channel = plan.channels.iter().find(|channel| channel.topic == topic);
        channel.map_or([f64::NAN; 2], |channel| [declared(channel, ": sending"), declared(channel, ": receiving")])
    };
    table.row("declared".to_owned(), &[both("there"), both("back")].concat());
    table
}

fn notes(plan: &Plan) -> Vec<String> {
    let thread = |channel: &Channel| {
        let word = |sched: &Option<String>| sched.clone().unwrap_or_default();
        format!("{}: {} → {}", channel.topic, word(&channel.sched_publisher), word(&channel.sched))
    };
    let threads: Vec<String> = plan.channels.iter().map(thread).collect();
    vec![
        format!(
            "Reserved arms: {HOGS} programs that compute without pause on each processor, at ordinary priority; UDP at {PERCENT} % of \
             {} Mbit/s in bursts of {BURST} packets from the publisher's host to the subscriber's. Threads are not pinned.",
            RATE / 1_000_000
        ),
        format!(
            "The plan of examples/pushpull-5.toml reserves {} (SCHED_DEADLINE), and shares of {:?} % for low, normal, high and critical \
             (htb) at the sender's device and at the router's port. What the kernel does in interrupts is reserved for nobody.",
            threads.join("; "),
            shares(plan)
        ),
        "The paper announces these results and does not print them (§3.3.9).".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    /// The checks that fail if all round trips of each arm take so many µs.
    fn failed(us: [u64; ARMS.len()]) -> Vec<String> {
        let plan = plan(CONTRACT, &[], Model::Bound).unwrap();
        let found = us.map(|us| {
            let mut tally = Tally::default();
            tally.add(3, &[Timed { from_ns: 0, ns: us * 1000 }; 3], &Stalls::default());
            Found { tally, offered: vec![88.0], computed: vec![[[1.0; 2]; 2]] }
        });
        let mut findings = Findings::default();
        judge(&found, &plan, &mut findings);
        findings.checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
    }

    #[test]
    fn only_both_reservations_keep_round_trips_short() {
        assert_eq!(failed([2000, 10_000, 6000, 8000, 3000]), Vec::<String>::new());
        let says = |us| failed(us).join("; ");
        assert_eq!(says([2000, 9900, 6000, 8000, 3000]), "p99 nothing reserved / unloaded");
        assert_eq!(says([2000, 10_000, 2900, 8000, 3000]), "p99 processor time reserved / unloaded: not enough alone");
        assert_eq!(says([2000, 10_000, 6000, 2900, 3000]), "p99 network reserved / unloaded: not enough alone");
        assert_eq!(says([2000, 10_000, 6000, 8000, 3100]), "p99 both reserved / unloaded");
        assert_eq!(says([20_000, 100_000, 60_000, 80_000, 30_000]), "p99 with both reserved / bound of the plan");
        // Faster than the lines carry it.
        let fast = says([100, 10_000, 6000, 8000, 140]);
        assert!(fast.starts_with("unloaded, round trip") && !fast.contains(';'), "{fast}");
    }

    #[test]
    fn response_times_follow_the_measured_components() {
        let of = |us| predicted(&Found { computed: vec![[[us; 2]; 2]], ..Found::default() }).unwrap();
        // Four threads, the two of the way back behind the sample before (its jitter is more than a period), and four links.
        assert!((of(100.0) - of(50.0) - 300.0).abs() < 1.0, "{} {}", of(100.0), of(50.0));
        assert!((of(50.0) - 300.0 - 4.0 * 350.6).abs() < 5.0, "{}", of(50.0));
        assert!(predicted(&Found::default()).is_none());
    }

    #[test]
    fn the_contracts_reservations_leave_room_on_two_processors() {
        let plan = plan(CONTRACT, &[], Model::Bound).unwrap();
        let reserved: f64 = plan.nodes.iter().map(|node| node.cpus_reserved).sum();
        // The kernel admits 1.8 of two; other programs may have some.
        assert!(reserved > 0.0 && reserved < 1.5, "{reserved}");
        assert_eq!(shares(&plan), [20, 35, 5, 40]);
    }
}
