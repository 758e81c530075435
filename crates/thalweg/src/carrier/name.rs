//! The name of a carrier: one of the built-in ones, or one that was added to a node.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

/// A carrier, as users, administrators and the wire name it: by its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// Within one process.
    Local,
    /// Shared memory.
    Shm,
    /// A TCP stream per channel.
    Tcp,
    /// UDP datagrams per channel.
    Udp,
    /// UDP multicast, one group per publisher.
    Mcast,
    /// One that was added to the node ([`Settings::carriers`](crate::Settings::carriers)).
    Other(Added),
}

/// The text of a name that is not built in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Added(Arc<str>);

impl Name {
    /// The carriers of this build.
    pub const BUILT_IN: [Self; 5] = [Self::Local, Self::Shm, Self::Tcp, Self::Udp, Self::Mcast];

    /// The carriers that are tried if none is named, best first: within a process, on one host, for lossy channels, for all others.
    pub const AUTO: [Self; 4] = [Self::Local, Self::Shm, Self::Udp, Self::Tcp];

    /// Names of the carriers of this build, for messages.
    pub(crate) fn listed() -> String {
        Self::BUILT_IN.each_ref().map(Self::as_str).join(", ")
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(Added(text)) => text,
            built_in => built_in.described().0,
        }
    }

    /// Text and use of each built-in carrier, for people.
    pub fn descriptions() -> impl Iterator<Item = (&'static str, &'static str)> {
        Self::BUILT_IN.into_iter().map(|name| name.described())
    }

    fn described(&self) -> (&'static str, &'static str) {
        match self {
            Self::Local => ("local", "within one process: samples are passed on, not copied"),
            Self::Shm => ("shm", "on one host: samples lie in shared memory"),
            Self::Tcp => ("tcp", "anywhere, reliable: a stream per channel"),
            Self::Udp => ("udp", "anywhere, samples may be lost: datagrams per channel"),
            Self::Mcast => ("mcast", "one network, samples may be lost: one send for all subscribers"),
            Self::Other(_) => ("", ""),
        }
    }

    /// `true` for one of this build.
    pub fn is_built_in(&self) -> bool {
        !matches!(self, Self::Other(_))
    }

    /// `true` if its samples pass no socket: both ends are on one host.
    pub fn is_within_host(&self) -> bool {
        matches!(self, Self::Local | Self::Shm)
    }

    /// `true` if its samples may be lost on their way, unless they are retransmitted.
    pub fn is_lossy(&self) -> bool {
        matches!(self, Self::Udp | Self::Mcast)
    }
}

/// No carrier: the empty text.
impl Default for Name {
    fn default() -> Self {
        "".into()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        let built_in = Self::BUILT_IN.into_iter().find(|name| name.as_str() == text);
        built_in.unwrap_or_else(|| Self::Other(Added(text.into())))
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for Name {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, text: &str) -> bool {
        self.as_str() == text
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == *text
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer).map(|text| text.as_ref().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_that_opens_its_halves_has_a_built_in_name() {
        for carrier in crate::carrier::built_in() {
            assert!(Name::from(carrier.name()).is_built_in(), "{} is not in Name::BUILT_IN", carrier.name());
        }
    }

    #[test]
    fn names_read_and_write_their_text() {
        for (text, built_in) in [("local", true), ("shm", true), ("tcp", true), ("mcast", true), ("TCP", false)] {
            let name: Name = serde_json::from_str(&format!("\"{text}\"")).unwrap();
            assert_eq!((name.is_built_in(), name.as_str(), name.to_string()), (built_in, text, text.to_owned()));
            assert_eq!(serde_json::to_string(&name).unwrap(), format!("\"{text}\""));
        }
    }
}
