//! For tests of this crate and of others: conformance suites, and parts to build worlds from.

use crate::codec::TypeDescription;
use crate::control::{Direction, PortInfo};

/// A reliable publisher of bytes on `/topic`, with this name.
pub fn port_info(name: &str) -> PortInfo {
    PortInfo {
        name: name.to_owned(),
        direction: Direction::Publisher,
        topic: "/topic".to_owned(),
        message: TypeDescription::opaque("bytes"),
        qos: qos::Qos::default(),
        carriers: vec!["tcp".to_owned()],
    }
}
