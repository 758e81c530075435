//! Queues of a network device, their treatment of a packet's mark, and queues of our own: installed, read back, and
//! removed so that the former ones are restored (traffic control over netlink, tc(8)).
//!
//! | module | contents |
//! |---|---|
//! | `devices` | network devices and routes |
//! | `discipline`, `class`, `filter` | the parameters of each, to and from the kernel and in `tc`'s notation |
//! | `tree` | the queues on a device |
//! | `placement`, `effect`, `blocking` | the place of a marked packet, the effect of its mark, and the packets that it still waits for |
//! | `counted` | the real place of a marked packet, by the queues' counters |
//! | `wanted`, `step`, `map` | wanted queues, as steps for the kernel or `tc`, and as `nft` table |
//! | `install`, `journal`, `replay` | complete installation or none, with the former queues on disk first; and restoring them |
//!
//! All of it concerns the network namespace of the calling thread ([`crate::namespace`]).

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
