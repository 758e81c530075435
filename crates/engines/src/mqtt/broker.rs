//! The connections to a broker: one for each class in use, because packets are marked by connection; and the presence of bridges.

use super::connection::Connection;
use super::dial::{Place, Presence};
use super::subscriptions::{Filter, Target};
use super::tally::Tally;
use super::topics::OWN;
use crate::engine::{Error, Identity, Result};
use crate::lock;
use qos::Class;
use rumqttc::v5::mqttbytes::v5::Publish;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use thalweg::control::NodeId;
use xxhash_rust::xxh3::xxh3_64;

/// Bridges that are remembered.
const MOST_BRIDGES: usize = 256;

pub(super) struct Broker {
    place: Place,
    tally: Arc<Tally>,
    /// By class, in the order of [`Class::ALL`]; opened when first used.
    open: Mutex<[Option<Arc<Connection>>; 4]>,
    bridges: Arc<Mutex<BTreeSet<NodeId>>>,
}

impl Broker {
    /// Connects with class NORMAL. `space` is the data space at the broker: the prefix.
    pub(super) fn open(mut place: Place, space: &str, bridge: Option<Identity>, tally: Arc<Tally>) -> Result<Self> {
        // Bridges of other rules carry other topics: they do not stand in for this one.
        let below = |rules: &str| format!("{OWN}bridge/{:016x}", xxh3_64(format!("mqtt {space} {rules}").as_bytes()));
        let kin = bridge.as_ref().map(|bridge| below(&bridge.rules));
        let bridges: Arc<Mutex<BTreeSet<NodeId>>> = Arc::default();
        place.presence = bridge
            .zip(kin.as_ref())
            .map(|(Identity { node, .. }, kin)| Presence { topic: format!("{kin}/{node}"), known: bridges.clone() });
        let broker = Self { place, tally, open: Mutex::default(), bridges };
        let connection = broker.of(Class::Normal)?;
        if let Some(kin) = kin {
            connection.subscribe(&broker.watch(&kin))?;
        }
        Ok(broker)
    }

    /// The connection of a class. The first use of a class opens it.
    pub(super) fn of(&self, class: Class) -> Result<Arc<Connection>> {
        let mut open = lock(&self.open);
        let at = Class::ALL.iter().position(|other| *other == class).and_then(|index| open.get_mut(index));
        let Some(at) = at else { return Err(Error::Usage(format!("no class {class}"))) };
        if let Some(connection) = at {
            return Ok(connection.clone());
        }
        let mut place = Place { class, ..self.place.clone() };
        if class != Class::Normal {
            place.client = format!("{}-{class}", place.client);
            place.presence = None;
        }
        let connection = Connection::open(place, self.tally.clone())?;
        Ok(at.insert(Arc::new(connection)).clone())
    }

    /// Follows the retained messages of bridges.
    fn watch(&self, kin: &str) -> Arc<Target> {
        let (known, skip) = (self.bridges.clone(), kin.len() + 1);
        let take = move |presence: &Publish| {
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
