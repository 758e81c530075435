//! Names of types, fields and constants, by the patterns of `rosidl_adapter`.

use crate::codec::schema::MAX_NAME;
use std::fmt;

/// What a definition's file is; the middle part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Service,
    Action,
}

impl Kind {
    fn of(text: &str) -> Option<Self> {
        match text {
            "msg" => Some(Self::Message),
            "srv" => Some(Self::Service),
            "action" => Some(Self::Action),
            _ => None,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Message => "msg",
            Self::Service => "srv",
            Self::Action => "action",
        }
    }
}

/// The parts of `pkg/msg/Type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeName {
    pub(super) package: String,
    pub(super) kind: Kind,
    /// The type's own name, with the suffixes of messages that belong to a service or an action.
    pub(super) short: String,
}

impl TypeName {
    /// Reads `pkg/msg/Type`, `pkg/srv/Type`, `pkg/action/Type`, or `pkg/Type`, which is a message.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (package, second, third) = (parts.next()?, parts.next()?, parts.next());
        if parts.next().is_some() {
            return None;
        }
        let (kind, short) = match third {
            Some(short) => (Kind::of(second)?, short),
            None => (Kind::Message, second),
        };
        let valid = is_lower(package) && is_type(short);
        valid.then(|| Self { package: package.to_owned(), kind, short: short.to_owned() })
    }

    /// `true` for a service or an action as a whole: nobody sends one.
    pub(super) fn is_service(&self) -> bool {
        let last = self.short.split_once('_').map(|(_, suffix)| suffix);
        self.kind != Kind::Message && matches!(last, None | Some("SendGoal" | "GetResult"))
    }

    /// `true` for a part of a service or an action, whose text is that of a message.
    pub(super) fn is_part(&self) -> bool {
        self.short.contains('_')
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.package, self.kind.text(), self.short)
    }
}

/// `true` for names of packages and fields: words of lower-case letters and digits, joined by single underscores.
pub(super) fn is_lower(name: &str) -> bool {
    is_words(name, u8::is_ascii_lowercase)
}

/// `true` for names of constants: as [`is_lower`], but in capitals.
pub(super) fn is_upper(name: &str) -> bool {
    is_words(name, u8::is_ascii_uppercase)
}

fn is_words(name: &str, is_letter: fn(&u8) -> bool) -> bool {
    name.len() <= MAX_NAME
        && name.as_bytes().first().is_some_and(is_letter)
        && !name.ends_with('_')
        && !name.contains("__")
        && name.bytes().all(|byte| is_letter(&byte) || byte.is_ascii_digit() || byte == b'_')
}

/// What `rosidl_parser` appends to the name of a service or an action.
const SUFFIXES: &[&str] =
    &["Request", "Response", "Event", "Goal", "Result", "Feedback", "SendGoal", "GetResult", "FeedbackMessage"];

/// `true` for a type's own name: letters and digits, a capital first, then at most two suffixes.
fn is_type(name: &str) -> bool {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default();
    let suffixes: Vec<&str> = words.take(3).collect();
    name.len() <= MAX_NAME
        && first.starts_with(|letter: char| letter.is_ascii_uppercase())
        && first.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && suffixes.len() <= 2
        && suffixes.iter().all(|suffix| SUFFIXES.contains(suffix))
}
