//! Super-packets are limited with the queues, also those of open connections, and as before afterwards.

use crate::restoring::{Journals, as_before, wanted};
use crate::world::{Host, pair};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use thalweg_linux::queueing::{Outcome, Restored, Scheduler, Wanted, Way, adjust, install, restore};

const BYTES: usize = 1 << 20;

fn limited(segments: Option<u32>) -> Wanted {
    Wanted { segments, ..wanted(Scheduler::Fifo) }
}

fn segments(host: &Host) -> u32 {
    let link = host.run("ip -d -o link show dev veth");
    let (_, rest) = link.split_once("gso_max_segs ").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// An open connection, and what nft counts of it.
struct Connection<'a> {
    host: &'a Host,
    ends: [TcpStream; 2],
}

impl<'a> Connection<'a> {
    fn new(host: &'a Host, to: &Host) -> Self {
        let listener = to.inside(|| TcpListener::bind("10.99.0.2:0").unwrap());
        let address = listener.local_addr().unwrap();
        let sender = host.inside(|| TcpStream::connect(address).unwrap());
        let (receiver, _) = listener.accept().unwrap();
        host.run("nft add table inet watch");
        host.run("nft add chain inet watch out { type filter hook postrouting priority 0 ; }");
        host.run("nft add rule inet watch out tcp dport 1-65535 meta length > 1500 counter");
        Self { host, ends: [sender, receiver] }
    }

    /// Sends some, and gives the number of super-packets.
    fn super_packets(&self) -> u64 {
        let count = || {
            let rules = self.host.run("nft list table inet watch");
            let (_, rest) = rules.split_once("counter packets ").unwrap();
            rest.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        let before = count();
        let [mut sender, mut receiver] = self.ends.each_ref();
        std::thread::scope(|scope| {
            scope.spawn(move || sender.write_all(&vec![7; BYTES]).unwrap());
            receiver.read_exact(&mut vec![0; BYTES]).unwrap();
        });
        count() - before
    }
}

#[test]
fn an_open_connection_sends_single_packets_while_they_are_limited() {
    let test = "an_open_connection_sends_single_packets_while_they_are_limited";
    let (journals, Some([a, b])) = (Journals::new("segments"), pair(test)) else { return };
    let (before, all) = (segments(&a), a.queues("veth").replace(char::is_numeric, ""));
    let connection = Connection::new(&a, &b);
    assert!(connection.super_packets() > 10, "TCP makes them");
    a.inside(|| install(&journals.0, &[limited(Some(1))]).unwrap().keep().unwrap());
    assert_eq!(segments(&a), 1);
    assert!(connection.super_packets() <= 1, "the first packet looks up the route");
    assert_eq!(connection.super_packets(), 0);
    let adjusted = |segments| {
        a.inside(|| {
            let (installed, adjusted) = adjust(&journals.0, &[limited(segments)]).unwrap();
            installed.keep().unwrap();
            let Way::InPlace(changes) = &adjusted[0].way else { panic!("{adjusted:?}") };
            changes.clone()
        })
    };
    assert_eq!(adjusted(Some(3)), ["ip link set dev veth gso_max_segs 3; ip route flush cache"]);
    assert_eq!(segments(&a), 3);
    // Not wanted any more: as before, and large again.
    assert_eq!(adjusted(None).len(), 1);
    assert_eq!(segments(&a), before);
    assert!(connection.super_packets() > 10);
    adjusted(Some(1));
    assert_eq!(a.inside(|| restore(&journals.0)).unwrap(), as_before());
    assert_eq!((segments(&a), journals.are_gone()), (before, true));
    assert_eq!(a.queues("veth").replace(char::is_numeric, ""), all);
}

#[test]
fn a_limit_goes_even_if_somebody_replaced_the_queues() {
    let test = "a_limit_goes_even_if_somebody_replaced_the_queues";
    let (journals, Some([a, _b])) = (Journals::new("replaced-segments"), pair(test)) else { return };
    let before = segments(&a);
    a.inside(|| install(&journals.0, &[limited(Some(1))]).unwrap().keep().unwrap());
    a.run("tc qdisc replace dev veth root handle 9: pfifo limit 5");
    let replaced = Restored { device: "veth".to_owned(), outcome: Outcome::Replaced };
    assert_eq!(a.inside(|| restore(&journals.0)).unwrap(), [replaced]);
    assert!(a.queues("veth").contains("pfifo 9:") && segments(&a) == before);
}

/// What the kernel refuses leaves nothing behind.
#[test]
fn a_limit_that_the_device_refuses_undoes_all() {
    let test = "a_limit_that_the_device_refuses_undoes_all";
    let (journals, Some([a, _b])) = (Journals::new("refused-segments"), pair(test)) else { return };
    let before = a.queues("veth");
    let error = a.inside(|| install(&journals.0, &[limited(Some(u32::MAX))]).map(drop)).unwrap_err();
    assert!(error.to_string().contains("gso_max_segs"), "{error}");
    assert_eq!((a.queues("veth"), journals.are_gone()), (before, true));
}
