//! The receiving side of a port: its state, and the threads that serve it.

mod deliver;
mod mailbox;
mod publishers;
mod waiting;

pub use publishers::PublisherInfo;
pub(crate) use waiting::Rejection;

use super::monitor::slot::MonitorSlot;
use super::{Histories, Judge, PolicyCounts, Sample, judge_of_subscriber, kept_at_subscriber};
use crate::channel::inbound::Inbound;
use crate::channel::memory::Memory;
use crate::channel::{Channel, ChannelReport, Deliver, End, InstanceReport, SampleInfo};
use crate::codec::{Message, WHOLE_TOPIC};
use crate::control::PortInfo;
use crate::event::{Event, Events};
use linux::lock::PiMutex;
use mailbox::{Mailbox, RoomWaiters};
use publishers::Publishers;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use waiting::{Rejected, Waiting};

type Callback<M> = Box<dyn FnMut(Sample<'_, M>) + Send>;

/// The destination of a subscriber's samples.
pub(crate) enum Sink<M: Message> {
    /// Calls the user's callback on the receiving thread.
    Callback(PiMutex<Callback<M>>),
    /// Keeps them until they are taken.
    Mailbox,
}

impl<M: Message> Sink<M> {
    /// Calls this.
    pub(crate) fn callback(callback: impl FnMut(Sample<'_, M>) + Send + 'static) -> Self {
        Sink::Callback(PiMutex::new(Box::new(callback)))
    }
}

/// The shared state of a subscriber.
pub(crate) struct SubscriberPort<M: Message> {
    pub info: PortInfo,
    pub sink: Sink<M>,
    /// `local` callbacks may run on the publisher's thread.
    pub on_publisher: bool,
    /// No thread serves the port: its owner's `wait` receives.
    pub polled: bool,
    pub events: Events,
    mailbox: PiMutex<Mailbox>,
    /// The waiting place of threads that find it full.
    room_waiters: RoomWaiters,
    /// Waiting samples are counted by instance.
    by_instance: bool,
    /// Counts of samples that found no room.
    rejected: Rejected,
    /// The number of samples in the mailbox: a thread that finds none takes no lock, and so does not delay publishers.
    stored: AtomicUsize,
    news: AtomicU32,
    sleepers: AtomicU32,
    closed: AtomicBool,
    /// The id of the thread that calls the callback with samples of `local` channels from the mailbox; 0: there is none.
    server: AtomicI32,
    undecodable: AtomicU64,
    /// The number of the sample in the callback; 0: none is.
    in_callback: AtomicU64,
    pub dropped: AtomicU64,
    channels: Mutex<Vec<Arc<Channel>>>,
    /// The publishers of the samples.
    publishers: Publishers,
    /// Polled ports: receive halves that wait for their owner.
    halves: PiMutex<Vec<Inbound>>,
    /// Looks at what comes in.
    monitor: MonitorSlot,
    /// Judges incoming samples by the port's policies, if these look at samples.
    judge: Option<Arc<Judge>>,
    /// Keeps the arriving samples, for queries.
    histories: Option<Arc<Histories>>,
}

impl<M: Message> SubscriberPort<M> {
    pub(crate) fn new(
        info: PortInfo,
        sink: Sink<M>,
        on_publisher: bool,
        polled: bool,
        events: Events,
        memory: &Memory,
    ) -> Self {
        // Before a callback only samples of this process wait: a bridge has a callback for each topic that leaves.
        let waiting = Waiting::new(&info.qos, matches!(sink, Sink::Mailbox));
        let judge = judge_of_subscriber(&info.name, &info.qos);
        let histories = kept_at_subscriber(&info).map(|limits| Arc::new(Histories::new(limits, memory.histories())));
        Self {
            // Samples that are kept or judged have to be encoded.
            on_publisher: on_publisher && histories.is_none() && judge.is_none(),
            histories,
            info,
            sink,
            polled,
            events,
            by_instance: waiting.tells_apart(),
            rejected: Rejected::new(waiting.limits(), waiting.most_bytes(), memory.node().limit()),
            mailbox: PiMutex::new(Mailbox::new(waiting)),
            room_waiters: RoomWaiters::default(),
            publishers: Publishers::default(),
            stored: AtomicUsize::new(0),
            news: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            server: AtomicI32::new(0),
            undecodable: AtomicU64::new(0),
            in_callback: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            channels: Mutex::new(Vec::new()),
            halves: PiMutex::new(Vec::new()),
            monitor: MonitorSlot::default(),
            judge,
        }
    }

    /// The number of a sample's instance, where the port has a judge.
    fn instance(&self, info: &SampleInfo, bytes: &[u8]) -> u64 {
        self.judge.as_ref().map_or(WHOLE_TOPIC, |judge| judge.instance(info, bytes))
    }

    #[cold]
    pub(crate) fn cannot_decode(&self, problem: &str) {
        if self.undecodable.fetch_add(1, Ordering::Relaxed) == 0 {
            let subscriber = self.info.name.clone();
            self.events.push(Event::Undecodable { subscriber, problem: problem.to_owned() });
        }
    }

    /// Receive halves that came since the last call.
    pub(crate) fn new_halves(&self, into: &mut Vec<Inbound>) {
        if let Some(mut halves) = self.halves.try_lock()
            && !halves.is_empty()
        {
            into.append(&mut halves);
        }
    }

    /// Drops halves that were not fetched when the subscriber port closes: they hold a reference to it.
    fn drop_halves(&self) {
        let halves = std::mem::take(&mut *self.halves.lock());
        drop(halves);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The work of the thread that calls callbacks from the mailbox, for samples of `local` channels that may not run on the
    /// publisher's thread.
    pub(crate) fn run_callbacks(&self, stop: impl Fn() -> bool) {
        while !stop() && !self.is_closed() {
            match self.pop_measured() {
                Some((info, storage, waited)) => {
                    self.call(&info, storage.bytes());
                    waited.into_iter().for_each(|waited| waited.called(info.stamp(), storage.bytes().len()));
                }
                None => self.wait_for_news(crate::carrier::TICK),
            }
        }
    }

    fn waiting_bytes(&self) -> usize {
        self.mailbox.lock().waiting.bytes()
    }

    /// Counters of its policies.
    fn policy_counts(&self) -> PolicyCounts {
        let judged = self.judge.as_ref().map(|judge| judge.counts()).unwrap_or_default();
        PolicyCounts { rejected: judged.rejected + self.rejected.total(), ..judged }
    }
}

/// A subscriber port whose message type is not known to the driver.
pub(crate) trait AnySubscriber: Deliver {
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
    /// For a `local` channel that opens: the typed subscriber port, to be downcast by the publisher. What will wait there has memory from now on, so
    /// that the publisher makes none.
    fn typed(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    /// Serves mailbox-fed callbacks until `stop`; returns at once where none are needed.
    fn serve(&self, stop: &dyn Fn() -> bool);
    /// `true` if `local` channels need a thread that calls [`AnySubscriber::serve`].
    fn needs_server(&self) -> bool;
    /// The thread that calls [`AnySubscriber::serve`], if one does.
    fn server(&self) -> Option<i32>;
    /// Sets the thread that calls [`AnySubscriber::serve`] from now on; 0: none does.
    fn set_server(&self, tid: i32);
    fn reports(&self) -> Vec<ChannelReport>;
    /// The slot of a monitor of the input.
    fn monitor(&self) -> &MonitorSlot;
    /// The judge by the port's policies.
    fn judge(&self) -> Option<&Arc<Judge>>;
    /// The histories that it keeps, if any.
    fn histories(&self) -> Option<&Arc<Histories>>;
    /// Waits at most a tick for a sample that its monitor holds back, and delivers those that are due.
    fn release(&self);
    /// `true` if the thread that waits on it receives, and no reader thread.
    fn is_polled(&self) -> bool;
    /// Takes the receive half at a polled port; other ports give it back, for a reader thread.
    fn adopt(&self, inbound: Inbound) -> Option<Inbound>;
}

impl<M: Message> AnySubscriber for SubscriberPort<M> {
    fn expect_history(&self, samples: usize) {
        SubscriberPort::expect_history(self, samples);
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
        self.room_waiters.open();
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
        if self.needs_server() {
            self.mailbox.lock().waiting.prepare();
        }
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
    fn monitor(&self) -> &MonitorSlot {
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
    fn is_polled(&self) -> bool {
        self.polled
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
