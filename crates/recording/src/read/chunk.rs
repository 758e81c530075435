//! The records in a chunk. `mcap` unpacks them; the sizes that the chunk states are checked before.

use super::frames::LARGEST;
use super::records::{CHUNK, ChunkRecord};
use mcap::sans_io::linear_reader::{LinearReadEvent, LinearReader, LinearReaderOptions};

/// Calls `each` with every record of a chunk. With a checksum in the chunk that happens only if it is right.
pub(super) fn unpack(body: &[u8], each: &mut dyn FnMut(u8, &[u8])) -> Result<(), String> {
    let chunk = ChunkRecord::read(body).ok_or("a chunk ends within its head, or before its records do")?;
    check(&chunk)?;
    let limit = chunk.uncompressed.max(chunk.used.len() as u64);
    let options = LinearReaderOptions {
        skip_start_magic: true,
        skip_end_magic: true,
        prevalidate_chunk_crcs: true,
        record_length_limit: usize::try_from(limit).ok(),
        ..LinearReaderOptions::default()
    };
    let mut head = [CHUNK; 9];
    head[1..].copy_from_slice(&(chunk.used.len() as u64).to_le_bytes());
    feed(LinearReader::new_with_options(options), [&head, chunk.used], each)?;
    match chunk.beyond {
        0 => Ok(()),
        beyond => Err(format!("{beyond} bytes behind the records of a chunk belong to nothing")),
    }
}

/// Refuses sizes that no packed bytes can have: memory is reserved for them.
fn check(chunk: &ChunkRecord<'_>) -> Result<(), String> {
    let stored = chunk.stored.len() as u64;
    let most = match chunk.compression.as_str() {
        "" => stored,
        "lz4" => stored.saturating_mul(LZ4_RATIO),
        "zstd" => stored.saturating_mul(ZSTD_RATIO),
        other => return Err(format!("a chunk is packed by {other:?}; read are lz4, zstd, and unpacked ones")),
    };
    let most = most.min(LARGEST);
    match chunk.uncompressed {
        size if size > most => {
            Err(format!("a chunk of {stored} bytes says it has {size} unpacked; at most {most} are possible"))
        }
        size if chunk.compression.is_empty() && size != stored => {
            Err(format!("a chunk that is not packed has {stored} bytes, and says {size}"))
        }
        _ => Ok(()),
    }
}

fn feed(mut reader: LinearReader, parts: [&[u8]; 2], each: &mut dyn FnMut(u8, &[u8])) -> Result<(), String> {
    let [mut part, mut following] = parts;
    while let Some(event) = reader.next_event() {
        match event.map_err(|error| format!("a chunk is damaged: {error}"))? {
            LinearReadEvent::ReadRequest(wanted) => {
                if part.is_empty() {
                    part = std::mem::take(&mut following);
                }
                let (given, rest) = part.split_at(wanted.min(part.len()));
                reader.insert(given.len()).copy_from_slice(given);
                reader.notify_read(given.len());
                part = rest;
            }
            LinearReadEvent::Record { data, opcode } => each(opcode, data),
        }
    }
    Ok(())
}

/// LZ4 adds at most 255 bytes to a match by one byte (its block format, "Sequences").
const LZ4_RATIO: u64 = 256;
/// A block of Zstandard has at least 4 bytes, and at most 128 KiB unpacked (RFC 8878, 3.1.1.2).
const ZSTD_RATIO: u64 = (128 << 10) / 4;
