//! `isolation` (F-8): one of eight subscribers stops, or is behind a bad link. The other seven and the publisher must
//! not notice, and the stopped one gets the latest sample when it continues.
//!
//! The publisher is on one host, the seven on a second and the eighth on a third, around a switch. A pair of runs is one with
//! all eight well and one with the eighth impaired. The seven's latency and the publisher's calls are compared.

use super::{Experiment, Tally};
use crate::error::{Error, Result};
use crate::lab::{Lab, Size};
use crate::link::{Behaviour, LinkReport};
use crate::part::stream::{self, Connected, Flow, Order, Published, Settings};
use crate::part::{LONG, NodeSettings, Part, Place};
use crate::results::{Check, Factors, Figure, Findings, Group, Panel};
use crate::stalls::Monitor;
use crate::statistics::{Distribution, median_ratio};
use crate::topology::{Line, Topology};
use rustix::process::{Pid, Signal};
use std::net::SocketAddr;
use std::time::Duration;

/// The experiment.
pub(super) struct Isolation;

const CARRIERS: [&str; 3] = ["tcp", "udp", "mcast"];

/// The carriers beside each impairment.
fn cells(size: Size) -> [(Trouble, &'static [&'static str]); 2] {
    match size {
        Size::Ci => [(Trouble::Stopped, &["tcp"]), (Trouble::BadLink, &["mcast"])],
        _ => [(Trouble::Stopped, &CARRIERS), (Trouble::BadLink, &CARRIERS)],
    }
}

const NEAR: usize = 7;
const HZ: f64 = 1000.0;
const PAYLOAD: usize = 256;
/// The seven's median may be this much worse.
const P50: f64 = 1.10;
/// Their p99 may.
const P99: f64 = 1.5;
/// Time in which the stopped subscriber has the latest sample, in milliseconds.
const SOON: u64 = 5_000;
/// The same after a bad link: TCP retries at growing intervals.
const LATER: u64 = 20_000;

/// The bad link, in bit/s.
const NARROW: u64 = 1_000_000;
/// Bytes that wait in front of it.
const NARROW_QUEUE: u64 = 30_000;
/// Share of the packets that it loses.
const LOSS: f64 = 0.3;

/// The impairment of the eighth.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// SIGSTOP.
    Stopped,
    /// 1 Mbit/s, and 30 % lost.
    BadLink,
}

impl Trouble {
    const fn name(self) -> &'static str {
        match self {
            Trouble::Stopped => "stopped",
            Trouble::BadLink => "bad-link",
        }
    }
}

impl Experiment for Isolation {
    fn name(&self) -> &'static str {
        "isolation"
    }

    fn about(&self) -> &'static str {
        "one of eight subscribers stops or is behind a bad link; the others and the publisher must not notice"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let mut panels = Vec::new();
        for (trouble, carriers) in cells(lab.options.size) {
            let mut groups = Vec::new();
            for carrier in carriers {
                let mut topology = Topology::switch(lab, 3, &[Line::both(3, Behaviour::default())])?;
                let mut testbed = Testbed::start(lab, &topology, carrier)?;
                groups.push(testbed.compare(lab, trouble, &mut findings)?);
                drop(testbed);
                if trouble == Trouble::BadLink {
                    findings.checks.push(was_bad(carrier, &topology.end_lines()));
                }
            }
            panels.push(Panel { title: format!("the eighth is {}", trouble.name()), groups });
        }
        findings.figure = Figure {
            title: "Latency of the other seven".into(),
            axis: "Latency in µs".into(),
            logarithmic: true,
            panels,
        };
        Ok(findings)
    }
}

fn notes() -> Vec<String> {
    vec![
        format!("{HZ} samples a second of {PAYLOAD} bytes from one process to eight others; latency from publish to callback"),
        "bad-link: the line from the switch to the eighth has 1 Mbit/s, with room for 30 kB in front of it, and loses 30 % of the packets".into(),
        "ratios: with the eighth impaired / with all well, by pairs of runs that follow each other, medians".into(),
    ]
}

/// The publisher and its subscribers: seven beside each other, and the eighth.
struct Testbed<'a> {
    carrier: &'static str,
    topology: &'a Topology,
    flow: Flow, // to the seven
    far: Part,
}

impl<'a> Testbed<'a> {
    fn start(lab: &Lab, topology: &'a Topology, carrier: &'static str) -> Result<Self> {
        let at = |host: u8, port: u16| SocketAddr::new(Topology::address_of(host), 7400 + port);
        let near = (0..NEAR as u16).map(|n| (2, n));
        let all: Vec<SocketAddr> =
            [(1, 0), (3, 0)].into_iter().chain(near).map(|(host, port)| at(host, port)).collect();
        let end = |name: &str, host: u8, port: u16| {
            let node = NodeSettings::at(lab, name, "isolation", at(host, port), &all)?;
            Ok::<_, Error>((node, Place::at(topology.host(host), &[])))
        };
        let settings = Settings {
            topic: "/state".into(),
            size: PAYLOAD,
            hz: HZ,
            carriers: vec![carrier.into()],
            qos: stream::qos(carrier),
            ..Settings::default()
        };
        let near = (0..NEAR as u16).map(|n| end(&format!("near{n}"), 2, n));
        let subscribers = near.chain([end("far", 3, 0)]).collect::<Result<Vec<_>>>()?;
        let mut flow = Flow::open(lab, &settings, end("publisher", 1, 0)?, subscribers)?;
        let far = flow.subscribers.pop().ok_or_else(|| Error::Failed("there is no eighth subscriber".into()))?;
        Ok(Self { carrier, topology, flow, far })
    }

    /// Runs pairs, and compares them.
    fn compare(&mut self, lab: &Lab, trouble: Trouble, findings: &mut Findings) -> Result<Group> {
        let (repetitions, count) = match lab.options.size {
            Size::Tiny => (1, 100),
            Size::Ci => (3, 300),
            Size::Quick => (7, 600),
            Size::Whole => (9, 3000),
        };
        let mut sides = [Side::default(), Side::default()];
        self.run(lab, 200, &mut Side::default())?;
        for repetition in 0..repetitions {
            let (carrier, name) = (self.carrier, trouble.name());
            lab.tell(&format!("{carrier}, {name}, repetition {} of {repetitions}", repetition + 1));
            self.run(lab, count, &mut sides[0])?;
            self.impair(lab, trouble, true)?;
            self.run(lab, count, &mut sides[1])?;
            self.impair(lab, trouble, false)?;
            let reached = self.catches_up(lab, trouble)?;
            sides[1].caught_up += u32::from(reached);
        }
        Ok(self.note(trouble, &sides, repetitions, findings))
    }

    /// One run: the figures of the seven, and the cost of publishing.
    fn run(&mut self, lab: &Lab, count: u64, side: &mut Side) -> Result {
        let monitor = Monitor::start()?;
        let (published, arrived) = self.flow.publish(lab, count, Duration::from_millis(500))?;
        let stalls = monitor.finish();
        side.again += arrived.iter().map(|arrived| arrived.again).sum::<u64>();
        let samples: Vec<_> = arrived.into_iter().flat_map(|arrived| arrived.samples).collect();
        side.latency.add(count * NEAR as u64, &samples, &stalls);
        side.calls.add(count, &published.calls, &stalls);
        Ok(())
    }

    fn impair(&self, lab: &Lab, trouble: Trouble, on: bool) -> Result {
        match trouble {
            Trouble::Stopped => self.stop(lab, on),
            Trouble::BadLink => {
                self.bad_link(on);
                Ok(())
            }
        }
    }

    /// A process is stopped when the kernel says so.
    fn stop(&self, lab: &Lab, on: bool) -> Result {
        let id = self.far.id();
        let process = i32::try_from(id).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| Error::Failed(format!("no process has the number {id}")))?;
        rustix::process::kill_process(process, if on { Signal::STOP } else { Signal::CONT })
            .map_err(std::io::Error::from)?;
        while on && !std::fs::read_to_string(format!("/proc/{id}/stat"))?.contains(") T ") {
            lab.stop.sleep(Duration::from_millis(1))?;
        }
        Ok(())
    }

    /// The line to the eighth, from the switch.
    fn bad_link(&self, on: bool) {
        let well = Behaviour::default();
        let bad = Behaviour { rate: Some(NARROW), queue: NARROW_QUEUE, loss: LOSS, ..well };
        self.topology.change_to(3, |line| *line = if on { bad } else { well });
    }

    /// `true` if the eighth has the latest sample in time.
    fn catches_up(&mut self, lab: &Lab, trouble: Trouble) -> Result<bool> {
        let published: Published = self.flow.publisher.ask(lab, &Order::Publish { count: 50 }, LONG)?;
        let ms = if trouble == Trouble::Stopped { SOON } else { LATER };
        let until: Connected = self.far.ask(lab, &Order::Until { seq: published.last, ms }, LONG)?;
        Ok(until.ok)
    }

    fn note(&self, trouble: Trouble, sides: &[Side; 2], repetitions: u32, findings: &mut Findings) -> Group {
        let (carrier, name) = (self.carrier, trouble.name());
        let mut bars = Vec::new();
        for (arm, side) in ["all-well", name].into_iter().zip(sides) {
            let factors = |what: &str| {
                let factors = Factors::new().with("arm", arm).with("measured", carrier).with("trouble", name);
                factors.with("what", what).with("payload_bytes", PAYLOAD)
            };
            findings.cells.push(side.latency.cell(factors("latency of the seven"), false));
            findings.cells.push(side.calls.cell(factors("calls of publish"), false));
            bars.extend(side.latency.bar(arm));
        }
        findings.checks.extend(judge(&format!("{carrier}, {name}"), sides, repetitions));
        Group { label: carrier.into(), bars }
    }
}

/// The positive control of the bad link: it lost some of the frames to and from the eighth. (A stopped process is stopped when the kernel
/// says so.)
fn was_bad(carrier: &str, lines: &[LinkReport]) -> Check {
    let lost: u64 = lines.iter().map(|line| line.counts.lost).sum();
    Check::at_least(format!("{carrier}, {}: frames that the link lost", Trouble::BadLink.name()), lost as f64, 1.0)
}

fn judge(of: &str, [well, impaired]: &[Side; 2], repetitions: u32) -> [Check; 7] {
    let latency = |figure: Figured| median_ratio(&impaired.latency.pairs(&well.latency, figure));
    let calls = |figure: Figured| median_ratio(&impaired.calls.pairs(&well.calls, figure));
    let label = |what: &str| format!("{of}: {what}");
    [
        Check::at_most(label("p50 of the seven, ratio"), latency(|d| d.p50), P50).judged_from(Size::Quick),
        Check::at_most(label("p99 of the seven, ratio"), latency(|d| d.p99), P99).judged_from(Size::Quick),
        Check::at_most(label("p50 of publish, ratio"), calls(|d| d.p50), P50).judged_from(Size::Quick),
        Check::at_most(label("p99 of publish, ratio"), calls(|d| d.p99), P99).judged_from(Size::Quick),
        Check::at_least(label("the eighth had the latest in time, share"), impaired.share(repetitions), 1.0),
        Check::at_most(label("lost of the seven"), well.latency.missing() + impaired.latency.missing(), 0.0),
        Check::at_most(label("samples that came twice or late"), (well.again + impaired.again) as f64, 0.0),
    ]
}

/// One figure of many.
type Figured = fn(&Distribution) -> f64;

/// The results of one kind of run.
#[derive(Default)]
struct Side {
    latency: Tally,
    calls: Tally,
    again: u64,
    caught_up: u32,
}

impl Side {
    fn share(&self, repetitions: u32) -> f64 {
        f64::from(self.caught_up) / f64::from(repetitions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Counts, Lateness};
    use crate::stalls::{Stalls, Timed};

    /// Three runs in which everything took this long.
    fn side(us: u64) -> Side {
        let mut side = Side { caught_up: 3, ..Side::default() };
        for tally in [&mut side.latency, &mut side.calls] {
            (0..3).for_each(|_| tally.add(10, &[Timed { from_ns: 0, ns: us * 1000 }; 10], &Stalls::default()));
        }
        side
    }

    fn failed(change: impl FnOnce(&mut [Side; 2])) -> Vec<String> {
        let mut sides = [side(100), side(109)];
        change(&mut sides);
        let failed = judge("tcp", &sides, 3).into_iter().filter(|check| !check.pass);
        failed.map(|check| check.name).collect()
    }

    #[test]
    fn whatever_the_others_notice_fails() {
        assert_eq!(failed(|_| ()), Vec::<String>::new());
        let slower = failed(|sides| sides[1] = side(111));
        assert_eq!(slower, ["tcp: p50 of the seven, ratio", "tcp: p50 of publish, ratio"]);
        assert_eq!(failed(|sides| sides[1] = side(151)).len(), 4, "p99, too");
        assert_eq!(failed(|sides| sides[1].caught_up = 2), ["tcp: the eighth had the latest in time, share"]);
        assert_eq!(failed(|sides| sides[0].again = 1), ["tcp: samples that came twice or late"]);
        let lost = failed(|sides| sides[1].latency.add(1, &[], &Stalls::default()));
        assert_eq!(lost, ["tcp: lost of the seven"]);
        let nothing = failed(|sides| *sides = [Side::default(), Side::default()]);
        assert_eq!(nothing.len(), 6, "all but what came twice: {nothing:?}");
    }

    #[test]
    fn a_bad_link_that_lost_nothing_fails() {
        let line = |lost: u64| LinkReport {
            asked: Behaviour::default(),
            counts: Counts { lost, ..Counts::default() },
            loss_percent: 0.0,
            rate: None,
            lateness_us: Lateness::default(),
            ahead: 0,
            stood_still_ms: 0.0,
        };
        assert!(was_bad("udp", &[line(0), line(1)]).pass && !was_bad("udp", &[line(0), line(0)]).pass);
    }
}
