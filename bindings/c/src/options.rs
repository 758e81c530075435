//! Settings of nodes and ports, as C states them.

use crate::arguments::{SizeFirst, duration, list, optional_text, options};
use crate::failure::{Failure, Result};
use crate::sample::thalweg_sample;
use std::ffi::{c_char, c_void};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use thalweg::qos::priority::{Changes, Mark, Policy, PrioritySettings, Scheduling};
use thalweg::qos::{Class, Durability, Qos, Queue, Reliability};
use thalweg::{DiscoverySource, Network, Settings, carrier};

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

use thalweg_class::*;
use thalweg_durability::*;
use thalweg_queue::*;
use thalweg_reliability::*;
use thalweg_sched::*;

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

/// Settings of a port in either direction.
pub(crate) struct PortSettings {
    pub name: Option<String>,
    pub qos: Qos,
    pub priority: PrioritySettings,
    pub carriers: Option<Vec<carrier::Name>>,
    pub session: Option<String>,
}

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

/// The settings of a publisher.
///
/// # Safety
/// Pointers in the options are null or valid.
pub(crate) unsafe fn publisher_settings(given: &thalweg_publisher_options) -> Result<PortSettings> {
    // SAFETY: the caller's promise.
    let mut port = unsafe { port_settings(given)? };
    // SAFETY: the caller's promise.
    let class = unsafe { options(given.qos, "qos")? }.priority_class;
    if let Some(class) = class_of(class)? {
        port.qos.class = class;
    }
    // SAFETY: the caller's promise.
    let settings = unsafe { optional_text(given.settings, "options.settings")? };
    apply(&mut port, settings.unwrap_or_default(), |_| true)?;
    Ok(port)
}

/// The settings of a subscriber.
///
/// # Safety
/// Pointers in the options are null or valid.
pub(crate) unsafe fn subscriber_settings(given: &thalweg_subscriber_options) -> Result<PortSettings> {
    let thalweg_subscriber_options { size, name, qos, settings, carriers, session, .. } = *given;
    // SAFETY: the caller's promise.
    let mut port =
        unsafe { port_settings(&thalweg_publisher_options { size, name, qos, settings, carriers, session })? };
    // SAFETY: the caller's promise.
    let class = unsafe { options(given.qos, "qos")? }.priority_class;
    port.priority.mark = class_of(class)?.map(Mark::Class);
    // SAFETY: the caller's promise.
    let settings = unsafe { optional_text(given.settings, "options.settings")? };
    // The class of a subscriber is that of its acknowledgements, which is no policy.
    apply(&mut port, settings.unwrap_or_default(), |policy| policy != "class")?;
    Ok(port)
}

/// # Safety
/// Pointers in the options are null or valid.
unsafe fn port_settings(given: &thalweg_publisher_options) -> Result<PortSettings> {
    // SAFETY: the caller's promise.
    unsafe {
        let carriers = list(given.carriers, "options.carriers")?;
        let (qos, priority) = policies(&options(given.qos, "qos")?)?;
        Ok(PortSettings {
            name: optional_text(given.name, "options.name")?.map(str::to_owned),
            qos,
            priority,
            carriers: (!carriers.is_empty()).then(|| carriers.into_iter().map(carrier::Name::from).collect()),
            session: optional_text(given.session, "options.session")?.map(str::to_owned),
        })
    }
}

/// Policies and scheduling, but for the class.
fn policies(given: &thalweg_qos) -> Result<(Qos, PrioritySettings)> {
    let time = |ns: u64| (ns > 0).then(|| duration(ns));
    let mut qos = Qos {
        deadline: time(given.deadline_ns),
        latency_budget: time(given.latency_budget_ns),
        lifespan: time(given.lifespan_ns),
        separation: time(given.separation_ns),
        ..Qos::default()
    };
    match given.reliability {
        value if value == THALWEG_RELIABILITY_DEFAULT as u32 => {}
        value if value == THALWEG_RELIABLE as u32 => qos.reliability = Reliability::Reliable,
        value if value == THALWEG_BEST_EFFORT as u32 => qos.reliability = Reliability::BestEffort,
        other => return Err(unknown("reliability", other)),
    }
    match given.durability {
        value if value == THALWEG_DURABILITY_DEFAULT as u32 => {}
        value if value == THALWEG_VOLATILE as u32 => qos.durability = Durability::Volatile,
        value if value == THALWEG_TRANSIENT_LOCAL as u32 => qos.durability = Durability::TransientLocal,
        other => return Err(unknown("durability", other)),
    }
    if let Some(queue) = queue(given)? {
        qos.queue = queue;
    }
    if given.history > 0 {
        qos.history = given.history;
    }
    if given.max_message > 0 {
        qos.max_message = given.max_message;
    }
    Ok((qos, PrioritySettings { sched: scheduling(given)?, ..PrioritySettings::default() }))
}

fn queue(given: &thalweg_qos) -> Result<Option<Queue>> {
    let up_to_us = u64::try_from(Duration::from_nanos(given.block_ns).as_micros()).unwrap_or(u64::MAX);
    if given.queue != THALWEG_QUEUE_DEFAULT as u32 && given.depth == 0 {
        return Err(Failure::invalid("qos.depth is 0: with a queue of its own a port needs at least 1"));
    }
    match given.queue {
        value if value == THALWEG_QUEUE_DEFAULT as u32 => Ok(None),
        value if value == THALWEG_KEEP_LAST as u32 => Ok(Some(Queue::KeepLast(given.depth))),
        value if value == THALWEG_KEEP_ALL as u32 => Ok(Some(Queue::KeepAll(given.depth))),
        value if value == THALWEG_BLOCK as u32 => Ok(Some(Queue::Block { limit: given.depth, up_to_us })),
        other => Err(unknown("queue", other)),
    }
}

fn scheduling(given: &thalweg_qos) -> Result<Option<Scheduling>> {
    let priority = || {
        let priority = u8::try_from(given.sched_priority).ok().filter(|p| (1..=99).contains(p));
        priority
            .ok_or_else(|| Failure::invalid(format!("qos.sched_priority {}: 1 to 99 is allowed", given.sched_priority)))
    };
    match given.sched {
        value if value == THALWEG_SCHED_DEFAULT as u32 => Ok(None),
        value if value == THALWEG_SCHED_OTHER as u32 => Ok(Some(Scheduling::default())),
        value if value == THALWEG_SCHED_FIFO as u32 => Ok(Some(Policy::Fifo(priority()?).into())),
        value if value == THALWEG_SCHED_RR as u32 => Ok(Some(Policy::RoundRobin(priority()?).into())),
        other => Err(unknown("sched", other)),
    }
}

fn class_of(value: u32) -> Result<Option<Class>> {
    match value {
        value if value == THALWEG_CLASS_DEFAULT as u32 => Ok(None),
        value if value == THALWEG_CLASS_LOW as u32 => Ok(Some(Class::Low)),
        value if value == THALWEG_CLASS_NORMAL as u32 => Ok(Some(Class::Normal)),
        value if value == THALWEG_CLASS_HIGH as u32 => Ok(Some(Class::High)),
        value if value == THALWEG_CLASS_CRITICAL as u32 => Ok(Some(Class::Critical)),
        other => Err(unknown("priority_class", other)),
    }
}

/// The number of a class in C.
pub(crate) fn class_number(class: Class) -> u32 {
    (match class {
        Class::Low => THALWEG_CLASS_LOW,
        Class::Normal => THALWEG_CLASS_NORMAL,
        Class::High => THALWEG_CLASS_HIGH,
        Class::Critical => THALWEG_CLASS_CRITICAL,
    }) as u32
}

fn unknown(policy: &str, value: u32) -> Failure {
    Failure::invalid(format!("qos.{policy} is {value}, which this library does not have: see thalweg.h"))
}

/// Applies settings by name: a policy, if the port takes one of that name, else a priority.
fn apply(port: &mut PortSettings, settings: &str, takes: impl Fn(&str) -> bool) -> Result<()> {
    let mut changes = Changes::default();
    for word in words(settings)? {
        match word.split_once('=') {
            Some((name, value)) if Qos::names().any(|policy| policy == name && takes(policy)) => {
                let set = port.qos.set(name, value);
                set.map_err(|wrong| Failure::invalid(format!("settings: {name} {wrong}")))?;
            }
            _ => changes.add(&word).map_err(|wrong| Failure::invalid(format!("settings: {wrong}")))?,
        }
    }
    changes.apply(&mut port.priority);
    Ok(())
}

/// Words between spaces; in quotes there are none.
pub(crate) fn words(text: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            letter if letter.is_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
            letter => word.push(letter),
        }
    }
    if quoted {
        return Err(Failure::invalid(format!("settings: a quote is not closed in {text:?}")));
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    Ok(words)
}
