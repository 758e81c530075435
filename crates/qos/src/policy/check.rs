//! Policies of one port that cannot hold together: refused when the port is built.

use super::matching::{LONGEST, MOST};
use super::values::list;
use super::{Durability, Ownership, Place, PolicyName, PullBuffer, Qos, Queue, Scale};
use crate::expression::Expression;
use std::fmt;
use std::time::Duration;

/// Most fields of a key, longest text of a filter in bytes, most parameters of one and the longest of these in bytes.
const MOST_FIELDS: usize = 16;
const LONGEST_FILTER: usize = 4096;
const MOST_PARAMETERS: usize = 100;
const LONGEST_PARAMETER: usize = 256;
/// Longest list of relays in bytes, and most policies to do without.
const LONGEST_PLACE: usize = 1024;
const MOST_FALLBACK: usize = 32;

/// Two values that contradict each other, or one that has no meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// A policy and its value.
    pub policy: String,
    /// The other one and its value, or the range that was left.
    pub against: String,
    /// The reason, and the remedy.
    pub remedy: &'static str,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} contradicts {}: {}", self.policy, self.against, self.remedy)
    }
}

impl std::error::Error for Contradiction {}

type Checked = Result<(), Contradiction>;

fn refuse(wrong: bool, policy: impl FnOnce() -> (String, String), remedy: &'static str) -> Checked {
    if !wrong {
        return Ok(());
    }
    let (policy, against) = policy();
    Err(Contradiction { policy, against, remedy })
}

impl Qos {
    /// Checks that the policies can hold together.
    ///
    /// # Errors
    /// The first contradiction, with both values.
    pub fn check(&self) -> Checked {
        self.check_times()?;
        self.check_numbers()?;
        self.check_texts()?;
        check_scale(self)?;
        self.pull.as_ref().map_or(Ok(()), check_pull)
    }

    fn check_times(&self) -> Checked {
        for (name, value) in [
            ("deadline", self.deadline),
            ("lifespan", self.lifespan),
            ("liveliness lease", self.liveliness.lease),
            ("pull age", self.pull.as_ref().and_then(|pull| pull.age)),
        ] {
            let zero = || (format!("{name} 0ns"), "the shortest one, 1ns".to_owned());
            refuse(
                value.is_some_and(|v| v.is_zero()),
                zero,
                "nothing could keep it; leave it out, or give it some time",
            )?;
        }
        shorter(
            "deadline",
            self.deadline,
            "separation",
            self.separation,
            "the filter drops what the deadline asks for",
        )?;
        shorter(
            "lifespan",
            self.lifespan,
            "latency-budget",
            self.latency_budget,
            "samples would expire while they may still travel",
        )
    }

    fn check_numbers(&self) -> Checked {
        let limits = &self.limits;
        let (queue, depth) = match self.queue {
            Queue::KeepLast(n) => ("queue keep-last", Some(n)),
            Queue::KeepAll(n) => ("queue keep-all", Some(n)),
            Queue::Block { limit, .. } => ("queue block", Some(limit)),
        };
        for (name, value) in [
            (queue, depth),
            ("limits.samples", limits.samples),
            ("limits.instances", limits.instances),
            ("limits.samples-per-instance", limits.samples_per_instance),
            ("history", Some(self.history)),
        ] {
            let zero = || (format!("{name} 0"), "the lowest one, 1".to_owned());
            refuse(value == Some(0), zero, "nothing could be kept; leave it out, or raise it")?;
        }
        let zero = || ("limits.bytes 0".to_owned(), "the lowest one, 1".to_owned());
        refuse(limits.bytes == Some(0), zero, "leave it out, or raise it")?;
        let kept = (self.durability == Durability::TransientLocal).then_some(self.history);
        let (samples, each) = (limits.samples, limits.samples_per_instance);
        over(queue, depth, "limits.samples", samples)?;
        over("limits.samples-per-instance", each, "limits.samples", samples)?;
        over("history", kept, "limits.samples", samples)?;
        over("history", kept, "limits.samples-per-instance", each)?;
        if matches!(self.queue, Queue::KeepLast(_)) {
            over(queue, depth, "limits.samples-per-instance", each)?;
        }
        let strength = || (format!("strength {}", self.strength), format!("ownership {}", self.ownership));
        let without = self.strength != 0 && self.ownership == Ownership::Shared;
        refuse(without, strength, "only exclusive ownership asks who is stronger")
    }

    /// Checks that partition, key, filter, places and fallback are within their limits. A peer's policies must pass this before they are
    /// looked at.
    ///
    /// # Errors
    /// The first that is not, with its size and the limit.
    pub fn check_texts(&self) -> Checked {
        let count = || (format!("{} partitions", self.partition.len()), format!("the limit of {MOST}"));
        refuse(self.partition.len() > MOST, count, "use wildcards, or fewer")?;
        let fields = || (format!("key of {} fields", self.key.len()), format!("the limit of {MOST_FIELDS}"));
        refuse(self.key.len() > MOST_FIELDS, fields, "name fewer")?;
        for (name, texts) in [("partition", &self.partition), ("key", &self.key)] {
            let long = texts.iter().find(|text| text.len() > LONGEST);
            let length =
                || (format!("{name} of {} bytes", long.map_or(0, String::len)), format!("the limit of {LONGEST}"));
            refuse(long.is_some(), length, "shorten it")?;
        }
        let empty = self.key.iter().any(|field| field.split('.').any(str::is_empty));
        let path = || (format!("key {}", list(&self.key)), "paths of fields".to_owned());
        refuse(empty, path, "a field is a path such as header.frame, without empty parts")?;
        for (name, place) in [("place", Some(&self.place)), ("pull-place", self.pull.as_ref().map(|pull| &pull.place))]
        {
            let length = if let Some(Place::Relay(names)) = place { names.len() } else { 0 };
            let long = || (format!("{name} of {length} bytes"), format!("the limit of {LONGEST_PLACE}"));
            refuse(length > LONGEST_PLACE, long, "name fewer relays")?;
        }
        let count = self.fallback.len();
        let many = || (format!("fallback of {count} policies"), format!("the limit of {MOST_FALLBACK}"));
        refuse(count > MOST_FALLBACK, many, "name each once")?;
        let basic = self.fallback.iter().find(|name| matches!(name, PolicyName::Partition | PolicyName::Key));
        let fallback =
            || (format!("fallback {}", basic.map_or("", |name| name.name())), "what can be done without".to_owned());
        refuse(
            basic.is_some(),
            fallback,
            "samples of another partition or key are other samples; name what is offered",
        )?;
        let Some(filter) = &self.filter else { return Ok(()) };
        let (length, parameters) = (filter.expression.len(), filter.parameters.len());
        let long = || (format!("filter of {length} bytes"), format!("the limit of {LONGEST_FILTER}"));
        refuse(length > LONGEST_FILTER, long, "shorten it")?;
        let many = || (format!("filter with {parameters} parameters"), format!("the limit of {MOST_PARAMETERS}"));
        refuse(parameters > MOST_PARAMETERS, many, "%0 to %99 are all there are")?;
        let long = filter.parameters.iter().find(|parameter| parameter.len() > LONGEST_PARAMETER);
        let length = || {
            (
                format!("filter parameter of {} bytes", long.map_or(0, String::len)),
                format!("the limit of {LONGEST_PARAMETER}"),
            )
        };
        refuse(long.is_some(), length, "shorten it")?;
        let read = Expression::parse(filter).err();
        let language =
            || (read.as_ref().map_or(String::new(), ToString::to_string), "the language of filters".to_owned());
        refuse(read.is_some(), language, "such as: speed > 3 AND name LIKE 'arm%'")
    }
}

fn shorter(name: &str, value: Option<Duration>, other: &str, limit: Option<Duration>, why: &'static str) -> Checked {
    let (Some(value), Some(limit)) = (value, limit) else { return Ok(()) };
    refuse(value < limit, || (format!("{name} {value:?}"), format!("{other} {limit:?}")), why)
}

fn over(name: &str, value: Option<u32>, other: &str, limit: Option<u32>) -> Checked {
    let (Some(value), Some(limit)) = (value, limit) else { return Ok(()) };
    let values = || (format!("{name} {value}"), format!("{other} {limit}"));
    refuse(value > limit, values, "raise the second, or lower the first")
}

fn check_scale(qos: &Qos) -> Checked {
    let wrong = match qos.scale {
        Scale::Every(n) => n == 0,
        Scale::Rate { p, q } => p == 0 || p > q,
        Scale::Millihertz(rate) => rate == 0,
    };
    let scale = || (format!("scale {:?}", qos.scale), "the published stream".to_owned());
    refuse(wrong, scale, "every n-th with n ≥ 1, p of q with 1 ≤ p ≤ q, or more than 0 Hz")?;
    let (width, height) = qos.picture.unwrap_or((1, 1));
    let picture = || (format!("picture {width}x{height}"), "the smallest one, 1x1".to_owned());
    refuse(width == 0 || height == 0, picture, "give both a size")?;
    check_place(&qos.place)
}

fn check_pull(pull: &PullBuffer) -> Checked {
    let size =
        || (format!("pull buffer of {} samples and {} bytes", pull.samples, pull.bytes), "the smallest one".to_owned());
    refuse(pull.samples == 0 || pull.bytes == 0, size, "nothing could be kept; give both a size")?;
    check_place(&pull.place)
}

fn check_place(place: &Place) -> Checked {
    let nameless = matches!(place, Place::Relay(name) if name.is_empty() || name.len() > LONGEST);
    refuse(nameless, || ("place relay".to_owned(), "a name of 1 to 255 bytes".to_owned()), "name its host or node")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Filter, Liveliness, ResourceLimits};

    /// A change, and the expected words.
    type Case<'a> = (&'a dyn Fn(&mut Qos), &'a [&'a str]);

    fn said(change: impl Fn(&mut Qos)) -> String {
        let mut qos = Qos::default();
        change(&mut qos);
        qos.check().map_or_else(|e| e.to_string(), |()| "fine".to_owned())
    }
    fn ms(n: u64) -> Option<Duration> {
        Some(Duration::from_millis(n))
    }

    #[test]
    fn contradictory_policies_are_refused_with_both_values() {
        let limit =
            |samples, samples_per_instance| ResourceLimits { samples, samples_per_instance, ..Default::default() };
        let refused: [Case<'_>; 21] = [
            (&|q| (q.deadline, q.separation) = (ms(10), ms(20)), &["deadline 10ms", "separation 20ms"]),
            (&|q| (q.lifespan, q.latency_budget) = (ms(1), ms(2)), &["lifespan 1ms", "latency-budget 2ms"]),
            (&|q| q.lifespan = ms(0), &["lifespan 0ns", "1ns"]),
            (&|q| q.deadline = ms(0), &["deadline 0ns", "1ns"]),
            (&|q| q.liveliness = Liveliness { lease: ms(0), ..Default::default() }, &["liveliness lease 0ns"]),
            (&|q| q.limits = limit(Some(8), None), &["queue keep-last 16", "limits.samples 8"]),
            (&|q| q.limits = limit(None, Some(4)), &["queue keep-last 16", "limits.samples-per-instance 4"]),
            (
                &|q| (q.queue, q.limits) = (Queue::KeepAll(9), limit(Some(8), None)),
                &["queue keep-all 9", "limits.samples 8"],
            ),
            (&|q| q.limits = limit(Some(20), Some(30)), &["limits.samples-per-instance 30", "limits.samples 20"]),
            (
                &|q| (q.durability, q.history, q.limits) = (Durability::TransientLocal, 40, limit(Some(30), None)),
                &["history 40", "limits.samples 30"],
            ),
            (&|q| q.limits.bytes = Some(0), &["limits.bytes 0", "1"]),
            (&|q| q.history = 0, &["history 0", "1"]),
            (&|q| q.queue = Queue::KeepLast(0), &["queue keep-last 0", "the lowest one, 1", "raise it"]),
            (&|q| q.queue = Queue::KeepAll(0), &["queue keep-all 0", "the lowest one, 1"]),
            (&|q| q.queue = Queue::Block { limit: 0, up_to_us: 1 }, &["queue block 0", "the lowest one, 1"]),
            (&|q| q.strength = 3, &["strength 3", "ownership shared"]),
            (&|q| q.scale = Scale::Rate { p: 3, q: 2 }, &["p: 3, q: 2", "1 ≤ p ≤ q"]),
            (&|q| q.picture = Some((0, 240)), &["picture 0x240"]),
            (&|q| q.pull = Some(PullBuffer { samples: 0, ..Default::default() }), &["pull buffer of 0 samples"]),
            (&|q| q.place = Place::Relay(String::new()), &["place relay", "name its host"]),
            (&|q| q.fallback = vec![PolicyName::Partition], &["fallback partition"]),
        ];
        for (change, parts) in refused {
            let said = said(change);
            assert!(parts.iter().all(|part| said.contains(part)) && said.contains(" contradicts "), "{said}");
        }
    }

    #[test]
    fn values_at_their_limits_are_accepted() {
        assert_eq!(said(|_| ()), "fine");
        assert_eq!(said(|q| (q.deadline, q.separation) = (ms(20), ms(20))), "fine");
        assert_eq!(said(|q| (q.ownership, q.strength) = (Ownership::Exclusive, -3)), "fine");
        assert_eq!(said(|q| q.limits.samples = Some(16)), "fine");
        assert_eq!(said(|q| (q.history, q.limits.samples) = (40, Some(30))), "fine", "volatile keeps no history");
    }

    #[test]
    fn texts_are_bounded() {
        let long = "x".repeat(5000);
        assert!(said(|q| q.partition = vec![long.clone()]).contains("partition of 5000 bytes"));
        assert!(said(|q| q.partition = vec![String::new(); 65]).contains("65 partitions"));
        assert!(said(|q| q.key = vec!["a..b".to_owned()]).contains("key a..b"));
        assert!(said(|q| q.key = vec!["a".to_owned(); 17]).contains("key of 17 fields"));
        let relay = || Place::Relay(long.clone());
        assert!(said(|q| q.place = relay()).contains("place of 5000 bytes"));
        assert!(
            said(|q| q.pull = Some(PullBuffer { place: relay(), ..Default::default() })).contains("pull-place of 5000")
        );
        assert!(said(|q| q.fallback = vec![PolicyName::Deadline; 33]).contains("fallback of 33 policies"));
        let filter = |length: usize, count| Filter {
            expression: format!("{} = 1", "x".repeat(length - 4)),
            parameters: vec![String::new(); count],
        };
        assert!(said(|q| q.filter = Some(filter(4097, 0))).contains("filter of 4097 bytes"));
        assert!(said(|q| q.filter = Some(filter(4096, 101))).contains("101 parameters"));
        assert_eq!(said(|q| q.filter = Some(filter(4096, 100))), "fine");
        let parameter = |length: usize| Filter { expression: "a LIKE %0".into(), parameters: vec!["%".repeat(length)] };
        assert!(
            said(|q| q.filter = Some(parameter(257)))
                .contains("filter parameter of 257 bytes contradicts the limit of 256")
        );
        assert_eq!(said(|q| q.filter = Some(parameter(256))), "fine");
        let wrong = Filter { expression: "speed >".into(), parameters: Vec::new() };
        assert!(said(|q| q.filter = Some(wrong.clone())).contains("filter, byte 7"));
    }
}
