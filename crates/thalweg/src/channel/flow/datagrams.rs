//! Batches over datagrams: small samples of a reliable flow leave in one datagram, which has one number, waits for the window as
//! one, and is acknowledged and repeated as one. Only where nothing is given up ([`Control::batches`](super::Control)).

use super::batch::Batch;
use super::{Flow, is_final};
use crate::channel::memory::Charge;
use crate::channel::outgoing::copied;
use crate::channel::queue::{Entry, Label};
use crate::trace::{self, Step};
use crate::wire::{HEADER, Kind};
use linux::clock::monotonic_ns;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What a batch waits for.
enum Held {
    /// Window or pace.
    Window,
    /// Room in the socket.
    Socket,
}

impl Flow {
    /// Whether small samples may leave together.
    #[inline]
    pub(super) fn gathers(&self) -> bool {
        self.capabilities.stream || self.settings.control.is_some_and(|control| control.batches)
    }

    /// Bytes of a batch that was asked to hold so many: over datagrams no more than one takes, also when it is repeated.
    pub(super) fn most_batched(&self, asked: usize) -> usize {
        if self.capabilities.stream { asked } else { asked.min(HEADER + self.piece()) }
    }

    /// Bytes of a batch in front of its messages.
    pub(super) fn outer_header(&self) -> usize {
        if self.capabilities.stream { 0 } else { HEADER }
    }

    /// Whether a batch would be too long for one datagram with so many bytes more.
    pub(super) fn overflows(&self, batch: &Batch, more: usize) -> bool {
        !self.capabilities.stream && batch.bytes() + more > self.most_batched(usize::MAX)
    }

    /// Sends the batch as one datagram, waiting for window and socket at most `patience`; `false` when it has not left.
    pub(super) fn flush_datagram(&self, batch: &mut Batch, patience: Duration) -> bool {
        let mut until = None;
        while !batch.is_empty() {
            if self.has_ended() {
                self.dropped.fetch_add(u64::from(batch.samples), Relaxed);
                break;
            }
            let Err(held) = self.send_batch(batch) else { break };
            let until = *until.get_or_insert_with(|| Instant::now() + patience);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            match held {
                Held::Window => self.wait_window(left),
                Held::Socket => self.wait_room(left),
            }
        }
        self.emptied(batch);
        true
    }

    fn send_batch(&self, batch: &mut Batch) -> Result<(), Held> {
        if self.kept.as_ref().is_some_and(|kept| !kept.has_room(monotonic_ns())) {
            return Err(Held::Window);
        }
        let alone = batch.samples == 1;
        let Batch { frames, sequence, first, .. } = &mut *batch;
        let label = if alone { *first } else { Label { seq: first.seq, stamp: first.stamp, ..Label::default() } };
        if !alone {
            let header = self.header(Kind::Batch, frames.len() - HEADER, *sequence, label);
            if let Some(room) = frames.first_chunk_mut::<HEADER>() {
                header.emit(room);
            }
        }
        trace::step(Step::Send);
        let sent = self.link.send(&[IoSlice::new(&frames[if alone { HEADER } else { 0 }..])]);
        if let Err(error) = &sent {
            self.look_at_size(error, frames.len());
        }
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Held::Socket),
            Err(error) if is_final(&error) => {
                self.dropped.fetch_add(u64::from(batch.samples.saturating_sub(1)), Relaxed);
                self.failed(&error); // counts one
            }
            Err(_) if !self.kept.as_ref().is_some_and(|kept| kept.is_needed()) => {
                self.dropped.fetch_add(u64::from(batch.samples), Relaxed);
            }
            // One that did not leave is repeated.
            _ => self.keep_batch(batch, alone, label),
        }
        Ok(())
    }

    fn keep_batch(&self, batch: &mut Batch, alone: bool, label: Label) {
        let Some(kept) = self.kept.as_ref().filter(|kept| kept.is_needed()) else { return };
        let Batch { frames, sequence, pool, .. } = batch;
        let buffer = copied(pool, &frames[if alone { 2 * HEADER } else { HEADER }..]);
        let Label { seq, stamp, change, historical } = label;
        let (charge, now) = (Charge::default(), monotonic_ns());
        let entry = Entry { buffer, seq, stamp, now, change, historical, offered: 0, batch: !alone, charge };
        self.keep_sent(kept, now, *sequence, entry);
    }

    /// Gives back what kept batches took and nobody needed lately.
    pub fn trim(&self) {
        let given = self.batch.try_lock().map(|mut batch| batch.pool.trim());
        drop(given); // when the batch is not held any more
    }

    /// Waits for room in the window, at most `left`.
    fn wait_window(&self, left: Duration) {
        if let Some(kept) = &self.kept {
            kept.wait_room(left, || self.ask_in_time(kept));
        }
    }
}
