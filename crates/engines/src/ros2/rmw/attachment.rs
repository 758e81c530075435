//! What accompanies each sample: sequence number, time, and identity of the publisher.
//!
//! 33 bytes by Zenoh's serializer (`attachment_helpers.cpp`, `AttachmentData::serialize_to_zbytes`; `docs/design.md`,
//! «Publishers»; numbers and lengths: `zenoh-ext/src/serialization.rs`):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | sequence number, signed, little endian |
//! | 8 | 8 | source timestamp in nanoseconds since 1970, signed, little endian |
//! | 16 | 1 | length of the identity as a LEB128 number: always 16 |
//! | 17 | 16 | identity of the publisher |
//!
//! `rmw_zenoh` drops samples without an attachment (`rmw_subscription_data.cpp`, `init`), and throws inside Zenoh's callback
//! on one that it cannot read (`zenoh-cpp`, `ext/serialization.hxx`): never send another form. Versions before 0.2.4 wrote
//! 77 bytes, with the names of the fields.

use super::{Malformed, within};
use std::fmt;
use xxhash_rust::xxh3::xxh3_128;

/// Length of an attachment, in bytes.
pub const ATTACHMENT: usize = 33;

/// Length of an identity: `RMW_GID_STORAGE_SIZE` (`rmw/types.h`), 16 since Iron, and 16 in branch `humble` all the same.
const GID: usize = 16;

/// Identity of a node or endpoint, GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; GID]);

impl Gid {
    /// The identity of the node or endpoint with this token: XXH3, 128 bits, without a seed, over the text of the token,
    /// the low half first, each half in little endian (`liveliness_utils.cpp`, `Entity::Entity`;
    /// `simplified_xxhash3.cpp`). Other implementations may choose another, such as `hiroz`: compare identities of
    /// samples with each other, and with those of tokens only as a hint.
    pub fn of(token: &str) -> Self {
        Self(xxh3_128(token.as_bytes()).to_le_bytes())
    }
}

impl fmt::Display for Gid {
    /// As `ros2 topic info --verbose` prints it: two hexadecimal digits for each byte, dots between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if index == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

/// What accompanies a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attachment {
    /// Sequence number: of the first sample of a publisher 1, then one more each (`rmw_publisher_data.cpp`). A
    /// subscription counts gaps as lost messages (`rmw_subscription_data.cpp`, `add_new_message`).
    pub sequence: i64,
    /// Time of publication, nanoseconds since 1970 (`zenoh_utils.cpp`, `get_system_time_in_ns`).
    pub time_ns: i64,
    /// Identity of the publisher.
    pub gid: Gid,
}

impl Attachment {
    /// Writes the attachment.
    pub fn encode(&self) -> [u8; ATTACHMENT] {
        let mut bytes = [0; ATTACHMENT];
        let parts = [&self.sequence.to_le_bytes()[..], &self.time_ns.to_le_bytes(), &[LENGTH], &self.gid.0];
        for (byte, part) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *byte = *part;
        }
        bytes
    }

    /// Reads an attachment.
    ///
    /// # Errors
    /// [`Malformed`] if there are more or fewer than [`ATTACHMENT`] bytes, or if the identity has not 16.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        within("bytes of an attachment", bytes.len(), ATTACHMENT, ATTACHMENT)?;
        let (sequence, rest) = take(bytes)?;
        let (time_ns, rest) = take(rest)?;
        let ([length], rest) = take(rest)?;
        within("bytes of an identity", usize::from(length), GID, GID)?;
        let (gid, _) = take(rest)?;
        let (sequence, time_ns) = (i64::from_le_bytes(sequence), i64::from_le_bytes(time_ns));
        Ok(Self { sequence, time_ns, gid: Gid(gid) })
    }
}

/// The length before the identity.
const LENGTH: u8 = 16;

/// The first bytes, and the rest.
fn take<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), Malformed> {
    let short = || Malformed::Count { what: "bytes of a field", found: bytes.len(), least: N, most: ATTACHMENT };
    bytes.split_first_chunk().map(|(first, rest)| (*first, rest)).ok_or_else(short)
}
