//! The name of a party of a realm, as certificates carry it: a URI among the subject's alternative names (RFC 5280 §4.2.1.6).

use std::fmt;
use std::str::FromStr;

/// Longest realm or name, in bytes: that of a label of a host name (RFC 1035 §2.3.4).
pub const LONGEST: usize = 63;

/// The kind of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A node of the data path.
    Node,
    /// A person or a program that asks for plans and sessions.
    User,
    /// The agent of a host or router, by its name in the contract.
    Host,
    /// The broker of a domain.
    Broker,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Node, Self::User, Self::Host, Self::Broker];

    /// The word in identities and file names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::User => "user",
            Self::Host => "host",
            Self::Broker => "broker",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Kind {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        Self::ALL.into_iter().find(|kind| kind.word() == text).ok_or_else(|| Malformed(text.to_owned()))
    }
}

/// A party: `thalweg://REALM/KIND/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    realm: String,
    kind: Kind,
    name: String,
}

/// A text that is no identity, kind or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(
            f,
            "{text:?} is no identity: allowed is thalweg://REALM/KIND/NAME, with node, user, host or broker as KIND, and \
             1 to {LONGEST} letters, digits, '-' and '_' in REALM and NAME, a letter or digit first"
        )
    }
}

impl std::error::Error for Malformed {}

/// `true` if the text can be a realm or a name.
pub fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    first && text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

impl Identity {
    /// The party of this name.
    ///
    /// # Errors
    /// [`Malformed`] names the realm or name that is none.
    pub fn new(realm: &str, kind: Kind, name: &str) -> Result<Self, Malformed> {
        match [realm, name].into_iter().find(|text| !is_name(text)) {
            Some(wrong) => Err(Malformed(wrong.to_owned())),
            None => Ok(Self { realm: realm.to_owned(), kind, name: name.to_owned() }),
        }
    }

    /// The realm.
    pub fn realm(&self) -> &str {
        &self.realm
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `true` if it is the broker of this name.
    pub fn is_broker(&self, name: &str) -> bool {
        self.kind == Kind::Broker && self.name == name
    }

    /// The host name that each broker's certificate has, so that any broker of the realm can be checked, whatever its address.
    /// `.internal` is reserved for private use (ICANN, 2024).
    pub fn any_broker(realm: &str) -> String {
        format!("broker.{}.thalweg.internal", realm.to_ascii_lowercase().replace('_', "-"))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { realm, kind, name } = self;
        write!(f, "thalweg://{realm}/{kind}/{name}")
    }
}

impl FromStr for Identity {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed(text.chars().take(4 * LONGEST).collect());
        let parts: Vec<&str> = text.strip_prefix("thalweg://").ok_or_else(malformed)?.splitn(4, '/').collect();
        let [realm, kind, name] = parts[..] else { return Err(malformed()) };
        Self::new(realm, kind.parse().map_err(|_| malformed())?, name).map_err(|_| malformed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,200}", parts in proptest::collection::vec("[a-z/_-]{0,70}", 0..5)) {
            let made = format!("thalweg://{}", parts.join("/"));
            for text in [text, made] {
                if let Ok(identity) = text.parse::<Identity>() {
                    prop_assert_eq!(identity.to_string(), text);
                }
            }
        }
    }

    #[test]
    fn a_text_is_read_as_it_is_written() {
        for kind in Kind::ALL {
            let identity = Identity::new("robot-1", kind, "arm_2").unwrap();
            assert_eq!(identity.to_string().parse(), Ok(identity));
        }
    }

    #[test]
    fn what_is_no_identity_is_refused() {
        let long = format!("thalweg://r/host/{}", "a".repeat(LONGEST + 1));
        let wrong =
            ["", "thalweg://", "http://r/host/a", "thalweg://r/host", "thalweg://r/host/a/b", "thalweg://r/king/a"];
        let more = ["thalweg:///host/a", "thalweg://r/host/", "thalweg://r/host/-a", "thalweg://r/host/ä", &long];
        for text in wrong.into_iter().chain(more) {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }
}
