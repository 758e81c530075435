//! Arrival of packets, and in time: settings that hold for all devices.

use crate::doctor::finding::Severity::{Fault, Note, Warning};
use crate::doctor::finding::{Finding, Kind};
use linux::probe::Facts;
use linux::probe::devices::{Device, Network};

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

/// Receive buffer that channels over udp and mcast ask for.
const RECEIVE_WANTED: u64 = 2 << 20;
/// Receive buffer that `--fix` sets: bursts of two such channels, as in docs/real-time.md.
const RECEIVE_GIVEN: u64 = 4 << 20;
const LEAST_BUFFER: u64 = 128 << 10;
const LEAST_BACKLOG: u64 = 300;

/// Judges buffers, limits and routes.
pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = limits(&facts.network);
    found.extend(together(facts));
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
