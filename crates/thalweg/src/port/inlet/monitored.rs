//! Samples of a subscriber whose input has a monitor. Not the usual way: only ports with one come here.

use super::{Delivery, Inlet, Payload, Sink};
use crate::codec::Message;
use crate::port::monitor::seat::{Judged, Late};
use crate::port::{LOCAL, PortRef, SampleInfo};

impl<M: Message> Inlet<M> {
    /// Shows a sample to the monitor, and delivers what it lets pass.
    #[cold]
    pub(super) fn deliver_monitored(&self, delivery: Delivery<'_>, to_mailbox: bool) {
        let Delivery { info, payload } = delivery;
        match self.judge(&info, payload.bytes(), to_mailbox) {
            Judged::Pass => self.pass_on(info, payload, to_mailbox),
            Judged::Changed(bytes) => {
                self.pass_on(info, Payload::Bytes(&bytes), to_mailbox);
                self.monitor.give_back(bytes);
            }
            Judged::Gone => {}
        }
    }

    /// As [`Inlet::hand_over`], for a port with a monitor, which looks at encoded messages.
    #[cold]
    pub(super) fn hand_over_monitored(&self, info: SampleInfo, value: &M::Value) {
        let mut encoded = Vec::new();
        let bytes = match M::as_bytes(value) {
            Some(bytes) => bytes,
            None => match M::encode(value, &mut encoded) {
                Ok(()) => &encoded,
                Err(problem) => return self.cannot_decode(&problem.to_string()),
            },
        };
        match self.judge(&info, bytes, false) {
            Judged::Pass => self.show(info, value),
            Judged::Changed(bytes) => {
                self.call(info, &bytes);
                self.monitor.give_back(bytes);
            }
            Judged::Gone => {}
        }
    }

    fn judge(&self, info: &SampleInfo, bytes: &[u8], to_mailbox: bool) -> Judged {
        self.monitor.judge(info, info.received_ns, bytes, to_mailbox, |port| self.name_of(port))
    }

    /// Looked up for the first sample of each publisher. A `local` channel may deliver before it is in the list.
    fn name_of(&self, publisher: PortRef) -> Option<String> {
        let listed = {
            let channels = self.channels.lock().unwrap_or_else(|e| e.into_inner());
            channels.iter().find(|c| c.publisher == publisher).map(|c| c.publisher_name.clone())
        };
        listed.or_else(|| LOCAL.publishers().get(&publisher).map(|outlet| outlet.info().name.clone()))
    }

    fn pass_on(&self, info: SampleInfo, payload: Payload<'_>, to_mailbox: bool) {
        match &self.sink {
            Sink::Callback(_) if !to_mailbox => self.call(info, payload.bytes()),
            _ => self.store(info, payload),
        }
    }

    /// Waits at most a tick for a late sample, and delivers those that are due.
    pub(super) fn release_late(&self) {
        let seat = &self.monitor;
        seat.wait(crate::carrier::TICK);
        while let Some(late) = seat.next_due() {
            let Late { info, bytes, to_mailbox, .. } = &late;
            let info = SampleInfo { received_ns: linux::clock::monotonic_ns(), ..*info };
            // A polled port's callback runs on its owner's thread only.
            self.pass_on(info, Payload::Bytes(bytes), *to_mailbox || self.polled);
            seat.released(late);
        }
    }
}
