//! Hosts and parts, and one run.
//!
//! Both ends of the measured channels run on processor 0, the load and its sink on processor 1. That is the same in both arms, so
//! that the sharing of processors makes no difference between them. The channels stay open through all runs; an arm changes
//! their priority while they live.

use super::bound::Computed;
use super::{Amount, RATE, Row, amount, impossible};
use crate::error::Result;
use crate::lab::{Feature, Lab};
use crate::link::LinkReport;
use crate::load::{Generator, Offered, Sink};
use crate::part::{Measured, Place};
use crate::results::Stalled;
use crate::round_trips::{CARRIERS, Measure, PING, PONG, PingPong, Priority, RoundTrip};
use crate::stalls::{Monitor, Stalls};
use crate::topology::{DEVICE, Line, Namespace, Queue, Topology, Wire};
use qos::priority::Changes;
use std::time::Duration;
use thalweg::stages::End;

/// The testbed of a set-up.
#[derive(Debug)]
pub(super) struct Testbed {
    ping_pong: PingPong,
    generator: Generator,
    sink: Sink,
    setup: &'static Setup,
    topology: Topology, // after the parts: they end first
    treatment: Option<Treatment>,
    queues: Vec<String>,
}

/// Most packets that wait in a queue in front of the congested link.
const LIMIT: u32 = 100;
/// Time for the load to build up before round trips are made. The first of these do not count either.
const RAMP: Duration = Duration::from_millis(200);

impl Testbed {
    pub(super) fn build(lab: &Lab, setup: &'static Setup) -> Result<Self> {
        let topology = setup.build(lab)?;
        let [ping, load, sinks] = setup.hosts;
        let (ours, theirs) = processors();
        if setup.switched {
            // The switch's work is not on the ends' processor, whose other programs would delay it.
            topology.middle()?.steer(&Topology::leads_to(ping), theirs[0])?;
        }
        let sink = Sink::new(lab, Place::at(topology.host(sinks), &theirs), Topology::address_of(sinks))?;
        let generator = Generator::new(lab, Place::at(topology.host(load), &theirs), sink.target)?;
        let ping_pong = PingPong::new(lab, &topology, [ping, sinks], &ours)?;
        Ok(Self { ping_pong, generator, sink, setup, topology, treatment: None, queues: Vec::new() })
    }

    /// The queues that were in use, as the kernel showed them.
    pub(super) fn queues(&self) -> Vec<String> {
        self.queues.clone()
    }

    /// Ends it, and says how its line was.
    pub(super) fn end(mut self) -> Vec<LinkReport> {
        self.topology.end_lines()
    }

    /// Makes the round trips of a row with a treatment of its channels.
    pub(super) fn run(&mut self, lab: &Lab, row: &Row, treatment: Treatment, seed: u64) -> Result<Run> {
        self.treat(lab, treatment)?;
        let Amount { count, warmup, period, .. } = amount(&lab.options);
        let patience = Duration::from_millis(if row.measured.name() == "tcp" { 3000 } else { 250 });
        let route = row.measured.name().to_owned();
        let measure = Measure { route, payload: row.payload, count, warmup, period, patience, seed };
        let load = row.load(seed);
        if let Some(load) = &load {
            self.generator.start(lab, load)?;
            lab.stop.sleep(RAMP)?;
        }
        let computes = self.setup.switched && treatment.thread;
        if computes {
            self.computed(lab, row)?; // from nothing
        }
        let monitor = Monitor::start()?;
        let before = self.sink.count(lab)?;
        let trips = self.ping_pong.measure(lab, &measure)?;
        let after = self.sink.count(lab)?;
        let stalls = monitor.finish();
        let offered = if load.is_some() { self.generator.stop(lab)? } else { Offered::default() };
        let computed = if computes { Some(self.computed(lab, row)?) } else { None };
        Ok(Run { trips, offered, goodput: after.mbit_since(&before), stalls, computed })
    }

    /// The longest times of both channels' ends since the last call.
    fn computed(&mut self, lab: &Lab, row: &Row) -> Result<Computed> {
        let mut computed = Computed::default();
        for (way, from) in [PING, PONG].into_iter().enumerate() {
            let [ping, pong] = self.ping_pong.stages(lab, row.measured.name(), from)?;
            let (source, target) = if from == PING { (ping, pong) } else { (pong, ping) };
            let sum = |of: &Measured, end, stages: &[&str]| {
                stages.iter().map(|stage| of.max_us(end, stage)).filter(|us| us.is_finite()).sum()
            };
            computed.send[way] = sum(&source, End::Publisher, &["publish", "queue", "send"]);
            computed.receive[way] = sum(&target, End::Subscriber, &["receive", "decode"]);
        }
        Ok(computed)
    }

    /// Changes the queue and the channels, unless they are so already.
    fn treat(&mut self, lab: &Lab, treatment: Treatment) -> Result {
        let treatment = treatment.without(lab.options.without);
        if self.treatment == Some(treatment) {
            return Ok(());
        }
        self.treatment = None;
        let (at, device) = self.setup.bottleneck(&self.topology)?;
        let queue = if treatment.queue { self.setup.queue } else { Queue::Fifo };
        Wire { rate: RATE, limit: LIMIT, queue }.install(at, &device)?;
        note(&mut self.queues, treatment.name, at, &device)?;
        let (class, dscp) = if treatment.mark { ("high", 36) } else { ("default", 0) };
        let (sched, wanted) = if treatment.thread { ("fifo:30", ("fifo", 30)) } else { ("default", ("other", 0)) };
        let words = format!("class={class} sched={sched}");
        let changes: Changes = words.parse().map_err(|_| impossible(&words))?;
        for carrier in CARRIERS {
            let priority = Priority { route: carrier.to_owned(), changes: changes.clone() };
            for end in self.ping_pong.set_priority(lab, &priority)? {
                // An end without a thread of its own is served by one without a policy.
                let policy = if end.policy.is_empty() { "other" } else { &end.policy };
                if ((policy, end.priority), end.dscp.map(u8::from)) != (wanted, Some(dscp)) {
                    return Err(impossible(&format!("asked for {words}, and got {end:?}")));
                }
            }
        }
        self.treatment = Some(treatment);
        Ok(())
    }

    /// The processor of the measured ends.
    pub(super) fn processor() -> usize {
        processors().0[0]
    }
}

/// The means by which channels are prioritised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Treatment {
    /// As factors say it.
    pub name: &'static str,
    /// The queue tells marks apart; otherwise there is one for all.
    pub queue: bool,
    /// Packets have the mark of class HIGH (AF42), otherwise none.
    pub mark: bool,
    /// The threads of both channels have SCHED_FIFO 30 at both ends, otherwise SCHED_OTHER.
    pub thread: bool,
}

impl Treatment {
    /// The same, but for a feature that the run leaves out.
    fn without(self, feature: Option<Feature>) -> Self {
        match feature {
            Some(Feature::Marks) => Self { mark: false, ..self },
            Some(Feature::Threads) => Self { thread: false, ..self },
            Some(Feature::Proxies) | None => self,
        }
    }
}

/// Processors of the measured channels, and of the load. One alone serves both.
fn processors() -> (Vec<usize>, Vec<usize>) {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    (vec![0], vec![last.min(1)])
}

fn note(queues: &mut Vec<String>, name: &str, at: &Namespace, device: &str) -> Result {
    let prefix = format!("{name}: ");
    if queues.iter().any(|line| line.starts_with(&prefix)) {
        return Ok(());
    }
    let shown = at.tc(&["qdisc", "show", "dev", device])?;
    queues.extend(shown.lines().map(|line| format!("{prefix}{}", line.trim())));
    Ok(())
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Its round trips.
    pub trips: Vec<RoundTrip>,
    /// The load as measured.
    pub offered: Offered,
    /// Payload of the load that arrived meanwhile, in Mbit/s.
    pub goodput: f64,
    /// Stalls of the machine meanwhile.
    pub stalls: Stalls,
    /// The longest times of the channels' ends; `None`: not measured.
    pub computed: Option<Computed>,
}

/// Largest deviation of a load from the stated one, in Mbit/s: a part of the link's rate.
const TOLERANCE: f64 = 0.05 * RATE as f64 / 1e6;

impl Run {
    /// The reason why the run does not count; `None`: it does. (A greedy stream has no rate to be held to.)
    pub(super) fn fell_short(&self, row: &Row) -> Option<String> {
        let asked = f64::from(row.percent) * RATE as f64 / 1e8;
        let offered = self.offered.mbit();
        let differs = row.percent > 0 && !row.pattern.is_greedy() && (offered - asked).abs() > TOLERANCE;
        differs.then(|| format!("the load was {offered:.1} Mbit/s instead of {asked:.0}; the machine is too busy"))
    }

    /// Round-trip times in µs of the samples that came back.
    pub(super) fn times(&self) -> Vec<f64> {
        self.all_times().collect()
    }

    /// The same without those that a stall hit.
    pub(super) fn times_not_stalled(&self) -> impl Iterator<Item = f64> {
        self.came(false)
    }

    /// Round trips that a stall hit.
    pub(super) fn stalled(&self) -> Stalled {
        self.came(true).fold(Stalled::default(), |all, us| Stalled { n: all.n + 1, max: all.max.max(us) })
    }

    /// All round-trip times in µs of those that came back.
    pub(super) fn all_times(&self) -> impl Iterator<Item = f64> {
        self.all().map(|(_, took)| took as f64 / 1000.0)
    }

    /// Round-trip times in µs less the stalls during each, of all that came back.
    pub(super) fn without_stalls(&self) -> impl Iterator<Item = f64> {
        self.all().map(|(sent, took)| self.stalls.without(sent, sent + took) as f64 / 1000.0)
    }

    fn came(&self, stalled: bool) -> impl Iterator<Item = f64> {
        let hit = move |sent, took| self.stalls.hit(sent, sent + took) == stalled;
        self.all().filter(move |(sent, took)| hit(*sent, *took)).map(|(_, took)| took as f64 / 1000.0)
    }

    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        self.trips.iter().filter_map(|trip| Some((trip.sent_ns, trip.took_ns?)))
    }

    /// Round trips that did not come back.
    pub(super) fn lost(&self) -> u64 {
        self.missing().len() as u64
    }

    /// The numbers of those that did not come back.
    pub(super) fn missing(&self) -> Vec<usize> {
        self.trips.iter().enumerate().filter(|(_, trip)| trip.took_ns.is_none()).map(|(number, _)| number).collect()
    }
}

/// A set-up.
#[derive(Debug)]
pub(super) struct Setup {
    /// As in the paper.
    pub title: &'static str,
    /// `true`: a switch is between the hosts.
    pub switched: bool,
    /// Hosts of the measured channel's publisher, of the load, and of all subscribers.
    pub hosts: [u8; 3],
    /// The queue that makes the mark count.
    pub queue: Queue,
    /// Bytes of payload in the paper's rows; the overload rows come with 64 bytes, too.
    pub payload: usize,
}

/// (a): Pub.1 and Pub.2 on Host1. The sender's own queue sorts by socket priority.
pub(super) const NIC: Setup = Setup {
    title: "(a) One network card for channel and load",
    switched: false,
    hosts: [1, 1, 2],
    queue: Queue::Bands,
    payload: SMALL,
};

/// (b): Pub.1 on Host1, Pub.2 on Host2, both subscribers behind one port of the switch, which sorts by DSCP. Larger
/// packets than in (a): the paper gives no size.
pub(super) const SWITCH: Setup = Setup {
    title: "(b) One port of a switch for channel and load",
    switched: true,
    hosts: [1, 2, 3],
    queue: Queue::Classes,
    payload: 1400,
};

/// A small sample, in bytes.
pub(super) const SMALL: usize = 64;

impl Setup {
    /// Makes its hosts.
    ///
    /// # Errors
    /// As [`Topology::link`].
    pub(super) fn build(&self, lab: &Lab) -> Result<Topology> {
        // The line's threads are beside the load's: the measured ends have their processor to themselves.
        let line = |host| [Line::of(host, RATE).on(processors().1[0] as u16)];
        if self.switched { Topology::switch(lab, 3, &line(self.hosts[2])) } else { Topology::link(lab, &line(1)) }
    }

    /// The namespace and interface at the start of the congested link.
    ///
    /// # Errors
    /// None for topologies that [`Setup::build`] made.
    pub(super) fn bottleneck<'a>(&self, topology: &'a Topology) -> Result<(&'a Namespace, String)> {
        if self.switched {
            return Ok((topology.middle()?, Topology::leads_to(self.hosts[2])));
        }
        Ok((topology.host(self.hosts[0]), DEVICE.to_owned()))
    }
}

/// A run for tests: round trips of these times in µs, and lost ones.
#[cfg(test)]
pub(super) fn run(took_us: &[u64], lost: usize) -> Run {
    let came = took_us.iter().map(|us| RoundTrip { sent_ns: 0, took_ns: Some(us * 1000) });
    let trips = came.chain(std::iter::repeat_n(RoundTrip { sent_ns: 0, took_ns: None }, lost)).collect();
    Run { trips, offered: Offered::default(), goodput: 0.0, stalls: Stalls::default(), computed: None }
}
