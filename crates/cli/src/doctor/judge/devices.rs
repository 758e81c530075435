//! Network devices and bridges, one by one.

use crate::doctor::finding::Severity::{Fault, Note, Warning};
use crate::doctor::finding::{Finding, Kind};
use linux::probe::devices::{Counts, Device};

/// All kinds of this module.
pub(crate) const KINDS: &[&Kind] = &[
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

const LEAST_MTU: u32 = 1280;

/// Judges all devices.
pub(crate) fn judge(devices: &[Device]) -> Vec<Finding> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use linux::probe::devices::Bridging;

    fn ids(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|f| f.kind.id).collect()
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
