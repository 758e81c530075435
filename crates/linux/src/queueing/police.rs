//! Policing at a boundary: what two hosts send beyond their limit in a class is counted and dropped (RFC 2475 §2.3.3.4), so that it takes nothing
//! from others in the class. It is not given another mark: packets of a flow in two classes overtake each other, which RFC 3246 is against, and in
//! the other class it would take from those that keep to what they said.
//!
//! A limit is two token buckets, as `nft` has them. That of packets is as deep as it says; that of bytes has a second's worth besides
//! (`nft_limit_init`). So the first one keeps bursts short, and the second one bounds what larger packets make of it. A packet is found by its
//! addresses in a map, however many pairs there are.

use super::boundary::{Pair, declaration, digits};
use super::map::Hook;
use super::{QueueError, boundary};
use qos::Class;
use std::net::IpAddr;

/// What comes in from one host to another in a class at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit {
    /// Bytes per second, from the IP header on.
    pub rate: u64,
    /// Bytes at once, besides a second's worth.
    pub burst: u64,
    /// Packets per hour.
    pub packets_per_hour: u64,
    /// Packets at once.
    pub packets: u64,
    /// Bytes of the largest packet. A larger one was put together of several by a network card or its driver, and counts as so many.
    pub packet: u32,
}

/// Packets that a boundary has dropped because they were beyond their limit, since the limit is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The device by which they came in.
    pub device: String,
    /// Their class.
    pub class: Class,
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// Packets.
    pub packets: u64,
    /// Bytes, from the IP header on.
    pub bytes: u64,
}

/// The names of limits and counters begin so, and of the maps to them.
const PACKETS: &str = "packets_";
const BYTES: &str = "bytes_";
const EXCEEDED: &str = "exceeded_";
/// What the kernel reckons with in 64 bits: nanoseconds × (bytes per second + bytes), and nanoseconds of an hour × packets.
const MOST_BYTES_PER_S: u64 = 12_500_000_000;
const MOST_PACKETS: u64 = 5_000_000;
/// The smallest largest packet: each multiple of it up to the longest packet is a rule.
const SMALLEST: u32 = 576;
/// The longest packet.
const LONGEST: u32 = 65_535;

/// The limits of the pairs of one class and IP version, with the chain that keeps them, and the name of that; `None`: no pair has one.
pub(super) fn chain(device: &str, class: Class, version: &str, pairs: &[&Pair]) -> Option<(String, String)> {
    let limited: Vec<(&Pair, Limit)> = pairs.iter().filter_map(|pair| Some((*pair, pair.limit?))).collect();
    let largest = limited.iter().map(|(_, limit)| limit.packet).max()?.max(SMALLEST);
    let place = format!("{}_{}_{version}", digits(device), class.name());
    let mut text: String = limited.iter().map(|(pair, limit)| limit.declared(&name(device, pair))).collect();
    let address = if version == "ip" { "ipv4_addr" } else { "ipv6_addr" };
    for (kind, object) in [(PACKETS, "limit"), (BYTES, "limit"), (EXCEEDED, "counter")] {
        let element = |(pair, _): &(&Pair, Limit)| {
            format!("{} . {} : \"{kind}{}\"", pair.source, pair.destination, name(device, pair))
        };
        let elements: Vec<String> = limited.iter().map(element).collect();
        let elements = elements.join(", ");
        text += &format!(
            "  map {kind}{place} {{\n    type {address} . {address} : {object}\n    elements = {{ {elements} }}\n  }}\n"
        );
    }
    let chain = format!("police_{place}");
    text += &format!("  chain {chain} {{\n{}  }}\n", rules(&place, version, largest));
    Some((text, chain))
}

/// A packet takes of both buckets; one that was put together takes of the first as often as it is longer than the largest.
fn rules(place: &str, version: &str, largest: u32) -> String {
    let its = |kind: &str| format!("name {version} saddr . {version} daddr map @{kind}{place}");
    let dropped = |kind: &str| format!("    limit {} counter {} drop\n", its(kind), its(EXCEEDED));
    let longer = (1..=LONGEST / largest)
        .map(|times| format!("    meta length <= {} return\n{}", times * largest, dropped(PACKETS)));
    [dropped(PACKETS), dropped(BYTES)].into_iter().chain(longer).collect()
}

impl Limit {
    /// Its two buckets and its counter.
    fn declared(&self, name: &str) -> String {
        let Self { rate, burst, packets_per_hour, packets, .. } = *self;
        let (rate, burst) = (rate.clamp(1, MOST_BYTES_PER_S), burst.min(u32::MAX.into()));
        let (hourly, packets) = (packets_per_hour.max(1), packets.clamp(1, MOST_PACKETS));
        format!(
            "  limit {PACKETS}{name} {{\n    rate over {hourly}/hour burst {packets} packets\n  }}\n  \
             limit {BYTES}{name} {{\n    rate over {rate} bytes/second burst {burst} bytes\n  }}\n{}",
            declaration(&format!("{EXCEEDED}{name}"), 0, 0)
        )
    }
}

/// The name of a pair in a class, of letters that `nft` takes.
fn name(device: &str, pair: &Pair) -> String {
    let Pair { class, source, destination, .. } = pair;
    format!("{}_{}_{}_{}", digits(device), class.name(), hex(*source), hex(*destination))
}

fn hex(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{:08x}", address.to_bits()),
        IpAddr::V6(address) => format!("{:032x}", address.to_bits()),
    }
}

fn address(hex: &str) -> Option<IpAddr> {
    match hex.len() {
        8 => u32::from_str_radix(hex, 16).ok().map(|bits| std::net::Ipv4Addr::from_bits(bits).into()),
        32 => u128::from_str_radix(hex, 16).ok().map(|bits| std::net::Ipv6Addr::from_bits(bits).into()),
        _ => None,
    }
}

/// What the boundaries of this network namespace have dropped beyond limits, of all pairs that have one.
///
/// # Errors
/// `nft` cannot be run.
pub fn exceeded() -> Result<Vec<Exceeded>, QueueError> {
    let mut all = Vec::new();
    for hook in [Hook::Router, Hook::Bridge] {
        all.extend(boundary::counts_of(hook.family())?.into_iter().filter_map(read));
    }
    Ok(all)
}

fn read(boundary::Count { name, packets, bytes }: boundary::Count) -> Option<Exceeded> {
    let mut parts = name.strip_prefix(EXCEEDED)?.split('_');
    let mut next = || parts.next();
    let (device, class) = boundary::device_and_class(next()?, next()?)?;
    let (source, destination) = (address(next()?)?, address(next()?)?);
    Some(Exceeded { device, class, source, destination, packets, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use boundary::{Count, counted_on};

    fn pair(source: &str, destination: &str, limit: Option<Limit>) -> Pair {
        let [source, destination] = [source, destination].map(|address| address.parse().unwrap());
        Pair { class: Class::High, source, destination, limit }
    }

    const LIMIT: Limit = Limit { rate: 12_500, burst: 3000, packets_per_hour: 144_000, packets: 4, packet: 1500 };

    #[test]
    fn each_pair_has_its_buckets_and_all_have_the_same_rules() {
        let pairs = [pair("10.0.0.1", "10.0.0.2", Some(LIMIT)), pair("10.0.0.3", "10.0.0.2", None)];
        let (text, chain) = chain("eth0", Class::High, "ip", &pairs.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(chain, "police_65746830_high_ip");
        for says in [
            "limit packets_65746830_high_0a000001_0a000002 {\n    rate over 144000/hour burst 4 packets\n",
            "limit bytes_65746830_high_0a000001_0a000002 {\n    rate over 12500 bytes/second burst 3000 bytes\n",
            "counter exceeded_65746830_high_0a000001_0a000002 { packets 0 bytes 0 }\n",
            "elements = { 10.0.0.1 . 10.0.0.2 : \"bytes_65746830_high_0a000001_0a000002\" }\n",
            "    limit name ip saddr . ip daddr map @bytes_65746830_high_ip counter name ip saddr . ip daddr map @exceeded_65746830_high_ip drop\n",
            "    meta length <= 1500 return\n",
            "    meta length <= 64500 return\n",
        ] {
            assert!(text.contains(says), "{says}\nis not in\n{text}");
        }
        assert!(!text.contains("10.0.0.3"), "it has no limit: {text}");
        assert_eq!(text.matches(" drop\n").count(), 2 + 43);
        assert_eq!(super::chain("eth0", Class::High, "ip", &[&pairs[1]]), None);
    }

    #[test]
    fn a_limit_is_one_that_the_kernel_can_reckon_with() {
        let wrong = Limit { rate: u64::MAX, burst: u64::MAX, packets_per_hour: 0, packets: 0, packet: 0 };
        let one = pair("fd00::1", "fd00::2", Some(wrong));
        let (text, _) = chain("eth0", Class::High, "ip6", &[&one]).unwrap();
        assert!(text.contains("rate over 12500000000 bytes/second burst 4294967295 bytes"), "{text}");
        assert!(text.contains("rate over 1/hour burst 1 packets"), "{text}");
        assert!(text.contains("type ipv6_addr . ipv6_addr : limit") && text.contains("<= 576 return"), "{text}");
    }

    #[test]
    fn counters_are_read_by_pair_and_go_on() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let one = pair(source, destination, Some(LIMIT));
            let name = format!("{EXCEEDED}{}", name("a.b@c:d-e_f", &one));
            let count = Count { name: name.clone(), packets: 3, bytes: 400 };
            let expected = Exceeded {
                device: "a.b@c:d-e_f".into(),
                class: Class::High,
                source: one.source,
                destination: one.destination,
                packets: 3,
                bytes: 400,
            };
            assert_eq!(read(count.clone()), Some(expected));
            let on = counted_on(&LIMIT.declared(&name[EXCEEDED.len()..]), &[count]);
            assert!(on.ends_with(&declaration(&name, 3, 400)), "{on}");
        }
        for strange in
            ["kept_out_65746830_high", "exceeded_65746830_high_0a000001", "exceeded_65746830_high_0a_0a", "mine"]
        {
            assert_eq!(read(Count { name: strange.into(), packets: 1, bytes: 1 }), None, "{strange}");
        }
    }
}
