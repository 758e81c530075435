//! The ports of a document. Copies of it share their descriptions, of some 800 bytes each: a node has its own document for others and in
//! its directory, copies it for each announcement, and a bridge has those of all nodes once more.

use super::{PortId, PortInfo};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::iter::Map;
use std::sync::Arc;

/// Ports of a node by their number, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ports(BTreeMap<PortId, Arc<PortInfo>>);

impl Ports {
    /// None.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The number of them.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The port of this number.
    pub fn get(&self, id: &PortId) -> Option<&PortInfo> {
        self.0.get(id).map(Arc::as_ref)
    }

    /// The port of this number, to be changed here and in no copy.
    pub fn get_mut(&mut self, id: &PortId) -> Option<&mut PortInfo> {
        self.0.get_mut(id).map(Arc::make_mut)
    }

    /// `true` if there is a port of this number.
    pub fn contains_key(&self, id: &PortId) -> bool {
        self.0.contains_key(id)
    }

    /// All with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&PortId, &PortInfo)> {
        self.0.iter().map(|(id, port)| (id, &**port))
    }

    /// Their numbers.
    pub fn keys(&self) -> impl Iterator<Item = &PortId> {
        self.0.keys()
    }

    /// All without their numbers.
    pub fn values(&self) -> impl Iterator<Item = &PortInfo> {
        self.0.values().map(Arc::as_ref)
    }

    /// All without their numbers; those that a copy has, too, are copied.
    pub fn into_values(self) -> impl Iterator<Item = PortInfo> {
        self.0.into_values().map(Arc::unwrap_or_clone)
    }

    /// Adds a port, or replaces the one of this number.
    pub fn insert(&mut self, id: PortId, port: PortInfo) {
        self.0.insert(id, Arc::new(port));
    }

    /// Removes the port of this number, if it is there.
    pub fn remove(&mut self, id: &PortId) {
        self.0.remove(id);
    }

    /// Removes all ports for which this is not true.
    pub fn retain(&mut self, mut stays: impl FnMut(&PortId, &PortInfo) -> bool) {
        self.0.retain(|id, port| stays(id, port));
    }

    /// Adds those of another document, whose descriptions are shared.
    pub(crate) fn share(&mut self, others: &Ports) {
        self.0.extend(others.0.iter().map(|(id, port)| (*id, port.clone())));
    }
}

impl FromIterator<(PortId, PortInfo)> for Ports {
    fn from_iter<I: IntoIterator<Item = (PortId, PortInfo)>>(ports: I) -> Self {
        Self(ports.into_iter().map(|(id, port)| (id, Arc::new(port))).collect())
    }
}

impl<const N: usize> From<[(PortId, PortInfo); N]> for Ports {
    fn from(ports: [(PortId, PortInfo); N]) -> Self {
        ports.into_iter().collect()
    }
}

type Shared = (PortId, Arc<PortInfo>);
type Owned = (PortId, PortInfo);

/// Ports that a copy has, too, are copied.
impl IntoIterator for Ports {
    type Item = Owned;
    type IntoIter = Map<btree_map::IntoIter<PortId, Arc<PortInfo>>, fn(Shared) -> Owned>;

    fn into_iter(self) -> Self::IntoIter {
        let owned: fn(Shared) -> Owned = |(id, port)| (id, Arc::unwrap_or_clone(port));
        self.0.into_iter().map(owned)
    }
}

/// Reads them in steps: thousands of them take milliseconds.
///
/// Linux gives the processor to a thread that wakes up only if that one has used less than its share: a publisher that has just sent
/// may wait for the next tick, 4 ms at 250 Hz, while a control thread works. A thread that yields gives up its share meanwhile.
impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(InSteps)
    }
}

struct InSteps;

impl<'de> Visitor<'de> for InSteps {
    type Value = Ports;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of ports")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ports, A::Error> {
        let mut ports = Ports::new();
        while let Some((id, port)) = map.next_entry()? {
            ports.insert(id, port);
            if ports.len().is_multiple_of(AT_ONCE) {
                std::thread::yield_now();
            }
        }
        Ok(ports)
    }
}

/// Ports that are read before other threads have their turn: about 50 µs.
const AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::port_info;

    #[test]
    fn copies_share_descriptions_until_one_is_changed() {
        let one = Ports::from([(PortId(1), port_info("/a")), (PortId(2), port_info("/b"))]);
        let mut other = Ports::new();
        other.share(&one);
        let are_shared = |other: &Ports, id| Arc::ptr_eq(&one.0[&PortId(id)], &other.0[&PortId(id)]);
        assert!(other == one && are_shared(&other, 1) && are_shared(&other, 2));
        other.get_mut(&PortId(1)).unwrap().name = "/c".to_owned();
        assert!(other != one && one.get(&PortId(1)).unwrap().name == "/a" && are_shared(&other, 2));
        let read: Ports = serde_json::from_str(&serde_json::to_string(&other).unwrap()).unwrap();
        assert_eq!(read, other);
        assert_eq!(other.into_values().map(|port| port.name).collect::<Vec<_>>(), ["/c", "/b"]);
    }
}
