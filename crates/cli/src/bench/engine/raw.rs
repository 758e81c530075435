//! The limit as an engine: bare blocking sockets and a bare futex ring.

use super::{Engine, Settings};
use crate::bench::Error;
use crate::bench::arguments::Carrier;
use crate::bench::figures::{Fanout, Latency, Meter, Throughput};
use baseline::{fanout, latency, throughput};

/// The engine without middleware.
pub(super) struct Raw;

impl Engine for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn ping(&self, settings: &Settings) -> Result<Latency, Error> {
        let (carrier, terms) = (carrier(settings)?, &settings.terms);
        let mut meter = Meter::new();
        let mut ping = latency::Ping::open(&settings.meeting(self.name(), "latency"), carrier, terms)?;
        ping.run(terms.warmup, |_| ())?;
        meter.start();
        ping.run(terms.count, |ns| meter.record(ns))?;
        meter.stop();
        Ok(Latency::new(self.name(), settings, &meter))
    }

    fn pong(&self, settings: &Settings) -> Result<(), Error> {
        Ok(latency::pong(&settings.meeting(self.name(), "latency"), carrier(settings)?)?)
    }

    fn send(&self, settings: &Settings) -> Result<Throughput, Error> {
        let (carrier, terms) = (carrier(settings)?, &settings.terms);
        let mut meter = Meter::new();
        let mut sender = throughput::Sender::open(&settings.meeting(self.name(), "throughput"), carrier, terms)?;
        if terms.warmup > 0 {
            sender.run(terms.warmup)?;
        }
        meter.start();
        let arrived = sender.run(terms.count)?;
        meter.stop();
        Ok(Throughput::new(self.name(), settings, arrived.messages, arrived.nanoseconds, &meter))
    }

    fn receive(&self, settings: &Settings) -> Result<(), Error> {
        Ok(throughput::receive(&settings.meeting(self.name(), "throughput"), carrier(settings)?)?)
    }

    fn publish(&self, settings: &Settings) -> Result<Fanout, Error> {
        let (carrier, terms) = (carrier(settings)?, &settings.terms);
        let mut meter = Meter::new();
        let meeting = settings.meeting(self.name(), "fanout");
        let mut publisher = fanout::Publisher::open(&meeting, carrier, settings.subscribers, terms)?;
        publisher.run(terms.warmup)?;
        meter.start();
        publisher.run(terms.count)?;
        meter.stop();
        let last = publisher.collect(terms)?;
        last.iter().filter(|ns| **ns != fanout::MISSED).for_each(|ns| meter.record(*ns));
        Ok(Fanout::new(self.name(), settings, &meter))
    }

    fn subscribe(&self, settings: &Settings) -> Result<(), Error> {
        Ok(fanout::subscribe(&settings.meeting(self.name(), "fanout"), carrier(settings)?)?)
    }
}

fn carrier(settings: &Settings) -> Result<baseline::Carrier, Error> {
    match settings.carrier {
        Carrier::Tcp => Ok(baseline::Carrier::Tcp),
        Carrier::Udp => Ok(baseline::Carrier::Udp),
        Carrier::Unix => Ok(baseline::Carrier::Unix),
        Carrier::Shm => Ok(baseline::Carrier::Shm),
        Carrier::Local => Err(Error::Usage(
            "engine \"raw\" has no carrier \"local\": a function call has no two ends; allowed: tcp, udp, unix, shm"
                .to_owned(),
        )),
    }
}
