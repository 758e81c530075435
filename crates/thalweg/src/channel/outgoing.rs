//! One message on its way to several flows: encoded once, kept only where it has to wait.

use super::buffer::{Buffer, Pool};
use super::memory::Charge;
use super::queue::{Entry, Label};
use crate::carrier::shm::Shared;
use crate::channel::Change;
use std::sync::Arc;

/// A message that is being published.
pub(crate) struct Outgoing<'a> {
    /// Sample sequence number.
    pub seq: u64,
    /// Source stamp.
    pub stamp: u64,
    /// Its statement about its instance.
    pub change: Change,
    /// Later samples were published before it: it comes from a history.
    pub historical: bool,
    /// Time at which it was offered to the present flow, if its stages are measured there; otherwise 0.
    pub offered: u64,
    /// Time at which it was published or forwarded here, by this host's monotonic clock; the stamp may be by another clock.
    pub now: u64,
    /// Its publisher outruns the calls that send: small samples leave together (`coalescing`).
    pub together: bool,
    /// A channel that lets samples leave together made a system call for it.
    pub called: bool,
    body: Body<'a>,
    /// The copy that waits, of bytes that are not in a pooled buffer, or of a buffer with much more room than it needs.
    kept: Option<Arc<Buffer>>,
    /// Its place in the port's shared memory, where the port has some.
    shared: Option<Shared<'a>>,
}

/// The bytes of a message.
pub(crate) enum Body<'a> {
    /// Encoded into a pooled buffer with header room.
    Pooled(&'a mut Arc<Buffer>),
    /// The user's own.
    External(&'a [u8], &'a mut Pool),
    /// Written into shared memory.
    Written(&'a mut Pool),
}

impl<'a> Outgoing<'a> {
    /// A message; [`Outgoing::share`] copies it to the memory in `shared`, unless it is there.
    ///
    /// Made once, in the place where it stays: each move of it cost a stalled load, 2 to 4 ns (`perf annotate`, 64 B over `tcp`).
    #[inline(always)]
    pub(crate) fn new(
        Label { seq, stamp, change, historical }: Label,
        body: Body<'a>,
        shared: Option<Shared<'a>>,
    ) -> Self {
        let (offered, now, together, called) = (0, stamp, false, false);
        Self { seq, stamp, change, historical, offered, now, together, called, body, kept: None, shared }
    }

    /// A message in a pooled buffer.
    #[cfg(test)]
    pub(crate) fn pooled(seq: u64, stamp: u64, buffer: &'a mut Arc<Buffer>) -> Self {
        Self::new(Label { seq, stamp, ..Label::default() }, Body::Pooled(buffer), None)
    }

    /// A message in the user's memory.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn external(seq: u64, stamp: u64, bytes: &'a [u8], pool: &'a mut Pool) -> Self {
        Self::new(Label { seq, stamp, ..Label::default() }, Body::External(bytes, pool), None)
    }

    /// Copies the message to shared memory unless it is there. `false`: the port has none, or no place is free.
    pub(crate) fn share(&mut self) -> bool {
        match (&mut self.shared, &self.body) {
            (Some(shared), Body::Pooled(buffer)) => shared.copy(buffer.payload()),
            (Some(shared), Body::External(bytes, _)) => shared.copy(bytes),
            (shared, Body::Written(_)) => shared.is_some(),
            (None, _) => false,
        }
    }

    /// Its place in shared memory, where its port has some.
    #[inline]
    pub(crate) fn shared(&mut self) -> Option<&mut Shared<'a>> {
        self.shared.as_mut()
    }

    /// Its label.
    #[inline]
    pub(crate) fn label(&self) -> Label {
        let Self { seq, stamp, change, historical, .. } = *self;
        Label { seq, stamp, change, historical }
    }

    /// The encoded message.
    #[inline]
    pub(crate) fn payload(&self) -> &[u8] {
        match &self.body {
            Body::Pooled(buffer) => buffer.payload(),
            Body::External(bytes, _) => bytes,
            Body::Written(_) => self.shared.as_ref().map(Shared::bytes).unwrap_or_default(),
        }
    }

    /// Header room and payload in one piece, while no queue holds the buffer.
    #[inline]
    pub(crate) fn frame_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.body {
            Body::Pooled(buffer) => Arc::get_mut(buffer).map(Buffer::frame_mut),
            Body::External(..) | Body::Written(_) => None,
        }
    }

    /// The message as an entry that can wait.
    pub(crate) fn keep(&mut self) -> Entry {
        let buffer = match &mut self.body {
            Body::Pooled(buffer) if !buffer.wastes(MIXED) => buffer.clone(),
            Body::Pooled(buffer) => self.kept.get_or_insert_with(|| Arc::new(buffer.compacted())).clone(),
            Body::External(bytes, pool) => self.kept.get_or_insert_with(|| copied(pool, bytes)).clone(),
            Body::Written(pool) => {
                let bytes = self.shared.as_ref().map(Shared::bytes).unwrap_or_default();
                self.kept.get_or_insert_with(|| copied(pool, bytes)).clone()
            }
        };
        let Self { seq, stamp, now, change, historical, offered, .. } = *self;
        Entry { buffer, seq, stamp, now, change, historical, offered, batch: false, charge: Charge::default() }
    }
}

/// Bytes of room that a waiting message may have beyond twice its length. On a topic of mixed sizes small messages are encoded in
/// buffers of former large ones, and thousands of them would keep room for thousands of large ones. They are copied instead.
const MIXED: usize = 16 << 10;

/// A copy that waits, in a buffer of the pool unless that would waste room.
pub(crate) fn copied(pool: &mut Pool, bytes: &[u8]) -> Arc<Buffer> {
    let buffer = pool.exclusive();
    if let Some(free) = Arc::get_mut(buffer) {
        free.start().extend_from_slice(bytes);
    }
    match buffer.wastes(MIXED) {
        false => buffer.clone(),
        true => Arc::new(buffer.compacted()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_message_keeps_no_room_of_a_larger_one() {
        let mut pool = Pool::with_buffers(2, 64 << 10);
        let [small, large] = [100, 60_000].map(|len| copied(&mut pool, &vec![7; len]));
        assert_eq!((small.payload(), large.payload()), (&[7; 100][..], &[7; 60_000][..]));
        assert!(!small.wastes(MIXED) && !large.wastes(MIXED));
    }
}
