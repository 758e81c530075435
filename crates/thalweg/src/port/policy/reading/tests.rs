//! The policies of a subscriber in virtual time, to the nanosecond.

use super::*;
use crate::channel::InstanceState;
use crate::codec::{TypeDescription, to_cdr};
use crate::control::{NodeId, PortId};
use qos::{Liveliness, ResourceLimits};
use std::time::Duration;

#[derive(serde::Serialize, serde::Deserialize)]
struct Arm {
    id: u8,
}

fn port(node: u64, port: u32) -> PortRef {
    PortRef { node: NodeId(node), port: PortId(port) }
}

fn time(ns: u64) -> Option<Duration> {
    Some(Duration::from_nanos(ns))
}

/// A subscriber in virtual time.
struct Bench {
    reading: Reading,
    news: Vec<News>,
}

impl Bench {
    fn of(requested: Qos) -> Self {
        Self { reading: Reading::new(&requested), news: Vec::new() }
    }

    fn came(&mut self, publisher: PortRef, offered: Qos, now: u64) {
        let schema = TypeDescription::of::<Arm>().schema;
        let policy_fields = PolicyFields::find(schema.as_deref(), &offered.key, None).unwrap();
        let name = format!("/{}", publisher.port.0);
        let key = offered.key.clone();
        self.reading
            .came(Writer { port: publisher, name, topic: 7, offered, policy_fields, key, filters_here: false }, now);
    }

    /// A sample of instance `id`, published at `source` and received at `now`.
    fn sample(&mut self, publisher: PortRef, id: u8, source: u64, now: u64) -> bool {
        self.says(Change::Written, publisher, id, source, now)
    }

    fn says(&mut self, change: Change, publisher: PortRef, id: u8, source: u64, now: u64) -> bool {
        let PortRef { node, port } = publisher;
        let info = SampleInfo {
            node,
            port,
            incarnation: 1,
            seq: 1,
            source_ns: source,
            received_ns: now,
            same_clock: true,
            historical: false,
            change,
            scaled: None,
        };
        self.reading.takes(&info, &to_cdr(&Arm { id }).unwrap(), &mut self.news)
    }

    fn look(&mut self, now: u64) -> Vec<News> {
        self.reading.look(now, &mut self.news);
        self.reading.tell(&mut self.news);
        std::mem::take(&mut self.news)
    }
}

fn keyed() -> Qos {
    Qos { key: vec!["id".into()], ..Qos::default() }
}

#[test]
fn deadlines_are_missed_per_instance_and_counted() {
    let mut bench = Bench::of(Qos { deadline: time(20), ..Qos::default() });
    let one = port(1, 1);
    bench.came(one, keyed(), 0);
    assert_eq!((bench.look(1000), bench.reading.next()), (vec![], None));
    assert!(bench.sample(one, 1, 1000, 1000) && bench.sample(one, 2, 1005, 1005));
    assert_eq!((bench.look(1020), bench.reading.next()), (vec![], Some(1021)));
    let of = |id: u8, missed, total| News::DeadlineMissed { instance: Some(format!("id = {id}")), missed, total };
    assert_eq!(bench.look(1021), [of(1, 1, 1)]);
    assert_eq!(bench.look(1025), []);
    assert_eq!(bench.look(1026), [of(2, 1, 2)]);
    // A late sample reports the deadlines that were missed before it, even without a look.
    assert!(bench.sample(one, 1, 1062, 1062));
    assert_eq!(bench.reading.counts().deadlines_missed, 4);
    let mut told = bench.look(1062);
    told.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(told, [of(1, 2, 5), of(2, 1, 5)]);
    let late: Vec<_> = bench.reading.late_instances().into_iter().map(|i| (i.key, i.deadlines_missed)).collect();
    assert_eq!(late, [("id = 1".to_owned(), 3), ("id = 2".to_owned(), 2)]);
}

#[test]
fn a_sample_lives_as_long_as_the_shorter_of_both_lifespans() {
    let mut bench = Bench::of(Qos { lifespan: time(50), ..Qos::default() });
    let (short, long) = (port(1, 1), port(1, 2));
    bench.came(short, Qos { lifespan: time(10), ..Qos::default() }, 0);
    bench.came(long, Qos::default(), 0);
    assert!(bench.sample(short, 1, 100, 110) && !bench.sample(short, 1, 100, 111));
    assert!(bench.sample(long, 1, 100, 150) && !bench.sample(long, 1, 100, 151));
    assert_eq!(bench.reading.counts().expired, 2);
}

#[test]
fn samples_too_close_to_each_other_are_dropped_per_instance() {
    let mut bench = Bench::of(Qos { separation: time(20), ..Qos::default() });
    let one = port(1, 1);
    bench.came(one, keyed(), 0);
    let taken: Vec<bool> = [100, 119, 120, 139, 141].map(|at| bench.sample(one, 1, at, at + 3)).into();
    assert_eq!(taken, [true, false, true, false, true]);
    assert!(bench.sample(one, 2, 142, 145));
    assert_eq!(bench.reading.counts().separated, 2);
}

#[test]
fn by_source_nothing_older_than_what_was_delivered_is_delivered() {
    let mut bench = Bench::of(Qos { destination_order: DestinationOrder::BySource, ..Qos::default() });
    let (one, other) = (port(1, 1), port(2, 1));
    bench.came(one, Qos::default(), 0);
    bench.came(other, Qos::default(), 0);
    assert!(bench.sample(one, 1, 100, 200) && !bench.sample(other, 1, 99, 201) && bench.sample(other, 1, 100, 202));
    assert_eq!(bench.reading.counts().outdated, 1);
    let mut reception = Bench::of(Qos::default());
    assert!(reception.sample(one, 1, 100, 200) && reception.sample(other, 1, 99, 201));
}

#[test]
fn a_lease_ends_after_its_last_nanosecond_and_a_sign_begins_it_anew() {
    let liveliness = |kind| Qos { liveliness: Liveliness { kind, lease: time(50) }, ..Qos::default() };
    let mut bench = Bench::of(Qos::default());
    let (by_port, automatic) = (port(1, 1), port(1, 2));
    let (node_a, node_b) = (port(2, 3), port(2, 4));
    bench.came(by_port, liveliness(LivelinessKind::ByPort), 100);
    bench.came(automatic, liveliness(LivelinessKind::Automatic), 100);
    bench.came(node_a, liveliness(LivelinessKind::ByNode), 100);
    bench.came(node_b, liveliness(LivelinessKind::ByNode), 100);
    assert_eq!((bench.look(150), bench.reading.next()), (vec![], Some(151)));
    // A sample of one port is a sign of life for all ports of its node with the same liveliness.
    bench.sample(node_a, 1, 150, 150);
    let changed = |name: &str, alive| News::LivelinessChanged { publisher: name.into(), alive };
    assert_eq!(bench.look(151), [changed("/1", false)]);
    assert_eq!((bench.look(200), bench.reading.next()), (vec![], Some(201)));
    assert_eq!(bench.look(201), [changed("/3", false), changed("/4", false)]);
    bench.reading.sign(by_port, 300, &mut bench.news);
    bench.sample(node_b, 1, 300, 300);
    assert_eq!(bench.look(350), [changed("/1", true), changed("/3", true), changed("/4", true)]);
}

#[test]
fn the_strongest_living_publisher_owns_an_instance_and_hands_it_over() {
    let offer = |strength| Qos { ownership: Ownership::Exclusive, strength, ..keyed() };
    let mut bench = Bench::of(Qos { ownership: Ownership::Exclusive, deadline: time(100), ..Qos::default() });
    let (weak, strong, equal) = (port(1, 1), port(1, 2), port(1, 3));
    let liveliness = Liveliness { kind: LivelinessKind::ByPort, lease: time(50) };
    bench.came(weak, offer(1), 0);
    bench.came(strong, Qos { liveliness, ..offer(5) }, 0);
    bench.came(equal, offer(5), 0);
    assert!(bench.sample(weak, 1, 10, 10), "nobody else owns it yet");
    assert!(bench.sample(strong, 1, 11, 11) && !bench.sample(weak, 1, 12, 12) && bench.sample(weak, 2, 12, 12));
    assert!(!bench.sample(equal, 1, 13, 13), "of equal ones, that with the lowest id");
    // It gives no sign of life: the next publisher owns the instance, until the first comes back.
    assert!(bench.look(61).is_empty());
    assert_eq!(bench.look(62).len(), 1);
    assert!(bench.sample(weak, 1, 63, 63) && bench.sample(equal, 1, 64, 64) && !bench.sample(weak, 1, 65, 65));
    assert!(bench.sample(strong, 1, 66, 66) && !bench.sample(equal, 1, 67, 67));
    // The owner exceeds the deadline.
    bench.reading.sign(strong, 160, &mut bench.news);
    bench.look(166);
    assert!(!bench.sample(weak, 1, 166, 166));
    bench.look(167);
    assert!(bench.sample(weak, 1, 168, 168));
    // Its channel ends.
    assert!(bench.sample(strong, 1, 169, 169) && !bench.sample(weak, 1, 170, 170));
    bench.reading.left(strong, &mut bench.news);
    assert!(bench.sample(weak, 1, 171, 171));
}

fn changed(id: u8, state: InstanceState) -> News {
    News::InstanceChanged { key: format!("id = {id}"), state }
}

#[test]
fn an_instance_is_alive_until_it_is_disposed_of_or_its_last_publisher_is_gone() {
    use InstanceState::{Alive, Disposed, NoPublishers};
    let mut bench = Bench::of(Qos { deadline: time(20), ..keyed() });
    let liveliness = Liveliness { kind: LivelinessKind::ByPort, lease: time(1000) };
    let (one, other) = (port(1, 1), port(1, 2));
    bench.came(one, keyed(), 0);
    bench.came(other, Qos { liveliness, ..keyed() }, 0);
    assert!(bench.sample(one, 1, 10, 10) && bench.sample(one, 2, 10, 10) && bench.sample(other, 1, 11, 11));
    let state = |bench: &Bench| bench.reading.instances().iter().map(|i| (i.state, i.publishers)).collect::<Vec<_>>();
    assert_eq!((bench.look(11), state(&bench)), (vec![], vec![(Alive, 2), (Alive, 1)]));
    // A disposed instance: delivered, reported, and not due any more.
    assert!(bench.says(Change::Disposed, one, 1, 12, 12));
    assert_eq!(bench.look(12), [changed(1, Disposed)]);
    assert!(bench.says(Change::Unregistered, one, 2, 13, 13));
    assert_eq!((bench.look(13), bench.reading.next()), (vec![changed(2, NoPublishers)], Some(1012)));
    // The instance comes back with the next value, and has its publishers as before.
    assert!(bench.sample(other, 1, 14, 14));
    assert_eq!((bench.look(14), state(&bench)), (vec![changed(1, Alive)], vec![(Alive, 2), (NoPublishers, 0)]));
    bench.reading.left(one, &mut bench.news);
    assert_eq!((bench.look(15), state(&bench)[0]), (vec![], (Alive, 1)));
    // The lease of the other one ends: no publisher remains.
    bench.reading.sign(other, 20, &mut bench.news);
    let told = bench.look(1021);
    assert!(told.contains(&changed(1, NoPublishers)), "{told:?}");
}

#[test]
fn a_publisher_that_does_not_own_an_instance_does_not_end_it() {
    let offer = |strength| Qos { ownership: Ownership::Exclusive, strength, ..keyed() };
    let mut bench = Bench::of(Qos { ownership: Ownership::Exclusive, ..keyed() });
    let (weak, strong) = (port(1, 1), port(1, 2));
    bench.came(weak, offer(1), 0);
    bench.came(strong, offer(5), 0);
    assert!(bench.sample(strong, 1, 10, 10) && !bench.says(Change::Disposed, weak, 1, 11, 11));
    assert!(!bench.says(Change::Unregistered, weak, 1, 12, 12) && bench.look(12).is_empty());
    // A publisher that unregisters the instance gives it up; the next publisher owns it at once.
    assert!(bench.says(Change::Unregistered, strong, 1, 13, 13) && bench.sample(weak, 1, 14, 14));
    assert_eq!(bench.look(14), [changed(1, InstanceState::NoPublishers), changed(1, InstanceState::Alive)]);
}

#[test]
fn instances_that_ended_give_way_to_others() {
    let limits = ResourceLimits { instances: Some(2), ..Default::default() };
    let mut bench = Bench::of(Qos { limits, ..keyed() });
    let one = port(1, 1);
    bench.came(one, keyed(), 0);
    assert!(bench.sample(one, 1, 10, 10) && bench.sample(one, 2, 10, 10) && !bench.sample(one, 3, 10, 10));
    assert!(bench.says(Change::Disposed, one, 1, 11, 11) && bench.sample(one, 3, 12, 12));
    assert_eq!(bench.reading.instances().len(), 2);
}

#[test]
fn instances_beyond_the_limit_are_rejected_and_told() {
    let limits = ResourceLimits { instances: Some(2), ..Default::default() };
    let mut bench = Bench::of(Qos { limits, ..Qos::default() });
    let one = port(1, 1);
    bench.came(one, keyed(), 0);
    let taken: Vec<bool> = [1, 2, 3, 1, 4].map(|id| bench.sample(one, id, 10, 10)).into();
    assert_eq!(taken, [true, true, false, true, false]);
    assert_eq!(bench.look(11), [News::Rejected { most: 2, rejected: 2, total: 2 }]);
    assert_eq!(bench.look(12), []);
}

#[test]
fn a_sample_later_than_the_budget_is_delivered_and_counted() {
    let mut bench = Bench::of(Qos { latency_budget: time(10), ..Qos::default() });
    let one = port(1, 1);
    assert!(bench.sample(one, 1, 100, 110) && bench.sample(one, 1, 100, 111));
    assert_eq!(bench.look(200), [News::BudgetExceeded { late: 1, total: 1 }]);
}
