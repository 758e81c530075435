//! Limits at the boundary of a domain: what two hosts send beyond theirs is lost, and takes nothing from others in the class.

use crate::leaves::{HIGH, drained, left, with};
use crate::packets::{marked, receiver};
use crate::restoring::Journals;
use crate::world::{Host, routed, subnet};
use qos::Class;
use std::net::IpAddr;
use thalweg_linux::queueing::{Boundary, Exceeded, Hook, Limit, Pair, Wanted, adjust_with, exceeded, restore};

const BYTES: usize = 1000;
/// What the modest one sends at once, as it may. The other one sends many times as much.
const ALLOWED: usize = 8;
const SENT: usize = 100;
const BY_PACKETS: Limit =
    Limit { rate: 1_000_000, burst: 1_000_000, packets_per_hour: 36_000, packets: ALLOWED as u64, packet: 1500 };
/// The kernel lets a second's worth pass besides.
const BY_BYTES: Limit = Limit { rate: 6000, burst: 4000, packets_per_hour: 3_600_000, packets: 1000, packet: 1500 };

fn boundary(pairs: Vec<Pair>) -> Boundary {
    let (classes, instead) = (vec![Class::High, Class::Critical], Class::Normal);
    Boundary { device: "in".to_owned(), hook: Hook::Router, classes, instead, flows: Vec::new(), pairs }
}

/// The router has these pairs at its boundary, before a link of 1 Mbit/s with room for 20 packets of a class.
fn install(router: &Host, journals: &Journals, pairs: Vec<Pair>) {
    let out = Wanted { device: "out".to_owned(), map: Some(Hook::Router), ..with(Vec::new()) };
    router.inside(|| adjust_with(&journals.0, &[out], &[boundary(pairs)]).unwrap().0.keep().unwrap());
}

/// What the router has dropped of a pair.
fn dropped(router: &Host, destination: IpAddr) -> (usize, usize) {
    let found = router.inside(|| exceeded().unwrap());
    let is_its = |one: &&Exceeded| (one.destination, one.class, &*one.device) == (destination, Class::High, "in");
    found.iter().find(is_its).map_or((0, 0), |one| (one.packets as usize, one.bytes as usize))
}

#[test]
fn at_a_boundary_who_sends_beyond_its_limit_harms_only_itself() {
    let Some([a, router, b]) = routed("at_a_boundary_who_sends_beyond_its_limit_harms_only_itself") else { return };
    subnet(&router, "out", &b, "veth", "10.99.3", "fd99:3:");
    let bare = router.run("nft list ruleset");
    for (source, destinations, headers) in
        [("10.99.1.2", ["10.99.2.2", "10.99.3.2"], 28), ("fd99:1::2", ["fd99:2::2", "fd99:3::2"], 48)]
    {
        let source: IpAddr = source.parse().unwrap();
        let [greedy, modest] = destinations.map(|address| address.parse::<IpAddr>().unwrap());
        for limit in [None, Some(BY_PACKETS), Some(BY_BYTES)] {
            let journals = Journals::new("police");
            let pairs = || [greedy, modest].map(|destination| Pair { class: Class::High, source, destination, limit });
            install(&router, &journals, pairs().to_vec());
            let sockets = b.inside(|| [greedy, modest].map(receiver));
            let send = |(to, port): (IpAddr, u16), count: usize| {
                let socket = a.inside(|| marked((to, port).into(), HIGH, None));
                (0..count).for_each(|_| assert_eq!(socket.send(&[0; BYTES]).unwrap(), BYTES));
            };
            send((greedy, sockets[0].1), SENT);
            send((modest, sockets[1].1), ALLOWED);
            drained(&router, "out");
            let came = [&sockets[0].0, &sockets[1].0].map(left);
            let lost = dropped(&router, greedy);
            match limit {
                None => assert!(came[1] < ALLOWED, "{source}: without a limit, the other one loses, too: {came:?}"),
                Some(_) => {
                    assert_eq!(came[1], ALLOWED, "{source}, {limit:?}: the modest one lost nothing: {came:?}");
                    assert!((ALLOWED..SENT / 2).contains(&came[0]), "{source}, {limit:?}: what it may: {came:?}");
                    assert_eq!((came[0] + lost.0, lost.1), (SENT, lost.0 * (BYTES + headers)), "{source}, {limit:?}");
                    assert_eq!(dropped(&router, modest), (0, 0));
                    // What others take away comes back, and the counters go on.
                    router.run("nft flush chain inet thalweg boundary");
                    install(&router, &journals, pairs().to_vec());
                    assert_eq!(dropped(&router, greedy), lost, "{source}, {limit:?}");
                    send((greedy, sockets[0].1), SENT);
                    drained(&router, "out");
                    let again = dropped(&router, greedy).0 - lost.0;
                    assert_eq!(left(&sockets[0].0) + again, SENT, "{source}, {limit:?}");
                    assert!(again > SENT / 2, "{source}, {limit:?}: {again}");
                }
            }
            router.inside(|| restore(&journals.0)).unwrap();
            assert_eq!((router.run("nft list ruleset"), journals.are_gone()), (bare.clone(), true));
        }
    }
}

#[test]
fn a_thousand_pairs_have_limits_of_their_own() {
    let Some([a, router, b]) = routed("a_thousand_pairs_have_limits_of_their_own") else { return };
    let journals = Journals::new("many");
    let last: IpAddr = "10.99.2.2".parse().unwrap();
    let source: IpAddr = "10.99.1.2".parse().unwrap();
    let pair = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let destination = if n == 999 { last } else { IpAddr::from([10, 98, high, low]) };
        Pair { class: Class::High, source, destination, limit: Some(BY_PACKETS) }
    };
    install(&router, &journals, (0..1000).map(pair).collect());
    assert_eq!(router.inside(|| exceeded().unwrap()).len(), 1000);
    let (socket, port) = b.inside(|| receiver(last));
    let sender = a.inside(|| marked((last, port).into(), HIGH, None));
    (0..SENT).for_each(|_| assert_eq!(sender.send(&[0; BYTES]).unwrap(), BYTES));
    drained(&router, "out");
    let (came, lost) = (left(&socket), dropped(&router, last).0);
    assert_eq!((came + lost, came >= ALLOWED, lost > 0), (SENT, true, true), "{came} came, {lost} were lost");
    router.inside(|| restore(&journals.0)).unwrap();
}
