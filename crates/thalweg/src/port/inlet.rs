//! The receiving side of a port: its state, and the threads that serve it.

mod any;
mod deliver;
mod mailbox;
mod publishers;
mod rejected;
mod waiting;

pub(crate) use any::AnyInlet;
pub use any::SubscriberState;
use mailbox::{Door, Mailbox};
pub use publishers::PublisherInfo;
use publishers::Publishers;
use rejected::Rejected;
pub(crate) use rejected::Rejection;
use waiting::Waiting;

use super::Sample;
use super::monitor::seat::Seat;
use super::{Histories, Judge, judge_of_subscriber, kept_at_subscriber};
use crate::channel::inbound::Inbound;
use crate::channel::memory::Memory;
use crate::channel::{Channel, SampleInfo};
use crate::codec::{Message, WHOLE_TOPIC};
use crate::control::PortInfo;
use crate::event::{Event, Events};
use linux::lock::PiMutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

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
pub(crate) struct Inlet<M: Message> {
    pub info: PortInfo,
    pub sink: Sink<M>,
    /// `local` callbacks may run on the publisher's thread.
    pub on_publisher: bool,
    /// No thread serves the port: its owner's `wait` receives.
    pub polled: bool,
    pub events: Events,
    mailbox: PiMutex<Mailbox>,
    /// The waiting place of threads that find it full.
    door: Door,
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
    monitor: Seat,
    /// Judges incoming samples by the port's policies, if these look at samples.
    judge: Option<Arc<Judge>>,
    /// Keeps the arriving samples, for queries.
    histories: Option<Arc<Histories>>,
}

impl<M: Message> Inlet<M> {
    pub(crate) fn new(
        info: PortInfo,
        sink: Sink<M>,
        on_publisher: bool,
        polled: bool,
        events: Events,
        memory: &Memory,
    ) -> Self {
        let waiting = Waiting::new(&info.qos);
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
            door: Door::default(),
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
            monitor: Seat::default(),
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

    /// Drops halves that were not fetched when the inlet closes: they hold a reference to it.
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
}
