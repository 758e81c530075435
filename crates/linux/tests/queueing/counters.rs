//! `placement` agrees with the kernel's treatment of marked packets: by class counters, and by the order in which
//! packets leave a queue that is held shut while they arrive.

use crate::packets::{NAMED, marked, priority_of, receive, receiver};
use crate::world::{Host, bridged, pair, routed};
use qos::Class;
use std::net::{IpAddr, SocketAddr};
use thalweg_linux::queueing::{
    Carried, Handle, Hook, PriorityMap, Scheduler, Share, Wanted, backlog, install, placement, read,
};

pub const NEAR: [&str; 2] = ["10.99.0.2", "fd99::2"];

/// Number of packets of a mark: more than the hosts send by themselves.
const MANY: u64 = 20;

pub fn wanted(device: &str, scheduler: Scheduler, map: Option<Hook>) -> Wanted {
    Wanted {
        device: device.to_owned(),
        rate: 1_000_000_000,
        queue: 1000,
        scheduler,
        segments: None,
        encapsulation: 0,
        labels: false,
        map,
        boundary: false,
    }
}

pub fn shares() -> Scheduler {
    Scheduler::Htb(
        [20, 45, 30, 5].map(|percent| Share { rate: percent * 1_000_000, ceil: None, priority: None }),
        Vec::new(),
    )
}

pub fn in_own_directory(host: &Host, test: &str, all: &[Wanted]) {
    let directory = std::env::temp_dir().join(format!("thalweg-counters-{}-{test}", std::process::id()));
    host.inside(|| install(&directory, all).unwrap().keep().unwrap());
    std::fs::remove_dir_all(directory).unwrap(); // the queues go with their host
}

/// Packets that each class of `device` sent.
fn sent(host: &Host, device: &str) -> Vec<(Handle, u64)> {
    let queues = host.inside(|| read(device)).unwrap();
    let leaves = queues.classes.iter().filter(|c| queues.is_leaf(c.handle) && c.handle.major() == 0x7a2);
    leaves.map(|c| (c.handle, c.counters.packets)).collect()
}

/// Sends packets of each mark from `from`, and compares the counters of `device` at `at` with the expectation for a
/// mark and the sender's socket priority.
pub fn counted(from: &Host, at: &Host, device: &str, to: [&str; 2], expected: impl Fn(u8, u32, bool) -> String) {
    for to in to.map(|to| to.parse::<IpAddr>().unwrap()) {
        for dscp in NAMED {
            let before = sent(at, device);
            let priority = from.inside(|| {
                let socket = marked(SocketAddr::new(to, 9), dscp << 2, None);
                // There is no receiver; a send that reports this has sent nothing.
                let mut left = MANY;
                while left > 0 {
                    left -= u64::from(socket.send(b"mark").is_ok());
                }
                priority_of(&socket)
            });
            let place = expected(dscp << 2, priority, to.is_ipv6());
            let passed = || {
                let grew = |now: &&(Handle, u64)| before.iter().any(|b| b.0 == now.0 && now.1 >= b.1 + MANY);
                let after = sent(at, device);
                after.iter().filter(grew).map(|(class, _)| format!("class {class}")).collect::<Vec<_>>()
            };
            // A router forwards a moment later.
            let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
            while passed().is_empty() && std::time::Instant::now() < until {
                std::thread::yield_now();
            }
            assert_eq!(passed(), [place], "DSCP {dscp} to {to}");
        }
    }
}

#[test]
fn filters_put_each_mark_into_its_class() {
    let Some([a, _b]) = pair("filters_put_each_mark_into_its_class") else { return };
    in_own_directory(&a, "filters", &[wanted("veth", shares(), None)]);
    let queues = a.inside(|| read("veth")).unwrap();
    counted(&a, &a, "veth", NEAR, |tos, priority, v6| queues.placement(tos, priority, v6).place);
    // A class that gets only the test's packets.
    let told = a.run("tc -s class show dev veth classid 7a2:20");
    let own = sent(&a, "veth").iter().find(|(class, _)| class.to_string() == "7a2:20").unwrap().1;
    assert!(told.contains(&format!(" {own} pkt ")), "{own} packets, and tc says {told}");
}

#[test]
fn a_map_puts_each_mark_into_its_class_on_a_router_and_on_a_bridge() {
    let test = "a_map_puts_each_mark_into_its_class_on_a_router_and_on_a_bridge";
    for (hook, connect, far) in [
        (Hook::Router, routed as fn(&str) -> Option<[Host; 3]>, ["10.99.2.2", "fd99:2::2"]),
        (Hook::Bridge, bridged, NEAR),
    ] {
        let Some([a, switch, _b]) = connect(test) else { return };
        in_own_directory(&switch, "map", &[wanted("out", shares(), Some(hook))]);
        // Without filters, so that the map alone decides.
        switch.run("tc filter del dev out parent 7a2:");
        let queues = switch.inside(|| read("out")).unwrap();
        counted(&a, &switch, "out", far, |tos, _, v6| queues.placement(tos, 0, v6).place);
    }
}

/// Packets leave `device` at `at` in the order of their ranks, and within a rank in the order they came.
fn ordered(from: &Host, at: &Host, device: &str, to: (&Host, &str), priority: impl Fn(u8, u32, bool) -> u32) {
    let address: IpAddr = to.1.parse().unwrap();
    let (receiver, port) = to.0.inside(|| receiver(address));
    let tbf = |rate: &str, burst: u32| format!("tbf rate {rate} burst {burst} limit 1000000");
    // Shut: after one packet of 1400 bytes nothing as large leaves for ten seconds.
    at.run(&format!("tc qdisc replace dev {device} root handle 1: {}", tbf("1kbit", 1600)));
    at.run(&format!("tc qdisc replace dev {device} parent 1:1 handle 2: pfifo_fast"));
    let queues = at.inside(|| read(device)).unwrap();
    let send = |tos, bytes: &[u8]| {
        from.inside(|| {
            let socket = marked(SocketAddr::new(address, port), tos, None);
            socket.send(bytes).unwrap();
            priority_of(&socket)
        })
    };
    for _ in 0..2 {
        send(0, &[255; 1400]);
    }
    // Worst first, so that the right order is not a coincidence.
    let marks: Vec<u8> = [34, 10, 46, 0].into_iter().chain(NAMED).collect();
    let rank = |dscp: u8| {
        let own = send(dscp << 2, &[dscp]);
        queues.placement(dscp << 2, priority(dscp << 2, own, address.is_ipv6()), address.is_ipv6()).rank
    };
    let mut expected: Vec<(u32, u8)> = marks.iter().map(|dscp| (rank(*dscp), *dscp)).collect();
    let waiting = || {
        at.inside(|| read(device))
            .unwrap()
            .root()
            .map_or(0, |root| root.counters.packets + u64::from(root.counters.waiting))
    };
    while waiting() < marks.len() as u64 + 2 {
        std::thread::yield_now();
    }
    at.run(&format!("tc qdisc change dev {device} root handle 1: {}", tbf("1gbit", 60_000)));
    send(0, &[254]); // wakes the queue
    expected.sort_by_key(|(rank, _)| *rank);
    let mut buffer = [0; 1500];
    let mut received = Vec::new();
    while received.len() < marks.len() {
        let (length, first) = (receive(&receiver, &mut buffer), buffer[0]);
        received.extend((length == 1 && first < 64).then_some(first));
    }
    assert_eq!(received, expected.into_iter().map(|(_, dscp)| dscp).collect::<Vec<_>>(), "to {address}");
}

#[test]
fn pfifo_fast_sends_by_band() {
    let Some([a, b]) = pair("pfifo_fast_sends_by_band") else { return };
    for to in NEAR {
        ordered(&a, &a, "veth", (&b, to), |_, own, _| own);
    }
}

#[test]
fn a_router_knows_only_the_old_bits_of_ipv4_and_a_map_helps() {
    let test = "a_router_knows_only_the_old_bits_of_ipv4_and_a_map_helps";
    let Some([a, router, b]) = routed(test) else { return };
    let far = ["10.99.2.2", "fd99:2::2"];
    for to in far {
        ordered(&a, &router, "out", (&b, to), |tos, _, v6| if v6 { 0 } else { qos::priority::kernel_priority(tos) });
    }
    let map = wanted("out", Scheduler::Strict, Some(Hook::Router));
    in_own_directory(&router, "router", std::slice::from_ref(&map));
    let map: PriorityMap = map.priority_map().unwrap();
    let placed = router.inside(|| placement("out", 46 << 2, 0, true)).unwrap();
    assert!(placed.effective && placed.place == "band 0", "the map is known: {placed:?}");
    for to in far {
        ordered(&a, &router, "out", (&b, to), |tos, _, _| map.priority(tos));
    }
}

#[test]
fn a_bridge_derives_nothing() {
    let Some([a, bridge, b]) = bridged("a_bridge_derives_nothing") else { return };
    for to in NEAR {
        ordered(&a, &bridge, "out", (&b, to), |_, _, _| 0);
    }
}

/// Sends 30 packets of class critical and 40 of class normal, faster than the line of such queues, and returns their counters.
fn overloaded(test: &str, scheduler: Scheduler) -> Option<Vec<Carried>> {
    let [a, b] = pair(test)?;
    let slow = Wanted { rate: 1_000_000, queue: 5, ..wanted("veth", scheduler, None) };
    in_own_directory(&a, "carried", &[slow]);
    let to: IpAddr = NEAR[0].parse().unwrap();
    let (_receiver, port) = b.inside(|| receiver(to));
    a.inside(|| {
        for (dscp, count) in [(46, 30), (0, 40)] {
            let socket = marked(SocketAddr::new(to, port), dscp << 2, None);
            (0..count).for_each(|_| drop(socket.send(&[0; 1000])));
        }
    });
    Some(a.inside(|| read("veth")).unwrap().carried())
}

fn all(carried: &Carried) -> u64 {
    carried.counters.packets + u64::from(carried.counters.waiting) + u64::from(carried.counters.drops)
}

/// Each class has counters of its own in such queues.
pub fn counted_apart(test: &str, scheduler: Scheduler) {
    let Some(carried) = overloaded(test, scheduler) else { return };
    let classes: Vec<_> = carried.iter().map(|one| one.class).collect();
    assert_eq!(classes, [Class::Critical, Class::High, Class::Normal, Class::Low].map(Some));
    assert_eq!((all(&carried[0]), all(&carried[1])), (30, 0), "{carried:?}");
    assert!(all(&carried[2]) >= 40, "and what the host says by itself: {carried:?}");
    assert!(carried[0].counters.drops > 0 && carried[2].counters.drops > 0, "{carried:?}");
}

#[test]
fn each_class_has_counters_of_its_own_where_queues_tell_them_apart() {
    let test = "each_class_has_counters_of_its_own_where_queues_tell_them_apart";
    let parts = [200_000, 450_000, 300_000, 50_000];
    counted_apart(test, Scheduler::Htb(parts.map(|rate| Share { rate, ceil: None, priority: None }), Vec::new()));
    for together in [Scheduler::Fifo, Scheduler::Strict] {
        let Some(carried) = overloaded(test, together) else { return };
        let [one] = carried[..] else { panic!("{carried:?}") };
        assert!(one.class.is_none() && all(&one) >= 70 && one.counters.drops > 0, "{one:?}");
    }
}

#[test]
fn queues_of_others_are_not_counted_as_ours() {
    let Some([a, _b]) = pair("queues_of_others_are_not_counted_as_ours") else { return };
    a.run("tc qdisc add dev veth root handle 1: tbf rate 10mbit burst 3200 limit 10000000");
    assert_eq!(a.inside(|| read("veth")).unwrap().carried(), []);
}

#[test]
fn what_waits_in_queues_of_ours_is_told_until_it_has_gone() {
    let Some([a, b]) = pair("what_waits_in_queues_of_ours_is_told_until_it_has_gone") else { return };
    let look = || a.inside(|| backlog("veth")).unwrap();
    assert_eq!(look(), None, "they are none of ours");
    let parts = [200_000, 450_000, 300_000, 50_000].map(|rate| Share { rate, ceil: None, priority: None });
    let slow = Wanted { rate: 1_000_000, ..wanted("veth", Scheduler::Htb(parts, Vec::new()), None) };
    in_own_directory(&a, "backlog", &[slow]);
    let to: IpAddr = NEAR[0].parse().unwrap();
    let (_receiver, port) = b.inside(|| receiver(to));
    a.inside(|| {
        let socket = marked(SocketAddr::new(to, port), 0, None);
        (0..80).for_each(|_| drop(socket.send(&[0; 1000])));
    });
    let first = look().unwrap();
    let mut last = first;
    while last.waiting > 0 {
        let next = look().unwrap();
        assert!(next.sent >= last.sent, "{last:?} {next:?}");
        // Where nothing waits classes are not looked at.
        assert!(next.waiting == 0 || next.gone >= last.gone, "{last:?} {next:?}");
        last = next;
    }
    assert!(last.sent >= 80 * 1000 && first.waiting <= 85 * 1100, "{first:?} {last:?}");
}
