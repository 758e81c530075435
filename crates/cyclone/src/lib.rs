//! Cyclone DDS: topics of encoded messages by the names of their types, and the endpoints of other programs (decision 0025).
//!
//! | module | contents |
//! |---|---|
//! | `blob` | messages as Cyclone holds them: bytes, of which it knows no more than the header |
//! | `discovery` | endpoints and participants of other programs, as they come and go |
//! | `ends` | writers and readers |
//! | `identities` | the program's own participants, and the writers behind Cyclone's numbers |
//! | `keyed` | topics with a key, for readers |
//! | `layout` | topics with a key, for writers: the structure of a type |
//! | `log` | what Cyclone says of malformed packets and dropped messages |
//! | `participant` | a place in a domain |
//! | `policies` | the policies of an end |
//! | `waiting` | the wait of a reader's thread for messages |
//!
//! A message is CDR with its encapsulation header (DDSI-RTPS 2.5 §10.2), of any version and byte order. Without the feature `library` the crate is
//! empty, because Cyclone takes cmake and libclang to build.
#![cfg(feature = "library")]
#![allow(unsafe_code)] // bindings: each use has its safety note
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::disallowed_methods))] // tests and their helpers

mod blob;
mod discovery;
mod ends;
mod identities;
mod keyed;
mod layout;
mod log;
mod participant;
mod policies;
mod waiting;

pub use blob::End;
pub use discovery::{Found, FoundEnd, Watching};
pub use ends::{Reader, Taken, Writer};
pub use keyed::Content;
pub use layout::{Layout, Member, Shape};
pub use log::Complaints;
pub use participant::{Participant, Place};
pub use policies::{Liveness, Policies};

use std::ffi::{CStr, CString};
use std::fmt;

/// The identity of a participant or an endpoint: 12 bytes of its participant, 4 of its own (DDSI-RTPS 2.5 §8.2.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// As one number.
    pub fn number(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// The identity of its participant (DDSI-RTPS 2.5 §9.3.1.3).
    pub fn participant(self) -> Guid {
        let mut bytes = self.0;
        bytes[12..].copy_from_slice(&[0, 0, 1, 0xc1]);
        Guid(bytes)
    }

    /// `true` if both belong to one participant.
    pub fn is_beside(self, other: Guid) -> bool {
        self.0[..12] == other.0[..12]
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.number())
    }
}

/// What Cyclone refused, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// The value of a call of Cyclone, which is negative for an error.
fn checked(what: &str, code: i32) -> Result<i32> {
    if code >= 0 {
        return Ok(code);
    }
    // SAFETY: the function takes any number, and gives a static text.
    let text = unsafe { CStr::from_ptr(cyclors::dds_strretcode(code)) };
    Err(Error(format!("{what}: {}", text.to_string_lossy())))
}

fn c_text(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error(format!("{what} {text:?} has a zero byte")))
}
