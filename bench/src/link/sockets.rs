//! Blocking sockets: one write and one read per message, into one buffer.

use super::{End, Link, PATIENCE, receive_descriptor};
use crate::meeting::{self, Watch};
use crate::{invalid, peer_left};
use linux::poll;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

const CHUNK: usize = 64 * 1024;

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
