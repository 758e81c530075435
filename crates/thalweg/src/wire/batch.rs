//! Several samples in one datagram: after the header of a [`Kind::Batch`] stand their messages as on a stream, each with a
//! header of its own. They have one number in the flow, the batch's: they arrive, and are repeated, together.

use super::{HEADER, Header, Kind, WireError};

/// The messages of a batch. All of it was checked before the first is given.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Those of a batch with this header, none larger than `max_message`.
    ///
    /// # Errors
    /// [`WireError`]: it holds none, or something else than messages of its flow and number.
    pub fn parse(batch: &Header, payload: &'a [u8], max_message: usize) -> Result<Self, WireError> {
        let mut rest = payload;
        loop {
            let (header, _, more) = first(rest)?;
            header.check(max_message, Some(batch.flow))?;
            if header.kind != Kind::Message {
                return Err(WireError::Kind(header.kind as u8));
            }
            if header.sequence != batch.sequence {
                return Err(WireError::Batch { sequence: header.sequence, of: batch.sequence });
            }
            if more.is_empty() {
                return Ok(Self { rest: payload });
            }
            rest = more;
        }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = (Header, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (header, message, rest) = first(self.rest).ok()?;
        self.rest = rest;
        Some((header, message))
    }
}

/// The first message, and what follows it.
#[inline]
fn first(bytes: &[u8]) -> Result<(Header, &[u8], &[u8]), WireError> {
    let header = Header::parse(bytes)?;
    let length = header.length as usize;
    match bytes[HEADER..].split_at_checked(length) {
        Some((message, rest)) => Ok((header, message, rest)),
        None => Err(WireError::Short { length: bytes.len(), needed: HEADER.saturating_add(length) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BATCH: Header =
        Header { length: 0, kind: Kind::Batch, flags: 0, flow: 7, sequence: 9, sample: 1, stamp_ns: 2 };

    fn message(sample: u64, bytes: &[u8]) -> (Header, Vec<u8>) {
        (Header { length: bytes.len() as u32, kind: Kind::Message, sample, ..BATCH }, bytes.to_vec())
    }

    fn packed(messages: &[(Header, Vec<u8>)]) -> Vec<u8> {
        let mut packed = Vec::new();
        for (header, bytes) in messages {
            let mut head = [0; HEADER];
            header.emit(&mut head);
            packed.extend(head);
            packed.extend(bytes);
        }
        packed
    }

    #[test]
    fn what_is_no_message_of_its_flow_and_number_makes_it_wrong() {
        let good = message(1, &[5; 4]);
        let read = |second: &Header| {
            let bytes = packed(&[good.clone(), (*second, vec![6; 4]), good.clone()]);
            Messages::parse(&BATCH, &bytes, 4).map(Iterator::count)
        };
        assert_eq!(read(&good.0), Ok(3));
        assert_eq!(read(&Header { flow: 8, ..good.0 }), Err(WireError::Flow { found: 8, expected: 7 }));
        assert_eq!(read(&Header { sequence: 8, ..good.0 }), Err(WireError::Batch { sequence: 8, of: 9 }));
        assert_eq!(read(&Header { length: 5, ..good.0 }), Err(WireError::Length { length: 5, limit: 4 }));
        for kind in [Kind::Batch, Kind::Fragment, Kind::KeepAlive, Kind::End, Kind::Acknowledgement, Kind::Parity] {
            assert_eq!(read(&Header { kind, ..good.0 }), Err(WireError::Kind(kind as u8)));
        }
        assert_eq!(Messages::parse(&BATCH, &[], 4).err(), Some(WireError::Short { length: 0, needed: HEADER }));
        let cut = packed(&[good.clone(), good]);
        let needed = HEADER + 4;
        assert_eq!(
            Messages::parse(&BATCH, &cut[..cut.len() - 1], 4).err(),
            Some(WireError::Short { length: needed - 1, needed })
        );
    }

    proptest! {
        #[test]
        fn what_was_packed_is_read(samples in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..200)), 1..50)) {
            let messages: Vec<_> = samples.iter().map(|(sample, bytes)| message(*sample, bytes)).collect();
            let bytes = packed(&messages);
            let read: Vec<_> = Messages::parse(&BATCH, &bytes, 200).unwrap().map(|(header, bytes)| (header, bytes.to_vec())).collect();
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn any_bytes_are_refused_or_all_of_them_are_messages(
            mut bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..300, flip: u8,
        ) {
            let whole = packed(&[message(1, &[1; 40]), message(2, &[]), message(3, &[3; 9])]);
            for bytes in [&mut bytes, &mut whole.clone()] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= flip;
                }
                if let Ok(messages) = Messages::parse(&BATCH, bytes, 64) {
                    let read: usize = messages.map(|(header, message)| {
                        assert!(header.kind == Kind::Message && message.len() <= 64);
                        HEADER + message.len()
                    }).sum();
                    prop_assert_eq!(read, bytes.len());
                }
            }
        }
    }
}
