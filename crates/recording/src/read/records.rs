//! Records of an MCAP file (its specification, "Records"): the fields that are used here.

use super::cursor::Cursor;
use super::{Channel, Schema};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const HEADER: u8 = 0x01;
pub(super) const FOOTER: u8 = 0x02;
pub(super) const SCHEMA: u8 = 0x03;
pub(super) const CHANNEL: u8 = 0x04;
pub(super) const MESSAGE: u8 = 0x05;
pub(super) const CHUNK: u8 = 0x06;
pub(super) const ATTACHMENT: u8 = 0x09;
pub(super) const STATISTICS: u8 = 0x0b;
pub(super) const METADATA: u8 = 0x0c;
pub(super) const DATA_END: u8 = 0x0f;
/// From here on opcodes are an application's own.
pub(super) const FIRST_OWN: u8 = 0x80;

/// The names of types and channels that a file has described so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    schemas: BTreeMap<u16, Arc<Schema>>,
    pub(super) channels: BTreeMap<u16, Arc<Channel>>,
}

impl Directory {
    /// Takes a record of a schema or a channel; others are not its business.
    pub(super) fn take(&mut self, opcode: u8, body: &[u8]) -> Result<(), String> {
        match opcode {
            SCHEMA => self.schema(body).ok_or_else(|| "a schema ends within a field".to_owned()),
            CHANNEL => self.channel(body),
            _ => Ok(()),
        }
    }

    fn schema(&mut self, body: &[u8]) -> Option<()> {
        let mut cursor = Cursor::new(body);
        let id = cursor.u16()?;
        let (name, encoding) = (cursor.text()?, cursor.text()?);
        let length = cursor.u32()?;
        let data = cursor.take(length.into())?.to_vec();
        self.schemas.insert(id, Arc::new(Schema { name, encoding, data }));
        Some(())
    }

    fn channel(&mut self, body: &[u8]) -> Result<(), String> {
        let mut cursor = Cursor::new(body);
        let mut fields = || Some((cursor.u16()?, cursor.u16()?, cursor.text()?, cursor.text()?, cursor.map()?));
        let (id, schema, topic, encoding, metadata) = fields().ok_or("a channel ends within a field")?;
        // Schema 0 says that there is none.
        let schema = match self.schemas.get(&schema) {
            None if schema != 0 => {
                return Err(format!("channel {id} has schema {schema}, which the file does not describe"));
            }
            found => found.cloned(),
        };
        let channel = Channel { id, topic, encoding, schema, metadata };
        // Most repeat what is known.
        if self.channels.get(&id).is_none_or(|known| **known != channel) {
            self.channels.insert(id, Arc::new(channel));
        }
        Ok(())
    }
}

/// A sample.
pub(super) struct MessageRecord<'a> {
    pub(super) channel: u16,
    pub(super) sequence: u32,
    pub(super) log_ns: u64,
    pub(super) publish_ns: u64,
    pub(super) data: &'a [u8],
}

impl<'a> MessageRecord<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(body);
        let (channel, sequence) = (cursor.u16()?, cursor.u32()?);
        let (log_ns, publish_ns) = (cursor.u64()?, cursor.u64()?);
        Some(Self { channel, sequence, log_ns, publish_ns, data: cursor.rest() })
    }
}

/// The head of a chunk, and its records as they are stored.
pub(super) struct ChunkRecord<'a> {
    pub(super) compression: String,
    /// Bytes of the records.
    pub(super) uncompressed: u64,
    /// The same as they are stored.
    pub(super) stored: &'a [u8],
    /// The record's bytes up to the end of `stored`.
    pub(super) used: &'a [u8],
    /// Bytes of the record behind them.
    pub(super) beyond: usize,
}

impl<'a> ChunkRecord<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(body);
        cursor.take(16)?; // times of the first and the last sample
        let uncompressed = cursor.u64()?;
        cursor.u32()?; // checked where it is unpacked
        let compression = cursor.text()?;
        let length = cursor.u64()?;
        let stored = cursor.take(length)?;
        let beyond = cursor.rest().len();
        Some(Self { compression, uncompressed, stored, used: body.get(..body.len() - beyond)?, beyond })
    }

    /// The time of receipt of its last sample, from its first 16 bytes.
    pub(super) fn end_ns(head: &[u8]) -> Option<u64> {
        let mut cursor = Cursor::new(head);
        cursor.u64()?;
        cursor.u64()
    }
}

/// A file that is attached: its name and its bytes.
pub(super) fn attachment(body: &[u8]) -> Option<(String, &[u8])> {
    let mut cursor = Cursor::new(body);
    cursor.take(16)?; // two times
    let (name, _media) = (cursor.text()?, cursor.text()?);
    let length = cursor.u64()?;
    let data = cursor.take(length)?;
    let saved = cursor.u32()?;
    let sound = || body.get(..body.len() - 4).is_some_and(|all| crc32fast::hash(all) == saved);
    (saved == 0 || sound()).then_some((name, data))
}

/// A record of named values, and its name.
pub(super) fn metadata(body: &[u8]) -> Option<(String, BTreeMap<String, String>)> {
    let mut cursor = Cursor::new(body);
    Some((cursor.text()?, cursor.map()?))
}

/// The profile of the file.
pub(super) fn profile(body: &[u8]) -> Option<String> {
    Cursor::new(body).text()
}

/// The checksum of the summary; 0: there is none.
pub(super) fn summary_crc(body: &[u8]) -> Option<u32> {
    let mut cursor = Cursor::new(body);
    cursor.take(16)?;
    cursor.u32()
}

/// The numbers of samples and of channels that the summary counts.
pub(super) fn counts(body: &[u8]) -> Option<(u64, u32)> {
    let mut cursor = Cursor::new(body);
    let samples = cursor.u64()?;
    cursor.u16()?; // schemas
    Some((samples, cursor.u32()?))
}
