//! Routes: two channels of a carrier, or bare sockets.

use crate::error::{Error, Result};
use qos::Place;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// One way there and back, with its own two channels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Route {
    /// Its name: of its topics and ports, and in [`super::Measure`].
    pub name: String,
    /// The means of transport.
    pub by: By,
}

/// The means of transport of a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// Two channels of this carrier, with a proxy at this place of the one that leads there.
    Carrier {
        /// The carrier.
        carrier: String,
        /// Place of the proxy; `None`: there is none.
        proxy: Option<Place>,
    },
    /// A ring of bare TCP sockets: the ping connects to `next`, and its messages come back to `listen`.
    Sockets {
        /// Address at which the ping listens.
        listen: SocketAddr,
        /// Address it connects to.
        next: SocketAddr,
    },
}

/// Ratio of a proxy that costs as much as any but drops almost no samples: it passes all but one of this many. (A proxy that
/// passes all samples is never made at the publisher or the subscriber.)
pub(super) const ALL_BUT_ONE_OF: u32 = 1 << 24;

impl Route {
    /// Two channels of a carrier, which is also its name.
    pub(crate) fn direct(carrier: &str) -> Self {
        Self::over(carrier, carrier, None)
    }

    /// Two channels of a carrier, with a proxy there.
    pub(crate) fn over(name: &str, carrier: &str, proxy: Option<Place>) -> Self {
        Self { name: name.to_owned(), by: By::Carrier { carrier: carrier.to_owned(), proxy } }
    }

    /// A ring of bare sockets.
    pub(crate) fn sockets(name: &str, listen: SocketAddr, next: SocketAddr) -> Self {
        Self { name: name.to_owned(), by: By::Sockets { listen, next } }
    }

    /// The carrier of its channels; `None`: it has none.
    pub(crate) fn carrier(&self) -> Option<&str> {
        match &self.by {
            By::Carrier { carrier, .. } => Some(carrier),
            By::Sockets { .. } => None,
        }
    }

    /// Place of its proxy.
    pub(crate) fn proxy(&self) -> Option<&Place> {
        match &self.by {
            By::Carrier { proxy, .. } => proxy.as_ref(),
            By::Sockets { .. } => None,
        }
    }
}

/// The one of this name.
///
/// # Errors
/// [`Error::Usage`] with all names.
pub(super) fn find<'a>(routes: &'a [Route], name: &str) -> Result<&'a Route> {
    routes.iter().find(|route| route.name == name).ok_or_else(|| {
        let names: Vec<&str> = routes.iter().map(|route| route.name.as_str()).collect();
        Error::Usage(format!("route {name:?}: there are {}", names.join(", ")))
    })
}
