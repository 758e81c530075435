//! One-way streams: to one receiver at full speed, and at 1 kHz to many subscriber processes. Callbacks count the samples,
//! or record the latency of each.

use super::{FAILED, Line, PASSED, Ports, Settings, connected, hear, hear_words, taken, tell};
use crate::bench::figures::{Meter, Throughput};
use crate::bench::{Carrier, Error};
use baseline::fanout::{Late, MIN_SIZE, MISSED, Pace, merge};
use baseline::meeting::{self, Meeting, write_words};
use baseline::throughput::Arrived;
use linux::clock::{cpu_ns_of, monotonic_ns};
use linux::poll::wait_readable;
use qos::Queue;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{Batching, Published, Publisher};

/// Meets a receiver, and publishes to it at full speed.
pub(super) fn send(name: &'static str, settings: &Settings) -> Result<Throughput, Error> {
    let terms = &settings.terms;
    let mut meter = Meter::new();
    let line = Line::join(&settings.meeting(name, "throughput"), "throughput", settings)?;
    tell(&line.control, terms)?;
    let ports = Ports::open("sender", std::process::id().into(), settings.carrier, terms, line.node())?
        .reliable(settings.reliable);
    let builder = ports.publisher(STREAM);
    let builder = if terms.batched { builder.batching(Batching::default()) } else { builder };
    let builder = match settings.latency_budget {
        Some(budget) => builder.latency_budget(budget),
        None => builder,
    };
    let mut sender = Sender { publisher: builder.open()?, message: vec![0; terms.size], line };
    connected(&sender.publisher, 1)?;
    if terms.warmup > 0 {
        sender.run(terms.warmup)?;
    }
    meter.start();
    let arrived = sender.run(terms.count)?;
    meter.stop();
    write_words(&sender.line.control, &[PASSED])?;
    Ok(Throughput::new(name, settings, arrived.messages, arrived.nanoseconds, &meter))
}

struct Sender {
    publisher: Publisher<Raw>,
    message: Vec<u8>,
    line: Line,
}

impl Sender {
    fn run(&mut self, count: u64) -> Result<Arrived, Error> {
        let start = monotonic_ns();
        for _ in 0..count {
            taken(self.publisher.publish(&self.message)?, 1)?;
        }
        // An empty message ends the stream; it may be lost like any other.
        self.publisher.publish(&[])?;
        while !wait_readable(&self.line.control, Some(Duration::from_millis(10)))? {
            self.publisher.publish(&[])?;
        }
        let [messages, last] = hear_words(&self.line.control)?;
        // Another host's clock cannot be compared, so the time until its answer counts.
        let last = if self.line.node().is_some() { monotonic_ns() } else { last };
        Ok(Arrived { messages, nanoseconds: last.saturating_sub(start) })
    }
}

/// Meets a sender, and counts its messages in the warm-up and then in the measured part.
pub(super) fn receive(meeting: &Meeting, settings: &Settings) -> Result<(), Error> {
    let line = Line::host(meeting, "throughput", settings)?;
    let control = &line.control;
    let (terms, realm) = hear(control, settings)?;
    let ports = Ports::open("receiver", realm, settings.carrier, &terms, line.node())?.reliable(settings.reliable);
    let parts = if terms.warmup > 0 { [terms.warmup, terms.count] } else { [terms.count, 0] };
    let mut counter = Counter { parts, came: 0, control: control.try_clone()? };
    let builder = ports.subscriber(STREAM);
    let builder = match settings.latency_budget {
        Some(budget) => builder.latency_budget(budget),
        None => builder,
    };
    let _subscriber = builder.callback(move |sample| counter.take(&sample))?;
    let [word] = hear_words(control)?;
    if word == FAILED {
        return Err(Error::Peer("the sender failed".to_owned()));
    }
    Ok(())
}

struct Counter {
    parts: [u64; 2], // how many messages are wanted now and then; 0 when no more are
    came: u64,
    control: UnixStream,
}

impl Counter {
    #[inline]
    fn take(&mut self, message: &[u8]) {
        self.came += u64::from(!message.is_empty());
        // End messages that come before anything was counted belong to the previous part.
        if self.came == self.parts[0] || (message.is_empty() && self.came > 0) {
            self.report();
        }
    }

    #[cold]
    fn report(&mut self) {
        if self.came > 0 {
            let _ = meeting::write_words(&self.control, &[self.came, monotonic_ns()]); // an error: the other end has gone
            (self.parts, self.came) = ([self.parts[1], 0], 0);
        }
    }
}

/// Meets the subscribers, publishes to all of them, and merges their records. Returns their processor time, too.
pub(super) fn publish(meeting: &Meeting, settings: &Settings) -> Result<(Meter, u64), Error> {
    let (terms, subscribers) = (&settings.terms, settings.subscribers);
    if terms.size < MIN_SIZE {
        let text = format!("{} bytes per sample: at least {MIN_SIZE} for the stamp", terms.size);
        return Err(Error::Usage(text));
    }
    let mut meter = Meter::new();
    let controls = meeting.host(subscribers)?;
    controls.iter().try_for_each(|control| tell(control, terms))?;
    let others = processes(&controls)?;
    let ports = Ports::open("publisher", std::process::id().into(), settings.carrier, terms, None)?;
    let publisher = ports.publisher(SAMPLES).queue(QUEUE).open()?;
    let pace = Pace::new(Duration::from_millis(1));
    let mut source = Source { publisher, message: vec![0; terms.size], sequence: 0, pace };
    connected(&source.publisher, subscribers)?;
    source.run(terms.warmup, subscribers)?;
    meter.start();
    let before = cpu_ns(&others)?;
    source.run(terms.count, subscribers)?;
    meter.stop();
    let cpu_of_others = cpu_ns(&others)?.saturating_sub(before);
    if settings.carrier == Carrier::Udp {
        // The last sample may be lost like any other. The samples after it end the wait.
        (0..3).try_for_each(|_| source.publish().map(drop))?;
    }
    let mut last = vec![0; terms.count as usize];
    for control in &controls {
        merge(&mut last, control)?;
        write_words(control, &[PASSED])?;
    }
    last.iter().filter(|ns| **ns != MISSED).for_each(|ns| meter.record(*ns));
    Ok((meter, cpu_of_others))
}

/// The measured processes of the other ends; each is there until it is told that all is over.
pub(in crate::bench::engine) fn processes(controls: &[UnixStream]) -> Result<Vec<u32>, Error> {
    let process = |control: &UnixStream| {
        let [process] = meeting::read_words(control)?;
        u32::try_from(process).map_err(|_| Error::Peer(format!("{process} is no number of a process")))
    };
    controls.iter().map(process).collect()
}

/// Processor time of processes so far, in ns.
pub(in crate::bench::engine) fn cpu_ns(processes: &[u32]) -> Result<u64, Error> {
    let mut sum = 0;
    for process in processes {
        sum += cpu_ns_of(*process)?;
    }
    Ok(sum)
}

struct Source {
    publisher: Publisher<Raw>,
    message: Vec<u8>,
    sequence: u64,
    pace: Pace,
}

impl Source {
    fn run(&mut self, count: u64, subscribers: usize) -> Result<(), Error> {
        self.pace.restart();
        for _ in 0..count {
            self.pace.wait();
            taken(self.publish()?, subscribers as u32)?;
        }
        Ok(())
    }

    #[inline]
    fn publish(&mut self) -> Result<Published, Error> {
        self.message[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        self.message[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
        self.sequence += 1;
        Ok(self.publisher.publish(&self.message)?)
    }
}

/// Meets a publisher, takes its samples, and reports the latency of each to it.
pub(super) fn subscribe(meeting: &Meeting, settings: &Settings) -> Result<(), Error> {
    let control = meeting.join()?;
    let (terms, realm) = hear(&control, settings)?;
    write_words(&control, &[std::process::id().into()])?;
    let ports = Ports::open("subscriber", realm, settings.carrier, &terms, None)?;
    let mut noting = Some((Late::new(&terms), control.try_clone()?));
    let _subscriber = ports.subscriber(SAMPLES).queue(QUEUE).callback(move |sample| {
        if noting.as_mut().is_some_and(|(late, _)| late.note(&sample))
            && let Some((late, control)) = noting.take()
        {
            report(&late, control);
        }
    })?;
    hear_words::<1>(&control).map(drop)
}

fn report(late: &Late, mut control: UnixStream) {
    let bytes: Vec<u8> = late.nanoseconds().iter().flat_map(|ns| ns.to_le_bytes()).collect();
    let _ = control.write_all(&bytes); // fails when the publisher is gone, which the main thread sees
}

const STREAM: &str = "/bench/stream";
const SAMPLES: &str = "/bench/samples";
/// A second of the samples, in each language, so that an end without a processor for a while loses nothing.
const QUEUE: Queue = Queue::KeepLast(1000);
