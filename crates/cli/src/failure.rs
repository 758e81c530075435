//! Failures of a verb, by exit code.

use std::io;
use thalweg::admin::set::Unset;

/// The result of a verb.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// A failure with its exit code (0 did it · 1 no · 2 bad usage or input · 3 the system refused · 4 the machine was too noisy to tell).
#[derive(Debug)]
pub(crate) enum Failure {
    /// A check failed, or the answer is "no": exit 1. If the text is empty, it was printed already.
    No(String),
    /// Bad arguments or input: exit 2.
    Usage(String),
    /// The system refused: exit 3.
    System(String),
    /// The machine was too noisy to tell: exit 4.
    Inconclusive(String),
    /// Standard output was closed by its reader: exit 0, without a message.
    ReaderGone,
}

impl Failure {
    /// The exit code of the process.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::ReaderGone => 0,
            Failure::No(_) => 1,
            Failure::Usage(_) => 2,
            Failure::System(_) => 3,
            Failure::Inconclusive(_) => 4,
        }
    }

    /// That of the library's errors with this exit code.
    fn with_code(code: u8, text: String) -> Self {
        match code {
            2 => Failure::Usage(text),
            3 => Failure::System(text),
            _ => Failure::No(text),
        }
    }

    /// Adds the place of the failure.
    #[cfg(feature = "recording")]
    pub(crate) fn at(self, place: &str) -> Self {
        let said = |text: String| format!("{place}: {text}");
        match self {
            Failure::No(text) => Failure::No(said(text)),
            Failure::Usage(text) => Failure::Usage(said(text)),
            Failure::System(text) => Failure::System(said(text)),
            Failure::Inconclusive(text) => Failure::Inconclusive(said(text)),
            Failure::ReaderGone => Failure::ReaderGone,
        }
    }

    /// The text for people.
    pub(crate) fn text(&self) -> &str {
        match self {
            Failure::ReaderGone => "",
            Failure::No(text) | Failure::Usage(text) | Failure::System(text) | Failure::Inconclusive(text) => text,
        }
    }
}

impl From<thalweg::Error> for Failure {
    fn from(error: thalweg::Error) -> Self {
        Self::with_code(error.exit_code(), error.to_string())
    }
}

impl From<Unset> for Failure {
    fn from(unset: Unset) -> Self {
        let code = match &unset {
            Unset::Refused { because, .. } | Unset::Failed(because) => because.exit_code(),
            Unset::Unknown(_) | Unset::Direction(..) => 1,
        };
        Self::with_code(code, unset.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::System(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_says_whose_fault_it_is() {
        let code = |error: thalweg::Error| Failure::from(error).code();
        assert_eq!(code(thalweg::Error::Closed), 1);
        assert_eq!(code(thalweg::Error::Usage("x".into())), 2);
        assert_eq!(code(thalweg::Error::Configuration("x".into())), 2);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).code(), 0);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::PermissionDenied)).code(), 3);
    }
}
