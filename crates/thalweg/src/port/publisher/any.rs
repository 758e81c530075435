//! The driver's view of a publisher: everything but its message type.

use super::{PublisherPort, SMALL, Way};
use crate::carrier::shm::Memory;
use crate::channel::buffer::Pool;
use crate::channel::{Channel, ChannelReport, End};
use crate::codec::Message;
use crate::control::PortInfo;
use crate::port::monitor::slot::MonitorSlot;
use crate::port::{Histories, Judge, Reply};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Shared-memory slots beyond the queue's limit: those that subscribers may hold while they read, and the one being written.
const SPARE_SLOTS: usize = 256;
/// The least number of slots of the largest size.
const FEWEST_SLOTS: usize = 8;
/// The most shared memory of one port, unless [`FEWEST_SLOTS`] of its largest messages need more. Only pages that were
/// written once cost memory.
const MOST_PAYLOAD: usize = 4 << 30;

/// A publisher without its message type.
pub(crate) trait AnyPublisher: Send + Sync {
    fn info(&self) -> &PortInfo;
    /// Adds a channel and gives the answer before its next sample. This may take until the next sample is published:
    /// [`AnyPublisher::attached`] gives the outcome.
    ///
    /// # Errors
    /// The port is closed, or the type differs (`local`). The way is given back.
    fn attach(&self, channel: Arc<Channel>, way: Way, answer: Option<Reply>) -> std::result::Result<(), (Way, Attach)>;
    /// The outcome of [`AnyPublisher::attach`]: `true` if the channel was added, `None` if that is still open. Given once.
    fn attached(&self, id: u64) -> Option<bool>;
    /// Removes a channel and ends its flow unless others share it. `false`: not yet, ask again.
    fn detach(&self, id: u64) -> bool;
    /// The subscriber of a channel lost its connection. Published samples wait for it, until the channel is detached or replaced.
    /// `false`: this channel does not outlast its connection.
    fn cut_off(&self, channel: &Channel) -> bool;
    /// Sequence number of the last published sample.
    fn last_seq(&self) -> u64;
    /// The channels that are attached, or are being attached or detached. Never waits for the publishing thread.
    fn channels(&self) -> Vec<Arc<Channel>>;
    fn reports(&self) -> Vec<ChannelReport>;
    /// The descriptor of the port's payload memory, which is made if need be, for a reader that may hold `hold` samples.
    ///
    /// # Errors
    /// The kernel's error, and `OutOfMemory` if a reader that may hold as many samples could starve the others.
    fn payload_memory(&self, hold: u32) -> std::io::Result<OwnedFd>;
    /// Takes back a call of [`AnyPublisher::payload_memory`]: its reader is not made.
    fn unhold(&self, hold: u32);
    /// The slot of a monitor of the output.
    fn monitor(&self) -> &MonitorSlot;
    /// The judge by the port's promises.
    fn judge(&self) -> Option<&Arc<Judge>>;
    /// The histories that it keeps, if any.
    fn histories(&self) -> Option<&Arc<Histories>>;
    /// Waits at most a tick for a sample that its monitor holds back, and publishes those that are due.
    fn release(&self);
    /// Gives up a channel that was never attached.
    fn forget(&self, way: Way);
    /// Makes buffers before they are needed: all samples of a channel are handed over from now on.
    fn prepare_to_hand_over(&self);
    /// Gives back buffers that were not needed lately, unless the port is in use at this moment.
    fn trim(&self);
    /// No further sample is taken.
    fn close(&self);
    fn is_closed(&self) -> bool;
}

/// The reason why a channel could not be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    OtherType,
    Closed,
}

impl<M: Message> AnyPublisher for PublisherPort<M> {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn attach(&self, channel: Arc<Channel>, way: Way, answer: Option<Reply>) -> std::result::Result<(), (Way, Attach)> {
        self.begin_join(channel, way, answer)
    }

    fn attached(&self, id: u64) -> Option<bool> {
        self.end_join(id)
    }

    fn detach(&self, id: u64) -> bool {
        self.end_channel(id)
    }

    fn cut_off(&self, channel: &Channel) -> bool {
        let Some(flow) = channel.sent_by() else { return false };
        let keeps = match channel.member.get().filter(|_| flow.is_group()) {
            None => flow.cut_off(),
            Some(member) => flow.outlasts() && flow.cut_off_member(*member),
        };
        if keeps {
            if !channel.cut_off.swap(true, Ordering::Relaxed) {
                self.cut_off.fetch_add(1, Ordering::Relaxed);
            }
            channel.close();
            if flow.is_group() && !self.has_members(&flow) {
                flow.cut_off();
            }
        }
        keeps
    }

    fn payload_memory(&self, hold: u32) -> std::io::Result<OwnedFd> {
        let (largest, limit) = (self.info.qos.max_message as usize, self.info.qos.queue.limit() as usize);
        let wanted = Memory::capacity_for(limit + SPARE_SLOTS, largest).min(MOST_PAYLOAD);
        let capacity = wanted.max(Memory::capacity_for(FEWEST_SLOTS, largest));
        // A loan never fails while all readers together hold less than this: a subscriber that hoards samples harms only itself.
        let slots = capacity / Memory::capacity_for(1, largest);
        let held = self.held.load(Ordering::Relaxed) + hold as usize;
        if limit.min(slots / 2) + held + 1 > slots {
            let why = format!(
                "{held} samples could be held at once, and there is room for {slots}: lower max_message or the queues"
            );
            return Err(std::io::Error::new(std::io::ErrorKind::OutOfMemory, why));
        }
        if self.payload.get().is_none() {
            let memory = Memory::create(capacity, largest)?;
            let _ = self.payload.set(memory.descriptor().try_clone_to_owned()?);
            *self.fresh.lock() = Some(memory);
        }
        let fd = self.payload.get().ok_or(std::io::ErrorKind::NotFound)?.try_clone()?;
        self.held.fetch_add(hold as usize, Ordering::Relaxed);
        Ok(fd)
    }

    fn unhold(&self, hold: u32) {
        self.held.fetch_sub(hold as usize, Ordering::Relaxed);
    }

    fn monitor(&self) -> &MonitorSlot {
        &self.monitor
    }
    fn histories(&self) -> Option<&Arc<Histories>> {
        self.histories.as_ref()
    }

    fn judge(&self) -> Option<&Arc<Judge>> {
        self.judge.as_ref()
    }

    fn release(&self) {
        self.release_late();
    }

    fn forget(&self, way: Way) {
        match way {
            Way::Flow(flow) => flow.end(),
            Way::Ring(ring) => self.unhold(ring.hold()),
            Way::Group(_) | Way::Local(_) => {}
        }
    }

    fn last_seq(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    fn channels(&self) -> Vec<Arc<Channel>> {
        self.channels.lock().iter().filter(|channel| !channel.is_closed()).cloned().collect()
    }

    fn reports(&self) -> Vec<ChannelReport> {
        let Some(state) = self.try_lock_patiently() else { return Vec::new() };
        let most = self.info.qos.queue_bytes();
        state.attached.iter().map(|a| a.channel.report(End::Publisher, a.waiting(), (a.bytes(), most))).collect()
    }

    fn prepare_to_hand_over(&self) {
        let waiting = self.prepared();
        let mut spare = Pool::with_buffers(waiting, SMALL);
        // Without these buffers the publishing thread makes one whenever more samples wait than ever before.
        if let Some(mut state) = self.try_lock_patiently() {
            state.pool.grow_to(waiting, &mut spare);
        }
    }

    fn trim(&self) {
        let given = self.state.try_lock().map(|mut state| state.pool.trim());
        drop(given); // when the port is not held any more
        self.channels.lock().iter().filter_map(|channel| channel.sent_by()).for_each(|flow| flow.trim());
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.drop_joins();
        let mut state = self.state.lock();
        let mut attached = std::mem::take(&mut state.attached);
        let mut memory = state.memory.take();
        drop(state);
        attached.iter_mut().for_each(|a| a.end(memory.as_mut()));
        self.channels.lock().clear();
        self.connected.store(0, Ordering::Release);
        self.cut_off.store(0, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.is_closing()
    }
}
