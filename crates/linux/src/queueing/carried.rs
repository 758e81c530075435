//! Counters of our own queues, by the class whose packets they hold.

use super::discipline::Discipline;
use super::tree::{Counters, Handle, Queues};
use super::wanted::{INNER, OURS, OURS_MAPPED, band, class_handle};
use qos::Class;

/// The counters of one class, since its queue was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The class; `None`: one queue has all of them, or the kernel counts them together (`pfifo_fast`).
    pub class: Option<Class>,
    /// Its counters. Those of flows with a leaf of their own are not among them.
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
}
