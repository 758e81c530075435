//! What a node tells Zenoh: where to listen, whom to connect to, how to look for others.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Zenoh wants the whole TOS byte: class LOW, DSCP 10.
const LOW: &str = "#dscp=0x28";
/// Kernel flag of an interface: it takes part in multicast.
const MULTICAST: u32 = 0x1000;

/// How a node reaches other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZenohSettings {
    /// Addresses to listen on.
    pub listen: Vec<IpAddr>,
    /// The port to listen on, for nodes that others name as their peer; 0 (the default): the kernel chooses.
    pub port: u16,
    /// Nodes or routers to connect to: `IP:PORT`, or a Zenoh endpoint such as `tcp/10.0.0.1:7447`.
    pub peers: Vec<String>,
    /// Whether to look for others by multicast on the networks of the addresses listened on.
    pub scouting: bool,
}

/// Why Zenoh cannot be used as asked; names the value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZenohError(pub String);

impl fmt::Display for ZenohError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ZenohError {}

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
        let named: Vec<_> = self.listen.iter().filter(|ip| !ip.is_unspecified()).map(IpAddr::to_string).collect();
        if !named.is_empty() {
            entries.push(("scouting/multicast/interface", text(&named.join(","))));
        }
        Ok(entries)
    }

    /// What a person should know before wondering why nobody is found.
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
        without.map(warn).collect()
    }
}

/// Keys and values of a router's configuration.
pub(super) fn router_entries(listen: &[String], others: &[String]) -> Result<Entries, ZenohError> {
    let listen = peers(listen)?;
    let mut entries = common("router", &listen, &peers(others)?);
    let loopback = listen.iter().all(|e| e.starts_with("tcp/127.") || e.starts_with("tcp/[::1]"));
    entries.push(("scouting/multicast/enabled", (!loopback).to_string()));
    Ok(entries)
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
    ]
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

/// An address as Zenoh writes it, of class LOW unless it says something else.
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

/// Whether the interface of this address (for an unspecified one: any but loopback) takes part in multicast.
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
