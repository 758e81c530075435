//! A flow with a limit: nothing is sent by the publishing thread, and its sender thread asks a token bucket before each send
//! (Velox §3.3.2: the flow controller limits the rate, buffers the excess, throttles bursts and fragments, coalesces).

use super::{Drained, Flow};
use crate::wire::{HEADER, Kind};
use linux::clock::monotonic_ns;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Pieces of a large message that leave a stream at a time: no smaller than a packet, however small the burst.
const SMALLEST_PIECE: usize = 1500;

impl Flow {
    /// Whether so many bytes may leave now, as one piece.
    ///
    /// # Errors
    /// How long they have to wait.
    pub(super) fn allowed(&self, bytes: usize) -> Result<(), Duration> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        bucket.lock().take(monotonic_ns(), bytes).map_err(Duration::from_nanos)
    }

    /// How many of the next `bytes` may leave now: all of a datagram, of a stream as many as the burst.
    ///
    /// # Errors
    /// How long they have to wait.
    pub(super) fn allowance(&self, bytes: usize) -> Result<usize, Duration> {
        let Some(limit) = self.settings.sending.limit else { return Ok(bytes) };
        let burst = usize::try_from(limit.burst).unwrap_or(usize::MAX).max(SMALLEST_PIECE);
        let most = if self.capabilities.stream { bytes.min(burst) } else { bytes };
        self.allowed(most).map(|()| most)
    }

    /// Of a stream that batches and has a limit: sends what waits in one piece, if there is more than one. `None`: there
    /// is not, or the flow is none of these.
    pub(super) fn send_gathered(&self) -> Option<Drained> {
        let gathers = self.bucket.is_some() && self.capabilities.stream;
        let batching = self.settings.sending.batching.filter(|_| gathers)?;
        // In this order: a batch that fails ends the flow, and that empties the queue.
        let mut batch = self.batch.lock();
        let mut pending = self.pending.lock();
        if pending.partial.is_some() {
            return None;
        }
        let sizes = pending.queue.iter().map(|entry| HEADER + entry.buffer.payload().len());
        let upto = sizes.scan(0, |sum, size| {
            *sum += size;
            (*sum <= batching.bytes).then_some(*sum)
        });
        let (count, bytes) =
            upto.enumerate().last().map(|(index, bytes)| (index + 1, bytes)).filter(|(n, _)| *n > 1)?;
        if let Err(pause) = self.allowed(bytes) {
            return Some(Drained::Pause(pause));
        }
        for entry in (0..count).filter_map(|_| pending.queue.pop()) {
            let payload = entry.buffer.payload();
            let mut header = [0; HEADER];
            let flow_seq = self.next.fetch_add(1, Relaxed);
            self.header(Kind::Message, payload.len(), flow_seq, entry.label()).emit(&mut header);
            batch.extend_from_slice(&header);
            batch.extend_from_slice(payload);
        }
        drop(pending);
        self.left_queue();
        let flushed = self.flush(&mut batch, Duration::ZERO);
        Some(if flushed { Drained::Pause(Duration::ZERO) } else { Drained::Blocked })
    }
}
