//! One publisher at 1 kHz and many subscriber processes, whose callbacks record the latency of each sample.

use super::{PASSED, Ports, Settings, connected, hear, hear_words, taken, tell};
use crate::bench::Error;
use crate::bench::arguments::Carrier;
use crate::bench::figures::Meter;
use baseline::fanout::{Late, MIN_SIZE, MISSED, Pace, merge};
use baseline::meeting::{Meeting, write_words};
use linux::clock::monotonic_ns;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{Published, Publisher};

const TOPIC: &str = "/bench/samples";

/// Meets the subscribers, publishes to all of them, and merges their records.
pub(super) fn publish(meeting: &Meeting, settings: &Settings) -> Result<Meter, Error> {
    let (terms, subscribers) = (&settings.terms, settings.subscribers);
    if terms.size < MIN_SIZE {
        let text = format!("{} bytes per sample: at least {MIN_SIZE} for the stamp", terms.size);
        return Err(Error::Usage(text));
    }
    let mut meter = Meter::new();
    let controls = meeting.host(subscribers)?;
    controls.iter().try_for_each(|control| tell(control, terms))?;
    let ports = Ports::open("publisher", std::process::id().into(), settings.carrier, terms, None)?;
    let publisher = ports.publisher(TOPIC).open()?;
    let pace = Pace::new(Duration::from_millis(1));
    let mut source = Source { publisher, message: vec![0; terms.size], sequence: 0, pace };
    connected(&source.publisher, subscribers)?;
    source.run(terms.warmup, subscribers)?;
    meter.start();
    source.run(terms.count, subscribers)?;
    meter.stop();
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
    Ok(meter)
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
    let ports = Ports::open("subscriber", realm, settings.carrier, &terms, None)?;
    let mut noting = Some((Late::new(&terms), control.try_clone()?));
    let _subscriber = ports.subscriber(TOPIC).callback(move |sample| {
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
