//! Errors of a measurement, by their causer.

use std::fmt;
use std::io;

/// An error with its exit code.
#[derive(Debug)]
pub(crate) enum Error {
    /// The arguments are impossible or unknown: exit code 2.
    Usage(String),
    /// The other process did not come, left early or failed: exit code 1.
    Peer(String),
    /// The system refused: exit code 3.
    System(String),
}

impl Error {
    /// The exit code of the process.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Error::Peer(_) => 1,
            Error::Usage(_) => 2,
            Error::System(_) => 3,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) | Error::Peer(text) | Error::System(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, InvalidInput, TimedOut, UnexpectedEof};
        let text = error.to_string();
        match error.kind() {
            InvalidInput => Error::Usage(text),
            BrokenPipe | ConnectionRefused | ConnectionReset | TimedOut | UnexpectedEof => Error::Peer(text),
            _ => Error::System(text),
        }
    }
}

impl From<thalweg::Error> for Error {
    fn from(error: thalweg::Error) -> Self {
        let text = error.to_string();
        match error.exit_code() {
            2 => Error::Usage(text),
            3 => Error::System(text),
            _ => Error::Peer(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_says_whose_fault_it_is() {
        let code = |kind| Error::from(io::Error::new(kind, "x")).code();
        assert_eq!(code(io::ErrorKind::UnexpectedEof), 1);
        assert_eq!(code(io::ErrorKind::InvalidInput), 2);
        assert_eq!(code(io::ErrorKind::PermissionDenied), 3);
    }
}
