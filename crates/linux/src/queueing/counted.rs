//! Marked packets that are sent as a proof: the queues' counters show their real place.

use super::placement::Placement;
use super::tree::{Counters, Queues};
use super::{QueueError, read};
use crate::{marks, net, socket};
use qos::priority::Mark;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;

/// The place where a packet was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The expected place.
    AsPlaced,
    /// Another place, such as `class 7a2:40`.
    Elsewhere(String),
    /// No place: there are no counters per class, or no packet of this kind can be sent by this device.
    Nowhere,
}

/// Groups for documentation (RFC 6676), which have no members: their packets need no neighbour and disturb none.
const GROUPS: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(233, 252, 0, 1), Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0xdb8, 1));
const DISCARD: u16 = 9;
/// Number of attempts to distinguish our packets from others, which are counted, too.
const TRIES: usize = 5;

/// Sends an empty datagram with this mark by `device`, no further than its link, and returns the place where the
/// queues counted it. If others send at the same time it takes up to five.
///
/// # Errors
/// The kernel's error about the queues.
pub fn counted(device: &str, mark: &Mark, v6: bool) -> Result<Counted, QueueError> {
    let mut before = read(device)?;
    let expected = name(&before.placement(mark.tos(), mark.socket_priority(), v6));
    let Some((expected, (socket, to))) = expected.zip(marked(&before, mark, v6).ok()) else {
        return Ok(Counted::Nowhere);
    };
    let mut everywhere: Option<Vec<String>> = None;
    for _ in 0..TRIES {
        if socket.send_to(&[], to).is_err() {
            return Ok(Counted::Nowhere);
        }
        let after = read(device)?;
        let mut grew = grown(&before, &after);
        before = after;
        if grew == [expected.as_str()] {
            return Ok(Counted::AsPlaced);
        }
        grew.retain(|name| everywhere.as_ref().is_none_or(|all| all.contains(name)));
        everywhere = Some(grew);
    }
    let everywhere = everywhere.unwrap_or_default();
    let there = everywhere.contains(&expected);
    let elsewhere = everywhere.into_iter().next();
    Ok(if there { Counted::AsPlaced } else { elsewhere.map_or(Counted::Nowhere, Counted::Elsewhere) })
}

/// The name of the counter of such a place; `None`: there is none.
fn name(placement: &Placement) -> Option<String> {
    let first = placement.place.split(',').next().unwrap_or_default();
    match placement.discipline.as_str() {
        "prio" | "htb" | "hfsc" => first.strip_prefix("no ").is_none().then(|| first.to_owned()),
        "pfifo" | "bfifo" => Some(first.to_owned()),
        _ => None,
    }
}

/// Counters that grew.
fn grown(before: &Queues, after: &Queues) -> Vec<String> {
    let before = counts(before);
    let grew = |(name, count): (String, u64)| {
        let earlier = before.iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| *count);
        (count > earlier).then_some(name)
    };
    counts(after).into_iter().filter_map(grew).collect()
}

/// Packets per band or class; without any, per last discipline.
fn counts(queues: &Queues) -> Vec<(String, u64)> {
    let count = |c: &Counters| c.packets + u64::from(c.waiting) + u64::from(c.drops);
    let kind = |major: u16| queues.disciplines.iter().find(|d| d.handle.major() == major).map(|d| d.is.name());
    let classes = queues.classes.iter().filter(|c| queues.is_leaf(c.handle));
    let mut found: Vec<(String, u64)> = classes
        .filter_map(|class| match kind(class.handle.major())? {
            "prio" => Some((format!("band {}", class.handle.minor().wrapping_sub(1)), count(&class.counters))),
            "htb" | "hfsc" => Some((format!("class {}", class.handle), count(&class.counters))),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        let only = queues.disciplines.iter().find(|d| matches!(d.is.name(), "pfifo" | "bfifo"));
        found.extend(only.map(|only| ("the only queue".to_owned(), count(&only.counters))));
    }
    found
}

/// A socket whose packets have this mark and leave by this device, and their destination.
fn marked(queues: &Queues, mark: &Mark, v6: bool) -> io::Result<(UdpSocket, SocketAddr)> {
    let own = |i: &net::InterfaceAddress| i.name == queues.device && i.up && i.multicast && i.address.is_ipv6() == v6;
    net::interfaces()?.iter().find(|i| own(i)).ok_or(io::ErrorKind::AddrNotAvailable)?;
    let any: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket::bind_to_device(socket.as_fd(), &queues.device)?;
    let to = if v6 {
        socket.set_multicast_loop_v6(false)?;
        SocketAddr::V6(SocketAddrV6::new(GROUPS.1, DISCARD, 0, queues.index))
    } else {
        socket.set_multicast_loop_v4(false)?;
        socket.set_multicast_ttl_v4(1)?;
        SocketAddr::from((GROUPS.0, DISCARD))
    };
    marks::set(socket.as_fd(), mark, mark.socket_priority())?;
    socket.set_nonblocking(true)?;
    Ok((socket, to))
}
