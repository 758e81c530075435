//! Durations in documents: whole nanoseconds, or nothing.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

pub(super) fn serialize<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    // 584 years are as good as no end.
    duration.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)).serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<u64>::deserialize(from)?.map(Duration::from_nanos))
}
