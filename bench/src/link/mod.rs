//! Links between two processes, one for each carrier: blocking TCP, UDP and unix sockets with one write and one read per
//! message, into one buffer; and a bare futex [`ring`] in shared memory.

pub mod ring;

use crate::meeting::{self, Watch};
use crate::{Carrier, invalid, peer_left};
use linux::poll;
use ring::{Ring, Shape};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

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
            (Carrier::Tcp, _) => Self::Tcp(tcp(control, end, size)?),
            (Carrier::Udp, _) => Self::Udp(udp(control, size)?),
            (Carrier::Unix, _) => Self::Unix(unix(control, end, size)?),
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

/// A byte stream: `write_all` out, `read_exact` in.
pub struct Stream<S> {
    stream: S,
    buffer: Vec<u8>,
    chunk: Vec<u8>,
    size: usize,
}

impl<S: Read + Write> Stream<S> {
    fn new(stream: S, size: usize) -> Self {
        Self { stream, buffer: vec![0; size], chunk: Vec::new(), size }
    }
}

impl<S: Read + Write> Link for Stream<S> {
    #[inline]
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> io::Result<()> {
        write(&mut self.buffer);
        self.stream.write_all(&self.buffer)
    }

    #[inline]
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        self.stream.read_exact(&mut self.buffer).map_err(ended)?;
        Ok(read(&self.buffer))
    }

    #[inline]
    fn take(&mut self) -> io::Result<usize> {
        if self.chunk.is_empty() {
            self.chunk.resize(CHUNK.max(self.size), 0);
        }
        self.stream.read(&mut self.chunk)
    }

    fn send_batched(&mut self, count: u64) -> io::Result<()> {
        let mut pending = Vec::with_capacity(CHUNK.max(self.size));
        for _ in 0..count {
            pending.extend_from_slice(&self.buffer);
            if pending.len() + self.size > CHUNK {
                self.stream.write_all(&pending)?;
                pending.clear();
            }
        }
        self.stream.write_all(&pending)
    }
}

/// A connected datagram socket.
pub struct Datagram {
    socket: UdpSocket,
    buffer: Vec<u8>,
    _watch: Watch, // shuts the socket down when the peer hangs up, which ends a blocked receive
}

impl Datagram {
    fn one(&mut self) -> io::Result<usize> {
        loop {
            match self.socket.recv(&mut self.buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Link for Datagram {
    #[inline]
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> io::Result<()> {
        write(&mut self.buffer);
        self.socket.send(&self.buffer).map(|_| ())
    }

    #[inline]
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let got = self.one()?;
        if got != self.buffer.len() {
            return Err(peer_left());
        }
        Ok(read(&self.buffer))
    }

    #[inline]
    fn take(&mut self) -> io::Result<usize> {
        self.one()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.socket.send(&[]).map(|_| ())
    }
}

/// Makes a TCP connection over loopback, both ends of the control line at once.
///
/// # Errors
/// The error of the socket calls; TimedOut if the other end does not come.
pub fn tcp(control: &UnixStream, end: End, size: usize) -> io::Result<Stream<TcpStream>> {
    let stream = match end {
        End::Passive => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            write_port(control, listener.local_addr()?.port())?;
            if !poll::wait_readable(&listener, Some(PATIENCE))? {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody connected by TCP"));
            }
            listener.accept()?.0
        }
        End::Active => TcpStream::connect((Ipv4Addr::LOCALHOST, read_port(control)?))?,
    };
    stream.set_nodelay(true)?;
    Ok(Stream::new(stream, size))
}

/// Makes a pair of connected UDP sockets over loopback.
///
/// # Errors
/// The error of the socket calls.
pub fn udp(control: &UnixStream, size: usize) -> io::Result<Datagram> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    write_port(control, socket.local_addr()?.port())?;
    socket.connect((Ipv4Addr::LOCALHOST, read_port(control)?))?;
    let other = socket.try_clone()?;
    let watch = Watch::start(control, move || _ = rustix::net::shutdown(&other, rustix::net::Shutdown::Read))?;
    Ok(Datagram { socket, buffer: vec![0; size], _watch: watch })
}

/// Makes a unix stream of its own next to the control line.
///
/// # Errors
/// The error of the socket calls.
pub fn unix(control: &UnixStream, end: End, size: usize) -> io::Result<Stream<UnixStream>> {
    let stream = match end {
        End::Passive => {
            let (ours, theirs) = UnixStream::pair()?;
            linux::socket::send_with_descriptors(control.as_fd(), &[0], &[theirs.as_fd()])?;
            ours
        }
        End::Active => UnixStream::from(receive_descriptor(control)?),
    };
    Ok(Stream::new(stream, size))
}

fn write_port(control: &UnixStream, port: u16) -> io::Result<()> {
    meeting::write_words(control, &[port.into()])
}

fn read_port(control: &UnixStream) -> io::Result<u16> {
    let [port] = meeting::read_words(control)?;
    u16::try_from(port).map_err(|_| invalid(format!("{port} is no port number")))
}

fn ended(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::UnexpectedEof { peer_left() } else { error }
}

const PATIENCE: Duration = Duration::from_secs(30);
const CHUNK: usize = 64 * 1024;
