//! Settings of a node.

use crate::carrier::{Around, Carrier};
use crate::channel::memory::NODE_MEMORY;
use crate::channel::proxy::scaler::Scalers;
use crate::control::Network;
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

/// Settings of a node.
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
    /// priorities, scale streams. All of them may look. Default: none, only this host, by the node's unix socket;
    /// besides these, those in the environment's `THALWEG_ADMIN_FROM`, separated by commas.
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
    fn default() -> Self {
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

/// The loopback addresses, on which every node listens.
pub(crate) fn loopback() -> [SocketAddr; 2] {
    [SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0)]
}
