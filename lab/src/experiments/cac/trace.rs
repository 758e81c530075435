//! A seeded trace of sessions, and the decisions of a rule about it in virtual time.

use super::{BORDER, BORDERS, KINDS, NETWORK, ROUTES};
use crate::error::Result;
use crate::lab::Lab;
use crate::prediction::changed;
use crate::statistics::Distribution;
use qos::Class;
use qos::admission::pipes::{Pipes, Wanted};
use qos::admission::{Flows, Rule};
use qos::analysis::stages::{Classes, Stages};
use qos::network::{Direction, Network};
use qos::simulate::{Pattern, Run, Seen, simulate, worst};
use qos::system::{Subscriber, System, Topic};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use thalweg::carrier::Dice;

/// Mean time that a session lasts, ns.
const HOLDING: f64 = 60e9;
/// Of ten sessions, so many are of each kind of [`KINDS`].
const MIX: [u64; 3] = [3, 3, 4];
/// Part of each class's share that is sold in pipes.
const SOLD: f64 = 0.5;
/// A quiet session sends this part of what it declared, and so many of a hundred are quiet at a time.
const QUIET: f64 = 0.3;
const QUIETS: u64 = 60;
/// Declared delays at the hosts, from the application to the middleware and back, ns.
const HAND: u64 = 1_000_000;

/// A session: one flow, asked for and stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Session {
    /// Index into [`KINDS`].
    pub kind: usize,
    /// Index into [`ROUTES`].
    pub route: usize,
    /// It asks, in ns of virtual time.
    pub from: f64,
    /// It ends, if it was admitted.
    pub until: f64,
}

/// Sessions that ask one after the other.
pub(super) struct Trace {
    pub sessions: Vec<Session>,
    pub flows: Flows,
}

impl Trace {
    /// `count` sessions, Poisson arrivals and exponential times, which offer each border `load` times its rate.
    pub(super) fn new(load: f64, count: usize, seed: u64) -> Result<Self> {
        let mut dice = Dice::new(seed);
        let network = changed(NETWORK, &[])?.system;
        let mean: f64 = KINDS.iter().zip(MIX).map(|(kind, of)| kind.rate() * of as f64 / 10.0).sum();
        // Two of three routes cross each border.
        let between = HOLDING * mean * 2.0 / 3.0 / (load * BORDER as f64);
        let mut now = 0.0;
        let mut session = |_| {
            now += exponential(&mut dice, between);
            let drawn = dice.below(10);
            let kind = usize::from(drawn >= MIX[0]) + usize::from(drawn >= MIX[0] + MIX[1]);
            let route = dice.below(ROUTES.len() as u64) as usize;
            Session { kind, route, from: now, until: now + exponential(&mut dice, HOLDING) }
        };
        let sessions: Vec<Session> = (0..count).map(&mut session).collect();
        let flows = Flows::new(with_flows(network, &sessions));
        Ok(Self { sessions, flows })
    }

    /// The decisions of a rule, session by session.
    pub(super) fn decide(&self, lab: &Lab, rule: &Rule, aimed: bool) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut inside = BTreeSet::new();
        let mut decisions = Vec::new();
        for (number, session) in self.sessions.iter().enumerate() {
            lab.stop.check()?;
            let left: BTreeSet<usize> =
                inside.iter().copied().filter(|one: &usize| self.sessions[*one].until > session.from).collect();
            if left.len() < inside.len() {
                // The most that were together.
                self.judge(&inside, aimed, &mut outcome.late)?;
            }
            inside = left;
            let activity = |flow: usize| self.activity(number, flow);
            let measured = |at: Direction, class: Class| self.flows.load(&inside, at, class, activity);
            let began = Instant::now();
            let decision = rule.admits(&self.flows, &inside, number, &measured);
            decisions.push(began.elapsed().as_nanos() as f64 / 1e3);
            match decision {
                Ok(()) => {
                    inside.insert(number);
                    outcome.admitted.insert(number);
                }
                Err(refusal) => *outcome.refused.entry(refusal.to_string()).or_default() += 1,
            }
            if inside.len() > outcome.most.len() {
                outcome.most.clone_from(&inside);
            }
        }
        self.judge(&inside, aimed, &mut outcome.late)?;
        outcome.decision_us = Distribution::of(&decisions).map_or([f64::NAN; 2], |all| [all.p50, all.p99]);
        outcome.used = self.used(&outcome.admitted);
        Ok(outcome)
    }

    /// Part of its declared rate that a session sends when another one asks.
    fn activity(&self, asked: usize, flow: usize) -> f64 {
        let mut dice = Dice::new((asked as u64) << 32 | flow as u64);
        if dice.below(100) < QUIETS { QUIET } else { 1.0 }
    }

    /// Notes the sessions of which a sample can be later than its deadline, if these are there together and send what they declared.
    fn judge(&self, inside: &BTreeSet<usize>, aimed: bool, late: &mut BTreeSet<usize>) -> Result {
        let system = self.flows.only(inside);
        let stages = Stages::new(&system, &Network::new(&system), &[], &Classes::stated(&system));
        let run = Run { pattern: Pattern::Synchronous, seed: 1, duration: 1_200_000_000, events: 2_000_000 };
        let seen = match aimed {
            true => worst(&system, &stages, &run, 1),
            false => [Pattern::Synchronous, Pattern::RandomPhases]
                .map(|pattern| simulate(&system, &stages, &Run { pattern, ..run }))
                .iter()
                .fold(Seen::default(), Seen::and),
        };
        if seen.cut {
            return Err(crate::Error::Failed("a simulation had more events than it may have".into()));
        }
        let of = inside.iter().zip(&seen.pairs);
        late.extend(of.filter(|(flow, pair)| !self.flows.in_time(**flow, Some(pair.max))).map(|(flow, _)| *flow));
        Ok(())
    }

    /// Mean part of the borders' rate that sessions declared.
    fn used(&self, admitted: &BTreeSet<usize>) -> f64 {
        let end = self.sessions.last().map_or(f64::NAN, |last| last.from);
        let of = |flow: &usize| {
            let session = &self.sessions[*flow];
            let time = session.until.min(end) - session.from;
            let one = BTreeSet::from([*flow]);
            let class = KINDS[session.kind].class;
            let border =
                |link: &usize| self.flows.load(&one, Direction { link: *link, reversed: false }, class, |_| 1.0);
            BORDERS.iter().map(border).sum::<f64>() * time / end
        };
        admitted.iter().map(of).sum::<f64>() / (BORDERS.len() as u64 * BORDER) as f64
    }
}

/// The result of a rule.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub admitted: BTreeSet<usize>,
    /// Refusals by reason.
    pub refused: BTreeMap<String, usize>,
    /// Sessions with a sample later than its deadline.
    pub late: BTreeSet<usize>,
    /// The sessions at the time with the most of them.
    pub most: BTreeSet<usize>,
    /// Mean part of the borders' rate.
    pub used: f64,
    /// Time of a decision: median and 99th percentile, µs.
    pub decision_us: [f64; 2],
}

/// All rules.
pub(super) fn rules() -> Result<[Rule; 4]> {
    let network = changed(NETWORK, &[])?.system;
    let wanted = |(from, to): (usize, usize)| {
        let limit = |kind: &super::Kind| kind.deadline_ms * 1_000_000 - 2 * HAND;
        let largest = |kind: &super::Kind| kind.size as u64;
        KINDS.iter().map(move |kind| Wanted { from, to, class: kind.class, limit: limit(kind), largest: largest(kind) })
    };
    let wanted: Vec<Wanted> = ROUTES.into_iter().flat_map(wanted).collect();
    let pipes = Pipes::new(&network, &wanted, SOLD);
    let pipes = pipes.map_err(|why| crate::Error::Failed(format!("the experiment's own pipes: {why:?}")))?;
    Ok([Rule::Declared, Rule::Measured, Rule::Bound, Rule::Pipes(pipes)])
}

fn with_flows(mut system: System, sessions: &[Session]) -> System {
    for (topic, session) in sessions.iter().enumerate() {
        let (kind, (from, node)) = (&KINDS[session.kind], ROUTES[session.route]);
        system.topics.push(Topic {
            name: format!("s{topic}"),
            size: kind.size as u64,
            rate: kind.hz,
            period: (1e9 / kind.hz) as u64,
            burst: 1,
            publishers: vec![from],
            class: Some(kind.class),
            hand_in: HAND,
            hand_out: HAND,
            ..Topic::default()
        });
        let (name, deadline) = (format!("/s{topic}"), Some(kind.deadline_ms * 1_000_000));
        system.subscribers.push(Subscriber { topic, node, name, scale: 1, deadline, ..Subscriber::default() });
    }
    system
}

fn exponential(dice: &mut Dice, mean: f64) -> f64 {
    let drawn = (dice.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    -mean * (1.0 - drawn).ln()
}
