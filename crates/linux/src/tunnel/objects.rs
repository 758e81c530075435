//! Nexthops, routes and addresses, each made unless it is there, read back, and taken away.

use super::message::{self, DELETE, GET, NEW};
use super::routes::{AF_MPLS, MAIN, NEXTHOP, NEXTHOP_ID, OURS, ROUTE};
use crate::netlink::{CREATE, DUMP, Refusal, Socket, attribute, attributes, put};
use crate::queueing::{QueueError, Reason};
use std::io;

/// A nexthop, a route or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) kind: u16,
    /// The message that makes it.
    pub(super) body: Vec<u8>,
    /// The same for `ip`.
    pub(super) command: String,
    /// The remedy where the kernel lacks it.
    pub(super) lacks: &'static str,
}

impl Object {
    /// Makes it unless it is there; `true` if it was not.
    pub(super) fn ensure(&self, socket: &mut Socket) -> Result<bool, QueueError> {
        if self.is_there(socket)? {
            return Ok(false);
        }
        let mut answer = socket.ask(self.kind + NEW, CREATE, &self.body)?;
        // Of labels the kernel deletes any route, whatever its protocol.
        let may_replace = self.kind == ROUTE && self.body[0] != AF_MPLS;
        if may_replace && answer.as_ref().is_err_and(|refusal| refusal.errno == libc::EEXIST) {
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
            remedy: "`ip nexthop`, `ip -6 route show table all` and `ip -f mpls route` say what".to_owned(),
        })
    }

    /// `true` if the kernel shows all that it was asked for.
    pub(super) fn is_there(&self, socket: &mut Socket) -> Result<bool, QueueError> {
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

    /// Takes it away; `false` if it is not there.
    pub(super) fn remove(&self, socket: &mut Socket) -> Result<bool, QueueError> {
        let is_there = self.is_there(socket)?;
        if is_there {
            self.delete(socket)?;
        }
        Ok(is_there)
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

    fn refused(&self, refusal: Refusal) -> QueueError {
        let mut error = QueueError::refused(self.command.clone(), refusal);
        match error.reason {
            Reason::MissingFeature => error.remedy = self.lacks.to_owned(),
            Reason::Other(_) => error.remedy = "the same words for `ip` may say more".to_owned(),
            _ => {}
        }
        error
    }

    /// The error where somebody else has its place.
    pub(super) fn foreign(&self) -> QueueError {
        QueueError {
            what: self.command.clone(),
            reason: Reason::Other(io::ErrorKind::AlreadyExists.into()),
            remedy: "somebody else's nexthop, route or address is there: take it away, or give the tunnel another id, segment or inside"
                .to_owned(),
        }
    }
}
