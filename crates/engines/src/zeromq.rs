//! ZeroMQ as an engine, on the system's libzmq. No type of it leaves this room.
//!
//! | Thalweg | ZeroMQ |
//! |---|---|
//! | topic `/robot/pose` | messages that begin with `robot/pose` |
//! | sample | a message of two frames: the topic, and the message as it is |
//! | pattern | a subscription to the text before its first wildcard; what does not match is left out |
//! | class | a socket of its own, whose packets have the class's mark (`ZMQ_TOS`), at a port of its own |
//! | reliable | a publisher waits while a subscriber has no room (`ZMQ_XPUB_NODROP`) |
//! | best-effort | a sample that a subscriber has no room for does not reach it |
//!
//! Publishers bind (XPUB), subscribers connect (SUB); nobody is looked for. There are no further frames, for origin or type: programs that
//! unpack a topic and a payload would not take them.

mod endpoint;
mod network;
mod sink;
mod source;
mod subscribers;

use crate::engine::{
    Abilities, Deliver, Engine, Error, MarkedUnit, Publisher, Refused, Result, Sample, Subscriber, Support, Topic,
};
use endpoint::Endpoint;
use libzmq::{Number, Socket};
use network::Network;
use qos::{Class, Qos, Reliability};
use sink::Sink;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use subscribers::{Target, prefix};
use thalweg::Change;
use thalweg::control::matching::{check_name, check_pattern};

/// The places of ZeroMQ's programs. At least one is stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where subscribers may connect, such as `tcp://10.0.0.2:5556`: those of class NORMAL; see [`class_endpoint`]. Default: nowhere, so
    /// nothing leaves.
    pub bind: Vec<String>,
    /// Where publishers are, such as `tcp://10.0.0.1:5556`, each class's by itself. Default: nowhere, so nothing comes.
    pub connect: Vec<String>,
    /// Largest message, in bytes. A connection by which a larger one comes ends, and is made anew. Default 16 MiB.
    pub max_message: u32,
    /// Most messages that wait for each subscriber, and as many of each publisher; from 1 up. Behind them are the buffers of TCP. Default 64:
    /// of the largest ones 1 GiB. Not by publisher, because all of a class share a socket.
    pub queue: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self { bind: Vec::new(), connect: Vec::new(), max_message: 16 << 20, queue: 64 }
    }
}

/// Where samples of a class leave, of a publisher that binds at `endpoint`: there if it is NORMAL, at the first port after it if LOW, the
/// second if HIGH, the third if CRITICAL; of a unix socket, at its path with `.low`, `.high`, `.critical`.
///
/// # Errors
/// [`Error::Usage`] for what is no endpoint.
pub fn class_endpoint(endpoint: &str, class: Class) -> Result<String> {
    Ok(Endpoint::parse(endpoint)?.of(class))
}

/// The ZeroMQ programs at some places.
pub struct ZeroMq {
    network: Arc<Network>,
    thread: Option<JoinHandle<()>>,
}

impl ZeroMq {
    /// The name of the engine.
    pub const NAME: &str = "zeromq";
    /// What it does about policies.
    pub const ABILITIES: Abilities = Abilities {
        reliability: Support::Enforced,
        durability: Support::None,
        matching: Support::None,
        deadline: Support::None,
        lifespan: Support::None,
        instances: Support::None,
        keys: Support::None,
        types: Support::None,
        marked: MarkedUnit::Class,
        endpoints: false,
        wanted: true,
    };

    /// Binds and connects. Others need not be there yet. Starts a thread, to which libzmq adds two.
    ///
    /// # Errors
    /// [`Error::Usage`] for an endpoint that cannot be used, or none at all; [`Error::Engine`] if the system refuses threads or descriptors.
    pub fn open(settings: &Settings) -> Result<Self> {
        if settings.bind.is_empty() && settings.connect.is_empty() {
            return Err(Error::Usage("ZeroMQ: an endpoint to bind or to connect to is needed".to_owned()));
        }
        let network = Arc::new(Network::open(settings)?);
        network.sink(Class::Normal).map_err(|error| Error::Usage(format!("ZeroMQ: {error}")))?;
        let running = network.clone();
        let thread = linux::thread::spawn(linux::thread::Settings::named("zeromq"), move || running.run());
        Ok(Self { network, thread: Some(thread.map_err(failed)?) })
    }
}

impl Engine for ZeroMq {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn abilities(&self) -> Abilities {
        Self::ABILITIES
    }

    fn publisher(&self, topic: &Topic, offer: &Qos) -> Result<Box<dyn Publisher>> {
        check_name(&topic.name).map_err(|wrong| Error::Topic(wrong.to_string()))?;
        // Who has connected to the endpoint of NORMAL alone gets samples of other classes there.
        let classes = if offer.class == Class::Normal { vec![Class::Normal] } else { vec![offer.class, Class::Normal] };
        let sinks = classes.into_iter().filter_map(|class| self.network.sink(class).transpose());
        let mut publishing = Publishing {
            topic: prefix(&topic.name).to_owned(),
            reliable: offer.reliability == Reliability::Reliable,
            patience: offer.queue.patience().max(PATIENCE),
            max_message: self.network.max_message(),
            sinks: Vec::new(),
        };
        for sink in sinks {
            let sink = sink?;
            sink.join(publishing.reliable).map_err(failed)?;
            publishing.sinks.push((sink, AtomicU64::new(0)));
        }
        Ok(Box::new(publishing))
    }

    fn subscriber(&self, topic: &Topic, _request: &Qos, deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        check_pattern(&topic.name).map_err(|wrong| Error::Topic(wrong.to_string()))?;
        let target = Arc::new(Target { topic: topic.name.clone(), deliver: Mutex::new(Some(deliver)) });
        let subscribing = Subscribing { target, network: self.network.clone() };
        self.network.subscribe(&subscribing.target)?;
        Ok(Box::new(subscribing))
    }

    fn refused(&self) -> Refused {
        self.network.refusals().so_far()
    }
}

impl Drop for ZeroMq {
    fn drop(&mut self) {
        self.network.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The shortest wait of a reliable publisher for room.
const PATIENCE: Duration = Duration::from_secs(1);

struct Publishing {
    topic: String,
    reliable: bool,
    patience: Duration,
    max_message: u32,
    /// By preference, each with what it was last found to want.
    sinks: Vec<(Arc<Sink>, AtomicU64)>,
}

impl Publishing {
    /// Where somebody subscribes to the topic.
    fn wanted(&self) -> Option<&Sink> {
        let wanted = self.sinks.iter().find(|(sink, seen)| sink.is_wanted(self.topic.as_bytes(), seen));
        wanted.map(|(sink, _)| &**sink)
    }
}

impl Publisher for Publishing {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        let Some(sink) = self.wanted().filter(|_| sample.change == Change::Written) else { return Ok(()) };
        let (topic, size, largest) = (&self.topic, sample.message.len(), self.max_message);
        if size > largest as usize {
            return Err(Error::Engine(format!("/{topic}: a message of {size} bytes; at most {largest} are taken")));
        }
        let patience = if self.reliable { self.patience } else { Duration::ZERO };
        let sent = sink.send(topic.as_bytes(), sample.message, patience).map_err(failed)?;
        if self.reliable && !sent {
            return Err(Error::Engine(format!("/{topic}: a subscriber has had no room for {patience:?}")));
        }
        Ok(())
    }

    fn is_wanted(&self) -> bool {
        self.wanted().is_some()
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        self.sinks.iter().for_each(|(sink, _)| sink.leave(self.reliable));
    }
}

struct Subscribing {
    target: Arc<Target>,
    network: Arc<Network>,
}

impl Subscriber for Subscribing {}

impl Drop for Subscribing {
    fn drop(&mut self) {
        self.network.unsubscribe(&self.target);
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::Engine(format!("ZeroMQ: {error}"))
}

/// Has a connection end within 8 s whose other host is gone without a word: after 5 s of silence it is asked three times.
fn probe(socket: &Socket) -> std::io::Result<()> {
    socket.set(Number::KeepAlive, 1)?;
    socket.set(Number::KeepAliveIdle, 5)?;
    socket.set(Number::KeepAliveInterval, 1)?;
    socket.set(Number::KeepAliveCount, 3)
}
