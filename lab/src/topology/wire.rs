//! The queue in front of a link's line.

use super::Namespace;
use crate::error::{Error, Result};
use linux::queueing::{PerClass, Scheduler, Share, Wanted};

/// The queue in front of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// One queue for all (`pfifo`): marks have no effect.
    Fifo,
    /// Three strict bands by socket priority (`pfifo_fast`): on the sender's own host.
    Bands,
    /// Classes by DSCP (`htb` with filters), spare bandwidth to the highest first: anywhere on the path.
    Classes,
    /// The same with so many percent of the rate guaranteed to low, normal, high and critical.
    Shares([u64; 4]),
    /// The same with these rates, ceilings and priorities.
    Htb(PerClass<Share>),
}

/// The queue in front of a [`Line`](super::Line) of this rate, at one interface, in the direction out of it. It lets [`SHAPED`] percent of the
/// line's rate through: packets wait here, where the mark counts, and not in front of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// The line's bits per second, Ethernet header included, preamble, checksum and gap not.
    pub rate: u64,
    /// Most packets that wait in each queue.
    pub limit: u32,
    /// The queue's discipline.
    pub queue: Queue,
}

/// Share of the line's rate that its queue lets through, in percent.
pub const SHAPED: u64 = 98;

/// Largest packet with its Ethernet header, in bytes.
pub const FULL_PACKET: u64 = 1514;

impl Wire {
    /// The rate of the queue, in bit/s.
    pub fn shaped(&self) -> u64 {
        self.rate / 100 * SHAPED
    }

    /// Puts it at `device` in place of the former one in the namespace; packets that waited there are lost.
    ///
    /// # Errors
    /// [`Error::System`] with the remedy.
    pub fn install(&self, at: &Namespace, device: &str) -> Result {
        let rate = self.shaped();
        let share = |percent| Share { rate: rate / 100 * percent, ceil: None, priority: None };
        let scheduler = match self.queue {
            Queue::Fifo => Scheduler::Fifo,
            Queue::Bands => Scheduler::Strict,
            Queue::Classes => Scheduler::Htb(SHARES.map(share), Vec::new()),
            Queue::Shares(shares) => Scheduler::Htb(shares.map(share), Vec::new()),
            Queue::Htb(shares) => Scheduler::Htb(shares, Vec::new()),
        };
        let wanted = Wanted {
            device: device.to_owned(),
            rate,
            queue: self.limit,
            scheduler,
            segments: None,
            encapsulation: 0,
            labels: false,
            map: None,
            boundary: false,
        };
        // Kept: it goes with the namespace.
        let install = || linux::queueing::install(at.journals(), &[wanted])?.keep();
        at.within(install)?.map_err(|refused| Error::System(refused.to_string()))
    }
}

/// Guaranteed shares of low, normal, high and critical, in percent of the rate.
const SHARES: [u64; 4] = [20, 45, 30, 5];
