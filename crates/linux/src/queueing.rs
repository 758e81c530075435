//! What queues on a network device and what that makes of a packet's mark, and queues of our own: installed, read back,
//! and taken away so that what was there before is there again (traffic control over netlink, tc(8)).
//!
//! | module | what it holds |
//! |---|---|
//! | `devices` | network devices and routes |
//! | `discipline`, `class`, `filter` | the parameters of each, to and from the kernel and as `tc` says them |
//! | `tree` | what is on a device |
//! | `placement`, `effect`, `blocking` | where a marked packet lands, whether its mark changes anything, and what it still waits for |
//! | `counted` | where a marked packet really went, by the queues' counters |
//! | `wanted`, `step`, `map` | what queues should be, as steps that the kernel or `tc` can be told, and as `nft` table |
//! | `install`, `journal`, `replay` | all of it or nothing, with what was there before on disk first; and back |
//!
//! All of it is about the network namespace of the calling thread ([`crate::namespace`]).

mod blocking;
mod class;
mod counted;
mod devices;
mod discipline;
mod effect;
mod error;
mod filter;
mod install;
mod journal;
mod map;
mod placement;
mod replay;
mod step;
mod tree;
mod wanted;

pub use blocking::Largest;
pub use class::{Class, Curve, Shares};
pub use counted::{Counted, counted};
pub use devices::{egress, egress_super_packet};
pub use discipline::{DEFAULT_MAP, Discipline};
pub use error::{QueueError, Reason};
pub use filter::{Bits, Filter, Protocol, Question};
pub use install::{Installed, Outcome, Present, Restored, install, installed, recover, restore};
pub use map::{Hook, PriorityMap, TABLE};
pub use placement::Placement;
pub use step::Step;
pub use tree::{Counters, Handle, Node, Queues};
pub use wanted::{MARKS, OURS, OURS_MAPPED, PerClass, Scheduler, Service, Share, Wanted, class_of};

use crate::namespace::Namespace;
use crate::netlink;

/// What queues on `device`. Needs no permission.
///
/// # Errors
/// An unknown device, or what the kernel says.
pub fn read(device: &str) -> Result<Queues, QueueError> {
    Queues::read(device)
}

/// Where a packet with this TOS octet (IPv6: traffic class) lands that a socket of this priority sends by `device`.
/// Needs no permission.
///
/// # Errors
/// An unknown device, or what the kernel says.
pub fn placement(device: &str, tos: u8, socket_priority: u32, v6: bool) -> Result<Placement, QueueError> {
    Ok(Queues::read(device)?.placement(tos, socket_priority, v6))
}

/// The disciplines that Thalweg or its experiments may want.
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

/// Which of [`DISCIPLINES`] this kernel has, tried in a network namespace of its own; modules are loaded as needed.
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

/// Asks for a discipline without parameters on `lo`: what the kernel doesn't have it doesn't find; all else means it has it.
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
