//! Errors, sorted by their causer.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error of a recording. Its text names the cause and the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The caller's fault: a value out of range, a file that exists.
    Usage(String),
    /// The file system refused.
    Disk {
        /// The file.
        file: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A node or port could not be opened.
    Node(thalweg::Error),
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The refusal of the file system for this file. A file that exists is the caller's choice.
    pub(crate) fn disk(file: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::AlreadyExists {
            return Error::Usage(format!(
                "{} exists, and a recording overwrites nothing: name another file",
                file.display()
            ));
        }
        Error::Disk { file: file.to_owned(), source }
    }
}

impl From<thalweg::Error> for Error {
    fn from(error: thalweg::Error) -> Self {
        Error::Node(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) => f.write_str(text),
            Error::Disk { file, source } => {
                let remedy = match source.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        "free space, or record to another disk"
                    }
                    io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound => {
                        "name a file in a folder that exists and that you may write to"
                    }
                    _ => "record to another disk",
                };
                write!(f, "cannot write {}: {source}; {remedy}", file.display())
            }
            Error::Node(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Disk { source, .. } => Some(source),
            Error::Node(error) => Some(error),
            Error::Usage(_) => None,
        }
    }
}
