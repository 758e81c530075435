//! The data frame: every byte that travels on a carrier, in one file (steps 5 and 8 of the data path).
//!
//! A frame is a 32-byte little-endian header and its payload:
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0..4 | length | bytes that follow the header (for a fragment or parity: its own 8-byte header included) |
//! | 4 | kind | 1 whole message, 2 fragment, 3 keep-alive, 4 end, 5 acknowledgement, 6 parity, 7 batch |
//! | 5 | version | [`VERSION`] |
//! | 6..8 | flags | bit 0 ends a batch (reserved); bit 1: retransmitted; bit 2 asks; bits 3 and 4: the instance is disposed, unregistered; bit 5: historical; all others are 0 |
//! | 8..12 | flow | random id agreed at the handshake |
//! | 12..16 | sequence | dense per flow, wraps; keep-alive and end carry the number the next message frame will have |
//! | 16..24 | sample | sample sequence of the publisher |
//! | 24..32 | stamp | nanoseconds of the publisher's `CLOCK_MONOTONIC` |
//!
//! [`feedback`] describes the content of a reliable flow's keep-alives and acknowledgements.
//!
//! A batch is a datagram with several messages ([`Messages`]); no stream has one.
//!
//! On a byte stream frames follow each other and [`StreamParser`] cuts them; a datagram holds exactly one ([`datagram`]).

use std::fmt;
use std::ops::Range;

mod batch;
pub mod feedback;
mod stream;
#[cfg(test)]
mod tests;

pub use batch::{Messages, SHORT_HEADER};
#[cfg(any(test, feature = "testing"))]
pub use stream::FrameRef;
pub use stream::{INITIAL, StreamParser};

/// The version of the frame format that this library speaks.
pub const VERSION: u8 = 1;
/// Bytes of a header.
pub const HEADER: usize = 32;
/// Bytes of the fragment header that follows the header of a fragment.
pub const FRAGMENT_HEADER: usize = 8;
/// Largest datagram.
pub const LONGEST_DATAGRAM: usize = 65_535;
/// Flag bit 0: the fragment is a part of a [`Kind::Batch`].
pub const OF_BATCH: u16 = 1;
/// Flag bit 1: the frame is a retransmit (reliable flows).
pub const REPAIR: u16 = 2;
/// Flag bit 2: to a subscriber, acknowledge at once; in an acknowledgement, its gaps are all there are (reliable flows).
pub const ASK: u16 = 4;
/// Flag bit 3: the sample's instance is no more.
pub const DISPOSED: u16 = 8;
/// Flag bit 4: the publisher withdraws from the sample's instance.
pub const UNREGISTERED: u16 = 16;
/// Flag bit 5: the sample comes from a history, and later ones were sent before: a relay passes on samples that
/// reached it so.
pub const HISTORICAL: u16 = 32;
/// All flag bits that have a meaning.
const FLAGS: u16 = OF_BATCH | REPAIR | ASK | DISPOSED | UNREGISTERED | HISTORICAL;

mod field {
    use std::ops::Range;
    pub(super) const LENGTH: Range<usize> = 0..4;
    pub(super) const KIND: usize = 4;
    pub(super) const VERSION: usize = 5;
    pub(super) const FLAGS: Range<usize> = 6..8;
    pub(super) const FLOW: Range<usize> = 8..12;
    pub(super) const SEQUENCE: Range<usize> = 12..16;
    pub(super) const SAMPLE: Range<usize> = 16..24;
    pub(super) const STAMP: Range<usize> = 24..32;
    pub(super) const FRAGMENT_OFFSET: Range<usize> = 0..4;
    pub(super) const FRAGMENT_TOTAL: Range<usize> = 4..8;
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A whole message.
    Message = 1,
    /// A part of a message; a [`Fragment`] stands in front of its bytes.
    Fragment = 2,
    /// A heartbeat.
    KeepAlive = 3,
    /// The publisher closed in order; no frame follows.
    End = 4,
    /// Messages that a subscriber has and misses: [`feedback::Acknowledgement`].
    Acknowledgement = 5,
    /// Parity in place of lost fragments of a message; a [`Parity`] header stands in front of its bytes.
    Parity = 6,
    /// Several messages of one number in one datagram: [`Messages`].
    Batch = 7,
}

impl Kind {
    fn parse(value: u8) -> Result<Self, WireError> {
        match value {
            1 => Ok(Kind::Message),
            2 => Ok(Kind::Fragment),
            3 => Ok(Kind::KeepAlive),
            4 => Ok(Kind::End),
            5 => Ok(Kind::Acknowledgement),
            6 => Ok(Kind::Parity),
            7 => Ok(Kind::Batch),
            _ => Err(WireError::Kind(value)),
        }
    }
}

/// The malformed field of a frame, with its value. The flow ends: frames after a malformed one cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// A version this library doesn't speak.
    Version(u8),
    /// No known kind.
    Kind(u8),
    /// Reserved flag bits are set (all flags as found).
    Flags(u16),
    /// The frame announces more bytes than the limit.
    Length {
        /// The length in the header.
        length: u32,
        /// The most that this receiver takes (`max_message` of the port, for a fragment 8 bytes more).
        limit: u32,
    },
    /// A frame of another flow.
    Flow {
        /// The value in the header.
        found: u32,
        /// The value agreed at the handshake.
        expected: u32,
    },
    /// A datagram (or a fragment) with fewer bytes than it needs.
    Short {
        /// Received bytes.
        length: usize,
        /// Bytes that were needed.
        needed: usize,
    },
    /// A fragment that doesn't lie inside its message.
    Fragment {
        /// The offset of its start.
        offset: u32,
        /// Its length.
        length: usize,
        /// Length of the whole message.
        total: u32,
    },
    /// A message with another number than its batch.
    Batch {
        /// Its number.
        sequence: u32,
        /// The number of the batch.
        of: u32,
    },
    /// A gap of an acknowledgement that names no message.
    Gap {
        /// Messages it names.
        count: u32,
        /// First byte.
        from: u32,
        /// Byte after the last.
        to: u32,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Version(v) => write!(f, "frame version {v}, this library speaks {VERSION}"),
            Self::Kind(k @ 1..=7) => write!(f, "frame kind {k} does not belong on this carrier"),
            Self::Kind(k) => write!(f, "frame kind {k} is none of 1 to 7"),
            Self::Flags(bits) => write!(f, "reserved flags are set: {bits:#06x}"),
            Self::Length { length, limit } => {
                write!(f, "a frame of {length} bytes is over the limit of {limit} (raise max_message of the port)")
            }
            Self::Flow { found, expected } => write!(f, "flow id {found:#010x}, the handshake agreed {expected:#010x}"),
            Self::Short { length, needed } => write!(f, "a frame of {length} bytes where {needed} were needed"),
            Self::Fragment { offset, length, total } => {
                write!(f, "a fragment of {length} bytes at {offset} doesn't lie inside its message of {total}")
            }
            Self::Batch { sequence, of } => write!(f, "a message numbered {sequence} in a batch numbered {of}"),
            Self::Gap { count, from, to } => write!(f, "a gap of {count} messages, bytes {from} to {to}, is none"),
        }
    }
}

impl std::error::Error for WireError {}

impl From<WireError> for std::io::Error {
    fn from(e: WireError) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, e)
    }
}

/// The header of a frame, in the order of its bytes (kind and flags as values; the version is always [`VERSION`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes that follow the header.
    pub length: u32,
    /// The kind of frame.
    pub kind: Kind,
    /// Flag bits.
    pub flags: u16,
    /// Flow id.
    pub flow: u32,
    /// Number of the frame in its flow.
    pub sequence: u32,
    /// Number of the sample at its publisher.
    pub sample: u64,
    /// Time of publication, on the publisher's monotonic clock.
    pub stamp_ns: u64,
}

impl Header {
    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER]) {
        out[field::LENGTH].copy_from_slice(&self.length.to_le_bytes());
        out[field::KIND] = self.kind as u8;
        out[field::VERSION] = VERSION;
        out[field::FLAGS].copy_from_slice(&self.flags.to_le_bytes());
        out[field::FLOW].copy_from_slice(&self.flow.to_le_bytes());
        out[field::SEQUENCE].copy_from_slice(&self.sequence.to_le_bytes());
        out[field::SAMPLE].copy_from_slice(&self.sample.to_le_bytes());
        out[field::STAMP].copy_from_slice(&self.stamp_ns.to_le_bytes());
    }

    /// Reads the header at the start of `bytes`. [`Header::check`] checks what depends on the receiver.
    ///
    /// # Errors
    /// [`WireError`] with the first wrong field, the version first: nothing else has a meaning in an unknown version.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let Some(bytes) = bytes.first_chunk::<HEADER>() else {
            return Err(WireError::Short { length: bytes.len(), needed: HEADER });
        };
        if bytes[field::VERSION] != VERSION {
            return Err(WireError::Version(bytes[field::VERSION]));
        }
        let kind = Kind::parse(bytes[field::KIND])?;
        let flags = u16::from_le_bytes([bytes[field::FLAGS.start], bytes[field::FLAGS.start + 1]]);
        if flags & !FLAGS != 0 {
            return Err(WireError::Flags(flags));
        }
        Ok(Self {
            length: read_u32(bytes, field::LENGTH),
            kind,
            flags,
            flow: read_u32(bytes, field::FLOW),
            sequence: read_u32(bytes, field::SEQUENCE),
            sample: read_u64(bytes, field::SAMPLE),
            stamp_ns: read_u64(bytes, field::STAMP),
        })
    }

    /// Checks the limits of the handshake: no more than `max_message` bytes of payload, and the agreed `flow` if
    /// there is one.
    ///
    /// # Errors
    /// [`WireError::Length`] or [`WireError::Flow`].
    #[inline]
    pub fn check(&self, max_message: usize, flow: Option<u32>) -> Result<(), WireError> {
        if let Some(expected) = flow.filter(|expected| *expected != self.flow) {
            return Err(WireError::Flow { found: self.flow, expected });
        }
        let limit = match self.kind {
            Kind::Fragment if self.flags & OF_BATCH != 0 => LONGEST_DATAGRAM - HEADER,
            Kind::Fragment | Kind::Parity => max_message.saturating_add(FRAGMENT_HEADER),
            Kind::Batch => LONGEST_DATAGRAM - HEADER, // `max_message` is for each of its messages
            _ => max_message,
        };
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        if self.length > limit {
            return Err(WireError::Length { length: self.length, limit });
        }
        Ok(())
    }
}

/// Place of a fragment in its message: the 8 bytes that follow the header of a [`Kind::Fragment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Offset of its first byte.
    pub offset: u32,
    /// Length of the whole message.
    pub total: u32,
}

impl Fragment {
    /// Writes the fragment header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; FRAGMENT_HEADER]) {
        out[field::FRAGMENT_OFFSET].copy_from_slice(&self.offset.to_le_bytes());
        out[field::FRAGMENT_TOTAL].copy_from_slice(&self.total.to_le_bytes());
    }

    /// Reads the fragment header and returns it with the fragment's own bytes.
    ///
    /// # Errors
    /// [`WireError::Short`] without 8 bytes, [`WireError::Fragment`] if it doesn't lie inside its message.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let Some((head, rest)) = bytes.split_first_chunk::<FRAGMENT_HEADER>() else {
            return Err(WireError::Short { length: bytes.len(), needed: FRAGMENT_HEADER });
        };
        let (offset, total) = (read_u32(head, field::FRAGMENT_OFFSET), read_u32(head, field::FRAGMENT_TOTAL));
        if offset as usize + rest.len() > total as usize {
            return Err(WireError::Fragment { offset, length: rest.len(), total });
        }
        Ok((Self { offset, total }, rest))
    }
}

/// Number of a parity piece of a message: the 8 bytes that follow the header of a [`Kind::Parity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity {
    /// Its number, from 0.
    pub index: u16,
    /// The number of pieces.
    pub count: u16,
    /// Length of the whole message.
    pub total: u32,
}

impl Parity {
    /// Writes the parity header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; FRAGMENT_HEADER]) {
        out[0..2].copy_from_slice(&self.index.to_le_bytes());
        out[2..4].copy_from_slice(&self.count.to_le_bytes());
        out[field::FRAGMENT_TOTAL].copy_from_slice(&self.total.to_le_bytes());
    }

    /// Reads the parity header and returns it with the piece.
    ///
    /// # Errors
    /// [`WireError::Short`] without 8 bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let Some((head, rest)) = bytes.split_first_chunk::<FRAGMENT_HEADER>() else {
            return Err(WireError::Short { length: bytes.len(), needed: FRAGMENT_HEADER });
        };
        let (index, count) = (u16::from_le_bytes([head[0], head[1]]), u16::from_le_bytes([head[2], head[3]]));
        Ok((Self { index, count, total: read_u32(head, field::FRAGMENT_TOTAL) }, rest))
    }
}

/// The length of the frame at the start of `bytes`, from its unchecked header. `None`: there is no header.
#[inline]
pub fn frame_length(bytes: &[u8]) -> Option<usize> {
    bytes.get(..HEADER).map(|header| HEADER.saturating_add(read_u32(header, field::LENGTH) as usize))
}

/// Reads a datagram: one frame, no less and no more. `flow` as for [`Header::check`].
///
/// # Errors
/// [`WireError`]; the datagram is dropped and counted, the flow continues (any sender can send a datagram).
#[inline]
pub fn datagram(bytes: &[u8], max_message: usize, flow: Option<u32>) -> Result<(Header, &[u8]), WireError> {
    let header = Header::parse(bytes)?;
    header.check(max_message, flow)?;
    let payload = &bytes[HEADER..];
    if payload.len() != header.length as usize {
        return Err(WireError::Short { length: bytes.len(), needed: HEADER + header.length as usize });
    }
    Ok((header, payload))
}

#[inline]
fn read_u32(bytes: &[u8], at: Range<usize>) -> u32 {
    bytes[at].first_chunk().map_or(0, |four| u32::from_le_bytes(*four))
}

#[inline]
fn read_u64(bytes: &[u8], at: Range<usize>) -> u64 {
    bytes[at].first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight))
}
