//! Ends of ours beside those of other programs, for engines that tell of them.

use super::Incompatible;
use qos::{Qos, match_qos};
use std::collections::HashMap;
use thalweg::control::Direction;

/// An end of a topic, as it is compared.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) direction: Direction,
    /// The name of the type, as its program states it.
    pub(crate) type_name: &'a str,
    pub(crate) qos: &'a Qos,
}

/// What stands between an end of ours and one of another program: the type if it is another one, else each policy that does not match; nothing
/// between two of one direction.
pub(crate) fn between(topic: &str, own: Side<'_>, other: Side<'_>) -> Vec<Incompatible> {
    if own.direction == other.direction {
        return Vec::new();
    }
    let of = |policy: String, offered: String, requested: String| Incompatible {
        topic: topic.to_owned(),
        policy,
        offered,
        requested,
    };
    let (writer, reader) = if own.direction == Direction::Publisher { (own, other) } else { (other, own) };
    if writer.type_name != reader.type_name {
        return vec![of("type".to_owned(), writer.type_name.to_owned(), reader.type_name.to_owned())];
    }
    let mismatches = match_qos(writer.qos, reader.qos).err().unwrap_or_default();
    mismatches.into_iter().map(|wrong| of(wrong.policy.to_string(), wrong.offered, wrong.requested)).collect()
}

/// What stands between all ends of ours and all of others of the same topic, each end given with its topic.
pub(crate) fn compared<'a, O: 'a, T: 'a>(
    own: impl Iterator<Item = (&'a str, &'a O)>,
    others: impl Iterator<Item = (&'a str, &'a T)>,
    between: impl Fn(&O, &T) -> Vec<Incompatible>,
) -> Vec<Incompatible> {
    let mut by_topic: HashMap<&str, Vec<&O>> = HashMap::new();
    own.for_each(|(topic, end)| by_topic.entry(topic).or_default().push(end));
    let mut found = Vec::new();
    for (topic, other) in others {
        by_topic.get(topic).into_iter().flatten().for_each(|own| found.extend(between(own, other)));
    }
    found
}
