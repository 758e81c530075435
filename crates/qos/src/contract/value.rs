//! Values of a contract file, and their allowed ranges.

use crate::quantity::DURATIONS;
use crate::system::{LatencyBudget, Pace};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};
use toml::Spanned;

/// An error: its place in the text, and the problem.
pub(super) type Wrong = (Range<usize>, String);
/// A key's value, where the key was written.
pub(super) type Entry = Option<Spanned<Value>>;

/// The longest time a contract may state, ns: a day. With it no sum over a route can overflow.
pub(super) const DAY: u64 = 86_400_000_000_000;
/// The largest sample, bytes: the limit of a message (1 GiB).
pub(super) const LARGEST: u64 = 1 << 30;
/// The fastest link, bit/s.
pub(crate) const FASTEST: u64 = 10_000_000_000_000;
/// Samples per second: one a day to ten million.
const RATES: RangeInclusive<f64> = 1.0 / 86_400.0..=1e7;

/// A value of any kind. Its key determines the kind that is allowed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Whole(i64),
    Real(f64),
    Flag(bool),
    List(Vec<Spanned<Value>>),
    /// A table, or a date: no key has such a value.
    Table,
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true, false or a list")
    }
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Whole(number))
    }
    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Real(number as f64)) // more than any key allows, as the next two
    }
    fn visit_i128<E>(self, number: i128) -> Result<Value, E> {
        Ok(Value::Real(number as f64))
    }
    fn visit_u128<E>(self, number: u128) -> Result<Value, E> {
        Ok(Value::Real(number as f64))
    }
    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Real(number))
    }
    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Value, A::Error> {
        while table.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Table)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => write!(f, "{:?}", text.chars().take(64).collect::<String>()),
            Value::Whole(number) => write!(f, "{number}"),
            // Never as hundreds of digits.
            Value::Real(number) if number.is_finite() && !(1e-6..1e16).contains(&number.abs()) => {
                write!(f, "{number:e}")
            }
            Value::Real(number) => write!(f, "{number}"),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::List(values) => {
                let shown: Vec<String> = values.iter().take(8).map(|value| value.get_ref().to_string()).collect();
                write!(f, "[{}]", shown.join(", "))
            }
            Value::Table => f.write_str("{…}"),
        }
    }
}

/// Refuses a value, with those that its key allows.
pub(super) fn wrong<T>(key: &str, value: &Spanned<Value>, allowed: impl fmt::Display) -> Result<T, Wrong> {
    Err((value.span(), format!("{key} = {}: allowed is {allowed}", value.get_ref())))
}

/// The value of a key that a table must have.
pub(super) fn needed<T>(found: Option<T>, table: &Range<usize>, key: &str, such_as: &str) -> Result<T, Wrong> {
    found.ok_or_else(|| (table.clone(), format!("{key} is missing; such as {key} = {such_as}")))
}

/// A name: text without control characters.
pub(super) fn name(key: &str, entry: &Entry) -> Result<Option<String>, Wrong> {
    read(key, entry, "text of 1 to 255 bytes without control characters", |value| match value {
        Value::Text(text) if (1..256).contains(&text.len()) && !text.chars().any(char::is_control) => {
            Some(text.clone())
        }
        _ => None,
    })
}

/// A time in nanoseconds, from `least` to a day.
pub(super) fn time(key: &str, entry: &Entry, least: u64) -> Result<Option<u64>, Wrong> {
    read(key, entry, format_args!("a time from {least} ns to 86400 s with a unit: {DURATIONS}"), |value| {
        let time = crate::parse_duration(text(value)?).ok()?;
        u64::try_from(time.as_nanos()).ok().filter(|ns| (least..=DAY).contains(ns))
    })
}

/// A latency budget: a time from 0 to a day, or the plan's own.
pub(super) fn latency_budget(key: &str, entry: &Entry) -> Result<Option<LatencyBudget>, Wrong> {
    read(key, entry, format_args!("\"auto\", or a time from 0 ns to 86400 s with a unit: {DURATIONS}"), |value| {
        let text = text(value)?;
        if text == "auto" {
            return Some(LatencyBudget::Auto);
        }
        let time = crate::parse_duration(text).ok()?;
        u64::try_from(time.as_nanos()).ok().filter(|ns| *ns <= DAY).map(LatencyBudget::Stated)
    })
}

/// A pace: bit/s from the least that a channel takes, or the plan's own.
pub(super) fn pace(key: &str, entry: &Entry) -> Result<Option<Pace>, Wrong> {
    let allowed = "\"auto\", or 8 kbit/s to 10000 Gbit/s with a unit: bit/s kbit/s Mbit/s Gbit/s";
    read(key, entry, allowed, |value| match text(value)? {
        "auto" => Some(Pace::Auto),
        text => crate::parse_bit_rate(text).ok().filter(|rate| (8000..=FASTEST).contains(rate)).map(Pace::Stated),
    })
}

/// Samples per second.
pub(super) fn rate(key: &str, entry: &Entry) -> Result<Option<f64>, Wrong> {
    read(key, entry, "a rate from one sample a day to 10000 kHz with a unit: Hz kHz", |value| {
        crate::parse_rate(text(value)?).ok().filter(|hz| RATES.contains(hz))
    })
}

/// Bytes within a range.
pub(super) fn bytes(key: &str, entry: &Entry, range: RangeInclusive<u64>) -> Result<Option<u64>, Wrong> {
    let allowed = format!("{} to {} B with a unit: B kB MB KiB MiB", range.start(), range.end());
    read(key, entry, allowed, |value| crate::parse_bytes(text(value)?).ok().filter(|bytes| range.contains(bytes)))
}

/// Bit/s from `least`.
pub(super) fn bit_rate(key: &str, entry: &Entry, least: u64) -> Result<Option<u64>, Wrong> {
    let allowed = format!("{least} bit/s to 10000 Gbit/s with a unit: bit/s kbit/s Mbit/s Gbit/s");
    read(key, entry, allowed, |value| {
        crate::parse_bit_rate(text(value)?).ok().filter(|rate| (least..=FASTEST).contains(rate))
    })
}

/// A share, 0…1.
pub(super) fn share(key: &str, entry: &Entry) -> Result<Option<f64>, Wrong> {
    read(key, entry, "0 % to 100 %, with the unit %", |value| crate::parse_share(text(value)?).ok())
}

/// A whole number within a range.
pub(super) fn whole(key: &str, entry: &Entry, range: RangeInclusive<i64>) -> Result<Option<i64>, Wrong> {
    read(key, entry, format_args!("a whole number from {} to {}", range.start(), range.end()), |value| match value {
        Value::Whole(number) if range.contains(number) => Some(*number),
        _ => None,
    })
}

/// A number within a range.
pub(super) fn number(key: &str, entry: &Entry, range: RangeInclusive<f64>) -> Result<Option<f64>, Wrong> {
    read(key, entry, format_args!("a number from {} to {}", range.start(), range.end()), |value| {
        let number = match value {
            Value::Real(number) => *number,
            Value::Whole(number) => *number as f64,
            _ => return None,
        };
        range.contains(&number).then_some(number)
    })
}

/// True or false.
pub(super) fn flag(key: &str, entry: &Entry) -> Result<Option<bool>, Wrong> {
    read(key, entry, "true or false", |value| match value {
        Value::Flag(flag) => Some(*flag),
        _ => None,
    })
}

/// The address of a host.
pub(super) fn address(key: &str, entry: &Entry) -> Result<Option<IpAddr>, Wrong> {
    read(key, entry, ADDRESS, |value| host(text(value)?))
}

/// An address with the length of its network, such as 10.98.0.1/30.
pub(super) fn network(key: &str, entry: &Entry) -> Result<Option<(IpAddr, u8)>, Wrong> {
    read(key, entry, "an address with the length of its network, such as \"10.98.0.1/30\"", |value| {
        let (address, length) = text(value)?.split_once('/')?;
        let address = host(address)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        Some((address, length.parse().ok().filter(|length| (1..=longest).contains(length))?))
    })
}

const ADDRESS: &str = "the address of a host, such as \"10.97.0.1\"";

fn host(text: &str) -> Option<IpAddr> {
    text.parse().ok().filter(|address: &IpAddr| !address.is_unspecified() && !address.is_multicast())
}

/// One of some words.
pub(super) fn choice<T: Copy>(key: &str, entry: &Entry, words: &[(&str, T)]) -> Result<Option<T>, Wrong> {
    let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    read(key, entry, allowed.join(", "), |value| {
        let written = text(value)?;
        words.iter().find(|(word, _)| *word == written).map(|(_, meant)| *meant)
    })
}

/// A picture size, such as 320x240.
pub(super) fn picture(key: &str, entry: &Entry) -> Result<Option<[u32; 2]>, Wrong> {
    read(key, entry, "width x height in pixels, 1 to 65535 each, such as \"320x240\"", |value| {
        let (width, height) = text(value)?.split_once('x')?;
        let side = |side: &str| side.trim().parse().ok().filter(|pixels| (1..=65_535).contains(pixels));
        Some([side(width)?, side(height)?])
    })
}

fn read<T>(
    key: &str,
    entry: &Entry,
    allowed: impl fmt::Display,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, Wrong> {
    let Some(value) = entry else { return Ok(None) };
    match read(value.get_ref()) {
        Some(meant) => Ok(Some(meant)),
        None => wrong(key, value, allowed),
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}
