//! The queues of a device, from the kernel's messages.

use super::QueueError;
use super::devices::{self, Largest};
use super::discipline::{Class, Discipline};
use super::filter::{Filter, Question};
use crate::netlink::{self, DUMP, Message, Socket, attribute, put, text, u32_at, u64_at, words};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a discipline or class: `major:minor`, in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Handle(pub u32);

impl Handle {
    /// The parent of a device's first discipline.
    pub const ROOT: Self = Self(u32::MAX);

    /// `major:minor`
    pub const fn new(major: u16, minor: u16) -> Self {
        Self((major as u32) << 16 | minor as u32)
    }
    /// Before the colon: the discipline.
    pub const fn major(self) -> u16 {
        (self.0 >> 16) as u16
    }
    /// After the colon: the class; 0: the discipline itself.
    pub const fn minor(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.minor()) {
            (Handle::ROOT, _) => f.write_str("root"),
            (_, 0) => write!(f, "{:x}:", self.major()),
            (_, minor) => write!(f, "{:x}:{minor:x}", self.major()),
        }
    }
}

/// A device's queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// The device's name.
    pub device: String,
    /// Its index in its network namespace.
    pub index: u32,
    /// Length of the device's own queue in packets (`txqueuelen`): the limit of `pfifo_fast`.
    pub length: u32,
    /// The largest packets it is given.
    pub largest: Largest,
    /// Disciplines in the kernel's order; the first one has [`Handle::ROOT`] as parent.
    pub disciplines: Vec<Node<Discipline>>,
    /// Classes.
    pub classes: Vec<Node<Class>>,
    /// Filters, with their parents.
    pub filters: Vec<Node<Filter>>,
}

/// A discipline, class or filter in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<T> {
    /// Its own handle; 0: a discipline that the kernel put there by itself.
    pub handle: Handle,
    /// Its parent.
    pub parent: Handle,
    /// The object itself.
    pub is: T,
    /// Its counters.
    pub counters: Counters,
    /// The kernel's message.
    pub(crate) said: Said,
}

/// Counters of a discipline or class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u32,
    /// Packets that wait now.
    pub waiting: u32,
    /// Bytes that wait now.
    pub backlog: u32,
}

/// A traffic-control message of the kernel, which can be replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Said {
    pub handle: u32,
    pub parent: u32,
    pub info: u32,
    pub name: String,
    pub options: Option<Vec<u8>>,
    /// Size table (`tc … stab`), which disciplines may have.
    pub sizes: Option<Vec<u8>>,
}

impl Said {
    /// The body of the message that makes it so on the device with this index.
    pub(crate) fn request(&self, index: u32) -> Vec<u8> {
        self.message(index, 0)
    }

    /// The same with options that are marked as attributes (`NLA_F_NESTED`).
    pub(crate) fn request_nested(&self, index: u32) -> Vec<u8> {
        self.message(index, 0x8000)
    }

    /// Its name without its contents, by which the kernel deletes it.
    pub(crate) fn named(&self) -> Self {
        Self { options: None, sizes: None, ..self.clone() }
    }

    fn message(&self, index: u32, mark: u16) -> Vec<u8> {
        let mut request = vec![0; 4];
        request.extend(words([index, self.handle, self.parent, self.info]));
        if !self.name.is_empty() {
            put(&mut request, 1, &[self.name.as_bytes(), &[0]].concat());
        }
        self.options.iter().for_each(|options| put(&mut request, 2 | mark, options));
        self.sizes.iter().for_each(|sizes| put(&mut request, 8, sizes));
        request
    }
}

/// Message types: new; listing is two more.
pub(crate) const DISCIPLINE: u16 = 36;
pub(crate) const CLASS: u16 = 40;
pub(crate) const FILTER: u16 = 44;
/// The marks of ingress and clsact, which are no queues.
const INGRESS: u32 = 0xffff_fff1;

impl Queues {
    /// The queues of `device` in this network namespace. Needs no permission.
    ///
    /// # Errors
    /// An unknown device, or the kernel's error.
    pub fn read(device: &str) -> Result<Self, QueueError> {
        let mut socket = Socket::open()?;
        let found = devices::find(&mut socket, device)?;
        let mut queues = Self {
            device: device.to_owned(),
            index: found.index,
            length: found.length,
            largest: found.largest,
            disciplines: list(&mut socket, DISCIPLINE, found.index, 0)?,
            classes: list(&mut socket, CLASS, found.index, 0)?,
            filters: Vec::new(),
        };
        queues.disciplines.retain(|d| d.parent.0 != INGRESS);
        // Numbers of pfifo_fast and mq queues look like classes, but are none.
        queues.classes.retain(|c| !matches!(&c.is, Class::Other(name) if name == "mq"));
        let holders = queues.disciplines.iter().map(|d| d.handle).filter(|h| h.0 != 0);
        let inner = queues.classes.iter().filter(|c| !queues.is_leaf(c.handle)).map(|c| c.handle);
        let mut holders: Vec<Handle> = holders.chain(inner).collect();
        holders.sort_unstable();
        holders.dedup();
        for holder in holders {
            queues.filters.extend(list(&mut socket, FILTER, found.index, holder.0)?);
        }
        // Each preference is listed, too, before its filters.
        queues.filters.retain(|f: &Node<Filter>| f.said.options.is_some());
        Ok(queues)
    }

    /// The first discipline.
    pub fn root(&self) -> Option<&Node<Discipline>> {
        self.disciplines.iter().find(|d| d.parent == Handle::ROOT)
    }
    /// The discipline below a class (or below the only class of a discipline without classes).
    pub fn below(&self, parent: Handle) -> Option<&Node<Discipline>> {
        self.disciplines.iter().find(|d| d.parent == parent)
    }
    /// The class with this handle.
    pub fn class(&self, handle: Handle) -> Option<&Node<Class>> {
        self.classes.iter().find(|c| c.handle == handle)
    }
    /// `true` if no class is below this one.
    pub fn is_leaf(&self, handle: Handle) -> bool {
        !self.classes.iter().any(|c| c.parent == handle && c.handle != handle)
    }
    /// The filters on a discipline or class, in the order they are asked.
    pub fn filters_on(&self, parent: Handle) -> Vec<&Filter> {
        let mut filters: Vec<&Node<Filter>> = self.filters.iter().filter(|f| f.parent == parent).collect();
        filters.retain(|f| f.is.question != Question::Table);
        filters.sort_by_key(|f| (f.is.preference, f.handle));
        filters.into_iter().map(|f| &f.is).collect()
    }
}

/// Contents of the messages of each type.
pub(crate) trait Listed: Sized {
    fn of(said: &Said) -> Self;
}

impl Listed for Discipline {
    fn of(said: &Said) -> Self {
        Discipline::read(&said.name, said.options.as_deref().unwrap_or_default())
    }
}
impl Listed for Class {
    fn of(said: &Said) -> Self {
        Class::read(&said.name, said.options.as_deref().unwrap_or_default())
    }
}
impl Listed for Filter {
    fn of(said: &Said) -> Self {
        Filter::read(said.info, &said.name, said.options.as_deref().unwrap_or_default())
    }
}

pub(super) fn list<T: Listed>(
    socket: &mut Socket,
    kind: u16,
    index: u32,
    parent: u32,
) -> Result<Vec<Node<T>>, QueueError> {
    let mut request = vec![0; 4];
    request.extend(netlink::words([index, 0, parent, 0]));
    let answers = socket.ask(kind + 2, DUMP, &request)?;
    let messages = answers.map_err(|r| QueueError::refused("listing queues".to_owned(), r))?;
    Ok(messages.iter().filter(|m| m.kind == kind).filter_map(|m| node(m, index)).collect())
}

/// Reads one message about a device; `None` for another device's, and for one that is too short.
pub(crate) fn node<T: Listed>(message: &Message, index: u32) -> Option<Node<T>> {
    let body = &message.body;
    let number = |offset| u32_at(body, offset);
    if number(4)? != index {
        return None;
    }
    let rest = body.get(20..)?;
    let said = Said {
        handle: number(8)?,
        parent: number(12)?,
        info: number(16)?,
        name: attribute(rest, 1).map(text)?,
        options: attribute(rest, 2).map(<[u8]>::to_vec),
        sizes: attribute(rest, 8).map(<[u8]>::to_vec),
    };
    let counters = attribute(rest, 7).map(counters).unwrap_or_default();
    Some(Node { handle: Handle(said.handle), parent: Handle(said.parent), is: T::of(&said), counters, said })
}

fn counters(statistics: &[u8]) -> Counters {
    let basic = attribute(statistics, 1).unwrap_or_default();
    let queue = attribute(statistics, 3).unwrap_or_default();
    let wide = attribute(statistics, 8).and_then(|a| u64_at(a, 0));
    Counters {
        bytes: u64_at(basic, 0).unwrap_or(0),
        packets: wide.or(u32_at(basic, 8).map(u64::from)).unwrap_or(0),
        waiting: u32_at(queue, 0).unwrap_or(0),
        backlog: u32_at(queue, 4).unwrap_or(0),
        drops: u32_at(queue, 8).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn handles_are_written_as_tc_writes_them() {
        let handles = [Handle::ROOT, Handle::new(0x7a1, 0), Handle::new(1, 0x20)];
        assert_eq!(handles.map(|h| h.to_string()), ["root", "7a1:", "1:20"]);
    }

    proptest! {
        #[test]
        fn any_message_is_read(body in proptest::collection::vec(any::<u8>(), 0..120)) {
            let message = Message { kind: DISCIPLINE, body };
            let index = u32_at(&message.body, 4).unwrap_or(0);
            let _ = (node::<Discipline>(&message, index), node::<Class>(&message, index), node::<Filter>(&message, index));
        }
    }
}
