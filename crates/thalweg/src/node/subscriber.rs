//! Subscribers.

#![allow(clippy::disallowed_methods)] // a user waits

use super::{Node, PortRequest};
use crate::bottle::Bottle;
use crate::carrier::{self, TICK};
use crate::channel::inbound::{Inbound, Step};
use crate::channel::{ChannelReport, PortRef, SampleInfo};
use crate::codec::{Message, TypeDescription, Untyped};
use crate::control::{Foreign, PullRole};
use crate::driver::Command;
use crate::error::Result;
use crate::port::monitor::Monitor;
use crate::port::{AnySubscriber, PublisherInfo, Sample, Sink, SubscriberPort, TakenSample};
use futures_core::Stream;
use qos::priority::PrioritySettings;
use qos::{Place, PullBuffer, Qos, Queue, Reliability};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The way samples reach a subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Samples wait in the port until they are taken. This costs one hand-over to another thread.
    #[default]
    Queue,
    /// The port has no thread: `wait` itself receives. The fastest way for a thread that does nothing else.
    Polled,
}

/// Receives samples of one topic, or of all topics that match a pattern. Dropping it closes the port.
///
/// It is also a [`Stream`] of samples.
pub struct Subscriber<M: Message> {
    pub(super) subscriber_port: Arc<SubscriberPort<M>>,
    pub(super) me: PortRef,
    pub(super) node: Node,
    halves: Vec<Inbound>, // polled: the receive halves, owned by the waiting thread
    ready: Vec<bool>,
}

/// Settings of a subscriber; see [`Node::subscriber`].
pub struct SubscriberBuilder<M: Message> {
    node: Node,
    pub(super) request: PortRequest,
    on_publisher: bool,
    mode: Mode,
    message: PhantomData<M>,
}

impl SubscriberBuilder<Untyped> {
    /// Takes samples of this type only, which is known at run time. Default: of any type.
    pub fn described(mut self, message: TypeDescription) -> Self {
        self.request.message = Some(message);
        self
    }
    /// The end in another system for which a bridge has this port; `thalweg list`, `info` and `why` show it. Default: none.
    pub fn foreign(mut self, end: Foreign) -> Self {
        self.request.foreign = Some(end);
        self
    }
}

impl<M: Message> SubscriberBuilder<M> {
    pub(crate) fn new(node: Node, request: PortRequest) -> Self {
        Self { node, request, on_publisher: false, mode: Mode::Queue, message: PhantomData }
    }
    /// The port's name, such as `/subscriber1`: unique among all nodes. Default: `/<node>/<topic>/sub1`, numbered in its node.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.request.name = Some(name.into());
        self
    }
    /// All QoS policies at once.
    pub fn qos(mut self, qos: Qos) -> Self {
        self.request.qos = qos;
        self
    }
    /// Reliability of delivery. Default: reliable; a best-effort publisher does not match then.
    pub fn reliability(mut self, reliability: Reliability) -> Self {
        self.request.qos.reliability = reliability;
        self
    }
    /// The queue of samples that wait to be taken. Default: the last 16 samples.
    pub fn queue(mut self, queue: Queue) -> Self {
        self.request.qos.queue = queue;
        self
    }
    /// Marks of acknowledgements, and the receiving thread, of all channels of this port, unless set by name
    /// ([`Node::set_priority`]). If the kernel refuses one of them when a channel opens, that is an event. Default: none.
    pub fn priority(mut self, priority: PrioritySettings) -> Self {
        self.request.priority = priority;
        self
    }
    /// Largest encoded message this port takes, in bytes. Default 16 MiB.
    pub fn max_message(mut self, bytes: u32) -> Self {
        self.request.qos.max_message = bytes;
        self
    }
    /// Allows only these carriers, best first.
    pub fn carriers<S: Into<carrier::Name>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.request.carriers = Some(names.into_iter().map(Into::into).collect());
        self
    }
    /// Lets the callback run on the publisher's thread when publisher and subscriber are in one process: no thread
    /// hand-over, no encoding. A slow callback then delays that publisher.
    pub fn on_publisher_thread(mut self) -> Self {
        self.on_publisher = true;
        self
    }
    /// Samples that arrive here are answered with `answers`, a publisher of the same node: see
    /// [`PublisherBuilder::answered_at`](super::PublisherBuilder::answered_at).
    pub fn answering_with<A: Message>(mut self, answers: &super::Publisher<A>) -> Self {
        self.request.answers = Some(answers.port());
        self
    }
    /// Restricts the port to [`Subscriber::pull`]: no channel is opened, so it costs nothing until then.
    pub fn pull_only(mut self) -> Self {
        self.request.pull = PullRole::Only;
        self
    }
    /// Keeps the last arriving samples of each publisher; [`Subscriber::pull`] then asks no other node. If the place
    /// is a relay, that relay keeps them and is asked first (P-09). Default: none.
    pub fn history(mut self, buffer: PullBuffer) -> Self {
        self.request.qos.pull = Some(buffer.kept_by(Place::Subscriber));
        self
    }
    /// As [`SubscriberBuilder::history`], and lets other nodes pull from it.
    pub fn history_for_others(mut self, buffer: PullBuffer) -> Self {
        self.request.qos.pull = Some(PullBuffer { place: Place::Subscriber, ..buffer });
        self.request.pull = PullRole::Keeps;
        self
    }
    /// Gives the port no thread of its own: [`Subscriber::wait`] receives.
    pub fn polled(mut self) -> Self {
        self.mode = Mode::Polled;
        self
    }
    /// Only every n-th sample: those whose sequence number is a multiple of `n` ≥ 1. Default 1: all.
    pub fn every(mut self, n: u32) -> Self {
        self.request.qos.scale = qos::Scale::Every(n);
        self
    }
    /// Only `p` of every `q` samples, evenly spread; 1 ≤ `p` ≤ `q`. For example 8 of 10 make 8 Hz of 10 Hz.
    pub fn rate(mut self, p: u32, q: u32) -> Self {
        self.request.qos.scale = qos::Scale::Rate { p, q };
        self
    }
    /// Only pictures of at most this size, each side 1 to 65,535 pixels. Larger ones are made smaller and keep the ratio of
    /// their sides. A point cloud has at most as many points as such a picture has pixels.
    pub fn picture(mut self, width: u32, height: u32) -> Self {
        self.request.qos.picture = Some((width, height));
        self
    }
    /// The place where samples are left out or made smaller. Default: at the publisher, before they are sent.
    pub fn proxy(mut self, place: qos::Place) -> Self {
        self.request.qos.place = place;
        self
    }
    /// Attaches a monitor to the input: it sees every sample that comes in.
    pub fn monitor(mut self, monitor: impl Monitor + 'static) -> Self {
        self.request.monitor = Some(Box::new(monitor));
        self
    }
    /// Answers administrators' commands that are not part of the grammar. It runs on the node's `control` thread, so it must
    /// return quickly and not call this node.
    pub fn admin_reader(mut self, reader: impl FnMut(&Bottle) -> Bottle + Send + 'static) -> Self {
        self.request.reader = Some(Box::new(reader));
        self
    }
    /// Opens only as part of this session, which a broker has admitted with the port's topic (`thalweg session request`), else
    /// [`Error::NotAdmitted`](crate::Error::NotAdmitted). The agent of this host is asked, once. Default: none.
    pub fn session(mut self, name: impl Into<String>) -> Self {
        self.request.session = Some(name.into());
        self
    }
    /// Opens the port; samples are taken with [`Subscriber::take`], [`Subscriber::wait`] or as a stream.
    ///
    /// # Errors
    /// As [`PublisherBuilder::open`](super::PublisherBuilder::open).
    pub fn open(self) -> Result<Subscriber<M>> {
        self.build(Sink::Mailbox)
    }
    /// Opens the port. `callback` is called with every sample, on the receiving thread: the fastest way. Calls never overlap.
    ///
    /// # Errors
    /// As [`PublisherBuilder::open`](super::PublisherBuilder::open).
    pub fn callback(self, callback: impl FnMut(Sample<'_, M>) + Send + 'static) -> Result<Subscriber<M>> {
        self.build(Sink::callback(callback))
    }

    fn build(self, sink: Sink<M>) -> Result<Subscriber<M>> {
        let (on_publisher, polled) = (self.on_publisher, self.mode == Mode::Polled);
        let memory = self.node.state().memory.clone();
        let make = |info, events| SubscriberPort::new(info, sink, on_publisher, polled, events, &memory);
        let (me, subscriber_port) = self.node.open_subscriber::<M>(self.request, make)?;
        Ok(Subscriber { subscriber_port, me, node: self.node, halves: Vec::new(), ready: Vec::new() })
    }
}

impl<M: Message> Subscriber<M> {
    /// Takes the oldest waiting sample, without waiting.
    pub fn take(&mut self) -> Option<TakenSample<M>> {
        if self.subscriber_port.polled {
            self.poll_halves(Duration::ZERO);
        }
        self.subscriber_port.take()
    }

    /// Takes the oldest waiting sample; waits at most `timeout` for one.
    pub fn wait(&mut self, timeout: Duration) -> Option<TakenSample<M>> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(sample) = self.subscriber_port.take() {
                return Some(sample);
            }
            let left = until.checked_duration_since(Instant::now()).filter(|_| !self.subscriber_port.is_closed())?;
            match self.subscriber_port.polled {
                true => drop(self.poll_halves(left)),
                false => self.subscriber_port.wait_for_news(left),
            }
        }
    }

    /// For polled ports opened with a callback: receives until at least one sample was delivered or `timeout` passed. The
    /// callback runs within this call, on the bytes where they were received. Returns the number of samples delivered.
    pub fn wait_callback(&mut self, timeout: Duration) -> usize {
        let until = Instant::now() + timeout;
        loop {
            let called = self.poll_halves(until.saturating_duration_since(Instant::now()));
            let mut mailbox = 0;
            while let Some((info, storage)) = self.subscriber_port.pop() {
                self.subscriber_port.call(&info, storage.bytes());
                mailbox += 1;
            }
            if called + mailbox > 0 || Instant::now() >= until || self.subscriber_port.is_closed() {
                return called + mailbox;
            }
        }
    }

    /// The number of channels the port has now.
    pub fn connected(&self) -> usize {
        self.subscriber_port.channels().lock().map_or(0, |channels| channels.len())
    }

    /// Waits until at least `count` channels exist. Returns `false` if `timeout` passed first.
    pub fn wait_connected(&self, count: usize, timeout: Duration) -> bool {
        self.node.wait_until(timeout, || self.connected() >= count)
    }

    /// The publisher of a sample, as it described itself when its channel opened. It may be gone: the 16 publishers whose
    /// channels opened last are remembered. `None` for samples that were not published to this port directly.
    pub fn publisher(&self, info: &SampleInfo) -> Option<Arc<PublisherInfo>> {
        self.subscriber_port.publishers().get(PortRef { node: info.node, port: info.port })
    }

    /// The port's name.
    pub fn name(&self) -> &str {
        &self.subscriber_port.info.name
    }

    pub(crate) fn port(&self) -> PortRef {
        self.me
    }

    /// The counters of each channel.
    pub fn channels(&self) -> Vec<ChannelReport> {
        self.subscriber_port.reports()
    }

    /// The counters of the port's policies.
    pub fn policy_counts(&self) -> crate::port::PolicyCounts {
        self.subscriber_port.state().policies
    }

    /// The instances of a keyed topic that were seen: alive, disposed, or without publishers. Empty unless the port has a
    /// policy that looks at samples, such as the key.
    pub fn instances(&self) -> Vec<crate::channel::InstanceReport> {
        AnySubscriber::judge(self.subscriber_port.as_ref()).map(|judge| judge.instances()).unwrap_or_default()
    }

    /// The number of samples dropped because they were not taken in time.
    pub fn dropped(&self) -> u64 {
        self.subscriber_port.dropped()
    }

    /// Receives once on the polled halves; returns how many samples were delivered.
    fn poll_halves(&mut self, timeout: Duration) -> usize {
        self.subscriber_port.new_halves(&mut self.halves);
        let subscriber_port = self.subscriber_port.clone();
        let delivered = match self.halves.as_mut_slice() {
            [] => {
                if !timeout.is_zero() {
                    subscriber_port.wait_for_news(timeout.min(crate::carrier::TICK));
                }
                0
            }
            // With one channel the receive itself waits.
            [one] => {
                let step = match timeout {
                    Duration::ZERO => one.step(false),
                    short if short < TICK => one.step_within(short),
                    _ => one.step(true),
                };
                finish(&self.node, one, step).unwrap_or(usize::MAX)
            }
            _ => return self.poll_many(timeout),
        };
        if delivered == usize::MAX {
            self.halves.clear();
            return 0;
        }
        delivered
    }

    fn poll_many(&mut self, timeout: Duration) -> usize {
        let fds: Vec<_> = self.halves.iter().filter_map(Inbound::descriptor).collect();
        // Rings have no descriptor to poll together with others: all halves are checked at short intervals.
        let all = fds.len() < self.halves.len();
        let due = self.halves.iter().filter_map(Inbound::until_timer).min();
        let wait = timeout.min(if all { LOOK } else { TICK }).min(due.unwrap_or(TICK));
        let all = all || due.is_some_and(|due| due <= wait);
        if fds.is_empty() {
            std::thread::sleep(wait);
        }
        let waited = linux::poll::wait_any_readable(&fds, &mut self.ready, Some(wait));
        drop(fds);
        if !all && !matches!(waited, Ok(true)) {
            return 0;
        }
        let mut delivered = 0;
        let ready = &self.ready;
        let mut index = 0;
        self.halves.retain_mut(|half| {
            let look = all || ready.get(index).copied().unwrap_or(false);
            index += 1;
            if !look {
                return true;
            }
            let step = half.step(false);
            finish(&self.node, half, step).inspect(|n| delivered += n).is_some()
        });
        delivered
    }
}

/// Interval between checks of the rings that a polled port has besides other carriers.
const LOOK: Duration = Duration::from_micros(200);

/// The outcome of one step of a half on its owner's thread; `None` when the channel has ended.
fn finish(node: &Node, half: &Inbound, step: Step) -> Option<usize> {
    match step {
        Step::Delivered(count) => Some(count as usize),
        Step::Nothing | Step::Starved => Some(0),
        Step::Ended(why) => {
            node.state().command(Command::Ended { channel: half.channel.clone(), why });
            None
        }
    }
}

impl<M: Message> Stream for Subscriber<M> {
    type Item = TakenSample<M>;

    /// The next sample. The stream ends when the node closes; on a polled port it ends at once, for no thread could wake the
    /// task.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<TakenSample<M>>> {
        match self.subscriber_port.take_or_register(context.waker()) {
            Some(sample) => Poll::Ready(Some(sample)),
            // A polled port has no thread that could wake the task: ending is better than never waking.
            None if self.subscriber_port.is_closed() || self.subscriber_port.polled => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl<M: Message> Unpin for Subscriber<M> {}

impl<M: Message> Drop for Subscriber<M> {
    fn drop(&mut self) {
        self.halves.clear();
        self.node.close_subscriber(self.me.port, self.subscriber_port.as_ref());
    }
}
