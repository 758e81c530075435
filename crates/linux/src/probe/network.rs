//! Settings for all sockets and devices of this network namespace.

use super::Tree;

/// Limits and switches of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Largest receive buffer of a socket (`net.core.rmem_max`).
    pub receive_max: Option<u64>,
    /// Default receive buffer (`net.core.rmem_default`).
    pub receive_default: Option<u64>,
    /// Largest send buffer of a socket (`net.core.wmem_max`).
    pub send_max: Option<u64>,
    /// Default send buffer (`net.core.wmem_default`).
    pub send_default: Option<u64>,
    /// Packets that may wait between device and protocols (`net.core.netdev_max_backlog`).
    pub backlog: Option<u64>,
    /// Multicast groups that one socket may join (`net.ipv4.igmp_max_memberships`).
    pub memberships: Option<u64>,
    /// This host forwards IPv4 packets.
    pub forwards: Option<bool>,
    /// It has IPv6, and it is switched on.
    pub v6: bool,
    /// There is a route to multicast groups (the default route is one).
    pub multicast_route: Option<bool>,
}

/// Reads them.
pub fn read(tree: &Tree) -> Network {
    let core = |name: &str| tree.number(&format!("proc/sys/net/core/{name}"));
    Network {
        receive_max: core("rmem_max"),
        receive_default: core("rmem_default"),
        send_max: core("wmem_max"),
        send_default: core("wmem_default"),
        backlog: core("netdev_max_backlog"),
        memberships: tree.number("proc/sys/net/ipv4/igmp_max_memberships"),
        forwards: tree.number::<u8>("proc/sys/net/ipv4/ip_forward").map(|on| on == 1),
        v6: tree.number::<u8>("proc/sys/net/ipv6/conf/all/disable_ipv6") == Some(0),
        multicast_route: tree.text("proc/self/net/route").map(|text| multicast_route(&text)),
    }
}

/// `proc/net/route` has destination and mask as little-endian hexadecimal numbers in columns 2 and 8.
fn multicast_route(text: &str) -> bool {
    let covers = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let number = |column: usize| u32::from_str_radix(columns.get(column)?, 16).ok().map(u32::swap_bytes);
        let (destination, mask) = (number(1)?, number(7)?);
        Some(0xe000_0000 & mask == destination && mask <= 0xf000_0000)
    };
    text.lines().skip(1).any(|line| covers(line) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_and_one_of_all_groups_reach_groups() {
        let head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
        let route = |line: &str| multicast_route(&format!("{head}{line}\n"));
        assert!(route("eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0"));
        assert!(route("eth0 000000E0 00000000 0001 0 0 0 000000F0 0 0 0"));
        assert!(!route("eth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0"));
        assert!(!route("nonsense"));
    }
}
