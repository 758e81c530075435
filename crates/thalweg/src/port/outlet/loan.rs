//! Messages that are written where they are sent from: loans.

use super::{Outflow, Outlet, TypedWay};
use crate::channel::buffer::Buffer;
use crate::channel::outgoing::Outgoing;
use crate::channel::{Change, coalescing};
use crate::codec::Message;
use crate::error::{Error, Result};
use crate::port::Published;
use crate::port::round::Round;
use linux::lock::PiGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The place of a loaned message.
pub(crate) enum Place {
    /// In a pooled buffer.
    Buffer(Arc<Buffer>),
    /// In the port's shared memory.
    Slot(linux::memory::Loan),
}

impl<M: Message> Outlet<M> {
    /// The port's state, for a loan: who joins or leaves meanwhile does so with the next sample.
    pub fn hold(&self) -> Result<PiGuard<'_, Outflow<M>>> {
        self.begin().map(|(state, _)| state)
    }

    /// Publishes a message that was written into a loan.
    pub fn publish_loan(&self, mut state: PiGuard<'_, Outflow<M>>, mut place: Place) -> Result<Published> {
        let now = linux::clock::monotonic_ns();
        coalescing::begins(now);
        if let Some(judge) = &self.judge {
            let message = state.bytes_mut(&mut place);
            judge.published(now, Change::Written, |bytes| {
                bytes.extend_from_slice(message);
                true
            });
        }
        if self.monitor.is_taken()
            && let Some(published) = self.monitored_loan(&mut state, now, &mut place)
        {
            state.give_back(place);
            return published;
        }
        let Outflow { seq, pool, turn, attached, arena } = &mut *state;
        let published = Published { seq: *seq + 1, ..Published::default() };
        let change = Change::Written;
        let mut round = Round { outlet: self, published, now, change, historical: false, each: &mut |_, _| {} };
        let outcome = match (place, arena) {
            (Place::Buffer(mut buffer), arena) => {
                let decoded = round.decode_and_hand_over(attached, buffer.payload());
                round.share(attached, arena, buffer.payload());
                let mut message = Outgoing::pooled(round.published.seq, now, &mut buffer);
                round.offer(attached, &mut message, turn);
                self.remember(&mut message);
                pool.replace(buffer);
                decoded
            }
            (Place::Slot(loan), Some(arena)) => {
                let sample = arena.seal(loan);
                round.push(attached, arena, &sample);
                let decoded = round.decode_and_hand_over(attached, arena.bytes(&sample));
                if self.histories.is_some() || attached.iter().any(|a| !matches!(a.way, TypedWay::Ring(..))) {
                    let mut message = Outgoing::external(round.published.seq, now, arena.bytes(&sample), pool);
                    round.offer(attached, &mut message, turn);
                    self.remember(&mut message);
                }
                arena.release(sample);
                decoded
            }
            (Place::Slot(_), None) => Err(Error::Closed),
        };
        *seq = round.published.seq;
        self.published.store(*seq, Ordering::Relaxed);
        outcome.map(|()| round.published)
    }
}

impl<M: Message> Outflow<M> {
    /// Memory of `len` bytes to write a message into: the subscribers' own where there are `shm` channels.
    pub fn loan(&mut self, len: usize) -> Place {
        let shares = self.attached.iter().any(|a| matches!(a.way, TypedWay::Ring(..)));
        if let Some(loan) = self.arena.as_mut().filter(|_| shares).and_then(|arena| arena.loan(len).ok()) {
            return Place::Slot(loan);
        }
        let mut buffer = self.pool.take();
        if let Some(free) = Arc::get_mut(&mut buffer) {
            free.sized(len);
        }
        Place::Buffer(buffer)
    }

    /// The memory of a loan.
    pub fn bytes_mut<'a>(&'a mut self, place: &'a mut Place) -> &'a mut [u8] {
        match place {
            Place::Buffer(buffer) => Arc::get_mut(buffer).map(Buffer::payload_mut).unwrap_or_default(),
            Place::Slot(loan) => self.arena.as_mut().map(|arena| arena.bytes_mut(loan)).unwrap_or_default(),
        }
    }

    /// Takes an unpublished loan back.
    pub fn give_back(&mut self, place: Place) {
        match place {
            Place::Buffer(buffer) => self.pool.replace(buffer),
            Place::Slot(loan) => {
                if let Some(arena) = self.arena.as_mut() {
                    arena.cancel(loan);
                }
            }
        }
    }
}
