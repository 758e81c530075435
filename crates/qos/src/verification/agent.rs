//! An agent that watches the measurements, and makes a new plan when they leave the contract (Y-17).
//!
//! A contract's rates, sizes and execution times are limits: bounds hold below them. The agent acts when one is exceeded by more
//! than a tenth in each of the last looks; a single look may have met a stall of the machine. It decides at most once in a
//! stated time, within stated classes. It changes an assignment completely or not at all, and gives its reason.

use super::{Cost, Measured, Window, measured};
use crate::Class;
use crate::contract::Contract;
use crate::placement::Watch;
use crate::plan::{Channel, FileChange, Plan, PlanError, make, rewrite};
use crate::quantity::{parse_bytes, parse_duration};
use crate::system::System;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Looks in which a value has to be exceeded.
pub const LOOKS: usize = 3;
/// Least excess over the contract that counts, as a part of its value.
pub const EXCESS: f64 = 0.1;

/// Limits of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The classes that it may give.
    pub classes: Vec<Class>,
    /// Least time between two decisions.
    pub every: Duration,
}

/// The decision of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// No change: all channels keep their bounds with their present settings.
    Keep,
    /// These settings.
    Change,
    /// No change: no assignment within the limits keeps all bounds.
    Refuse,
}

/// A decision with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The decision.
    pub decision: Choice,
    /// The reason.
    pub because: String,
    /// Changes that make the contract agree with the measurements.
    pub contract: Vec<FileChange>,
    /// New settings of channels.
    pub settings: Vec<Setting>,
}

/// The new settings of a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Setting {
    /// Its place in the plan.
    #[serde(skip)]
    pub channel: usize,
    /// The topic.
    pub topic: String,
    /// The subscriber.
    pub subscriber: String,
    /// Words for the publisher's end, as `thalweg set` takes them.
    pub publisher_end: String,
    /// Words for the subscriber's end.
    pub subscriber_end: String,
}

/// An agent.
#[derive(Debug)]
pub struct Agent {
    /// The contract with the decisions so far: only an excess over that is news.
    text: String,
    contract: Contract,
    /// The plan whose settings channels have.
    plan: Plan,
    limits: Limits,
    recent: Vec<VecDeque<(Cost, f64)>>,
    decided: Option<Duration>,
}

impl Agent {
    /// The agent of a contract's text and the plan of it.
    ///
    /// # Errors
    /// [`PlanError`]: the text is no contract, or the plan is of another one.
    pub fn new(text: &str, plan: &Plan, limits: Limits) -> Result<Self, PlanError> {
        let contract = Contract::read(text).map_err(PlanError::Contract)?;
        let given = format!("{:016x}", contract.hash);
        if given != plan.contract.hash {
            return Err(PlanError::OtherContract { planned: plan.contract.hash.clone(), given });
        }
        let recent = vec![VecDeque::with_capacity(LOOKS); plan.channels.len()];
        let (text, plan) = (text.to_owned(), plan.clone());
        Ok(Self { text, contract, plan, limits, recent, decided: None })
    }

    /// Adds the measurements of a channel within `seconds`, at one look.
    pub fn look(&mut self, channel: usize, seconds: f64, window: &Window) {
        let Some(recent) = self.recent.get_mut(channel) else { return };
        if recent.len() == LOOKS {
            recent.pop_front();
        }
        let rate = if seconds > 0.0 { window.received as f64 / seconds } else { 0.0 };
        recent.push_back((if window.measured > 0 { window.cost } else { Cost::default() }, rate));
    }

    /// The decision at `now`. `None`: all is within the contract, or was decided on before, or the last decision was not long ago.
    pub fn decide(&mut self, now: Duration, watch: &mut dyn Watch) -> Option<Decision> {
        if self.decided.is_some_and(|decided| now < decided.saturating_add(self.limits.every)) {
            return None;
        }
        let changes = self.exceeded();
        if changes.is_empty() {
            return None;
        }
        self.decided = Some(now);
        let said = changes.iter().map(|change| said(&self.contract.system, change)).collect::<Vec<_>>().join("; ");
        let (decision, then, settings) = match self.replan(&changes, watch) {
            Ok(settings) if settings.is_empty() => {
                (Choice::Keep, "all deadlines are kept with the settings there are".to_owned(), settings)
            }
            Ok(settings) => {
                let then = format!("all deadlines are kept with other settings of {} channels", settings.len());
                (Choice::Change, then, settings)
            }
            Err(why) => (Choice::Refuse, why, Vec::new()),
        };
        Some(Decision { decision, because: format!("{said}: {then}"), contract: changes, settings })
    }

    /// The settings of the last decision are in force.
    pub fn applied(&mut self, watch: &mut dyn Watch) {
        self.plan = make(&self.contract, self.plan.model, watch);
    }

    /// Plans with the measured values. Gives the settings that channels need then and lack now, or the reason why there are none.
    fn replan(&mut self, changes: &[FileChange], watch: &mut dyn Watch) -> Result<Vec<Setting>, String> {
        let text = rewrite(&self.text, changes).map_err(|e| e.to_string())?;
        self.contract = Contract::read(&text).map_err(|e| e.to_string())?;
        self.text = text;
        let plan = make(&self.contract, self.plan.model, watch);
        if let Some(refusal) = plan.refusals.first() {
            let offer =
                refusal.offers.first().map(|offer| format!("; what would do: {}", offer.what)).unwrap_or_default();
            return Err(format!("{} needs {} and has {}{offer}", refusal.what, refusal.needs, refusal.has));
        }
        let raised = |new: &&Channel| self.plan.channels.iter().any(|old| same(old, new) && old.class != new.class);
        let forbidden = |new: &&Channel| !self.limits.classes.contains(&new.class);
        if let Some(channel) = plan.channels.iter().filter(raised).find(forbidden) {
            return Err(format!("{} would need class {}, which may not be given", channel.topic, channel.class));
        }
        Ok(settings(&self.plan, &plan))
    }

    /// Values that exceeded the contract in each of the last looks.
    fn exceeded(&self) -> Vec<FileChange> {
        let system = &self.contract.system;
        let channels = self.plan.channels.iter().zip(&self.recent).filter(|(_, recent)| recent.len() == LOOKS);
        let (mut seen, mut rates) = (Vec::new(), Vec::new());
        for (channel, recent) in channels {
            let cost = recent.iter().map(|(cost, _)| *cost).reduce(Cost::at_most).unwrap_or_default();
            let rate = recent.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
            let (topic, subscriber) = (channel.topic.clone(), channel.subscriber.clone());
            seen.push(Measured { topic, subscriber, samples: 1, measured: cost });
            rates.extend(too_fast(system, channel, rate));
        }
        let mut changes = measured(system, &seen);
        changes.retain(|change| exceeds(system, change));
        rates.dedup_by(|one, other| one.name == other.name);
        changes.extend(rates);
        changes
    }
}

/// The change that gives a topic its measured rate, if that exceeds the contract's.
fn too_fast(system: &System, channel: &Channel, rate: f64) -> Option<FileChange> {
    let topic = system.topics.iter().find(|topic| topic.name == channel.topic)?;
    let planned = channel.rate_hz?;
    let published = (rate * topic.rate / planned).ceil();
    let change =
        |value: String| FileChange { table: "topic".into(), name: topic.name.clone(), key: "rate".into(), value };
    (rate > planned * (1.0 + EXCESS)).then(|| change(format!("\"{published} Hz\"")))
}

/// `true` if a value is more than a tenth above the contract's, if the contract has one.
fn exceeds(system: &System, change: &FileChange) -> bool {
    let quoted = change.value.trim_matches('"');
    let new = match change.key.as_str() {
        "size" | "scaled_size" => parse_bytes(quoted).ok(),
        _ => parse_duration(quoted).ok().and_then(|time| u64::try_from(time.as_nanos()).ok()),
    };
    let old = declared(system, change);
    new.zip(old).is_some_and(|(new, old)| old > 0 && new as f64 > old as f64 * (1.0 + EXCESS))
}

/// The contract's value.
fn declared(system: &System, change: &FileChange) -> Option<u64> {
    let topic = || system.topics.iter().find(|topic| topic.name == change.name);
    let subscriber = || system.subscribers.iter().find(|subscriber| subscriber.name == change.name);
    match change.key.as_str() {
        "size" => topic().map(|topic| topic.size),
        "cpu_send" => topic().map(|topic| topic.cpu_send),
        "cpu_receive" => subscriber().map(|subscriber| subscriber.cpu_receive),
        "scaled_size" => subscriber().and_then(|subscriber| subscriber.scaled_size),
        _ => None,
    }
}

fn said(system: &System, change: &FileChange) -> String {
    let FileChange { name, key, value, .. } = change;
    let old = match (key.as_str(), declared(system, change)) {
        ("size" | "scaled_size", Some(bytes)) => format!(", not {bytes} B"),
        (_, Some(ns)) => format!(", not {}", crate::quantity::show_time(ns as f64 / 1e3)),
        _ => String::new(),
    };
    format!("{key} of {name} is {}{old}", value.trim_matches('"'))
}

fn same(one: &Channel, other: &Channel) -> bool {
    (&one.topic, &one.publisher, &one.subscriber) == (&other.topic, &other.publisher, &other.subscriber)
}

/// Settings of channels in the new plan that the old one has not. A channel has the same index in both: the contract is the same.
fn settings(old: &Plan, new: &Plan) -> Vec<Setting> {
    let setting = |(channel, new): (usize, &Channel)| {
        let old = old.channels.iter().find(|old| same(old, new))?;
        let class = (old.class != new.class).then(|| format!("class={}", new.class));
        let sched = |old: &Option<String>, new: &Option<String>| {
            (old != new).then(|| format!("sched={}", new.as_deref().unwrap_or("default")))
        };
        let words = |sched: Option<String>| class.iter().cloned().chain(sched).collect::<Vec<_>>().join(" ");
        let publisher_end = words(sched(&old.sched_publisher, &new.sched_publisher));
        let subscriber_end = words(sched(&old.sched, &new.sched));
        let (topic, subscriber) = (new.topic.clone(), new.subscriber.clone());
        let differs = !publisher_end.is_empty() || !subscriber_end.is_empty();
        differs.then_some(Setting { channel, topic, subscriber, publisher_end, subscriber_end })
    };
    new.channels.iter().enumerate().filter_map(setting).collect()
}

#[cfg(test)]
mod tests;
