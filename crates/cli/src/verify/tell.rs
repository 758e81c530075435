//! Messages about a changed verdict: an event for the programs at both ends, and a sample for subscribers of the
//! topic.

use super::gather::{Gatherer, Running, TOPIC};
use crate::failure::Result;
use crate::session::Session;
use qos::verification::{Change, Judged, Verdict};
use serde::Serialize;
use serde_json::json;
use std::time::Duration;
use thalweg::Publisher;
use thalweg::admin::Request;
use thalweg::control::Document;

/// Time after which a slow node is not told.
const PATIENCE: Duration = Duration::from_millis(500);

/// The publisher of verdicts.
pub(super) struct Teller(Publisher<String>);

impl Teller {
    /// Opens the publisher.
    pub(super) fn open(session: &Session) -> Result<Self> {
        Ok(Self(session.node.publisher::<String>(TOPIC).open()?))
    }

    /// Reports each change.
    pub(super) fn tell(&mut self, session: &Session, gatherer: &Gatherer<'_>, changes: &[(usize, Change)]) {
        let nodes = if changes.is_empty() { Vec::new() } else { session.others() };
        for (index, change) in changes {
            let Some(planned) = gatherer.plan.channels.get(*index) else { continue };
            let sample = json!({
                "plan": gatherer.plan.contract.hash, "topic": planned.topic, "publisher": planned.publisher,
                "subscriber": planned.subscriber, "verdict": change.new.verdict, "was": change.old,
                "because": change.new.because,
            });
            self.publish(&sample);
            if let Some(running) = &gatherer.running[*index] {
                tell_ends(session, &nodes, running, change);
            }
        }
    }

    /// Publishes a sample; there need not be a subscriber.
    pub(super) fn publish(&mut self, sample: &impl Serialize) {
        let text = serde_json::to_string(sample).unwrap_or_default();
        let _ = self.0.publish(&text);
    }
}

/// A change for people. A channel that is kept at its first look is no news.
pub(super) fn line(gatherer: &Gatherer<'_>, index: usize, change: &Change) -> Option<String> {
    let planned = gatherer.plan.channels.get(index)?;
    let Judged { verdict, because } = &change.new;
    let news = (change.old, *verdict) != (Verdict::Unknown, Verdict::Kept);
    let why = if because.is_empty() { String::new() } else { format!(": {because}") };
    let (at, old) = (gatherer.elapsed().as_secs_f64(), change.old);
    news.then(|| format!("{at:.0} s: {} → {}: {verdict}, was {old}{why}", planned.topic, planned.subscriber))
}

fn tell_ends(session: &Session, nodes: &[Document], running: &Running, change: &Change) {
    let (publisher, subscriber) = (&running.live.publisher, &running.live.subscriber);
    let request = Request::Verdict {
        publisher: publisher.clone(),
        subscriber: subscriber.clone(),
        verdict: change.new.verdict.to_string(),
        because: change.new.because.clone(),
    };
    let has_one =
        |node: &&Document| node.ports.values().any(|port| port.name == *publisher || port.name == *subscriber);
    for node in nodes.iter().filter(has_one) {
        let _ = session.node.ask(node.node, &request, PATIENCE); // one that went meanwhile needs no news
    }
}
