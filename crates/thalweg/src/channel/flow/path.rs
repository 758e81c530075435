//! The largest datagram that a flow's path takes: asked when it opens, and again when one was too large. It never grows: RFC 8899 would
//! look for more by probes, here a new channel does.

use super::Flow;
use crate::channel::reliable::EXPECTED;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

impl Flow {
    /// Bytes of its datagrams at most.
    #[inline]
    pub(super) fn largest(&self) -> usize {
        self.largest.load(Relaxed)
    }

    /// A datagram of so many bytes did not leave. Returns `true` if the path takes less than it did: then shorter ones leave
    /// from now on. Datagrams are never cut by IP: a lost packet would cost all of them, and many networks drop such packets
    /// (RFC 8085 §3.2, RFC 8900).
    #[cold]
    pub(super) fn look_at_size(&self, error: &io::Error, bytes: usize) -> bool {
        let too_large = error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error());
        if too_large {
            match self.link.max_datagram() {
                Some(most) if most < bytes => self.takes_only(most),
                // A datagram made before the path took less is cut anew when it is missed.
                _ if bytes <= self.largest() => self.shorten(bytes),
                _ => {}
            }
        }
        too_large
    }

    /// Datagrams of so many bytes do not come through, and nobody says how many may.
    pub(super) fn shorten(&self, bytes: usize) {
        if let Some(most) = EXPECTED.into_iter().find(|most| *most < bytes) {
            self.takes_only(most);
        }
    }

    fn takes_only(&self, most: usize) {
        if self.largest.fetch_min(most, Relaxed) > most {
            self.keep_within(most);
        }
    }
}
