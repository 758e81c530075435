//! Channels: the layer between a port and a carrier. State machines take `now` and bytes; flows and their sender threads call
//! carriers.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

pub mod accept;
pub(crate) mod bucket;
pub(crate) mod buffer;
pub(crate) mod coalescing;
pub(crate) mod congestion;
mod counters;
pub(crate) mod failure_detector;
pub(crate) mod flow;
pub mod fragment;
pub(crate) mod history;
pub(crate) mod inbound;
pub(crate) mod late;
pub mod memory;
pub(crate) mod outgoing;
pub(crate) mod parity;
mod policer;
pub mod proxy;
pub(crate) mod queue;
pub(crate) mod reliable;
mod retransmitter;
pub(crate) mod right;
pub(crate) mod ring;
mod sample;
mod sender;

pub(crate) use crate::trace::stages::End;
pub(crate) use counters::Counters;
pub use counters::{ChannelReport, Outcome};
pub(crate) use late::Latecomer;
pub use sample::{Change, InstanceReport, InstanceState, SampleInfo};
pub(crate) use sample::{Deliver, Delivery, Payload};
pub(crate) use sender::{FlowNews, Own, Senders};

use crate::carrier::{self, Interrupt, SharedSocket};
use crate::codec::PolicyFields;
use crate::control::{NodeId, Peer, PortId, PortInfo};
use crate::trace::stages::{Asked, LatenessReport, Measured, Stages, StagesReport};
use flow::Flow;
use linux::lock::PiMutex;
use memory::Account;
use policer::Policer;
use proxy::{Gate, Provenance, Proxied, Selection};
use qos::{Qos, ResourceLimit};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

/// One port of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRef {
    /// The node.
    pub node: NodeId,
    /// The port within it.
    pub port: PortId,
}

/// One channel as either end sees it: its ports, carrier and counters. Shared by the threads that serve it.
#[derive(Debug)]
pub struct Channel {
    /// Number of the channel within its process.
    pub id: u64,
    /// The time at which this end made it.
    pub(crate) begun: Instant,
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
    pub carrier: carrier::Name,
    /// Incarnation of the publisher's node.
    pub incarnation: u64,
    /// Largest message that both ends take, in bytes: larger ones are refused on this channel alone.
    pub max_message: u32,
    /// `true` if both ends read the same clock: one-way latencies are exact.
    pub same_clock: bool,
    /// Scaling of the channel, and its place; `None`: it is not scaled.
    pub proxied: Option<Proxied>,
    /// The channel that gives way to this one, between two samples: within a process when its proxy changes, elsewhere when its subscriber was
    /// cut off and comes back.
    pub(crate) replaces: Option<u64>,
    /// The selection of samples that pass this end.
    pub(crate) selection: Selection,
    /// Set while its proxy moves.
    pub(crate) gate: Gate,
    /// The samples that are sent on it, by their content and distance in time; `None`: all.
    pub(crate) sends: Option<SentSelection>,
    /// At the publisher: refuses samples beyond the contract.
    pub(crate) policer: Policer,
    /// At the subscriber of a reopened channel: the last sample of the channel before. Samples between it and the first live one
    /// are lost unless a history brings them.
    pub(crate) resumes_after: Option<u64>,
    /// The number of the publisher's last sample when the channel joined it: later ones are sent on it. Empty until this end knows.
    pub(crate) joined_after: Arc<OnceLock<u64>>,
    /// The account of the peer at the other end: samples that wait here for it or from it are charged to it.
    pub(crate) account: Arc<Account>,
    /// Its counters.
    pub counters: Counters,
    pub(crate) closed: AtomicBool,
    pub(crate) cut: AtomicBool,
    /// The reason why this end ends it, behind the samples that have arrived.
    pub(crate) ends_because: OnceLock<String>,
    /// At the publisher: its subscriber lost the connection, and published samples wait for it.
    pub(crate) cut_off: AtomicBool,
    pub(crate) interrupt: OnceInterrupt,
    /// The sockets by which packets of the channel leave this end, the data's first.
    pub(crate) sockets: OnceLock<Vec<SharedSocket>>,
    /// The flow that sends it, at a publisher that has one.
    pub(crate) flow: OnceLock<Weak<Flow>>,
    /// Latency by stage, while it is measured. The channel's flow notes there, too.
    pub(crate) stages: Arc<Stages>,
    /// Its subscriber's number in the flow of a group.
    pub(crate) member: OnceLock<u64>,
    /// At the publisher: the token by which a later request takes this channel's place.
    pub(crate) token: OnceLock<u64>,
    /// At the publisher: the host and node of its subscriber, if that node is not known to this host.
    pub(crate) elsewhere: OnceLock<(Peer, NodeId)>,
}

/// Wakes the thread that serves a channel, once there is one.
#[derive(Default)]
pub(crate) struct OnceInterrupt(OnceLock<Interrupt>);

impl std::fmt::Debug for OnceInterrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "waits without end" } else { "has a tick" })
    }
}

impl Channel {
    /// A channel with this number and start, between two ports as they describe themselves. `account` is the account of the peer
    /// at the other end.
    pub(crate) fn new(
        (id, begun): (u64, Instant),
        (publisher, offered): (PortRef, &PortInfo),
        (subscriber, asked): (PortRef, &PortInfo),
        carrier: carrier::Name,
        account: Arc<Account>,
    ) -> Self {
        Self {
            id,
            begun,
            publisher,
            subscriber,
            publisher_name: offered.name.clone(),
            subscriber_name: asked.name.clone(),
            topic: offered.topic.clone(),
            carrier,
            incarnation: 0,
            max_message: offered.qos.max_message.min(asked.qos.max_message),
            same_clock: false,
            proxied: None,
            replaces: None,
            selection: Default::default(),
            sends: None,
            policer: Default::default(),
            resumes_after: None,
            joined_after: Default::default(),
            account,
            gate: Default::default(),
            counters: Default::default(),
            closed: Default::default(),
            interrupt: Default::default(),
            cut: Default::default(),
            ends_because: Default::default(),
            cut_off: Default::default(),
            sockets: Default::default(),
            flow: Default::default(),
            stages: Default::default(),
            member: Default::default(),
            token: Default::default(),
            elsewhere: Default::default(),
        }
    }

    /// The same channel with a proxy; `here` is the part of the selection for this end.
    pub(crate) fn scaled(mut self, here: Selection, proxied: Option<Proxied>) -> Self {
        (self.selection, self.proxied) = (here, proxied);
        self
    }
    /// The scaling of its samples on the way.
    pub(crate) fn provenance(&self) -> Option<Provenance> {
        self.proxied.as_ref().map(|proxied| proxied.provenance)
    }

    /// Ends the channel at the subscriber at once: samples still on their way are not delivered. Its thread finds it cut, at
    /// once if it waits without end, otherwise at its next tick.
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

    /// Ends the channel; samples still on their way are delivered. A thread that waits without end is interrupted only where
    /// that loses no sample: a publisher ends its stream behind the last one.
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

    /// The flow that sends it, at a publisher that has one, while the flow lives.
    pub(crate) fn sent_by(&self) -> Option<Arc<Flow>> {
        self.flow.get().and_then(Weak::upgrade)
    }

    /// `true` if a message that is published at `now` is sent on the channel. The end of an instance always is. The publishing
    /// thread calls this once for each sample.
    #[inline]
    pub(crate) fn takes(&self, bytes: &[u8], now: u64, change: Change) -> bool {
        self.sends.as_ref().is_none_or(|selection| change != Change::Written || selection.takes(bytes, now))
    }

    /// Counts a message that is larger than the subscriber takes.
    #[cold]
    pub(crate) fn refuse_size(&self) -> Outcome {
        self.counters.too_large.fetch_add(1, Relaxed);
        Outcome::Refused { limit: ResourceLimit::MaxMessage }
    }

    /// `true` if a message of so many bytes that is published now may not be sent by the contract. The end of an instance always may.
    #[inline]
    pub(crate) fn exceeds(&self, change: Change, now_ns: u64, bytes: usize) -> bool {
        self.policer.is_set() && change == Change::Written && !self.policer.passes(now_ns, bytes)
    }

    /// Counts a message beyond the contract.
    #[cold]
    pub(crate) fn refuse_excess(&self) -> Outcome {
        self.counters.policed.fetch_add(1, Relaxed);
        Outcome::Refused { limit: ResourceLimit::Policing }
    }

    /// Latency of its samples by stage, if it is measured.
    pub(crate) fn stages_report(&self, end: End) -> Option<StagesReport> {
        let Measured { every, missed, stages } = self.stages.figures(linux::clock::monotonic_ns())?;
        Some(StagesReport {
            topic: self.topic.clone(),
            publisher: self.publisher_name.clone(),
            subscriber: self.subscriber_name.clone(),
            carrier: self.carrier.clone(),
            end,
            every,
            missed,
            stages_us: stages.into_iter().map(|(stage, figures)| (stage.name().to_owned(), figures)).collect(),
        })
    }

    /// Lateness of its samples since this was last asked.
    pub(crate) fn lateness_report(&self, end: End, after_ns: i64, asked: Asked) -> LatenessReport {
        let since = self.stages.take_lateness(linux::clock::monotonic_ns(), after_ns, asked);
        let total = self.stages.total();
        LatenessReport { total, ..since.report(&self.publisher_name, &self.subscriber_name, end) }
    }

    /// The report of this end. `waiting`: samples that wait; `bytes`: their bytes, and the most that may wait.
    pub(crate) fn report(&self, end: End, waiting: usize, bytes: (usize, u64)) -> ChannelReport {
        let flow = self.flow.get().and_then(Weak::upgrade);
        let (retransmitted, malformed) = flow.map(|flow| flow.retransmitted()).unwrap_or_default();
        ChannelReport {
            topic: self.topic.clone(),
            publisher: self.publisher_name.clone(),
            subscriber: self.subscriber_name.clone(),
            carrier: self.carrier.clone(),
            end,
            samples: self.counters.samples.load(Relaxed),
            bytes: self.counters.bytes.load(Relaxed),
            lost: self.counters.not_delivered(),
            waiting: waiting as u64,
            malformed: self.counters.malformed.load(Relaxed) + malformed,
            too_large: self.counters.too_large.load(Relaxed),
            policed: self.counters.policed.load(Relaxed),
            waiting_bytes: bytes.0 as u64,
            most_bytes: bytes.1,
            over_bytes: self.counters.over_bytes.load(Relaxed),
            over_memory: self.counters.over_memory.load(Relaxed),
            repaired: self.counters.repaired.load(Relaxed) + retransmitted.repaired,
            skipped: self.counters.skipped.load(Relaxed) + retransmitted.skipped,
            acknowledgements: self.counters.acknowledgements.load(Relaxed) + retransmitted.acknowledgements,
            unscalable: self.counters.unscalable.load(Relaxed),
            proxied: self.proxied.clone(),
            over: None,
        }
    }
}

/// The samples that one channel sends: the subscriber's content filter and separation are evaluated here, so that unwanted samples
/// do not travel (U-31). Only the publishing thread asks, so that its lock costs two atomic operations.
pub(crate) struct SentSelection {
    policy_fields: PolicyFields,
    separation: u64,
    last: PiMutex<HashMap<u64, u64>>,
}

impl fmt::Debug for SentSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "separation {} ns, {:?}", self.separation, self.policy_fields)
    }
}

impl SentSelection {
    /// The selection that a subscriber asks for; `None`: all samples. `policy_fields`: its filter and the key, found in the
    /// publisher's type.
    pub(crate) fn of(requested: &Qos, policy_fields: PolicyFields) -> Option<Self> {
        let separation = requested.separation.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
        let selects = separation > 0 || requested.filter.is_some();
        selects.then(|| Self { policy_fields, separation, last: PiMutex::default() })
    }

    /// `true` if a message that is published at `now` is sent.
    pub(crate) fn takes(&self, bytes: &[u8], now: u64) -> bool {
        if !self.policy_fields.holds(bytes) {
            return false;
        }
        if self.separation == 0 {
            return true;
        }
        let Some(instance) = self.policy_fields.instance(bytes) else { return false };
        let mut last = self.last.lock();
        let instance = if last.len() < MOST_INSTANCES || last.contains_key(&instance) { instance } else { u64::MAX };
        let takes = last.get(&instance).is_none_or(|last| now.saturating_sub(*last) >= self.separation);
        if takes {
            last.insert(instance, now);
        }
        takes
    }
}

/// The most instances that are told apart; further ones share one state.
const MOST_INSTANCES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{TypeDescription, to_cdr};
    use qos::Filter;
    use std::time::Duration;

    #[test]
    fn samples_are_sent_as_far_apart_as_asked_to_the_nanosecond_per_instance() {
        let schema = TypeDescription::of::<Pair>().schema;
        let requested = Qos { separation: Some(Duration::from_nanos(20)), ..Qos::default() };
        let policy_fields = PolicyFields::find(schema.as_deref(), &["id".to_owned()], None).unwrap();
        let selection = SentSelection::of(&requested, policy_fields).unwrap();
        let sent = |id, now| selection.takes(&to_cdr(&Pair { id, x: 0 }).unwrap(), now);
        let first: Vec<bool> = [100, 119, 120, 139, 140, 161, 180].map(|now| sent(1, now)).into();
        assert_eq!(first, [true, false, true, false, true, true, false]);
        assert!(sent(2, 162) && !sent(2, 181) && sent(2, 182));
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Pair {
        id: u8,
        x: i32,
    }

    #[test]
    fn a_filtered_sample_does_not_start_the_separation() {
        let schema = TypeDescription::of::<Pair>().schema;
        let filter = Some(Filter { expression: "x > 3".into(), parameters: Vec::new() });
        let requested = Qos { separation: Some(Duration::from_nanos(20)), filter, ..Qos::default() };
        let policy_fields = PolicyFields::find(schema.as_deref(), &[], requested.filter.as_ref()).unwrap();
        let selection = SentSelection::of(&requested, policy_fields.clone()).unwrap();
        let sent = |x, now| selection.takes(&to_cdr(&Pair { id: 0, x }).unwrap(), now);
        assert!(!sent(3, 100) && sent(4, 101) && !sent(4, 102) && !sent(0, 200) && sent(4, 201));
        assert!(SentSelection::of(&Qos::default(), policy_fields).is_none());
    }
}
