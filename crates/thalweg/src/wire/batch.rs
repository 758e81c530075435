//! Several samples in one datagram: after the header of a [`Kind::Batch`] stand their messages as on a stream, each with a
//! header of its own. They have one number in the flow, the batch's: they arrive, and are retransmitted, together.
//!
//! A message that follows another one closely may have a short header, if the subscriber reads those: 64 B take 72
//! instead of 96.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..2 | length | bytes that follow |
//! | 2 | sample | difference of its sample number to that of the message before |
//! | 3 | flags | bit 7 set, bit 6 not (no other header has those: of a length they would be gigabytes); the rest are bits 0 to 5 of the flags |
//! | 4..8 | stamp | nanoseconds between its publishing and that of the message before |

use super::{HEADER, Header, Kind, WireError};

/// Bytes of a short header.
pub const SHORT_HEADER: usize = 8;
/// Bits of the fourth byte, besides the flags, that mark a short header.
const SHORT: u8 = 0x80;
const SHORT_MASK: u8 = 0xc0;

/// The messages of a batch, all checked before the first is returned.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
    before: Option<Header>,
}

impl<'a> Messages<'a> {
    /// The messages of a batch with this header, none larger than `max_message`.
    ///
    /// # Errors
    /// [`WireError`]: it holds no message, or one that is not of its flow and number.
    pub fn parse(batch: &Header, payload: &'a [u8], max_message: usize) -> Result<Self, WireError> {
        let (mut rest, mut before) = (payload, None);
        loop {
            let (header, _, more) = first(rest, before.as_ref())?;
            header.check(max_message, Some(batch.flow))?;
            if header.kind != Kind::Message {
                return Err(WireError::Kind(header.kind as u8));
            }
            if header.sequence != batch.sequence {
                return Err(WireError::Batch { sequence: header.sequence, of: batch.sequence });
            }
            if more.is_empty() {
                return Ok(Self { rest: payload, before: None });
            }
            (rest, before) = (more, Some(header));
        }
    }
}

impl<'a> Messages<'a> {
    /// Messages that this end packed itself, or sent on a stream: up to one that is cut.
    pub fn of_own(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, before: None }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = (Header, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (header, message, rest) = first(self.rest, self.before.as_ref()).ok()?;
        (self.rest, self.before) = (rest, Some(header));
        Some((header, message))
    }
}

impl Header {
    /// The short header of a message behind the one with this sample and stamp. `None`: it does not follow that closely.
    #[inline]
    pub fn short(&self, sample: u64, stamp_ns: u64) -> Option<[u8; SHORT_HEADER]> {
        let [l0, l1] = u16::try_from(self.length).ok()?.to_le_bytes();
        let sample = u8::try_from(self.sample.checked_sub(sample)?).ok()?;
        let flags = u8::try_from(self.flags).ok().filter(|flags| flags & SHORT_MASK == 0)?;
        let [s0, s1, s2, s3] = u32::try_from(self.stamp_ns.checked_sub(stamp_ns)?).ok()?.to_le_bytes();
        Some([l0, l1, sample, SHORT | flags, s0, s1, s2, s3])
    }

    /// Reads a short header at the start of `bytes`, if there is one.
    #[inline]
    fn parse_short(bytes: &[u8], before: &Self) -> Option<Self> {
        let [l0, l1, sample, flags, stamp @ ..] = *bytes.first_chunk::<SHORT_HEADER>()?;
        if flags & SHORT_MASK != SHORT {
            return None;
        }
        let sample = before.sample.checked_add(sample.into())?;
        let stamp_ns = before.stamp_ns.checked_add(u32::from_le_bytes(stamp).into())?;
        let (length, flags) = (u16::from_le_bytes([l0, l1]).into(), u16::from(flags & !SHORT));
        Some(Self { length, kind: Kind::Message, flags, sample, stamp_ns, ..*before })
    }
}

/// The first message behind `before`, and the rest.
#[inline]
fn first<'a>(bytes: &'a [u8], before: Option<&Header>) -> Result<(Header, &'a [u8], &'a [u8]), WireError> {
    let (header, from) = match before.and_then(|before| Header::parse_short(bytes, before)) {
        Some(header) => (header, SHORT_HEADER),
        None => (Header::parse(bytes)?, HEADER),
    };
    let length = header.length as usize;
    match bytes[from..].split_at_checked(length) {
        Some((message, rest)) => Ok((header, message, rest)),
        None => Err(WireError::Short { length: bytes.len(), needed: from.saturating_add(length) }),
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

    /// Packs messages as a publisher does: short headers where they fit.
    fn packed_shortly(messages: &[(Header, Vec<u8>)]) -> (Vec<u8>, usize) {
        let (mut packed, mut before, mut shorts) = (packed(&messages[..1]), messages[0].0, 0);
        for (header, bytes) in &messages[1..] {
            match header.short(before.sample, before.stamp_ns) {
                Some(short) => packed.extend(short),
                None => {
                    let mut head = [0; HEADER];
                    header.emit(&mut head);
                    packed.extend(head);
                }
            }
            shorts += usize::from(header.short(before.sample, before.stamp_ns).is_some());
            packed.extend(bytes);
            before = *header;
        }
        (packed, shorts)
    }

    #[test]
    fn a_message_that_follows_closely_has_a_short_header_and_any_other_its_own() {
        let at = |sample, stamp_ns, flags| (Header { sample, stamp_ns, flags, ..message(1, &[5; 4]).0 }, vec![5; 4]);
        let messages = [
            at(10, 1000, 0),
            at(11, 1000, 0),
            at(11 + 255, 1000 + u64::from(u32::MAX), super::super::DISPOSED),
            at(11 + 255 + 256, 1 << 40, 0),           // too far
            at(5, 1 << 40, super::super::HISTORICAL), // behind
            at(6, (1 << 40) - 1, 0),                  // earlier
            at(6, (1 << 40) - 1, 0),
        ];
        let (bytes, shorts) = packed_shortly(&messages);
        assert_eq!((shorts, bytes.len()), (3, 7 * 4 + 4 * HEADER + 3 * SHORT_HEADER));
        let read: Vec<_> =
            Messages::parse(&BATCH, &bytes, 4).unwrap().map(|(header, bytes)| (header, bytes.to_vec())).collect();
        assert_eq!(read, messages);
        // The first one has a whole header, and a length is limited as in any other.
        assert!(Messages::parse(&BATCH, &bytes[HEADER + 4..], 4).is_err());
        assert_eq!(Messages::parse(&BATCH, &bytes, 3).err(), Some(WireError::Length { length: 4, limit: 3 }));
        let needed = SHORT_HEADER + 4;
        let cut = Messages::parse(&BATCH, &bytes[..bytes.len() - 1], 4).err();
        assert_eq!(cut, Some(WireError::Short { length: needed - 1, needed }));
    }

    #[test]
    fn a_message_of_another_flow_or_number_makes_a_batch_malformed() {
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
        fn packed_batches_are_read_back(samples in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..200)), 1..50)) {
            let messages: Vec<_> = samples.iter().map(|(sample, bytes)| message(*sample, bytes)).collect();
            let bytes = packed(&messages);
            for bytes in [bytes, packed_shortly(&messages).0] {
                let read: Vec<_> = Messages::parse(&BATCH, &bytes, 200).unwrap().map(|(header, bytes)| (header, bytes.to_vec())).collect();
                prop_assert_eq!(&read, &messages);
            }
        }

        #[test]
        fn any_bytes_are_refused_or_all_of_them_are_messages(
            mut bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..300, flip: u8,
        ) {
            let messages = [message(1, &[1; 40]), message(2, &[]), message(3, &[3; 9])];
            for bytes in [&mut bytes, &mut packed(&messages), &mut packed_shortly(&messages).0] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= flip;
                }
                if let Ok(messages) = Messages::parse(&BATCH, bytes, 64) {
                    let (count, read) = messages.fold((0, 0), |(count, read), (header, message)| {
                        assert!(header.kind == Kind::Message && message.len() <= 64);
                        (count + 1, read + message.len())
                    });
                    let headers = bytes.len() - read;
                    prop_assert!(headers >= HEADER + (count - 1) * SHORT_HEADER && headers <= count * HEADER);
                    prop_assert_eq!((headers - count * SHORT_HEADER) % (HEADER - SHORT_HEADER), 0);
                }
            }
        }
    }
}
