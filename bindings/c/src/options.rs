//! Settings of nodes and ports, as C states them.

mod port;

pub(crate) use port::{class_number, publisher_settings, subscriber_settings, words};

use crate::arguments::{SizeFirst, list, optional_text, options};
use crate::failure::{Failure, Result};
use crate::sample::thalweg_sample;
use std::ffi::{c_char, c_void};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use thalweg::{DiscoverySource, Network, Settings};

/// Packet priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum thalweg_class {
    THALWEG_CLASS_DEFAULT = 0,
    THALWEG_CLASS_LOW = 1,
    THALWEG_CLASS_NORMAL = 2,
    THALWEG_CLASS_HIGH = 3,
    THALWEG_CLASS_CRITICAL = 4,
}

/// Reliability of delivery. Default: reliable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum thalweg_reliability {
    THALWEG_RELIABILITY_DEFAULT = 0,
    THALWEG_RELIABLE = 1,
    THALWEG_BEST_EFFORT = 2,
}

/// Samples that late joiners get. Default: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum thalweg_durability {
    THALWEG_DURABILITY_DEFAULT = 0,
    THALWEG_VOLATILE = 1,
    /// Late joiners get the last `history` samples.
    THALWEG_TRANSIENT_LOCAL = 2,
}

/// The queue of a channel that is slower than its publisher, or of samples that wait to be taken. Default: the last 16 samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum thalweg_queue {
    THALWEG_QUEUE_DEFAULT = 0,
    /// The last `depth` samples wait.
    THALWEG_KEEP_LAST = 1,
    /// `depth` samples wait; further ones are refused.
    THALWEG_KEEP_ALL = 2,
    /// `depth` samples wait; publish waits up to `block_ns` for room.
    THALWEG_BLOCK = 3,
}

/// Scheduling of the thread that serves the channels of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum thalweg_sched {
    THALWEG_SCHED_DEFAULT = 0,
    THALWEG_SCHED_OTHER = 1,
    THALWEG_SCHED_FIFO = 2,
    THALWEG_SCHED_RR = 3,
}

/// Settings of a node.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct thalweg_node_options {
    pub size: usize,
    /// Nodes of different realms do not see each other. Default: "default".
    pub realm: *const c_char,
    /// Addresses to listen on besides loopback, such as "10.0.0.2" or "10.0.0.2:7447", separated by commas. Default: none, this host only.
    pub listen: *const c_char,
    /// Nodes or routers on other hosts to connect to, such as "tcp/10.0.0.1:7447", separated by commas.
    pub peers: *const c_char,
    /// A file with the addresses of other hosts' nodes. Default: they are found by themselves.
    pub discovery_file: *const c_char,
    /// Networks of other hosts whose administrators may change this node, such as "10.0.0.0/24", separated by commas. Default: none.
    pub admin_from: *const c_char,
    /// Bytes that all channels of the node may hold together. Default: 1 GiB.
    pub memory: u64,
    /// Keeps the whole process in memory (mlockall).
    pub lock_memory: bool,
}

/// Policies of a port. The rules by which they match: docs/qos.md.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct thalweg_qos {
    pub size: usize,
    /// A thalweg_class: of samples (publisher), of acknowledgements (subscriber).
    pub priority_class: u32,
    /// A thalweg_reliability.
    pub reliability: u32,
    /// A thalweg_durability.
    pub durability: u32,
    /// With THALWEG_TRANSIENT_LOCAL: samples that late joiners get. Default: 1.
    pub history: u32,
    /// A thalweg_queue.
    pub queue: u32,
    pub depth: u32,
    pub block_ns: u64,
    /// The longest time between two samples: promised (publisher), expected (subscriber).
    pub deadline_ns: u64,
    /// The longest acceptable time from publishing to delivery.
    pub latency_budget_ns: u64,
    /// Older samples are dropped.
    pub lifespan_ns: u64,
    /// The shortest time between two samples (subscriber).
    pub separation_ns: u64,
    /// Largest encoded message in bytes. Default: 16 MiB.
    pub max_message: u32,
    /// A thalweg_sched: of the thread that serves the port's channels.
    pub sched: u32,
    /// 1 to 99 with THALWEG_SCHED_FIFO and THALWEG_SCHED_RR.
    pub sched_priority: u32,
}

/// Settings of a publisher.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct thalweg_publisher_options {
    pub size: usize,
    /// The port's name, unique among all nodes. Default: /<node>/<topic>, numbered if need be.
    pub name: *const c_char,
    pub qos: *const thalweg_qos,
    /// Policies and priorities by name, as `thalweg set` and profiles have them, such as "deadline=20ms class=high sched=fifo:30". They count
    /// more than `qos`. A value with spaces stands in quotes: queue="keep-last 4".
    pub settings: *const c_char,
    /// The carriers that are allowed, best first, separated by commas. Default: all that suit.
    pub carriers: *const c_char,
    /// Opens only as part of this session, which a broker has admitted with the topic.
    pub session: *const c_char,
}

/// Called with each sample, on a thread of the library; calls of one subscriber never overlap. The sample is valid until it returns. It must
/// not throw.
pub type thalweg_callback = Option<unsafe extern "C" fn(sample: *const thalweg_sample, user: *mut c_void)>;

/// Called once with the user pointer, when it is needed no more.
pub type thalweg_release = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// Settings of a subscriber. Its first fields are those of a publisher.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct thalweg_subscriber_options {
    pub size: usize,
    pub name: *const c_char,
    pub qos: *const thalweg_qos,
    pub settings: *const c_char,
    pub carriers: *const c_char,
    pub session: *const c_char,
    /// Called with each sample; none waits to be taken then.
    pub callback: thalweg_callback,
    /// Given to the callback.
    pub user: *mut c_void,
    /// Called with `user` after the last callback; also if the subscriber cannot be opened.
    pub release: thalweg_release,
    /// Lets the callback run on the publisher's thread where publisher and subscriber are in one process. A slow callback delays that
    /// publisher then.
    pub on_publisher_thread: bool,
    /// The port has no thread: thalweg_subscriber_wait receives. The fastest way for a thread that does nothing else. Without callback and
    /// descriptor.
    pub polled: bool,
}

// SAFETY: the size is first, and zero is a null pointer, a number or `false` in all other fields.
unsafe impl SizeFirst for thalweg_node_options {}
// SAFETY: the same.
unsafe impl SizeFirst for thalweg_qos {}
// SAFETY: the same.
unsafe impl SizeFirst for thalweg_publisher_options {}
// SAFETY: the same; zero is no callback.
unsafe impl SizeFirst for thalweg_subscriber_options {}

/// The settings of a node by its name and options.
///
/// # Safety
/// Pointers in the options are null or valid.
pub(crate) unsafe fn node_settings(name: &str, given: *const thalweg_node_options) -> Result<Settings> {
    // SAFETY: the caller's promise, here and below.
    let given = unsafe { options(given, "options")? };
    // What is not given is that of the environment, of the configuration file, or the default.
    let mut settings = Settings { name: name.to_owned(), ..Settings::default() };
    settings.lock_memory |= given.lock_memory;
    // SAFETY: as above.
    unsafe {
        if let Some(realm) = optional_text(given.realm, "options.realm")? {
            settings.realm = realm.to_owned();
        }
        let addresses = list(given.listen, "options.listen")?;
        if !addresses.is_empty() {
            settings.listen = addresses.into_iter().map(listen).collect::<Result<_>>()?;
        }
        let peers = list(given.peers, "options.peers")?;
        if !peers.is_empty() {
            settings.peers = peers.into_iter().map(str::to_owned).collect();
        }
        if let Some(file) = optional_text(given.discovery_file, "options.discovery_file")? {
            settings.discovery = DiscoverySource::Static(PathBuf::from(file));
        }
        let networks = list(given.admin_from, "options.admin_from")?;
        if !networks.is_empty() {
            settings.admin_from = networks.into_iter().map(network).collect::<Result<_>>()?;
        }
    }
    if given.memory > 0 {
        settings.memory = usize::try_from(given.memory).unwrap_or(usize::MAX);
    }
    Ok(settings)
}

fn network(text: &str) -> Result<Network> {
    text.parse::<Network>().map_err(|wrong| Failure::invalid(format!("options.admin_from: {wrong}")))
}

/// An address of this host, with a port or without.
fn listen(text: &str) -> Result<SocketAddr> {
    let alone = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0));
    let wrong = |_| {
        Failure::invalid(format!(
            "options.listen: {text:?} is no address of this host, such as 10.0.0.2 or 10.0.0.2:7447"
        ))
    };
    text.parse().or_else(|_| alone()).map_err(wrong)
}
