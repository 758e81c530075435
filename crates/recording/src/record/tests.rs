//! A recorder whose disk stands still, beside a publisher in this process.

use super::intake::Intake;
use super::storage::Storage;
use super::topics::{Topics, Wanted};
use super::{Lost, Summary};
use crate::Result;
use crate::file::{ClockAnchor, Files, LOSSES, Limits, Loss, Output, Place, Store};
use qos::Qos;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::monitor::{Monitor, Seen, Verdict};
use thalweg::{Change, Node, Publisher, SampleInfo, Settings};

pub(super) const LONG: Duration = Duration::from_secs(30);

/// A disk that takes nothing until it is released.
#[derive(Clone, Default)]
struct Still {
    released: Arc<(Mutex<bool>, Condvar)>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Still {
    fn release(&self) {
        *self.released.0.lock().unwrap() = true;
        self.released.1.notify_all();
    }
}

impl Write for Still {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (released, news) = &*self.released;
        drop(news.wait_while(released.lock().unwrap(), |released| !*released).unwrap());
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Store for Still {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().truncate(length as usize);
        Ok(())
    }

    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Files for Still {
    type Store = Still;

    fn next(&mut self) -> Result<(PathBuf, Still)> {
        Ok((PathBuf::from("still.mcap"), self.clone()))
    }
}

fn node(realm: &str, name: &str) -> Node {
    let realm = format!("recording-{realm}-{}", std::process::id());
    Node::with_settings(Settings { name: name.to_owned(), realm, ..Settings::default() }).unwrap()
}

/// The topics of a node, on the way to a disk.
fn begin(recording: &Node, disk: &Still) -> (Arc<Topics>, Arc<Intake>, JoinHandle<Summary>) {
    let intake = Arc::new(Intake::new(1 << 20));
    let wanted = Wanted { topics: vec!["/**".to_owned()], exclude: Vec::new() };
    let topics = Arc::new(Topics::new(recording.clone(), wanted, intake.clone(), None));
    let anchor = ClockAnchor { clock: "clock".into(), monotonic_ns: 0, wall_ns: 0 };
    let output = Output::create(disk.clone(), Limits::default(), anchor, Vec::new()).unwrap();
    let storage = Storage::new(output, topics.clone(), intake.clone());
    (topics, intake, std::thread::spawn(move || storage.run()))
}

/// Subscribes to what a node publishes, once it is known.
fn join(topics: &Topics, recording: &Node, publishing: &Node) {
    let known =
        || recording.nodes().iter().any(|document| document.node == publishing.id() && !document.ports.is_empty());
    assert!(recording.wait_until(LONG, known));
    topics.look();
}

fn until_came(intake: &Intake, last: u64) {
    let mut waits = (0..300).map(|_| std::thread::sleep(Duration::from_millis(100)));
    assert!(waits.any(|()| intake.highest() == last), "{} came last", intake.highest());
}

fn publish(publisher: &mut Publisher<Raw>, count: u32) {
    for _ in 0..count {
        publisher.publish(&[7; 8]).unwrap();
    }
}

/// Lets samples with these numbers go no further.
struct Drops(RangeInclusive<u64>);

impl Monitor for Drops {
    fn kind(&self) -> &str {
        "drops"
    }

    fn sample(&mut self, sample: &Seen<'_>, _: &mut Vec<u8>) -> Verdict {
        if self.0.contains(&sample.seq) { Verdict::Drop } else { Verdict::Pass }
    }
}

/// The recorder joins after the second sample, and the sixth is the first one that comes.
#[test]
fn what_is_lost_between_the_join_and_the_first_sample_is_counted() {
    // Not `local`, which has values of a type: a recorder takes bytes.
    for carrier in ["shm", "tcp", "udp"] {
        let (publishing, recording) = (node(carrier, "publishing"), node(carrier, "recording"));
        let publisher = publishing.publisher::<Raw>("/a").carriers([carrier]).monitor(Drops(3..=5));
        let mut publisher = publisher.open().unwrap();
        publish(&mut publisher, 2);
        let disk = Still::default();
        disk.release();
        let (topics, intake, storage) = begin(&recording, &disk);
        join(&topics, &recording, &publishing);
        assert!(publisher.wait_connected(1, LONG), "{carrier}");
        publish(&mut publisher, 4);
        until_came(&intake, 6);
        intake.close();
        let summary = storage.join().unwrap();
        let [channel] = &summary.channels[..] else { panic!("{carrier}: {summary:?}") };
        assert_eq!((channel.samples, channel.lost), (1, Lost { publisher: 3, ..Lost::default() }), "{carrier}");
    }
}

/// While the disk stands still the publisher goes on, and what found no room in memory is counted, in the file, too.
#[test]
fn a_disk_that_stands_still_holds_up_no_publisher() {
    const SAMPLES: u64 = 64;
    let (publishing, recording, disk) = (node("still", "publishing"), node("still", "recording"), Still::default());
    let mut publisher = publishing.publisher::<Raw>("/a").open().unwrap();
    let (topics, intake, storage) = begin(&recording, &disk);
    join(&topics, &recording, &publishing);
    assert!(publisher.wait_connected(1, LONG));
    for _ in 0..SAMPLES {
        publisher.publish(&[7; 256 << 10]).unwrap();
    }
    // The queues between the two keep the last sample, whatever they drop.
    until_came(&intake, SAMPLES);
    disk.release();
    intake.close();
    let summary = storage.join().unwrap();
    let [channel] = &summary.channels[..] else { panic!("{summary:?}") };
    assert_eq!((channel.samples + channel.lost.total(), summary.failure), (SAMPLES, None), "{channel:?}");
    assert!(channel.lost.recorder > 8 && channel.lost.disk == 0, "{channel:?}");
    let file = disk.bytes.lock().unwrap().clone();
    let (mut samples, mut losses) = (0, Vec::new());
    for message in mcap::MessageStream::new(&file).unwrap().map(|message| message.unwrap()) {
        match message.channel.topic.as_str() {
            "/a" => samples += 1,
            LOSSES => losses.push(serde_json::from_slice::<Loss>(&message.data).unwrap()),
            _ => {}
        }
    }
    let recorder: u64 = losses.iter().filter(|loss| loss.place == Place::Recorder).map(|loss| loss.count).sum();
    assert_eq!((samples, recorder), (channel.samples, channel.lost.recorder));
    assert!(losses.iter().all(|loss| loss.publisher == publisher.name()), "{losses:?}");
}

/// Its samples may be written before the recorder looks at topics again.
#[test]
fn a_publisher_that_has_just_come_is_known_with_its_policies() {
    let (publishing, recording) = (node("late", "publishing"), node("late", "recording"));
    let qos = Qos { deadline: Some(LONG), ..Qos::default() };
    let publisher = publishing.publisher::<Raw>("/a").qos(qos).open().unwrap();
    let port = || {
        let mut ports = recording.nodes().into_iter().flat_map(|document| document.ports);
        ports.find(|(_, port)| port.name == publisher.name()).map(|(port, _)| port)
    };
    assert!(recording.wait_until(LONG, || port().is_some()));
    let wanted = Wanted { topics: vec!["/**".to_owned()], exclude: Vec::new() };
    let topics = Topics::new(recording.clone(), wanted, Arc::new(Intake::new(1 << 20)), None);
    let info = SampleInfo {
        node: publishing.id(),
        port: port().unwrap(),
        incarnation: 1,
        seq: 1,
        source_ns: 0,
        received_ns: 0,
        same_clock: true,
        historical: false,
        change: Change::Written,
        scaled: None,
    };
    let channel = topics.channel(&topics.source(0, &info));
    assert_eq!(channel.metadata["thalweg.publisher"], publisher.name());
    assert!(channel.metadata["thalweg.qos"].contains("deadline"), "{:?}", channel.metadata);
}
