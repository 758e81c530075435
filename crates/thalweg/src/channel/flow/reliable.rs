//! A flow that loses nothing over datagrams: what is kept until it is acknowledged, and what is repeated meanwhile.
//!
//! The publishing thread notes what it sent. One thread of the node hears what subscribers say, and repeats: its datagrams
//! are whole frames, so they need no send right.

use super::Flow;
use crate::channel::queue::{Entry, Label};
use crate::channel::reliable::{Action, Counters, Sender, SenderSettings, To};
use crate::wire::feedback::{Acknowledgement, LONGEST};
use crate::wire::{ASK, FRAGMENT_HEADER, Fragment, HEADER, Header, Kind, REPAIR, datagram};
use linux::clock::monotonic_ns;
use linux::lock::PiMutex;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64};
use std::time::Duration;

/// Pause before another look whether a full window has room: acknowledgements come to another thread.
pub(super) const FULL_PAUSE: Duration = Duration::from_micros(200);

/// The reliable part of a flow.
pub(crate) struct Kept {
    sender: PiMutex<Sender>,
    full: AtomicBool,
    flags: AtomicU16,
    strange: AtomicU64,
    members: PiMutex<Vec<u64>>,
    any: AtomicBool, // somebody acknowledges; else nothing is kept
}

impl Kept {
    pub fn new(settings: SenderSettings) -> Self {
        Self {
            sender: PiMutex::new(Sender::new(settings)),
            full: AtomicBool::new(false),
            flags: AtomicU16::new(0),
            strange: AtomicU64::new(0),
            members: PiMutex::default(),
            any: AtomicBool::new(false),
        }
    }

    /// Flags of a frame that is sent now.
    pub fn flags(&self) -> u16 {
        self.flags.load(Relaxed)
    }

    /// Whether somebody acknowledges: a group may have members that do not.
    pub fn is_needed(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Whether a further message has to wait for acknowledgements.
    pub fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    pub fn unacknowledged(&self) -> usize {
        self.sender.lock().unacknowledged()
    }

    fn note(&self, sender: &Sender, now_ns: u64) {
        self.full.store(sender.is_full(now_ns), Relaxed);
        self.flags.store(sender.flags(), Relaxed);
    }
}

impl Flow {
    /// A message left, or was lost on the spot: it is repeated when somebody misses it.
    #[inline]
    pub(super) fn keep_sent(&self, kept: &Kept, now_ns: u64, flow_seq: u32, entry: Entry) {
        let mut sender = kept.sender.lock();
        let due = sender.sent(now_ns, flow_seq, entry);
        kept.note(&sender, now_ns);
        drop(sender);
        if let Some(due) = due {
            self.senders.repeats.look_by(due);
        }
    }

    /// Whether the flow is reliable by repeating.
    pub fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// A member acknowledges from now on, from this address where there are several. Gives the number of its first message.
    pub fn admit(&self, member: u64, address: Option<SocketAddr>) -> Option<u32> {
        let kept = self.kept.as_ref()?;
        if let Some(address) = address {
            self.link.admit(member, address);
        }
        let mut sender = kept.sender.lock();
        if !kept.any.swap(true, Relaxed) {
            sender.starts_at(self.next.load(Relaxed));
        }
        kept.members.lock().push(member);
        Some(sender.join(member))
    }

    /// A member left.
    pub fn dismiss(&self, member: u64) {
        let Some(kept) = &self.kept else { return };
        self.link.dismiss(member);
        let mut sender = kept.sender.lock();
        let mut members = kept.members.lock();
        members.retain(|other| *other != member);
        sender.leave(member);
        kept.any.store(!members.is_empty(), Relaxed);
        kept.note(&sender, monotonic_ns());
    }

    /// Takes in all that subscribers said.
    pub fn hear(&self) {
        let Some(kept) = &self.kept else { return };
        let mut buffer = [0; LONGEST];
        // Errors of a datagram socket concern single datagrams: those are repeated.
        while let Ok((length, member)) = self.link.hear(&mut buffer) {
            let said = datagram(buffer.get(..length).unwrap_or_default(), LONGEST, Some(self.settings.id));
            let taken =
                said.ok().filter(|(header, _)| header.kind == Kind::Acknowledgement).and_then(|(header, said)| {
                    let said = Acknowledgement::parse(said).ok()?;
                    let (mut sender, now) = (kept.sender.lock(), monotonic_ns());
                    sender.acknowledge(now, member, self.next.load(Relaxed), &header, &said).ok()?;
                    kept.note(&sender, now);
                    Some(())
                });
            if taken.is_none() {
                kept.strange.fetch_add(1, Relaxed);
            }
        }
    }

    /// Repeats what is due. Gives when to look again: a flow that was active lately is looked at though nothing is due,
    /// so that who publishes need not wake anybody.
    pub fn repeat(&self, now_ns: u64) -> Option<u64> {
        let kept = self.kept.as_ref()?;
        loop {
            let mut sender = kept.sender.lock();
            let action = sender.poll(now_ns);
            kept.note(&sender, now_ns);
            let Some(action) = action else { return sender.next_look(now_ns) };
            drop(sender);
            // Without room it is lost like any datagram, and asked for again.
            self.act(kept, action);
        }
    }

    fn act(&self, kept: &Kept, action: Action) {
        match action {
            Action::Repeat { entry, sequence, bytes, flags, to } => {
                let payload = entry.buffer.payload();
                let (from, length, total) = (bytes.start as u32, bytes.len(), payload.len());
                let whole = length == total;
                let kind = if whole { Kind::Message } else { Kind::Fragment };
                let extra = if whole { 0 } else { FRAGMENT_HEADER };
                let header = self.header(kind, length + extra, sequence, entry.label());
                let mut head = [0; HEADER + FRAGMENT_HEADER];
                let (first, second) = head.split_at_mut(HEADER);
                if let (Some(first), Some(second)) = (first.first_chunk_mut(), second.first_chunk_mut()) {
                    Header { flags: flags | REPAIR | entry.label().flags(), ..header }.emit(first);
                    Fragment { offset: from, total: total as u32 }.emit(second);
                }
                let parts = [IoSlice::new(&head[..HEADER + extra]), IoSlice::new(&payload[bytes])];
                let to = match to {
                    To::All => None,
                    To::One(index) => kept.members.lock().get(index).copied(),
                };
                let _ = self.link.repeat(&parts, to);
            }
            Action::KeepAlive { next, oldest, trip_ns } => {
                let header = self.header(Kind::KeepAlive, 0, next, keep_alive(oldest, trip_ns));
                let mut head = [0; HEADER];
                Header { flags: ASK, ..header }.emit(&mut head);
                let _ = self.link.repeat(&[IoSlice::new(&head)], None);
            }
        }
    }

    /// What was repeated and heard so far; strange datagrams among what was heard.
    pub fn repeated(&self) -> (Counters, u64) {
        let Some(kept) = &self.kept else { return Default::default() };
        let counters = kept.sender.lock().counters();
        (counters, kept.strange.load(SeqCst))
    }
}

/// A keep-alive has other numbers in the places of a sample's.
fn keep_alive(oldest: u32, trip_ns: u64) -> Label {
    Label { seq: oldest.into(), stamp: trip_ns, ..Label::default() }
}
