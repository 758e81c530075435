//! Our ends, and those of others that do not match one of them.

use super::{Graph, Known, Stated};
use crate::engine::Incompatible;
use crate::engine::ends::{self, Side};
use crate::lock;
use cyclone::Policies;
use qos::Qos;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use thalweg::control::Direction;

#[derive(Default)]
pub(super) struct OwnEnds {
    next: u64,
    ends: BTreeMap<u64, OwnEnd>,
}

struct OwnEnd {
    topic: String,
    stated: Stated,
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
        stated: &Stated,
        direction: Direction,
        qos: &Qos,
        policies: Policies,
    ) -> Own {
        let mut own = lock(&self.own);
        own.next += 1;
        let number = own.next;
        let (topic, stated, qos) = (topic.to_owned(), stated.clone(), qos.clone());
        own.ends.insert(number, OwnEnd { topic, stated, direction, qos, policies });
        Own { ends: self.own.clone(), number }
    }

    /// Ends of others that do not match one of ours, each once. Nothing is compared while nobody comes or goes.
    pub(in crate::dds) fn incompatible(&self) -> Vec<Incompatible> {
        let changes = *lock(&self.changes);
        let (others, own, mut told) = (lock(&self.others), lock(&self.own), lock(&self.told));
        if !told.are_due((changes, own.next)) {
            return Vec::new();
        }
        let ours = own.ends.values().map(|end| (end.topic.as_str(), end));
        let theirs = others.ends.values().map(|other| (other.endpoint.topic.name.as_str(), other));
        told.untold(ends::compared(ours, theirs, between))
    }
}

/// What stands between an end of ours and one of another program.
fn between(own: &OwnEnd, Known { stated, policies, endpoint, .. }: &Known) -> Vec<Incompatible> {
    // DDS has the members of a key in the order of the type: only whether there is one is compared, below.
    let [own_qos, qos] = [&own.qos, &endpoint.qos].map(|qos| Qos { key: Vec::new(), ..qos.clone() });
    let ours = Side { direction: own.direction, type_name: &own.stated.name, qos: &own_qos };
    let theirs = Side { direction: endpoint.direction, type_name: &stated.name, qos: &qos };
    let mut found = ends::between(&own.topic, ours, theirs);
    if ours.direction == theirs.direction || ours.type_name != theirs.type_name {
        return found;
    }
    let offers = own.direction == Direction::Publisher;
    if own.stated.keyed != stated.keyed {
        let (ours, theirs) = (own.stated.keyed, stated.keyed);
        let (offered, requested) = if offers { (ours, theirs) } else { (theirs, ours) };
        let text = |keyed: bool| (if keyed { "some" } else { "none" }).to_owned();
        found.push(Incompatible {
            topic: own.topic.clone(),
            policy: "key".to_owned(),
            offered: text(offered),
            requested: text(requested),
        });
    }
    let (writer, reader) = if offers { (&own.policies, policies) } else { (policies, &own.policies) };
    if !reader.reads(writer) {
        let of_cdr = |policies: &Policies| format!("{:?}", policies.representations);
        found.push(Incompatible {
            topic: own.topic.clone(),
            policy: "data representation".to_owned(),
            offered: of_cdr(writer),
            requested: of_cdr(reader),
        });
    }
    found
}
