//! Changes to queues, one by one: in the kernel's form, and as commands of `tc`.

use super::class::Class;
use super::devices;
use super::discipline::Discipline;
use super::error::QueueError;
use super::filter::Filter;
use super::tree::{CLASS, DISCIPLINE, FILTER, Handle, Queues, Said};
use crate::netlink::{CREATE, REPLACE, Socket, put, words};
use std::fmt;

/// One change to a device's queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The device's own queue gets this length in packets (`pfifo_fast` has no other limit).
    Length(u32),
    /// A discipline; the first one replaces the existing one.
    Discipline {
        /// [`Handle::ROOT`] or a class.
        parent: Handle,
        /// Its own.
        handle: Handle,
        /// The discipline.
        is: Discipline,
    },
    /// A class.
    Class {
        /// A discipline or another class.
        parent: Handle,
        /// Its own.
        handle: Handle,
        /// The class.
        is: Class,
    },
    /// A filter.
    Filter {
        /// Its parent.
        parent: Handle,
        /// The filter.
        is: Filter,
    },
}

impl Step {
    /// Carries it out on the device with this index.
    pub(crate) fn take(&self, socket: &mut Socket, device: &str, index: u32) -> Result<(), QueueError> {
        let Some((kind, said)) = self.message() else {
            return match self {
                Step::Length(length) => devices::set_length(socket, index, *length),
                _ => Ok(()),
            };
        };
        let flags = if said.parent == Handle::ROOT.0 && kind == DISCIPLINE { REPLACE } else { CREATE };
        let answer = socket.ask(kind, flags, &said.request(index))?;
        answer.map(drop).map_err(|refusal| QueueError::refused(self.command(device), refusal))
    }

    /// The message that does it.
    fn message(&self) -> Option<(u16, Said)> {
        let said = |parent: Handle, handle: Handle, info, name: &str, options| Said {
            parent: parent.0,
            handle: handle.0,
            info,
            name: name.to_owned(),
            options,
            sizes: None,
        };
        match self {
            Step::Length(_) => None,
            Step::Discipline { parent, handle, is } => {
                Some((DISCIPLINE, said(*parent, *handle, 0, is.name(), is.options())))
            }
            Step::Class { parent, handle, is } => Some((CLASS, said(*parent, *handle, 0, is.name(), is.options()))),
            Step::Filter { parent, is } => {
                Some((FILTER, said(*parent, Handle::default(), is.info(), "u32", is.options())))
            }
        }
    }

    /// The command that does the same.
    pub fn command(&self, device: &str) -> String {
        match self {
            Step::Length(length) => format!("ip link set dev {device} txqueuelen {length}"),
            Step::Discipline { parent: Handle::ROOT, handle, is } => {
                format!("tc qdisc replace dev {device} root handle {handle} {is}")
            }
            Step::Discipline { parent, handle, is } => {
                format!("tc qdisc add dev {device} parent {parent} handle {handle} {is}")
            }
            Step::Class { parent, handle, is } => {
                format!("tc class add dev {device} parent {parent} classid {handle} {is}")
            }
            Step::Filter { parent, is } => format!("tc filter add dev {device} parent {parent} {is}"),
        }
    }

    /// `true` if `queues` show it done. Numbers are compared as the kernel rounds them.
    pub(crate) fn is_done(&self, queues: &Queues) -> bool {
        let options = |options: Option<Vec<u8>>| options.unwrap_or_default();
        match self {
            Step::Length(length) => queues.length == *length,
            Step::Discipline { parent, handle, is } => {
                let rounded = Discipline::read(is.name(), &options(is.options()));
                let same = |found: &Discipline| match is {
                    Discipline::PfifoFast { .. } | Discipline::NoQueue => found.name() == is.name(),
                    _ => *found == rounded,
                };
                queues.disciplines.iter().any(|d| (d.parent, d.handle) == (*parent, *handle) && same(&d.is))
            }
            Step::Class { handle, is, .. } => {
                let rounded = Class::read(is.name(), &options(is.options()));
                queues.class(*handle).is_some_and(|class| class.is == rounded)
            }
            Step::Filter { parent, is } => queues.filters_on(*parent).contains(&is),
        }
    }
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

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.command("DEV"))
    }
}
