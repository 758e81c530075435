//! Each pair of values of each matched policy, against the table of DDS 1.4 §2.2.3 written out by hand.

use super::*;
use crate::{DestinationOrder, Durability, LivelinessKind, Ownership, Reliability};
use proptest::prelude::*;

/// Rows: offered; columns: requested, in the order of the values. `y` fits.
fn table<T: Copy>(values: &[T], rows: &[&str], set: fn(&mut Qos, T), policy: PolicyName) {
    assert_eq!(rows.len(), values.len());
    for (row, offered) in rows.iter().zip(values) {
        let cells: Vec<&str> = row.split(' ').collect();
        assert_eq!(cells.len(), values.len());
        for (cell, requested) in cells.iter().zip(values) {
            let (mut o, mut r) = (Qos::default(), Qos::default());
            set(&mut o, *offered);
            set(&mut r, *requested);
            let expected = if *cell == "y" { vec![] } else { vec![policy] };
            assert_eq!(between(&o, &r), expected, "offered {o:?}\nrequested {r:?}");
        }
    }
}

fn between(offered: &Qos, requested: &Qos) -> Vec<PolicyName> {
    let found = match_qos(offered, requested).err().unwrap_or_default();
    assert!(found.iter().all(|m| m.remedy.len() > 8 && m.offered != m.requested), "{found:?}");
    found.into_iter().map(|m| m.policy).collect()
}

fn ns(n: u64) -> Option<Duration> {
    Some(Duration::from_nanos(n))
}

#[test]
fn ordered_kinds_fit_as_in_the_table_of_dds() {
    let two = ["y n", "y y"];
    table(&Reliability::ALL, &two, |q, v| q.reliability = v, PolicyName::Reliability);
    table(&Durability::ALL, &two, |q, v| q.durability = v, PolicyName::Durability);
    table(&DestinationOrder::ALL, &two, |q, v| q.destination_order = v, PolicyName::DestinationOrder);
    let three = ["y n n", "y y n", "y y y"];
    table(&LivelinessKind::ALL, &three, |q, v| q.liveliness.kind = v, PolicyName::Liveliness);
    table(&Ownership::ALL, &["y n", "n y"], |q, v| q.ownership = v, PolicyName::Ownership);
}

#[test]
fn durations_fit_as_in_the_table_of_dds_to_the_nanosecond() {
    // 1 ns, 20 ms and a nanosecond around it, none (infinite).
    let values = [ns(1), ns(19_999_999), ns(20_000_000), ns(20_000_001), None];
    let rows = ["y y y y y", "n y y y y", "n n y y y", "n n n y y", "n n n n y"];
    table(&values, &rows, |q, v| q.deadline = v, PolicyName::Deadline);
    table(&values, &rows, |q, v| q.liveliness.lease = v, PolicyName::Liveliness);
    // For the latency budget, none is 0.
    let values = [None, ns(0), ns(1), ns(2)];
    table(
        &values,
        &["y y y y", "y y y y", "n n y y", "n n n y"],
        |q, v| q.latency_budget = v,
        PolicyName::LatencyBudget,
    );
}

#[test]
fn kind_and_lease_of_liveliness_must_both_fit() {
    let all: Vec<Liveliness> = (LivelinessKind::ALL.into_iter())
        .flat_map(|kind| [ns(1), ns(2), None].map(|lease| Liveliness { kind, lease }))
        .collect();
    for offered in &all {
        for requested in &all {
            let at = |v: &Liveliness| (v.kind as u8, v.lease.map_or(u128::MAX, |l| l.as_nanos()));
            let ((kind, lease), (least, longest)) = (at(offered), at(requested));
            let o = Qos { liveliness: *offered, ..Qos::default() };
            let r = Qos { liveliness: *requested, ..Qos::default() };
            assert_eq!(between(&o, &r).is_empty(), kind >= least && lease <= longest, "{offered} {requested}");
        }
    }
}

#[test]
fn partitions_and_keys_stand_between_ports_that_share_none() {
    let named = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let sets = [named(&[]), named(&["a"]), named(&["a", "b"]), named(&["b*"]), named(&["c"])];
    let rows = ["y n n n n", "n y y n n", "n y y y n", "n n y y n", "n n n n y"];
    let references: Vec<&Vec<String>> = sets.iter().collect();
    table(&references, &rows, |q, v| q.partition = v.clone(), PolicyName::Partition);
    let rows = ["y y y y y", "y y n n n", "y n y n n", "y n n y n", "y n n n y"];
    table(&references, &rows, |q, v| q.key = v.clone(), PolicyName::Key);
}

#[test]
fn a_strict_request_fits_queues_that_drop_nothing() {
    let request = Qos { strict: true, ..Qos::default() };
    for (queue, fits) in
        [(Queue::KeepLast(1), false), (Queue::KeepAll(1), true), (Queue::Block { limit: 1, up_to_us: 1 }, true)]
    {
        let offer = Qos { queue, strict: true, ..Qos::default() };
        assert_eq!(between(&offer, &request), if fits { vec![] } else { vec![PolicyName::Strict] }, "{queue:?}");
        assert_eq!(between(&offer, &Qos::default()), [], "an offer has no request");
    }
    let found = match_qos(&Qos::default(), &request).unwrap_err();
    assert_eq!(
        found[0].to_string(),
        "strict offered queue keep-last 16, requested yes; \
         offer queue keep-all or block at the publisher, or do not request strict at the subscriber"
    );
}

#[test]
fn policies_of_one_end_never_mismatch() {
    use crate::{Class, Filter, Place, PullBuffer, ResourceLimits, Scale};
    let one_sided = Qos {
        queue: Queue::KeepAll(3),
        class: Class::Critical,
        max_message: 1,
        limits: ResourceLimits { samples: Some(1), ..Default::default() },
        history: 99,
        lifespan: ns(1),
        separation: ns(1),
        strength: 7,
        filter: Some(Filter::default()),
        scale: Scale::Every(9),
        picture: Some((1, 1)),
        place: Place::Subscriber,
        pull: Some(PullBuffer::default()),
        ..Qos::default()
    };
    assert_eq!(match_qos(&one_sided, &Qos::default()), Ok(vec![]));
    assert_eq!(match_qos(&Qos::default(), &one_sided), Ok(vec![]));
}

/// A request that mismatches every policy of the default offer.
fn demanding() -> Qos {
    Qos {
        reliability: Reliability::Reliable,
        durability: Durability::TransientLocal,
        deadline: ns(20_000_000),
        destination_order: DestinationOrder::BySource,
        liveliness: Liveliness { kind: LivelinessKind::ByPort, lease: ns(5) },
        ownership: Ownership::Exclusive,
        queue: Queue::KeepAll(16),
        strict: true,
        partition: vec!["left".into()],
        key: vec!["id".into()],
        ..Qos::default()
    }
}

fn modest() -> Qos {
    let key = vec!["name".into()];
    Qos { reliability: Reliability::BestEffort, latency_budget: ns(1), key, ..Qos::default() }
}

#[test]
fn all_mismatches_are_reported_in_order_with_values_and_remedy() {
    assert_eq!(between(&modest(), &demanding()), PolicyName::ALL);
    let found = match_qos(&modest(), &demanding()).unwrap_err();
    assert_eq!(
        found[2].to_string(),
        "deadline offered none, requested 20ms; offer 20ms or shorter at the publisher, or request none at the subscriber"
    );
    assert_eq!(
        found[0].to_string(),
        "reliability offered best-effort, requested reliable; \
         offer reliable at the publisher, or request best-effort at the subscriber"
    );
}

#[test]
fn declared_fallbacks_match_and_are_reported() {
    let able = &PolicyName::ALL[..8];
    let wish = Qos { fallback: able.to_vec(), partition: vec![], key: vec![], ..demanding() };
    let given_up = match_qos(&modest(), &wish).unwrap();
    assert_eq!(given_up.iter().map(|m| m.policy).collect::<Vec<_>>(), able);
    let settled = wish.settled(&modest());
    assert_eq!(match_qos(&modest(), &Qos { fallback: vec![], ..settled.clone() }), Ok(vec![]));
    assert_eq!((settled.reliability, settled.deadline), (Reliability::BestEffort, None));
    let less = Qos { fallback: vec![PolicyName::Deadline], ..wish };
    assert!(!between(&modest(), &less).contains(&PolicyName::Deadline));
    assert_eq!(between(&modest(), &less).len(), 7);
}

proptest! {
    #[test]
    fn each_policy_is_judged_for_itself(bits in 0_u16..1024) {
        let chosen: Vec<PolicyName> = PolicyName::ALL.into_iter().filter(|p| bits & (1 << *p as u16) != 0).collect();
        let (mut offered, wish) = (demanding(), demanding());
        for policy in &chosen {
            let weak = modest();
            match policy {
                PolicyName::Reliability => offered.reliability = weak.reliability,
                PolicyName::Durability => offered.durability = weak.durability,
                PolicyName::Deadline => offered.deadline = weak.deadline,
                PolicyName::LatencyBudget => offered.latency_budget = weak.latency_budget,
                PolicyName::DestinationOrder => offered.destination_order = weak.destination_order,
                PolicyName::Liveliness => offered.liveliness = weak.liveliness,
                PolicyName::Ownership => offered.ownership = weak.ownership,
                // The offer's own request goes, too: a port that asks for more than it offers does not match itself.
                PolicyName::Strict => (offered.queue, offered.strict) = (weak.queue, false),
                PolicyName::Partition => offered.partition = weak.partition,
                PolicyName::Key => offered.key = weak.key,
            }
        }
        prop_assert_eq!(between(&offered, &wish), chosen);
        prop_assert_eq!(between(&offered, &offered.clone()), vec![]);
    }
}

fn meet(one: &[&str], other: &[&str]) -> bool {
    let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let (one, other) = (owned(one), owned(other));
    assert_eq!(partitions_meet(&one, &other), partitions_meet(&other, &one));
    partitions_meet(&one, &other)
}

#[test]
fn ports_meet_in_a_partition_they_share() {
    assert!(meet(&[], &[]) && meet(&[], &[""]) && meet(&[], &["*"]) && meet(&["a", "b"], &["c", "b"]));
    assert!(!meet(&[], &["a"]) && !meet(&["a"], &["b"]) && !meet(&["a"], &["?b"]));
    assert!(meet(&["left/*"], &["left/arm"]) && meet(&["[a-c]?"], &["b7"]) && meet(&["[!x]"], &["y"]));
    assert!(!meet(&["[!x]"], &["x"]) && !meet(&["a*"], &["ab?"]) && meet(&["a*"], &["a*"]));
    assert!(
        fnmatch("[]a]", "]")
            && fnmatch("[a-]", "-")
            && fnmatch("[ab", "[ab")
            && fnmatch("\\*", "*")
            && !fnmatch("\\*", "a")
    );
}

#[test]
fn a_peer_beyond_the_limits_is_not_believed() {
    let many: Vec<String> = (0..MOST + 1).map(|n| n.to_string()).collect();
    assert!(partitions_meet(&many, &[(MOST - 1).to_string()]) && !partitions_meet(&many, &[MOST.to_string()]));
    let long = vec!["x".repeat(LONGEST + 1)];
    assert!(!partitions_meet(&long, &long));
}

fn brute_force(pattern: &[char], name: &[char]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), _) => (0..=name.len()).any(|n| brute_force(rest, &name[n..])),
        (Some((p, rest)), Some((c, left))) => (*p == '?' || p == c) && brute_force(rest, left),
        _ => false,
    }
}

proptest! {
    #[test]
    fn patterns_take_what_a_brute_force_matcher_fnmatch(pattern in "[ab*?]{0,8}", name in "[ab]{0,9}") {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(fnmatch(&pattern, &name), brute_force(&chars(&pattern), &chars(&name)));
    }
    #[test]
    fn no_text_makes_the_matcher_fail(pattern in ".{0,60}", name in ".{0,60}") {
        let _ = fnmatch(&pattern, &name);
    }
}
