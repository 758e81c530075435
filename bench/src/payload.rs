//! Writing and checksumming a payload: the work that every engine does alike when a payload is "checked".

use std::io;

/// Writes the whole payload with the byte that message `number` has.
#[inline]
pub fn fill(bytes: &mut [u8], number: u64) {
    bytes.fill(number as u8);
}

/// The sum of all 64-bit little-endian words, the last one filled up with zeros; it wraps.
#[inline]
pub fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let mut rest = [0; 8];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    let sum = words.fold(0u64, |sum, word| sum.wrapping_add(word.try_into().map_or(0, u64::from_le_bytes)));
    sum.wrapping_add(u64::from_le_bytes(rest))
}

/// The [`checksum`] of `len` bytes written by [`fill`] with the same number.
pub fn expected(len: usize, number: u64) -> u64 {
    let word = [number as u8; 8];
    let mut rest = [0; 8];
    rest[..len % 8].copy_from_slice(&word[..len % 8]);
    u64::from_le_bytes(word).wrapping_mul((len / 8) as u64).wrapping_add(u64::from_le_bytes(rest))
}

/// Checksums a payload and compares it with the content of message `number`.
///
/// # Errors
/// InvalidData when the payload differs from the written one.
#[inline]
pub fn verify(bytes: &[u8], number: u64) -> io::Result<()> {
    let (found, wanted) = (checksum(bytes), expected(bytes.len(), number));
    if found == wanted {
        return Ok(());
    }
    let text = format!("message {number} has the checksum {found:#x}, not {wanted:#x}");
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_sum_is_the_sum_of_what_was_written() {
        for len in [1, 7, 8, 9, 64, 1027] {
            let mut bytes = vec![0; len];
            for number in [0, 1, 255, 256, 1000] {
                fill(&mut bytes, number);
                verify(&bytes, number).unwrap();
            }
            bytes[len / 2] ^= 1;
            assert!(verify(&bytes, 1000).unwrap_err().to_string().contains("message 1000"));
        }
    }
}
