//! TCP sockets of this process at one of its ports, including those of a library: the peers, and the listeners.

use crate::filter;
use socket2::{SockRef, Type};
use std::io;
use std::net::{IpAddr, Shutdown};
use std::os::fd::{BorrowedFd, RawFd};

/// The sockets at a port at the time of the search.
#[derive(Debug, Default)]
pub struct AtPort {
    port: u16,
    listeners: Vec<RawFd>,
    accepted: Vec<(IpAddr, RawFd)>,
}

impl AtPort {
    /// Looks at all descriptors of the process: one system call for each, four for each connection at the port.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn look(port: u16) -> io::Result<Self> {
        let mut found = Self { port, ..Self::default() };
        for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
            let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else { continue };
            match at(fd, port) {
                Some(None) => found.listeners.push(fd),
                Some(Some(peer)) => found.accepted.push((peer, fd)),
                None => {}
            }
        }
        Ok(found)
    }

    /// The hosts of the peers, one for each connection.
    pub fn connected(&self) -> impl Iterator<Item = IpAddr> {
        self.accepted.iter().map(|(peer, _)| *peer)
    }

    /// Ends connections whose host satisfies `ends`; returns their number.
    pub fn end(&self, mut ends: impl FnMut(IpAddr) -> bool) -> usize {
        let over = self.accepted.iter().filter(|(peer, _)| ends(*peer));
        over.filter(|(peer, fd)| {
            at(*fd, self.port) == Some(Some(*peer))
                && with(*fd, |fd| SockRef::from(&fd).shutdown(Shutdown::Both)).is_ok()
        })
        .count()
    }

    /// Makes the listeners ignore these hosts, see [`filter::not_from`].
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub fn refuse(&self, hosts: &[IpAddr]) -> io::Result<()> {
        let listens = |fd: &&RawFd| at(**fd, self.port) == Some(None);
        self.listeners.iter().filter(listens).try_for_each(|fd| with(*fd, |fd| filter::not_from(fd, hosts)))
    }
}

/// Number of descriptors of this process, plus one for the count itself.
///
/// # Errors
/// `/proc` cannot be read.
pub fn descriptors() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

/// Calls with a descriptor of another owner. It may be closed meanwhile.
#[allow(unsafe_code)]
fn with<T>(fd: RawFd, call: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    // SAFETY: the number is one of this process. Its owner may close it while it is borrowed: then a call fails (EBADF), or meets the
    // socket that has the number next, which harms no memory; callers ask for the port just before they change anything.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    call(fd)
}

/// The host at the other end of a TCP socket at this port, or `None` of a listener.
fn at(fd: RawFd, port: u16) -> Option<Option<IpAddr>> {
    with(fd, |fd| {
        let socket = SockRef::from(&fd);
        if socket.local_addr().ok()?.as_socket()?.port() != port || socket.r#type().ok()? != Type::STREAM {
            return None;
        }
        if socket.is_listener().ok()? {
            return Some(None);
        }
        Some(Some(socket.peer_addr().ok()?.as_socket()?.ip().to_canonical()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::Domain;
    use std::io::Read;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    fn connect(from: [u8; 4], to: SocketAddr) -> io::Result<TcpStream> {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect_timeout(&to.into(), Duration::from_millis(300))?;
        Ok(socket.into())
    }

    #[test]
    fn connections_at_a_port_are_counted_ended_and_refused_by_host() {
        let (listener, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let to = listener.local_addr().unwrap();
        let (one, two) = ([127, 0, 0, 2], [127, 0, 0, 3]);
        let clients: Vec<TcpStream> = [one, one, two].iter().map(|from| connect(*from, to).unwrap()).collect();
        let _elsewhere = connect(one, other.local_addr().unwrap()).unwrap();
        let _accepted: Vec<TcpStream> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        let found = AtPort::look(to.port()).unwrap();
        let mut hosts: Vec<IpAddr> = found.connected().collect();
        hosts.sort();
        assert_eq!(hosts, [one, one, two].map(IpAddr::from));
        let mut left = 1;
        let ended = found.end(|host| host == IpAddr::from(one) && std::mem::replace(&mut left, 0) == 0);
        assert_eq!(ended, 1);
        let over = |client: &TcpStream| {
            client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            matches!((&mut &*client).read(&mut [0]), Ok(0))
        };
        assert_eq!(clients.iter().filter(|client| over(client)).count(), 1);
        found.refuse(&[one.into()]).unwrap();
        assert!(connect(one, to).is_err() && connect(two, to).is_ok());
        found.refuse(&[]).unwrap();
        assert!(connect(one, to).is_ok());
    }
}
