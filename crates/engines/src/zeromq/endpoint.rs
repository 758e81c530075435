//! Endpoints of ZeroMQ, and those of each class beside them.

use crate::engine::{Error, Result};
use qos::Class;

/// Where publishers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Tcp {
        /// A host as libzmq has it: an address, a name, an interface, or `*`.
        host: String,
        port: u16,
    },
    /// The path of a unix socket.
    Ipc(String),
}

impl Endpoint {
    /// `10.0.0.1:5556`, `tcp/10.0.0.1:5556`, `tcp://10.0.0.1:5556` or `ipc:///run/robot`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::Usage(format!(
                "{text:?} is no endpoint of ZeroMQ: HOST:PORT, with a port from 1 to {HIGHEST}, tcp://HOST:PORT or ipc://PATH is expected"
            ))
        };
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
        if let Some(path) = text.strip_prefix("ipc://") {
            return Some(Endpoint::Ipc(path.to_owned())).filter(|_| plain && !path.is_empty()).ok_or_else(wrong);
        }
        let address = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("tcp/")).unwrap_or(text);
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| (1..=HIGHEST).contains(port)).ok_or_else(wrong)?;
        if !plain || host.is_empty() || host.contains('/') {
            return Err(wrong());
        }
        Ok(Endpoint::Tcp { host: host.to_owned(), port })
    }

    /// The endpoint for samples of a class.
    pub(super) fn of(&self, class: Class) -> String {
        match self {
            Endpoint::Tcp { host, port } => format!("tcp://{host}:{}", port + offset(class)),
            Endpoint::Ipc(path) if class == Class::Normal => format!("ipc://{path}"),
            Endpoint::Ipc(path) => format!("ipc://{path}.{class}"),
        }
    }

    /// `true` for an address of IPv6.
    pub(super) fn is_ipv6(&self) -> bool {
        matches!(self, Endpoint::Tcp { host, .. } if host.starts_with('['))
    }
}

/// The highest port: the three after it are those of the other classes.
const HIGHEST: u16 = u16::MAX - 3;

fn offset(class: Class) -> u16 {
    match class {
        Class::Normal => 0,
        Class::Low => 1,
        Class::High => 2,
        Class::Critical => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_an_endpoint_beside_the_stated_one() {
        let of = |text: &str| Class::ALL.map(|class| Endpoint::parse(text).unwrap().of(class));
        let ports = [5557, 5556, 5558, 5559].map(|port| format!("tcp://10.0.0.1:{port}"));
        for text in ["10.0.0.1:5556", "tcp/10.0.0.1:5556", "tcp://10.0.0.1:5556"] {
            assert_eq!(of(text), ports);
        }
        assert_eq!(of("ipc:///run/a")[..2], ["ipc:///run/a.low", "ipc:///run/a"]);
        assert_eq!(of("tcp://*:65532")[3], "tcp://*:65535");
        assert!(Endpoint::parse("[::1]:5556").unwrap().is_ipv6());
    }

    #[test]
    fn what_is_no_endpoint_is_named() {
        for text in
            ["", "a", "a:", ":1", "a:0", "a:*", "a:65533", "udp://a:1", "inproc://a", "ipc://", "a b:1", "x;a:1"]
        {
            let Err(Error::Usage(why)) = Endpoint::parse(text) else { panic!("{text}") };
            assert!(why.starts_with(&format!("{text:?} is no endpoint")), "{why}");
        }
    }
}
