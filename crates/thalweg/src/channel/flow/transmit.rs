//! Transmission of a message: in one piece, as bytes of a stream, or in fragments (`fragments`).

use super::reliable::Kept;
use super::{Flow, MOST_BYTES_TOGETHER, MOST_TOGETHER};
use crate::channel::fragment::piece;
use crate::channel::outgoing::Outgoing;
use crate::channel::queue::Label;
use crate::trace::{self, Step};
use crate::wire::{HEADER, Header, Kind};
use linux::clock::monotonic_ns;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Pause between two bursts of fragments: a receiver that is scheduled at all has emptied its buffer by then.
pub(super) const BURST_PAUSE: Duration = Duration::from_millis(1);
/// The smallest piece of a large message that leaves on a stream: a packet, even if the burst is smaller.
const SMALLEST_PIECE: usize = 1500;

/// Progress of one message.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    pub flow_seq: u32,
    /// Stream: bytes of header and payload taken. Datagrams: payload bytes sent in fragments.
    pub taken: usize,
    /// The carrier itself may wait for room, up to the channel's patience: the publishing thread under `block`.
    pub waits: bool,
}

/// The outcome of sending.
pub(super) enum Sent {
    All,
    Blocked,
    Pause(Duration),
}

impl Flow {
    pub(super) fn transmit_outgoing(&self, message: &mut Outgoing<'_>, cursor: &mut Cursor) -> io::Result<Sent> {
        let label = message.label();
        if cursor.taken == 0 && message.payload().len() <= self.largest_payload() {
            let header = self.header(Kind::Message, message.payload().len(), cursor.flow_seq, label);
            if let Some(frame) = message.frame_mut() {
                // One contiguous piece, one send: the common case.
                if let Some(room) = frame.first_chunk_mut::<HEADER>() {
                    header.emit(room);
                }
                let size = frame.len();
                trace::step(Step::Send);
                return match self.take(&[IoSlice::new(frame)], cursor.waits) {
                    Ok(taken) if taken == size => Ok(Sent::All),
                    Ok(taken) => {
                        (cursor.taken, cursor.waits) = (taken, false);
                        self.transmit(message.payload(), label, cursor)
                    }
                    Err(error) => blocked(error),
                };
            }
        }
        self.transmit(message.payload(), label, cursor)
    }

    /// Sends the rest of a message after `cursor`.
    pub(super) fn transmit(&self, payload: &[u8], label: Label, cursor: &mut Cursor) -> io::Result<Sent> {
        if payload.len() > self.largest_payload() {
            return self.transmit_fragments(payload, label, cursor);
        }
        let mut header = [0; HEADER];
        self.header(Kind::Message, payload.len(), cursor.flow_seq, label).emit(&mut header);
        let total = HEADER + payload.len();
        while cursor.taken < total {
            let most = match self.allowance(total - cursor.taken) {
                Ok(most) => cursor.taken + most,
                Err(pause) => return Ok(Sent::Pause(pause)),
            };
            let left = &header[cursor.taken.min(HEADER)..most.min(HEADER)];
            let rest = &payload[cursor.taken.saturating_sub(HEADER)..most.saturating_sub(HEADER)];
            let parts = [IoSlice::new(left), IoSlice::new(rest)];
            let parts = if left.is_empty() { &parts[1..] } else { &parts[..] };
            trace::step(Step::Send);
            match self.take(parts, cursor.waits) {
                // A send that waits and takes only a part has used up the patience: the rest is sent without waiting.
                Ok(taken) => (cursor.taken, cursor.waits) = (cursor.taken + taken, false),
                Err(error) => return blocked(error),
            }
        }
        Ok(Sent::All)
    }

    pub(super) fn take(&self, parts: &[IoSlice<'_>], waits: bool) -> io::Result<usize> {
        let taken = if waits { self.link.send_waiting(parts) } else { self.link.send(parts) };
        if let (Some(unacknowledged), Ok(taken)) = (&self.unacknowledged, &taken) {
            unacknowledged.lock().sent(parts, *taken, || self.link.outstanding());
        }
        taken
    }

    pub(super) fn send_many(&self, datagrams: &[[IoSlice<'_>; 2]]) -> io::Result<usize> {
        trace::step(Step::Send);
        self.link.send_many(datagrams)
    }

    pub(super) fn header(&self, kind: Kind, length: usize, flow_seq: u32, label: Label) -> Header {
        trace::step(Step::Emit);
        self.header_of(kind, length, flow_seq, label)
    }

    pub(super) fn header_of(&self, kind: Kind, length: usize, flow_seq: u32, label: Label) -> Header {
        Header {
            length: length as u32,
            kind,
            flags: self.kept.as_ref().map_or(0, Kept::flags) | label.flags(),
            flow: self.settings.id,
            sequence: flow_seq,
            sample: label.seq,
            stamp_ns: label.stamp,
        }
    }

    /// Checks whether the limit of the flow lets this many bytes leave now, as one piece. On a flow with a limit the publishing thread
    /// sends no message, and its sender thread asks a token bucket before each send (Velox §3.3.2: the flow controller limits the rate,
    /// buffers the excess, throttles bursts and fragments, coalesces).
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
    fn allowance(&self, bytes: usize) -> Result<usize, Duration> {
        let Some(limit) = self.settings.sending.limit else { return Ok(bytes) };
        let burst = usize::try_from(limit.burst).unwrap_or(usize::MAX).max(SMALLEST_PIECE);
        let most = if self.capabilities.stream { bytes.min(burst) } else { bytes };
        self.allowed(most).map(|()| most)
    }

    /// Bytes of a large message in each of its datagrams.
    pub(super) fn piece(&self) -> usize {
        piece(self.largest())
    }

    /// The number of datagrams of this length that may leave in one call. A reserved rate is kept datagram by datagram, because
    /// urgent packets of other flows wait for all datagrams of one call.
    pub(super) fn together(&self, bytes: usize) -> usize {
        let reserved = self.bucket.is_some() || self.pace.load(Relaxed) > 0;
        if reserved { 1 } else { (MOST_BYTES_TOGETHER / bytes.max(1)).clamp(1, MOST_TOGETHER) }
    }

    fn largest_payload(&self) -> usize {
        self.largest().saturating_sub(HEADER)
    }

    /// The byte at which fragments of a message pause. A flow with a window has no such pause.
    pub(super) fn burst_end(&self, cursor: &Cursor) -> usize {
        match &self.kept {
            Some(kept) if kept.is_controlled() => usize::MAX,
            _ => cursor.taken + self.burst().max(self.piece()),
        }
    }

    /// Bytes of fragments that leave without a pause.
    fn burst(&self) -> usize {
        let paced = self.pace.load(Relaxed) / (1_000_000_000 / BURST_PAUSE.as_nanos() as u64);
        if paced == 0 { self.settings.burst } else { self.settings.burst.min(paced as usize) }
    }
}

/// Turns the error of a full socket into an outcome.
pub(super) fn blocked(error: io::Error) -> io::Result<Sent> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(Sent::Blocked) } else { Err(error) }
}
