//! The largest datagram that a flow's path takes: the kernel is asked when the flow opens, and again when a datagram was too large. The
//! length never grows: RFC 8899 would probe for more; here a new channel does.

use super::Flow;
use crate::channel::reliable::EXPECTED;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

impl Flow {
    /// The most bytes of a datagram of this flow.
    #[inline]
    pub(super) fn largest(&self) -> usize {
        self.largest.load(Relaxed)
    }

    /// Notes that a datagram of `bytes` did not leave. Returns `true` if the path takes less than before: then shorter datagrams
    /// leave from now on. Datagrams are never cut by IP: a lost packet would cost all of it, and many networks drop such packets
    /// (RFC 8085 §3.2, RFC 8900).
    #[cold]
    pub(super) fn look_at_size(&self, error: &io::Error, bytes: usize) -> bool {
        let too_large = error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error());
        if too_large {
            match self.link.max_datagram() {
                Some(most) if most < bytes => self.takes_only(most),
                // A datagram made before the path took less is cut into shorter ones when it is missed.
                _ if bytes <= self.largest() => self.shorten(bytes),
                _ => {}
            }
        }
        too_large
    }

    /// Shortens datagrams: those of `bytes` do not come through, and no error says how many bytes do.
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
