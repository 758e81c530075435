//! The boundary of a domain: packets that come in marked and are of no known flow are counted, and lose their class.

use crate::leaves::{HIGH, drained, leaf, with};
use crate::packets::{marked, receiver, tell_tos, tos_of_next};
use crate::restoring::Journals;
use crate::world::{Host, routed};
use qos::Class;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;
use thalweg_linux::queueing::{Boundary, Hook, Pair, Wanted, adjust_with, install, kept_out, restore};

/// The TOS octets of the packets that arrive.
fn marks(socket: &UdpSocket, v6: bool) -> Vec<u8> {
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    std::iter::from_fn(|| tos_of_next(socket, v6)).collect()
}

#[test]
fn at_a_boundary_only_known_flows_keep_a_mark_that_asks_for_priority() {
    let Some([a, router, b]) = routed("at_a_boundary_only_known_flows_keep_a_mark_that_asks_for_priority") else {
        return;
    };
    let journals = Journals::new("boundary");
    for (destination, v6) in [("10.99.2.2", false), ("fd99:2::2", true)] {
        let [(known, port), (strange, other)] =
            b.inside(|| [receiver(destination.parse().unwrap()), receiver(destination.parse().unwrap())]);
        [&known, &strange].into_iter().for_each(|socket| tell_tos(socket, v6));
        let out = |leaves| Wanted { device: "out".to_owned(), map: Some(Hook::Router), ..with(leaves) };
        let edge = |boundary| Wanted { device: "in".to_owned(), boundary, ..with(Vec::new()) };
        let at = |port: u16| std::net::SocketAddr::new(destination.parse().unwrap(), port);
        // EF, AF42, LE, none.
        let all = [46 << 2, HIGH, 1 << 2, 0];
        for (boundary, arrived) in [(false, all), (true, [0, 0, 1 << 2, 0])] {
            let wanted = [out(vec![leaf(destination, port)]), edge(boundary)];
            router.inside(|| install(&journals.0, &wanted).unwrap().keep().unwrap());
            for tos in all {
                a.inside(|| [port, other].map(|port| marked(at(port), tos, None).send(&[0; 100]).unwrap()));
            }
            drained(&router, "out");
            let came = (sorted(marks(&known, v6)), sorted(marks(&strange, v6)));
            assert_eq!(came, (sorted(all.to_vec()), sorted(arrived.to_vec())), "{destination} {boundary}");
            router.inside(|| restore(&journals.0)).unwrap();
        }
    }
}

/// Packets of different classes overtake each other.
fn sorted(mut all: Vec<u8>) -> Vec<u8> {
    all.sort_unstable();
    all
}

/// Packets and bytes that the boundary has kept out of critical and high.
fn kept(host: &Host) -> [(u64, u64); 2] {
    let found = host.inside(|| kept_out().unwrap());
    [Class::Critical, Class::High].map(|class| {
        let one = found.iter().find(|one| one.class == class && one.device == "in").unwrap();
        (one.packets, one.bytes)
    })
}

#[test]
fn a_boundary_lets_in_pairs_of_hosts_in_their_class_and_counts_the_others() {
    let test = "a_boundary_lets_in_pairs_of_hosts_in_their_class_and_counts_the_others";
    let Some([a, router, b]) = routed(test) else { return };
    let bare = router.run("nft list ruleset");
    for (source, destination, headers) in [("10.99.1.2", "10.99.2.2", 28), ("fd99:1::2", "fd99:2::2", 48)] {
        let journals = Journals::new("pairs");
        let (source, destination): (IpAddr, IpAddr) = (source.parse().unwrap(), destination.parse().unwrap());
        let v6 = source.is_ipv6();
        let pair = Pair { class: Class::High, source, destination, limit: None };
        let boundary = |pairs: Vec<Pair>, instead| Boundary {
            device: "in".to_owned(),
            hook: Hook::Router,
            classes: vec![Class::High, Class::Critical],
            instead,
            flows: Vec::new(),
            pairs,
        };
        let out = || Wanted { device: "out".to_owned(), map: Some(Hook::Router), ..with(Vec::new()) };
        let adjusted = |boundaries: &[Boundary]| {
            router.inside(|| adjust_with(&journals.0, &[out()], boundaries).unwrap().0.keep().unwrap());
        };
        let (socket, port) = b.inside(|| receiver(destination));
        tell_tos(&socket, v6);
        let to = std::net::SocketAddr::new(destination, port);
        // EF, AF42, none.
        let send = || {
            for tos in [46 << 2, HIGH, 0] {
                a.inside(|| marked(to, tos, None).send(&[0; 100]).unwrap());
            }
            drained(&router, "out");
            sorted(marks(&socket, v6))
        };
        let one = 100 + headers;
        // The other version's addresses stand beside, and change nothing.
        let strange = Pair {
            class: Class::High,
            source: "192.0.2.1".parse().unwrap(),
            destination: "192.0.2.2".parse().unwrap(),
            limit: None,
        };
        adjusted(&[boundary(vec![pair, strange], Class::Normal)]);
        assert_eq!(send(), [0, 0, HIGH], "{source}");
        assert_eq!(kept(&router), [(1, one), (0, 0)], "{source}");
        // What others take away comes back, and the counters go on.
        router.run("nft flush chain inet thalweg boundary");
        adjusted(&[boundary(vec![pair, strange], Class::Normal)]);
        assert_eq!(send(), [0, 0, HIGH], "{source}");
        assert_eq!(kept(&router), [(2, 2 * one), (0, 0)], "{source}");
        // A table that is as it was is left alone: its rules have the same handles.
        let handles = || router.run("nft -a list chain inet thalweg boundary");
        let before = handles();
        adjusted(&[boundary(vec![pair, strange], Class::Normal)]);
        adjusted(&[boundary(vec![pair, strange], Class::Normal)]);
        assert_eq!(handles(), before);
        // The session has ended. What is kept out gets the lowest class now.
        let low = Class::Low.dscp() << 2;
        adjusted(&[boundary(Vec::new(), Class::Low)]);
        assert_eq!(send(), sorted(vec![low, low, 0]), "{source}");
        assert_eq!(kept(&router), [(3, 3 * one), (1, one)], "{source}");
        router.inside(|| restore(&journals.0)).unwrap();
        assert_eq!((router.run("nft list ruleset"), journals.are_gone()), (bare.clone(), true));
    }
}
