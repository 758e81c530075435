//! The socket of a class, by which samples leave, and who subscribes there.
//!
//! The socket is an XPUB: it tells of subscriptions. They wait in it like messages, and its descriptor need not become readable again after
//! another call has met them. So whoever has used the socket looks for them, too.

#![allow(clippy::disallowed_methods)] // publishing threads wait here for room

use super::endpoint::Endpoint;
use crate::engine::Refusals;
use crate::engine::{Error, Result};
use crate::lock;
use libzmq::{Context, Kind, Message, Number, Socket};
use qos::Class;
use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Prefixes of others that are remembered.
const MOST_PREFIXES: usize = 65_536;
/// The largest subscription that is received, in bytes; names of topics have 255.
const LARGEST_SUBSCRIPTION: u32 = 4096;
/// Milliseconds for which samples of an engine that ends are still sent.
const LINGER: i32 = 1000;
/// A thread that waits for room looks for itself so often, in case it is the one that is to be told by.
const LOOK: Duration = Duration::from_millis(20);

pub(super) struct Sink {
    sending: Mutex<Sending>,
    /// Told when there may be room again.
    room: Condvar,
    prefixes: Mutex<HashSet<Vec<u8>>>,
    /// Another one whenever the prefixes are.
    version: AtomicU64,
    refusals: Arc<Refusals>,
}

struct Sending {
    socket: Socket,
    frame: Message,
    /// Threads that wait for room.
    waiting: usize,
    /// Reliable publishers.
    reliable: usize,
}

impl Sink {
    /// Accepts subscribers of a class.
    pub(super) fn open(
        context: &Arc<Context>,
        bind: &[Endpoint],
        class: Class,
        queue: u16,
        refusals: Arc<Refusals>,
    ) -> Result<Self> {
        let socket = socket(context, bind, class, queue).map_err(super::failed)?;
        for endpoint in bind.iter().map(|endpoint| endpoint.of(class)) {
            let taken = |error| {
                let remedy = "choose an address of this host and four free ports in a row";
                Error::Engine(format!("class {class} cannot leave at {endpoint}: {error}; {remedy}"))
            };
            socket.bind(&endpoint).map_err(taken)?;
        }
        let sending = Sending { socket, frame: Message::new(), waiting: 0, reliable: 0 };
        let (sending, room, prefixes) = (Mutex::new(sending), Condvar::new(), Mutex::default());
        Ok(Self { sending, room, prefixes, version: AtomicU64::new(1), refusals })
    }

    /// Gives the socket's descriptor to a function: readable when it is time to [`look`](Self::look).
    pub(super) fn watch<T>(&self, with: impl FnOnce(std::os::fd::BorrowedFd<'_>) -> T) -> T {
        with(lock(&self.sending).socket.as_fd())
    }

    /// A publisher comes. Only where none is reliable, a subscriber that has no room misses samples that others get.
    pub(super) fn join(&self, reliable: bool) -> std::io::Result<()> {
        let mut sending = lock(&self.sending);
        sending.reliable += usize::from(reliable);
        // A publisher that has not come does not leave, either.
        sending.keep_all_or_not().inspect_err(|_| sending.reliable -= usize::from(reliable))
    }

    /// A publisher leaves.
    pub(super) fn leave(&self, reliable: bool) {
        let mut sending = lock(&self.sending);
        sending.reliable -= usize::from(reliable);
        // The option is one of the socket: it cannot fail.
        let _ = sending.keep_all_or_not();
    }

    /// `true` if somebody subscribes to the topic here. `seen` is what the caller has for this topic from the call before.
    pub(super) fn is_wanted(&self, topic: &[u8], seen: &AtomicU64) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let known = seen.load(Ordering::Relaxed);
        if known >> 1 == version {
            return known & 1 == 1;
        }
        let prefixes = lock(&self.prefixes);
        let wanted = (0..=topic.len()).any(|end| topic.get(..end).is_some_and(|prefix| prefixes.contains(prefix)));
        seen.store(version << 1 | u64::from(wanted), Ordering::Relaxed);
        wanted
    }

    /// Sends a sample. `false`: one of its subscribers has had no room for so long.
    pub(super) fn send(&self, topic: &[u8], message: &[u8], patience: Duration) -> std::io::Result<bool> {
        let mut sending = lock(&self.sending);
        let mut end = None;
        let mut sent = sending.socket.send(topic, message)?;
        while !sent {
            // What makes room may have been met by the call that found none.
            self.look_at(&mut sending);
            sent = sending.socket.send(topic, message)?;
            let now = Instant::now();
            let left = end.get_or_insert(now + patience).saturating_duration_since(now);
            if sent || left.is_zero() {
                break;
            }
            sending.waiting += 1;
            let waited = self.room.wait_timeout(sending, left.min(LOOK));
            sending = waited.unwrap_or_else(PoisonError::into_inner).0;
            sending.waiting -= 1;
        }
        self.look_at(&mut sending);
        Ok(sent)
    }

    /// Takes note of subscriptions, and of room.
    pub(super) fn look(&self) {
        self.look_at(&mut lock(&self.sending));
    }

    fn look_at(&self, sending: &mut Sending) {
        let Sending { socket, frame, waiting, .. } = sending;
        while let Ok(true) = socket.receive(frame) {
            self.note(frame);
        }
        if *waiting > 0 {
            self.room.notify_all();
        }
    }

    /// A subscription is 1 and a prefix, its end 0 and the prefix (zmq_socket(3), ZMQ_XPUB). Each comes once for all who have the prefix.
    fn note(&self, frame: &[u8]) {
        let mut prefixes = lock(&self.prefixes);
        match frame.split_first() {
            Some((1, prefix)) if prefixes.len() < MOST_PREFIXES => drop(prefixes.insert(prefix.to_vec())),
            Some((1, _)) => self.refusals.add(format!("a subscription beyond {MOST_PREFIXES} different ones")),
            Some((0, prefix)) => drop(prefixes.remove(prefix)),
            _ => {
                let size = frame.len();
                self.refusals.add(format!("a message of {size} bytes to a publisher, which takes subscriptions only"));
            }
        }
        self.version.fetch_add(1, Ordering::Release);
    }
}

impl Sending {
    fn keep_all_or_not(&self) -> std::io::Result<()> {
        self.socket.set(Number::NoDrop, i32::from(self.reliable > 0))
    }
}

fn socket(context: &Arc<Context>, bind: &[Endpoint], class: Class, queue: u16) -> std::io::Result<Socket> {
    let socket = context.socket(Kind::XPub)?;
    socket.set_largest(LARGEST_SUBSCRIPTION)?;
    socket.set(Number::SendQueue, queue.max(1).into())?;
    socket.set(Number::Linger, LINGER)?;
    socket.set(Number::Tos, i32::from(class.dscp()) << 2)?;
    socket.set(Number::Ipv6, bind.iter().any(Endpoint::is_ipv6).into())?;
    super::probe(&socket)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_wants_what_begins_with_it_until_it_is_taken_back() {
        let sink = Sink::open(&Context::new().unwrap(), &[], Class::Normal, 1, Arc::default()).unwrap();
        let seen = AtomicU64::default();
        let wanted = |topic: &str| sink.is_wanted(topic.as_bytes(), &AtomicU64::default());
        assert!(!wanted("robot") && !sink.is_wanted(b"robot/pose", &seen));
        sink.note(b"\x01robot");
        assert!(wanted("robot") && wanted("robotics") && !wanted("rob"));
        assert!(sink.is_wanted(b"robot/pose", &seen), "what was seen before is out of date");
        sink.note(b"\x00robot");
        assert!(!wanted("robot") && !sink.is_wanted(b"robot/pose", &seen));
        sink.note(b"\x01");
        assert!(wanted("anything"));
        assert_eq!(sink.refusals.so_far().count, 0);
        for other in [&b""[..], b"\x02robot"] {
            sink.note(other);
        }
        assert_eq!(sink.refusals.so_far().count, 2);
        assert!(sink.refusals.so_far().last.contains("6 bytes"));
    }
}
