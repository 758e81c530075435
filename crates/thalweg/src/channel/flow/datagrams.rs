//! Batches over datagrams: small samples of a reliable flow leave in one datagram, which has one number, waits for the window as
//! one, and is acknowledged and retransmitted as one. Only flows that give up no message have them
//! ([`Control::batches`](super::Control)). Several datagrams of one length (the last may be shorter) leave in one call.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use super::batch::{BYTES, Batch};
use super::cut_off::State;
use super::reliable::Kept;
use super::{Flow, FlowSettings, MOST_BYTES_TOGETHER, MOST_TOGETHER, is_final};
use crate::channel::memory::Charge;
use crate::channel::outgoing::copied;
use crate::channel::queue::{Entry, Label};
use crate::wire::feedback::Datagram;
use crate::wire::{HEADER, Kind, SHORT_HEADER};
use linux::clock::monotonic_ns;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Bytes of samples that may wait even in a queue of few samples: samples that window or pace hold back then leave in full datagrams.
/// Under `block 1` a sample of 64 B took 138 bytes of a full line, and takes 77. `publish` still waits for room, and holds as much
/// back by itself where it gathers.
pub(super) fn waits_together(settings: &FlowSettings) -> usize {
    let blocks = matches!(settings.policy, qos::Queue::Block { .. });
    let gathers = settings.control.is_some_and(|control| control.batches);
    if blocks && gathers { BYTES } else { 0 }
}

/// The reason why a batch waits.
enum Held {
    /// Window or pace.
    Window,
    /// Room in the socket.
    Socket,
}

/// A datagram of a batch.
#[derive(Clone, Copy)]
pub(super) struct Gathered {
    /// Its start in the batch, with room for a header of its own in front of its messages.
    at: usize,
    sequence: u32,
    /// The first sample.
    first: Label,
    /// Number and stamp of its last message.
    last: (u64, u64),
    samples: u32,
}

impl Gathered {
    /// The start of the bytes that leave: a single message has only its own header.
    fn begin(&self) -> usize {
        if self.samples == 1 { self.at + HEADER } else { self.at }
    }

    fn kind(&self) -> Kind {
        if self.samples == 1 { Kind::Message } else { Kind::Batch }
    }

    fn label(&self) -> Label {
        let Label { seq, stamp, .. } = self.first;
        if self.samples == 1 { self.first } else { Label { seq, stamp, ..Label::default() } }
    }
}

/// The place of a message.
#[derive(PartialEq, Eq)]
enum Place {
    Last,
    New,
    /// The datagrams here leave first.
    None,
}

impl Batch {
    /// The bytes that leave as this datagram.
    fn datagram(&self, index: usize) -> Range<usize> {
        let end = self.datagrams.get(index + 1).map_or(self.frames.len(), |next| next.at);
        self.datagrams[index].begin()..end
    }

    /// Gives the messages that have not left to `take`.
    pub(super) fn take_waiting<T>(&mut self, into: &mut T, take: impl Fn(&[u8], &mut T)) {
        for index in self.waiting() {
            let (at, end) = (self.datagrams[index].at + HEADER, self.datagram(index).end);
            take(&self.frames[at..end], into);
        }
    }

    /// Those that have not left.
    fn waiting(&self) -> Range<usize> {
        self.taken..self.datagrams.len()
    }

    /// The place of a message. It takes `size` bytes at the start of a datagram and `joined` bytes behind another message. At most
    /// `count` datagrams of at most `most` bytes leave together. All are as long as the first one.
    fn place(&self, [joined, size]: [usize; 2], most: usize, count: impl FnOnce() -> usize) -> Place {
        let Some(last) = self.datagrams.last() else { return Place::New };
        let first = self.datagram(0).len();
        let longest = if self.datagrams.len() == 1 { most } else { first };
        let (with, end) = (self.frames.len() - last.at + joined, self.frames.len() + size);
        if with <= longest {
            return if self.frames.len() + joined <= MOST_BYTES_TOGETHER { Place::Last } else { Place::None };
        }
        let full = self.datagram(self.datagrams.len() - 1).len() == first && self.datagrams.len() < count();
        if full && size <= first && end + HEADER <= MOST_BYTES_TOGETHER { Place::New } else { Place::None }
    }
}

impl Flow {
    /// `true` if small samples may leave together.
    #[inline]
    pub(super) fn gathers(&self) -> bool {
        self.capabilities.stream || self.settings.control.is_some_and(|control| control.batches)
    }

    /// The bytes of a batch for the `asked` number: over datagrams no more than leave together.
    pub(super) fn most_batched(&self, asked: usize) -> usize {
        if self.capabilities.stream {
            return asked;
        }
        let longest = self.longest();
        asked.min(longest * self.together(longest))
    }

    /// Bytes of a batch in front of its first messages.
    pub(super) fn outer_header(&self) -> usize {
        if self.capabilities.stream { 0 } else { HEADER }
    }

    /// The most bytes of a message that is batched: over datagrams no more than one datagram takes.
    pub(super) fn most_batched_alone(&self) -> usize {
        if self.capabilities.stream { usize::MAX } else { self.longest() }
    }

    /// The most bytes of a batch's datagram; a retransmit is no longer.
    fn longest(&self) -> usize {
        HEADER + self.piece()
    }

    /// `true` if a batch has to leave before this message of `length` bytes joins.
    pub(super) fn overflows(&self, batch: &Batch, label: Label, length: usize) -> bool {
        // Finding its header takes time, and matters only where a whole one does not fit.
        !self.capabilities.stream
            && self.place(batch, HEADER, length) == Place::None
            && self.place(batch, self.short_header(batch, label, length).map_or(HEADER, |short| short.len()), length)
                == Place::None
    }

    /// `true` if a batch has no room for another message of this length that follows closely.
    pub(super) fn is_full(&self, batch: &Batch, length: usize) -> bool {
        let header = if self.reads_short_headers() { SHORT_HEADER } else { HEADER };
        !self.capabilities.stream && self.place(batch, header, length) == Place::None
    }

    /// The place of a message with a header of `header` bytes behind the last message.
    fn place(&self, batch: &Batch, header: usize, length: usize) -> Place {
        let longest = self.longest();
        batch.place([header + length, HEADER + length], longest, || self.together(longest))
    }

    fn reads_short_headers(&self) -> bool {
        self.settings.control.is_some_and(|control| control.short_headers)
    }

    /// The short header of a message behind the last one.
    fn short_header(&self, batch: &Batch, label: Label, length: usize) -> Option<[u8; SHORT_HEADER]> {
        let (sample, stamp) = batch.datagrams.last()?.last;
        self.reads_short_headers()
            .then(|| self.header_of(Kind::Message, length, 0, label).short(sample, stamp))
            .flatten()
    }

    /// Writes the header of a message into its datagram, which it may begin.
    pub(super) fn join(&self, batch: &mut Batch, label: Label, length: usize) {
        let short = self.short_header(batch, label, length);
        let place = self.place(batch, short.map_or(HEADER, |short| short.len()), length);
        let short = short.filter(|_| place == Place::Last);
        if place != Place::Last {
            let (at, sequence) = (batch.frames.len(), self.next.fetch_add(1, Relaxed));
            batch.frames.resize(at + HEADER, 0);
            batch.datagrams.push(Gathered { at, sequence, first: label, last: (0, 0), samples: 0 });
        }
        let Some(datagram) = batch.datagrams.last_mut() else { return };
        datagram.samples += 1;
        datagram.last = (label.seq, label.stamp);
        match short {
            Some(short) => batch.frames.extend_from_slice(&short),
            None => {
                let mut header = [0; HEADER];
                self.header(Kind::Message, length, datagram.sequence, label).emit(&mut header);
                batch.frames.extend_from_slice(&header);
            }
        }
    }

    /// Sends the batch, waiting for window and socket at most `patience`; `false` when not all of it has left.
    pub(super) fn flush_datagrams(self: &Arc<Self>, batch: &mut Batch, patience: Duration) -> bool {
        let mut until = None;
        while !batch.waiting().is_empty() {
            match self.state() {
                State::Live => {}
                State::CutOff => return false, // the batch stays for a subscriber that comes back
                State::Ended => {
                    self.lose(batch, usize::MAX);
                    break;
                }
            }
            let Err(held) = self.send_datagrams(batch) else { continue };
            let until = *until.get_or_insert_with(|| Instant::now() + patience);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            match held {
                Held::Window => self.wait_window(left),
                Held::Socket => self.wait_room(left),
            }
        }
        self.emptied(batch);
        true
    }

    /// Sends as many datagrams as may leave now.
    fn send_datagrams(self: &Arc<Self>, batch: &mut Batch) -> Result<(), Held> {
        let waiting = batch.waiting();
        let count = self.leave_whole(waiting.clone().map(|index| {
            let Gathered { sequence, .. } = batch.datagrams[index];
            let mark = batch.datagrams[index].kind() as u32;
            (Datagram { sequence, offset: 0, mark }, batch.datagram(index).len())
        }));
        if count == 0 {
            return Err(Held::Window);
        }
        let leave = waiting.start..waiting.start + count;
        leave.clone().for_each(|index| self.head(batch, index));
        let mut datagrams = [[IoSlice::new(&[]); 2]; MOST_TOGETHER];
        for (datagram, index) in datagrams.iter_mut().zip(leave.clone()) {
            datagram[0] = IoSlice::new(&batch.frames[batch.datagram(index)]);
        }
        let sent = self.send_many(&datagrams[..count]);
        let left = match &sent {
            Ok(left) => *left,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            // Datagrams that did not leave are retransmitted.
            Err(_) => count,
        };
        leave.skip(left).rev().for_each(|index| self.left_not_whole(batch.datagram(index).len()));
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Held::Socket),
            Err(error) if is_final(&error) && self.cut_off() => {}
            Err(error) if is_final(&error) => {
                self.lose(batch, usize::MAX);
                self.dropped.fetch_sub(1, Relaxed);
                self.failed(&error); // counts one
            }
            Err(error) => {
                self.look_at_size(&error, batch.datagram(batch.taken).len());
                match self.kept.as_ref().filter(|kept| kept.is_needed()) {
                    Some(kept) => self.keep_datagrams(kept, batch, count),
                    None => self.lose(batch, count),
                }
            }
            Ok(left) => match self.kept.as_ref().filter(|kept| kept.is_needed()) {
                Some(kept) => self.keep_datagrams(kept, batch, left),
                None => batch.taken += left,
            },
        }
        Ok(())
    }

    /// Writes the header of a datagram that has several messages.
    fn head(&self, batch: &mut Batch, index: usize) {
        let datagram = batch.datagrams[index];
        if datagram.kind() == Kind::Batch {
            let range = batch.datagram(index);
            let header = self.header(Kind::Batch, range.len() - HEADER, datagram.sequence, datagram.label());
            if let Some(room) = batch.frames.get_mut(range).and_then(|frame| frame.first_chunk_mut::<HEADER>()) {
                header.emit(room);
            }
        }
    }

    /// The next so many are lost.
    fn lose(&self, batch: &mut Batch, count: usize) {
        let lost = batch.datagrams.iter().skip(batch.taken).take(count);
        let (count, samples) = lost.fold((0, 0), |(n, samples), lost| (n + 1, samples + u64::from(lost.samples)));
        self.dropped.fetch_add(samples, Relaxed);
        batch.taken += count;
    }

    /// Keeps the next `count` datagrams, which left or failed to: they are retransmitted when they are missed.
    fn keep_datagrams(&self, kept: &Kept, batch: &mut Batch, count: usize) {
        let now = monotonic_ns();
        for _ in 0..count {
            let (datagram, range) = (batch.datagrams[batch.taken], batch.datagram(batch.taken));
            let buffer = copied(&mut batch.pool, &batch.frames[range.start + HEADER..range.end]);
            let Label { seq, stamp, change, historical } = datagram.label();
            let (charge, of_many) = (Charge::default(), datagram.kind() == Kind::Batch);
            let entry = Entry { buffer, seq, stamp, now, change, historical, offered: 0, batch: of_many, charge };
            self.keep_sent(kept, now, datagram.sequence, entry);
            batch.taken += 1;
        }
    }

    /// Gives back memory of batches that was not needed lately.
    pub(crate) fn trim(&self) {
        let asked = self.sending().batching.is_some();
        let given = self.batch.try_lock().map(|mut batch| batch.trim(asked));
        drop(given); // when the batch is not held any more
    }

    /// Waits for room in the window, at most `left`.
    fn wait_window(&self, left: Duration) {
        if let Some(kept) = &self.kept {
            kept.wait_room(left, || self.ask_in_time(kept));
        }
    }
}
