//! `thalweg bench recording`: rate and losses of the recorder, and its cost for the channels that it records.
//!
//! In each round the disk is measured first: a file, written in sequence and settled. Then a topic of 1 MiB samples, at the rate that the
//! target asks for, and a topic of 64 B at 1 kHz are published to a listener each, once with `thalweg record` beside them and once without.

use super::others::Other;
use super::report::Report;
use super::{Folder, ToolOptions};
use crate::bench::Error;
use crate::output::tell;
use ::recording::read::Recording;
use lab::results::Check;
use lab::statistics::{median, rounded};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Measures and judges.
pub(in crate::bench) fn run(options: &ToolOptions) -> Result<bool, Error> {
    let time = options.time(60, 5);
    let folder = Folder::new(&options.dir)?;
    let mut report = Report::new("recording", options, time.as_secs_f64())?;
    let (mut shares, mut p99, mut unaccounted, mut lost) = (Vec::new(), [(); 4].map(|()| Vec::new()), 0.0, 0.0);
    let (mut rates, mut heard) = ([Vec::new(), Vec::new()], 1.0);
    for round in 0..options.rounds() {
        let most = options.rate.unwrap_or(MOST);
        let disk = disk_rate(&folder, time.min(DISK), most)?;
        let wanted = most.min(disk * SHARE);
        room(&folder, wanted * OFFERED * time.as_secs_f64())?;
        let run = Run { time, rate: wanted * OFFERED, broken: options.broken, round };
        let mut sides = [true, false];
        if round % 2 == 1 {
            sides.reverse();
        }
        for recorded in sides {
            tell(&format!("recording: round {}: {}", round + 1, if recorded { "with" } else { "without" }));
            let file = folder.file(&format!("{round}.mcap"));
            let found = run.measure(recorded.then_some(file.as_path()))?;
            let side = usize::from(!recorded) * 2;
            p99[side].push(found.p99(0));
            p99[side + 1].push(found.p99(1));
            rates[usize::from(!recorded)].push(rounded(found.rate() / 1e6, 1));
            heard = least(heard, found.heard());
            if let Some(kept) = &found.kept {
                shares.push(kept.rate / wanted);
                unaccounted += kept.unaccounted;
                lost += kept.lost;
            }
            report.measured(found.document(round, disk, wanted));
            let _ = std::fs::remove_file(&file); // there is none without the recorder
        }
    }
    let [big, small, big_alone, small_alone] = &p99;
    report.figure("lost", lost);
    report.figure("published_mb_s", median(&rates[0]));
    report.figure("published_mb_s_alone", median(&rates[1]));
    // Samples that did not come are in no percentile.
    report.whole("heard", Check::at_least("samples heard / published, the least of topics and sides", heard, HEARD));
    let name = "samples that are neither in the file nor counted as lost at a place";
    report.count("unaccounted", Check::at_most(name, unaccounted, 0.0));
    let name = "recorded rate / the smaller of 500 MB/s and 90 % of the disk's";
    report.time("share_of_target", &shares, 0.05, |share| Check::at_least(name, share, 1.0));
    report.quotient("p99_ratio", "p99 of 64 B, with / without the recorder", small, small_alone, 1.10);
    report.quotient("p99_big_ratio", "p99 of 1 MiB, with / without the recorder", big, big_alone, 1.10);
    report.end(options)
}

/// The settings of a measurement.
struct Run {
    time: Duration,
    /// Bytes per second of the big topic.
    rate: f64,
    broken: bool,
    round: u32,
}

/// What came, by topic, and what was recorded.
struct Found {
    listened: [Value; 2],
    published: [Value; 2],
    kept: Option<Kept>,
}

/// What the recorder has kept.
struct Kept {
    /// Bytes per second, until all of it was on the disk.
    rate: f64,
    unaccounted: f64,
    lost: f64,
    summary: Value,
}

impl Run {
    fn measure(&self, file: Option<&Path>) -> Result<Found, Error> {
        let realm = format!("bench-{}-{}-{}", std::process::id(), self.round, u8::from(file.is_some()));
        let listen = |topic| part("listen", &realm, topic, &[]);
        let mut listeners = [listen(BIG)?, listen(SMALL)?];
        let recorder = file.map(|file| record(file, &realm)).transpose()?;
        let channels = if recorder.is_some() { "2" } else { "1" };
        let time = format!("{}ms", self.time.as_millis());
        let publish = |topic, rate: f64| {
            let rate = rate.to_string();
            part("publish", &realm, topic, &["--rate", &rate, "--time", &time, "--channels", channels])
        };
        listeners.iter().try_for_each(|listener| listener.line().map(drop))?;
        let mut publishers = [publish(BIG, self.rate / f64::from(BIG_BYTES))?, publish(SMALL, 1000.0)?];
        publishers.iter().try_for_each(|publisher| publisher.line().map(drop))?;
        publishers.iter_mut().try_for_each(|publisher| publisher.tell("go"))?;
        let published = documents(&mut publishers, None)?;
        // What is on its way arrives.
        std::thread::sleep(SETTLE);
        let listened = documents(&mut listeners, Some("report"))?;
        let kept = recorder.zip(file).map(|(recorder, file)| self.kept(recorder, file, &published));
        let kept = kept.transpose()?;
        Ok(Found { listened, published, kept })
    }

    /// Ends the recorder, and counts what is in its file.
    fn kept(&self, mut recorder: Other, file: &Path, published: &[Value; 2]) -> Result<Kept, Error> {
        let ending = Instant::now();
        recorder.interrupt();
        let summary = recorder.document()?;
        recorder.end()?;
        let ending = ending.elapsed();
        if self.broken {
            let length = std::fs::metadata(file)?.len();
            OpenOptions::new().write(true).open(file)?.set_len(length / 2)?;
        }
        let counts = counts(file)?;
        let (mut unaccounted, mut lost_by_all) = (0.0, 0.0);
        for (topic, published) in TOPICS.iter().zip(published) {
            let lost = lost(&summary, topic);
            let kept = counts.get(*topic).copied().unwrap_or_default().0;
            unaccounted += (number(published, "/published") - kept as f64 - lost).abs();
            lost_by_all += lost;
        }
        let bytes: u64 = TOPICS.iter().filter_map(|topic| counts.get(*topic)).map(|(_, bytes)| bytes).sum();
        let seconds = number(&published[0], "/seconds") + ending.as_secs_f64();
        Ok(Kept { rate: bytes as f64 / seconds.max(f64::MIN_POSITIVE), unaccounted, lost: lost_by_all, summary })
    }
}

impl Found {
    /// The 99th percentile of a topic, us.
    fn p99(&self, topic: usize) -> f64 {
        number(&self.listened[topic], "/latency_us/p99")
    }

    /// Bytes of the big topic that were published per second.
    fn rate(&self) -> f64 {
        number(&self.published[0], "/published") * f64::from(BIG_BYTES) / number(&self.published[0], "/seconds")
    }

    /// The part of the published samples that the listener of a topic heard: the lesser one.
    fn heard(&self) -> f64 {
        let parts = self.listened.iter().zip(&self.published);
        parts.map(|(listened, published)| number(listened, "/count") / number(published, "/published")).fold(1.0, least)
    }

    fn document(&self, round: u32, disk: f64, wanted: f64) -> Value {
        let megabytes = |rate: f64| rounded(rate / 1e6, 1);
        json!({
            "round": round + 1, "recorder": self.kept.is_some(), "disk_mb_s": megabytes(disk), "target_mb_s": megabytes(wanted),
            "published_mb_s": megabytes(self.rate()), "recorded_mb_s": self.kept.as_ref().map(|kept| megabytes(kept.rate)),
            "channels": self.kept.as_ref().map(|kept| &kept.summary["channels"]),
            "listened": {BIG: self.listened[0], SMALL: self.listened[1]},
            "published": {BIG: self.published[0], SMALL: self.published[1]},
        })
    }
}

fn part(role: &str, realm: &str, topic: &str, further: &[&str]) -> Result<Other, Error> {
    let size = if topic == BIG { BIG_BYTES } else { 64 };
    let size = size.to_string();
    let arguments = ["bench", "part", role, "--realm", realm, "--topic", topic, "--size", &size];
    Other::start(&[&arguments[..], further].concat())
}

fn record(file: &Path, realm: &str) -> Result<Other, Error> {
    let file = file.display().to_string();
    Other::start(&["record", &file, BIG, SMALL, "--json", "--realm", realm])
}

/// The next line of each part, after it was told to print it.
fn documents(parts: &mut [Other; 2], told: Option<&str>) -> Result<[Value; 2], Error> {
    let mut found = [Value::Null, Value::Null];
    for (part, found) in parts.iter_mut().zip(&mut found) {
        told.map_or(Ok(()), |line| part.tell(line))?;
        *found = part.document()?;
    }
    Ok(found)
}

/// The smaller one; not a number if one of them is none.
fn least(one: f64, other: f64) -> f64 {
    if one.is_nan() || one < other { one } else { other }
}

fn number(document: &Value, place: &str) -> f64 {
    document.pointer(place).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// The samples of a topic that the recorder counts as lost, with a place.
fn lost(summary: &Value, topic: &str) -> f64 {
    let channels = summary["channels"].as_array().into_iter().flatten().filter(|channel| channel["topic"] == topic);
    let places = channels.filter_map(|channel| channel["lost"].as_object()).flat_map(|places| places.values());
    places.filter_map(Value::as_f64).sum()
}

/// The samples in a file, and their bytes, by topic.
fn counts(file: &Path) -> Result<BTreeMap<String, (u64, u64)>, Error> {
    let unreadable = |wrong: ::recording::read::ReadError| Error::Peer(wrong.to_string());
    let recording = Recording::open(file).map_err(unreadable)?;
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for message in recording.messages().map_err(unreadable)?.flatten() {
        let (samples, bytes) = counts.entry(message.channel.topic.clone()).or_default();
        *samples += 1;
        *bytes += message.data.len() as u64;
    }
    Ok(counts)
}

/// Bytes per second that the disk takes in sequence, until all of it is there. A faster disk than decides gets no more than such a one.
fn disk_rate(folder: &Folder, time: Duration, most: f64) -> Result<f64, Error> {
    let path = folder.file("disk");
    let unusable = |wrong: std::io::Error| Error::System(format!("cannot write {}: {wrong}", path.display()));
    let (block, began, mut bytes) = (vec![0x5a; 1 << 20], Instant::now(), 0u64);
    let mut file = File::create(&path).map_err(unusable)?;
    while began.elapsed() < time && (bytes as f64) < most / SHARE * time.as_secs_f64() {
        file.write_all(&block).map_err(unusable)?;
        bytes += block.len() as u64;
    }
    file.sync_all().map_err(unusable)?;
    let seconds = began.elapsed().as_secs_f64();
    std::fs::remove_file(&path).map_err(unusable)?;
    Ok(bytes as f64 / seconds)
}

/// Refuses a measurement that the disk has no room for.
fn room(folder: &Folder, bytes: f64) -> Result<(), Error> {
    let room = linux::probe::room(&folder.0).map_or(0.0, |room| room.bytes as f64);
    let needed = bytes * 1.1;
    if room >= needed {
        return Ok(());
    }
    let [needed, room] = [needed, room].map(|bytes| rounded(bytes / 1e9, 1));
    Err(Error::System(format!(
        "{} has {room} GB left, and a recording takes {needed} GB: name another folder with --dir, or a shorter --time",
        folder.0.display()
    )))
}

/// The topics.
const BIG: &str = "/big";
const SMALL: &str = "/small";
const TOPICS: [&str; 2] = [BIG, SMALL];
/// Bytes of a sample of the big topic.
const BIG_BYTES: u32 = 1 << 20;
/// The part of the samples that a listener hears, where its percentiles count.
const HEARD: f64 = 0.99;
/// Bytes per second that are enough.
const MOST: f64 = 500e6;
/// The part of the disk's rate that is.
const SHARE: f64 = 0.9;
/// What is published, beside the target: so that the end of the recording, which waits for the disk, does not decide.
const OFFERED: f64 = 1.03;
/// The longest measurement of the disk.
const DISK: Duration = Duration::from_secs(5);
/// The time in which what was sent arrives.
const SETTLE: Duration = Duration::from_millis(500);
