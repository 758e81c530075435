//! `pull-beside` (F-10): 1 GB is pulled from a history while a channel of class HIGH sends 1,000 samples a second between
//! the same two hosts; the channel must not notice.
//!
//! The history's answers are of class LOW by default. Runs follow each other in threes: the channel alone, beside a pull with
//! the default limit, and beside one without. The channel's latency is compared. Between two hosts of one machine only the
//! processors limit the last kind; it is shown, and not checked.

use super::{Experiment, Tally};
use crate::error::{Error, Result};
use crate::lab::{Lab, Size};
use crate::part::pull::{self, Pulled};
use crate::part::stream::{self, Flow, Settings};
use crate::part::{LONG, NodeSettings, Part, Place};
use crate::results::{Check, Factors, Figure, Findings, Group, Panel};
use crate::statistics::{Distribution, median_ratio};
use crate::topology::Topology;
use qos::priority::Changes;
use qos::{Qos, Queue};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use thalweg::PullFrom;

/// The experiment.
pub(super) struct PullBeside;

const HZ: f64 = 1000.0;
const PAYLOAD: usize = 64;
/// Bytes of the samples that are pulled.
const LARGE: usize = 64 << 10;
/// Samples that are kept: 64 MB.
const KEPT: u32 = 1000;
/// Bytes that are pulled in all; with `--quick`, a tenth.
const PULLED: u64 = 1_000_000_000;
/// The channel's median may be this much worse.
const P50: f64 = 1.10;
/// Its p99 may.
const P99: f64 = 1.5;
const CARRIERS: [&str; 2] = ["tcp", "udp"];

impl Experiment for PullBeside {
    fn name(&self) -> &'static str {
        "pull-beside"
    }

    fn about(&self) -> &'static str {
        "1 GB is pulled from a history during a 1 kHz channel of class high, which must not notice"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let topology = Topology::link(lab, &[])?;
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let mut groups = Vec::new();
        for carrier in CARRIERS {
            groups.push(Testbed::start(lab, &topology, carrier)?.compare(lab, &mut findings)?);
        }
        findings.figure = Figure {
            title: "Latency at 1 kHz, alone and beside a pull".into(),
            axis: "Latency in µs".into(),
            logarithmic: true,
            panels: vec![Panel { title: String::new(), groups }],
        };
        Ok(findings)
    }
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "{HZ} samples a second of {PAYLOAD} bytes from one host to another, class=high sched=fifo:30 at both ends"
        ),
        format!(
            "pulled: all {KEPT} samples of {LARGE} bytes that a publisher beside it keeps, again and again: at {} MB/s, its limit by itself (checked), and as fast as it goes",
            PullFrom::LIMIT.rate / 1_000_000
        ),
        "ratios: beside the pull / alone, of runs that follow each other, medians; stalls of the machine are counted, and left in"
            .into(),
    ]
}

/// The channel, the history, and the puller.
struct Testbed {
    carrier: &'static str,
    flow: Flow,
    _keeper: Part,
    puller: Part,
}

impl Testbed {
    fn start(lab: &Lab, topology: &Topology, carrier: &'static str) -> Result<Self> {
        let at = |host: u8, port: u16| SocketAddr::new(Topology::address_of(host), 7400 + port);
        let all = [at(1, 0), at(2, 0), at(1, 1), at(2, 1)];
        let node = |name: &str, host: u8, port: u16| NodeSettings::at(lab, name, "pull-beside", at(host, port), &all);
        let end = |role: &str, host: u8| Ok::<_, Error>((node(role, host, 0)?, Place::at(topology.host(host), &[])));
        let beside = |role: &str, host: u8| {
            let (topic, node) = ("/kept".into(), node(role, host, 1)?);
            let settings = pull::Settings { node, topic, size: LARGE, samples: KEPT };
            Part::ready(lab, Place::at(topology.host(host), &[]), role, &settings)
        };
        let settings = Settings {
            topic: "/beat".into(),
            size: PAYLOAD,
            hz: HZ,
            carriers: vec![carrier.into()],
            // Samples held up by a stall of the machine all wait, instead of the latest few.
            qos: Qos { queue: Queue::KeepAll(4096), ..stream::qos(carrier) },
            ..Settings::default()
        };
        let mut flow = Flow::open(lab, &settings, end("publisher", 1)?, vec![end("subscriber", 2)?])?;
        let (keeper, puller) = (beside("keeper", 1)?, beside("puller", 2)?);
        let changes: Changes = "class=high sched=fifo:30".parse().map_err(|e| Error::Usage(format!("{e}")))?;
        flow.set(lab, &changes)?;
        Ok(Self { carrier, flow, _keeper: keeper, puller })
    }

    /// Runs in threes, until there are enough and enough was pulled.
    fn compare(&mut self, lab: &Lab, findings: &mut Findings) -> Result<Group> {
        let (threes, count, wanted) = match lab.options.size {
            Size::Tiny => (1, 100, 1),
            Size::Ci => (3, 200, PULLED / 200),
            Size::Quick => (5, 1000, PULLED / 10),
            Size::Whole => (7, 3000, PULLED),
        };
        let mut arms =
            [Arm::new("alone", None), Arm::new("beside", Some(false)), Arm::new("beside-unlimited", Some(true))];
        self.beat(lab, 200, &mut Tally::default())?;
        let mut done = 0;
        while done < threes || (arms[1].pulled.bytes < wanted && done < 10 * threes) {
            done += 1;
            lab.tell(&format!("{}, runs {done} of {threes}", self.carrier));
            for arm in &mut arms {
                self.run(lab, count, arm)?;
            }
        }
        Ok(self.note(&arms, wanted, findings))
    }

    fn run(&mut self, lab: &Lab, count: u64, arm: &mut Arm) -> Result {
        let Some(unlimited) = arm.unlimited else { return self.beat(lab, count, &mut arm.tally) };
        self.puller.ask::<Value>(lab, &pull::Order::Start { unlimited }, LONG)?;
        self.beat(lab, count, &mut arm.tally)?;
        let more: Pulled = self.puller.ask(lab, &pull::Order::Stop, LONG)?;
        arm.tally.tell("pulled_bytes", more.bytes);
        arm.pulled.bytes += more.bytes;
        arm.pulled.seconds += more.seconds;
        arm.pulled.damaged += more.damaged;
        arm.pulled.problem = arm.pulled.problem.take().or(more.problem);
        Ok(())
    }

    /// One run of the channel.
    fn beat(&mut self, lab: &Lab, count: u64, tally: &mut Tally) -> Result {
        tally.publish(lab, &mut self.flow, count, Duration::from_millis(500))
    }

    fn note(&self, arms: &[Arm; 3], wanted: u64, findings: &mut Findings) -> Group {
        let mut bars = Vec::new();
        for Arm { name, tally, pulled, .. } in arms {
            let factors = Factors::new().with("arm", *name).with("measured", self.carrier);
            let factors = factors.with("payload_bytes", PAYLOAD).with("pulled_bytes", pulled.bytes);
            findings.cells.push(tally.cell(factors, false));
            bars.extend(tally.bar(name));
        }
        let [alone, _, unlimited] = arms;
        findings.notes.push(format!(
            "{}: beside a pull without a limit ({:.0} MB/s) p50 was {:.2} and p99 {:.2} times that alone",
            self.carrier,
            unlimited.pulled.rate(),
            unlimited.ratio(alone, |d| d.p50),
            unlimited.ratio(alone, |d| d.p99)
        ));
        findings.checks.extend(judge(self.carrier, arms, wanted));
        Group { label: self.carrier.into(), bars }
    }
}

fn judge(carrier: &str, arms: &[Arm; 3], wanted: u64) -> [Check; 5] {
    let [alone, beside, _] = arms;
    let label = |what: &str| format!("{carrier}: {what}");
    let problem = arms.iter().find_map(|arm| arm.pulled.problem.as_ref());
    let problem = problem.map_or(String::new(), |problem| format!(" ({problem})"));
    let lost: f64 = arms.iter().map(|arm| arm.tally.missing()).sum();
    let damaged: u64 = arms.iter().map(|arm| arm.pulled.damaged).sum();
    let pulled = label(&format!("bytes pulled, at {:.0} MB/s{problem}", beside.pulled.rate()));
    let [p50, p99] = [beside.ratio(alone, |d| d.p50), beside.ratio(alone, |d| d.p99)];
    [
        Check::at_most(label("p50 of the channel, ratio"), p50, P50).judged_from(Size::Quick),
        Check::at_most(label("p99 of the channel, ratio"), p99, P99).judged_from(Size::Quick),
        Check::at_most(label("lost samples of the channel"), lost, 0.0),
        Check::at_least(pulled, beside.pulled.bytes as f64, wanted as f64),
        Check::at_most(label("pulled samples that were damaged"), damaged as f64, 0.0),
    ]
}

/// One arm: the channel alone or beside a pull, and its results.
struct Arm {
    name: &'static str,
    /// `true`: the pull has no limit; `None`: there is no pull.
    unlimited: Option<bool>,
    tally: Tally,
    pulled: Pulled,
}

impl Arm {
    fn new(name: &'static str, unlimited: Option<bool>) -> Self {
        Self { name, unlimited, tally: Tally::default(), pulled: Pulled::default() }
    }

    /// Of a figure to that of the channel alone, run by run; the median.
    fn ratio(&self, alone: &Arm, figure: fn(&Distribution) -> f64) -> f64 {
        median_ratio(&self.tally.pairs(&alone.tally, figure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    /// The checks that fail where samples beside the pull took this long, and 100 µs alone.
    fn failed(us: u64, change: impl FnOnce(&mut [Arm; 3])) -> Vec<String> {
        let mut arms = [("alone", 100), ("beside", us), ("unlimited", 900)].map(|(name, us)| {
            let mut arm = Arm::new(name, None);
            (0..3).for_each(|_| arm.tally.add(10, &[Timed { from_ns: 0, ns: us * 1000 }; 10], &Stalls::default()));
            arm.pulled.bytes = PULLED;
            arm
        });
        change(&mut arms);
        let failed = judge("udp", &arms, PULLED).into_iter().filter(|check| !check.pass);
        failed.map(|check| check.name).collect()
    }

    #[test]
    fn a_pull_that_is_noticed_or_does_not_come_whole_fails() {
        assert_eq!(failed(109, |_| ()), Vec::<String>::new());
        assert_eq!(failed(111, |_| ()), ["udp: p50 of the channel, ratio"]);
        assert_eq!(failed(151, |_| ()).len(), 2, "p99, too");
        let lost = failed(100, |arms| arms[2].tally.add(1, &[], &Stalls::default()));
        assert_eq!(lost, ["udp: lost samples of the channel"]);
        assert_eq!(failed(100, |arms| arms[0].tally = Tally::default()).len(), 3, "nothing was sent alone");
        assert!(failed(100, |arms| arms[1].pulled.bytes -= 1)[0].contains("bytes pulled"));
        assert_eq!(failed(100, |arms| arms[1].pulled.damaged = 1), ["udp: pulled samples that were damaged"]);
    }
}
