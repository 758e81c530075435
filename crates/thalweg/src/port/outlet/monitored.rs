//! Samples of a publisher whose output has a monitor. Not the usual way: only ports with one come here.

use super::{Outflow, Outlet, Place, encode};
use crate::channel::outgoing::Outgoing;
use crate::channel::queue::Label;
use crate::channel::{Change, Channel, Outcome, SampleInfo, coalescing};
use crate::codec::Message;
use crate::error::Result;
use crate::port::Published;
use crate::port::monitor::seat::{Judged, Late};
use crate::port::round::Round;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The callback that is given the outcome on each channel.
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
        let label = |seq| Label { seq, stamp: now, change, historical: false };
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
        let label = Label { seq: state.seq + 1, stamp: now, ..Label::default() };
        let judged = self.judge(label, state.bytes_mut(place));
        self.judged(state, label, judged, &mut |_, _| {})
    }

    fn judge(&self, Label { seq, stamp: now, change, .. }: Label, bytes: &[u8]) -> Judged {
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
        self.monitor.judge(&info, now, bytes, None, |_| Some(self.info.name.clone()))
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
        let Ok((mut state, now)) = self.begin() else { return };
        coalescing::begins(now);
        // Its channels count what happens to it; there is nobody to be told.
        let _ = self.publish_bytes(&mut state, label_of(info), bytes, &mut |_, _| {});
        state.seq = state.seq.max(info.seq);
        self.published.fetch_max(info.seq, Ordering::Relaxed);
    }

    fn publish_bytes(
        &self,
        state: &mut Outflow<M>,
        Label { seq, stamp, change, historical }: Label,
        bytes: &[u8],
        each: Each<'_>,
    ) -> Result<Published> {
        let Outflow { pool, turn, attached, arena, .. } = state;
        let published = Published { seq, ..Published::default() };
        let mut round = Round { outlet: self, published, now: stamp, change, historical, each };
        round.check_size(bytes.len())?;
        let decoded = round.decode_and_hand_over(attached, bytes);
        if self.needs_bytes(attached, seq) {
            let buffer = pool.exclusive();
            if let Some(free) = Arc::get_mut(buffer) {
                free.start().extend_from_slice(bytes);
            }
            round.share(attached, arena, buffer.payload());
            let mut message = Outgoing::pooled(seq, stamp, buffer).saying(change).historical(historical);
            round.offer(attached, &mut message, turn);
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
            coalescing::begins(linux::clock::monotonic_ns());
            // Its channels count what happens to it; there is nobody to be told.
            let _ = self.publish_bytes(&mut state, label_of(info), bytes, &mut |_, _| {});
            self.monitor.released(late);
        }
    }
}

/// A sample that was one before.
fn label_of(info: &SampleInfo) -> Label {
    Label { seq: info.seq, stamp: info.source_ns, change: info.change, historical: info.historical }
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
    fn what_is_passed_on_stays_historical() {
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
                let (me, incarnation) = (publisher.outlet.me, publisher.outlet.incarnation);
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
                publisher.outlet.forward(&info, b"sample");
            }
            let got: Vec<_> = samples.iter().map_while(|_| told.recv_timeout(LONG).ok()).collect();
            assert_eq!(got, samples, "{carrier}");
            assert_eq!(publisher.outlet.published.load(Ordering::Relaxed), 6);
            drop(port);
        }
    }
}
