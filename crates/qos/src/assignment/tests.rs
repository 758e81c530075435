use super::*;
use crate::Class;
use crate::analysis::cpu::{Work, response};
use crate::analysis::end_to_end::analyse;
use crate::analysis::stages::{Classes, Stages};
use crate::analysis::{Arrivals, Steps};
use crate::network::{Direction, Network};
use crate::system::{Link, Node, NodeKind, Scheduler, Subscriber, System, Topic, Transport};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use std::cell::Cell;

/// A thread: its work, blocking by lower ones, deadline.
type Thread = (Work, u64, u64);

fn fits(threads: &[Thread], own: usize, higher: &[usize]) -> bool {
    let works: Vec<Work> = higher.iter().map(|i| threads[*i].0).collect();
    let (work, blocking, deadline) = &threads[own];
    response(work, &work.arrivals, &works, *blocking, &Steps::new(u64::MAX)).is_ok_and(|found| found.time <= *deadline)
}

fn all_fit(threads: &[Thread], order: &[usize]) -> bool {
    (0..order.len()).all(|i| fits(threads, order[i], &order[..i]))
}

/// Tries every permutation; one that begins with a thread that does not fit is not followed.
fn any_fits(threads: &[Thread], order: &mut Vec<usize>) -> bool {
    let left = (0..threads.len()).filter(|thread| !order.contains(thread)).collect::<Vec<_>>();
    left.is_empty()
        || left.into_iter().any(|next| {
            fits(threads, next, order) && {
                order.push(next);
                let found = any_fits(threads, order);
                order.pop();
                found
            }
        })
}

fn threads(most: usize) -> impl Strategy<Value = Vec<Thread>> {
    let thread = (10..60u64, 1..12u64, 0..30u64, 0..4u64, 5..80u64);
    prop::collection::vec(thread, 1..=most).prop_map(|all| {
        let one = |(period, execution, jitter, blocking, deadline)| {
            (Work { arrivals: Arrivals { period, jitter }, execution }, blocking, deadline)
        };
        all.into_iter().map(one).collect()
    })
}

/// Audsley finds an order whenever any of the up to 7! orders fits.
#[test]
fn the_order_is_optimal() {
    let config = ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() };
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let (fit, seven) = (Cell::new(0), Cell::new(0));
    TestRunner::new_with_rng(config, seed)
        .run(&threads(7), |threads| {
            let found = audsley(threads.len(), |own, higher| fits(&threads, own, higher));
            prop_assert_eq!(found.is_some(), any_fits(&threads, &mut Vec::new()));
            prop_assert!(found.as_ref().is_none_or(|order| all_fit(&threads, order)));
            fit.set(fit.get() + u32::from(found.is_some()));
            seven.set(seven.get() + u32::from(threads.len() == 7));
            Ok(())
        })
        .unwrap();
    let (fit, seven) = (fit.into_inner(), seven.into_inner());
    println!("1000 sets of threads, {seven} of them of seven: {fit} have an order that fits");
    assert!((100..900).contains(&fit) && seven > 100, "each kind is among them");
}

/// Threads by deadline, the shortest first, ties in the given order: optimal if no deadline is above its period, and
/// no thread has jitter (Leung & Whitehead 1982).
fn deadline_monotonic(deadlines: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..deadlines.len()).collect();
    order.sort_by_key(|thread| (deadlines[*thread], *thread));
    order
}

proptest! {
    /// Deadline monotonic, where it is optimal, fits whenever Audsley's order does.
    #[test]
    fn deadline_monotonic_is_optimal_without_jitter(mut threads in threads(6)) {
        for (work, blocking, deadline) in &mut threads {
            (work.arrivals.jitter, *blocking, *deadline) = (0, 0, (*deadline).min(work.arrivals.period));
        }
        let by_deadline = deadline_monotonic(&threads.iter().map(|thread| thread.2).collect::<Vec<_>>());
        let exists = audsley(threads.len(), |own, higher| fits(&threads, own, higher)).is_some();
        prop_assert_eq!(all_fit(&threads, &by_deadline), exists);
    }

    /// On one link: all deadlines are kept if any of the classes' combinations keeps them, and no topic has a higher class than in the lowest
    /// of these combinations.
    #[test]
    fn classes_are_the_least_that_fit(topics in prop::collection::vec((1..12u64, 1..7u64, 1..60u64), 1..5)) {
        let system = one_link(&topics, Scheduler::Strict);
        let network = Network::new(&system);
        let found = assign(&system, &network, &[], false, &Steps::of(&system));
        let mut least: Option<Vec<Class>> = None;
        let levels = [Class::Normal, Class::High, Class::Critical];
        for code in 0..3usize.pow(topics.len() as u32) {
            let classes: Vec<Class> = (0..topics.len()).map(|i| levels[code / 3usize.pow(i as u32) % 3]).collect();
            if keeps(&system, &network, &classes) {
                let lower = |least: Vec<Class>| least.iter().zip(&classes).map(|(a, b)| *a.min(b)).collect();
                least = Some(least.map_or(classes.clone(), lower));
            }
        }
        prop_assert_eq!(found.fits, least.is_some());
        if let Some(least) = least {
            prop_assert_eq!(by_topic(&system, &found.classes), least);
        }
    }
}

/// Of systems with one subscriber to each topic, in their order, and all publishers at node 0.
fn by_topic(system: &System, classes: &Classes) -> Vec<Class> {
    (0..system.topics.len()).map(|topic| classes.of(0, topic)).collect()
}

fn keeps(system: &System, network: &Network, classes: &[Class]) -> bool {
    let stages = Stages::new(system, network, &[], &Classes::new(system, |topic| classes[topic]));
    let analysis = analyse(system, &stages, &Steps::of(system));
    let kept = |(pair, bound): (&crate::analysis::stages::Pair, &crate::analysis::end_to_end::Bound)| {
        bound.ns.is_ok_and(|ns| system.subscribers[pair.subscriber].deadline.is_none_or(|deadline| ns <= deadline))
    };
    stages.pairs.iter().zip(&analysis.pairs).all(kept)
}

/// Topics of a number of packets of 100 µs, with periods in ms and deadlines in 100 µs.
fn one_link(topics: &[(u64, u64, u64)], scheduler: Scheduler) -> System {
    let node = |name: &str| Node { name: name.into(), kind: NodeKind::Host, cpus: 1, ..Node::default() };
    let rate = 100_000_000;
    let mut system = System {
        nodes: vec![node("a"), node("b")],
        links: vec![Link { between: [0, 1], rate, mtu: 1250, scheduler, ..Link::default() }],
        ..System::default()
    };
    for (index, (packets, ms, deadline)) in topics.iter().enumerate() {
        let (size, period) = (packets * 1250, ms * 1_000_000);
        system.topics.push(Topic { size, period, burst: 1, publishers: vec![0], ..Topic::default() });
        let deadline = Some(deadline * 100_000);
        system.subscribers.push(Subscriber { topic: index, node: 1, scale: 1, deadline, ..Subscriber::default() });
    }
    system
}

#[test]
fn the_least_important_gives_way() {
    // Both want 80 % of the link.
    let mut system = one_link(&[(8, 1, 50), (8, 1, 50)], Scheduler::Strict);
    (system.subscribers[0].importance, system.subscribers[1].importance) = (1, 5);
    let network = Network::new(&system);
    let refused = assign(&system, &network, &[], false, &Steps::of(&system));
    assert!(!refused.fits && refused.gave_way.is_empty());
    let found = assign(&system, &network, &[], true, &Steps::of(&system));
    assert_eq!((found.fits, found.gave_way.as_slice(), found.classes.of(0, 1)), (true, &[0][..], Class::Normal));
    system.subscribers[1].importance = 1;
    assert_eq!(
        assign(&system, &network, &[], true, &Steps::of(&system)).gave_way,
        [1],
        "of equals the last of the file"
    );
}

#[test]
fn a_class_is_raised_only_where_it_counts_and_a_fixed_one_never() {
    // 200 µs beside a sample of 1 ms.
    let topics = [(10, 10, 100), (1, 10, 7)];
    let classes = |system: &System| {
        let found = assign(system, &Network::new(system), &[], false, &Steps::of(system));
        (found.fits, by_topic(system, &found.classes))
    };
    // On a host that sends super-packets the lower sample is one unit: it cannot be passed.
    let mut system = one_link(&topics, Scheduler::Strict);
    assert!(!classes(&system).0);
    system.nodes[0].kind = NodeKind::Switch;
    assert_eq!(classes(&system), (true, vec![Class::Normal, Class::High]));
    system.topics[1].class = Some(Class::Normal);
    assert_eq!(classes(&system), (false, vec![Class::Normal; 2]));
    system.topics[1].class = None;
    system.links[0].scheduler = Scheduler::Fifo;
    assert_eq!(classes(&system), (false, vec![Class::Normal; 2]));
    // A subscriber without a deadline makes room.
    system.links[0].scheduler = Scheduler::Strict;
    system.subscribers[0].deadline = None;
    system.topics[1].class = Some(Class::Normal);
    assert_eq!(classes(&system), (true, vec![Class::Low, Class::Normal]));
}

/// A topic that a controller wants within 0.7 ms and a logger within half a second (Y-01).
fn controller_and_logger() -> System {
    let mut system = one_link(&[(10, 10, 100), (1, 10, 7)], Scheduler::Strict);
    system.nodes[0].kind = NodeKind::Switch;
    let logger = Subscriber { deadline: Some(500_000_000), ..system.subscribers[1].clone() };
    system.subscribers.push(logger);
    system
}

#[test]
fn a_class_is_that_of_a_channel_not_of_its_topic() {
    let mut system = controller_and_logger();
    let classes = |system: &System| {
        let found = assign(system, &Network::new(system), &[], false, &Steps::of(system));
        (found.fits, [0, 1, 2].map(|subscriber| found.classes.of(0, subscriber)))
    };
    assert_eq!(classes(&system), (true, [Class::Normal, Class::High, Class::Normal]));
    // A group has one way.
    system.placement.transport = Transport::Multicast;
    assert_eq!(classes(&system), (true, [Class::Normal, Class::High, Class::High]));
}

#[test]
fn a_class_that_all_subscribers_of_a_topic_have_costs_what_others_need() {
    // Two loggers of five packets every millisecond: with the controller's class they leave the third topic no time.
    let mut system = one_link(&[(1, 1, 3), (1, 1, 6)], Scheduler::Strict);
    system.nodes[0].kind = NodeKind::Switch;
    let logger = Subscriber { deadline: Some(500_000_000), ..system.subscribers[0].clone() };
    system.subscribers.extend(vec![logger; 4]);
    let fits = |system: &System| assign(system, &Network::new(system), &[], false, &Steps::of(system)).fits;
    assert!(fits(&system));
    system.topics[0].class = Some(Class::High);
    assert!(!fits(&system), "five samples of 100 us each, before one that has 600");
}

#[test]
fn threads_are_ranked_by_what_their_deadlines_leave() {
    // By deadline the first goes first; but its way on the wire is short, and the second's is long.
    let mut system = one_link(&[(1, 20, 62), (30, 20, 90)], Scheduler::Strict);
    system.topics.iter_mut().for_each(|topic| topic.cpu_send = 3_000_000);
    system.links[0].rate = 1_000_000_000;
    let found = assign(&system, &Network::new(&system), &[], false, &Steps::of(&system));
    assert!(found.fits, "{:?}", found.analysis.pairs);
    assert_eq!([0, 1, 2].map(|rank| fifo_priority(rank, 3)), [48, 43, 38]);
    assert_eq!((fifo_priority(0, 1), fifo_priority(46, 47), fifo_priority(99, 200)), (48, 2, 2));
}

#[test]
fn shares_and_queues_follow_from_what_is_sent() {
    let mut system = one_link(&[(1, 1, 90), (3, 1, 90)], Scheduler::Strict);
    system.topics[1].class = Some(Class::High);
    let found = assign(&system, &Network::new(&system), &[], false, &Steps::of(&system));
    let there = Direction { link: 0, reversed: false };
    // 10 % of load and 30 %, one percent besides, and of the remaining 56 % half each.
    assert_eq!(found.stages.egresses[0].shares, [10_000_000, 390_000_000, 590_000_000, 10_000_000]);
    assert_eq!(found.stages.egresses[1].shares, [250_000_000; 4]);
    assert_eq!(
        queue_limit(&found.analysis, there, Class::High).map(|room| (room.bytes, room.packets)),
        Some((3750, 4))
    );
    assert_eq!(queue_limit(&found.analysis, there, Class::Low).map(|room| room.packets), Some(1));
}
