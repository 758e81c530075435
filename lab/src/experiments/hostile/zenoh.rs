//! Zenoh's port of a node, attacked from another host. Of Zenoh's wire format (protocol version 9) only the opening
//! of a session is here: each message behind its length, InitSyn, InitAck with a cookie, OpenSyn with it, OpenAck.

use super::attacker::Attacker;
use super::recorded;
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::topology::Topology;
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::time::Duration;

/// Largest number of its connections, more than a node accepts of all hosts together.
const HELD: usize = 3000;
/// Time that it waits for an answer: a barred host gets none.
const PATIENCE: Duration = Duration::from_millis(100);

/// Hosts for the pair, for newcomers and for attackers.
///
/// # Errors
/// [`Error::System`] if hosts cannot be made, or in a build without Zenoh.
pub fn hosts(lab: &Lab) -> Result<Topology> {
    if !cfg!(feature = "zenoh") {
        return Err(Error::System("this build has no Zenoh: build it with the feature zenoh, a default one".into()));
    }
    Topology::switch(lab, super::pair::STRANGER, &[])
}

/// Silent connections; at the limit the oldest gives way to another.
pub fn silent(attacker: &mut Attacker) -> io::Result<()> {
    let mut held = VecDeque::new();
    while attacker.goes_on() {
        attacker.tried("connections");
        let (socket, to) = socket(attacker)?;
        socket.set_nonblocking(true)?;
        // The attempt continues by itself; if there is no port left others have to end.
        if socket.connect(&to).is_err_and(|error| Errno::from_io_error(&error) != Some(Errno::INPROGRESS)) {
            attacker.pause(1);
        }
        held.push_back(socket);
        if held.len() > HELD {
            held.pop_front();
        }
    }
    Ok(())
}

/// Endless sessions, of peers with ids of their own, and handshakes that are abandoned after any of their messages.
pub fn handshakes(attacker: &mut Attacker) -> io::Result<()> {
    let mut held = VecDeque::new();
    while attacker.goes_on() {
        let steps = attacker.dice.below(4);
        attacker.tried(["connections", "half handshakes", "whole handshakes", "sessions"][steps as usize]);
        match connect(attacker).and_then(|socket| open(attacker, socket, steps, u64::MAX)) {
            Ok(socket) => held.push_back(socket),
            Err(error) => attacker.answer(&error.kind().to_string()),
        }
        if held.len() > HELD {
            held.pop_front();
        }
    }
    Ok(())
}

/// Handshakes with a changed message, and sessions of malformed messages.
pub fn changed(attacker: &mut Attacker) -> io::Result<()> {
    while attacker.goes_on() {
        let which = attacker.dice.below(3);
        attacker.tried(["InitSyn", "OpenSyn", "sessions"][which as usize]);
        let opened = connect(attacker).and_then(|socket| open(attacker, socket, 3, which));
        if let Err(error) = opened.and_then(|socket| nonsense(attacker, socket)) {
            attacker.answer(&error.kind().to_string());
        }
    }
    Ok(())
}

/// Random messages, until the other end closes.
fn nonsense(attacker: &mut Attacker, mut socket: Socket) -> io::Result<()> {
    while attacker.goes_on() {
        let mut message: Vec<u8> = (0..attacker.dice.below(200)).map(|_| attacker.dice.bits() as u8).collect();
        // The kind is an existing one: close, keep-alive, frame, fragment.
        if let Some(first) = message.first_mut() {
            *first = *first & 0xe0 | (3 + (*first & 3));
        }
        attacker.tried("messages");
        socket.write_all(&sized(&message))?;
    }
    Ok(())
}

/// A connection to the port, or none in time.
fn connect(attacker: &Attacker) -> io::Result<Socket> {
    let (socket, to) = socket(attacker)?;
    socket.connect_timeout(&to, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Closed with a reset, so that a flood leaves no ports waiting.
fn socket(attacker: &Attacker) -> io::Result<(Socket, SockAddr)> {
    let to = attacker.task.zenoh.ok_or_else(|| io::Error::other("no node listens to Zenoh"))?;
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_nodelay(true)?;
    Ok((socket, to.into()))
}

/// Makes `steps` steps of a handshake: 1 sends InitSyn, 2 sends OpenSyn after the answer, 3 waits for the session.
/// The message `changed`, counted from 0, is malformed; its effect is not waited for long.
fn open(attacker: &mut Attacker, mut socket: Socket, steps: u64, changed: u64) -> io::Result<Socket> {
    let id = [attacker.dice.bits().to_le_bytes(), attacker.dice.bits().to_le_bytes()].concat();
    let init = [&[0x41, 0x09, 0xf1][..], &id, &[0x0a, 0xff, 0xff]].concat();
    let mut say = |socket: &mut Socket, message: Vec<u8>, step| {
        let mut bytes = sized(&message);
        if step == changed {
            bytes = recorded::changed(&bytes, &message, &mut attacker.dice);
            socket.set_read_timeout(Some(PATIENCE / 20))?;
        }
        socket.write_all(&bytes)
    };
    if steps > 0 {
        say(&mut socket, init, 0)?;
    }
    if steps > 1 {
        let answer = read(&mut socket)?;
        let has_sizes = answer.first().is_some_and(|head| head & 0x40 != 0);
        let cookie = answer.get(19 + 3 * usize::from(has_sizes)..).ok_or(io::ErrorKind::InvalidData)?;
        // A lease of an hour, and the cookie as received, behind its length. Extensions that follow it are none of
        // ours.
        let cookie = &cookie[..cookie_end(cookie)];
        say(&mut socket, [&[0x42, 0x90, 0x1c, 0x01][..], cookie].concat(), 1)?;
    }
    if steps > 2 && read(&mut socket)?.first().is_none_or(|head| head & 0x1f != 2) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(socket)
}

/// The end of a cookie that begins with its length, in seven bits a byte.
fn cookie_end(cookie: &[u8]) -> usize {
    let head = cookie.iter().take_while(|byte| **byte & 0x80 != 0).count() + 1;
    let length = cookie.iter().take(head).rev().fold(0, |length, byte| length << 7 | usize::from(byte & 0x7f));
    (head + length).min(cookie.len())
}

/// A message behind its length.
fn sized(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_le_bytes()[..], message].concat()
}

fn read(socket: &mut Socket) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    socket.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_le_bytes(length).into()];
    socket.read_exact(&mut message)?;
    Ok(message)
}
