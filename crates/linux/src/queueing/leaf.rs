//! A queue and rate below a device's classes for one flow, for the sockets that name it, or for control traffic: what is sent beyond the rate waits, and is
//! dropped, there.
//!
//! A leaf is an HTB class beside the classes of marks, just before its own class in their order. Its rate is its ceiling, too: it borrows nothing.
//! A flow is told by filters on its addresses, protocol and port, before those on marks. A socket names a leaf by its priority (`SO_PRIORITY`,
//! with CAP_NET_ADMIN), which HTB looks at before it asks any filter (`htb_classify`). Control traffic is told by its mark.

use super::discipline::{Class as QueueClass, Discipline, Shares};
use super::filter::{Bits, Filter, Protocol, Question};
use super::tree::Handle;
use super::wanted::{INNER, PACKET, Step};
use qos::Class;
use qos::plan::OwnQueue;
use qos::priority::CONTROL;
use qos::system::MOST_OWN_QUEUES;
use std::fmt;
use std::net::IpAddr;

/// Most leaves of a device. The kernel asks the filters one after the other, some 20 ns each, for every packet of the device.
pub const MOST_LEAVES: usize = MOST_OWN_QUEUES;
/// Preference of the filters on marks over IPv4; IPv6 has the next one. Those of leaves are lower.
pub(super) const MARK_PREFERENCE: u16 = 101;
/// The same of those on control traffic.
const CONTROL_PREFERENCE: u16 = 99;
/// The minor number of its class, and the major number of its queue: beside those of classes.
const CONTROL_AT: [u16; 2] = [0x50, 0x7a50];
/// The minor number of the class of a flow's first leaf, and the major number of its queue.
const FIRST: [u16; 2] = [0x100, 0x7b00];
/// The same of those that sockets name.
const NAMED: [u16; 2] = [0x1000, 0x6000];

/// A queue and rate of its own, and the packets that it is for.
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
    pub whose: Whose,
}

/// The packets of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Those of a flow.
    Flow(Flow),
    /// Those of the sockets that name the leaf, by a number below [`qos::plan::OwnQueue::NUMBERS`] that no other leaf of the device has.
    Sockets(u16),
    /// Those with the mark of control traffic ([`qos::priority::CONTROL`]). A device has one such leaf.
    Control,
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
    /// The handle of the class of a flow's leaf that is the device's leaf `number`, from 0.
    pub fn handle(number: usize) -> Handle {
        Handle::new(INNER, FIRST[0] + number as u16)
    }

    /// The handle of the class of the leaf that sockets name by `number`. As their priority it names it.
    pub fn named(number: u16) -> Handle {
        Handle::new(INNER, NAMED[0] + number % OwnQueue::NUMBERS)
    }

    /// The handle of its class, if it is the device's leaf `number`.
    pub fn class_handle(&self, number: usize) -> Handle {
        match self.whose {
            Whose::Flow(_) => Self::handle(number),
            Whose::Sockets(name) => Self::named(name),
            Whose::Control => Self::control(),
        }
    }

    /// The handle of the class for control traffic.
    pub fn control() -> Handle {
        Handle::new(INNER, CONTROL_AT[0])
    }

    /// The flow that it is for.
    pub fn flow(&self) -> Option<Flow> {
        match self.whose {
            Whose::Flow(flow) => Some(flow),
            Whose::Sockets(_) | Whose::Control => None,
        }
    }

    /// The filters that tell its packets.
    fn filters(&self, number: usize) -> Vec<Filter> {
        let handle = self.class_handle(number);
        let on_mark = |v6: bool| Filter::on_mark(v6, CONTROL_PREFERENCE + u16::from(v6), CONTROL.tos(), 0xfc, handle);
        match self.whose {
            Whose::Flow(flow) => vec![flow.filter(1 + number as u16, handle)],
            Whose::Sockets(_) => Vec::new(),
            Whose::Control => vec![on_mark(false), on_mark(true)],
        }
    }

    /// `true` if this is the class of a leaf.
    pub(super) fn is_handle(handle: Handle) -> bool {
        handle.major() == INNER && (FIRST[0]..FIRST[0] + MOST_LEAVES as u16).contains(&handle.minor())
    }

    /// The steps that make it: class, queue, and filters.
    pub(super) fn steps(&self, number: usize, top: Handle) -> Vec<Step> {
        let handle = self.class_handle(number);
        let queue = match self.whose {
            Whose::Flow(_) => FIRST[1] + number as u16,
            Whose::Sockets(name) => NAMED[1] + name % OwnQueue::NUMBERS,
            Whose::Control => CONTROL_AT[1],
        };
        let priority = 6 - 2 * self.class as u32;
        let shares =
            Shares { rate: self.rate, ceil: self.rate, burst: self.burst.max(PACKET), priority, quantum: PACKET };
        let steps = [
            Step::Class { parent: top, handle, is: QueueClass::Htb(shares) },
            Step::Discipline {
                parent: handle,
                handle: Handle::new(queue, 0),
                is: Discipline::Pfifo { limit: self.queue },
                more: 0,
            },
        ];
        let filters = self.filters(number).into_iter();
        steps.into_iter().chain(filters.map(|is| Step::Filter { parent: Handle::new(INNER, 0), is })).collect()
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
        let leaf = |flow| Leaf { class: Class::High, rate: 500_000, burst: 3000, queue: 8, whose: Whose::Flow(flow) };
        let steps = leaf(flow(Some("10.0.0.1"), "10.0.0.2")).steps(1, Handle::new(INNER, 1));
        let said = |steps: Vec<Step>| steps.iter().map(|step| step.command("eth0")).collect::<Vec<_>>();
        assert_eq!(
            said(steps),
            [
                "tc class add dev eth0 parent 7a2:1 classid 7a2:101 htb rate 500000bit ceil 500000bit burst 3000 cburst 3000 prio 2 quantum 1514",
                "tc qdisc add dev eth0 parent 7a2:101 handle 7b01: pfifo limit 8",
                "tc filter add dev eth0 parent 7a2: protocol ip pref 2 u32 match u32 0x05000000 0x0f000000 at 0 \
                 match u32 0x00000000 0x00001fff at 4 match u32 0x00110000 0x00ff0000 at 8 match u32 0x0a000001 0xffffffff at 12 \
                 match u32 0x0a000002 0xffffffff at 16 match u32 0x00001ce8 0x0000ffff at 20 flowid 7a2:101",
            ]
        );
        let of_v6 = said(leaf(flow(None, "fd00::2")).steps(0, Handle::new(INNER, 1)));
        assert_eq!(
            of_v6[2],
            "tc filter add dev eth0 parent 7a2: protocol ipv6 pref 1 u32 match u32 0x00001100 0x0000ff00 at 4 \
             match u32 0xfd000000 0xffffffff at 24 match u32 0x00000000 0xffffffff at 28 match u32 0x00000000 0xffffffff at 32 \
             match u32 0x00000002 0xffffffff at 36 match u32 0x00001ce8 0x0000ffff at 40 flowid 7a2:100"
        );
        let named = Leaf { whose: Whose::Sockets(0xabc), ..leaf(flow(None, "10.0.0.2")) };
        assert_eq!(
            said(named.steps(1, Handle::new(INNER, 1))),
            [
                "tc class add dev eth0 parent 7a2:1 classid 7a2:1abc htb rate 500000bit ceil 500000bit burst 3000 cburst 3000 prio 2 quantum 1514",
                "tc qdisc add dev eth0 parent 7a2:1abc handle 6abc: pfifo limit 8",
            ]
        );
        let control = Leaf { whose: Whose::Control, ..leaf(flow(None, "10.0.0.2")) };
        assert_eq!(
            said(control.steps(1, Handle::new(INNER, 1))),
            [
                "tc class add dev eth0 parent 7a2:1 classid 7a2:50 htb rate 500000bit ceil 500000bit burst 3000 cburst 3000 prio 2 quantum 1514",
                "tc qdisc add dev eth0 parent 7a2:50 handle 7a50: pfifo limit 8",
                "tc filter add dev eth0 parent 7a2: protocol ip pref 99 u32 match u32 0x00a00000 0x00fc0000 at 0 flowid 7a2:50",
                "tc filter add dev eth0 parent 7a2: protocol ipv6 pref 100 u32 match u32 0x0a000000 0x0fc00000 at 0 flowid 7a2:50",
            ]
        );
    }
}
