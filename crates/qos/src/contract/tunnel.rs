//! A contract's tunnels: links through other networks, and the own ends of tunnels that begin at a neighbour.
//!
//! A stated `mtu` is that of the network underneath. What the tunnel adds to each packet is taken from it, and counts as overhead.

use super::file::{self, Ends, place};
use super::value::{self, Entry, Wrong, needed};
use super::{DEVICE, is_device, value::wrong};
use crate::system::{Link, Node, Tunnel, TunnelKind, VXLAN_PORT};
use std::net::IpAddr;
use std::ops::Range;
use toml::Spanned;

/// Least payload of a packet, bytes.
const LEAST: u64 = 32;
/// The payload of a packet where nothing else is stated, bytes.
const USUAL: u64 = 1500;

/// The own end of a tunnel to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelEnd {
    /// Its encapsulation.
    pub kind: TunnelKind,
    /// Its number.
    pub id: u32,
    /// The UDP port of its packets (VXLAN).
    pub port: u16,
    /// The own address.
    pub local: IpAddr,
    /// The neighbour's.
    pub remote: IpAddr,
    /// The address inside, with the length of its network.
    pub inside: Option<(IpAddr, u8)>,
    /// The largest packet in it, bytes.
    pub mtu: u64,
}

/// The tunnel that a link is, if it is one.
pub(super) fn of_link(entry: &file::Link, between: [usize; 2], nodes: &[Node]) -> Result<Option<Tunnel>, Wrong> {
    let Some(table) = &entry.tunnel else { return Ok(None) };
    let (given, at) = (table.get_ref(), &table.span());
    let names = between.map(|end| nodes[end].name.as_str());
    let (kind, id, port) = network(&given.kind, &given.id, &given.port, at)?;
    let such_as = format!("{{ {} = \"10.97.1.1\", {} = \"10.97.1.2\" }}", names[0], names[1]);
    let [Some(one), Some(other)] = by_end("ends", &given.ends, names, value::address)? else {
        return needed(None, at, "ends", &such_as);
    };
    let inside = by_end("inside", &given.inside, names, value::network)?;
    for inside in inside {
        fitting(kind, [one, other], inside, at)?;
    }
    Ok(Some(Tunnel { kind, id, port, ends: [one, other], inside }))
}

/// A link's largest payload and its overhead, as stated or usual, with what its tunnel adds.
pub(super) fn sizes(entry: &file::Link, at: &Range<usize>, tunnel: Option<&Tunnel>) -> Result<(u64, u64), Wrong> {
    let added = tunnel.map_or(0, |tunnel| tunnel.kind.added(tunnel.ends[1]));
    let overhead = value::bytes("overhead", &entry.overhead, 0..=65_536)?.unwrap_or(66);
    Ok((payload(&entry.mtu, at, added)?, overhead + added))
}

/// The largest payload of a packet in a network with this `mtu`.
fn payload(entry: &Entry, at: &Range<usize>, added: u64) -> Result<u64, Wrong> {
    let mtu = value::bytes("mtu", entry, LEAST..=65_536)?.unwrap_or(USUAL);
    match mtu.checked_sub(added).filter(|left| *left >= LEAST) {
        Some(left) => Ok(left),
        None => {
            let least = LEAST + added;
            let said = format!("mtu = \"{mtu} B\": allowed is {least} B and more, of which a tunnel takes {added} B");
            Err((place(entry, at), said))
        }
    }
}

/// The own end of a tunnel to a neighbour, if it has one, and the device by which its packets come in.
pub(super) fn of_neighbour(
    entry: &file::Neighbour,
    at: &Range<usize>,
) -> Result<(Option<String>, Option<TunnelEnd>), Wrong> {
    let device = match (value::name("device", &entry.device)?, &entry.device) {
        (Some(name), Some(value)) if !is_device(&name) => return wrong("device", value, DEVICE),
        (found, _) => found,
    };
    let Some(table) = &entry.tunnel else { return Ok((device, None)) };
    let device = needed(device, at, "device", "\"vx0\", the device that the tunnel is, or by which its packets leave")?;
    Ok((Some(device), Some(end(table)?)))
}

fn end(table: &Spanned<file::TunnelEnd>) -> Result<TunnelEnd, Wrong> {
    let (given, at) = (table.get_ref(), &table.span());
    let (kind, id, port) = network(&given.kind, &given.id, &given.port, at)?;
    let local = needed(value::address("local", &given.local)?, at, "local", "\"10.97.1.2\"")?;
    let remote = needed(value::address("remote", &given.remote)?, at, "remote", "\"10.97.1.1\"")?;
    let inside = value::network("inside", &given.inside)?;
    fitting(kind, [local, remote], inside, at)?;
    let mtu = payload(&given.mtu, at, kind.added(remote))?;
    Ok(TunnelEnd { kind, id, port, local, remote, inside, mtu })
}

/// The encapsulation, the number, and the port.
fn network(kind: &Entry, id: &Entry, port: &Entry, at: &Range<usize>) -> Result<(TunnelKind, u32, u16), Wrong> {
    let kind = value::choice("kind", kind, &TunnelKind::ALL)?.unwrap_or_default();
    let numbers = kind.numbers();
    let range = i64::from(*numbers.start())..=i64::from(*numbers.end());
    let such_as = if kind == TunnelKind::Mpls { "16" } else { "7" };
    let id = needed(value::whole("id", id, range)?, at, "id", such_as)?;
    let stated = value::whole("port", port, 1..=65_535)?;
    if stated.is_some() && kind != TunnelKind::Vxlan {
        let said = format!("port: only with kind = \"vxlan\": packets of {:?} have none", kind.name());
        return Err((place(port, at), said));
    }
    Ok((kind, id as u32, stated.map_or(VXLAN_PORT, |port| port as u16)))
}

fn fitting(kind: TunnelKind, ends: [IpAddr; 2], inside: Option<(IpAddr, u8)>, at: &Range<usize>) -> Result<(), Wrong> {
    let Some(allowed) = kind.misfit(ends, inside.map(|(address, _)| address)) else { return Ok(()) };
    let within = inside.map_or(String::new(), |(address, length)| format!(", with {address}/{length} inside"));
    Err((at.clone(), format!("the tunnel's ends are {} and {}{within}: allowed are {allowed}", ends[0], ends[1])))
}

/// What is stated for the ends of a link, by the nodes' names.
fn by_end<T>(
    key: &str,
    given: &Option<Spanned<Ends>>,
    names: [&str; 2],
    read: impl Fn(&str, &Entry) -> Result<Option<T>, Wrong>,
) -> Result<[Option<T>; 2], Wrong> {
    let mut found = [None, None];
    let Some(given) = given else { return Ok(found) };
    for (node, value) in given.get_ref() {
        let Some(end) = names.iter().position(|end| end == node) else {
            let [one, other] = names;
            let said = format!("{key}: {node:?} is no end of this link: allowed are {one:?} and {other:?}");
            return Err((value.span(), said));
        };
        found[end] = read(node, &Some(value.clone()))?;
    }
    Ok(found)
}

/// Each device is an end of one tunnel.
pub(super) fn once(
    tables: &[Spanned<file::Neighbour>],
    neighbours: &[super::pipe::Neighbour],
    links: &[Link],
) -> Result<(), Wrong> {
    for (table, neighbour) in tables.iter().zip(neighbours).filter(|(_, one)| one.tunnel.is_some()) {
        let is_its = |link: &&Link| {
            let mut ends = link.between.iter().zip(&link.devices);
            link.tunnel.is_some() && ends.any(|(node, device)| (*node, device) == (neighbour.via, &neighbour.device))
        };
        if let Some(link) = links.iter().find(is_its) {
            let device = neighbour.device.as_deref().unwrap_or_default();
            let said = format!(
                "device = {device:?}: link {:?} is a tunnel of this device already: allowed is to state it once",
                link.name
            );
            return Err((place(&table.get_ref().device, &table.span()), said));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::contract::{Contract, ContractError};
    use crate::system::TunnelKind;

    const CONTRACT: &str = r#"
[[node]]
name = "rw"
address = "10.97.1.1"
[[node]]
name = "wb"
[[link]]
between = ["rw", "wb"]
rate = "1 Mbit/s"
devices = { rw = "vx" }
tunnel = { kind = "vxlan", id = 7, ends = { rw = "10.97.1.1", wb = "10.97.1.2" }, inside = { rw = "10.98.0.1/30" } }
[[neighbour]]
domain = "robot"
via = "rw"
broker = "10.0.0.2:7450"
device = "last"
[[neighbour]]
domain = "base"
via = "wb"
broker = "10.0.0.3:7450"
device = "vx"
tunnel = { kind = "vxlan", id = 7, local = "fd00::2", remote = "fd00::1", mtu = "9000 B" }
"#;

    fn refused(from: &str, to: &str) -> ContractError {
        let text = CONTRACT.replacen(from, to, 1);
        assert_ne!(text, CONTRACT);
        Contract::read(&text).unwrap_err()
    }

    #[test]
    fn what_a_tunnel_adds_to_a_packet_counts_in_mtu_and_overhead() {
        let contract = Contract::read(CONTRACT).unwrap();
        let link = &contract.system.links[0];
        assert_eq!((link.mtu, link.overhead), (1450, 116));
        let tunnel = link.tunnel.as_ref().unwrap();
        assert_eq!((tunnel.id, tunnel.port), (7, 4789));
        assert_eq!(tunnel.inside, [Some(("10.98.0.1".parse().unwrap(), 30)), None]);
        let end = contract.neighbours[1].tunnel.as_ref().unwrap();
        assert_eq!((end.kind, end.mtu, end.remote), (TunnelKind::Vxlan, 8930, "fd00::1".parse().unwrap()));
        let segments = CONTRACT.replace("kind = \"vxlan\", id = 7, local", "kind = \"srv6\", id = 7, local");
        let segments = Contract::read(&segments).unwrap().neighbours[1].tunnel.clone().unwrap();
        assert_eq!((segments.kind, segments.mtu), (TunnelKind::Srv6, 8936));
        let label = CONTRACT.replace("kind = \"vxlan\", id = 7, local", "kind = \"mpls\", id = 1048574, local");
        let label = Contract::read(&label).unwrap().neighbours[1].tunnel.clone().unwrap();
        assert_eq!((label.kind, label.id, label.mtu), (TunnelKind::Mpls, 1_048_574, 8996));
        assert_eq!(contract.system.nodes[0].address, Some("10.97.1.1".parse().unwrap()));
        let plain = CONTRACT.lines().filter(|line| !line.starts_with("tunnel")).collect::<Vec<_>>().join("\n");
        let plain = Contract::read(&plain).unwrap();
        assert_eq!((plain.system.links[0].mtu, plain.system.links[0].overhead), (1500, 66));
    }

    #[test]
    fn what_is_no_tunnel_is_refused_at_its_line() {
        for (from, to, line, words) in [
            ("\"vxlan\"", "\"gre\"", 11, "allowed is vxlan, srv6"),
            ("\"vxlan\"", "\"srv6\"", 11, "two IPv6 addresses"),
            ("\"vxlan\", id = 7, local", "\"srv6\", id = 7, port = 4789, local", 22, "only with kind = \"vxlan\""),
            ("\"vxlan\", id = 7, local", "\"srv6\", id = 7, inside = \"10.98.0.2/30\", local", 22, "class 0 outside"),
            ("id = 7", "id = 16777216", 11, "16777215"),
            ("\"vxlan\", id = 7, local", "\"mpls\", id = 15, local", 22, "from 16 to 1048574"),
            ("\"vxlan\", id = 7, local", "\"mpls\", id = 1048575, local", 22, "from 16 to 1048574"),
            ("\"vxlan\", id = 7, ends", "\"mpls\", id = 16, port = 1, ends", 11, "only with kind = \"vxlan\""),
            (
                "\"vxlan\", id = 7, ends = { rw = \"10.97.1.1\", wb = \"10.97.1.2\" }, inside = { rw = \"10.98.0.1/30\" }",
                "\"mpls\", id = 16, ends = { rw = \"10.97.1.1\", wb = \"10.97.1.2\" }, inside = { rw = \"fd98::1/64\" }",
                11,
                "two IPv6 addresses where one inside is",
            ),
            (", wb = \"10.97.1.2\"", "", 11, "ends is missing"),
            ("wb = \"10.97.1.2\"", "wb = \"10.97.1.1\"", 11, "two addresses of one IP version"),
            ("wb = \"10.97.1.2\"", "wb = \"fd00::1\"", 11, "two addresses of one IP version"),
            ("wb = \"10.97.1.2\"", "wx = \"10.97.1.2\"", 11, "no end of this link"),
            ("/30", "/33", 11, "length of its network"),
            ("rate = \"1 Mbit/s\"", "rate = \"1 Mbit/s\"\nmtu = \"81 B\"", 10, "82 B and more"),
            ("device = \"vx\"\n", "", 17, "device is missing"),
            ("device = \"last\"", "device = \"a b\"", 16, "network device's name"),
            ("address = \"10.97.1.1\"", "address = \"224.0.0.1\"", 4, "address of a host"),
        ] {
            let error = refused(from, to);
            assert!(error.line == line && error.problem.contains(words), "{error}");
        }
        let twice = CONTRACT.replace("devices = { rw = \"vx\" }", "devices = { rw = \"vx\", wb = \"vx\" }");
        let error = Contract::read(&twice).unwrap_err();
        assert!(error.problem.contains("state it once"), "{error}");
    }
}
