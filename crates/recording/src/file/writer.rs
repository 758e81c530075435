//! One MCAP file. It is whole up to its last flush, whatever happens after it.

use super::disk::{Counted, Store};
use super::schema::SchemaText;
use mcap::records::{MessageHeader, Metadata};
use mcap::write::NoSeek;
use mcap::{McapError, WriteOptions};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of samples after which a chunk ends. Readers hold a whole chunk in memory.
const CHUNK: u64 = 1 << 20;
/// Smaller writes are gathered; a chunk goes to the disk as it is.
const GATHERED: usize = 64 << 10;
/// Bytes of a message besides its data.
const MESSAGE: u64 = 31;

/// The compression of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// None: costs no processor time.
    #[default]
    None,
    /// LZ4: fast.
    Lz4,
    /// Zstandard: smaller files for more processor time.
    Zstd,
}

impl Compression {
    /// All, with their names.
    pub const ALL: [(Compression, &'static str); 3] =
        [(Compression::None, "none"), (Compression::Lz4, "lz4"), (Compression::Zstd, "zstd")];
}

impl FromStr for Compression {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(_, name)| *name == text);
        found.map(|(compression, _)| compression).ok_or_else(|| "none, lz4 or zstd".to_owned())
    }
}

/// The MCAP profile of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Every type has a definition of ROS 2's form: tools for ROS 2 open the file.
    Ros2,
    /// Some have none.
    Thalweg,
}

impl Profile {
    /// Its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::Ros2 => "ros2",
            Profile::Thalweg => "thalweg",
        }
    }
}

/// A channel as the file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelText {
    /// The topic.
    pub topic: String,
    /// The type's text; `None`: the structure of the bytes is not known.
    pub schema: Option<SchemaText>,
    /// The encoding of messages: `cdr` or `json`.
    pub encoding: &'static str,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
}

/// Number and time stamps of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// The low 32 bits of the sample's sequence number.
    pub sequence: u32,
    /// Time of reception, nanoseconds since 1970.
    pub log_ns: u64,
    /// Time of publication, nanoseconds since 1970.
    pub publish_ns: u64,
}

type Mcap<S> = mcap::Writer<NoSeek<BufWriter<Counted<S>>>>;

/// Writes one MCAP file.
pub struct Writer<S: Store> {
    mcap: Mcap<S>,
    written: Arc<AtomicU64>,
    /// Length of the file up to the last flush.
    whole: u64,
    /// Bytes of samples since.
    open: u64,
}

impl<S: Store> Writer<S> {
    /// Begins a file.
    ///
    /// # Errors
    /// The store's.
    pub fn create(store: S, profile: Profile, compression: Compression) -> io::Result<Self> {
        let compression = match compression {
            Compression::None => None,
            Compression::Lz4 => Some(mcap::Compression::Lz4),
            Compression::Zstd => Some(mcap::Compression::Zstd),
        };
        // Chunks are made in memory, so that the file never has one with a preliminary header. A sum over the whole file would need
        // every byte twice; chunks have their own.
        let options = WriteOptions::new()
            .compression(compression)
            .compression_threads(0)
            .profile(profile.name())
            .library(concat!("thalweg/", env!("CARGO_PKG_VERSION")))
            .chunk_size(None)
            .disable_seeking(true)
            .calculate_data_section_crc(false);
        let (counted, written) = Counted::new(store);
        let mcap = options.create(NoSeek::new(BufWriter::with_capacity(GATHERED, counted))).map_err(refused)?;
        let mut writer = Self { mcap, written, whole: 0, open: 0 };
        match writer.flush() {
            Ok(()) => Ok(writer),
            Err(error) => {
                writer.cut_off(&[]);
                Err(error)
            }
        }
    }

    /// Adds a channel; gives its number in this file.
    ///
    /// # Errors
    /// The store's, or the 65,535th channel.
    pub fn channel(&mut self, text: &ChannelText) -> io::Result<u16> {
        let schema = match &text.schema {
            Some(SchemaText { name, encoding, text }) => {
                self.mcap.add_schema(name, encoding, text.as_bytes()).map_err(refused)?
            }
            None => 0,
        };
        self.mcap.add_channel(schema, &text.topic, text.encoding, &text.metadata).map_err(refused)
    }

    /// Writes a message, at the latest with the next flush.
    ///
    /// # Errors
    /// The store's.
    pub fn write(&mut self, channel: u16, stamped: Stamped, data: &[u8]) -> io::Result<()> {
        self.open += data.len() as u64 + MESSAGE;
        self.mcap.write_to_known_channel(&header(channel, stamped), data).map_err(refused)
    }

    /// `true` if a flush is due by the size of the chunk.
    pub fn is_full(&self) -> bool {
        self.open >= CHUNK
    }

    /// Bytes of the file, with those of its open chunk before compression.
    pub fn length(&self) -> u64 {
        self.whole + self.open
    }

    /// Ends the chunk and hands it to the kernel: readers find it whatever happens later to this process.
    ///
    /// # Errors
    /// The store's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.mcap.flush().map_err(refused)?;
        (self.whole, self.open) = (self.written.load(Relaxed), 0);
        Ok(())
    }

    /// Writes a file within the file, and flushes.
    ///
    /// # Errors
    /// The store's.
    pub fn attach(&mut self, name: &str, media_type: &str, at_ns: u64, data: &[u8]) -> io::Result<()> {
        let (name, media_type, data) = (name.to_owned(), media_type.to_owned(), Cow::Borrowed(data));
        let attachment = mcap::Attachment { log_time: at_ns, create_time: at_ns, name, media_type, data };
        self.mcap.attach(&attachment).map_err(refused)?;
        self.flush()
    }

    /// Writes a record of named values, and flushes.
    ///
    /// # Errors
    /// The store's.
    pub fn metadata(&mut self, name: &str, values: BTreeMap<String, String>) -> io::Result<()> {
        self.mcap.write_metadata(&Metadata { name: name.to_owned(), metadata: values }).map_err(refused)?;
        self.flush()
    }

    /// Ends the file with its summary; with `settle` it waits until all is on the disk. The length of the file.
    ///
    /// # Errors
    /// The store's. The file is then cut off behind its last flush, and whole.
    pub fn finish(mut self, settle: bool) -> io::Result<u64> {
        let ended = self.mcap.finish().map_err(refused).map(drop);
        let Self { mcap, written, whole, .. } = self;
        let mut buffered = mcap.into_inner().into_inner();
        let mut ended = ended.and_then(|()| buffered.flush());
        if settle {
            ended = ended.and_then(|()| buffered.get_mut().store.settle());
        }
        if let Err(error) = ended {
            cut_off(&mut buffered.into_parts().0.store, whole, &[]);
            return Err(error);
        }
        Ok(written.load(Relaxed))
    }

    /// Ends the file behind its last flush, after an error: with these messages if there is room, and without a summary, which readers
    /// make up for. What was written since that flush is not in the file.
    pub fn cut_off(self, last: &[(u16, Stamped, Vec<u8>)]) {
        let buffered = self.mcap.into_inner().into_inner();
        cut_off(&mut buffered.into_parts().0.store, self.whole, last); // what is gathered is given up, too
    }
}

/// The kernel's refusals here say nothing beyond the error that led here: a file that is merely cut off can still be read.
fn cut_off(store: &mut impl Store, whole: u64, last: &[(u16, Stamped, Vec<u8>)]) {
    let messages: Vec<u8> =
        last.iter().flat_map(|(channel, stamped, data)| message(*channel, *stamped, data)).collect();
    let with_messages = [messages, END.to_vec()].concat();
    let tails: [&[u8]; 2] = [&with_messages, END];
    for tail in tails.into_iter().filter(|_| whole > 0) {
        if store.cut(whole).is_ok() && store.write_all(tail).and_then(|()| store.flush()).is_ok() {
            return;
        }
    }
    let _ = store.cut(whole);
}

/// The end of a file without a summary (MCAP specification: Data End, Footer, Magic): no sum, no summary, no offsets, no sum.
const END: &[u8] = b"\x0f\x04\0\0\0\0\0\0\0\0\0\0\0\
                     \x02\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
                     \x89MCAP0\r\n";

/// A message that stands in no chunk.
fn message(channel: u16, stamped: Stamped, data: &[u8]) -> Vec<u8> {
    let Stamped { sequence, log_ns, publish_ns } = stamped;
    let length = (MESSAGE - 9) + data.len() as u64;
    let head = [
        &[mcap::records::op::MESSAGE][..],
        &length.to_le_bytes(),
        &channel.to_le_bytes(),
        &sequence.to_le_bytes(),
        &log_ns.to_le_bytes(),
        &publish_ns.to_le_bytes(),
    ];
    [&head.concat()[..], data].concat()
}

fn header(channel_id: u16, stamped: Stamped) -> MessageHeader {
    let Stamped { sequence, log_ns, publish_ns } = stamped;
    MessageHeader { channel_id, sequence, log_time: log_ns, publish_time: publish_ns }
}

fn refused(error: McapError) -> io::Error {
    match error {
        McapError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
