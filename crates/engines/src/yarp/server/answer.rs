//! Answers of the name server, in the two forms in which programs read them.

use super::super::names::END;
use thalweg::bottle::{Bottle, Value};

/// An answer. Text connections have lines. Binary ones have a bottle, because who reads one there takes lines for lengths, and waits for
/// what does not come.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// Lines, each with its end.
    Lines(String),
    /// The reason why a command was not carried out.
    Refused(String),
    /// The answer to `bot`.
    Bottle(Bottle),
}

impl Answer {
    /// As lines.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Lines(lines) => format!("{lines}{END}\n"),
            Self::Refused(why) => format!("{why}\n{END}\n"),
            Self::Bottle(bottle) => format!("{bottle}\n"),
        }
    }

    /// As one bottle.
    pub(crate) fn bottle(self) -> Bottle {
        match self {
            Self::Lines(lines) => Bottle(lines.lines().map(Value::text).collect()),
            Self::Refused(why) => failed(why),
            Self::Bottle(bottle) => bottle,
        }
    }
}

/// A failure in a bottle.
pub(super) fn failed(why: String) -> Bottle {
    Bottle(vec!["fail".into(), Value::Text(why)])
}
