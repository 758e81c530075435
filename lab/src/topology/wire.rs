//! A link that acts as a wire: one rate, one packet at a time, and a queue in front of it.
//!
//! A token bucket with room for two packets is the wire; the queue is its child, so that the first packet of the queue
//! waits at most for the packet that is being sent and the one that the token bucket holds ready
//! ([`linux::queueing::Wanted`]).

use super::Namespace;
use crate::error::{Error, Result};
use linux::queueing::{Scheduler, Share, Wanted};

/// The queue in front of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// One queue for all (`pfifo`): marks have no effect.
    Fifo,
    /// Three strict bands by socket priority (`pfifo_fast`): on the sender's own host.
    Bands,
    /// Classes by DSCP (`htb` with filters), spare bandwidth to the highest first: anywhere on the path.
    Classes,
}

/// A rate-limited link at one interface, in the direction out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Bits per second, Ethernet header included, preamble, checksum and gap not.
    pub rate: u64,
    /// Most packets that wait in each queue.
    pub limit: u32,
    /// The queue's discipline.
    pub queue: Queue,
}

/// Largest packet with its Ethernet header, in bytes.
pub const FULL_PACKET: u64 = 1514;

/// Guaranteed shares of low, normal, high and critical, in percent of the rate.
const SHARES: [u64; 4] = [20, 45, 30, 5];

impl Wire {
    /// Time on the wire of `bytes` with their Ethernet header, in microseconds.
    pub fn transmission_us(&self, bytes: u64) -> f64 {
        bytes as f64 * 8e6 / self.rate as f64
    }

    /// Puts it at `device` in place of the former one in the namespace; packets that waited there are lost.
    ///
    /// # Errors
    /// [`Error::System`] with the remedy.
    pub fn install(&self, at: &Namespace, device: &str) -> Result {
        let share = |percent| Share { rate: self.rate / 100 * percent, ceil: None, priority: None };
        let scheduler = match self.queue {
            Queue::Fifo => Scheduler::Fifo,
            Queue::Bands => Scheduler::Strict,
            Queue::Classes => Scheduler::Htb(SHARES.map(share)),
        };
        let wanted = Wanted { device: device.to_owned(), rate: self.rate, queue: self.limit, scheduler, map: None };
        // Kept: it goes with the namespace.
        let install = || linux::queueing::install(at.journals(), &[wanted])?.keep();
        at.within(install)?.map_err(|refused| Error::System(refused.to_string()))
    }
}
