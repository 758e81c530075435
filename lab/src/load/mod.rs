//! Load: what else is on the link. A generator offers packets at a rate and says what it really offered; a sink counts
//! what arrived.
//!
//! | module | what it holds |
//! |---|---|
//! | [`schedule`] | when the next packets are due |
//! | [`generator`] | the role that sends |
//! | [`sink`] | the role that counts |

pub mod generator;
pub mod schedule;
pub mod sink;

pub use generator::{Generator, Offered};
pub use sink::{Counted, Sink};

use crate::topology::wire::FULL_PACKET;
use serde::{Deserialize, Serialize};

/// By what a load travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Datagrams, offered whatever becomes of them.
    Udp,
    /// One stream, which gives way.
    Tcp,
}

impl Protocol {
    /// `udp` or `tcp`.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Udp => "udp",
            Protocol::Tcp => "tcp",
        }
    }

    /// Bytes of payload that fill a packet of [`FULL_PACKET`] bytes (IPv4; TCP with time stamps).
    const fn payload(self) -> usize {
        let headers = match self {
            Protocol::Udp => 14 + 20 + 8,
            Protocol::Tcp => 14 + 20 + 32,
        };
        FULL_PACKET as usize - headers
    }
}

/// How packets follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One by one at even distances: below the link's rate they never meet.
    Even,
    /// So many at once at random (exponential) distances: messages of many independent senders.
    Random(u32),
    /// So many at once, at even distances.
    Bursts(u32),
    /// So many streams, each as fast as it may (TCP). One alone cannot fill its own host's queue: Linux holds back what
    /// a stream has there (TCP small queues).
    Greedy(u32),
}

impl Pattern {
    /// Packets that leave at once.
    pub const fn burst(self) -> u32 {
        match self {
            Pattern::Random(n) | Pattern::Bursts(n) if n > 0 => n,
            _ => 1,
        }
    }

    /// Whether it takes what there is, and has no rate to be held to.
    pub const fn is_greedy(self) -> bool {
        matches!(self, Pattern::Greedy(_))
    }

    /// For people and factors.
    pub fn name(self) -> String {
        match self {
            Pattern::Even => "even".into(),
            Pattern::Random(n) => format!("random, {n} at once"),
            Pattern::Bursts(n) => format!("bursts of {n}"),
            Pattern::Greedy(streams) => format!("{streams} greedy streams"),
        }
    }
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// By what it travels.
    pub protocol: Protocol,
    /// Bits per second, Ethernet headers included; a greedy one has no rate of its own.
    pub rate: u64,
    /// How packets follow each other.
    pub pattern: Pattern,
    /// A burst leaves as one large datagram that the kernel cuts (UDP GSO): less work for the sender.
    pub gso: bool,
    /// Seed of random distances.
    pub seed: u64,
}
