//! Errors, sorted by their causer. Each text shows the value, the limit and the remedy.

use std::fmt;
use std::io;

/// An error of the library. Its text names the cause and the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The caller's fault: a bad name, a value out of range, a closed port.
    Usage(String),
    /// A configuration file or environment variable is wrong: names file, line, key, value and the allowed values.
    Configuration(String),
    /// The kernel refused: permission, missing feature, resource in use. Names the remedy.
    System {
        /// The attempted operation, with its value.
        what: String,
        /// The kernel's error.
        source: io::Error,
        /// The remedy.
        remedy: String,
    },
    /// A kernel refused a request for a channel or thread, here or at another node. Names the remedy.
    Refused(String),
    /// The peer or the network: not reachable, refused, spoke nonsense.
    Peer(String),
    /// The name is taken by another port.
    NameTaken {
        /// The name.
        name: String,
        /// Node and process that hold it.
        holder: String,
    },
    /// The session that a port was to join is not active, or has no such topic.
    NotAdmitted {
        /// The session.
        session: String,
        /// The reason.
        because: String,
        /// Changes of the session with which it would have been admitted, when it was last asked for.
        offers: Vec<String>,
    },
    /// A message cannot be encoded or is larger than the port's `max_message`.
    Message(String),
    /// The node or port was closed.
    Closed,
}

/// The result of Thalweg's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn system(what: impl Into<String>, source: io::Error) -> Self {
        let remedy = remedy(&source).to_owned();
        Error::System { what: what.into(), source, remedy }
    }

    pub(crate) fn scheduling(refused: linux::sched::SchedError) -> Self {
        let (what, remedy) = (refused.what.clone(), refused.remedy.clone());
        Error::System { what, source: io::Error::other(refused.reason.to_string()), remedy }
    }

    /// The exit code of the command line: 2 for bad usage or input, 3 when the system refused, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) | Error::Configuration(_) | Error::Message(_) => 2,
            Error::System { .. } | Error::Refused(_) => 3,
            _ => 1,
        }
    }
}

pub(crate) fn remedy(source: &io::Error) -> &'static str {
    if source.raw_os_error() == Some(1) {
        return "the kernel does not permit it to this user: run it as root, or allow it (a container's seccomp profile may forbid it)";
    }
    match source.kind() {
        io::ErrorKind::AddrInUse => "choose another port, or 0 for any free one",
        io::ErrorKind::AddrNotAvailable => "listen on an address that this host has (`ip address`)",
        io::ErrorKind::PermissionDenied => {
            "use a directory and a port this user may use (THALWEG_RUN_DIR; ports from 1024 up)"
        }
        io::ErrorKind::NotFound => "check that the path exists",
        io::ErrorKind::OutOfMemory => "lower max_message or the queue limits",
        _ => match source.raw_os_error() {
            Some(24) => "raise the limit of open files (`ulimit -n`)",
            Some(19) => "the interface has no multicast: choose another address, or a carrier other than mcast",
            Some(22) => "the kernel takes no such value: choose another, `thalweg doctor` says what this kernel can do",
            Some(105) => "the kernel has no room for it: raise net.core.wmem_max, or send less at once",
            _ => "`thalweg doctor` says what this host lacks",
        },
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(text)
            | Error::Usage(text)
            | Error::Configuration(text)
            | Error::Peer(text)
            | Error::Message(text) => f.write_str(text),
            Error::System { what, source, remedy } => write!(f, "{what}: {source}; {remedy}"),
            Error::NameTaken { name, holder } => {
                write!(f, "the port name {name} is taken by {holder}; choose another with --port or `named`")
            }
            Error::NotAdmitted { session, because, offers } if offers.is_empty() => {
                write!(f, "session {session}: {because}")
            }
            Error::NotAdmitted { session, because, offers } => {
                write!(f, "session {session}: {because}; any one of these would make it fit: {}", offers.join("; "))
            }
            Error::Closed => f.write_str("the node or port is closed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
