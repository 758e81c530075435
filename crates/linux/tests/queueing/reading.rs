//! Queues made by `tc` are read.

use crate::world::{cable, hosts};
use thalweg_linux::queueing::{Class, Discipline, Handle, Shares, placement, probe, read};

#[test]
fn a_tree_made_by_tc_is_read() {
    let Some([a, b]) = hosts("a_tree_made_by_tc_is_read") else { return };
    cable(&a, "veth", &b, "veth");
    let untouched = a.inside(|| read("veth")).unwrap();
    assert_eq!(untouched.root().map(|d| d.is.clone()), Some(Discipline::NoQueue));
    for line in [
        "tc qdisc add dev veth root handle 1: tbf rate 100mbit burst 3200 limit 10000000",
        "tc qdisc add dev veth parent 1:1 handle 2: htb default 40",
        "tc class add dev veth parent 2: classid 2:1 htb rate 1gbit",
        "tc class add dev veth parent 2:1 classid 2:20 htb rate 30mbit ceil 1gbit prio 1 burst 3200 cburst 3200 quantum 1514",
        "tc class add dev veth parent 2:1 classid 2:40 htb rate 40mbit ceil 100gbit prio 3 quantum 1514",
        "tc qdisc add dev veth parent 2:20 handle 20: pfifo limit 7",
        "tc filter add dev veth parent 2: protocol ip prio 1 u32 match ip tos 0xb8 0xfc flowid 2:20",
        "tc filter add dev veth parent 2: protocol ipv6 prio 2 u32 match ip6 priority 0xb8 0xfc flowid 2:20",
    ] {
        a.run(line);
    }
    let queues = a.inside(|| read("veth")).unwrap();
    let disciplines: Vec<String> =
        queues.disciplines.iter().map(|d| format!("{} {} {}", d.parent, d.handle, d.is)).collect();
    let wanted =
        ["root 1: tbf rate 100000000bit burst 3200 limit 10000000", "1:1 2: htb default 40", "2:20 20: pfifo limit 7"];
    assert_eq!(disciplines, wanted);
    // `tc` rounds a burst of 3200 down to the kernel's ticks.
    let shares = Shares { rate: 30_000_000, ceil: 1_000_000_000, burst: 3198, priority: 1, quantum: 1514 };
    assert_eq!(queues.class(Handle::new(2, 0x20)).unwrap().is, Class::Htb(shares));
    let Class::Htb(wide) = &queues.class(Handle::new(2, 0x40)).unwrap().is else { panic!("no HTB class") };
    assert_eq!(wide.ceil, 100_000_000_000);
    let filters: Vec<String> = queues.filters_on(Handle::new(2, 0)).iter().map(ToString::to_string).collect();
    let (v4, v6) = ("match u32 0x00b80000 0x00fc0000 at 0", "match u32 0x0b800000 0x0fc00000 at 0");
    assert_eq!(
        filters,
        [format!("protocol ip pref 1 u32 {v4} flowid 2:20"), format!("protocol ipv6 pref 2 u32 {v6} flowid 2:20")]
    );
    for v6 in [false, true] {
        let (ef, unmarked) = (queues.placement(0xb8, 0, v6), queues.placement(0, 0, v6));
        assert_eq!((&ef.place[..], ef.rank, ef.of, ef.effective), ("class 2:20", 0, 2, true), "{ef:?}");
        assert_eq!((&unmarked.place[..], unmarked.rank), ("class 2:40", 1), "{unmarked:?}");
    }
    let named = queues.placement(0, 0x0002_0020, false);
    assert_eq!(named.place, "class 2:20", "a socket priority that names a class");
}

#[test]
fn this_kernels_disciplines_are_tried() {
    let found = match probe() {
        Ok(found) => found,
        Err(error) => return println!("skipped: this_kernels_disciplines_are_tried: because {error}"),
    };
    let has = |name: &str| found.iter().any(|(found, has)| *found == name && *has);
    assert!(has("pfifo") && has("pfifo_fast"), "every kernel has them: {found:?}");
    let Some([a, b]) = hosts("this_kernels_disciplines_are_tried") else { return };
    cable(&a, "veth", &b, "veth");
    for name in ["prio", "tbf", "htb", "hfsc", "netem", "fq_codel"] {
        let parameters = if name == "tbf" { "rate 1mbit burst 3200 limit 3200" } else { "" };
        let made = a.try_run(&format!("tc qdisc replace dev veth root {name} {parameters}"));
        assert_eq!(made.is_ok(), has(name), "{name}: {made:?}");
    }
}

#[test]
fn ef_is_best_effort_on_an_untouched_queue() {
    let Some([a, b]) = hosts("ef_is_best_effort_on_an_untouched_queue") else { return };
    cable(&a, "veth", &b, "veth");
    a.run("tc qdisc add dev veth root pfifo_fast");
    let queues = a.inside(|| read("veth")).unwrap();
    let told = |tos, priority| {
        let placement = queues.placement(tos, priority, false);
        (placement.rank, placement.effective, placement.because)
    };
    let because = "EF lands in band 1 = best effort of pfifo_fast on veth; class=high would be band 0";
    assert_eq!(told(46 << 2, 4), (1, false, because.to_owned()));
    let because = "AF41 lands in band 2 of pfifo_fast on veth, behind best effort (band 1); class=high would be band 0";
    assert_eq!(told(34 << 2, 2), (2, false, because.to_owned()));
    assert_eq!(
        told(36 << 2, 6),
        (0, true, "AF42 lands in band 0 of pfifo_fast on veth, ahead of best effort (band 1)".to_owned())
    );
    assert!(!queues.placement(46 << 2, 0, true).effective && queues.placement(46 << 2, 6, true).effective);
    a.run("tc qdisc replace dev veth root pfifo limit 100");
    let one = a.inside(|| read("veth")).unwrap().placement(36 << 2, 6, false);
    assert!(!one.effective && one.because.contains("looks at no mark"), "{one:?}");
    let lo = a.inside(|| placement("lo", 36 << 2, 6, false)).unwrap();
    assert!(!lo.waits && !lo.effective, "{lo:?}");
}
