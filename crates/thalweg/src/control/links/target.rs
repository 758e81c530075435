//! Addresses this node connects to, and when.

use crate::control::NodeId;
use crate::control::local::{self, Users};
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// A unix socket with a full queue of connections is retried this soon, and then less and less often, up to
/// [`LONGEST_DELAY`]: its node may be stopped, or never accept.
const QUEUE_FULL: Duration = Duration::from_millis(1);
/// The most of these that are tried in each 100 ms, all together: 1.3 % of a processor. Without a limit 50 of them took 44 %.
const MOST_DEAF: (u32, Duration) = (64, Duration::from_millis(100));

/// An address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket of a node of this host, and its permitted users. Tried once: a node that starts later connects
    /// by itself.
    Unix(PathBuf, Users),
    /// A TCP address, kept connected.
    Tcp(SocketAddr),
}

impl Address {
    /// The node that a socket in a run directory is of, by its name.
    pub fn node(&self) -> Option<NodeId> {
        let Address::Unix(path, _) = self else { return None };
        let id = path.file_name()?.to_str()?.strip_suffix(".sock")?.rsplit('.').next()?;
        NodeId::try_from(id.to_owned()).ok()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path, _) => write!(f, "{}", path.display()),
            Address::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// The state of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// To be connected at this time.
    Waiting(Instant),
    /// There is a link.
    Linked,
    /// Not to be connected (again): this node itself, or a unix socket that ended.
    Done,
}

/// An address and its state.
#[derive(Debug)]
pub(super) struct Target {
    /// The address.
    pub address: Address,
    /// The state.
    pub state: State,
    delay: Duration,
    /// It is for calls to this node, and not reconnected by itself.
    pub once: Option<NodeId>,
    /// A warning was given about its failures.
    pub warned: bool,
}

/// The outcome of an attempt.
pub(super) enum Attempt {
    /// A non-blocking stream; `true` if it is connected already.
    Stream(OwnedFd, bool),
    /// The attempt failed; the target's state has the time of the next one, if any.
    Failed(io::Error),
}

impl Target {
    /// A target that is due now.
    pub(super) fn new(address: Address, now: Instant) -> Self {
        let delay = if matches!(address, Address::Unix(..)) { QUEUE_FULL } else { FIRST_DELAY };
        Self { address, state: State::Waiting(now), delay, once: None, warned: false }
    }

    /// A target that is due now, for calls to one node.
    pub(super) fn once(address: Address, node: NodeId, now: Instant) -> Self {
        Self { once: Some(node), ..Self::new(address, now) }
    }

    /// Starts connecting. Never waits.
    pub(super) fn attempt(&mut self, now: Instant) -> Attempt {
        self.state = State::Linked;
        match self.connect() {
            Ok((stream, connected)) => Attempt::Stream(stream.into(), connected),
            Err(error) => {
                self.failed(&error, now);
                Attempt::Failed(error)
            }
        }
    }

    fn connect(&self) -> io::Result<(Socket, bool)> {
        let address = match &self.address {
            Address::Unix(path, users) => {
                let socket = local::connect(path)?;
                set_options(&socket);
                users.admit(&socket)?;
                return Ok((socket, true));
            }
            Address::Tcp(address) => *address,
        };
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
        set_options(&socket);
        match socket.connect(&SockAddr::from(address)) {
            Ok(()) => Ok((socket, true)),
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Ok((socket, false)),
            Err(e) => Err(e),
        }
    }

    /// The attempt failed: sets when to try again. A stale unix socket is removed.
    pub(super) fn failed(&mut self, error: &io::Error, now: Instant) {
        match &self.address {
            Address::Tcp(_) => self.ended(now),
            Address::Unix(..) if error.kind() == io::ErrorKind::WouldBlock => {
                self.state = State::Waiting(now + self.delay);
                self.delay = (self.delay * 2).min(LONGEST_DELAY);
            }
            Address::Unix(path, _) => {
                if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) {
                    let _ = std::fs::remove_file(path);
                    crate::control::local::shares::remove_beside(path);
                }
                self.state = State::Done;
            }
        }
    }

    /// Its link ended: a TCP target is tried again after a delay that doubles.
    pub(super) fn ended(&mut self, now: Instant) {
        self.state = match self.address {
            _ if self.once.is_some() => State::Done,
            Address::Unix(..) => State::Done,
            Address::Tcp(_) => State::Waiting(now + self.delay),
        };
        self.delay = (self.delay * 2).min(LONGEST_DELAY);
    }

    /// `true` if its queue of connections was full when it was tried.
    pub(super) fn is_deaf(&self) -> bool {
        matches!((&self.address, self.state), (Address::Unix(..), State::Waiting(_))) && self.delay > QUEUE_FULL
    }

    /// Waits longer where many are deaf, so that all together are tried no more often than [`MOST_DEAF`].
    pub(super) fn share(&mut self, deaf: usize, now: Instant) {
        if let (Address::Unix(..), State::Waiting(at)) = (&self.address, &mut self.state) {
            let (most, time) = MOST_DEAF;
            *at = (*at).max(now + time.saturating_mul(u32::try_from(deaf).unwrap_or(u32::MAX) / most));
        }
    }

    /// The peer is there: the next failure starts with the shortest delay.
    pub(super) fn welcomed(&mut self) {
        self.delay = FIRST_DELAY;
        self.warned = false;
    }

    /// `true` if it failed so often that a warning is due.
    pub(super) fn is_hopeless(&self) -> bool {
        self.delay == LONGEST_DELAY && !self.warned && matches!(self.address, Address::Tcp(_))
    }
}

/// Control links go at once, notice a dead host, and travel below everything else (class LOW).
/// A kernel that refuses one of these options only loses that option.
pub(super) fn set_options(stream: &impl std::os::fd::AsFd) {
    let socket = SockRef::from(stream);
    let family = match socket.domain() {
        Ok(family) if family != Domain::UNIX => family,
        _ => return,
    };
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(2)).with_interval(Duration::from_secs(1)).with_retries(3);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(5)));
    let class = u32::from(qos::Class::Low.dscp()) << 2;
    let _ = socket.set_tos_v4(class);
    if family == Domain::IPV6 {
        let _ = socket.set_tclass_v6(class);
    }
    // After the mark: setting the mark changes the priority (IPv4), or leaves it at 0 (IPv6).
    let _ = socket.set_priority(2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn delays_double_up_to_a_second_and_start_anew_after_a_welcome() {
        let now = Instant::now();
        let mut target = Target::new(Address::Tcp(([127, 0, 0, 1], 1).into()), now);
        let mut delays = Vec::new();
        for _ in 0..7 {
            target.ended(now);
            let State::Waiting(until) = target.state else { panic!() };
            delays.push((until - now).as_millis());
        }
        assert_eq!(delays, [50, 100, 200, 400, 800, 1000, 1000]);
        assert!(target.is_hopeless());
        target.welcomed();
        target.ended(now);
        assert_eq!(target.state, State::Waiting(now + FIRST_DELAY));
    }

    #[test]
    fn tcp_links_are_marked_low_before_and_after_they_are_made() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let mut target = Target::new(Address::Tcp(listener.local_addr().unwrap()), Instant::now());
            let Attempt::Stream(outgoing, _) = target.attempt(Instant::now()) else { panic!() };
            let incoming: TcpStream = listener.accept().unwrap().0;
            set_options(&incoming);
            for socket in [SockRef::from(&outgoing), SockRef::from(&incoming)] {
                let mark = if any.starts_with('[') { socket.tclass_v6() } else { socket.tos_v4() };
                assert_eq!((mark.unwrap(), socket.priority().unwrap()), (40, 2));
                assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
            }
        }
    }

    /// A socket whose queue stays full is tried once a second in the end, not a thousand times.
    #[test]
    fn a_deaf_socket_is_tried_less_and_less_often() {
        let start = Instant::now();
        let mut target = Target::new(Address::Unix("/deaf.sock".into(), Users::Own), start);
        let (mut now, mut attempts) = (start, 0);
        let full = io::Error::from(io::ErrorKind::WouldBlock);
        while now < start + Duration::from_secs(10) {
            attempts += 1;
            target.failed(&full, now);
            let State::Waiting(at) = target.state else { panic!("{:?}", target.state) };
            now = at;
        }
        assert!(target.is_deaf() && attempts <= 20, "{attempts}");
        target.share(64 * 50, now);
        assert_eq!(target.state, State::Waiting(now + Duration::from_secs(5)));
    }
}
