//! DDS as an engine, with Cyclone DDS (crate `cyclone`). No type of Cyclone leaves this room.
//!
//! | module | contents |
//! |---|---|
//! | `graph` | the endpoints of other programs, and ours that are compared with them |
//! | `kept` | what a writer leaves to the next one, and its instances |
//! | `keys` | keys of types, in messages of both |
//! | `participants` | a participant for each class in use, whose sockets have its mark |
//! | `policies` | policies of DDS as Thalweg has them |
//! | `publishing` | writers of topics |
//! | `ros` | what ROS 2 has beside DDS: nodes, type hashes |
//! | `services` | services of ROS 2 |
//! | `subscribing` | readers of topics, and of patterns of topics |
//! | `types` | names of topics and types |
//! | `way` | the networks and nodes that samples have passed, in USER_DATA of writers |
//!
//! | Thalweg | DDS |
//! |---|---|
//! | topic `/robot/pose` | topic `robot/pose` |
//! | message of a described type | the same bytes: CDR with its encapsulation header |
//! | type | its name: `Arm`, or `robot::Arm` where an endpoint of the topic states that |
//! | policies | those of the same name |
//! | class | a participant of its own, whose packets have the class's mark |
//! | `key`, ends of instances | the members with `@key`, where a definition is known or a publisher here states them; disposed, unregistered |
//!
//! Topics of others that have a key of unknown members are counted as refused, with the reason.

mod graph;
mod kept;
mod keys;
mod participants;
mod policies;
mod publishing;
mod ros;
mod services;
mod subscribing;
mod types;
mod way;

pub use crate::engine::descriptions::Describe;
pub use keys::Keys;

use crate::engine::{
    Abilities, Deliver, Endpoint, Engine, Error, Identity, Incompatible, MarkedUnit, Publisher, Refused, Result,
    Subscriber, Support, Topic,
};
use cyclone::{Participant, Place, Watching};
use graph::Graph;
use participants::{Participants, Setup};
use publishing::{Around, Publishing};
use qos::priority::Dscp;
use qos::{Class, Qos};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use subscribing::{Pattern, Single, Target};
use thalweg::codec::TypeDescription;
use thalweg::control::NodeId;
use thalweg::control::matching::is_pattern;
use types::{Naming, Types};
use xxhash_rust::xxh3::xxh3_64;

/// The highest domain: the ports of a higher one would be beyond 65535 (DDSI-RTPS 2.5 §9.6.2.3).
const MAX_DOMAIN: u32 = 232;

/// The place of a domain, and of this program in it.
#[derive(Clone)]
pub struct Settings {
    /// The domain, 0 … 232. Default 0.
    pub domain: u32,
    /// Addresses of the network interfaces to use. Default: the one that Cyclone chooses.
    pub interfaces: Vec<IpAddr>,
    /// Hosts on which others are looked for. Default: none but those that multicast finds.
    pub peers: Vec<IpAddr>,
    /// Others are looked for by multicast, too. Default: yes.
    pub multicast: bool,
    /// Further configuration of Cyclone, as in its `CYCLONEDDS_URI`: XML, or `file://` and a path. Default: none.
    pub configuration: String,
    /// Finds the description of a type by its full name in DDS, `robot::Arm`. Others are known by their names alone. Default: none.
    pub describe: Describe,
    /// Finds the key of a type by its full name in DDS, as paths of members. Default: none. Topics of others with a key that is not found are
    /// refused, and a publisher here states its own.
    pub keys: Keys,
    /// The name of the bridge's node, if this is ROS 2 over DDS: names and types are those of ROS 2 then. Default: none, plain DDS.
    pub node: Option<String>,
    /// Largest message that is taken or sent, in bytes. Default 16 MiB.
    pub max_message: u32,
    /// Code points for the packets of classes but NORMAL, whose packets have none; of two for one class the last. Default: the classes' own.
    pub marks: Vec<(Class, Dscp)>,
}

impl Default for Settings {
    fn default() -> Self {
        let Place { domain, interfaces, peers, multicast, max_message, configuration, .. } = Place::default();
        let (describe, keys): (Describe, Keys) = (Arc::new(|_| None), Arc::new(|_| Vec::new()));
        let marks = Vec::new();
        Self { domain, interfaces, peers, multicast, configuration, describe, keys, node: None, max_message, marks }
    }
}

/// A domain.
pub struct Dds {
    around: Around,
    own_bridge: Option<NodeId>,
    _watching: Watching,
}

impl Dds {
    /// The name of the engine.
    pub const NAME: &str = "dds";
    /// What it does about policies.
    pub const ABILITIES: Abilities = Abilities {
        reliability: Support::Enforced,
        durability: Support::Enforced,
        matching: Support::Enforced,
        deadline: Support::Enforced,
        lifespan: Support::Enforced,
        instances: Support::None,
        keys: Support::Enforced,
        types: Support::Announced,
        marked: MarkedUnit::Class,
        endpoints: true,
        wanted: true,
    };

    /// Joins a domain, as the bridge of a node or as any program.
    ///
    /// # Errors
    /// [`Error::Usage`] for a domain, a mark or a configuration that cannot be used, [`Error::Engine`] when Cyclone does not open.
    pub fn open(settings: Settings, bridge: Option<Identity>) -> Result<Self> {
        let Settings { domain, interfaces, peers, multicast, configuration, describe, keys, node, .. } = settings;
        let (max_message, marks) = (settings.max_message, settings.marks);
        if domain > MAX_DOMAIN {
            return Err(Error::Usage(format!("domain {domain}: 0 … {MAX_DOMAIN} are allowed")));
        }
        if marks.iter().any(|(class, _)| *class == Class::Normal) {
            let why = "packets of class normal have none; low, high and critical are allowed";
            return Err(Error::Usage(format!("a mark for class normal: {why}")));
        }
        let place = Place { domain, interfaces, peers, multicast, max_message, configuration, ..Place::default() };
        let own_bridge = bridge.as_ref().map(|bridge| bridge.node);
        let (naming, enclave) = if node.is_some() { (Naming::Ros, "enclave=/;") } else { (Naming::Plain, "") };
        // Bridges of other rules carry other topics: they do not stand in for this one.
        let stands_in = bridge.map_or_else(String::new, |bridge| {
            format!("thalweg-bridge={:016x}/", xxh3_64(format!("{naming:?} {}", bridge.rules).as_bytes()))
        });
        let own = own_bridge.map_or_else(String::new, |node| format!("{stands_in}{node};"));
        let user_data = format!("{enclave}{own}");
        let participant = Participant::open(&place, user_data.as_bytes()).map_err(not_opened)?;
        let types = Arc::new(Types::new(naming, describe).with_keys(keys));
        let graph = Arc::new(Graph::new(types.clone(), stands_in));
        let told = graph.clone();
        let watching = participant.watch(move |found| told.take(found, now())).map_err(failed)?;
        // A bridge is found by its first participant alone: it is there as long as the bridge.
        let participants = Participants::new(participant, Setup { place, user_data: enclave, node, marks }, &graph)?;
        let around = Around { participants: Arc::new(participants), graph, types, max_message };
        Ok(Self { around, own_bridge, _watching: watching })
    }
}

/// A configuration that is wrong stays so; an interface may come.
fn not_opened(error: cyclone::Error) -> Error {
    match error.0.contains("config:") {
        true => Error::Usage(format!("DDS: {error}")),
        false => failed(error),
    }
}

fn failed(error: cyclone::Error) -> Error {
    Error::Engine(format!("DDS: {error}"))
}

#[allow(clippy::disallowed_methods)] // called as discovery tells, or is asked
fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds since 1970, as the time stamps of DDS count.
#[allow(clippy::disallowed_methods)] // called as a sample leaves or comes
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl Engine for Dds {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn abilities(&self) -> Abilities {
        Self::ABILITIES
    }

    fn publisher(&self, topic: &Topic, offer: &Qos) -> Result<Box<dyn Publisher>> {
        self.publisher_by(topic, offer, &[])
    }

    fn publisher_by(&self, topic: &Topic, offer: &Qos, way: &[String]) -> Result<Box<dyn Publisher>> {
        Ok(Box::new(Publishing::open(self.around.clone(), topic.clone(), offer.clone(), way.to_vec())?))
    }

    fn states_ways(&self) -> bool {
        true
    }

    fn subscriber(&self, topic: &Topic, request: &Qos, deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        let (target, name) = (Target::new(deliver), &topic.name);
        if is_pattern(name) || topic.message == TypeDescription::any() {
            return Ok(Box::new(Pattern::open(self.around.clone(), name, request, target)?));
        }
        Ok(Box::new(Single::open(&self.around, topic, request, target)?))
    }

    fn changes(&self) -> u64 {
        self.around.participants.catch_up();
        self.around.graph.changes(now())
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.around.graph.endpoints()
    }

    fn bridges(&self) -> Vec<NodeId> {
        self.own_bridge.into_iter().chain(self.around.graph.bridges()).collect()
    }

    fn refused(&self) -> Refused {
        self.around.graph.refused(&self.around.participants.complaints())
    }

    fn incompatible(&self) -> Vec<Incompatible> {
        self.around.graph.incompatible()
    }
}
