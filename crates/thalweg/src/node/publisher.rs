//! Publishers.

#![allow(clippy::disallowed_methods)] // a user waits

use super::{Node, PortRequest};
use crate::bottle::Bottle;
use crate::carrier;
use crate::channel::bucket::Limit;
use crate::channel::flow::Batching;
use crate::channel::parity::Redundancy;
use crate::channel::{Change, Channel, Outcome, SampleInfo};
use crate::codec::{Message, Plain, TypeDescription, Untyped};
use crate::control::Foreign;
use crate::error::{Error, Result};
use crate::port::monitor::Monitor;
use crate::port::{AnyPublisher, Place, PublishState, Published, PublisherPort};
use linux::lock::PiGuard;
use linux::thread::Settings;
use qos::priority::PrioritySettings;
use qos::{Class, PullBuffer, Qos, Queue, Reliability};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// Publishes samples of one topic. Dropping it closes the port; waiting samples are sent if that takes at most one second.
pub struct Publisher<M: Message> {
    pub(crate) publisher_port: Arc<PublisherPort<M>>,
    node: Node,
    closing: Duration,
}

/// Settings of a publisher; see [`Node::publisher`].
pub struct PublisherBuilder<M: Message> {
    pub(crate) node: Node,
    pub(crate) request: PortRequest,
    pub(crate) message: PhantomData<M>,
}

impl<M: Message> PublisherBuilder<M> {
    /// The port's name, such as `/publisher1`: unique among all nodes. Default: `/<node>/<topic>/pub1`, numbered in its node.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.request.name = Some(name.into());
        self
    }
    /// All QoS policies at once.
    pub fn qos(mut self, qos: Qos) -> Self {
        self.request.qos = qos;
        self
    }
    /// Reliability of delivery. Default: reliable.
    pub fn reliability(mut self, reliability: Reliability) -> Self {
        self.request.qos.reliability = reliability;
        self
    }
    /// The queue of each channel, for a channel that is slower than this publisher. Default: the last 16 samples wait.
    pub fn queue(mut self, queue: Queue) -> Self {
        self.request.qos.queue = queue;
        self
    }
    /// Keeps the last samples for pulls ([`Subscriber::pull`](super::Subscriber::pull)); with the place of a relay,
    /// that relay keeps them. Default: none.
    pub fn history(mut self, buffer: PullBuffer) -> Self {
        self.request.qos.pull = Some(buffer.kept_by(qos::Place::Publisher));
        self
    }
    /// Packet priority of the channels. Default: normal.
    pub fn class(mut self, class: Class) -> Self {
        self.request.qos.class = class;
        self
    }
    /// Marks, pace and sending thread of all channels of this port, unless set by name ([`Node::set_priority`]). If the kernel
    /// refuses one of them when a channel opens, that is an event. Default: none.
    pub fn priority(mut self, priority: PrioritySettings) -> Self {
        self.request.priority = priority;
        self
    }
    /// Largest encoded message, in bytes. Default 16 MiB.
    pub fn max_message(mut self, bytes: u32) -> Self {
        self.request.qos.max_message = bytes;
        self
    }
    /// Allows only these carriers (`local`, `shm`, `tcp`, `udp`, `mcast`, or one that was added), best first.
    pub fn carriers<S: Into<carrier::Name>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.request.carriers = Some(names.into_iter().map(Into::into).collect());
        self
    }
    /// Answers to this port's samples arrive at `answers`, a subscriber of the same node: over TCP on the same connection, if
    /// the other end has [`SubscriberBuilder::answering_with`](super::SubscriberBuilder::answering_with). Question and answer
    /// then cost as much as on one bare socket: acknowledgements ride on the data.
    pub fn answered_at<A: Message>(mut self, answers: &super::Subscriber<A>) -> Self {
        self.request.answers = Some(answers.port());
        self
    }
    /// Sends small samples together on stream carriers and over reliable `udp`: more per second, each later by up to `within`.
    pub fn batching(mut self, batching: Batching) -> Self {
        self.request.sending.batching = Some(batching);
        self
    }
    /// Limits the rate of each channel. The excess waits in the channel's queue, and large samples leave piece by piece. With
    /// [`PublisherBuilder::batching`], small samples that wait leave together. `publish` then only enqueues: for alarms, events
    /// and bulk beside continuous data (V-07). Not for `local` and `shm`. Default: no limit.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.request.sending.limit = Some(limit);
        self
    }
    /// Over `udp` and `mcast`, parity follows samples of several datagrams. A sample is complete without a retransmit as long
    /// as it has lost at most as many datagrams as it has parity pieces. Parity costs its share of the link, and the time to
    /// compute it in `publish`. Default: none.
    pub fn parity(mut self, redundancy: Redundancy) -> Self {
        self.request.sending.parity = Some(redundancy.prepare());
        self
    }
    /// Attaches a monitor to the output: it sees every sample that goes out.
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
    /// [`Error::NotAdmitted`]. The agent of this host is asked, once. Default: none.
    pub fn session(mut self, name: impl Into<String>) -> Self {
        self.request.session = Some(name.into());
        self
    }
    /// Opens the port.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::Usage`] for a name, topic, carrier or QoS that is not allowed, [`Error::NotAdmitted`], [`Error::Closed`].
    pub fn open(self) -> Result<Publisher<M>> {
        let publisher_port = self.node.open_publisher::<M>(self.request)?;
        Ok(Publisher { publisher_port, node: self.node, closing: Duration::from_secs(1) })
    }
}

impl PublisherBuilder<Untyped> {
    /// The type of the samples, which is known at run time only: that of another publisher
    /// ([`PublisherInfo::message`](crate::PublisherInfo::message)), or one of a definition. [`open`](Self::open) needs it.
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

impl<M: Message> Publisher<M> {
    /// Publishes a sample on all channels and returns the outcome. It never allocates in the steady state, and never
    /// waits for a subscriber unless the QoS has `block`.
    ///
    /// # Errors
    /// [`Error::Message`] when the value cannot be encoded or is too large; [`Error::Closed`]. A channel that cannot
    /// take the sample is no error: [`Published`] counts it.
    #[inline]
    pub fn publish(&mut self, value: &M::Value) -> Result<Published> {
        self.publisher_port.publish(value, Change::Written, &mut |_, _| {})
    }

    /// As [`Publisher::publish`]; besides, calls `each` with the outcome on each channel.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn publish_each(&mut self, value: &M::Value, mut each: impl FnMut(&Channel, Outcome)) -> Result<Published> {
        self.publisher_port.publish(value, Change::Written, &mut each)
    }

    /// Ends the instance that has the key of `value` (without a key, the topic's only one). Subscribers get a sample that says
    /// so ([`SampleInfo::change`](crate::channel::SampleInfo::change)), and its deadline is no longer watched.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn dispose(&mut self, value: &M::Value) -> Result<Published> {
        self.publisher_port.publish(value, Change::Disposed, &mut |_, _| {})
    }

    /// Ends this publisher's part in the instance that has the key of `value`: it gives up ownership, and its deadline is no
    /// longer watched. Other publishers may continue to write the instance.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn unregister(&mut self, value: &M::Value) -> Result<Published> {
        self.publisher_port.publish(value, Change::Unregistered, &mut |_, _| {})
    }

    /// The number of channels the port has now.
    pub fn connected(&self) -> usize {
        self.publisher_port.connected()
    }

    /// Waits until at least `count` channels exist. Returns `false` if `timeout` passed first. What is published from now on reaches these
    /// subscribers, also if the port closes before they have opened their ends.
    pub fn wait_connected(&self, count: usize, timeout: Duration) -> bool {
        self.node.wait_until(timeout, || self.publisher_port.connected() >= count)
    }

    /// Asserts that this publisher is alive even if it has nothing to publish now ([`qos::LivelinessKind::ByPort`]).
    /// The control plane informs its subscribers. Publishing asserts the same.
    pub fn assert_liveliness(&self) {
        crate::port::AnyPublisher::judge(self.publisher_port.as_ref())
            .into_iter()
            .for_each(|judge| judge.assert(linux::clock::monotonic_ns()));
        self.node.state().command(crate::driver::Command::Alive(Some(self.publisher_port.me.port)));
    }

    /// The port's name.
    pub fn name(&self) -> &str {
        &self.publisher_port.info.name
    }

    pub(crate) fn port(&self) -> crate::channel::PortRef {
        self.publisher_port.me
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.publisher_port.info.topic
    }

    /// The counters of each channel.
    pub fn channels(&self) -> Vec<crate::channel::ChannelReport> {
        self.publisher_port.reports()
    }

    /// Sets the longest time for which dropping the publisher waits for unsent samples. With zero they are dropped at once.
    /// Default one second.
    pub fn drain_on_close(&mut self, timeout: Duration) {
        self.closing = timeout;
    }

    /// Closes the port after waiting at most `timeout` for unsent samples. Returns `false` if some were dropped.
    pub fn close(mut self, timeout: Duration) -> bool {
        let drained = self.publisher_port.drain(timeout);
        self.closing = Duration::ZERO;
        drained
    }
}

impl<T: bytemuck::Pod + Send> Publisher<Plain<T>> {
    /// Loans as [`Publisher::loan`] does: a value that is written in place with [`Loan::value_mut`].
    ///
    /// # Errors
    /// [`Error::Message`] over `max_message`; [`Error::Closed`].
    pub fn loan_value(&mut self) -> Result<Loan<'_, Plain<T>>> {
        self.lend(size_of::<T>())
    }
}

impl Publisher<Untyped> {
    /// Publishes an encoded message as the sample that another port received: with its change, and the time at which it was
    /// published, or at which it arrived here if the clock of its publisher is another one. It has the next number of this port.
    /// [`publish`](Self::publish) takes an encoded message as a sample of its own.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn forward(&mut self, info: &SampleInfo, message: &[u8]) -> Result<Published> {
        self.publisher_port.publish_again(info, message)
    }
}

impl<M: Message<Value = [u8]>> Publisher<M> {
    /// A message of `len` bytes that is written in place: in the subscribers' own shared memory where the carrier allows,
    /// otherwise in a pooled buffer that is sent without another copy. Its content is unspecified (an older message's). A
    /// subscriber that joins while a loan is held has its channel from the next sample on.
    ///
    /// # Errors
    /// [`Error::Message`] over `max_message`; [`Error::Closed`].
    pub fn loan(&mut self, len: usize) -> Result<Loan<'_, M>> {
        self.lend(len)
    }

    /// As [`loan`](Self::loan), for a message that is written for longer, or elsewhere: the publisher is free meanwhile. The message
    /// gets its number, and its channels, when it is published.
    ///
    /// # Errors
    /// [`Error::Message`] over `max_message`; [`Error::Closed`].
    pub fn loan_owned(&mut self, len: usize) -> Result<OwnedLoan<M>> {
        let place = self.place(len)?.1;
        Ok(OwnedLoan { publisher_port: self.publisher_port.clone(), place: Some(place) })
    }
}

impl<M: Message> Publisher<M> {
    fn lend(&mut self, len: usize) -> Result<Loan<'_, M>> {
        let (state, place) = self.place(len)?;
        Ok(Loan { publisher_port: &self.publisher_port, state: Some(state), place: Some(place) })
    }

    fn place(&self, len: usize) -> Result<(PiGuard<'_, PublishState<M>>, Place)> {
        let limit = self.publisher_port.info.qos.max_message as usize;
        if len > limit {
            let name = self.name();
            return Err(Error::Message(format!("a loan of {len} bytes is over max_message of {name}, {limit} bytes")));
        }
        let mut state = self.publisher_port.hold()?;
        let place = state.loan(len);
        Ok((state, place))
    }
}

/// A message that is being written in place.
pub struct Loan<'a, M: Message> {
    publisher_port: &'a PublisherPort<M>,
    state: Option<PiGuard<'a, PublishState<M>>>,
    place: Option<Place>,
}

impl<T: bytemuck::Pod + Send> Loan<'_, Plain<T>> {
    /// The value, to be written in place. Its initial content is left over from an older one.
    ///
    /// # Errors
    /// [`Error::Message`] when the memory is not aligned for the type (above 16 bytes, over a carrier without loans).
    pub fn value_mut(&mut self) -> Result<&mut T> {
        bytemuck::try_from_bytes_mut(self.bytes_mut())
            .map_err(|e| Error::Message(format!("cannot be written in place: {e}")))
    }
}

impl<M: Message> Loan<'_, M> {
    /// The message, to be written in place. Its initial content is left over from an older one.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match (&mut self.state, &mut self.place) {
            (Some(state), Some(place)) => state.bytes_mut(place),
            _ => &mut [],
        }
    }

    /// Publishes the message.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn publish(mut self) -> Result<Published> {
        match (self.state.take(), self.place.take()) {
            (Some(state), Some(place)) => self.publisher_port.publish_loan(state, place),
            _ => Err(Error::Closed),
        }
    }
}

impl<M: Message> Drop for Loan<'_, M> {
    fn drop(&mut self) {
        if let (Some(mut state), Some(place)) = (self.state.take(), self.place.take()) {
            state.give_back(place);
        }
    }
}

/// A message that is being written in place, apart from its publisher: see [`Publisher::loan_owned`].
pub struct OwnedLoan<M: Message> {
    publisher_port: Arc<PublisherPort<M>>,
    place: Option<Place>,
}

impl<M: Message> OwnedLoan<M> {
    /// Writes the message. Its initial content is left over from an older one. The bytes are in the same place each time, and nobody
    /// else writes there, until the loan is published or dropped, or its publisher closes: then there are none.
    pub fn write<T>(&mut self, write: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut state = self.publisher_port.lock();
        match &mut self.place {
            Some(place) => write(state.bytes_mut(place)),
            None => write(&mut []),
        }
    }

    /// Publishes the message.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn publish(mut self) -> Result<Published> {
        let state = self.publisher_port.hold()?;
        self.place.take().map_or(Err(Error::Closed), |place| self.publisher_port.publish_loan(state, place))
    }
}

impl<M: Message> Drop for OwnedLoan<M> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.publisher_port.lock().give_back(place);
        }
    }
}

impl<M: Message> Drop for Publisher<M> {
    fn drop(&mut self) {
        let (publisher_port, node, patience) = (self.publisher_port.clone(), self.node.clone(), self.closing);
        let close = move |patience| {
            publisher_port.drain(patience);
            publisher_port.close();
            node.close_publisher(publisher_port.me.port);
        };
        // A callback that owns a publisher may be dropped by a thread that serves others: it does not wait here.
        if crate::driver::may_wait() || self.publisher_port.drain(Duration::ZERO) {
            return close(patience);
        }
        let waiting = close.clone();
        if linux::thread::spawn(Settings::named("closing"), move || waiting(patience)).is_err() {
            close(Duration::ZERO);
        }
    }
}
