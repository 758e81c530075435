//! What is wrong with a value or a message, and where in it.

use crate::error::MessageError;
use pyo3::prelude::*;

/// A value that is none of its type, a message that is none, or an exception of the user's own code.
pub(super) enum Wrong {
    Value { path: String, problem: String },
    Python(PyErr),
}

pub(super) type Result<T> = std::result::Result<T, Wrong>;

impl From<PyErr> for Wrong {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl Wrong {
    pub(super) fn new(problem: String) -> Self {
        Self::Value { path: String::new(), problem }
    }

    /// Something else was expected than this value.
    pub(super) fn expected(what: &str, found: &Bound<'_, PyAny>) -> Self {
        let kind = found.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        let text: String = found
            .repr()
            .map_or_else(|_| String::new(), |text| text.to_string_lossy().chars().take(MOST_SHOWN).collect());
        Self::new(format!("expected {what}, found {kind} {text}"))
    }

    /// The same, in a part of a value.
    pub(super) fn at(self, part: &str) -> Self {
        match self {
            Self::Value { path, problem } if path.is_empty() => Self::Value { path: part.to_owned(), problem },
            Self::Value { path, problem } => Self::Value { path: format!("{part}.{path}"), problem },
            other => other,
        }
    }

    /// The exception, about a value of the type `name`.
    pub(super) fn raised(self, name: &str) -> PyErr {
        match self {
            Self::Value { path, problem } if path.is_empty() => MessageError::new_err(format!("{name}: {problem}")),
            Self::Value { path, problem } => MessageError::new_err(format!("{name}.{path}: {problem}")),
            Self::Python(error) => error,
        }
    }
}

/// Characters of a value that an error shows.
const MOST_SHOWN: usize = 64;
