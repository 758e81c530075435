//! The sending side of a connection: a bounded queue before a socket. Any thread sends; what does not fit into the socket at once the event
//! loop sends later.

#![allow(clippy::disallowed_methods)] // publishing threads wait here, for a stated time

use crate::lock;
use linux::poll::{Poller, Readiness};
use qos::priority::Mark;
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Messages that wait for a reader: of reliable publishers, of others, and their bytes. A message beyond the bytes waits if it is alone.
const MOST_WAITING: usize = 1024;
const MOST_OF_LOSSY: usize = 16;
const MOST_BYTES: usize = 64 << 20;
/// Replies to somebody who does not read them, in bytes: then the connection ends.
const MOST_REPLIED: usize = 8 << 20;
/// Longest wait of a reliable publisher for a reader that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// A connection that ends has so long for what waits.
const LEAVING: Duration = Duration::from_secs(1);
/// After all was sent, its reader has so long to read it.
const READING: Duration = Duration::from_secs(10);

pub(crate) struct Link {
    /// Its number in the event loop.
    pub(crate) token: u64,
    socket: TcpStream,
    queue: Mutex<Queue>,
    room: Condvar,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Arc<Vec<u8>>>,
    /// What was sent of the first one.
    sent: usize,
    bytes: usize,
    /// The event loop waits until the socket takes more.
    watched: bool,
    /// It does not read meanwhile.
    deaf: bool,
    /// All that waits are replies. Who does not read them is not listened to.
    only_replies: bool,
    /// Its reader took nothing for [`PATIENCE`]: nobody waits for it until it does.
    stalled: bool,
    /// The time at which it ends.
    ends: Option<Instant>,
    /// The reader was told that no more comes.
    told: bool,
    over: bool,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is in the queue, or on its way.
    Yes,
    /// The reader has begun to take nothing: this one is lost, and so are the next ones until it does.
    Stalls,
    /// An older one, or this one, is lost: the reader is too slow.
    Lost,
    /// The connection is over.
    Over,
}

impl Link {
    /// The socket becomes one that never waits. It is not in the event loop's set before `watch`.
    pub(crate) fn new(token: u64, socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self { token, socket, queue: Mutex::default(), room: Condvar::new() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn peer(&self) -> String {
        self.socket.peer_addr().map(|peer| peer.ip().to_string()).unwrap_or_default()
    }

    /// Puts it into the event loop's set.
    pub(crate) fn watch(&self, poller: &Poller) -> io::Result<()> {
        let mut queue = lock(&self.queue);
        queue.watched = true;
        poller.add(self.fd(), self.token, Readiness::IN | Readiness::OUT)
    }

    /// All that is sent from now on are replies, or (`false`) also samples.
    pub(crate) fn only_replies(&self, only: bool) {
        lock(&self.queue).only_replies = only;
    }

    /// Something waits to be sent, or it is about to end.
    pub(crate) fn is_busy(&self) -> bool {
        let queue = lock(&self.queue);
        !queue.messages.is_empty() || queue.ends.is_some()
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.queue).over
    }

    /// Marks all further packets.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn mark(&self, mark: Mark, socket_priority: Option<u32>) -> io::Result<()> {
        linux::marks::set(self.fd(), &mark, socket_priority.unwrap_or_else(|| mark.socket_priority()))
    }

    /// Sends a message. A patient sender waits for room, at most [`PATIENCE`]; for another one the oldest message goes.
    pub(crate) fn send(&self, poller: &Poller, message: &Arc<Vec<u8>>, patient: bool) -> Sent {
        let mut queue = lock(&self.queue);
        let mut sent = Sent::Yes;
        if patient && !queue.stalled {
            queue = self.wait(queue, message.len());
            if !queue.has_room(message.len(), MOST_WAITING) && !queue.over {
                (queue.stalled, sent) = (true, Sent::Stalls);
            }
        }
        if queue.over || queue.ends.is_some() {
            return Sent::Over;
        }
        let most = if patient { MOST_WAITING } else { MOST_OF_LOSSY };
        while !queue.has_room(message.len(), most) {
            if patient || !queue.drop_oldest() {
                return if sent == Sent::Stalls { sent } else { Sent::Lost };
            }
            sent = Sent::Lost;
        }
        self.put(&mut queue, poller, message.clone());
        sent
    }

    fn wait<'a>(&'a self, queue: MutexGuard<'a, Queue>, length: usize) -> MutexGuard<'a, Queue> {
        let full = |queue: &mut Queue| !queue.over && !queue.has_room(length, MOST_WAITING);
        self.room.wait_timeout_while(queue, PATIENCE, full).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends a reply, or what else must not be lost. Who does not read it ends the connection.
    pub(crate) fn reply(&self, poller: &Poller, bytes: Vec<u8>) {
        let mut queue = lock(&self.queue);
        match queue.bytes + bytes.len() > MOST_REPLIED {
            true => self.give_up(&mut queue),
            false if bytes.is_empty() || queue.over => {}
            false => self.put(&mut queue, poller, Arc::new(bytes)),
        }
    }

    fn put(&self, queue: &mut Queue, poller: &Poller, message: Arc<Vec<u8>>) {
        queue.bytes += message.len();
        queue.messages.push_back(message);
        if !queue.watched {
            self.flush(queue, poller);
        }
    }

    /// The socket takes more.
    pub(crate) fn go_on(&self, poller: &Poller) {
        let mut queue = lock(&self.queue);
        let before = queue.bytes;
        self.flush(&mut queue, poller);
        if queue.bytes < before || queue.bytes == 0 {
            queue.stalled = false;
            self.room.notify_all();
        }
    }

    fn flush(&self, queue: &mut Queue, poller: &Poller) {
        while let Some(first) = queue.messages.front() {
            match linux::socket::send(self.fd(), &first[queue.sent..]) {
                Ok(count) => queue.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return self.give_up(queue),
            }
        }
        let waits = !queue.messages.is_empty();
        let deaf = waits && queue.only_replies;
        if (waits, deaf) != (queue.watched, queue.deaf) {
            (queue.watched, queue.deaf) = (waits, deaf);
            let flags = match (waits, deaf) {
                (false, _) => Readiness::IN,
                (true, false) => Readiness::IN | Readiness::OUT,
                (true, true) => Readiness::OUT,
            };
            let _ = poller.change(self.fd(), self.token, flags); // not in the set yet: it will be with both
        }
        if !waits && queue.ends.is_some() {
            self.leave(queue);
        }
    }

    /// All was sent. A reader of samples still acknowledges those that it has not read yet, and reads no further if the kernel answers
    /// that with a reset. So it is told that no more comes, and ends the connection itself.
    fn leave(&self, queue: &mut Queue) {
        if queue.only_replies {
            return self.give_up(queue);
        }
        if !std::mem::replace(&mut queue.told, true) {
            queue.ends = Some(Instant::now() + READING);
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// Ends the connection after what waits, and `last`. One whose reader was told that no more comes ends already.
    pub(crate) fn end(&self, poller: &Poller, last: Vec<u8>) {
        let mut queue = lock(&self.queue);
        if queue.over || queue.told {
            return;
        }
        queue.ends = Some(Instant::now() + LEAVING);
        self.put(&mut queue, poller, Arc::new(last));
    }

    /// Ends the connection if its time is over.
    pub(crate) fn look(&self, now: Instant) {
        let mut queue = lock(&self.queue);
        if queue.ends.is_some_and(|ends| ends <= now) {
            self.give_up(&mut queue);
        }
    }

    /// Ends the connection now. The event loop sees it by its socket.
    pub(crate) fn close(&self) {
        self.give_up(&mut lock(&self.queue));
    }

    fn give_up(&self, queue: &mut Queue) {
        *queue = Queue { over: true, ..Queue::default() };
        let _ = self.socket.shutdown(Shutdown::Both);
        self.room.notify_all();
    }
}

impl Queue {
    fn has_room(&self, length: usize, most: usize) -> bool {
        self.messages.len() < most && (self.messages.is_empty() || self.bytes + length <= MOST_BYTES)
    }

    /// Drops the oldest message of which nothing was sent.
    fn drop_oldest(&mut self) -> bool {
        let dropped = self.messages.remove(usize::from(self.sent > 0));
        self.bytes -= dropped.as_ref().map_or(0, |message| message.len());
        dropped.is_some()
    }

    fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.messages.front().is_some_and(|first| self.sent >= first.len()) {
            self.bytes -= self.messages.pop_front().map_or(0, |first| first.len());
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests;
