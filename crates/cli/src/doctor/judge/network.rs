//! Arrival of packets, and in time: settings that hold for all devices, then the devices and bridges one by one.

use crate::doctor::judge::Severity::{Fault, Note, Warning};
use crate::doctor::judge::{Finding, Kind};
use linux::probe::Facts;
use linux::probe::devices::{Counts, Device, Network};

/// All kinds of this module.
pub(crate) const KINDS: &[&Kind] = &[
    &RECEIVE_BUFFER_TINY,
    &RECEIVE_BUFFER,
    &SEND_BUFFER,
    &BACKLOG,
    &MEMBERSHIPS,
    &MULTICAST_ROUTE,
    &STRICT_SOURCE,
    &FORWARDING,
    &NO_V6,
    &LOOPBACK_DOWN,
    &NO_MULTICAST,
    &LOOPBACK_MULTICAST,
    &MTU_SMALL,
    &MTU_DIFFERS,
    &HALF_DUPLEX,
    &BROKEN_PACKETS,
    &DROPPED_PACKETS,
    &WIRELESS,
    &BRIDGE_QUERIER,
];

const RECEIVE_BUFFER_TINY: Kind = Kind {
    id: "receive-buffer-tiny",
    severity: Fault,
    when: "net.core.rmem_max is below 128 KiB",
    why: "one large message over udp or mcast does not fit a socket's buffer: its fragments are lost every time",
    fixable: true,
};
const RECEIVE_BUFFER: Kind = Kind {
    id: "receive-buffer",
    severity: Warning,
    when: "net.core.rmem_max is below 2 MiB, which channels over udp and mcast ask for",
    why: "bursts and fragments of large messages that come while the reader is not on a processor are lost",
    fixable: true,
};
const SEND_BUFFER: Kind = Kind {
    id: "send-buffer",
    severity: Warning,
    when: "net.core.wmem_default is below 128 KiB",
    why: "a publisher finds the socket full earlier: samples wait in the channel's queue, or are dropped by its policy",
    fixable: true,
};
const BACKLOG: Kind = Kind {
    id: "backlog",
    severity: Warning,
    when: "net.core.netdev_max_backlog is below 300",
    why: "packets of a burst are dropped between device and socket, where nobody looks",
    fixable: true,
};
const MEMBERSHIPS: Kind = Kind {
    id: "memberships",
    severity: Fault,
    when: "net.ipv4.igmp_max_memberships is 0",
    why: "no socket may join a group: channels over mcast do not open",
    fixable: true,
};
const MULTICAST_ROUTE: Kind = Kind {
    id: "multicast-route",
    severity: Note,
    when: "a device is up, but there is neither a default route nor one to 224.0.0.0/4",
    why: "programs that name no device cannot send to groups; channels of Thalweg name theirs",
    fixable: false,
};
const STRICT_SOURCE: Kind = Kind {
    id: "strict-source",
    severity: Note,
    when: "rp_filter is 1 on a host with several networks",
    why: "packets, multicast most of all, that come by another device than the answer would take are dropped",
    fixable: false,
};
const FORWARDING: Kind = Kind {
    id: "forwarding",
    severity: Note,
    when: "this host forwards packets",
    why: "forwarded packets get the band of their old TOS bits, not of their DSCP: EF waits with best effort",
    fixable: false,
};
const NO_V6: Kind =
    Kind { id: "no-ipv6", severity: Note, when: "IPv6 is off", why: "channels use IPv4 only", fixable: false };
const LOOPBACK_DOWN: Kind = Kind {
    id: "loopback-down",
    severity: Fault,
    when: "the loopback device is down",
    why: "nodes take handshakes on 127.0.0.1: no channel over tcp or udp opens on this host",
    fixable: false,
};
const NO_MULTICAST: Kind = Kind {
    id: "no-multicast",
    severity: Warning,
    when: "a device that is up has its MULTICAST flag off",
    why: "channels over mcast, and nodes of other hosts by scouting, do not work there",
    fixable: false,
};
const LOOPBACK_MULTICAST: Kind = Kind {
    id: "loopback-multicast",
    severity: Note,
    when: "the loopback device has its MULTICAST flag off (as it is by default)",
    why: "programs that choose devices by this flag send no multicast on this host; channels of Thalweg name theirs",
    fixable: false,
};
const MTU_SMALL: Kind = Kind {
    id: "mtu-small",
    severity: Warning,
    when: "a device that is up takes packets of less than 1280 bytes",
    why: "IPv6 is off there, and every message costs more packets",
    fixable: false,
};
const MTU_DIFFERS: Kind = Kind {
    id: "mtu-differs",
    severity: Warning,
    when: "the ports of one bridge have different MTUs",
    why: "the bridge drops what is too large for the other port, without a word: small messages arrive, large ones never",
    fixable: false,
};
const HALF_DUPLEX: Kind = Kind {
    id: "half-duplex",
    severity: Warning,
    when: "a device works half duplex",
    why: "each direction waits for the other, without bound",
    fixable: false,
};
const BROKEN_PACKETS: Kind = Kind {
    id: "broken-packets",
    severity: Warning,
    when: "more than one packet in 10 000 (and 10 in all) was broken",
    why: "each one is a loss or a retransmission: check cable, plug, radio",
    fixable: false,
};
const DROPPED_PACKETS: Kind = Kind {
    id: "dropped-packets",
    severity: Warning,
    when: "more than one packet in 1000 (and 100 in all) found no room at a device",
    why: "each one is a loss or a retransmission, whatever its priority was",
    fixable: false,
};
const WIRELESS: Kind = Kind {
    id: "wireless",
    severity: Note,
    when: "a device is a radio",
    why: "power saving delays packets by up to 100 ms, and a radio loses some: no bound holds there",
    fixable: false,
};
const BRIDGE_QUERIER: Kind = Kind {
    id: "bridge-querier",
    severity: Note,
    when: "a bridge snoops multicast, but does not ask who is a member",
    why: "unless another querier is on the network, groups are flooded to all ports",
    fixable: false,
};

/// Judges buffers, limits and routes, then each device.
pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = limits(&facts.network);
    found.extend(together(facts));
    found.extend(each(&facts.devices));
    found
}

fn limits(network: &Network) -> Vec<Finding> {
    let sysctl = |kind: &'static Kind, file: &str, value: Option<u64>, least: u64, given: u64| {
        let value = value.filter(|value| *value < least)?;
        let name = file.replace('/', ".");
        Some(kind.found(name, value, format!("{least} or more")).write(vec![format!("proc/sys/{file}")], given))
    };
    let tiny = network.receive_max.is_some_and(|bytes| bytes < LEAST_BUFFER);
    let receive = if tiny { &RECEIVE_BUFFER_TINY } else { &RECEIVE_BUFFER };
    let found = [
        sysctl(receive, "net/core/rmem_max", network.receive_max, RECEIVE_WANTED, RECEIVE_GIVEN),
        sysctl(&SEND_BUFFER, "net/core/wmem_default", network.send_default, LEAST_BUFFER, 212_992),
        sysctl(&BACKLOG, "net/core/netdev_max_backlog", network.backlog, LEAST_BACKLOG, 1000),
        sysctl(&MEMBERSHIPS, "net/ipv4/igmp_max_memberships", network.memberships, 1, 20),
    ];
    found.into_iter().flatten().collect()
}

/// Judges facts that matter only together.
fn together(facts: &Facts) -> Vec<Finding> {
    let Facts { network, devices, .. } = facts;
    let running: Vec<&Device> = devices.iter().filter(|device| device.running && !device.loopback).collect();
    let route = network.multicast_route.filter(|route| !route && !running.is_empty()).map(|_| {
        MULTICAST_ROUTE
            .found("a route to 224.0.0.0/4", "missing", "there")
            .remedy(format!("ip route add 224.0.0.0/4 dev {}", running[0].name))
    });
    let strict = running.iter().find(|device| device.strict_source && running.len() > 1).map(|device| {
        let name = &device.name;
        STRICT_SOURCE
            .found(format!("net.ipv4.conf.{name}.rp_filter"), 1, "2")
            .remedy(format!("sysctl -w net.ipv4.conf.{name}.rp_filter=2"))
    });
    let forwards = network.forwards.filter(|on| *on).map(|_| {
        FORWARDING
            .found("net.ipv4.ip_forward", 1, "with a priority map")
            .remedy("nft 'add rule … meta priority set ip dscp map …' in postrouting")
    });
    let v4_only = (!network.v6 && network.receive_max.is_some()).then(|| {
        NO_V6.found("IPv6", "off", "on, where others use it").remedy("sysctl -w net.ipv6.conf.all.disable_ipv6=0")
    });
    [route, strict, forwards, v4_only].into_iter().flatten().collect()
}

fn each(devices: &[Device]) -> Vec<Finding> {
    devices.iter().flat_map(device).chain(bridges(devices)).collect()
}

fn device(device: &Device) -> Vec<Finding> {
    let name = &device.name;
    if device.loopback {
        // Without an MTU only the device's name is known.
        let down = device
            .mtu
            .filter(|_| !device.up)
            .map(|_| LOOPBACK_DOWN.found(name, "down", "up").remedy(format!("ip link set {name} up")));
        let quiet = (device.up && !device.multicast).then(|| {
            LOOPBACK_MULTICAST
                .found(format!("MULTICAST of {name}"), "off", "on")
                .remedy(format!("ip link set {name} multicast on"))
        });
        return down.into_iter().chain(quiet).collect();
    }
    if !device.up {
        return Vec::new();
    }
    let quiet = (!device.multicast).then(|| {
        NO_MULTICAST
            .found(format!("MULTICAST of {name}"), "off", "on")
            .remedy(format!("ip link set {name} multicast on"))
    });
    let small = device.mtu.filter(|mtu| *mtu < LEAST_MTU).map(|mtu| {
        MTU_SMALL
            .found(format!("the MTU of {name}"), mtu, "1280 or more")
            .remedy(format!("ip link set {name} mtu 1500"))
    });
    let half = device.duplex.as_deref().filter(|duplex| *duplex == "half").map(|_| {
        HALF_DUPLEX
            .found(format!("duplex of {name}"), "half", "full")
            .remedy(format!("ethtool -s {name} autoneg on, and the same at the switch"))
    });
    let radio = device.wireless.then(|| {
        WIRELESS
            .found(name, "a radio", "a wire where bounds matter")
            .remedy(format!("iw dev {name} set power_save off"))
    });
    let lost = [("received", device.received), ("sent", device.sent)]
        .into_iter()
        .flat_map(|(way, counts)| losses(name, way, counts));
    quiet.into_iter().chain(small).chain(half).chain(radio).chain(lost).collect()
}

fn losses(device: &str, way: &str, counts: Counts) -> Vec<Finding> {
    let all = counts.packets.saturating_add(counts.errors).saturating_add(counts.dropped);
    let of = |count: u64| format!("{count} of {all}");
    let broken = (counts.errors > 10 && counts.errors.saturating_mul(10_000) > all).then(|| {
        let what = format!("broken packets {way} by {device}");
        BROKEN_PACKETS
            .found(what, of(counts.errors), "none")
            .remedy(format!("ethtool -S {device}: which counter grows? change cable or port"))
    });
    let dropped = (counts.dropped > 100 && counts.dropped.saturating_mul(1000) > all).then(|| {
        let what = format!("dropped packets {way} by {device}");
        DROPPED_PACKETS
            .found(what, of(counts.dropped), "none")
            .remedy(format!("tc -s qdisc show dev {device}: where? less load, or queues by class (`thalweg apply`)"))
    });
    broken.into_iter().chain(dropped).collect()
}

fn bridges(devices: &[Device]) -> Vec<Finding> {
    let mut found = Vec::new();
    for bridge in devices.iter().filter(|device| device.up) {
        let ports = devices.iter().filter(|port| port.up && port.bridge.as_ref() == Some(&bridge.name));
        let mut sizes: Vec<(u32, &str)> = ports.filter_map(|port| Some((port.mtu?, port.name.as_str()))).collect();
        sizes.sort_unstable();
        if let (Some((least, port)), Some((most, _))) = (sizes.first(), sizes.last())
            && least != most
        {
            let value = sizes.iter().map(|(mtu, name)| format!("{mtu} at {name}")).collect::<Vec<_>>().join(", ");
            let remedy = format!("ip link set {port} mtu {most}, or {least} at all hosts of the network");
            found.push(
                MTU_DIFFERS
                    .found(format!("the MTU within bridge {}", bridge.name), value, "one for all")
                    .remedy(remedy),
            );
        }
        if bridge.bridging.is_some_and(|multicast| multicast.snooping && !multicast.querier) {
            let remedy = format!("ip link set {} type bridge mcast_querier 1", bridge.name);
            found.push(
                BRIDGE_QUERIER.found(format!("the multicast querier of {}", bridge.name), "off", "on").remedy(remedy),
            );
        }
    }
    found
}

/// Receive buffer that channels over udp and mcast ask for.
const RECEIVE_WANTED: u64 = 2 << 20;
/// Receive buffer that `--fix` sets: bursts of two such channels, as in docs/real-time.md.
const RECEIVE_GIVEN: u64 = 4 << 20;
const LEAST_BUFFER: u64 = 128 << 10;
const LEAST_BACKLOG: u64 = 300;
const LEAST_MTU: u32 = 1280;

#[cfg(test)]
mod tests {
    use super::*;
    use linux::probe::devices::Bridging;

    fn ids(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|f| f.kind.id).collect()
    }

    #[test]
    fn buffers_are_judged_by_what_channels_ask_for() {
        let of = |receive: u64| limits(&Network { receive_max: Some(receive), ..Network::default() });
        assert_eq!((ids(&of(65_536)), ids(&of(212_992))), (vec!["receive-buffer-tiny"], vec!["receive-buffer"]));
        assert_eq!(of(212_992)[0].remedy, "sysctl -w net.core.rmem_max=4194304");
        assert_eq!(ids(&of(2 << 20)), [""; 0]);
        let small = Network { send_default: Some(4096), backlog: Some(10), memberships: Some(0), ..Network::default() };
        assert_eq!(ids(&limits(&small)), ["send-buffer", "backlog", "memberships"]);
    }

    fn wire(name: &str) -> Device {
        let mtu = Some(1500);
        Device { name: name.into(), up: true, running: true, multicast: true, mtu, ..Device::default() }
    }

    #[test]
    fn devices_that_are_down_matter_only_if_they_are_loopback() {
        let lo = Device { name: "lo".into(), loopback: true, mtu: Some(65_536), ..Device::default() };
        assert_eq!(ids(&device(&lo)), ["loopback-down"]);
        assert_eq!(ids(&device(&Device { up: true, multicast: true, ..lo.clone() })), [""; 0]);
        assert_eq!(ids(&device(&Device { mtu: None, ..lo })), [""; 0]);
        assert_eq!(ids(&device(&Device { up: false, mtu: Some(68), ..wire("eth0") })), [""; 0]);
        let bad = Device { multicast: false, mtu: Some(600), duplex: Some("half".into()), wireless: true, ..wire("w") };
        assert_eq!(ids(&device(&bad)), ["no-multicast", "mtu-small", "half-duplex", "wireless"]);
    }

    #[test]
    fn losses_count_above_a_share() {
        let of = |packets, errors, dropped| losses("eth0", "sent", Counts { packets, errors, dropped }).len();
        assert_eq!((of(1_000_000, 11, 101), of(1000, 5, 50), of(1000, 20, 0), of(1000, 0, 500)), (0, 0, 1, 1));
        assert_eq!(of(u64::MAX, u64::MAX, 0), 0); // counters of any size are compared
    }

    #[test]
    fn ports_of_one_bridge_must_take_the_same_packets() {
        let port = |name: &str, mtu| Device { bridge: Some("br0".into()), mtu: Some(mtu), ..wire(name) };
        let bridge = Device { bridging: Some(Bridging { snooping: true, querier: true }), ..wire("br0") };
        let of = |a, b| bridges(&[bridge.clone(), port("p1", a), port("p2", b)]);
        assert_eq!(ids(&of(1500, 1500)), [""; 0]);
        assert_eq!(of(1500, 1400)[0].value, "1400 at p2, 1500 at p1");
        let deaf = Device { bridging: Some(Bridging { snooping: true, querier: false }), ..wire("br0") };
        assert_eq!(ids(&bridges(&[deaf])), ["bridge-querier"]);
    }
}
