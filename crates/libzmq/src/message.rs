//! One received frame.

use super::calls::{RawMessage, zmq_msg_close, zmq_msg_data, zmq_msg_init, zmq_msg_more, zmq_msg_size};
use std::ops::Deref;

/// A frame; the next one that is received takes its place.
pub struct Message(pub(crate) RawMessage);

// SAFETY: a frame belongs to no thread.
unsafe impl Send for Message {}

impl Message {
    /// An empty one.
    pub fn new() -> Self {
        let mut raw = RawMessage([0; 64]);
        // SAFETY: the 64 bytes are there to be initialised, which cannot fail.
        unsafe { zmq_msg_init(&raw mut raw) };
        Self(raw)
    }

    /// `true` if a further frame of the same message follows.
    pub fn more(&self) -> bool {
        // SAFETY: it is initialised.
        unsafe { zmq_msg_more(&raw const self.0) != 0 }
    }
}

impl Default for Message {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: it is initialised; its bytes live until it is changed, for which it is borrowed alone. `zmq_msg_data` changes nothing.
        unsafe {
            match zmq_msg_size(&raw const self.0) {
                0 => &[],
                size => std::slice::from_raw_parts(zmq_msg_data((&raw const self.0).cast_mut()).cast(), size),
            }
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: it is initialised, and not used afterwards.
        unsafe { zmq_msg_close(&raw mut self.0) };
    }
}
