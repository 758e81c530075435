//! `big-messages` (F-7): a channel of 10 bytes at 1 kHz beside one of 10 MB without pause, from one host to another over
//! 100 Mbit/s. The small one may wait for the computed blocking term and no longer; the big ones must arrive whole.
//!
//! The link is a line that takes each frame's time. The queue in front of it takes super-packets whole, like a card that segments
//! by itself: a token bucket with room for the largest. A super-packet that was chosen to be sent next is sent whole before anything
//! else. Measures are added one by one.

use super::{Experiment, Tally, lines};
use crate::error::{Error, Result};
use crate::iproute::ip;
use crate::lab::{Lab, Size};
use crate::part::stream::{self, Arrived, Flow, Settings};
use crate::part::{NodeSettings, Place};
use crate::results::{Check, Factors, Figure, Findings, Group, Panel};
use crate::statistics::median;
use crate::topology::{DEVICE, FULL_PACKET, Line, Namespace, Queue, SHAPED, Topology, Wire};
use qos::blocking::{Blocking, BulkSender};
use qos::priority::Changes;
use std::net::SocketAddr;
use std::time::Duration;

/// The experiment.
pub(super) struct BigMessages;

const RATE: u64 = 100_000_000;
/// The queue in front of the line.
const WIRE: Wire = Wire { rate: RATE, limit: 1000, queue: Queue::Classes };
/// Bytes in the token bucket besides a super-packet.
const BESIDE: u64 = 1600;
const SMALL: usize = 10;
const BIG: usize = 10_000_000;
const HZ: f64 = 1000.0;
/// The last small sample may take this long.
const PATIENCE: Duration = Duration::from_secs(2);

impl Experiment for BigMessages {
    fn name(&self) -> &'static str {
        "big-messages"
    }

    fn about(&self) -> &'static str {
        "10 bytes at 1 kHz beside continuous 10 MB messages at 100 Mbit/s: how long the small ones wait, and what bounds it"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut topology = Topology::link(lab, &[Line::of(1, RATE)])?;
        let mut testbed = Testbed::start(lab, &topology)?;
        let ring = ring(&topology);
        let repetitions = match lab.options.size {
            Size::Tiny => 1,
            Size::Ci => 1,
            Size::Quick => 3,
            Size::Whole => 5,
        };
        let arms: Vec<Arm> = if lab.options.size == Size::Ci { FEW.map(|n| ARMS[n]).into() } else { ARMS.into() };
        let mut sides: Vec<Side> = arms.iter().map(|_| Side::default()).collect();
        for repetition in 0..repetitions {
            for turn in 0..arms.len() {
                let index = (turn + repetition) % arms.len();
                lab.tell(&format!("{}, repetition {} of {repetitions}", arms[index].name, repetition + 1));
                testbed.run(lab, arms[index], &mut sides[index])?;
            }
        }
        let queues = topology.host(1).tc(&["-s", "qdisc", "show", "dev", DEVICE])?;
        let mut findings = judge(&arms, &sides, ring);
        findings.queues = queues.lines().map(str::to_owned).collect();
        drop(testbed);
        lines::judge("all arms", &topology.end_lines(), &mut findings);
        Ok(findings)
    }
}

/// Bytes that the driver of the first host's device takes in advance; a device without such a limit takes none.
fn ring(topology: &Topology) -> u64 {
    // /sys shows the namespace it was mounted in: `ip netns exec` mounts its own.
    let file = format!("/sys/class/net/{DEVICE}/queues/tx-0/byte_queue_limits/limit");
    let read = ip(&["netns", "exec", topology.host(1).name(), "cat", &file]);
    read.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Publishers on the first host, subscribers on the second.
struct Testbed<'a> {
    topology: &'a Topology,
    small: [Flow; 2], // of each carrier
    big: Flow,
}

/// The results of one arm.
#[derive(Default)]
struct Side {
    latency: Tally,
    messages: u64,
    whole: u64,
}

impl<'a> Testbed<'a> {
    fn start(lab: &Lab, topology: &'a Topology) -> Result<Self> {
        install(topology)?;
        let small = [
            flow(lab, topology, Carrier::Tcp.small(), "tcp", (SMALL, HZ), 0)?,
            flow(lab, topology, Carrier::Udp.small(), "udp", (SMALL, HZ), 1)?,
        ];
        let big = flow(lab, topology, "big", "tcp", (BIG, 0.0), 2)?;
        Ok(Self { topology, small, big })
    }

    fn run(&mut self, lab: &Lab, arm: Arm, side: &mut Side) -> Result {
        self.prepare(lab, arm)?;
        let (warm, count) = match lab.options.size {
            Size::Tiny => (10, 50),
            Size::Ci => (100, 400),
            Size::Quick => (300, 1500),
            Size::Whole => (500, 4000),
        };
        let (small, big) = (&mut self.small[arm.carrier as usize], &mut self.big);
        if arm.bulk {
            big.start(lab)?;
        }
        small.publish(lab, warm, PATIENCE)?;
        side.latency.publish(lab, small, count, PATIENCE)?;
        if arm.bulk {
            let (bulk, arrived) = big.stop(lab, 10 * PATIENCE)?;
            for Arrived { count, damaged, again, samples, .. } in arrived {
                side.messages += bulk.count;
                side.whole += count - damaged - again;
                side.latency.tell("big_messages", bulk.count);
                side.latency.tell("big_messages_whole", count - damaged);
                side.latency.tell("big_message_ms", samples.iter().map(|s| s.ns / 1_000_000).collect::<Vec<_>>());
            }
        }
        Ok(())
    }

    fn prepare(&mut self, lab: &Lab, arm: Arm) -> Result {
        let host = self.topology.host(1);
        host.ip(&["link", "set", DEVICE, "gso_max_size", &arm.gso_max_size.to_string()])?;
        // An open connection has a copy of the limit until it looks up its route again.
        host.ip(&["route", "flush", "cache"])?;
        hold(host, arm.sender().largest().max(FULL_PACKET))?;
        for (key, value) in [("tcp_tso_rtt_log", arm.tso_rtt_log), ("tcp_autocorking", u32::from(arm.corks))] {
            host.within(|| std::fs::write(format!("/proc/sys/net/ipv4/{key}"), value.to_string()))?
                .map_err(|e| Error::system(&format!("net.ipv4.{key}"), &e, "it needs Linux 5.18"))?;
        }
        let [for_small, for_big] = arm.changes();
        for (flow, changes) in [(&mut self.small[arm.carrier as usize], for_small), (&mut self.big, for_big)] {
            let changes: Changes = changes.parse().map_err(|e| Error::Usage(format!("{e}")))?;
            flow.set(lab, &changes)?;
        }
        Ok(())
    }
}

/// From the first host to the second.
fn flow(
    lab: &Lab,
    topology: &Topology,
    what: &str,
    carrier: &str,
    (size, hz): (usize, f64),
    number: u16,
) -> Result<Flow> {
    let at = |host: u8| SocketAddr::new(Topology::address_of(host), 7400 + number);
    let end = |host: u8, end: &str| {
        let node = NodeSettings::at(lab, &format!("{what}-{end}"), what, at(host), &[at(1), at(2)])?;
        Ok::<_, Error>((node, Place::at(topology.host(host), &[])))
    };
    let (topic, carriers, qos) = (format!("/{what}"), vec![carrier.into()], stream::qos(carrier));
    let settings = Settings { topic, size, hz, carriers, qos, ..Settings::default() };
    Flow::open(lab, &settings, end(1, "out")?, vec![end(2, "in")?])
}

/// The wire out of the first host. The next packet is sent whole: a bucket with room for the largest super-packet.
fn install(topology: &Topology) -> Result {
    let host = topology.host(1);
    host.ip(&["link", "set", DEVICE, "gso_max_segs", "65535", "gso_max_size", &WHOLE.to_string()])?;
    WIRE.install(host, DEVICE)?;
    hold(host, WHOLE)
}

/// Gives the token bucket room for one super-packet, and a few small packets beside it.
fn hold(host: &Namespace, super_packet: u64) -> Result {
    let (rate, burst) = (format!("{}bit", WIRE.shaped()), (super_packet + BESIDE).to_string());
    let room = ["tbf", "rate", &rate, "burst", &burst, "limit", "10000000"];
    host.tc(&[&["qdisc", "change", "dev", DEVICE, "root", "handle", "7a1:"], &room[..]].concat()).map(drop)
}

fn judge(arms: &[Arm], sides: &[Side], ring: u64) -> Findings {
    let mut findings = Findings { notes: notes(ring), ..Findings::default() };
    let p99 = |side: &Side| median(&side.latency.each(|d| d.p99));
    let idle = p99(&sides[0]);
    let mut groups = Vec::new();
    for (arm, side) in arms.iter().zip(sides) {
        let mut factors = Factors::new()
            .with("arm", arm.name)
            .with("measured", if arm.carrier == Carrier::Tcp { "tcp" } else { "udp" })
            .with("payload_bytes", SMALL)
            .with("bulk_bytes", if arm.bulk { BIG } else { 0 })
            .with("gso_max_size", arm.gso_max_size);
        if let Some(blocking) = arm.blocking_us(ring) {
            factors = factors.with("blocking_us", blocking);
        }
        if let Some(blocking) = arm.blocking_us(ring) {
            let busy = format!(
                "{}: p50 of the small channel, µs; the line is busy with units of {:.0} µs",
                arm.name,
                blocking / 2.0
            );
            let middle = median(&side.latency.each(|d| d.p50));
            findings.checks.push(Check::at_least(busy, middle, RESIDUAL * blocking / 2.0 * arm.utilisation()));
            // While a small write is corked behind the one before it waits for the next super-packet: not judged.
            if arm.is_bounded() {
                let limit = |idle: f64| blocking * 1.1 + idle;
                let bounded = |name: String, us: f64| Check::at_most(name, us, limit(idle)).capped(limit(IDLE_US));
                let name = format!("{}: p50 of the small channel keeps the bound of its p99, µs", arm.name);
                findings.checks.push(bounded(name, middle));
                let name =
                    format!("{}: p99 of the small channel, µs; blocking {blocking:.0}, idle p99 {idle:.0}", arm.name);
                findings.checks.push(bounded(name, p99(side)).judged_from(Size::Quick));
            }
        }
        let lost = format!("{}: lost samples of the small channel", arm.name);
        findings.checks.push(Check::at_most(lost, side.latency.missing(), 0.0));
        if arm.bulk {
            let name = format!("{}: share of {} messages of 10 MB that arrived whole", arm.name, side.messages);
            findings.checks.push(Check::at_least(name, side.whole as f64 / side.messages as f64, 1.0));
        }
        findings.cells.push(side.latency.cell(factors, false));
        groups.push(Group { label: arm.name.into(), bars: side.latency.bar(arm.name).into_iter().collect() });
    }
    findings.figure = Figure {
        title: "10 bytes at 1 kHz beside messages of 10 MB, 100 Mbit/s".into(),
        axis: "Latency in µs".into(),
        logarithmic: true,
        panels: vec![Panel { title: String::new(), groups }],
    };
    findings
}

fn notes(ring: u64) -> Vec<String> {
    vec![
        format!("latency from publish to callback, {SMALL} bytes at {HZ} Hz; the other channel publishes as soon as there is room"),
        "class: small channel high and fifo:30 at both ends, big one low with threads of its own; pace: the big one at 80 Mbit/s".into(),
        format!(
            "blocking: the largest TCP super-packet of the big channel on the line, one that the token bucket holds ready, {ring} bytes \
             in the driver's queue and the packet itself, at {} Mbit/s",
            RATE / 1_000_000
        ),
    ]
}

/// Pace of the bulk channel, in bytes per second: some of the line stays free, so that what a pause of the line's thread left waiting is gone
/// soon. (At 90 Mbit/s it took a hundred milliseconds.)
const PACE: u64 = 80_000_000 / 8;
/// The median residual of units that keep a line busy is half of one; super-packets of a stream are not all of the largest size.
const RESIDUAL: f64 = 0.4;
/// The idle p99 counts up to this in a limit, in µs: twice the 141 that were found (docs/lab.md). So the limit of two segments, whose blocking is
/// 497 µs, is never more than 1.7 times that.
const IDLE_US: f64 = 300.0;
/// In the form of a command.
const PACED: &str = "pace=80Mbit/s";
/// A super-packet of two segments.
const TWO_SEGMENTS: u64 = 3000;
/// Linux's default.
const WHOLE: u64 = 65_536;
/// Ethernet, IPv4 and TCP headers with time stamps.
const HEADERS: u64 = 66;
/// The small sample with its frame, length and headers, at most.
const SMALL_PACKET: u64 = 160;

/// The carrier of the small channel.
#[derive(Clone, Copy, PartialEq)]
enum Carrier {
    /// A stream.
    Tcp,
    /// Datagrams.
    Udp,
}

/// The measures that protect the small channel.
#[derive(Clone, Copy, PartialEq)]
struct Arm {
    /// As cells say it.
    name: &'static str,
    /// Carrier of the small channel; the big one's is tcp.
    carrier: Carrier,
    /// The big channel is there.
    bulk: bool,
    class: bool,
    /// The big channel is paced.
    pace: bool,
    /// Largest super-packet of the device.
    gso_max_size: u64,
    /// `net.ipv4.tcp_tso_rtt_log`
    tso_rtt_log: u32,
    /// `net.ipv4.tcp_autocorking`
    corks: bool,
}

const NOTHING: Arm = Arm {
    name: "normal",
    carrier: Carrier::Tcp,
    bulk: true,
    class: false,
    pace: false,
    gso_max_size: WHOLE,
    tso_rtt_log: 9,
    corks: true,
};
const TWO: Arm =
    Arm { name: "class+pace+gso_max_size=3000", class: true, pace: true, gso_max_size: TWO_SEGMENTS, ..NOTHING };
/// All of them: no lever, then one after the other.
const ARMS: [Arm; 8] = [
    Arm { name: "idle", bulk: false, ..NOTHING },
    NOTHING,
    Arm { name: "class", class: true, ..NOTHING },
    Arm { name: "class+tcp_autocorking=0", class: true, corks: false, ..NOTHING },
    Arm { name: "class+pace", class: true, pace: true, ..NOTHING },
    Arm { name: "class+pace+tso_rtt_log=0", class: true, pace: true, tso_rtt_log: 0, ..NOTHING },
    TWO,
    Arm { name: "class+pace+gso_max_size=3000, udp", carrier: Carrier::Udp, ..TWO },
];

/// The arms of a short run: none, class alone, and all levers with either carrier.
const FEW: [usize; 4] = [0, 3, 6, 7];

impl Carrier {
    /// Name of the small channel.
    const fn small(self) -> &'static str {
        match self {
            Carrier::Tcp => "small",
            Carrier::Udp => "small-udp",
        }
    }
}

impl Arm {
    /// The blocking term of the small channel; `None` if both share a queue, which gives no bound.
    fn blocking_us(&self, ring: u64) -> Option<f64> {
        let largest = self.sender().largest();
        // The token bucket holds one ready while another is on the line.
        let blocking = Blocking { rate: RATE, largest, ring: ring + largest, own: SMALL_PACKET };
        (self.bulk && self.class).then(|| blocking.us())
    }

    /// The big channel's TCP.
    fn sender(&self) -> BulkSender {
        BulkSender {
            gso_max_size: self.gso_max_size,
            gso_max_segs: 65_535,
            segment: 1448,
            headers: HEADERS,
            pace: self.pace.then_some(PACE),
            min_rtt_us: 0, // two hosts next to each other
            tso_rtt_log: self.tso_rtt_log,
        }
    }

    /// Share of the time in which the big channel keeps the line busy.
    fn utilisation(&self) -> f64 {
        if self.pace { PACE as f64 * 8.0 / RATE as f64 } else { SHAPED as f64 / 100.0 }
    }

    /// `true` if nothing but the computed blocking delays the small channel: the line is free at times, or TCP corks nothing.
    fn is_bounded(&self) -> bool {
        self.pace || !self.corks
    }

    /// Changes at the ends of the channels: small, big.
    fn changes(&self) -> [String; 2] {
        // By default, bulk gets a lower class by itself.
        let class = |name| if self.class { format!("class={name}") } else { "class=normal".to_owned() };
        let sched = |name| if self.class { format!("sched={name}") } else { "sched=default".to_owned() };
        let pace = if self.pace { PACED } else { "pace=default" };
        [format!("{} {}", class("high"), sched("fifo:30")), format!("{} {} {pace}", class("low"), sched("other"))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::stalls::{Stalls, Timed};

    #[test]
    fn an_idle_line_that_is_slow_makes_no_limit_easier() {
        let side = |us: u64| {
            let mut side = Side { messages: 1, whole: 1, ..Side::default() };
            side.latency.add(3, &[Timed { from_ns: 0, ns: us * 1000 }; 3], &Stalls::default());
            side
        };
        // Two segments: 1.1 times 497 µs, and the idle p99, of which 300 µs count.
        let verdicts = |idle: u64, us: u64| {
            let found = judge(&[ARMS[0], TWO], &[side(idle), side(us)], 0).checks;
            let judged = found.iter().filter(|check| check.name.contains("p99")).map(|check| check.verdict);
            judged.collect::<Vec<_>>()
        };
        assert_eq!(verdicts(500, 800), [Verdict::Pass; 2]);
        assert_eq!(verdicts(500, 900), [Verdict::Inconclusive; 2]);
        assert_eq!(verdicts(500, 1100), [Verdict::Fail; 2]);
        assert_eq!(verdicts(100, 700), [Verdict::Fail; 2]);
    }

    #[test]
    fn every_lever_makes_the_blocking_smaller() {
        let found: Vec<Option<f64>> = ARMS.iter().map(|arm| arm.blocking_us(0)).collect();
        assert_eq!((found[0], found[1]), (None, None), "alone, and in one queue with the big ones");
        let bounds: Vec<f64> = found.into_iter().flatten().collect();
        assert!(bounds.windows(2).all(|pair| pair[0] >= pair[1]), "{bounds:?}");
        assert!((bounds[4] - 497.0).abs() < 3.0, "twice two segments, and the packet itself: {bounds:?}");
    }

    #[test]
    fn changes_are_what_set_takes() {
        for text in ARMS.iter().flat_map(Arm::changes) {
            assert!(text.parse::<qos::priority::Changes>().is_ok(), "{text}");
        }
    }
}
