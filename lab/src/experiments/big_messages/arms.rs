//! What is done for the small channel, lever by lever, and what it then may wait for.

use super::RATE;
use qos::blocking::{Blocking, BulkSender};

/// Of the bulk channel, in bytes per second: some of the wire stays free.
const PACE: u64 = 90_000_000 / 8;
/// As a command says it.
const PACED: &str = "pace=90Mbit/s";
/// A super-packet of two segments.
const TWO_SEGMENTS: u64 = 3000;
/// What Linux sets.
pub const WHOLE: u64 = 65_536;
/// Ethernet, IPv4 and TCP headers with time stamps.
const HEADERS: u64 = 66;
/// The small sample with its frame, length and headers, at most.
const SMALL_PACKET: u64 = 160;

/// What the small channel travels by.
#[derive(Clone, Copy, PartialEq)]
pub enum Carrier {
    /// A stream.
    Tcp,
    /// Datagrams.
    Udp,
}

/// What is done for the small channel.
#[derive(Clone, Copy, PartialEq)]
pub struct Arm {
    /// As cells say it.
    pub name: &'static str,
    /// Of the small channel; the big one's is tcp.
    pub carrier: Carrier,
    /// The big channel is there.
    pub bulk: bool,
    class: bool,
    /// The big channel is paced.
    pub pace: bool,
    /// Largest super-packet of the device.
    pub gso_max_size: u64,
    /// `net.ipv4.tcp_tso_rtt_log`
    pub tso_rtt_log: u32,
}

const NOTHING: Arm = Arm {
    name: "normal",
    carrier: Carrier::Tcp,
    bulk: true,
    class: false,
    pace: false,
    gso_max_size: WHOLE,
    tso_rtt_log: 9,
};
const TWO: Arm =
    Arm { name: "class+pace+gso_max_size=3000", class: true, pace: true, gso_max_size: TWO_SEGMENTS, ..NOTHING };
/// All of them: nothing, then one lever after the other.
pub const ARMS: [Arm; 7] = [
    Arm { name: "idle", bulk: false, ..NOTHING },
    NOTHING,
    Arm { name: "class", class: true, ..NOTHING },
    Arm { name: "class+pace", class: true, pace: true, ..NOTHING },
    Arm { name: "class+pace+tso_rtt_log=0", class: true, pace: true, tso_rtt_log: 0, ..NOTHING },
    TWO,
    Arm { name: "class+pace+gso_max_size=3000, udp", carrier: Carrier::Udp, ..TWO },
];

impl Carrier {
    /// Name of the small channel.
    pub const fn small(self) -> &'static str {
        match self {
            Carrier::Tcp => "small",
            Carrier::Udp => "small-udp",
        }
    }
}

impl Arm {
    /// What the small channel may wait for; nothing can be said where it shares a queue.
    pub fn blocking_us(&self, ring: u64) -> Option<f64> {
        let sender = BulkSender {
            gso_max_size: self.gso_max_size,
            gso_max_segs: 65_535,
            segment: 1448,
            headers: HEADERS,
            pace: self.pace.then_some(PACE),
            min_rtt_us: 0, // two hosts next to each other
            tso_rtt_log: self.tso_rtt_log,
        };
        let blocking = Blocking { rate: RATE, largest: sender.largest(), ring, own: SMALL_PACKET };
        (self.bulk && self.class).then(|| blocking.us())
    }

    /// Of the channels' ends: small, big.
    pub fn changes(&self) -> [String; 2] {
        // Unless told otherwise, bulk is of a lower class by itself.
        let class = |name| if self.class { format!("class={name}") } else { "class=normal".to_owned() };
        let sched = |name| if self.class { format!("sched={name}") } else { "sched=default".to_owned() };
        let pace = if self.pace { PACED } else { "pace=default" };
        [format!("{} {}", class("high"), sched("fifo:30")), format!("{} {} {pace}", class("low"), sched("other"))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lever_makes_the_blocking_smaller() {
        let found: Vec<Option<f64>> = ARMS.iter().map(|arm| arm.blocking_us(0)).collect();
        assert_eq!((found[0], found[1]), (None, None), "alone, and in one queue with the big ones");
        let bounds: Vec<f64> = found.into_iter().flatten().collect();
        assert!(bounds.windows(2).all(|pair| pair[0] >= pair[1]), "{bounds:?}");
        assert!((bounds[3] - 255.0).abs() < 1.0, "two segments and the packet itself: {bounds:?}");
    }

    #[test]
    fn changes_are_what_set_takes() {
        for text in ARMS.iter().flat_map(Arm::changes) {
            assert!(text.parse::<qos::priority::Changes>().is_ok(), "{text}");
        }
    }
}
