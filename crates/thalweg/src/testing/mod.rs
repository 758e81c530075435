//! Parts shared by tests. The suites for carriers, engines and brokers are public, and so are the bodies of the fuzz
//! targets. They panic when a promise is broken, which fails the test.

pub mod conformance;
#[cfg(test)]
pub mod discovery;
pub mod fuzz;
#[cfg(test)]
mod helpers;

#[cfg(test)]
pub(crate) use helpers::{TempDir, port_info};

/// Parts of the private modules that tests outside build worlds from.
pub mod channel {
    pub use crate::channel::{accept, fragment, memory};
}

/// The documents of a handshake.
pub mod handshake {
    pub use crate::handshake::*;
}

/// The documents of a pull.
pub mod pull {
    pub use crate::pull::*;
}

/// A recording of a sample's steps.
pub mod trace {
    pub use crate::trace::Step;
    pub use crate::trace::record::{Taken, start, stop};
}

/// The data frame.
pub mod wire {
    pub use crate::wire::*;
}
