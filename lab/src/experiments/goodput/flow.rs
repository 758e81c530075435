//! A channel whose publisher sends as fast as there is room, and its throughput.

use super::path::Path;
use crate::error::Result;
use crate::lab::Lab;
use crate::part::LONG;
use crate::part::stream::{Connected, Counts, Flow, Order, Published, Settings};
use qos::{Class, Qos};

/// The samples of a channel: size, rate, class, carrier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub carrier: &'static str,
    pub size: usize,
    /// 0: as fast as there is room.
    pub hz: f64,
    pub class: Class,
}

/// The channel.
pub(super) struct Saturating {
    load: Load,
    pub flow: Flow,
}

/// Bytes per second that arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    /// Without the message under way.
    pub least: f64,
    /// With a message that was.
    pub most: f64,
}

/// Counts of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub published: u64,
    pub arrived: u64,
    /// Twice, out of order, or not whole.
    pub wrong: u64,
}

impl Saturating {
    /// Connects it.
    pub(super) fn open(lab: &Lab, path: &Path, load: Load) -> Result<Self> {
        let Load { carrier, size, hz, class } = load;
        let (topic, carriers, qos) = ("/load".into(), vec![carrier.into()], Qos { class, ..Qos::default() });
        let settings = Settings { topic, size, hz, carriers, qos, ..Settings::default() };
        let [publisher, subscriber] = path.nodes(lab)?;
        Ok(Self { load, flow: Flow::open(lab, &settings, publisher, vec![subscriber])? })
    }

    /// Messages that arrived so far.
    pub(super) fn count(&mut self, lab: &Lab) -> Result<Counts> {
        self.flow.subscribers[0].ask(lab, &Order::Count, LONG)
    }

    /// Ends it, and waits for the messages under way.
    pub(super) fn finish(mut self, lab: &Lab) -> Result<Totals> {
        let published: Published = self.flow.publisher.ask(lab, &Order::Stop, LONG)?;
        let wait = Order::Until { seq: published.last, ms: DRAIN_MS };
        self.flow.subscribers[0].ask::<Connected>(lab, &wait, LONG)?;
        let Counts { count, wrong, .. } = self.count(lab)?;
        Ok(Totals { published: published.count, arrived: count, wrong })
    }

    /// Bytes per second between two counts.
    pub(super) fn rate(&self, before: &Counts, after: &Counts) -> Rate {
        rate(self.load.size as f64, before, after)
    }
}

/// Messages under way may take this long. They are lost only when they never come.
const DRAIN_MS: u64 = 20_000;

fn rate(size: f64, before: &Counts, after: &Counts) -> Rate {
    let count = after.count.saturating_sub(before.count) as f64;
    let from = if before.count > 0 { before.latest_ns } else { before.at_ns };
    let seconds = |to: u64| to.saturating_sub(from).max(1) as f64 / 1e9;
    if count == 0.0 {
        return Rate { least: 0.0, most: size / seconds(after.at_ns) };
    }
    // From arrival to arrival, so that none counts in part; a silence after the last one is none of chance.
    let to_last = seconds(after.latest_ns);
    let silent = seconds(after.at_ns) - to_last;
    let seconds = if silent > 2.0 * to_last / count { seconds(after.at_ns) } else { to_last };
    Rate { least: count * size / seconds, most: count * size / seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(count: u64, latest_s: u64, at_s: u64) -> Counts {
        Counts { count, wrong: 0, latest_ns: latest_s * SECOND, at_ns: at_s * SECOND }
    }

    #[test]
    fn a_rate_is_of_whole_messages_between_arrivals() {
        let both = |bytes: f64| Rate { least: bytes, most: bytes };
        assert_eq!(rate(100.0, &at(3, 5, 6), &at(13, 10, 11)), both(200.0));
        assert_eq!(rate(100.0, &at(3, 5, 6), &at(13, 10, 15)), both(100.0), "silent for longer than usual");
        assert_eq!(rate(100.0, &at(3, 5, 6), &at(3, 5, 10)), Rate { least: 0.0, most: 20.0 });
        assert_eq!(
            rate(100.0, &at(0, 0, 6), &at(2, 8, 8)),
            both(100.0),
            "the first one takes the time since the start"
        );
    }
}
