//! Queries to a history, and the reasons for missing samples.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// A query to a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Query {
    /// The n-th latest; 1 is the latest.
    Nth(u64),
    /// All samples with numbers between these two, both included.
    Range {
        /// The incarnation of the publisher; `None`: the present one.
        incarnation: Option<u64>,
        /// The lowest.
        first: u64,
        /// The highest.
        last: u64,
    },
    /// All samples that were published (at a subscriber or relay: arrived) within this time.
    Since(Duration),
    /// The last samples, up to this number.
    Last(u64),
    /// The last samples of each instance, up to this number, as far as a durable publisher of a keyed topic keeps them; for
    /// other publishers as [`Query::Last`].
    LastOfEach(u64),
}

impl Query {
    /// The latest sample.
    pub fn latest() -> Self {
        Query::Nth(1)
    }

    /// The sample with this number, of the present incarnation.
    pub fn seq(seq: u64) -> Self {
        Self::range(seq..=seq)
    }

    /// The samples with these numbers, of the present incarnation.
    pub fn range(numbers: RangeInclusive<u64>) -> Self {
        Query::Range { incarnation: None, first: *numbers.start(), last: *numbers.end() }
    }
}

/// Text that is no range of sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError(String);

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no sequence number or range: say 12, 12..20 (both included), or INCARNATION:12..20", self.0)
    }
}

impl std::error::Error for QueryError {}

impl FromStr for Query {
    type Err = QueryError;
    /// `A`, `A..B` or, of a certain start of the publisher, `INCARNATION:A..B`.
    fn from_str(text: &str) -> Result<Self, QueryError> {
        let wrong = || QueryError(text.chars().take(80).collect());
        let (incarnation, numbers) = match text.split_once(':') {
            Some((incarnation, numbers)) => (Some(incarnation.parse().map_err(|_| wrong())?), numbers),
            None => (None, text),
        };
        let (first, last) = numbers.split_once("..").unwrap_or((numbers, numbers));
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        Ok(Query::Range { incarnation, first, last })
    }
}

/// The reason why a sample is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AbsentReason {
    /// It was here, and had to go.
    Gone,
    /// The sample was never published, as far as is known here.
    Never,
    /// The sample never came here: lost on the way, dropped by a monitor, or larger than the buffer.
    Missing,
}

/// Requested samples that are not there, and those that are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// The reason.
    pub why: AbsentReason,
    /// The request: a number or a range, `the 9th latest`, `the last 2s`.
    pub asked: String,
    /// The number of further missing samples.
    #[serde(default)]
    pub more: u64,
    /// The incarnation whose samples are kept.
    pub incarnation: u64,
    /// The lowest and the highest number that are here.
    pub here: Option<(u64, u64)>,
    /// The highest number that was published, 0 before the first.
    pub last: u64,
}

/// The reason why a sample never came to a buffer.
const LOST: &str = "lost on the way, dropped by a monitor or too large";

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, more, incarnation, last, .. } = self;
        let other = asked.contains(':');
        let here = match self.here {
            Some((first, last)) if first == last => format!("{first} is here"),
            Some((first, last)) => format!("{first}..{last} are here"),
            None => "nothing is here".to_owned(),
        };
        match self.why {
            AbsentReason::Gone if other => {
                write!(f, "gone: {asked} was another start of the publisher, now is {incarnation}, {here}")
            }
            AbsentReason::Gone => write!(f, "gone: {asked} was dropped, {here}"),
            AbsentReason::Never if other => write!(f, "never was: {asked}, the incarnation is {incarnation}, {here}"),
            AbsentReason::Never if *last == 0 => write!(f, "never was: nothing was published yet (asked for {asked})"),
            AbsentReason::Never => write!(f, "never was: the last is {last} (asked for {asked})"),
            AbsentReason::Missing if *more > 0 => {
                write!(f, "never came here: {asked} and {more} more, {LOST}; {here} without them")
            }
            AbsentReason::Missing => write!(f, "never came here: {asked}, {LOST}; {here} without it"),
        }
    }
}

/// A range as people write it.
pub(super) fn range(first: u64, last: u64) -> String {
    if first == last { first.to_string() } else { format!("{first}..{last}") }
}

pub(super) fn nth(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("the {n}{ending} latest")
}
