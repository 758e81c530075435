//! The QoS that a channel's publisher offered: as our recorder writes it, or in the form of rosbag2's `offered_qos_profiles`, a sequence
//! of YAML mappings, of which the first counts, with the numbers of `rmw/types.h` or their names.

use crate::read::{CLASS, Channel, OFFERED_QOS, QOS};
use qos::{Class, Durability, Qos, Queue, Reliability};

/// The QoS of a channel's publisher, as far as the file tells it; the rest is as in `default`.
pub fn as_recorded(channel: &Channel, default: &Qos) -> Qos {
    let value = |key: &str| channel.metadata.get(key).map(String::as_str);
    let own = value(QOS).and_then(|text| serde_json::from_str::<Qos>(text).ok());
    if let Some(own) = own.filter(|own| own.check().is_ok()) {
        return own;
    }
    let class = value(CLASS).and_then(|class| class.parse::<Class>().ok()).unwrap_or(default.class);
    let offered = value(OFFERED_QOS).map(offered).unwrap_or_default();
    offered.within(Qos { class, ..default.clone() })
}

/// The policies that are replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offered {
    /// Its reliability.
    reliability: Option<Reliability>,
    /// Its durability.
    durability: Option<Durability>,
    /// The number of samples that it kept; `None`: not stated, or all.
    depth: Option<u32>,
}

/// Reads the text; what it does not say, or says in another way, stays open.
fn offered(text: &str) -> Offered {
    let mut found = Offered::default();
    let mut keeps_all = false;
    for line in first_profile(text) {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim().trim_matches(['"', '\'']);
        match (key.trim(), value) {
            ("reliability", "1" | "reliable") => found.reliability = Some(Reliability::Reliable),
            ("reliability", "2" | "best_effort") => found.reliability = Some(Reliability::BestEffort),
            ("durability", "1" | "transient_local") => found.durability = Some(Durability::TransientLocal),
            ("durability", "2" | "volatile") => found.durability = Some(Durability::Volatile),
            ("history", "2" | "keep_all") => keeps_all = true,
            ("depth", depth) => found.depth = depth.parse().ok().filter(|depth| (1..=MOST_KEPT).contains(depth)),
            _ => {}
        }
    }
    found.depth = found.depth.filter(|_| !keeps_all);
    found
}

/// The lines of the first mapping, without its mark.
fn first_profile(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !line.trim().is_empty()).enumerate();
    let own = lines.take_while(|(number, line)| *number == 0 || !line.starts_with('-'));
    own.map(|(_, line)| line.trim_start_matches(['-', ' ']))
}

impl Offered {
    /// The same policies in a publisher's QoS; the others stay.
    fn within(self, qos: Qos) -> Qos {
        let mut qos = qos;
        qos.reliability = self.reliability.unwrap_or(qos.reliability);
        qos.durability = self.durability.unwrap_or(qos.durability);
        if let Some(depth) = self.depth {
            (qos.queue, qos.history) = (Queue::KeepLast(depth), depth);
        }
        qos
    }
}

/// More samples are not kept, as a file may state any number.
const MOST_KEPT: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_of_rosbag_are_read() {
        let numbers = "- history: 1\n  depth: 5\n  reliability: 2\n  durability: 1\n  deadline:\n    sec: 9223372036\n    nsec: 854775807\n";
        let names = "- history: keep_last\n  depth: 5\n  reliability: best_effort\n  durability: transient_local\n- reliability: reliable\n";
        let expected = Offered {
            reliability: Some(Reliability::BestEffort),
            durability: Some(Durability::TransientLocal),
            depth: Some(5),
        };
        assert_eq!((offered(numbers), offered(names)), (expected, expected));
        let qos = expected.within(Qos::default());
        assert_eq!((qos.queue, qos.history), (Queue::KeepLast(5), 5));
        assert_eq!(qos.check(), Ok(()));
    }

    #[test]
    fn what_our_recorder_wrote_goes_first() {
        let mut channel = crate::read::tests::channel(1);
        let put = |channel: &mut Channel, key: &str, value: &str| {
            drop(channel.metadata.insert(key.to_owned(), value.to_owned()))
        };
        put(&mut channel, OFFERED_QOS, "- reliability: best_effort");
        put(&mut channel, CLASS, "high");
        let found = as_recorded(&channel, &Qos::default());
        assert_eq!((found.reliability, found.class), (Reliability::BestEffort, Class::High));
        let own = Qos { queue: Queue::KeepAll(7), class: Class::Low, ..Qos::default() };
        put(&mut channel, QOS, &serde_json::to_string(&own).unwrap());
        assert_eq!(as_recorded(&channel, &Qos::default()), own);
        put(&mut channel, QOS, "{\"history\": 0}");
        assert_eq!(as_recorded(&channel, &Qos::default()), found, "what is not allowed is not replayed");
    }

    #[test]
    fn what_is_not_said_stays_open() {
        for text in ["", "- {}", "reliability", "- depth: 4000000000", "- history: 2\n  depth: 7", "\u{0}:::\n-:\n"] {
            assert_eq!(offered(text), Offered::default(), "{text:?}");
        }
        assert_eq!(Offered::default().within(Qos::default()), Qos::default());
    }
}
