//! Hosts and parts, and one run.
//!
//! Both ends of the measured channels run on processor 0, the load and its sink on processor 1. That is the same in both arms, so
//! that the sharing of processors makes no difference between them. The channels stay open through all runs; an arm changes
//! their priority while they live.

use super::bound::Computed;
use super::setup::{SMALL, Setup};
use super::{Amount, RATE, Row, amount, impossible};
use crate::error::Result;
use crate::lab::{Feature, Lab};
use crate::link::{LinkReport, StandStill};
use crate::load::{Generator, Load, Offered, Sink, Traffic};
use crate::part::{Measured, Place};
use crate::results::Stalled;
use crate::round_trips::{CARRIERS, Measure, PING, PONG, PingPong, Priority, RoundTrip};
use crate::stalls::{Monitor, Stalls};
use crate::topology::{Namespace, Queue, Topology, Wire};
use qos::priority::Changes;
use std::time::Duration;
use thalweg::stages::End;

/// The testbed of a set-up.
#[derive(Debug)]
pub(super) struct Testbed {
    ping_pong: PingPong,
    loads: Vec<(Generator, Sink)>,
    setup: &'static Setup,
    topology: Topology, // after the parts: they end first
    treatment: Option<Treatment>,
    queues: Vec<String>,
}

/// Most packets that wait in a queue in front of the congested link.
pub(super) const LIMIT: u32 = 100;
/// Time for the load to build up before round trips are made. The first of these do not count either.
const RAMP: Duration = Duration::from_millis(200);

impl Testbed {
    pub(super) fn build(lab: &Lab, setup: &'static Setup) -> Result<Self> {
        let topology = setup.build(lab)?;
        let [ping, pong] = setup.ends;
        let (ours, theirs) = processors();
        if setup.is_switched() {
            // The switch's work is not on the ends' processor, whose other programs would delay it.
            topology.middle()?.steer(&Topology::leads_to(ping), theirs[0])?;
        }
        let place = |host| Place::at(topology.host(host), &theirs);
        let load = |(from, _): &(u8, u64)| {
            let sink = Sink::new(lab, place(pong), Topology::address_of(pong))?;
            Ok((Generator::new(lab, place(*from), sink.target)?, sink))
        };
        let loads = setup.loads.iter().map(load).collect::<Result<_>>()?;
        let ping_pong = PingPong::acknowledged(lab, setup.realm, &topology, setup.ends, [&ours, &ours], SMALL)?;
        Ok(Self { ping_pong, loads, setup, topology, treatment: None, queues: Vec::new() })
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
            for (n, ((generator, _), (_, percent))) in self.loads.iter_mut().zip(self.setup.loads).enumerate() {
                let (rate, seed) = (load.rate / 100 * percent, load.seed + n as u64);
                generator.start(lab, &Load { rate, seed, ..*load })?;
            }
            lab.stop.sleep(RAMP)?;
        }
        let computes = self.setup.has_contract() && treatment.thread;
        if computes {
            self.computed(lab, row)?; // from nothing
        }
        let monitor = Monitor::start()?;
        let overflowed = self.topology.overflowed();
        let before = self.arrived(lab)?;
        let trips = self.ping_pong.measure(lab, &measure)?;
        let goodput = self.arrived(lab)?.iter().zip(&before).map(|(after, before)| after.mbit_since(before)).sum();
        let stalls = monitor.finish();
        let mut offered = Vec::new();
        if load.is_some() {
            for ((generator, _), (_, percent)) in self.loads.iter_mut().zip(self.setup.loads) {
                offered.push((*percent, generator.stop(lab)?));
            }
        }
        let computed = if computes { Some(self.computed(lab, row)?) } else { None };
        let (stood, overflowed) = (self.topology.stood_still(), self.topology.overflowed() - overflowed);
        Ok(Run { trips, offered, goodput, stalls, stood, overflowed, computed })
    }

    /// What each load's subscriber has received.
    fn arrived(&mut self, lab: &Lab) -> Result<Vec<Traffic>> {
        self.loads.iter_mut().map(|(_, sink)| sink.count(lab)).collect()
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
        for point in self.setup.congested {
            let (at, device) = self.setup.bottleneck(*point, &self.topology)?;
            let queue = if treatment.queue { point.queue() } else { Queue::Fifo };
            Wire { rate: RATE, limit: LIMIT, queue }.install(at, &device)?;
            note(&mut self.queues, &format!("{} of {}", treatment.name, point.name()), at, &device)?;
        }
        let (class, dscp) = if treatment.mark { ("high", 36) } else { ("default", 0) };
        let (sched, wanted) = if treatment.thread { ("fifo:30", ("fifo", 30)) } else { ("default", ("other", 0)) };
        let words = format!("class={class} sched={sched}");
        let changes: Changes = words.parse().map_err(|_| impossible(&words))?;
        for carrier in CARRIERS {
            let priority = Priority { route: carrier.to_owned(), changes: changes.clone(), back: None };
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
    /// `true`: all three.
    pub(super) fn is_whole(&self) -> bool {
        self.queue && self.mark && self.thread
    }

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
pub(super) fn processors() -> (Vec<usize>, Vec<usize>) {
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
    /// The loads as measured, and the percent of the row's load that each was to offer.
    pub offered: Vec<(u64, Offered)>,
    /// Payload of the loads that arrived meanwhile, in Mbit/s.
    pub goodput: f64,
    /// Stalls of the machine meanwhile.
    pub stalls: Stalls,
    /// Each time that a line stood still since the testbed was built.
    pub stood: Vec<StandStill>,
    /// Frames that found a line's queue full.
    pub overflowed: u64,
    /// The longest times of the channels' ends; `None`: not measured.
    pub computed: Option<Computed>,
}

/// Largest deviation of a load from the stated one, in Mbit/s: a part of the link's rate.
const TOLERANCE: f64 = 0.05 * RATE as f64 / 1e6;

impl Run {
    /// The reason why the run does not count; `None`: it does. (A greedy stream has no rate to be held to.)
    pub(super) fn fell_short(&self, row: &Row) -> Option<String> {
        if self.overflowed > 0 {
            // The queue in front lets less through than the line carries, so this one fills only while the line stands still.
            return Some(format!("{} frames found the line's queue full, because it stood still", self.overflowed));
        }
        let of_row = f64::from(row.percent) * RATE as f64 / 1e8;
        let mut loads = self.offered.iter().map(|(percent, load)| (load.mbit(), of_row * *percent as f64 / 100.0));
        let (was, asked) = loads.find(|(was, asked)| !row.pattern.is_greedy() && (was - asked).abs() > TOLERANCE)?;
        Some(format!("the load was {was:.1} Mbit/s instead of {asked:.0}; the machine is too busy"))
    }

    /// What the loads offered together, in Mbit/s.
    pub(super) fn offered_mbit(&self) -> f64 {
        self.offered.iter().map(|(_, load)| load.mbit()).sum()
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
    pub(super) fn without_overlap(&self) -> impl Iterator<Item = f64> {
        self.all().map(|(sent, took)| self.stalls.without(sent, sent + took) as f64 / 1000.0)
    }

    /// Round-trip times in µs less the stalls during each, and less what was left of a line's standing still when it began.
    pub(super) fn undisturbed(&self) -> impl Iterator<Item = f64> {
        self.all().map(|(sent, took)| {
            let waited: u64 = self.stood.iter().map(|stood| stood.left(sent)).sum();
            self.stalls.without(sent, sent + took).saturating_sub(waited) as f64 / 1000.0
        })
    }

    /// Round-trip times in µs less the stalls during each, and less its wait for what a line that had stood still had yet to send,
    /// of all that came back.
    pub(super) fn without_stalls(&self) -> impl Iterator<Item = f64> {
        self.all().map(|(sent, took)| {
            let waited: u64 = self.stood.iter().map(|stood| stood.delays(sent)).sum();
            self.stalls.without(sent, sent + took).saturating_sub(waited) as f64 / 1000.0
        })
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

/// A run for tests: round trips of these times in µs, and lost ones.
#[cfg(test)]
pub(super) fn run(took_us: &[u64], lost: usize) -> Run {
    let came = took_us.iter().map(|us| RoundTrip { sent_ns: 0, took_ns: Some(us * 1000), call_ns: 0 });
    let trips = came.chain(std::iter::repeat_n(RoundTrip { sent_ns: 0, took_ns: None, call_ns: 0 }, lost)).collect();
    Run {
        trips,
        offered: Vec::new(),
        goodput: 0.0,
        stalls: Stalls::default(),
        stood: Vec::new(),
        overflowed: 0,
        computed: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One by one: before the line stood still, while it sends what waited, and after it was idle.
    #[test]
    fn only_round_trips_behind_a_line_that_stood_still_are_less_late() {
        let at = |ms: u64| RoundTrip { sent_ns: ms * 1_000_000, took_ns: Some(900_000), call_ns: 0 };
        let stood = vec![StandStill { ns: 500_000, to_ns: 5_000_000, drained_ns: Some(9_000_000) }];
        let run = Run { trips: vec![at(3), at(6), at(9)], stood, ..run(&[], 0) };
        assert_eq!(run.without_stalls().collect::<Vec<_>>(), [900.0, 400.0, 900.0]);
        assert_eq!(run.without_overlap().collect::<Vec<_>>(), [900.0; 3]);
    }

    #[test]
    fn a_run_whose_line_overflowed_does_not_count() {
        let row = &super::super::rows::rows(&super::super::setup::SWITCH, &crate::lab::Options::default())[0];
        assert_eq!(run(&[100], 0).fell_short(row), None);
        assert!(Run { overflowed: 1, ..run(&[100], 0) }.fell_short(row).unwrap().contains("queue full"));
    }
}
