//! Ports: publishers and subscribers, and what they give and take.

pub(crate) mod coalescing;
mod histories;
mod inlet;
mod instance;
mod joins;
mod local;
pub mod monitor;
mod outlet;
mod policies;
mod policy;
mod publisher;
mod pulled;
mod round;
mod sample;
mod service;
mod subscriber;
mod wait_set;

pub(crate) use histories::{Histories, is_kept_by_instance, kept_at_publisher, kept_at_subscriber};
pub use inlet::PublisherInfo;
pub(crate) use inlet::{AnyInlet, Delivery, Inlet, Payload, Rejection, Sink};
pub use instance::{Change, InstanceReport, InstanceState};
pub(crate) use local::LOCAL;
pub(crate) use outlet::{AnyOutlet, Outlet, Way};
pub use policy::PolicyCounts;
pub(crate) use policy::{
    Judge, News, SentSelection, Sought, WHOLE_TOPIC, Writer, judge_of_publisher, judge_of_subscriber, topic_number,
};
pub use publisher::{Loan, Publisher, PublisherBuilder};
pub use pulled::{Origin, PullFrom, Pulled};
pub use sample::{Sample, SampleInfo, TakenSample};
pub use service::{Body, Client, Server};
pub use subscriber::{Mode, Subscriber, SubscriberBuilder};
pub use wait_set::{WaitSet, Waitable};

use crate::carrier::{Interrupt, SharedSocket};
use crate::channel::flow::Flow;
use crate::channel::memory::Account;
use crate::channel::proxy::{Gate, Provenance, Proxied, Selection};
use crate::control::{NodeId, Peer, PortId};
use crate::driver::Told;
use crate::stages::{Asked, LatenessReport, Measured, Stages, StagesReport};
use qos::ResourceLimit;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};

/// What `publish` did with a sample on one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Handed to the kernel, the ring or the subscriber.
    Sent,
    /// Waits in the channel's queue.
    Queued,
    /// Waits, and older ones were dropped for it (keep-last).
    DroppedOldest {
        /// So many: several, where it is larger than they were.
        dropped: u32,
        /// The limit that left no room beside them.
        limit: ResourceLimit,
    },
    /// Not taken: the queue is full, and its policy drops nothing or nothing more.
    Refused {
        /// The limit that left no room for it.
        limit: ResourceLimit,
    },
    /// Lost: the network said that the peer cannot be reached now (datagrams).
    Unreachable,
    /// Not taken: the channel is broken and not yet connected again.
    NotConnected,
}

/// What `publish` did on all channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The sample's sequence number, counted from 1.
    pub seq: u64,
    /// Channels on which it was sent.
    pub sent: u32,
    /// Channels on which it waits (also those that dropped an older one for it).
    pub queued: u32,
    /// Samples that channels dropped by their policy: older ones, or this one.
    pub dropped: u32,
    /// Channels that did not take it because their queue is full and drops nothing.
    pub refused: u32,
    /// Channels that are broken or unreachable now; that of a subscriber that was killed, until its end is seen.
    pub not_connected: u32,
    /// The limit by which a channel dropped or refused a sample (of several, the last).
    pub limit: Option<ResourceLimit>,
}

impl Published {
    #[inline]
    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Sent => self.sent += 1,
            Outcome::Queued => self.queued += 1,
            Outcome::DroppedOldest { dropped, limit } => {
                self.queued += 1;
                self.dropped += dropped;
                self.limit = Some(limit);
            }
            Outcome::Refused { limit } => {
                self.dropped += 1;
                self.refused += 1;
                self.limit = Some(limit);
            }
            Outcome::Unreachable | Outcome::NotConnected => self.not_connected += 1,
        }
    }

    /// How many channels the sample was offered to.
    pub fn channels(&self) -> u32 {
        self.sent + self.queued + self.refused + self.not_connected
    }
}

/// One port of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRef {
    /// The node.
    pub node: NodeId,
    /// The port within it.
    pub port: PortId,
}

/// One channel as either end sees it: who, how, and its counters. Shared by the threads that serve it.
#[derive(Debug)]
pub struct Channel {
    /// Number of the channel within its process.
    pub id: u64,
    /// The publishing port.
    pub publisher: PortRef,
    /// The subscribing port.
    pub subscriber: PortRef,
    /// The publisher's name.
    pub publisher_name: String,
    /// The subscriber's name.
    pub subscriber_name: String,
    /// The topic.
    pub topic: String,
    /// The carrier's name.
    pub carrier: String,
    /// Incarnation of the publisher's node.
    pub incarnation: u64,
    /// Largest message that both ends take, in bytes: larger ones are refused on this channel alone.
    pub max_message: u32,
    /// Both ends read the same clock: one-way latencies are exact.
    pub same_clock: bool,
    /// How and where it is scaled; `None`: it is not.
    pub proxied: Option<Proxied>,
    /// The channel that gives way to this one, between two samples: within a process when its proxy changes, elsewhere when its subscriber was
    /// cut off and comes back.
    pub(crate) replaces: Option<u64>,
    /// Which samples go on at this end.
    pub(crate) selection: Selection,
    /// Set while its proxy moves.
    pub(crate) gate: Gate,
    /// Which samples are sent on it by their content and distance in time; `None`: all.
    pub(crate) sends: Option<SentSelection>,
    /// At the subscriber, of a channel that comes again: the last sample of the one before. What lies between it and the first one
    /// that comes live, and does not come by a history, is lost.
    pub(crate) resumes_after: Option<u64>,
    /// Of who is at the other end: what waits here for it or of it is taken from there.
    pub(crate) account: Arc<Account>,
    /// What happened on it.
    pub counters: Counters,
    pub(crate) closed: AtomicBool,
    pub(crate) cut: AtomicBool,
    /// Why this end ends it behind what has arrived.
    pub(crate) ends_because: OnceLock<String>,
    /// At the publisher: its subscriber lost the connection, and what is published waits for it.
    pub(crate) cut_off: AtomicBool,
    pub(crate) interrupt: OnceInterrupt,
    /// The sockets by which packets of the channel leave this end, the data's first.
    pub(crate) sockets: OnceLock<Vec<SharedSocket>>,
    /// What sends it, at a publisher with a flow.
    pub(crate) flow: OnceLock<Weak<Flow>>,
    /// Where the time of its samples goes, while somebody wants to know. Its flow notes there, too.
    pub(crate) stages: Arc<Stages>,
    /// Its subscriber's number in the flow of a group.
    pub(crate) member: OnceLock<u64>,
    /// At the publisher: what a later request has to show to take this channel's place.
    pub(crate) token: OnceLock<u64>,
    /// At the publisher: the host and node of its subscriber, where that is none that this host knows.
    pub(crate) elsewhere: OnceLock<(Peer, NodeId)>,
}

/// What ends the waiting of the thread that serves a channel, once there is one.
#[derive(Default)]
pub(crate) struct OnceInterrupt(OnceLock<Interrupt>);

impl std::fmt::Debug for OnceInterrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "waits without end" } else { "has a tick" })
    }
}

impl Channel {
    /// The same channel with a proxy, of which `here` is what is left to do at this end.
    pub(crate) fn scaled(mut self, here: Selection, proxied: Option<Proxied>) -> Self {
        (self.selection, self.proxied) = (here, proxied);
        self
    }
    /// What was done to its samples.
    pub(crate) fn provenance(&self) -> Option<Provenance> {
        self.proxied.as_ref().map(|proxied| proxied.provenance)
    }

    /// Ends the channel at the subscriber at once: what is still on its way is not delivered. Its thread finds it cut, at
    /// once if it waits without end, else at its next tick.
    pub(crate) fn cut(&self) {
        self.cut.store(true, SeqCst);
        self.closed.store(true, SeqCst);
        if let Some(interrupt) = self.interrupt.0.get() {
            (interrupt.end)();
        }
    }
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Relaxed)
    }

    /// The channel is over; what is still on its way is delivered. A thread that waits without end is interrupted only
    /// where that loses nothing: a publisher ends its stream behind the last sample.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        if let Some(interrupt) = self.interrupt.0.get().filter(|interrupt| interrupt.loses_nothing) {
            (interrupt.end)();
        }
    }

    /// From now on the thread that serves the channel waits without end.
    pub(crate) fn waits_without_end(&self, interrupt: Interrupt) {
        let _ = self.interrupt.0.set(interrupt);
        if self.cut.load(SeqCst) {
            self.cut();
        } else if self.closed.load(SeqCst) {
            self.close();
        }
    }
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// The flow that sends it, at a publisher that has one and while it goes on.
    pub(crate) fn sent_by(&self) -> Option<Arc<Flow>> {
        self.flow.get().and_then(Weak::upgrade)
    }

    /// Whether a message that is published at `now` is sent on it: the end of an instance always. Asked once for each
    /// sample, by the publishing thread.
    #[inline]
    pub(crate) fn takes(&self, bytes: &[u8], now: u64, change: Change) -> bool {
        self.sends.as_ref().is_none_or(|selection| change != Change::Written || selection.takes(bytes, now))
    }

    /// A message is larger than the subscriber takes.
    #[cold]
    pub(crate) fn refuse_size(&self) -> Outcome {
        self.counters.too_large.fetch_add(1, Relaxed);
        Outcome::Refused { limit: ResourceLimit::MaxMessage }
    }
}

/// Counters of a channel at this end.
#[derive(Debug, Default)]
pub struct Counters {
    /// Samples sent or queued (publisher) or delivered (subscriber).
    pub samples: AtomicU64,
    /// Their payload bytes.
    pub bytes: AtomicU64,
    /// Samples lost on the way (subscriber) or dropped by the queue's policy (publisher).
    pub lost: AtomicU64,
    /// Samples that were published while the subscriber was cut off.
    pub missed: AtomicU64,
    /// Those of them that came by a history; [`u64::MAX`] while it is not over.
    pub made_up: AtomicU64,
    /// Sequence number of the last sample.
    pub last_seq: AtomicU64,
    /// Datagrams that were dropped because they were no frame of this flow (subscriber).
    pub strange: AtomicU64,
    /// Samples that were not taken because the subscriber takes no messages of that size (publisher).
    pub too_large: AtomicU64,
    /// Samples that were dropped or refused because those that wait have too many bytes (publisher).
    pub over_bytes: AtomicU64,
    /// The same, because the peer or the node holds too much (publisher).
    pub over_memory: AtomicU64,
    /// Messages that came by repetition (subscriber, reliable flows over datagrams; the publisher's flow counts its own).
    pub repaired: AtomicU64,
    /// Messages given up: nobody could repeat them, or not in time (the same).
    pub skipped: AtomicU64,
    /// Acknowledgements sent (the same).
    pub acknowledgements: AtomicU64,
    /// Samples that its proxy left out because they could not be made smaller (where the proxy is).
    pub unscalable: AtomicU64,
    /// What the subscriber's owner was told of the lost ones.
    pub(crate) told: Told,
}

impl Counters {
    /// Samples that did not go on this channel. One thread counts: loads and stores, no locked instruction.
    /// Lost on the way, dropped, or missed.
    pub(crate) fn not_delivered(&self) -> u64 {
        self.lost.load(Relaxed) + self.missed.load(Relaxed).saturating_sub(self.made_up.load(Relaxed))
    }

    #[cold]
    fn dropped(&self, outcome: Outcome) {
        let (count, limit) = match outcome {
            Outcome::DroppedOldest { dropped, limit } => (dropped, Some(limit)),
            Outcome::Refused { limit } => (1, Some(limit)),
            _ => (1, None),
        };
        let add = |counter: &AtomicU64| counter.store(counter.load(Relaxed) + u64::from(count), Relaxed);
        add(&self.lost);
        match limit {
            Some(ResourceLimit::Bytes) => add(&self.over_bytes),
            Some(ResourceLimit::PeerMemory | ResourceLimit::NodeMemory) => add(&self.over_memory),
            _ => {}
        }
    }
}

/// A channel's state as tools show it.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct ChannelReport {
    /// The topic.
    pub topic: String,
    /// Publisher's port name.
    pub publisher: String,
    /// Subscriber's port name.
    pub subscriber: String,
    /// The carrier.
    pub carrier: String,
    /// Which end reports: `publisher` or `subscriber`.
    pub end: String,
    /// Samples sent or delivered.
    pub samples: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Samples lost or dropped.
    pub lost: u64,
    /// Samples that wait at this end.
    pub waiting: u64,
    /// Datagrams dropped because they were no frame of this flow.
    #[serde(default)]
    pub strange: u64,
    /// Of the lost ones: larger than the subscriber's `max_message`.
    #[serde(default)]
    pub too_large: u64,
    /// What waits at this end, in bytes.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Bytes that may wait at this end.
    #[serde(default)]
    pub most_bytes: u64,
    /// Samples that were dropped, refused or rejected at this end because those that wait have too many bytes.
    #[serde(default)]
    pub over_bytes: u64,
    /// The same, because the peer or the node holds too much.
    #[serde(default)]
    pub over_memory: u64,
    /// Of reliable flows over datagrams: datagrams repeated (publisher), messages that came by repetition (subscriber).
    #[serde(default)]
    pub repaired: u64,
    /// The same: messages given up, because they were too old to be of use or their queue's policy dropped them.
    #[serde(default)]
    pub skipped: u64,
    /// The same: acknowledgements received (publisher) or sent (subscriber).
    #[serde(default)]
    pub acknowledgements: u64,
    /// Samples that its proxy left out because they could not be made smaller (at the end where the proxy is).
    #[serde(default)]
    pub unscalable: u64,
    /// How and where the channel is scaled; `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxied: Option<Proxied>,
    /// Of a relay's end: the port with which the relay takes these samples from their publisher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

impl Channel {
    /// Where the time of its samples went, if that is measured.
    pub(crate) fn stages_report(&self, end: &str) -> Option<StagesReport> {
        let Measured { every, missed, stages } = self.stages.figures(linux::clock::monotonic_ns())?;
        Some(StagesReport {
            topic: self.topic.clone(),
            publisher: self.publisher_name.clone(),
            subscriber: self.subscriber_name.clone(),
            carrier: self.carrier.clone(),
            end: end.to_owned(),
            every,
            missed,
            stages_us: stages.into_iter().map(|(stage, figures)| (stage.name().to_owned(), figures)).collect(),
        })
    }

    /// How late its samples were since this was asked last.
    pub(crate) fn lateness_report(&self, end: &str, after_ns: i64, asked: Asked) -> LatenessReport {
        self.stages.take_lateness(linux::clock::monotonic_ns(), after_ns, asked).report(
            &self.publisher_name,
            &self.subscriber_name,
            end,
        )
    }

    /// As this end reports it, where so many samples wait, and so many of at most so many bytes.
    pub(crate) fn report(&self, end: &str, waiting: usize, bytes: (usize, u64)) -> ChannelReport {
        let flow = self.flow.get().and_then(Weak::upgrade);
        let (repeated, strange) = flow.map(|flow| flow.repeated()).unwrap_or_default();
        ChannelReport {
            topic: self.topic.clone(),
            publisher: self.publisher_name.clone(),
            subscriber: self.subscriber_name.clone(),
            carrier: self.carrier.clone(),
            end: end.to_owned(),
            samples: self.counters.samples.load(Relaxed),
            bytes: self.counters.bytes.load(Relaxed),
            lost: self.counters.not_delivered(),
            waiting: waiting as u64,
            strange: self.counters.strange.load(Relaxed) + strange,
            too_large: self.counters.too_large.load(Relaxed),
            waiting_bytes: bytes.0 as u64,
            most_bytes: bytes.1,
            over_bytes: self.counters.over_bytes.load(Relaxed),
            over_memory: self.counters.over_memory.load(Relaxed),
            repaired: self.counters.repaired.load(Relaxed) + repeated.repaired,
            skipped: self.counters.skipped.load(Relaxed) + repeated.skipped,
            acknowledgements: self.counters.acknowledgements.load(Relaxed) + repeated.acknowledgements,
            unscalable: self.counters.unscalable.load(Relaxed),
            proxied: self.proxied.clone(),
            over: None,
        }
    }
}
