//! Policies as text, by name, for profiles, the command line and reports. The text that is shown can be read again.

use super::values::{NONE, list, time};
use super::{Place, PolicyError, PullBuffer, Qos, Queue, Scale};
use crate::expression::Filter;
use crate::nearest;
use crate::priority::PriorityError;
use crate::quantity::{parse_bytes, parse_duration, parse_rate};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

type Read = Result<(), PolicyError>;

/// A policy by its name.
struct Row {
    name: &'static str,
    show: fn(&Qos) -> String,
    read: fn(&mut Qos, &str) -> Read,
}

const fn row(name: &'static str, show: fn(&Qos) -> String, read: fn(&mut Qos, &str) -> Read) -> Row {
    Row { name, show, read }
}

const ROWS: &[Row] = &[
    row("reliability", |q| q.reliability.to_string(), |q, t| word(t, &mut q.reliability)),
    row("queue", |q| show_queue(q.queue), |q, t| read_queue(t).map(|v| q.queue = v)),
    row("strict", |q| if q.strict { "yes" } else { "no" }.to_owned(), |q, t| yes_or_no(t).map(|v| q.strict = v)),
    row(
        "class",
        |q| q.class.to_string(),
        |q, t| t.parse().map(|v| q.class = v).map_err(|e: PriorityError| wrong(t, e.allowed)),
    ),
    row(
        "max-message",
        |q| format!("{} B", q.max_message),
        |q, t| {
            let bytes = parse_bytes(t).ok().and_then(|v| u32::try_from(v).ok());
            bytes
                .map(|v| q.max_message = v)
                .ok_or_else(|| wrong(t, "a size with a unit up to 1024 MiB, such as 16 MiB"))
        },
    ),
    row("samples", |q| or_none(q.limits.samples), |q, t| count(t).map(|v| q.limits.samples = v)),
    row("instances", |q| or_none(q.limits.instances), |q, t| count(t).map(|v| q.limits.instances = v)),
    row(
        "samples-per-instance",
        |q| or_none(q.limits.samples_per_instance),
        |q, t| count(t).map(|v| q.limits.samples_per_instance = v),
    ),
    row(
        "bytes",
        |q| q.limits.bytes.map_or_else(none, |bytes| format!("{bytes} B")),
        |q, t| {
            let wrong = |_| wrong(t, "a size with a unit, such as 64 MiB, or none");
            q.limits.bytes = if t == NONE { None } else { Some(parse_bytes(t).map_err(wrong)?) };
            Ok(())
        },
    ),
    row("durability", |q| q.durability.to_string(), |q, t| word(t, &mut q.durability)),
    row("history", |q| q.history.to_string(), |q, t| number(t, "a number of samples").map(|v| q.history = v)),
    row("deadline", |q| time(q.deadline), |q, t| duration(t).map(|v| q.deadline = v)),
    row("latency-budget", |q| time(q.latency_budget), |q, t| duration(t).map(|v| q.latency_budget = v)),
    row("lifespan", |q| time(q.lifespan), |q, t| duration(t).map(|v| q.lifespan = v)),
    row("separation", |q| time(q.separation), |q, t| duration(t).map(|v| q.separation = v)),
    row("destination-order", |q| q.destination_order.to_string(), |q, t| word(t, &mut q.destination_order)),
    row("liveliness", |q| q.liveliness.kind.to_string(), |q, t| word(t, &mut q.liveliness.kind)),
    row("lease", |q| time(q.liveliness.lease), |q, t| duration(t).map(|v| q.liveliness.lease = v)),
    row("ownership", |q| q.ownership.to_string(), |q, t| word(t, &mut q.ownership)),
    row("strength", |q| q.strength.to_string(), |q, t| number(t, "a whole number").map(|v| q.strength = v)),
    row("partition", |q| list(&q.partition), |q, t| texts(t).map(|v| q.partition = v)),
    row("key", |q| list(&q.key), |q, t| texts(t).map(|v| q.key = v)),
    row(
        "filter",
        |q| q.filter.as_ref().map_or_else(none, |f| f.expression.clone()),
        |q, t| {
            let parameters = q.filter.take().map(|f| f.parameters).unwrap_or_default();
            q.filter = (t != NONE).then(|| Filter { expression: t.to_owned(), parameters });
            Ok(())
        },
    ),
    row(
        "filter-parameters",
        |q| q.filter.as_ref().map_or_else(none, |f| list(&f.parameters)),
        |q, t| {
            q.filter.get_or_insert_default().parameters = texts(t)?;
            Ok(())
        },
    ),
    row("scale", |q| show_scale(q.scale), |q, t| read_scale(t).map(|v| q.scale = v)),
    row(
        "picture",
        |q| q.picture.map_or_else(none, |(w, h)| format!("{w}x{h}")),
        |q, t| read_picture(t).map(|v| q.picture = v),
    ),
    row("place", |q| q.place.to_string(), |q, t| read_place(t).map(|v| q.place = v)),
    row(
        "pull",
        |q| q.pull.as_ref().map_or_else(none, |p| p.samples.to_string()),
        |q, t| {
            let samples = count(t)?;
            q.pull = samples.map(|samples| PullBuffer { samples, ..q.pull.take().unwrap_or_default() });
            Ok(())
        },
    ),
    row(
        "pull-bytes",
        |q| q.pull.as_ref().map_or_else(none, |p| format!("{} B", p.bytes)),
        |q, t| {
            let bytes = parse_bytes(t).map_err(|_| wrong(t, "a size with a unit, such as 16 MiB"))?;
            q.pull.get_or_insert_default().bytes = bytes;
            Ok(())
        },
    ),
    row(
        "pull-age",
        |q| q.pull.as_ref().map_or_else(none, |p| time(p.age)),
        |q, t| {
            q.pull.get_or_insert_default().age = duration(t)?;
            Ok(())
        },
    ),
    row(
        "pull-place",
        |q| q.pull.as_ref().map_or_else(none, |p| p.place.to_string()),
        |q, t| {
            q.pull.get_or_insert_default().place = read_place(t)?;
            Ok(())
        },
    ),
    row(
        "fallback",
        |q| list(&q.fallback.iter().map(ToString::to_string).collect::<Vec<_>>()),
        |q, t| {
            q.fallback = texts(t)?.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
            Ok(())
        },
    ),
];

impl Qos {
    /// The names that [`Qos::set`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }

    /// Sets one policy: durations and sizes with a unit, lists with commas, `none` for no requirement.
    ///
    /// # Errors
    /// A name or value that does not exist, with the allowed ones.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), PolicyError> {
        let row = ROWS.iter().find(|row| row.name == name);
        (row.ok_or_else(|| wrong(name, Self::allowed_for(name)))?.read)(self, value.trim())
    }

    /// All names, after the one that was probably meant.
    fn allowed_for(written: &str) -> String {
        let all = Self::names().collect::<Vec<_>>().join(", ");
        match nearest(written, Self::names()) {
            Some(nearest) => format!("{nearest}, if that was meant, or another of {all}"),
            None => all,
        }
    }

    /// The policies that differ from their defaults, by name, in the order of [`Qos::names`].
    pub fn stated(&self) -> Vec<(&'static str, String)> {
        let default = Qos::default();
        let shown = ROWS.iter().map(|row| (row.name, (row.show)(self), (row.show)(&default)));
        shown.filter(|(_, own, default)| own != default).map(|(name, own, _)| (name, own)).collect()
    }
}

fn wrong(value: &str, allowed: impl Into<String>) -> PolicyError {
    PolicyError { value: value.chars().take(64).collect(), allowed: allowed.into() }
}

fn none() -> String {
    NONE.to_owned()
}

fn or_none(value: Option<u32>) -> String {
    value.map_or_else(none, |value| value.to_string())
}

fn word<T: FromStr<Err = PolicyError>>(text: &str, to: &mut T) -> Read {
    text.parse().map(|value| *to = value)
}

fn number<T: FromStr>(text: &str, allowed: &str) -> Result<T, PolicyError> {
    text.parse().map_err(|_| wrong(text, allowed))
}

fn count(text: &str) -> Result<Option<u32>, PolicyError> {
    if text == NONE { Ok(None) } else { number(text, "a number, or none").map(Some) }
}

fn yes_or_no(text: &str) -> Result<bool, PolicyError> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(wrong(text, "yes, no")),
    }
}

fn duration(text: &str) -> Result<Option<Duration>, PolicyError> {
    let allowed = "a duration with a unit, such as 20 ms (ns us ms s min h), or none";
    if text == NONE { Ok(None) } else { parse_duration(text).map(Some).map_err(|_| wrong(text, allowed)) }
}

/// Texts between commas that are not within quotes.
fn texts(text: &str) -> Result<Vec<String>, PolicyError> {
    if text == NONE {
        return Ok(Vec::new());
    }
    let mut quoted = false;
    let between = |c: char| {
        quoted ^= c == '\'';
        c == ',' && !quoted
    };
    Ok(text.split(between).map(|part| part.trim().to_owned()).collect())
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_queue(*self))
    }
}

pub(super) fn show_queue(queue: Queue) -> String {
    match queue {
        Queue::KeepLast(n) => format!("keep-last {n}"),
        Queue::KeepAll(n) => format!("keep-all {n}"),
        Queue::Block { limit, .. } => format!("block {limit} {:?}", queue.patience()),
    }
}

fn read_queue(text: &str) -> Result<Queue, PolicyError> {
    let wrong =
        || wrong(text, "keep-last N, keep-all N, or block N and the longest time to wait, such as block 256 20ms");
    let mut words = text.split_whitespace();
    let (kind, limit) = (words.next().ok_or_else(wrong)?, words.next().and_then(|n| n.parse().ok()).ok_or_else(wrong)?);
    let patience = words.collect::<String>();
    match (kind, patience.as_str()) {
        ("keep-last", "") => Ok(Queue::KeepLast(limit)),
        ("keep-all", "") => Ok(Queue::KeepAll(limit)),
        ("block", patience) => {
            let up_to = parse_duration(patience).map_err(|_| wrong())?;
            Ok(Queue::Block { limit, up_to_us: u64::try_from(up_to.as_micros()).unwrap_or(u64::MAX) })
        }
        _ => Err(wrong()),
    }
}

fn show_scale(scale: Scale) -> String {
    match scale {
        Scale::Every(n) => n.to_string(),
        Scale::Rate { p, q } => format!("{p}/{q}"),
        Scale::Millihertz(rate) => format!("{}.{:03} Hz", rate / 1000, rate % 1000),
    }
}

fn read_scale(text: &str) -> Result<Scale, PolicyError> {
    let wrong = || wrong(text, "n (every n-th), p/q (p of every q), or a rate such as 7.5 Hz");
    if let Ok(hertz) = parse_rate(text) {
        return Ok(Scale::Millihertz((hertz * 1000.0).round() as u64));
    }
    match text.split_once('/') {
        Some((p, q)) => Ok(Scale::Rate { p: p.parse().map_err(|_| wrong())?, q: q.parse().map_err(|_| wrong())? }),
        None => text.parse().map(Scale::Every).map_err(|_| wrong()),
    }
}

fn read_picture(text: &str) -> Result<Option<(u32, u32)>, PolicyError> {
    if text == NONE {
        return Ok(None);
    }
    let sides = text.split_once('x').and_then(|(w, h)| w.trim().parse().ok().zip(h.trim().parse().ok()));
    sides.map(Some).ok_or_else(|| wrong(text, "WIDTHxHEIGHT, such as 320x240, or none"))
}

fn read_place(text: &str) -> Result<Place, PolicyError> {
    text.parse().map_err(|_| wrong(text, "publisher, subscriber or relay:NAME"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PolicyName;
    use proptest::prelude::*;

    fn set(settings: &[(&str, &str)]) -> Qos {
        let mut qos = Qos::default();
        settings.iter().for_each(|(name, value)| qos.set(name, value).unwrap());
        qos
    }

    #[test]
    fn shown_policies_are_read_back() {
        let all = [
            ("reliability", "best-effort"),
            ("queue", "block 256 1.5ms"),
            ("strict", "yes"),
            ("class", "high"),
            ("max-message", "100 B"),
            ("samples", "9"),
            ("instances", "8"),
            ("samples-per-instance", "7"),
            ("bytes", "1000 B"),
            ("durability", "transient-local"),
            ("history", "6"),
            ("deadline", "20ms"),
            ("latency-budget", "1.5µs"),
            ("lifespan", "2s"),
            ("separation", "999ns"),
            ("destination-order", "by-source"),
            ("liveliness", "by-port"),
            ("lease", "1s"),
            ("ownership", "exclusive"),
            ("strength", "-5"),
            ("partition", "left, right/*"),
            ("key", "id, header.frame"),
            ("filter", "x > %0"),
            ("filter-parameters", "'a, b', 4"),
            ("scale", "2/3"),
            ("picture", "320x240"),
            ("place", "relay:gate"),
            ("pull", "100"),
            ("pull-bytes", "1000 B"),
            ("pull-age", "1.25s"),
            ("pull-place", "subscriber"),
            ("fallback", "reliability, deadline"),
        ];
        let qos = set(&all);
        let stated = qos.stated();
        assert_eq!(stated.iter().map(|(n, v)| (*n, &v[..])).collect::<Vec<_>>(), all);
        assert_eq!(qos.fallback, [PolicyName::Reliability, PolicyName::Deadline]);
        assert_eq!(all.len(), Qos::names().count());
        assert_eq!(set(&[("scale", "7.5 Hz")]).scale, Scale::Millihertz(7500));
        assert_eq!(set(&[("scale", "7.500 Hz"), ("scale", "10")]).scale, Scale::Every(10));
    }

    #[test]
    fn the_document_names_every_policy() {
        let document = include_str!("../../../../docs/qos.md");
        for name in Qos::names() {
            assert!(document.contains(&format!("`{name}`")), "docs/qos.md does not name {name}");
        }
    }

    #[test]
    fn none_takes_a_policy_back() {
        let none = [
            "deadline",
            "lifespan",
            "lease",
            "partition",
            "key",
            "filter",
            "picture",
            "pull",
            "fallback",
            "samples",
            "bytes",
        ];
        let mut qos =
            set(&[("deadline", "1s"), ("lease", "1s"), ("partition", "a"), ("pull", "3"), ("filter", "x = 1")]);
        none.iter().for_each(|name| qos.set(name, "none").unwrap());
        assert_eq!(qos, Qos::default());
    }

    #[test]
    fn errors_name_the_allowed_values() {
        for (name, value, says) in [
            ("reliability", "maybe", "best-effort, reliable"),
            ("queue", "keep-last", "keep-all N"),
            ("queue", "keep-last 3 4s", "keep-all N"),
            ("class", "urgent", "critical"),
            ("deadline", "20", "ns us ms s"),
            ("scale", "1/", "p of every q"),
            ("picture", "320", "320x240"),
            ("place", "moon", "relay:NAME"),
            ("fallback", "luck", "latency-budget"),
            ("colour", "red", ": allowed is reliability, queue, "),
            ("dead-line", "1s", ": allowed is deadline, if that was meant, or another of reliability, queue, "),
        ] {
            let said = Qos::default().set(name, value).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(name in 0..ROWS.len(), text in ".{0,40}") {
            let name = Qos::names().nth(name).unwrap_or_default();
            let mut qos = Qos::default();
            if qos.set(name, &text).is_ok() {
                // An accepted text is shown in a form that means the same.
                let mut again = Qos::default();
                for (name, value) in qos.stated() {
                    if let Err(error) = again.set(name, &value) {
                        return Err(TestCaseError::fail(format!("{name} {value:?}: {error}")));
                    }
                }
            }
        }
        #[test]
        fn durations_are_read_to_the_nanosecond(ns in 0..1_000_000_000_000_000_u64) {
            let time = Duration::from_nanos(ns);
            prop_assert_eq!(set(&[("deadline", &format!("{time:?}"))]).deadline, Some(time));
        }
    }
}
