//! `rt-conference` (P-15, P-16): a distributed conference of three hosts. Each sends audio, the state of a game, video, a
//! white-board and chat to the two others, each stream of its own class; each takes as much video as suits it. The third
//! host's link becomes narrow for a while, and only the streams of the highest classes still come whole. Then it fails and comes
//! back, and all streams must continue by themselves. A profile may set other classes (`lab run --profile`).

use super::{Experiment, Tally, lines};
use crate::error::{Error, Result};
use crate::lab::{Lab, Options, Size};
use crate::part::member::{Order, Report, Settings, Stream, StreamReport};
use crate::part::{LONG, NodeSettings, Part, Place};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::stalls::{Monitor, Stalls, Timed};
use crate::statistics::{Distribution, median};
use crate::topology::{Line, Queue, Topology, Wire};
use linux::clock::monotonic_ns;
use qos::Class;
use qos::priority::{Policy, Scheduling};
use serde_json::Value;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;
use thalweg::profile::Profile;

/// The experiment.
pub(super) struct Conference;

const HOSTS: u8 = 3;
/// The host whose link fails.
const CUT: u8 = 3;
/// Rate of every link.
const RATE: u64 = 20_000_000;
/// Rate of the third host's link while it is narrow: three quarters of the nominal load.
const NARROW: u64 = 2_000_000;
/// All streams continue within this time after the link is back: TCP waits longer and longer between its attempts.
const SOON: Duration = Duration::from_secs(10);
/// Those by datagrams, within this one (F-14).
const AT_ONCE: Duration = Duration::from_secs(1);

/// One kind of stream: name, bytes, hertz, class, carrier and priority of threads. The most important one first (P-15); white-board and chat
/// share the lowest class, and differ in their threads.
struct Kind {
    name: &'static str,
    size: usize,
    hz: f64,
    class: Class,
    carrier: &'static str,
    /// Priority of its threads at both ends, SCHED_FIFO: the publishing one, and those of the channel.
    fifo: u8,
}

const KINDS: [Kind; 5] = [
    Kind { name: "audio", size: 160, hz: 50.0, class: Class::Critical, carrier: "udp", fifo: 50 },
    Kind { name: "game", size: 64, hz: 30.0, class: Class::High, carrier: "udp", fifo: 40 },
    Kind { name: "video", size: 30_000, hz: 25.0, class: Class::Normal, carrier: "udp", fifo: 30 },
    Kind { name: "whiteboard", size: 500, hz: 5.0, class: Class::Low, carrier: "tcp", fifo: 20 },
    Kind { name: "chat", size: 100, hz: 2.0, class: Class::Low, carrier: "tcp", fifo: 10 },
];

/// Ratio of published pictures to those that each host takes.
const PICTURES: [u32; HOSTS as usize] = [1, 2, 5];

impl Experiment for Conference {
    fn name(&self) -> &'static str {
        "rt-conference"
    }

    fn about(&self) -> &'static str {
        "audio, game, video, white-board and chat between three hosts, each of its own class; all go on after an outage"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let lines: Vec<Line> = (1..=HOSTS).map(|host| Line::of(host, RATE)).collect();
        let mut topology = Topology::switch(lab, HOSTS, &lines)?;
        if let Some(file) = &lab.options.profile {
            Profile::read(file).map_err(|wrong| Error::Usage(wrong.to_string()))?;
        }
        let wire = Wire { rate: RATE, limit: 1000, queue: Queue::Classes };
        (1..=HOSTS).try_for_each(|host| wire.install(topology.middle()?, &Topology::leads_to(host)))?;
        let mut members = Members::start(lab, &topology)?;
        let Phases { before, narrow, outage, after } = phases(&lab.options);
        let mut phases = ["before", "narrow", "outage", "after"].map(Heard::new);
        members.slices(lab, before, &mut phases[0])?;
        let port = Topology::leads_to(CUT);
        topology.change_to(CUT, |line| line.rate = Some(NARROW));
        Wire { rate: NARROW, limit: 100, ..wire }.install(topology.middle()?, &port)?;
        members.slices(lab, narrow, &mut phases[1])?;
        topology.change_to(CUT, |line| line.rate = Some(RATE));
        wire.install(topology.middle()?, &port)?;
        topology.middle()?.ip(&["link", "set", &port, "down"])?;
        members.slices(lab, outage, &mut phases[2])?;
        topology.middle()?.ip(&["link", "set", &port, "up"])?;
        members.resumes();
        members.slices(lab, after, &mut phases[3])?;
        let resumed = members.resumed(lab)?;
        members.finish(lab)?;
        let phases = phases.map(|heard| members.account(heard));
        let queues = topology.middle()?.tc(&["-s", "qdisc", "show", "dev", &port])?;
        let mut findings = judge(&phases, &resumed);
        findings.queues = queues.lines().map(str::to_owned).collect();
        drop(members);
        lines::judge("all phases", &topology.end_lines(), &mut findings);
        Ok(findings)
    }
}

/// Slices of each phase.
struct Phases {
    before: u32,
    narrow: u32,
    outage: u32,
    after: u32,
}

fn phases(options: &Options) -> Phases {
    match options.size {
        Size::Tiny => Phases { before: 1, narrow: 1, outage: 1, after: 1 },
        Size::Ci => Phases { before: 1, narrow: 3, outage: 1, after: 1 },
        Size::Quick => Phases { before: 5, narrow: 5, outage: 3, after: 7 },
        Size::Whole => Phases { before: 30, narrow: 30, outage: 10, after: 30 },
    }
}

/// The three nodes.
struct Members {
    parts: Vec<Part>,
    /// The streams that each host receives, in the order of its reports: the sending host and the kind.
    hears: Vec<Vec<(u8, usize)>>,
    /// The time at which the link came back, and of the first arrival of each of those streams since, in ns.
    back_ns: u64,
    first_ns: Vec<Vec<Option<u64>>>,
    /// The samples that arrived at [`CUT`] of each of its streams, with their numbers.
    came: Vec<Vec<(u64, Timed)>>,
}

/// One phase at [`CUT`], slice by slice: the rate of what arrived in percent of the nominal one, by kind, and the samples that
/// each stream had published before and after it.
struct Heard {
    name: &'static str,
    rates: Vec<[f64; 5]>,
    published: Vec<Vec<u64>>,
    stalls: Vec<Stalls>,
}

impl Heard {
    fn new(name: &'static str) -> Self {
        Self { name, rates: Vec::new(), published: Vec::new(), stalls: Vec::new() }
    }
}

/// The samples of each kind that were published for [`CUT`] in one phase, and those of them that arrived, then or later.
struct Account {
    name: &'static str,
    tallies: [Tally; 5],
    rates: Vec<[f64; 5]>,
}

impl Account {
    /// In percent; NaN if nothing was published.
    fn share(&self, kind: usize) -> f64 {
        let tally = &self.tallies[kind];
        (tally.sent() - tally.lost()) as f64 * 100.0 / tally.sent() as f64
    }
}

fn stream(host: u8, kind: &Kind, every: u32) -> Stream {
    let Kind { name, size, hz, class, carrier, fifo } = *kind;
    Stream {
        topic: format!("/h{host}/{name}"),
        size,
        hz,
        class,
        every,
        place: qos::Place::Publisher,
        carrier: carrier.into(),
        sched: Some(Scheduling { policy: Policy::Fifo(fifo), nice: 0 }),
    }
}

/// Ratio of a kind's samples to those that a host takes.
fn every(host: u8, kind: usize) -> u32 {
    if KINDS[kind].name == "video" { PICTURES[usize::from(host) - 1] } else { 1 }
}

impl Members {
    fn start(lab: &Lab, topology: &Topology) -> Result<Self> {
        let listen = |host| SocketAddr::new(Topology::address_of(host), 7400);
        let all: Vec<SocketAddr> = (1..=HOSTS).map(listen).collect();
        let (mut parts, mut hears) = (Vec::new(), Vec::new());
        for me in 1..=HOSTS {
            let others = (1..=HOSTS).filter(|host| *host != me);
            let heard: Vec<(u8, usize)> =
                others.flat_map(|host| (0..KINDS.len()).map(move |kind| (host, kind))).collect();
            let settings = Settings {
                node: NodeSettings::at(lab, &format!("h{me}"), "conference", listen(me), &all)?,
                publishes: KINDS.iter().map(|kind| stream(me, kind, 1)).collect(),
                profile: lab.options.profile.clone(),
                subscribes: heard.iter().map(|(host, kind)| stream(*host, &KINDS[*kind], every(me, *kind))).collect(),
            };
            parts.push(Part::start(lab, Place::at(topology.host(me), &[]), "member", &settings)?);
            hears.push(heard);
        }
        parts.iter_mut().try_for_each(|part| part.hear::<Value>(lab, LONG).map(drop))?;
        let order = Order::Connected { count: usize::from(HOSTS) - 1 };
        parts.iter_mut().try_for_each(|part| part.ask::<Value>(lab, &order, LONG).map(drop))?;
        parts
            .iter_mut()
            .try_for_each(|part| part.ask::<Value>(lab, &Order::Start { topic: None, count: None }, LONG).map(drop))?;
        let first_ns = hears.iter().map(|heard: &Vec<(u8, usize)>| vec![None; heard.len()]).collect();
        let came = hears[usize::from(CUT) - 1].iter().map(|_| Vec::new()).collect();
        Ok(Self { parts, hears, back_ns: 0, first_ns, came })
    }

    /// Runs some slices of time, each shown as a line of the live table.
    fn slices(&mut self, lab: &Lab, count: u32, heard: &mut Heard) -> Result {
        let slice = if lab.options.size == Size::Tiny { Duration::from_millis(400) } else { Duration::from_secs(1) };
        self.arrived(lab)?;
        heard.published.push(self.published(lab)?);
        for number in 1..=count {
            let monitor = Monitor::start()?;
            let began = monotonic_ns();
            lab.stop.sleep(slice)?;
            let report = self.arrived(lab)?;
            let seconds = (monotonic_ns() - began) as f64 / 1e9;
            let rates = self.rates(&report, seconds);
            lab.tell(&row(&format!("{} {number}", heard.name), &rates));
            heard.rates.push(rates);
            heard.stalls.push(monitor.finish());
            heard.published.push(self.published(lab)?);
        }
        Ok(())
    }

    fn arrived(&mut self, lab: &Lab) -> Result<Vec<Report>> {
        let ask = |part: &mut Part| part.ask(lab, &Order::Arrived, LONG);
        let reports: Vec<Report> = self.parts.iter_mut().map(ask).collect::<Result<_>>()?;
        let first = |report: &StreamReport| {
            let arrivals = report.samples.iter().map(|sample| sample.from_ns + sample.ns);
            arrivals.filter(|at| *at > self.back_ns).min()
        };
        for (known, report) in self.first_ns.iter_mut().zip(&reports) {
            for (known, stream) in known.iter_mut().zip(&report.streams) {
                *known = known.or_else(|| first(stream));
            }
        }
        for (came, StreamReport { numbers, samples, .. }) in
            self.came.iter_mut().zip(&reports[usize::from(CUT) - 1].streams)
        {
            came.extend(numbers.iter().copied().zip(samples.iter().copied()));
        }
        Ok(reports)
    }

    /// The samples that each stream of [`CUT`] has published so far.
    fn published(&mut self, lab: &Lab) -> Result<Vec<u64>> {
        let ask = |part: &mut Part| part.ask::<Report>(lab, &Order::Published, LONG);
        let reports = self.parts.iter_mut().map(ask).collect::<Result<Vec<_>>>()?;
        let of = |(host, kind): &(u8, usize)| reports[usize::from(*host) - 1].streams[*kind].count;
        Ok(self.hears[usize::from(CUT) - 1].iter().map(of).collect())
    }

    /// Publishes no more, and waits for what streams still repeat.
    fn finish(&mut self, lab: &Lab) -> Result {
        self.parts.iter_mut().try_for_each(|part| part.ask::<Report>(lab, &Order::Stop, LONG).map(drop))?;
        let (published, until) = (self.published(lab)?, monotonic_ns() + SOON.as_nanos() as u64);
        let all = |members: &Self| {
            let streams = members.hears[usize::from(CUT) - 1].iter().zip(&members.came).zip(&published);
            streams
                .into_iter()
                .filter(|(((_, kind), _), _)| KINDS[*kind].carrier == "tcp")
                .all(|((_, came), published)| came.last().is_some_and(|(number, _)| number >= published))
        };
        lab.stop.sleep(REST)?;
        self.arrived(lab)?;
        while !all(self) && monotonic_ns() < until {
            lab.stop.sleep(REST)?;
            self.arrived(lab)?;
        }
        Ok(())
    }

    /// What was published for [`CUT`] in a phase, and what came of it.
    fn account(&self, heard: Heard) -> Account {
        let mut tallies = KINDS.map(|_| Tally::default());
        for (bounds, stalls) in heard.published.windows(2).zip(&heard.stalls) {
            for (kind, tally) in tallies.iter_mut().enumerate() {
                let (mut wanted, mut samples) = (0, Vec::new());
                let streams = self.hears[usize::from(CUT) - 1].iter().enumerate();
                for (n, _) in streams.filter(|(_, (_, found))| *found == kind) {
                    let (before, after, every) = (bounds[0][n], bounds[1][n], u64::from(every(CUT, kind)));
                    // A proxy takes the samples whose numbers are multiples.
                    wanted += after / every - before / every;
                    let of_slice = self.came[n].iter().filter(|(number, _)| (before + 1..=after).contains(number));
                    samples.extend(of_slice.map(|(_, sample)| *sample));
                }
                tally.add(wanted, &samples, stalls);
            }
        }
        Account { name: heard.name, tallies, rates: heard.rates }
    }

    /// The link is back from now on.
    fn resumes(&mut self) {
        self.back_ns = monotonic_ns();
        self.first_ns.iter_mut().flatten().for_each(|first| *first = None);
    }

    /// What came in a slice at the host whose link fails, in percent of the nominal rates.
    fn rates(&self, report: &[Report], seconds: f64) -> [f64; 5] {
        let mut rates = [0.0; 5];
        let host = usize::from(CUT) - 1;
        for ((_, kind), stream) in self.hears[host].iter().zip(&report[host].streams) {
            let most = seconds * KINDS[*kind].hz * f64::from(HOSTS - 1) / f64::from(every(CUT, *kind));
            rates[*kind] += stream.count as f64 / most * 100.0;
        }
        rates
    }

    /// Waits until every stream has gone on since the link came back, or too long; gives the time of the last one of each kind, in ms: infinite
    /// where one did not.
    fn resumed(&mut self, lab: &Lab) -> Result<[f64; 5]> {
        while self.first_ns.iter().flatten().any(Option::is_none)
            && monotonic_ns() < self.back_ns + SOON.as_nanos() as u64
        {
            lab.stop.sleep(Duration::from_millis(100))?;
            self.arrived(lab)?;
        }
        let mut last = [0.0; 5];
        for ((_, kind), first) in self.hears.iter().flatten().zip(self.first_ns.iter().flatten()) {
            let after = first.map_or(f64::INFINITY, |at| (at - self.back_ns) as f64 / 1e6);
            last[*kind] = f64::max(last[*kind], after);
        }
        Ok(last)
    }
}

fn resumes_within(kind: &Kind) -> Duration {
    if kind.carrier == "tcp" { SOON } else { AT_ONCE }
}

fn row(label: &str, rates: &[f64; 5]) -> String {
    let mut text = format!("{label:>10} s, at h{CUT}:");
    for (kind, rate) in KINDS.iter().zip(rates) {
        let _ = write!(text, "  {} {rate:3.0} %", kind.name);
    }
    text
}

/// Time for samples on their way.
const REST: Duration = Duration::from_millis(500);
/// Least share, in percent, of the streams above video on the narrow link. The rest is on its way when the link goes down.
const COMES: f64 = 95.0;
/// Its p99 is at most this, in µs: a packet on the wire and one held ready in front of it take 6 ms each, to and fro.
const SOON_US: f64 = 50_000.0;

/// Cells, checks, figure and table.
fn judge(phases: &[Account; 4], resumed: &[f64; 5]) -> Findings {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    for heard in phases {
        for (kind, tally) in KINDS.iter().zip(&heard.tallies) {
            let factors =
                Factors::new().with("arm", heard.name).with("stream", kind.name).with("class", kind.class.to_string());
            let factors = factors.with("measured", kind.carrier).with("payload_bytes", kind.size);
            findings.cells.push(tally.cell(factors, false));
        }
    }
    for (kind, ms) in KINDS.iter().zip(resumed) {
        let name = format!("{}: the last stream that went on after the outage, ms after the link was back", kind.name);
        findings.checks.push(Check::at_most(name, *ms, resumes_within(kind).as_secs_f64() * 1e3));
    }
    let narrow = |kind: usize| phases[1].share(kind);
    for (kind, name) in [(0, "audio"), (1, "game")] {
        let p99 = median(&phases[1].tallies[kind].each(|d| d.p99));
        findings.checks.extend([
            Check::at_least(
                format!("{name} over the narrow link: share of what was published, %"),
                narrow(kind),
                COMES,
            ),
            Check::at_most(format!("{name} over the narrow link: p99, µs"), p99, SOON_US),
        ]);
    }
    findings.checks.push(Check::at_most(
        "video over the narrow link gives way: share of what was published, %",
        narrow(2),
        COMES,
    ));
    for (n, kind) in KINDS.iter().enumerate() {
        let lost = |phases: &[Account]| phases.iter().map(|phase| phase.tallies[n].lost()).sum::<u64>() as f64;
        findings.checks.push(Check::at_most(format!("{} before: lost", kind.name), lost(&phases[..1]), 0.0));
        if kind.carrier == "tcp" {
            findings.checks.push(Check::at_most(format!("{} in all phases: lost", kind.name), lost(phases), 0.0));
        }
    }
    findings.tables.extend([table(phases), counts(phases)]);
    let bar = |kind: &Kind, rate: f64| Bar { series: kind.name.into(), value: rate, ..Bar::default() };
    let group = |heard: &Account, n: usize, rates: &[f64; 5]| Group {
        label: format!("{} {}", heard.name, n + 1),
        bars: KINDS.iter().zip(rates).map(|(kind, rate)| bar(kind, *rate)).collect(),
    };
    let groups =
        |heard: &Account| heard.rates.iter().enumerate().map(|(n, rates)| group(heard, n, rates)).collect::<Vec<_>>();
    let panel = |heard| Panel { title: String::new(), groups: groups(heard) };
    findings.figure = Figure {
        title: format!("What host {CUT} receives, second by second: its link fails and comes back"),
        axis: "Share of the samples wanted, in %".into(),
        logarithmic: false,
        panels: phases.iter().map(panel).collect(),
    };
    findings
}

/// Samples by stream and phase.
fn counts(phases: &[Account; 4]) -> Table {
    let heads = ["", "before", "narrow", "outage", "after"];
    let mut table =
        Table::new("Samples that came / were published for the third host, by the phase of publication", &heads);
    for (n, kind) in KINDS.iter().enumerate() {
        let of = |phase: &Account| {
            let tally = &phase.tallies[n];
            format!("{} / {}", tally.sent() - tally.lost(), tally.sent())
        };
        table.rows.push(std::iter::once(kind.name.to_owned()).chain(phases.iter().map(of)).collect());
    }
    table
}

/// Latencies by stream and phase.
fn table(phases: &[Account; 4]) -> Table {
    let mut table = Table::new("Latency p50 / p99 in ms", &["", "before", "narrow", "outage", "after"]);
    for (n, kind) in KINDS.iter().enumerate() {
        let of = |heard: &Account| {
            let middle = |figure: fn(&Distribution) -> f64| {
                let all: Vec<f64> = heard.tallies[n].each(figure).into_iter().filter(|us| us.is_finite()).collect();
                median(&all) / 1000.0
            };
            let (p50, p99) = (middle(|d| d.p50), middle(|d| d.p99));
            if p50.is_finite() { format!("{p50:.1} / {p99:.1}") } else { String::new() }
        };
        table.rows.push(std::iter::once(kind.name.to_owned()).chain(phases.iter().map(of)).collect());
    }
    table
}

fn notes() -> Vec<String> {
    let kinds = KINDS.iter().map(|kind| {
        format!(
            "{}: {} B at {} Hz, class {}, {}, threads fifo:{} at both ends",
            kind.name, kind.size, kind.hz, kind.class, kind.carrier, kind.fifo
        )
    });
    let mut notes: Vec<String> = kinds.collect();
    notes.extend([
        format!(
            "Each of {HOSTS} hosts sends all five and takes those of the two others; of video they take every 1st, 2nd and 5th \
             picture. Links have {} Mbit/s, classes by DSCP out of the switch.",
            RATE / 1_000_000
        ),
        format!("narrow: the switch's port to the third host has {} Mbit/s, less than it wants.", NARROW / 1_000_000),
        "outage: the switch's port to the third host is down. Streams by tcp repeat afterwards what was published meanwhile.".into(),
        "Cells are of the third host: what the publishers say that they published for it in each phase, of video every 5th picture, and what of that came, then or later.".into(),
    ]);
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 samples of each kind in each phase, of which these came.
    fn accounts(came: impl Fn(usize, usize) -> usize) -> [Account; 4] {
        [0, 1, 2, 3].map(|phase| {
            let tallies = [0, 1, 2, 3, 4].map(|kind| {
                let mut tally = Tally::default();
                tally.add(100, &vec![Timed { from_ns: 0, ns: 5_000_000 }; came(phase, kind)], &Stalls::default());
                tally
            });
            Account { name: "phase", tallies, rates: Vec::new() }
        })
    }

    fn failed(came: impl Fn(usize, usize) -> usize) -> Vec<String> {
        let failed = judge(&accounts(came), &[100.0; 5]).checks.into_iter().filter(|check| !check.pass);
        failed.map(|check| check.name).collect()
    }

    /// Video gives way on the narrow link, and datagrams are lost in the outage.
    fn as_expected(phase: usize, kind: usize) -> usize {
        match (phase, KINDS[kind].name, KINDS[kind].carrier) {
            (1, "video", _) => 30,
            (2, _, "udp") => 0,
            _ => 100,
        }
    }

    #[test]
    fn what_was_published_must_come_where_it_can() {
        assert_eq!(failed(as_expected), Vec::<String>::new());
        let before = failed(|phase, kind| as_expected(phase, kind) - usize::from(phase == 0 && kind == 2));
        assert_eq!(before, ["video before: lost"]);
        let narrow = failed(|phase, kind| if phase == 1 { 90 } else { as_expected(phase, kind) });
        assert_eq!(narrow.iter().filter(|name| name.contains("over the narrow link: share")).count(), 2, "{narrow:?}");
        let outage = failed(|phase, kind| if phase == 2 { 0 } else { as_expected(phase, kind) });
        assert_eq!(outage, ["whiteboard in all phases: lost", "chat in all phases: lost"]);
        assert!(failed(|_, _| 100).iter().any(|name| name.contains("gives way")));
    }
}
