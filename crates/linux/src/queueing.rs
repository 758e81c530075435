//! Queues of a network device, their treatment of a packet's mark, and queues of our own: installed, read back, and
//! removed so that the former ones are restored (traffic control over netlink, tc(8)).
//!
//! | module | contents |
//! |---|---|
//! | `devices` | network devices and routes |
//! | `discipline`, `filter` | the parameters of disciplines, classes and filters, to and from the kernel and in `tc`'s notation |
//! | `tree` | the queues on a device |
//! | `placement` | the place of a marked packet, the effect of its mark, and the packets that it still waits for |
//! | `carried` | the counters of our queues, by class |
//! | `counted` | the real place of a marked packet, by the queues' counters |
//! | `boundary`, `police` | packets that come in without a known flow, kept out of reserved classes; and what known ones send beyond their limit |
//! | `wanted`, `map` | wanted queues, as steps for the kernel or `tc`, and as `nft` table |
//! | `nft` | the program |
//! | `leaf` | a queue and rate of one flow, or of the sockets that name it |
//! | `install`, `journal` | complete installation or none, with the former queues on disk first; and restoring them |
//! | `adjust` | changing installed queues in place |
//!
//! All of it concerns the network namespace of the calling thread ([`crate::namespace`]).

mod adjust;
mod boundary;
mod carried;
mod counted;
mod devices;
mod discipline;
mod filter;
mod install;
mod journal;
mod leaf;
mod map;
pub(crate) mod nft;
mod placement;
mod police;
mod tree;
mod wanted;

pub use adjust::{Adjusted, Way, adjust, adjust_with};
pub use boundary::{Boundary, KeptOut, Pair, kept_out};
pub use carried::{Backlog, Carried, backlog};
pub use counted::{Counted, counted};
pub use devices::{Largest, agreed_rate, carrier, egress, egress_super_packet, exists};
pub use discipline::{Class, Curve, DEFAULT_MAP, Discipline, Shares};
pub use filter::{Bits, Filter, Protocol, Question};
pub use install::{Installed, Outcome, Present, Restored, install, installed, recover, restore};
pub use leaf::{Flow, Leaf, MOST_LEAVES, Transport, Whose};
pub use map::{Hook, PriorityMap, TABLE};
pub use placement::Placement;
pub use police::{Exceeded, Limit, exceeded};
pub use tree::{Counters, Handle, Node, Queues};
pub use wanted::{
    LONGEST, MARKS, MOST_SEGMENTS, OURS, OURS_MAPPED, PerClass, SLOWEST, Scheduler, Service, Share, Step, Wanted,
    class_of, commands, traffic_class,
};

use crate::namespace::Namespace;
use crate::netlink::{self, Refusal};
use std::{fmt, io};

/// The queues on `device`. Needs no permission.
///
/// # Errors
/// An unknown device, or the kernel's error.
pub fn read(device: &str) -> Result<Queues, QueueError> {
    Queues::read(device)
}

/// The place of a packet with this TOS octet (IPv6: traffic class) that a socket of this priority sends by `device`.
/// Needs no permission.
///
/// # Errors
/// An unknown device, or the kernel's error.
pub fn placement(device: &str, tos: u8, socket_priority: u32, v6: bool) -> Result<Placement, QueueError> {
    Ok(Queues::read(device)?.placement(tos, socket_priority, v6))
}

/// Disciplines that Thalweg or its experiments may use.
pub const DISCIPLINES: [&str; 17] = [
    "pfifo",
    "bfifo",
    "pfifo_fast",
    "prio",
    "tbf",
    "htb",
    "hfsc",
    "netem",
    "fq",
    "fq_codel",
    "ets",
    "sfq",
    "mqprio",
    "taprio",
    "etf",
    "cbs",
    "red",
];

/// The [`DISCIPLINES`] of this kernel, tried in a network namespace of its own; modules are loaded as needed.
///
/// # Errors
/// Without CAP_SYS_ADMIN and CAP_NET_ADMIN.
pub fn probe() -> Result<Vec<(&'static str, bool)>, QueueError> {
    let namespace = Namespace::new().map_err(|e| QueueError::unprivileged("trying disciplines", "CAP_SYS_ADMIN", e))?;
    namespace.run(|| {
        let mut socket = netlink::Socket::open()?;
        DISCIPLINES.iter().map(|name| Ok((*name, has(&mut socket, name)?))).collect()
    })?
}

/// Requests a discipline without parameters on `lo`. "Not found" means that the kernel lacks it; any other answer
/// that it has it.
fn has(socket: &mut netlink::Socket, name: &str) -> Result<bool, QueueError> {
    const LO: u32 = 1;
    let mut request = vec![0; 4];
    request.extend(netlink::words([LO, 0x0001_0000, Handle::ROOT.0, 0]));
    netlink::put(&mut request, 1, &[name.as_bytes(), &[0]].concat());
    match socket.ask(tree::DISCIPLINE, netlink::CREATE, &request)? {
        Ok(_) => {
            let _ = socket.ask(tree::DISCIPLINE + 1, 0, &request)?;
            Ok(true)
        }
        Err(refusal) if refusal.errno == libc::EPERM => {
            Err(QueueError::refused("trying disciplines".to_owned(), refusal))
        }
        Err(refusal) => Ok(refusal.errno != libc::ENOENT),
    }
}

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
