//! Packet marks: DSCP (RFC 2474), the TOS octet, classes, and Linux's treatment of them.

use super::{PriorityError, refuse};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A DiffServ code point, 0…63: the six upper bits of the TOS octet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Dscp(u8);

/// Names of code points (RFC 2474, 2597, 3246, 5865, 8622).
const NAMES: [(&str, u8); 24] = [
    ("CS0", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VA", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
    ("DEFAULT", 0),
];

const DSCPS: &str = "0 to 63, CS0 to CS7, AF11 to AF43, VA, EF or LE";

impl Dscp {
    /// The code point with this number, 0…63.
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Self(value)) } else { None }
    }
    /// Its number.
    pub const fn value(self) -> u8 {
        self.0
    }
    /// The octet that carries it, without ECN bits.
    pub const fn tos(self) -> u8 {
        self.0 << 2
    }
    /// Its name, if it has one.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(_, value)| *value == self.0).map(|(name, _)| *name)
    }
}

/// The code point of control traffic: CS5 (RFC 4594, signalling). Where it has no queue of its own, it is in class high.
pub const CONTROL: Dscp = Dscp(40);

impl From<Dscp> for u8 {
    fn from(dscp: Dscp) -> u8 {
        dscp.0
    }
}

impl TryFrom<u8> for Dscp {
    type Error = PriorityError;
    fn try_from(value: u8) -> Result<Self, PriorityError> {
        Self::new(value).map_or_else(|| refuse("dscp", &value.to_string(), DSCPS), Ok)
    }
}

impl FromStr for Dscp {
    type Err = PriorityError;
    /// A name in any case, or a number.
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| Self(*value));
        let numbered = || text.parse().ok().and_then(Self::new);
        named.or_else(numbered).map_or_else(|| refuse("dscp", text, DSCPS), Ok)
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A mark of packets, in the form in which it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// A class: its code point, and the socket priority that makes the code point count on this host.
    Class(Class),
    /// A code point; Linux derives the socket priority from it.
    Dscp(Dscp),
    /// The whole octet; the kernel keeps the two ECN bits of TCP for itself.
    Tos(u8),
}

impl Default for Mark {
    fn default() -> Self {
        Mark::Class(Class::Normal)
    }
}

impl Mark {
    /// The TOS octet (IPv4) or traffic class (IPv6).
    pub const fn tos(self) -> u8 {
        match self {
            Mark::Class(class) => class.dscp() << 2,
            Mark::Dscp(dscp) => dscp.tos(),
            Mark::Tos(tos) => tos,
        }
    }
    /// The code point.
    pub const fn dscp(self) -> Dscp {
        Dscp(self.tos() >> 2)
    }
    /// The socket priority to set after the mark: a class's own, else the one that IPv4 derives from the octet (IPv6
    /// derives none).
    pub fn socket_priority(self) -> u32 {
        match self {
            Mark::Class(class) => class.socket_priority(),
            Mark::Dscp(_) | Mark::Tos(_) => kernel_priority(self.tos()),
        }
    }
    /// The class with this very code point (Table 1 read backwards).
    pub fn class(self) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.dscp() == self.dscp().value())
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mark::Class(class) => write!(f, "class {class}"),
            Mark::Dscp(dscp) => write!(f, "DSCP {dscp}"),
            Mark::Tos(tos) => write!(f, "TOS {tos}"),
        }
    }
}

/// The socket priority that Linux gives a socket with this octet on IPv4 (`rt_tos2priority`): the old TOS bits 0x1e of
/// RFC 1349 choose, not the code point. Measured: the table in docs/queueing.md.
pub const fn kernel_priority(tos: u8) -> u32 {
    match tos & 0x18 {
        0x10 => 6, // minimise delay: interactive
        0x18 => 4, // delay and throughput: interactive bulk
        0x08 => 2, // maximise throughput: bulk
        _ => 0,
    }
}

/// The band of each socket priority 0…15 by the default map of `pfifo_fast` and `prio`: of three, 0 is sent first.
pub const PRIORITY_BANDS: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

/// The band of a socket priority by the default map; only its four lower bits count.
pub const fn band(socket_priority: u32) -> u8 {
    PRIORITY_BANDS[(socket_priority & 15) as usize]
}

/// A packet priority of YARP channel prioritization, §3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Bulk and control-plane traffic. AF11.
    Low,
    /// Traffic without a stated class. Default forwarding.
    #[default]
    Normal,
    /// Above unmarked traffic. AF42.
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
            _ => refuse("class", text, "low, normal (norm), high or critical (crit)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_have_names_and_numbers() {
        for text in ["AF42", "af42", "36"] {
            assert_eq!(text.parse::<Dscp>().unwrap().value(), 36, "{text}");
        }
        assert_eq!(Dscp::new(0).unwrap().to_string(), "CS0");
        assert_eq!(Dscp::new(63).unwrap().to_string(), "63");
        for bad in ["64", "-1", "AF44", "", "AF"] {
            assert!(bad.parse::<Dscp>().unwrap_err().to_string().contains("0 to 63"), "{bad}");
        }
    }

    #[test]
    fn the_derived_priorities_are_the_measured_ones() {
        // Measured with setsockopt(IP_TOS) and getsockopt(SO_PRIORITY), on Linux 6.18.
        let table: [(&[u8], u32, u8); 4] = [
            (&[12, 20, 28, 36, 44], 6, 0),
            (&[0, 1, 8, 16, 24, 32, 40, 48, 56], 0, 1),
            (&[14, 22, 30, 38, 46], 4, 1),
            (&[10, 18, 26, 34], 2, 2),
        ];
        for (points, priority, wanted) in table {
            for point in points {
                let tos = Dscp::new(*point).unwrap().tos();
                assert_eq!((kernel_priority(tos), band(kernel_priority(tos))), (priority, wanted), "DSCP {point}");
            }
        }
    }

    #[test]
    fn classes_are_table_1() {
        let rows = Class::ALL.map(|c| {
            (Mark::Class(c).tos(), band(Mark::Class(c).socket_priority()), Mark::Dscp(Mark::Class(c).dscp()).class())
        });
        let wanted = [
            (0x28, 2, Some(Class::Low)),
            (0x00, 1, Some(Class::Normal)),
            (0x90, 0, Some(Class::High)),
            (0xb0, 0, Some(Class::Critical)),
        ];
        assert_eq!(rows, wanted);
    }
}
