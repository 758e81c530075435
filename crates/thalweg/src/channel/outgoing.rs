//! One message on its way to several flows: encoded once, kept only where it has to wait.

use super::buffer::{Buffer, Pool};
use super::memory::Charge;
use super::queue::{Entry, Label};
use crate::carrier::shm::{Memory, Shared};
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
    /// Later ones were published before it: it comes from a history.
    pub historical: bool,
    /// Time at which it was offered to the flow that it is given to now, if its stages are measured there; else 0.
    pub offered: u64,
    /// Time at which it was published or passed on here, by this host's monotonic clock; the stamp may be by another one.
    pub now: u64,
    /// Its publisher outruns the calls that send: small ones leave together (`coalescing`).
    pub together: bool,
    /// A channel that lets samples leave together made a system call for it.
    pub called: bool,
    body: Body<'a>,
    /// Its place in the port's shared memory, where the port has some.
    shared: Option<Shared<'a>>,
}

enum Body<'a> {
    /// Encoded into a pooled buffer with header room; a smaller copy is kept where that has much more room than it needs.
    Pooled { buffer: &'a mut Arc<Buffer>, kept: Option<Arc<Buffer>> },
    /// The user's own bytes; copied into a pooled buffer by the first flow that has to keep them.
    External { bytes: &'a [u8], pool: &'a mut Pool, kept: Option<Arc<Buffer>> },
    /// Written into shared memory; copied likewise.
    Written { pool: &'a mut Pool, kept: Option<Arc<Buffer>> },
}

impl<'a> Outgoing<'a> {
    /// A message in a pooled buffer.
    #[inline]
    pub(crate) fn pooled(seq: u64, stamp: u64, buffer: &'a mut Arc<Buffer>) -> Self {
        Self::new(seq, stamp, Body::Pooled { buffer, kept: None })
    }

    /// A message in the user's memory.
    #[inline]
    pub(crate) fn external(seq: u64, stamp: u64, bytes: &'a [u8], pool: &'a mut Pool) -> Self {
        Self::new(seq, stamp, Body::External { bytes, pool, kept: None })
    }

    /// A message that was written in shared memory.
    pub(crate) fn written(seq: u64, stamp: u64, shared: Shared<'a>, pool: &'a mut Pool) -> Self {
        Self { shared: Some(shared), ..Self::new(seq, stamp, Body::Written { pool, kept: None }) }
    }

    #[inline]
    fn new(seq: u64, stamp: u64, body: Body<'a>) -> Self {
        Self {
            seq,
            stamp,
            change: Change::Written,
            historical: false,
            offered: 0,
            now: stamp,
            together: false,
            called: false,
            body,
            shared: None,
        }
    }

    /// [`Outgoing::share`] can copy it to this memory.
    #[inline]
    pub(crate) fn may_share(&mut self, memory: &'a mut Memory) {
        self.shared = Some(Shared::nowhere(memory));
    }

    /// Sees to it that the message is in shared memory. `false`: there is none, or no place is free.
    pub(crate) fn share(&mut self) -> bool {
        match (&mut self.shared, &self.body) {
            (Some(shared), Body::Pooled { buffer, .. }) => shared.copy(buffer.payload()),
            (Some(shared), Body::External { bytes, .. }) => shared.copy(bytes),
            (shared, Body::Written { .. }) => shared.is_some(),
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
            Body::Pooled { buffer, .. } => buffer.payload(),
            Body::External { bytes, .. } => bytes,
            Body::Written { .. } => self.shared.as_ref().map(Shared::bytes).unwrap_or_default(),
        }
    }

    /// Header room and payload in one piece, while no queue holds the buffer.
    #[inline]
    pub(crate) fn frame_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.body {
            Body::Pooled { buffer, .. } => Arc::get_mut(buffer).map(Buffer::frame_mut),
            Body::External { .. } | Body::Written { .. } => None,
        }
    }

    /// The message as something that can wait.
    pub(crate) fn keep(&mut self) -> Entry {
        let buffer = match &mut self.body {
            Body::Pooled { buffer, .. } if !buffer.wastes(MIXED) => buffer.clone(),
            Body::Pooled { buffer, kept } => kept.get_or_insert_with(|| Arc::new(buffer.compacted())).clone(),
            Body::External { bytes, pool, kept } => kept.get_or_insert_with(|| copied(pool, bytes)).clone(),
            Body::Written { pool, kept } => {
                let bytes = self.shared.as_ref().map(Shared::bytes).unwrap_or_default();
                kept.get_or_insert_with(|| copied(pool, bytes)).clone()
            }
        };
        let Self { seq, stamp, now, change, historical, offered, .. } = *self;
        Entry { buffer, seq, stamp, now, change, historical, offered, batch: false, charge: Charge::default() }
    }
}

/// Room that a waiting message may waste besides as much as it has: on a topic of mixed sizes small ones are encoded where a
/// large one was before, and thousands of them would keep room for thousands of large ones. They are copied instead.
const MIXED: usize = 16 << 10;

/// A copy that waits, in a buffer of the pool unless it would waste that.
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
    fn what_waits_keeps_no_room_of_a_larger_one() {
        let mut pool = Pool::with_buffers(2, 64 << 10);
        let [small, large] = [100, 60_000].map(|len| copied(&mut pool, &vec![7; len]));
        assert_eq!((small.payload(), large.payload()), (&[7; 100][..], &[7; 60_000][..]));
        assert!(!small.wastes(MIXED) && !large.wastes(MIXED));
    }
}
