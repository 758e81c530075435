//! The queue and rate of one flow below a device's classes: what the flow sends beyond its rate waits, and is dropped, in its own queue.
//!
//! A leaf is an HTB class beside the classes of marks, with the priority of its own class. Its rate is its ceiling, too: it borrows nothing.
//! Filters on the flow's addresses, protocol and port come before those on marks.

use super::discipline::{Class as QueueClass, Discipline, Shares};
use super::filter::{Bits, Filter, Protocol, Question};
use super::tree::Handle;
use super::wanted::{INNER, PACKET, Step};
use qos::Class;
use std::fmt;
use std::net::IpAddr;

/// Most leaves of a device. The kernel asks the filters one after the other, some 20 ns each, for every packet of the device.
pub const MOST_LEAVES: usize = 64;
/// Preference of the filters on marks over IPv4; IPv6 has the next one. Those of leaves are lower.
pub(super) const MARK_PREFERENCE: u16 = 101;
/// The minor number of the first leaf's class, and the major number of its queue.
const FIRST: [u16; 2] = [0x100, 0x7b00];

/// A flow with a queue and rate of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The class whose priority it has.
    pub class: Class,
    /// Its rate in bits per second, link-layer headers included: guaranteed, and never more.
    pub rate: u64,
    /// Bytes that it may send at once after a pause.
    pub burst: u32,
    /// Most packets that wait.
    pub queue: u32,
    /// Its packets.
    pub flow: Flow,
}

/// The packets of a flow, as their headers name it (RFC 3289 §3.3.1: a filter on addresses, protocol and port).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sender; `None`: any.
    pub source: Option<IpAddr>,
    /// The receiver. Of the same version as the sender.
    pub destination: IpAddr,
    /// The protocol.
    pub transport: Transport,
    /// The receiver's port.
    pub port: u16,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl Transport {
    /// Its number (IANA).
    fn number(self) -> u32 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, transport, port } = self;
        match source {
            Some(source) => write!(f, "{transport} from {source} to {destination} port {port}"),
            None => write!(f, "{transport} to {destination} port {port}"),
        }
    }
}

impl Leaf {
    /// The handle of the class of leaf `number`, from 0.
    pub fn handle(number: usize) -> Handle {
        Handle::new(INNER, FIRST[0] + number as u16)
    }

    /// `true` if this is the class of a leaf.
    pub(super) fn is_handle(handle: Handle) -> bool {
        handle.major() == INNER && (FIRST[0]..FIRST[0] + MOST_LEAVES as u16).contains(&handle.minor())
    }

    /// The steps that make it: class, queue, filter.
    pub(super) fn steps(&self, number: usize, top: Handle) -> [Step; 3] {
        let handle = Self::handle(number);
        let priority = 3 - self.class as u32;
        let shares =
            Shares { rate: self.rate, ceil: self.rate, burst: self.burst.max(PACKET), priority, quantum: PACKET };
        [
            Step::Class { parent: top, handle, is: QueueClass::Htb(shares) },
            Step::Discipline {
                parent: handle,
                handle: Handle::new(FIRST[1] + number as u16, 0),
                is: Discipline::Pfifo { limit: self.queue },
            },
            Step::Filter { parent: Handle::new(INNER, 0), is: self.flow.filter(1 + number as u16, handle) },
        ]
    }
}

impl Flow {
    /// The filter on its packets: not on fragments behind the first, which name no port, nor on IPv4 packets with options or IPv6
    /// packets with extension headers, whose ports are elsewhere.
    fn filter(&self, preference: u16, target: Handle) -> Filter {
        let bits = |offset, mask, value| Bits { offset, mask, value };
        let (protocol, mut all) = match self.destination {
            // RFC 791 §3.1: header length, fragment offset, protocol.
            IpAddr::V4(_) => (
                Protocol::V4,
                vec![
                    bits(0, 0x0f00_0000, 0x0500_0000),
                    bits(4, 0x0000_1fff, 0),
                    bits(8, 0x00ff_0000, self.transport.number() << 16),
                ],
            ),
            // RFC 8200 §3: next header.
            IpAddr::V6(_) => (Protocol::V6, vec![bits(4, 0x0000_ff00, self.transport.number() << 8)]),
        };
        let (source_at, destination_at, port_at) = if protocol == Protocol::V4 { (12, 16, 20) } else { (8, 24, 40) };
        let address = |at: i32, address: IpAddr| {
            let words = (at..).step_by(4).zip(words(address));
            words.map(|(at, word)| bits(at, u32::MAX, word)).collect::<Vec<_>>()
        };
        all.extend(self.source.map_or_else(Vec::new, |source| address(source_at, source)));
        all.extend(address(destination_at, self.destination));
        all.push(bits(port_at, 0x0000_ffff, self.port.into()));
        Filter { protocol, preference, target: Some(target), question: Question::Bits(all) }
    }
}

/// An address in words of 32 bits.
fn words(address: IpAddr) -> Vec<u32> {
    match address {
        IpAddr::V4(address) => vec![address.to_bits()],
        IpAddr::V6(address) => (0..4).rev().map(|n| (address.to_bits() >> (32 * n)) as u32).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_said_as_tc_takes_them() {
        let flow = |source: Option<&str>, destination: &str| Flow {
            source: source.map(|source| source.parse().unwrap()),
            destination: destination.parse().unwrap(),
            transport: Transport::Udp,
            port: 7400,
        };
        let leaf = |flow| Leaf { class: Class::High, rate: 500_000, burst: 3000, queue: 8, flow };
        let steps = leaf(flow(Some("10.0.0.1"), "10.0.0.2")).steps(1, Handle::new(INNER, 1));
        assert_eq!(
            steps.map(|step| step.command("eth0")),
            [
                "tc class add dev eth0 parent 7a2:1 classid 7a2:101 htb rate 500000bit ceil 500000bit burst 3000 cburst 3000 prio 1 quantum 1514",
                "tc qdisc add dev eth0 parent 7a2:101 handle 7b01: pfifo limit 8",
                "tc filter add dev eth0 parent 7a2: protocol ip pref 2 u32 match u32 0x05000000 0x0f000000 at 0 \
                 match u32 0x00000000 0x00001fff at 4 match u32 0x00110000 0x00ff0000 at 8 match u32 0x0a000001 0xffffffff at 12 \
                 match u32 0x0a000002 0xffffffff at 16 match u32 0x00001ce8 0x0000ffff at 20 flowid 7a2:101",
            ]
        );
        let [_, _, filter] = leaf(flow(None, "fd00::2")).steps(0, Handle::new(INNER, 1));
        assert_eq!(
            filter.command("eth0"),
            "tc filter add dev eth0 parent 7a2: protocol ipv6 pref 1 u32 match u32 0x00001100 0x0000ff00 at 4 \
             match u32 0xfd000000 0xffffffff at 24 match u32 0x00000000 0xffffffff at 28 match u32 0x00000000 0xffffffff at 32 \
             match u32 0x00000002 0xffffffff at 36 match u32 0x00001ce8 0x0000ffff at 40 flowid 7a2:100"
        );
    }
}
