//! A flow with a limit: the publishing thread sends no message, and its sender thread asks a token bucket before each send
//! (Velox §3.3.2: the flow controller limits the rate, buffers the excess, throttles bursts and fragments, coalesces).

use super::Flow;
use linux::clock::monotonic_ns;
use std::time::Duration;

/// The smallest piece of a large message that leaves on a stream: a packet, even if the burst is smaller.
const SMALLEST_PIECE: usize = 1500;

impl Flow {
    /// Checks whether this many bytes may leave now, as one piece.
    ///
    /// # Errors
    /// The time that the bytes have to wait.
    pub(super) fn allowed(&self, bytes: usize) -> Result<(), Duration> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        bucket.lock().take(monotonic_ns(), bytes).map_err(Duration::from_nanos)
    }

    /// The number of the next `bytes` that may leave now: all of a datagram, or at most the burst of a stream.
    ///
    /// # Errors
    /// The time that the bytes have to wait.
    pub(super) fn allowance(&self, bytes: usize) -> Result<usize, Duration> {
        let Some(limit) = self.settings.sending.limit else { return Ok(bytes) };
        let burst = usize::try_from(limit.burst).unwrap_or(usize::MAX).max(SMALLEST_PIECE);
        let most = if self.capabilities.stream { bytes.min(burst) } else { bytes };
        self.allowed(most).map(|()| most)
    }
}
