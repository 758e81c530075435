//! Samples of a publisher whose output has a monitor. Not the usual way: only ports with one come here.

use super::{Outflow, Outlet, Place, encode};
use crate::channel::outgoing::Outgoing;
use crate::channel::queue::Label;
use crate::codec::Message;
use crate::error::Result;
use crate::port::monitor::seat::{Judged, Late};
use crate::port::round::Round;
use crate::port::{Change, Channel, Outcome, Published, SampleInfo};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What is told of each channel.
type Each<'a> = &'a mut dyn FnMut(&Channel, Outcome);

impl<M: Message> Outlet<M> {
    /// Shows a value to the monitor. `None`: it passes, and goes the usual way.
    #[cold]
    pub(super) fn monitored(
        &self,
        state: &mut Outflow<M>,
        (now, change): (u64, Change),
        value: &M::Value,
        each: Each<'_>,
    ) -> Option<Result<Published>> {
        let label = |seq| Label { seq, stamp: now, change };
        let judged = match M::as_bytes(value) {
            Some(bytes) => self.judge(label(state.seq + 1), bytes),
            None => {
                let buffer = state.pool.exclusive();
                if let Err(problem) = encode::<M>(value, buffer) {
                    return Some(Err(problem));
                }
                self.judge(label(state.seq + 1), buffer.payload())
            }
        };
        self.judged(state, label(state.seq + 1), judged, each)
    }

    /// Shows a loaned message to the monitor. `None`: it passes, and goes the usual way.
    #[cold]
    pub(super) fn monitored_loan(
        &self,
        state: &mut Outflow<M>,
        now: u64,
        place: &mut Place,
    ) -> Option<Result<Published>> {
        let label = Label { seq: state.seq + 1, stamp: now, change: Change::Written };
        let judged = self.judge(label, state.bytes_mut(place));
        self.judged(state, label, judged, &mut |_, _| {})
    }

    fn judge(&self, Label { seq, stamp: now, change }: Label, bytes: &[u8]) -> Judged {
        let (node, port) = (self.me.node, self.me.port);
        let incarnation = self.incarnation;
        let info = SampleInfo {
            node,
            port,
            incarnation,
            seq,
            source_ns: now,
            received_ns: now,
            same_clock: true,
            historical: false,
            change,
            scaled: None,
        };
        self.monitor.judge(&info, now, bytes, false, |_| Some(self.info.name.clone()))
    }

    fn judged(
        &self,
        state: &mut Outflow<M>,
        label: Label,
        judged: Judged,
        each: Each<'_>,
    ) -> Option<Result<Published>> {
        let seq = label.seq;
        let published = match judged {
            Judged::Pass => return None,
            Judged::Changed(bytes) => {
                let published = self.publish_bytes(state, label, &bytes, each);
                self.monitor.give_back(bytes);
                published
            }
            // It has its sequence number; subscribers see a gap in the numbers and no loss on the channel.
            Judged::Gone => Ok(Published { seq, ..Published::default() }),
        };
        if published.is_ok() {
            state.seq = seq;
            self.published.store(seq, Ordering::Relaxed);
        }
        Some(published)
    }

    /// Passes on a sample of another port as what it is: its number and stamp stay.
    pub(crate) fn forward(&self, info: &SampleInfo, bytes: &[u8]) {
        let Ok((mut state, _)) = self.begin() else { return };
        // Its channels count what happens to it; there is nobody to be told.
        let _ = self.publish_bytes(&mut state, label_of(info), bytes, &mut |_, _| {});
        state.seq = info.seq;
        self.published.store(info.seq, Ordering::Relaxed);
    }

    fn publish_bytes(
        &self,
        state: &mut Outflow<M>,
        Label { seq, stamp, change }: Label,
        bytes: &[u8],
        each: Each<'_>,
    ) -> Result<Published> {
        let Outflow { pool, attached, arena, .. } = state;
        let published = Published { seq, ..Published::default() };
        let mut round = Round { outlet: self, published, now: stamp, change, each };
        round.check_size(bytes.len())?;
        let decoded = round.decode_and_hand_over(attached, bytes);
        if self.needs_bytes(attached, seq) {
            let buffer = pool.exclusive();
            if let Some(free) = Arc::get_mut(buffer) {
                free.start().extend_from_slice(bytes);
            }
            round.share(attached, arena, buffer.payload());
            let mut message = Outgoing::pooled(seq, stamp, buffer).saying(change);
            round.offer(attached, &mut message);
            self.remember(&mut message);
        }
        decoded.map(|()| round.published)
    }

    /// Waits at most a tick for a late sample, and publishes those that are due.
    pub(super) fn release_late(&self) {
        self.monitor.wait(crate::carrier::TICK);
        let mut state = self.state.lock();
        while let Some(late) = self.monitor.next_due() {
            let Late { info, bytes, .. } = &late;
            // Its channels count what happens to it; there is nobody to be told.
            let _ = self.publish_bytes(&mut state, label_of(info), bytes, &mut |_, _| {});
            self.monitor.released(late);
        }
    }
}

/// A sample that was one before.
fn label_of(info: &SampleInfo) -> Label {
    Label { seq: info.seq, stamp: info.source_ns, change: info.change }
}
