//! Counters of our own queues, by the class whose packets they hold.

use super::QueueError;
use super::devices;
use super::discipline::{Class as QueueClass, Discipline};
use super::leaf::Leaf;
use super::tree::{self, CLASS, Counters, DISCIPLINE, Handle, Node, Queues};
use super::wanted::{INNER, OURS, OURS_MAPPED, band, class_handle};
use crate::netlink::Socket;
use qos::Class;

/// The counters of one class, since its queue was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The class; `None`: one queue has all of them, or the kernel counts them together (`pfifo_fast`).
    pub class: Option<Class>,
    /// Its counters. Those of flows with a leaf of their own, and of control traffic where it has one, are not among them.
    pub counters: Counters,
}

impl Queues {
    /// The counters of the classes, most urgent first. Empty: these are no queues of ours.
    pub fn carried(&self) -> Vec<Carried> {
        let is_ours = |major| [OURS, OURS_MAPPED].contains(&major);
        let Some(root) = self.root().filter(|root| is_ours(root.handle.major())) else { return Vec::new() };
        let inner = self.disciplines.iter().find(|d| d.handle == Handle::new(INNER, 0));
        let place: fn(Class) -> Handle = match inner.map(|inner| &inner.is) {
            Some(Discipline::Prio { .. }) => band,
            Some(Discipline::Htb { .. } | Discipline::Hfsc { .. }) => class_handle,
            // What the queue below the token bucket drops, the token bucket counts, too (`tbf_enqueue`).
            _ => return vec![Carried { class: None, counters: root.counters }],
        };
        let of = |class| {
            let found = self.class(place(class))?;
            Some(Carried { class: Some(class), counters: found.counters })
        };
        Class::ALL.into_iter().rev().filter_map(of).collect()
    }

    /// The counters of the queue of control traffic; `None`: these queues have none.
    pub fn control(&self) -> Option<Counters> {
        self.class(Leaf::control()).map(|found| found.counters)
    }
}

/// What waits before a device with queues of ours, and what they have sent so far, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Sent by the device.
    pub sent: u64,
    /// Of that, what came from the queues of classes: leaves of flows are held back by their own rates.
    pub gone: u64,
    /// What waits in the queues of classes.
    pub waiting: u64,
}

/// The same now; `None`: there are no queues of ours. Costs less than [`super::read`].
///
/// # Errors
/// An unknown device, or the kernel's error.
pub fn backlog(device: &str) -> Result<Option<Backlog>, QueueError> {
    let mut socket = Socket::open()?;
    let index = devices::find(&mut socket, device)?.index;
    let mut queues = Queues {
        device: device.to_owned(),
        index,
        disciplines: tree::list(&mut socket, DISCIPLINE, index, 0)?,
        ..Queues::default()
    };
    let Some(root) = queues.root().filter(|root| [OURS, OURS_MAPPED].contains(&root.handle.major())) else {
        return Ok(None);
    };
    let Counters { bytes: sent, backlog, .. } = root.counters;
    if backlog > 0 {
        let classes: Vec<Node<QueueClass>> = tree::list(&mut socket, CLASS, index, 0)?;
        queues.classes = classes;
    }
    let carried = queues.carried();
    let sum = |of: fn(&Counters) -> u64| carried.iter().map(|one| of(&one.counters)).fold(0, u64::saturating_add);
    let (gone, waiting) = (sum(|counters| counters.bytes), sum(|counters| counters.backlog.into()));
    Ok(Some(Backlog { sent, gone, waiting }))
}
