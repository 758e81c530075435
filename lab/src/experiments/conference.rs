//! `rt-conference` (P-15, P-16): a distributed conference of three hosts. Each sends audio, the state of a game, video, a
//! white-board and chat to the two others, each stream of its own class; each takes as much video as suits it. The third
//! host's link becomes narrow for a while, and only what matters most still comes whole; then it fails, and comes back, and all
//! streams must go on by themselves. Which stream matters how much a profile may say otherwise (`lab run --profile`).

mod judge;

use super::Experiment;
use super::tally::Tally;
use crate::error::{Error, Result};
use crate::lab::{Lab, Options};
use crate::part::member::{Account, Order, Settings, Stream, Told};
use crate::part::node::NodeSettings;
use crate::part::{LONG, Part, Place};
use crate::results::Findings;
use crate::stalls::{Monitor, Stalls};
use crate::topology::Topology;
use crate::topology::wire::{Queue, Wire};
use linux::clock::monotonic_ns;
use qos::Class;
use serde_json::Value;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;
use thalweg::profile::Profile;

/// The experiment.
pub struct Conference;

const HOSTS: u8 = 3;
/// The host whose link fails.
const CUT: u8 = 3;
/// Of every link.
const RATE: u64 = 20_000_000;
/// Of the third host's link while it is narrow: three quarters of what it wants.
const NARROW: u64 = 2_000_000;
/// All streams go on within this time after the link is back: TCP waits longer and longer between its attempts.
const SOON: Duration = Duration::from_secs(10);

/// One kind of stream: name, bytes, hertz, class and carrier. The most important one first (P-15).
struct Kind {
    name: &'static str,
    size: usize,
    hz: f64,
    class: Class,
    carrier: &'static str,
}

const KINDS: [Kind; 5] = [
    Kind { name: "audio", size: 160, hz: 50.0, class: Class::Critical, carrier: "udp" },
    Kind { name: "game", size: 64, hz: 30.0, class: Class::High, carrier: "udp" },
    Kind { name: "video", size: 30_000, hz: 25.0, class: Class::Normal, carrier: "udp" },
    Kind { name: "whiteboard", size: 500, hz: 5.0, class: Class::Low, carrier: "tcp" },
    Kind { name: "chat", size: 100, hz: 2.0, class: Class::Low, carrier: "tcp" },
];

/// Each host takes every so many-th picture.
const PICTURES: [u32; HOSTS as usize] = [1, 2, 5];

impl Experiment for Conference {
    fn name(&self) -> &'static str {
        "rt-conference"
    }

    fn about(&self) -> &'static str {
        "audio, game, video, white-board and chat between three hosts, each of its own class; all go on after an outage"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let topology = Topology::switch(lab, HOSTS)?;
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
        Wire { rate: NARROW, limit: 100, ..wire }.install(topology.middle()?, &port)?;
        members.slices(lab, narrow, &mut phases[1])?;
        wire.install(topology.middle()?, &port)?;
        topology.middle()?.ip(&["link", "set", &port, "down"])?;
        members.slices(lab, outage, &mut phases[2])?;
        topology.middle()?.ip(&["link", "set", &port, "up"])?;
        let back_ns = monotonic_ns();
        members.slices(lab, after, &mut phases[3])?;
        let resumed = members.resumed(lab, back_ns)?;
        let queues = topology.middle()?.tc(&["-s", "qdisc", "show", "dev", &port])?;
        let mut findings = judge::judge(&phases, &resumed);
        findings.queues = queues.lines().map(str::to_owned).collect();
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
    match () {
        () if options.tiny => Phases { before: 1, narrow: 1, outage: 1, after: 1 },
        () if options.quick => Phases { before: 5, narrow: 5, outage: 3, after: 7 },
        () => Phases { before: 30, narrow: 30, outage: 10, after: 30 },
    }
}

/// The three nodes.
struct Members {
    parts: Vec<Part>,
    /// What each hears, in the order of its accounts: whose, and which kind.
    hears: Vec<Vec<(u8, usize)>>,
}

/// What arrived at [`CUT`] in one phase: a tally of each kind, and its rate in percent of what is wanted, slice by slice.
struct Heard {
    name: &'static str,
    tallies: [Tally; 5],
    rates: Vec<[f64; 5]>,
}

impl Heard {
    fn new(name: &'static str) -> Self {
        Self { name, tallies: KINDS.map(|_| Tally::default()), rates: Vec::new() }
    }
}

fn stream(host: u8, kind: &Kind, every: u32) -> Stream {
    let Kind { name, size, hz, class, carrier } = *kind;
    Stream {
        topic: format!("/h{host}/{name}"),
        size,
        hz,
        class,
        every,
        place: qos::Place::Publisher,
        carrier: carrier.into(),
    }
}

/// Every so many-th sample of a kind is taken at a host.
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
        parts.iter_mut().try_for_each(|part| part.ask::<Value>(lab, &Order::Start { topic: None }, LONG).map(drop))?;
        Ok(Self { parts, hears })
    }

    /// So many slices of time, each told as a line of the live table.
    fn slices(&mut self, lab: &Lab, count: u32, heard: &mut Heard) -> Result {
        let slice = if lab.options.tiny { Duration::from_millis(400) } else { Duration::from_secs(1) };
        if heard.rates.is_empty() {
            self.arrived(lab)?;
        }
        for number in 1..=count {
            let monitor = Monitor::start()?;
            let began = monotonic_ns();
            lab.stop.sleep(slice)?;
            let told = self.arrived(lab)?;
            let seconds = (monotonic_ns() - began) as f64 / 1e9;
            let rates = self.add(&told, seconds, &monitor.finish(), heard);
            lab.tell(&row(&format!("{} {number}", heard.name), &rates));
        }
        Ok(())
    }

    fn arrived(&mut self, lab: &Lab) -> Result<Vec<Told>> {
        self.parts.iter_mut().map(|part| part.ask(lab, &Order::Arrived, LONG)).collect()
    }

    /// Adds a slice of the host whose link fails; gives its rates, in percent of what is wanted.
    fn add(&self, told: &[Told], seconds: f64, stalls: &Stalls, heard: &mut Heard) -> [f64; 5] {
        let mut rates = [0.0; 5];
        let host = usize::from(CUT) - 1;
        for (kind, (wanted, tally)) in KINDS.iter().zip(&mut heard.tallies).enumerate() {
            let mut samples = Vec::new();
            let of_kind = self.hears[host].iter().zip(&told[host].streams).filter(|((_, found), _)| *found == kind);
            for (_, Account { count, samples: found, .. }) in of_kind {
                samples.extend_from_slice(found);
                let most = seconds * wanted.hz * f64::from(HOSTS - 1) / f64::from(every(CUT, kind));
                rates[kind] += *count as f64 / most * 100.0;
            }
            tally.add(samples.len() as u64, &samples, stalls);
        }
        heard.rates.push(rates);
        rates
    }

    /// Waits until every stream has gone on since then, or too long; gives which have, by kind.
    fn resumed(&mut self, lab: &Lab, since_ns: u64) -> Result<[f64; 5]> {
        let until = std::time::Instant::now() + SOON;
        loop {
            let told = self.arrived(lab)?;
            let mut all = [(0.0, 0.0); 5];
            for (hears, told) in self.hears.iter().zip(&told) {
                for ((_, kind), account) in hears.iter().zip(&told.streams) {
                    all[*kind].0 += 1.0;
                    all[*kind].1 += f64::from(u8::from(account.latest_ns > since_ns));
                }
            }
            let shares = all.map(|(all, resumed)| resumed / all);
            if shares.iter().all(|share| *share >= 1.0) || std::time::Instant::now() > until {
                return Ok(shares);
            }
            lab.stop.sleep(Duration::from_millis(100))?;
        }
    }
}

fn row(label: &str, rates: &[f64; 5]) -> String {
    let mut text = format!("{label:>10} s, at h{CUT}:");
    for (kind, rate) in KINDS.iter().zip(rates) {
        let _ = write!(text, "  {} {rate:3.0} %", kind.name);
    }
    text
}
