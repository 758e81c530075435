//! The three nodes of the conference: each publishes all kinds of streams, and takes those of the two others.

use super::outcome::Account;
use super::pictures::Taken;
use super::threads::Threads;
use super::{CUT, HOSTS, KINDS, Kind, PATIENCE, PICTURES, VIDEO, WHOLE};
use crate::error::Result;
use crate::experiments::Tally;
use crate::lab::{Lab, Size};
use crate::part::member::{Order, Report, Settings, Stream, StreamReport};
use crate::part::threads;
use crate::part::{LONG, NodeSettings, Part, Place};
use crate::stalls::{Monitor, Stalls, Timed};
use crate::statistics::largest_jitter;
use crate::topology::Topology;
use linux::clock::monotonic_ns;
use qos::Queue;
use qos::priority::{Policy, Scheduling};
use serde_json::Value;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;
use thalweg::proxy::Picture;

/// Time for samples on their way.
const REST: Duration = Duration::from_millis(500);
/// Samples that a white-board or a chat keeps during an outage: of ten seconds they have 50 and 20, and lose none.
const WAITING: u32 = 64;
/// The three nodes.
pub(super) struct Members {
    parts: Vec<Part>,
    /// The streams that each host receives, in the order of its reports: the sending host and the kind.
    hears: Vec<Vec<(u8, usize)>>,
    /// The time at which the link came back, and of the first arrival of each of those streams since, in ns.
    back_ns: u64,
    first_ns: Vec<Vec<Option<u64>>>,
    /// The samples that arrived at [`CUT`] of each of its streams, with their numbers.
    came: Vec<Vec<(u64, Timed)>>,
    /// What each host has taken so far.
    taken: Vec<Taken>,
}

/// One phase at [`CUT`], slice by slice: the rate of what arrived in percent of the nominal one, by kind, and the samples that
/// each stream had published before and after it.
pub(super) struct Heard {
    pub name: &'static str,
    rates: Vec<[f64; 5]>,
    published: Vec<Vec<u64>>,
    stalls: Vec<Stalls>,
}

impl Heard {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, rates: Vec::new(), published: Vec::new(), stalls: Vec::new() }
    }
}

fn stream(host: u8, kind: &Kind, every: u32, picture: Option<Picture>) -> Stream {
    let Kind { name, size, hz, class, carrier, fifo } = *kind;
    Stream {
        topic: format!("/h{host}/{name}"),
        size,
        hz,
        class,
        scale: qos::Scale::Every(every),
        picture,
        place: qos::Place::Publisher,
        carrier: carrier.into(),
        queue: if carrier == "tcp" { Queue::KeepLast(WAITING) } else { Queue::default() },
        sched: Some(Scheduling { policy: Policy::Fifo(fifo), nice: 0 }),
    }
}

/// Ratio of a kind's samples to those that a host takes.
fn every(host: u8, kind: usize) -> u32 {
    if KINDS[kind].name == VIDEO { PICTURES[usize::from(host) - 1].0 } else { 1 }
}

/// As one of the others publishes it, and as this host takes it.
fn published(host: u8, kind: &Kind) -> Stream {
    stream(host, kind, 1, (kind.name == VIDEO).then_some(WHOLE))
}

fn wanted(me: u8, host: u8, kind: usize) -> Stream {
    let picture = Some(PICTURES[usize::from(me) - 1].1).filter(|picture| *picture != WHOLE);
    stream(host, &KINDS[kind], every(me, kind), picture.filter(|_| KINDS[kind].name == VIDEO))
}

impl Members {
    pub(super) fn start(lab: &Lab, topology: &Topology) -> Result<Self> {
        let listen = |host| SocketAddr::new(Topology::address_of(host), 7400);
        let all: Vec<SocketAddr> = (1..=HOSTS).map(listen).collect();
        let (mut parts, mut hears) = (Vec::new(), Vec::new());
        for me in 1..=HOSTS {
            let others = (1..=HOSTS).filter(|host| *host != me);
            let heard: Vec<(u8, usize)> =
                others.flat_map(|host| (0..KINDS.len()).map(move |kind| (host, kind))).collect();
            let settings = Settings {
                node: NodeSettings::at(lab, &format!("h{me}"), "conference", listen(me), &all)?,
                publishes: KINDS.iter().map(|kind| published(me, kind)).collect(),
                profile: lab.options.profile.clone(),
                subscribes: heard.iter().map(|(host, kind)| wanted(me, *host, *kind)).collect(),
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
        let taken = PICTURES.map(|(_, picture)| Taken::of(picture)).into();
        Ok(Self { parts, hears, back_ns: 0, first_ns, came, taken })
    }

    /// Runs some slices of time, each shown as a line of the live table.
    pub(super) fn slices(&mut self, lab: &Lab, count: u32, heard: &mut Heard) -> Result {
        let slice = if lab.options.size == Size::Tiny { Duration::from_millis(600) } else { Duration::from_secs(1) };
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
        for ((taken, hears), report) in self.taken.iter_mut().zip(&self.hears).zip(&reports) {
            for ((_, kind), stream) in hears.iter().zip(&report.streams) {
                taken.add(*kind, stream.count, &stream.pictures);
            }
        }
        for (came, StreamReport { numbers, samples, .. }) in
            self.came.iter_mut().zip(&reports[usize::from(CUT) - 1].streams)
        {
            came.extend(numbers.iter().copied().zip(samples.iter().copied()));
        }
        Ok(reports)
    }

    /// Bytes that each host's link has carried to it.
    pub(super) fn links(topology: &Topology) -> Result<Vec<f64>> {
        (1..=HOSTS).map(|host| Ok(topology.host(host).traffic()?[0])).collect()
    }

    /// The samples that each host took until now, and the bytes that its link carried since it had carried these.
    pub(super) fn taken(&self, topology: &Topology, before: &[f64]) -> Result<Vec<Taken>> {
        let links = Self::links(topology)?;
        let carried = links.iter().zip(before).map(|(now, before)| now - before);
        Ok(self.taken.iter().zip(carried).map(|(taken, link)| taken.clone().over(link)).collect())
    }

    /// The threads of each kind of stream, at all hosts and both ends.
    pub(super) fn threads(&mut self, lab: &Lab) -> Result<Threads> {
        let mut found: Threads = Default::default();
        for (part, hears) in self.parts.iter_mut().zip(&self.hears) {
            let threads::Threads { publishes, subscribes } = part.ask(lab, &Order::Threads, LONG)?;
            let kinds = (0..KINDS.len()).chain(hears.iter().map(|(_, kind)| *kind));
            kinds.zip(publishes.into_iter().chain(subscribes)).for_each(|(kind, threads)| found[kind].push(threads));
        }
        Ok(found)
    }

    /// The samples that each stream of [`CUT`] has published so far.
    fn published(&mut self, lab: &Lab) -> Result<Vec<u64>> {
        let ask = |part: &mut Part| part.ask::<Report>(lab, &Order::Published, LONG);
        let reports = self.parts.iter_mut().map(ask).collect::<Result<Vec<_>>>()?;
        let of = |(host, kind): &(u8, usize)| reports[usize::from(*host) - 1].streams[*kind].count;
        Ok(self.hears[usize::from(CUT) - 1].iter().map(of).collect())
    }

    /// Publishes no more, and waits for what streams still repeat.
    pub(super) fn finish(&mut self, lab: &Lab) -> Result {
        self.parts.iter_mut().try_for_each(|part| part.ask::<Report>(lab, &Order::Stop, LONG).map(drop))?;
        let (published, until) = (self.published(lab)?, monotonic_ns() + PATIENCE.as_nanos() as u64);
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
    pub(super) fn account(&self, heard: Heard) -> Account {
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
        let jitter_us = self.jitter_us(&heard);
        Account { name: heard.name, tallies, rates: heard.rates, jitter_us }
    }

    /// The largest jitter of the streams of each kind among the samples of a phase; NaN where fewer than two came.
    fn jitter_us(&self, heard: &Heard) -> [f64; 5] {
        let mut largest = [f64::NAN; 5];
        let (Some(first), Some(last)) = (heard.published.first(), heard.published.last()) else { return largest };
        for (n, (_, kind)) in self.hears[usize::from(CUT) - 1].iter().enumerate() {
            let phase = first[n] + 1..=last[n];
            let came = self.came[n].iter().filter(|(number, _)| phase.contains(number));
            let jitter = largest_jitter(came.map(|(_, sample)| sample.ns as f64 / 1e3));
            largest[*kind] = largest[*kind].max(jitter);
        }
        largest
    }

    /// The link is back from now on.
    pub(super) fn resumes(&mut self) {
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
    pub(super) fn resumed(&mut self, lab: &Lab) -> Result<[f64; 5]> {
        while self.first_ns.iter().flatten().any(Option::is_none)
            && monotonic_ns() < self.back_ns + PATIENCE.as_nanos() as u64
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

fn row(label: &str, rates: &[f64; 5]) -> String {
    let mut text = format!("{label:>10} s, at h{CUT}:");
    for (kind, rate) in KINDS.iter().zip(rates) {
        let _ = write!(text, "  {} {rate:3.0} %", kind.name);
    }
    text
}
