//! Changes of a session's file with which it may be admitted.

use crate::domains::Wanted;
use agent::peer;
use qos::contract::flow;
use qos::plan::{FileChange, Offer};
use qos::show_time;

/// Rates at which a session that is refused is tried again: every so many samples.
const SCALES: [u32; 4] = [2, 3, 5, 10];
/// Parts of the size at which it is tried again.
const PARTS: [u64; 2] = [2, 4];

/// A change of one flow.
pub(super) enum Change {
    Scale(u32),
    Size(u64),
    Deadline(u64),
}

/// The changes that are worth a try, the nearest to the request first.
pub(super) fn changes(wanted: &Wanted, why: &peer::Refused) -> Vec<(usize, Change)> {
    let late = why.what.starts_with("deadline");
    let each = wanted.flows.iter().enumerate();
    let of = |(index, flow): (usize, &flow::Flow)| {
        let needed = qos::parse_duration(&why.needs).ok().filter(|_| late && why.what.ends_with(&flow.subscriber));
        let deadline = needed.and_then(|time| u64::try_from(time.as_nanos()).ok());
        let scales = SCALES.iter().filter(|_| !late).map(|scale| Change::Scale(flow.scale.saturating_mul(*scale)));
        let sizes = PARTS.iter().filter(|_| !late).map(|part| Change::Size((flow.size / part).max(1)));
        let all: Vec<Change> =
            deadline.map(|ns| Change::Deadline(ns + 1000)).into_iter().chain(scales).chain(sizes).collect();
        all.into_iter().map(move |change| (index, change)).collect::<Vec<_>>()
    };
    each.flat_map(of).collect()
}

impl Change {
    /// Makes it.
    pub(super) fn make(&self, flow: &mut flow::Flow) {
        match self {
            Self::Scale(scale) => {
                flow.period = flow.period / u64::from(flow.scale.max(1)) * u64::from(*scale);
                flow.scale = *scale;
            }
            Self::Size(size) => flow.size = *size,
            Self::Deadline(ns) => flow.deadline = Some(*ns),
        }
    }

    /// The same, as it is offered.
    pub(super) fn offer(&self, flow: &flow::Flow) -> Offer {
        let (port, topic) = (&flow.subscriber, &flow.topic);
        let (what, table, name, key, value) = match self {
            Self::Scale(scale) => {
                let what = format!("scale {scale} instead of {} for {port}", flow.scale);
                (what, "subscriber", port, "scale", scale.to_string())
            }
            Self::Size(size) => {
                let what = format!("samples of {size} B instead of {} B of {topic}", flow.size);
                (what, "topic", topic, "size", format!("\"{size} B\""))
            }
            Self::Deadline(ns) => {
                let time = show_time(*ns as f64 / 1e3);
                (format!("a deadline of {time} for {port}"), "subscriber", port, "deadline", format!("\"{time}\""))
            }
        };
        let change = FileChange { table: table.to_owned(), name: name.clone(), key: key.to_owned(), value };
        Offer { what, changes: vec![change] }
    }
}
