//! The QoS policies a port states.

use crate::priority::PriorityError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A packet priority of YARP channel prioritization, §3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Bulk and control-plane traffic. AF11.
    Low,
    /// What nobody said anything about. Default forwarding.
    #[default]
    Normal,
    /// Above what is not marked. AF42.
    High,
    /// Above all else. Voice admit.
    Critical,
}

impl Class {
    /// All classes, the lowest first.
    pub const ALL: [Self; 4] = [Class::Low, Class::Normal, Class::High, Class::Critical];

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Low => "low",
            Class::Normal => "normal",
            Class::High => "high",
            Class::Critical => "critical",
        }
    }

    /// The DSCP that marks it (0…63): 10, 0, 36, 44 (the same, Table 1).
    pub const fn dscp(self) -> u8 {
        match self {
            Class::Low => 10,
            Class::Normal => 0,
            Class::High => 36,
            Class::Critical => 44,
        }
    }

    /// The socket priority that puts it into the band its DSCP means, 0…6: bulk (2), best effort (0), interactive (6, the
    /// highest without a privilege).
    pub const fn socket_priority(self) -> u32 {
        match self {
            Class::Low => 2,
            Class::Normal => 0,
            Class::High | Class::Critical => 6,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Class {
    type Err = PriorityError;
    /// In any case, whole or as YARP's four letters: LOW, NORM, HIGH, CRIT (E-Y4).
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        match text.to_ascii_lowercase().as_str() {
            "low" => Ok(Class::Low),
            "normal" | "norm" => Ok(Class::Normal),
            "high" => Ok(Class::High),
            "critical" | "crit" => Ok(Class::Critical),
            _ => crate::priority::refuse("class", text, "low, normal (norm), high or critical (crit)"),
        }
    }
}

/// Whether samples may be lost on the way (DDS RELIABILITY). What a full queue does is [`Queue`]'s business.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reliability {
    /// A lost sample stays lost.
    BestEffort,
    /// The carrier loses nothing while the connection stands.
    #[default]
    Reliable,
}

/// What waits when a channel or a subscriber is slower than its publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// The last `n` samples wait; the oldest is dropped for a new one. The default, with n = 16.
    KeepLast(u32),
    /// At most this many samples wait; further ones are refused (`publish` says so), none is dropped.
    KeepAll(u32),
    /// As `KeepAll`, but `publish` first waits for room, at most `up_to_us` microseconds.
    Block {
        /// Most samples that wait.
        limit: u32,
        /// The longest `publish` may wait per channel, in microseconds.
        up_to_us: u64,
    },
}

impl Default for Queue {
    fn default() -> Self {
        Queue::KeepLast(16)
    }
}

impl Queue {
    /// Most samples that wait at once (at least 1).
    pub fn limit(self) -> u32 {
        match self {
            Queue::KeepLast(n) | Queue::KeepAll(n) | Queue::Block { limit: n, .. } => n.max(1),
        }
    }
    /// How long `publish` may wait for room.
    pub fn patience(self) -> Duration {
        match self {
            Queue::Block { up_to_us, .. } => Duration::from_micros(up_to_us),
            _ => Duration::ZERO,
        }
    }
}

/// The QoS of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Qos {
    /// Whether samples may be lost. A reliable subscriber does not match a best-effort publisher.
    pub reliability: Reliability,
    /// What happens when a channel is slower than its publisher.
    pub queue: Queue,
    /// Packet priority of the port's channels.
    pub class: Class,
    /// Largest encoded message in bytes, 1 … 1 GiB. Default 16 MiB. A receiver never allocates more than this for one message.
    pub max_message: u32,
}

impl Default for Qos {
    fn default() -> Self {
        Self {
            reliability: Reliability::default(),
            queue: Queue::default(),
            class: Class::default(),
            max_message: 16 << 20,
        }
    }
}
