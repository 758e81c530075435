//! The role that forwards messages by bare sockets: the least that any relay costs.

use crate::error::{Error, Result};
use crate::part::Orders;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Name of the role.
pub(crate) const ROLE: &str = "forward";

/// From where to where.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Hop {
    /// Its own address.
    pub listen: SocketAddr,
    /// The address it connects to.
    pub next: SocketAddr,
}

/// Time for the next one to listen.
const CONNECT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);
/// Largest message with its length, in bytes.
const LARGEST: usize = 1 << 16;

/// Plays the role: one connection in, one out, each message as it comes.
pub(crate) fn play(mut orders: Orders) -> Result {
    let Hop { listen, next } = orders.settings()?;
    let listener = TcpListener::bind(listen)?;
    linux::thread::spawn(linux::thread::Settings::named("forward"), move || {
        let forwarded = accept(&listener).and_then(|from| pass(from, connect(next)?));
        if let Err(error) = forwarded {
            crate::part::tell(&error);
        }
    })?;
    orders.say(&json!({"listens": listen}))?;
    while orders.wait::<Value>()?.is_some() {}
    Ok(())
}

/// Takes one connection.
pub(crate) fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let stream = listener.accept()?.0;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects as soon as the other end listens.
pub(crate) fn connect(to: SocketAddr) -> Result<TcpStream> {
    let until = Instant::now() + CONNECT;
    loop {
        match TcpStream::connect(to) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(e) if e.kind() == ErrorKind::ConnectionRefused && Instant::now() < until => std::thread::sleep(PAUSE),
            Err(e) => return Err(Error::Failed(format!("{to}: {e}"))),
        }
    }
}

/// Passes on message by message, until either side ends.
fn pass(from: TcpStream, mut to: TcpStream) -> Result {
    let mut messages = Messages::of(from);
    while let Some(message) = messages.next()? {
        to.write_all(message)?;
    }
    Ok(())
}

/// Messages of a stream, each with its length in front. One call of the system for each where they come one by one.
pub(crate) struct Messages {
    from: TcpStream,
    bytes: Box<[u8]>,
    begin: usize,
    end: usize,
}

impl Messages {
    /// Reads the messages of this stream.
    pub(crate) fn of(from: TcpStream) -> Self {
        Self { from, bytes: vec![0; LARGEST].into_boxed_slice(), begin: 0, end: 0 }
    }

    /// The next message with its length; `None`: there will be no more.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        let whole = loop {
            let had = &self.bytes[self.begin..self.end];
            let whole = had.first_chunk::<4>().map(|length| (u32::from_le_bytes(*length) as usize).saturating_add(4));
            match whole {
                Some(whole) if whole > LARGEST => {
                    return Err(Error::Failed(format!("a message of {whole} bytes: at most {LARGEST} are forwarded")));
                }
                Some(whole) if whole <= had.len() => break whole,
                _ if !self.more()? => return Ok(None),
                _ => {}
            }
        };
        let message = self.begin..self.begin + whole;
        self.begin += whole;
        Ok(Some(&self.bytes[message]))
    }

    /// Reads available bytes, behind the rest of the message before. `false`: there will be no more.
    fn more(&mut self) -> Result<bool> {
        self.bytes.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        match self.from.read(&mut self.bytes[self.end..])? {
            0 if self.end > 0 => Err(Error::Failed("a message ended half-way".into())),
            0 => Ok(false),
            had => {
                self.end += had;
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_however_they_were_cut_and_lying_lengths_are_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = connect(listener.local_addr().unwrap()).unwrap();
        let mut messages = Messages::of(accept(&listener).unwrap());
        let sizes = [0_u32, 1, 8192, 3, 8192];
        let message = |size: &u32| [&size.to_le_bytes()[..], &vec![*size as u8; *size as usize]].concat();
        let all: Vec<u8> = sizes.iter().flat_map(message).collect();
        let writer = std::thread::spawn(move || {
            all.chunks(1000).for_each(|part| sender.write_all(part).unwrap());
            sender.write_all(&u32::MAX.to_le_bytes()).unwrap();
        });
        for size in sizes {
            assert_eq!(messages.next().unwrap().unwrap(), message(&size));
        }
        assert!(messages.next().is_err());
        writer.join().unwrap();
    }

    #[test]
    fn a_stream_ends_between_messages_or_it_is_said() {
        for (bytes, whole) in [(&[][..], true), (&[9, 0][..], false), (&[9, 0, 0, 0, 1][..], false)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut sender = connect(listener.local_addr().unwrap()).unwrap();
            let mut messages = Messages::of(accept(&listener).unwrap());
            sender.write_all(bytes).unwrap();
            drop(sender);
            assert_eq!(matches!(messages.next(), Ok(None)), whole, "{bytes:?}");
        }
    }
}
