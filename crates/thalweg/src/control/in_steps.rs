//! Reading a document of thousands of ports, which takes milliseconds, in steps.
//!
//! Linux gives the processor to a thread that wakes up only if that one has used less than its share: a publisher that has just sent
//! may wait for the next tick, 4 ms at 250 Hz, while a control thread works. A thread that yields gives up its share meanwhile.

use super::{PortId, PortInfo};
use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Ports that are read before other threads have their turn: about 50 µs.
const AT_ONCE: usize = 16;

/// Reads a map of ports.
pub(super) fn ports<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<PortId, PortInfo>, D::Error> {
    from.deserialize_map(Ports)
}

struct Ports;

impl<'de> Visitor<'de> for Ports {
    type Value = BTreeMap<PortId, PortInfo>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of ports")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut ports = BTreeMap::new();
        while let Some((id, port)) = map.next_entry()? {
            ports.insert(id, port);
            if ports.len() % AT_ONCE == 0 {
                std::thread::yield_now();
            }
        }
        Ok(ports)
    }
}
