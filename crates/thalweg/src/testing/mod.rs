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

/// The built-in carriers' halves, and the simulated network.
pub mod carrier {
    /// The halves of `local`.
    pub mod local {
        pub use crate::carrier::local::*;
    }
    /// The halves of `mcast`.
    pub mod mcast {
        pub use crate::carrier::mcast::*;
    }
    /// The halves of `shm`.
    pub mod shm {
        pub use crate::carrier::shm::*;
    }
    /// The simulated network.
    pub mod sim {
        pub use crate::carrier::sim::*;
    }
    /// The halves of `tcp`.
    pub mod tcp {
        pub use crate::carrier::tcp::*;
    }
    /// The halves of `udp`.
    pub mod udp {
        pub use crate::carrier::udp::*;
    }
}

/// The directory and the links of the control plane.
pub mod control {
    pub use crate::control::directory::{Applied, Directory};
    pub use crate::control::discovery::{Discovery, Event, Sink};
    pub use crate::control::links::{Links, Source};
    pub use crate::control::local::LocalEndpoint;
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
