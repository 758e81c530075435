//! A node's settings of Zenoh: addresses to listen on, peers to connect to, and scouting.

use super::super::links::MESSAGE_LIMIT;
use super::share::SESSIONS;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// Zenoh takes the whole TOS byte: class LOW, DSCP 10.
const LOW: &str = "#dscp=0x28";
/// The group by which nodes that listen on IPv6 only look for others (Zenoh's own group is IPv4's 224.0.0.224). Of site scope:
/// Zenoh binds to it without naming an interface, which Linux refuses for link scope. Its packets still go one hop only.
const GROUP_V6: &str = "[ff05::224]:7446";
/// Kernel flag of an interface: it takes part in multicast.
const MULTICAST: u32 = 0x1000;

/// The settings by which a node reaches other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZenohSettings {
    /// Addresses to listen on.
    pub listen: Vec<IpAddr>,
    /// The port to listen on, for nodes that others name as their peer; 0 (the default): the kernel chooses.
    pub port: u16,
    /// Nodes or routers to connect to: `IP:PORT`, or a Zenoh endpoint such as `tcp/10.0.0.1:7447`.
    pub peers: Vec<String>,
    /// `true`: look for others by multicast on the networks of the addresses listened on.
    pub scouting: bool,
}

/// The reason why Zenoh cannot be used as requested, with the value and the allowed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZenohError(pub String);

impl fmt::Display for ZenohError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ZenohError {}

/// Largest number of unidentified connections at once, …
const PENDING: u64 = 1000;
/// … and this part of the descriptors that the process may have: of 1024 a thousand left none, and a neighbour waited for 1.9 s.
const SHARE: u64 = 2;
/// Time they have for it, in milliseconds: several round trips of the slowest network.
const ACCEPT_MS: u32 = 2000;

/// Bytes of a message that Zenoh assembles from fragments; each link has room for one of each of eight priorities,
/// twice. The default is 1 GiB, though none of more than [`MESSAGE_LIMIT`] is read; senders of slightly larger ones
/// are reported.
const LARGEST: usize = 2 * MESSAGE_LIMIT;

type Entries = Vec<(&'static str, String)>;

impl ZenohSettings {
    /// Keys and values (JSON) of a node's configuration.
    pub(super) fn entries(&self) -> Result<Entries, ZenohError> {
        let listen: Vec<String> =
            self.listen.iter().map(|ip| endpoint(&SocketAddr::new(*ip, self.port).to_string())).collect();
        let mut entries = common("peer", &listen, &peers(&self.peers)?);
        entries.push(("scouting/multicast/enabled", self.scouting.to_string()));
        // Peers that come later are linked when they are seen: opening need not wait for them.
        entries.push(("open/return_conditions/connect_scouted", "false".to_owned()));
        entries.push(("scouting/multicast/autoconnect", quoted(&["router", "peer"])));
        entries.push(("scouting/gossip/autoconnect", quoted(&["router", "peer"])));
        entries.extend(group(&self.listen));
        Ok(entries)
    }

    /// Warnings for a person who would otherwise wonder why no node is found.
    pub(super) fn warnings(&self) -> Vec<String> {
        if !self.scouting {
            return Vec::new();
        }
        let without = self.listen.iter().filter(|ip| !has_multicast(**ip));
        let warn = |ip: &IpAddr| {
            format!(
                "no multicast on the network of {ip}: no peer can be found by scouting there; name peers or a router"
            )
        };
        let mut warnings: Vec<_> = without.map(warn).collect();
        if v6_only(&self.listen) {
            warnings.push(format!(
                "listening on IPv6 only: scouting uses the group {GROUP_V6}, so nodes that listen on IPv4 are not found by it; \
                 name peers or a router"
            ));
            warnings.extend(elsewhere(&self.listen));
        }
        warnings
    }
}

/// Keys and values of a router's configuration.
pub(super) fn router_entries(listen: &[String], others: &[String]) -> Result<Entries, ZenohError> {
    let listen = peers(listen)?;
    let mut entries = common("router", &listen, &peers(others)?);
    let loopback = listen.iter().all(|e| e.starts_with("tcp/127.") || e.starts_with("tcp/[::1]"));
    entries.push(("scouting/multicast/enabled", (!loopback).to_string()));
    let addresses: Vec<IpAddr> = listen.iter().filter_map(|e| address_of(e)).collect();
    if addresses.len() == listen.len() {
        entries.extend(group(&addresses));
    }
    Ok(entries)
}

/// Keys and values that say where to look for others: an IPv4 group if there is an IPv4 address to listen on, else an IPv6
/// one. Zenoh has one group, so never both.
fn group(listen: &[IpAddr]) -> Entries {
    let v6 = v6_only(listen);
    let mut from: Vec<IpAddr> =
        listen.iter().filter(|ip| ip.is_ipv6() == v6 && !ip.is_unspecified()).copied().collect();
    if v6 && from.is_empty() {
        from = all_v6(); // Zenoh would take the IPv4 addresses of all interfaces
    }
    let mut entries = Entries::new();
    if v6 {
        entries.push(("scouting/multicast/address", text(GROUP_V6)));
    }
    if !from.is_empty() {
        let from: Vec<_> = from.iter().map(IpAddr::to_string).collect();
        entries.push(("scouting/multicast/interface", text(&from.join(","))));
    }
    entries
}

fn v6_only(listen: &[IpAddr]) -> bool {
    !listen.is_empty() && listen.iter().all(IpAddr::is_ipv6)
}

/// One IPv6 address of each interface that can send to groups.
fn all_v6() -> Vec<IpAddr> {
    let usable = |i: &linux::net::InterfaceAddress| i.up && i.multicast && !i.loopback && i.address.is_ipv6();
    let mut found: Vec<_> = linux::net::interfaces().unwrap_or_default().into_iter().filter(usable).collect();
    // Addresses of a wider scope first: peers need no interface to reach them.
    found.sort_by_key(|i| (i.index, matches!(i.address, IpAddr::V6(ip) if ip.is_unicast_link_local())));
    found.dedup_by_key(|i| i.index);
    found.into_iter().map(|i| i.address).collect()
}

/// Zenoh joins the IPv6 group on the interface of the kernel's route to it. If this node listens on another one, it
/// receives nothing.
fn elsewhere(listen: &[IpAddr]) -> Option<String> {
    let wanted = listen.iter().find(|ip| !ip.is_unspecified()).and_then(|ip| interface_of(*ip))?;
    let socket = UdpSocket::bind("[::]:0").ok()?;
    socket.connect(GROUP_V6).ok()?;
    let joined = interface_of(socket.local_addr().ok()?.ip())?;
    let group = GROUP_V6.split(['[', ']']).nth(1).unwrap_or_default();
    (joined != wanted).then(|| {
        format!(
            "scouting is heard on {joined} only, where the route to {group} leads: \
             `ip -6 route add multicast {group}/128 dev {wanted} table local` leads it to {wanted}"
        )
    })
}

/// The IP address in an endpoint such as `tcp/10.0.0.1:7447#dscp=0x28`.
fn address_of(endpoint: &str) -> Option<IpAddr> {
    let address = endpoint.split('/').nth(1)?.split(['#', '?']).next()?;
    Some(address.parse::<SocketAddr>().ok()?.ip())
}

fn common(mode: &str, listen: &[String], connect: &[String]) -> Entries {
    vec![
        ("mode", text(mode)),
        ("listen/endpoints", quoted(listen)),
        ("connect/endpoints", quoted(connect)),
        ("connect/retry", r#"{"period_init_ms":50,"period_max_ms":1000,"period_increase_factor":2}"#.to_owned()),
        ("scouting/gossip/enabled", "true".to_owned()),
        ("transport/link/tx/lease", "1000".to_owned()),
        ("transport/shared_memory/enabled", "false".to_owned()),
        // A host that connects and stays silent takes one of these places for this time. With the defaults, 100 places
        // and 10 s, 60 connections kept newcomers out for 4 s, and 400 for more than 20 s. One host has only a share
        // of them (`share`).
        ("transport/unicast/accept_pending", pending().to_string()),
        ("transport/unicast/accept_timeout", ACCEPT_MS.to_string()),
        ("transport/unicast/max_sessions", SESSIONS.to_string()),
        ("transport/link/rx/max_message_size", LARGEST.to_string()),
    ]
}

/// Connections that may be unfinished at once.
pub(super) fn pending() -> u64 {
    of(getrlimit(Resource::Nofile).current)
}

/// The number for this many descriptors of the process; `None`: no limit.
fn of(descriptors: Option<u64>) -> u64 {
    descriptors.map_or(PENDING, |most| PENDING.min(most / SHARE))
}

fn peers(addresses: &[String]) -> Result<Vec<String>, ZenohError> {
    addresses.iter().map(|address| {
        if address.contains('/') || address.parse::<SocketAddr>().is_ok() {
            return Ok(endpoint(address));
        }
        Err(ZenohError(format!(
            "address {address:?}; allowed is an IP address and a port, such as \"10.0.0.1:7447\", or \"tcp/HOST:PORT\""
        )))
    }).collect()
}

/// An address as Zenoh writes it, of class LOW unless it states another.
fn endpoint(address: &str) -> String {
    let protocol = if address.contains('/') { "" } else { "tcp/" };
    let class = if address.contains('#') { "" } else { LOW };
    format!("{protocol}{address}{class}")
}

fn text(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

fn quoted<S: AsRef<str>>(values: &[S]) -> String {
    let values: Vec<_> = values.iter().map(|v| text(v.as_ref())).collect();
    format!("[{}]", values.join(","))
}

/// `true` if the interface of this address (for an unspecified one: any but loopback) takes part in multicast.
fn has_multicast(ip: IpAddr) -> bool {
    if ip.is_unspecified() {
        let all = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        return all
            .filter_map(|e| e.file_name().into_string().ok())
            .any(|name| name != "lo" && flags(&name) & MULTICAST != 0);
    }
    interface_of(ip).is_some_and(|name| flags(&name) & MULTICAST != 0)
}

fn flags(interface: &str) -> u32 {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/flags")).unwrap_or_default();
    u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap_or(0)
}

fn interface_of(ip: IpAddr) -> Option<String> {
    match ip {
        ip if ip.is_loopback() => Some("lo".to_owned()),
        IpAddr::V4(ip) => interface_in_routes(&fs::read_to_string("/proc/net/route").ok()?, ip),
        IpAddr::V6(ip) => {
            let wanted: String = ip.octets().iter().map(|b| format!("{b:02x}")).collect();
            let table = fs::read_to_string("/proc/net/if_inet6").ok()?;
            let line = table.lines().find(|l| l.starts_with(&wanted))?;
            line.split_whitespace().next_back().map(str::to_owned)
        }
    }
}

/// The interface whose network holds `ip`, by the kernel's table of routes (columns: interface, destination, …, mask).
fn interface_in_routes(table: &str, ip: Ipv4Addr) -> Option<String> {
    let ip = u32::from_le_bytes(ip.octets());
    let routes = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let hex = |n: usize| u32::from_str_radix(columns.get(n)?, 16).ok();
        Some((columns.first()?.to_string(), hex(1)?, hex(7)?))
    });
    let holding = routes.filter(|(_, destination, mask)| *mask != 0 && ip & mask == *destination);
    holding.max_by_key(|(_, _, mask)| mask.count_ones()).map(|(name, _, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_of_class_low_unless_they_say_otherwise() {
        let written = peers(&["10.0.0.1:7447".into(), "[fd00::1]:1".into(), "udp/host:7#dscp=0xb8".into()]).unwrap();
        assert_eq!(written, ["tcp/10.0.0.1:7447#dscp=0x28", "tcp/[fd00::1]:1#dscp=0x28", "udp/host:7#dscp=0xb8"]);
        assert!(peers(&["host".into()]).unwrap_err().to_string().contains("\"host\"; allowed is"));
    }

    #[test]
    fn silent_connections_take_at_most_half_of_the_descriptors() {
        assert_eq!([Some(1024), Some(20_000), None].map(of), [512, 1000, 1000]);
    }

    #[test]
    fn the_interface_of_an_address_is_the_one_with_the_longest_fitting_route() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
            eth0\t00000000\t0100000A\t3\t0\t0\t0\t00000000\n\
            eth0\t0000000A\t00000000\t1\t0\t0\t0\t000000FF\n\
            eth1\t0002000A\t00000000\t1\t0\t0\t0\t00FFFFFF\n";
        assert_eq!(interface_in_routes(table, [10, 0, 2, 9].into()).as_deref(), Some("eth1"));
        assert_eq!(interface_in_routes(table, [10, 9, 2, 9].into()).as_deref(), Some("eth0"));
        assert_eq!(interface_in_routes(table, [192, 168, 0, 1].into()), None);
    }

    #[test]
    fn a_node_on_ipv6_only_scouts_there_with_a_warning() {
        let key = |listen: &[&str], key: &str| {
            let listen: Vec<IpAddr> = listen.iter().map(|ip| ip.parse().unwrap()).collect();
            group(&listen).into_iter().find(|(k, _)| *k == key).map(|(_, value)| value)
        };
        let (address, interface) = ("scouting/multicast/address", "scouting/multicast/interface");
        assert_eq!(key(&["fd00::1"], address).unwrap(), "\"[ff05::224]:7446\"");
        assert_eq!(key(&["fd00::1"], interface).unwrap(), "\"fd00::1\"");
        assert_eq!(key(&["10.0.0.1", "fd00::1"], address), None);
        assert_eq!(key(&["10.0.0.1", "fd00::1"], interface).unwrap(), "\"10.0.0.1\"");
        assert!(key(&["0.0.0.0"], address).is_none() && key(&["0.0.0.0"], interface).is_none());
        assert!(key(&[], address).is_none() && key(&["::"], address).is_some());
        assert_eq!(address_of("tcp/[fd00::1]:7447#dscp=0x28"), Some("fd00::1".parse().unwrap()));
        let settings =
            ZenohSettings { listen: vec!["fd00::1".parse().unwrap()], scouting: true, ..ZenohSettings::default() };
        assert!(settings.warnings().iter().any(|w| w.contains("nodes that listen on IPv4 are not found")));
    }

    #[test]
    fn scouting_where_there_is_no_multicast_is_warned_of() {
        let on = |ip: &str, scouting| ZenohSettings {
            listen: vec![ip.parse().unwrap()],
            scouting,
            ..ZenohSettings::default()
        };
        assert!(on("203.0.113.77", true).warnings()[0].contains("no multicast on the network of 203.0.113.77"));
        assert!(on("203.0.113.77", false).warnings().is_empty());
    }
}
