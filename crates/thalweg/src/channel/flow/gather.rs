//! Waiting messages leave together, on a stream or in one datagram: one send for many small messages, copied behind each other.

use super::Flow;
use super::batch::{BYTES, Batch, room};
use super::waiting::{Drained, Pending};
use crate::channel::queue::Entry;
use crate::trace::stages::Stage;
use crate::trace::{self, Step};
use crate::wire::HEADER;
use linux::clock::monotonic_ns;
use std::sync::Arc;
use std::time::Duration;

/// The outcome of gathering.
pub(super) enum Gathered {
    /// No messages to gather: at most one waits, or the first is a large one.
    Nothing,
    /// The gathered messages have left.
    Sent,
    /// It has to wait.
    Waits(Drained),
}

impl Flow {
    /// Sends the waiting small messages in one piece, if there are several. Called by the holder of the send right.
    pub(super) fn send_gathered(self: &Arc<Self>) -> Gathered {
        let batching = self.settings.sending.batching;
        if !self.gathers() || (self.bucket.is_some() && batching.is_none()) {
            return Gathered::Nothing;
        }
        // In this order: a batch that fails ends the flow, and that empties the queue.
        let mut batch = self.batch.lock();
        if !self.capabilities.stream && !batch.is_empty() && !self.flush(&mut batch, Duration::ZERO) {
            return Gathered::Waits(self.held());
        }
        let mut pending = self.pending.lock();
        if pending.partial.is_some() || pending.queue.len() < 2 {
            return Gathered::Nothing;
        }
        self.expire(&mut pending);
        let burst =
            self.settings.sending.limit.map_or(usize::MAX, |limit| limit.burst.try_into().unwrap_or(usize::MAX));
        let outer = self.outer_header();
        let most = self.most_batched(batching.map_or(BYTES, |batching| batching.bytes).min(burst));
        let (count, size) = gathers(&pending, most.saturating_sub(outer), self.most_batched_alone());
        if count < 2 {
            return Gathered::Nothing;
        }
        // With a limit they are one datagram.
        if let Err(pause) = self.allowed(outer + size) {
            return Gathered::Waits(Drained::Pause(pause));
        }
        batch.make_room(room(size));
        let begun_ns = monotonic_ns();
        for _ in 0..count {
            let fits = |entry: &Entry| !self.overflows(&batch, entry.label(), entry.buffer.payload().len());
            if !pending.queue.iter().next().is_some_and(fits) {
                break;
            }
            let Some(entry) = pending.queue.pop() else { break };
            trace::step(Step::Next);
            self.move_to_batch(&mut batch, &entry, begun_ns);
        }
        drop(pending);
        self.left_queue();
        if self.flush(&mut batch, Duration::ZERO) { Gathered::Sent } else { Gathered::Waits(self.held()) }
    }

    fn move_to_batch(&self, batch: &mut Batch, entry: &Entry, now_ns: u64) {
        if let Some(stages) = self.stages.get().filter(|_| entry.offered != 0) {
            stages.note(now_ns, &[(Stage::Queue, now_ns.saturating_sub(entry.offered))]);
            batch.measured += 1;
        }
        self.append(batch, now_ns, entry.label(), entry.buffer.payload());
    }

    /// Notes the time that sending a batch took, for each of its messages that is measured.
    #[cold]
    pub(super) fn note_gathered(&self, batch: &mut Batch, now_ns: u64) {
        let took = (Stage::Send, now_ns.saturating_sub(batch.since_ns));
        let count = std::mem::take(&mut batch.measured);
        if let Some(stages) = self.stages.get() {
            (0..count).for_each(|_| stages.note(now_ns, &[took]));
        }
    }
}

/// The number of waiting messages that leave together, the oldest first, and their bytes as frames; each has at most `longest`.
fn gathers(pending: &Pending, most: usize, longest: usize) -> (usize, usize) {
    let (mut count, mut size) = (0, 0);
    for entry in pending.queue.iter() {
        let frame = HEADER + entry.buffer.payload().len();
        if frame > (HEADER + most / 4).min(longest) || size + frame > most {
            break;
        }
        (count, size) = (count + 1, size + frame);
    }
    (count, size)
}
