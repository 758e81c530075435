//! The end of a channel that reports.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The end of a channel that reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The node that publishes, or a relay in its place.
    #[default]
    Publisher,
    /// The node that subscribes.
    Subscriber,
    /// A relay that hosts the stream: only of its stages ([`StagesReport`](super::StagesReport)).
    Relay,
}

impl End {
    /// Its name, in lower case, as it travels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publisher => "publisher",
            Self::Subscriber => "subscriber",
            Self::Relay => "relay",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_travels_as_its_name() {
        for end in [End::Publisher, End::Subscriber, End::Relay] {
            let text = serde_json::to_string(&end).unwrap();
            assert_eq!(text, format!("\"{end}\""));
            assert_eq!(serde_json::from_str::<End>(&text).unwrap(), end);
        }
    }
}
