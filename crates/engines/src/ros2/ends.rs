//! Publishers and subscribers of ROS 2, and what a sample carries beside its message.

use super::InGraph;
use super::graph::Graph;
use super::rmw::{Attachment, Gid, TopicKey};
use crate::engine::{Deliver, Publisher, Result, Sample, Subscriber};
use crate::zenoh::ends::{Incoming, Outgoing};
use ::zenoh::bytes::ZBytes;
use ::zenoh::sample::Sample as Received;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use thalweg::Change;

pub(super) struct Publishing {
    pub(super) _in_graph: InGraph,
    pub(super) outgoing: Outgoing,
    pub(super) graph: Arc<Graph>,
    /// Its session is not that of the subscribers.
    pub(super) apart: bool,
    /// Name, and type on the wire.
    pub(super) topic: (String, String),
    pub(super) gid: Gid,
    pub(super) sequence: AtomicI64,
}

impl Publisher for Publishing {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        if sample.change != Change::Written {
            return Ok(()); // ROS 2 has no instances
        }
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let time_ns = now_ns().saturating_sub_unsigned(sample.age_ns);
        let attachment = Attachment { sequence, time_ns, gid: self.gid };
        self.outgoing.put(sample.message, Some(ZBytes::from(attachment.encode().to_vec())))
    }

    /// Zenoh counts own subscribers, too, if they are in another session; the graph does not.
    fn is_wanted(&self) -> bool {
        self.outgoing.is_wanted() && (!self.apart || self.graph.has_subscriber(&self.topic))
    }
}

/// Nanoseconds since 1970, as the time stamps of ROS 2 count.
#[allow(clippy::disallowed_methods)] // called as a sample leaves or comes
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) struct Subscribing {
    pub(super) _in_graph: Option<InGraph>,
    pub(super) _incoming: Incoming,
}

impl Subscriber for Subscribing {}

/// Gives a sample on. `exact` is its topic, where that is always the same. One without an attachment that can be read is none of ROS 2, and
/// refused; one of an own publisher has come over the session of another class.
pub(super) fn take(graph: &Graph, exact: Option<&str>, sample: &Received, deliver: &mut Deliver) {
    let attachment = sample.attachment().map(|attachment| Attachment::decode(&attachment.to_bytes()));
    let Some(Ok(Attachment { gid, time_ns, .. })) = attachment else {
        return graph.refuse(&format!("a sample of {} without the attachment of ROS 2", sample.key_expr()));
    };
    if graph.is_own(gid) {
        return;
    }
    let parsed = if exact.is_none() { TopicKey::parse(sample.key_expr().as_str()).ok() } else { None };
    let Some(topic) = exact.or(parsed.as_ref().map(|key| &key.name[..])) else { return };
    let age_ns = u64::try_from(now_ns().saturating_sub(time_ns)).unwrap_or_default();
    deliver(&Sample {
        topic,
        message: &sample.payload().to_bytes(),
        publisher: u128::from_le_bytes(gid.0),
        origin: None,
        change: Change::Written,
        age_ns,
        historical: false,
    });
}

#[cfg(test)]
mod tests {
    use super::super::types::{Types, known};
    use super::*;
    use ::zenoh::key_expr::KeyExpr;
    use ::zenoh::sample::SampleBuilder;
    use qos::Qos;
    use std::sync::mpsc::channel;
    use thalweg::control::Direction;

    /// An own sample comes over the session of another class: its publisher is in the graph. A sample of nobody is counted.
    #[test]
    fn a_sample_of_an_own_publisher_is_dropped_and_one_of_nobody_refused() {
        let graph = Graph::new("1".to_owned(), Arc::new(Types::new(known())));
        let own = Gid([1; 16]);
        let _entered = graph.enter(own, "/a", "a::msg::dds_::A_", Direction::Publisher, Qos::default());
        let (tell, told) = channel();
        let mut deliver: Deliver = Box::new(move |sample| tell.send(sample.publisher).unwrap());
        let mut come = |attachment: Option<Vec<u8>>| {
            let sample = SampleBuilder::put(KeyExpr::new("0/a").unwrap(), "x").attachment(attachment);
            take(&graph, Some("/a"), &sample.into(), &mut deliver);
        };
        let of = |gid| Some(Attachment { sequence: 1, time_ns: 0, gid }.encode().to_vec());
        come(of(own));
        come(Some(vec![0; 3]));
        come(None);
        come(of(Gid([2; 16])));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [u128::from_le_bytes([2; 16])]);
        assert_eq!(graph.refused().count, 2);
    }
}
