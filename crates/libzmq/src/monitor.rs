//! What becomes of a socket's connections.

use super::calls::{checked, zmq_socket_monitor};
use super::{Kind, Message, Number, Socket};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

const CONNECTED: u16 = 0x0001;
const CONNECT_DELAYED: u16 = 0x0002;
const CONNECT_RETRIED: u16 = 0x0004;
const DISCONNECTED: u16 = 0x0200;

/// Something that happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It stands, or is tried again.
    Tried,
    /// It ended. If it is not tried again, then because libzmq cannot read what came.
    Ended,
}

/// Tells what becomes of a socket's connections.
pub struct Monitor(Socket);

impl Monitor {
    /// Watches a socket from now on: before it connects.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn of(socket: &Socket) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let place = format!("inproc://monitor-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let events = CONNECTED | CONNECT_DELAYED | CONNECT_RETRIED | DISCONNECTED;
        let text = CString::new(&place[..])?;
        // SAFETY: the socket lives, and the text for the call.
        checked(unsafe { zmq_socket_monitor(socket.raw(), text.as_ptr(), events.into()) })?;
        let told = socket.context().socket(Kind::Pair)?;
        told.set(Number::Linger, 0)?;
        told.connect(&place)?;
        Ok(Self(told))
    }

    /// The next event, if there is one: a frame with its number and a value, and one with the endpoint.
    ///
    /// # Errors
    /// None that is known.
    pub fn next(&self, frame: &mut Message) -> io::Result<Option<Event>> {
        while self.0.receive(frame)? {
            let event = frame.first_chunk::<2>().map(|number| u16::from_ne_bytes(*number));
            while frame.more() && self.0.receive(frame)? {}
            match event {
                Some(DISCONNECTED) => return Ok(Some(Event::Ended)),
                Some(CONNECTED | CONNECT_DELAYED | CONNECT_RETRIED) => return Ok(Some(Event::Tried)),
                _ => {}
            }
        }
        Ok(None)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
