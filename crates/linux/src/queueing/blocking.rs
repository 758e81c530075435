//! Longest wait of a packet for less urgent ones, if the queues state their rate.

use super::class::{Class, Shares};
use super::discipline::Discipline;
use super::tree::{Handle, Queues};
use qos::blocking::{Blocking, BulkSender};

/// Headers of IPv4 and TCP with time stamps, which count towards the MTU.
const WITHIN_MTU: u64 = 52;
/// The same with Ethernet's.
const HEADERS: u64 = 66;

/// The largest unit that a device is given at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Largest {
    /// Bytes of the largest packet (`mtu`).
    pub mtu: u32,
    /// Bytes of the largest super-packet (`gso_max_size`).
    pub super_packet: u32,
    /// Segments of the largest super-packet (`gso_max_segs`).
    pub segments: u32,
}

impl Queues {
    /// The most microseconds that a packet of this rank waits for less urgent ones: one of them, the largest unit sent
    /// at once, is not interrupted. Its own transmission and equally urgent packets come on top. `None`: no packet is
    /// less urgent, or no token bucket states the rate.
    pub(super) fn blocking_us(&self, rank: u32, of: u32) -> Option<f64> {
        let (rate, burst) = self.bucket().filter(|_| rank + 1 < of)?;
        let segment = u64::from(self.largest.mtu).saturating_sub(WITHIN_MTU).max(1);
        let sender = BulkSender {
            gso_max_size: self.largest.super_packet.into(),
            gso_max_segs: self.largest.segments.into(),
            segment,
            headers: HEADERS,
            pace: None,
            min_rtt_us: 0,
            tso_rtt_log: 0,
        };
        // A super-packet too large for a token bucket is split before it.
        let largest = sender.largest().min(burst.map_or(u64::MAX, u64::from)).max(segment + HEADERS);
        Some(Blocking { rate, largest, ring: 0, own: 0 }.us())
    }

    /// Total rate in bits per second, and the bytes of the largest packet that passes whole.
    fn bucket(&self) -> Option<(u64, Option<u32>)> {
        let root = self.root()?;
        match root.is {
            Discipline::Tbf { rate, burst, .. } => Some((rate, Some(burst))),
            Discipline::Htb { .. } | Discipline::Hfsc { .. } => {
                let first = |class: &&super::Node<Class>| [root.handle, Handle::ROOT].contains(&class.parent);
                let mut tops = self.classes.iter().filter(first);
                match (tops.next().map(|class| &class.is), tops.next()) {
                    (Some(Class::Htb(Shares { ceil, .. })), None) => Some((*ceil, None)),
                    (Some(Class::Hfsc { upper_limit: Some(curve), .. }), None) => Some((curve.m2, None)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Counters, Node, Said};
    use super::*;

    fn node<T>(handle: Handle, parent: Handle, is: T) -> Node<T> {
        Node { handle, parent, is, counters: Counters::default(), said: Said::default() }
    }

    fn queues(root: Discipline, classes: Vec<Node<Class>>, super_packet: u32) -> Queues {
        Queues {
            device: "eth0".into(),
            index: 2,
            length: 1000,
            largest: Largest { mtu: 1500, super_packet, segments: 65_535 },
            disciplines: vec![node(Handle::new(1, 0), Handle::ROOT, root)],
            classes,
            filters: Vec::new(),
        }
    }

    #[test]
    fn the_largest_that_is_sent_whole_blocks_for_its_transmission() {
        let tbf = |burst| Discipline::Tbf { rate: 100_000_000, burst, limit: 10_000_000 };
        let us = |root, super_packet| queues(root, Vec::new(), super_packet).blocking_us(0, 3).unwrap();
        assert!((us(tbf(3200), 65_536) - 256.0).abs() < 1e-6, "two packets fit the bucket");
        assert!((us(tbf(70_000), 65_536) - 45.0 * 121.12).abs() < 1e-6, "45 segments");
        assert!((us(tbf(70_000), 3000) - 2.0 * 121.12).abs() < 1e-6, "as many as the device takes");
        assert!((us(tbf(500), 65_536) - 121.12).abs() < 1e-6, "never less than a packet");
        let lowest = queues(tbf(3200), Vec::new(), 65_536);
        assert_eq!((lowest.blocking_us(2, 3), lowest.blocking_us(0, 1)), (None, None), "nothing is less urgent");
        assert_eq!(queues(Discipline::NoQueue, Vec::new(), 65_536).blocking_us(0, 3), None, "no rate");
    }

    #[test]
    fn without_a_bucket_the_rate_is_that_of_the_only_class_at_the_top() {
        let shares = |ceil| Class::Htb(Shares { rate: ceil, ceil, burst: 3200, priority: 0, quantum: 1514 });
        let (root, top) = (Handle::new(1, 0), Handle::new(1, 1));
        let one = vec![node(top, root, shares(50_000_000)), node(Handle::new(1, 2), top, shares(1000))];
        let htb = |classes| queues(Discipline::Htb { default: 2 }, classes, 1500).blocking_us(0, 2);
        assert!((htb(one).unwrap() - 242.24).abs() < 1e-6);
        assert_eq!(htb(vec![node(top, root, shares(5)), node(Handle::new(1, 2), root, shares(5))]), None);
    }
}
