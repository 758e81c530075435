//! The face of every engine: publishers and subscribers of topics, and the truth about what the engine enforces (D-01, D-06).

#[cfg(any(feature = "rtps", feature = "zenoh"))]
pub(crate) mod descriptions;
#[cfg(any(feature = "rtps", feature = "zenoh"))]
pub(crate) mod ends;
mod reports;
pub(crate) mod services;

pub use reports::{Mismatches, Refusals};

use qos::Qos;
use std::fmt;
use thalweg::codec::TypeDescription;
use thalweg::control::{Direction, NodeId};
use thalweg::{Change, PortRef};

/// A data space in which other programs publish and subscribe.
pub trait Engine: Send + Sync {
    /// Its name, one word: `zenoh`.
    fn name(&self) -> &'static str;

    /// The policies that it enforces, only announces, or lacks.
    fn abilities(&self) -> Abilities;

    /// Opens a publisher of a topic.
    ///
    /// # Errors
    /// [`Error::Topic`] for a name that the engine does not have, [`Error::Engine`] when it refuses.
    fn publisher(&self, topic: &Topic, offer: &Qos) -> Result<Box<dyn Publisher>>;

    /// As [`Engine::publisher`], of samples that come by this way, which others there are told if [`Engine::states_ways`]: the networks and
    /// nodes that they have passed ([`thalweg::control::Foreign::passed`]).
    ///
    /// # Errors
    /// As [`Engine::publisher`].
    fn publisher_by(&self, topic: &Topic, offer: &Qos, way: &[String]) -> Result<Box<dyn Publisher>> {
        let _ = way;
        self.publisher(topic, offer)
    }

    /// `true` if publishers state their way, and that of others' is known ([`Endpoint::way`]). Only networks of such an engine can be joined,
    /// because what has gone round would be carried on for ever. By default `false`.
    fn states_ways(&self) -> bool {
        false
    }

    /// Opens a subscriber to a topic, or to a pattern of topics (`*` one segment, `**` any number). `deliver` is called with each sample of
    /// others, on a thread of the engine; calls do not overlap.
    ///
    /// # Errors
    /// As [`Engine::publisher`].
    fn subscriber(&self, topic: &Topic, request: &Qos, deliver: Deliver) -> Result<Box<dyn Subscriber>>;

    /// A number that is another one after others' ends have changed. By default 0, of engines that do not tell of them.
    fn changes(&self) -> u64 {
        0
    }

    /// The publishers and subscribers of other programs, where the engine tells of them ([`Abilities::endpoints`]). By default none.
    fn endpoints(&self) -> Vec<Endpoint> {
        Vec::new()
    }

    /// The nodes of all bridges to this data space, this one's included, where bridges find each other in it: of those of one realm one
    /// carries the samples, and the others take over when it is gone. By default none.
    fn bridges(&self) -> Vec<NodeId> {
        Vec::new()
    }

    /// `true` while no other program, and no router, is connected. By default never, of engines that do not know.
    fn is_alone(&self) -> bool {
        false
    }

    /// What came from others and could not be used: malformed, or beyond a limit. By default nothing.
    fn refused(&self) -> Refused {
        Refused::default()
    }

    /// Ends whose policies do not match with one of this engine's, since the last call. By default none, of engines that match no policies.
    fn incompatible(&self) -> Vec<Incompatible> {
        Vec::new()
    }
}

/// Takes samples.
pub type Deliver = Box<dyn FnMut(&Sample<'_>) + Send>;

/// A publisher in the engine. It closes when it is dropped.
pub trait Publisher: Send + Sync {
    /// Publishes a sample. If the offer is reliable it may wait for room.
    ///
    /// # Errors
    /// [`Error::Engine`] when the engine refuses it.
    fn publish(&self, sample: &Sample<'_>) -> Result<()>;

    /// `true` if somebody else subscribes to its topic now; always, where the engine does not tell ([`Abilities::wanted`]).
    fn is_wanted(&self) -> bool;

    /// The number of others' subscribers that it is known to now, as far as the engine counts them. By default 1 while it is wanted.
    fn wanted_by(&self) -> u32 {
        u32::from(self.is_wanted())
    }

    /// Waits until reliable subscribers have all that was published, at most as long as a sample waits for room. By default it does not wait,
    /// of engines that do not tell.
    fn settle(&self) {}
}

/// A subscriber in the engine. It closes when it is dropped; no call of its `deliver` begins afterwards.
pub trait Subscriber: Send {}

/// A topic, or for subscribers a pattern of topics.
#[derive(Clone, Debug, PartialEq)]
pub struct Topic {
    /// Its name as Thalweg writes it, such as `/robot/pose`.
    pub name: String,
    /// The type of its samples.
    pub message: TypeDescription,
}

/// One sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The topic of the sample, which tells the topics of a pattern apart.
    pub topic: &'a str,
    /// The encoded message: of a described type CDR with its encapsulation header, else any bytes. Empty if the sample ends its instance and
    /// the engine does not say of which value.
    pub message: &'a [u8],
    /// A number that tells its publisher from others; 0 if the engine does not say.
    pub publisher: u128,
    /// The port of Thalweg that published it, if it has come over a bridge.
    pub origin: Option<PortRef>,
    /// A value, or the end of its instance.
    pub change: Change,
    /// Nanoseconds since it was published, as far as the engine knows.
    pub age_ns: u64,
    /// `true` if it is known to have been published before the subscriber was there. Zenoh does not say.
    pub historical: bool,
}

/// A publisher or subscriber of another program.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// A number that tells it from others of the engine.
    pub id: u128,
    /// Publishes or subscribes.
    pub direction: Direction,
    /// Its topic.
    pub topic: Topic,
    /// Its policies, as far as the engine knows them.
    pub qos: Qos,
    /// The program's name for it, such as `/talker`.
    pub name: String,
    /// Of a bridge's publisher, if the engine tells it: the networks and nodes that its samples have passed, the first first.
    pub way: Vec<String>,
}

/// Two ends that do not match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Incompatible {
    /// The topic.
    pub topic: String,
    /// The policy, or `type`.
    pub policy: String,
    /// The publisher's offer.
    pub offered: String,
    /// The subscriber's request.
    pub requested: String,
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, policy, offered, requested } = self;
        write!(f, "{topic}: {policy} offered {offered}, requested {requested}")
    }
}

/// A bridge as the others of its realm know it: those of the same rules in the same data space stand in for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its node.
    pub node: NodeId,
    /// Its rules, as a text.
    pub rules: String,
}

/// What was refused since the engine opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The number.
    pub count: u64,
    /// The last of it: what it was, and what is allowed.
    pub last: String,
}

/// What becomes of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// The engine keeps it.
    Enforced,
    /// Others are told of it; nobody keeps it.
    Announced,
    /// It is lost.
    None,
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Support::Enforced => "enforced",
            Support::Announced => "announced",
            Support::None => "-",
        })
    }
}

/// The smallest unit whose packets can have a mark of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedUnit {
    /// One publisher with one subscriber.
    Channel,
    /// All channels of a topic.
    Topic,
    /// All topics of a class.
    Class,
    /// Nothing: all packets have one mark.
    None,
}

impl fmt::Display for MarkedUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MarkedUnit::Channel => "channel",
            MarkedUnit::Topic => "topic",
            MarkedUnit::Class => "class",
            MarkedUnit::None => "-",
        })
    }
}

/// What an engine does about the policies of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Samples of reliable publishers arrive all, in order.
    pub reliability: Support,
    /// Late joiners get the last samples of transient-local publishers.
    pub durability: Support,
    /// Policies that do not match are reported.
    pub matching: Support,
    /// Missed deadlines are reported.
    pub deadline: Support,
    /// Old samples are dropped.
    pub lifespan: Support,
    /// The end of a topic's only instance is a sample.
    pub instances: Support,
    /// Samples have keys, histories are those of each instance, and the end of each is a sample.
    pub keys: Support,
    /// The types of both ends are compared.
    pub types: Support,
    /// The smallest unit that can have a mark.
    pub marked: MarkedUnit,
    /// The engine tells which ends other programs have.
    pub endpoints: bool,
    /// A publisher knows whether anybody subscribes ([`Publisher::is_wanted`]).
    pub wanted: bool,
}

impl Abilities {
    /// Names and values, in the order of the table of engines.
    pub fn rows(&self) -> [(&'static str, String); 11] {
        let yes_or_no = |yes: bool| if yes { "yes" } else { "no" };
        [
            ("reliability", self.reliability.to_string()),
            ("durability", self.durability.to_string()),
            ("matching of policies", self.matching.to_string()),
            ("deadline", self.deadline.to_string()),
            ("lifespan", self.lifespan.to_string()),
            ("instances", self.instances.to_string()),
            ("keys", self.keys.to_string()),
            ("types", self.types.to_string()),
            ("own mark of each", self.marked.to_string()),
            ("tells of others' ends", yes_or_no(self.endpoints).to_owned()),
            ("tells whether it is wanted", yes_or_no(self.wanted).to_owned()),
        ]
    }

    /// The policies of `qos` that differ from their defaults and are not kept.
    pub fn lost(&self, qos: &Qos) -> Vec<&'static str> {
        let default = Qos::default();
        let rows = [
            ("durability", self.durability, qos.durability != default.durability),
            ("deadline", self.deadline, qos.deadline.is_some()),
            ("lifespan", self.lifespan, qos.lifespan.is_some()),
            ("liveliness", self.matching, qos.liveliness != default.liveliness),
            ("ownership", self.matching, qos.ownership != default.ownership),
            // All partitions are those that an engine without any has.
            ("partition", self.matching, qos.partition.iter().any(|name| name != "*")),
            ("key", self.keys, !qos.key.is_empty()),
        ];
        let lost = rows.into_iter().filter(|(_, support, stated)| *stated && *support != Support::Enforced);
        lost.map(|(name, ..)| name).collect()
    }
}

/// An error of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A topic that the engine cannot have: the name, and the reason.
    Topic(String),
    /// Settings that cannot be used: the value, and what is allowed.
    Usage(String),
    /// The engine, or the network below it, refused.
    Engine(String),
}

/// The result of an engine's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Error::Topic(text) | Error::Usage(text) | Error::Engine(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Error {}

impl From<thalweg::Error> for Error {
    fn from(error: thalweg::Error) -> Self {
        match error.exit_code() {
            2 => Error::Usage(error.to_string()),
            _ => Error::Engine(error.to_string()),
        }
    }
}
