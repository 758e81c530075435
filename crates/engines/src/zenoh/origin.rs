//! The attachment of a bridge's samples: the port that published them, so that no bridge carries them back.
//!
//! | bytes | content |
//! |---|---|
//! | 0–7 | `thalweg` and the version, 1 |
//! | 8–15 | the publishing node, little-endian |
//! | 16–19 | the publishing port, little-endian |

use thalweg::PortRef;
use thalweg::control::{NodeId, PortId};

const MAGIC: [u8; 8] = *b"thalweg\x01";
const LENGTH: usize = 20;

pub(super) fn encode(PortRef { node, port }: PortRef) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&node.0.to_le_bytes());
    bytes[16..].copy_from_slice(&port.0.to_le_bytes());
    bytes
}

/// `None` for the attachment of another program, or of a later version.
pub(super) fn decode(attachment: &[u8]) -> Option<PortRef> {
    let bytes: &[u8; LENGTH] = attachment.try_into().ok()?;
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (node, port) = rest.split_first_chunk::<8>()?;
    let port = u32::from_le_bytes(port.try_into().ok()?);
    (*magic == MAGIC).then(|| PortRef { node: NodeId(u64::from_le_bytes(*node)), port: PortId(port) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_comes_back_and_nothing_else_is_one() {
        let origin = PortRef { node: NodeId(0x0123_4567_89ab_cdef), port: PortId(7) };
        let bytes = encode(origin);
        assert_eq!(decode(&bytes), Some(origin));
        let mut other = bytes;
        other[7] = 2;
        for wrong in [&other[..], &bytes[..19], &[], b"any other attachment"] {
            assert_eq!(decode(wrong), None);
        }
    }
}
