//! Links between two processes, one for each carrier.
//!
//! | module | contents |
//! |---|---|
//! | [`sockets`] | blocking TCP, UDP and unix sockets |
//! | [`ring`] | a bare futex ring in shared memory |

pub mod ring;
pub mod sockets;

use crate::{Carrier, invalid, peer_left};
use linux::poll;
use ring::{Ring, Shape};
use sockets::{Datagram, Stream};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// The end of a link: one makes the first move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Connects (ping, sender).
    Active,
    /// The end that is connected to (pong, receiver).
    Passive,
}

/// One message out, one message in. The payload is written and read in the link's own memory.
pub trait Link {
    /// `true` if the payload's memory is shared with the peer, so that "copied" means a copy of our own.
    const SHARED: bool = false;

    /// Lets `write` write the next message in place, and sends it.
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> io::Result<()>;

    /// Waits for one whole message and lets `read` see it in place.
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> io::Result<R>;

    /// Waits for bytes and takes all available ones, at most one buffer full; returns their number. 0 is the end.
    fn take(&mut self) -> io::Result<usize>;

    /// Sends many copies of one message with as few calls as possible.
    fn send_batched(&mut self, _count: u64) -> io::Result<()> {
        Err(invalid("this carrier takes one message per call".to_owned()))
    }

    /// Tells the receiver that no more messages come; a byte stream needs no such sign.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A link of any carrier; [`each`] runs one loop for each kind, so that there is no decision per message.
pub(crate) enum AnyLink {
    Tcp(Stream<TcpStream>),
    Udp(Datagram),
    Unix(Stream<UnixStream>),
    Shm(Ring),
}

impl AnyLink {
    /// Makes the link; both processes call it at once.
    pub(crate) fn open(
        carrier: Carrier,
        control: &UnixStream,
        end: End,
        size: usize,
        shape: Shape,
    ) -> io::Result<Self> {
        Ok(match (carrier, end) {
            (Carrier::Tcp, _) => Self::Tcp(sockets::tcp(control, end, size)?),
            (Carrier::Udp, _) => Self::Udp(sockets::udp(control, size)?),
            (Carrier::Unix, _) => Self::Unix(sockets::unix(control, end, size)?),
            (Carrier::Shm, End::Active) => Self::Shm(Ring::create(control, shape)?),
            (Carrier::Shm, End::Passive) => Self::Shm(Ring::open(control, shape)?),
        })
    }
}

/// Runs `$body` with `$link` bound to the link inside an [`AnyLink`].
macro_rules! each {
    ($any:expr, $link:ident => $body:expr) => {
        match $any {
            $crate::link::AnyLink::Tcp($link) => $body,
            $crate::link::AnyLink::Udp($link) => $body,
            $crate::link::AnyLink::Unix($link) => $body,
            $crate::link::AnyLink::Shm($link) => $body,
        }
    };
}
pub(crate) use each;

impl Carrier {
    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Tcp => "tcp",
            Carrier::Udp => "udp",
            Carrier::Unix => "unix",
            Carrier::Shm => "shm",
        }
    }
}

/// Receives one descriptor over the control line.
///
/// # Errors
/// UnexpectedEof when the other end sent none.
pub fn receive_descriptor(control: &UnixStream) -> io::Result<OwnedFd> {
    let mut got = Vec::new();
    if poll::wait_readable(control, Some(PATIENCE))? {
        linux::socket::receive_with_descriptors(control.as_fd(), &mut [0], &mut got)?;
    }
    got.pop().ok_or_else(peer_left)
}
