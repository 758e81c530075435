//! A socket that subscribes at one endpoint of others.
//!
//! libzmq connects again after a connection has ended, but not if it could not read what came: a frame beyond the limit, or no ZeroMQ at all.
//! Then nothing more is tried, and nobody is told. So a monitor watches the socket, and it is made anew.

use super::endpoint::Endpoint;
use libzmq::{Context, Event, Kind, Message, Monitor, Number, Socket};
use linux::poll::{Poller, Readiness};
use qos::Class;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause before a connection that is tried no more is made anew.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Source {
    endpoint: Endpoint,
    limits: Limits,
    token: u64,
    socket: Socket,
    monitor: Monitor,
    /// The end of the connection, until it is tried again.
    ended: Option<Instant>,
    /// There may be more to receive, of which the descriptor says nothing.
    unfinished: bool,
}

/// What is received at most.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of a frame.
    pub(super) max_message: u32,
    /// Messages that wait in the socket, beyond which the other end waits.
    pub(super) queue: u16,
}

/// The frames of a message.
#[derive(Default)]
pub(super) struct Frames {
    pub(super) topic: Message,
    pub(super) message: Message,
}

/// What was received.
pub(super) enum Found {
    Nothing,
    /// Two frames.
    Message,
    /// Another number of frames.
    Malformed(usize),
}

impl Source {
    /// Connects, and watches by this poller under this token.
    pub(super) fn open(
        context: &Arc<Context>,
        endpoint: Endpoint,
        limits: Limits,
        poller: &Poller,
        token: u64,
    ) -> io::Result<Self> {
        let (socket, monitor) = connected(context, &endpoint, limits)?;
        let source = Self { endpoint, limits, token, socket, monitor, ended: None, unfinished: true };
        source.watch(poller)?;
        Ok(source)
    }

    fn watch(&self, poller: &Poller) -> io::Result<()> {
        poller.add(&self.socket, self.token, Readiness::IN)?;
        poller.add(&self.monitor, self.token, Readiness::IN)
    }

    pub(super) fn subscribe(&mut self, prefix: &str) -> io::Result<()> {
        self.unfinished = true;
        self.socket.subscribe(prefix.as_bytes())
    }

    pub(super) fn unsubscribe(&mut self, prefix: &str) -> io::Result<()> {
        self.unfinished = true;
        self.socket.unsubscribe(prefix.as_bytes())
    }

    /// `true` if it is to be looked at, by what is ready.
    pub(super) fn is_due(&self, is_ready: impl Fn(u64) -> bool) -> bool {
        self.unfinished || self.ended.is_some() || is_ready(self.token)
    }

    /// The time until it is to be looked at even if nothing comes; `None`: none.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let again = self.ended.map(|ended| AGAIN.saturating_sub(now.saturating_duration_since(ended)));
        if self.unfinished { Some(Duration::ZERO) } else { again }
    }

    /// Follows the connection. `true` if it has ended for good, and is to be made anew.
    pub(super) fn has_ended(&mut self, frame: &mut Message, now: Instant) -> bool {
        while let Ok(Some(event)) = self.monitor.next(frame) {
            match event {
                Event::Tried => self.ended = None,
                Event::Ended => self.ended = Some(now),
            }
        }
        self.ended.is_some_and(|ended| now.saturating_duration_since(ended) >= AGAIN)
    }

    /// Connects anew, with these subscriptions.
    pub(super) fn reopen(&mut self, poller: &Poller, prefixes: &[String], now: Instant) -> io::Result<()> {
        self.ended = Some(now); // if it fails, again later
        let (socket, monitor) = connected(self.socket.context(), &self.endpoint, self.limits)?;
        prefixes.iter().try_for_each(|prefix| socket.subscribe(prefix.as_bytes()))?;
        poller.remove(&self.socket)?;
        poller.remove(&self.monitor)?;
        (self.socket, self.monitor, self.ended, self.unfinished) = (socket, monitor, None, true);
        self.watch(poller)
    }

    /// The next message.
    pub(super) fn receive(&mut self, into: &mut Frames) -> Found {
        self.unfinished = self.socket.receive(&mut into.topic).unwrap_or(false);
        if !self.unfinished {
            return Found::Nothing;
        }
        let mut frames = 1;
        let mut more = into.topic.more();
        // Frames of a message come together.
        while more && self.socket.receive(&mut into.message).unwrap_or(false) {
            frames += 1;
            more = into.message.more();
        }
        if frames == 2 { Found::Message } else { Found::Malformed(frames) }
    }

    /// Its place, as errors name it.
    pub(super) fn place(&self) -> String {
        self.endpoint.of(Class::Normal)
    }
}

fn connected(context: &Arc<Context>, endpoint: &Endpoint, limits: Limits) -> io::Result<(Socket, Monitor)> {
    let socket = context.socket(Kind::Sub)?;
    socket.set_largest(limits.max_message)?;
    socket.set(Number::Linger, 0)?;
    socket.set(Number::ReceiveQueue, limits.queue.max(1).into())?;
    // Subscriptions beyond a limit would be dropped. The bridge's routes are bounded.
    socket.set(Number::SendQueue, 0)?;
    socket.set(Number::Ipv6, endpoint.is_ipv6().into())?;
    super::probe(&socket)?;
    let monitor = Monitor::of(&socket)?;
    socket.connect(&endpoint.of(Class::Normal))?;
    Ok((socket, monitor))
}
