//! The receiving side of a port: what happens with a sample that a channel delivers (step 12 of the data path).

mod monitored;

use super::local::LocalChannel;
use super::monitor::seat::Seat;
use super::sample::{Sample, SampleInfo, Storage, TakenSample};
use super::{Channel, ChannelReport, Histories, Judge, judge_of_subscriber, kept_at_subscriber};
use crate::admin::explain::SubscriberState;
use crate::channel::buffer::{Buffer, Pool};
use crate::channel::inbound::Inbound;
use crate::codec::{Decoded, Message};
use crate::control::PortInfo;
use crate::event::{Event, Events};
use crate::trace::{self, Step};
use linux::futex::{self, Scope};
use linux::lock::PiMutex;
use linux::memory::Borrowed;
use qos::Durability;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

/// A sample as a channel hands it over.
pub(crate) struct Delivery<'a> {
    pub info: SampleInfo,
    pub payload: Payload<'a>,
}

/// Where the bytes of a delivered sample lie.
pub(crate) enum Payload<'a> {
    /// In the receiving thread's buffer, valid until the delivery returns.
    Bytes(&'a [u8]),
    /// In a buffer of the publishing port in this process.
    Pooled(&'a Arc<Buffer>),
    /// In the publisher's shared memory.
    Shared(Borrowed),
}

impl Payload<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Bytes(bytes) => bytes,
            Payload::Pooled(buffer) => buffer.payload(),
            Payload::Shared(borrowed) => borrowed,
        }
    }
}

type Callback<M> = Box<dyn FnMut(Sample<'_, M>) + Send>;

/// What a subscriber does with samples.
pub(crate) enum Sink<M: Message> {
    /// Calls the user on the receiving thread.
    Callback(PiMutex<Callback<M>>),
    /// Keeps them until they are taken.
    Mailbox,
}

impl<M: Message> Sink<M> {
    /// Calls this.
    pub fn callback(callback: impl FnMut(Sample<'_, M>) + Send + 'static) -> Self {
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
    /// Samples in the mailbox: who finds none takes no lock, and so stands in no publisher's way.
    stored: AtomicUsize,
    news: AtomicU32,
    sleepers: AtomicU32,
    closed: AtomicBool,
    /// The thread that calls the callback with what `local` channels put into the mailbox: its id, 0 without one.
    server: AtomicI32,
    undecodable: AtomicU64,
    /// The number of the sample in the callback; 0: none is.
    in_callback: AtomicU64,
    pub dropped: AtomicU64,
    channels: Mutex<Vec<Arc<Channel>>>,
    /// Polled ports: receive halves that wait for their owner.
    halves: PiMutex<Vec<Inbound>>,
    /// Looks at what comes in.
    monitor: Seat,
    /// Judges what comes in by the port's policies, where they look at samples.
    judge: Option<Arc<Judge>>,
    /// Keeps what arrives, for those who ask.
    histories: Option<Arc<Histories>>,
}

struct Mailbox {
    waiting: VecDeque<(SampleInfo, Storage)>,
    limit: usize,
    keep_oldest: bool,
    pool: Pool,
    waker: Option<Waker>,
}

impl<M: Message> Inlet<M> {
    pub fn new(info: PortInfo, sink: Sink<M>, on_publisher: bool, polled: bool, events: Events) -> Self {
        // A late joiner's history comes at once, and is not to drop itself.
        let late = if info.qos.durability == Durability::TransientLocal { info.qos.history } else { 0 };
        let limit = info.qos.queue.limit().max(late) as usize;
        let mailbox = Mailbox {
            waiting: VecDeque::with_capacity(limit.min(1024)),
            limit,
            keep_oldest: !matches!(info.qos.queue, qos::Queue::KeepLast(_)),
            pool: Pool::default(),
            waker: None,
        };
        let judge = judge_of_subscriber(&info.name, &info.qos);
        let histories = kept_at_subscriber(&info).map(|limits| Arc::new(Histories::new(limits)));
        Self {
            // What is kept or judged has to be encoded.
            on_publisher: on_publisher && histories.is_none() && judge.is_none(),
            histories,
            info,
            sink,
            polled,
            events,
            mailbox: PiMutex::new(mailbox),
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

    /// Whether the port's policies let a sample pass.
    #[inline]
    fn takes(&self, info: &SampleInfo, payload: &Payload<'_>) -> bool {
        self.judge.as_ref().is_none_or(|judge| judge.takes(info, payload.bytes()))
    }

    /// A value of this process, handed over as it is: for callbacks on the publisher's thread.
    pub fn hand_over(&self, info: SampleInfo, value: &M::Value) {
        if self.monitor.is_taken() {
            return self.hand_over_monitored(info, value);
        }
        self.show(info, value);
    }

    fn show(&self, info: SampleInfo, value: &M::Value) {
        if let Sink::Callback(callback) = &self.sink {
            let mut callback = callback.lock();
            trace::step(Step::Callback);
            self.in_callback.store(info.seq, Ordering::Relaxed);
            callback(Sample { info, value: Decoded::Borrowed(value) });
            self.in_callback.store(0, Ordering::Relaxed);
        }
    }

    /// Calls the user's callback with a sample.
    pub fn call(&self, info: SampleInfo, bytes: &[u8]) {
        let Sink::Callback(callback) = &self.sink else { return };
        trace::step(Step::Decode);
        match M::decode(bytes) {
            Ok(value) => {
                let mut callback = callback.lock();
                trace::step(Step::Callback);
                self.in_callback.store(info.seq, Ordering::Relaxed);
                callback(Sample { info, value });
                self.in_callback.store(0, Ordering::Relaxed);
            }
            Err(problem) => self.cannot_decode(&problem.to_string()),
        }
    }

    #[cold]
    pub fn cannot_decode(&self, problem: &str) {
        if self.undecodable.fetch_add(1, Ordering::Relaxed) == 0 {
            let subscriber = self.info.name.clone();
            self.events.push(Event::Undecodable { subscriber, problem: problem.to_owned() });
        }
    }

    fn store(&self, info: SampleInfo, payload: Payload<'_>) {
        let mut mailbox = self.mailbox.lock();
        if mailbox.waiting.len() >= mailbox.limit {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            if mailbox.keep_oldest {
                return;
            }
            mailbox.waiting.pop_front();
        }
        let storage = match payload {
            Payload::Shared(borrowed) => Storage::Shared(borrowed),
            Payload::Pooled(buffer) => Storage::Pooled(buffer.clone()),
            Payload::Bytes(bytes) => {
                let buffer = mailbox.pool.exclusive();
                if let Some(free) = Arc::get_mut(buffer) {
                    free.start().extend_from_slice(bytes);
                }
                Storage::Pooled(buffer.clone())
            }
        };
        mailbox.waiting.push_back((info, storage));
        self.stored.store(mailbox.waiting.len(), Ordering::SeqCst);
        let waker = mailbox.waker.take();
        drop(mailbox);
        self.announce(waker);
    }

    fn announce(&self, waker: Option<Waker>) {
        self.news.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            futex::wake(&self.news, u32::MAX >> 1, Scope::Private);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub fn pop(&self) -> Option<(SampleInfo, Storage)> {
        if self.stored.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut mailbox = self.mailbox.lock();
        let sample = mailbox.waiting.pop_front();
        self.stored.store(mailbox.waiting.len(), Ordering::SeqCst);
        sample
    }

    /// The next waiting sample that can be decoded.
    pub fn take(&self) -> Option<TakenSample<M>> {
        loop {
            let (info, storage) = self.pop()?;
            trace::step(Step::Decode);
            match TakenSample::new(info, storage) {
                Ok(sample) => {
                    trace::step(Step::Take);
                    return Some(sample);
                }
                Err(problem) => self.cannot_decode(&problem.to_string()),
            }
        }
    }

    /// Whether a sample waits, or the port is closed; else `waker` is woken then.
    pub fn is_ready_or_wakes(&self, waker: &Waker) -> bool {
        let mut mailbox = self.mailbox.lock();
        let ready = !mailbox.waiting.is_empty() || self.is_closed();
        if !ready && !mailbox.waker.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            mailbox.waker = Some(waker.clone());
        }
        ready
    }

    /// As [`Inlet::take`]; when nothing waits, `waker` is woken by the next sample or the end.
    pub fn take_or_register(&self, waker: &Waker) -> Option<TakenSample<M>> {
        if let Some(sample) = self.take() {
            return Some(sample);
        }
        let mut mailbox = self.mailbox.lock();
        if mailbox.waiting.is_empty() {
            mailbox.waker = Some(waker.clone());
            return None;
        }
        drop(mailbox);
        self.take()
    }

    /// Waits until a sample arrives, the port closes or `timeout` passed.
    pub fn wait_for_news(&self, timeout: Duration) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.news.load(Ordering::SeqCst);
        if self.stored.load(Ordering::SeqCst) == 0 && !self.is_closed() {
            futex::wait(&self.news, seen, Some(timeout), Scope::Private);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Receive halves that came since the last call.
    pub fn new_halves(&self, into: &mut Vec<Inbound>) {
        if let Some(mut halves) = self.halves.try_lock()
            && !halves.is_empty()
        {
            into.append(&mut halves);
        }
    }

    /// Halves that nobody fetched hold this very inlet: they go when it closes.
    fn drop_halves(&self) {
        let halves = std::mem::take(&mut *self.halves.lock());
        drop(halves);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A thread's work for callbacks fed from the mailbox: samples of `local` channels that may not run on the publisher's thread.
    pub fn run_callbacks(&self, stop: impl Fn() -> bool) {
        while !stop() && !self.is_closed() {
            match self.pop() {
                Some((info, storage)) => self.call(info, storage.bytes()),
                None => self.wait_for_news(crate::carrier::TICK),
            }
        }
    }
}

/// An inlet whose message type is not known to the driver.
pub(crate) trait AnyInlet: Send + Sync {
    /// Delivers a sample from a network or shared-memory channel on the receiving thread.
    fn deliver(&self, delivery: Delivery<'_>);
    /// Delivers a sample on another thread: a polled port's owner finds it in the mailbox.
    fn deliver_elsewhere(&self, delivery: Delivery<'_>);
    fn info(&self) -> &PortInfo;
    /// Delivered samples are kept for later, not shown to a callback at once.
    fn keeps(&self) -> bool;
    fn channels(&self) -> &Mutex<Vec<Arc<Channel>>>;
    /// Ends waits and callbacks.
    fn close(&self);
    fn waiting(&self) -> usize;
    fn dropped(&self) -> u64;
    /// As tools ask for it.
    fn state(&self) -> SubscriberState;
    /// For `local` channels: the typed inlet, to be downcast by the publisher.
    fn typed(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    /// Serves mailbox-fed callbacks until `stop`; returns at once where none are needed.
    fn serve(&self, stop: &dyn Fn() -> bool);
    /// Whether `local` channels need a thread that calls [`AnyInlet::serve`].
    fn needs_server(&self) -> bool;
    /// The thread that calls [`AnyInlet::serve`], if one does.
    fn server(&self) -> Option<i32>;
    /// This thread does from now on; 0: none does any more.
    fn set_server(&self, tid: i32);
    fn reports(&self) -> Vec<ChannelReport>;
    /// Where a monitor of the input sits.
    fn monitor(&self) -> &Seat;
    /// What judges by the port's policies.
    fn judge(&self) -> Option<&Arc<Judge>>;
    /// What it keeps, if it does.
    fn histories(&self) -> Option<&Arc<Histories>>;
    /// Waits at most a tick for a sample that its monitor keeps back, and delivers those that are due.
    fn release(&self);
    /// A polled port takes the receive half; others give it back, for a reader thread.
    fn adopt(&self, inbound: Inbound) -> Option<Inbound>;
}

impl<M: Message> AnyInlet for Inlet<M> {
    fn deliver(&self, delivery: Delivery<'_>) {
        if !self.takes(&delivery.info, &delivery.payload) {
            return;
        }
        if let Some(histories) = &self.histories {
            histories.keep_arrived(&delivery.info, &delivery.payload);
        }
        if self.monitor.is_taken() {
            return self.deliver_monitored(delivery, false);
        }
        match &self.sink {
            Sink::Callback(_) => self.call(delivery.info, delivery.payload.bytes()),
            Sink::Mailbox => self.store(delivery.info, delivery.payload),
        }
    }
    fn deliver_elsewhere(&self, delivery: Delivery<'_>) {
        if !self.polled {
            return self.deliver(delivery);
        }
        if !self.takes(&delivery.info, &delivery.payload) {
            return;
        }
        if let Some(histories) = &self.histories {
            histories.keep_arrived(&delivery.info, &delivery.payload);
        }
        match self.monitor.is_taken() {
            true => self.deliver_monitored(delivery, true),
            false => self.store(delivery.info, delivery.payload),
        }
    }
    fn info(&self) -> &PortInfo {
        &self.info
    }
    fn keeps(&self) -> bool {
        matches!(self.sink, Sink::Mailbox)
    }
    fn channels(&self) -> &Mutex<Vec<Arc<Channel>>> {
        &self.channels
    }
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.drop_halves();
        let waker = self.mailbox.lock().waker.take();
        self.announce(waker);
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
            policies: self.judge.as_ref().map(|judge| judge.counts()).unwrap_or_default(),
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
        channels.iter().map(|c| c.report("subscriber", self.waiting())).collect()
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

impl<M: Message> LocalChannel<M> for Inlet<M> {
    fn late(&self) -> u32 {
        if self.info.qos.durability == Durability::TransientLocal { self.info.qos.history } else { 0 }
    }
    fn wants_value(&self) -> bool {
        self.on_publisher && matches!(self.sink, Sink::Callback(_))
    }
    fn value(&self, info: SampleInfo, value: &M::Value) {
        self.hand_over(info, value);
    }
    fn buffer(&self, info: SampleInfo, buffer: &Arc<Buffer>) {
        trace::step(Step::Deliver);
        if !self.takes(&info, &Payload::Pooled(buffer)) {
            return;
        }
        if let Some(histories) = &self.histories {
            histories.keep_arrived(&info, &Payload::Pooled(buffer));
        }
        if self.monitor.is_taken() {
            return self.deliver_monitored(Delivery { info, payload: Payload::Pooled(buffer) }, true);
        }
        self.store(info, Payload::Pooled(buffer));
    }
}
