//! The measurements that are the same for every engine, and the engine without middleware.
//!
//! An engine is a file in `engine/` with one type that plays the roles, and a line in [`select`].

pub(super) mod bindings;
#[cfg(feature = "bridge")]
mod foreign;
pub(super) mod thalweg;

use super::figures::{Fanout, Latency, Meter, Start, Throughput};
use super::{Beside, Carrier, EngineName, Error, name_of};
use crate::output::tell;
use crate::participant::Reach;
use baseline::meeting::Meeting;
use baseline::{Terms, fanout, latency, throughput};
use lab::topology::Topology;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

/// The work of one process. The passive roles (pong, receive, subscribe) use only `carrier` and the meeting: the
/// other end tells them the terms.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The carrier of the messages.
    pub carrier: Carrier,
    /// Size, counts, work on the payload, batching.
    pub terms: Terms,
    /// Subscribers that the publisher waits for.
    pub subscribers: usize,
    /// A name known to both ends only.
    pub key: Option<String>,
    /// Lost messages are retransmitted on a carrier that loses.
    pub reliable: bool,
    /// The latency budget of both ends.
    pub latency_budget: Option<std::time::Duration>,
    /// The channels of the two directions are not declared to belong together.
    pub plain: bool,
    /// Both ends measure the stages of every sample meanwhile.
    pub stages: bool,
    /// Addresses and realm of this end, if the other one is on another host.
    pub reach: Reach,
    /// This end's host, if the two ends are on hosts of their own.
    pub host: Option<Host>,
    /// Both hosts, at the end that made them.
    pub hosts: Option<Arc<Topology>>,
    /// The folder with the program of a binding's end.
    pub programs: Option<PathBuf>,
    /// The second topic of a binding's subscriber.
    pub beside: Option<Beside>,
}

/// A host: a network namespace, and an address in it.
#[derive(Clone, Debug)]
pub(super) struct Host {
    /// Name of the namespace.
    pub namespace: String,
    /// Address that a node listens at.
    pub listen: SocketAddr,
}

impl Settings {
    /// Moves this process to its host. Only the main thread may call it: the namespace of a process is its main thread's. The
    /// meeting has to be over, because names of sockets are those of a namespace.
    pub(super) fn go_to_host(&self) -> Result<(), Error> {
        let Some(host) = &self.host else { return Ok(()) };
        Ok(linux::namespace::Namespace::named(&host.namespace)?.enter()?)
    }

    /// The meeting place of the two ends of `mode`, for this engine and carrier.
    pub(super) fn meeting(&self, engine: &str, mode: &str) -> Meeting {
        let what = format!("{engine}-{mode}-{}", name_of(self.carrier));
        match &self.key {
            Some(key) => Meeting::private(&what, key),
            None => Meeting::new(&what).when_alone(tell_alone), // people start the other end
        }
    }

    /// The control line of a passive end, when the active one has come.
    pub(super) fn visited(&self, engine: &str, mode: &str) -> Result<UnixStream, Error> {
        let nobody = || Error::Peer("nobody came".to_owned());
        self.meeting(engine, mode).host(1)?.pop().ok_or_else(nobody)
    }
}

fn tell_alone() {
    tell("thalweg bench: waiting for the other role … (--role pong or ping, with the same --engine and --carrier)");
}

/// The roles of a measurement. Each runs once in a process of its own, already pinned. The active roles measure
/// `terms.count` messages after `terms.warmup` others; the passive roles end when the active one ends.
pub(super) trait Engine {
    /// The name in results.
    fn name(&self) -> &'static str;

    /// Makes round trips with a [`Engine::pong`]. With [`Carrier::Local`] both ends are in this process, and half a
    /// round trip is one way.
    fn ping(&self, settings: &Settings) -> Result<Latency, Error>;

    /// Echoes what [`Engine::ping`] sends.
    fn pong(&self, settings: &Settings) -> Result<(), Error>;

    /// Sends to a [`Engine::receive`] as fast as it goes.
    fn send(&self, settings: &Settings) -> Result<Throughput, Error>;

    /// Counts the messages of [`Engine::send`], and reports the count to it.
    fn receive(&self, settings: &Settings) -> Result<(), Error>;

    /// Publishes stamped samples at 1 kHz to `settings.subscribers` of [`Engine::subscribe`].
    fn publish(&self, settings: &Settings) -> Result<Fanout, Error>;

    /// Takes the samples of [`Engine::publish`] and reports the latency of each to it.
    fn subscribe(&self, settings: &Settings) -> Result<(), Error>;

    /// Opens a node beside the one of [`Engine::stand_by`], and `terms.count` channels to it.
    fn start(&self, settings: &Settings) -> Result<Start, Error> {
        let _ = settings;
        Err(no_nodes(self.name()))
    }

    /// Opens the node that is there before the one of [`Engine::start`].
    fn stand_by(&self, settings: &Settings) -> Result<(), Error> {
        let _ = settings;
        Err(no_nodes(self.name()))
    }
}

pub(super) fn no_nodes(engine: &str) -> Error {
    Error::Usage(format!("engine \"{engine}\" has no nodes to start; allowed: thalweg"))
}

/// The engine of that name.
pub(super) fn select(name: EngineName) -> Box<dyn Engine> {
    match name {
        EngineName::Raw => Box::new(Raw),
        EngineName::Thalweg => Box::new(thalweg::Thalweg),
        EngineName::Cpp | EngineName::Python => Box::new(bindings::Binding(name)),
        #[cfg(feature = "bridge")]
        other => Box::new(foreign::Foreign(other)),
    }
}

/// The engine without middleware.
struct Raw;

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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_engine_that_can_be_named_is_there() {
        for name in EngineName::value_variants() {
            assert_eq!(select(*name).name(), name_of(*name));
        }
    }
}
