//! A program of ZeroMQ made by hand, which may also send what no program sends (ZMTP 3.0, RFC 23).

use super::running::until;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The next connection.
pub fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut found = None;
    until("somebody connects", || {
        found = listener.accept().ok();
        found.is_some()
    });
    let (stream, _) = found.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

pub struct Connection(pub TcpStream);

impl Connection {
    /// The other end of the next connection, as a socket of this kind.
    pub fn accept(listener: &TcpListener, kind: &str) -> Self {
        Self::greet(accept(listener), kind)
    }

    /// Connects to `127.0.0.1:5556`, as a socket of this kind.
    pub fn open(address: &str, kind: &str) -> Self {
        Self::greet(TcpStream::connect(address).unwrap(), kind)
    }

    fn greet(stream: TcpStream, kind: &str) -> Self {
        let mut this = Self(stream);
        this.0.set_read_timeout(Some(super::world::LONG)).unwrap();
        let mut greeting = [0; 64];
        greeting[..12].copy_from_slice(b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0");
        greeting[12..16].copy_from_slice(b"NULL");
        this.0.write_all(&greeting).unwrap();
        this.0.read_exact(&mut greeting).unwrap();
        let size = u8::try_from(kind.len()).unwrap();
        let ready = [b"\x05READY\x0bSocket-Type\0\0\0", &[size][..], kind.as_bytes()].concat();
        this.write(COMMAND, &ready);
        assert!(this.frame().starts_with(b"\x05READY"));
        this
    }

    /// Sends a message.
    pub fn send(&mut self, frames: &[&[u8]]) {
        for (at, frame) in frames.iter().enumerate() {
            self.write(if at + 1 < frames.len() { MORE } else { 0 }, frame);
        }
    }

    /// Announces a frame of this size, of which nothing follows.
    pub fn announce(&mut self, size: u64) {
        self.0.write_all(&[&[LONG][..], &size.to_be_bytes()].concat()).unwrap();
    }

    fn write(&mut self, flags: u8, frame: &[u8]) {
        let size = u8::try_from(frame.len()).unwrap();
        self.0.write_all(&[&[flags, size][..], frame].concat()).unwrap();
    }

    /// The next frame.
    pub fn frame(&mut self) -> Vec<u8> {
        let [flags, size] = self.read();
        let size = if flags & LONG == 0 {
            size.into()
        } else {
            let rest: [u8; 7] = self.read();
            u64::from_be_bytes([&[size][..], &rest].concat().try_into().unwrap())
        };
        let mut frame = vec![0; usize::try_from(size).unwrap()];
        self.0.read_exact(&mut frame).unwrap();
        frame
    }

    fn read<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }
}
