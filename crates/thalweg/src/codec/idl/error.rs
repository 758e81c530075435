//! Errors of definitions in IDL.

use super::{MAX_TEXT, MAX_TEXTS};
use crate::codec::schema::{MAX_DEPTH, MAX_NODES};
use std::fmt;

/// The longest excerpt of a text in an error, in characters.
const EXCERPT: usize = 80;

/// A text in IDL that cannot be read, or a type in it that cannot be described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdlError {
    /// A text of more than 1 MiB.
    Text {
        /// The file.
        file: String,
        /// Its length in bytes.
        length: usize,
    },
    /// More than 16 MiB of text in one set of definitions.
    Texts {
        /// The file that does not fit any more.
        file: String,
    },
    /// A place that the grammar does not allow (OMG IDL 4.2, 7.4), or that this reader does not know.
    Line {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The expectation.
        expected: &'static str,
        /// The finding, at most 80 characters of it.
        found: String,
    },
    /// Two members or enumerators of one name.
    Twice {
        /// The file.
        file: String,
        /// The line of the second, counted from 1; of the struct, if the first is in its base.
        line: usize,
        /// The name.
        name: String,
    },
    /// More than 4096 members or enumerators in one type.
    Members {
        /// The file.
        file: String,
        /// The line of the type, counted from 1.
        line: usize,
    },
    /// A type or constant that differs from one of the same name in the set.
    Differs {
        /// Its name with its modules.
        name: String,
    },
    /// A type that nobody has added.
    Unknown {
        /// The type, as it is referred to.
        name: String,
        /// The type that refers to it; none where it was asked for.
        by: Option<String>,
    },
    /// A base that is no struct (OMG IDL 4.2, 7.4.13.4.1).
    Base {
        /// The base.
        name: String,
        /// The struct that inherits from it.
        by: String,
    },
    /// A type whose bytes a schema does not show, or whose bytes Thalweg does not read.
    Unsupported {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The type in which it stands.
        name: String,
        /// The finding.
        found: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// A type that contains itself.
    Cycle {
        /// The types from one to the next; the last is the first.
        path: Vec<String>,
    },
    /// More than 32 levels, or more than 128 names around one another.
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

impl IdlError {
    /// The error of a line; long findings are cut.
    pub(super) fn line(file: &str, line: usize, expected: &'static str, found: &str) -> Self {
        let found = found.chars().take(EXCERPT).collect();
        Self::Line { file: file.to_owned(), line, expected, found }
    }

    /// The error of a type that is not in the set; long names are cut.
    pub(super) fn unknown(name: &str, by: Option<&str>) -> Self {
        Self::Unknown { name: name.chars().take(EXCERPT).collect(), by: by.map(str::to_owned) }
    }
}

impl fmt::Display for IdlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { file, length } => {
                write!(f, "{file}: expected a text of at most {MAX_TEXT} bytes, found one of {length}")
            }
            Self::Texts { file } => {
                write!(f, "{file}: expected at most {MAX_TEXTS} bytes of definitions in one set, found more")
            }
            Self::Line { file, line, expected, found } => {
                write!(f, "{file}, line {line}: expected {expected}, found {found:?}")
            }
            Self::Twice { file, line, name } => {
                write!(f, "{file}, line {line}: expected different names, found {name:?} twice")
            }
            Self::Members { file, line } => {
                write!(f, "{file}, line {line}: expected at most {MAX_NODES} members or enumerators, found more")
            }
            Self::Differs { name } => {
                write!(f, "expected one definition of {name}, found a second that differs from it")
            }
            other => other.fmt_of_description(f),
        }
    }
}

impl IdlError {
    /// The errors of [`Idl::describe`](super::Idl::describe).
    fn fmt_of_description(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, by: Some(by) } => write!(
                f,
                "expected a definition of {name}, which {by} refers to, found none: add the file that has it (an #include is not \
                 followed)"
            ),
            Self::Unknown { name, by: None } => write!(f, "expected a definition of {name}, found none: add it"),
            Self::Base { name, by } => write!(f, "expected a struct as the base of {by}, found {name}"),
            Self::Unsupported { file, line, name, found, reason } => {
                write!(f, "{file}, line {line}: expected types that a schema shows in {name}, found {found}: {reason}")
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

impl std::error::Error for IdlError {}
