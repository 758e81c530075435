//! Files as recorders leave them, and each of them damaged at every byte.

use super::*;
use mcap::records::{MessageHeader, Metadata};
use mcap::{Attachment, Compression, WriteOptions, Writer};
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

/// A channel without a schema.
pub(crate) fn channel(id: u16) -> Channel {
    Channel { id, topic: format!("/t{id}"), encoding: "cdr".to_owned(), schema: None, metadata: BTreeMap::new() }
}

/// A sample of a channel without a schema.
pub(crate) fn message(id: u16, publish_ns: u64, log_ns: u64) -> Message {
    Message { channel: Arc::new(channel(id)), sequence: 1, log_ns, publish_ns, data: vec![0; 8] }
}

/// A directory that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("thalweg-recording-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A sample to write.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) topic: String,
    pub(crate) sequence: u32,
    pub(crate) publish_ns: u64,
    pub(crate) log_ns: u64,
    pub(crate) data: Vec<u8>,
}

impl Sample {
    pub(crate) fn new(topic: &str, sequence: u32, publish_ns: u64, log_ns: u64) -> Self {
        Self { topic: topic.to_owned(), sequence, publish_ns, log_ns, data: vec![sequence as u8; 12] }
    }
}

/// Writes samples as our recorder does: a channel for each topic, chunks, and the plan attached.
pub(crate) fn write(path: &Path, packing: Option<Compression>, samples: &[Sample], plan: Option<&str>) {
    let file = fs::File::create(path).unwrap();
    let options = WriteOptions::new().profile("thalweg").compression(packing).chunk_size(Some(400));
    let mut writer: Writer<fs::File> = options.create(file).unwrap();
    let clock = Metadata { name: "thalweg.clock".to_owned(), metadata: [("id".to_owned(), "x".to_owned())].into() };
    writer.write_metadata(&clock).unwrap();
    if let Some(plan) = plan {
        let data = plan.as_bytes().into();
        let (name, media_type) = (PLAN.to_owned(), "application/toml".to_owned());
        writer.attach(&Attachment { log_time: 1, create_time: 1, name, media_type, data }).unwrap();
    }
    let schema = writer.add_schema("a/msg/Point", "ros2msg", b"float64 x\n").unwrap();
    for Sample { topic, sequence, publish_ns, log_ns, data } in samples {
        let keys = [(PUBLISHER, format!("/node{topic}/pub1")), (SUBSCRIBER, "/recorder".to_owned())];
        let metadata = keys.map(|(key, value)| (key.to_owned(), value)).into();
        let channel_id = writer.add_channel(schema, topic, "cdr", &metadata).unwrap();
        let header = MessageHeader { channel_id, sequence: *sequence, log_time: *log_ns, publish_time: *publish_ns };
        writer.write_to_known_channel(&header, data).unwrap();
    }
    writer.finish().unwrap();
}

fn samples() -> Vec<Sample> {
    let of = |number: u32| {
        let at = u64::from(number) * 1_000_000;
        Sample::new(if number.is_multiple_of(3) { "/a" } else { "/b" }, number, at, at + 70_000)
    };
    (1..=24).map(of).collect()
}

/// All samples and damages of a file.
fn read(path: &Path) -> (Vec<Message>, Vec<Damage>, bool) {
    let recording = Recording::open(path).unwrap();
    let (mut found, mut damages) = (Vec::new(), Vec::new());
    for item in recording.messages().unwrap() {
        match item {
            Ok(message) => found.push(message),
            Err(damage) => damages.push(damage),
        }
    }
    (found, damages, recording.unfinished().next().is_none())
}

const PACKINGS: [Option<Compression>; 3] = [None, Some(Compression::Lz4), Some(Compression::Zstd)];

#[test]
fn a_file_is_read_as_it_was_written() {
    let folder = Folder::new();
    for packing in PACKINGS {
        let path = folder.file("a.mcap");
        write(&path, packing, &samples(), Some("plan"));
        let recording = Recording::open(&path).unwrap();
        let topics: Vec<&str> = recording.channels().map(|channel| channel.topic.as_str()).collect();
        assert_eq!((topics, recording.profile()), (vec!["/b", "/a"], "thalweg"));
        assert_eq!(recording.attachment(PLAN), Some(&b"plan"[..]));
        let (found, damages, finished) = read(&path);
        assert!(damages.is_empty() && finished, "{damages:?}");
        let written = samples();
        assert_eq!(found.len(), written.len());
        for (found, written) in found.iter().zip(&written) {
            assert_eq!((&found.channel.topic, &found.data), (&written.topic, &written.data));
            let numbers = (found.sequence, found.publish_ns, found.log_ns);
            assert_eq!(numbers, (written.sequence, written.publish_ns, written.log_ns));
            assert_eq!(found.channel.publisher(), format!("/node{}/pub1", written.topic));
            assert_eq!(found.channel.schema.as_ref().unwrap().name, "a/msg/Point");
        }
        let chosen = recording.channels().find(|channel| channel.topic == "/a").unwrap().id;
        let only: Vec<_> = recording.messages().unwrap().only([chosen].into()).map(Result::unwrap).collect();
        assert_eq!(only.len(), 8);
    }
}

/// Files that follow each other, or overlap, with other numbers for the same channels, are read as one.
#[test]
fn several_files_are_read_in_the_order_of_receipt() {
    let folder = Folder::new();
    let all = samples();
    let (first, second) = all.split_at(10);
    let odd = |wanted: u32| all.iter().filter(|one| one.sequence % 2 == wanted).cloned().collect::<Vec<_>>();
    for (name, parts) in [("run", [first.to_vec(), second.to_vec()]), ("mixed", [odd(1), odd(0)])] {
        let paths = ["", "-2"].map(|number| folder.file(&format!("{name}{number}.mcap")));
        // Written in another order of time than by name: the first sample decides.
        for (path, part) in paths.iter().rev().zip(&parts) {
            write(path, None, part, None);
        }
        let recording = Recording::open(&paths[0]).unwrap();
        let topics: Vec<&str> = recording.channels().map(|channel| channel.topic.as_str()).collect();
        assert_eq!((topics.len(), recording.paths().count()), (2, 2), "{topics:?}");
        let read: Vec<Message> = recording.messages().unwrap().map(Result::unwrap).collect();
        let order = read.iter().map(|message| message.sequence).collect::<Vec<_>>();
        assert_eq!(order, (1..=24).collect::<Vec<u32>>(), "{name}");
        let named = read.iter().zip(&all).all(|(message, sample)| message.channel.topic == sample.topic);
        assert!(named, "{name}: each sample is on its channel");
        let chosen = recording.channels().find(|channel| channel.topic == "/a").unwrap().id;
        assert_eq!(recording.messages().unwrap().only([chosen].into()).count(), 8, "{name}");
        assert_eq!(Recording::open_all(&paths).unwrap().messages().unwrap().count(), 24);
    }
}

/// A recorder that was killed: what it wrote in whole chunks is there.
#[test]
fn a_file_cut_off_anywhere_gives_the_samples_before() {
    let folder = Folder::new();
    for packing in PACKINGS {
        let path = folder.file("whole.mcap");
        write(&path, packing, &samples(), Some("plan"));
        let whole = fs::read(&path).unwrap();
        let (all, ..) = read(&path);
        let mut before = 0;
        for length in 0..whole.len() {
            let path = folder.file("cut.mcap");
            fs::write(&path, &whole[..length]).unwrap();
            if length < 8 {
                assert!(Recording::open(&path).unwrap_err().to_string().contains("is no MCAP file"));
                continue;
            }
            let (found, damages, finished) = read(&path);
            assert!(!finished || length + 8 >= whole.len(), "{length}");
            assert!(damages.len() <= 1, "{length}: {damages:?}");
            assert!(all.starts_with(&found) && found.len() >= before, "{length}");
            before = found.len();
        }
        assert_eq!(before, all.len());
    }
}

/// No wrong byte makes a wrong sample, and none goes unnoticed that costs a sample.
#[test]
fn a_file_with_any_byte_wrong_gives_right_samples_only() {
    let folder = Folder::new();
    for packing in PACKINGS {
        let path = folder.file("whole.mcap");
        write(&path, packing, &samples(), None);
        let mut bytes = fs::read(&path).unwrap();
        let (all, ..) = read(&path);
        let path = folder.file("wrong.mcap");
        for at in 8..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                bytes[at] ^= flip;
                fs::write(&path, &bytes).unwrap();
                bytes[at] ^= flip;
                let (found, damages, finished) = read(&path);
                let right = found.iter().all(|one| all.contains(one));
                assert!(right, "{packing:?}, byte {at} ^ {flip:#x}: {found:?}");
                let noticed = !damages.is_empty() || !finished;
                assert!(found.len() == all.len() || noticed, "{packing:?}, byte {at} ^ {flip:#x}: {}", found.len());
            }
        }
    }
}

#[test]
fn sizes_that_no_chunk_can_have_are_refused_before_memory_is_reserved() {
    let chunk = |compression: &str, uncompressed: u64, stored: &[u8]| {
        let mut body = vec![0; 16];
        body.extend(uncompressed.to_le_bytes());
        body.extend(0u32.to_le_bytes());
        body.extend((compression.len() as u32).to_le_bytes());
        body.extend(compression.as_bytes());
        body.extend((stored.len() as u64).to_le_bytes());
        body.extend(stored);
        chunk::unpack(&body, &mut |_, _| panic!("a record in nothing"))
    };
    for (compression, size) in [("", 5), ("", u64::MAX), ("lz4", 4 * 256 + 1), ("zstd", 1 << 40), ("", 3)] {
        let problem = chunk(compression, size, &[1, 2, 3, 4]).unwrap_err();
        assert!(problem.contains("says"), "{compression} {size}: {problem}");
    }
    assert!(chunk("brotli", 4, &[0; 4]).unwrap_err().contains("\"brotli\""));
    assert!(chunk("zstd", 4, &[0; 4]).unwrap_err().contains("damaged"));
    assert_eq!(chunk("", 0, &[]), Ok(()));
}

#[test]
fn lengths_of_fields_are_checked_against_what_is_there() {
    use super::cursor::Cursor;
    let long = [&u32::MAX.to_le_bytes()[..], b"abc"].concat();
    assert_eq!(Cursor::new(&long).text(), None);
    assert_eq!(Cursor::new(&long).map(), None);
    let pairs = [&8u32.to_le_bytes()[..], &u32::MAX.to_le_bytes(), b"abcd"].concat();
    assert_eq!(Cursor::new(&pairs).map(), None);
    assert_eq!(records::attachment(&[0; 20]), None);
    assert_eq!(records::attachment(&[0; 36]).map(|(name, data)| (name, data.len())), Some((String::new(), 0)));
}

#[test]
fn what_is_no_recording_is_refused_with_the_reason() {
    let folder = Folder::new();
    let said = |path: &Path| Recording::open(path).unwrap_err().to_string();
    assert!(said(&folder.file("nothing")).contains("cannot be read"));
    assert!(said(&folder.0).contains("is a directory without a file *.mcap"));
    let path = folder.file("text");
    fs::write(&path, "some text").unwrap();
    assert!(said(&path).contains("is no MCAP file: it begins with [73, 6f"));
}
