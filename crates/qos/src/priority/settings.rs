//! The priority of one end of a channel, and changes to it; also as YARP writes them: `qos="level:high; priority:10; policy:1"`
//! (YS-31), `DSCP:AF42`, `POL:1 PRT:30` (YS-32).

mod change;
mod value;
mod yarp;

pub use change::Change;
pub use value::priority_text;
pub use yarp::PolicyName;

use super::{Mark, Policing, PriorityError, Scheduling, refuse};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use value::{latency_budget, number, pace, processors, socket_priority};

/// The settings of one end of a channel; those that are not stated have the port's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrioritySettings {
    /// Marks of the packets that leave this end: samples at the publisher, acknowledgements and replies at the subscriber.
    pub mark: Option<Mark>,
    /// Socket priority, instead of the one that follows from the mark: 0…6, more with CAP_NET_ADMIN. From 65536 on it names a class of a queue.
    pub socket_priority: Option<u32>,
    /// Scheduling of the thread that serves this end. Set: a thread of its own.
    pub sched: Option<Scheduling>,
    /// Processors that thread may run on, by number. Set: a thread of its own.
    pub affinity: Option<Vec<u16>>,
    /// Most bytes per second that leave this end: paced, and in packets that are small enough for it. For bulk channels.
    pub pace: Option<u64>,
    /// The samples that a publisher may send; those beyond are refused.
    pub police: Option<Policing>,
    /// Latency budget of the samples that a publisher sends, ns, instead of the one of its QoS: small ones gather for half of it, 1 ms at most, and
    /// leave together; 0: none gather.
    pub latency_budget_ns: Option<u64>,
}

impl PrioritySettings {
    /// `true` if this end needs a thread of its own.
    pub fn wants_own_thread(&self) -> bool {
        self.sched.is_some() || self.affinity.is_some()
    }

    /// As [`Changes::from_yarp`], from the defaults.
    ///
    /// # Errors
    /// As there.
    pub fn from_yarp(text: &str) -> Result<Self, PriorityError> {
        let mut settings = Self::default();
        Changes::from_yarp(text)?.apply(&mut settings);
        Ok(settings)
    }

    /// Checks that all values are within their ranges: a peer's need not be.
    ///
    /// # Errors
    /// The first that is not, with the allowed ones.
    pub fn check(&self) -> Result<(), PriorityError> {
        self.socket_priority.map_or(Ok(0), |p| socket_priority(&priority_text(p)))?;
        self.sched.map_or(Ok(Scheduling::default()), |sched| sched.to_string().parse())?;
        self.pace.map_or(Ok(0), |bytes| pace(&format!("{}bit/s", bytes.saturating_mul(8))))?;
        self.police.map_or(Ok(()), |police| police.check())?;
        self.latency_budget_ns.map_or(Ok(0), |ns| latency_budget(&format!("{ns}ns")))?;
        let numbers = |cpus: &Vec<u16>| cpus.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        self.affinity.as_ref().map_or(Ok(Vec::new()), |cpus| processors(&numbers(cpus)))?;
        Ok(())
    }

    /// These settings, with those of `default` for missing ones.
    pub fn or(&self, default: &PrioritySettings) -> PrioritySettings {
        PrioritySettings {
            mark: self.mark.or(default.mark),
            socket_priority: self.socket_priority.or(default.socket_priority.filter(|_| self.mark.is_none())),
            sched: self.sched.or(default.sched),
            affinity: self.affinity.clone().or_else(|| default.affinity.clone()),
            pace: self.pace.or(default.pace),
            police: self.police.or(default.police),
            latency_budget_ns: self.latency_budget_ns.or(default.latency_budget_ns),
        }
    }
}

/// Changes to [`PrioritySettings`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changes {
    /// Change of the mark.
    pub mark: Change<Mark>,
    /// Change of the socket priority.
    pub socket_priority: Change<u32>,
    /// Change of the scheduling.
    pub sched: Change<Scheduling>,
    /// Change of the processors.
    pub affinity: Change<Vec<u16>>,
    /// Change of the pace.
    pub pace: Change<u64>,
    /// Change of the policing.
    pub police: Change<Policing>,
    /// Change of the latency budget.
    pub latency_budget_ns: Change<u64>,
}

const WORDS: &str = "class=low|normal|high|critical, dscp=NAME or 0 to 63, tos=0 to 255, priority=0 to 15 (socket priority) or a class of a queue such as 7a2:1a0, \
                     sched=other|fifo:N|rr:N|deadline:RUNTIME/PERIOD, affinity=CPU,CPU-CPU, pace=20Mbit/s, police=100Hz/2/1000B, latency-budget=2ms; NAME=default takes one back";

impl Changes {
    /// Carries them out.
    pub fn apply(&self, to: &mut PrioritySettings) {
        self.mark.apply(&mut to.mark);
        self.socket_priority.apply(&mut to.socket_priority);
        self.sched.apply(&mut to.sched);
        self.affinity.apply(&mut to.affinity);
        self.pace.apply(&mut to.pace);
        self.police.apply(&mut to.police);
        self.latency_budget_ns.apply(&mut to.latency_budget_ns);
    }

    /// Takes the changes that these do not state from `others`.
    pub fn fill(&mut self, others: &Changes) {
        self.mark.fill(&others.mark);
        self.socket_priority.fill(&others.socket_priority);
        self.sched.fill(&others.sched);
        self.affinity.fill(&others.affinity);
        self.pace.fill(&others.pace);
        self.police.fill(&others.police);
        self.latency_budget_ns.fill(&others.latency_budget_ns);
    }

    /// The parts that `others` state, and the rest.
    pub fn apart(&self, others: &Changes) -> (Self, Self) {
        let (mark, socket_priority) =
            (self.mark.apart(&others.mark), self.socket_priority.apart(&others.socket_priority));
        let (sched, affinity) = (self.sched.apart(&others.sched), self.affinity.apart(&others.affinity));
        let (pace, police) = (self.pace.apart(&others.pace), self.police.apart(&others.police));
        let latency_budget = self.latency_budget_ns.apart(&others.latency_budget_ns);
        let stated = Self {
            mark: mark.0,
            socket_priority: socket_priority.0,
            sched: sched.0,
            affinity: affinity.0,
            pace: pace.0,
            police: police.0,
            latency_budget_ns: latency_budget.0,
        };
        let rest = Self {
            mark: mark.1,
            socket_priority: socket_priority.1,
            sched: sched.1,
            affinity: affinity.1,
            pace: pace.1,
            police: police.1,
            latency_budget_ns: latency_budget.1,
        };
        (stated, rest)
    }

    /// `true` if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.is_without_packets() && self.sched.is_keep() && self.affinity.is_keep()
    }

    /// The changes that lead from these back to what was `before`.
    pub fn undone(&self, before: &PrioritySettings) -> Self {
        fn back<T: Clone>(change: &Change<T>, before: &Option<T>) -> Change<T> {
            match (change, before) {
                (Change::Keep, _) => Change::Keep,
                (_, Some(before)) => Change::Set(before.clone()),
                (_, None) => Change::Unset,
            }
        }
        Self {
            mark: back(&self.mark, &before.mark),
            socket_priority: back(&self.socket_priority, &before.socket_priority),
            sched: back(&self.sched, &before.sched),
            affinity: back(&self.affinity, &before.affinity),
            pace: back(&self.pace, &before.pace),
            police: back(&self.police, &before.police),
            latency_budget_ns: back(&self.latency_budget_ns, &before.latency_budget_ns),
        }
    }

    /// `true` if nothing changes that concerns packets.
    pub fn is_without_packets(&self) -> bool {
        let packets = self.mark.is_keep() && self.socket_priority.is_keep() && self.pace.is_keep();
        packets && self.police.is_keep() && self.latency_budget_ns.is_keep()
    }

    /// Adds one `NAME=VALUE`, as `thalweg set` takes it.
    ///
    /// # Errors
    /// An unknown name, a value that is not allowed, or a second mark in one command.
    pub fn add(&mut self, word: &str) -> Result<(), PriorityError> {
        let Some((name, value)) = word.split_once('=') else { return refuse("setting", word, WORDS) };
        let default = value.eq_ignore_ascii_case("default");
        match name.trim() {
            "class" | "dscp" | "tos" if !self.mark.is_keep() => {
                refuse("setting", word, "one of class=, dscp= and tos=, not two: each sets the whole mark")
            }
            "class" | "dscp" | "tos" if default => {
                self.mark = Change::Unset;
                Ok(())
            }
            "class" => value.parse().map(|class| self.mark = Change::Set(Mark::Class(class))),
            "dscp" => value.parse().map(|dscp| self.mark = Change::Set(Mark::Dscp(dscp))),
            "tos" => number(value).map(|tos| self.mark = Change::Set(Mark::Tos(tos))),
            "priority" => setting(default, || socket_priority(value)).map(|change| self.socket_priority = change),
            "sched" => setting(default, || value.parse()).map(|change| self.sched = change),
            "affinity" => setting(default, || processors(value)).map(|change| self.affinity = change),
            "pace" => setting(default, || pace(value)).map(|change| self.pace = change),
            "police" => setting(default, || value.parse()).map(|change| self.police = change),
            "latency-budget" => {
                setting(default, || latency_budget(value)).map(|change| self.latency_budget_ns = change)
            }
            _ => refuse("setting", word, WORDS),
        }
    }

    /// Reads YARP's form: `KEY:VALUE` separated by `;`, commas or spaces; case, and spaces around `:`, don't matter.
    ///
    /// # Errors
    /// An unknown key, a value that is not allowed, two marks, or a priority without its policy.
    pub fn from_yarp(text: &str) -> Result<Self, PriorityError> {
        yarp::changes(text)
    }
}

impl FromStr for Changes {
    type Err = PriorityError;
    /// Words such as `class=high sched=fifo:30`, separated by spaces.
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let mut changes = Changes::default();
        text.split_whitespace().try_for_each(|word| changes.add(word))?;
        Ok(changes)
    }
}

fn setting<T>(default: bool, read: impl FnOnce() -> Result<T, PriorityError>) -> Result<Change<T>, PriorityError> {
    if default { Ok(Change::Unset) } else { read().map(Change::Set) }
}

#[cfg(test)]
mod tests;
