//! The priority of one end of a channel, and changes to it; also as YARP writes them: `qos="level:high; priority:10; policy:1"`
//! (YS-31), `DSCP:AF42`, `POL:1 PRT:30` (YS-32).

use super::{Mark, Policing, PriorityError, Scheduling, refuse};
use crate::quantity::{parse_bit_rate, parse_duration};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::time::Duration;

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

/// A change of one setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change<T> {
    /// As it is.
    #[default]
    Keep,
    /// Back to the default.
    Unset,
    /// To this.
    Set(T),
}

impl<T: Clone> Change<T> {
    /// Carries it out.
    pub fn apply(&self, to: &mut Option<T>) {
        match self {
            Change::Keep => {}
            Change::Unset => *to = None,
            Change::Set(value) => *to = Some(value.clone()),
        }
    }
    /// `true` if it changes nothing.
    pub fn is_keep(&self) -> bool {
        matches!(self, Change::Keep)
    }
    /// Takes the change from `other`, if this is none.
    pub fn fill(&mut self, other: &Change<T>) {
        if self.is_keep() {
            self.clone_from(other);
        }
    }
    /// The change as the first, if `other` is one, too; otherwise as the second.
    pub fn apart(&self, other: &Change<T>) -> (Change<T>, Change<T>) {
        if other.is_keep() { (Change::Keep, self.clone()) } else { (self.clone(), Change::Keep) }
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

/// Highest processor number that is believed.
const MOST_CPU: u16 = 1023;

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
        let mut changes = Changes::default();
        let (mut policy, mut priority) = (None::<PolicyName>, None::<i64>);
        let text = text.split(':').map(str::trim).collect::<Vec<_>>().join(":");
        let words = text.split([';', ',', ' ', '\t', '\n']).filter(|word| !word.is_empty());
        for word in words {
            let Some((key, value)) = word.split_once(':') else { return refuse("qos", word, FORMS) };
            match key.to_ascii_lowercase().as_str() {
                "level" => changes.add(&format!("class={value}"))?,
                "dscp" => changes.add(&format!("dscp={value}"))?,
                "tos" => changes.add(&format!("tos={value}"))?,
                "policy" | "pol" => policy = Some(value.parse()?),
                "priority" | "prt" => {
                    let number = value.parse().or_else(|_| refuse("priority", value, PRIORITIES))?;
                    priority = Some(number);
                }
                _ => return refuse("qos", word, FORMS),
            }
        }
        changes.sched = match (policy, priority) {
            (None, None) => Change::Keep,
            (_, Some(-1)) => Change::Unset,
            (Some(policy), given) => Change::Set(policy.with(given.unwrap_or(0))?),
            (None, Some(given)) => {
                let allowed = "a priority with its policy, such as policy:1; priority:10";
                return refuse("priority", &given.to_string(), allowed);
            }
        };
        Ok(changes)
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

fn number(value: &str) -> Result<u8, PriorityError> {
    value.parse().map_or_else(|_| refuse("tos", value, "0 to 255"), Ok)
}

/// The slowest useful pace.
const SLOWEST: u64 = 1000;

fn pace(value: &str) -> Result<u64, PriorityError> {
    let bytes = parse_bit_rate(value).ok().map(|bits| bits / 8).filter(|bytes| *bytes >= SLOWEST);
    bytes.map_or_else(|| refuse("pace", value, "a rate from 8kbit/s up, such as 20Mbit/s"), Ok)
}

/// The longest latency budget: a day.
const LONGEST: Duration = Duration::from_secs(86_400);

fn latency_budget(value: &str) -> Result<u64, PriorityError> {
    let budget = parse_duration(value).ok().filter(|budget| *budget <= LONGEST);
    let ns = budget.and_then(|budget| u64::try_from(budget.as_nanos()).ok());
    ns.map_or_else(
        || refuse("latency-budget", value, "0us to 86400s with a unit, such as 2ms; 0us: nothing gathers"),
        Ok,
    )
}

/// A socket priority as it is written: a number, or from 65536 on a class of a queue (`MAJOR:MINOR`, hexadecimal).
pub fn priority_text(priority: u32) -> String {
    match priority >> 16 {
        0 => priority.to_string(),
        major => format!("{major:x}:{:x}", priority & 0xffff),
    }
}

/// A class of a queue: HTB and others put packets there whose priority names it (`htb_classify`).
fn class_of_a_queue(value: &str) -> Option<u32> {
    let (major, minor) = value.split_once(':')?;
    let number = |text: &str| u16::from_str_radix(text, 16).ok().filter(|number| *number > 0);
    // The kernel takes a signed number.
    let major = number(major).filter(|major| *major < 0x8000)?;
    Some(u32::from(major) << 16 | u32::from(number(minor)?))
}

fn socket_priority(value: &str) -> Result<u32, PriorityError> {
    value.parse().ok().filter(|p| *p < 16).or_else(|| class_of_a_queue(value)).map_or_else(
        || {
            refuse(
                "priority",
                value,
                "0 to 15, or a class of a queue such as 7a2:1a0 (7 and above need CAP_NET_ADMIN); for threads say sched=fifo:N",
            )
        },
        Ok,
    )
}

/// Processors as `1`, `0,2` or `0-3`.
fn processors(value: &str) -> Result<Vec<u16>, PriorityError> {
    let wrong = || refuse("affinity", value, "processor numbers such as 1, 0,2 or 0-3 (0 to 1023)");
    let mut cpus = Vec::new();
    for part in value.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.trim().parse::<u16>(), last.trim().parse::<u16>()) else { return wrong() };
        if first > last || last > MOST_CPU {
            return wrong();
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// A scheduling policy without its priority, as YARP names and numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// SCHED_OTHER, 0.
    Other,
    /// SCHED_FIFO, 1.
    Fifo,
    /// SCHED_RR, 2.
    RoundRobin,
}

const POLICIES: &str = "SCHED_OTHER (0), SCHED_FIFO (1) or SCHED_RR (2)";
const PRIORITIES: &str = "1 to 99 for SCHED_FIFO and SCHED_RR, 0 for SCHED_OTHER, -1 for back to the default";
const FORMS: &str = "level:low|normal|high|critical, dscp:NAME or 0 to 63, tos:0 to 255, policy:0|1|2 (also pol:), \
                     priority:1 to 99 of the thread (also prt:), separated by ;";

impl FromStr for PolicyName {
    type Err = PriorityError;
    /// A number, or a name in any case with or without `SCHED_`.
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let lower = text.trim().to_ascii_lowercase();
        match lower.strip_prefix("sched_").unwrap_or(&lower) {
            "0" | "other" | "normal" => Ok(PolicyName::Other),
            "1" | "fifo" => Ok(PolicyName::Fifo),
            "2" | "rr" => Ok(PolicyName::RoundRobin),
            _ => refuse("policy", text, POLICIES),
        }
    }
}

impl PolicyName {
    /// The policy with a priority.
    ///
    /// # Errors
    /// A priority that doesn't fit: 1…99 for FIFO and RR, 0 for OTHER.
    pub fn with(self, priority: i64) -> Result<Scheduling, PriorityError> {
        let form = match self {
            PolicyName::Other if priority == 0 => "other".to_owned(),
            PolicyName::Other => String::new(),
            PolicyName::Fifo => format!("fifo:{priority}"),
            PolicyName::RoundRobin => format!("rr:{priority}"),
        };
        form.parse().or_else(|_| refuse("priority", &priority.to_string(), PRIORITIES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::{Class, Policy};
    use proptest::prelude::*;

    #[test]
    fn words_become_changes() {
        let changes: Changes = "class=HIGH sched=fifo:30 affinity=0-2,1".parse().unwrap();
        let mut settings = PrioritySettings::default();
        changes.apply(&mut settings);
        assert_eq!(settings.mark, Some(Mark::Class(Class::High)));
        assert_eq!((settings.sched, settings.affinity.clone()), ("fifo:30".parse().ok(), Some(vec![0, 1, 2])));
        "sched=default dscp=EF priority=6".parse::<Changes>().unwrap().apply(&mut settings);
        assert_eq!((settings.sched, settings.mark.unwrap().tos()), (None, 0xb8));
        assert!(settings.wants_own_thread() && settings.socket_priority == Some(6));
    }

    #[test]
    fn values_from_elsewhere_are_checked() {
        let fine = |settings: PrioritySettings| settings.check();
        let sched = |policy| PrioritySettings { sched: Some(Policy::into(policy)), ..Default::default() };
        assert_eq!(fine(sched(Policy::Fifo(99))), Ok(()));
        assert!(fine(sched(Policy::Fifo(100))).is_err() && fine(sched(Policy::RoundRobin(0))).is_err());
        for bad in [
            PrioritySettings { socket_priority: Some(16), ..Default::default() },
            PrioritySettings { affinity: Some(Vec::new()), ..Default::default() },
            PrioritySettings { affinity: Some(vec![0, 1024]), ..Default::default() },
            PrioritySettings { pace: Some(0), ..Default::default() },
            PrioritySettings { latency_budget_ns: Some(u64::MAX), ..Default::default() },
            PrioritySettings {
                police: Some(Policing { period_ns: 0, tolerance_ns: 0, largest: 1 }),
                ..Default::default()
            },
        ] {
            assert!(fine(bad.clone()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_latency_budget_is_set_undone_and_taken_back() {
        let set = |text: &str| text.parse::<Changes>().unwrap();
        let mut settings = PrioritySettings::default();
        set("latency-budget=2ms").apply(&mut settings);
        assert_eq!(settings.latency_budget_ns, Some(2_000_000));
        let none = set("latency-budget=0us");
        assert_eq!((none.undone(&settings), none.is_without_packets()), (set("latency-budget=2ms"), false));
        none.apply(&mut settings);
        assert_eq!((settings.latency_budget_ns, settings.check()), (Some(0), Ok(())));
        set("latency-budget=default").apply(&mut settings);
        assert_eq!(settings, PrioritySettings::default());
        let (stated, rest) = set("latency-budget=1ms pace=8Mbit/s").apart(&set("latency-budget=2ms"));
        assert_eq!((stated, rest), (set("latency-budget=1ms"), set("pace=8Mbit/s")));
    }

    #[test]
    fn a_mark_of_its_own_takes_no_socket_priority_from_the_default() {
        let default: Changes = "class=critical priority=5 pace=8Mbit/s".parse().unwrap();
        let (mut port, mut own) = (PrioritySettings::default(), PrioritySettings::default());
        default.apply(&mut port);
        assert_eq!(own.or(&port), port);
        own.mark = Some(Mark::Class(Class::Low));
        assert_eq!((own.or(&port).socket_priority, own.or(&port).pace), (None, Some(1_000_000)));
    }

    #[test]
    fn errors_name_the_allowed_values() {
        for (text, says) in [
            ("class=urgent", "critical (crit)"),
            ("dscp=64", "0 to 63"),
            ("tos=256", "0 to 255"),
            ("sched=fifo:100", "1 to 99"),
            ("affinity=2-1", "0 to 1023"),
            ("affinity=0-4000000000", "0 to 1023"),
            ("priority=16", "0 to 15"),
            ("pace=20", "20Mbit/s"),
            ("pace=1bit/s", "8kbit/s"),
            ("police=100Hz", "100Hz/2/1000B"),
            ("latency-budget=2", "such as 2ms"),
            ("latency-budget=2days", "such as 2ms"),
            ("colour=red", "class=low"),
            ("class", "class=low"),
            ("class=high dscp=46", "not two"),
        ] {
            let said = text.parse::<Changes>().unwrap_err().to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,60}") {
            let _ = text.parse::<Changes>();
        }
    }

    #[test]
    fn ys_31_strings_of_profiles() {
        for text in [
            "level:high; priority:10; policy:1",
            " LEVEL : HIGH ;priority:10;policy: SCHED_FIFO;",
            "prt:10 pol:1 Level:High",
        ] {
            let settings = PrioritySettings::from_yarp(text).unwrap();
            assert_eq!(settings.mark, Some(Mark::Class(Class::High)), "{text}");
            assert_eq!(settings.sched.unwrap().policy, Policy::Fifo(10), "{text}");
        }
        assert_eq!(PrioritySettings::from_yarp("").unwrap(), PrioritySettings::default());
    }

    #[test]
    fn ys_30_ys_51_every_form_of_packet_priority_works() {
        let tos = |text| PrioritySettings::from_yarp(text).unwrap().mark.unwrap().tos();
        assert_eq!([tos("LEVEL:HIGH"), tos("DSCP:AF42"), tos("DSCP:36"), tos("TOS:144")], [144; 4]);
        assert_eq!([tos("LEVEL:LOW"), tos("LEVEL:NORM"), tos("LEVEL:CRIT"), tos("DSCP:VA")], [40, 0, 176, 176]);
    }

    #[test]
    fn ys_12_back_to_the_default() {
        assert_eq!(Changes::from_yarp("priority:-1; policy:1").unwrap().sched, Change::Unset);
        assert_eq!(Changes::from_yarp("policy:0").unwrap().sched, Change::Set(Scheduling::default()));
    }

    #[test]
    fn errors_of_yarp_name_the_allowed_values() {
        for (text, says) in [
            ("high", "level:low"),
            ("colour:red", "level:low"),
            ("level:urgent", "critical (crit)"),
            ("dscp:64", "0 to 63"),
            ("tos:256", "0 to 255"),
            ("policy:7; priority:1", "SCHED_RR (2)"),
            ("policy:1; priority:100", "1 to 99"),
            ("policy:1", "1 to 99"),
            ("policy:0; priority:4", "1 to 99"),
            ("priority:10", "policy:1; priority:10"),
            ("priority:x", "1 to 99"),
            ("level:high; tos:3", "not two"),
        ] {
            let said = Changes::from_yarp(text).unwrap_err().to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_of_yarp_is_answered(text in ".{0,60}|((level|tos|policy|priority|:|;| |[0-9]){0,12})") {
            let _ = Changes::from_yarp(&text);
        }
    }
}
