//! Liveliness tokens: every node and endpoint is in the graph as long as its token is declared.
//!
//! `@ros2_lv/<domain>/<session>/<node id>/<id>/<kind>/<enclave>/<namespace>/<node>`, of endpoints followed by
//! `/<topic>/<type>/<hash>/<qos>` (`docs/design.md`, «Graph Cache»; `liveliness_utils.cpp`, `KeyexprIndex`). Every `/`
//! inside a field is written as `%` (`mangle_name`), so an empty namespace or enclave, `/`, is `%`.

use super::key::{TopicKey, check_hash};
use super::qos::{MAX_QOS, RosQos};
use super::{MAX_HASH, MAX_NAME, MAX_TYPE, Malformed, chunk, decimal, excerpt, within};

/// Longest token, in bytes: all fields of the longest lengths fit, and the chunk that Lyrical may add.
pub const MAX_TOKEN: usize = 4096;

/// The first chunk. No wildcard matches it, because it begins with `@`.
const SPACE: &str = "@ros2_lv";
/// Chunks of a node's token.
const NODE_CHUNKS: usize = 9;
/// Chunks of an endpoint's token.
const ENDPOINT_CHUNKS: usize = 13;
/// Most chunks: Lyrical may add its buffer backends (`KeyexprIndex::Backends`).
const MOST_CHUNKS: usize = 14;
/// Digits of the longest identity of a session.
const SESSION: usize = 32;

/// What a token is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A node: `NN`.
    Node,
    /// A publisher: `MP`.
    Publisher,
    /// A subscription: `MS`.
    Subscription,
    /// The server of a service: `SS`.
    Service,
    /// A client of a service: `SC`.
    Client,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Node, Self::Publisher, Self::Subscription, Self::Service, Self::Client];

    /// The word of the token (`liveliness_utils.cpp`, `entity_to_str`).
    pub fn word(self) -> &'static str {
        match self {
            Self::Node => "NN",
            Self::Publisher => "MP",
            Self::Subscription => "MS",
            Self::Service => "SS",
            Self::Client => "SC",
        }
    }

    fn parse(text: &str) -> Result<Self, Malformed> {
        let other = || Malformed::Text { what: "kind", found: excerpt(text), allowed: "NN, MP, MS, SS or SC" };
        Self::ALL.into_iter().find(|kind| kind.word() == text).ok_or_else(other)
    }
}

/// The topic or service of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    /// Fully qualified name, `/ns/chatter`.
    pub name: String,
    /// Name of the type on the wire, `std_msgs::msg::dds_::String_`; of services without `Request_` and `Response_`
    /// (`rmw_service_data.cpp`).
    pub type_name: String,
    /// Hash of the type, `RIHS01_…` or `TypeHashNotSupported`.
    pub hash: String,
    /// Quality of service.
    pub qos: RosQos,
}

/// A node or endpoint of the graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entity {
    /// `ROS_DOMAIN_ID`.
    pub domain: u32,
    /// Identity of the Zenoh session: hexadecimal, in lower case, without leading zeros, as `ZenohId` is displayed.
    pub session: String,
    /// Number of the node in its session. Nodes and endpoints share one counter, which begins at 0
    /// (`rmw_context_impl_s.cpp`, `get_next_entity_id`).
    pub node_id: u64,
    /// Number of the endpoint in its session; of a node `node_id` again (`rmw_node_data.cpp`).
    pub id: u64,
    /// What it is.
    pub kind: Kind,
    /// Enclave (security), `/` if there is none.
    pub enclave: String,
    /// Namespace of the node, `/` if there is none.
    pub namespace: String,
    /// Name of the node, without its namespace.
    pub node: String,
    /// The topic: none of a [`Kind::Node`], one of every other kind.
    pub topic: Option<Topic>,
}

impl Entity {
    /// Reads a token of at most [`MAX_TOKEN`] bytes. A chunk after the known ones is ignored, as Jazzy does with
    /// Lyrical's; the [`Gid`](super::Gid) is that of the token as it was received.
    ///
    /// # Errors
    /// [`Malformed`] names the part that is none.
    pub fn parse(token: &str) -> Result<Self, Malformed> {
        within("bytes of a token", token.len(), 1, MAX_TOKEN)?;
        let chunks: Vec<&str> = token.split('/').collect();
        within("chunks of a token", chunks.len(), NODE_CHUNKS, MOST_CHUNKS)?;
        let [space, domain, session, node_id, id, kind, enclave, namespace, node, topic @ ..] = chunks.as_slice()
        else {
            return Err(count(chunks.len(), NODE_CHUNKS));
        };
        if *space != SPACE {
            return Err(Malformed::Text { what: "first chunk of a token", found: excerpt(space), allowed: SPACE });
        }
        let kind = Kind::parse(kind)?;
        let topic = match (kind, topic) {
            (Kind::Node, _) => None,
            (_, [name, type_name, hash, qos, ..]) => Some(Topic::parse(name, type_name, hash, qos)?),
            (_, _) => return Err(count(chunks.len(), ENDPOINT_CHUNKS)),
        };
        Ok(Self {
            domain: decimal("domain", domain, u64::from(u32::MAX))?,
            session: check_session(session)?.to_owned(),
            node_id: decimal("number of a node", node_id, u64::MAX)?,
            id: decimal("number of an endpoint", id, u64::MAX)?,
            kind,
            enclave: demangled("enclave", enclave, MAX_NAME)?,
            namespace: demangled("namespace", namespace, MAX_NAME)?,
            node: demangled("name of a node", node, MAX_NAME)?,
            topic,
        })
    }

    /// Writes the token. An empty namespace or enclave is written as `/` is.
    ///
    /// # Errors
    /// [`Malformed`] names the field that cannot be written: one with `%` could not be told from one with `/`.
    pub fn print(&self) -> Result<String, Malformed> {
        let (domain, node_id, id, kind) = (self.domain, self.node_id, self.id, self.kind.word());
        let session = check_session(&self.session)?;
        let enclave = mangled("enclave", root(&self.enclave), MAX_NAME)?;
        let namespace = mangled("namespace", root(&self.namespace), MAX_NAME)?;
        let node = mangled("name of a node", &self.node, MAX_NAME)?;
        let token = format!("{SPACE}/{domain}/{session}/{node_id}/{id}/{kind}/{enclave}/{namespace}/{node}");
        match (self.kind, &self.topic) {
            (Kind::Node, None) => Ok(token),
            (Kind::Node, Some(_)) | (_, None) => Err(Malformed::Text {
                what: "kind of this entity",
                found: kind.to_owned(),
                allowed: "NN without a topic, and MP, MS, SS or SC with one",
            }),
            (_, Some(topic)) => Ok(format!("{token}/{}", topic.print()?)),
        }
    }

    /// The key expression of the samples of a publisher or subscription, not yet checked.
    pub fn key(&self) -> Option<TopicKey> {
        let topic = self.topic.as_ref().filter(|_| matches!(self.kind, Kind::Publisher | Kind::Subscription))?;
        let Topic { name, type_name, hash, .. } = topic.clone();
        Some(TopicKey { domain: self.domain, name, type_name, hash })
    }
}

/// The key expression of all tokens of a domain (`liveliness_utils.cpp`, `subscription_token`).
pub fn graph(domain: u32) -> String {
    format!("{SPACE}/{domain}/**")
}

impl Topic {
    fn parse(name: &str, type_name: &str, hash: &str, qos: &str) -> Result<Self, Malformed> {
        let hash = demangled("hash of a type", hash, MAX_HASH)?;
        check_hash(&hash)?;
        Ok(Self {
            name: qualified(demangled("name of a topic", name, MAX_NAME)?)?,
            type_name: demangled("type", type_name, MAX_TYPE)?,
            hash,
            qos: RosQos::parse(chunk("quality of service", qos, MAX_QOS)?)?,
        })
    }

    fn print(&self) -> Result<String, Malformed> {
        check_hash(&self.hash)?;
        let name = mangled("name of a topic", &qualified(self.name.clone())?, MAX_NAME)?;
        let type_name = mangled("type", &self.type_name, MAX_TYPE)?;
        Ok(format!("{name}/{type_name}/{}/{}", self.hash, self.qos.print()))
    }
}

fn count(found: usize, least: usize) -> Malformed {
    Malformed::Count { what: "chunks of a token", found, least, most: MOST_CHUNKS }
}

/// Nothing is written as the root.
fn root(name: &str) -> &str {
    if name.is_empty() { "/" } else { name }
}

fn qualified(name: String) -> Result<String, Malformed> {
    if name.starts_with('/') {
        return Ok(name);
    }
    Err(Malformed::Text {
        what: "name of a topic",
        found: excerpt(&name),
        allowed: "a fully qualified one, /ns/chatter",
    })
}

/// `liveliness_utils.cpp`, `demangle_name`.
fn demangled(what: &'static str, text: &str, most: usize) -> Result<String, Malformed> {
    Ok(chunk(what, text, most)?.replace('%', "/"))
}

/// `liveliness_utils.cpp`, `mangle_name`.
fn mangled(what: &'static str, text: &str, most: usize) -> Result<String, Malformed> {
    if text.contains('%') {
        return Err(Malformed::Text { what, found: excerpt(text), allowed: "one without '%', which stands for '/'" });
    }
    let mangled = text.replace('/', "%");
    chunk(what, &mangled, most)?;
    Ok(mangled)
}

fn check_session(text: &str) -> Result<&str, Malformed> {
    let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if digits && (1..=SESSION).contains(&text.len()) && !text.starts_with('0') {
        return Ok(text);
    }
    let allowed = "1 to 32 hexadecimal digits in lower case, the first not 0";
    Err(Malformed::Text { what: "identity of a session", found: excerpt(text), allowed })
}
