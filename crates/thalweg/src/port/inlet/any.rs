//! The driver's view of a subscriber: everything but its message type.

use super::publishers::Publishers;
use super::{Inlet, Rejected, Sink};
use crate::channel::inbound::Inbound;
use crate::channel::{Channel, ChannelReport, Deliver, End, InstanceReport};
use crate::codec::Message;
use crate::control::PortInfo;
use crate::port::monitor::seat::Seat;
use crate::port::{Histories, Judge, PolicyCounts};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// An inlet whose message type is not known to the driver.
pub(crate) trait AnyInlet: Deliver {
    /// Announces the number of a history's samples, so that there is room for all.
    fn expect_history(&self, samples: usize);
    /// Counts of samples that its limits rejected.
    fn rejected(&self) -> &Rejected;
    fn info(&self) -> &PortInfo;
    fn channels(&self) -> &Mutex<Vec<Arc<Channel>>>;
    /// The publishers of the samples.
    fn publishers(&self) -> &Publishers;
    /// Gives back buffers that were not needed lately, unless the mailbox is in use at this moment.
    fn trim(&self);
    /// Ends waits and callbacks.
    fn close(&self);
    fn waiting(&self) -> usize;
    fn dropped(&self) -> u64;
    /// The state, as tools ask for it.
    fn state(&self) -> SubscriberState;
    /// For `local` channels: the typed inlet, to be downcast by the publisher.
    fn typed(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    /// Serves mailbox-fed callbacks until `stop`; returns at once where none are needed.
    fn serve(&self, stop: &dyn Fn() -> bool);
    /// `true` if `local` channels need a thread that calls [`AnyInlet::serve`].
    fn needs_server(&self) -> bool;
    /// The thread that calls [`AnyInlet::serve`], if one does.
    fn server(&self) -> Option<i32>;
    /// Sets the thread that calls [`AnyInlet::serve`] from now on; 0: none does.
    fn set_server(&self, tid: i32);
    fn reports(&self) -> Vec<ChannelReport>;
    /// The seat of a monitor of the input.
    fn monitor(&self) -> &Seat;
    /// The judge by the port's policies.
    fn judge(&self) -> Option<&Arc<Judge>>;
    /// The histories that it keeps, if any.
    fn histories(&self) -> Option<&Arc<Histories>>;
    /// Waits at most a tick for a sample that its monitor holds back, and delivers those that are due.
    fn release(&self);
    /// Takes the receive half at a polled port; other ports give it back, for a reader thread.
    fn adopt(&self, inbound: Inbound) -> Option<Inbound>;
}

impl<M: Message> Inlet<M> {
    fn waiting_bytes(&self) -> usize {
        self.mailbox.lock().waiting.bytes()
    }

    /// Counters of its policies.
    fn policy_counts(&self) -> PolicyCounts {
        let judged = self.judge.as_ref().map(|judge| judge.counts()).unwrap_or_default();
        PolicyCounts { rejected: judged.rejected + self.rejected.total(), ..judged }
    }
}

impl<M: Message> AnyInlet for Inlet<M> {
    fn expect_history(&self, samples: usize) {
        Inlet::expect_history(self, samples);
    }
    fn rejected(&self) -> &Rejected {
        &self.rejected
    }
    fn info(&self) -> &PortInfo {
        &self.info
    }
    fn channels(&self) -> &Mutex<Vec<Arc<Channel>>> {
        &self.channels
    }
    fn publishers(&self) -> &Publishers {
        &self.publishers
    }
    fn trim(&self) {
        let given = self.mailbox.try_lock().map(|mut mailbox| mailbox.trim());
        drop(given); // when the mailbox is not held any more
    }
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.drop_halves();
        let waker = self.mailbox.lock().waker.take();
        self.announce(waker);
        self.door.open();
    }
    fn waiting(&self) -> usize {
        self.mailbox.lock().waiting.len()
    }
    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
    fn state(&self) -> SubscriberState {
        SubscriberState {
            waiting: self.waiting() as u64,
            dropped: self.dropped(),
            undecodable: self.undecodable.load(Ordering::Relaxed),
            in_callback: self.in_callback.load(Ordering::Relaxed),
            has_callback: !self.keeps(),
            policies: self.policy_counts(),
            late: self.judge.as_ref().map(|judge| judge.late_instances()).unwrap_or_default(),
        }
    }
    fn typed(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
    fn serve(&self, stop: &dyn Fn() -> bool) {
        if self.needs_server() {
            self.run_callbacks(stop);
        }
    }
    fn needs_server(&self) -> bool {
        matches!(self.sink, Sink::Callback(_)) && !self.on_publisher && !self.polled
    }
    fn server(&self) -> Option<i32> {
        Some(self.server.load(Ordering::Acquire)).filter(|tid| *tid != 0)
    }
    fn set_server(&self, tid: i32) {
        self.server.store(tid, Ordering::Release);
    }
    fn reports(&self) -> Vec<ChannelReport> {
        let channels = self.channels.lock().unwrap_or_else(|e| e.into_inner());
        let (waiting, most) = (self.waiting_bytes(), self.info.qos.queue_bytes());
        let (bytes, memory) = self.rejected.by_memory();
        let report = |c: &Arc<Channel>| {
            let report = c.report(End::Subscriber, self.waiting(), (waiting, most));
            ChannelReport { over_bytes: bytes, over_memory: memory, ..report }
        };
        channels.iter().map(report).collect()
    }
    fn monitor(&self) -> &Seat {
        &self.monitor
    }
    fn judge(&self) -> Option<&Arc<Judge>> {
        self.judge.as_ref()
    }
    fn histories(&self) -> Option<&Arc<Histories>> {
        self.histories.as_ref()
    }
    fn release(&self) {
        self.release_late();
    }
    fn adopt(&self, inbound: Inbound) -> Option<Inbound> {
        if !self.polled {
            return Some(inbound);
        }
        self.halves.lock().push(inbound);
        if self.is_closed() {
            self.drop_halves();
        }
        self.announce(None);
        None
    }
}

/// A subscriber at the moment of the question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscriberState {
    /// Samples that wait to be taken.
    pub waiting: u64,
    /// Samples that found its queue full.
    pub dropped: u64,
    /// Samples that were no value of its type.
    pub undecodable: u64,
    /// The number of the sample in its callback; 0: none is.
    pub in_callback: u64,
    /// `true` if it has a callback, which the receiving thread runs.
    pub has_callback: bool,
    /// Counters of its policies.
    pub policies: PolicyCounts,
    /// The instances of a keyed topic that missed most deadlines, the worst first.
    pub late: Vec<InstanceReport>,
}
