//! A message of a graph's topics, the same bytes over every engine: CDR of a type of ROS 2 with one field, `uint8[] data`.

use crate::error::{Error, Result};
use thalweg::codec::{Definitions, TypeDescription};

/// Its type.
pub(super) const TYPE: &str = "dali_msgs/msg/Sample";
const FIELDS: &str = "uint8[] data\n";
/// Little-endian CDR of version 1 (OMG DDSI-RTPS 2.5, clause 10.2).
const ENCAPSULATION: [u8; 4] = [0, 1, 0, 0];
/// Bytes in front of the data: the encapsulation, and the data's length.
const HEAD: usize = 8;
/// Least bytes of a message: its head, number, stamp and origin.
pub(super) const LEAST: usize = HEAD + 24;

/// What a message says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps {
    /// The sample's number, which grows.
    pub number: u64,
    /// The time of its publication, by CLOCK_MONOTONIC, in ns.
    pub published_ns: u64,
    /// The same of the sample that it was made of; 0: of none.
    pub origin_ns: u64,
}

/// The description of the type.
///
/// # Errors
/// [`Error::Failed`]: never, unless the definition is wrong.
pub(super) fn description() -> Result<TypeDescription> {
    let mut definitions = Definitions::new();
    let described = definitions.add(TYPE, FIELDS).and_then(|()| definitions.describe(TYPE));
    described.map_err(|wrong| Error::Failed(format!("{TYPE}: {wrong}")))
}

/// A message of `size` bytes, without stamps yet.
pub(super) fn message(size: usize) -> Vec<u8> {
    let size = size.max(LEAST);
    let mut message = vec![0x5a; size];
    message[..4].copy_from_slice(&ENCAPSULATION);
    message[4..HEAD].copy_from_slice(&u32::try_from(size - HEAD).unwrap_or(u32::MAX).to_le_bytes());
    message
}

impl Stamps {
    /// Writes them into a message.
    pub(super) fn write(&self, message: &mut [u8]) {
        let numbers = [self.number, self.published_ns, self.origin_ns];
        for (at, number) in message[HEAD..LEAST].chunks_exact_mut(8).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Reads them; `None`: the message is not whole.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let length = u32::from_le_bytes(*message.get(4..HEAD)?.first_chunk()?);
        let number = |at: usize| Some(u64::from_le_bytes(*message.get(HEAD + at..)?.first_chunk()?));
        let stamps = Self { number: number(0)?, published_ns: number(8)?, origin_ns: number(16)? };
        (message.len() - HEAD == length as usize).then_some(stamps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_come_back_from_whole_messages_alone() {
        let stamps = Stamps { number: 1, published_ns: 2, origin_ns: 3 };
        for size in [0, LEAST, 1000] {
            let mut bytes = message(size);
            assert_eq!(bytes.len(), size.max(LEAST));
            stamps.write(&mut bytes);
            assert_eq!(Stamps::read(&bytes), Some(stamps));
            assert_eq!(Stamps::read(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(Stamps::read(&[]), None);
    }

    #[test]
    fn the_type_is_one_of_ros_2_with_a_structure() {
        let described = description().unwrap();
        assert!(described.schema.is_some() && described.ros.is_some_and(|ros| ros.name == TYPE));
    }
}
