//! Blocking: the time that a packet waits for others that are not more urgent, on a link without pre-emption.
//!
//! Strict priority lets an urgent packet overtake all that wait, but not the one that is being sent. The unit of sending is not
//! a packet of MTU size: TCP builds super-packets of up to 64 KiB (generic segmentation offload) that the device or its driver
//! takes apart. The blocking term counts the largest of those, and the bytes that the driver has already taken.

/// A TCP sender of bulk data, as far as the size of its super-packets goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkSender {
    /// The device's largest super-packet in bytes (`gso_max_size`), headers included. Linux: 65536 unless set.
    pub gso_max_size: u64,
    /// The most segments of one (`gso_max_segs`).
    pub gso_max_segs: u64,
    /// Payload bytes of a segment: 1448 with an MTU of 1500 and time stamps.
    pub segment: u64,
    /// Bytes on the wire that each segment has besides: 66 for Ethernet, IPv4 and TCP with time stamps.
    pub headers: u64,
    /// Bytes per second that the socket is paced to (SO_MAX_PACING_RATE); `None`: TCP's own estimate, which may be anything.
    pub pace: Option<u64>,
    /// Smallest round trip that the connection has seen, in microseconds.
    pub min_rtt_us: u64,
    /// `net.ipv4.tcp_tso_rtt_log`: 9 unless set, 0: off.
    pub tso_rtt_log: u32,
}

/// TCP never makes super-packets of fewer segments than this (`net.ipv4.tcp_min_tso_segs`).
const LEAST_SEGMENTS: u64 = 2;
/// TCP aims at super-packets of 2⁻¹⁰ s of the rate (`sk_pacing_shift`).
const PACING_SHIFT: u32 = 10;

impl BulkSender {
    /// Most segments of one super-packet. As Linux chooses it (`tcp_tso_autosize`): a millisecond's worth of the pace, and
    /// on short paths `gso_max_size` ≫ (round trip ≫ `tcp_tso_rtt_log`) more; within the device's limits, never below 2.
    /// Seen on Linux 6.18 at 90 Mbit/s between neighbours: 45 segments, 7 with `tcp_tso_rtt_log` 0, 2 with `gso_max_size`
    /// 3000 (docs/lab.md).
    pub fn segments(&self) -> u64 {
        let limit = (self.gso_max_size / self.segment.max(1)).min(self.gso_max_segs).max(1);
        let Some(pace) = self.pace else { return limit };
        let shift = if self.tso_rtt_log == 0 { u64::MAX } else { self.min_rtt_us >> self.tso_rtt_log.min(63) };
        let short = u32::try_from(shift).ok().and_then(|by| self.gso_max_size.checked_shr(by)).unwrap_or(0);
        let wanted = ((pace >> PACING_SHIFT) + short).div_ceil(self.segment.max(1));
        wanted.max(LEAST_SEGMENTS).min(limit)
    }

    /// Bytes on the wire of the largest super-packet.
    pub fn largest(&self) -> u64 {
        self.segments() * (self.segment + self.headers)
    }
}

/// The traffic that an urgent packet finds in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// Bits per second of the link.
    pub rate: u64,
    /// Bytes on the wire of the largest (super-)packet that is no more urgent: one may be in transmission.
    pub largest: u64,
    /// Bytes that the driver may have taken besides (the limit of its byte queue), of any priority.
    pub ring: u64,
    /// Bytes on the wire of the urgent packet itself.
    pub own: u64,
}

impl Blocking {
    /// The longest it takes until the urgent packet is sent, in microseconds.
    pub fn us(&self) -> f64 {
        (self.largest + self.ring + self.own) as f64 * 8e6 / self.rate.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: BulkSender = BulkSender {
        gso_max_size: 65_536,
        gso_max_segs: 65_535,
        segment: 1448,
        headers: 66,
        pace: Some(11_250_000),
        min_rtt_us: 600,
        tso_rtt_log: 0,
    };

    #[test]
    fn sizes_are_those_that_were_seen() {
        // Rows of docs/lab.md: bytes of IP that a capture showed, 52 of them headers.
        let seen = |sender: BulkSender| sender.segments() * 1448 + 52;
        assert!(seen(SENDER) >= 10_188 && seen(SENDER) <= 11_636);
        assert!(seen(BulkSender { pace: Some(6_250_000), ..SENDER }) >= 5844);
        assert_eq!(seen(BulkSender { pace: Some(1_250_000), ..SENDER }), 2948);
        assert_eq!(seen(BulkSender { gso_max_size: 3000, ..SENDER }), 2948);
        assert_eq!(seen(BulkSender { gso_max_size: 16_384, tso_rtt_log: 9, ..SENDER }), 15_980);
        let neighbours = BulkSender { min_rtt_us: 50, tso_rtt_log: 9, ..SENDER };
        assert_eq!((seen(neighbours), neighbours.segments()), (65_212, 45));
        assert_eq!(BulkSender { pace: None, ..SENDER }.segments(), 45);
        assert_eq!(BulkSender { gso_max_segs: 1, ..SENDER }.segments(), 1);
    }

    #[test]
    fn a_full_packet_blocks_for_its_transmission() {
        // 1514 B at 100 Mbit/s: 121 µs; 64 KiB in segments: 5.5 ms.
        let blocking = Blocking { rate: 100_000_000, largest: 1514, ring: 0, own: 0 };
        assert!((blocking.us() - 121.12).abs() < 0.01);
        let whole = Blocking { largest: BulkSender { pace: None, ..SENDER }.largest(), ..blocking };
        assert!((5400.0..5500.0).contains(&whole.us()), "{}", whole.us());
    }
}
