//! Statuses of calls, and the last error of each thread. Nothing unwinds into C: a panic is a status.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use thalweg::Error;
use thalweg::admin::set::Unset;

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum thalweg_status {
    THALWEG_OK = 0,
    /// The caller's fault: a null pointer, a bad name, a value out of range, bytes that are no message of the type.
    THALWEG_INVALID = 1,
    /// Nothing came within the time.
    THALWEG_TIMEOUT = 2,
    /// The node or port was closed, or belongs to the parent of this process.
    THALWEG_CLOSED = 3,
    /// Somebody refused: the name is taken, the session is not admitted, a kernel gives no such priority.
    THALWEG_REFUSED = 4,
    /// No such port.
    THALWEG_NOT_FOUND = 5,
    /// A message is larger than the port's max_message, or than the room for it.
    THALWEG_TOO_LARGE = 6,
    /// Another node or the network: it does not answer, or says no.
    THALWEG_PEER = 7,
    /// The kernel of this host has no permission or resource for it.
    THALWEG_SYSTEM = 8,
    /// A fault of the library.
    THALWEG_INTERNAL = 9,
}

use thalweg_status::*;

/// The reason why a call did not do its work.
pub(crate) struct Failure {
    status: thalweg_status,
    text: Cow<'static, CStr>,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: thalweg_status, text: impl Into<String>) -> Self {
        Self { status, text: Cow::Owned(c_string(text.into())) }
    }

    /// One that comes often: it allocates nothing.
    pub(crate) const fn constant(status: thalweg_status, text: &'static CStr) -> Self {
        Self { status, text: Cow::Borrowed(text) }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(THALWEG_INVALID, text)
    }

    pub(crate) fn closed() -> Self {
        Self::constant(THALWEG_CLOSED, c"the node or port is closed")
    }

    pub(crate) fn timeout() -> Self {
        Self::constant(THALWEG_TIMEOUT, c"nothing came within the time")
    }

    pub(crate) fn is_timeout(&self) -> bool {
        self.status == THALWEG_TIMEOUT
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(status(&error), error.to_string())
    }
}

impl From<Unset> for Failure {
    fn from(unset: Unset) -> Self {
        let status = match &unset {
            Unset::Unknown(_) => THALWEG_NOT_FOUND,
            Unset::Direction(..) => THALWEG_INVALID,
            Unset::Refused { because, .. } | Unset::Failed(because) => status(because),
        };
        Self::new(status, unset.to_string())
    }
}

fn status(error: &Error) -> thalweg_status {
    match error {
        Error::Usage(_) | Error::Configuration(_) | Error::Message(_) => THALWEG_INVALID,
        Error::System { .. } => THALWEG_SYSTEM,
        Error::Refused(_) | Error::NameTaken { .. } | Error::NotAdmitted { .. } => THALWEG_REFUSED,
        Error::Peer(_) => THALWEG_PEER,
        Error::Closed => THALWEG_CLOSED,
        _ => THALWEG_INTERNAL,
    }
}

/// A text for C. Names of peers may hold anything: it ends before a zero.
pub(crate) fn c_string(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).unwrap_or_else(|wrong| {
        let end = wrong.nul_position();
        let mut bytes = wrong.into_vec();
        bytes.truncate(end);
        CString::new(bytes).unwrap_or_default()
    })
}

thread_local! {
    static LAST: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// Does the work of a function of the interface.
pub(crate) fn guarded(work: impl FnOnce() -> Result<()>) -> thalweg_status {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return THALWEG_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text");
            Failure::new(THALWEG_INTERNAL, format!("a fault of the library, please report it: {said}"))
        }
    };
    // A thread that ends has no text any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = failure.text);
    failure.status
}

/// Does the work of a function that gives no status, such as `free`.
pub(crate) fn guarded_or<T>(otherwise: T, work: impl FnOnce() -> Result<T>) -> T {
    let mut result = otherwise;
    guarded(|| {
        result = work()?;
        Ok(())
    });
    result
}

/// Version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Name of a thalweg_status, such as "invalid argument".
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_status_name(status: u32) -> *const c_char {
    const NAMES: [&CStr; 10] = [
        c"ok",
        c"invalid argument",
        c"timeout",
        c"closed",
        c"refused",
        c"not found",
        c"too large",
        c"peer",
        c"system",
        c"internal",
    ];
    NAMES.get(status as usize).copied().unwrap_or(c"unknown").as_ptr()
}

/// The text of this thread's last call that failed: its cause and remedy. Empty if none did. Valid until the next one fails.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
