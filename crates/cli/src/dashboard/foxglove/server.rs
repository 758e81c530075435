//! The thread that serves all viewers: it waits for their sockets and for samples, and for nothing else.

use super::connection::Connection;
use super::handshake::Rules;
use super::queue::Inbox;
use super::topics::Topics;
use linux::clock::monotonic_ns;
use linux::poll::{Poller, Readiness, Ready};
use linux::thread;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg::Node;

/// Most viewers.
const CLIENTS: usize = 16;
/// Bytes that the kernel holds for one: what is there delays samples that come later.
const SEND_BUFFER: usize = 256 << 10;
/// Pause between two looks at the realm, while there are viewers.
const LOOK: Duration = Duration::from_millis(200);
/// Pause after a connection could not be taken: too many open files, or no memory.
const AGAIN: Duration = Duration::from_millis(50);
/// The types of others are walked by recursion.
const STACK: usize = 1 << 20;

const LISTENER: u64 = 0;
const INBOX: u64 = 1;
const FIRST_CLIENT: u64 = 2;

/// Viewers are served until it is dropped.
pub(in super::super) struct Serving {
    ended: Arc<AtomicBool>,
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        self.inbox.waker.wake();
        // If it has panicked, there is nothing to wait for.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Listens, and serves on a thread of its own.
///
/// # Errors
/// The address cannot be listened to, or there is no thread or descriptor.
pub(super) fn start(at: SocketAddr, node: Node, rules: Rules, rate_hz: u32) -> io::Result<(SocketAddr, Serving)> {
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    let (bound, inbox, poller) = (listener.local_addr()?, Arc::new(Inbox::new()?), Poller::new()?);
    poller.add(&listener, LISTENER, Readiness::IN)?;
    poller.add(&inbox.waker, INBOX, Readiness::IN)?;
    let ended = Arc::new(AtomicBool::new(false));
    let topics = Topics::new(node, inbox.clone())?;
    let (clients, next) = (BTreeMap::new(), FIRST_CLIENT);
    let mut server = Server {
        listener,
        poller,
        inbox: inbox.clone(),
        topics,
        rules,
        rate_hz,
        clients,
        next,
        looked_ns: 0,
        changed: false,
    };
    let until = ended.clone();
    let settings = thread::Settings { stack: STACK, ..thread::Settings::named("foxglove") };
    let thread = thread::spawn(settings, move || server.run(&until))?;
    Ok((bound, Serving { ended, inbox, thread: Some(thread) }))
}

struct Server {
    listener: TcpListener,
    poller: Poller,
    inbox: Arc<Inbox>,
    topics: Topics,
    rules: Rules,
    rate_hz: u32,
    clients: BTreeMap<u64, Connection<TcpStream>>,
    next: u64,
    looked_ns: u64,
    /// Subscriptions may have changed.
    changed: bool,
}

impl Server {
    fn run(&mut self, ended: &AtomicBool) {
        let mut ready = Vec::with_capacity(64);
        while !ended.load(Relaxed) {
            if let Err(error) = self.poller.wait(&mut ready, self.pause(monotonic_ns())) {
                return crate::output::tell(&format!("thalweg dashboard: viewers are served no more: {error}"));
            }
            self.turn(&ready, monotonic_ns());
        }
    }

    /// `true` if there are no viewers, and nothing is left of them.
    fn is_idle(&self) -> bool {
        self.clients.is_empty() && !self.topics.follows()
    }

    /// Time until something is due; `None`: nothing, as there are no viewers.
    fn pause(&self, now_ns: u64) -> Option<Duration> {
        let due = self.clients.values().filter_map(|connection| connection.due_in(now_ns)).min();
        (!self.is_idle()).then(|| due.unwrap_or(LOOK).min(LOOK))
    }

    fn turn(&mut self, ready: &[Ready], now_ns: u64) {
        for Ready { token, flags } in ready {
            match *token {
                LISTENER => self.accept(now_ns),
                INBOX => self.inbox.waker.clear(),
                client => self.serve(client, *flags, now_ns),
            }
        }
        self.deliver();
        self.look(now_ns);
        self.write(now_ns);
        self.follow(now_ns);
    }

    fn accept(&mut self, now_ns: u64) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_short(&error) => return std::thread::sleep(AGAIN),
                Err(_) => return, // nobody is there, or has gone again
            };
            // A place that is held by who says nothing is another one's. If there is none, the connection is closed at once.
            let silent = self.clients.iter().find(|(_, one)| one.is_opening()).map(|(token, _)| *token);
            if let Some(oldest) = silent.filter(|_| self.clients.len() >= CLIENTS) {
                self.clients.remove(&oldest);
            }
            let prepared = self.clients.len() < CLIENTS && prepare(&stream).is_ok();
            if prepared && self.poller.add(&stream, self.next, Readiness::IN).is_ok() {
                let connection = Connection::new(stream, self.rules.clone(), self.rate_hz, now_ns);
                self.clients.insert(self.next, connection);
                self.next += 1;
            }
        }
    }

    fn serve(&mut self, token: u64, flags: Readiness, now_ns: u64) {
        let Some(connection) = self.clients.get_mut(&token) else { return };
        if flags.contains(Readiness::OUT) {
            connection.resume();
            watch(&self.poller, token, connection, Readiness::IN);
        }
        if flags.intersects(Readiness::IN | Readiness::HUP | Readiness::ERR) {
            connection.read(self.topics.offers(), now_ns);
            self.changed = true;
        }
    }

    /// Gives the samples that came to those who want them.
    fn deliver(&mut self) {
        for sample in self.inbox.take() {
            if self.topics.has(&sample) {
                self.clients.values_mut().filter_map(Connection::client_mut).for_each(|client| client.offer(&sample));
            }
        }
    }

    /// Looks at the realm, if there is somebody to tell, or something to let go.
    fn look(&mut self, now_ns: u64) {
        if self.is_idle() || now_ns.saturating_sub(self.looked_ns) < LOOK.as_nanos() as u64 {
            return;
        }
        self.looked_ns = now_ns;
        let (come, gone) = self.topics.look();
        self.changed = true; // with time channels are let go, and refused ones are tried again
        for connection in self.clients.values_mut() {
            if let Some(client) = connection.client_mut() {
                client.announce(&come, &gone, self.topics.offers());
            }
            connection.tend(now_ns);
        }
    }

    fn write(&mut self, now_ns: u64) {
        let (poller, before) = (&self.poller, self.clients.len());
        self.clients.retain(|token, connection| {
            if connection.write(now_ns) {
                watch(poller, *token, connection, Readiness::IN | Readiness::OUT);
            }
            !connection.is_over()
        });
        self.changed |= self.clients.len() != before;
    }

    /// Subscribes to what the viewers want, and gives those who are new the samples that are kept.
    fn follow(&mut self, now_ns: u64) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let clients = self.clients.values().filter_map(Connection::client);
        let wanted: BTreeSet<u32> = clients.flat_map(|client| client.channels()).collect();
        self.topics.follow(&wanted, now_ns);
        for client in self.clients.values_mut().filter_map(Connection::client_mut) {
            for (id, channel) in client.take_joined() {
                self.topics.refusal(channel).into_iter().for_each(|why| client.refuse(channel, why));
                self.topics.last(channel).for_each(|sample| client.offer_to(id, sample));
            }
        }
    }
}

/// `true` if a connection waits for which there is no descriptor or memory: it would be tried again at once.
fn is_short(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    Ok(rustix::net::sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER)?)
}

/// Waits for this readiness of a connection's stream from now on.
fn watch(poller: &Poller, token: u64, connection: &Connection<TcpStream>, readiness: Readiness) {
    // The stream is in the set as long as it is open, so that this cannot fail.
    let _ = connection.stream().map(|stream| poller.change(stream, token, readiness));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_short_is_waited_for() {
        for short in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(is_short(&short.into()), "{short}");
        }
        for other in [Errno::AGAIN, Errno::CONNABORTED, Errno::INTR] {
            assert!(!is_short(&other.into()), "{other}");
        }
    }
}
