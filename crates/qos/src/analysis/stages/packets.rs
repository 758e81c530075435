//! Packets of a sample on a link: their number and time on the wire, and the pace at which they come.

use super::super::BILLION;
use super::super::link::Bucket;
use crate::system::{Link, NodeKind, OWN_HEADERS, Scheduler};

/// Packets that come at a pace. Whether a pace counts headers depends on the carrier. The time of a sample counts them, the line does not, so that both hold
/// for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paced {
    /// Time from the first packet to the end of the last, ns.
    pub sample: u64,
    /// The most that comes in any interval: ns on the wire at once, and per second.
    pub(crate) line: Bucket,
}

/// A sample on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Number of packets.
    pub count: u64,
    /// Number of packets that a host's sockets make of it at most: these wait in queues.
    pub sent: u64,
    /// Time on the wire of each but the last, ns.
    pub full: u64,
    /// Time on the wire of the last, ns.
    pub last: u64,
    /// Time on the wire of the largest unit that the device takes at once, ns.
    pub unit: u64,
    /// Bytes on the wire of all.
    pub bytes: u64,
    /// Several samples may share packets; `None`: each has its own.
    pub together: Option<Together>,
}

/// Samples that leave together: packets of their bytes, one behind the other. So a packet may be as large as any, and the end of a sample
/// may be in a small one; in all they are no more than the packets of the samples alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// Bytes of a sample, without overhead.
    pub size: u64,
    /// Bytes of the largest packet, without overhead.
    pub mtu: u64,
    /// Most packets that the device takes at once.
    pub at_once: u64,
    /// Time on the wire of the largest packet, ns.
    pub full: u64,
    /// Time on the wire of the smallest, ns.
    pub least: u64,
}

impl Packets {
    /// Time on the wire of the largest unit that the device takes at once where so many samples are at one place at one time, ns.
    pub fn unit_of(&self, samples: u64) -> u64 {
        let Some(together) = self.together else { return self.unit };
        let packets = samples.saturating_mul(together.size).div_ceil(together.mtu.max(1)).max(1);
        let whole = together.full.saturating_mul(packets.min(together.at_once.max(1)));
        whole.min(samples.saturating_mul(self.together_work())).max(self.unit)
    }

    /// Time on the wire of the largest packet there, ns.
    pub fn largest_of(&self, samples: u64) -> u64 {
        let Some(together) = self.together else { return self.largest() };
        together.full.min(samples.saturating_mul(self.together_work())).max(self.largest())
    }

    /// Time on the wire of the smallest packet that may end a sample, ns.
    pub fn least_last(&self) -> u64 {
        self.together.map_or(self.last, |together| together.least)
    }

    /// Time on the wire that a sample takes at most, also where it shares packets, ns: each packet is rounded up.
    pub fn together_work(&self) -> u64 {
        self.work().saturating_add(self.together.map_or(0, |_| self.count))
    }

    /// Time on the wire of all, ns.
    pub fn work(&self) -> u64 {
        self.full.saturating_mul(self.count - 1).saturating_add(self.last)
    }
    /// Time on the wire of the first, ns.
    pub fn first(&self) -> u64 {
        if self.count > 1 { self.full } else { self.last }
    }
    /// Time on the wire of the largest, ns.
    pub fn largest(&self) -> u64 {
        self.first().max(self.last)
    }
}

/// Most packets that the device takes as one.
pub(crate) fn at_once(link: &Link, kind: NodeKind, mtu: u64, installed: bool, segments: Option<u32>) -> u64 {
    let most = if kind == NodeKind::Switch { 1 } else { (largest(link, installed) / mtu).max(1) };
    segments.map_or(most, |segments| most.min(segments.max(1).into()))
}

pub(super) fn packets(link: &Link, size: u64, mtu: u64, at_once: u64) -> Packets {
    let count = size.div_ceil(mtu).max(1);
    let rest = size.saturating_sub(mtu.saturating_mul(count - 1));
    let (full, last) =
        (on_wire(link, mtu.saturating_add(link.overhead)), on_wire(link, rest.saturating_add(link.overhead)));
    let first = if count > 1 { full } else { last };
    let bytes = size.saturating_add(count.saturating_mul(link.overhead));
    let unit = first.saturating_mul(count.min(at_once));
    Packets { count, sent: sent(size, mtu), full, last, unit, bytes, together: None }
}

/// Bytes of headers in a packet at most: IPv6's, UDP's, and our own in each datagram. In a packet of TCP they are fewer: IPv6's, TCP's 20, and 12 of
/// its time stamps (RFC 7323).
const HEADERS: u64 = 40 + 8 + OWN_HEADERS;

/// Packets of a sample at most, where the largest has `mtu` bytes with its headers: those of a contract are of so many bytes of content, so that these
/// are more. An MTU that is no device's, such as one of a few bytes, is half content.
fn sent(size: u64, mtu: u64) -> u64 {
    let content = mtu.saturating_sub(HEADERS).max(mtu.div_ceil(2)).max(1);
    size.saturating_add(OWN_HEADERS).div_ceil(content)
}

/// Packets at a pace of `rate` bit/s. Besides it, as much comes at once as a socket hands on in one piece, of whatever samples wait: a super-packet of TCP,
/// and half of the next one (after a pause the kernel takes up to half of a piece's time off the next, `tcp_update_skb_after_send`); or what the pacer of
/// datagrams lets go between two wake-ups, a millisecond's worth or two packets (`channel/bucket.rs` of the crate `thalweg`); and one packet more.
pub(super) fn paced(rate: u64, size: u64, mtu: u64, packets: &Packets, segments: Option<u32>) -> Paced {
    let piece = segments.map_or(SUPER_PACKET, |segments| mtu.saturating_mul(segments.max(2).into()));
    let at_once = (piece.saturating_add(piece / 2)).max(rate / 8000).saturating_add(mtu);
    // Work on the wire of so many bytes of samples: of full packets, or of whole samples, whose last packets may be nearly all headers.
    let work = |bytes: u64| {
        let of = |work: u64, each: u64| (u128::from(work) * u128::from(bytes)).div_ceil(u128::from(each.max(1)));
        let most = of(packets.first(), mtu.min(size)).max(of(packets.work(), size));
        u64::try_from(most).unwrap_or(u64::MAX)
    };
    let line = Bucket { burst: work(at_once).saturating_add(packets.last), rate: work(rate / 8) };
    Paced { sample: wire_ns(rate, packets.bytes), line }
}

pub(super) fn together(link: &Link, size: u64, mtu: u64, at_once: u64) -> Together {
    let (full, least) = (mtu.saturating_add(link.overhead), link.overhead.saturating_add(1));
    Together { size, mtu, at_once, full: on_wire(link, full), least: on_wire(link, least) }
}

/// Time of a packet on the wire, ns, rounded up, at least 1.
pub(super) fn on_wire(link: &Link, bytes: u64) -> u64 {
    link.transmission.unwrap_or(wire_ns(link.rate, bytes)).max(1)
}

/// Time of so many bytes at a rate in bit/s, ns, rounded up.
pub(super) fn wire_ns(rate: u64, bytes: u64) -> u64 {
    u64::try_from((u128::from(bytes) * 8 * BILLION).div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX)
}

/// Bytes that an HTB class with a rate of so many bit/s may send at once, and the link's own token bucket below it, as the queues are installed
/// (crate `linux`, `queueing`): 250 µs of its rate, at least 3200. A test of the crate `thalweg-baseline`, which knows both, holds the two
/// together.
pub fn htb_burst(rate: u64) -> u32 {
    u32::try_from(rate / 32_000).unwrap_or(u32::MAX).max(3200)
}

/// Most bytes that the device takes at once. The token bucket of an installed queue, and the one below shares, takes apart what is larger
/// than its burst (`tbf_enqueue`).
fn largest(link: &Link, installed: bool) -> u64 {
    match link.scheduler {
        Scheduler::Fifo | Scheduler::Strict if !installed => SUPER_PACKET,
        _ => SUPER_PACKET.min(htb_burst(link.rate).into()),
    }
}

/// Most bytes that the device of a host takes at once: TCP's largest super-packet (`gso_max_size`; see
/// [`crate::blocking`]). Switches forward frame by frame.
const SUPER_PACKET: u64 = 65_536;
