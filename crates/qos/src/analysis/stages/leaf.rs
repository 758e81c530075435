//! A queue of a channel's own at the host that sends it, or of control traffic before a link: what leaves it keeps to a token bucket, whatever comes.
//!
//! The bucket is so deep that a channel which keeps its contract and its deadline never waits for tokens. What leaves a queue within t was published within
//! t and the longest delay before, which is no more than the deadline Δ. So it is at most α(t + Δ) ≤ α(Δ) + 1 + ρ·t samples, with α the arrivals of the contract and ρ
//! their rate: with depth α(Δ) + 1 and a rate of at least ρ, the tokens do not run out (Le Boudec & Thiran 2001, §1.5.1: the output of a system with bounded delay). It holds as
//! long as all samples were in time, and the first late one would be a sample that did not wait for tokens: that is the one which the bound is for.

use super::packets::{Packets, htb_burst, on_wire, wire_ns};
use crate::Class;
use crate::analysis::{Arrivals, BILLION};
use crate::system::{Link, MOST_AT_ONCE, OWN_HEADERS};

/// The slowest rate of a queue, bit/s.
const SLOWEST: u128 = 1000;
/// The smallest bucket: a full packet, bytes.
const PACKET: u64 = 1514;
/// Full packets that leave the queue of control traffic at once, and packets that wait in it.
const CONTROL_BURST: u64 = 3;
const CONTROL_PACKETS: u64 = 100;
/// Bytes of an Ethernet header, which HTB counts.
const ETHERNET: u64 = 14;
/// Bytes of headers that HTB counts in each packet besides Thalweg's own, of `overhead`: Ethernet's, IPv4's and UDP's. Preamble, check sum and gap it does not.
const COUNTED: u64 = ETHERNET + 20 + 8;

/// A queue of a channel's own, or of control traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The class whose priority it has; it goes before that class's own queue.
    pub class: Class,
    /// What leaves it in the long run, bit/s: one percent more than the contract has, because clocks differ, and headers.
    pub rate: u64,
    /// Bytes that leave it at once after a pause.
    pub burst: u64,
    /// Packets that wait in it.
    pub packets: u64,
    /// The rate as a part of the link, in parts per billion.
    pub share: u64,
    /// The bytes at once as time on the wire, ns.
    pub bucket: u64,
    /// Time on the wire of the largest unit that the device takes, ns: of packets of any size, because they need not be declared.
    pub unit: u64,
    /// The deadline: what leaves it later may wait for tokens, ns.
    pub until: u64,
    /// Bytes of the largest unit.
    pub(super) largest: u64,
    /// Bytes of the overhead that HTB counts.
    pub(super) headers: u64,
}

impl Leaf {
    /// The queue at the beginning of `link` of samples that come as `arrivals`, each in packets of at most `mtu` bytes, with this deadline.
    pub(super) fn new(
        link: &Link,
        class: Class,
        arrivals: &Arrivals,
        (packets, mtu): (&Packets, u64),
        deadline: u64,
    ) -> Self {
        let sample = packets.bytes.saturating_add(packets.count.saturating_mul(OWN_HEADERS));
        let samples = arrivals.within(deadline).saturating_add(1);
        let per_period = u128::from(sample) * 8 * BILLION * 101 / 100;
        let rate = per_period.div_ceil(u128::from(arrivals.period.max(1))).max(SLOWEST);
        let burst = samples.saturating_mul(sample).max(PACKET);
        let packets = samples.saturating_mul(packets.count).saturating_mul(2).saturating_add(8);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        Self { packets, until: deadline, ..Self::with(link, mtu, class, rate, burst) }
    }

    /// The queue of control traffic at the beginning of `link`, if there is one. That traffic has no contract: what is beyond the rate waits.
    pub fn control(link: &Link) -> Option<Self> {
        let packet = link.mtu.saturating_add(ETHERNET).max(PACKET);
        let burst = packet.saturating_mul(CONTROL_BURST).min(MOST_AT_ONCE);
        let queue = || Self::with(link, link.mtu, Class::High, link.control, burst);
        (link.control > 0).then(|| Self { packets: CONTROL_PACKETS, ..queue() })
    }

    /// For packets of at most `mtu` bytes, without room and deadline.
    fn with(link: &Link, mtu: u64, class: Class, rate: u64, burst: u64) -> Self {
        let share = (u128::from(rate) * BILLION).div_ceil(u128::from(link.rate.max(1)));
        let unit = largest(link, mtu);
        Self {
            class,
            rate,
            burst,
            packets: 0,
            until: 0,
            share: u64::try_from(share).unwrap_or(u64::MAX),
            bucket: wire_ns(link.rate, burst),
            unit: wire_ns(link.rate, unit),
            largest: unit,
            headers: link.overhead.min(COUNTED),
        }
    }

    /// What leaves it at most, in pieces of [`Self::unit`]: a token bucket, and a packet that may leave a debt (`htb_charge_class`).
    pub(in crate::analysis) fn passes(&self) -> Arrivals {
        let unit = u128::from(self.unit.max(1));
        bucket(unit, u128::from(self.share.max(1)), u128::from(self.bucket) + unit)
    }

    /// What comes of it to a later link at most, whatever the sizes of its packets, in samples that take `work` ns there. The queue counts bytes, a link
    /// takes more for each of them the smaller the packets are; so all count as packets of the smallest.
    pub(super) fn passes_as(&self, link: &Link, work: u64) -> Arrivals {
        let (least, time) = self.smallest(link);
        // Bits per second are parts per billion of a bit per nanosecond; all in smallest packets, times their bits and the work of a sample.
        let step = u128::from(work.max(1)) * u128::from(least) * 8;
        let depth = (u128::from(self.burst) + u128::from(self.largest)) * 8;
        let passes = bucket(step, u128::from(self.rate) * u128::from(time), depth.saturating_mul(u128::from(time)));
        // A sample's own packets, by which times are counted, may take longer or shorter on the first link than these.
        passes.delayed(self.unit)
    }

    /// Bytes that the queue counts for the smallest packet at least, and the longest that it takes on a later link for so many, ns: no packet takes more
    /// for each byte. One nanosecond besides, because each packet is rounded up.
    fn smallest(&self, link: &Link) -> (u64, u64) {
        let content = 1 + OWN_HEADERS;
        let bytes = content.saturating_add(link.overhead.max(self.headers));
        (content + self.headers, on_wire(link, bytes).saturating_add(1))
    }
}

/// Bytes on the wire of the largest unit that the device takes at once: the token bucket below lets a super-packet of `htb_burst` bytes pass, with headers but
/// without what only the wire has, which is for each of as many packets as may be in it; or full packets of so many bytes of content.
fn largest(link: &Link, mtu: u64) -> u64 {
    let (at_once, mtu) = (u64::from(htb_burst(link.rate)), mtu.max(1));
    let packet = mtu.saturating_add(link.overhead).saturating_add(OWN_HEADERS);
    let headers = link.overhead.min(COUNTED);
    let small = at_once.max(packet).div_ceil(1 + OWN_HEADERS + headers).saturating_mul(link.overhead - headers);
    let full = (at_once / mtu).max(1).saturating_mul(packet);
    at_once.max(packet).saturating_add(small).max(full)
}

/// A token bucket as stairs of steps of `step`: at most `depth` at once, and `rate` billionths of it per ns besides. Without bound where that is more than a
/// step per ns, because [`Arrivals`] come a nanosecond apart at least.
fn bucket(step: u128, rate: u128, depth: u128) -> Arrivals {
    let between = step * BILLION / rate.max(1);
    if between == 0 {
        return Arrivals { period: 1, jitter: u64::MAX };
    }
    let period = u64::try_from(between).unwrap_or(u64::MAX);
    let count = u64::try_from(depth.div_ceil(step.max(1))).unwrap_or(u64::MAX);
    Arrivals { period, jitter: period.saturating_mul(count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_traffic_has_a_queue_where_a_link_states_its_rate() {
        let link = Link { rate: 100_000_000, mtu: 1500, overhead: 66, control: 500_000, ..Link::default() };
        let queue = Leaf::control(&link).unwrap();
        assert_eq!((queue.class, queue.rate, queue.burst, queue.packets), (Class::High, 500_000, 3 * 1514, 100));
        assert_eq!((queue.share, queue.bucket), (5_000_000, 3 * 1514 * 80));
        assert_eq!(Leaf::control(&Link { mtu: 9000, ..link.clone() }).unwrap().burst, 3 * 9014);
        assert_eq!(Leaf::control(&Link { mtu: u64::MAX, ..link.clone() }).unwrap().burst, MOST_AT_ONCE);
        assert_eq!(Leaf::control(&Link { control: 0, ..link }), None);
    }

    #[test]
    fn faster_than_a_step_per_nanosecond_is_without_bound() {
        assert_eq!(bucket(1, BILLION, 0).within(7), 8);
        assert_eq!(bucket(1, BILLION + 1, 0).within(7), u64::MAX);
    }

    proptest! {
        /// The stairs are never below the bucket: depth + rate · t.
        #[test]
        fn stairs_cover_the_bucket(step in 1..5000u128, rate in 1..3_000_000_000u128, depth in 0..90_000u128, t in 0..9_000_000u64) {
            let stairs = u128::from(bucket(step, rate, depth).within(t)) * step;
            prop_assert!(stairs * BILLION >= depth * BILLION + rate * u128::from(t));
        }

        /// A channel that keeps to its contract, and is late by up to its deadline, never takes more than the bucket has.
        #[test]
        fn what_keeps_its_deadline_has_tokens(size in 1..9000u64, period in 1000..90_000_000u64, jitter in 0..90_000_000u64, deadline in 1..90_000_000u64, t in 0..900_000_000u64) {
            let link = Link { rate: 1_000_000_000, mtu: 1500, overhead: 66, ..Link::default() };
            let packets = super::super::packets::packets(&link, size, 1500, 1);
            let arrivals = Arrivals { period, jitter };
            let leaf = Leaf::new(&link, Class::High, &arrivals, (&packets, 1500), deadline);
            let leaves = u128::from(arrivals.within(t + deadline)) * u128::from(packets.bytes);
            prop_assert!(leaves * BILLION * 8 <= u128::from(leaf.burst) * 8 * BILLION + u128::from(leaf.rate) * u128::from(t));
        }

        /// No unit that the token bucket lets pass is larger: packets of one size, which it counts without what only the wire has.
        #[test]
        fn no_unit_is_larger(mtu in 1..70_000u64, content in 1..70_000u64, overhead in 0..200u64, rate in 1_000_000..10_000_000_000u64) {
            let link = Link { rate, mtu, overhead, ..Link::default() };
            let content = content.min(mtu);
            let counted = content + OWN_HEADERS + overhead.min(COUNTED);
            let packets = (u64::from(htb_burst(rate)) / counted).max(1);
            prop_assert!(largest(&link, mtu) >= packets * (content + OWN_HEADERS + overhead));
            prop_assert!(largest(&link, mtu) >= u64::from(htb_burst(rate)));
        }

        /// At a later link packets of any size take no more time than what counts there.
        #[test]
        fn packets_of_any_size_are_counted(
            content in 1..1500u64,
            overheads in (0..200u64, 0..200u64),
            transmission in prop::option::of(1..200_000u64),
            sample in 1..9000u64,
            t in 0..900_000_000u64,
        ) {
            let first = Link { rate: 1_000_000_000, mtu: 1500, overhead: overheads.0, ..Link::default() };
            let later = Link { rate: 70_000_000, mtu: 1500, overhead: overheads.1, transmission, ..Link::default() };
            let packets = |link| super::super::packets::packets(link, sample, 1500, 1);
            let arrivals = Arrivals { period: 1_000_000, jitter: 0 };
            let leaf = Leaf::new(&first, Class::High, &arrivals, (&packets(&first), 1500), 9_000_000);
            let counted = content + OWN_HEADERS + overheads.0.min(COUNTED);
            let bits = u128::from(leaf.burst + leaf.largest) * 8 * BILLION + u128::from(leaf.rate) * u128::from(t);
            let passed = bits / (u128::from(counted) * 8 * BILLION);
            let takes = passed * u128::from(on_wire(&later, content + OWN_HEADERS + later.overhead));
            let work = packets(&later).work();
            prop_assert!(u128::from(leaf.passes_as(&later, work).within(t)) * u128::from(work) >= takes);
        }
    }
}
