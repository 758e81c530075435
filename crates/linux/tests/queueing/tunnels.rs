//! Tunnels are made, read back and taken away; their packets have the mark on the outside that they have inside, and queues count all their bytes.

use crate::packets::{marked, receiver, tell_tos, tos_of_next};
use crate::restoring::{Journals, shares, wanted};
use crate::world::{Host, pair};
use qos::Class;
use qos::system::TunnelKind;
use std::net::{IpAddr, SocketAddr};
use thalweg_linux::queueing::{Reason, Wanted, install, read, restore};
use thalweg_linux::tunnel::{self, Made, Tunnel};

/// TOS octets of EF and of AF42.
pub const MARKS: [(u8, Class); 2] = [(46 << 2, Class::Critical), (36 << 2, Class::High)];
pub const BYTES: usize = 100;

fn end(local: &str, remote: &str, inside: &str) -> Tunnel {
    let remote: IpAddr = remote.parse().unwrap();
    let (address, length) = inside.split_once('/').unwrap();
    Tunnel {
        kind: TunnelKind::Vxlan,
        device: "vx".to_owned(),
        id: 7,
        port: 4789,
        local: local.parse().unwrap(),
        remote,
        mtu: 1500 - TunnelKind::Vxlan.added(remote) as u32,
        inside: Some((address.parse().unwrap(), length.parse().unwrap())),
    }
}

/// The tunnels, unless this kernel has none: that is printed.
pub fn made(test: &str, host: &Host, journals: &Journals, wanted: &[Tunnel]) -> Option<Made> {
    match host.inside(|| tunnel::make(&journals.0, wanted)) {
        Ok(made) => Some(made),
        Err(error) if matches!(error.reason, Reason::MissingFeature) => {
            println!("skipped: {test}: because {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Packets and bytes that a class of a device's queues has sent.
fn sent(host: &Host, device: &str, class: Class) -> (u64, u64) {
    let carried = host.inside(|| read(device).unwrap().carried());
    let found = carried.into_iter().find(|one| one.class == Some(class)).unwrap();
    (found.counters.packets, found.counters.bytes)
}

/// Packets of each mark that leave by these devices come to an address with it, and the class's queue of each device counts all their bytes: so many are
/// added to what is inside.
pub fn come_with_marks(from: &Host, devices: &[&str], (to, address): (&Host, IpAddr), added: u64) {
    let v6 = address.is_ipv6();
    let (socket, port) = to.inside(|| receiver(address));
    tell_tos(&socket, v6);
    // Ethernet, and IP and UDP inside.
    let frame = 14 + added + if v6 { 40 } else { 20 } + 8 + BYTES as u64;
    for (tos, class) in MARKS {
        let counted = || devices.iter().map(|device| sent(from, device, class)).collect::<Vec<_>>();
        let before = counted();
        let sender = from.inside(|| marked(SocketAddr::new(address, port), tos, None));
        for _ in 0..7 {
            sender.send(&[0; BYTES]).unwrap();
            assert_eq!(tos_of_next(&socket, v6), Some(tos), "{address} behind {added} bytes");
        }
        let after: Vec<_> = before.iter().map(|(packets, bytes)| (packets + 7, bytes + 7 * frame)).collect();
        assert_eq!(counted(), after, "{devices:?} to {address} behind {added} bytes: {class}");
    }
}

#[test]
fn packets_have_their_mark_outside_and_queues_count_what_is_added() {
    let test = "packets_have_their_mark_outside_and_queues_count_what_is_added";
    for (local, remote) in [("10.99.0.1", "10.99.0.2"), ("fd99::1", "fd99::2")] {
        for (own, far) in [("10.98.0.1/30", "10.98.0.2/30"), ("fd98::1/64", "fd98::2/64")] {
            let Some([a, b]) = pair(test) else { return };
            let [here, there] = ["mark-here", "mark-there"].map(Journals::new);
            let one = end(local, remote, own);
            let added = one.kind.added(one.remote) as u32;
            let Some(first) = made(test, &a, &here, std::slice::from_ref(&one)) else { return };
            a.inside(|| first.keep().unwrap());
            let other = made(test, &b, &there, &[end(remote, local, far)]).unwrap();
            b.inside(|| other.keep().unwrap());
            // Outside nothing but the packet's own header tells the class, and inside the tunnel's device counts what comes to it.
            let inner = Wanted { device: "vx".to_owned(), encapsulation: added, ..wanted(shares()) };
            a.inside(|| install(&here.0, &[wanted(shares()), inner]).unwrap().keep().unwrap());
            let to: IpAddr = far.split('/').next().unwrap().parse().unwrap();
            come_with_marks(&a, &["veth", "vx"], (&b, to), added.into());
            a.inside(|| restore(&here.0).unwrap());
            assert!(a.inside(|| tunnel::restore(&here.0).unwrap()).iter().all(|one| one.was_there));
        }
    }
}

/// All that `ip` says of a host's devices and addresses, but for those that the kernel gives by itself some time after a device is up.
fn shown(host: &Host) -> String {
    let addresses = host.run("ip -o address show");
    let stated = addresses.lines().filter(|line| !line.contains("inet6 fe80"));
    host.run("ip -o -d link show") + &stated.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_host_has_no_trace_of_a_tunnel_that_was_taken_away() {
    let test = "a_host_has_no_trace_of_a_tunnel_that_was_taken_away";
    let Some([a, _b]) = pair(test) else { return };
    let journals = Journals::new("tunnels");
    let before = shown(&a);
    let one = end("10.99.0.1", "10.99.0.2", "10.98.0.1/30");
    let Some(first) = made(test, &a, &journals, std::slice::from_ref(&one)) else { return };
    assert_eq!(first.changes, one.commands());
    a.inside(|| drop(first));
    assert_eq!((shown(&a), journals.are_gone()), (before.clone(), true), "it was not kept");

    let make = |wanted: &[Tunnel]| a.inside(|| tunnel::make(&journals.0, wanted)?.keep());
    make(std::slice::from_ref(&one)).unwrap();
    let made = shown(&a);
    for words in
        ["mtu 1450", "vxlan id 7 remote 10.99.0.2 local 10.99.0.1", "dstport 4789", "tos inherit", "10.98.0.1/30"]
    {
        assert!(made.contains(words), "{words}: {made}");
    }
    assert_eq!(make(std::slice::from_ref(&one)).unwrap(), [""; 0], "it is there");
    // What others change or take away is made again.
    for line in [
        "ip link set vx type vxlan id 7 remote 10.99.0.9",
        "ip link set vx mtu 1400",
        "ip address flush dev vx",
        "ip link delete vx",
    ] {
        a.run(line);
        let again = make(std::slice::from_ref(&one));
        if line.contains("remote") {
            assert!(again.unwrap_err().to_string().contains("somebody else's device"), "{line}: it is another tunnel");
            a.run("ip link delete vx");
            make(std::slice::from_ref(&one)).unwrap();
        } else {
            assert!(again.unwrap().ends_with(&one.commands()), "{line}");
        }
        assert!(shown(&a).contains("mtu 1450") && shown(&a).contains("10.98.0.1/30"), "{line}");
    }
    // All or none: the second one has the name of a device that is there.
    let wider = Tunnel { id: 8, ..one.clone() };
    let taken = Tunnel { device: "veth".to_owned(), id: 9, inside: None, ..one.clone() };
    let refused = make(&[wider.clone(), taken]).unwrap_err();
    assert!(
        matches!(&refused.reason, Reason::Other(error) if error.kind() == std::io::ErrorKind::AlreadyExists),
        "{refused}"
    );
    let impossible = Tunnel { device: "vy".to_owned(), mtu: 60, inside: None, ..one.clone() };
    assert!(make(&[wider.clone(), impossible]).is_err());
    assert!(shown(&a).contains("vxlan id 7") && !shown(&a).contains("vxlan id 8"), "{}", shown(&a));
    assert_eq!(make(std::slice::from_ref(&wider)).unwrap().len(), 3, "it is made anew");
    // One that is not wanted any more goes, also if another one has its number from now on.
    for id in [9, 9, 8] {
        let device = if id == 8 { "vz" } else { "vy" };
        make(&[Tunnel { device: device.to_owned(), id, ..wider.clone() }]).unwrap();
        assert_eq!(shown(&a).matches("vxlan id").count(), 1, "{}", shown(&a));
    }
    make(&[Tunnel { device: "vy".to_owned(), ..wider.clone() }]).unwrap();
    make(&[Tunnel { device: "vz".to_owned(), ..wider.clone() }]).unwrap();
    assert_eq!(shown(&a).matches("vxlan id 8").count(), 1, "{}", shown(&a));
    let restored = a.inside(|| tunnel::restore(&journals.0).unwrap());
    assert_eq!(restored.iter().map(ToString::to_string).collect::<Vec<_>>(), ["vz: the tunnel is gone, as before"]);
    assert_eq!((shown(&a), journals.are_gone()), (before, true));
}

#[test]
fn somebody_else_s_tunnel_is_left_alone() {
    let test = "somebody_else_s_tunnel_is_left_alone";
    let Some([a, _b]) = pair(test) else { return };
    let journals = Journals::new("foreign");
    let one = end("10.99.0.1", "10.99.0.2", "10.98.0.1/30");
    let foreign = &one.commands()[0];
    if let Err(why) = a.try_run(foreign) {
        return println!("skipped: {test}: because {why}");
    }
    let before = shown(&a);
    let refused = a.inside(|| tunnel::make(&journals.0, std::slice::from_ref(&one))).unwrap_err();
    assert!(refused.to_string().contains("somebody else's device: give the tunnel another name"), "{refused}");
    assert_eq!(a.inside(|| tunnel::restore(&journals.0)).unwrap(), []);
    assert_eq!(shown(&a), before);
}
