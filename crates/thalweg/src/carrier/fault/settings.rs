//! Faults as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Faults of a carrier. The CLI reads them from the same text everywhere; see [`FaultSettings::from_str`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultSettings {
    /// `loss=1%`: share of datagrams that vanish. Not for streams: there the kernel sends again, which is a `stall`.
    pub loss: f64,
    /// `duplicate=1%`: share of datagrams that arrive twice. Not for streams.
    pub duplicate: f64,
    /// `delay=5ms`: the delay of everything.
    pub delay: Duration,
    /// `jitter=1ms`: the delay varies by up to this much up and down; it doesn't change the order.
    pub jitter: Duration,
    /// `reorder=1%`: share of datagrams that later ones overtake. Not for streams.
    pub reorder: f64,
    /// `corrupt=1%`: share of datagrams (of reads, on a stream) with one flipped bit.
    pub corrupt: f64,
    /// `rate=1Mbit/s`: no more bytes per second than this (here in bytes). `None` is no limit.
    pub rate_bytes_per_s: Option<u64>,
    /// `stall=200ms`: nothing arrives for this long at the start of each second.
    pub stall: Duration,
    /// `seed=7`: the same seed draws the same chances.
    pub seed: u64,
}

impl FaultSettings {
    /// True if frames have to be held until they are due.
    pub fn is_timed(&self) -> bool {
        !self.delay.is_zero()
            || !self.jitter.is_zero()
            || !self.stall.is_zero()
            || self.reorder > 0.0
            || self.rate_bytes_per_s.is_some()
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let text = |e: qos::QuantityError| e.to_string();
        match key {
            "loss" => self.loss = qos::parse_share(value).map_err(text)?,
            "duplicate" => self.duplicate = qos::parse_share(value).map_err(text)?,
            "reorder" => self.reorder = qos::parse_share(value).map_err(text)?,
            "corrupt" => self.corrupt = qos::parse_share(value).map_err(text)?,
            "delay" => self.delay = qos::parse_duration(value).map_err(text)?,
            "jitter" => self.jitter = qos::parse_duration(value).map_err(text)?,
            "stall" => self.stall = qos::parse_duration(value).map_err(text)?,
            "rate" => self.rate_bytes_per_s = Some((qos::parse_bit_rate(value).map_err(text)? / 8).max(1)),
            "seed" => self.seed = value.parse().map_err(|_| format!("{value:?} is not a whole number"))?,
            _ => return Err("unknown".to_owned()),
        }
        Ok(())
    }
}

/// A fault that can't be read, with the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultError {
    part: String,
    why: String,
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = "loss, duplicate, delay, jitter, reorder, corrupt, rate, stall, seed";
        write!(f, "fault {:?}: {} (keys: {keys}; as in loss=1%,delay=5ms,rate=1Mbit/s,seed=7)", self.part, self.why)
    }
}

impl std::error::Error for FaultError {}

impl FromStr for FaultSettings {
    type Err = FaultError;

    /// Parts of the form `key=value` between commas, in any order; faults that are not named do not happen.
    fn from_str(text: &str) -> Result<Self, FaultError> {
        let mut settings = Self::default();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let wrong = |why: String| FaultError { part: part.to_owned(), why };
            let (key, value) = part.split_once('=').ok_or_else(|| wrong("no =".to_owned()))?;
            settings.set(key.trim(), value.trim()).map_err(wrong)?;
        }
        Ok(settings)
    }
}
