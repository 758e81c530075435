//! The system's ZeroMQ (libzmq, 4.2 or later), linked dynamically: the calls that publishing and subscribing take, made safe.
//!
//! A binding of our own: the crates `zmq` 0.10 and `arzmq` compile a libzmq themselves and link it statically, which decision 0006 does not
//! allow of a version under the LGPL, and `zmq` 0.9 is not maintained. Without the feature `library` this crate is empty.
//!
//! | module | contents |
//! |---|---|
//! | `calls` | the functions of `zmq.h`, and their errors |
//! | `message` | one received frame |
//! | `monitor` | what becomes of a socket's connections |
//! | `socket` | a socket, its options and its frames |
#![cfg(feature = "library")]
#![allow(unsafe_code)] // bindings: each use has its safety note
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::disallowed_methods))] // tests and their helpers

mod calls;
mod message;
mod monitor;
mod socket;

pub use message::Message;
pub use monitor::{Event, Monitor};
pub use socket::{Kind, Number, Socket};

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// The threads of ZeroMQ, which carry what its sockets send and receive: one, and one that closes sockets.
pub struct Context(NonNull<c_void>);

// SAFETY: a context is safe to share between threads (zmq_ctx_new(3)).
unsafe impl Send for Context {}
// SAFETY: the same.
unsafe impl Sync for Context {}

impl Context {
    /// Begins. The threads start with the first socket.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<Arc<Self>> {
        // SAFETY: the call has no preconditions.
        let context = unsafe { calls::zmq_ctx_new() };
        NonNull::new(context).map(|context| Arc::new(Self(context))).ok_or_else(calls::failed)
    }

    /// Opens a socket, which keeps the context.
    ///
    /// # Errors
    /// The process has no descriptors left, or the context has as many sockets as it may (1,023).
    pub fn socket(self: &Arc<Self>, kind: Kind) -> io::Result<Socket> {
        // SAFETY: the context lives.
        let socket = unsafe { calls::zmq_socket(self.0.as_ptr(), kind as i32) };
        let socket = NonNull::new(socket).ok_or_else(calls::failed)?;
        Socket::new(socket, self.clone())
    }
}

impl Drop for Context {
    /// Waits until what is to be sent is sent, or the sockets' time to linger is over.
    fn drop(&mut self) {
        // SAFETY: nobody has the context any more, and its sockets, each of which keeps it, are closed.
        while unsafe { calls::zmq_ctx_term(self.0.as_ptr()) } != 0 {
            if calls::failed().kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
    }
}
