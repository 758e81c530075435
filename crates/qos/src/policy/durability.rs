//! What is kept for those who come later or ask.

use super::Place;
use super::nanoseconds;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a late joiner gets (DDS DURABILITY; `transient` and `persistent` need a service and do not exist here). Offered must
/// be at least what is requested: volatile < transient-local.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Nothing that was published before.
    #[default]
    Volatile,
    /// The last samples ([`Qos::history`](super::Qos::history)), as long as their publisher lives.
    TransientLocal,
}

/// A history that can be asked (P-05, P-09).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PullBuffer {
    /// Who keeps it.
    pub place: Place,
    /// Most samples, at least 1. Default 64.
    pub samples: u32,
    /// Most payload bytes, at least 1. Default 16 MiB.
    pub bytes: u64,
    /// Samples that are older are gone; `None` (the default): none is too old.
    #[serde(with = "nanoseconds")]
    pub age: Option<Duration>,
}

impl PullBuffer {
    /// Kept by a port itself, unless a relay is to keep it.
    pub fn kept_by(self, itself: Place) -> Self {
        let place = if let Place::Relay(_) = self.place { self.place } else { itself };
        Self { place, ..self }
    }
}

impl Default for PullBuffer {
    fn default() -> Self {
        Self { place: Place::default(), samples: 64, bytes: 16 << 20, age: None }
    }
}
