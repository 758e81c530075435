//! Samples in a ring of shared memory: they are accepted and delivered in place.

use super::deliver::{accepts, deliver, info};
use super::{Inbound, Source, Step};
use crate::carrier::TICK;
use crate::channel::Payload;
use crate::channel::queue::Label;
use crate::trace;
use linux::memory::{TakeError, Taken};
use std::time::Duration;

/// Samples of a ring that one step delivers at most, so that a closed channel is noticed under load.
const RING_STEP: u32 = 64;
/// Pause while the application holds as many samples of a ring as it may.
pub(crate) const HELD_PAUSE: Duration = Duration::from_micros(500);

impl Inbound {
    /// Delivers the samples in the ring, and waits up to the tick if `wait`.
    pub(super) fn step_ring(&mut self, wait: bool) -> Step {
        let Source::Ring(ring) = &mut self.source else { return Step::Nothing };
        match (wait, self.without_end) {
            (true, true) => ring.wait_without_end(),
            (true, false) => drop(ring.wait(TICK)),
            _ => {}
        }
        // Read before the ring: samples that were pushed before the end are still taken.
        let over = ring.writer_closed() || self.channel.is_closed();
        let (mut delivered, mut held) = (0, false);
        while delivered < RING_STEP {
            let Source::Ring(ring) = &mut self.source else { return Step::Nothing };
            match ring.try_next() {
                Ok(Some(taken)) if taken.len() > self.max_message => {
                    let (size, most) = (taken.len(), self.max_message);
                    ring.give_back(taken);
                    return Step::Ended(format!(
                        "a message of {size} bytes in shared memory is over the limit of {most}"
                    ));
                }
                Ok(Some(taken)) => {
                    trace::step(trace::Step::Receive);
                    trace::step(trace::Step::Parse); // try_next checks each index that it reads
                    delivered += u32::from(self.accept_taken(taken));
                }
                Ok(None) => break,
                Err(TakeError::TooManyHeld { .. }) => {
                    // The application holds all samples that it may: no more come until it releases one.
                    std::thread::sleep(HELD_PAUSE);
                    held = true;
                    break;
                }
                Err(TakeError::Violation(what)) => return Step::Ended(format!("protocol violation: {what}")),
            }
        }
        match delivered {
            0 if over && !held => Step::Ended("the publisher closed".to_owned()),
            0 => Step::Nothing,
            _ => Step::Delivered(delivered),
        }
    }

    /// Delivers a sample of the ring unless it is a duplicate or is left out here; `true` if it did. A port that keeps samples
    /// borrows it; a callback reads it in place.
    #[inline]
    fn accept_taken(&mut self, taken: Taken) -> bool {
        let Self { source: Source::Ring(ring), accept, channel, inlet, .. } = self else { return false };
        let meta = taken.meta;
        let label = Label::with(meta.seq, meta.stamp_ns, meta.kind as u16);
        if !(accept.frame(meta.flow_seq).is_new() && accepts(accept, channel, &label, taken.len())) {
            ring.give_back(taken);
            return false;
        }
        let info = info(channel, label, linux::clock::monotonic_ns());
        if inlet.keeps() {
            deliver(channel, inlet.as_ref(), info, Payload::Shared(ring.keep(taken)), None);
        } else {
            deliver(channel, inlet.as_ref(), info, Payload::Bytes(ring.bytes(&taken)), None);
            ring.give_back(taken);
        }
        true
    }
}
