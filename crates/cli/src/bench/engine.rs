//! What every engine does in a measurement, so that all are measured alike.
//!
//! A new engine is a file in `engine/` with one type that plays the roles, and a line in [`select`].

mod raw;

use super::Error;
use super::arguments::{Carrier, EngineName, name_of};
use super::figures::{Fanout, Latency, Throughput};
use baseline::Terms;
use baseline::meeting::Meeting;

/// What one process is to do. The passive roles (pong, receive, subscribe) use `carrier` and the meeting only:
/// the terms are told to them by the other end.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What carries the messages.
    pub carrier: Carrier,
    /// Size, counts, what is done with the payload, batching.
    pub terms: Terms,
    /// How many subscribers the publisher waits for.
    pub subscribers: usize,
    /// A name known to both ends only.
    pub key: Option<String>,
}

impl Settings {
    /// Where the two ends of `mode` meet, for this engine and carrier.
    pub fn meeting(&self, engine: &str, mode: &str) -> Meeting {
        let what = format!("{engine}-{mode}-{}", name_of(self.carrier));
        self.key.as_ref().map_or_else(|| Meeting::new(&what), |key| Meeting::private(&what, key))
    }
}

/// The roles of a measurement. Each is called once in a process of its own, already pinned; the active ones measure
/// `terms.count` messages after `terms.warmup` others, the passive ones end when the active one ends.
pub trait Engine {
    /// The name in results.
    fn name(&self) -> &'static str;

    /// Makes round trips with a [`Engine::pong`]. With [`Carrier::Local`] both ends are in this process, and half a
    /// round trip is one way.
    fn ping(&self, settings: &Settings) -> Result<Latency, Error>;

    /// Echoes what [`Engine::ping`] sends.
    fn pong(&self, settings: &Settings) -> Result<(), Error>;

    /// Sends to a [`Engine::receive`] as fast as it goes.
    fn send(&self, settings: &Settings) -> Result<Throughput, Error>;

    /// Counts what [`Engine::send`] sends and tells it.
    fn receive(&self, settings: &Settings) -> Result<(), Error>;

    /// Publishes stamped samples at 1 kHz to `settings.subscribers` of [`Engine::subscribe`].
    fn publish(&self, settings: &Settings) -> Result<Fanout, Error>;

    /// Takes the samples of [`Engine::publish`] and tells it how late each was.
    fn subscribe(&self, settings: &Settings) -> Result<(), Error>;
}

/// The engine of that name.
///
/// # Errors
/// When this program was built without it.
pub fn select(name: EngineName) -> Result<Box<dyn Engine>, Error> {
    match name {
        EngineName::Raw => Ok(Box::new(raw::Raw)),
        // `engine/thalweg.rs` comes with the library's nodes.
        EngineName::Thalweg => Err(Error::Usage("engine \"thalweg\" is not built in: allowed is raw".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_not_there_is_named() {
        assert_eq!(select(EngineName::Raw).unwrap().name(), "raw");
        assert!(select(EngineName::Thalweg).err().is_some_and(|e| e.to_string().contains("thalweg")));
    }
}
