//! Settings of a node.

use crate::carrier::{Around, Carrier};
use crate::channel::memory::NODE_MEMORY;
use crate::channel::proxy::scaler::Scalers;
use crate::config::{self, Configuration};
use crate::control::{Network, check_realm};
use crate::error::Result;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The source from which other nodes are learnt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DiscoverySource {
    /// On this host by the run directory; on other hosts by Zenoh when the node listens beyond loopback.
    #[default]
    Automatic,
    /// Nodes of other hosts by the addresses in a file; nodes of this host by the run directory.
    Static(PathBuf),
}

/// Settings of a node. [`Settings::default`] has what the environment and the configuration file say ([`config`](crate::config)); what a
/// program states itself counts more.
#[derive(Clone)]
pub struct Settings {
    /// The node's name, for people and default port names. Default: the program's name and process id.
    pub name: String,
    /// Nodes of different realms do not see each other. Default `default`.
    pub realm: String,
    /// Addresses to listen on besides loopback (port 0: any free one). Default: none, this host only.
    pub listen: Vec<SocketAddr>,
    /// Nodes or routers on other hosts to connect to (`tcp/10.0.0.1:7447`), where scouting does not reach.
    pub peers: Vec<String>,
    /// The source from which other nodes are learnt.
    pub discovery: DiscoverySource,
    /// Carriers besides the built-in ones. A port uses them when it names them ([`carriers`](crate::node::PublisherBuilder::carriers)).
    pub carriers: Vec<Arc<dyn Carrier>>,
    /// Keeps the whole process's memory resident, so that no sample waits for a page (mlockall; needs CAP_IPC_LOCK or
    /// RLIMIT_MEMLOCK). Default: no.
    pub lock_memory: bool,
    /// Bytes that all channels of the node may hold together: samples in queues and mailboxes, unacknowledged messages and
    /// incomplete ones. One peer may hold as much as remains. Default 1 GiB.
    pub memory: usize,
    /// Faults and a capture file around every network carrier. Default: nothing.
    pub around: Around,
    /// Networks of other hosts whose administrators may change this node: connect and disconnect its ports, set
    /// priorities, scale streams. All of them may look. Default: none, only this host, by the node's unix socket.
    pub admin_from: Vec<Network>,
    /// Hosts proxies for other nodes, within these limits. Default: no.
    pub relay: Option<RelayLimits>,
    /// Limits on the use of one port by others.
    pub limits: PortLimits,
    /// Scalers besides the built-in ones: they make samples smaller for subscribers that ask for small pictures.
    pub scalers: Scalers,
}

/// Limits on the use of one port by others. A request beyond them is refused, and the answer names the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLimits {
    /// Channels of a publisher that lead to other hosts, or to processes of this host that may not use the run directory. One
    /// host may have half of them, one node a quarter. Default 64.
    pub channels: u32,
    /// Number of different pictures that are made of a publisher's samples. One other host may request half of them. Default 4.
    pub pictures: u32,
}

impl Default for PortLimits {
    fn default() -> Self {
        Self { channels: 64, pictures: 4 }
    }
}

/// Limits on the load that a relay carries for others. A request beyond them is refused, and the answer names the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayLimits {
    /// Proxies, counted by the channels that lead from them. One host may have a quarter of them. Default 256.
    pub proxies: u32,
    /// Proxies for one node of another host. Default 16.
    pub per_peer: u32,
    /// Samples per second received from all sources. Default 100,000.
    pub samples_per_s: u64,
    /// Payload bytes per second received from all sources. Default 1 GB.
    pub bytes_per_s: u64,
    /// Payload bytes of all its pull buffers, each counted with the most that it may keep. Default 1 GB.
    pub kept_bytes: u64,
    /// Lifetime of a pull buffer that no port wants any more: a process that was killed may come back. Default 60 s.
    pub unwanted: Duration,
}

impl Default for RelayLimits {
    fn default() -> Self {
        let (bytes_per_s, kept_bytes) = (1_000_000_000, 1_000_000_000);
        Self {
            proxies: 256,
            per_peer: 16,
            samples_per_s: 100_000,
            bytes_per_s,
            kept_bytes,
            unwanted: Duration::from_secs(60),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let carriers: Vec<&str> = self.carriers.iter().map(|c| c.name()).collect();
        let Self { name, realm, listen, peers, discovery, .. } = self;
        write!(
            f,
            "Settings {{ {name}, realm {realm}, listen {listen:?}, peers {peers:?}, {discovery:?}, carriers {carriers:?} }}"
        )
    }
}

impl Default for Settings {
    /// As [`Settings::configured`]. After its error they are the defaults without environment and file, and a node that opens reports the error.
    fn default() -> Self {
        Self::configured().unwrap_or_else(|_| Self::built_in())
    }
}

impl Settings {
    /// The defaults, but for what the environment and the configuration file say.
    ///
    /// # Errors
    /// [`Error::Configuration`](crate::Error::Configuration): the file cannot be read, or a key or value is not allowed. Names the place and what
    /// is allowed.
    pub fn configured() -> Result<Self> {
        Self::of(&Configuration::read()?)
    }

    /// The defaults, but for what is given.
    ///
    /// # Errors
    /// [`Error::Configuration`](crate::Error::Configuration): a value that is not allowed, with its source and what is allowed.
    pub fn of(given: &Configuration) -> Result<Self> {
        let built_in = Self::built_in();
        let limits = PortLimits {
            channels: given.value("channels", count)?.unwrap_or(built_in.limits.channels),
            pictures: given.value("pictures", count)?.unwrap_or(built_in.limits.pictures),
        };
        let realm = |text: &str| check_realm(text).map(|()| text.to_owned());
        Ok(Self {
            realm: given.value("realm", realm)?.unwrap_or_else(|| built_in.realm.clone()),
            listen: given.list("listen", config::address)?.unwrap_or_default(),
            peers: given.list("peer", config::peer)?.unwrap_or_default(),
            discovery: given.value("discovery", config::discovery)?.map(DiscoverySource::Static).unwrap_or_default(),
            lock_memory: given.value("lock-memory", yes)?.unwrap_or(built_in.lock_memory),
            memory: given.value("memory", bytes)?.unwrap_or(built_in.memory),
            admin_from: given.list("admin-from", |text| text.parse::<Network>())?.unwrap_or_default(),
            limits,
            ..built_in
        })
    }

    fn built_in() -> Self {
        let program = std::env::args_os().next().map(PathBuf::from);
        let stem = program.as_deref().and_then(|p| p.file_stem()).and_then(|s| s.to_str()).unwrap_or("node");
        let name = format!("{stem}-{}", std::process::id());
        Self {
            name,
            realm: "default".into(),
            listen: Vec::new(),
            peers: Vec::new(),
            discovery: DiscoverySource::Automatic,
            carriers: Vec::new(),
            lock_memory: false,
            admin_from: Vec::new(),
            memory: NODE_MEMORY,
            around: Around::default(),
            relay: None,
            limits: PortLimits::default(),
            scalers: Scalers::default(),
        }
    }
}

fn count(text: &str) -> std::result::Result<u32, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| format!("1 to {}", u32::MAX))
}

fn yes(text: &str) -> std::result::Result<bool, &'static str> {
    text.parse().map_err(|_| "true or false")
}

fn bytes(text: &str) -> std::result::Result<usize, &'static str> {
    let parsed = text.parse::<u64>().ok().or_else(|| qos::parse_bytes(text).ok()).filter(|bytes| *bytes > 0);
    parsed
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or("a number of bytes from 1, or with a unit: 64MiB (B kB MB GB KiB MiB GiB)")
}

/// The loopback addresses, on which every node listens.
pub(crate) fn loopback() -> [SocketAddr; 2] {
    [SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0)]
}
