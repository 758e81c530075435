//! The way of every sample into a port (steps 10 to 12 of the data path): the policies' judge, the history, the monitor,
//! and at its end the callback or the mailbox. Readers, gates, publishers of this process and late monitors all begin here.

#![allow(clippy::disallowed_methods)] // samples are stamped, and waits are measured

use super::{Sink, SubscriberPort};
use crate::channel::buffer::Buffer;
use crate::channel::memory::Account;
use crate::channel::{Deliver, Delivery, Payload, PortRef, SampleInfo};
use crate::codec::{CodecError, Decoded, Message};
use crate::port::LocalChannel;
use crate::port::monitor::slot::{AfterMonitor, Judged, Late};
use crate::port::{LOCAL, Sample};
use crate::trace::{self, Step};
use qos::Durability;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A sample at the entrance of a port.
pub(super) struct Arrival<'a, M: Message> {
    info: &'a SampleInfo,
    content: Content<'a, M>,
    /// The account of the peer at the other end of its channel: a waiting sample is charged to it.
    account: &'a Arc<Account>,
    /// The bringing thread is not the one that calls back: the sample goes to the mailbox in any case.
    to_mailbox: bool,
}

/// The content of a sample.
enum Content<'a, M: Message> {
    /// The encoded message.
    Encoded(Payload<'a>),
    /// The value itself, of a publisher in this process. Ports that judge or keep samples take no values: [`SubscriberPort::new`].
    Value(&'a M::Value),
}

impl<'a, M: Message> Arrival<'a, M> {
    #[inline]
    fn encoded(info: &'a SampleInfo, payload: Payload<'a>, account: &'a Arc<Account>, to_mailbox: bool) -> Self {
        Self { info, content: Content::Encoded(payload), account, to_mailbox }
    }
}

impl<M: Message> SubscriberPort<M> {
    /// The one way in, with its stations in order.
    #[inline(always)]
    fn enter(&self, arrival: Arrival<'_, M>) {
        trace::step(Step::Deliver);
        if !self.admits(&arrival) {
            return;
        }
        self.keep(&arrival);
        if self.monitor.is_taken() {
            return self.pass_monitor(arrival);
        }
        self.hand_on(arrival);
    }

    /// Station 1, the policies: `true` if they let the sample pass.
    #[inline(always)]
    fn admits(&self, arrival: &Arrival<'_, M>) -> bool {
        match (&self.judge, &arrival.content) {
            (Some(judge), Content::Encoded(payload)) => judge.takes(arrival.info, payload.bytes()),
            _ => true,
        }
    }

    /// Station 2, the history, where there is one: it keeps the sample.
    #[inline(always)]
    fn keep(&self, arrival: &Arrival<'_, M>) {
        if let (Some(histories), Content::Encoded(payload)) = (&self.histories, &arrival.content) {
            histories.keep_arrived(arrival.info, payload);
        }
    }

    /// Station 3, the monitor, where there is one. It looks at encoded messages.
    #[cold]
    fn pass_monitor(&self, arrival: Arrival<'_, M>) {
        let Arrival { info, account, to_mailbox, .. } = arrival;
        let mut encoded = Vec::new();
        let bytes = match arrival.content.bytes(&mut encoded) {
            Ok(bytes) => bytes,
            Err(problem) => return self.cannot_decode(&problem.to_string()),
        };
        let after_monitor = Some(AfterMonitor { to_mailbox, account });
        match self.monitor.judge(info, info.received_ns, bytes, after_monitor, |port| self.name_of(port)) {
            Judged::Pass => self.hand_on(arrival),
            Judged::Changed(bytes) => {
                self.hand_on(Arrival { content: Content::Encoded(Payload::Bytes(&bytes)), ..arrival });
                self.monitor.give_back(bytes);
            }
            Judged::Gone => {}
        }
    }

    /// The last station: the callback, on this thread, or the mailbox.
    #[inline(always)]
    fn hand_on(&self, Arrival { info, content, account, to_mailbox }: Arrival<'_, M>) {
        match (content, &self.sink) {
            (Content::Value(value), _) => self.call_back(Sample { info: *info, value: Decoded::Borrowed(value) }),
            (Content::Encoded(payload), Sink::Callback(_)) if !to_mailbox => self.call(info, payload.bytes()),
            (Content::Encoded(payload), _) => self.store(info, payload, account),
        }
    }

    /// Calls the user's callback with a message.
    #[inline]
    pub(crate) fn call(&self, info: &SampleInfo, bytes: &[u8]) {
        if !self.calls_back() {
            return;
        }
        trace::step(Step::Decode);
        match M::decode(bytes) {
            Ok(value) => self.call_back(Sample { info: *info, value }),
            Err(problem) => self.cannot_decode(&problem.to_string()),
        }
    }

    #[inline(always)]
    fn call_back(&self, sample: Sample<'_, M>) {
        let Sink::Callback(callback) = &self.sink else { return };
        let mut callback = callback.lock();
        trace::step(Step::Callback);
        self.in_callback.store(sample.info.seq, Ordering::Relaxed);
        callback(sample);
        self.in_callback.store(0, Ordering::Relaxed);
    }

    /// The name of a publisher, looked up for its first sample. A `local` channel may deliver before it is in the list.
    fn name_of(&self, publisher: PortRef) -> Option<String> {
        let listed = {
            let channels = self.channels.lock().unwrap_or_else(|e| e.into_inner());
            channels.iter().find(|c| c.publisher == publisher).map(|c| c.publisher_name.clone())
        };
        listed.or_else(|| LOCAL.publishers().get(&publisher).map(|publisher_port| publisher_port.info().name.clone()))
    }

    /// Waits at most a tick for a sample that the monitor held back. The due samples continue behind the monitor.
    pub(super) fn release_late(&self) {
        let slot = &self.monitor;
        slot.wait(crate::carrier::TICK);
        while let Some(late) = slot.next_due() {
            let Late { info, bytes, after_monitor, .. } = &late;
            let info = SampleInfo { received_ns: linux::clock::monotonic_ns(), ..*info };
            if let Some(AfterMonitor { to_mailbox, account }) = after_monitor {
                // A polled port's callback runs on its owner's thread only.
                let to_mailbox = *to_mailbox || self.polled;
                self.hand_on(Arrival::encoded(&info, Payload::Bytes(bytes), account, to_mailbox));
            }
            slot.released(late);
        }
    }
}

impl<M: Message> Content<'_, M> {
    /// The encoded message; a value without one is encoded into this memory.
    fn bytes<'a>(&'a self, memory: &'a mut Vec<u8>) -> Result<&'a [u8], CodecError> {
        match self {
            Content::Encoded(payload) => Ok(payload.bytes()),
            Content::Value(value) => match M::as_bytes(value) {
                Some(bytes) => Ok(bytes),
                None => M::encode(value, memory).map(|()| &**memory),
            },
        }
    }
}

impl<M: Message> Deliver for SubscriberPort<M> {
    fn deliver(&self, Delivery { info, payload, account }: Delivery<'_>) {
        self.enter(Arrival::encoded(&info, payload, account, false));
    }
    fn deliver_elsewhere(&self, Delivery { info, payload, account }: Delivery<'_>) {
        self.enter(Arrival::encoded(&info, payload, account, self.polled));
    }
    fn keeps(&self) -> bool {
        matches!(self.sink, Sink::Mailbox)
    }
    fn blocks(&self) -> bool {
        SubscriberPort::blocks(self)
    }
}

impl<M: Message> LocalChannel<M> for SubscriberPort<M> {
    fn late(&self) -> u32 {
        if self.info.qos.durability == Durability::TransientLocal { self.info.qos.history } else { 0 }
    }
    fn expect_history(&self, samples: usize) {
        SubscriberPort::expect_history(self, samples);
    }
    fn calls_back(&self) -> bool {
        matches!(self.sink, Sink::Callback(_))
    }
    fn wants_value(&self) -> bool {
        self.on_publisher && self.calls_back()
    }
    fn value(&self, info: SampleInfo, value: &M::Value, account: &Arc<Account>) {
        self.enter(Arrival { info: &info, content: Content::Value(value), account, to_mailbox: false });
    }
    fn buffer(&self, info: SampleInfo, buffer: &Arc<Buffer>, account: &Arc<Account>) {
        // The callback runs on the port's own thread.
        self.enter(Arrival::encoded(&info, Payload::Pooled(buffer), account, true));
    }
}
