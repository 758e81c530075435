//! Times of the stages of a node's channels: read, and measured again.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg::Node;
use thalweg::admin::{Reply, Request};
use thalweg::stages::{End, Figures, StagesReport};

/// Every sample is measured: experiments measure little, and want all of it.
const EVERY: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(5);

/// The stages of a node's channels of one topic.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Channel by channel.
    pub ends: Vec<StagesReport>,
}

impl Measured {
    /// Takes the times measured since the last call, and starts from zero.
    ///
    /// # Errors
    /// The node does not answer.
    pub fn take(node: &Node, topic: &str) -> Result<Self> {
        let ends = ask(node, &Request::Stages { topic: topic.to_owned() })?;
        ask(node, &Request::Measure { topic: topic.to_owned(), every: EVERY })?;
        Ok(Self { ends })
    }

    /// Mean of a stage at one kind of end, in microseconds; not a number where none was measured.
    pub fn mean_us(&self, end: End, stage: &str) -> f64 {
        self.of(end, stage).map_or(f64::NAN, |figures| figures.mean_us)
    }

    /// Its median.
    pub fn p50_us(&self, end: End, stage: &str) -> f64 {
        self.of(end, stage).map_or(f64::NAN, |figures| figures.p50_us)
    }

    fn of(&self, end: End, stage: &str) -> Option<&Figures> {
        self.ends.iter().filter(|report| report.end == end).find_map(|report| report.stages_us.get(stage))
    }
}

fn ask(node: &Node, request: &Request) -> Result<Vec<StagesReport>> {
    match node.ask(node.id(), request, PATIENCE)? {
        Reply::Stages(reports) => Ok(reports),
        other => Err(Error::Failed(format!("asked for stages, and got {other:?}"))),
    }
}
