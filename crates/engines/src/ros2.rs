//! ROS 2 as an engine, over Zenoh as `rmw_zenoh` uses it (Jazzy). Nothing of ROS 2 is needed.
//!
//! | module | contents |
//! |---|---|
//! | [`rmw`] | the wire formats |
//! | `ends` | publishers and subscribers, and what a sample carries |
//! | `graph` | the endpoints of the ROS graph: others', and ours |
//! | `types` | message types of ROS 2 as Thalweg describes them |
//!
//! The bridge is one node of ROS 2, and its publishers and subscribers are endpoints of that node: `ros2 node list`, `ros2 topic list`
//! and `ros2 topic info -v` show them as they show those of any node. Services and actions are not carried.

mod ends;
mod graph;
pub mod rmw;
mod types;

pub use crate::engine::descriptions::Describe;

use crate::engine::{
    Abilities, Deliver, Endpoint, Engine, Error, Identity, Incompatible, MarkedUnit, Publisher, Refused, Result,
    Subscriber, Support, Topic,
};
use crate::zenoh::ends::{Incoming, Outgoing};
use crate::zenoh::failed;
use crate::zenoh::session::{Network, Sessions};
use ::zenoh::Wait;
use ::zenoh::bytes::Encoding;
use ::zenoh::key_expr::KeyExpr;
use ::zenoh::liveliness::LivelinessToken;
use ::zenoh::sample::{Sample as Received, SampleKind};
use ends::{Publishing, Subscribing, take};
use graph::{Graph, Own};
use qos::{Class, Qos};
use rmw::{Entity, Gid, Kind, TopicKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use thalweg::control::matching::is_pattern;
use thalweg::control::{Direction, NodeId};
use types::Types;

/// The place of a ROS graph, and of this program in it.
#[derive(Clone)]
pub struct Settings {
    /// `ROS_DOMAIN_ID`. Default 0.
    pub domain: u32,
    /// Routers (`rmw_zenohd`) to connect to. Default: `tcp/127.0.0.1:7447`, as every node of ROS 2 has it.
    pub connect: Vec<String>,
    /// Endpoints to listen on. Default: any port of loopback, as every node of ROS 2 has it.
    pub listen: Vec<String>,
    /// Name of the node, without a namespace. Default `thalweg`.
    pub node: String,
    /// Finds the definitions of a type by its full name, `std_msgs/msg/String`. A type that it does not find is known by its name and
    /// type hash alone. Default: the few that everybody refers to.
    pub describe: Describe,
    /// Largest message that is taken, in bytes. Default 16 MiB.
    pub max_message: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            domain: 0,
            connect: vec!["tcp/127.0.0.1:7447".to_owned()],
            listen: vec!["tcp/127.0.0.1:0".to_owned()],
            node: "thalweg".to_owned(),
            describe: types::known(),
            max_message: 16 << 20,
        }
    }
}

/// A ROS graph.
pub struct Ros2 {
    graph: Arc<Graph>,
    types: Arc<Types>,
    place: Arc<Place>,
    domain: u32,
    // The node leaves last, and its session after that.
    _node: LivelinessToken,
    sessions: Sessions,
}

/// The class of the session of all subscribers.
const SUBSCRIBERS: Class = Class::Normal;

/// The node of ROS 2 that the ends belong to.
struct Place {
    domain: u32,
    session: String,
    node: String,
    next: AtomicU64,
}

impl Place {
    /// A token of the node, or of an end of it.
    fn entity(&self, kind: Kind, topic: Option<rmw::Topic>) -> Entity {
        let id = if kind == Kind::Node { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) };
        let root = || "/".to_owned();
        Entity {
            domain: self.domain,
            session: self.session.clone(),
            node_id: 0,
            id,
            kind,
            enclave: root(),
            namespace: root(),
            node: self.node.clone(),
            topic,
        }
    }
}

impl Ros2 {
    /// The name of the engine.
    pub const NAME: &str = "ros2";
    /// What it does about policies.
    pub const ABILITIES: Abilities = Abilities {
        reliability: Support::Enforced,
        durability: Support::Enforced,
        matching: Support::Announced,
        deadline: Support::Announced,
        lifespan: Support::Announced,
        instances: Support::None,
        keys: Support::None,
        types: Support::Enforced,
        marked: MarkedUnit::Class,
        endpoints: true,
        wanted: true,
    };

    /// Joins the graph as a node of ROS 2, for the bridge of a node of Thalweg or for any program. Takes up to half a second.
    ///
    /// # Errors
    /// [`Error::Usage`] for an address or name that cannot be used, [`Error::Engine`] when Zenoh does not open.
    pub fn open(settings: Settings, bridge: Option<Identity>) -> Result<Self> {
        let Settings { domain, connect, listen, node, describe, max_message } = settings;
        let others_listen = Settings::default().listen;
        let network = Network { connect, listen, others_listen, scouting: false, max_message, more: as_rmw_zenoh() };
        let sessions = Sessions::open(network, &format!("ros2 {domain}"), bridge)?;
        let session = sessions.of(Class::Normal)?;
        let place = Place { domain, session: session.zid().to_string(), node, next: AtomicU64::new(1) };
        let token =
            place.entity(Kind::Node, None).print().map_err(|wrong| Error::Usage(format!("node of ROS 2: {wrong}")))?;
        let types = Arc::new(Types::new(describe));
        let graph = Arc::new(Graph::new(place.session.clone(), types.clone()));
        let watching = graph.clone();
        let tokens = session.liveliness().declare_subscriber(rmw::token::graph(domain)).history(true);
        let tokens = tokens.callback(move |sample| {
            let token = sample.key_expr().as_str();
            match sample.kind() {
                SampleKind::Put => watching.came(token),
                SampleKind::Delete => watching.gone(token),
            }
        });
        tokens.background().wait().map_err(failed)?;
        let node = session.liveliness().declare_token(token).wait().map_err(failed)?;
        Ok(Self { graph, types, place: Arc::new(place), domain, _node: node, sessions })
    }

    /// The key of a topic, or of a pattern, of a type.
    fn key(&self, topic: &Topic) -> Result<TopicKey> {
        let found = self.types.of(topic, &self.graph.types_of(&topic.name))?;
        Ok(TopicKey { domain: self.domain, name: topic.name.clone(), type_name: found.wire, hash: found.hash })
    }

    /// Puts an end of ours into the graph, once it is there.
    fn join(&self, kind: Kind, key: &TopicKey, qos: &Qos) -> Result<Joining> {
        let TopicKey { name, type_name, hash, .. } = key.clone();
        let topic = rmw::Topic { name, type_name, hash, qos: types::ros_qos(qos) };
        let entity = self.place.entity(kind, Some(topic));
        let token = entity.print().map_err(|wrong| Error::Topic(wrong.to_string()))?;
        let gid = Gid::of(&token);
        let direction = if kind == Kind::Publisher { Direction::Publisher } else { Direction::Subscriber };
        let own = self.graph.enter(gid, &key.name, &key.type_name, direction, qos.clone());
        Ok(Joining { gid, own, token })
    }

    fn declare(&self, joining: Joining) -> Result<InGraph> {
        let session = self.sessions.of(Class::Normal)?;
        let token = session.liveliness().declare_token(joining.token).wait().map_err(failed)?;
        Ok(InGraph { _token: token, _own: joining.own })
    }
}

/// An end that is about to be in the graph.
struct Joining {
    gid: Gid,
    own: Own,
    token: String,
}

/// An end in the graph, until this is dropped.
struct InGraph {
    _token: LivelinessToken,
    _own: Own,
}

/// The settings of a session that differ from Zenoh's defaults (`DEFAULT_RMW_ZENOH_SESSION_CONFIG.json5`).
fn as_rmw_zenoh() -> Vec<(&'static str, String)> {
    [
        ("scouting/gossip/target", r#"{"router":["router","peer"],"peer":["router"]}"#),
        ("scouting/gossip/autoconnect", r#"{"router":[],"peer":["router","peer"]}"#),
        ("scouting/gossip/autoconnect_strategy", r#"{"peer":{"to_router":"always","to_peer":"greater-zid"}}"#),
        ("timestamping/enabled", r#"{"router":true,"peer":true,"client":true}"#),
    ]
    .map(|(key, value)| (key, value.to_owned()))
    .to_vec()
}

impl Engine for Ros2 {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn abilities(&self) -> Abilities {
        Self::ABILITIES
    }

    fn publisher(&self, topic: &Topic, offer: &Qos) -> Result<Box<dyn Publisher>> {
        let key = self.key(topic)?;
        let session = self.sessions.of(offer.class)?;
        let outgoing = Outgoing::declare(&session, key_expr(&key)?, Encoding::default(), offer)?;
        let joining = self.join(Kind::Publisher, &key, offer)?;
        let gid = joining.gid;
        let in_graph = self.declare(joining)?;
        let (graph, topic, apart) = (self.graph.clone(), (key.name, key.type_name), offer.class != SUBSCRIBERS);
        Ok(Box::new(Publishing {
            _in_graph: in_graph,
            outgoing,
            graph,
            apart,
            topic,
            gid,
            sequence: AtomicI64::new(0),
        }))
    }

    fn subscriber(&self, topic: &Topic, request: &Qos, deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        let key = self.key(topic)?;
        let graph = self.graph.clone();
        let session = self.sessions.of(Class::Normal)?;
        // No endpoint of ROS 2 is of many topics: a pattern is not in the graph.
        let exact = (!is_pattern(&topic.name)).then(|| topic.name.clone());
        let in_graph = exact.is_some().then(|| self.join(Kind::Subscription, &key, request)).transpose()?;
        let read = move |sample: &Received, deliver: &mut Deliver| take(&graph, exact.as_deref(), sample, deliver);
        let incoming = Incoming::declare(&session, key_expr(&key)?, request, deliver, read)?;
        let in_graph = in_graph.map(|joining| self.declare(joining)).transpose()?;
        Ok(Box::new(Subscribing { _in_graph: in_graph, _incoming: incoming }))
    }

    fn changes(&self) -> u64 {
        self.graph.changes()
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.graph.endpoints()
    }

    fn bridges(&self) -> Vec<NodeId> {
        self.sessions.bridges()
    }

    fn is_alone(&self) -> bool {
        self.sessions.is_alone()
    }

    fn refused(&self) -> Refused {
        self.graph.refused()
    }

    fn incompatible(&self) -> Vec<Incompatible> {
        self.graph.incompatible()
    }
}

/// A pattern has wildcards in its name, which no topic of ROS 2 has.
fn key_expr(key: &TopicKey) -> Result<KeyExpr<'static>> {
    let TopicKey { domain, name, type_name, hash } = key;
    let text = format!("{domain}/{}/{type_name}/{hash}", name.trim_start_matches('/'));
    KeyExpr::autocanonize(text).map_err(|error| Error::Topic(format!("{name} is no topic of ROS 2: {error}")))
}
