//! `velox-protection` (V-54, Fig. 21): a stream of 500 kbit/s with the mark of expedited forwarding beside 600 kbit/s of other datagrams, on a
//! link of 1 Mbit/s, by the policy of the router before it; and as the planner reserves it, after it has refused the paper's shares.

use crate::error::{Error, Result};
use crate::experiments::{Experiment, Tally, lines};
use crate::lab::{Feature, Lab, Size};
use crate::load::{Generator, Load, Offered, Pattern, Protocol, Sink, Traffic};
use crate::part::stream::{self, Flow};
use crate::part::{NodeSettings, Place};
use crate::prediction::{answer, changed, delay_us};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::stalls::{Monitor, Timed};
use crate::statistics::Distribution;
use crate::topology::{FULL_PACKET, Line, Queue, Topology, Wire};
use linux::queueing::{PerClass, Share};
use qos::plan::{FileChange, Model, Plan};
use qos::priority::Changes;
use std::net::SocketAddr;
use std::time::Duration;

/// The experiment.
pub(crate) struct VeloxProtection;

/// The line; 98 % of it, which its queue lets through, is [`RATE`].
pub(super) const LINE: u64 = 1_020_410;
/// The link as the queue has it, in kbit/s.
const RATE: f64 = 1000.0;
/// Bytes of a sample; with the headers of Thalweg, UDP, IPv4 and Ethernet, a frame.
pub(super) const SIZE: usize = 968;
pub(super) const FRAME: usize = SIZE + 32 + lines::HEADERS;
pub(super) const HZ: f64 = 60.0;
/// The other traffic, in bit/s, in both directions.
pub(super) const LOAD: u64 = 600_000;
/// Packets that wait in each queue of the router.
pub(super) const LIMIT: u32 = 20;
/// Largest deviation of a rate from the policy's.
const POLICY: f64 = 0.02;
/// Largest deviation of the reserved rate.
const RESERVED: f64 = 0.01;
/// The most that the stream gets where all share one queue, of what it sends.
const HARMED: f64 = 0.97;
const TOPIC: &str = "dds";
/// The router's device in front of the line.
pub(super) const DEVICE: &str = "on";

/// The paper's link with its shares: 40 % for all else, which is the traffic that is declared, 30 % for expedited and 20 % for assured
/// forwarding, 5 % for control.
pub(super) const CONTRACT: &str = include_str!("protection.toml");

impl Experiment for VeloxProtection {
    fn name(&self) -> &'static str {
        "velox-protection"
    }

    fn about(&self) -> &'static str {
        "500 kbit/s beside 600 on a link of 1 Mbit/s by the router's policy (Fig. 21), and as the planner reserves it"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let planned = Planned::new()?;
        let mut testbed = Testbed::new(lab)?;
        let arms = arms(&planned.shares);
        let mut found: Vec<Found> = arms.iter().map(|_| Found::default()).collect();
        let (repetitions, _) = amount(lab.options.size);
        for repetition in 0..repetitions {
            for (arm, found) in arms.iter().zip(&mut found) {
                lab.tell(&format!("{}, {} of {repetitions}", arm.name, repetition + 1));
                testbed.run(lab, arm, found)?;
            }
        }
        let mut findings = judge(&arms, &found, &planned);
        lines::judge("all policies", &testbed.end(), &mut findings);
        Ok(findings)
    }
}

/// Repetitions, and counted seconds of each.
fn amount(size: Size) -> (usize, usize) {
    match size {
        Size::Tiny => (1, 1),
        Size::Ci => (1, 4),
        Size::Quick => (1, 10),
        Size::Whole => (3, 20),
    }
}

/// A policy of the router, and the rates that a fluid would get, in kbit/s.
struct Arm {
    name: &'static str,
    queue: Queue,
    /// Bytes that a class may send in its turn of the spare rate, critical and normal; `None`: a packet.
    turns: Option<[u32; 2]>,
    stream: f64,
    load: f64,
    kind: Kind,
}

/// What is expected of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Both lose by chance: the stream is harmed.
    Shared,
    /// Both have the rates of the policy.
    Policy,
    /// The stream has all of its rate, loses nothing, and keeps its bound.
    Reserved,
}

/// The policies: the paper's two, what its second one may mean, and the plan's.
fn arms(planned: &PerClass<f64>) -> [Arm; 5] {
    let wanted = frame_kbit();
    let share = |kbit: f64, ceil: Option<f64>, priority: Option<u32>| Share {
        rate: (kbit * 1000.0) as u64,
        ceil: ceil.map(|kbit| (kbit * 1000.0) as u64),
        priority,
    };
    let paper = |ceil: Option<f64>, priority: Option<u32>| {
        [
            share(50.0, None, priority),
            share(400.0, None, priority),
            share(200.0, None, priority),
            share(300.0, ceil, priority),
        ]
    };
    let all = wanted + LOAD as f64 / 1000.0;
    let arm = |name, queue, stream: f64, kind| Arm { name, queue, turns: None, stream, load: RATE - stream, kind };
    let plans = planned.map(|part| share(part * RATE, None, None));
    [
        arm("one queue", Queue::Fifo, RATE * wanted / all, Kind::Shared),
        Arm {
            turns: Some([3 * 1514, 4 * 1514]),
            // 300 of its own, and 3/7 of the 300 that nobody else uses.
            ..arm("spare rate by share", Queue::Htb(paper(None, Some(0))), 300.0 + 300.0 * 3.0 / 7.0, Kind::Policy)
        },
        arm("spare rate to it first", Queue::Htb(paper(None, None)), wanted, Kind::Policy),
        Arm { load: 600.0, ..arm("its share and no more", Queue::Htb(paper(Some(300.0), None)), 300.0, Kind::Policy) },
        arm("as planned", Queue::Htb(plans), wanted, Kind::Reserved),
    ]
}

/// The stream's rate, in kbit/s.
fn frame_kbit() -> f64 {
    FRAME as f64 * 8.0 * HZ / 1000.0
}

/// The planner's answers.
struct Planned {
    /// Reasons for which the paper's shares are refused, and offers of other shares.
    refusals: usize,
    offers: usize,
    /// After the offer was taken: the shares, and the bound in µs.
    shares: PerClass<f64>,
    bound_us: f64,
    /// Reasons for which a second stream is refused beside it.
    second: usize,
}

impl Planned {
    fn new() -> Result<Self> {
        let refused = answer(&changed(CONTRACT, &[])?, Model::Bound);
        let all: Vec<&[FileChange]> =
            refused.refusals.iter().flat_map(|refusal| &refusal.offers).map(|offer| &*offer.changes).collect();
        let of_shares = |changes: &&&[FileChange]| changes.iter().all(|change| change.key == "shares");
        let offers = all.iter().filter(of_shares).count();
        let taken = all.iter().find(of_shares).copied().unwrap_or_default();
        let fits = answer(&changed(CONTRACT, taken)?, Model::Bound);
        let stream = CONTRACT.split_once("[[topic]]").map_or("", |(_, stream)| stream);
        let second = format!("{CONTRACT}\n[[topic]]{}", stream.replace("\"dds\"", "\"second\""));
        let second = answer(&changed(&second, taken)?, Model::Bound);
        Ok(Self {
            refusals: refused.refusals.len(),
            offers,
            shares: shares(&fits).ok_or_else(|| Error::Failed("the plan has no shares for its link".into()))?,
            bound_us: if fits.feasible { delay_us(&fits, TOPIC) } else { f64::NAN },
            second: second.refusals.len(),
        })
    }
}

/// The shares of the link in front of the line.
fn shares(plan: &Plan) -> Option<PerClass<f64>> {
    plan.links.iter().find(|link| link.from == "r1" && link.to == "r2")?.shares
}

/// Two hosts, each behind a router; the link between the routers is the line.
struct Testbed {
    flow: Flow,
    there: (Generator, Sink),
    back: (Generator, Sink),
    topology: Topology, // after the parts: they end first
}

impl Testbed {
    fn new(lab: &Lab) -> Result<Self> {
        let processor = linux::sched::read(0)?.affinity.last().copied();
        let topology = Topology::routers(lab, &[Line { processor, ..Line::of(0, LINE) }])?;
        let at = |host: u8| SocketAddr::new(Topology::address_of(host), 7400);
        let place = |host: u8| Place::at(topology.host(host), &[]);
        let end = |name: &str, host: u8| {
            Ok::<_, Error>((NodeSettings::at(lab, name, "velox-protection", at(host), &[at(1), at(2)])?, place(host)))
        };
        let settings = stream::Settings {
            topic: format!("/{TOPIC}"),
            size: SIZE,
            hz: HZ,
            carriers: vec!["udp".into()],
            qos: stream::qos("udp"),
            ..stream::Settings::default()
        };
        let mut flow = Flow::open(lab, &settings, end("publisher", 1)?, vec![end("subscriber", 2)?])?;
        let mark = if lab.options.without == Some(Feature::Marks) { "dscp=CS0" } else { "dscp=EF" };
        let changes: Changes = mark.parse().map_err(|e| Error::Usage(format!("{e}")))?;
        flow.set(lab, &changes)?;
        let load = |from: u8, to: u8| {
            let sink = Sink::new(lab, place(to), Topology::address_of(to))?;
            Ok::<_, Error>((Generator::new(lab, place(from), sink.target)?, sink))
        };
        let (there, back) = (load(1, 2)?, load(2, 1)?);
        Ok(Self { flow, there, back, topology })
    }

    /// Ends it, and says how its line was.
    fn end(mut self) -> Vec<crate::link::LinkReport> {
        self.topology.end_lines()
    }

    fn install(&self, arm: &Arm) -> Result {
        let router = self.topology.beside(1)?;
        Wire { rate: LINE, limit: LIMIT, queue: arm.queue }.install(router, DEVICE)?;
        let (Some(turns), Queue::Htb([_, normal, _, critical])) = (arm.turns, arm.queue) else { return Ok(()) };
        for (class, share, turn) in [("7a2:10", critical, turns[0]), ("7a2:30", normal, turns[1])] {
            let (rate, turn) = (format!("{}bit", share.rate), turn.to_string());
            let change = ["class", "change", "dev", DEVICE, "parent", "7a2:1", "classid", class];
            let values = ["htb", "rate", &rate, "ceil", "10mbit", "prio", "0", "quantum", &turn];
            router.tc(&[&change[..], &values[..]].concat())?;
        }
        Ok(())
    }

    /// The stream and the load with a policy, second by second.
    fn run(&mut self, lab: &Lab, arm: &Arm, found: &mut Found) -> Result {
        self.install(arm)?;
        let load = |n: u64| Load {
            protocol: Protocol::Udp,
            rate: LOAD,
            // At even distances the two would lose by their phases, where they share a queue.
            pattern: if arm.kind == Kind::Shared { Pattern::Random(1) } else { Pattern::Even },
            gso: false,
            seed: lab.options.seed + n,
        };
        let monitor = Monitor::start()?;
        self.there.0.start(lab, &load(0))?;
        self.back.0.start(lab, &load(1))?;
        self.flow.start(lab)?;
        lab.stop.sleep(if lab.options.size == Size::Tiny { Duration::from_millis(200) } else { WARM_UP })?;
        let mut counts = vec![self.there.1.count(lab)?];
        for _ in 0..amount(lab.options.size).1 {
            lab.stop.sleep(Duration::from_secs(1))?;
            counts.push(self.there.1.count(lab)?);
        }
        let (published, arrived) = self.flow.stop(lab, PATIENCE)?;
        let samples: Vec<Timed> = arrived.into_iter().flat_map(|arrived| arrived.samples).collect();
        found.offered.push(self.there.0.stop(lab)?);
        self.back.0.stop(lab)?;
        found.tally.add(published.count, &samples, &monitor.finish());
        found.seconds.push(seconds(&counts, &samples));
        Ok(())
    }
}

/// Time until the queues are as full as they will be.
const WARM_UP: Duration = Duration::from_secs(4);
/// Longest wait for the last sample.
const PATIENCE: Duration = Duration::from_secs(3);

/// The rates of stream and load in each second, in kbit/s of frames.
fn seconds(counts: &[Traffic], samples: &[Timed]) -> Vec<[f64; 2]> {
    let each = counts.windows(2).map(|pair| {
        let [before, after] = pair else { return [f64::NAN; 2] };
        let ms = (after.at_ns - before.at_ns) as f64 / 1e6;
        let came = samples.iter().filter(|s| (before.at_ns..after.at_ns).contains(&(s.from_ns + s.ns))).count();
        let datagrams = after.datagrams - before.datagrams;
        [(came * FRAME) as f64 * 8.0 / ms, (datagrams * FULL_PACKET) as f64 * 8.0 / ms]
    });
    each.collect()
}

/// The results of a policy.
#[derive(Default)]
struct Found {
    tally: Tally,
    seconds: Vec<Vec<[f64; 2]>>,
    offered: Vec<Offered>,
}

impl Found {
    /// The mean rate of the stream (0) or the load (1) over all seconds.
    fn rate(&self, of: usize) -> f64 {
        let all: Vec<f64> = self.seconds.iter().flatten().map(|rates| rates[of]).collect();
        all.iter().sum::<f64>() / all.len() as f64
    }

    /// The load as it was offered, in kbit/s.
    fn offered(&self) -> f64 {
        self.offered.iter().map(Offered::mbit).sum::<f64>() * 1000.0 / self.offered.len() as f64
    }
}

fn deviation(found: f64, expected: f64) -> f64 {
    (found / expected - 1.0).abs()
}

fn judge(arms: &[Arm; 5], found: &[Found], planned: &Planned) -> Findings {
    let mut findings = Findings { notes: notes(planned), ..Findings::default() };
    let heads = [
        "policy",
        "stream, fluid",
        "stream",
        "load, fluid",
        "load",
        "load offered",
        "lost",
        "p50, ms",
        "p99, ms",
        "max, ms",
    ];
    let mut table = Table::new("Rates in kbit/s of frames, and latencies", &heads);
    let mut least = f64::NAN;
    for (arm, found) in arms.iter().zip(found) {
        let [stream, load] = [0, 1].map(|of| found.rate(of));
        let factors = Factors::new().with("arm", arm.name).with("measured", "udp").with("payload_bytes", SIZE);
        let cell = found.tally.cell(factors.with("stream_kbit_s", stream).with("load_kbit_s", load), false);
        let times = cell.latency_us.map_or([f64::NAN; 4], |d: Distribution| [d.p50, d.p99, d.max, d.min]);
        least = least.min(times[3]);
        let ms = |us: f64| us / 1000.0;
        table.row(
            arm.name,
            &[
                arm.stream,
                stream,
                arm.load,
                load,
                found.offered(),
                cell.lost as f64,
                ms(times[0]),
                ms(times[1]),
                ms(times[2]),
            ],
        );
        judge_arm(arm, found, planned.bound_us, &mut findings.checks);
        findings.cells.push(cell);
    }
    lines::judge_idle("all policies", least, SIZE, &[LINE], &mut findings);
    let count = |name: &str, n: usize| Check::at_least(name, n as f64, 1.0);
    findings.checks.extend([
        count("30 % for expedited forwarding: reasons for which the plan is refused", planned.refusals),
        count("offers of other shares", planned.offers),
        Check::at_most("the bound after one was taken, ms (limit: the deadline)", planned.bound_us / 1000.0, 90.0),
        count("a second stream beside it: reasons for which it is refused", planned.second),
    ]);
    findings.tables.push(table);
    findings.figure = figure(arms, found);
    findings
}

fn judge_arm(arm: &Arm, found: &Found, bound_us: f64, checks: &mut Vec<Check>) {
    let [stream, load] = [0, 1].map(|of| found.rate(of));
    let name = |what: &str| format!("{}: {what}", arm.name);
    let off = |what: &str, rate: f64, of: f64, most: f64| {
        Check::at_most(name(&format!("{what} of {rate:.1} kbit/s, deviation from {of:.1}")), deviation(rate, of), most)
    };
    match arm.kind {
        Kind::Shared => {
            checks.push(
                Check::at_most(name("stream, part of what it sends"), stream / frame_kbit(), HARMED)
                    .judged_from(Size::Quick),
            );
            checks.push(off("stream and load", stream + load, RATE, POLICY));
        }
        Kind::Policy => {
            checks.push(off("stream", stream, arm.stream, POLICY));
            checks.push(off("load", load, arm.load, POLICY));
        }
        Kind::Reserved => {
            let (raw, most) = (found.tally.largest(), found.tally.without_stalls());
            checks.push(off("stream", stream, arm.stream, RESERVED));
            checks.push(Check::at_most(name("lost samples"), found.tally.missing(), 0.0));
            let latest = name("the largest latency without stalls of the machine, µs (limit: the bound)");
            checks.push(Check::at_most(latest, most, bound_us).less_stalls(raw));
        }
    }
}

/// Throughput over time, as the paper draws it; marks: a fluid's.
fn figure(arms: &[Arm; 5], found: &[Found]) -> Figure {
    let panel = |(arm, found): (&Arm, &Found)| {
        let bar = |series: &str, value: f64, mark: f64| Bar {
            series: series.into(),
            value,
            deviation: 0.0,
            mark: Some(mark),
        };
        let group = |(second, [stream, load]): (usize, &[f64; 2])| Group {
            label: second.to_string(),
            bars: vec![bar("stream", *stream, arm.stream), bar("load", *load, arm.load)],
        };
        let first = found.seconds.first().map(Vec::as_slice).unwrap_or_default();
        Panel { title: arm.name.into(), groups: first.iter().take(10).enumerate().map(group).collect() }
    };
    Figure {
        title: "500 kbit/s beside 600 on 1 Mbit/s, by second (mark: a fluid's rate)".into(),
        axis: "Throughput in kbit/s".into(),
        logarithmic: false,
        panels: arms.iter().zip(found).map(panel).collect(),
    }
}

fn notes(planned: &Planned) -> Vec<String> {
    let percent = planned.shares.map(|part| format!("{:.1}", part * 100.0)).join(", ");
    vec![
        format!(
            "{SIZE} bytes at {HZ} Hz by udp, DSCP EF, frames of {FRAME} bytes; beside it datagrams of {FULL_PACKET} bytes, unmarked, both ways, at even distances (in one queue at random ones). Two routers in a row, the link between them is a line; {LIMIT} packets wait in each of the first router's queues"
        ),
        "one queue: the paper's first variant, 95 % best effort. The other policies have its second variant's shares (40, 30, 20, 5 %): what it does with the rate that nobody uses is not printed (E-V14), so all three ways are here".into(),
        format!(
            "as planned: the planner refuses these shares for a deadline of 90 ms beside 400 kbit/s that are declared, and offers others; taken: {percent} % for low, normal, high and critical. The load sends 600, more than declared: its own class bears it"
        ),
        format!("bound of the reserved stream: {:.1} ms", planned.bound_us / 1000.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::Stalls;

    #[test]
    fn the_planner_refuses_the_papers_shares_and_one_stream_fits_with_others() {
        let planned = Planned::new().unwrap();
        assert!(planned.refusals > 0 && planned.offers > 0 && planned.second > 0);
        assert!(planned.bound_us < 90_000.0 && planned.shares[3] > 0.5, "{:?} {}", planned.shares, planned.bound_us);
    }

    /// Each arm with these rates, as parts of a fluid's, and this latency in µs of all samples.
    fn failed(of: [f64; 2], us: u64, lost: u64) -> Vec<String> {
        let planned = Planned::new().unwrap();
        let arms = arms(&planned.shares);
        let found = arms.each_ref().map(|arm| {
            let mut found = Found {
                seconds: vec![vec![[arm.stream * of[0], arm.load * of[1]]; 3]],
                offered: vec![Offered { packets: 1000, seconds: (1000 * FULL_PACKET * 8) as f64 / LOAD as f64 }],
                ..Found::default()
            };
            found.tally.add(10 + lost, &[Timed { from_ns: 0, ns: us * 1000 }; 10], &Stalls::default());
            found
        });
        judge(&arms, &found, &planned).checks.into_iter().filter(|c| !c.pass).map(|c| c.name).collect()
    }

    #[test]
    fn the_policies_rates_pass_and_others_fail() {
        assert_eq!(failed([1.0, 1.0], 20_000, 0), Vec::<String>::new());
        let slow = failed([0.97, 1.0], 20_000, 0);
        assert_eq!(slow.len(), 4, "all but the one that is harmed: {slow:?}");
        assert_eq!(failed([1.0, 1.0], 91_000, 0).len(), 1, "the bound");
        assert_eq!(failed([1.0, 1.0], 20_000, 1).len(), 1, "a lost sample");
        assert_eq!(failed([1.0, 1.0], 100, 0).len(), 1, "faster than the line");
    }

    #[test]
    fn rates_are_counted_by_arrival() {
        let count =
            |at_s: u64, datagrams: u64| Traffic { at_ns: at_s * 1_000_000_000, datagrams, ..Traffic::default() };
        let sample = |at_ms: u64| Timed { from_ns: (at_ms - 10) * 1_000_000, ns: 10_000_000 };
        let rates = seconds(
            &[count(1, 0), count(2, 50), count(3, 50)],
            &[sample(999), sample(1000), sample(1999), sample(2000)],
        );
        assert_eq!(rates, [[2.0 * 1042.0 * 8.0 / 1000.0, 50.0 * 1514.0 * 8.0 / 1000.0], [1042.0 * 8.0 / 1000.0, 0.0]]);
    }
}
