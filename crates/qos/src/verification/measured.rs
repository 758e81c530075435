//! Changes that make a contract agree with measurements.

use super::Cost;
use crate::plan::FileChange;
use crate::system::{Subscriber, System};
use serde::{Deserialize, Serialize};

/// Measurements of a channel, in the form of `thalweg verify --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The contract's topic.
    pub topic: String,
    /// The subscriber's name.
    pub subscriber: String,
    /// Samples that were measured.
    pub samples: u64,
    /// The largest cost of one of them.
    pub measured: Cost,
}

/// The changes that write the measured sizes and execution times into a contract, each the largest of its channels:
/// `size`, `cpu_send` of topics, `scaled_size`, `cpu_receive` of subscribers. Values without a measurement stay.
pub fn measured(system: &System, measured: &[Measured]) -> Vec<FileChange> {
    let seen: Vec<&Measured> = measured.iter().filter(|one| one.samples > 0 && one.measured.bytes > 0).collect();
    let most = |values: &mut dyn Iterator<Item = u64>| values.max().filter(|value| *value > 0);
    let subscriber = |name: &str| system.subscribers.iter().find(|subscriber| subscriber.name == name);
    let is_whole = |one: &&&Measured| subscriber(&one.subscriber).is_none_or(|subscriber| !is_smaller(subscriber));
    let mut changes = Vec::new();
    let mut change = |table: &str, name: &str, key: &str, old: u64, new: Option<u64>, unit: &dyn Fn(u64) -> String| {
        let Some(new) = new.filter(|new| *new != old) else { return };
        let (table, name, key) = (table.to_owned(), name.to_owned(), key.to_owned());
        changes.push(FileChange { table, name, key, value: format!("\"{}\"", unit(new)) });
    };
    let (bytes, time) = (|bytes: u64| format!("{bytes} B"), |ns: u64| format!("{} us", ns as f64 / 1e3));
    for topic in &system.topics {
        let of = || seen.iter().filter(|one| one.topic == topic.name);
        change(
            "topic",
            &topic.name,
            "size",
            topic.size,
            most(&mut of().filter(is_whole).map(|one| one.measured.bytes)),
            &bytes,
        );
        let send = most(&mut of().map(|one| nanoseconds(one.measured.send_us)));
        change("topic", &topic.name, "cpu_send", topic.cpu_send, send, &time);
    }
    for subscriber in &system.subscribers {
        let of = || seen.iter().filter(|one| one.subscriber == subscriber.name);
        if is_smaller(subscriber) {
            let size = most(&mut of().map(|one| one.measured.bytes));
            change("subscriber", &subscriber.name, "scaled_size", subscriber.scaled_size.unwrap_or(0), size, &bytes);
        }
        let receive = most(&mut of().map(|one| nanoseconds(one.measured.receive_us)));
        change("subscriber", &subscriber.name, "cpu_receive", subscriber.cpu_receive, receive, &time);
    }
    changes
}

/// `true` if its samples are smaller than the published ones.
fn is_smaller(subscriber: &Subscriber) -> bool {
    subscriber.picture.is_some() || subscriber.scaled_size.is_some()
}

/// In tenths of a microsecond, up: no figure here is finer.
fn nanoseconds(us: f64) -> u64 {
    (us * 10.0).ceil() as u64 * 100
}

#[cfg(all(test, feature = "placement"))]
mod tests {
    use super::*;
    use crate::contract::Contract;

    #[test]
    fn sizes_and_times_are_the_largest_of_all_channels() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/robot.toml")).unwrap();
        let one = |topic: &str, subscriber: &str, bytes, send_us, receive_us| Measured {
            topic: topic.into(),
            subscriber: subscriber.into(),
            samples: 9,
            measured: Cost { send_us, receive_us, bytes },
        };
        let seen = [
            one("camera-left", "/pilot/left", 90_000, 120.04, 290.0),
            one("camera-left", "/operator/view", 11_000, 180.0, 200.0),
            Measured { samples: 0, ..one("imu", "/pilot/imu", 64, 99.0, 99.0) },
        ];
        let changes = measured(&Contract::read(&text).unwrap().system, &seen);
        let said: Vec<String> =
            changes.iter().map(|c| format!("{} {} {} {}", c.table, c.name, c.key, c.value)).collect();
        let expected = [
            "topic camera-left size \"90000 B\"",
            "topic camera-left cpu_send \"180 us\"",
            "subscriber /pilot/left cpu_receive \"290 us\"",
            "subscriber /operator/view scaled_size \"11000 B\"",
        ];
        assert_eq!(said, expected);
        let system = Contract::read(&crate::plan::rewrite(&text, &changes).unwrap()).unwrap().system;
        assert_eq!((system.topics[0].size, system.topics[0].cpu_send), (90_000, 180_000));
        assert_eq!(measured(&system, &seen), [], "it is as measured now");
    }
}
