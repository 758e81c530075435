//! A program of a measurement. It prints `ready`, does its part when it is told to, prints its figures as a line of JSON, and ends with its
//! standard input.

use crate::bench::figures::Percentiles;
use crate::bench::{Error, parse_size, print};
use baseline::fanout::Pace;
use clap::{Args, ValueEnum};
use lab::statistics::{Latencies, rounded};
use linux::clock::process_cpu_ns;
use serde_json::json;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, SampleInfo, Settings, Subscriber};

/// Options of a part.
#[derive(Args, Clone, Debug)]
pub(in crate::bench) struct PartOptions {
    /// The part
    #[arg(value_enum)]
    role: PartRole,
    /// Its realm
    #[arg(long)]
    realm: String,
    /// The topic that it publishes or listens to
    #[arg(long, default_value = "/bench")]
    topic: String,
    /// The topic that it publishes in the callback
    #[arg(long, default_value = "/answer")]
    answer: String,
    /// Bytes of a sample
    #[arg(long, default_value = "64", value_parser = parse_size)]
    size: usize,
    /// Samples per second
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// The time for which it publishes
    #[arg(long, default_value = "1s", value_parser = qos::parse_duration)]
    time: Duration,
    /// Channels that it waits for
    #[arg(long, default_value_t = 1)]
    channels: usize,
    /// The time for which the callback sleeps
    #[arg(long, default_value = "0s", value_parser = qos::parse_duration)]
    delay: Duration,
}

/// A part of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PartRole {
    /// Publishes at a rate
    Publish,
    /// Measures what comes
    Listen,
    /// Publishes in the callback of what comes
    React,
    /// Has many channels
    Crowd,
}

/// Plays its part.
pub(in crate::bench) fn run(options: &PartOptions) -> Result<bool, Error> {
    if !(1e-3..=1e6).contains(&options.rate) {
        return Err(Error::Usage(format!("--rate {}: 0.001 to 1000000", options.rate)));
    }
    match options.role {
        PartRole::Publish => publish(options)?,
        PartRole::Listen => listen(options)?,
        PartRole::React => react(options)?,
        PartRole::Crowd => crowd(options)?,
    }
    Ok(true)
}

/// The longest wait for channels.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest wait for samples that are not sent yet.
const DRAIN: Duration = Duration::from_secs(10);

fn node(options: &PartOptions, name: &str) -> Result<Node, Error> {
    let (name, realm) = (format!("{name}-{}", std::process::id()), options.realm.clone());
    Ok(Node::with_settings(Settings { name, realm, ..Settings::default() })?)
}

/// Waits for the next line of standard input; `false`: it has ended.
fn told() -> Result<bool, Error> {
    Ok(std::io::stdin().lock().read_line(&mut String::new())? > 0)
}

fn connected(publisher: &Publisher<Raw>, channels: usize) -> Result<(), Error> {
    let found = publisher.wait_connected(channels, PATIENCE);
    let missing = || Error::Peer(format!("{} has {} of {channels} channels", publisher.name(), publisher.connected()));
    found.then_some(()).ok_or_else(missing)
}

fn publish(options: &PartOptions) -> Result<(), Error> {
    let node = node(options, "publisher")?;
    let largest = u32::try_from(options.size).unwrap_or(u32::MAX).max(64);
    let mut publisher = node.publisher::<Raw>(&options.topic).max_message(largest).open()?;
    connected(&publisher, options.channels)?;
    print("ready");
    if !told()? {
        return Ok(());
    }
    let (message, mut pace) = (vec![7; options.size], Pace::new(Duration::from_secs_f64(1.0 / options.rate)));
    let (cpu_ns, began, mut published, mut dropped) = (process_cpu_ns(), Instant::now(), 0u64, 0u64);
    while began.elapsed() < options.time {
        pace.wait();
        let outcome = publisher.publish(&message)?;
        published += 1;
        dropped += u64::from(outcome.dropped);
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu_us = process_cpu_ns().saturating_sub(cpu_ns) as f64 / 1e3 / published.max(1) as f64;
    let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let (threads, descriptors) = (count("/proc/self/task"), count("/proc/self/fd"));
    let channels = publisher.connected();
    publisher.close(DRAIN);
    let figures = json!({"published": published, "dropped": dropped, "seconds": seconds, "channels": channels,
        "threads": threads, "descriptors": descriptors, "cpu_us_per_sample": rounded(cpu_us, 3)});
    print(&figures.to_string());
    while told()? {}
    Ok(())
}

/// What has come.
struct Heard {
    latencies: Latencies,
    /// Differences between the intervals of receipt and the period.
    errors: Latencies,
    count: u64,
    last: Option<(u64, u64)>,
}

impl Heard {
    fn note(&mut self, info: &SampleInfo, period_ns: u64) {
        self.count += 1;
        info.latency_ns().into_iter().for_each(|ns| self.latencies.record(ns));
        if let Some((seq, received_ns)) = self.last.replace((info.seq, info.received_ns)) {
            let expected = info.seq.saturating_sub(seq).saturating_mul(period_ns);
            self.errors.record(info.received_ns.saturating_sub(received_ns).abs_diff(expected));
        }
    }
}

fn listen(options: &PartOptions) -> Result<(), Error> {
    let node = node(options, "listener")?;
    let longest = Duration::from_secs(60);
    let (latencies, errors) = (Latencies::up_to(longest), Latencies::up_to(longest));
    let heard = Arc::new(Mutex::new(Heard { latencies, errors, count: 0, last: None }));
    let (kept, period_ns) = (heard.clone(), (1e9 / options.rate) as u64);
    let report = |heard: &Mutex<Heard>| -> serde_json::Value {
        let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        json!({"count": heard.count, "latency_us": Percentiles::from(&heard.latencies),
            "interval_error_us": Percentiles::from(&heard.errors)})
    };
    let largest = u32::try_from(options.size).unwrap_or(u32::MAX).max(64);
    let subscriber = node.subscriber::<Raw>(&options.topic).max_message(largest);
    let _subscriber = subscriber.callback(move |sample| {
        kept.lock().unwrap_or_else(PoisonError::into_inner).note(sample.info(), period_ns);
    })?;
    print("ready");
    while told()? {
        print(&report(&heard).to_string());
    }
    Ok(())
}

fn react(options: &PartOptions) -> Result<(), Error> {
    let node = node(options, "reaction")?;
    let mut publisher = node.publisher::<Raw>(&options.answer).open()?;
    connected(&publisher, options.channels)?;
    let (delay, failed) = (options.delay, Arc::new(AtomicBool::new(false)));
    let noted = failed.clone();
    let _subscriber = node.subscriber::<Raw>(&options.topic).callback(move |sample| {
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        if publisher.publish(&sample).is_err() {
            noted.store(true, Relaxed);
        }
    })?;
    print("ready");
    while told()? {}
    match failed.load(Relaxed) {
        false => Ok(()),
        true => Err(Error::Peer(format!("{} could not be published", options.answer))),
    }
}

/// So many channels, each of a topic of its own, at the same rate.
fn crowd(options: &PartOptions) -> Result<(), Error> {
    let (talking, listening) = (node(options, "talkers")?, node(options, "listeners")?);
    let topic = |number: usize| format!("{}/{number}", options.topic);
    let numbers = 0..options.channels;
    let listen = |number| listening.subscriber::<Raw>(&topic(number)).callback(|_| {});
    let _subscribers: Vec<Subscriber<Raw>> = numbers.clone().map(listen).collect::<thalweg::Result<_>>()?;
    let talk = |number| talking.publisher::<Raw>(&topic(number)).open();
    let mut publishers: Vec<Publisher<Raw>> = numbers.map(talk).collect::<thalweg::Result<_>>()?;
    publishers.iter().try_for_each(|publisher| connected(publisher, 1))?;
    print("ready");
    let ended = Arc::new(AtomicBool::new(false));
    let noted = ended.clone();
    std::thread::spawn(move || {
        while told().unwrap_or(false) {}
        noted.store(true, Relaxed);
    });
    let (message, mut pace) = (vec![7; options.size], Pace::new(Duration::from_secs_f64(1.0 / options.rate)));
    while !ended.load(Relaxed) {
        pace.wait();
        for publisher in &mut publishers {
            publisher.publish(&message)?;
        }
    }
    Ok(())
}
