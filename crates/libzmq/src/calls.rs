//! The functions of `zmq.h` that are used here (libzmq 4.2, `include/zmq.h`), and their errors.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;

/// `zmq_msg_t`: 64 bytes that only libzmq knows. It may be moved: rust-zmq and cppzmq do.
#[repr(C, align(8))]
pub(crate) struct RawMessage(pub(crate) [u8; 64]);

/// Do not wait.
pub(crate) const DONTWAIT: c_int = 1;
/// A further frame of the same message follows.
pub(crate) const SNDMORE: c_int = 2;
/// Numbers of errors from here on are libzmq's own.
const OWN_ERRORS: c_int = 156_384_712;

unsafe extern "C" {
    pub(crate) fn zmq_ctx_new() -> *mut c_void;
    pub(crate) fn zmq_ctx_term(context: *mut c_void) -> c_int;
    pub(crate) fn zmq_socket(context: *mut c_void, kind: c_int) -> *mut c_void;
    pub(crate) fn zmq_close(socket: *mut c_void) -> c_int;
    pub(crate) fn zmq_bind(socket: *mut c_void, endpoint: *const c_char) -> c_int;
    pub(crate) fn zmq_connect(socket: *mut c_void, endpoint: *const c_char) -> c_int;
    pub(crate) fn zmq_setsockopt(socket: *mut c_void, option: c_int, value: *const c_void, size: usize) -> c_int;
    pub(crate) fn zmq_getsockopt(socket: *mut c_void, option: c_int, value: *mut c_void, size: *mut usize) -> c_int;
    pub(crate) fn zmq_send(socket: *mut c_void, bytes: *const c_void, size: usize, flags: c_int) -> c_int;
    pub(crate) fn zmq_socket_monitor(socket: *mut c_void, endpoint: *const c_char, events: c_int) -> c_int;
    pub(crate) fn zmq_msg_init(message: *mut RawMessage) -> c_int;
    pub(crate) fn zmq_msg_recv(message: *mut RawMessage, socket: *mut c_void, flags: c_int) -> c_int;
    pub(crate) fn zmq_msg_close(message: *mut RawMessage) -> c_int;
    pub(crate) fn zmq_msg_data(message: *mut RawMessage) -> *mut c_void;
    pub(crate) fn zmq_msg_size(message: *const RawMessage) -> usize;
    pub(crate) fn zmq_msg_more(message: *const RawMessage) -> c_int;
    fn zmq_errno() -> c_int;
    fn zmq_strerror(number: c_int) -> *const c_char;
}

/// The error of the call of libzmq before, on this thread.
pub(crate) fn failed() -> io::Error {
    // SAFETY: the call has no preconditions.
    let number = unsafe { zmq_errno() };
    if number < OWN_ERRORS {
        return io::Error::from_raw_os_error(number);
    }
    // SAFETY: the text is static.
    io::Error::other(unsafe { CStr::from_ptr(zmq_strerror(number)) }.to_string_lossy())
}

/// The error of a call that returned this, if it failed.
pub(crate) fn checked(result: c_int) -> io::Result<()> {
    if result == -1 { Err(failed()) } else { Ok(()) }
}

/// `None` if the call would have to wait. A call that a signal interrupts is made again.
pub(crate) fn at_once(mut call: impl FnMut() -> c_int) -> io::Result<Option<()>> {
    loop {
        match checked(call()) {
            Ok(()) => return Ok(Some(())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
