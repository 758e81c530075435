//! Events of other nodes, on their way from the threads that receive them to the control thread. The mailbox is bounded. While it is full,
//! no links are read, so that the messages of a node that floods this one wait in that node's own buffers.

use crate::control::{Event, Origin};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes, and most events, that wait. While one of these is reached, no links are read. One more message, of at most 4 MiB, may still
/// arrive.
const MOST_BYTES: usize = 4 << 20;
const MOST_EVENTS: usize = 4096;

/// Events that the control thread has not taken yet.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    events: VecDeque<(Origin, Event, usize)>,
    bytes: usize,
}

impl Mailbox {
    pub(crate) fn put(&self, origin: Origin, event: Event) {
        let weight = event.weight();
        let mut inner = self.locked();
        inner.bytes += weight;
        inner.events.push_back((origin, event, weight));
    }

    pub(crate) fn take(&self) -> Option<(Origin, Event)> {
        let mut inner = self.locked();
        let (origin, event, weight) = inner.events.pop_front()?;
        inner.bytes = inner.bytes.saturating_sub(weight);
        Some((origin, event))
    }

    pub(crate) fn len(&self) -> usize {
        self.locked().events.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        let inner = self.locked();
        inner.bytes < MOST_BYTES && inner.events.len() < MOST_EVENTS
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::NodeId;

    #[test]
    fn a_full_mailbox_says_so_until_something_is_taken() {
        let mailbox = Mailbox::default();
        let call = || Event::Call { from: NodeId(1), genuine: true, id: 1, request: vec![0; 1 << 20] };
        let fitted = (0..100)
            .take_while(|_| {
                mailbox.has_room() && {
                    mailbox.put(Origin::this_user(), call());
                    true
                }
            })
            .count();
        assert_eq!(fitted, 4);
        assert!(mailbox.take().is_some() && mailbox.has_room());
        while mailbox.take().is_some() {}
        (0..MOST_EVENTS).for_each(|n| mailbox.put(Origin::this_user(), Event::Gone(NodeId(n as u64))));
        assert!(!mailbox.has_room() && mailbox.len() == MOST_EVENTS);
    }
}
