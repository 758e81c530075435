//! Errors of the laboratory, by whose fault they are.

use std::{fmt, io};

/// The result of the lab's calls.
pub type Result<T = ()> = std::result::Result<T, Error>;

/// An error. Its text names the remedy.
#[derive(Debug)]
pub enum Error {
    /// A name or value that is not allowed.
    Usage(String),
    /// The system refused: no root, no iproute2, a missing kernel feature.
    System(String),
    /// A part of the experiment failed, or did not answer.
    Failed(String),
    /// The run was asked to stop.
    Stopped,
}

impl Error {
    /// Exit code of a process that ends with it: 2 bad usage, 3 the system refused, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::System(_) => 3,
            Error::Failed(_) | Error::Stopped => 1,
        }
    }

    /// An error of the system, with the attempt and the remedy.
    pub fn system(what: &str, source: &io::Error, remedy: &str) -> Self {
        Error::System(format!("{what}: {source}; {remedy}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) | Error::System(text) | Error::Failed(text) => f.write_str(text),
            Error::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::System(error.to_string())
    }
}

impl From<thalweg::Error> for Error {
    fn from(error: thalweg::Error) -> Self {
        let text = error.to_string();
        match error.exit_code() {
            2 => Error::Usage(text),
            3 => Error::System(text),
            _ => Error::Failed(text),
        }
    }
}
