//! Messages that are written where they are sent from: loans.

use super::{Attached, Outflow};
use crate::channel::buffer::Buffer;
use crate::codec::Message;
use std::sync::Arc;

/// The place of a loaned message.
pub(crate) enum Place {
    /// In a pooled buffer.
    Buffer(Arc<Buffer>),
    /// In the port's shared memory.
    Slot(linux::memory::Loan),
}

impl<M: Message> Outflow<M> {
    /// Memory of `len` bytes to write a message into: the subscribers' own where there are `shm` channels.
    pub(crate) fn loan(&mut self, len: usize) -> Place {
        let shares = self.attached.iter().any(Attached::shares);
        if let Some(loan) = self.memory.as_mut().filter(|_| shares).and_then(|memory| memory.loan(len).ok()) {
            return Place::Slot(loan);
        }
        let mut buffer = self.pool.take();
        if let Some(free) = Arc::get_mut(&mut buffer) {
            free.sized(len);
        }
        Place::Buffer(buffer)
    }

    /// The memory of a loan.
    pub(crate) fn bytes_mut<'a>(&'a mut self, place: &'a mut Place) -> &'a mut [u8] {
        match place {
            Place::Buffer(buffer) => Arc::get_mut(buffer).map(Buffer::payload_mut).unwrap_or_default(),
            Place::Slot(loan) => self.memory.as_mut().map(|memory| memory.bytes_mut(loan)).unwrap_or_default(),
        }
    }

    /// Takes an unpublished loan back.
    pub(crate) fn give_back(&mut self, place: Place) {
        match place {
            Place::Buffer(buffer) => self.pool.replace(buffer),
            Place::Slot(loan) => {
                if let Some(memory) = self.memory.as_mut() {
                    memory.cancel(loan);
                }
            }
        }
    }
}
