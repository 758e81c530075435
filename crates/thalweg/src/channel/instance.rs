//! Instances of a keyed topic: the statements of samples about them, and their state at a subscriber (DDS 1.4, §2.2.2.5.1.3).

use crate::wire::{DISPOSED, UNREGISTERED};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The statement of a sample about its instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It has this value.
    #[default]
    Written,
    /// The instance is disposed of. Only the key of the sample counts.
    Disposed,
    /// The publisher has unregistered the instance. Only the key of the sample counts.
    Unregistered,
}

impl Change {
    pub(crate) fn flags(self) -> u16 {
        match self {
            Change::Written => 0,
            Change::Disposed => DISPOSED,
            Change::Unregistered => UNREGISTERED,
        }
    }

    /// The change in a frame's flags, which may come from any sender.
    pub(crate) fn of(flags: u16) -> Self {
        match flags & (DISPOSED | UNREGISTERED) {
            0 => Change::Written,
            UNREGISTERED => Change::Unregistered,
            _ => Change::Disposed,
        }
    }
}

/// An instance as a subscriber sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    /// Somebody publishes it.
    #[default]
    Alive,
    /// A publisher disposed of the instance, and none has written it since.
    Disposed,
    /// All its publishers unregistered it, left or gave no sign of life.
    NoPublishers,
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InstanceState::Alive => "is alive again",
            InstanceState::Disposed => "was disposed of",
            InstanceState::NoPublishers => "has no publishers any more",
        })
    }
}

/// An instance that a subscriber knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceReport {
    /// Its key, such as `name = left, joint = 3`.
    pub key: String,
    /// Its state.
    pub state: InstanceState,
    /// The number of its publishers.
    pub publishers: usize,
    /// Deadlines that passed without a sample of it.
    #[serde(default)]
    pub deadlines_missed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_its_flags_and_flags_are_some_change() {
        for change in [Change::Written, Change::Disposed, Change::Unregistered] {
            assert_eq!(Change::of(change.flags() | 7), change);
        }
        assert_eq!(Change::of(u16::MAX), Change::Disposed);
    }
}
