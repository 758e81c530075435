//! The reason of a refusal, and the subscriber's reaction to it.

use crate::control::matching::Subject;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The reason of a refusal. It travels as text; the text of a newer version is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Reason {
    /// The two speak different versions.
    Version,
    /// The two are of different realms.
    Realm,
    /// The address has a new owner.
    Node,
    /// The port is not open.
    Port,
    /// The port publishes another topic.
    Topic,
    /// The two ports do not fit, or the carrier cannot be used.
    Mismatch(Subject),
    /// The port has as many channels as it may have to this peer.
    Channels,
    /// The relay takes no more proxies, or has no source.
    Relay,
    /// No proxy scales this type.
    Picture,
    /// The operating system refused a resource of the channel.
    System,
    /// The answers have a channel already, on the connection of their questions.
    Answers,
    /// A question excepts more publishers than it may.
    Except,
    /// The name of a limit ([`Refusal::limit`](crate::control::limits::Refusal::limit)), or the reason of a newer version.
    Other(String),
}

/// The reaction of a subscriber to a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// The ports fit: it tries the next way, or the same one later.
    AnotherWay,
    /// Another node is at that address: it tries the next way while the directory knows the port, else it forgets the pair.
    AnotherAddress,
    /// The publisher is gone: it forgets the pair.
    Forget,
    /// The ports do not match: it reports this, and waits until one of them changes.
    WaitForChange,
}

impl Reason {
    const NAMED: [Self; 11] = [
        Self::Version,
        Self::Realm,
        Self::Node,
        Self::Port,
        Self::Topic,
        Self::Channels,
        Self::Relay,
        Self::Picture,
        Self::System,
        Self::Answers,
        Self::Except,
    ];

    /// The text by which it travels.
    pub fn name(&self) -> &str {
        match self {
            Self::Version => "version",
            Self::Realm => "realm",
            Self::Node => "node",
            Self::Port => "port",
            Self::Topic => "topic",
            Self::Mismatch(subject) => subject.name(),
            Self::Channels => "channels",
            Self::Relay => "relay",
            Self::Picture => "picture",
            Self::System => "system",
            Self::Answers => "answers",
            Self::Except => "except",
            Self::Other(text) => text,
        }
    }

    /// The subscriber's reaction.
    pub const fn reaction(&self) -> Reaction {
        match self {
            Self::Mismatch(Subject::Carrier) | Self::System | Self::Answers | Self::Relay | Self::Channels => {
                Reaction::AnotherWay
            }
            Self::Node | Self::Realm => Reaction::AnotherAddress,
            Self::Port => Reaction::Forget,
            Self::Version | Self::Topic | Self::Mismatch(_) | Self::Picture | Self::Except | Self::Other(_) => {
                Reaction::WaitForChange
            }
        }
    }
}

impl From<Subject> for Reason {
    fn from(subject: Subject) -> Self {
        Self::Mismatch(subject)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        let named = Self::NAMED.into_iter().find(|reason| reason.name() == text);
        named.or_else(|| Subject::find(&text).map(Self::Mismatch)).unwrap_or(Self::Other(text))
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Other(text) => text,
            named => named.name().to_owned(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Reason {
        serde_json::from_value(text.into()).unwrap()
    }

    #[test]
    fn every_reason_travels_as_its_name() {
        let named = Reason::NAMED.into_iter().chain(Subject::all().map(Reason::Mismatch));
        for reason in named.chain([Reason::Other("names".into())]) {
            let text = serde_json::to_value(&reason).unwrap();
            assert_eq!(text, reason.to_string());
            assert_eq!(read(reason.name()), reason);
        }
    }

    /// The texts that versions before this type wrote and compared.
    #[test]
    fn the_reaction_to_a_text_is_what_it_was() {
        let of = |reaction, texts: &[&str]| texts.iter().for_each(|text| assert_eq!(read(text).reaction(), reaction));
        of(Reaction::AnotherWay, &["carrier", "system", "answers", "relay", "channels"]);
        of(Reaction::AnotherAddress, &["node", "realm"]);
        of(Reaction::Forget, &["port"]);
        let others = ["type", "qos", "reliability", "key", "filter", "version", "topic", "picture", "except"];
        of(Reaction::WaitForChange, &others);
        of(Reaction::WaitForChange, &["names", "length of a name", "", "Carrier", "carrier "]);
    }

    proptest! {
        #[test]
        fn any_text_survives(text in ".{0,40}") {
            prop_assert_eq!(String::from(read(&text)), text);
        }
    }
}
