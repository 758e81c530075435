//! The receiving end's receipts for the sender's congestion control.

use crate::wire::feedback::{Datagram, Receipt};
use crate::wire::{HEADER, Header};

/// The part of a flow that came, and the time of the next receipt.
#[derive(Debug)]
pub(crate) struct Receipts {
    every: u64,
    received: u64, // bytes
    told: u64,     // of them
    newest: Datagram,
    arrived: u64,
}

impl Receipts {
    /// Told after so many bytes.
    pub(crate) fn new(every: u32) -> Self {
        Self { every: every.into(), received: 0, told: 0, newest: Datagram::default(), arrived: 0 }
    }

    /// Counts a datagram of the flow that came, even if it is dropped later.
    #[inline]
    pub(crate) fn arrived(&mut self, now_ns: u64, header: &Header, payload: &[u8]) {
        self.received += (HEADER + payload.len()) as u64;
        (self.newest, self.arrived) = (Datagram::of(header, payload), now_ns);
    }

    /// `true` if enough came for a receipt.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.received - self.told >= self.every
    }

    /// The receipt up to now. `window`: bytes of messages that the receiver takes beyond the delivered ones.
    pub(crate) fn tell(&mut self, now_ns: u64, window: u64) -> Receipt {
        self.told = self.received;
        let ago_ns = u32::try_from(now_ns.saturating_sub(self.arrived)).unwrap_or(u32::MAX);
        Receipt { received: self.received, newest: self.newest, ago_ns, window }
    }
}
