//! The result of a comparison.

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// The stage of a sample's way where time or the sample went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The callback that publishes the next topic of a chain.
    Callback,
    /// The publishing program, or its queue.
    Publisher,
    /// From publication to receipt.
    Network,
    /// The recording program.
    Recorder,
    /// The recorder's disk.
    Disk,
    /// The file does not tell.
    Unknown,
}

impl Stage {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Callback => "callback",
            Self::Publisher => "publisher",
            Self::Network => "network",
            Self::Recorder => "recorder",
            Self::Disk => "disk",
            Self::Unknown => "unknown",
        }
    }

    /// The place of a loss by the recorder's word for it.
    pub(super) fn of_loss(word: &str) -> Self {
        let places = [Self::Publisher, Self::Network, Self::Recorder, Self::Disk];
        places.into_iter().find(|stage| stage.name() == word).unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Stage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A figure of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// From publication to receipt.
    Latency,
    /// Between two publications.
    Interval,
    /// From a sample of this topic to the publication that it caused.
    After(String),
    /// Samples later than the bound.
    Late,
    /// Lost samples.
    Lost,
    /// Samples per second.
    Rate,
    /// Samples at all.
    Samples,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency => f.write_str("latency"),
            Self::Interval => f.write_str("interval"),
            Self::After(topic) => write!(f, "after {topic}"),
            Self::Late => f.write_str("late"),
            Self::Lost => f.write_str("lost"),
            Self::Rate => f.write_str("rate"),
            Self::Samples => f.write_str("samples"),
        }
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A failure of the test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The topic.
    pub topic: String,
    /// The stage.
    pub stage: Stage,
    /// The figure that shows it.
    pub measure: Measure,
    /// The figures, for people.
    pub because: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.topic, self.stage, self.because)
    }
}

/// The verdict on a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As before, or as planned.
    Kept,
    /// A figure is worse.
    Broken,
    /// It is not in the baseline.
    New,
    /// The recording does not tell.
    #[default]
    Unknown,
}

impl Verdict {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Broken => "broken",
            Self::New => "new",
            Self::Unknown => "unknown",
        }
    }
}

/// A quantile before and now, µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantile {
    /// In the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_us: Option<f64>,
    /// In the recording.
    pub now_us: f64,
    /// The largest change that does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_us: Option<f64>,
}

/// A topic.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The topic.
    pub topic: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason of the verdict.
    pub because: String,
    /// Samples in the baseline, and in the recording.
    pub samples: [u64; 2],
    /// Its quantiles, such as `latency p99`.
    pub quantiles: BTreeMap<String, Quantile>,
    /// The bound, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_us: Option<f64>,
    /// Samples that were later than the bound, in the baseline and in the recording.
    pub late: [u64; 2],
    /// Lost samples, in the baseline and in the recording.
    pub lost: [u64; 2],
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Something was compared, and nothing is worse.
    pub pass: bool,
    /// The failures.
    pub findings: Vec<Finding>,
    /// Each topic.
    pub topics: Vec<Row>,
    /// What all failures have in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Report {
    /// The same of some topics only.
    #[must_use]
    pub fn only(mut self, wanted: impl Fn(&str) -> bool) -> Self {
        self.topics.retain(|row| wanted(&row.topic));
        self.findings.retain(|one| wanted(&one.topic));
        self.note = None;
        self.judged()
    }

    /// Adds a topic with its failures, which decide its verdict.
    pub(super) fn add(&mut self, mut row: Row, findings: Vec<Finding>) {
        if !findings.is_empty() {
            row.verdict = Verdict::Broken;
            row.because =
                findings.iter().map(|one| format!("{}: {}", one.stage, one.because)).collect::<Vec<_>>().join("; ");
        }
        self.topics.push(row);
        self.findings.extend(findings);
    }

    /// The verdict of all.
    pub(super) fn judged(mut self) -> Self {
        let kept = self.topics.iter().any(|row| row.verdict == Verdict::Kept);
        self.pass = self.findings.is_empty() && kept;
        self
    }
}

/// Nanoseconds as microseconds with three decimals.
pub(super) fn microseconds(ns: f64) -> f64 {
    ns.round() / 1e3
}
