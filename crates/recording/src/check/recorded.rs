//! The changes that give a contract the rates and sizes of a recording.

use super::run::Run;
use qos::plan::FileChange;
use qos::system::System;

/// The changes: `size` of a topic is that of its largest sample, `rate` that of one publisher over the whole recording. What was not
/// recorded, or not often enough to tell a rate, stays, and so does a rate within one part in a hundred.
pub fn recorded(system: &System, run: &Run) -> Vec<FileChange> {
    let mut changes = Vec::new();
    for topic in &system.topics {
        let name = if topic.name.starts_with('/') { topic.name.clone() } else { format!("/{}", topic.name) };
        let Some(flow) = run.flows.get(&name) else { continue };
        let mut change = |key: &str, value: String| {
            let (table, name, key) = ("topic".to_owned(), topic.name.clone(), key.to_owned());
            changes.push(FileChange { table, name, key, value: format!("\"{value}\"") });
        };
        if flow.largest > 0 && flow.largest != topic.size {
            change("size", format!("{} B", flow.largest));
        }
        let rate = flow.rate_hz().filter(|rate| (rate / topic.rate - 1.0).abs() > EQUAL);
        // Up, in hundredths: the plan has to hold for it.
        rate.into_iter().for_each(|rate| change("rate", format!("{} Hz", (rate * 100.0).ceil() / 100.0)));
    }
    changes
}

/// Rates that differ less are equal: a recording begins and ends at any time.
const EQUAL: f64 = 0.01;
