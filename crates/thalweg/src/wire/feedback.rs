//! Feedback between the two ends of a reliable flow, besides messages.
//!
//! A keep-alive of a reliable flow carries in `sequence` the number of the next message, and in `sample` the oldest
//! that the publisher can still retransmit: earlier ones are no longer waited for. `stamp` is the round trip as
//! measured by the publisher, in nanoseconds (0: not yet).
//!
//! An acknowledgement, subscriber to publisher:
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | header | sequence | all messages before it arrived or were given up |
//! | header | sample, low half | the number of the newest message that arrived without being repeated |
//! | header | sample, high half | messages that were given up, counted, wraps |
//! | header | stamp | nanoseconds since it arrived |
//! | 0..4 | seen | the number after the newest message of which anything arrived |
//! | 4..8 | fresh | messages that arrived without being repeated, counted, wraps |
//! | 8.. | gaps | at most [`MOST_GAPS`] of 16 bytes: first message, number of messages, first byte, byte after the last |
//! | last 32 | receipt | if agreed at the handshake: the received part of the flow, for its congestion control |
//!
//! A receipt:
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..8 | received | bytes of all received frames of the flow, counted |
//! | 8..12 | sequence | of the last received frame |
//! | 12..16 | offset | of it, if it is a fragment; the number of a parity piece; else 0 |
//! | 16..20 | mark | its kind; bit 8: it was retransmitted |
//! | 20..24 | ago | nanoseconds since its arrival, at most 2³² − 1 |
//! | 24..32 | window | bytes of messages that the subscriber accepts beyond those delivered |

use super::{FRAGMENT_HEADER, HEADER, Header, Kind, REPAIR, WireError, read_u32, read_u64};

/// Bytes in front of the gaps.
pub const HEAD: usize = 8;
/// Bytes of a gap.
pub const GAP: usize = 16;
/// Gaps of one acknowledgement.
pub const MOST_GAPS: usize = 64;
/// Bytes of a receipt.
pub const RECEIPT: usize = 32;
/// The longest acknowledgement, with its header.
pub const LONGEST: usize = HEADER + HEAD + MOST_GAPS * GAP + RECEIPT;

/// A datagram of a flow. A retransmission is another datagram than the original; two retransmissions of the same
/// bytes are not distinguished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagram {
    /// Its message's number.
    pub sequence: u32,
    /// Offset of its bytes in the message, or the number of a parity piece.
    pub offset: u32,
    /// Kind of its frame; bit 8: it was retransmitted.
    pub mark: u32,
}

impl Datagram {
    /// A frame with this header whose bytes begin at `offset`.
    pub fn new(header: &Header, offset: u32) -> Self {
        let repeats = if header.flags & REPAIR != 0 { REPEATS } else { 0 };
        Self { sequence: header.sequence, offset, mark: u32::from(header.kind as u8) | repeats }
    }

    /// The frame that a datagram has after its header.
    pub fn of(header: &Header, payload: &[u8]) -> Self {
        let offset = match header.kind {
            Kind::Fragment if payload.len() >= FRAGMENT_HEADER => read_u32(payload, 0..4),
            Kind::Parity if payload.len() >= FRAGMENT_HEADER => read_u32(payload, 0..4) & 0xffff,
            _ => 0,
        };
        Self::new(header, offset)
    }

    /// `true` if several datagrams of a flow may have this name: retransmits of the same bytes, and keep-alives.
    pub fn may_repeat(&self) -> bool {
        self.mark & REPEATS != 0 || self.mark == u32::from(Kind::KeepAlive as u8)
    }
}

/// The bit of [`Datagram::mark`] of a retransmit.
pub const REPEATS: u32 = 1 << 8;

/// The received part of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Bytes of all its frames, with their headers, including dropped ones.
    pub received: u64,
    /// The last received one.
    pub newest: Datagram,
    /// Nanoseconds since its arrival.
    pub ago_ns: u32,
    /// Bytes of messages that the subscriber accepts beyond those delivered.
    pub window: u64,
}

impl Receipt {
    fn parse(bytes: &[u8; RECEIPT]) -> Self {
        let newest = Datagram {
            sequence: read_u32(bytes, 8..12),
            offset: read_u32(bytes, 12..16),
            mark: read_u32(bytes, 16..20),
        };
        let (received, window) = (read_u64(bytes, 0..8), read_u64(bytes, 24..32));
        Self { received, newest, ago_ns: read_u32(bytes, 20..24), window }
    }

    fn emit(&self) -> [u8; RECEIPT] {
        let Datagram { sequence, offset, mark } = self.newest;
        let mut bytes = [0; RECEIPT];
        bytes[..8].copy_from_slice(&self.received.to_le_bytes());
        let fields = [sequence, offset, mark, self.ago_ns];
        bytes[8..24].as_chunks_mut::<4>().0.iter_mut().zip(fields).for_each(|(out, value)| *out = value.to_le_bytes());
        bytes[24..].copy_from_slice(&self.window.to_le_bytes());
        bytes
    }
}

/// Messages that are missing, or bytes of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first that is missing.
    pub first: u32,
    /// The number of messages, at least 1.
    pub count: u32,
    /// The first missing byte, for a single message.
    pub from: u32,
    /// The byte after the last. 0: whole messages are missing, or the publisher knows the length.
    pub to: u32,
}

impl Gap {
    /// Whole messages.
    pub fn messages(first: u32, count: u32) -> Self {
        Self { first, count, from: 0, to: 0 }
    }

    fn check(self) -> Result<Self, WireError> {
        let Self { count, from, to, .. } = self;
        let whole = from == 0 && to == 0;
        if count > 0 && (whole || (count == 1 && from < to)) {
            Ok(self)
        } else {
            Err(WireError::Gap { count, from, to })
        }
    }
}

/// Messages that a subscriber has and misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement<'a> {
    /// The number after the newest message of which anything arrived.
    pub seen: u32,
    /// Messages that arrived without a retransmit.
    pub fresh: u32,
    /// The received part of the flow, if agreed.
    pub receipt: Option<Receipt>,
    gaps: &'a [u8],
}

impl<'a> Acknowledgement<'a> {
    /// Reads the payload behind the header; every gap was checked.
    ///
    /// # Errors
    /// [`WireError::Short`] if it is cut, [`WireError::Length`] with too many gaps, [`WireError::Gap`].
    pub fn parse(payload: &'a [u8]) -> Result<Self, WireError> {
        Self::gaps_of(payload, None)
    }

    /// Reads the payload of a flow whose acknowledgements end with a receipt.
    ///
    /// # Errors
    /// As [`Acknowledgement::parse`].
    pub fn parse_with_receipt(payload: &'a [u8]) -> Result<Self, WireError> {
        let Some((rest, receipt)) = payload.split_last_chunk::<RECEIPT>() else {
            return Err(WireError::Short { length: payload.len(), needed: HEAD + RECEIPT });
        };
        Self::gaps_of(rest, Some(Receipt::parse(receipt)))
    }

    fn gaps_of(payload: &'a [u8], receipt: Option<Receipt>) -> Result<Self, WireError> {
        let length = payload.len();
        if length > HEAD + MOST_GAPS * GAP {
            return Err(WireError::Length { length: length as u32, limit: (HEAD + MOST_GAPS * GAP) as u32 });
        }
        let Some((head, gaps)) = payload.split_first_chunk::<HEAD>().filter(|(_, gaps)| gaps.len().is_multiple_of(GAP))
        else {
            return Err(WireError::Short { length, needed: HEAD + length.saturating_sub(HEAD).next_multiple_of(GAP) });
        };
        let this = Self { seen: read_u32(head, 0..4), fresh: read_u32(head, 4..8), receipt, gaps };
        this.gaps().try_for_each(|gap| gap.check().map(drop))?;
        Ok(this)
    }

    /// The missing messages.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> + 'a {
        self.gaps.chunks_exact(GAP).map(|bytes| Gap {
            first: read_u32(bytes, 0..4),
            count: read_u32(bytes, 4..8),
            from: read_u32(bytes, 8..12),
            to: read_u32(bytes, 12..16),
        })
    }
}

/// An acknowledgement being written, in memory that is used again.
#[derive(Debug)]
pub struct Writer {
    bytes: Box<[u8; LONGEST]>,
    gaps: usize,
}

impl Default for Writer {
    fn default() -> Self {
        Self { bytes: Box::new([0; LONGEST]), gaps: 0 }
    }
}

impl Writer {
    /// Starts again without gaps.
    pub fn clear(&mut self) {
        self.gaps = 0;
    }

    /// `true` if no gap was added.
    pub fn is_empty(&self) -> bool {
        self.gaps == 0
    }

    /// Adds a gap; one that continues the last is joined to it. `false`: no room, nothing was added.
    pub fn push(&mut self, gap: Gap) -> bool {
        if self.join(gap) {
            return true;
        }
        if self.gaps == MOST_GAPS {
            return false;
        }
        self.gaps += 1;
        let fields = [gap.first, gap.count, gap.from, gap.to];
        self.last().as_chunks_mut::<4>().0.iter_mut().zip(fields).for_each(|(out, value)| *out = value.to_le_bytes());
        true
    }

    /// Writes the part in front of the gaps, and returns the whole datagram. `header` has everything but kind and
    /// length.
    #[cfg(any(test, feature = "testing"))]
    pub fn finish(&mut self, header: Header, seen: u32, fresh: u32) -> &[u8] {
        self.finish_with(header, seen, fresh, None)
    }

    /// The same, with a receipt where that was agreed.
    pub fn finish_with(&mut self, header: Header, seen: u32, fresh: u32, receipt: Option<&Receipt>) -> &[u8] {
        let gaps_end = HEADER + HEAD + self.gaps * GAP;
        if let Some(receipt) = receipt {
            self.bytes[gaps_end..gaps_end + RECEIPT].copy_from_slice(&receipt.emit());
        }
        let length = gaps_end - HEADER + receipt.map_or(0, |_| RECEIPT);
        let header = Header { kind: Kind::Acknowledgement, length: length as u32, ..header };
        if let Some(room) = self.bytes.first_chunk_mut::<HEADER>() {
            header.emit(room);
        }
        self.bytes[HEADER..HEADER + 4].copy_from_slice(&seen.to_le_bytes());
        self.bytes[HEADER + 4..HEADER + HEAD].copy_from_slice(&fresh.to_le_bytes());
        &self.bytes[..HEADER + length]
    }

    fn join(&mut self, gap: Gap) -> bool {
        if self.gaps == 0 || gap.to != 0 {
            return false;
        }
        let last = self.last();
        let (first, count, to) = (read_u32(last, 0..4), read_u32(last, 4..8), read_u32(last, 12..16));
        let joins = to == 0 && first.wrapping_add(count) == gap.first;
        if joins {
            last[4..8].copy_from_slice(&(count + gap.count).to_le_bytes());
        }
        joins
    }

    fn last(&mut self) -> &mut [u8] {
        let end = HEADER + HEAD + self.gaps * GAP;
        &mut self.bytes[end - GAP..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::datagram;
    use proptest::prelude::*;

    fn head(sequence: u32) -> Header {
        Header { length: 0, kind: Kind::KeepAlive, flags: 0, flow: 7, sequence, sample: 11, stamp_ns: 12 }
    }

    fn gap() -> impl Strategy<Value = Gap> {
        let whole = (any::<u32>(), 1u32..1000).prop_map(|(first, count)| Gap::messages(first, count));
        let part = (any::<u32>(), 0u32..1000, 1u32..1000);
        prop_oneof![whole, part.prop_map(|(first, from, more)| Gap { first, count: 1, from, to: from + more })]
    }

    #[test]
    fn a_gap_that_names_nothing_is_refused_and_a_cut_one_is_short() {
        let with = |fields: [u32; 4]| {
            let mut bytes = vec![0; HEAD];
            fields.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            Acknowledgement::parse(&bytes).map(|_| ())
        };
        assert_eq!(with([1, 0, 0, 0]), Err(WireError::Gap { count: 0, from: 0, to: 0 }));
        assert_eq!(with([1, 2, 0, 5]), Err(WireError::Gap { count: 2, from: 0, to: 5 }));
        assert_eq!(with([1, 1, 5, 5]), Err(WireError::Gap { count: 1, from: 5, to: 5 }));
        assert_eq!((with([1, 2, 0, 0]), with([1, 1, 0, 5])), (Ok(()), Ok(())));
        assert_eq!(Acknowledgement::parse(&[0; 7]).err(), Some(WireError::Short { length: 7, needed: 8 }));
        assert_eq!(Acknowledgement::parse(&[0; 30]).err(), Some(WireError::Short { length: 30, needed: 40 }));
        assert!(matches!(Acknowledgement::parse(&[1; LONGEST]), Err(WireError::Length { .. })));
        assert_eq!(
            Acknowledgement::parse_with_receipt(&[0; 31]).err(),
            Some(WireError::Short { length: 31, needed: HEAD + RECEIPT })
        );
    }

    #[test]
    fn a_receipt_stands_behind_as_many_gaps_as_there_may_be() {
        let newest = Datagram { sequence: 7, offset: 0xfedc_ba98, mark: 0x102 };
        let receipt = Receipt { received: u64::MAX - 1, newest, ago_ns: 5, window: 1 << 40 };
        for gaps in [0, 1, MOST_GAPS] {
            let mut writer = Writer::default();
            (0..gaps as u32).for_each(|n| assert!(writer.push(Gap { first: n, count: 1, from: n, to: n + 1 })));
            let bytes = writer.finish_with(head(1), 2, 3, Some(&receipt)).to_vec();
            let (_, payload) = datagram(&bytes, LONGEST, Some(7)).unwrap();
            let read = Acknowledgement::parse_with_receipt(payload).unwrap();
            assert_eq!((read.receipt, read.gaps().count(), read.seen, read.fresh), (Some(receipt), gaps, 2, 3));
        }
    }

    #[test]
    fn a_datagram_is_named_by_its_frame() {
        let header = Header { kind: Kind::Fragment, flags: REPAIR, ..head(9) };
        let named = Datagram::of(&header, &[1, 1, 0, 0, 9, 9, 9, 9, 5]);
        assert_eq!(named, Datagram { sequence: 9, offset: 257, mark: 0x102 });
        assert_eq!(Datagram::of(&header, &[1]), Datagram { offset: 0, ..named });
    }

    #[test]
    fn gaps_that_follow_each_other_are_one() {
        let mut writer = Writer::default();
        assert!(writer.push(Gap::messages(u32::MAX, 1)) && writer.push(Gap::messages(0, 2)));
        assert!(writer.push(Gap { first: 2, count: 1, from: 0, to: 9 }) && writer.push(Gap::messages(3, 1)));
        let bytes = writer.finish(head(0), 0, 0).to_vec();
        let (_, payload) = datagram(&bytes, LONGEST, Some(7)).unwrap();
        let gaps: Vec<_> = Acknowledgement::parse(payload).unwrap().gaps().collect();
        let part = Gap { first: 2, count: 1, from: 0, to: 9 };
        assert_eq!(gaps, [Gap::messages(u32::MAX, 3), part, Gap::messages(3, 1)]);
    }

    proptest! {
        #[test]
        fn written_feedback_is_read_back(gaps in prop::collection::vec(gap(), 0..90), sequence: u32, seen: u32, fresh: u32) {
            let mut writer = Writer::default();
            let mut model: Vec<Gap> = Vec::new();
            for gap in gaps {
                let joins = model.last().is_some_and(|l| l.to == 0 && gap.to == 0 && l.first.wrapping_add(l.count) == gap.first);
                prop_assert_eq!(writer.push(gap), joins || model.len() < MOST_GAPS);
                let room = model.len() < MOST_GAPS;
                match model.last_mut() {
                    Some(last) if joins => last.count += gap.count,
                    _ if room => model.push(gap),
                    _ => {}
                }
            }
            let bytes = writer.finish(head(sequence), seen, fresh).to_vec();
            let (header, payload) = datagram(&bytes, LONGEST, Some(7)).unwrap();
            prop_assert_eq!((header.kind, header.sequence, header.sample), (Kind::Acknowledgement, sequence, 11));
            let read = Acknowledgement::parse(payload).unwrap();
            prop_assert_eq!((read.seen, read.fresh), (seen, fresh));
            prop_assert_eq!(read.gaps().collect::<Vec<_>>(), model);
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            for read in [Acknowledgement::parse(&bytes), Acknowledgement::parse_with_receipt(&bytes)].into_iter().flatten() {
                prop_assert!(read.gaps().count() <= MOST_GAPS && read.gaps().all(|gap| gap.count > 0));
            }
        }
    }
}
