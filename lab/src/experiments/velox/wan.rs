//! `velox-wan`, `velox-one-to-many`, `velox-many-to-one` and `velox-many-to-many` (V-55 to V-58, Fig. 22 to 25): streams of expedited forwarding
//! between two domains, over a line of 1 Mbit/s with the delay of a wide-area network.
//!
//! The machines of a domain are processes on one host. Eight streams of 500 kbit/s, or eight copies of one, do not fit into 1 Mbit/s
//! (E-V15): here n publishers send 500/n kbit/s each, and to many subscribers each sample crosses the line once, to a relay in their domain.

use super::protection::{CONTRACT, DEVICE, FRAME, HZ, LIMIT, LINE, LOAD, SIZE};
use crate::error::{Error, Result};
use crate::experiments::{Experiment, Tally, lines};
use crate::lab::{Feature, Lab, Size};
use crate::link::{Behaviour, LinkReport};
use crate::load::{Generator, Load, Pattern, Protocol, Sink};
use crate::part::member::{Order, Report, Settings, Stream};
use crate::part::{ALL_BUT_ONE_OF, LONG, NodeSettings, Part, Place};
use crate::prediction::{answer, changed, delay_us, text};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::stalls::Monitor;
use crate::statistics::Distribution;
use crate::topology::{Line, Queue, Topology, Wire};
use linux::queueing::Share;
use qos::plan::Model;
use qos::{Class, Scale};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use thalweg::carrier::Dice;

/// An experiment: its arms.
pub(crate) struct Wan {
    name: &'static str,
    about: &'static str,
    arms: &'static [Arm],
    /// Of the whole figure.
    title: &'static str,
}

/// Publishers in one domain and subscribers in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arm {
    publishers: usize,
    subscribers: usize,
    /// The class of the streams has its share; otherwise one queue is for all.
    protected: bool,
    /// Other traffic crosses the line, too.
    beside: bool,
    /// One-way delay in ms, as the paper prints it; 0: it is only drawn.
    paper: u32,
    /// The smallest size of a run that has it.
    from: Size,
}

const fn arm(publishers: usize, subscribers: usize, paper: u32) -> Arm {
    Arm { publishers, subscribers, protected: true, beside: false, paper, from: Size::Tiny }
}

/// V-55.
pub(crate) const ONE_TO_ONE: Wan = Wan {
    name: "velox-wan",
    about: "one stream over a wide-area line beside other traffic, with and without its share (Fig. 22)",
    arms: &[arm(1, 1, 0), Arm { beside: true, ..arm(1, 1, 0) }, Arm { beside: true, protected: false, ..arm(1, 1, 0) }],
    title: "One-way delay over a wide-area line",
};

/// V-56.
pub(crate) const ONE_TO_MANY: Wan = Wan {
    name: "velox-one-to-many",
    about: "one stream over a wide-area line to 2, 4, 8 and 32 subscribers (Fig. 23)",
    arms: &[arm(1, 2, 13), arm(1, 4, 12), arm(1, 8, 12), Arm { from: Size::Quick, ..arm(1, 32, 15) }],
    title: "One-way delay to many subscribers (mark: the paper's)",
};

/// V-57.
pub(crate) const MANY_TO_ONE: Wan = Wan {
    name: "velox-many-to-one",
    about: "2, 4 and 8 streams over a wide-area line to one subscriber (Fig. 24)",
    arms: &[arm(2, 1, 13), arm(4, 1, 13), arm(8, 1, 13)],
    title: "One-way delay from many publishers (mark: the paper's)",
};

/// V-58.
pub(crate) const MANY_TO_MANY: Wan = Wan {
    name: "velox-many-to-many",
    about: "2, 4 and 8 streams over a wide-area line to as many subscribers each (Fig. 25)",
    arms: &[arm(2, 2, 14), arm(4, 4, 22), arm(8, 8, 45)],
    title: "One-way delay from many to many (mark: the paper's)",
};

/// Propagation of the line: with the transmission of a frame, the paper's 12 to 13 ms.
const DELAY: Duration = Duration::from_millis(4);
const RELAY: &str = "relay";
/// Without its share a stream is later than with it by more than this factor (V-55).
const HARMED: f64 = 2.0;
/// To more subscribers the median may be this much later or earlier, in ms (V-56).
const FLAT: f64 = 2.0;
/// The paper's requirement in ms (V-58).
const REQUIRED: f64 = 100.0;
/// Shares of low, normal, high and critical in percent, with which the planner's bound of `velox-protection` holds.
const SHARES: [u64; 4] = [5, 40, 4, 51];

impl Experiment for Wan {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (repetitions, time) = match lab.options.size {
            Size::Tiny => (1, Duration::from_millis(500)),
            Size::Ci => (1, Duration::from_secs(2)),
            Size::Quick => (4, Duration::from_secs(4)),
            Size::Whole => (10, Duration::from_secs(10)),
        };
        let arms: Vec<Arm> = self.arms.iter().copied().filter(|arm| arm.from <= lab.options.size).collect();
        let mut dice = Dice::new(lab.options.seed);
        let (mut found, mut reports) = (Vec::new(), Vec::new());
        for arm in &arms {
            lab.tell(&arm.label());
            let mut testbed = Testbed::new(lab, arm)?;
            let mut tally = Tally::default();
            for _ in 0..repetitions {
                testbed.run(lab, arm, time, &mut dice, &mut tally)?;
            }
            reports.extend(testbed.end());
            found.push(tally);
        }
        let mut findings = self.judge(&arms, &found)?;
        lines::judge("all arms", &reports, &mut findings);
        Ok(findings)
    }
}

impl Arm {
    fn label(&self) -> String {
        let numbers = format!("{} to {}", self.publishers, self.subscribers);
        match (self.beside, self.protected) {
            (false, _) => numbers,
            (true, true) => format!("{numbers} beside other traffic, with its share"),
            (true, false) => format!("{numbers} beside other traffic, one queue"),
        }
    }

    fn hz(&self) -> f64 {
        HZ / self.publishers as f64
    }

    fn queue(&self) -> Queue {
        match self.protected {
            true => Queue::Htb(SHARES.map(|percent| Share { rate: percent * 10_000, ceil: None, priority: None })),
            false => Queue::Fifo,
        }
    }

    fn stream(&self, number: usize, class: Class) -> Stream {
        let relayed = self.subscribers > 1;
        Stream {
            topic: format!("/p{number}"),
            size: SIZE,
            hz: self.hz(),
            class,
            scale: if relayed { Scale::Rate { p: ALL_BUT_ONE_OF - 1, q: ALL_BUT_ONE_OF } } else { Scale::default() },
            picture: None,
            place: if relayed { qos::Place::Relay(RELAY.into()) } else { qos::Place::Publisher },
            carrier: "udp".into(),
            queue: qos::Queue::default(),
            sched: None,
        }
    }

    /// The planner's bound of each stream, in µs; NaN: there is none.
    fn bound_us(&self) -> Result<f64> {
        let (network, stream) = CONTRACT.split_once("[[topic]]").unwrap_or_default();
        let stream = stream.replace("60 Hz", &format!("{} Hz", self.hz())).replace("90 ms", "1 s");
        let streams: String = (0..self.publishers)
            .map(|n| format!("[[topic]]{}\n", stream.replace("\"dds\"", &format!("\"p{n}\""))))
            .collect();
        let [low, normal, high, critical] = SHARES;
        let shares =
            format!("critical = \"{critical} %\", high = \"{high} %\", normal = \"{normal} %\", low = \"{low} %\"");
        let change = qos::plan::FileChange { value: format!("{{ {shares} }}"), ..text("link", "wan", "shares", "") };
        let delay = text("link", "wan", "delay", &format!("{} ms", DELAY.as_millis()));
        let plan = answer(&changed(&format!("{network}{streams}"), &[change, delay])?, Model::Bound);
        Ok((0..self.publishers).map(|n| delay_us(&plan, &format!("p{n}"))).fold(f64::NAN, f64::max))
    }
}

/// Two hosts, each behind a router; the link between the routers is the line.
struct Testbed {
    publishers: Vec<Part>,
    subscribers: Vec<Part>,
    _relay: Option<Part>,
    loads: Vec<(Generator, Sink)>,
    topology: Topology, // after the parts: they end first
}

impl Testbed {
    fn new(lab: &Lab, arm: &Arm) -> Result<Self> {
        let processor = linux::sched::read(0)?.affinity.last().copied();
        let line = Behaviour { rate: Some(LINE), delay: DELAY, ..Behaviour::default() };
        let topology = Topology::routers(lab, &[Line { processor, ..Line::both(0, line) }])?;
        // From the start: before a stream comes by the relay, its copies for all subscribers are more than the line carries, and in one queue
        // no node would find another.
        Wire { rate: LINE, limit: LIMIT, queue: arm.queue() }.install(topology.beside(1)?, DEVICE)?;
        let at = |host: u8, n: usize| SocketAddr::new(Topology::address_of(host), 7400 + n as u16);
        let all: Vec<SocketAddr> =
            (0..arm.publishers).map(|n| at(1, n)).chain((0..=arm.subscribers).map(|n| at(2, n))).collect();
        let node = |name: &str, host: u8, n: usize| NodeSettings::at(lab, name, "velox-wan", at(host, n), &all);
        let place = |host: u8| Place::at(topology.host(host), &[]);
        let relayed = arm.subscribers > 1;
        let relay = relayed
            .then(|| Part::ready(lab, place(2).first(), "relay", &node(RELAY, 2, arm.subscribers)?))
            .transpose()?;
        let marks = lab.options.without != Some(Feature::Marks);
        let class = if marks { Class::Critical } else { Class::Normal };
        let streams: Vec<Stream> = (0..arm.publishers).map(|n| arm.stream(n, class)).collect();
        let member = |name: &str, host: u8, n: usize, publishes: &[Stream], subscribes: &[Stream]| {
            let node = if relayed { node(name, host, n)?.after(RELAY) } else { node(name, host, n)? };
            let (publishes, subscribes) = (publishes.to_vec(), subscribes.to_vec());
            Part::ready(lab, place(host), "member", &Settings { node, publishes, subscribes, profile: None })
        };
        let publish = |(n, stream): (usize, &Stream)| {
            let whole = Stream { scale: Scale::default(), place: qos::Place::Publisher, ..stream.clone() };
            member(&format!("publisher{n}"), 1, n, &[whole], &[])
        };
        let publishers = streams.iter().enumerate().map(publish).collect::<Result<Vec<_>>>()?;
        let subscribe = |n: usize| member(&format!("subscriber{n}"), 2, n, &[], &streams);
        let subscribers = (0..arm.subscribers).map(subscribe).collect::<Result<Vec<_>>>()?;
        let load = |from: u8, to: u8| {
            let sink = Sink::new(lab, place(to), Topology::address_of(to))?;
            Ok::<_, Error>((Generator::new(lab, place(from), sink.target)?, sink))
        };
        let loads = if arm.beside { vec![load(1, 2)?, load(2, 1)?] } else { Vec::new() };
        let mut testbed = Self { publishers, subscribers, _relay: relay, loads, topology };
        testbed.connect(lab, arm)?;
        Ok(testbed)
    }

    /// Waits until all streams come, those to many from the relay: samples move a proxy there.
    fn connect(&mut self, lab: &Lab, arm: &Arm) -> Result {
        let count = if arm.subscribers > 1 { 1 } else { arm.subscribers };
        for publisher in &mut self.publishers {
            publisher.ask::<Value>(lab, &Order::Connected { count }, LONG)?;
            publisher.ask::<Value>(lab, &Order::Start { topic: None, count: None }, LONG)?;
        }
        for subscriber in &mut self.subscribers {
            subscriber.ask::<Value>(lab, &Order::Connected { count: 0 }, LONG)?;
        }
        self.stop(lab).map(drop)
    }

    fn stop(&mut self, lab: &Lab) -> Result<u64> {
        let stop = |part: &mut Part| part.ask::<Report>(lab, &Order::Stop, LONG);
        let reports = self.publishers.iter_mut().map(stop).collect::<Result<Vec<_>>>()?;
        Ok(reports.iter().flat_map(|report| &report.streams).map(|stream| stream.count).sum())
    }

    /// Publishes for this long; the publishers begin at random within a period of theirs.
    fn run(&mut self, lab: &Lab, arm: &Arm, time: Duration, dice: &mut Dice, tally: &mut Tally) -> Result {
        lab.stop.sleep(SETTLE)?;
        for (n, (generator, _)) in self.loads.iter_mut().enumerate() {
            let (protocol, pattern, seed) = (Protocol::Udp, Pattern::Even, lab.options.seed + n as u64);
            generator.start(lab, &Load { protocol, rate: LOAD, pattern, gso: false, seed })?;
        }
        if arm.beside {
            lab.stop.sleep(WARM_UP)?;
        }
        self.arrived(lab)?;
        let monitor = Monitor::start()?;
        for publisher in &mut self.publishers {
            publisher.ask::<Value>(lab, &Order::Start { topic: None, count: None }, LONG)?;
            let micros = (1e6 / arm.hz()) as u64;
            lab.stop.sleep(Duration::from_micros(dice.below(micros.max(1))))?;
        }
        lab.stop.sleep(time)?;
        let sent = self.stop(lab)?;
        lab.stop.sleep(SETTLE)?;
        let samples: Vec<_> =
            self.arrived(lab)?.into_iter().flat_map(|report| report.streams).flat_map(|s| s.samples).collect();
        self.loads.iter_mut().try_for_each(|(generator, _)| generator.stop(lab).map(drop))?;
        tally.add(sent * arm.subscribers as u64, &samples, &monitor.finish());
        Ok(())
    }

    fn arrived(&mut self, lab: &Lab) -> Result<Vec<Report>> {
        self.subscribers.iter_mut().map(|part| part.ask(lab, &Order::Arrived, LONG)).collect()
    }

    /// Ends it, and says how its line was.
    fn end(mut self) -> Vec<LinkReport> {
        self.topology.end_lines()
    }
}

/// Time for the last samples to arrive, also through a full queue.
const SETTLE: Duration = Duration::from_millis(800);
/// Time until the other traffic has filled its queue.
const WARM_UP: Duration = Duration::from_secs(2);

impl Wan {
    fn judge(&self, arms: &[Arm], found: &[Tally]) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        let heads =
            ["publishers to subscribers", "in the paper", "least", "mean", "p50", "p99", "max", "bound", "lost"];
        let mut table = Table::new("One-way delay in ms", &heads);
        let mut groups = Vec::new();
        let mut medians = Vec::new();
        for (arm, tally) in arms.iter().zip(found) {
            let label = arm.label();
            let factors = Factors::new().with("arm", label.clone()).with("measured", "udp").with("payload_bytes", SIZE);
            let cell = tally.cell(factors, false);
            let ms = |of: fn(&Distribution) -> f64| cell.latency_us.as_ref().map_or(f64::NAN, |d| of(d) / 1000.0);
            let bound = if arm.protected { arm.bound_us()? / 1000.0 } else { f64::NAN };
            let paper = if arm.paper > 0 { f64::from(arm.paper) } else { f64::NAN };
            let (least, mean, p50, p99, max) =
                (ms(|d| d.min), ms(|d| d.mean), ms(|d| d.p50), ms(|d| d.p99), ms(|d| d.max));
            table.row(label.clone(), &[paper, least, mean, p50, p99, max, bound, cell.lost as f64]);
            let transmission = lines::transmission_us(SIZE, LINE) / 1000.0 + DELAY.as_secs_f64() * 1000.0;
            findings.checks.push(Check::at_least(
                format!("{label}: the fastest, ms (limit: transmission and delay of the line)"),
                least,
                transmission,
            ));
            if arm.protected {
                let name = format!("{label}: the largest delay without stalls of the machine, ms (limit: the bound)");
                let without = tally.without_stalls() / 1000.0;
                findings.checks.push(Check::at_most(format!("{label}: lost samples"), cell.lost as f64, 0.0));
                findings.checks.push(Check::at_most(name, without, bound).less_stalls(max));
            }
            let value = |series: &str, value: f64, mark: Option<f64>| Bar {
                series: series.into(),
                value,
                deviation: 0.0,
                mark,
            };
            let mark = Some(paper).filter(|ms| ms.is_finite());
            let bars = vec![value("median", p50, mark), value("p99", p99, None)];
            groups.push(Group { label, bars: bars.into_iter().filter(|bar| bar.value.is_finite()).collect() });
            medians.push(p50);
            findings.cells.push(cell);
        }
        self.judge_shape(&medians, found, &mut findings.checks);
        findings.tables.push(table);
        findings.figure = Figure {
            title: self.title.into(),
            axis: "Delay in ms".into(),
            logarithmic: false,
            panels: vec![Panel { title: String::new(), groups }],
        };
        Ok(findings)
    }

    /// The paper's conclusions.
    fn judge_shape(&self, medians: &[f64], found: &[Tally], checks: &mut Vec<Check>) {
        let first = medians.first().copied().unwrap_or(f64::NAN);
        let most = medians.iter().copied().fold(f64::NAN, f64::max);
        let largest = found.iter().map(Tally::without_stalls).fold(f64::NAN, f64::max) / 1000.0;
        let raw = found.iter().map(Tally::largest).fold(f64::NAN, f64::max) / 1000.0;
        match (self.name, medians) {
            ("velox-wan", [_, with, without]) => {
                checks.push(Check::at_least(
                    "beside other traffic: median in one queue / with its share",
                    without / with,
                    HARMED,
                ));
            }
            ("velox-one-to-many", _) => {
                let off = medians.iter().map(|ms| (ms - first).abs()).fold(f64::NAN, f64::max);
                checks.push(Check::at_most("medians of more subscribers, off that of two, ms", off, FLAT));
            }
            ("velox-many-to-one", _) => {
                // A stream may wait for one frame of another: they are not in step.
                let frame = FRAME as f64 * 8e3 / LINE as f64;
                checks.push(Check::at_most(
                    "largest median less that of two publishers, ms (limit: a frame)",
                    most - first,
                    frame,
                ));
            }
            _ => checks.push(
                Check::at_most("the largest delay without stalls of the machine, ms", largest, REQUIRED)
                    .less_stalls(raw),
            ),
        }
    }
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "{SIZE} bytes, {HZ} of them a second of all publishers together, class critical, by udp: 500 kbit/s of frames over a line of 1 Mbit/s and {} ms; in front of it a queue with shares of {} % for low, normal, high and critical",
            DELAY.as_millis(),
            SHARES.map(|percent| percent.to_string()).join(", ")
        ),
        "several subscribers: each sample crosses the line once, to a relay on their host, which sends it to each. Several publishers begin at random within their period".into(),
        format!("other traffic: {} kbit/s of unmarked datagrams both ways", LOAD / 1000),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    fn failed(wan: &Wan, ms: &[u64]) -> Vec<String> {
        let found: Vec<Tally> = ms
            .iter()
            .map(|ms| {
                let mut tally = Tally::default();
                tally.add(3, &[Timed { from_ns: 0, ns: ms * 1_000_000 }; 3], &Stalls::default());
                tally
            })
            .collect();
        let checks = wan.judge(wan.arms, &found).unwrap().checks;
        checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
    }

    #[test]
    fn the_papers_figures_pass_and_others_fail() {
        for (wan, good, bad) in [
            (&ONE_TO_ONE, &[13, 20, 45][..], &[13, 20, 30][..]),
            (&ONE_TO_MANY, &[14, 13, 13, 15], &[13, 14, 20, 40]),
            (&MANY_TO_ONE, &[13, 13, 14], &[13, 14, 25]),
            (&MANY_TO_MANY, &[14, 22, 45], &[14, 22, 101]),
        ] {
            assert_eq!(failed(wan, good), Vec::<String>::new(), "{}", wan.name);
            assert!(!failed(wan, bad).is_empty(), "{}", wan.name);
        }
        assert_eq!(failed(&MANY_TO_ONE, &[11, 13, 13]).len(), 1, "faster than the line");
    }

    #[test]
    fn a_bound_grows_with_the_streams() {
        let [two, eight] = [MANY_TO_ONE.arms[0], MANY_TO_ONE.arms[2]].map(|arm| arm.bound_us().unwrap());
        assert!(two > 20_000.0 && eight > two && eight < 1e6, "{two} {eight}");
    }
}
