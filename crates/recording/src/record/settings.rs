//! The settings of the recorded publishers' channels, as `thalweg get` knows them: to all subscribers, not only to the recorder.

use super::topics::{PATIENCE, Source};
use crate::file::{Attachment, SETTINGS};
use linux::clock::monotonic_ns;
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg::Node;
use thalweg::admin::{EndReport, Reply, Request};

/// Asks the publishers' nodes. A node that does not answer is not asked for its other ports.
pub(super) fn gather(node: &Node, sources: &[Arc<Source>]) -> Vec<u8> {
    let mut silent = BTreeSet::new();
    let mut reports: Vec<EndReport> = Vec::new();
    for source in sources {
        if silent.contains(&source.node) {
            continue;
        }
        let asked_ns = monotonic_ns();
        let request = Request::Get { port: source.name.clone(), other: None };
        match node.ask(source.node, &request, PATIENCE) {
            Ok(Reply::Settings(found)) => reports.extend(found),
            Err(_) if u128::from(monotonic_ns().saturating_sub(asked_ns)) >= PATIENCE.as_nanos() => {
                silent.insert(source.node);
            }
            Ok(_) | Err(_) => {} // a port without channels has no settings
        }
    }
    reports.sort_by(|a, b| (&a.publisher, &a.subscriber, &a.end).cmp(&(&b.publisher, &b.subscriber, &b.end)));
    serde_json::to_vec_pretty(&reports).unwrap_or_default()
}

/// The settings as a file within the recording.
pub(super) fn attachment(data: Vec<u8>) -> Attachment {
    Attachment { name: SETTINGS, media_type: "application/json", data }
}
