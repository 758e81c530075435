//! Packet priorities (DDS TRANSPORT_PRIORITY, V-05).

use super::PriorityError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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
            _ => super::refuse("class", text, "low, normal (norm), high or critical (crit)"),
        }
    }
}
