//! Administration: requests between nodes over the control plane.

pub mod answer;
pub mod explain;
pub(crate) mod grammar;
pub(crate) mod priority;
pub mod set;

use crate::carrier;
use crate::channel::ChannelReport;
pub use crate::channel::memory::{DocumentMemory, HistoryMemory, MemoryReport, PeerMemory};
use crate::channel::proxy::{Proxied, Proxy, ProxyChanges};
pub use crate::control::Peer;
use crate::error::{Error, Result};
use crate::trace::stages::{Asked, LateAfter, LatenessReport, StagesReport};
use qos::Class;
use qos::priority::{Changes, Dscp, PrioritySettings, Scheduling};
use serde::{Deserialize, Serialize};

/// A request to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum Request {
    /// The node's channels with their counters.
    Channels,
    /// To the subscriber's node: connect two ports by name, whatever their topics, and keep them connected (Y-08).
    Connect {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// The carrier; `None`: as `auto` picks.
        carrier: Option<carrier::Name>,
    },
    /// To the subscriber's node: disconnect two ports by name, and keep them apart until they are connected again.
    Disconnect {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
    },
    /// To the nodes of both ports, if they exist, and to one of this host: connect the two whenever both exist, now
    /// and after restarts, until they are disconnected (YS-33).
    Keep {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// The carrier; `None`: as `auto` picks.
        carrier: Option<carrier::Name>,
        /// The priority of both ends, from the first sample on; default: none.
        #[serde(default)]
        priority: PrioritySettings,
    },
    /// To the node that has `port`: change the priority of its end of the channel with `other` (Y-02, Y-14).
    Set {
        /// A port of the node.
        port: String,
        /// The port at the channel's other end; `port` itself: the process, whose threads all get the scheduling.
        other: String,
        /// The changes. All of them are made or, with a reason, none.
        changes: Changes,
    },
    /// To the nodes of both ports, if they exist, and again to one that starts later: the settings that were made at
    /// the end of `port` of its channel with `other`. The node of `port` applies them from then on, unless it has
    /// settings already; the node of `other` keeps them in case the node of `port` restarts (YS-53).
    Remember {
        /// The port whose end it is.
        port: String,
        /// The port at the channel's other end.
        other: String,
        /// The settings; all default: they were taken back.
        settings: PrioritySettings,
    },
    /// To the node that has `port`: the priority of its end of the channel with `other`, as the kernel has it now.
    Get {
        /// A port of the node.
        port: String,
        /// The port at the channel's other end; `port` itself: the process; `None`: all channels of the port.
        other: Option<String>,
    },
    /// To the subscriber's node: scale a channel (P-08). An open channel's proxy moves while samples flow.
    Scale {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// Changes of scaling and place. The default is the subscriber's QoS.
        changes: ProxyChanges,
    },
    /// To any node: measure the latency by stage of one in N samples of its channels of a topic; 0: stop. Answered by [`Reply::Stages`]. The measurement ends by itself without a [`Request::Stages`] within
    /// [`LEASE`](crate::trace::stages::LEASE).
    Measure {
        /// The topic.
        topic: String,
        /// The sampling interval, in samples.
        every: u32,
    },
    /// To any node: the measurements so far of its channels of a topic.
    Stages {
        /// The topic.
        topic: String,
    },
    /// To any node: the lateness of its channels' samples since this was last asked, and the limits from now on. Measures each
    /// of these channels as [`Request::Measure`] does. Answered by [`Reply::Lateness`].
    Lateness {
        /// The channels, and the limits beyond which their samples are late.
        channels: Vec<LateAfter>,
        /// The asker. An answer that did not arrive is part of the next one.
        #[serde(default)]
        asked: Asked,
    },
    /// To the nodes of both ports: the verdict on their channel's promise has changed. Reported as
    /// [`Event::PromiseChanged`](crate::Event::PromiseChanged).
    Verdict {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// `kept`, `at risk`, `broken` or `unknown`.
        verdict: String,
        /// The reason.
        because: String,
    },
    /// To any node: the reading of its monotonic clock ([`Reply::Clock`]).
    Clock,
    /// To any node: the memory that its channels hold ([`Reply::Memory`]).
    Memory,
    /// To a subscriber's node: a publisher is alive, even if it publishes nothing now.
    Alive {
        /// Publisher's port name.
        publisher: String,
    },
    /// To the node of either port: its knowledge of the two.
    Explain {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
    },
    /// To the node that has `port`: an administrator's line in YARP's words (Y-20).
    Command {
        /// A port of the node.
        port: String,
        /// The line.
        text: String,
    },
}

/// The priority of one end of a channel: the settings requested, the kernel's state now, and whether it has an effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndReport {
    /// Publisher's port name.
    pub publisher: String,
    /// Subscriber's port name.
    pub subscriber: String,
    /// The reporting end: `publisher`, `subscriber`, or `process` for the process of a port.
    pub end: String,
    /// The carrier; empty while the two are not connected.
    pub carrier: carrier::Name,
    /// Settings requested for this end, the port's own included.
    pub asked: PrioritySettings,
    /// The thread that serves this end; `None`: none does now (samples leave on the publishing thread).
    pub tid: Option<i32>,
    /// Its policy in the kernel: `other`, `fifo`, `rr`, `deadline`, …; empty without a thread.
    pub policy: String,
    /// Its real-time priority, 0 where it has none.
    pub priority: u32,
    /// Its reservation as the kernel has it, such as `deadline:1ms/10ms`.
    pub reservation: Option<Scheduling>,
    /// Its nice value.
    pub nice: i32,
    /// The processors it may run on.
    pub affinity: Vec<u16>,
    /// `true` if it serves this channel alone.
    pub own_thread: bool,
    /// TOS octet (IPv4) or traffic class (IPv6) of the packets that leave this end, read from the socket; `None`: the
    /// carrier has no packets.
    pub tos: Option<u8>,
    /// The code point in it.
    pub dscp: Option<Dscp>,
    /// The class that has this code point.
    pub class: Option<Class>,
    /// The socket's priority (SO_PRIORITY).
    pub socket_priority: Option<u32>,
    /// The socket's pace in bytes per second (SO_MAX_PACING_RATE); `None`: no limit, or no packets.
    pub pace: Option<u64>,
    /// The device by which the packets leave.
    pub device: Option<String>,
    /// The queue in which packets wait there, such as `band 1 of 3 of pfifo_fast`; empty if unknown.
    pub band: String,
    /// Microseconds that a packet waits there at most for one of a lower class: the time of the largest packet that
    /// the device is given at once. Packets of its own class and higher ones come on top. `None`: none is lower, or
    /// the device's rate is not known.
    pub blocking_us: Option<f64>,
    /// `true` if packets can wait on that device at all. Where none waits, none needs to be first.
    pub waits: bool,
    /// `true` if the marks have the effect that their class promises.
    pub effective: bool,
    /// The reason why they have it or not, with the remedy.
    pub because: String,
    /// A further note, such as `stored: applies when the two are connected`; empty: none.
    pub note: String,
    /// Scaling of the channel, and its place; `None`: it is not scaled.
    pub proxied: Option<Proxied>,
    /// The scaling and place that are asked for at the subscriber's end, by an administrator or else by its QoS; also before the two are
    /// connected. `None`: the publisher's end.
    pub proxy: Option<Proxy>,
    /// The part of the note about settings in `asked` that have nothing to act on at this end; empty: there are none.
    pub without_effect: String,
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// Done.
    Done,
    /// The node's channels.
    Channels(Vec<ChannelReport>),
    /// Ends of channels: of `Set` the one that was changed, of `Get` all that were asked for.
    Settings(Vec<EndReport>),
    /// The stages of ends of channels.
    Stages(Vec<StagesReport>),
    /// Lateness of samples, for each end that is here.
    Lateness(Vec<LatenessReport>),
    /// CLOCK_MONOTONIC of the node in nanoseconds, read once between question and answer.
    Clock(u64),
    /// Memory held by the node's channels.
    Memory(MemoryReport),
    /// The node's knowledge of two ports.
    Explanation(explain::Explanation),
    /// The answer to a command.
    Text {
        /// `true` if it was carried out.
        ok: bool,
        /// The answer, as a text.
        text: String,
    },
    /// It was not carried out; the reason.
    No(String),
    /// The kernel refused; the text names the remedy.
    Refused(String),
}

pub(crate) fn pack<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

pub(crate) fn unpack(bytes: &[u8]) -> Result<Reply> {
    match serde_json::from_slice(bytes) {
        Ok(Reply::No(why)) => Err(Error::Peer(why)),
        Ok(Reply::Refused(why)) => Err(Error::Refused(why)),
        Ok(reply) => Ok(reply),
        Err(problem) => Err(Error::Peer(format!("an answer that cannot be read: {problem}"))),
    }
}
