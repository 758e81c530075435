//! The measurements that are the same for every engine.
//!
//! A new engine is a file in `engine/` with one type that plays the roles, and a line in [`select`].

mod raw;
mod thalweg;

use super::Error;
use super::arguments::{Carrier, EngineName, name_of};
use super::figures::{Fanout, Latency, Start, Throughput};
use crate::output::tell;
use crate::session::Reach;
use baseline::Terms;
use baseline::meeting::Meeting;

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
}

impl Settings {
    /// The meeting place of the two ends of `mode`, for this engine and carrier.
    pub(super) fn meeting(&self, engine: &str, mode: &str) -> Meeting {
        let what = format!("{engine}-{mode}-{}", name_of(self.carrier));
        match &self.key {
            Some(key) => Meeting::private(&what, key),
            None => Meeting::new(&what).when_alone(tell_alone), // people start the other end
        }
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

fn no_nodes(engine: &str) -> Error {
    Error::Usage(format!("engine \"{engine}\" has no nodes to start; allowed: thalweg"))
}

/// The engine of that name.
pub(super) fn select(name: EngineName) -> Box<dyn Engine> {
    match name {
        EngineName::Raw => Box::new(raw::Raw),
        EngineName::Thalweg => Box::new(thalweg::Thalweg),
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
