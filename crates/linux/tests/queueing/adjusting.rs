//! Installed queues are changed in place: packets that wait arrive, all and in order.

use crate::packets::{marked, receive, receiver};
use crate::restoring::{Journals, as_before, shares, wanted};
use crate::world::{Host, cable, pair};
use thalweg_linux::queueing::{
    Adjusted, Handle, Hook, Outcome, QueueError, Restored, Scheduler, Share, Wanted, Way, adjust, install, read,
    restore,
};

/// Rate of the wire: the packets of [`COUNT`] wait a third of a second.
const SLOW: u64 = 1_000_000;
const COUNT: u8 = 40;
const BYTES: usize = 1000;

fn slow(percent: [u64; 4]) -> Wanted {
    let share = |percent: u64| Share { rate: percent * SLOW / 100, ceil: None, priority: None };
    Wanted { rate: SLOW, ..wanted(Scheduler::Htb(percent.map(share), Vec::new())) }
}

/// Words of the changes in place; a device that was made anew fails the test.
fn in_place(adjusted: &[Adjusted]) -> Vec<String> {
    adjusted
        .iter()
        .flat_map(|one| match &one.way {
            Way::InPlace(commands) => commands.clone(),
            Way::Anew => panic!("{} was made anew", one.device),
        })
        .collect()
}

/// Packets sent by the class of unmarked packets.
fn sent(host: &Host) -> u64 {
    host.inside(|| read("veth").unwrap().class(Handle::new(0x7a2, 0x30)).unwrap().counters.packets)
}

#[test]
fn packets_that_wait_arrive_in_order_while_queues_change() {
    let journals = Journals::new("hitless");
    let Some([a, b]) = pair("packets_that_wait_arrive_in_order_while_queues_change") else { return };
    let before = a.queues("veth");
    let (socket, port) = b.inside(|| receiver("10.99.0.2".parse().unwrap()));
    a.inside(|| install(&journals.0, &[slow([20, 45, 30, 5])]).unwrap().keep().unwrap());
    let sender = a.inside(|| marked(format!("10.99.0.2:{port}").parse().unwrap(), 0, None));
    (0..COUNT).for_each(|number| assert_eq!(sender.send(&[number; BYTES]).unwrap(), BYTES));
    // Shares, the wire's rate, the length of queues and a map change while they wait.
    let map = Wanted { map: None, queue: 200, rate: 2 * SLOW, ..slow([10, 60, 20, 10]) };
    for (next, words) in [
        (slow([20, 45, 30, 5]), 0),
        (slow([10, 60, 20, 10]), 4),
        (Wanted { queue: 300, ..slow([10, 60, 20, 10]) }, 4),
        (map, 1),
    ] {
        let adjusted = a.inside(|| {
            let (installed, adjusted) = adjust(&journals.0, std::slice::from_ref(&next)).unwrap();
            installed.keep().unwrap();
            adjusted
        });
        let told = in_place(&adjusted);
        assert!(told.len() >= words && told.iter().all(|c| c.contains(" change ")), "{told:?}");
    }
    let mut buffer = [0; BYTES];
    for number in 0..COUNT {
        assert_eq!((receive(&socket, &mut buffer), buffer[0]), (BYTES, number));
    }
    assert_eq!(a.inside(|| restore(&journals.0)).unwrap(), as_before());
    assert_eq!(
        (a.queues("veth").replace(char::is_numeric, ""), journals.are_gone()),
        (before.replace(char::is_numeric, ""), true)
    );
}

#[test]
fn classes_and_filters_of_others_below_ours_go_and_missing_ones_come() {
    let journals = Journals::new("drift");
    let Some([a, _b]) = pair("classes_and_filters_of_others_below_ours_go_and_missing_ones_come") else { return };
    let wanted = [slow([20, 45, 30, 5])];
    a.inside(|| install(&journals.0, &wanted).unwrap().keep().unwrap());
    let ours = a.queues("veth").replace(char::is_numeric, "");
    a.run("tc class add dev veth parent 7a2:1 classid 7a2:77 htb rate 1mbit quantum 1600");
    a.run("tc filter add dev veth parent 7a2: protocol ip pref 9 u32 match ip dport 7000 0xffff flowid 7a2:77");
    a.run("tc filter del dev veth parent 7a2: protocol ipv6 pref 102");
    // The first of IPv4: were it added last, AF would come before EF and take its packets.
    a.run("tc filter del dev veth parent 7a2: protocol ip pref 101 handle 800::800 u32");
    let adjusted =
        a.inside(|| adjust(&journals.0, &wanted).map(|(installed, adjusted)| (installed.keep(), adjusted).1)).unwrap();
    let told = in_place(&adjusted);
    assert!(told.iter().any(|c| c == "tc class del dev veth classid 7a2:77"), "{told:?}");
    assert!(told.iter().any(|c| c == "tc filter del dev veth parent 7a2: pref 9"), "{told:?}");
    assert_eq!(told.iter().filter(|c| c.contains("filter add")).count(), 18, "{told:?}");
    assert_eq!(a.queues("veth").replace(char::is_numeric, ""), ours);
}

#[test]
fn a_wrong_request_touches_nothing_and_another_device_of_the_name_is_restored_to_its_own_queues() {
    let journals = Journals::new("renewed");
    let Some([a, b]) =
        pair("a_wrong_request_touches_nothing_and_another_device_of_the_name_is_restored_to_its_own_queues")
    else {
        return;
    };
    cable(&a, "second", &b, "second");
    let second = Wanted { device: "second".to_owned(), ..wanted(shares()) };
    let apply = |all: &[Wanted]| {
        a.inside(|| adjust(&journals.0, all).map(|(installed, adjusted)| (installed.keep().unwrap(), adjusted).1))
    };
    apply(&[wanted(shares()), second.clone()]).unwrap();
    let sender = a.inside(|| marked("10.99.0.2:9".parse().unwrap(), 0, None));
    sender.send(&[0; 100]).unwrap();
    let (queues, counted) = (a.queues_without_counters("veth"), sent(&a));
    assert!(counted > 0);
    let absent = Wanted { device: "eth9".to_owned(), ..wanted(shares()) };
    assert!(apply(&[slow([20, 45, 30, 5]), absent]).is_err());
    // The kernel refuses a rate of 0; what has not been changed is not made anew, so its counters go on. (The kernel itself may send
    // packets meanwhile.)
    assert!(apply(&[wanted(shares()), Wanted { rate: 0, ..second.clone() }]).is_err());
    assert_eq!(a.queues_without_counters("veth"), queues);
    assert!(sent(&a) >= counted);
    a.run("ip link del second");
    cable(&a, "second", &b, "second");
    a.run("tc qdisc add dev second root handle 5: pfifo limit 77");
    let own = a.queues("second");
    let adjusted = apply(&[wanted(shares()), second]).unwrap();
    assert_eq!(adjusted[1], Adjusted { device: "second".to_owned(), way: Way::Anew });
    let restored = a.inside(|| restore(&journals.0)).unwrap();
    assert!(restored.iter().all(|one| one.outcome == Outcome::AsBefore) && restored.len() == 2, "{restored:?}");
    assert_eq!((a.queues("second"), journals.are_gone()), (own, true));
}

#[test]
fn another_discipline_is_made_anew_and_a_device_that_is_not_named_is_restored() {
    let journals = Journals::new("others");
    let Some([a, b]) = pair("another_discipline_is_made_anew_and_a_device_that_is_not_named_is_restored") else {
        return;
    };
    cable(&a, "second", &b, "second");
    let second = Wanted { device: "second".to_owned(), ..wanted(shares()) };
    let mapped = Wanted { map: Some(Hook::Router), ..wanted(shares()) };
    let adjusted = |all: &[Wanted]| {
        a.inside(|| {
            adjust(&journals.0, all).map(|(installed, adjusted)| {
                let restored = installed.restored.clone();
                installed.keep().unwrap();
                (restored, adjusted)
            })
        })
    };
    let (_, first) = adjusted(&[wanted(shares()), second.clone()]).unwrap();
    assert!(first.iter().all(|one| one.way == Way::Anew) && first.len() == 2, "{first:?}");
    let (restored, ways) = adjusted(&[wanted(Scheduler::Fifo)]).unwrap();
    assert_eq!(restored, [Restored { device: "second".to_owned(), outcome: Outcome::AsBefore }]);
    assert_eq!(ways, [Adjusted { device: "veth".to_owned(), way: Way::Anew }]);
    let (restored, ways) = adjusted(&[mapped.clone(), second]).unwrap();
    assert!(restored.is_empty() && ways.iter().all(|one| one.way == Way::Anew), "{ways:?}");
    assert!(a.run("nft list ruleset").contains("oifname \"veth\""));
    // A refusal leaves queues, map and the device that was new as they were.
    let (earlier, table) = (a.queues_without_counters("veth"), a.run("nft list ruleset"));
    a.run("ip link del second");
    cable(&a, "third", &b, "third");
    let untouched = a.queues_without_counters("third");
    let Scheduler::Htb(mut none, _) = shares() else { unreachable!() };
    none[0].rate = 0;
    let broken = Wanted { device: "third".to_owned(), ..wanted(Scheduler::Htb(none, Vec::new())) };
    let error: QueueError = adjusted(&[Wanted { map: None, ..wanted(shares()) }, broken]).unwrap_err();
    assert!(error.to_string().starts_with("tc class add dev third"), "{error}");
    assert_eq!((a.queues_without_counters("veth"), a.run("nft list ruleset")), (earlier, table));
    assert_eq!(a.queues_without_counters("third"), untouched);
}
