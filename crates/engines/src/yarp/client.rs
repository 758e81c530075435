//! Questions to a name server, and first contact with a port. These wait, at most [`PATIENCE`] for each question as a whole: only threads
//! that may wait call them.

#![allow(clippy::disallowed_methods)] // its threads read the clock

use super::frame::{Carrier, header};
use super::names::{END, Registration, connect};
use crate::engine::{Error, Result};
use crate::lock;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for one answer, from the connection to the last byte of it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest answer, in bytes: 10,000 registrations.
const LONGEST_ANSWER: u64 = 8 << 20;
/// A port that is to be told from a dead one answers a connection within this time.
const ALIVE: Duration = Duration::from_millis(500);

/// After a vain attempt to connect, so long none is made: each may take [`PATIENCE`].
const PAUSE: Duration = Duration::from_secs(1);

/// A name server.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    server: String,
    failed: Arc<Mutex<Option<Instant>>>,
}

impl Client {
    /// The name server at this address, such as `127.0.0.1:10000`.
    pub(crate) fn new(server: &str) -> Self {
        Self { server: server.to_owned(), failed: Arc::default() }
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::Engine(format!("YARP's name server at {}: {error}", self.server))
    }

    /// The address of this host by which the name server is reached.
    pub(crate) fn own_address(&self) -> Result<IpAddr> {
        let own = open(&self.server, PATIENCE).and_then(|opened| opened.stream.local_addr());
        own.map(|address| address.ip()).map_err(|error| self.failed(&error))
    }

    /// The lines of the answers to some commands, which are sent together.
    fn ask(&self, commands: &[String]) -> Result<Vec<String>> {
        self.exchange(commands).map_err(|error| self.failed(&error))
    }

    fn exchange(&self, commands: &[String]) -> io::Result<Vec<String>> {
        let mut stream = self.connect()?;
        let request: String = commands.iter().map(|command| format!("NAME_SERVER {command}\n")).collect();
        stream.write_all(request.as_bytes())?;
        let (mut reader, mut lines, mut left) =
            (BufReader::new(stream.take(LONGEST_ANSWER)), Vec::new(), commands.len());
        while left > 0 {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended within an answer"));
            }
            match line.trim() {
                // Such as `[ok]`: yarpserver answers some commands with a bottle, and no last line (`NameClient::send`).
                line if line == END || line.starts_with('[') => left -= 1,
                line => lines.push(line.to_owned()),
            }
        }
        Ok(lines)
    }

    fn connect(&self) -> io::Result<Timed> {
        if lock(&self.failed).is_some_and(|failed| failed.elapsed() < PAUSE) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "it could not be reached a moment ago"));
        }
        let opened = open(&self.server, PATIENCE);
        *lock(&self.failed) = opened.is_err().then(Instant::now);
        opened
    }

    /// All ports.
    pub(crate) fn list(&self) -> Result<Vec<Registration>> {
        let lines = self.ask(&["list".to_owned()])?;
        Ok(lines.iter().filter_map(|line| Registration::parse(line)).filter(Registration::is_port).collect())
    }

    /// A port.
    pub(crate) fn query(&self, name: &str) -> Result<Option<Registration>> {
        Ok(self.ask(&[format!("query {name}")])?.iter().find_map(|line| Registration::parse(line)))
    }

    /// Registers a port of this program. A name that another living port has stays with it.
    ///
    /// # Errors
    /// [`Error::Engine`] for a name that is taken, and for a name server that cannot be reached, or refuses.
    pub(crate) fn register(&self, name: &str, own: SocketAddr) -> Result<()> {
        let address = self.query(name)?.map(|other| other.address()).filter(|address| *address != own.to_string());
        if let Some(address) = address
            && is_taken(&address, name)
        {
            return Err(Error::Engine(format!(
                "YARP port {name} is taken by the program at {address}: choose another --prefix"
            )));
        }
        let carriers = Carrier::OFFERED.map(Carrier::name).join(" ");
        let (host, port) = (own.ip(), own.port());
        let said = self.ask(&[
            format!("register {name} tcp {host} {port}"),
            format!("set {name} offers {carriers}"),
            format!("set {name} accepts {carriers}"),
        ])?;
        match said.iter().find_map(|line| Registration::parse(line)) {
            Some(found) if found.name == name => {
                self.announce(name);
                Ok(())
            }
            _ => {
                let why = said.first().map_or("it gave no registration", |line| line);
                Err(Error::Engine(format!("YARP's name server at {} refused {name}: {why}", self.server)))
            }
        }
    }

    /// A port takes connections: those that wait for it can be made (`PortCore::listen`). The name server makes them before it answers, so that
    /// one to a host that is gone takes longer than the answer is waited for: the port is there all the same.
    fn announce(&self, name: &str) {
        let _ = self.exchange(&[format!("announce {name}")]);
    }

    /// Gives names back. Who is gone need not be told, so errors are none.
    pub(crate) fn unregister<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let commands: Vec<String> = names.into_iter().map(|name| format!("unregister {name}")).collect();
        // Together, because each question costs a connection; and none after one in vain, which costs time.
        let _ = commands.chunks(64).all(|some| self.ask(some).is_ok());
    }
}

/// Whether a port is where its registration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    There,
    /// Nobody listens there, or another port does.
    Gone,
    /// Its host is not reached, or it has hung up: it may be busy, or on its way out.
    Unknown,
}

/// Looks whether the port of this name is at this address. One that accepts connections and says nothing may be.
pub(crate) fn is_at(address: &str, name: &str) -> Presence {
    let mut stream = match open(address, ALIVE) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Presence::Gone,
        Err(_) => return Presence::Unknown,
    };
    let asked = stream.write_all(&[&header(Carrier::Text, "<ping>")[..], b"*\r\n"].concat());
    let said = asked.and_then(|()| line(&mut stream)).and_then(|_| line(&mut stream)); // the first is its welcome
    match said {
        Ok(said) if said.split_ascii_whitespace().any(|word| word == name) => Presence::There,
        Ok(_) => Presence::Gone,
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Presence::There,
        Err(_) => Presence::Unknown,
    }
}

/// A name whose port does not answer twice may be had by others: its host may have started again, with another address.
fn is_taken(address: &str, name: &str) -> bool {
    match is_at(address, name) {
        Presence::Unknown => is_at(address, name) == Presence::There,
        presence => presence == Presence::There,
    }
}

/// A connection for one question. Each read and write has what is left of its time, so that who speaks slowly has no more of it.
struct Timed {
    stream: TcpStream,
    end: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.end)?))?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.end)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The time until `end`, which is never zero: zero would be no limit.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Opens a connection that is of use for `patience` from now. Of several addresses of a name each has its share of the time.
fn open(address: &str, patience: Duration) -> io::Result<Timed> {
    let found: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    let end = Instant::now() + patience; // a name's server is the system's affair, with limits of its own
    let mut why = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
    for (at, one) in found.iter().enumerate() {
        let share = left(end)? / u32::try_from(found.len() - at).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(one, share.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(Timed { stream, end }),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Opens a connection from the port `from`, up to the answer to the header.
pub(crate) fn enter(address: &str, carrier: Carrier, from: &str) -> io::Result<TcpStream> {
    begin(address, carrier, from).map(|begun| begun.stream)
}

fn begin(address: &str, carrier: Carrier, from: &str) -> io::Result<Timed> {
    let mut stream = open(address, PATIENCE)?;
    stream.write_all(&header(carrier, from))?;
    match carrier {
        Carrier::Tcp | Carrier::FastTcp => stream.read_exact(&mut [0; 8])?,
        Carrier::Text | Carrier::TextAck => drop(line(&mut stream)?),
        Carrier::NameServer => {}
    }
    Ok(stream)
}

/// A line, byte by byte: what follows it is not this function's.
fn line(stream: &mut impl Read) -> io::Result<String> {
    const LONGEST: usize = 8 << 10;
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') && line.len() < LONGEST {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.extend_from_slice(&byte);
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Has the port at this address send to the port `input`. Its answer is for people.
pub(crate) fn ask_to_send(address: &str, carrier: Carrier, input: &str) -> io::Result<String> {
    let mut stream = begin(address, Carrier::TextAck, "admin")?;
    stream.write_all(format!("a\r\n{}\r\n", connect(carrier.name(), input)).as_bytes())?;
    line(&mut stream)
}

#[cfg(test)]
mod tests;
