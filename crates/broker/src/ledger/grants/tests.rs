use super::super::Ledger;
use super::*;
use agent::peer::Flow;
use proptest::prelude::*;
use qos::Class;
use qos::contract::Contract;

/// A pipe of 1 Mbit/s, and another one beside it.
const CONTRACT: &str = r#"
[[node]]
name = "a"
[[node]]
name = "b"
[[link]]
between = ["a", "b"]
rate = "10 Mbit/s"
scheduler = "strict"
overhead = "0 B"
[[pipe]]
name = "fast"
from = "a"
to = "b"
class = "high"
rate = "1 Mbit/s"
burst = "20 kB"
largest = "1 kB"
deadline = "50 ms"
[[pipe]]
name = "slow"
from = "a"
to = "b"
class = "low"
rate = "1 Mbit/s"
burst = "20 kB"
largest = "1 kB"
deadline = "90 ms"
"#;

fn ledger() -> Ledger {
    Ledger::new("home", &Contract::read(CONTRACT).unwrap())
}

fn key(session: &str) -> Key {
    Key { first: "home".into(), session: session.into(), version: 1 }
}

/// 1000 B each 100 ms are 80 kbit/s.
fn flow(class: Class, importance: i64, scale_max: u32) -> Flow {
    Flow {
        enters: "a".into(),
        size: 1000,
        period: 100_000_000,
        burst: 1,
        scale: 1,
        scale_max,
        importance,
        before: [(class, 0)].into(),
        ..Flow::default()
    }
}

fn hold(ledger: &mut Ledger, name: &str, flow: &Flow) -> bool {
    ledger.hold(&key(name), &[(flow, "b")]).is_ok()
}

fn size(rate: f64, burst: u64) -> BTreeMap<String, Bucket> {
    [("fast".to_owned(), Bucket { burst, rate })].into()
}

/// One of so many samples, for each of these sessions.
fn scales(ledger: &Ledger, names: &[&str]) -> Vec<u32> {
    names.iter().flat_map(|name| ledger.scales(&key(name))).collect()
}

#[test]
fn the_least_important_session_is_thinned_first_and_gets_it_back() {
    let mut ledger = ledger();
    let names = ["top", "middle", "low"];
    for (name, importance) in names.iter().zip([9, 5, 1]) {
        assert!(hold(&mut ledger, name, &flow(Class::High, importance, 4)));
    }
    assert!(hold(&mut ledger, "other", &flow(Class::Low, 0, 4)));
    assert_eq!((ledger.resize(&size(240_000.0, 20_000)), scales(&ledger, &names)), (vec![], vec![1, 1, 1]));
    assert_eq!(ledger.take_changed(), BTreeSet::new());
    assert_eq!((ledger.resize(&size(200_000.0, 20_000)), scales(&ledger, &names)), (vec![], vec![1, 1, 2]));
    assert_eq!(ledger.take_changed(), [("home".to_owned(), "low".to_owned())].into());
    assert_eq!((ledger.resize(&size(160_000.0, 20_000)), scales(&ledger, &names)), (vec![], vec![1, 2, 2]));
    assert_eq!((ledger.resize(&size(60_000.0, 20_000)), scales(&ledger, &names)), (vec![], vec![4, 4, 4]));
    assert_eq!(scales(&ledger, &["other"]), [1], "of another pipe");
    ledger.take_changed();
    assert_eq!((ledger.resize(&BTreeMap::new()), scales(&ledger, &names)), (vec![], vec![1, 1, 1]));
    assert_eq!(ledger.take_changed().len(), 3);
}

#[test]
fn who_has_no_room_however_thinned_goes_with_an_offer() {
    let mut ledger = ledger();
    for (name, importance, most) in [("top", 9, 1), ("middle", 5, 2), ("low", 1, 2)] {
        assert!(hold(&mut ledger, name, &flow(Class::High, importance, most)));
    }
    // 80 for the first one, 40 for the second one; 10 are left.
    assert_eq!(ledger.resize(&size(130_000.0, 20_000)), [(key("low"), Some(8))]);
    ledger.release(&key("low"));
    assert_eq!((ledger.settle(), scales(&ledger, &["top", "middle"])), (vec![], vec![1, 2]));
    // A burst has no room at all.
    assert_eq!(ledger.resize(&size(500_000.0, 1000)), [(key("middle"), None)]);
}

#[test]
fn what_is_sold_is_no_more_than_a_smaller_pipe_has() {
    let mut ledger = ledger();
    assert!(hold(&mut ledger, "one", &flow(Class::High, 1, 2)));
    ledger.resize(&size(100_000.0, 20_000));
    let refused = ledger.hold(&key("two"), &[(&flow(Class::High, 9, 2), "b")]).unwrap_err();
    assert_eq!((&*refused.needs, &*refused.has), ("160 kbit/s", "100 kbit/s"), "nobody is thinned for it");
    assert!(refused.because.contains("smaller"), "{refused:?}");
    assert!(hold(&mut ledger, "slow", &flow(Class::Low, 1, 1)));
    ledger.resize(&size(60_000.0, 20_000));
    assert_eq!(scales(&ledger, &["one"]), [2]);
    // Its owner wants it as it was: that has no room now.
    let again = Key { version: 2, ..key("one") };
    assert!(ledger.hold(&again, &[(&flow(Class::High, 1, 2), "b")]).is_err());
    let half = Flow { period: 200_000_000, ..flow(Class::High, 1, 2) };
    assert!(ledger.hold(&again, &[(&half, "b")]).is_err(), "beside the former version");
    ledger.release(&key("one"));
    assert!(ledger.hold(&again, &[(&half, "b")]).is_ok());
    assert_eq!((ledger.scales(&again), ledger.settle()), (vec![1], vec![]));
    ledger.resize(&BTreeMap::new());
    assert!(hold(&mut ledger, "two", &flow(Class::High, 9, 2)));
}

#[test]
fn demand_is_what_is_sold_and_the_least_of_it() {
    let mut ledger = ledger();
    assert!(hold(&mut ledger, "one", &flow(Class::High, 1, 4)) && hold(&mut ledger, "two", &flow(Class::High, 1, 0)));
    let sold = ledger.demand()["fast"];
    assert_eq!((sold.whole.rate, sold.least.rate, sold.whole.burst), (160_000.0, 100_000.0, 2000));
    assert_eq!(ledger.demand()["slow"].whole.rate, 0.0);
}

/// A session that is asked for, one that ends, or another size of the pipe, in thousandths.
#[derive(Clone, Debug)]
enum Change {
    Hold { name: usize, size: u64, importance: i64, most: u32 },
    Release(usize),
    Resize(u32),
}

fn change() -> impl Strategy<Value = Change> {
    let hold = (0usize..12, 100u64..1000, -2i64..3, 1u32..6);
    prop_oneof![
        3 => hold.prop_map(|(name, size, importance, most)| Change::Hold { name, size, importance, most }),
        1 => (0usize..12).prop_map(Change::Release),
        2 => (20u32..1100).prop_map(Change::Resize),
    ]
}

/// Sizes of a pipe at some part of its own.
fn part(thousandths: u32) -> BTreeMap<String, Bucket> {
    let part = f64::from(thousandths) / 1e3;
    size((1e6 * part).floor(), (20_000.0 * part).max(1000.0) as u64)
}

/// What each session of the pipe gets, bit/s and bytes, counted from its flow anew.
fn granted(ledger: &Ledger, flows: &BTreeMap<usize, Flow>) -> (f64, u64) {
    let each = flows.iter().map(|(name, flow)| {
        let scale = ledger.scales(&key(&name.to_string()))[0];
        (flow.size as f64 * 8e9 / flow.period_at(scale) as f64, flow.size)
    });
    each.fold((0.0, 0), |(rate, burst), (more, bytes)| (rate + more, burst + bytes))
}

/// Ends those that have no room, as a domain does.
fn end(ledger: &mut Ledger, flows: &mut BTreeMap<usize, Flow>, lost: &[Displaced]) {
    for (key, _) in lost {
        ledger.release(key);
        flows.remove(&key.session.parse().unwrap());
    }
}

proptest! {
    /// Whatever comes, goes and shrinks: never more is given than there is; who is less important never has more than the least while one who is
    /// more important has less than all; nobody who is admitted takes anything away; and when the pipe is as large as before, all have what they
    /// asked for.
    #[test]
    fn a_pipe_is_never_overfull_and_the_least_important_give_way_first(changes in proptest::collection::vec(change(), 1..60)) {
        let mut ledger = ledger();
        let mut flows: BTreeMap<usize, Flow> = BTreeMap::new();
        let mut now = 1000;
        for change in changes {
            let before: BTreeMap<usize, u32> = flows.keys().map(|name| (*name, ledger.scales(&key(&name.to_string()))[0])).collect();
            match change {
                Change::Hold { name, size, importance, most } if !flows.contains_key(&name) => {
                    let flow = Flow { size, ..flow(Class::High, importance, most) };
                    if hold(&mut ledger, &name.to_string(), &flow) {
                        prop_assert_eq!(ledger.scales(&key(&name.to_string())), vec![1], "it gets all that it asked for");
                        prop_assert!(before.iter().all(|(name, scale)| ledger.scales(&key(&name.to_string()))[0] == *scale));
                        flows.insert(name, flow);
                        // Counted from the beginning it is the same.
                        let fresh = ledger.clone().resize(&part(now.min(1000)));
                        prop_assert_eq!(fresh, vec![]);
                    }
                }
                Change::Hold { .. } => {}
                Change::Release(name) => {
                    ledger.release(&key(&name.to_string()));
                    flows.remove(&name);
                    prop_assert_eq!(ledger.settle(), vec![]);
                }
                Change::Resize(thousandths) => {
                    now = thousandths;
                    let lost = ledger.resize(&part(now));
                    for (key, _) in &lost {
                        // None of them could be kept in place of nobody.
                        let gone = &flows[&key.session.parse::<usize>().unwrap()];
                        let less = |one: &&Flow| one.importance < gone.importance && one.size >= gone.size && one.scale_max <= gone.scale_max;
                        let stays = flows.iter().filter(|(name, _)| !lost.iter().any(|(key, _)| key.session == name.to_string()));
                        prop_assert!(!stays.map(|(_, flow)| flow).any(|flow| less(&flow)), "{:?} goes before a less important one", gone);
                    }
                    end(&mut ledger, &mut flows, &lost);
                    prop_assert_eq!(ledger.settle(), vec![]);
                }
            }
            let (rate, burst) = granted(&ledger, &flows);
            let size = part(now.min(1000))["fast"];
            prop_assert!(rate <= size.rate * (1.0 + 1e-9) + 1.0 && burst <= size.burst, "{} bit/s, {} B in {:?}", rate, burst, size);
            let scale = |name: &usize| ledger.scales(&key(&name.to_string()))[0];
            for (name, more) in &flows {
                for (other, less) in flows.iter().filter(|(_, less)| less.importance < more.importance) {
                    // Who has the same samples and admits no less has no more of them.
                    if less.size == more.size && less.scale_max == more.scale_max {
                        prop_assert!(scale(name) <= scale(other));
                    }
                }
            }
        }
        // However it came to that, the same size gives the same.
        let names: Vec<String> = flows.keys().map(usize::to_string).collect();
        let all = |ledger: &Ledger| names.iter().flat_map(|name| ledger.scales(&key(name))).collect::<Vec<_>>();
        let is = all(&ledger);
        let lost = ledger.resize(&part(700));
        end(&mut ledger, &mut flows.clone(), &lost);
        if lost.is_empty() {
            ledger.resize(&part(now));
            prop_assert_eq!(all(&ledger), is);
        }
        ledger.resize(&BTreeMap::new());
        prop_assert!(all(&ledger).iter().all(|scale| *scale == 1));
    }

    /// What each session gets depends on the size alone, not on the way to it.
    #[test]
    fn the_way_to_a_size_makes_no_difference(
        sessions in proptest::collection::vec((100u64..1000, -2i64..3, 2u32..20), 1..10),
        way in proptest::collection::vec(400u32..1000, 0..6),
        last in 400u32..1000,
    ) {
        let mut ledger = ledger();
        for (name, (size, importance, most)) in sessions.iter().enumerate() {
            hold(&mut ledger, &name.to_string(), &Flow { size: *size, ..flow(Class::High, *importance, *most) });
        }
        let mut other = ledger.clone();
        way.iter().for_each(|size| drop(other.resize(&part(*size))));
        let lost = [ledger.resize(&part(last)), other.resize(&part(last))];
        prop_assert_eq!(&lost[0], &lost[1]);
        for name in 0..sessions.len() {
            let key = key(&name.to_string());
            prop_assert_eq!(ledger.scales(&key), other.scales(&key));
        }
    }
}
