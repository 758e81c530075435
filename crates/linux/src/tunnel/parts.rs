//! What belongs to an end that is no device: nexthops, routes and addresses, each made unless it is there, read back, and taken away.

use super::message::{self, DELETE, GET, LINK, NEW};
use super::routes::{MAIN, NEXTHOP, NEXTHOP_ID, OURS, ROUTE};
use super::{Tunnel, segments};
use crate::netlink::{CREATE, DUMP, Socket, attribute, attributes, put};
use crate::queueing::{QueueError, Reason};
use std::io;

/// One thing in the kernel that belongs to an end.
pub(super) struct Part {
    pub(super) kind: u16,
    /// The message that makes it.
    pub(super) body: Vec<u8>,
    /// The same for `ip`.
    pub(super) command: String,
    /// The remedy where the kernel lacks it.
    pub(super) lacks: &'static str,
}

/// The commands of `ip` that make the end.
pub(super) fn commands(tunnel: &Tunnel) -> Vec<String> {
    segments::parts(tunnel, 0).into_iter().map(|part| part.command).collect()
}

/// Checks that nothing of somebody else has its number, its segment or its address.
pub(super) fn check(socket: &mut Socket, wanted: &Tunnel, ours: &[Tunnel]) -> Result<(), QueueError> {
    let Some((index, _)) = device(socket, &wanted.device)? else { return Ok(()) };
    let routed = ours.iter().filter(|one| !one.kind.has_device());
    let known: Vec<Part> = routed.flat_map(|one| segments::parts(one, index)).collect();
    for part in segments::parts(wanted, index) {
        if !known.iter().any(|one| one.body == part.body) && part.is_there(socket)? {
            return Err(part.foreign());
        }
    }
    Ok(())
}

/// Makes what is missing of an end; all of it goes if a part is refused.
pub(super) fn ensure(socket: &mut Socket, wanted: &Tunnel) -> Result<Vec<String>, QueueError> {
    let Some((index, mtu)) = device(socket, &wanted.device)? else {
        return Err(QueueError::no_device(&wanted.device));
    };
    let added = wanted.kind.added(wanted.remote) as u32;
    let least = wanted.mtu.saturating_add(added);
    if mtu < least {
        return Err(QueueError {
            what: format!("ip link show dev {}", wanted.device),
            reason: Reason::Differs(format!(
                "its mtu is {mtu}, and packets of the plan have {least} B with the tunnel's"
            )),
            remedy: format!(
                "`ip link set dev {} mtu {least}`, or state mtu = \"{mtu} B\" for the tunnel",
                wanted.device
            ),
        });
    }
    let mut changes = Vec::new();
    for part in segments::parts(wanted, index) {
        match part.ensure(socket) {
            Ok(true) => changes.push(part.command),
            Ok(false) => {}
            Err(error) => {
                let _ = remove(socket, wanted);
                return Err(error);
            }
        }
    }
    Ok(changes)
}

/// Takes an end away; `false` if nothing of it is there.
pub(super) fn remove(socket: &mut Socket, tunnel: &Tunnel) -> Result<bool, QueueError> {
    // What a device had is gone with it, but not what is at `lo`.
    let index = device(socket, &tunnel.device)?.map_or(0, |(index, _)| index);
    let mut was_there = false;
    for part in segments::parts(tunnel, index).iter().rev() {
        if part.is_there(socket)? {
            part.delete(socket)?;
            was_there = true;
        }
    }
    Ok(was_there)
}

/// The number and the MTU of a device; `None`: there is none.
fn device(socket: &mut Socket, name: &str) -> Result<Option<(u32, u32)>, QueueError> {
    match socket.ask(LINK + GET, 0, &message::named(name))? {
        Ok(found) => Ok(found.iter().find_map(|one| message::device(&one.body))),
        Err(refusal) if refusal.errno == libc::ENODEV => Ok(None),
        Err(refusal) => Err(QueueError::refused(format!("ip link show dev {name}"), refusal)),
    }
}

impl Part {
    /// Makes it unless it is there; `true` if it was not.
    fn ensure(&self, socket: &mut Socket) -> Result<bool, QueueError> {
        if self.is_there(socket)? {
            return Ok(false);
        }
        let mut answer = socket.ask(self.kind + NEW, CREATE, &self.body)?;
        if self.kind == ROUTE && answer.as_ref().is_err_and(|refusal| refusal.errno == libc::EEXIST) {
            // Only a route of our own protocol is deleted: one that others changed.
            let _ = self.delete(socket);
            answer = socket.ask(self.kind + NEW, CREATE, &self.body)?;
        }
        answer.map_err(|refusal| match refusal.errno {
            libc::EEXIST => self.foreign(),
            _ => self.refused(refusal),
        })?;
        if self.is_there(socket)? {
            return Ok(true);
        }
        Err(QueueError {
            what: self.command.clone(),
            reason: Reason::Differs("the kernel took it, but shows something else".to_owned()),
            remedy: "`ip nexthop` and `ip -6 route show table all` say what".to_owned(),
        })
    }

    /// `true` if the kernel shows all that it was asked for.
    fn is_there(&self, socket: &mut Socket) -> Result<bool, QueueError> {
        let (flags, request) = match self.kind {
            NEXTHOP => (0, self.number()),
            ROUTE => (DUMP, vec![self.body[0], 0, 0, 0, MAIN, OURS, 0, 0, 0, 0, 0, 0]),
            _ => (DUMP, message::addresses(self.body[0].into())),
        };
        socket.select();
        match socket.ask(self.kind + GET, flags, &request)? {
            Ok(found) => Ok(found.iter().any(|one| one.kind == self.kind + NEW && self.is_shown(&one.body))),
            Err(refusal) if refusal.errno == libc::ENOENT => Ok(false),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    /// `true` if this message shows it.
    pub(super) fn is_shown(&self, found: &[u8]) -> bool {
        // The bytes of a head that say which one it is: family, length, table, protocol, type.
        let (head, places): (usize, &[usize]) = match self.kind {
            NEXTHOP => (8, &[0, 2]),
            ROUTE => (12, &[0, 1, 4, 5, 7]),
            _ => return message::read_address(found) == message::read_address(&self.body),
        };
        let (Some(there), Some(asked)) = (found.get(head..), self.body.get(head..)) else { return false };
        places.iter().all(|at| found[*at] == self.body[*at])
            && attributes(asked).all(|(kind, value)| attribute(there, kind) == Some(value))
    }

    fn delete(&self, socket: &mut Socket) -> Result<(), QueueError> {
        let body = if self.kind == NEXTHOP { &self.number() } else { &self.body };
        socket.ask(self.kind + DELETE, 0, body)?.map(drop).map_err(|refusal| self.refused(refusal))
    }

    /// A question about the nexthop of this number.
    fn number(&self) -> Vec<u8> {
        let mut request = vec![0; 8];
        let number = self.body.get(8..).and_then(|rest| attribute(rest, NEXTHOP_ID));
        put(&mut request, NEXTHOP_ID, number.unwrap_or_default());
        request
    }

    fn refused(&self, refusal: crate::netlink::Refusal) -> QueueError {
        let mut error = QueueError::refused(self.command.clone(), refusal);
        match error.reason {
            Reason::MissingFeature => error.remedy = self.lacks.to_owned(),
            Reason::Other(_) => error.remedy = "the same words for `ip` may say more".to_owned(),
            _ => {}
        }
        error
    }

    fn foreign(&self) -> QueueError {
        QueueError {
            what: self.command.clone(),
            reason: Reason::Other(io::ErrorKind::AlreadyExists.into()),
            remedy: "somebody else's nexthop, route or address is there: take it away, or give the tunnel another id, segment or inside"
                .to_owned(),
        }
    }
}
