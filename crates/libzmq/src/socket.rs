//! A socket, its options and its frames.

use super::calls::{self, DONTWAIT, SNDMORE, at_once, checked};
use super::{Context, Message};
use std::cell::Cell;
use std::ffi::{CString, c_int, c_void};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

const FD: c_int = 14;
const SUBSCRIBE: c_int = 6;
const UNSUBSCRIBE: c_int = 7;
const MAXMSGSIZE: c_int = 22;
/// Why a socket sends no more.
const HALF: &str = "libzmq took the first half of a message and not the second; the socket sends nothing any more";

/// The part that a socket plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// One of two ends.
    Pair = 0,
    /// Subscribes.
    Sub = 2,
    /// Publishes, and receives the subscriptions of others.
    XPub = 9,
}

/// Options that are a number (zmq_setsockopt(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Number {
    /// Milliseconds for which a closed socket goes on sending.
    Linger = 17,
    /// Most messages that wait to be sent, for each connection; 0: no limit.
    SendQueue = 23,
    /// Most messages that wait to be received, for each connection; 0: no limit.
    ReceiveQueue = 24,
    /// 1: idle connections are probed.
    KeepAlive = 34,
    /// Probes without an answer after which a connection ends.
    KeepAliveCount = 35,
    /// Seconds until an idle connection is probed.
    KeepAliveIdle = 36,
    /// Seconds between probes.
    KeepAliveInterval = 37,
    /// 1: IPv6 too.
    Ipv6 = 42,
    /// The TOS octet of its packets, before it binds or connects.
    Tos = 57,
    /// 1: a publisher refuses a message for which one of its subscribers has no room; 0: that subscriber does not get it.
    NoDrop = 69,
}

/// A socket. Several threads may use it one after the other, but not at once: behind a lock, whose fences libzmq asks for.
pub struct Socket {
    raw: NonNull<c_void>,
    fd: RawFd,
    context: Arc<Context>,
    /// A message was sent by half: libzmq would take the next frame for its second half.
    half: Cell<bool>,
}

// SAFETY: a socket may migrate to another thread with a full fence (zmq_socket(3)), which moves between threads have. It is not Sync.
unsafe impl Send for Socket {}

impl Socket {
    /// Takes a socket of this context.
    pub(crate) fn new(raw: NonNull<c_void>, context: Arc<Context>) -> io::Result<Self> {
        let mut socket = Self { raw, fd: -1, context, half: Cell::new(false) };
        let mut size = size_of::<RawFd>();
        // SAFETY: the socket lives; the option writes a descriptor of that size.
        checked(unsafe { calls::zmq_getsockopt(raw.as_ptr(), FD, (&raw mut socket.fd).cast(), &raw mut size) })?;
        Ok(socket)
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        self.raw.as_ptr()
    }

    /// The threads that carry what it sends and receives.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Sets an option.
    ///
    /// # Errors
    /// The option, or the value, is none of this socket.
    pub fn set(&self, option: Number, value: i32) -> io::Result<()> {
        self.set_bytes(option as c_int, &value.to_ne_bytes())
    }

    /// Sets the largest frame that is received, in bytes. A connection ends with a larger one.
    ///
    /// # Errors
    /// None that is known.
    pub fn set_largest(&self, bytes: u32) -> io::Result<()> {
        self.set_bytes(MAXMSGSIZE, &i64::from(bytes).to_ne_bytes())
    }

    /// Asks for all messages that begin with this.
    ///
    /// # Errors
    /// It is no subscriber.
    pub fn subscribe(&self, prefix: &[u8]) -> io::Result<()> {
        self.set_bytes(SUBSCRIBE, prefix)
    }

    /// Takes one [`subscribe`](Self::subscribe) back.
    ///
    /// # Errors
    /// It is no subscriber.
    pub fn unsubscribe(&self, prefix: &[u8]) -> io::Result<()> {
        self.set_bytes(UNSUBSCRIBE, prefix)
    }

    fn set_bytes(&self, option: c_int, value: &[u8]) -> io::Result<()> {
        // SAFETY: the socket lives, and the value for the call.
        checked(unsafe { calls::zmq_setsockopt(self.raw(), option, value.as_ptr().cast(), value.len()) })
    }

    /// Accepts connections at an endpoint, such as `tcp://10.0.0.1:5556`.
    ///
    /// # Errors
    /// The endpoint is taken, not of this host, or none.
    pub fn bind(&self, endpoint: &str) -> io::Result<()> {
        let endpoint = CString::new(endpoint)?;
        // SAFETY: the socket lives, and the text for the call.
        checked(unsafe { calls::zmq_bind(self.raw(), endpoint.as_ptr()) })
    }

    /// Connects to an endpoint, now or when somebody is there, again and again.
    ///
    /// # Errors
    /// It is no endpoint.
    pub fn connect(&self, endpoint: &str) -> io::Result<()> {
        let endpoint = CString::new(endpoint)?;
        // SAFETY: the socket lives, and the text for the call.
        checked(unsafe { calls::zmq_connect(self.raw(), endpoint.as_ptr()) })
    }

    /// Sends a message of two frames, whole or not at all. `false`: there is no room. Does not wait.
    ///
    /// # Errors
    /// The socket sends nothing, or nothing any more: it took one frame without the other.
    pub fn send(&self, topic: &[u8], message: &[u8]) -> io::Result<bool> {
        if self.half.get() {
            return Err(io::Error::other(HALF));
        }
        if at_once(|| self.send_frame(topic, DONTWAIT | SNDMORE))?.is_none() {
            return Ok(false);
        }
        // Room is counted in messages: after the first frame there is some for the others, in every version that is known.
        self.half.set(true);
        at_once(|| self.send_frame(message, DONTWAIT))?.ok_or_else(|| io::Error::other(HALF))?;
        self.half.set(false);
        Ok(true)
    }

    fn send_frame(&self, frame: &[u8], flags: c_int) -> c_int {
        // SAFETY: the socket lives, and the frame, which is copied, for the call.
        unsafe { calls::zmq_send(self.raw(), frame.as_ptr().cast(), frame.len(), flags) }
    }

    /// Receives a frame. `false`: there is none now.
    ///
    /// # Errors
    /// The socket receives nothing.
    pub fn receive(&self, frame: &mut Message) -> io::Result<bool> {
        // SAFETY: socket and frame live; what the frame held is freed.
        at_once(|| unsafe { calls::zmq_msg_recv(&raw mut frame.0, self.raw(), DONTWAIT) }).map(|found| found.is_some())
    }
}

/// Readable when something may have changed: look then until there is nothing to receive, and after every other call, too (ZMQ_FD in
/// zmq_getsockopt(3)).
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the socket, and lives as long.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: it lives, and is not used afterwards.
        unsafe { calls::zmq_close(self.raw()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_sent_half_a_message_sends_nothing_any_more() {
        let socket = Context::new().unwrap().socket(Kind::XPub).unwrap();
        assert!(socket.send(b"topic", b"nobody subscribes").unwrap());
        socket.half.set(true);
        assert_eq!(socket.send(b"topic", b"").unwrap_err().to_string(), HALF);
    }
}
