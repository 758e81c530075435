//! Clock, channels, timing and losses as a file has them.

use super::schema::SchemaText;
use super::writer::ChannelText;
use qos::{Durability, LivelinessKind, Qos, Queue, Reliability};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use thalweg::Change;
use thalweg::codec::TypeDescription;

/// Name of the metadata record of the recorder's clock.
pub const CLOCK: &str = "thalweg.clock";
/// Topic of the delays of each second.
pub const TIMING: &str = "/thalweg/timing";
/// Topic of the samples that are not in the file.
pub const LOSSES: &str = "/thalweg/losses";
/// Name of the attached contract.
pub const CONTRACT: &str = "contract.toml";
/// Name of the attached plan.
pub const PLAN: &str = "plan.toml";
/// Name of the attached settings of channels. Of several, the last one counts.
pub const SETTINGS: &str = "settings.json";

/// Metadata of a channel: its samples are ends of instances, `disposed` or `unregistered`, of which the key counts.
pub const CHANGE: &str = "thalweg.change";
/// Metadata of such a channel: the topic of the instances.
pub const ENDED_TOPIC: &str = "thalweg.topic";

/// The recorder's monotonic clock at one time by the wall clock. All stamps of a recording are made with the same one, so that their
/// differences are exact whatever happens to the wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockAnchor {
    /// Identity of the monotonic clock ([`linux::clock::clock_id`]).
    pub clock: String,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub monotonic_ns: u64,
    /// Nanoseconds since 1970 at that time.
    pub wall_ns: u64,
}

impl ClockAnchor {
    /// A time of the monotonic clock as nanoseconds since 1970.
    pub fn wall(&self, monotonic_ns: u64) -> u64 {
        let wall = i128::from(monotonic_ns) - i128::from(self.monotonic_ns) + i128::from(self.wall_ns);
        u64::try_from(wall.max(0)).unwrap_or(u64::MAX)
    }

    /// The values of its metadata record.
    pub fn values(&self) -> BTreeMap<String, String> {
        let values = [
            ("clock", self.clock.clone()),
            ("monotonic_ns", self.monotonic_ns.to_string()),
            ("wall_ns", self.wall_ns.to_string()),
        ];
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The delays of one recorded channel in one second: a message of [`TIMING`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// The topic.
    pub topic: String,
    /// The publisher's port name.
    pub publisher: String,
    /// The lowest sequence number.
    pub first_seq: u64,
    /// The highest sequence number.
    pub last_seq: u64,
    /// The number of samples.
    pub count: u64,
    /// From publication to reception; `None`: the publisher's clock is not known.
    pub latency_ns: Option<LatencyFigures>,
    /// The largest error of these; 0 on one host.
    pub uncertainty_ns: Option<u64>,
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyFigures {
    /// Half of the samples had no more.
    pub p50: u64,
    /// 99 of 100 had no more.
    pub p99: u64,
    /// None had more.
    pub max: u64,
}

/// Where a sample was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// In the publisher's queue: it never left.
    Publisher,
    /// On the way.
    Network,
    /// In the recorder, whose memory was full.
    Recorder,
    /// On the disk, which refused it.
    Disk,
}

impl Place {
    /// All places, on the way of a sample.
    pub const ALL: [Place; 4] = [Place::Publisher, Place::Network, Place::Recorder, Place::Disk];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Publisher => "publisher",
            Place::Network => "network",
            Place::Recorder => "recorder",
            Place::Disk => "disk",
        }
    }
}

/// Samples of one channel that are not in the file: a message of [`LOSSES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The topic.
    pub topic: String,
    /// The publisher's port name.
    pub publisher: String,
    /// The lowest sequence number among them.
    pub first_seq: u64,
    /// The highest one.
    pub last_seq: u64,
    /// The number of samples. Others with numbers between these two may be in the file.
    pub count: u64,
    /// The place.
    #[serde(rename = "where")]
    pub place: Place,
}

/// The metadata of a channel: what ROS 2's tools look for, and what a replay needs.
pub fn channel_metadata(
    offered: &Qos,
    message: &TypeDescription,
    (publisher, subscriber): (&str, &str),
    carrier: &str,
) -> BTreeMap<String, String> {
    let values = [
        ("offered_qos_profiles", offered_qos(offered)),
        ("thalweg.carrier", carrier.to_owned()),
        ("thalweg.class", offered.class.name().to_owned()),
        ("thalweg.publisher", publisher.to_owned()),
        ("thalweg.qos", serde_json::to_string(offered).unwrap_or_default()),
        ("thalweg.subscriber", subscriber.to_owned()),
        ("thalweg.type", type_text(message)),
    ];
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The channel for ends of the instances of this one. MCAP has no form for them, so they are messages on a topic of their own, with the type of
/// the instances. `None`: the change is no end.
pub fn channel_of_ends(of: &ChannelText, change: Change) -> Option<ChannelText> {
    let name = match change {
        Change::Written => return None,
        Change::Disposed => "disposed",
        Change::Unregistered => "unregistered",
    };
    let mut channel = of.clone();
    channel.topic = format!("/thalweg/{name}{}", of.topic);
    channel.metadata.insert(CHANGE.to_owned(), name.to_owned());
    channel.metadata.insert(ENDED_TOPIC.to_owned(), of.topic.clone());
    Some(channel)
}

/// The description of a type as JSON, without the source text, which is the channel's schema.
fn type_text(message: &TypeDescription) -> String {
    let mut message = message.clone();
    if let Some(ros) = &mut message.ros {
        Arc::make_mut(ros).source.clear();
    }
    serde_json::to_string(&message).unwrap_or_default()
}

/// A publisher's policies as rosbag2 writes them since Iron (`rosbag2_storage/qos.cpp`).
fn offered_qos(offered: &Qos) -> String {
    let history = if matches!(offered.queue, Queue::KeepLast(_)) { "keep_last" } else { "keep_all" };
    let reliability = if offered.reliability == Reliability::Reliable { "reliable" } else { "best_effort" };
    let late = offered.durability == Durability::TransientLocal;
    let durability = if late { "transient_local" } else { "volatile" };
    let depth = if late { offered.history } else { offered.queue.limit() };
    let automatic = offered.liveliness.kind == LivelinessKind::Automatic;
    let liveliness = if automatic { "automatic" } else { "manual_by_topic" };
    let mut text =
        format!("- history: {history}\n  depth: {depth}\n  reliability: {reliability}\n  durability: {durability}\n");
    put_time(&mut text, "deadline", offered.deadline);
    put_time(&mut text, "lifespan", offered.lifespan);
    let _ = writeln!(text, "  liveliness: {liveliness}");
    put_time(&mut text, "liveliness_lease_duration", offered.liveliness.lease);
    text.push_str("  avoid_ros_namespace_conventions: false\n");
    text
}

/// No time is ROS 2's `RMW_DURATION_INFINITE`.
fn put_time(text: &mut String, name: &str, time: Option<Duration>) {
    let (sec, nsec) = time.map_or((9_223_372_036, 854_775_807), |time| (time.as_secs(), time.subsec_nanos()));
    let _ = write!(text, "  {name}:\n    sec: {sec}\n    nsec: {nsec}\n");
}

/// The schemas of [`TIMING`] and [`LOSSES`].
pub(super) fn json_schema(topic: &str) -> SchemaText {
    let whole = r#"{"type":"integer","minimum":0}"#;
    let (name, own) = if topic == TIMING {
        let latency = r#"{"type":["object","null"],"properties":{"p50":W,"p99":W,"max":W}}"#.replace('W', whole);
        let uncertainty = r#"{"type":["integer","null"],"minimum":0}"#;
        ("thalweg.Timing", format!(r#""latency_ns":{latency},"uncertainty_ns":{uncertainty}"#))
    } else {
        let places = Place::ALL.map(|place| format!("\"{}\"", place.name())).join(",");
        ("thalweg.Loss", format!(r#""where":{{"type":"string","enum":[{places}]}}"#))
    };
    let text = format!(
        r#"{{"type":"object","properties":{{"topic":{{"type":"string"}},"publisher":{{"type":"string"}},"first_seq":{whole},"last_seq":{whole},"count":{whole},{own}}}}}"#
    );
    SchemaText { name: name.to_owned(), encoding: "jsonschema", text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::Class;

    #[test]
    fn stamps_keep_their_distance_whatever_the_wall_clock_does() {
        let anchor = ClockAnchor { clock: "c".into(), monotonic_ns: 1_000, wall_ns: 5_000 };
        assert_eq!([900, 1_000, 1_700].map(|at| anchor.wall(at)), [4_900, 5_000, 5_700]);
        let late = ClockAnchor { clock: "c".into(), monotonic_ns: 9_000, wall_ns: 5_000 };
        assert_eq!((late.wall(0), late.wall(u64::MAX)), (0, u64::MAX - 4_000));
        assert_eq!(anchor.values()["wall_ns"], "5000");
    }

    #[test]
    fn policies_are_written_as_rosbag2_reads_them() {
        let offered = Qos { deadline: Some(Duration::from_millis(1_500)), class: Class::High, ..Qos::default() };
        let metadata = channel_metadata(&offered, &TypeDescription::of::<u8>(), ("/p", "/s"), "shm");
        let expected = "- history: keep_last\n  depth: 16\n  reliability: reliable\n  durability: volatile\n  \
                        deadline:\n    sec: 1\n    nsec: 500000000\n  lifespan:\n    sec: 9223372036\n    nsec: 854775807\n  \
                        liveliness: automatic\n  liveliness_lease_duration:\n    sec: 9223372036\n    nsec: 854775807\n  \
                        avoid_ros_namespace_conventions: false\n";
        assert_eq!(metadata["offered_qos_profiles"], expected);
        assert_eq!((&metadata["thalweg.class"][..], &metadata["thalweg.carrier"][..]), ("high", "shm"));
        assert_eq!(
            serde_json::from_str::<TypeDescription>(&metadata["thalweg.type"]).unwrap(),
            TypeDescription::of::<u8>()
        );
        assert_eq!(serde_json::from_str::<Qos>(&metadata["thalweg.qos"]).unwrap(), offered);
    }

    #[test]
    fn schemas_of_json_are_json_and_name_every_field() {
        let timing = Timing {
            topic: "/t".into(),
            publisher: "/p".into(),
            first_seq: 1,
            last_seq: 2,
            count: 2,
            latency_ns: Some(LatencyFigures { p50: 1, p99: 2, max: 3 }),
            uncertainty_ns: Some(0),
        };
        let loss = Loss {
            topic: "/t".into(),
            publisher: "/p".into(),
            first_seq: 1,
            last_seq: 2,
            count: 2,
            place: Place::Network,
        };
        let sorted = |names: &serde_json::Value| -> std::collections::BTreeSet<String> {
            names.as_object().unwrap().keys().cloned().collect()
        };
        for (topic, value) in [(TIMING, serde_json::to_value(timing)), (LOSSES, serde_json::to_value(loss))] {
            let schema: serde_json::Value = serde_json::from_str(&json_schema(topic).text).unwrap();
            assert_eq!(sorted(&schema["properties"]), sorted(&value.unwrap()));
        }
    }
}
