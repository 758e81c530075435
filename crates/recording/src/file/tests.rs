//! Files on a disk that refuses, at every byte; files that follow one another; texts of types.

use super::disk::{Files, Store};
use super::metadata::{ClockAnchor, LOSSES, Loss, Place, TIMING};
use super::output::{Attachment, Limits, Output, Split};
use super::schema::SchemaText;
use super::writer::{ChannelText, Compression, Profile, Stamped};
use crate::Result;
use mcap::MessageStream;
use mcap::read::Options;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A disk with room for so many bytes of one file.
#[derive(Clone)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
    /// Once it has refused it refuses everything.
    dies: bool,
    dead: bool,
}

impl Disk {
    fn new(room: usize, dies: bool) -> Self {
        Self { bytes: Arc::default(), room, dies, dead: false }
    }

    fn contents(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.bytes.lock().unwrap();
        let count = bytes.len().min(self.room.saturating_sub(file.len()));
        if (count == 0 && !bytes.is_empty()) || self.dead {
            self.dead = self.dies;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        file.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Store for Disk {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().truncate(length as usize);
        Ok(())
    }

    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Disks in turn.
struct Disks(Vec<Disk>, usize);

impl Files for Disks {
    type Store = Disk;

    fn next(&mut self) -> Result<(PathBuf, Disk)> {
        let path = PathBuf::from(format!("run-{}.mcap", self.1));
        let disk = self.0.get(self.1).cloned();
        self.1 += 1;
        disk.map(|disk| (path.clone(), disk)).ok_or(crate::Error::Usage("no further disk".into()))
    }
}

fn anchor() -> ClockAnchor {
    ClockAnchor { clock: "clock".into(), monotonic_ns: 0, wall_ns: 1_000 }
}

fn channel(topic: &str) -> ChannelText {
    let schema = SchemaText { name: "thalweg/msg/Byte".into(), encoding: "ros2msg", text: "uint8 data\n".into() };
    ChannelText { topic: topic.into(), schema: Some(schema), encoding: "cdr", metadata: BTreeMap::new() }
}

fn stamped(sequence: u32) -> Stamped {
    Stamped { sequence, log_ns: u64::from(sequence) * 10, publish_ns: u64::from(sequence) * 10 - 1 }
}

fn payload(sequence: u32) -> Vec<u8> {
    vec![sequence as u8; 40 + sequence as usize]
}

/// The messages of a file by topic, sequence number and bytes, up to its end or where it ends within a record.
fn read(file: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let Ok(messages) = MessageStream::new_with_options(file, Options::IgnoreEndMagic.into()) else { return Vec::new() };
    let found = messages.map_while(|message| message.ok());
    found.map(|message| (message.channel.topic.clone(), message.sequence, message.data.to_vec())).collect()
}

fn output(disks: Vec<Disk>, limits: Limits) -> Output<Disks> {
    let attachment = Attachment { name: "plan.toml", media_type: "application/toml", data: b"plan = 1\n".to_vec() };
    Output::create(Disks(disks, 0), limits, anchor(), vec![attachment]).unwrap()
}

const MESSAGES: u32 = 12;
/// Bytes of the end of a file without a summary.
const END: usize = 50;

/// Writes messages with a flush after each third. The number up to the last flush, and the outcome.
fn write(output: &mut Output<Disks>) -> (u32, io::Result<()>) {
    let mut flushed = 0;
    let mut write = || {
        output.begin(Profile::Ros2, 0)?;
        let a = output.add(channel("/a"))?;
        for sequence in 1..=MESSAGES {
            output.write(a, stamped(sequence), &payload(sequence))?;
            if sequence % 3 == 0 {
                output.flush()?;
                flushed = sequence;
            }
        }
        Ok(())
    };
    let outcome = write();
    (flushed, outcome)
}

fn loss(first_seq: u64, last_seq: u64) -> Loss {
    let (topic, publisher, count) = ("/a".into(), "/p".into(), last_seq - first_seq + 1);
    Loss { topic, publisher, first_seq, last_seq, count, place: Place::Disk }
}

/// Wherever the disk refuses, everything up to the last flush is read, and nothing that is not whole.
#[test]
fn a_full_disk_leaves_a_file_with_all_that_was_flushed() {
    let whole = Disk::new(usize::MAX, false);
    let mut output_of_all = output(vec![whole.clone()], Limits::default());
    assert!(write(&mut output_of_all).1.is_ok());
    output_of_all.finish().unwrap();
    let length = whole.contents().len();
    let mut with_losses = 0;
    for (room, dies) in (0..=length).flat_map(|room| [(room, false), (room, true)]) {
        let disk = Disk::new(room, dies);
        let mut output = output(vec![disk.clone()], Limits::default());
        let (flushed, outcome) = write(&mut output);
        match outcome {
            Ok(()) => assert_eq!(output.finish().is_ok(), room >= length, "room {room} of {length}"),
            Err(_) => output.cut_off(&[loss(u64::from(flushed) + 1, MESSAGES.into())], 5),
        }
        let (losses, samples): (Vec<_>, Vec<_>) = read(&disk.contents()).into_iter().partition(|m| m.0 == LOSSES);
        let expected: Vec<_> = (1..=flushed).map(|n| ("/a".to_owned(), n, payload(n))).collect();
        assert_eq!(samples, expected, "room {room} of {length}");
        if let [(_, _, text)] = &losses[..] {
            let told: Loss = serde_json::from_slice(text).unwrap();
            assert_eq!((told.first_seq, told.place), (u64::from(flushed) + 1, Place::Disk));
            with_losses += 1;
        }
        let file = disk.contents();
        let no_room = dies || file.len() + END > room;
        assert!(file.ends_with(mcap::MAGIC) || no_room, "room {room} of {length}, {} used", file.len());
    }
    assert!(with_losses > 50, "{with_losses} of {length} files had room for the losses");
}

#[test]
fn a_file_that_was_cut_off_with_room_has_an_end() {
    let disk = Disk::new(usize::MAX, false);
    let mut output = output(vec![disk.clone()], Limits::default());
    write(&mut output).1.unwrap();
    output.write(0, stamped(90), &payload(90)).unwrap();
    output.cut_off(&[loss(90, 90)], 5);
    let file = disk.contents();
    assert!(file.ends_with(mcap::MAGIC));
    assert!(mcap::Summary::read(&file).unwrap().is_none(), "readers have to do without");
    let found: mcap::McapResult<Vec<_>> = MessageStream::new(&file).unwrap().collect();
    assert_eq!(found.unwrap().len(), MESSAGES as usize + 1);
}

#[test]
fn each_file_of_several_stands_alone_and_nothing_is_lost_or_doubled() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let disks: Vec<Disk> = (0..4).map(|_| Disk::new(usize::MAX, false)).collect();
        let limits = Limits { compression, split: Some(Split::Time(Duration::from_nanos(100))) };
        let mut output = output(disks.clone(), limits);
        output.begin(Profile::Thalweg, 0).unwrap();
        let channels = ["/a", "/b"].map(|topic| output.add(channel(topic)).unwrap());
        for n in 1..=35u32 {
            output.write(channels[n as usize % 2], stamped(n), &payload(n)).unwrap();
            output.flush().unwrap();
            if output.is_due(u64::from(n) * 10) {
                output.split(Profile::Thalweg, u64::from(n) * 10).unwrap();
            }
        }
        assert_eq!(output.paths().len(), 4);
        output.finish().unwrap();
        let mut found = Vec::new();
        for disk in &disks {
            let file = disk.contents();
            let summary = mcap::Summary::read(&file).unwrap().unwrap();
            assert_eq!((summary.attachment_indexes.len(), summary.metadata_indexes.len()), (1, 1));
            let topics: Vec<&str> = summary.channels.values().map(|channel| channel.topic.as_str()).collect();
            assert!(["/a", "/b", TIMING, LOSSES].iter().all(|topic| topics.contains(topic)), "{topics:?}");
            found.extend(read(&file).into_iter().map(|(_, sequence, data)| (sequence, data)));
        }
        assert_eq!(found, (1..=35).map(|n| (n, payload(n))).collect::<Vec<_>>());
    }
}

#[test]
fn without_a_next_file_the_recording_continues_in_this_one() {
    for second in [vec![], vec![Disk::new(20, false)]] {
        let first = Disk::new(usize::MAX, false);
        let limits = Limits { split: Some(Split::Bytes(1)), ..Limits::default() };
        let mut output = output([vec![first.clone()], second].concat(), limits);
        output.begin(Profile::Ros2, 0).unwrap();
        let a = output.add(channel("/a")).unwrap();
        output.write(a, stamped(1), &payload(1)).unwrap();
        output.flush().unwrap();
        assert!(output.is_due(1) && output.split(Profile::Ros2, 1).is_err() && !output.is_due(2));
        output.write(a, stamped(2), &payload(2)).unwrap();
        output.finish().unwrap();
        assert_eq!(read(&first.contents()).len(), 2);
    }
}

#[test]
fn a_file_for_ros_2_has_no_schema_of_json() {
    for (profile, expected) in [(Profile::Ros2, 0), (Profile::Thalweg, 2)] {
        let disk = Disk::new(usize::MAX, false);
        let mut output = output(vec![disk.clone()], Limits::default());
        output.begin(profile, 0).unwrap();
        output.finish().unwrap();
        let summary = mcap::Summary::read(&disk.contents()).unwrap().unwrap();
        assert_eq!((summary.channels.len(), summary.schemas.len()), (2, expected));
    }
}

mod texts {
    use super::super::schema::SchemaText;
    use serde::{Deserialize, Serialize};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use thalweg::codec::{Definitions, Idl, Raw, Schema, TypeDescription};

    #[derive(Serialize, Deserialize)]
    struct Point {
        x: f64,
        y: f64,
    }

    #[derive(Serialize, Deserialize)]
    struct Track {
        id: u32,
        name: String,
        points: Vec<Point>,
        corners: [Point; 4],
    }

    #[derive(Serialize, Deserialize)]
    enum Gear {
        Low,
        High,
    }

    #[derive(Serialize, Deserialize)]
    enum Order {
        Stop,
        Turn(f64),
        Go { speed: f32, gear: Gear },
    }

    #[allow(non_snake_case)]
    #[derive(Serialize, Deserialize)]
    struct Odd {
        mixedCase: u8,
        maybe: Option<i16>,
        named: BTreeMap<String, u64>,
        pair: (u8, char),
        grid: Vec<[f32; 3]>,
        rows: Vec<Vec<u8>>,
        order: Order,
        nothing: (),
    }

    fn text<T: serde::de::DeserializeOwned>() -> SchemaText {
        SchemaText::of(&TypeDescription::of::<T>()).unwrap()
    }

    #[test]
    fn a_plain_struct_is_a_message_of_ros_2() {
        let found = text::<Track>();
        assert_eq!((found.name.as_str(), found.encoding), ("thalweg/msg/Track", "ros2msg"));
        let expected = format!(
            "uint32 id\nstring name\nthalweg/Point[] points\nthalweg/Point[4] corners\n{}\n\
             MSG: thalweg/Point\nfloat64 x\nfloat64 y\n",
            "=".repeat(80)
        );
        assert_eq!(found.text, expected);
    }

    #[test]
    fn a_value_that_is_no_struct_is_a_message_with_one_field() {
        for (found, name, line) in [
            (text::<String>(), "thalweg/msg/String", "string data\n"),
            (text::<Vec<u8>>(), "thalweg/msg/SequenceU8", "uint8[] data\n"),
            (text::<f64>(), "thalweg/msg/F64", "float64 data\n"),
        ] {
            assert_eq!((found.name.as_str(), found.text.as_str(), found.is_ros2()), (name, line, true));
        }
    }

    #[test]
    fn a_type_of_ros_2_has_its_own_text() {
        let mut definitions = Definitions::new();
        definitions.add("robot_msgs/msg/Reading", "std_msgs/Header header # when\nfloat64[<=16] values\n").unwrap();
        let described = definitions.describe("robot_msgs/msg/Reading").unwrap();
        let found = SchemaText::of(&described).unwrap();
        assert_eq!((found.name.as_str(), found.encoding), ("robot_msgs/msg/Reading", "ros2msg"));
        assert!(found.text.contains("# when") && found.text.contains("MSG: std_msgs/Header"), "{}", found.text);
        let mut without = described;
        Arc::make_mut(without.ros.as_mut().unwrap()).source.clear();
        let made = SchemaText::of(&without).unwrap();
        assert_eq!((made.name.as_str(), made.is_ros2()), ("robot_msgs/msg/Reading", true));
        assert!(made.text.starts_with("robot_msgs/Header header\nfloat64[] values\n"), "{}", made.text);
    }

    #[test]
    fn what_ros_2_cannot_say_is_idl() {
        let found = text::<Odd>();
        assert_eq!((found.name.as_str(), found.encoding), ("thalweg::Odd", "omgidl"));
        for part in [
            "uint8 mixedCase;",
            "union Optional switch (boolean) {\n  case TRUE:\n  int16 value;\n}",
            "struct Entry {\n  string key;\n  uint64 value;\n}",
            "struct Tuple {\n  uint8 field0;\n  uint32 field1;\n}",
            "typedef float Array[3];",
            "sequence<Array> grid;",
            "sequence<sequence<uint8> > rows;",
            "enum Gear { Low, High };",
            "union Order switch (unsigned long) {\n  case 1:\n  double Turn_value;\n  case 2:\n  Go Go_value;\n}",
        ] {
            assert!(found.text.contains(part), "{part} is not in\n{}", found.text);
        }
        assert!(!found.text.contains("nothing"), "a value without bytes is left out");
    }

    #[test]
    fn idl_of_structs_reads_as_the_same_structure() {
        #[allow(non_snake_case)]
        #[derive(Serialize, Deserialize)]
        struct Mixed {
            Kind: u8,
            inner: Vec<Point>,
        }
        let (found, described) = (text::<Mixed>(), TypeDescription::of::<Mixed>());
        let mut idl = Idl::new();
        idl.add("found", &found.text).unwrap();
        assert_eq!(idl.describe(&found.name).unwrap().schema, described.schema);
    }

    #[test]
    fn types_without_structure_or_bytes_have_no_text() {
        use thalweg::codec::Message;
        let nothing = Schema::Struct { name: "Nothing".into(), fields: Vec::new() };
        let described = |schema: Schema| TypeDescription {
            name: "Nothing".into(),
            hash: schema.hash(),
            schema: Some(Arc::new(schema)),
            ros: None,
        };
        for none in [Raw::description().as_ref().clone(), described(nothing), described(Schema::Unit)] {
            assert_eq!(SchemaText::of(&none), None, "{none:?}");
        }
    }
}
