//! MQTT as an engine: one broker, in MQTT 5. Programs of 3.1.1 are at the same broker.
//!
//! | Thalweg | MQTT |
//! |---|---|
//! | topic `/robot/pose` | topic `robot/pose`, below the prefix if there is one |
//! | pattern | filter (`topics`) |
//! | message of a described type | payload with its encapsulation header, content type `application/cdr;TYPE` |
//! | any other message | payload |
//! | class | a connection of its own whose packets have the class's mark |
//! | reliable, best-effort | QoS 1, QoS 0 |
//! | transient-local | retained messages: of a topic the last one, whoever sent it |
//! | the end of a topic's only instance | an empty retained message |
//! | publisher, sample and port of origin | user property `thalweg` (`stamp`) |
//!
//! A broker tells nobody who else is there: a publisher is always wanted.
//!
//! | module | contents |
//! |---|---|
//! | `topics` | names |
//! | `stamp` | the user property, and samples that come twice |
//! | `broker` | connections by class, and the presence of bridges |
//! | `connection` | a connection: its threads, and what becomes of it when the broker is gone |
//! | `dial` | the way to the broker |
//! | `incoming` | samples as they come |
//! | `outbox`, `subscriptions` | the state of a connection, without I/O |
//! | `packet` | the wire |

mod broker;
mod connection;
mod dial;
mod incoming;
mod outbox;
pub(crate) mod packet;
mod stamp;
pub(crate) mod subscriptions;
mod topics;

use crate::engine::{
    Abilities, Deliver, Engine, Error, Identity, MarkedUnit, Publisher, Refusals, Refused, Result, Sample, Subscriber,
    Support, Topic,
};
use crate::lock;
use broker::Broker;
use bytes::Bytes;
use connection::Connection;
use incoming::Incoming;
use qos::{Class, Durability, Qos, Reliability};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Publish, PublishProperties};
use stamp::{Retained, Seen, Stamp};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use subscriptions::{Filter, Target};
use thalweg::Change;
use thalweg::codec::TypeDescription;
use thalweg::control::NodeId;
use thalweg::control::matching::is_pattern;

/// The broker, and this program's place at it.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// `HOST` or `HOST:PORT`. Default: 127.0.0.1:1883.
    pub broker: String,
    /// A prefix of all topics, such as `fleet/robot1`. Default: none.
    pub prefix: String,
    /// Name of a user. Default: none.
    pub user: String,
    /// The user's password. It is sent as it is: this engine has no TLS. Default: none.
    pub password: String,
    /// Client identifier; the connections of other classes have it with the class behind. Empty, the default: a random one.
    pub client_id: String,
    /// Largest message that is taken, in bytes. Default 16 MiB.
    pub max_message: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let none = String::new;
        let broker = "127.0.0.1:1883".to_owned();
        Self { broker, prefix: none(), user: none(), password: none(), client_id: none(), max_message: 16 << 20 }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { broker, prefix, user, client_id, .. } = self;
        write!(f, "Settings {{ broker: {broker:?}, prefix: {prefix:?}, user: {user:?}, client_id: {client_id:?}, … }}")
    }
}

/// A broker of MQTT 5.
pub struct Mqtt {
    broker: Broker,
    refusals: Arc<Refusals>,
    prefix: String,
    /// A random number: samples with it are this engine's own.
    number: u64,
    publishers: AtomicU32,
}

impl Mqtt {
    /// The name of the engine.
    pub const NAME: &str = "mqtt";
    /// What it does about policies. Durability: late joiners get one sample of each topic.
    pub const ABILITIES: Abilities = Abilities {
        reliability: Support::Enforced,
        durability: Support::Announced,
        matching: Support::None,
        deadline: Support::None,
        lifespan: Support::None,
        instances: Support::Enforced,
        keys: Support::None,
        types: Support::Announced,
        marked: MarkedUnit::Class,
        endpoints: false,
        wanted: false,
    };

    /// Connects to the broker, as the bridge of a node or as any program. If the broker goes, it is looked for again, with pauses of at
    /// most a second.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot be used, a wrong password among them; [`Error::Engine`] when the broker cannot be reached.
    pub fn open(settings: Settings, bridge: Option<Identity>) -> Result<Self> {
        let Settings { broker, prefix, user, password, client_id, max_message } = settings;
        let (host, port) = dial::address(&broker)?;
        let prefix = topics::prefix(&prefix)?;
        if [&user, &password, &client_id].iter().any(|text| text.len() > packet::LONGEST_TOPIC) {
            return Err(Error::Usage("user, password and client identifier: at most 65535 bytes each".to_owned()));
        }
        let number = RandomState::new().build_hasher().finish();
        let client = if client_id.is_empty() { format!("thalweg-{number:016x}") } else { client_id };
        let (class, presence) = (Class::Normal, None);
        let place = dial::Place { host, port, user, password, client, class, max_message, presence };
        let refusals = Arc::new(Refusals::default());
        let broker = Broker::open(place, &prefix, bridge, refusals.clone())?;
        Ok(Self { broker, refusals, prefix, number, publishers: AtomicU32::new(0) })
    }
}

impl Engine for Mqtt {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn abilities(&self) -> Abilities {
        Self::ABILITIES
    }

    fn publisher(&self, topic: &Topic, offer: &Qos) -> Result<Box<dyn Publisher>> {
        let stamp = Stamp {
            engine: self.number,
            publisher: self.publishers.fetch_add(1, Ordering::Relaxed),
            sequence: 0,
            change: Change::Written,
            origin: None,
        };
        Ok(Box::new(Publishing {
            topic: Bytes::from(topics::topic(&self.prefix, &topic.name)?),
            connection: self.broker.of(offer.class)?,
            qos: if is_reliable(offer) { QoS::AtLeastOnce } else { QoS::AtMostOnce },
            retain: offer.durability == Durability::TransientLocal,
            content: content_type(&topic.message),
            last: Mutex::new(stamp),
        }))
    }

    fn subscriber(&self, topic: &Topic, request: &Qos, deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        let filter = Filter {
            path: topics::filter(&self.prefix, &topic.name)?,
            reliable: is_reliable(request),
            history: request.durability == Durability::TransientLocal,
        };
        let mut incoming = Incoming {
            prefix: self.prefix.clone(),
            pattern: is_pattern(&topic.name).then(|| topic.name.clone()),
            own: self.number,
            seen: Seen::default(),
            retained: Retained::default(),
            refusals: self.refusals.clone(),
            deliver,
        };
        let connection = self.broker.of(Class::Normal)?;
        let target = Target::new(filter, Box::new(move |sample, round| incoming.take(sample, round)));
        connection.subscribe(&target)?;
        Ok(Box::new(Subscribing { connection, target }))
    }

    fn bridges(&self) -> Vec<NodeId> {
        self.broker.bridges()
    }

    fn refused(&self) -> Refused {
        self.refusals.so_far()
    }
}

fn is_reliable(qos: &Qos) -> bool {
    qos.reliability == Reliability::Reliable
}

fn content_type(message: &TypeDescription) -> Option<String> {
    let name = match (&message.ros, message.schema.is_some()) {
        (Some(ros), _) => &ros.name,
        (None, true) => &message.name,
        (None, false) => return None,
    };
    // Longer ones are no text of MQTT.
    Some(format!("application/cdr;{name}")).filter(|text| text.len() <= packet::LONGEST_TOPIC)
}

struct Publishing {
    connection: Arc<Connection>,
    topic: Bytes,
    qos: QoS,
    retain: bool,
    content: Option<String>,
    /// Of the last sample.
    last: Mutex<Stamp>,
}

impl Publisher for Publishing {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        let ends = match sample.change {
            Change::Written => false,
            Change::Disposed => true,
            Change::Unregistered => return Ok(()),
        };
        let payload = if ends { Bytes::new() } else { Bytes::copy_from_slice(sample.message) };
        // Held until the sample has its place: numbers rise in the order of sending.
        let mut last = lock(&self.last);
        *last = Stamp { sequence: last.sequence + 1, change: sample.change, origin: sample.origin, ..*last };
        let properties = PublishProperties {
            user_properties: vec![(stamp::KEY.to_owned(), last.to_string())],
            content_type: self.content.clone(),
            ..PublishProperties::default()
        };
        self.connection.publish(Publish {
            qos: self.qos,
            retain: self.retain || ends,
            topic: self.topic.clone(),
            payload,
            properties: Some(properties),
            ..Publish::default()
        })
    }

    fn is_wanted(&self) -> bool {
        true
    }
}

struct Subscribing {
    connection: Arc<Connection>,
    target: Arc<Target>,
}

impl Subscriber for Subscribing {}

impl Drop for Subscribing {
    fn drop(&mut self) {
        self.connection.unsubscribe(&self.target);
    }
}
