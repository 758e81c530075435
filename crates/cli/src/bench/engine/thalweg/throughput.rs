//! One way at full speed: the sender publishes, the receiver's callback counts.

use super::line::Line;
use super::{FAILED, PASSED, Ports, Settings, connected, hear, hear_words, taken, tell};
use crate::bench::Error;
use crate::bench::figures::{Meter, Throughput};
use baseline::meeting::{self, Meeting, write_words};
use baseline::throughput::Arrived;
use linux::clock::monotonic_ns;
use linux::poll::wait_readable;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{Batching, Publisher};

const TOPIC: &str = "/bench/stream";

/// Meets a receiver, and publishes to it at full speed.
pub(super) fn send(name: &'static str, settings: &Settings) -> Result<Throughput, Error> {
    let terms = &settings.terms;
    let mut meter = Meter::new();
    let line = Line::join(&settings.meeting(name, "throughput"), "throughput", settings)?;
    tell(&line.control, terms)?;
    let ports = Ports::open("sender", std::process::id().into(), settings.carrier, terms, line.node())?
        .reliable(settings.reliable);
    let builder = ports.publisher(TOPIC);
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
    let builder = ports.subscriber(TOPIC);
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
