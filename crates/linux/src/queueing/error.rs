//! Errors of reading or changing queues.

use crate::netlink::Refusal;
use std::{fmt, io};

/// The reason why queues could not be read or changed, and the remedy.
#[derive(Debug)]
pub struct QueueError {
    /// The attempted change, in the words of `tc` or `nft`.
    pub what: String,
    /// The obstacle.
    pub reason: Reason,
    /// The remedy.
    pub remedy: String,
}

/// The obstacle.
#[derive(Debug)]
pub enum Reason {
    /// No such device in this network namespace.
    NoDevice(String),
    /// The process lacks this capability.
    MissingCapability(&'static str),
    /// This kernel lacks this discipline, class or filter.
    MissingFeature,
    /// The kernel made another queue than requested, in these words.
    Differs(String),
    /// Anything else.
    Other(io::Error),
}

impl QueueError {
    pub(crate) fn no_device(name: &str) -> Self {
        Self {
            what: format!("queues of {name:?}"),
            reason: Reason::NoDevice(name.to_owned()),
            remedy: "`ip link` lists the devices".to_owned(),
        }
    }

    pub(crate) fn unprivileged(what: &str, capability: &'static str, error: io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::PermissionDenied => Reason::MissingCapability(capability),
            _ => Reason::Other(error),
        };
        Self { what: what.to_owned(), reason, remedy: remedy(capability) }
    }

    /// The error of `nft`.
    pub(crate) fn from_nft(said: &str) -> Self {
        let first = said.lines().next().unwrap_or("it said nothing").to_owned();
        let (reason, remedy) = match () {
            () if first.contains("not permitted") => {
                (Reason::MissingCapability("CAP_NET_ADMIN"), remedy("CAP_NET_ADMIN"))
            }
            () if first.contains("No such file") || first.contains("not supported") => {
                (Reason::MissingFeature, "take a kernel with nf_tables, or leave out the priority map".to_owned())
            }
            () => (Reason::Other(io::Error::other(first)), "`nft list ruleset` may say more".to_owned()),
        };
        Self { what: "nft -f -".to_owned(), reason, remedy }
    }

    /// The meaning of a refusal by the kernel. Unknown kinds get ENOENT, with words that say so.
    pub(crate) fn refused(what: String, refusal: Refusal) -> Self {
        let unknown =
            refusal.errno == libc::ENOENT && (refusal.words.contains("unknown") || refusal.words.contains("not found"));
        let (reason, remedy) = match refusal.errno {
            libc::EPERM | libc::EACCES => (Reason::MissingCapability("CAP_NET_ADMIN"), remedy("CAP_NET_ADMIN")),
            libc::EOPNOTSUPP => (Reason::MissingFeature, LACKS.to_owned()),
            _ if unknown => (Reason::MissingFeature, LACKS.to_owned()),
            _ => (Reason::Other(refusal.into()), "`tc` with the same words may say more".to_owned()),
        };
        Self { what, reason, remedy }
    }
}

const LACKS: &str = "`modprobe` its module (sch_NAME), take a kernel that has it, or another scheduler";

fn remedy(capability: &str) -> String {
    format!("run as root, or `setcap {}+ep` the program", capability.to_ascii_lowercase())
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, reason, remedy } = self;
        match reason {
            Reason::NoDevice(name) => write!(f, "there is no network device {name:?} here; {remedy}"),
            Reason::MissingCapability(capability) => write!(f, "{what}: needs {capability}; {remedy}"),
            Reason::MissingFeature => write!(f, "{what}: this kernel doesn't have it; {remedy}"),
            Reason::Differs(words) => write!(f, "{what}: {words}; {remedy}"),
            Reason::Other(error) => write!(f, "{what}: {error}; {remedy}"),
        }
    }
}

impl std::error::Error for QueueError {}

impl From<io::Error> for QueueError {
    fn from(error: io::Error) -> Self {
        Self {
            what: "asking the kernel about queues".to_owned(),
            reason: Reason::Other(error),
            remedy: "`tc qdisc show` may say more".to_owned(),
        }
    }
}

impl From<QueueError> for io::Error {
    fn from(error: QueueError) -> Self {
        let kind = match &error.reason {
            Reason::NoDevice(_) => io::ErrorKind::NotFound,
            Reason::MissingCapability(_) => io::ErrorKind::PermissionDenied,
            Reason::MissingFeature => io::ErrorKind::Unsupported,
            Reason::Differs(_) => io::ErrorKind::InvalidData,
            Reason::Other(inner) => inner.kind(),
        };
        io::Error::new(kind, error)
    }
}
