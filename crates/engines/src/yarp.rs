//! YARP as an engine: ports with its protocol, over sockets of our own.
//!
//! | Thalweg | YARP |
//! |---|---|
//! | topic `/robot/pose` that is published | output port `/thalweg/robot/pose`: `yarp connect /thalweg/robot/pose /reader` |
//! | topic `/icub/head/state:o` that is subscribed to | the output port of that name is asked to send to the input port `/thalweg/icub/head/state:o:i` |
//! | message | the bytes of the message, a bottle or any other type |
//! | channel | connection, with a socket of its own: it has the mark of the publisher's class, or what `prop set` has set |
//! | reliable, best-effort | waits a second for a reader that takes nothing, drops the oldest sample |
//!
//! YARP has no histories, policies or instances, and does not compare types. Ports offer the carriers `tcp`, `fast_tcp`, `text` and
//! `text_ack`.
//!
//! | module | contents |
//! |---|---|
//! | `frame` | the protocol of a connection |
//! | `bottle` | bottles in binary form |
//! | `names`, `server` | texts of the name server, and a small one |
//! | `port`, `link` | a port, and the queue before a socket |
//! | `users` | publishers and subscribers |
//! | `desk` | administrative commands |
//! | `hub` | the event loop |
//! | `client`, `seeker`, `connector` | what may wait for others |

pub(crate) mod bottle;
mod client;
mod connector;
mod desk;
pub(crate) mod frame;
mod hub;
mod link;
pub(crate) mod names;
mod port;
mod seeker;
pub(crate) mod server;
mod users;

use crate::engine::{
    Abilities, Deliver, Engine, Error, Identity, MarkedUnit, Publisher, Refused, Result, Subscriber, Support, Topic,
};
use client::Client;
use connector::open_connections;
use hub::{Hub, Loop, Order};
use linux::thread::Settings as ThreadSettings;
use names::Registration;
use port::{Port, Role, Taker};
use qos::{Qos, Reliability};
use seeker::{Pattern, Ports};
use server::Names;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use thalweg::control::NodeId;
use thalweg::control::matching::is_pattern;
use users::{Following, Publishing, Subscribing};

/// The place of a YARP network, and of this program in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name server. Default: `127.0.0.1:10000`.
    pub server: String,
    /// Be the name server, at this address. Default: no. `server` does not count then.
    pub serve: Option<SocketAddr>,
    /// The address of this host at which its ports are. Default: the one by which the name server is reached.
    pub host: Option<IpAddr>,
    /// Before the names of ports here, such as `/robot1`; may be empty. Two programs at one name server need different ones. Default:
    /// `/thalweg`.
    pub prefix: String,
    /// Ports of others whose names begin with one of these publish the topic that follows. Default: an empty one, so that topics are names
    /// of ports.
    pub from: Vec<String>,
    /// Largest message that is taken, in bytes, up to 1 GiB. Default 16 MiB.
    pub max_message: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: "127.0.0.1:10000".to_owned(),
            serve: None,
            host: None,
            prefix: "/thalweg".to_owned(),
            from: vec![String::new()],
            max_message: 16 << 20,
        }
    }
}

/// A YARP network.
pub struct Yarp {
    ports: Arc<Ports>,
    /// The thread that looks for others. It ends before the ports are closed.
    seeking: Option<JoinHandle<()>>,
    _threads: Threads,
}

/// Connections that ports may be asked for at once.
const MOST_JOBS: usize = 256;

impl Yarp {
    /// The name of the engine.
    pub const NAME: &str = "yarp";
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
        marked: MarkedUnit::Channel,
        endpoints: false,
        wanted: true,
    };

    /// Joins the network, as the bridge of a node or as any program. Takes up to some seconds if the name server does not answer.
    ///
    /// # Errors
    /// [`Error::Usage`] for a prefix or an address that cannot be used, [`Error::Engine`] when the name server does not answer.
    pub fn open(settings: Settings, bridge: Option<Identity>) -> Result<Self> {
        for prefix in settings.from.iter().chain([&settings.prefix]).filter(|prefix| !prefix.is_empty()) {
            names::check(prefix).map_err(Error::Usage)?;
        }
        let largest = settings.max_message.min(1 << 30) as usize;
        let hub = Arc::new(Hub::new(largest).map_err(|error| Error::Engine(format!("YARP: {error}")))?);
        let server = match settings.serve {
            Some(at) => serve(&hub, at)?.to_string(),
            None => settings.server.clone(),
        };
        let (jobs, asked) = sync_channel(MOST_JOBS);
        let client = Client::new(&server);
        let mut threads = Threads { hub: hub.clone(), all: Vec::new() };
        threads.start("yarp", {
            let hub = hub.clone();
            move || Loop::new(hub, jobs).run()
        })?;
        let host = settings.host.map_or_else(|| client.own_address(), Ok)?;
        threads.start("yarp-connect", {
            let (hub, client) = (hub.clone(), client.clone());
            move || open_connections(&asked, &client, &hub)
        })?;
        let ports = Arc::new(Ports::new(hub, client, host, &settings.prefix, &settings.from));
        let mut engine = Self { ports: ports.clone(), seeking: None, _threads: threads };
        let place = bridge.as_ref().map(|bridge| place(&settings, &bridge.rules));
        if let Some((bridge, place)) = bridge.zip(place.as_ref()) {
            ports.tell(place, bridge.node)?;
        }
        engine.seeking = Some(start("yarp-seek", move || ports.seek(place.as_deref()))?);
        Ok(engine)
    }
}

/// The threads that serve ports. They end with it, also when the engine cannot be opened after all.
struct Threads {
    hub: Arc<Hub>,
    all: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        self.all.push(start(name, body)?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.hub.stop();
        self.all.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    linux::thread::spawn(ThreadSettings::named(name), body).map_err(|error| Error::Engine(format!("YARP: {error}")))
}

/// Opens a name server, and gives the address for its clients.
fn serve(hub: &Hub, at: SocketAddr) -> Result<SocketAddr> {
    let failed = |error| {
        Error::Usage(format!("the name server cannot listen on {at}: {error}: choose another address of this host"))
    };
    let listener = TcpListener::bind(at).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let own = reachable(listener.local_addr().map_err(failed)?);
    let (name, carrier) = ("/root".to_owned(), "tcp".to_owned());
    let names = Names::new(Registration { name, host: own.ip().to_string(), port: own.port(), carrier });
    let port = Arc::new(Port::new("/root", own, Role::Names(Box::new(Mutex::new(names)))));
    hub.order(Order::Listen(port, listener));
    Ok(own)
}

/// The address at which a client reaches a server that listens on `address`.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A word for data space and rules: bridges of others carry other topics. FNV-1a, because it is the same in every build.
fn place(settings: &Settings, rules: &str) -> String {
    let text = format!("{} {:?} {rules}", settings.prefix, settings.from);
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

impl Drop for Yarp {
    fn drop(&mut self) {
        self.ports.stop();
        drop(self.seeking.take().map(JoinHandle::join));
        self.ports.close_all(); // the name server may be one of our own ports, so those are served until then
    }
}

impl Engine for Yarp {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn abilities(&self) -> Abilities {
        Self::ABILITIES
    }

    fn publisher(&self, topic: &Topic, offer: &Qos) -> Result<Box<dyn Publisher>> {
        let port = self.ports.output(&topic.name)?;
        port.share(offer.class, true);
        let patient = offer.reliability == Reliability::Reliable;
        Ok(Box::new(Publishing { ports: self.ports.clone(), port, class: offer.class, patient }))
    }

    fn subscriber(&self, topic: &Topic, _: &Qos, deliver: Deliver) -> Result<Box<dyn Subscriber>> {
        let taker = Arc::new(Taker(Mutex::new(Some(deliver))));
        let ports = self.ports.clone();
        if is_pattern(&topic.name) {
            let pattern = Arc::new(Pattern::new(&topic.name, taker));
            ports.follow(pattern.clone());
            return Ok(Box::new(Following { ports, pattern }));
        }
        let port = ports.input(&topic.name)?;
        port.add_taker(taker.clone());
        ports.look_now();
        Ok(Box::new(Subscribing { ports, port, taker }))
    }

    fn bridges(&self) -> Vec<NodeId> {
        self.ports.bridges()
    }

    fn refused(&self) -> Refused {
        self.ports.hub.refused()
    }
}
