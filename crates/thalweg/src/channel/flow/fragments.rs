//! A large message leaves in fragments, as many in one call as window and pace let go.

use super::transmit::{BURST_PAUSE, Cursor, Sent, blocked};
use super::{Flow, MOST_TOGETHER};
use crate::channel::queue::Label;
use crate::wire::feedback::Datagram;
use crate::wire::{FRAGMENT_HEADER, Fragment, HEADER, Header, Kind};
use std::io::{self, IoSlice};
use std::time::Duration;

const HEAD: usize = HEADER + FRAGMENT_HEADER;

impl Flow {
    pub(super) fn transmit_fragments(&self, payload: &[u8], label: Label, cursor: &mut Cursor) -> io::Result<Sent> {
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
}

fn write_head(head: &mut [u8; HEAD], header: &Header, at: &Fragment) {
    let (first, second) = head.split_at_mut(HEADER);
    if let (Some(first), Some(second)) = (first.first_chunk_mut(), second.first_chunk_mut()) {
        header.emit(first);
        at.emit(second);
    }
}
