//! Explanations of multicast failures, with the interface and the remedy.

use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Explains why a group cannot be joined or sent to on the interface that has the address `local`. `doing` is "join" or "send
/// to".
pub(crate) fn cannot(doing: &str, group: SocketAddr, local: IpAddr, error: &io::Error) -> String {
    let interface = name_of(local);
    let remedy = remedy(&interface, group.is_ipv6(), error);
    format!("{interface} cannot {doing} {}: {error}{remedy}", group.ip())
}

fn remedy(interface: &str, v6: bool, error: &io::Error) -> String {
    let Some(errno) = error.raw_os_error().map(Errno::from_raw_os_error) else { return String::new() };
    match errno {
        // Linux makes this route for every interface but loopback.
        Errno::NETUNREACH if v6 && interface == "lo" => {
            " (ip -6 route add local ff00::/8 dev lo table local, or use another carrier)".to_owned()
        }
        Errno::NETUNREACH if v6 => {
            format!(" (ip -6 route add multicast ff00::/8 dev {interface} table local)")
        }
        Errno::NETUNREACH => format!(" (ip route add 224.0.0.0/4 dev {interface})"),
        Errno::PERM | Errno::ACCESS => " (this host's firewall refuses it: nft list ruleset)".to_owned(),
        Errno::NOBUFS => " (a socket joins net.ipv4.igmp_max_memberships groups: sysctl shows it)".to_owned(),
        Errno::ADDRNOTAVAIL | Errno::NODEV => format!(" ({interface} was taken away: ip address show {interface})"),
        _ => String::new(),
    }
}

/// The reason why no packet of a group reached the member on the interface with the address `local`.
pub(crate) fn nothing_came(group: Option<SocketAddr>, local: IpAddr) -> String {
    let (interface, group) = (name_of(local), group.map_or("the group".to_owned(), |group| group.ip().to_string()));
    format!(
        "nothing that the publisher sent to {group} came in by {interface}: a firewall or a switch drops multicast \
         (nft list ruleset; a switch that snoops needs a querier), or use another carrier"
    )
}

/// The interface that has this address, or the address.
fn name_of(local: IpAddr) -> String {
    let all = linux::net::interfaces().unwrap_or_default();
    all.into_iter().find(|found| found.address == local).map_or_else(|| local.to_string(), |found| found.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn an_error_names_the_interface_and_the_remedy() {
        let v6 = SocketAddr::new(Ipv6Addr::new(0xff14, 0, 0, 0, 0, 0, 0, 1).into(), 1);
        let of = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        let said = cannot("send to", v6, Ipv4Addr::LOCALHOST.into(), &of(Errno::NETUNREACH));
        assert!(said.starts_with("lo cannot send to ff14::1: "), "{said}");
        assert!(said.contains("(ip -6 route add local ff00::/8 dev lo table local"), "{said}");
        assert!(remedy("eth0", true, &of(Errno::NETUNREACH)).contains("add multicast ff00::/8 dev eth0"));
        assert!(remedy("eth0", false, &of(Errno::PERM)).contains("firewall"));
        assert_eq!(remedy("eth0", false, &io::Error::other("odd")), "");
        let said = nothing_came(Some(v6), Ipv4Addr::LOCALHOST.into());
        assert!(said.contains("ff14::1 came in by lo: "), "{said}");
    }
}
