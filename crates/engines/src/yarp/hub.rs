//! The event loop: one thread for all ports of a program. It accepts connections, answers what comes on them, and sends what could not be
//! sent at once.

#![allow(clippy::disallowed_methods)] // the event loop reads the clock

mod answers;

use super::frame::{Acknowledgements, Carrier, Receiver, quit};
use super::link::Link;
use super::port::{End, Port, Role};
use crate::engine::Refused;
use crate::lock;
use linux::poll::{Poller, Readiness, Waker};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Most connections of a program.
const MOST_CONNECTIONS: usize = 4096;
/// A connection that says nothing ends after this time.
const SILENT: Duration = Duration::from_secs(10);
/// Pause between two looks at connections that are to end.
const TICK: Duration = Duration::from_millis(200);
/// Bytes that are read at once, and reads before the next connection has its turn.
const READ: usize = 64 << 10;
const READS: usize = 16;
/// The token of the waker.
const WAKER: u64 = 0;

/// What the event loop shares with other threads.
pub(crate) struct Hub {
    pub(crate) poller: Poller,
    waker: Waker,
    orders: Mutex<Vec<Order>>,
    next: AtomicU64,
    stop: AtomicBool,
    thread: AtomicI32,
    refused: Mutex<Refused>,
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
        let (orders, refused, own) = (Mutex::default(), Mutex::default(), Mutex::default());
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

    /// The id of the loop's thread.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    fn token(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn refuse(&self, what: String) {
        let mut refused = lock(&self.refused);
        refused.count += 1;
        refused.last = what;
    }

    pub(crate) fn refused(&self) -> Refused {
        lock(&self.refused).clone()
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
    buffer: Vec<u8>,
}

impl Loop {
    pub(crate) fn new(hub: Arc<Hub>, jobs: SyncSender<Job>) -> Self {
        Self { hub, jobs, listeners: HashMap::new(), connections: HashMap::new(), buffer: vec![0; READ] }
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(mut self) {
        self.hub.thread.store(linux::sched::current(), Ordering::Relaxed);
        let (mut ready, mut looked) = (Vec::with_capacity(64), Instant::now());
        while !self.hub.stop.load(Ordering::Acquire) {
            if self.hub.poller.wait(&mut ready, Some(TICK)).is_err() {
                return;
            }
            for one in &ready {
                match one.token {
                    WAKER => self.carry_out(),
                    token if self.listeners.contains_key(&token) => self.accept(token),
                    token => self.serve(token, one.flags),
                }
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
            let Ok((socket, from)) = listener.accept() else { return };
            if self.connections.len() >= MOST_CONNECTIONS {
                self.hub.refuse(format!("a connection of {from}: {MOST_CONNECTIONS} are open"));
                continue;
            }
            let side = Side::In(Receiver::new(self.hub.largest), Carrier::Text, String::new());
            self.add(port.clone(), socket, side, Some(Instant::now()));
        }
    }

    /// Takes a connection into the set.
    fn add(&mut self, port: Arc<Port>, socket: TcpStream, side: Side, silent: Option<Instant>) -> Option<Arc<Link>> {
        let link = Arc::new(Link::new(self.hub.token(), socket).ok()?);
        link.watch(&self.hub.poller).ok()?;
        self.connections.insert(link.token, Connection { port, link: link.clone(), side, silent });
        Some(link)
    }

    fn serve(&mut self, token: u64, flags: Readiness) {
        // Taken out, because what it says may concern other connections.
        let Some(mut connection) = self.connections.remove(&token) else { return };
        if flags.contains(Readiness::OUT) {
            connection.link.go_on(&self.hub.poller);
        }
        let readable = flags.intersects(Readiness::IN | Readiness::HUP | Readiness::ERR | Readiness::RDHUP);
        let goes_on = !readable
            || self.read(&mut connection).unwrap_or_else(|why| {
                let Connection { port, link, .. } = &connection;
                self.hub.refuse(format!("{} from {}: {why}", port.name, link.peer()));
                false
            });
        match goes_on {
            true => drop(self.connections.insert(token, connection)),
            false => self.remove(&connection),
        }
    }

    fn remove(&self, connection: &Connection) {
        let Connection { port, link, .. } = connection;
        drop(lock(&port.ends).take(|end| end.link.token == link.token));
        let _ = self.hub.poller.remove(link.fd());
        link.close();
    }

    /// Reads what has come; `false`: the connection is over.
    fn read(&mut self, connection: &mut Connection) -> Result<bool, String> {
        for _ in 0..READS {
            let count = match linux::socket::receive_stream(connection.link.fd(), &mut self.buffer, false) {
                Ok(0) => return Ok(false),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Ok(false),
            };
            match &mut connection.side {
                Side::Out(acknowledgements) => acknowledgements.push(&self.buffer[..count])?,
                Side::In(receiver, ..) => receiver.push(&self.buffer[..count]),
            }
            while let Side::In(receiver, ..) = &mut connection.side {
                let Some(heard) = receiver.next()? else { break };
                if !self.act(connection, heard)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Ends what has to end.
    fn look(&mut self, now: Instant) {
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
