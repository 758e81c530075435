//! The QoS policies a port states: a publisher offers, a subscriber requests. Names and rules are those of DDS 1.4, §2.2.3.

mod check;
mod matching;
mod text;
mod values;

pub use check::Contradiction;
pub use matching::{Mismatch, PolicyName, fnmatch, match_qos, partitions_meet};
pub use values::{
    DestinationOrder, Durability, Liveliness, LivelinessKind, Ownership, Place, PlaceError, PolicyError, PullBuffer,
    QUEUE_BYTES, Queue, Reliability, ResourceLimit, ResourceLimits, SAMPLE_BYTES, Scale,
};

use crate::expression::Filter;
use crate::priority::Class;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The QoS of a port. Policies of one end alone (P: publisher, S: subscriber) are ignored at the other; all others
/// are matched by [`match_qos`]. In documents, defaults are left out and durations are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Qos {
    /// Reliability. A reliable subscriber does not match a best-effort publisher.
    pub reliability: Reliability,
    /// The queue of a channel that is slower than its publisher.
    pub queue: Queue,
    /// The subscriber matches only publishers whose queue drops no sample in favour of a newer one: keep-all or block (S; YS-56).
    /// Its own queue is a matter of its own. Default `false`.
    #[serde(skip_serializing_if = "is_default")]
    pub strict: bool,
    /// Packet priority of the port's channels (P).
    pub class: Class,
    /// Largest encoded message in bytes, 1 … 1 GiB. Default 16 MiB. A receiver never allocates more than this for one message.
    pub max_message: u32,
    /// Most that is kept at the subscriber (S); of bytes, at the publisher, too.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: ResourceLimits,
    /// History for late joiners.
    #[serde(skip_serializing_if = "is_default")]
    pub durability: Durability,
    /// With `transient-local`: the number of samples of each instance that are kept (publisher) or wanted (subscriber); at least 1,
    /// the default.
    #[serde(skip_serializing_if = "is_one")]
    pub history: u32,
    /// Longest time between two samples of one instance, > 0. Default `None`: none is promised or expected.
    #[serde(with = "nanoseconds", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// Longest acceptable time from publishing to delivery, a hint: later samples are counted, and samples may wait
    /// for one another meanwhile. Default `None`: as short as possible, the same as 0 (V-03).
    #[serde(with = "nanoseconds", skip_serializing_if = "Option::is_none")]
    pub latency_budget: Option<Duration>,
    /// Samples that are older are dropped wherever they are, > 0; a subscriber's own counts too if it is shorter.
    /// Default `None`: they keep.
    #[serde(with = "nanoseconds", skip_serializing_if = "Option::is_none")]
    pub lifespan: Option<Duration>,
    /// Shortest time between two samples of one instance that the subscriber wants (S; DDS TIME_BASED_FILTER, V-04), at most
    /// its deadline. Default `None`: 0, it wants all.
    #[serde(with = "nanoseconds", skip_serializing_if = "Option::is_none")]
    pub separation: Option<Duration>,
    /// The order of samples of several publishers.
    #[serde(skip_serializing_if = "is_default")]
    pub destination_order: DestinationOrder,
    /// The way a publisher shows that it is alive.
    #[serde(skip_serializing_if = "is_default")]
    pub liveliness: Liveliness,
    /// Ownership of instances that several publishers update.
    #[serde(skip_serializing_if = "is_default")]
    pub ownership: Ownership,
    /// With exclusive ownership: the highest living one counts (P; DDS OWNERSHIP_STRENGTH).
    #[serde(skip_serializing_if = "is_default")]
    pub strength: i32,
    /// Names, at most 64 of 255 bytes; a port meets those with which it shares one. `*`, `?` and `[a-z]` are wildcards.
    /// Default: none, the same as the empty name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partition: Vec<String>,
    /// Fields that tell instances apart, as dotted paths such as `header.frame`, at most 16. Default: none, the topic is
    /// one instance.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// A filter of samples by content (S). Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// A selection of samples by number (S). Default: all.
    #[serde(skip_serializing_if = "is_default")]
    pub scale: Scale,
    /// Width and height of the picture that is wanted (S), at least 1. Default: as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<(u32, u32)>,
    /// The place where `scale` and `picture` are applied (S). Default: at the publisher.
    #[serde(skip_serializing_if = "is_default")]
    pub place: Place,
    /// A history that can be asked: kept by the publisher, or wanted by the subscriber. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullBuffer>,
    /// Policies that the subscriber does without if they are not offered (S): matched with a warning instead of not at all (U-45).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<PolicyName>,
}

impl Qos {
    /// Bytes that may wait in one queue of the port: as stated, else [`QUEUE_BYTES`], or one largest message if that is more.
    pub fn queue_bytes(&self) -> u64 {
        self.limits.bytes.unwrap_or(QUEUE_BYTES.max(u64::from(self.max_message).saturating_add(SAMPLE_BYTES)))
    }
}

impl Default for Qos {
    fn default() -> Self {
        Self {
            reliability: Reliability::default(),
            queue: Queue::default(),
            strict: false,
            class: Class::default(),
            max_message: 16 << 20,
            limits: ResourceLimits::default(),
            durability: Durability::default(),
            history: 1,
            deadline: None,
            latency_budget: None,
            lifespan: None,
            separation: None,
            destination_order: DestinationOrder::default(),
            liveliness: Liveliness::default(),
            ownership: Ownership::default(),
            strength: 0,
            partition: Vec::new(),
            key: Vec::new(),
            filter: None,
            scale: Scale::default(),
            picture: None,
            place: Place::default(),
            pull: None,
            fallback: Vec::new(),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

/// Durations in documents: whole nanoseconds, or nothing.
mod nanoseconds {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        // 584 years are as good as no end.
        duration.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_document_has_the_defaults_and_a_newer_one_is_read() {
        let older = r#"{"reliability":"best-effort","queue":{"keep-last":4},"class":"high","max_message":100}"#;
        let read: Qos = serde_json::from_str(older).unwrap();
        let same = Qos {
            reliability: Reliability::BestEffort,
            queue: Queue::KeepLast(4),
            class: Class::High,
            ..Qos::default()
        };
        assert_eq!(read, Qos { max_message: 100, ..same });
        assert_eq!(serde_json::to_string(&read).unwrap(), older);
        let newer: Qos =
            serde_json::from_str(r#"{"deadline":20000000,"colour":{"red":1},"liveliness":{"mood":3}}"#).unwrap();
        assert_eq!(newer, Qos { deadline: Some(Duration::from_millis(20)), ..Qos::default() });
    }

    #[test]
    fn a_document_says_all_policies() {
        let time = |n| Some(Duration::from_nanos(n));
        let text = |text: &str| vec![text.to_owned()];
        let all = Qos {
            reliability: Reliability::BestEffort,
            queue: Queue::Block { limit: 3, up_to_us: 4 },
            strict: true,
            class: Class::Low,
            max_message: 5,
            limits: ResourceLimits {
                samples: Some(6),
                instances: Some(7),
                samples_per_instance: Some(1),
                bytes: Some(9),
            },
            durability: Durability::TransientLocal,
            history: 8,
            deadline: time(9),
            latency_budget: time(10),
            lifespan: time(11),
            separation: time(12),
            destination_order: DestinationOrder::BySource,
            liveliness: Liveliness { kind: LivelinessKind::ByNode, lease: time(13) },
            ownership: Ownership::Exclusive,
            strength: -14,
            partition: text("a*"),
            key: text("id"),
            filter: Some(Filter { expression: "x = %0".into(), parameters: text("15") }),
            scale: Scale::Rate { p: 2, q: 3 },
            picture: Some((320, 240)),
            place: Place::Relay("gate".into()),
            pull: Some(PullBuffer { place: Place::Subscriber, samples: 16, bytes: 17, age: time(18) }),
            fallback: vec![PolicyName::LatencyBudget],
        };
        let document = serde_json::to_value(&all).unwrap();
        assert_eq!(serde_json::from_value::<Qos>(document.clone()).unwrap(), all);
        let mut read = Qos::default();
        all.stated().iter().for_each(|(name, value)| read.set(name, value).unwrap());
        assert_eq!(read, all, "each field has a row in text.rs");
        let named = document.as_object().unwrap();
        assert_eq!(named.len(), 24, "{named:?}");
        for (name, is) in [("deadline", "9"), ("picture", "[320,240]"), ("fallback", r#"["latency-budget"]"#)] {
            assert_eq!(named[name].to_string(), is);
        }
    }
}
