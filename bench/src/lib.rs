//! The limit Thalweg is measured against: plain programs on the kernel's interfaces, without middleware.
//!
//! | module | contents |
//! |---|---|
//! | [`meeting`] | the meeting of two measuring processes, and the terms that one sends the other |
//! | [`link`] | the links themselves: blocking sockets, and a bare futex ring in shared memory |
//! | [`latency`], [`throughput`], [`fanout`] | the measured loops, one function per role |
//! | [`system`], [`prices`], [`planner`], [`targets`] | networks and topics of any size with links that bind, the time to plan them, and its targets (`examples/placement.rs`, `growth.rs`) |
//! | [`payload`] | writing and checksumming a payload, the same for every engine |
//!
//! Every loop is as plain and as fast as it can be: one blocking system call per message and side, one buffer, no
//! thread but the caller's (one more sleeps until the peer hangs up).
#![allow(clippy::disallowed_methods)] // it measures
#![cfg_attr(test, allow(clippy::unwrap_used))] // tests and their helpers
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

pub mod fanout;
pub mod latency;
pub mod link;
pub mod meeting;
pub mod payload;
pub mod planner;
pub mod prices;
pub mod system;
pub mod targets;
pub mod throughput;

use std::io;

/// The largest message that is measured.
pub const MAX_SIZE: usize = 64 << 20;

/// The largest message that fits a UDP datagram over IPv4.
pub const MAX_DATAGRAM: usize = 65_507;

/// The carrier of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Blocking TCP on loopback, TCP_NODELAY, default buffers.
    Tcp,
    /// Blocking connected UDP on loopback.
    Udp,
    /// A blocking unix stream.
    Unix,
    /// A ring in shared memory, one futex per hand-over.
    Shm,
}

/// The work on the payload at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// Copied from one buffer, and into another.
    #[default]
    Copied,
    /// Handed over in place, unread.
    Untouched,
    /// Written in place, and checksummed in place.
    Checked,
}

/// The terms that one end sets and sends to the other, so that the other needs no arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Bytes per message.
    pub size: usize,
    /// Measured messages (or round trips).
    pub count: u64,
    /// Messages before the measured ones.
    pub warmup: u64,
    /// Work on the payload.
    pub payload: Payload,
    /// Throughput only: many messages per write.
    pub batched: bool,
}

impl Terms {
    /// Terms with a copied payload and without batching.
    pub fn new(size: usize, count: u64, warmup: u64) -> Self {
        Self { size, count, warmup, payload: Payload::Copied, batched: false }
    }

    /// Checks that `carrier` can do this.
    ///
    /// # Errors
    /// InvalidInput, with the value and the allowed ones.
    pub fn check(&self, carrier: Carrier) -> io::Result<()> {
        let most = if carrier == Carrier::Udp { MAX_DATAGRAM } else { MAX_SIZE };
        if self.size == 0 || self.size > most {
            return Err(invalid(format!("{} bytes per message: allowed are 1 to {most}", self.size)));
        }
        if self.count == 0 || self.count.saturating_add(self.warmup) > u64::from(u32::MAX) {
            return Err(invalid(format!("{} messages: allowed are 1 to {} with the warm-up", self.count, u32::MAX)));
        }
        if self.batched && !matches!(carrier, Carrier::Tcp | Carrier::Unix) {
            return Err(invalid("only a byte stream (tcp, unix) takes several messages per write".to_owned()));
        }
        Ok(())
    }
}

pub(crate) fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

pub(crate) fn peer_left() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the other process left before the end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::queueing::{Class, Scheduler, Share, Step, Wanted};

    #[test]
    fn terms_name_the_value_and_what_is_allowed() {
        let large = Terms::new(1 << 20, 1, 0).check(Carrier::Udp).unwrap_err().to_string();
        assert!(large.contains("1048576") && large.contains("65507"), "{large}");
        assert!(Terms::new(64, 0, 0).check(Carrier::Tcp).is_err());
        let batched = Terms { batched: true, ..Terms::new(64, 1, 0) };
        assert!(batched.check(Carrier::Tcp).is_ok() && batched.check(Carrier::Shm).is_err());
    }

    /// The simulated bucket of a class is as deep as the installed one.
    #[test]
    fn htb_is_simulated_with_the_burst_that_is_installed() {
        for rate in [100_000, 10_000_000, 250_000_000, 10_000_000_000] {
            let share = Share { rate, ceil: None, priority: None };
            let scheduler = Scheduler::Htb([share; 4], Vec::new());
            let steps = Wanted {
                device: "d".into(),
                rate: 4 * rate,
                queue: 1000,
                scheduler,
                segments: None,
                map: None,
                boundary: false,
                labels: false,
                encapsulation: 0,
            }
            .steps();
            let bursts = steps.iter().filter_map(|step| match step {
                Step::Class { is: Class::Htb(shares), .. } if shares.rate == rate => Some(shares.burst),
                _ => None,
            });
            assert_eq!(bursts.collect::<Vec<_>>(), [qos::analysis::stages::htb_burst(rate); 4], "{rate} bit/s");
        }
    }
}
