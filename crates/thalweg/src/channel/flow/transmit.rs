//! Transmission of a message: in one piece, as bytes of a stream, or in fragments, as many in one call as window and pace let go.
//! The parity pieces of a large message follow its fragments.
//!
//! The kernel is asked for the largest datagram of a flow's path when the flow opens, and again when a datagram was too large. The
//! length never grows: RFC 8899 would probe for more; here a new channel does.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use super::reliable::Kept;
use super::{Flow, MOST_BYTES_TOGETHER, MOST_TOGETHER};
use crate::channel::fragment::piece;
use crate::channel::outgoing::Outgoing;
use crate::channel::parity::Encoder;
use crate::channel::queue::Label;
use crate::channel::reliable::EXPECTED;
use crate::trace::{self, Step};
use crate::wire::feedback::Datagram;
use crate::wire::{FRAGMENT_HEADER, Fragment, HEADER, Header, Kind, Parity};
use linux::clock::monotonic_ns;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

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
                if let Err(pause) = self.keep_pace(size) {
                    return Ok(Sent::Pause(pause));
                }
                trace::step(Step::Send);
                return match self.take(&[IoSlice::new(frame)], cursor.waits) {
                    Ok(taken) if taken == size => Ok(Sent::All),
                    Ok(taken) => {
                        (cursor.taken, cursor.waits) = (taken, false);
                        self.transmit(message.payload(), label, cursor)
                    }
                    Err(error) => {
                        self.unpace(size);
                        blocked(error)
                    }
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
                Err(error) => {
                    self.unpace(most - cursor.taken);
                    return blocked(error);
                }
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
        self.keep_pace(bytes)?;
        let Some(limit) = self.settings.sending.limit else { return Ok(bytes) };
        let burst = usize::try_from(limit.burst).unwrap_or(usize::MAX).max(SMALLEST_PIECE);
        let most = if self.capabilities.stream { bytes.min(burst) } else { bytes };
        // The bucket is asked last, because it takes no bytes back.
        self.allowed(most).map(|()| most).inspect_err(|_| self.unpace(bytes))
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
    fn burst_end(&self, cursor: &Cursor) -> usize {
        match &self.kept {
            Some(kept) if kept.is_controlled() => usize::MAX,
            _ => cursor.taken + self.settings.burst.max(self.piece()),
        }
    }

    fn transmit_fragments(&self, payload: &[u8], label: Label, cursor: &mut Cursor) -> io::Result<Sent> {
        let most = self.piece();
        if cursor.taken < payload.len() {
            cursor.taken -= cursor.taken % most; // the path may take less than when it began
        }
        let burst_end = self.burst_end(cursor);
        let mut heads = [[0; HEAD]; MOST_TOGETHER];
        while cursor.taken < payload.len() {
            if cursor.taken >= burst_end {
                return Ok(Sent::Pause(BURST_PAUSE));
            }
            let count = (burst_end.min(payload.len()) - cursor.taken).div_ceil(most).min(self.together(HEAD + most));
            let header = self.header(Kind::Fragment, 0, cursor.flow_seq, label);
            let pieces = payload[cursor.taken..].chunks(most);
            let count = match self.leave_pieces(&header, cursor.taken, pieces.clone().take(count)) {
                Ok(count) => count,
                Err(pause) => return Ok(Sent::Pause(pause)),
            };
            let mut datagrams = [[IoSlice::new(&[]); 2]; MOST_TOGETHER];
            let places = heads.iter_mut().zip(&mut datagrams);
            for ((head, datagram), (index, piece)) in places.zip(pieces.clone().take(count).enumerate()) {
                let at = Fragment { offset: (cursor.taken + index * most) as u32, total: payload.len() as u32 };
                let header = Header { length: (FRAGMENT_HEADER + piece.len()) as u32, ..header };
                write_head(head, &header, &at);
                *datagram = [IoSlice::new(head), IoSlice::new(piece)];
            }
            let sent = self.send_many(&datagrams[..count]);
            let left = *sent.as_ref().unwrap_or(&0);
            for piece in pieces.clone().take(count).skip(left).rev() {
                self.left_not(HEAD + piece.len());
            }
            cursor.taken += pieces.take(left).map(<[u8]>::len).sum::<usize>();
            if let Err(error) = sent {
                return blocked(error);
            }
        }
        if self.parity.is_some() { self.transmit_parity(payload, label, cursor, burst_end) } else { Ok(Sent::All) }
    }

    /// The number of these pieces that may leave now; the first begins at `from`.
    ///
    /// # Errors
    /// If there are none: the longest time to wait.
    fn leave_pieces<'a>(
        &self,
        header: &Header,
        from: usize,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<usize, Duration> {
        let first = pieces.clone().next().map_or(0, |piece| HEAD + piece.len());
        let mut offset = from as u32;
        let count = self.leave(pieces.map(|piece| {
            let datagram = Datagram::new(header, offset);
            offset = offset.saturating_add(piece.len() as u32);
            (datagram, HEAD + piece.len())
        }))?;
        // The bucket is asked last, because it takes no bytes back. With a limit there is one piece at a time.
        self.allowed(first).inspect_err(|_| self.left_not(first))?;
        Ok(count)
    }

    /// Sends the remaining parity of a message whose fragments have left. `cursor` counts on.
    fn transmit_parity(&self, payload: &[u8], label: Label, cursor: &mut Cursor, burst_end: usize) -> io::Result<Sent> {
        let (step, fragments) = (self.piece(), payload.len().div_ceil(self.piece()));
        let count = self.settings.sending.parity.map_or(0, |parity| parity.pieces(fragments));
        let Some(mut parity) = self.parity.as_ref().filter(|_| count > 0).map(|parity| parity.lock()) else {
            return Ok(Sent::All);
        };
        let MessageParity { encoder, of, pieces } = &mut *parity;
        let before = of.replace((cursor.flow_seq, step)).filter(|(of, _)| *of == cursor.flow_seq);
        let begins = before.is_none() && cursor.taken == payload.len();
        // The message may arrive without parity. If its pieces became smaller meanwhile, the parity pieces would not fit.
        if (!begins && before != *of) || (begins && encoder.encode(payload, step, count, pieces).is_err()) {
            return Ok(Sent::All);
        }
        while let Some(rest) = pieces.get(cursor.taken - payload.len()..).filter(|rest| rest.len() >= step) {
            if cursor.taken >= burst_end {
                return Ok(Sent::Pause(BURST_PAUSE));
            }
            let index = ((cursor.taken - payload.len()) / step) as u16;
            let header = self.header(Kind::Parity, FRAGMENT_HEADER + step, cursor.flow_seq, label);
            let mut head = [0; HEADER + FRAGMENT_HEADER];
            let datagram = Datagram::new(&header, index.into());
            if let Err(pause) = self.leave(std::iter::once((datagram, head.len() + step))) {
                return Ok(Sent::Pause(pause));
            }
            // The bucket is asked last, because it takes no bytes back.
            if let Err(pause) = self.allowed(head.len() + step) {
                self.left_not(head.len() + step);
                return Ok(Sent::Pause(pause));
            }
            let (first, second) = head.split_at_mut(HEADER);
            if let (Some(first), Some(second)) = (first.first_chunk_mut(), second.first_chunk_mut()) {
                header.emit(first);
                Parity { index, count: count as u16, total: payload.len() as u32 }.emit(second);
            }
            trace::step(Step::Send);
            match self.link.send(&[IoSlice::new(&head), IoSlice::new(&rest[..step])]) {
                Ok(_) => cursor.taken += step,
                Err(error) => {
                    self.left_not(head.len() + step);
                    return blocked(error);
                }
            }
        }
        Ok(Sent::All)
    }

    /// The most bytes of a datagram of this flow.
    #[inline]
    pub(super) fn largest(&self) -> usize {
        self.largest.load(Relaxed)
    }

    /// Notes that a datagram of `bytes` did not leave. Returns `true` if the path takes less than before: then shorter datagrams
    /// leave from now on. Datagrams are never cut by IP: a lost packet would cost all of it, and many networks drop such packets
    /// (RFC 8085 §3.2, RFC 8900).
    #[cold]
    pub(super) fn look_at_size(&self, error: &io::Error, bytes: usize) -> bool {
        let too_large = error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error());
        if too_large {
            match self.link.max_datagram() {
                Some(most) if most < bytes => self.takes_only(most),
                // A datagram made before the path took less is cut into shorter ones when it is missed.
                _ if bytes <= self.largest() => self.shorten(bytes),
                _ => {}
            }
        }
        too_large
    }

    /// Shortens datagrams: those of `bytes` do not come through, and no error says how many bytes do.
    pub(super) fn shorten(&self, bytes: usize) {
        if let Some(most) = EXPECTED.into_iter().find(|most| *most < bytes) {
            self.takes_only(most);
        }
    }

    fn takes_only(&self, most: usize) {
        if self.largest.fetch_min(most, Relaxed) > most {
            self.keep_within(most);
        }
    }
}

/// Turns the error of a full socket into an outcome.
fn blocked(error: io::Error) -> io::Result<Sent> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(Sent::Blocked) } else { Err(error) }
}

fn write_head(head: &mut [u8; HEAD], header: &Header, at: &Fragment) {
    let (first, second) = head.split_at_mut(HEADER);
    if let (Some(first), Some(second)) = (first.first_chunk_mut(), second.first_chunk_mut()) {
        header.emit(first);
        at.emit(second);
    }
}

/// The parity pieces of the message that is being sent; their memory is reused.
#[derive(Debug, Default)]
pub(super) struct MessageParity {
    encoder: Encoder,
    of: Option<(u32, usize)>, // the message's flow sequence number, and bytes of a piece
    pieces: Vec<u8>,
}

/// Pause between two bursts of fragments: a receiver that is scheduled at all has emptied its buffer by then.
const BURST_PAUSE: Duration = Duration::from_millis(1);
/// The smallest piece of a large message that leaves on a stream: a packet, even if the burst is smaller.
const SMALLEST_PIECE: usize = 1500;

const HEAD: usize = HEADER + FRAGMENT_HEADER;
