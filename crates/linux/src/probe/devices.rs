//! Network devices of this namespace, and settings for all sockets and devices.

use super::Tree;

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its name, such as `eth0`.
    pub name: String,
    /// It is switched on.
    pub up: bool,
    /// It has a carrier: the other end is connected.
    pub running: bool,
    /// It is the loopback device.
    pub loopback: bool,
    /// It can send to multicast groups.
    pub multicast: bool,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
    /// It is a radio.
    pub wireless: bool,
    /// Rate of the link in Mbit/s, if the device reports it.
    pub speed: Option<u64>,
    /// `full` or `half`, if the device reports it.
    pub duplex: Option<String>,
    /// The bridge it is a port of.
    pub bridge: Option<String>,
    /// If it is a bridge: its treatment of multicast.
    pub bridging: Option<Bridging>,
    /// `rp_filter`: 1 drops packets that came by another device than the answer would take.
    pub strict_source: bool,
    /// Received packets, and those that were dropped or broken.
    pub received: Counts,
    /// Sent packets, and those that were dropped or broken.
    pub sent: Counts,
}

/// A bridge's treatment of multicast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bridging {
    /// It tracks the members.
    pub snooping: bool,
    /// It asks for the members.
    pub querier: bool,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Good packets.
    pub packets: u64,
    /// Broken packets.
    pub errors: u64,
    /// Packets dropped for want of room.
    pub dropped: u64,
}

const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_MULTICAST: u32 = 0x1000;

/// Reads all devices, sorted by name. `sys` shows the namespace of the process that mounted it: if that is another
/// one, only the values in `proc` are read.
pub(super) fn read(tree: &Tree) -> Vec<Device> {
    let counted = tree.text("proc/self/net/dev").unwrap_or_default();
    let mut devices: Vec<Device> = counted.lines().filter_map(device).collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    let shown: Vec<String> =
        tree.names("sys/class/net").into_iter().filter(|name| tree.text(&file(name, "ifindex")).is_some()).collect();
    let ours = devices.iter().map(|device| &device.name).eq(shown.iter());
    for device in &mut devices {
        let filter = |of: &str| tree.number::<u8>(&format!("proc/sys/net/ipv4/conf/{of}/rp_filter")).unwrap_or(0);
        device.strict_source = filter("all").max(filter(&device.name)) == 1;
        if ours {
            details(tree, device);
        }
    }
    devices
}

fn file(device: &str, name: &str) -> String {
    format!("sys/class/net/{device}/{name}")
}

/// A line of `proc/net/dev`: name, then 8 columns received and 8 sent.
fn device(line: &str) -> Option<Device> {
    let (name, columns) = line.split_once(':')?;
    let columns: Vec<u64> = columns.split_whitespace().filter_map(|c| c.parse().ok()).collect();
    let counts = |first: usize| {
        Some(Counts {
            packets: *columns.get(first + 1)?,
            errors: *columns.get(first + 2)?,
            dropped: *columns.get(first + 3)?,
        })
    };
    let name = name.trim().to_owned();
    Some(Device { loopback: name == "lo", name, received: counts(0)?, sent: counts(8)?, ..Device::default() })
}

fn details(tree: &Tree, device: &mut Device) {
    let name = device.name.clone();
    let of = |what: &str| file(&name, what);
    let flags = tree.text(&of("flags")).and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    let has = |flag: u32| flags.is_some_and(|flags| flags & flag != 0);
    (device.up, device.loopback, device.multicast) = (has(IFF_UP), has(IFF_LOOPBACK), has(IFF_MULTICAST));
    device.running = device.up && tree.number::<u8>(&of("carrier")) == Some(1);
    device.mtu = tree.number(&of("mtu"));
    device.speed = tree.number(&of("speed")).filter(|speed| *speed > 0);
    device.duplex = tree.text(&of("duplex")).filter(|duplex| duplex != "unknown");
    device.wireless = tree.path(&of("wireless")).exists() || tree.path(&of("phy80211")).exists();
    device.bridge = link(tree, &of("master")).filter(|_| tree.path(&of("brport")).exists());
    let switch = |what: &str| tree.number::<u8>(&of(what)).map(|on| on == 1);
    device.bridging = switch("bridge/multicast_snooping")
        .map(|snooping| Bridging { snooping, querier: switch("bridge/multicast_querier").unwrap_or(false) });
}

fn link(tree: &Tree, path: &str) -> Option<String> {
    let target = std::fs::read_link(tree.path(path)).ok()?;
    target.file_name()?.to_str().map(str::to_owned)
}

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

/// Reads the settings for all sockets and devices.
pub(super) fn network(tree: &Tree) -> Network {
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
    fn counters_are_read_from_their_columns() {
        let line = "  eth0: 1000 10 1 2 0 0 0 3  2000 20 4 5 0 0 0 0";
        let found = device(line).unwrap();
        assert_eq!((found.name.as_str(), found.loopback), ("eth0", false));
        assert_eq!(found.received, Counts { packets: 10, errors: 1, dropped: 2 });
        assert_eq!(found.sent, Counts { packets: 20, errors: 4, dropped: 5 });
        assert_eq!((device("Inter-|   Receive"), device("x: 1 2")), (None, None));
    }

    #[test]
    fn a_tree_with_other_devices_is_ignored() {
        let root = std::env::temp_dir().join(format!("thalweg-devices-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc/self/net")).unwrap();
        std::fs::write(root.join("proc/self/net/dev"), "lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0").unwrap();
        let seed = |name: &str| {
            let folder = root.join(format!("sys/class/net/{name}"));
            std::fs::create_dir_all(&folder).unwrap();
            for (file, text) in [("ifindex", "1"), ("flags", "0x9"), ("mtu", "65536")] {
                std::fs::write(folder.join(file), text).unwrap();
            }
        };
        seed("lo");
        assert_eq!(read(&Tree::at(&root))[0].mtu, Some(65_536));
        seed("eth0");
        assert_eq!((read(&Tree::at(&root))[0].mtu, read(&Tree::at(&root)).len()), (None, 1));
        std::fs::remove_dir_all(root).unwrap();
    }

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
