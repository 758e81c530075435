//! Quality of service as the last part of an endpoint's token.
//!
//! `<reliability>:<durability>:<history>,<depth>:<deadline s>,<ns>:<lifespan s>,<ns>:<liveliness>,<lease s>,<ns>`: numbers
//! of `rmw/types.h`. A field that has its default is empty (`liveliness_utils.cpp`, `qos_to_keyexpr` and
//! `keyexpr_to_qos`); the defaults are those of `rmw_zenoh`, not of ROS 2 (`qos.cpp`, `QoS::QoS`).

use super::{Malformed, decimal, excerpt, within};
use std::time::Duration;

/// Longest quality of service, in bytes: all numbers of 20 digits fit.
pub const MAX_QOS: usize = 255;
/// The depth that is not written, and that 0 stands for (`qos.cpp`, `RMW_ZENOH_DEFAULT_HISTORY_DEPTH`).
pub const DEFAULT_DEPTH: u32 = 42;
/// No limit: `RMW_DURATION_INFINITE` (`rmw/time.h`), the largest signed number of nanoseconds. Its seconds and nanoseconds
/// are fields of their own, each of them empty if it has this value.
pub const INFINITE: Duration = Duration::new(9_223_372_036, 854_775_807);

/// Whether samples may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reliability {
    /// 1.
    #[default]
    Reliable,
    /// 2.
    BestEffort,
}

/// Whether late subscriptions get what was published before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Durability {
    /// 1. The publisher keeps `depth` samples.
    TransientLocal,
    /// 2.
    #[default]
    Volatile,
}

/// What is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum History {
    /// 1. The last `depth` samples.
    #[default]
    KeepLast,
    /// 2. Every sample; the depth bounds caches all the same.
    KeepAll,
}

/// How a publisher shows that it is alive. `rmw_zenoh` does not know the deprecated `MANUAL_BY_NODE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Liveliness {
    /// 1.
    #[default]
    Automatic,
    /// 3.
    ManualByTopic,
}

/// Quality of service of a publisher or subscription. The default is that of `rmw_zenoh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RosQos {
    /// Whether samples may be lost.
    pub reliability: Reliability,
    /// Whether late subscriptions get what was published before.
    pub durability: Durability,
    /// What is kept.
    pub history: History,
    /// Samples kept. 0 is written as [`DEFAULT_DEPTH`] (`qos.cpp`, `QoS::best_available_qos`).
    pub depth: u32,
    /// Longest time between two samples; `None`: no limit.
    pub deadline: Option<Duration>,
    /// Age at which samples expire; `None`: never.
    pub lifespan: Option<Duration>,
    /// How a publisher shows that it is alive.
    pub liveliness: Liveliness,
    /// The time within which it has to; `None`: no limit.
    pub lease: Option<Duration>,
}

impl Default for RosQos {
    fn default() -> Self {
        Self {
            reliability: Reliability::default(),
            durability: Durability::default(),
            history: History::default(),
            depth: DEFAULT_DEPTH,
            deadline: None,
            lifespan: None,
            liveliness: Liveliness::default(),
            lease: None,
        }
    }
}

impl RosQos {
    /// Reads the last part of a token, at most [`MAX_QOS`] bytes. What follows the known fields is ignored, as
    /// `keyexpr_to_qos` does.
    ///
    /// `SYSTEM_DEFAULT` (0) is the default. `BEST_AVAILABLE` (4, of liveliness 5) is what `rmw_zenoh` makes of it on the
    /// data path: best effort, volatile, automatic (`rmw_publisher_data.cpp` compares with `RELIABLE` and
    /// `TRANSIENT_LOCAL` only). Times of 0 are unspecified, that is, without limit (`QoS::best_available_qos`).
    ///
    /// # Errors
    /// [`Malformed`] if a field is missing, or is no number of its list.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        within("bytes of a quality of service", text.len(), 1, MAX_QOS)?;
        let [reliability, durability, history, deadline, lifespan, liveliness] =
            fields(text, ':', "parts of a quality of service")?;
        let [history, depth] = fields(history, ',', "parts of a history")?;
        let [deadline, deadline_ns] = fields(deadline, ',', "parts of a deadline")?;
        let [lifespan, lifespan_ns] = fields(lifespan, ',', "parts of a lifespan")?;
        let [liveliness, lease, lease_ns] = fields(liveliness, ',', "parts of a liveliness")?;
        let depth = match depth {
            "" => DEFAULT_DEPTH,
            depth => decimal("depth", depth, u64::from(u32::MAX))?,
        };
        Ok(Self {
            reliability: Reliability::parse(reliability)?,
            durability: Durability::parse(durability)?,
            history: History::parse(history)?,
            depth: kept(depth),
            deadline: duration("deadline", deadline, deadline_ns)?,
            lifespan: duration("lifespan", lifespan, lifespan_ns)?,
            liveliness: Liveliness::parse(liveliness)?,
            lease: duration("lease", lease, lease_ns)?,
        })
    }

    /// Writes the last part of a token: at most [`MAX_QOS`] bytes, whatever the values.
    pub fn print(&self) -> String {
        let default = Self::default();
        let (deadline, deadline_ns) = seconds(self.deadline);
        let (lifespan, lifespan_ns) = seconds(self.lifespan);
        let (lease, lease_ns) = seconds(self.lease);
        format!(
            "{}:{}:{},{}:{},{}:{},{}:{},{},{}",
            unless(self.reliability.number(), default.reliability.number()),
            unless(self.durability.number(), default.durability.number()),
            unless(self.history.number(), default.history.number()),
            unless(u64::from(kept(self.depth)), u64::from(default.depth)),
            unless(deadline, INFINITE.as_secs()),
            unless(deadline_ns, u64::from(INFINITE.subsec_nanos())),
            unless(lifespan, INFINITE.as_secs()),
            unless(lifespan_ns, u64::from(INFINITE.subsec_nanos())),
            unless(self.liveliness.number(), default.liveliness.number()),
            unless(lease, INFINITE.as_secs()),
            unless(lease_ns, u64::from(INFINITE.subsec_nanos())),
        )
    }
}

impl Reliability {
    fn parse(text: &str) -> Result<Self, Malformed> {
        match text {
            "" | "0" | "1" => Ok(Self::Reliable),
            "2" | "4" => Ok(Self::BestEffort),
            _ => Err(unlisted("reliability", text, "nothing, 0, 1 (reliable), 2 (best effort) or 4 (best available)")),
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Reliable => 1,
            Self::BestEffort => 2,
        }
    }
}

impl Durability {
    fn parse(text: &str) -> Result<Self, Malformed> {
        match text {
            "1" => Ok(Self::TransientLocal),
            "" | "0" | "2" | "4" => Ok(Self::Volatile),
            _ => {
                Err(unlisted("durability", text, "nothing, 0, 1 (transient local), 2 (volatile) or 4 (best available)"))
            }
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::TransientLocal => 1,
            Self::Volatile => 2,
        }
    }
}

impl History {
    fn parse(text: &str) -> Result<Self, Malformed> {
        match text {
            "" | "0" | "1" => Ok(Self::KeepLast),
            "2" => Ok(Self::KeepAll),
            _ => Err(unlisted("history", text, "nothing, 0, 1 (keep last) or 2 (keep all)")),
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::KeepLast => 1,
            Self::KeepAll => 2,
        }
    }
}

impl Liveliness {
    fn parse(text: &str) -> Result<Self, Malformed> {
        match text {
            "" | "0" | "1" | "5" => Ok(Self::Automatic),
            "3" => Ok(Self::ManualByTopic),
            _ => Err(unlisted(
                "liveliness",
                text,
                "nothing, 0, 1 (automatic), 3 (manual by topic) or 5 (best available)",
            )),
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Automatic => 1,
            Self::ManualByTopic => 3,
        }
    }
}

/// The first fields of a text, which may have more.
fn fields<'a, const N: usize>(text: &'a str, separator: char, what: &'static str) -> Result<[&'a str; N], Malformed> {
    let mut fields = [""; N];
    let mut found = 0;
    for part in text.split(separator) {
        if let Some(field) = fields.get_mut(found) {
            *field = part;
        }
        found += 1;
    }
    within(what, found, N, MAX_QOS + 1)?;
    Ok(fields)
}

fn duration(what: &'static str, seconds: &str, nanoseconds: &str) -> Result<Option<Duration>, Malformed> {
    let whole = match seconds {
        "" => INFINITE.as_secs(),
        seconds => decimal(what, seconds, u64::MAX)?,
    };
    let part = match nanoseconds {
        "" => u64::from(INFINITE.subsec_nanos()),
        nanoseconds => decimal(what, nanoseconds, u64::MAX)?,
    };
    Ok(limit(Duration::from_secs(whole).checked_add(Duration::from_nanos(part))))
}

/// A time, unless it is unspecified or infinite, or more.
fn limit(duration: Option<Duration>) -> Option<Duration> {
    duration.filter(|duration| !duration.is_zero() && *duration < INFINITE)
}

fn seconds(duration: Option<Duration>) -> (u64, u64) {
    let duration = limit(duration).unwrap_or(INFINITE);
    (duration.as_secs(), u64::from(duration.subsec_nanos()))
}

fn kept(depth: u32) -> u32 {
    if depth == 0 { DEFAULT_DEPTH } else { depth }
}

fn unless(value: u64, default: u64) -> String {
    if value == default { String::new() } else { value.to_string() }
}

fn unlisted(what: &'static str, text: &str, allowed: &'static str) -> Malformed {
    Malformed::Text { what, found: excerpt(text), allowed }
}
