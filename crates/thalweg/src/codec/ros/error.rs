//! Errors of definitions.

use super::{MAX_SOURCE, MAX_TEXT, MAX_TEXTS};
use crate::codec::schema::{MAX_DEPTH, MAX_NODES};
use std::fmt;

/// The longest excerpt of a text in an error, in characters.
const EXCERPT: usize = 80;

/// A ROS 2 definition that cannot be read, or one that cannot be described with what is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosError {
    /// A text of more than 1 MiB.
    Text {
        /// Its name.
        definition: String,
        /// Its length in bytes.
        length: usize,
    },
    /// More than 64 MiB of text in one set of definitions.
    Texts {
        /// The definition that does not fit any more.
        definition: String,
    },
    /// A name that is none of a ROS 2 type.
    Name {
        /// The name.
        name: String,
    },
    /// A type hash that is none of the version RIHS01.
    Hash {
        /// The type.
        name: String,
        /// The hash, at most 80 characters of it.
        found: String,
    },
    /// A source of more than 64 KiB.
    Source {
        /// The type.
        name: String,
        /// Its length in bytes.
        length: usize,
    },
    /// A line that the grammar does not allow.
    Line {
        /// The definition.
        definition: String,
        /// The line, counted from 1.
        line: usize,
        /// The expectation.
        expected: &'static str,
        /// The finding, at most 80 characters of it.
        found: String,
    },
    /// Two fields or constants of one name.
    Twice {
        /// The definition.
        definition: String,
        /// The line of the second, counted from 1.
        line: usize,
        /// The name.
        name: String,
    },
    /// More than 4096 fields and constants in one message.
    Fields {
        /// The definition.
        definition: String,
    },
    /// Too few or too many lines `---`.
    Separators {
        /// The service or action.
        definition: String,
        /// The number that its kind has: 1 in a service, 2 in an action.
        expected: usize,
        /// The number in the text.
        found: usize,
    },
    /// A definition that differs from one of the same name in the set.
    Differs {
        /// The name.
        name: String,
    },
    /// A type that nobody has added.
    Unknown {
        /// The type.
        name: String,
        /// The type that refers to it; none where it was asked for.
        by: Option<String>,
    },
    /// A service or action where only a message can be.
    NotMessage {
        /// The service or action.
        name: String,
        /// The type that refers to it.
        by: String,
    },
    /// A type that contains itself.
    Cycle {
        /// The types from one to the next; the last is the first.
        path: Vec<String>,
    },
    /// More than 32 levels.
    Levels {
        /// The type.
        name: String,
    },
    /// More than 4096 parts, counting those of nested types each time.
    Parts {
        /// The type.
        name: String,
    },
}

impl RosError {
    /// The error of a line; long findings are cut.
    pub(super) fn line(definition: &str, line: usize, expected: &'static str, found: &str) -> Self {
        let found = found.chars().take(EXCERPT).collect();
        Self::Line { definition: definition.to_owned(), line, expected, found }
    }

    /// The error of a name; long ones are cut.
    pub(super) fn name(name: &str) -> Self {
        Self::Name { name: name.chars().take(EXCERPT).collect() }
    }

    /// The error of a hash; long ones are cut.
    pub(super) fn hash(name: &str, found: &str) -> Self {
        Self::Hash { name: name.to_owned(), found: found.chars().take(EXCERPT).collect() }
    }
}

impl fmt::Display for RosError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { definition, length } => {
                write!(f, "{definition}: expected a text of at most {MAX_TEXT} bytes, found one of {length}")
            }
            Self::Texts { definition } => {
                write!(f, "{definition}: expected at most {MAX_TEXTS} bytes of definitions in one set, found more")
            }
            Self::Name { name } => write!(
                f,
                "expected the name of a ROS 2 type such as std_msgs/msg/String or std_srvs/srv/Empty, found {name:?}"
            ),
            Self::Hash { name, found } => {
                write!(f, "expected RIHS01_ and 64 hexadecimal digits as the type hash of {name}, found {found:?}")
            }
            Self::Source { name, length } => {
                write!(f, "expected a source of {name} of at most {MAX_SOURCE} bytes, found {length}")
            }
            Self::Line { definition, line, expected, found } => {
                write!(f, "{definition}, line {line}: expected {expected}, found {found:?}")
            }
            Self::Twice { definition, line, name } => {
                write!(f, "{definition}, line {line}: expected different names, found {name:?} twice")
            }
            Self::Fields { definition } => {
                write!(f, "{definition}: expected at most {MAX_NODES} fields and constants in a message, found more")
            }
            Self::Separators { definition, expected, found } => {
                write!(f, "{definition}: expected {expected} line(s) of ---, found {found}")
            }
            Self::Differs { name } => {
                write!(f, "expected one definition of {name}, found a second that differs from it")
            }
            other => other.fmt_of_description(f),
        }
    }
}

impl RosError {
    /// The errors of [`Definitions::describe`](super::Definitions::describe).
    fn fmt_of_description(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, by: Some(by) } => {
                write!(f, "expected a definition of {name}, which {by} refers to, found none: add it")
            }
            Self::Unknown { name, by: None } => write!(f, "expected a definition of {name}, found none: add it"),
            Self::NotMessage { name, by } => {
                write!(f, "expected messages as fields of {by}, found {name}, which is a service or an action")
            }
            Self::Cycle { path } => {
                write!(f, "expected types that do not contain themselves, found {}", path.join(" -> "))
            }
            Self::Levels { name } => {
                write!(f, "expected at most {MAX_DEPTH} levels of types in {name}, found more")
            }
            Self::Parts { name } => write!(f, "expected at most {MAX_NODES} parts in {name}, found more"),
            _ => Ok(()), // the others are written by `Display` itself
        }
    }
}

impl std::error::Error for RosError {}
