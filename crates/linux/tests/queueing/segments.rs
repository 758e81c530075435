//! Ends of SRv6 tunnels are made, read back and taken away; their packets have the mark on the outside that they have inside.

use crate::restoring::{Journals, shares, wanted};
use crate::tunnels::{come_with_marks, made};
use crate::world::{Host, cable, hosts, pair, subnet};
use qos::system::TunnelKind;
use std::net::IpAddr;
use thalweg_linux::queueing::{install, restore};
use thalweg_linux::tunnel::{self, Tunnel};

/// The end with the segment fd97:OWN::7 and the address fd98::OWN.
fn end(own: u8, far: u8) -> Tunnel {
    let remote: IpAddr = format!("fd97:{far}::7").parse().unwrap();
    Tunnel {
        kind: TunnelKind::Srv6,
        device: "veth".to_owned(),
        id: 7,
        port: 4789,
        local: format!("fd97:{own}::7").parse().unwrap(),
        remote,
        mtu: 1500 - TunnelKind::Srv6.added(remote) as u32,
        inside: Some((format!("fd98::{own}").parse().unwrap(), 64)),
    }
}

#[test]
fn packets_keep_their_mark_outside_to_the_end_and_behind_it() {
    let test = "packets_keep_their_mark_outside_to_the_end_and_behind_it";
    let (Some([a, b]), Some([c])) = (pair(test), hosts(test)) else { return };
    cable(&b, "far", &c, "far");
    subnet(&b, "far", &c, "far", "10.99.6", "fd96:");
    b.run("sysctl -qw net.ipv6.conf.all.forwarding=1");
    a.run("ip -6 route add fd97:2::/64 via fd99::2");
    b.run("ip -6 route add fd97:1::/64 via fd99::1");
    let [here, there] = ["segment-here", "segment-there"].map(Journals::new);
    let Some(first) = made(test, &a, &here, &[end(1, 2)]) else { return };
    a.inside(|| first.keep().unwrap());
    let other = made(test, &b, &there, &[end(2, 1)]).unwrap();
    b.inside(|| other.keep().unwrap());
    // What is behind the other end is the administrator's.
    a.run("ip -6 route add fd96::/64 nhid 7");
    a.inside(|| install(&here.0, &[wanted(shares())]).unwrap().keep().unwrap());
    for (host, to) in [(&b, "fd98::2"), (&c, "fd96::2")] {
        come_with_marks(&a, &["veth"], (host, to.parse().unwrap()), 64); // IPv6 and the routing header
    }
    a.inside(|| restore(&here.0).unwrap());
    for (host, journals) in [(&a, &here), (&b, &there)] {
        assert!(host.inside(|| tunnel::restore(&journals.0).unwrap()).iter().all(|one| one.was_there));
    }
}

/// All routes, nexthops and addresses of a host, but for those that the kernel gives by itself some time after a device is up.
fn shown(host: &Host) -> String {
    let all = ["ip nexthop show", "ip route show table all", "ip -6 route show table all", "ip -o address show"];
    let all = all.map(|line| host.run(line)).concat();
    all.lines().filter(|line| !line.contains("fe80")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_host_has_the_same_routes_when_its_end_was_taken_away() {
    let test = "a_host_has_the_same_routes_when_its_end_was_taken_away";
    let Some([a, _b]) = pair(test) else { return };
    let journals = Journals::new("segments");
    let before = shown(&a);
    let one = end(1, 2);
    let Some(first) = made(test, &a, &journals, std::slice::from_ref(&one)) else { return };
    assert_eq!(first.changes, one.commands());
    a.inside(|| drop(first));
    assert_eq!((shown(&a), journals.are_gone()), (before.clone(), true), "it was not kept");

    let make = |wanted: &[Tunnel]| a.inside(|| tunnel::make(&journals.0, wanted)?.keep());
    make(std::slice::from_ref(&one)).unwrap();
    let whole = shown(&a);
    for words in
        ["segs 1 [ fd97:2::7 ] dev veth", "fd97:1::7  encap seg6local action End.DT6", "fd98::1/128", "fd98::/64"]
    {
        assert!(whole.contains(words), "{words}: {whole}");
    }
    assert_eq!(make(std::slice::from_ref(&one)).unwrap(), [""; 0], "it is there");
    // What others take away is made again, and nothing else.
    for (line, changes) in [
        ("ip -6 route delete fd97:1::7", 1),
        ("ip -6 route delete local fd98::1 dev lo table 254", 1),
        ("ip nexthop delete id 7", 2), // the route over it goes, too
    ] {
        a.run(line);
        assert_eq!(make(std::slice::from_ref(&one)).unwrap().len(), changes, "{line}");
        assert_eq!(shown(&a), whole, "{line}");
    }
    a.run("ip -6 address delete fd98::1/128 dev veth");
    let again = make(std::slice::from_ref(&one)).unwrap();
    assert!(again.contains(&one.commands()[2]) && shown(&a) == whole, "{again:?}");
    // All or none: the device takes no packet as large as the plan's.
    let larger = Tunnel { mtu: 1437, ..one.clone() };
    let refused = make(std::slice::from_ref(&larger)).unwrap_err().to_string();
    assert!(
        refused.contains("its mtu is 1500, and packets of the plan have 1501 B") && shown(&a) == whole,
        "{refused}"
    );
    // Another number, and another segment, take the place of the former ones.
    let other = Tunnel { id: 8, local: "fd97:1::8".parse().unwrap(), ..one.clone() };
    assert_eq!(make(std::slice::from_ref(&other)).unwrap().len(), 6);
    assert!(shown(&a).contains("id 8  encap seg6") && !shown(&a).contains("nhid 7"), "{}", shown(&a));
    let restored = a.inside(|| tunnel::restore(&journals.0).unwrap());
    assert_eq!(restored.iter().map(ToString::to_string).collect::<Vec<_>>(), ["veth: the tunnel is gone, as before"]);
    assert_eq!((shown(&a), journals.are_gone()), (before, true));
}

#[test]
fn somebody_else_s_nexthop_segment_and_address_are_left_alone() {
    let test = "somebody_else_s_nexthop_segment_and_address_are_left_alone";
    let Some([a, _b]) = pair(test) else { return };
    let journals = Journals::new("segments-foreign");
    let one = end(1, 2);
    let former = shown(&a);
    match made(test, &a, &journals, std::slice::from_ref(&one)) {
        Some(first) => a.inside(|| drop(first)),
        None => return,
    }
    for (line, undo) in [
        ("ip nexthop add id 7 via 10.99.0.2 dev veth", "ip nexthop delete id 7"),
        (one.commands()[0].as_str(), "ip nexthop delete id 7"),
        ("ip -6 route add fd97:1::7/128 dev veth", "ip -6 route delete fd97:1::7/128 dev veth"),
        (one.commands()[2].as_str(), "ip -6 address delete fd98::1/128 dev veth"),
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
