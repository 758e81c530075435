//! The parity pieces of a large message: they follow its fragments.

use super::Flow;
use super::transmit::{BURST_PAUSE, Cursor, Sent, blocked};
use crate::channel::parity::Encoder;
use crate::channel::queue::Label;
use crate::trace::{self, Step};
use crate::wire::feedback::Datagram;
use crate::wire::{FRAGMENT_HEADER, HEADER, Kind, Parity};
use std::io::{self, IoSlice};

/// The parity pieces of the message that is being sent; their memory is reused.
#[derive(Debug, Default)]
pub(super) struct MessageParity {
    encoder: Encoder,
    of: Option<(u32, usize)>, // the message's flow sequence number, and bytes of a piece
    pieces: Vec<u8>,
}

impl Flow {
    /// Sends the remaining parity of a message whose fragments have left. `cursor` counts on.
    pub(super) fn transmit_parity(
        &self,
        payload: &[u8],
        label: Label,
        cursor: &mut Cursor,
        burst_end: usize,
    ) -> io::Result<Sent> {
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
}
