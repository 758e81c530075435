//! The way of every sample out of a port (steps 1 and 2 of the data path): the judge of its promises, the monitor, the
//! channels that take values, the encoded message for all others, and the history. Publishers, loans, relays and late monitors
//! all begin here.

#![allow(clippy::disallowed_methods)] // samples are stamped, and waits are measured

use super::{Place, PublishState, PublisherPort};
use crate::carrier::shm::{Memory, Shared};
use crate::channel::buffer::{Buffer, Pool};
use crate::channel::outgoing::{Body, Outgoing};
use crate::channel::proxy::Provenance;
use crate::channel::queue::Label;
use crate::channel::{Change, Channel, Outcome, SampleInfo, coalescing};
use crate::codec::Message;
use crate::error::{Error, Result};
use crate::port::Published;
use crate::port::fan_out::FanOut;
use crate::port::monitor::slot::Judged;
use crate::trace::{self, Step};
use linux::lock::PiGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Messages at least this long are sent from their own memory; shorter ones are copied next to their header, which is
/// cheaper than a second piece in the send.
const COPY_BELOW: usize = 16 << 10;

/// The callback that is given the outcome on each channel.
type Each<'a> = &'a mut dyn FnMut(&Channel, Outcome);

/// A sample at the exit of a port.
struct Departure<'a, M: Message> {
    label: Label,
    content: Content<'a, M>,
    /// Time by this host's clock; the stamp of another port's sample may be by another one.
    now: u64,
    /// The sample is published here and now: it counts for the port's promises, and the monitor has not seen it.
    is_new: bool,
}

/// The content of a sample.
pub(in crate::port) enum Content<'a, M: Message> {
    Value(&'a M::Value),
    /// The message of another port, or of a monitor.
    Encoded(&'a [u8]),
    /// A message that was written in the memory from which it is sent.
    Loan(Place),
}

impl<M: Message> PublisherPort<M> {
    /// Publishes one value on all channels. Takes the port's lock (uncontended but for joins and leaves) and no other.
    pub(crate) fn publish(&self, value: &M::Value, change: Change, each: Each<'_>) -> Result<Published> {
        let (mut state, now) = self.begin()?;
        let label = Label { seq: state.seq + 1, stamp: now, change, historical: false };
        self.enter(&mut state, Departure { label, content: Content::Value(value), now, is_new: true }, each)
    }

    /// The port's state, for a loan: joins and leaves of that time take effect with the next sample.
    pub(crate) fn hold(&self) -> Result<PiGuard<'_, PublishState<M>>> {
        self.begin().map(|(state, _)| state)
    }

    /// The port's state, whether it is open or not: for what a loan that is held apart has of it.
    pub(crate) fn lock(&self) -> PiGuard<'_, PublishState<M>> {
        self.state.lock()
    }

    /// Publishes a message that was written into a loan.
    pub(crate) fn publish_loan(&self, mut state: PiGuard<'_, PublishState<M>>, place: Place) -> Result<Published> {
        let now = linux::clock::monotonic_ns();
        let label = Label { seq: state.seq + 1, stamp: now, ..Label::default() };
        let content = Content::Loan(place);
        self.enter(&mut state, Departure { label, content, now, is_new: true }, &mut |_, _| {})
    }

    /// Forwards a sample of another port with its own number and stamp.
    pub(crate) fn forward(&self, info: &SampleInfo, bytes: &[u8]) {
        if let Ok((mut state, now)) = self.begin() {
            self.pass_on(&mut state, now, info, bytes);
        }
    }

    /// Publishes an encoded message with the change and stamp of a sample that this host received.
    pub(crate) fn publish_again(&self, info: &SampleInfo, bytes: &[u8]) -> Result<Published> {
        let (mut state, now) = self.begin()?;
        let stamp = if info.same_clock { info.source_ns } else { info.received_ns };
        let label = Label { seq: state.seq + 1, stamp, change: info.change, historical: false };
        let departure = Departure { label, content: Content::Encoded(bytes), now, is_new: true };
        self.enter(&mut state, departure, &mut |_, _| {})
    }

    /// Waits at most a tick for a sample that the monitor held back. The due samples continue behind the monitor.
    pub(super) fn release_late(&self) {
        self.monitor.wait(crate::carrier::TICK);
        let mut state = self.state.lock();
        while let Some(late) = self.monitor.next_due() {
            self.pass_on(&mut state, linux::clock::monotonic_ns(), &late.info, &late.bytes);
            self.monitor.released(late);
        }
    }

    /// Publishes a sample that already has its number. Its channels count the outcomes; there is no caller to report them to.
    fn pass_on(&self, state: &mut PublishState<M>, now: u64, info: &SampleInfo, bytes: &[u8]) {
        let SampleInfo { seq, source_ns: stamp, change, historical, .. } = *info;
        let label = Label { seq, stamp, change, historical };
        let departure = Departure { label, content: Content::Encoded(bytes), now, is_new: false };
        let _ = self.enter(state, departure, &mut |_, _| {});
    }

    #[inline(always)]
    fn begin(&self) -> Result<(PiGuard<'_, PublishState<M>>, u64)> {
        trace::step(Step::Publish);
        if self.is_closing() {
            return Err(Error::Closed);
        }
        let mut state = self.state.lock();
        self.take_in(&mut state);
        Ok((state, linux::clock::monotonic_ns()))
    }

    /// The one way out, with its stations in order.
    #[inline(always)]
    fn enter(&self, state: &mut PublishState<M>, mut departure: Departure<'_, M>, each: Each<'_>) -> Result<Published> {
        coalescing::begins(departure.now);
        if departure.is_new {
            self.keep_promise(state, departure.now, departure.label.change, &mut departure.content);
            if self.monitor.is_taken() {
                return self.pass_monitor(state, departure, each);
            }
        }
        self.pass(state, departure, each)
    }

    /// Station 1, the judge of the port's promises.
    #[inline(always)]
    fn keep_promise(&self, state: &mut PublishState<M>, now: u64, change: Change, content: &mut Content<'_, M>) {
        if let Some(judge) = &self.judge {
            judge.published(now, change, |bytes| content.copy_to(state, bytes));
        }
    }

    /// Station 2, the monitor, where there is one. It looks at encoded messages.
    #[cold]
    fn pass_monitor(
        &self,
        state: &mut PublishState<M>,
        mut departure: Departure<'_, M>,
        each: Each<'_>,
    ) -> Result<Published> {
        let info = self.info(departure.label, departure.now, None);
        let bytes = departure.content.bytes(state)?;
        let judged = self.monitor.judge(&info, info.received_ns, bytes, None, |_| Some(self.info.name.clone()));
        match judged {
            Judged::Pass => self.pass(state, departure, each),
            Judged::Changed(bytes) => {
                departure.content.give_back(state);
                let published = self.pass(state, Departure { content: Content::Encoded(&bytes), ..departure }, each);
                self.monitor.give_back(bytes);
                published
            }
            // The sample has its sequence number; subscribers see a gap in the numbers and no loss on the channel.
            Judged::Gone => {
                departure.content.give_back(state);
                self.number(state, &departure.label, true);
                Ok(Published { seq: info.seq, ..Published::default() })
            }
        }
    }

    /// Stations 3 to 5: the value, or the message it is encoded as, on all channels; the history; the number.
    #[inline(always)]
    fn pass(&self, state: &mut PublishState<M>, departure: Departure<'_, M>, each: Each<'_>) -> Result<Published> {
        let Departure { label, content, is_new, .. } = departure;
        let PublishState { pool, turn, attached, memory, .. } = state;
        let published = Published { seq: label.seq, ..Published::default() };
        let mut fan_out = FanOut { publisher_port: self, published, label, each };
        let decoded = fan_out.pass_value(attached, &content, memory);
        if self.needs_bytes(attached, label.seq) {
            let mut lent = None;
            let (body, shared) = content.encode(pool, memory.as_mut(), &mut lent)?;
            let mut message = Outgoing::new(label, body, shared);
            fan_out.check_size(message.payload().len())?;
            fan_out.pass(attached, &mut message, turn);
            if let Some(histories) = &self.histories {
                histories.keep_own(message.keep());
            }
            drop(message);
            lent.into_iter().for_each(|buffer| pool.replace(buffer));
        } else {
            content.give_back(state);
        }
        let published = fan_out.published;
        self.number(state, &label, is_new);
        decoded.map(|()| published)
    }

    /// The port's last number. Another port's samples may be older than it.
    #[inline(always)]
    fn number(&self, state: &mut PublishState<M>, label: &Label, is_new: bool) {
        state.seq = state.seq.max(label.seq);
        match is_new {
            true => self.published.store(label.seq, Ordering::Relaxed), // one writer: no locked instruction
            false => drop(self.published.fetch_max(label.seq, Ordering::Relaxed)),
        }
    }

    #[inline]
    pub(in crate::port) fn info(&self, label: Label, received_ns: u64, scaled: Option<Provenance>) -> SampleInfo {
        let Label { seq, stamp, change, historical } = label;
        SampleInfo {
            node: self.me.node,
            port: self.me.port,
            incarnation: self.incarnation,
            seq,
            source_ns: stamp,
            received_ns,
            same_clock: true,
            historical,
            change,
            scaled,
        }
    }
}

impl<'a, M: Message> Content<'a, M> {
    /// The message that all channels share. A lent buffer stays in `lent` meanwhile.
    #[inline(always)]
    fn encode(
        self,
        pool: &'a mut Pool,
        memory: Option<&'a mut Memory>,
        lent: &'a mut Option<Arc<Buffer>>,
    ) -> Result<(Body<'a>, Option<Shared<'a>>)> {
        let body = match self {
            Content::Loan(Place::Slot(loan)) => {
                let shared = Shared::written(memory.ok_or(Error::Closed)?, loan);
                return Ok((Body::Written(pool), Some(shared)));
            }
            Content::Loan(Place::Buffer(buffer)) => Body::Pooled(lent.insert(buffer)),
            Content::Encoded(bytes) => {
                let buffer = pool.exclusive();
                if let Some(free) = Arc::get_mut(buffer) {
                    free.start().extend_from_slice(bytes);
                }
                Body::Pooled(buffer)
            }
            Content::Value(value) => match M::as_bytes(value).filter(|bytes| bytes.len() >= COPY_BELOW) {
                Some(bytes) => Body::External(bytes, pool),
                None => Body::Pooled(encode::<M>(value, pool.exclusive())?),
            },
        };
        Ok((body, memory.map(Shared::nowhere)))
    }

    /// The encoded message, for reading.
    fn bytes<'b>(&'b mut self, state: &'b mut PublishState<M>) -> Result<&'b [u8]> {
        match self {
            Content::Encoded(bytes) => Ok(bytes),
            Content::Loan(place) => Ok(state.bytes_mut(place)),
            Content::Value(value) => match M::as_bytes(value) {
                Some(bytes) => Ok(bytes),
                None => encode::<M>(value, state.pool.exclusive()).map(|buffer| buffer.payload()),
            },
        }
    }

    /// Copies the encoded message. `false`: the value cannot be encoded.
    fn copy_to(&mut self, state: &mut PublishState<M>, bytes: &mut Vec<u8>) -> bool {
        match self {
            Content::Value(value) => return M::encode(value, bytes).is_ok(),
            Content::Encoded(message) => bytes.extend_from_slice(message),
            Content::Loan(place) => bytes.extend_from_slice(state.bytes_mut(place)),
        }
        true
    }

    /// Gives the place of a loan back.
    #[inline]
    fn give_back(self, state: &mut PublishState<M>) {
        if let Content::Loan(place) = self {
            state.give_back(place);
        }
    }
}

#[inline(always)]
fn encode<'a, M: Message>(value: &M::Value, buffer: &'a mut Arc<Buffer>) -> Result<&'a mut Arc<Buffer>> {
    trace::step(Step::Encode);
    match Arc::get_mut(buffer) {
        Some(free) => M::encode(value, free.start()).map_err(|e| Error::Message(format!("cannot encode: {e}")))?,
        None => return Err(Error::Message("cannot encode: the pool lent a buffer twice (a bug of Thalweg's)".into())),
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Raw;
    use crate::node::Node;
    use crate::settings::Settings;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(20);

    /// A relay gets samples of a history after later ones. The next hop delivers and marks them.
    #[test]
    fn a_forwarded_historical_sample_stays_historical() {
        for carrier in ["local", "shm", "tcp", "udp"] {
            let realm = format!("forward-{carrier}-{}", std::process::id());
            let node = || Node::with_settings(Settings { realm: realm.clone(), ..Settings::default() }).unwrap();
            let (gate, there) = (node(), node());
            let publisher = gate.publisher::<Raw>("/a").open().unwrap();
            let (tell, told) = channel();
            let builder = there.subscriber::<Raw>("/a").reliability(qos::Reliability::BestEffort).carriers([carrier]);
            let port = builder.callback(move |s| tell.send((s.info().seq, s.info().historical)).unwrap()).unwrap();
            assert!(publisher.wait_connected(1, LONG) && port.wait_connected(1, LONG));
            let samples = [(1, false), (2, false), (5, false), (3, true), (4, true), (6, false)];
            for (seq, historical) in samples {
                let (me, incarnation) = (publisher.publisher_port.me, publisher.publisher_port.incarnation);
                let info = SampleInfo {
                    node: me.node,
                    port: me.port,
                    incarnation,
                    seq,
                    source_ns: seq,
                    received_ns: seq,
                    same_clock: true,
                    historical,
                    change: Change::Written,
                    scaled: None,
                };
                publisher.publisher_port.forward(&info, b"sample");
            }
            let got: Vec<_> = samples.iter().map_while(|_| told.recv_timeout(LONG).ok()).collect();
            assert_eq!(got, samples, "{carrier}");
            assert_eq!(publisher.publisher_port.published.load(Ordering::Relaxed), 6);
            drop(port);
        }
    }
}
