//! Ends of MPLS tunnels are made, read back and taken away; labels say the class of the packets behind them, and queues tell it.

use crate::packets::{marked, receiver, tell_tos, tos_of_next};
use crate::restoring::{Journals, shares, wanted};
use crate::tunnels::{BYTES, MARKS, come_with_marks};
use crate::world::{Host, cable, hosts, pair, subnet};
use qos::system::TunnelKind;
use std::net::{IpAddr, SocketAddr};
use thalweg_linux::queueing::{Wanted, install, restore};
use thalweg_linux::tunnel::{self, Tunnel};

/// The end with the address 10.98.0.OWN, or fd98::OWN.
fn end(v6: bool, own: u8, far: u8) -> Tunnel {
    let address = |four: &str, six: &str, number: u8| -> IpAddr {
        format!("{}{number}", if v6 { six } else { four }).parse().unwrap()
    };
    let [local, remote] = [own, far].map(|number| address("10.99.0.", "fd99::", number));
    let inside = Some((address("10.98.0.", "fd98::", own), if v6 { 64 } else { 24 }));
    let kind = TunnelKind::Mpls;
    let mtu = 1500 - kind.added(remote) as u32;
    Tunnel { kind, device: "veth".to_owned(), id: 100, port: 4789, local, remote, mtu, inside }
}

/// `true` if this kernel has MPLS; prints if not. It loads the module.
fn has_mpls(test: &str, host: &Host) -> bool {
    match host.try_run("ip route add 10.9.0.0/24 encap mpls 100 via inet 10.99.0.2") {
        Ok(_) => {
            host.run("ip route delete 10.9.0.0/24");
            true
        }
        Err(why) => {
            println!("skipped: {test}: because this kernel has no MPLS: {}", why.trim());
            false
        }
    }
}

#[test]
fn labels_say_the_class_and_packets_keep_their_mark_behind_the_end() {
    let test = "labels_say_the_class_and_packets_keep_their_mark_behind_the_end";
    for v6 in [false, true] {
        let (Some([a, b]), Some([c])) = (pair(test), hosts(test)) else { return };
        if !has_mpls(test, &a) {
            return;
        }
        cable(&b, "far", &c, "far");
        subnet(&b, "far", &c, "far", "10.99.6", "fd96:");
        b.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        // What comes out of the tunnel comes in by lo.
        b.run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.lo.rp_filter=0");
        c.run("ip route add default via 10.99.6.1");
        let [here, there] = ["label-here", "label-there"].map(Journals::new);
        for (host, journals, end) in [(&a, &here, end(v6, 1, 2)), (&b, &there, end(v6, 2, 1))] {
            host.inside(|| tunnel::make(&journals.0, &[end]).unwrap().keep().unwrap());
        }
        // What is behind the other end is the administrator's.
        a.run(if v6 { "ip -6 route add fd96::/64 nhid 100" } else { "ip route add 10.99.6.0/24 nhid 100" });
        // Nothing but the label's traffic class tells the class there.
        let queues = Wanted { labels: true, ..wanted(shares()) };
        a.inside(|| install(&here.0, &[queues]).unwrap().keep().unwrap());
        let ends = if v6 { ["fd98::2", "fd96::2"] } else { ["10.98.0.2", "10.99.6.2"] };
        for (host, to) in [&b, &c].into_iter().zip(ends) {
            come_with_marks(&a, &["veth"], (host, to.parse().unwrap()), 4); // the label
        }
        a.inside(|| restore(&here.0).unwrap());
        // A border's rules see what comes out of the tunnel at lo only.
        b.run("nft add table inet border");
        b.run("nft add chain inet border border { type filter hook forward priority 0 ; }");
        let (to, mark) = (ends[1].parse().unwrap(), MARKS[1].0);
        let (socket, port) = c.inside(|| receiver(to));
        tell_tos(&socket, v6);
        let sender = a.inside(|| marked(SocketAddr::new(to, port), mark, None));
        for (device, arrives) in [("veth", mark), ("lo", 0)] {
            let version = if v6 { "ip6" } else { "ip" };
            b.run(&format!("nft add rule inet border border iifname {device} {version} dscp set 0"));
            sender.send(&[0; BYTES]).unwrap();
            assert_eq!(tos_of_next(&socket, v6), Some(arrives), "{device}");
        }
        for (host, journals) in [(&a, &here), (&b, &there)] {
            assert!(host.inside(|| tunnel::restore(&journals.0).unwrap()).iter().all(|one| one.was_there));
        }
    }
}

const SETTINGS: &str = "sysctl net.mpls.platform_labels net.mpls.conf.veth.input";

/// All that an end may change on a host, but for what the kernel gives by itself some time after a device is up.
fn shown(host: &Host) -> String {
    let all = ["ip nexthop show", "ip route show table all", "ip -6 route show table all", "ip -f mpls route show"];
    let more = ["ip -o address show", "nft list ruleset", SETTINGS];
    let all: String = all.iter().chain(&more).map(|line| host.run(line)).collect();
    all.lines().filter(|line| !line.contains("fe80")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_host_is_the_same_when_its_label_was_taken_away() {
    let test = "a_host_is_the_same_when_its_label_was_taken_away";
    let Some([a, _b]) = pair(test) else { return };
    if !has_mpls(test, &a) {
        return;
    }
    let journals = Journals::new("labels");
    let before = shown(&a);
    let one = end(false, 1, 2);
    let make = |wanted: &[Tunnel]| a.inside(|| tunnel::make(&journals.0, wanted)?.keep());
    let first = a.inside(|| tunnel::make(&journals.0, std::slice::from_ref(&one))).unwrap();
    assert_eq!(first.changes, one.commands());
    a.inside(|| drop(first));
    assert_eq!((shown(&a), journals.are_gone()), (before.clone(), true), "it was not kept");

    make(std::slice::from_ref(&one)).unwrap();
    let whole = shown(&a);
    for words in ["10.98.0.1/32", "10.98.0.0/24 nhid 100", "100 dev lo", "platform_labels = 101", "input = 1"] {
        assert!(whole.contains(words), "{words}: {whole}");
    }
    assert_eq!(make(std::slice::from_ref(&one)).unwrap(), [""; 0], "it is there");
    // What others take away is made again, and nothing else.
    for (line, changes) in [
        ("ip -f mpls route delete 100", 1),
        ("nft delete table netdev thalweg_mpls_100", 1),
        ("nft flush chain netdev thalweg_mpls_100 classes", 1),
        ("sysctl -qw net.mpls.conf.veth.input=0", 1),
        ("sysctl -qw net.mpls.platform_labels=0", 2), // the label goes, too
        ("ip nexthop delete id 100", 2),              // the route over it goes, too
        ("ip address delete 10.98.0.1/32 dev veth", 2),
    ] {
        a.run(line);
        assert_eq!(make(std::slice::from_ref(&one)).unwrap().len(), changes, "{line}");
        assert_eq!(shown(&a), whole, "{line}");
    }
    // All or none: the device takes no packet as large as the plan's.
    let larger = Tunnel { mtu: 1497, ..one.clone() };
    let refused = make(std::slice::from_ref(&larger)).unwrap_err().to_string();
    assert!(
        refused.contains("its mtu is 1500, and packets of the plan have 1501 B") && shown(&a) == whole,
        "{refused}"
    );
    // Another label takes the place of the former one.
    let other = Tunnel { id: 101, ..one.clone() };
    assert_eq!(make(std::slice::from_ref(&other)).unwrap().len(), 7);
    assert!(shown(&a).contains("platform_labels = 102") && !shown(&a).contains("nhid 100"), "{}", shown(&a));
    let restored = a.inside(|| tunnel::restore(&journals.0).unwrap());
    assert_eq!(restored.iter().map(ToString::to_string).collect::<Vec<_>>(), ["veth: the tunnel is gone, as before"]);
    assert_eq!((shown(&a), journals.are_gone()), (before, true));
    // What somebody else has set since stays.
    make(std::slice::from_ref(&one)).unwrap();
    a.run("sysctl -qw net.mpls.platform_labels=500");
    a.inside(|| tunnel::restore(&journals.0).unwrap());
    let settings = a.run(SETTINGS);
    assert!(settings.contains("platform_labels = 500") && settings.contains("input = 0"), "{settings}");
}

#[test]
fn what_others_have_under_a_label_is_left_alone() {
    let test = "what_others_have_under_a_label_is_left_alone";
    let Some([a, _b]) = pair(test) else { return };
    if !has_mpls(test, &a) {
        return;
    }
    let journals = Journals::new("labels-foreign");
    let one = end(false, 1, 2);
    a.run("sysctl -qw net.mpls.platform_labels=200");
    let former = shown(&a);
    for (line, undo) in [
        ("ip nexthop add id 100 via 10.99.0.2 dev veth", "ip nexthop delete id 100"),
        ("ip -f mpls route add 100 dev lo", "ip -f mpls route delete 100"),
        ("ip -f mpls route add 100 dev lo proto 122", "ip -f mpls route delete 100"),
        ("ip address add 10.98.0.1/32 dev veth", "ip address delete 10.98.0.1/32 dev veth"),
    ] {
        a.run(line);
        let before = shown(&a);
        let refused = a.inside(|| tunnel::make(&journals.0, std::slice::from_ref(&one))).unwrap_err();
        assert!(refused.to_string().contains("somebody else's nexthop, route or address"), "{line}: {refused}");
        assert_eq!(a.inside(|| tunnel::restore(&journals.0)).unwrap(), [], "{line}");
        assert_eq!(shown(&a), before, "{line}");
        a.run(undo);
    }
    assert_eq!(shown(&a), former);
}
