//! Flows with a queue and rate of their own: what one sends beyond its rate is its own loss.

use crate::packets::{marked, receive, receiver};
use crate::restoring::{Journals, as_before, wanted};
use crate::world::{Host, pair, routed};
use qos::Class;
use qos::priority::CONTROL;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;
use thalweg_linux::queueing::{
    Counters, Flow, Hook, Leaf, Scheduler, Share, Transport, Wanted, Way, Whose, adjust, install, read, restore,
};

const WIRE: u64 = 1_000_000;
/// TOS octet of class high (AF42).
pub const HIGH: u8 = 36 << 2;
const BYTES: usize = 1000;

pub fn leaf(destination: &str, port: u16) -> Leaf {
    let destination: IpAddr = destination.parse().unwrap();
    let flow = Flow { source: None, destination, transport: Transport::Udp, port };
    Leaf { class: Class::High, rate: WIRE / 2, burst: 3 * 1514, queue: 8, whose: Whose::Flow(flow) }
}

pub fn with(leaves: Vec<Leaf>) -> Wanted {
    let share = |percent: u64| Share { rate: percent * WIRE / 100, ceil: None, priority: None };
    Wanted { rate: WIRE, queue: 20, ..wanted(Scheduler::Htb([10, 10, 20, 5].map(share), leaves)) }
}

/// Counters of a leaf's class.
fn counters(host: &Host, device: &str, number: usize) -> Counters {
    host.inside(|| read(device).unwrap().class(Leaf::handle(number)).unwrap().counters)
}

/// Waits until no packet waits at a device any more: those of a cable are at the other end then.
pub fn drained(host: &Host, device: &str) {
    let waiting = || {
        let queues = read(device).unwrap();
        queues
            .classes
            .iter()
            .map(|c| c.counters.waiting)
            .chain(queues.disciplines.iter().map(|d| d.counters.waiting))
            .sum::<u32>()
    };
    while host.inside(waiting) > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The number of packets that a socket has.
pub fn left(socket: &UdpSocket) -> usize {
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buffer = [0; BYTES];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count()
}

#[test]
fn a_flow_beyond_its_rate_loses_its_own_packets_only() {
    let Some([a, b]) = pair("a_flow_beyond_its_rate_loses_its_own_packets_only") else { return };
    // A flow by its addresses and port, and control traffic by its mark.
    for (address, mark) in
        [("10.99.0.2", HIGH), ("fd99::2", HIGH), ("10.99.0.2", CONTROL.tos()), ("fd99::2", CONTROL.tos())]
    {
        let at = |port: u16| std::net::SocketAddr::new(address.parse().unwrap(), port);
        for alone in [true, false] {
            let journals = Journals::new("leaf");
            let [(greedy, greedy_port), (modest, modest_port)] =
                b.inside(|| [receiver(address.parse().unwrap()), receiver(address.parse().unwrap())]);
            let flow = leaf(address, greedy_port);
            let own = if mark == HIGH { flow } else { Leaf { whose: Whose::Control, ..flow } };
            let handle = own.class_handle(0);
            let leaves = if alone { vec![own] } else { Vec::new() };
            a.inside(|| install(&journals.0, &[with(leaves)]).unwrap().keep().unwrap());
            let [from, other] = a.inside(|| [marked(at(greedy_port), mark, None), marked(at(modest_port), HIGH, None)]);
            // Beyond what both a leaf and a class's queue hold; then the neighbour of the same class.
            (0..100).for_each(|_| drop(from.send(&[0; BYTES])));
            (0..10).for_each(|_| drop(other.send(&[0; BYTES])));
            drained(&a, "veth");
            let came = [left(&greedy), left(&modest)];
            if alone {
                let counted = a.inside(|| read("veth").unwrap().class(handle).unwrap().counters);
                assert!((8..50).contains(&came[0]), "{address}: {came:?}");
                assert_eq!((counted.packets as usize, counted.drops as usize), (came[0], 100 - came[0]), "{counted:?}");
                assert_eq!(came[1], 10, "{address}: the neighbour lost nothing");
                let of_control = a.inside(|| read("veth").unwrap().control());
                assert_eq!(of_control, (mark != HIGH).then_some(counted), "the queue of control traffic is told apart");
            } else {
                assert!(came[1] < 10, "{address}: without a leaf, the neighbour loses its packets, too: {came:?}");
            }
            assert_eq!(a.inside(|| restore(&journals.0)).unwrap(), as_before());
        }
    }
}

/// Sockets name the queue that they are for: the one of channel A sends five times what its queue takes.
#[test]
fn sockets_that_name_a_queue_harm_nobody_else() {
    let Some([a, b]) = pair("sockets_that_name_a_queue_harm_nobody_else") else { return };
    for address in ["10.99.0.2", "fd99::2"] {
        let at = |port: u16| std::net::SocketAddr::new(address.parse().unwrap(), port);
        for alone in [true, false] {
            let journals = Journals::new("named");
            let [(greedy, greedy_port), (modest, modest_port)] =
                b.inside(|| [receiver(address.parse().unwrap()), receiver(address.parse().unwrap())]);
            let own = Leaf { whose: Whose::Sockets(0xabc), ..leaf(address, greedy_port) };
            a.inside(|| install(&journals.0, &[with(vec![own])]).unwrap().keep().unwrap());
            // Without the name it is one of its class.
            let name = alone.then(|| Leaf::named(0xabc).0);
            let [from, other] = a.inside(|| [marked(at(greedy_port), HIGH, name), marked(at(modest_port), HIGH, None)]);
            (0..100).for_each(|_| drop(from.send(&[0; BYTES])));
            (0..10).for_each(|_| drop(other.send(&[0; BYTES])));
            drained(&a, "veth");
            let came = [left(&greedy), left(&modest)];
            let counted = a.inside(|| read("veth").unwrap().class(Leaf::named(0xabc)).unwrap().counters);
            if alone {
                assert!((8..50).contains(&came[0]), "{address}: {came:?}");
                assert_eq!((counted.packets as usize, counted.drops as usize), (came[0], 100 - came[0]), "{counted:?}");
                assert_eq!(came[1], 10, "{address}: the neighbour lost nothing");
            } else {
                assert_eq!(counted.packets, 0, "{counted:?}");
                assert!(came[1] < 10, "{address}: in one queue, the neighbour loses its packets, too: {came:?}");
            }
            assert_eq!(a.inside(|| restore(&journals.0)).unwrap(), as_before());
        }
    }
}

/// On a router nft gives packets a priority that names a class, which HTB takes before it asks filters.
#[test]
fn a_router_tells_the_flow_by_addresses_protocol_and_port() {
    for hook in [Some(Hook::Router), None] {
        let Some([a, router, b]) = routed("a_router_tells_the_flow_by_addresses_protocol_and_port") else { return };
        let journals = Journals::new("leaf-router");
        for (destination, source, foreign) in
            [("10.99.2.2", "10.99.1.2", "10.99.1.9"), ("fd99:2::2", "fd99:1::2", "fd99:1::9")]
        {
            let [(socket, port), (elsewhere, other)] =
                b.inside(|| [receiver(destination.parse().unwrap()), receiver(destination.parse().unwrap())]);
            let from = |source: &str| {
                let leaf = leaf(destination, port);
                let flow = Flow { source: Some(source.parse().unwrap()), ..leaf.flow().unwrap() };
                Leaf { queue: 50, whose: Whose::Flow(flow), ..leaf }
            };
            // The second one is of another sender, the third of another protocol.
            let tcp = Flow { transport: Transport::Tcp, ..leaf(destination, port).flow().unwrap() };
            let rest = Leaf { whose: Whose::Flow(tcp), ..leaf(destination, port) };
            let rate = |leaf: Leaf| Leaf { rate: WIRE / 10, ..leaf };
            let leaves = [from(source), from(foreign), rest].map(rate).to_vec();
            let wanted = Wanted { device: "out".to_owned(), map: hook, ..with(leaves) };
            router.inside(|| install(&journals.0, &[wanted]).unwrap().keep().unwrap());
            let at = |port: u16| std::net::SocketAddr::new(destination.parse().unwrap(), port);
            let [own, strange] = a.inside(|| [marked(at(port), HIGH, None), marked(at(other), HIGH, None)]);
            (0..12).for_each(|_| drop(own.send(&[0; 100])));
            (0..7).for_each(|_| drop(strange.send(&[0; 100])));
            drained(&router, "out");
            assert_eq!([left(&socket), left(&elsewhere)], [12, 7], "{hook:?} {destination}");
            let counted = [0, 1, 2].map(|number| counters(&router, "out", number).packets);
            assert_eq!(counted, [12, 0, 0], "{hook:?} {destination}");
            router.inside(|| restore(&journals.0)).unwrap();
        }
    }
}

#[test]
fn leaves_come_change_and_go_and_no_packet_of_others_is_lost_or_overtaken() {
    let Some([a, b]) = pair("leaves_come_change_and_go_and_no_packet_of_others_is_lost_or_overtaken") else { return };
    let journals = Journals::new("leaves");
    let before = a.queues("veth");
    let wide = |leaves: Vec<Leaf>| Wanted { rate: 100 * WIRE, queue: 1000, ..with(leaves) };
    let (socket, port) = b.inside(|| receiver("10.99.0.2".parse().unwrap()));
    a.inside(|| install(&journals.0, &[wide(Vec::new())]).unwrap().keep().unwrap());
    let sender = a.inside(|| marked(format!("10.99.0.2:{port}").parse().unwrap(), HIGH, None));
    let [one, two, three] = [1, 2, 3].map(|port| leaf("10.99.0.2", port));
    let faster = Leaf { rate: WIRE / 4, queue: 9, ..two.clone() };
    let steps = [
        vec![one.clone()],
        vec![one.clone(), two.clone()],
        vec![one.clone(), faster],
        vec![three.clone(), two],
        vec![three],
        Vec::new(),
    ];
    let mut buffer = [0; 8];
    for round in 0..20u64 {
        for (number, leaves) in steps.iter().enumerate() {
            let count = round * steps.len() as u64 + number as u64;
            for half in [0, 1] {
                sender.send(&(2 * count + half).to_be_bytes()).unwrap();
                if half == 0 {
                    let (installed, adjusted) = a.inside(|| adjust(&journals.0, &[wide(leaves.clone())]).unwrap());
                    a.inside(|| installed.keep().unwrap());
                    assert!(matches!(&adjusted[0].way, Way::InPlace(changes) if !changes.is_empty()), "{adjusted:?}");
                }
            }
            for half in [0, 1] {
                assert_eq!((receive(&socket, &mut buffer), u64::from_be_bytes(buffer)), (8, 2 * count + half));
            }
        }
    }
    assert_eq!(a.inside(|| restore(&journals.0)).unwrap(), as_before());
    assert_eq!(a.queues("veth").replace(char::is_numeric, ""), before.replace(char::is_numeric, ""));
}
