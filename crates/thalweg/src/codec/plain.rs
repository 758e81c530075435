//! Plain-old-data structs: the memory of the value is the message.

use super::{CodecError, Decoded, Message, TypeDescription};
use bytemuck::PodCastError;
use std::marker::PhantomData;
use std::sync::Arc;

/// A topic of plain-old-data values, sent as they lie in memory: nothing is encoded, and a subscriber sees the received
/// bytes themselves when they are aligned for `T` (in shared memory they always are), else one copy.
///
/// There is no header and no byte order on the wire. So the type's hash covers its name, size, alignment and the byte
/// order of the host, and a host of the other order does not match. The names and types of its fields are not known:
/// two versions of one struct that agree in size and alignment match, so give a changed struct a new name.
pub struct Plain<T>(PhantomData<T>);

impl<T: bytemuck::Pod + Send> Message for Plain<T> {
    type Value = T;
    type Owned = T;

    fn description() -> Arc<TypeDescription> {
        Arc::new(TypeDescription::plain::<T>())
    }
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(bytemuck::bytes_of(value));
        Ok(())
    }
    fn as_bytes(value: &T) -> Option<&[u8]> {
        Some(bytemuck::bytes_of(value))
    }
    fn decode(bytes: &[u8]) -> Result<Decoded<'_, Self>, CodecError> {
        match bytemuck::try_from_bytes(bytes) {
            Ok(value) => Ok(Decoded::Borrowed(value)),
            Err(PodCastError::TargetAlignmentGreaterAndInputNotAligned) if bytes.len() == size_of::<T>() => {
                Ok(Decoded::Owned(bytemuck::pod_read_unaligned(bytes)))
            }
            Err(_) => Err(wrong_length::<T>(bytes.len())),
        }
    }
}

/// The error of a message that is not as long as a `T`; its offset is where the shorter of the two ends.
fn wrong_length<T>(found: usize) -> CodecError {
    let expected = size_of::<T>();
    let name = TypeDescription::plain::<T>().name;
    CodecError {
        offset: found.min(expected),
        problem: format!("expected {expected} bytes (one {name}), found {found} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Four = Plain<[u32; 4]>;

    /// A buffer of bytes and the offset in it that is a multiple of 4.
    fn aligned(buffer: &[u8]) -> usize {
        buffer.as_ptr().align_offset(4)
    }

    #[test]
    fn aligned_bytes_are_the_value() {
        let mut buffer = [0u8; 24];
        let start = aligned(&buffer);
        let value = [1, 2, 3, 0xffff_fffe];
        let mut encoded = Vec::new();
        Four::encode(&value, &mut encoded).unwrap();
        assert_eq!(Some(encoded.as_slice()), Four::as_bytes(&value));
        buffer[start..start + 16].copy_from_slice(&encoded);
        let decoded = Four::decode(&buffer[start..start + 16]).unwrap();
        assert!(matches!(decoded, Decoded::Borrowed(found) if *found == value));
    }

    #[test]
    fn other_bytes_are_copied() {
        let mut buffer = [0u8; 24];
        let start = aligned(&buffer) + 1;
        buffer[start] = 7;
        let decoded = Four::decode(&buffer[start..start + 16]).unwrap();
        assert!(matches!(decoded, Decoded::Owned([7, 0, 0, 0])));
    }

    #[test]
    fn a_wrong_length_names_both() {
        for (length, offset) in [(0, 0), (15, 15), (17, 16), (32, 16)] {
            let error = Four::decode(&[0; 32][..length]).err().unwrap();
            assert_eq!(error.offset, offset);
            assert_eq!(error.problem, format!("expected 16 bytes (one [u32; 4]), found {length} bytes"));
        }
    }

    #[test]
    fn the_description_tells_types_apart() {
        let description = Four::description();
        assert_eq!(description.name, "[u32; 4]");
        assert_eq!(description.schema, None);
        assert!(description.accepts(&Four::description()));
        for other in [Plain::<[u32; 5]>::description(), Plain::<[i32; 4]>::description()] {
            assert!(!description.accepts(&other));
        }
        assert!(!description.accepts(&TypeDescription::opaque("[u32; 4]")));
        assert!(TypeDescription::any().accepts(&description));
    }
}
