//! Samples of a subscriber whose input has a monitor. Not the usual way: only ports with one come here.

use super::{Inlet, Sink};
use crate::channel::memory::Account;
use crate::channel::{Delivery, Payload, PortRef, SampleInfo};
use crate::codec::Message;
use crate::port::LOCAL;
use crate::port::monitor::seat::{Judged, Late, Onward};
use std::sync::Arc;

impl<M: Message> Inlet<M> {
    /// Shows a sample to the monitor, and delivers what it lets pass.
    #[cold]
    pub(super) fn deliver_monitored(&self, delivery: Delivery<'_>, to_mailbox: bool) {
        match self.judge(&delivery.info, delivery.payload.bytes(), (to_mailbox, delivery.account)) {
            Judged::Pass => self.pass_on(delivery, to_mailbox),
            Judged::Changed(bytes) => {
                self.pass_on(Delivery { payload: Payload::Bytes(&bytes), ..delivery }, to_mailbox);
                self.monitor.give_back(bytes);
            }
            Judged::Gone => {}
        }
    }

    /// As [`Inlet::hand_over`], for a port with a monitor, which looks at encoded messages.
    #[cold]
    pub(super) fn hand_over_monitored(&self, info: SampleInfo, value: &M::Value, account: &Arc<Account>) {
        let mut encoded = Vec::new();
        let bytes = match M::as_bytes(value) {
            Some(bytes) => bytes,
            None => match M::encode(value, &mut encoded) {
                Ok(()) => &encoded,
                Err(problem) => return self.cannot_decode(&problem.to_string()),
            },
        };
        match self.judge(&info, bytes, (false, account)) {
            Judged::Pass => self.show(info, value),
            Judged::Changed(bytes) => {
                self.call(info, &bytes);
                self.monitor.give_back(bytes);
            }
            Judged::Gone => {}
        }
    }

    fn judge(&self, info: &SampleInfo, bytes: &[u8], (to_mailbox, account): (bool, &Arc<Account>)) -> Judged {
        let onward = Some(Onward { to_mailbox, account });
        self.monitor.judge(info, info.received_ns, bytes, onward, |port| self.name_of(port))
    }

    /// Looked up for the first sample of each publisher. A `local` channel may deliver before it is in the list.
    fn name_of(&self, publisher: PortRef) -> Option<String> {
        let listed = {
            let channels = self.channels.lock().unwrap_or_else(|e| e.into_inner());
            channels.iter().find(|c| c.publisher == publisher).map(|c| c.publisher_name.clone())
        };
        listed.or_else(|| LOCAL.publishers().get(&publisher).map(|outlet| outlet.info().name.clone()))
    }

    fn pass_on(&self, delivery: Delivery<'_>, to_mailbox: bool) {
        match &self.sink {
            Sink::Callback(_) if !to_mailbox => self.call(delivery.info, delivery.payload.bytes()),
            _ => self.store(delivery),
        }
    }

    /// Waits at most a tick for a late sample, and delivers those that are due.
    pub(super) fn release_late(&self) {
        let seat = &self.monitor;
        seat.wait(crate::carrier::TICK);
        while let Some(late) = seat.next_due() {
            let Late { info, bytes, onward, .. } = &late;
            let info = SampleInfo { received_ns: linux::clock::monotonic_ns(), ..*info };
            if let Some(Onward { to_mailbox, account }) = onward {
                // A polled port's callback runs on its owner's thread only.
                self.pass_on(Delivery { info, payload: Payload::Bytes(bytes), account }, *to_mailbox || self.polled);
            }
            seat.released(late);
        }
    }
}
