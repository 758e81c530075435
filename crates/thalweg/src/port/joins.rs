//! Joins and leaves of a port's channels. The publishing thread has the port while it publishes and while it holds a loan.
//! Joins and leaves of that time wait here for the next thread that has the port: at the latest the publishing thread at its
//! next sample. It neither waits nor allocates for that: all memory comes along, and the rest of it goes back.

#![allow(clippy::disallowed_methods)] // samples are stamped, and waits are measured

use super::LocalChannel;
use super::publisher::{Attach, Attached, PublishState, PublisherPort, SMALL, TypedWay, Way};
use super::{AnyPublisher, SubscriberPort};
use crate::channel::buffer::Pool;
use crate::channel::flow::Flow;
use crate::channel::queue::Entry;
use crate::channel::{Channel, inbound};
use crate::codec::Message;
use linux::lock::PiMutex;
use qos::Durability::Volatile;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An answer to a subscriber that is sent once, with the number of the last sample before its channel joined.
pub(crate) type Reply = Box<dyn FnOnce(u64) + Send>;

/// The pending joins and leaves of one port.
pub(super) struct Joins<M: Message> {
    any: AtomicBool,
    queue: PiMutex<JoinQueue<M>>,
}

struct JoinQueue<M: Message> {
    waiting: Vec<Move<M>>,
    /// Has room for all that wait.
    done: Vec<(u64, Done<M>)>,
}

enum Move<M: Message> {
    Join(Join<M>),
    Leave(u64),
}

struct Join<M: Message> {
    channel: Arc<Channel>,
    way: TypedWay<M>,
    answer: Option<Reply>,
    /// A longer list of channels, and buffers for samples that wait in a subscriber of this process or for an acknowledgement.
    room: Vec<Attached<M>>,
    spare: Pool,
    buffers: usize,
}

enum Done<M: Message> {
    /// The channel joined. With the answer, if it may follow the first sample, and unneeded memory, to be freed elsewhere.
    Joined {
        answer: Option<Reply>,
        /// The number of the last sample before.
        after: u64,
        _room: Vec<Attached<M>>,
        _spare: Pool,
        /// The channel that gave way to it.
        replaced: Option<Attached<M>>,
    },
    Refused(Join<M>),
    Left(Option<Attached<M>>),
}

impl<M: Message> Default for Joins<M> {
    fn default() -> Self {
        Self { any: AtomicBool::new(false), queue: PiMutex::new(JoinQueue { waiting: Vec::new(), done: Vec::new() }) }
    }
}

impl<M: Message> Joins<M> {
    fn wait(&self, queue: &mut JoinQueue<M>, to: Move<M>) {
        queue.waiting.push(to);
        queue.done.reserve(queue.waiting.len());
        self.any.store(true, Ordering::Relaxed);
    }

    /// Lets a channel leave, once. Gives the outcome if it is known already.
    fn ask_leave(&self, id: u64) -> Option<Done<M>> {
        let queue = &mut *self.queue.lock();
        let done = queue.done.iter().position(|(of, _)| *of == id).map(|at| queue.done.swap_remove(at).1);
        let over = done.filter(|done| !matches!(done, Done::Joined { .. }));
        let asked = queue.waiting.iter().any(|to| matches!(to, Move::Leave(of) if *of == id));
        if over.is_none() && !asked {
            self.wait(queue, Move::Leave(id));
        }
        over
    }

    /// The outcome of a channel's move; `None` while it waits.
    fn take_done(&self, id: u64) -> Option<Option<Done<M>>> {
        let mut queue = self.queue.lock();
        if let Some(at) = queue.done.iter().position(|(of, _)| *of == id) {
            return Some(Some(queue.done.swap_remove(at).1));
        }
        let waits = |to: &Move<M>| match to {
            Move::Join(join) => join.channel.id == id,
            Move::Leave(of) => *of == id,
        };
        (!queue.waiting.iter().any(waits)).then_some(None)
    }

    fn take_waiting(&self, id: u64) -> Option<Join<M>> {
        let mut queue = self.queue.lock();
        let joins = |to: &Move<M>| matches!(to, Move::Join(join) if join.channel.id == id);
        let at = queue.waiting.iter().position(joins)?;
        match queue.waiting.remove(at) {
            Move::Join(join) => Some(join),
            Move::Leave(_) => None,
        }
    }
}

impl<M: Message> PublisherPort<M> {
    /// Serves the waiting joins and leaves, with the port at hand. Without any, the publishing thread only reads a flag.
    #[inline]
    pub(super) fn take_in(&self, state: &mut PublishState<M>) {
        if self.joins.any.load(Ordering::Relaxed) {
            self.take_all_in(state);
        }
    }

    #[cold]
    fn take_all_in(&self, state: &mut PublishState<M>) {
        let Some(mut queue) = self.joins.queue.try_lock() else { return }; // another thread serves them
        self.joins.any.store(false, Ordering::Relaxed);
        let JoinQueue { waiting, done } = &mut *queue;
        for to in waiting.drain(..) {
            done.push(match to {
                Move::Join(join) => (join.channel.id, self.join(state, join)),
                Move::Leave(id) => (id, Done::Left(self.leave(state, id))),
            });
        }
    }

    fn take_in_if_free(&self) {
        if let Some(mut state) = self.state.try_lock() {
            self.take_in(&mut state);
        }
    }

    /// See [`AnyPublisher::attach`](super::AnyPublisher::attach).
    pub(super) fn begin_join(
        &self,
        channel: Arc<Channel>,
        way: Way,
        answer: Option<Reply>,
    ) -> std::result::Result<(), (Way, Attach)> {
        if self.is_closing() {
            return Err((way, Attach::Closed));
        }
        // Samples wait in their buffers: in a subscriber of this process, or for acknowledgement.
        let keeps = match &way {
            Way::Local(_) => true,
            Way::Flow(flow) | Way::Group(flow) => flow.is_kept(),
            Way::Ring(_) => false,
        };
        let way = match way {
            Way::Flow(flow) => TypedWay::Flow(flow),
            Way::Group(flow) => TypedWay::Group(flow, false),
            Way::Ring(ring) => TypedWay::Ring(ring),
            Way::Local(subscriber_port) => match subscriber_port.downcast::<SubscriberPort<M>>() {
                Ok(subscriber_port) => TypedWay::Local(subscriber_port),
                Err(subscriber_port) => return Err((Way::Local(subscriber_port), Attach::OtherType)),
            },
        };
        let buffers = if keeps { self.prepared() } else { 0 };
        let mut channels = self.channels.lock();
        channels.push(channel.clone());
        let room = Vec::with_capacity(channels.len().next_power_of_two().max(8));
        drop(channels);
        let spare = Pool::with_buffers(buffers, SMALL);
        let join = Join { channel, way, answer, room, spare, buffers };
        self.joins.wait(&mut self.joins.queue.lock(), Move::Join(join));
        self.take_in_if_free();
        Ok(())
    }

    /// See [`AnyPublisher::attached`](super::AnyPublisher::attached).
    pub(super) fn end_join(&self, id: u64) -> Option<bool> {
        self.take_in_if_free();
        let done = self.joins.take_done(id)?; // `Some(None)`: the port has closed meanwhile
        let joined = matches!(done, Some(Done::Joined { .. }));
        done.into_iter().for_each(|done| self.finish(done));
        Some(joined)
    }

    /// See [`AnyPublisher::detach`](super::AnyPublisher::detach).
    pub(super) fn end_channel(&self, id: u64) -> bool {
        if let Some(join) = self.joins.take_waiting(id) {
            self.give_up(join);
            return true;
        }
        let left = self.joins.ask_leave(id).or_else(|| {
            self.take_in_if_free();
            self.joins.take_done(id).flatten()
        });
        let Some(left) = left else { return false };
        self.finish(left);
        self.channels.lock().retain(|channel| channel.id != id);
        true
    }

    fn finish(&self, done: Done<M>) {
        match done {
            Done::Refused(join) => self.give_up(join),
            // A ring has ended with the port at hand.
            Done::Left(Some(mut left)) if !matches!(left.way, TypedWay::Ring(_)) => {
                left.end(None);
                if let TypedWay::Group(flow, _) = &left.way {
                    self.look_for_members(flow);
                }
            }
            Done::Left(_) => {}
            Done::Joined { answer, after, replaced, .. } => self.tell_joined(answer, after, replaced),
        }
    }

    /// A channel joined: what gave way to it ends, and its subscriber gets the answer, unless it has it already.
    fn tell_joined(&self, answer: Option<Reply>, after: u64, replaced: Option<Attached<M>>) {
        if let Some(replaced) = replaced {
            self.channels.lock().retain(|channel| channel.id != replaced.channel.id);
            self.finish(Done::Left(Some(replaced)));
        }
        answer.into_iter().for_each(|answer| answer(after));
    }

    /// The port closes: drops the pending joins. Channels that have joined count as connected, and may have samples: subscribers without an
    /// answer get it now, before their channels end.
    pub(super) fn drop_joins(&self) {
        let (waiting, done) = {
            let mut queue = self.joins.queue.lock();
            (std::mem::take(&mut queue.waiting), std::mem::take(&mut queue.done))
        };
        done.into_iter().for_each(|(_, done)| self.finish(done));
        for to in waiting {
            if let Move::Join(join) = to {
                self.give_up(join);
            }
        }
    }

    fn give_up(&self, join: Join<M>) {
        self.channels.lock().retain(|channel| channel.id != join.channel.id);
        join.channel.close();
        self.is_cut_off_no_more(&join.channel);
        match join.way {
            TypedWay::Flow(flow) => flow.end(),
            TypedWay::Ring(ring) => {
                self.held.fetch_sub(ring.hold() as usize, Ordering::Relaxed);
            }
            TypedWay::Group(flow, _) => {
                dismiss(&flow, &join.channel);
                self.look_for_members(&flow);
            }
            TypedWay::Local(_) => {}
        }
    }

    /// A member of a group left: if only members that were cut off remain, the group waits for them.
    fn look_for_members(&self, group: &Arc<Flow>) {
        if !self.has_members(group) {
            group.wait_for_absent();
        }
    }

    fn is_cut_off_no_more(&self, channel: &Channel) {
        if channel.cut_off.swap(false, Ordering::Relaxed) {
            self.cut_off.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn join(&self, state: &mut PublishState<M>, mut join: Join<M>) -> Done<M> {
        if self.is_closing() {
            return Done::Refused(join);
        }
        match &mut join.way {
            // Its last member left since it was chosen: the subscriber asks again, and gets a new one.
            TypedWay::Group(flow, _) if !flow.takes_members() => return Done::Refused(join),
            TypedWay::Group(flow, sends) => {
                let has = |a: &Attached<M>| matches!(&a.way, TypedWay::Group(f, _) if Arc::ptr_eq(f, flow));
                *sends = !state.attached.iter().any(has);
            }
            TypedWay::Ring(_) if state.memory.is_none() => state.memory = self.fresh.lock().take(),
            _ => {}
        }
        let Join { channel, way, mut answer, mut room, mut spare, buffers } = join;
        state.pool.grow_to(buffers, &mut spare);
        if state.attached.len() == state.attached.capacity() {
            room.append(&mut state.attached);
            std::mem::swap(&mut room, &mut state.attached);
        }
        if let (TypedWay::Local(subscriber), None) = (&way, channel.replaces) {
            self.give_history(&channel, subscriber.as_ref());
        }
        // Not the state's number: a relay's port that has sent nothing yet begins behind its source's last sample.
        let after = self.published.load(Ordering::Relaxed);
        let _ = channel.joined_after.set(after);
        let (older, ring) = (channel.replaces, matches!(way, TypedWay::Ring(_)));
        let heir = if let TypedWay::Flow(flow) = &way { Some(flow.clone()) } else { None };
        state.attached.push(Attached { channel, way });
        self.connected.store(state.attached.len(), Ordering::Release);
        // Behind it: the last member of a group takes the group's flow along.
        let replaced = older.and_then(|id| self.leave(state, id));
        // Before a sample can follow it on the same stream; those of a ring wait until it is read.
        if let Some(answer) = answer.take_if(|_| !ring) {
            answer(after);
        }
        if let (Some(heir), Some(Attached { way: TypedWay::Flow(older), .. })) = (heir, &replaced)
            && older.is_cut_off()
        {
            heir.take_over(older);
        }
        Done::Joined { answer, after, _room: room, _spare: spare, replaced }
    }

    /// A late joiner of this process gets the history between two samples: it shares the messages.
    fn give_history(&self, channel: &Channel, subscriber: &dyn LocalChannel<M>) {
        let wanted = subscriber.late();
        let Some(histories) = self.histories().filter(|_| wanted > 0 && self.info.qos.durability != Volatile) else {
            return;
        };
        let mut entries = histories.latest(wanted);
        let wants = |e: &Entry| channel.takes(e.buffer.payload(), e.stamp, e.change);
        entries.retain(|entry| channel.selection.takes(entry.seq) && wants(entry));
        subscriber.expect_history(entries.len());
        for entry in entries {
            let now = linux::clock::monotonic_ns();
            let info = inbound::info(channel, entry.label(), now);
            if !subscriber.wants_value() {
                subscriber.buffer(info, &entry.buffer, &channel.account);
            } else if let Ok(decoded) = M::decode(entry.buffer.payload()) {
                subscriber.value(info, decoded.value(), &channel.account);
            }
        }
    }

    fn leave(&self, state: &mut PublishState<M>, id: u64) -> Option<Attached<M>> {
        let index = state.attached.iter().position(|a| a.channel.id == id)?;
        let mut left = state.attached.remove(index);
        self.is_cut_off_no_more(&left.channel);
        if let TypedWay::Group(flow, _) = &left.way {
            dismiss(flow, &left.channel);
        }
        if let TypedWay::Group(flow, sends @ true) = &mut left.way {
            let heir = state.attached.iter_mut().find_map(|a| match &mut a.way {
                TypedWay::Group(other, first) if Arc::ptr_eq(other, flow) => Some(first),
                _ => None,
            });
            match heir {
                Some(first) => {
                    *first = true;
                    *sends = false;
                }
                // The flow ends without the port at hand: a channel that joins until then would have no flow.
                None => flow.retire(),
            }
        }
        self.connected.store(state.attached.len(), Ordering::Release);
        if let TypedWay::Ring(ring) = &left.way {
            self.held.fetch_sub(ring.hold() as usize, Ordering::Relaxed);
            left.end(state.memory.as_mut());
        }
        Some(left)
    }
}

/// Takes this member out of the group: the flow waits for its acknowledgements no longer.
fn dismiss(flow: &Flow, channel: &Channel) {
    if let Some(member) = channel.member.get() {
        flow.dismiss(*member);
    }
}
