//! The order of operations on one channel.

use super::frames::emitted;
use super::{FLOW, MAX_MESSAGE, content};
use crate::channel::accept::Accept;
use crate::channel::buffer::Buffer;
use crate::channel::queue::{Entry, Pushed, Queue};
use crate::channel::right::SendRight;
use crate::wire::{Header, Kind, StreamParser};
use std::sync::Arc;

/// Any sequence of operations on one channel, whose state machines are combined as in the driver, in virtual time:
/// publish, room in the socket or none, drain, receive, break and connect again, close. There is one holder of the
/// send right at a time, and nothing is forgotten. Samples arrive once, in order, unchanged, and only counted ones
/// are missing.
pub fn operations(bytes: &[u8]) {
    let Some((&setting, operations)) = bytes.split_first() else { return };
    let limit = u32::from(setting >> 2) % 5 + 1;
    let policy = if setting & 1 == 0 { qos::Queue::KeepLast(limit) } else { qos::Queue::KeepAll(limit) };
    let mut channel = Virtual::new(policy, setting & 2 != 0);
    for operation in operations {
        let amount = usize::from(operation >> 3);
        match operation & 7 {
            0 | 1 => channel.publish(amount),
            2 => channel.room = usize::MAX,
            3 => channel.room = amount * 8,
            4 => channel.thread_visit(),
            5 => channel.receive(amount * 16 + 1),
            6 if amount < 4 => channel.reconnect(),
            6 => channel.receive(1),
            _ => channel.stop_receiver = amount & 1 == 1,
        }
    }
    channel.close();
}

/// One channel over a stream carrier in virtual time.
struct Virtual {
    policy: qos::Queue,
    /// `true` if the publishing thread sends nothing.
    queued: bool,
    right: SendRight,
    queue: Queue,
    partial: Option<(Entry, u32, usize)>,
    submitted: bool,
    room: usize,
    next: u32,
    wire: Vec<u8>,
    published: u64,
    dropped: u64,
    parser: StreamParser,
    accept: Accept,
    stop_receiver: bool,
    last: u64,
    delivered: u64,
}

impl Virtual {
    fn new(policy: qos::Queue, queued: bool) -> Self {
        Self {
            policy,
            queued,
            right: SendRight::new(),
            queue: Queue::new(policy),
            partial: None,
            submitted: false,
            room: usize::MAX,
            next: 0,
            wire: Vec::new(),
            published: 0,
            dropped: 0,
            parser: StreamParser::new(MAX_MESSAGE, Some(FLOW)),
            accept: Accept::new(None, true),
            stop_receiver: false,
            last: 0,
            delivered: 0,
        }
    }

    fn publish(&mut self, size: usize) {
        self.published += 1;
        let mut buffer = Buffer::default();
        buffer.start().extend(content(self.published, 0, size * 8));
        let entry = Entry {
            buffer: Arc::new(buffer),
            seq: self.published,
            stamp: self.published,
            now: self.published,
            change: Default::default(),
            historical: false,
            offered: 0,
            batch: false,
            charge: Default::default(),
        };
        if !self.queued && self.right.try_inline() {
            assert!(self.queue.is_empty() && self.partial.is_none(), "the right was free although something waited");
            let flow_seq = self.numbered();
            if self.transmit(entry, flow_seq, 0) {
                assert!(!self.right.finish_inline(), "nobody pushed meanwhile");
            } else {
                self.right.hand_over();
                self.submit();
            }
            return;
        }
        match self.queue.push(entry) {
            Pushed::Full(_) => return self.dropped += 1,
            Pushed::DroppedOldest(count, _) => self.dropped += u64::from(count),
            Pushed::Queued => {}
        }
        assert!(self.queue.len() <= self.policy.limit() as usize);
        if self.right.announce() {
            self.submit();
        }
    }

    fn submit(&mut self) {
        assert!(!self.submitted, "the flow was submitted twice: two holders of the right");
        self.submitted = true;
    }

    fn numbered(&mut self) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        number
    }

    /// Sends as much as there is room for; `true` if all of it left.
    fn transmit(&mut self, entry: Entry, flow_seq: u32, taken: usize) -> bool {
        let payload = entry.buffer.payload();
        let header = Header {
            length: payload.len() as u32,
            kind: Kind::Message,
            flags: 0,
            flow: FLOW,
            sequence: flow_seq,
            sample: entry.seq,
            stamp_ns: entry.stamp,
        };
        let frame = emitted(&header, payload);
        let now = self.room.min(frame.len() - taken);
        self.wire.extend(&frame[taken..taken + now]);
        self.room = if self.room == usize::MAX { self.room } else { self.room - now };
        if taken + now == frame.len() {
            return true;
        }
        self.partial = Some((entry, flow_seq, taken + now));
        false
    }

    /// The sender thread, if the flow was submitted to it.
    fn thread_visit(&mut self) {
        while self.submitted {
            self.right.look();
            let next = match self.partial.take() {
                Some(partial) => Some(partial),
                None => self.queue.pop().map(|entry| (entry, self.numbered(), 0)),
            };
            match next {
                Some((entry, flow_seq, taken)) => {
                    if !self.transmit(entry, flow_seq, taken) {
                        return; // the socket is full: looked at again when there is room
                    }
                }
                None => self.submitted = !self.right.release(),
            }
        }
    }

    fn receive(&mut self, most: usize) {
        if self.stop_receiver {
            return;
        }
        let mut left = most.min(self.wire.len());
        while left > 0 {
            let space = self.parser.space();
            let count = left.min(space.len());
            space[..count].copy_from_slice(&self.wire[..count]);
            self.parser.filled(count);
            self.wire.drain(..count);
            left -= count;
            while let Some(frame) = self.parser.next().unwrap_or_else(|e| panic!("an own frame was refused: {e}")) {
                assert!(self.accept.frame(frame.header.sequence).is_new(), "a frame came twice on a stream");
                if !self.accept.sample(frame.header.sample) {
                    continue;
                }
                let payload = self.parser.payload(frame.range);
                assert_eq!(payload, content(frame.header.sample, 0, payload.len()), "a sample changed on the way");
                assert!(frame.header.sample > self.last, "{} after {}", frame.header.sample, self.last);
                self.last = frame.header.sample;
                self.delivered += 1;
            }
        }
        assert_eq!(self.accept.counters().lost, 0, "a stream loses no frame");
    }

    /// Breaks the connection: waiting samples are lost and counted; a new flow resumes after the last delivered
    /// sample.
    fn reconnect(&mut self) {
        let seen = self.next;
        let waited = self.queue.clear() as u64 + u64::from(self.partial.is_some());
        let arrived = self.delivered;
        let fresh = Self::new(self.policy, self.queued);
        let Self { published, last, room, stop_receiver, dropped, .. } = *self;
        let on_the_way = published - dropped - waited - arrived;
        assert!(on_the_way <= u64::from(seen), "{on_the_way} samples on the way of {seen} frames");
        *self = Self { published, last, room, stop_receiver, delivered: arrived, ..fresh };
        self.dropped = dropped + waited + on_the_way;
        self.accept.resume_after(last);
    }

    /// Drains everything: nothing may be forgotten.
    fn close(&mut self) {
        (self.room, self.stop_receiver) = (usize::MAX, false);
        self.thread_visit();
        self.receive(usize::MAX);
        assert!(self.queue.is_empty() && self.partial.is_none(), "something waits and nobody will send it");
        assert!(self.right.try_inline(), "the right is free at the end");
        assert_eq!(self.delivered + self.dropped, self.published, "delivered and dropped are all there were");
    }
}
