//! Our ends, and those of others that do not match one of them.

use super::{Graph, Known, Stated};
use crate::engine::Incompatible;
use crate::lock;
use cyclone::Policies;
use qos::{Qos, match_qos};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use thalweg::control::Direction;

#[derive(Default)]
pub(super) struct OwnEnds {
    next: u64,
    ends: BTreeMap<u64, OwnEnd>,
}

struct OwnEnd {
    topic: String,
    type_name: String,
    direction: Direction,
    qos: Qos,
    policies: Policies,
}

/// An end of ours, until this is dropped.
pub(in crate::dds) struct Own {
    ends: Arc<Mutex<OwnEnds>>,
    number: u64,
}

impl Drop for Own {
    fn drop(&mut self) {
        lock(&self.ends).ends.remove(&self.number);
    }
}

impl Graph {
    /// Notes an end of ours.
    pub(in crate::dds) fn enter(
        &self,
        topic: &str,
        type_name: &str,
        direction: Direction,
        qos: &Qos,
        policies: Policies,
    ) -> Own {
        let mut own = lock(&self.own);
        own.next += 1;
        let number = own.next;
        let (topic, type_name) = (topic.to_owned(), type_name.to_owned());
        own.ends.insert(number, OwnEnd { topic, type_name, direction, qos: qos.clone(), policies });
        Own { ends: self.own.clone(), number }
    }

    /// Ends of others that do not match one of ours, each once. Nothing is compared while nobody comes or goes.
    pub(in crate::dds) fn incompatible(&self) -> Vec<Incompatible> {
        let changes = *lock(&self.changes);
        let (others, own, mut told) = (lock(&self.others), lock(&self.own), lock(&self.told));
        if !told.are_due((changes, own.next)) {
            return Vec::new();
        }
        let mut by_topic: HashMap<&str, Vec<&OwnEnd>> = HashMap::new();
        own.ends.values().for_each(|end| by_topic.entry(&end.topic).or_default().push(end));
        let pairs = others.ends.values().flat_map(|other| {
            by_topic.get(&other.endpoint.topic.name[..]).into_iter().flatten().map(move |own| (*own, other))
        });
        told.untold(pairs.flat_map(|(own, other)| between(own, other)).collect())
    }
}

/// What stands between an end of ours and one of another program.
fn between(
    own: &OwnEnd,
    Known { stated: Stated { name: type_name, .. }, policies, endpoint, .. }: &Known,
) -> Vec<Incompatible> {
    if own.direction == endpoint.direction {
        return Vec::new();
    }
    let of = |policy: String, offered: String, requested: String| Incompatible {
        topic: own.topic.clone(),
        policy,
        offered,
        requested,
    };
    let offers = own.direction == Direction::Publisher;
    if own.type_name != *type_name {
        let (offered, requested) = if offers { (&own.type_name, type_name) } else { (type_name, &own.type_name) };
        return vec![of("type".to_owned(), offered.clone(), requested.clone())];
    }
    let (offered, requested) = if offers { (&own.qos, &endpoint.qos) } else { (&endpoint.qos, &own.qos) };
    let mismatches = match_qos(offered, requested).err().unwrap_or_default();
    let mut found: Vec<_> =
        mismatches.into_iter().map(|wrong| of(wrong.policy.to_string(), wrong.offered, wrong.requested)).collect();
    let (writer, reader) = if offers { (&own.policies, policies) } else { (policies, &own.policies) };
    if !reader.reads(writer) {
        let of_cdr = |policies: &Policies| format!("{:?}", policies.representations);
        found.push(of("data representation".to_owned(), of_cdr(writer), of_cdr(reader)));
    }
    found
}
