//! Values of arguments; each parser's error names the allowed values.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command};
use qos::Class;
use qos::priority::Changes;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::time::Duration;
use thalweg::carrier;
pub(crate) use thalweg::config::{address as listen, discovery, peer};
use thalweg::control::matching::absolute;

/// The name of a topic, a pattern or a port: a relative one begins at the root, as in ROS 2.
pub(crate) fn name(text: &str) -> Result<String, Infallible> {
    Ok(absolute(text).into_owned())
}

/// A duration with a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    qos::parse_duration(text).map_err(|e| e.to_string())
}

/// Seconds as a plain number, or a duration with a unit.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let plain = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    let parsed = plain.or_else(|| qos::parse_duration(text).ok());
    parsed
        .filter(|d| !d.is_zero() && *d <= Duration::from_secs(31_536_000))
        .ok_or_else(|| "a number of seconds above 0, such as 20, or with a unit: 500ms".to_owned())
}

/// A rate as a plain number of Hz, or with a unit.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let parsed = text.parse::<f64>().ok().or_else(|| qos::parse_rate(text).ok());
    parsed
        .filter(|hz| (1e-6..=1e7).contains(hz))
        .ok_or_else(|| "a number of Hz from 0.000001 to 10000000, such as 30, or with a unit: 1kHz".to_owned())
}

/// A bit rate with a unit.
#[cfg(feature = "sessions")]
pub(crate) fn bit_rate(text: &str) -> Result<u64, String> {
    let rate = qos::parse_bit_rate(text).ok().filter(|rate| *rate > 0);
    rate.ok_or_else(|| "a bit rate of at least 1 bit/s, such as 600kbit/s (bit/s kbit/s Mbit/s Gbit/s)".to_owned())
}

/// A bit rate with a unit, as a limit with a burst: 10 ms of it, and at least one packet.
pub(crate) fn limit(text: &str) -> Result<thalweg::Limit, String> {
    let rate = qos::parse_bit_rate(text).ok().map(|bits| bits / 8).filter(|rate| *rate > 0);
    let rate = rate.ok_or("a bit rate of at least 8 bit/s, such as 1Mbit/s (bit/s kbit/s Mbit/s Gbit/s)")?;
    Ok(thalweg::Limit { rate, burst: (rate / 100).max(1500) })
}

/// The share of parity for large samples.
pub(crate) fn parity(text: &str) -> Result<thalweg::Redundancy, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
    percent.and_then(thalweg::Redundancy::percent).ok_or_else(|| "1% to 100%, such as 20%".to_owned())
}

/// A size as a plain number of bytes, or with a unit.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let parsed = text.parse::<u64>().ok().or_else(|| qos::parse_bytes(text).ok());
    parsed
        .filter(|bytes| (1..=1 << 30).contains(bytes))
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| "1 to 1073741824 bytes, such as 64, or with a unit: 64KiB (B kB MB KiB MiB)".to_owned())
}

/// The carriers that can be asked for, with their descriptions.
pub(crate) fn carriers() -> Vec<(&'static str, &'static str)> {
    let auto = ("auto", "by place and reliability: local, shm, udp where samples may be lost, tcp");
    [auto].into_iter().chain(carrier::Name::descriptions()).collect()
}

/// A carrier by name; `auto` stands for the best one.
pub(crate) fn carrier() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(carriers().into_iter().map(|(name, _)| name))
}

/// A class by name, in any spelling. Help and shells show the names.
pub(crate) fn class() -> impl TypedValueParser<Value = Class> {
    Classes
}

#[derive(Clone)]
struct Classes;

impl TypedValueParser for Classes {
    type Value = Class;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<Class, clap::Error> {
        let read = |text: &str| {
            let allowed = |wrong: qos::priority::PriorityError| format!("allowed is {}", wrong.allowed);
            text.parse::<Class>().map_err(allowed)
        };
        read.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Class::ALL.into_iter().map(|class| PossibleValue::new(class.name()))))
    }
}

/// Priorities in YARP's notation.
pub(crate) fn yarp_qos(text: &str) -> Result<Changes, String> {
    Changes::from_yarp(text).map_err(|wrong| wrong.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn values_are_read_with_and_without_units() {
        assert_eq!(seconds("2"), Ok(Duration::from_secs(2)));
        assert_eq!(seconds("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!((rate("30"), rate("1 kHz"), size("64KiB")), (Ok(30.0), Ok(1000.0), Ok(65_536)));
        assert_eq!(limit("1 Mbit/s"), Ok(thalweg::Limit { rate: 125_000, burst: 1500 }));
        assert_eq!(limit("80Mbit/s"), Ok(thalweg::Limit { rate: 10_000_000, burst: 100_000 }));
        assert_eq!(listen("::1").map(|a| a.to_string()), Ok("[::1]:0".to_owned()));
        assert_eq!(listen("10.0.0.1:7400").map(|a| a.port()), Ok(7400));
        assert_eq!(peer("10.0.0.1:7447"), Ok("tcp/10.0.0.1:7447".to_owned()));
        assert_eq!((peer("::1"), peer("tls/a:1")), (Ok("tcp/[::1]:7447".to_owned()), Ok("tls/a:1".to_owned())));
        assert_eq!(discovery("static:nodes.toml"), Ok(PathBuf::from("nodes.toml")));
    }

    #[test]
    fn an_invalid_value_is_answered_with_the_allowed_ones() {
        assert!(["0", "-1", "soon", "inf", "NaN"].iter().all(|bad| seconds(bad).is_err()));
        assert!(["0", "-1", "fast", "NaN"].iter().all(|bad| rate(bad).is_err()));
        assert!(["0", "2GiB", "1.5", "9999999999"].iter().all(|bad| size(bad).is_err()));
        assert!(["0bit/s", "5", "fast", ""].iter().all(|bad| limit(bad).is_err()));
        assert!(["host", "10.0.0.1:x", ""].iter().all(|bad| listen(bad).is_err()));
        assert!(["host", "10.0.0.1:0", ":1", ""].iter().all(|bad| peer(bad).is_err()));
        assert!(["dns", "static:", ""].iter().all(|bad| discovery(bad).is_err()));
    }
}
