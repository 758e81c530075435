//! The event loop: one thread for all ports of a program. It accepts connections, answers what comes on them, and sends what could not be
//! sent at once.

#![allow(clippy::disallowed_methods)] // the event loop reads the clock

mod answers;
mod reading;

use super::frame::{Acknowledgements, Carrier, Receiver, quit};
use super::link::Link;
use super::port::{End, Port, Role};
use crate::engine::{Refusals, Refused};
use crate::lock;
use linux::poll::{Poller, Readiness, Waker};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Most connections of a program.
const MOST_CONNECTIONS: usize = 4096;
/// A connection that says nothing ends after this time.
const SILENT: Duration = Duration::from_secs(10);
/// Most connections from one address: nobody has all of them.
const MOST_OF_ONE: usize = MOST_CONNECTIONS / 2;
/// Pause between two looks at connections that are to end.
const TICK: Duration = Duration::from_millis(200);
/// Bytes that are read at once.
const READ: usize = 64 << 10;
const WAKER: u64 = 0; // its token

/// What the event loop shares with other threads.
pub(crate) struct Hub {
    pub(crate) poller: Poller,
    waker: Waker,
    orders: Mutex<Vec<Order>>,
    next: AtomicU64,
    stop: AtomicBool,
    thread: AtomicI32,
    refused: Refusals,
    /// Names of the ports of this program.
    pub(crate) own: Mutex<HashSet<String>>,
    /// Largest message, in bytes.
    pub(crate) largest: usize,
}

/// What other threads have it do.
pub(crate) enum Order {
    Listen(Arc<Port>, TcpListener),
    Close(Arc<Port>),
    Joined(Job, Result<(Carrier, TcpStream), String>),
}

/// A connection that an output port is to open, for a thread that may wait.
pub(crate) struct Job {
    pub(crate) port: Arc<Port>,
    pub(crate) to: String,
    pub(crate) carrier: Option<String>,
    /// The connection that asked, and whether by an administrative command.
    asked: (u64, bool),
}

impl Hub {
    pub(crate) fn new(largest: usize) -> io::Result<Self> {
        let (poller, waker) = (Poller::new()?, Waker::new()?);
        poller.add(&waker, WAKER, Readiness::IN)?;
        let (orders, refused, own) = (Mutex::default(), Refusals::default(), Mutex::default());
        let (next, stop, thread) = (AtomicU64::new(WAKER + 1), AtomicBool::new(false), AtomicI32::new(0));
        Ok(Self { poller, waker, orders, next, stop, thread, refused, own, largest })
    }

    pub(crate) fn order(&self, order: Order) {
        lock(&self.orders).push(order);
        self.waker.wake();
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The id of the loop's thread.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    fn token(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn refuse(&self, what: String) {
        self.refused.add(what);
    }

    pub(crate) fn refused(&self) -> Refused {
        self.refused.so_far()
    }

    /// Ends connections of a port, and tells how many.
    pub(crate) fn disconnect(&self, port: &Port, which: impl Fn(&End) -> bool) -> usize {
        let ends = lock(&port.ends).take(which);
        for end in &ends {
            let last = if matches!(port.role, Role::Out) { quit(end.carrier) } else { Vec::new() };
            end.link.end(&self.poller, last);
        }
        ends.len()
    }
}

/// A connection, as the loop has it.
struct Connection {
    port: Arc<Port>,
    link: Arc<Link>,
    side: Side,
    /// Since it was accepted; `None`: it has said who it is.
    silent: Option<Instant>,
    /// Who has come; `None`: we have.
    from: Option<IpAddr>,
    /// Bytes of it that wait for more, as counted in the sum.
    held: usize,
}

enum Side {
    In(Receiver, Carrier, String),
    Out(Acknowledgements),
}

/// The loop's own state.
pub(crate) struct Loop {
    hub: Arc<Hub>,
    jobs: SyncSender<Job>,
    listeners: HashMap<u64, (Arc<Port>, TcpListener)>,
    connections: HashMap<u64, Connection>,
    /// Listeners that are out of the set until the next tick.
    resting: Vec<u64>,
    /// Connections of which commands were read that are to be carried out.
    left: BTreeSet<u64>,
    /// Bytes of messages that have not come as a whole.
    received: usize,
    buffer: Vec<u8>,
}

impl Loop {
    pub(crate) fn new(hub: Arc<Hub>, jobs: SyncSender<Job>) -> Self {
        let (listeners, connections, buffer) = (HashMap::new(), HashMap::new(), vec![0; READ]);
        Self { hub, jobs, listeners, connections, resting: Vec::new(), left: BTreeSet::new(), received: 0, buffer }
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(mut self) {
        self.hub.thread.store(linux::sched::current(), Ordering::Relaxed);
        let (mut ready, mut looked) = (Vec::with_capacity(64), Instant::now());
        while !self.hub.stops() {
            // Who has commands left is not ready by its socket.
            let timeout = if self.left.is_empty() { TICK } else { Duration::ZERO };
            if self.hub.poller.wait(&mut ready, Some(timeout)).is_err() {
                return;
            }
            for one in &ready {
                match one.token {
                    WAKER => self.carry_out(),
                    token if self.listeners.contains_key(&token) => self.accept(token),
                    token => self.serve(token, one.flags),
                }
            }
            for token in std::mem::take(&mut self.left) {
                self.serve(token, Readiness::IN);
            }
            let now = Instant::now();
            if now.saturating_duration_since(looked) >= TICK {
                looked = now;
                self.look(now);
            }
        }
        self.connections.values().for_each(|connection| connection.link.close());
    }

    fn carry_out(&mut self) {
        self.hub.waker.clear();
        let orders = std::mem::take(&mut *lock(&self.hub.orders));
        for order in orders {
            match order {
                Order::Listen(port, listener) => {
                    let token = self.hub.token();
                    match self.hub.poller.add(&listener, token, Readiness::IN) {
                        Ok(()) => drop(self.listeners.insert(token, (port, listener))),
                        Err(error) => self.hub.refuse(format!("{} cannot listen: {error}", port.name)),
                    }
                }
                Order::Close(port) => {
                    self.listeners.retain(|_, (other, _)| !Arc::ptr_eq(other, &port));
                    self.hub.disconnect(&port, |_| true);
                }
                Order::Joined(job, joined) => self.join(&job, joined),
            }
        }
    }

    fn accept(&mut self, token: u64) {
        while let Some((port, listener)) = self.listeners.get(&token) {
            let (socket, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                    continue;
                }
                // Such as too many open files: the set would tell of it at once, again and again.
                Err(error) => {
                    self.hub.refuse(format!("{} accepts nobody for now: {error}", port.name));
                    let _ = self.hub.poller.remove(listener);
                    self.resting.push(token);
                    return;
                }
            };
            let from = from.ip();
            let of_one = self.connections.values().filter(|other| other.from == Some(from)).count();
            if self.connections.len() >= MOST_CONNECTIONS || of_one >= MOST_OF_ONE {
                self.hub.refuse(format!(
                    "a connection of {from}: at most {MOST_CONNECTIONS} are open, {MOST_OF_ONE} of one address"
                ));
                continue;
            }
            let side = Side::In(Receiver::new(self.hub.largest), Carrier::Text, String::new());
            if let Some(link) = self.add(port.clone(), socket, side, Some(from)) {
                link.only_replies(true);
            }
        }
    }

    /// Takes a connection into the set.
    fn add(&mut self, port: Arc<Port>, socket: TcpStream, side: Side, from: Option<IpAddr>) -> Option<Arc<Link>> {
        let link = Arc::new(Link::new(self.hub.token(), socket).ok()?);
        link.watch(&self.hub.poller).ok()?;
        let silent = from.map(|_| Instant::now());
        self.connections.insert(link.token, Connection { port, link: link.clone(), side, silent, from, held: 0 });
        Some(link)
    }

    fn serve(&mut self, token: u64, flags: Readiness) {
        // Taken out, because what it says may concern other connections.
        let Some(mut connection) = self.connections.remove(&token) else { return };
        if flags.contains(Readiness::OUT) {
            connection.link.go_on(&self.hub.poller);
        }
        let readable = flags.intersects(Readiness::IN | Readiness::HUP | Readiness::ERR | Readiness::RDHUP);
        let is_broken = flags.intersects(Readiness::HUP | Readiness::ERR) && connection.link.is_busy();
        // After a reply has left, the commands behind it have their turn.
        let is_due = readable || matches!(connection.side, Side::In(..));
        let heard = if is_due { self.read(&mut connection) } else { Ok(true) };
        let counted = heard.and_then(|goes_on| self.count(&mut connection).map(|()| goes_on));
        let goes_on = counted.unwrap_or_else(|why| {
            let Connection { port, link, .. } = &connection;
            self.hub.refuse(format!("{} from {}: {why}", port.name, link.peer()));
            false
        });
        match goes_on && !is_broken {
            true => drop(self.connections.insert(token, connection)),
            false => self.remove(&connection),
        }
    }

    fn remove(&mut self, connection: &Connection) {
        let Connection { port, link, held, .. } = connection;
        self.received -= held;
        drop(lock(&port.ends).take(|end| end.link.token == link.token));
        let _ = self.hub.poller.remove(link.fd());
        link.close();
    }

    /// Ends what has to end.
    fn look(&mut self, now: Instant) {
        for token in std::mem::take(&mut self.resting) {
            if let Some((_, listener)) = self.listeners.get(&token)
                && self.hub.poller.add(listener, token, Readiness::IN).is_err()
            {
                self.resting.push(token);
            }
        }
        for connection in self.connections.values() {
            connection.link.look(now);
            if connection.silent.is_some_and(|since| now.saturating_duration_since(since) > SILENT) {
                self.hub.refuse(format!(
                    "{}: a connection of {} said nothing",
                    connection.port.name,
                    connection.link.peer()
                ));
                connection.link.close();
            }
        }
    }
}
