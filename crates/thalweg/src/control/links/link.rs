//! One control link: a stream, with data to be read and data to be written.

use super::frame::{self, Kind, Reader};
use crate::control::{Change, NodeId, Origin, Peer};
use linux::poll::Readiness;
use std::cell::OnceCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// Most bytes that wait for a peer; one that lets more pile up is dropped.
pub const OUT_LIMIT: usize = 8 << 20;
/// While this much waits, changes are merged instead of queued.
const BUSY: usize = 64 << 10;

/// The stage of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The connection is being made.
    Connecting,
    /// Waits for the peer's hello.
    Greeting,
    /// The peer is known and in this realm.
    Open,
}

/// The peer does not read: more than [`OUT_LIMIT`] bytes would wait.
#[derive(Debug)]
pub(super) struct Overflow;

/// One control link.
pub(super) struct Link {
    stream: OwnedFd,
    /// Parser of the peer's frames.
    pub reader: Reader,
    out: Vec<u8>,
    sent: usize,
    /// Its stage.
    pub stage: Stage,
    /// The peer's node id by its own statement, once open.
    pub peer: Option<NodeId>,
    /// The target it was made for; `None` if the peer connected to this node.
    pub target: Option<usize>,
    /// The deadline of the peer's hello.
    pub patience: Instant,
    /// `true` if the poller also watches for room to write.
    pub watches_room: bool,
    /// Its peer exceeded its budget: its bytes are not read until then.
    pub held_until: Option<Instant>,
    /// Time of the first byte of a message that is not complete.
    pub begun: Option<Instant>,
    pending: Option<Change>,
    document_due: bool,
    origin: OnceCell<Origin>,
    process: OnceCell<Option<u32>>,
    from: IpAddr,
}

/// A program may bind to any address of its host and connect to any other: the far end is of this host if its address is.
fn is_here(from: IpAddr, own: IpAddr) -> bool {
    let is_own = || linux::net::interfaces().is_ok_and(|all| all.iter().any(|interface| interface.address == from));
    from.is_loopback() || own.is_loopback() || own == from || is_own()
}

impl Link {
    /// A link over `stream`, which must be non-blocking.
    pub(super) fn new(stream: OwnedFd, stage: Stage, target: Option<usize>, patience: Instant) -> Self {
        let (reader, out) = (Reader::new(), Vec::new());
        let (peer, pending) = (None, None);
        let (sent, watches_room, document_due) = (0, false, false);
        let (held_until, begun) = (None, None);
        Self {
            stream,
            reader,
            out,
            sent,
            stage,
            peer,
            target,
            patience,
            watches_room,
            held_until,
            begun,
            pending,
            document_due,
            origin: OnceCell::new(),
            process: OnceCell::new(),
            from: Ipv4Addr::UNSPECIFIED.into(),
        }
    }

    /// The address that it was accepted from.
    pub(super) fn accepted_from(self, from: Option<IpAddr>) -> Self {
        Self { from: from.unwrap_or(self.from), ..self }
    }

    /// The way by which its peer is reached, from the kernel when it was first known.
    pub(super) fn origin(&self) -> Origin {
        if let Some(origin) = self.origin.get() {
            return *origin;
        }
        let unknown = Origin::Tcp { from: self.from, here: false, user: None };
        self.look_at_origin().map_or(unknown, |origin| *self.origin.get_or_init(|| origin))
    }

    /// The process of this host at the other end of a unix socket, from the kernel.
    pub(super) fn process(&self) -> Option<u32> {
        *self.process.get_or_init(|| linux::socket::peer_process(&self.stream).ok())
    }

    /// Its peer for people: the kernel's identification, and the node that it claims.
    pub(super) fn who(&self) -> String {
        let at = match (self.origin(), self.process()) {
            (Origin::Tcp { from, .. }, _) => Peer::at(from).to_string(),
            (Origin::Host { user }, Some(process)) => Peer::Process { user, process }.to_string(),
            (Origin::Host { user }, None) => format!("a process of user {user}"),
            (Origin::Own | Origin::Zenoh, _) => "this node".to_owned(),
        };
        match self.peer {
            Some(node) => format!("node {node}, {at}"),
            None => at,
        }
    }

    /// `None`: a connection that is being made, or was reset.
    fn look_at_origin(&self) -> Option<Origin> {
        let socket = socket2::SockRef::from(&self.stream);
        // Not by its address: a reset connection has none any more, and its data is still read.
        if socket.domain().is_ok_and(|domain| domain == socket2::Domain::UNIX) {
            // If the kernel does not report the user, it is a number that belongs to no user.
            return Some(Origin::Host { user: linux::socket::peer_user(&self.stream).unwrap_or(u32::MAX) });
        }
        let (far, own) = (socket.peer_addr().ok()?.as_socket()?, socket.local_addr().ok()?.as_socket()?);
        let from = far.ip().to_canonical();
        let here = is_here(from, own.ip().to_canonical());
        let user = if here { linux::net::tcp_user(own, far) } else { None };
        Some(Origin::Tcp { from, here, user })
    }

    /// The events that the poller watches it for.
    pub(super) fn wanted(&self) -> Readiness {
        let read = if self.held_until.is_some() { Readiness::empty() } else { Readiness::IN };
        if self.watches_room { read | Readiness::OUT } else { read }
    }

    /// Records whether a message has begun and is incomplete.
    pub(super) fn note_unfinished(&mut self, progress: bool, now: Instant) {
        self.reader.rest();
        let unfinished = self.reader.unfinished() > 0;
        self.begun = if !unfinished {
            None
        } else if progress {
            Some(now)
        } else {
            self.begun.or(Some(now))
        };
    }

    /// The number of bytes that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Reads once. `None`: the peer closed its side. 0: no bytes have come.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> Option<usize> {
        match linux::socket::receive_stream(self.stream.as_fd(), scratch, false) {
            Ok(0) => None,
            Ok(count) => {
                self.reader.feed(&scratch[..count]);
                Some(count)
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Some(0),
            Err(_) => None,
        }
    }

    /// Queues bytes that are not in a frame.
    pub(super) fn queue_raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Queues a message.
    pub(super) fn queue(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), Overflow> {
        let size: usize = parts.iter().map(|p| p.len()).sum();
        if self.waiting() + size > OUT_LIMIT {
            return Err(Overflow);
        }
        frame::write(kind, parts, &mut self.out);
        Ok(())
    }

    /// The document is to be sent as soon as the peer keeps up; it holds all changes so far.
    pub(super) fn owe_document(&mut self) {
        self.document_due = true;
        self.pending = None;
    }

    /// A change is to be sent; `encoded` is the same change as bytes. Merged with those that wait while the peer is behind.
    pub(super) fn owe_change(&mut self, change: &Change, encoded: &[u8]) -> Result<(), Overflow> {
        if self.document_due {
            return Ok(());
        }
        let busy = self.waiting() > BUSY;
        match &mut self.pending {
            Some(pending) => pending.merge(change),
            None if busy => self.pending = Some(change.clone()),
            None => return self.queue(Kind::Change, &[encoded]),
        }
        Ok(())
    }

    /// Writes as much as the socket takes, and queues owed messages once there is room. `document` returns the
    /// encoded document.
    ///
    /// # Errors
    /// The socket's error; the link is of no use then.
    pub(super) fn flush(&mut self, document: &mut dyn FnMut() -> Vec<u8>) -> io::Result<()> {
        loop {
            self.write_out()?;
            if self.waiting() > BUSY || self.stage != Stage::Open {
                return Ok(());
            }
            let owed = if std::mem::take(&mut self.document_due) {
                self.queue(Kind::Document, &[&document()])
            } else if let Some(change) = self.pending.take() {
                self.queue(Kind::Change, &[&serde_json::to_vec(&change)?])
            } else {
                return Ok(());
            };
            owed.map_err(|Overflow| io::Error::other("the peer does not read"))?;
        }
    }

    fn write_out(&mut self) -> io::Result<()> {
        while self.sent < self.out.len() {
            match linux::socket::send(self.stream.as_fd(), &self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.out.clear();
        self.out.shrink_to(BUSY);
        self.sent = 0;
        Ok(())
    }

    /// Says goodbye as far as the socket takes it.
    pub(super) fn farewell(&mut self, reason: &str) {
        if self.stage != Stage::Connecting && self.queue(Kind::Bye, &[reason.as_bytes()]).is_ok() {
            let _ = self.write_out();
        }
    }

    /// `true` if a connection that was being made is there now.
    pub(super) fn connected(&self) -> io::Result<()> {
        match socket2::SockRef::from(&self.stream).take_error()? {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// A reset connection has no address any more, but its data is still read. It does not count as a user of this host, for any
    /// addresses of the host to which a program binds and connects.
    #[test]
    fn the_far_end_is_of_this_host_if_its_address_is() {
        let [elsewhere, own]: [IpAddr; 2] = [[192, 0, 2, 7].into(), [192, 0, 2, 1].into()];
        assert!(!is_here(elsewhere, own));
        assert!(is_here(own, own) && is_here(elsewhere, [127, 0, 0, 1].into()));
        for interface in linux::net::interfaces().unwrap() {
            assert!(is_here(interface.address, own), "{interface:?}");
        }
    }

    #[test]
    fn a_connection_that_was_reset_is_nobody_of_this_host() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, from) = listener.accept().unwrap();
        socket2::SockRef::from(&peer).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(peer);
        while stream.peer_addr().is_ok() {
            std::thread::yield_now();
        }
        let link = Link::new(stream.into(), Stage::Open, None, Instant::now()).accepted_from(Some(from.ip()));
        assert_eq!(link.origin(), Origin::Tcp { from: [127, 0, 0, 1].into(), here: false, user: None });
    }

    fn pair() -> (Link, Link) {
        let (a, b) = UnixStream::pair().unwrap();
        let link = |s: UnixStream| {
            s.set_nonblocking(true).unwrap();
            let mut link = Link::new(s.into(), Stage::Open, None, Instant::now());
            link.reader.trust();
            link
        };
        (link(a), link(b))
    }

    fn change(revision: u64) -> (Change, Vec<u8>) {
        let change = Change { base: revision - 1, revision, ..Change::default() };
        let encoded = serde_json::to_vec(&change).unwrap();
        (change, encoded)
    }

    #[test]
    fn changes_for_a_peer_that_is_behind_become_one() {
        let (mut a, mut b) = pair();
        while a.waiting() <= BUSY {
            a.queue(Kind::Call, &[&[0; 8 + 10_000]]).unwrap();
            a.flush(&mut Vec::new).unwrap();
        }
        for revision in 2..1000 {
            let (change, encoded) = change(revision);
            a.owe_change(&change, &encoded).unwrap();
        }
        let (mut scratch, mut changes) = (vec![0; 65536], Vec::new());
        while changes.is_empty() {
            a.flush(&mut Vec::new).unwrap();
            b.receive(&mut scratch).unwrap();
            while let Some(message) = b.reader.next().unwrap() {
                if let frame::Message::Change(change) = message {
                    changes.push((change.base, change.revision));
                }
            }
        }
        assert_eq!(changes, [(1, 999)]);
    }

    #[test]
    fn a_peer_that_does_not_read_is_noticed_before_memory_grows() {
        let (mut a, _b) = pair();
        let mut queued = 0;
        while a.queue(Kind::Call, &[&[0; 100_000]]).is_ok() {
            a.flush(&mut Vec::new).unwrap();
            queued += 100_000;
        }
        assert!(a.waiting() <= OUT_LIMIT + 4096 && queued >= OUT_LIMIT);
    }
}
