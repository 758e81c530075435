//! The stages of the topics that the page shows. A node that has just been silent is not asked: each question to it would take its whole patience,
//! and the page asks again and again.

use crate::census;
use crate::measure;
use crate::participant::Participant;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use thalweg::admin::{Reply, Request};
use thalweg::control::{Document, NodeId};

/// Topics whose stages are measured for the page at the same time.
const MOST_MEASURED: usize = 16;
/// A node that was silent is asked again after this time.
const AGAIN: Duration = Duration::from_secs(5);

/// The topics that are measured, and who answers.
#[derive(Debug, Default)]
pub(super) struct Stages {
    measured: BTreeMap<String, Measured>,
    silent: Silent,
}

/// The nodes of a topic that is measured.
#[derive(Debug, Default)]
struct Measured {
    /// One that was stopped may begin after its answer was given up.
    asked: BTreeSet<NodeId>,
    measuring: BTreeSet<NodeId>,
}

impl Stages {
    /// Takes note of the nodes of these names, which were silent when all were asked.
    pub(super) fn looked(&mut self, silent: &[String], now: Instant) {
        self.silent = Silent(silent.iter().map(|name| (name.clone(), now)).collect());
    }

    /// The stages of a topic's channels, which are measured from the first call on.
    pub(super) fn of(&mut self, participant: &Participant, topic: &str) -> Value {
        if !self.measured.contains_key(topic) && self.measured.len() == MOST_MEASURED {
            self.rest(participant);
        }
        let mut nodes = participant.others();
        let Measured { asked, measuring } = self.measured.entry(topic.to_owned()).or_default();
        for known in [&mut *asked, &mut *measuring] {
            known.retain(|known| nodes.iter().any(|node| node.node == *known));
        }
        let now = Instant::now();
        nodes.retain(|node| !self.silent.has(&node.name, now));
        // Also those that have come, or answer again, since the first call.
        let more: Vec<Document> = nodes.iter().filter(|node| !measuring.contains(&node.node)).cloned().collect();
        asked.extend(more.iter().map(|node| node.node));
        let answers = census::ask_all(participant, &more, &Request::Measure { topic: topic.to_owned(), every: 1 });
        measuring.extend(answers.iter().filter(|(_, answer)| answer.is_some()).map(|(node, _)| node.node));
        let mut reports = Vec::new();
        for (node, answer) in census::ask_all(participant, &nodes, &Request::Stages { topic: topic.to_owned() }) {
            match answer {
                Some(Reply::Stages(found)) => reports.extend(found),
                Some(_) => {}
                None => self.silent.note(&node.name, Instant::now()),
            }
        }
        measure::documents(&reports).into()
    }

    /// Nothing is measured any more.
    pub(super) fn rest(&mut self, participant: &Participant) {
        for (topic, Measured { asked, .. }) in std::mem::take(&mut self.measured) {
            let mut nodes = participant.others();
            nodes.retain(|node| asked.contains(&node.node));
            census::ask_all(participant, &nodes, &Request::Measure { topic, every: 0 });
        }
    }
}

/// Names of nodes that did not answer, and the time of that.
#[derive(Debug, Default)]
struct Silent(BTreeMap<String, Instant>);

impl Silent {
    fn note(&mut self, name: &str, now: Instant) {
        self.0.retain(|_, at| is_recent(*at, now)); // of nodes that are gone nobody asks any more
        self.0.insert(name.to_owned(), now);
    }

    /// `true` if it was silent lately.
    fn has(&self, name: &str, now: Instant) -> bool {
        self.0.get(name).is_some_and(|at| is_recent(*at, now))
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < AGAIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_node_is_asked_again_after_a_while() {
        let (mut stages, begin) = (Stages::default(), Instant::now());
        stages.silent.note("/slow", begin);
        assert!(stages.silent.has("/slow", begin + AGAIN / 2) && !stages.silent.has("/other", begin));
        assert!(!stages.silent.has("/slow", begin + AGAIN));
        stages.silent.note("/other", begin + AGAIN);
        assert_eq!(stages.silent.0.len(), 1, "what is over is forgotten");
        stages.looked(&["/slow".to_owned()], begin + AGAIN);
        assert!(
            stages.silent.has("/slow", begin + AGAIN) && !stages.silent.has("/other", begin + AGAIN),
            "it answered"
        );
    }
}
