//! Connections to a broker over TCP whose packets are marked as control traffic. The connector of ureq gives no hold of its sockets.

use linux::marks;
use qos::Class;
use qos::priority::{CONTROL, Mark};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use ureq::Error;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};

/// The least time for an attempt to connect.
const SHORTEST: Duration = Duration::from_millis(10);

/// Opens them.
#[derive(Debug)]
pub(crate) struct Marked;

impl Connector for Marked {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Connection>, Error> {
        let stream = open(&details.addrs, details.timeout)?;
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Connection { stream, buffers: LazyBuffers::new(input, output) }))
    }
}

/// A marked stream to the first address that takes a connection. Each but the last one has half of the time that is left.
fn open(addresses: &[SocketAddr], timeout: NextTimeout) -> Result<TcpStream, Error> {
    let until = left(timeout)?.and_then(|left| Instant::now().checked_add(left));
    let mut failed = Error::HostNotFound;
    for (at, address) in addresses.iter().enumerate() {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let parts = if at + 1 < addresses.len() { 2 } else { 1 };
        let tried = match left {
            Some(left) => TcpStream::connect_timeout(address, (left / parts).max(SHORTEST)),
            None => TcpStream::connect(address),
        };
        match tried {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                // Where a mark cannot be set, requests go without.
                let _ = marks::set(stream.as_fd(), &Mark::Dscp(CONTROL), Class::High.socket_priority());
                return Ok(stream);
            }
            Err(error) => failed = lost(error, timeout),
        }
    }
    Err(failed)
}

/// The time that is left; `None`: no end of it.
fn left(timeout: NextTimeout) -> Result<Option<Duration>, Error> {
    match timeout.after.is_zero() {
        true => Err(Error::Timeout(timeout.reason)),
        false => Ok(timeout.not_zero().map(|left| *left)),
    }
}

fn lost(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(left(timeout)?)?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(|error| lost(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(left(timeout)?)?;
        let amount = read(&self.stream, self.buffers.input_append_buf()).map_err(|error| lost(error, timeout))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Nobody sends without being asked: what can be read now is an end.
    fn is_open(&mut self) -> bool {
        let found = linux::socket::receive_stream(self.stream.as_fd(), &mut [0], false);
        found.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// A call that a signal interrupts is made again: with a time limit the kernel does not do it.
fn read(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match io::Read::read(&mut stream, buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn packets_have_the_mark_of_control_traffic_and_the_priority_of_class_high() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let addresses = [gone, listener.local_addr().unwrap()];
        let stream = open(&addresses, NextTimeout::default()).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[1], "one that takes no connection is passed over");
        let found = marks::read(stream.as_fd()).unwrap();
        assert_eq!((found.tos, found.priority), (0xa0, Class::High.socket_priority()));
        assert!(open(&[gone], NextTimeout::default()).is_err() && open(&[], NextTimeout::default()).is_err());
    }

    #[test]
    fn a_connection_whose_other_end_has_gone_is_not_open() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = open(&[listener.local_addr().unwrap()], NextTimeout::default()).unwrap();
        let mut connection = Connection { stream, buffers: LazyBuffers::new(64, 64) };
        let (mut other, _) = listener.accept().unwrap();
        assert!(connection.is_open());
        connection.buffers().output()[..3].copy_from_slice(b"one");
        connection.transmit_output(3, NextTimeout::default()).unwrap();
        let mut said = [0; 3];
        io::Read::read_exact(&mut other, &mut said).unwrap();
        other.write_all(b"two").unwrap();
        assert!(connection.await_input(NextTimeout::default()).unwrap());
        assert_eq!((&said, connection.buffers().input()), (b"one", &b"two"[..]));
        drop(other);
        assert!(!connection.await_input(NextTimeout::default()).unwrap() && !connection.is_open());
    }
}
