//! The contract: what topics and their subscribers need, and the network they run on (`system.toml`).
//!
//! Times are whole nanoseconds, sizes bytes, rates bit/s or Hz; references between parts are indices into [`System`]'s lists
//! and always hold, because only the reader of the file makes them.
//!
//! | module | what it holds |
//! |---|---|
//! | `file` | the tables of the file as they are written |
//! | `names` | where names stand, and what refers to them |
//! | `text` | its lines, and what the TOML reader says of them |
//! | `value` | values and what they may be |
//! | `read` | from the file to [`System`] |
//! | [`check`] | what can be read but is hardly meant |

mod check;
mod file;
mod names;
mod read;
mod text;
mod value;

pub use check::{Finding, check};

use crate::Class;
use crate::quantity::show_bit_rate;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A contract file that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contract {
    /// What it says.
    pub system: System,
    /// Where it says it.
    pub lines: Lines,
    /// 64-bit FNV-1a of the text: a plan says with it which contract it is for.
    pub hash: u64,
}

/// The lines of a file at which its tables begin, counted from 1, in the order of [`System`]'s lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Of `[[node]]`.
    pub nodes: Vec<usize>,
    /// Of `[[link]]`.
    pub links: Vec<usize>,
    /// Of `[[topic]]`.
    pub topics: Vec<usize>,
    /// Of `[[subscriber]]`.
    pub subscribers: Vec<usize>,
}

/// What is wrong with a contract file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractError {
    /// The line, counted from 1.
    pub line: usize,
    /// Key, value and what is allowed.
    pub problem: String,
}

impl fmt::Display for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ContractError {}

impl Contract {
    /// Reads the text of a contract file. Whatever the text is, the numbers of a [`System`] that came of it are within limits
    /// (times up to a day, samples up to 1 GiB, …), its references hold, and every subscriber can be reached.
    ///
    /// # Errors
    /// [`ContractError`] with line, key, value and what is allowed.
    pub fn read(text: &str) -> Result<Self, ContractError> {
        read::read(text)
    }
}

/// 64-bit FNV-1a.
fn hash(text: &str) -> u64 {
    let step = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A whole contract.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct System {
    /// Its name.
    pub name: String,
    /// Hosts, routers and switches, in the order of the file.
    pub nodes: Vec<Node>,
    /// What joins them.
    pub links: Vec<Link>,
    /// What is published.
    pub topics: Vec<Topic>,
    /// Who wants it.
    pub subscribers: Vec<Subscriber>,
    /// Where proxies may go, and what is saved.
    pub placement: Placement,
}

/// What a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Runs programs.
    #[default]
    Host,
    /// Forwards packets between networks.
    Router,
    /// Forwards frames within one.
    Switch,
}

/// A host, router or switch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its name, unique among nodes.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// Processors, at least 1.
    pub cpus: u32,
    /// The administration it belongs to.
    pub domain: Option<String>,
    /// It may host a proxy.
    pub proxy: bool,
    /// Samples per second that its proxies can take.
    pub proxy_capacity: Option<f64>,
}

/// Order of service at a link's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// First come, first served.
    #[default]
    Fifo,
    /// The highest class that waits goes next, each class in order of arrival; a packet on the wire is finished first.
    Strict,
    /// Each class has its share, and what others leave.
    Htb,
    /// Hierarchical fair service curves, one per class, with the class's share as its rate.
    Hfsc,
}

/// A full-duplex link; each direction has its own queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// Its name, unique among links.
    pub name: String,
    /// The two nodes it joins (indices).
    pub between: [usize; 2],
    /// Bit/s in each direction, above 0.
    pub rate: u64,
    /// Propagation, ns.
    pub delay: u64,
    /// Processing of a packet at the node that forwards it onto this link, ns; none at the node where it starts.
    pub forwarding: u64,
    /// Time one packet takes on the wire whatever its size, ns; else it is size ÷ rate.
    pub transmission: Option<u64>,
    /// Largest payload of one packet, bytes.
    pub mtu: u64,
    /// What each packet adds on the wire, bytes.
    pub overhead: u64,
    /// Order of service.
    pub scheduler: Scheduler,
    /// Share of each class in the order of [`Class::ALL`], 0…1 (`htb`, `hfsc`).
    pub shares: Option<[f64; 4]>,
    /// Best-effort traffic that nobody declares, bit/s.
    pub background: u64,
}

/// A stream of samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topic {
    /// Its name, unique among topics.
    pub name: String,
    /// Bytes of one sample.
    pub size: u64,
    /// Samples per second, above 0, as written.
    pub rate: f64,
    /// Shortest time between two samples, ns (rounded down).
    pub period: u64,
    /// How much later than its period a sample may be released, ns.
    pub jitter: u64,
    /// Samples that may come at once, at least 1.
    pub burst: u32,
    /// The nodes that publish it (indices), at least one.
    pub publishers: Vec<usize>,
    /// Execution time per sample at the publisher, ns.
    pub cpu_send: u64,
    /// Mean service time 1/μ of the queueing models, ns.
    pub service: u64,
    /// From the application to the middleware at the publisher, ns (T_appmid).
    pub hand_in: u64,
    /// From the middleware to the application at the subscriber, ns (T_midapp).
    pub hand_out: u64,
    /// Messages that a queue of the model `mm1k` holds.
    pub buffer: Option<u32>,
    /// Fixed by the user; else it is assigned.
    pub class: Option<Class>,
}

/// One who wants a topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subscriber {
    /// The topic (index).
    pub topic: usize,
    /// Where it runs (index).
    pub node: usize,
    /// Its port's name, unique; `/TOPIC@NODE` when none was given.
    pub name: String,
    /// Of every so many samples it wants one, at least 1.
    pub scale: u32,
    /// The picture size it wants.
    pub picture: Option<[u32; 2]>,
    /// Bytes of one sample after scaling.
    pub scaled_size: Option<u64>,
    /// The latest a sample may arrive, ns.
    pub deadline: Option<u64>,
    /// Execution time per sample at the subscriber, ns.
    pub cpu_receive: u64,
    /// Who gives way first when not all fits; higher stays.
    pub importance: i64,
}

/// How subscribers share proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proxies {
    /// One proxy for all subscribers of a topic, as in the paper.
    #[default]
    PerTopic,
    /// One for each subscriber.
    PerSubscriber,
    /// Equal requests share one.
    Merged,
}

/// What placement saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Messages per second over all links.
    #[default]
    Messages,
    /// Bit/s over all links.
    Bandwidth,
    /// Processors in use.
    Cpu,
    /// Mbit/s + `cpu_weight` · processors.
    Weighted,
}

impl Objective {
    /// A value of it with its unit, and what that is.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Messages => format!("{value:.1} messages/s over all links"),
            Self::Bandwidth => format!("{} over all links, without headers", show_bit_rate(value)),
            Self::Cpu => format!("{value:.3} processors in use"),
            Self::Weighted => format!("{value:.3} = Mbit/s + cpu_weight · processors"),
        }
    }
}

/// How copies travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Each subscriber gets a copy of its own.
    #[default]
    Unicast,
    /// A link carries each stream once.
    Multicast,
}

/// Which delay placement must keep within the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementDelay {
    /// One period per transmitting node (P-20, P-21).
    #[default]
    Paper,
    /// The analysis' own bound.
    Bound,
}

/// Where proxies go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// How subscribers share them.
    pub proxies: Proxies,
    /// What is saved.
    pub objective: Objective,
    /// Mbit/s that one processor is worth (`weighted`).
    pub cpu_weight: f64,
    /// How copies travel.
    pub transport: Transport,
    /// Which delay counts.
    pub delay: PlacementDelay,
    /// Execution time per sample at a proxy, ns.
    pub cpu_proxy: u64,
}

#[cfg(test)]
mod tests;
