//! Zenoh as an engine. No Zenoh type leaves this room.
//!
//! | Thalweg | Zenoh |
//! |---|---|
//! | topic `/robot/pose` | key `robot/pose`, below the prefix if there is one |
//! | message of a described type | payload with its encapsulation header, encoding `application/cdr;TYPE` |
//! | any other message | payload, encoding `zenoh/bytes` |
//! | class | priority, and a session of its own whose packets have the class's mark (Zenoh marks links, not keys) |
//! | reliable, best-effort | congestion control `block`, `drop` |
//! | transient-local | an advanced publisher with a cache, an advanced subscriber with history (`zenoh-ext`), as in rmw_zenoh |
//! | the end of a topic's only instance | `delete` |
//!
//! Deadlines, lifespans and types are nothing to Zenoh, and it does not tell which ends other programs have: only whether anybody
//! subscribes to a key.

pub(crate) mod ends;
mod origin;
pub(crate) mod session;

use crate::engine::{
    Abilities, Deliver, Engine, Error, Identity, MarkedUnit, Publisher, Result, Sample, Subscriber, Support, Topic,
};
use crate::lock;
use ::zenoh::bytes::{Encoding, ZBytes};
use ::zenoh::key_expr::KeyExpr;
use ::zenoh::sample::{Sample as Received, SampleKind};
use ends::{Incoming, Outgoing};
use qos::{Class, Qos};
use session::{Network, Sessions};
use std::borrow::Cow;
use std::sync::Mutex;
use thalweg::codec::TypeDescription;
use thalweg::control::NodeId;
use thalweg::control::matching::is_pattern;
use thalweg::{Change, PortRef};

/// The place of a Zenoh network, and of this program in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Routers or peers to connect to, such as `tcp/10.0.0.1:7447`. Default: none.
    pub connect: Vec<String>,
    /// Endpoints to listen on, such as `tcp/10.0.0.2:7447`. Default: none.
    pub listen: Vec<String>,
    /// Looks for others by multicast. Default: no.
    pub scouting: bool,
    /// A prefix of all keys, such as `fleet/robot1`. Default: none.
    pub prefix: String,
    /// Largest message that is taken, in bytes. Default 16 MiB.
    pub max_message: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { connect: Vec::new(), listen: Vec::new(), scouting: false, prefix: String::new(), max_message: 16 << 20 }
    }
}

/// A Zenoh network.
pub struct Zenoh {
    sessions: Sessions,
    prefix: String,
}

impl Zenoh {
    /// The name of the engine.
    pub const NAME: &str = "zenoh";
    /// What it does about policies.
    pub const ABILITIES: Abilities = Abilities {
        reliability: Support::Enforced,
        durability: Support::Enforced,
        matching: Support::None,
        deadline: Support::None,
        lifespan: Support::None,
        instances: Support::Enforced,
        keys: Support::None,
        types: Support::Announced,
        marked: MarkedUnit::Class,
        endpoints: false,
        wanted: true,
    };

    /// Joins the network, as the bridge of a node or as any program. Takes up to half a second.
    ///
    /// # Errors
    /// [`Error::Usage`] for an address or prefix that cannot be used, [`Error::Engine`] when Zenoh does not open.
    pub fn open(settings: Settings, bridge: Option<Identity>) -> Result<Self> {
        let prefix = match settings.prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        key(&prefix, "/a")?;
        let Settings { connect, listen, scouting, prefix: _, max_message } = settings;
        let network = Network { connect, listen, others_listen: Vec::new(), scouting, max_message, more: Vec::new() };
        Ok(Self { sessions: Sessions::open(network, &format!("zenoh {prefix}"), bridge)?, prefix })
    }
}

impl Engine for Zenoh {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn abilities(&self) -> Abilities {
        Self::ABILITIES
    }

    fn publisher(&self, topic: &Topic, offer: &Qos) -> Result<Box<dyn Publisher>> {
        let key = key(&self.prefix, &topic.name)?;
        let outgoing = Outgoing::declare(&self.sessions.of(offer.class)?, key, encoding(&topic.message), offer)?;
        Ok(Box::new(Publishing { outgoing, marked: Mutex::default() }))
    }

    fn subscriber(&self, topic: &Topic, request: &Qos, deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        let key = key(&self.prefix, &topic.name)?;
        let (prefix, exact) = (self.prefix.clone(), (!is_pattern(&topic.name)).then(|| topic.name.clone()));
        let read = move |sample: &Received, deliver: &mut Deliver| take(&prefix, exact.as_deref(), sample, deliver);
        Ok(Box::new(Incoming::declare(&self.sessions.of(Class::Normal)?, key, request, deliver, read)?))
    }

    fn bridges(&self) -> Vec<NodeId> {
        self.sessions.bridges()
    }
}

/// The key of a topic, or of a pattern of topics.
fn key(prefix: &str, topic: &str) -> Result<KeyExpr<'static>> {
    let text = format!("{prefix}{}", topic.trim_start_matches('/'));
    let reserved = text.starts_with('@') || text == "thalweg" || text.starts_with("thalweg/");
    if reserved {
        return Err(Error::Topic(format!("{topic}: keys that begin with @ or thalweg/ are not for topics")));
    }
    KeyExpr::autocanonize(text).map_err(|error| Error::Topic(format!("{topic} is no key of Zenoh: {error}")))
}

fn encoding(message: &TypeDescription) -> Encoding {
    match (&message.ros, message.schema.is_some()) {
        (Some(ros), _) => Encoding::APPLICATION_CDR.with_schema(ros.name.clone()),
        (None, true) => Encoding::APPLICATION_CDR.with_schema(message.name.clone()),
        (None, false) => Encoding::ZENOH_BYTES,
    }
}

pub(crate) fn failed(error: ::zenoh::Error) -> Error {
    Error::Engine(format!("Zenoh: {error}"))
}

struct Publishing {
    outgoing: Outgoing,
    /// The origin of the last sample, and its attachment: both rarely change.
    marked: Mutex<Option<(PortRef, ZBytes)>>,
}

impl Publishing {
    fn attachment(&self, origin: Option<PortRef>) -> Option<ZBytes> {
        let origin = origin?;
        let mut marked = lock(&self.marked);
        if marked.as_ref().is_none_or(|(last, _)| *last != origin) {
            *marked = Some((origin, ZBytes::from(origin::encode(origin).to_vec())));
        }
        marked.as_ref().map(|(_, attachment)| attachment.clone())
    }
}

impl Publisher for Publishing {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        let attachment = self.attachment(sample.origin);
        match sample.change {
            Change::Written => self.outgoing.put(sample.message, attachment),
            Change::Disposed => self.outgoing.delete(attachment),
            Change::Unregistered => Ok(()),
        }
    }

    fn is_wanted(&self) -> bool {
        self.outgoing.is_wanted()
    }
}

/// Gives a sample on. `exact` is its topic, where that is always the same.
fn take(prefix: &str, exact: Option<&str>, sample: &Received, deliver: &mut Deliver) {
    let pattern = || {
        let name = sample.key_expr().as_str().strip_prefix(prefix)?;
        let own = prefix.is_empty() && name.starts_with("thalweg/"); // the control plane's
        (!own).then(|| format!("/{name}"))
    };
    let Some(topic) = exact.map(Cow::Borrowed).or_else(|| pattern().map(Cow::Owned)) else { return };
    let origin = sample.attachment().and_then(|attachment| origin::decode(&attachment.to_bytes()));
    let change = match sample.kind() {
        SampleKind::Put => Change::Written,
        SampleKind::Delete => Change::Disposed,
    };
    let message = sample.payload().to_bytes();
    deliver(&Sample { topic: &topic, message: &message, publisher: 0, origin, change, age_ns: 0, historical: false });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_a_key_below_the_prefix() {
        assert_eq!(key("", "/robot/pose").unwrap().as_str(), "robot/pose");
        assert_eq!(key("fleet/", "/robot/**").unwrap().as_str(), "fleet/robot/**");
        for wrong in ["/@ros2_lv/0", "/thalweg/1/default", "/a#b", "/a//b", "/"] {
            assert!(matches!(key("", wrong), Err(Error::Topic(_))), "{wrong}");
        }
        assert!(key("thalweg/", "/a").is_err());
    }
}
