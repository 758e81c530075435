//! Batches of a stream: small samples leave together, in one send.

use super::Flow;
use crate::channel::outgoing::Outgoing;
use crate::port::Outcome;
use crate::trace::{self, Step};
use crate::wire::{HEADER, Kind};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Opt-in batching of a stream: small samples leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// A batch leaves when it holds this many bytes. Default 64 KiB.
    pub bytes: usize,
    /// A batch leaves at the latest this long after its first sample. Default 100 µs.
    pub within: Duration,
}

impl Default for Batching {
    fn default() -> Self {
        Self { bytes: 64 << 10, within: Duration::from_micros(100) }
    }
}

impl Flow {
    /// Batches leave from the publishing thread, so none is begun while another thread sends, or always does.
    pub(super) fn batches(&self) -> bool {
        self.capabilities.stream && self.right.is_free() && !self.right.is_handed_over_always()
    }

    pub(super) fn offer_batched(self: &Arc<Self>, message: &Outgoing<'_>) -> Outcome {
        let Some(batching) = self.settings.sending.batching else { return Outcome::NotConnected };
        let mut batch = self.batch.lock();
        let size = HEADER + message.payload().len();
        if batch.len() + size > batch.capacity() && !self.flush(&mut batch, self.settings.policy.patience()) {
            self.dropped.fetch_add(1, Relaxed);
            return if self.ended.load(Relaxed) { Outcome::NotConnected } else { Outcome::Refused };
        }
        let was_empty = batch.is_empty();
        let mut header = [0; HEADER];
        let flow_seq = self.next.fetch_add(1, Relaxed);
        self.header(Kind::Message, message.payload().len(), flow_seq, message.label()).emit(&mut header);
        batch.extend_from_slice(&header);
        batch.extend_from_slice(message.payload());
        if batch.len() >= batching.bytes {
            self.flush(&mut batch, self.settings.policy.patience());
        } else if was_empty {
            drop(batch);
            self.senders.submit_later(self.clone(), batching.within);
        }
        Outcome::Sent
    }

    /// Sends the batch; `false` when not all of it left. The batch's lock is the send right in this mode.
    pub(super) fn flush(&self, batch: &mut Vec<u8>, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut taken = 0;
        while taken < batch.len() {
            trace::step(Step::Send);
            match self.link.send(&[IoSlice::new(&batch[taken..])]) {
                Ok(count) => taken += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() || !matches!(self.link.wait_room(left), Ok(true)) {
                        break;
                    }
                }
                Err(error) => {
                    self.failed(&error);
                    taken = batch.len();
                }
            }
        }
        batch.drain(..taken);
        batch.is_empty()
    }

    /// The batch's time is up. `false`: the socket is full, try again.
    pub fn flush_due(&self) -> bool {
        // Held by a publisher that may wait for room: it flushes itself, or the next look does.
        let Some(mut batch) = self.batch.try_lock() else { return false };
        self.flush(&mut batch, Duration::ZERO) || self.ended.load(Relaxed)
    }
}
