//! The connections to a broker: one for each class in use, because packets are marked by connection; and the presence of bridges.

#![allow(clippy::disallowed_methods)] // it reads the clock

use super::connection::Connection;
use super::dial::{Place, Presence};
use super::subscriptions::{Filter, Round, Target};
use super::topics::OWN;
use crate::engine::Refusals;
use crate::engine::{Error, Identity, Result};
use crate::lock;
use qos::Class;
use rumqttc::v5::mqttbytes::v5::Publish;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::control::NodeId;
use xxhash_rust::xxh3::xxh3_64;

/// Bridges that are remembered.
const MOST_BRIDGES: usize = 256;
/// Pause before a connection that failed is tried again: a bridge that has many topics of a class does not stand still for each of them.
const PAUSE: Duration = Duration::from_secs(1);

/// The connection of a class, which is opened when it is first used.
#[derive(Default)]
enum Slot {
    #[default]
    Unused,
    Open(Arc<Connection>),
    Failed(Instant, Error),
}

pub(super) struct Broker {
    place: Place,
    refusals: Arc<Refusals>,
    /// By class, in the order of [`Class::ALL`].
    open: Mutex<[Slot; 4]>,
    bridges: Arc<Mutex<BTreeSet<NodeId>>>,
}

impl Broker {
    /// Connects with class NORMAL. `space` is the data space at the broker: the prefix.
    pub(super) fn open(
        mut place: Place,
        space: &str,
        bridge: Option<Identity>,
        refusals: Arc<Refusals>,
    ) -> Result<Self> {
        // Bridges of other rules carry other topics: they do not stand in for this one.
        let below = |rules: &str| format!("{OWN}bridge/{:016x}", xxh3_64(format!("mqtt {space} {rules}").as_bytes()));
        let kin = bridge.as_ref().map(|bridge| below(&bridge.rules));
        let bridges: Arc<Mutex<BTreeSet<NodeId>>> = Arc::default();
        place.presence = bridge
            .zip(kin.as_ref())
            .map(|(Identity { node, .. }, kin)| Presence { topic: format!("{kin}/{node}"), known: bridges.clone() });
        let broker = Self { place, refusals, open: Mutex::default(), bridges };
        let connection = broker.of(Class::Normal)?;
        if let Some(kin) = kin {
            connection.subscribe(&broker.watch(&kin))?;
        }
        Ok(broker)
    }

    /// The connection of a class. The first use of a class opens it, or one that is more than [`PAUSE`] after a failure.
    ///
    /// # Errors
    /// As [`Connection::open`] says.
    pub(super) fn of(&self, class: Class) -> Result<Arc<Connection>> {
        let mut open = lock(&self.open);
        let at = Class::ALL.iter().position(|other| *other == class).and_then(|index| open.get_mut(index));
        let Some(at) = at else { return Err(Error::Usage(format!("no class {class}"))) };
        match at {
            Slot::Open(connection) => return Ok(connection.clone()),
            Slot::Failed(when, error) if when.elapsed() < PAUSE => return Err(error.clone()),
            Slot::Unused | Slot::Failed(..) => {}
        }
        let mut place = Place { class, ..self.place.clone() };
        if class != Class::Normal {
            place.client = format!("{}-{class}", place.client);
            place.presence = None;
        }
        let opened = Connection::open(place, self.refusals.clone()).map(Arc::new);
        *at = match &opened {
            Ok(connection) => Slot::Open(connection.clone()),
            Err(error) => Slot::Failed(Instant::now(), error.clone()),
        };
        opened
    }

    /// Follows the retained messages of bridges.
    fn watch(&self, kin: &str) -> Arc<Target> {
        let (known, skip) = (self.bridges.clone(), kin.len() + 1);
        let take = move |presence: &Publish, _: Round| {
            let node = presence.topic.get(skip..).and_then(|node| std::str::from_utf8(node).ok());
            let Some(Ok(node)) = node.map(|node| NodeId::try_from(node.to_owned())) else { return };
            let mut known = lock(&known);
            if presence.payload.is_empty() {
                known.remove(&node);
            } else if known.len() < MOST_BRIDGES {
                known.insert(node);
            }
        };
        Target::new(Filter { path: format!("{kin}/+"), reliable: true, history: true }, Box::new(take))
    }

    pub(super) fn bridges(&self) -> Vec<NodeId> {
        lock(&self.bridges).iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_failed_is_not_tried_again_at_once() {
        let place = Place {
            host: "127.0.0.1".to_owned(),
            port: 0, // nobody listens there
            user: String::new(),
            password: String::new(),
            client: "test".to_owned(),
            class: Class::Normal,
            max_message: 1000,
            presence: None,
        };
        let broker = Broker { place, refusals: Arc::default(), open: Mutex::default(), bridges: Arc::default() };
        let fails = || broker.of(Class::Normal).err().unwrap();
        let normal = Class::ALL.iter().position(|class| *class == Class::Normal).unwrap();
        assert!(matches!(fails(), Error::Engine(_)));
        assert!(matches!(lock(&broker.open)[normal], Slot::Failed(..)));
        let before = Error::Engine("before".to_owned());
        lock(&broker.open)[normal] = Slot::Failed(Instant::now() + PAUSE * 60, before.clone());
        assert_eq!(fails(), before);
        lock(&broker.open)[normal] = Slot::Failed(Instant::now().checked_sub(PAUSE).unwrap(), before.clone());
        assert_ne!(fails(), before, "it is tried again");
    }
}
