//! Disciplines that not every kernel has. The test reports a missing one; `tests/emulated/run` runs all of them under
//! a kernel that has them.

use crate::counters::{NEAR, counted, counted_apart, in_own_directory, wanted};
use crate::restoring::restored_over;
use crate::world::{Host, pair};
use thalweg_linux::queueing::{Curve, Discipline, Handle, Scheduler, Service, probe, read};

/// `true` if this kernel has a discipline; prints if not.
fn has(test: &str, name: &str) -> bool {
    let has = probe().is_ok_and(|found| found.contains(&(name, true)));
    if !has {
        println!("skipped: {test}: because this kernel has no {name}, or it may not be tried");
    }
    has
}

fn service(percent: u64) -> Service {
    let share = Curve::linear(percent * 1_000_000);
    let first = Curve { m1: 12_112_000, d_us: 1000, m2: percent * 1_000_000 }; // a full packet within a millisecond
    Service { real_time: Some(first), link_share: Some(share), upper_limit: Some(Curve::linear(900_000_000)) }
}

#[test]
fn hfsc_puts_each_mark_into_its_class() {
    let test = "hfsc_puts_each_mark_into_its_class";
    let (true, Some([a, _b])) = (has(test, "hfsc"), pair(test)) else { return };
    // Installing reads back what was asked for, curve by curve.
    in_own_directory(&a, "hfsc", &[wanted("veth", Scheduler::Hfsc([20, 45, 30, 5].map(service)), None)]);
    let told = a.run("tc class show dev veth classid 7a2:20");
    for curve in ["rt m1 12112Kbit d 1ms m2 30Mbit", "ls m1 0bit d 0us m2 30Mbit", "ul m1 0bit d 0us m2 900Mbit"] {
        assert!(told.contains(curve), "{curve} is not in {told}");
    }
    let queues = a.inside(|| read("veth")).unwrap();
    counted(&a, &a, "veth", NEAR, |tos, priority, v6| queues.placement(tos, priority, v6).place);
    counted_apart(
        test,
        Scheduler::Hfsc([200_000, 450_000, 300_000, 50_000].map(|rate| Service::new(rate, None, None))),
    );
}

#[test]
fn prio_puts_each_mark_into_its_band() {
    let test = "prio_puts_each_mark_into_its_band";
    let (true, Some([a, _b])) = (has(test, "prio"), pair(test)) else { return };
    in_own_directory(&a, "prio", &[wanted("veth", Scheduler::StrictPrio, None)]);
    let queues = a.inside(|| read("veth")).unwrap();
    let class = |tos, priority, v6| {
        let placement = queues.placement(tos, priority, v6);
        assert_eq!((placement.place.clone(), placement.of), (format!("band {}", placement.rank), 4));
        format!("class {}", Handle::new(0x7a2, placement.rank as u16 + 1))
    };
    counted(&a, &a, "veth", NEAR, class);
    let named = queues.placement(0, Handle::new(0x7a2, 1).0, false);
    assert_eq!(named.place, "band 0", "a socket priority that names a band");
    counted_apart(test, Scheduler::StrictPrio);
}

/// A label hides the mark from filters on IP; the priority of the sender's socket still counts.
#[test]
fn a_label_hides_the_mark_from_filters() {
    let test = "a_label_hides_the_mark_from_filters";
    let Some([a, _b]) = pair(test) else { return };
    let labelled = |host: &Host| {
        host.try_run("ip route add 10.9.0.0/24 encap mpls 100 via inet 10.99.0.2")?;
        host.try_run("ip -6 route add fd09::/64 encap mpls 100 via inet6 fd99::2")
    };
    if let Err(why) = labelled(&a) {
        return println!("skipped: {test}: because this kernel has no MPLS: {}", why.trim());
    }
    in_own_directory(&a, "label", &[wanted("veth", crate::counters::shares(), None)]);
    counted(&a, &a, "veth", ["10.9.0.1", "fd09::1"], |_, _, _| "class 7a2:30".to_owned());
}

#[test]
fn netem_is_read() {
    let test = "netem_is_read";
    let (true, Some([a, _b])) = (has(test, "netem"), pair(test)) else { return };
    a.run("tc qdisc add dev veth root handle 1: netem delay 10ms 2ms loss 50% limit 77");
    a.run("tc qdisc add dev veth parent 1:1 handle 2: pfifo_fast");
    let queues = a.inside(|| read("veth")).unwrap();
    let Some(Discipline::Netem { loss, .. }) = queues.root().map(|root| root.is.clone()) else { panic!("no netem") };
    assert!(loss.abs_diff(u32::MAX / 2) <= 1, "{loss}");
    let wanted = Discipline::Netem { delay: 10_000_000, jitter: 2_000_000, limit: 77, loss };
    assert_eq!(queues.root().unwrap().is, wanted);
    assert_eq!(queues.placement(36 << 2, 6, false).place, "band 0", "of the discipline below it");
}

/// Tests that a discipline made by these commands is restored after ours.
macro_rules! there_again {
    ($($test:ident $name:literal: $($command:literal)+)*) => {$(
        #[test]
        fn $test() {
            if has(stringify!($test), $name) {
                restored_over(stringify!($test), &[$($command),+], [crate::counters::shares()]);
            }
        }
    )*};
}

there_again! {
    fq_codel_is_there_again "fq_codel": "tc qdisc add dev veth root handle 3: fq_codel limit 500 target 3ms interval 70ms noecn"
    sfq_is_there_again "sfq": "tc qdisc add dev veth root handle 3: sfq perturb 7"
    fq_is_there_again "fq": "tc qdisc add dev veth root handle 3: fq limit 500"
    netem_is_there_again "netem": "tc qdisc add dev veth root handle 3: netem delay 10ms 2ms loss 1% limit 77"
    ets_is_there_again "ets": "tc qdisc add dev veth root handle 3: ets bands 3 strict 1 quanta 3000 1500"
    prio_is_there_again "prio":
        "tc qdisc add dev veth root handle 1: prio bands 4 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 3"
        "tc qdisc add dev veth parent 1:1 handle 10: pfifo limit 9"
        "tc filter add dev veth parent 1: protocol ip prio 3 flower ip_tos 0xb8/0xfc classid 1:1"
    hfsc_is_there_again "hfsc":
        "tc qdisc add dev veth root handle 1: hfsc default 2"
        "tc class add dev veth parent 1: classid 1:1 hfsc sc m1 20mbit d 5ms m2 5mbit ul rate 50mbit"
        "tc class add dev veth parent 1:1 classid 1:2 hfsc ls rate 10mbit"
        "tc qdisc add dev veth parent 1:2 handle 20: bfifo limit 9000"
}
